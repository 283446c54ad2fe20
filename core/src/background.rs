//! The shared background: one tokio runtime per process, made on first use, for files and sockets. Its threads
//! never run host code; results come back through channels whose wakers schedule a poll on the owner's thread.

use crate::error::{Code, Error, Result};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// The runtime of a process: its threads do not survive a fork, so a child makes one of its own.
struct Background {
    process: u32,
    runtime: &'static Runtime,
}

/// How many file operations are under way at most. Syncs of different files are made durable together by the system, so
/// many sessions at once are worth many threads; those that are busy take the next operation without being woken.
const FILE_THREADS: usize = 64;

static BACKGROUND: Mutex<Option<Background>> = Mutex::new(None);

/// A handle to the background runtime.
pub(crate) fn handle() -> Result<&'static Handle> {
    let process = std::process::id();
    let mut background = BACKGROUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(live) = background.as_ref().filter(|live| live.process == process) {
        return Ok(live.runtime.handle());
    }
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).max_blocking_threads(FILE_THREADS).thread_name("turnwheel-io");
    let runtime = builder.enable_all().build();
    let runtime = runtime.map_err(|error| {
        Error::new(Code::StoreFailed, format!("cannot start the background threads: {error}; raise the thread limit"))
    })?;
    // It lives as long as the process; a parent's, whose threads are gone here, must not be dropped either.
    let runtime: &'static Runtime = Box::leak(Box::new(runtime));
    *background = Some(Background { process, runtime });
    Ok(runtime.handle())
}

thread_local! {
    static OUTSTANDING: Cell<usize> = const { Cell::new(0) };
}

/// How many background operations this thread waits for: requests, file operations, timers. Hosts whose process lives
/// as long as it has something to wait for ask this after every pump.
pub fn outstanding() -> usize {
    OUTSTANDING.with(Cell::get)
}

/// One operation that the owner's thread waits for. Made and dropped there.
pub(crate) struct Outstanding(PhantomData<*const ()>);

impl Outstanding {
    pub(crate) fn new() -> Self {
        OUTSTANDING.with(|count| count.set(count.get() + 1));
        Self(PhantomData)
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        // The count may be gone before the last future of a thread is.
        let _ = OUTSTANDING.try_with(|count| count.set(count.get() - 1));
    }
}

/// Runs a blocking function in the background. It runs to its end even if nobody waits.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let _outstanding = Outstanding::new();
    let (sender, receiver) = oneshot::channel();
    handle()?.spawn_blocking(move || {
        let _ = sender.send(work());
    });
    receiver.await.map_err(|_| Error::new(Code::Panic, "a background task ended without an answer"))
}
