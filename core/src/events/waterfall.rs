//! Waterfalls: the first listener is outermost, the innermost continuation is the built-in behaviour (EVT-5).

use super::channel::{Channel, Snapshot};
use super::guarded_future;
use crate::error::{Code, Error, Result};
use crate::runtime::LocalBoxFuture;
use std::cell::RefCell;
use std::rc::Rc;

/// A listener of a waterfall with payload `P` and decision `T`.
pub type WaterfallListener<P, T> = dyn Fn(Rc<P>, Next<T>) -> LocalBoxFuture<Result<T>>;

type Continue<T> = Box<dyn FnOnce() -> LocalBoxFuture<Result<T>>>;

/// The continuation of a waterfall listener. Calling it runs everything inside; not calling it skips that.
pub struct Next<T>(Rc<RefCell<Option<Continue<T>>>>);

impl<T> Clone for Next<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: 'static> Next<T> {
    fn new(run: impl FnOnce() -> LocalBoxFuture<Result<T>> + 'static) -> Self {
        Self(Rc::new(RefCell::new(Some(Box::new(run)))))
    }

    /// Runs the rest of the waterfall. A second call fails with `NEXT_CALLED_TWICE` (D-13).
    pub fn call(&self) -> LocalBoxFuture<Result<T>> {
        let run = self.0.borrow_mut().take();
        match run {
            Some(run) => run(),
            None => {
                let error = Error::new(Code::NextCalledTwice, "next() may be called once in a listener");
                Box::pin(std::future::ready(Err(error)))
            }
        }
    }
}

/// Runs a waterfall over a snapshot.
pub fn waterfall<P: 'static, T: 'static>(
    channel: Rc<Channel<WaterfallListener<P, T>>>,
    listeners: Snapshot<WaterfallListener<P, T>>,
    payload: Rc<P>,
    default: impl FnOnce(Rc<P>) -> LocalBoxFuture<Result<T>> + 'static,
) -> LocalBoxFuture<Result<T>> {
    link(channel, listeners, 0, payload, Box::new(default))
}

type Innermost<P, T> = Box<dyn FnOnce(Rc<P>) -> LocalBoxFuture<Result<T>>>;

fn link<P: 'static, T: 'static>(
    channel: Rc<Channel<WaterfallListener<P, T>>>,
    listeners: Snapshot<WaterfallListener<P, T>>,
    at: usize,
    payload: Rc<P>,
    default: Innermost<P, T>,
) -> LocalBoxFuture<Result<T>> {
    let Some((listener, after)) = listeners.next(at, &channel) else {
        return default(payload);
    };
    let shared = payload.clone();
    let next = Next::new(move || link(channel, listeners, after, shared, default));
    Box::pin(guarded_future(move || listener(payload, next)))
}
