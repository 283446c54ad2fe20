//! Initiator boundaries as a context opens them: they end with it in good order (INI-9 to INI-13).
//!
//! While a context closes, boundaries that are open go on and reads still answer; new ones are refused. The close waits
//! for asynchronous boundaries, except for the chain that it runs in itself: that one waits for the close.

use super::Agent;
use crate::context::{Context, Root};
use crate::error::{Code, Error, Result};
use crate::runtime::WakerSet;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Active,
    Closing,
    Disposed,
}

/// The open boundaries of a root.
#[derive(Default)]
pub(crate) struct Boundaries {
    state: Cell<State>,
    open: RefCell<BTreeSet<u64>>,
    /// The boundaries that are being polled now, outermost first.
    polling: RefCell<Vec<u64>>,
    next: Cell<u64>,
    changed: WakerSet,
}

impl Boundaries {
    fn check(&self, refused_from: State) -> Result<()> {
        let refused = match self.state.get() {
            State::Active => false,
            State::Closing => refused_from == State::Closing,
            State::Disposed => true,
        };
        if refused {
            return Err(Error::new(Code::RuntimeClosed, "the context is closing; no initiator boundary can be opened"));
        }
        Ok(())
    }

    pub(crate) fn begin_closing(&self) {
        self.state.set(State::Closing);
    }

    /// Resolves when every boundary is done but those that this runs in (INI-11, INI-12).
    pub(crate) fn drained(&self) -> impl Future<Output = ()> + '_ {
        let own = self.polling.borrow().clone();
        std::future::poll_fn(move |context| {
            if self.open.borrow().iter().all(|id| own.contains(id)) {
                return Poll::Ready(());
            }
            self.changed.register(context);
            Poll::Pending
        })
    }

    pub(crate) fn dispose(&self) {
        self.state.set(State::Disposed);
    }

    pub(crate) fn reopen(&self) {
        self.state.set(State::Active);
    }

    fn open(&self) -> u64 {
        let id = self.next.get();
        self.next.set(id + 1);
        self.open.borrow_mut().insert(id);
        id
    }

    fn release(&self, id: u64) {
        let was_open = self.open.borrow_mut().remove(&id);
        if was_open {
            self.changed.wake_all();
        }
    }
}

/// An operation inside its boundary. Dropping it, like its end, releases the boundary.
pub struct Initiated<F> {
    root: Rc<Root>,
    agent: Option<Agent>,
    id: u64,
    future: Pin<Box<F>>,
}

/// Leaves the poll of a boundary, also when the operation panics.
struct Polling<'a>(&'a RefCell<Vec<u64>>);

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().pop();
    }
}

impl<F: Future> Future for Initiated<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let (root, future) = (this.root.clone(), &mut this.future);
        let boundaries = &root.boundaries;
        boundaries.polling.borrow_mut().push(this.id);
        let inside = Polling(&boundaries.polling);
        let ambient = this.agent.as_ref().map(Agent::ambient);
        let polled = root.runtime.with_ambient(ambient, || future.as_mut().poll(context));
        drop(inside);
        if polled.is_ready() {
            boundaries.release(this.id);
        }
        polled
    }
}

impl<F> Drop for Initiated<F> {
    fn drop(&mut self) {
        self.root.boundaries.release(self.id);
    }
}

impl Context {
    /// The agent whose doing this is, if any (INI-2). Fails once the context is closed.
    pub fn initiator(&self) -> Result<Option<Agent>> {
        self.root().boundaries.check(State::Disposed)?;
        Ok(self.root().current_initiator())
    }

    /// The initiating agent; fails when there is none.
    pub fn require_initiator(&self) -> Result<Agent> {
        self.root().boundaries.check(State::Disposed)?;
        self.root().require_initiator()
    }

    /// Runs `operation` as an agent's doing and gives what it gave (INI-3). Fails while the context closes.
    pub fn with_initiator<T>(&self, agent: &Agent, operation: impl FnOnce() -> T) -> Result<T> {
        self.root().boundaries.check(State::Closing)?;
        Ok(self.root().with_initiator(agent, operation))
    }

    /// Runs `operation` as nobody's doing (INI-4). Fails while the context closes.
    pub fn without_initiator<T>(&self, operation: impl FnOnce() -> T) -> Result<T> {
        self.root().boundaries.check(State::Closing)?;
        Ok(self.root().without_initiator(operation))
    }

    /// An asynchronous operation as an agent's doing, or as nobody's; closing the context waits for it (INI-11). Fails
    /// while the context closes.
    pub fn initiate<F: Future>(&self, agent: Option<&Agent>, operation: F) -> Result<Initiated<F>> {
        let root = self.root().clone();
        root.boundaries.check(State::Closing)?;
        let id = root.boundaries.open();
        Ok(Initiated { root, agent: agent.cloned(), id, future: Box::pin(operation) })
    }
}
