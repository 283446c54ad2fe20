//! Fibers: owners of effects. Whatever is registered through a context lives as long as the context's fiber (CTX).

use crate::error::{Code, Error, Result};
use crate::events::{guarded, guarded_future};
use crate::runtime::{LocalBoxFuture, WakerSet};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll, Wake, Waker};

/// How an effect is undone.
pub enum Cleanup {
    /// At once.
    Sync(Box<dyn FnOnce()>),
    /// By waiting.
    Async(Box<dyn FnOnce() -> LocalBoxFuture<()>>),
}

impl Cleanup {
    /// Starts it. What is still to be waited for is returned; a panic is reported and counts as done.
    pub(super) fn start(self) -> Option<Joint> {
        let started = guarded(|| match self {
            Cleanup::Sync(undo) => {
                undo();
                Ok(None)
            }
            Cleanup::Async(undo) => Ok(Some(Joint::new(undo()))),
        });
        started.unwrap_or_else(|error| {
            report(&error);
            None
        })
    }
}

pub(super) fn report(error: &Error) {
    tracing::error!(target: "turnwheel", "a cleanup failed: {error:?}");
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Loading,
    Active,
    Unloading,
    Disposed,
}

/// An owner of effects.
pub struct Fiber {
    state: Cell<State>,
    effects: RefCell<BTreeMap<u64, Cleanup>>,
    /// Cleanups under way, also those that a registration's own disposal started.
    in_flight: RefCell<Vec<Joint>>,
    next: Cell<u64>,
    done: WakerSet,
}

impl Fiber {
    /// A fiber without effects.
    pub fn new() -> Rc<Self> {
        Self::in_state(State::Active)
    }

    /// A fiber whose body still runs: it takes registrations, and what it provides is not seen yet.
    pub(super) fn loading() -> Rc<Self> {
        Self::in_state(State::Loading)
    }

    fn in_state(state: State) -> Rc<Self> {
        Rc::new(Self {
            state: Cell::new(state),
            effects: RefCell::default(),
            in_flight: RefCell::default(),
            next: Cell::new(0),
            done: WakerSet::default(),
        })
    }

    /// Its body has run.
    pub(super) fn activate(&self) {
        if self.state.get() == State::Loading {
            self.state.set(State::Active);
        }
    }

    /// Whether what it provides is in force.
    pub fn is_active(&self) -> bool {
        self.state.get() == State::Active
    }

    /// Fails with `INACTIVE_EFFECT` once unloading began (CTX-14).
    pub fn check(&self) -> Result<()> {
        if matches!(self.state.get(), State::Active | State::Loading) {
            return Ok(());
        }
        Err(Error::new(Code::InactiveEffect, "this context is disposed; register through a live one"))
    }

    /// Takes ownership of an effect.
    pub fn own(self: &Rc<Self>, cleanup: Cleanup) -> Registration {
        let id = self.next.get();
        self.next.set(id + 1);
        self.effects.borrow_mut().insert(id, cleanup);
        Registration { fiber: Rc::downgrade(self), id }
    }

    fn take(&self, id: u64) -> Option<Cleanup> {
        self.effects.borrow_mut().remove(&id)
    }

    /// Undoes every effect, newest first, and waits for all of them; sibling cleanups overlap (CTX-7). All callers share
    /// one completion (SCP-5), and any of them may go away: the others carry on.
    pub async fn dispose(self: Rc<Self>) {
        if self.state.get() != State::Disposed {
            self.state.set(State::Unloading);
        }
        std::future::poll_fn(|context| {
            if self.state.get() == State::Disposed {
                return Poll::Ready(());
            }
            self.done.register(context);
            loop {
                let last = self.effects.borrow_mut().pop_last();
                let Some((_, cleanup)) = last else { break };
                let started = cleanup.start();
                self.in_flight.borrow_mut().extend(started);
            }
            if self.poll_in_flight(context).is_pending() {
                return Poll::Pending;
            }
            self.state.set(State::Disposed);
            self.done.wake_all();
            Poll::Ready(())
        })
        .await;
    }

    fn poll_in_flight(&self, context: &mut TaskContext<'_>) -> Poll<()> {
        let joints = self.in_flight.borrow().clone();
        let mut all = Poll::Ready(());
        for joint in joints {
            if joint.poll(context).is_pending() {
                all = Poll::Pending;
            }
        }
        self.in_flight.borrow_mut().retain(|joint| !joint.is_done());
        all
    }
}

/// An asynchronous cleanup that everybody who needs it drives: whoever started it may go away (CTX-12).
#[derive(Clone)]
pub(super) struct Joint(Rc<Shared>);

struct Shared {
    future: RefCell<Option<LocalBoxFuture<Result<()>>>>,
    done: Cell<bool>,
    waiting: Arc<Waiting>,
}

#[derive(Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl Waiting {
    fn register(&self, context: &TaskContext<'_>) {
        let mut wakers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let wakers = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for waker in wakers {
            waker.wake();
        }
    }
}

impl Joint {
    pub(super) fn new(future: LocalBoxFuture<()>) -> Self {
        let contained = guarded_future(move || {
            Box::pin(async move {
                future.await;
                Ok(())
            })
        });
        let future: LocalBoxFuture<Result<()>> = Box::pin(contained);
        Self(Rc::new(Shared { future: RefCell::new(Some(future)), done: Cell::new(false), waiting: Arc::default() }))
    }

    fn is_done(&self) -> bool {
        self.0.done.get()
    }

    pub(super) fn poll(&self, context: &mut TaskContext<'_>) -> Poll<()> {
        if self.is_done() {
            return Poll::Ready(());
        }
        self.0.waiting.register(context);
        let taken = self.0.future.borrow_mut().take();
        // None: an outer frame is polling it and wakes everybody when it is done.
        let Some(mut future) = taken else { return Poll::Pending };
        let waker = Waker::from(self.0.waiting.clone());
        match future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            Poll::Pending => {
                *self.0.future.borrow_mut() = Some(future);
                Poll::Pending
            }
            Poll::Ready(ended) => {
                if let Err(error) = ended {
                    report(&error);
                }
                self.0.done.set(true);
                waker.wake();
                Poll::Ready(())
            }
        }
    }

    pub(super) fn finished(self) -> impl Future<Output = ()> + use<> {
        std::future::poll_fn(move |context| self.poll(context))
    }
}

/// One registration. Dropping it changes nothing: the context owns what was registered.
#[derive(Clone)]
pub struct Registration {
    fiber: Weak<Fiber>,
    id: u64,
}

impl Registration {
    /// Undoes the registration now; a second call does nothing (CTX-12). An asynchronous cleanup is returned to be
    /// awaited; if nobody does, the owner's end finishes it.
    pub fn dispose(&self) -> Option<LocalBoxFuture<()>> {
        let fiber = self.fiber.upgrade()?;
        let joint = fiber.take(self.id)?.start()?;
        fiber.in_flight.borrow_mut().push(joint.clone());
        let owner = Rc::downgrade(&fiber);
        Some(Box::pin(async move {
            joint.finished().await;
            if let Some(fiber) = owner.upgrade() {
                fiber.in_flight.borrow_mut().retain(|joint| !joint.is_done());
            }
        }))
    }

    /// Takes the cleanup out of its owner, to be run elsewhere (CTX-9).
    pub(super) fn take(&self) -> Option<Cleanup> {
        self.fiber.upgrade()?.take(self.id)
    }

    /// Forgets the effect without undoing it: it was undone otherwise.
    pub(crate) fn forget(&self) {
        let effect = self.take();
        drop(effect);
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Registration({})", self.id)
    }
}
