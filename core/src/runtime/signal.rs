//! Cancellation: a signal that fires once, with a typed cause. The first cause wins (CAN-4).

use super::local::WakerSet;
use crate::error::{Code, Error, Result};
use crate::session::CancelCause;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::task::Poll;

type Observer = Box<dyn FnOnce(&CancelCause)>;

/// A cancellation signal. Clones are the same signal.
#[derive(Clone, Default)]
pub struct Signal(Rc<Inner>);

#[derive(Default)]
struct Inner {
    cause: RefCell<Option<CancelCause>>,
    observers: RefCell<Vec<(u64, Observer)>>,
    next: Cell<u64>,
    wakers: WakerSet,
}

/// Removes its observer when dropped.
pub struct SignalGuard {
    signal: Weak<Inner>,
    id: u64,
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        if let Some(signal) = self.signal.upgrade() {
            let mut observers = signal.observers.borrow_mut();
            let removed = observers.iter().position(|(id, _)| *id == self.id).map(|at| observers.remove(at));
            // The closure may own anything: drop it outside the borrow.
            drop(observers);
            drop(removed);
        }
    }
}

impl Signal {
    /// A signal that has not fired.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fires with a cause unless it has fired. Observers run before this returns, in order of registration.
    pub fn cancel(&self, cause: CancelCause) {
        if self.0.cause.borrow().is_some() {
            return;
        }
        *self.0.cause.borrow_mut() = Some(cause.clone());
        let observers = std::mem::take(&mut *self.0.observers.borrow_mut());
        self.0.wakers.wake_all();
        for (_, observer) in observers {
            observer(&cause);
        }
    }

    /// Whether it has fired.
    pub fn is_cancelled(&self) -> bool {
        self.0.cause.borrow().is_some()
    }

    /// Why it fired.
    pub fn cause(&self) -> Option<CancelCause> {
        self.0.cause.borrow().clone()
    }

    /// Fails with `ABORTED` once it has fired.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(self.error()) } else { Ok(()) }
    }

    /// The error of an operation that this signal ended.
    pub fn error(&self) -> Error {
        let cause = self.cause().map_or_else(|| "unknown".into(), |cause| cause.kind().to_owned());
        Error::new(Code::Aborted, format!("aborted (cause: {cause})")).with("cause", cause)
    }

    /// Resolves when it fires.
    pub fn cancelled(&self) -> impl Future<Output = CancelCause> + use<> {
        let inner = self.0.clone();
        std::future::poll_fn(move |context| {
            let cause = inner.cause.borrow().clone();
            match cause {
                Some(cause) => Poll::Ready(cause),
                None => {
                    inner.wakers.register(context);
                    Poll::Pending
                }
            }
        })
    }

    /// Runs `observer` when it fires, at once if it has. The observer is removed when the guard is dropped.
    pub fn on_cancel(&self, observer: impl FnOnce(&CancelCause) + 'static) -> SignalGuard {
        let id = self.0.next.get();
        self.0.next.set(id + 1);
        match self.cause() {
            Some(cause) => observer(&cause),
            None => self.0.observers.borrow_mut().push((id, Box::new(observer))),
        }
        SignalGuard { signal: Rc::downgrade(&self.0), id }
    }

    /// A signal that fires when this one does, and can also fire by itself.
    pub fn child(&self) -> (Signal, SignalGuard) {
        let child = Signal::new();
        let target = child.clone();
        let guard = self.on_cancel(move |cause| target.cancel(cause.clone()));
        (child, guard)
    }

    /// Whether two handles are the same signal.
    pub fn is_same(&self, other: &Signal) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signal({:?})", self.0.cause.borrow())
    }
}
