//! Small pieces for local futures: a one-shot value and a set of wakers.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

/// A boxed future that stays on its thread.
pub type LocalBoxFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Wakers of everybody who waits for one thing.
#[derive(Default)]
pub struct WakerSet(RefCell<Vec<Waker>>);

impl WakerSet {
    /// Adds the waker of this poll, once.
    pub fn register(&self, context: &TaskContext<'_>) {
        let mut wakers = self.0.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
    }

    /// Wakes everybody and forgets them.
    pub fn wake_all(&self) {
        if self.0.borrow().is_empty() {
            return;
        }
        let wakers = std::mem::take(&mut *self.0.borrow_mut());
        for waker in wakers {
            waker.wake();
        }
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

struct Slot<T> {
    value: RefCell<Option<T>>,
    wakers: WakerSet,
}

/// The sending half of [`oneshot`].
pub struct OneshotSender<T>(Rc<Slot<T>>);

/// The receiving half of [`oneshot`]: `None` when the sender went away without a value.
pub struct Oneshot<T>(Rc<Slot<T>>);

/// A value that is sent once, within one thread.
pub fn oneshot<T>() -> (OneshotSender<T>, Oneshot<T>) {
    let slot = Rc::new(Slot { value: RefCell::new(None), wakers: WakerSet::default() });
    (OneshotSender(slot.clone()), Oneshot(slot))
}

impl<T> OneshotSender<T> {
    /// Sends the value.
    pub fn send(self, value: T) {
        *self.0.value.borrow_mut() = Some(value);
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        self.0.wakers.wake_all();
    }
}

impl<T> Future for Oneshot<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Option<T>> {
        let value = self.0.value.borrow_mut().take();
        if value.is_some() || Rc::strong_count(&self.0) == 1 {
            return Poll::Ready(value);
        }
        self.0.wakers.register(context);
        Poll::Pending
    }
}

/// Gives the thread back once.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
