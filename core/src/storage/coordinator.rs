//! The coordinator: writes behind the live logs of one runtime, and holds effects back until the log is durable.
//!
//! A session's events queue behind its writer. The first queued event opens a window that later ones do not extend
//! (WB-01); a flush or a barrier writes at once. One write per session is under way at a time, and what arrives
//! meanwhile is the next batch (WB-02). A failed write keeps its batch in front, is reported once, and is tried again
//! by the next event or flush (WB-04): nothing is lost, and no effect happens before its intent is stored.

use super::{SessionWriter, Store};
use crate::error::{Code, Error, Result};
use crate::runtime::{LocalBoxFuture, Runtime, WakerSet};
use crate::session::{Event, EventSink};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// When the log is made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Before every model request and tool body, and in the background.
    #[default]
    Effects,
    /// As `Effects`, and every event is written at once.
    EveryEvent,
    /// Written at once when a turn ends, and in the background; nothing waits for it.
    Turn,
    /// In the background only.
    Relaxed,
}

impl Durability {
    /// Reads a name: `effects`, `every-event`, `turn` or `relaxed`.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "effects" => Some(Durability::Effects),
            "every-event" => Some(Durability::EveryEvent),
            "turn" => Some(Durability::Turn),
            "relaxed" => Some(Durability::Relaxed),
            _ => None,
        }
    }
}

/// How long the first queued event may wait.
const WINDOW: Duration = Duration::from_millis(200);

/// Write-behind for the sessions of one runtime.
pub struct Coordinator {
    runtime: Runtime,
    store: Rc<dyn Store>,
    durability: Durability,
    sinks: RefCell<Vec<Weak<SessionSink>>>,
    lost: Rc<RefCell<Option<Error>>>,
}

impl Coordinator {
    pub(crate) fn new(runtime: Runtime, store: Rc<dyn Store>, durability: Durability) -> Self {
        Self { runtime, store, durability, sinks: RefCell::default(), lost: Rc::default() }
    }

    /// The store.
    pub fn store(&self) -> &Rc<dyn Store> {
        &self.store
    }

    /// The policy.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Write-behind for one session. `durable` events are stored already.
    pub(crate) fn attach(&self, writer: Rc<dyn SessionWriter>, durable: u64) -> Rc<SessionSink> {
        let sink = SessionSink::new(self.runtime.clone(), writer, self.durability, durable, self.lost.clone());
        let mut sinks = self.sinks.borrow_mut();
        sinks.retain(|sink| sink.strong_count() > 0);
        sinks.push(Rc::downgrade(&sink));
        sink
    }

    /// Makes everything durable and gives all sessions up. Fails with the first error that cost events since the last
    /// close: they are gone with their sessions.
    pub(crate) async fn close(&self) -> Result<()> {
        let sinks: Vec<_> = self.sinks.borrow_mut().drain(..).filter_map(|sink| sink.upgrade()).collect();
        for sink in sinks {
            sink.close().await;
        }
        self.lost.take().map_or(Ok(()), Err)
    }
}

/// The queue of one session behind its writer.
pub(crate) struct SessionSink {
    this: Weak<SessionSink>,
    runtime: Runtime,
    writer: Rc<dyn SessionWriter>,
    durability: Durability,
    pending: RefCell<Vec<Arc<Event>>>,
    durable: Cell<u64>,
    in_flight: Cell<u64>,
    writing: Cell<bool>,
    window_open: Cell<bool>,
    failures: Cell<u64>,
    last_error: RefCell<Option<Error>>,
    closed: Cell<bool>,
    /// The first error that cost events, for whoever closes the context.
    lost: Rc<RefCell<Option<Error>>>,
    changed: WakerSet,
}

impl SessionSink {
    fn new(
        runtime: Runtime,
        writer: Rc<dyn SessionWriter>,
        durability: Durability,
        durable: u64,
        lost: Rc<RefCell<Option<Error>>>,
    ) -> Rc<Self> {
        Rc::new_cyclic(|this| Self {
            this: this.clone(),
            runtime,
            writer,
            durability,
            pending: RefCell::default(),
            durable: Cell::new(durable),
            in_flight: Cell::new(0),
            writing: Cell::new(false),
            window_open: Cell::new(false),
            failures: Cell::new(0),
            last_error: RefCell::new(None),
            closed: Cell::new(false),
            lost,
            changed: WakerSet::default(),
        })
    }

    /// Starts writing unless a write is under way. Once it ends, what has arrived meanwhile has its own window.
    fn write(&self) {
        if self.closed.get() || self.pending.borrow().is_empty() || self.writing.replace(true) {
            return;
        }
        let Some(sink) = self.this.upgrade() else { return };
        self.runtime.without_ambient(async move {
            let batch = std::mem::take(&mut *sink.pending.borrow_mut());
            let count = batch.len() as u64;
            sink.in_flight.set(count);
            // A store that panics is one that failed: the batch is kept, and who waits for it is told.
            let append = || sink.writer.append(batch.clone());
            let written = crate::events::guarded_future(append).await;
            sink.writing.set(false);
            sink.in_flight.set(0);
            match written {
                Ok(()) => {
                    sink.durable.set(sink.durable.get() + count);
                    *sink.last_error.borrow_mut() = None;
                }
                Err(error) => {
                    // The batch goes back in front of what arrived meanwhile, in order.
                    sink.pending.borrow_mut().splice(0..0, batch);
                    if sink.last_error.borrow().is_none() {
                        tracing::error!(target: "turnwheel", "a session could not be stored and is kept: {error:?}");
                    }
                    *sink.last_error.borrow_mut() = Some(error);
                    sink.failures.set(sink.failures.get() + 1);
                }
            }
            sink.changed.wake_all();
            if written_more(&sink) {
                sink.open_window();
            }
        });
    }

    fn open_window(&self) {
        if self.window_open.replace(true) {
            return;
        }
        let Some(sink) = self.this.upgrade() else { return };
        let timer = self.runtime.sleep(WINDOW);
        let weak = Rc::downgrade(&sink);
        self.runtime.without_ambient(async move {
            timer.await;
            if let Some(sink) = weak.upgrade() {
                sink.window_open.set(false);
                sink.write();
            }
        });
    }

    /// Queues what a new life of a session begins with, as one batch: a store that tears its first batch must not leave
    /// half of an inherited history behind.
    pub(crate) fn preload(&self, events: Vec<Arc<Event>>) {
        if events.is_empty() {
            return;
        }
        self.pending.borrow_mut().extend(events);
        self.schedule();
    }

    /// Sees to it that what was just queued is written: at once, or with whatever else its window gathers.
    fn schedule(&self) {
        if self.durability == Durability::EveryEvent {
            self.write();
        } else {
            self.open_window();
        }
    }

    /// Writes what is queued, and what is logged meanwhile, and gives the session up, whether or not the store took it.
    pub(crate) async fn close(&self) {
        while !self.closed.get() {
            let flushed = self.flush().await;
            if let Err(error) = &flushed {
                tracing::error!(target: "turnwheel", "a session was closed with events that could not be stored: {error:?}");
                self.lost.borrow_mut().get_or_insert_with(|| error.clone());
            }
            let is_drained = self.pending.borrow().is_empty() && !self.writing.get();
            self.closed.set(is_drained || flushed.is_err());
        }
        self.writer.close().await;
    }
}

fn given_up() -> Error {
    Error::new(Code::Disposed, "the session was given up before all of its events were stored")
}

fn written_more(sink: &SessionSink) -> bool {
    sink.last_error.borrow().is_none() && !sink.pending.borrow().is_empty()
}

impl EventSink for SessionSink {
    fn push(&self, event: &Arc<Event>) {
        self.pending.borrow_mut().push(event.clone());
        self.schedule();
    }

    fn turn_ended(&self) {
        if self.durability == Durability::Turn {
            self.write();
        }
    }

    fn flush(&self) -> LocalBoxFuture<Result<()>> {
        let Some(sink) = self.this.upgrade() else {
            return Box::pin(std::future::ready(Ok(())));
        };
        let target = sink.durable.get() + sink.in_flight.get() + sink.pending.borrow().len() as u64;
        let mut tried: Option<u64> = None;
        Box::pin(std::future::poll_fn(move |context| {
            loop {
                if sink.durable.get() >= target {
                    return Poll::Ready(Ok(()));
                }
                if sink.writing.get() {
                    sink.changed.register(context);
                    return Poll::Pending;
                }
                let failures = sink.failures.get();
                let error = sink.last_error.borrow().clone();
                if sink.closed.get() {
                    return Poll::Ready(Err(error.unwrap_or_else(given_up)));
                }
                if let Some(error) = error.filter(|_| tried.is_some_and(|before| failures > before)) {
                    return Poll::Ready(Err(error));
                }
                // A write may end at once: look again before waiting.
                tried.get_or_insert(failures);
                sink.write();
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::EventData;

    struct Panics;

    impl SessionWriter for Panics {
        fn append(&self, _events: Vec<Arc<Event>>) -> LocalBoxFuture<Result<()>> {
            panic!("planned")
        }

        fn close(&self) -> LocalBoxFuture<()> {
            Box::pin(std::future::ready(()))
        }
    }

    #[test]
    fn a_store_that_panics_fails_who_waits_for_it_also_once_its_session_is_given_up() {
        let runtime = Runtime::default();
        let sink = SessionSink::new(runtime.clone(), Rc::new(Panics), Durability::Effects, 0, Rc::default());
        sink.push(&Arc::new(Event::new(0, 0, EventData::EndSeed)));
        for _ in 0..2 {
            assert_eq!(*runtime.block_on(sink.flush()).expect_err("not stored").code(), Code::Panic);
        }
        runtime.block_on(sink.close());
        assert_eq!(*runtime.block_on(sink.flush()).expect_err("never to be stored").code(), Code::Panic);
        assert_eq!(sink.durable.get(), 0);
        runtime.close();
    }
}
