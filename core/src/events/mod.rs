//! Dispatch: listener tables, contained emit, serial and waterfall (EVT).
//!
//! The set of listeners is a snapshot of the moment a dispatch begins. Nothing here is borrowed while a listener runs,
//! and a listener's panic is an error of that listener.

mod channel;
mod custom;
mod dispatch;
mod waterfall;

pub use channel::{Channel, ListenerId, Placement, Snapshot};
pub use custom::PluginEvent;
pub(crate) use custom::PluginEvents;
pub use dispatch::{Dispatch, DispatchCheck, DispatchMode};
pub use waterfall::{Next, WaterfallListener, waterfall};

use crate::error::{Code, Error, Result};
use crate::runtime::{LocalBoxFuture, panic_text};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

/// Calls host code; a panic becomes an error.
pub fn guarded<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(panic_error(&*panic)))
}

/// Polls a host future; a panic becomes an error.
pub async fn guarded_future<T>(start: impl FnOnce() -> LocalBoxFuture<Result<T>>) -> Result<T> {
    let mut future: Pin<Box<dyn Future<Output = Result<T>>>> = guarded(|| Ok(start()))?;
    std::future::poll_fn(move |context| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(panic_error(&*panic))))
    })
    .await
}

fn panic_error(panic: &(dyn std::any::Any + Send)) -> Error {
    Error::new(Code::Panic, format!("host code panicked: {}", panic_text(panic)))
}
