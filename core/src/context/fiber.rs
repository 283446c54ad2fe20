//! Fibers: owners of effects. Whatever is registered through a context lives as long as the context's fiber (CTX).

use crate::error::{Code, Error, Result};
use crate::runtime::{LocalBoxFuture, WakerSet};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::task::Poll;

/// How an effect is undone.
pub enum Cleanup {
    /// At once.
    Sync(Box<dyn FnOnce()>),
    /// By waiting.
    Async(Box<dyn FnOnce() -> LocalBoxFuture<()>>),
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

    /// Undoes every effect, newest first, and waits for all of them. All callers share one completion (SCP-5).
    pub async fn dispose(self: Rc<Self>) {
        if matches!(self.state.get(), State::Active | State::Loading) {
            self.state.set(State::Unloading);
            let mut waiting = Vec::new();
            loop {
                let last = self.effects.borrow_mut().pop_last();
                let Some((_, cleanup)) = last else { break };
                match cleanup {
                    Cleanup::Sync(undo) => undo(),
                    Cleanup::Async(undo) => waiting.push(undo()),
                }
            }
            // Sibling cleanups overlap (CTX-7).
            std::future::poll_fn(|context| {
                waiting.retain_mut(|future| future.as_mut().poll(context).is_pending());
                if waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            self.state.set(State::Disposed);
            self.done.wake_all();
        }
        std::future::poll_fn(|context| {
            if self.state.get() == State::Disposed {
                return Poll::Ready(());
            }
            self.done.register(context);
            Poll::Pending
        })
        .await;
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
    /// awaited.
    pub fn dispose(&self) -> Option<LocalBoxFuture<()>> {
        match self.fiber.upgrade()?.take(self.id)? {
            Cleanup::Sync(undo) => {
                undo();
                None
            }
            Cleanup::Async(undo) => Some(undo()),
        }
    }

    /// Forgets the effect without undoing it: it was undone otherwise.
    pub(crate) fn forget(&self) {
        let effect = self.fiber.upgrade().and_then(|fiber| fiber.take(self.id));
        drop(effect);
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Registration({})", self.id)
    }
}
