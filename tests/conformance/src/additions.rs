//! Actions and doubles of our own (SCENARIO.md section 13): what is asked of an agent, operations that are waited for and
//! withdrawn, and a store that can be told to refuse.

use crate::action::Action;
use crate::record::plain;
use crate::world::World;
use serde_json::{Value as Json, json};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use turnwheel::agent::Receipt;
use turnwheel::host;
use turnwheel::id::SessionId;
use turnwheel::runtime::LocalBoxFuture;
use turnwheel::session::{Event, SessionHeader};
use turnwheel::storage::{Opened, SessionWriter, Store, StoredLog};
use turnwheel::{Code, Error, Result};

/// Notes what the agent says of itself, as a notice.
pub fn ask(world: &World, action: &Action, agent: &str) -> Result<()> {
    let subject = world.agent(agent)?;
    let id = || action.text("id").ok_or_else(|| Error::host("the scenario is wrong: `id` is missing"));
    let what = action.text("what").unwrap_or_default();
    let answer = match what {
        "state" => plain(&subject.state()?.to_value()),
        "receipt" => subject.receipt(id()?).state().map_or(Json::Null, |state| plain(&host::receipt_value(&state))),
        "agent" => world
            .ctx()
            .find_agent(id()?)
            .map_or(Json::Null, |found| json!({ "id": found.id().as_str(), "status": found.status().as_str() })),
        "stored" => json!(world.store.len(agent)),
        other => return Err(Error::host(format!("the scenario is wrong: nobody knows {other:?}"))),
    };
    let mut notice = json!({ "event": "ask", "what": what, "answer": answer });
    if let Some(id) = action.text("id") {
        notice["id"] = json!(id);
    }
    world.recorder.note(&subject, notice);
    Ok(())
}

/// An operation that is waited for.
pub struct Operation {
    future: RefCell<Option<LocalBoxFuture<Result<Json>>>>,
    is_detached: bool,
    is_withdrawn: Cell<bool>,
}

/// Starts waiting: `settled`, `durable` or `run`.
pub fn wait(world: &Rc<World>, action: &Action, agent: &str) -> Result<()> {
    let name = action.text("name").ok_or_else(|| Error::host("the scenario is wrong: `name` is missing"))?;
    let agent = world.agent(agent)?;
    let receipt = || action.text("id").map(|id| agent.receipt(id));
    let receipt = || receipt().ok_or_else(|| Error::host("the scenario is wrong: `id` is missing"));
    let future: LocalBoxFuture<Result<Json>> = match action.act.as_str() {
        "settled" => {
            let settled = receipt()?.settled();
            Box::pin(async move { settled.await.map(|state| plain(&host::receipt_value(&state))) })
        }
        "durable" => {
            let receipt: Receipt = receipt()?;
            Box::pin(async move { receipt.durable().await.map(|()| json!("ok")) })
        }
        _ => {
            let message = action.message().map_err(Error::host)?.to_core()?;
            let running = agent.run(message);
            Box::pin(async move { running?.await.map(|result| run_result(&host::run_value(&result))) })
        }
    };
    let operation = Rc::new(Operation {
        future: RefCell::new(Some(future)),
        is_detached: action.flag("detached"),
        is_withdrawn: Cell::new(false),
    });
    world.operations.borrow_mut().insert(name.to_owned(), operation.clone());
    let (world, name) = (world.clone(), name.to_owned());
    let runtime = world.ctx().runtime().clone();
    runtime.spawn(async move {
        if let Some(outcome) = operation.outcome().await {
            let outcome = outcome.unwrap_or_else(|error| json!({ "failed": error.code().as_str() }));
            world.settled.borrow_mut().push((name, outcome));
        }
    });
    Ok(())
}

impl Operation {
    /// What came of it; `None` once it was withdrawn.
    async fn outcome(&self) -> Option<Result<Json>> {
        std::future::poll_fn(|context| {
            // Taken out while it is polled: what it causes may withdraw it.
            let Some(mut future) = self.future.borrow_mut().take() else { return Poll::Ready(None) };
            let polled = future.as_mut().poll(context);
            if self.is_withdrawn.get() && !self.is_detached {
                return Poll::Ready(None);
            }
            match polled {
                Poll::Ready(_) if self.is_withdrawn.get() => Poll::Ready(None),
                Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
                Poll::Pending => {
                    *self.future.borrow_mut() = Some(future);
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// Gives up waiting for an operation, as cancelling an `await` does.
pub fn withdraw(world: &World, action: &Action) -> Result<()> {
    let name = action.text("name").unwrap_or_default();
    let operation = world.operations.borrow_mut().remove(name);
    let operation = operation.ok_or_else(|| Error::host(format!("nothing waits under the name {name}")))?;
    operation.is_withdrawn.set(true);
    world.settled.borrow_mut().push((name.to_owned(), json!("withdrawn")));
    let dropped = if operation.is_detached { None } else { operation.future.borrow_mut().take() };
    drop(dropped);
    Ok(())
}

/// Messages are told by their roles: their texts are in the log.
fn run_result(result: &turnwheel::json::Value) -> Json {
    let mut json = plain(result);
    let roles: Json =
        json["messages"].as_array().into_iter().flatten().map(|message| message["role"].clone()).collect();
    json["messages"] = roles;
    json
}

/// A store in memory. It outlives lifetimes, and refuses batches when told to.
#[derive(Clone, Default)]
pub struct StoreDouble(Rc<Shelf>);

#[derive(Default)]
struct Shelf {
    events: RefCell<HashMap<String, usize>>,
    refuses: Cell<bool>,
}

impl StoreDouble {
    /// From now on batches are refused, or no longer.
    pub fn refuse(&self, refuses: bool) {
        self.0.refuses.set(refuses);
    }

    /// How many events of a session are stored.
    fn len(&self, id: &str) -> usize {
        self.0.events.borrow().get(id).copied().unwrap_or(0)
    }
}

impl Store for StoreDouble {
    fn list(&self) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn read(&self, _: &SessionId) -> LocalBoxFuture<Result<Option<StoredLog>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn open(&self, _: &SessionId) -> LocalBoxFuture<Result<Option<Opened>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn create(&self, header: &SessionHeader) -> LocalBoxFuture<Result<Rc<dyn SessionWriter>>> {
        let writer: Rc<dyn SessionWriter> =
            Rc::new(Writer { shelf: self.0.clone(), id: header.id.as_str().to_owned() });
        Box::pin(std::future::ready(Ok(writer)))
    }
}

struct Writer {
    shelf: Rc<Shelf>,
    id: String,
}

impl SessionWriter for Writer {
    fn append(&self, events: Vec<Arc<Event>>) -> LocalBoxFuture<Result<()>> {
        let outcome = if self.shelf.refuses.get() {
            Err(Error::new(Code::StoreFailed, "the store refuses"))
        } else {
            *self.shelf.events.borrow_mut().entry(self.id.clone()).or_default() += events.len();
            Ok(())
        };
        Box::pin(std::future::ready(outcome))
    }

    fn close(&self) -> LocalBoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}
