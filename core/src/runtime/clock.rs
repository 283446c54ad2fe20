//! Time as a port.

use super::local::{LocalBoxFuture, WakerSet};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where time comes from.
pub trait Clock {
    /// Epoch milliseconds.
    fn now_ms(&self) -> i64;
    /// Resolves after `duration`. Dropping the future cancels the timer.
    fn sleep(&self, duration: Duration) -> LocalBoxFuture<()>;
}

/// The machine's clock; timers have a thread of their own, which all runtimes share.
#[derive(Debug, Default)]
pub struct SystemClock {
    _private: (),
}

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<()> {
        Box::pin(crate::timer::sleep(duration))
    }
}

/// A clock that moves only when told to: for tests.
#[derive(Clone, Default)]
pub struct ManualClock(Rc<Manual>);

#[derive(Default)]
struct Manual {
    now_ms: Cell<i64>,
    sleepers: RefCell<Vec<Rc<WakerSet>>>,
}

impl ManualClock {
    /// A clock that shows `now_ms`.
    pub fn new(now_ms: i64) -> Self {
        let clock = Self::default();
        clock.0.now_ms.set(now_ms);
        clock
    }

    /// Moves the clock and wakes whoever's time has come.
    pub fn advance(&self, duration: Duration) {
        let step = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        self.0.now_ms.set(self.0.now_ms.get().saturating_add(step));
        let sleepers = std::mem::take(&mut *self.0.sleepers.borrow_mut());
        for sleeper in sleepers {
            sleeper.wake_all();
        }
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.now_ms.get()
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<()> {
        let wait = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let deadline = self.now_ms().saturating_add(wait);
        let (clock, wakers) = (self.0.clone(), Rc::new(WakerSet::default()));
        Box::pin(std::future::poll_fn(move |context| {
            if clock.now_ms.get() >= deadline {
                return Poll::Ready(());
            }
            wakers.register(context);
            clock.sleepers.borrow_mut().push(wakers.clone());
            Poll::Pending
        }))
    }
}
