//! The coordinator: writes behind the live logs of one runtime, and holds effects back until the log is durable.
//!
//! A session's events queue behind its writer. The first queued event opens a window that later ones do not extend
//! (WB-01), and when a window ends, everything that any session has queued is written in the same round; a flush or a
//! barrier writes its session at once. One write per session is under way at a time, and what arrives meanwhile is the
//! next batch (WB-02). A failed write keeps its batch in front, is reported once, and is tried again by the next event
//! or flush (WB-04), or after a while that doubles: nothing is lost, and no effect happens before its intent is stored.
//! A queue has a bound; who would lengthen it further waits ([`EventSink::is_full`]).

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

/// After a failure the next attempt of its own comes after the first of these, and each further one after twice as
/// long, up to the second.
const RETRY_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(64)];

/// A queue of more events than this, or of more bytes, is full.
const FULL_AT: (usize, usize) = (8192, 8 << 20);

/// Write-behind for the sessions of one runtime.
pub struct Coordinator {
    runtime: Runtime,
    store: Rc<dyn Store>,
    durability: Durability,
    sinks: RefCell<Vec<Weak<SessionSink>>>,
    rounds: Rc<Rounds>,
    lost: Rc<RefCell<Option<Error>>>,
}

/// What the sessions of one store share: the window at whose end they are written together.
#[derive(Default)]
struct Rounds {
    /// Who has something to write when the window ends, in the order of their first event.
    due: RefCell<Vec<Weak<SessionSink>>>,
}

impl Rounds {
    fn join(self: &Rc<Self>, sink: &SessionSink) {
        let first = {
            let mut due = self.due.borrow_mut();
            due.push(sink.this.clone());
            due.len() == 1
        };
        if !first {
            return;
        }
        let timer = sink.runtime.sleep(WINDOW);
        let weak = Rc::downgrade(self);
        sink.runtime.without_ambient(async move {
            timer.await;
            if let Some(rounds) = weak.upgrade() {
                let due = rounds.due.take();
                due.iter().filter_map(Weak::upgrade).filter(|sink| sink.due.take()).for_each(|sink| sink.write());
            }
        });
    }
}

/// Told once when a session cannot be stored, unless somebody waits for that and is told so.
pub(crate) type FailureListener = Rc<dyn Fn(&Error)>;

impl Coordinator {
    pub(crate) fn new(runtime: Runtime, store: Rc<dyn Store>, durability: Durability) -> Self {
        let (sinks, rounds, lost) = (RefCell::default(), Rc::default(), Rc::default());
        Self { runtime, store, durability, sinks, rounds, lost }
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
        let shared = (self.rounds.clone(), self.lost.clone());
        let sink = SessionSink::new(self.runtime.clone(), writer, self.durability, durable, shared);
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
    rounds: Rc<Rounds>,
    pending: RefCell<Vec<Arc<Event>>>,
    durable: Cell<u64>,
    in_flight: Cell<u64>,
    /// About how many bytes are queued or being written.
    weight: Cell<usize>,
    writing: Cell<bool>,
    /// Whether it is written when the window ends.
    due: Cell<bool>,
    /// Whether the policy wants what is queued written at once.
    urgent: Cell<bool>,
    /// How many flushes wait: they are told of a failure, so nobody else has to be.
    waiting: Cell<u64>,
    failures: Cell<u64>,
    /// How long to wait before the next attempt of its own; none while the store works.
    retry_after: Cell<Option<Duration>>,
    on_failure: RefCell<Option<FailureListener>>,
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
        (rounds, lost): (Rc<Rounds>, Rc<RefCell<Option<Error>>>),
    ) -> Rc<Self> {
        Rc::new_cyclic(|this| Self {
            this: this.clone(),
            runtime,
            writer,
            durability,
            rounds,
            pending: RefCell::default(),
            durable: Cell::new(durable),
            in_flight: Cell::new(0),
            weight: Cell::new(0),
            writing: Cell::new(false),
            due: Cell::new(false),
            urgent: Cell::new(false),
            waiting: Cell::new(0),
            failures: Cell::new(0),
            retry_after: Cell::new(None),
            on_failure: RefCell::default(),
            last_error: RefCell::new(None),
            closed: Cell::new(false),
            lost,
            changed: WakerSet::default(),
        })
    }

    /// Writes at once, or behind the write under way.
    fn write_at_once(&self) {
        self.urgent.set(true);
        self.write();
    }

    /// Starts writing unless a write is under way. Once it ends, what has arrived meanwhile has its own window, unless the
    /// policy wants it written at once.
    fn write(&self) {
        if self.closed.get() || self.pending.borrow().is_empty() || self.writing.replace(true) {
            return;
        }
        let Some(sink) = self.this.upgrade() else { return };
        self.runtime.without_ambient(async move {
            let batch = std::mem::take(&mut *sink.pending.borrow_mut());
            sink.urgent.set(false);
            let count = batch.len() as u64;
            sink.in_flight.set(count);
            // A store that panics is one that failed: the batch is kept, and who waits for it is told.
            let append = || sink.writer.append(batch.clone());
            let written = crate::events::guarded_future(append).await;
            sink.writing.set(false);
            sink.in_flight.set(0);
            match written {
                Ok(()) => sink.succeeded(&batch),
                Err(error) => sink.failed(batch, error),
            }
            sink.changed.wake_all();
            if sink.last_error.borrow().is_none() && !sink.pending.borrow().is_empty() {
                match sink.urgent.get() {
                    true => sink.write(),
                    false => sink.open_window(),
                }
            }
        });
    }

    fn succeeded(&self, batch: &[Arc<Event>]) {
        self.durable.set(self.durable.get() + batch.len() as u64);
        let weight: usize = batch.iter().map(|event| event.data.weight()).sum();
        self.weight.set(self.weight.get() - weight);
        self.retry_after.set(None);
        let failed = self.last_error.take();
        if failed.is_some() {
            tracing::info!(target: "turnwheel", "a session that could not be stored is stored again");
        }
    }

    /// The batch goes back in front of what arrived meanwhile, in order.
    fn failed(&self, batch: Vec<Arc<Event>>, error: Error) {
        self.pending.borrow_mut().splice(0..0, batch);
        let first = self.last_error.replace(Some(error.clone())).is_none();
        self.failures.set(self.failures.get() + 1);
        if first {
            tracing::error!(target: "turnwheel", "a session could not be stored and is kept: {error:?}");
        }
        let listener = self.on_failure.borrow().clone();
        if let Some(listener) = listener.filter(|_| first && self.waiting.get() == 0) {
            // A write may end inside the append that began it: host code hears of it once that has been published.
            self.runtime.without_ambient(async move {
                crate::runtime::yield_now().await;
                listener(&error);
            });
        }
        self.retry_later();
    }

    /// A disk that is full now may have room later, and nobody may come by to find out.
    fn retry_later(&self) {
        let after = self.retry_after.get().unwrap_or(RETRY_AFTER[0]);
        self.retry_after.set(Some((after * 2).min(RETRY_AFTER[1])));
        let (weak, failures) = (self.this.clone(), self.failures.get());
        let timer = self.runtime.sleep(after);
        self.runtime.without_ambient(async move {
            timer.await;
            // If others have tried meanwhile, the timer of the last failure is the one that counts.
            if let Some(sink) = weak.upgrade().filter(|sink| sink.failures.get() == failures) {
                sink.write();
            }
        });
    }

    fn open_window(&self) {
        if !self.due.replace(true) {
            self.rounds.join(self);
        }
    }

    /// Sets what hears of the first failure after a success.
    pub(crate) fn on_failure(&self, listener: FailureListener) {
        *self.on_failure.borrow_mut() = Some(listener);
    }

    /// Queues what a new life of a session begins with, as one batch: a store that tears its first batch must not leave
    /// half of an inherited history behind.
    pub(crate) fn preload(&self, events: Vec<Arc<Event>>) {
        if events.is_empty() {
            return;
        }
        let weight: usize = events.iter().map(|event| event.data.weight()).sum();
        self.weight.set(self.weight.get() + weight);
        self.pending.borrow_mut().extend(events);
        self.schedule();
    }

    /// Sees to it that what was just queued is written: at once, or with whatever else its window gathers.
    fn schedule(&self) {
        if self.durability == Durability::EveryEvent {
            self.write_at_once();
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

impl EventSink for SessionSink {
    fn push(&self, event: &Arc<Event>) {
        self.weight.set(self.weight.get() + event.data.weight());
        self.pending.borrow_mut().push(event.clone());
        self.schedule();
    }

    fn is_full(&self) -> bool {
        let events = self.pending.borrow().len() + self.in_flight.get() as usize;
        events > FULL_AT.0 || self.weight.get() > FULL_AT.1
    }

    fn turn_ended(&self) {
        if self.durability == Durability::Turn {
            self.write_at_once();
        }
    }

    fn flush(&self) -> LocalBoxFuture<Result<()>> {
        let Some(sink) = self.this.upgrade() else {
            return Box::pin(std::future::ready(Ok(())));
        };
        let target = sink.durable.get() + sink.in_flight.get() + sink.pending.borrow().len() as u64;
        let mut tried: Option<u64> = None;
        let waiting = Waiting::on(&sink);
        Box::pin(std::future::poll_fn(move |context| {
            let sink = &waiting.0;
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

/// A flush under way.
struct Waiting(Rc<SessionSink>);

impl Waiting {
    fn on(sink: &Rc<SessionSink>) -> Self {
        sink.waiting.set(sink.waiting.get() + 1);
        Self(sink.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
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
        let sink = SessionSink::new(runtime.clone(), Rc::new(Panics), Durability::Effects, 0, Default::default());
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
