//! Events of an application's or plug-in's own, in the five modes of EVT-1 but the waterfall.
//!
//! An event is a type; its listeners are found by it. Notifications, waterfalls and checks of the runtime itself are
//! elsewhere (`crate::agent`): they have contracts of their own.

use super::channel::{Channel, Placement, Snapshot};
use super::dispatch::DispatchMode;
use super::{guarded, guarded_future};
use crate::context::{Context, Listening, Registration};
use crate::error::{Code, Error, Result};
use crate::runtime::LocalBoxFuture;
use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::rc::Rc;
use std::task::Poll;

/// An event of your own: any type, with the type of what a listener may answer.
pub trait PluginEvent: 'static {
    /// The name, for messages: words separated by slashes.
    const NAME: &'static str;
    /// What a listener may answer. The first answer ends a dispatch that bails (EVT-4).
    type Answer: 'static;
}

type Answered<E> = Result<Option<<E as PluginEvent>::Answer>>;

type SyncListener<E> = dyn Fn(&E) -> Answered<E>;
type AsyncListener<E> = dyn Fn(Rc<E>) -> LocalBoxFuture<Answered<E>>;

/// A listener, and where it listens.
struct Ear<E: PluginEvent> {
    listener: Listener<E>,
    /// None for a global one, which hears whatever a receiver's predicate says (EVT-14).
    place: Option<Listening>,
}

/// One that answers at once, or one that is awaited.
enum Listener<E: PluginEvent> {
    Sync(Box<SyncListener<E>>),
    Async(Box<AsyncListener<E>>),
}

type Table<E> = Channel<Ear<E>>;

/// The listener tables of all plug-in events of a root.
#[derive(Default)]
pub(crate) struct PluginEvents {
    tables: RefCell<HashMap<TypeId, Rc<dyn Any>>>,
}

impl PluginEvents {
    fn table<E: PluginEvent>(&self) -> Rc<Table<E>> {
        let mut tables = self.tables.borrow_mut();
        let table = tables.entry(TypeId::of::<E>()).or_insert_with(|| Rc::<Table<E>>::default());
        table.clone().downcast().expect("a table is kept under the type of its event")
    }
}

/// One dispatch: the event and its listeners.
struct Dispatch<E: PluginEvent> {
    from: Context,
    event: Rc<E>,
    table: Rc<Table<E>>,
    listeners: Snapshot<Ear<E>>,
    at: usize,
}

impl<E: PluginEvent> Dispatch<E> {
    fn next(&mut self) -> Option<Rc<Ear<E>>> {
        let hears = |ear: &Ear<E>| ear.place.as_ref().is_none_or(|place| self.from.is_received_by(place));
        let (ear, after) = self.listeners.next_where(self.at, &self.table, hears)?;
        self.at = after;
        Some(ear)
    }
}

fn call<E: PluginEvent>(ear: &Rc<Ear<E>>, event: &Rc<E>) -> LocalBoxFuture<Answered<E>> {
    let (ear, event) = (ear.clone(), event.clone());
    Box::pin(guarded_future(move || match &ear.listener {
        Listener::Sync(listener) => Box::pin(std::future::ready(listener(&event))),
        Listener::Async(listener) => listener(event),
    }))
}

impl Context {
    /// Hears an event of a plug-in in every mode. Like every listener it hears its own scope and those below it, and ends
    /// with this context.
    pub fn on_event<E: PluginEvent>(&self, listener: impl Fn(&E) -> Answered<E> + 'static) -> Result<Registration> {
        self.add_ear(Placement::default(), Listener::Sync(Box::new(listener)))
    }

    /// As [`Context::on_event`], with a place in the order.
    pub fn on_event_placed<E: PluginEvent>(
        &self,
        placement: Placement,
        listener: impl Fn(&E) -> Answered<E> + 'static,
    ) -> Result<Registration> {
        self.add_ear(placement, Listener::Sync(Box::new(listener)))
    }

    /// Hears an event of a plug-in with a listener that is awaited by [`Context::serial`] and [`Context::parallel`].
    /// [`Context::emit_event`] and [`Context::bail`] start it and do not wait for it.
    pub fn on_event_async<E: PluginEvent, F: Future<Output = Answered<E>> + 'static>(
        &self,
        listener: impl Fn(Rc<E>) -> F + 'static,
    ) -> Result<Registration> {
        self.add_ear(Placement::default(), Listener::Async(Box::new(move |event: Rc<E>| Box::pin(listener(event)))))
    }

    fn add_ear<E: PluginEvent>(&self, placement: Placement, listener: Listener<E>) -> Result<Registration> {
        self.fiber().check()?;
        let ear = Ear { listener, place: (!placement.global).then(|| self.listening()) };
        let table = self.root().plugin_events.table::<E>();
        let id = table.add(self.scope(), placement, Rc::new(ear));
        self.effect(move || table.remove(id))
    }

    /// The listeners of this moment that hear an event of this context's scope (EVT-3), if no check prevents the dispatch.
    fn dispatch<E: PluginEvent>(&self, mode: DispatchMode, event: E) -> Result<Dispatch<E>> {
        let (root, scope) = (self.root(), self.scope());
        root.hub.check_dispatch(&root.scopes, scope, mode, E::NAME, &event)?;
        let table = root.plugin_events.table::<E>();
        let listeners = table.snapshot(&root.scopes, scope);
        Ok(Dispatch { from: self.clone(), event: Rc::new(event), table, listeners, at: 0 })
    }

    /// Delivers an event at once, whatever is answered. Not contained: the first failure stops the rest and is returned
    /// (EVT-8).
    pub fn emit_event<E: PluginEvent>(&self, event: E) -> Result<()> {
        let mut dispatch = self.dispatch(DispatchMode::Emit, event)?;
        while let Some(ear) = dispatch.next() {
            self.call_now(&ear, &dispatch.event)?;
        }
        Ok(())
    }

    /// Asks the listeners at once, in order, until one answers or fails (EVT-1, EVT-4). One that has to be awaited cannot
    /// answer in time.
    pub fn bail<E: PluginEvent>(&self, event: E) -> Answered<E> {
        let mut dispatch = self.dispatch(DispatchMode::Bail, event)?;
        while let Some(ear) = dispatch.next() {
            if let Some(answer) = self.call_now(&ear, &dispatch.event)? {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    fn call_now<E: PluginEvent>(&self, ear: &Rc<Ear<E>>, event: &Rc<E>) -> Answered<E> {
        match &ear.listener {
            Listener::Sync(listener) => guarded(|| listener(event)),
            Listener::Async(_) => {
                let answer = call(ear, event);
                self.runtime().spawn(async move {
                    if let Err(error) = answer.await {
                        tracing::warn!(target: "turnwheel", event = E::NAME, "a listener failed: {error:?}");
                    }
                });
                Ok(None)
            }
        }
    }

    /// Asks the listeners one after the other, each awaited, until one answers or fails (EVT-1, EVT-4).
    pub fn serial<E: PluginEvent>(&self, event: E) -> LocalBoxFuture<Answered<E>> {
        let dispatch = self.dispatch(DispatchMode::Serial, event);
        Box::pin(async move {
            let mut dispatch = dispatch?;
            while let Some(ear) = dispatch.next() {
                if let Some(answer) = call(&ear, &dispatch.event).await? {
                    return Ok(Some(answer));
                }
            }
            Ok(None)
        })
    }

    /// Runs all listeners beside each other and waits for every one, whatever is answered. One failure is returned as it
    /// is; several become one `HOST_ERROR` that counts them, with their messages in `context.errors` (EVT-1).
    pub fn parallel<E: PluginEvent>(&self, event: E) -> LocalBoxFuture<Result<()>> {
        let mut dispatch = match self.dispatch(DispatchMode::Parallel, event) {
            Ok(dispatch) => dispatch,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let mut running: Vec<Option<LocalBoxFuture<Answered<E>>>> = Vec::new();
        while let Some(ear) = dispatch.next() {
            running.push(Some(call(&ear, &dispatch.event)));
        }
        let mut failures: Vec<Option<Error>> = running.iter().map(|_| None).collect();
        Box::pin(async move {
            std::future::poll_fn(|context| {
                for (at, slot) in running.iter_mut().enumerate() {
                    let polled = slot.as_mut().map(|future| future.as_mut().poll(context));
                    if let Some(Poll::Ready(ended)) = polled {
                        failures[at] = ended.err();
                        *slot = None;
                    }
                }
                if running.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            aggregate::<E>(failures.into_iter().flatten().collect())
        })
    }
}

fn aggregate<E: PluginEvent>(mut failures: Vec<Error>) -> Result<()> {
    if failures.len() > 1 {
        let message = format!("{} listeners of {} failed", failures.len(), E::NAME);
        let messages: Vec<_> = failures.iter().map(|error| error.message().into()).collect::<Vec<crate::json::Value>>();
        return Err(Error::new(Code::HostError, message).with("errors", messages).caused_by(failures.remove(0)));
    }
    failures.pop().map_or(Ok(()), Err)
}
