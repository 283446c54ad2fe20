//! Stores that a host writes: objects whose methods take and give JSON.
//!
//! What such a store is asked to change (`open`, `create`, `append`, `close`) runs to its end also when nobody waits any
//! more, one operation of a writer after the other, so that giving up waiting never leaves a writer behind. What it
//! reads is cancelled with its reader.

use crate::error::{Code, Error, Result};
use crate::id::SessionId;
use crate::json::Value;
use crate::runtime::{LocalBoxFuture, Runtime, WakerSet, oneshot};
use crate::session::{Event, SessionHeader};
use crate::storage::{Copied, EventTypes, LogReader, Opened, SessionWriter, Store, StoredLog};
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// How many headers are asked for at a time when all are wanted.
const PAGE: usize = 1000;

/// One call of a method of a host's store, or of a writer that it gave.
pub struct StoreCall {
    /// `listPage`, `exists`, `read`, `open`, `create`; `append`, `close` of a writer.
    pub method: &'static str,
    /// What names the writer, as the store gave it; null for a method of the store itself.
    pub writer: Value,
    /// `[after, limit]`, `[id]`, `[id]`, `[id]`, `[header]`; `[seq, texts]`, `[]` of a writer.
    pub arguments: Vec<Value>,
}

/// A store's object, as a binding reaches it.
pub trait StoreObject {
    /// Calls a method. The answers are a list of headers, a truth, null or `{"header", "events"}`, the same with
    /// `"writer"`, and `{"writer"}`; those of a writer do not matter.
    fn call(&self, call: StoreCall) -> LocalBoxFuture<Result<Value>>;

    /// The runtime that the store works for; fails once it is closed.
    fn runtime(&self) -> Result<Runtime>;
}

/// The outcome of a copy as `{"header", "events", "replacedCharacters", "tornBytes"}`.
pub fn copied_value(copied: &Copied) -> Value {
    crate::json!({
        "header": copied.header.to_value(),
        "events": copied.events,
        "replacedCharacters": copied.replaced_characters as u64,
        "tornBytes": copied.torn_bytes,
    })
}

/// A store that a host writes. Clones are the same store.
#[derive(Clone)]
pub struct HostStore {
    object: Rc<dyn StoreObject>,
    /// Writers that were dropped and are being closed: openings wait for them.
    closing: Rc<Turn>,
}

/// Counts what is under way, and lets others wait until nothing is.
#[derive(Default)]
struct Turn {
    taken: Cell<usize>,
    freed: WakerSet,
}

/// Ends a turn, also of a future that is dropped.
struct Taken(Rc<Turn>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.taken.set(self.0.taken.get() - 1);
        self.0.freed.wake_all();
    }
}

impl Turn {
    fn take(self: &Rc<Self>) -> Taken {
        self.taken.set(self.taken.get() + 1);
        Taken(self.clone())
    }

    async fn free(self: Rc<Self>) {
        std::future::poll_fn(|context| {
            if self.taken.get() == 0 {
                return Poll::Ready(());
            }
            self.freed.register(context);
            Poll::Pending
        })
        .await;
    }
}

/// An error of a store: an exception that is none of the runtime's means that the store failed.
fn store_error(error: Error) -> Error {
    if error.is_aborted() {
        return error;
    }
    match error.code().clone() {
        Code::HostError => wrapped(error),
        Code::Other(name) => match Code::parse(&name) {
            Code::Other(_) => wrapped(error),
            known => error.with_code(known),
        },
        _ => error,
    }
}

fn wrapped(error: Error) -> Error {
    let name = error.name().unwrap_or("an error").to_owned();
    let message = format!("the store failed with {name}: {}", error.message());
    Error::new(Code::StoreFailed, message).caused_by(error)
}

fn bad_answer(method: &str, what: &str) -> Error {
    Error::new(Code::StoreFailed, format!("`{method}` of the store returned {what}"))
}

fn header_of(value: &Value) -> Result<SessionHeader> {
    LogReader::header(value.to_text().as_bytes(), "the store")
}

async fn log_of(value: &Value, method: &str) -> Result<StoredLog> {
    let shape = || bad_answer(method, "something else than nothing or {header, events: [text, …]}");
    let header = header_of(value.get("header").ok_or_else(shape)?)?;
    let events = value.get("events").and_then(Value::as_array).ok_or_else(shape)?;
    let texts: Option<Vec<String>> = events.iter().map(|event| event.as_str().map(str::to_owned)).collect();
    let texts = texts.ok_or_else(|| bad_answer(method, "an event that is no text"))?;
    StoredLog::from_texts(header, texts, "the store", &EventTypes::default()).await
}

/// Runs an operation to its end, whether or not anybody still waits for it.
async fn detached<T: 'static>(runtime: Runtime, operation: impl Future<Output = Result<T>> + 'static) -> Result<T> {
    let (sender, receiver) = oneshot();
    runtime.spawn(async move { sender.send(operation.await) });
    drop(runtime);
    receiver.await.unwrap_or_else(|| Err(Error::new(Code::RuntimeClosed, "the context is closed")))
}

impl HostStore {
    /// The store of an object.
    pub fn new(object: impl StoreObject + 'static) -> Self {
        Self { object: Rc::new(object), closing: Rc::default() }
    }

    async fn ask(&self, method: &'static str, arguments: Vec<Value>) -> Result<Value> {
        let call = StoreCall { method, writer: Value::Null, arguments };
        self.object.call(call).await.map_err(store_error)
    }

    async fn page(&self, after: Option<&str>, limit: usize) -> Result<Vec<SessionHeader>> {
        let after = after.map_or(Value::Null, Value::from);
        let page = self.ask("listPage", vec![after, Value::from(limit as u64)]).await?;
        let headers = page.as_array().ok_or_else(|| bad_answer("listPage", "no list of headers"))?;
        headers.iter().map(header_of).collect()
    }

    fn writer(&self, value: &Value, method: &str) -> Result<HostWriter> {
        let name = value.get("writer").ok_or_else(|| bad_answer(method, "no writer"))?.clone();
        let state = WriterState { store: self.clone(), name, busy: Rc::default() };
        Ok(HostWriter { state: Rc::new(state), is_closed: Cell::new(false) })
    }
}

impl Store for HostStore {
    fn list(&self) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        let store = self.clone();
        Box::pin(async move {
            let mut all: Vec<SessionHeader> = Vec::new();
            loop {
                let after = all.last().map(|header| header.id.clone());
                let page = store.page(after.as_deref(), PAGE).await?;
                let is_last = page.len() < PAGE;
                // A store that ignores `after` would be asked for ever.
                if page.first().is_some_and(|first| after.is_some_and(|after| first.id <= after)) {
                    return Err(bad_answer("listPage", "sessions that do not follow `after`"));
                }
                all.extend(page);
                if is_last {
                    return Ok(all);
                }
            }
        })
    }

    fn list_page(&self, after: Option<&SessionId>, limit: usize) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        let (store, after) = (self.clone(), after.cloned());
        Box::pin(async move { store.page(after.as_deref(), limit).await })
    }

    fn read(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<StoredLog>>> {
        let (store, id) = (self.clone(), Value::from(id.as_str()));
        Box::pin(async move {
            match store.ask("read", vec![id]).await? {
                Value::Null => Ok(None),
                found => log_of(&found, "read").await.map(Some),
            }
        })
    }

    fn exists(&self, id: &SessionId) -> LocalBoxFuture<Result<bool>> {
        let (store, id) = (self.clone(), Value::from(id.as_str()));
        Box::pin(async move {
            let found = store.ask("exists", vec![id]).await?;
            found.as_bool().ok_or_else(|| bad_answer("exists", "neither true nor false"))
        })
    }

    fn open(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<Opened>>> {
        let (store, id) = (self.clone(), Value::from(id.as_str()));
        Box::pin(async move {
            let runtime = store.object.runtime()?;
            let opening = async move {
                store.closing.clone().free().await;
                let found = store.ask("open", vec![id]).await?;
                if found.is_null() {
                    return Ok(None);
                }
                // The writer first: it is closed again if the log cannot be read.
                let writer = store.writer(&found, "open")?;
                Ok(Some((log_of(&found, "open").await?, Rc::new(writer) as Rc<dyn SessionWriter>)))
            };
            detached(runtime, opening).await
        })
    }

    fn create(&self, header: &SessionHeader) -> LocalBoxFuture<Result<Rc<dyn SessionWriter>>> {
        let (store, header) = (self.clone(), header.clone());
        Box::pin(async move {
            header.check()?;
            let runtime = store.object.runtime()?;
            let creating = async move {
                store.closing.clone().free().await;
                let made = store.ask("create", vec![header.to_value()]).await?;
                Ok(Rc::new(store.writer(&made, "create")?) as Rc<dyn SessionWriter>)
            };
            detached(runtime, creating).await
        })
    }
}

struct WriterState {
    store: HostStore,
    name: Value,
    /// Taken by the operation that is under way.
    busy: Rc<Turn>,
}

struct HostWriter {
    state: Rc<WriterState>,
    is_closed: Cell<bool>,
}

impl WriterState {
    async fn run(self: Rc<Self>, method: &'static str, arguments: Vec<Value>) -> Result<()> {
        self.busy.clone().free().await;
        let _taken = self.busy.take();
        let call = StoreCall { method, writer: self.name.clone(), arguments };
        self.store.object.call(call).await.map(drop).map_err(store_error)
    }
}

impl SessionWriter for HostWriter {
    fn append(&self, events: Vec<Arc<Event>>) -> LocalBoxFuture<Result<()>> {
        let (state, is_closed) = (self.state.clone(), self.is_closed.get());
        Box::pin(async move {
            if is_closed {
                return Err(Error::new(Code::StoreFailed, "the writer is closed; open the session again"));
            }
            let Some(first) = events.first().map(|event| event.seq) else { return Ok(()) };
            // A gap inside is nobody's batch, so no store has to look for one.
            if let Some((expected, event)) = (first..).zip(&events).find(|(seq, event)| event.seq != *seq) {
                let message = format!("a batch goes on with seq {expected}, and has {}", event.seq);
                return Err(Error::new(Code::StoreConflict, message).with("expected", expected));
            }
            let text = |event: &Arc<Event>| {
                let mut text = String::new();
                event.write(&mut text);
                Value::from(text)
            };
            let texts: Vec<Value> = events.iter().map(text).collect();
            let runtime = state.store.object.runtime()?;
            detached(runtime, state.run("append", vec![Value::from(first), Value::from(texts)])).await
        })
    }

    fn close(&self) -> LocalBoxFuture<()> {
        let closing = self.close_now();
        Box::pin(async move {
            if let Some(closing) = closing {
                closing.await;
            }
        })
    }
}

impl HostWriter {
    fn close_now(&self) -> Option<LocalBoxFuture<()>> {
        if self.is_closed.replace(true) {
            return None;
        }
        let (state, runtime) = (self.state.clone(), self.state.store.object.runtime().ok()?);
        let taken = state.store.closing.take();
        let closed = detached(runtime, async move {
            let closed = state.run("close", Vec::new()).await;
            drop(taken);
            closed
        });
        Some(Box::pin(async move {
            if let Err(error) = closed.await {
                tracing::error!(target: "turnwheel", "a store failed to close a session: {error:?}");
            }
        }))
    }
}

impl Drop for HostWriter {
    fn drop(&mut self) {
        if let Some(closing) = self.close_now()
            && let Ok(runtime) = self.state.store.object.runtime()
        {
            runtime.spawn(closing);
        }
    }
}
