//! Futures: the result of something that takes time, to wait for, to be told of, or to cancel.

use crate::guard::{EMPTY, Text, UserData, enter, function, out, release, retain, shared};
use crate::handles::{self, Kind, Object};
use crate::runtime::{self, Core, lock};
use crate::types::*;
use std::cell::RefCell;
use std::ffi::c_void;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use turnwheel::error::{Code, Error, Result};
use turnwheel::runtime::{LocalBoxFuture, Runtime};

type Callback = (unsafe extern "C" fn(*mut c_void, *mut tw_future), UserData);

#[derive(Default)]
struct State {
    result: Option<Result<Arc<Text>>>,
    callbacks: Vec<Callback>,
}

/// A future as every thread sees it.
pub struct Shared {
    runtime: Arc<runtime::Shared>,
    state: Mutex<State>,
    changed: Condvar,
    /// The key of the task on the runtime's thread.
    task: Mutex<Option<u64>>,
}

/// The operation itself; taken out while it is polled.
struct Task {
    future: RefCell<Option<LocalBoxFuture<Result<String>>>>,
    cancelled: std::cell::Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Shared {
    /// A future that somebody finishes.
    pub fn new(runtime: &Arc<runtime::Shared>) -> Arc<Self> {
        Arc::new(Self {
            runtime: runtime.clone(),
            state: Mutex::default(),
            changed: Condvar::new(),
            task: Mutex::new(None),
        })
    }

    /// Sets the result; the first one counts. On the runtime's thread.
    pub fn finish(self: &Arc<Self>, result: Result<String>) {
        let callbacks = {
            let mut state = lock(&self.state);
            if state.result.is_some() {
                return;
            }
            state.result = Some(result.map(|text| Arc::new(Text::new(text))));
            self.changed.notify_all();
            std::mem::take(&mut state.callbacks)
        };
        for (done, user) in callbacks {
            self.tell(done, user);
        }
    }

    fn tell(self: &Arc<Self>, done: unsafe extern "C" fn(*mut c_void, *mut tw_future), user: UserData) {
        let handle = handles::insert(Kind::Future, Object::Shared(self.clone()));
        // SAFETY: the interface asks for a function that takes its own `user_data` and a borrowed future.
        unsafe { done(user.ptr, handle as *mut tw_future) };
        handles::release(Kind::Future, handle);
    }

    /// The result so far.
    pub fn result(&self) -> Option<Result<String>> {
        let state = lock(&self.state);
        let result = state.result.as_ref()?;
        Some(result.clone().map(|text| String::from_utf8_lossy(view_bytes(&text)).into_owned()))
    }

    fn is_done(&self) -> bool {
        lock(&self.state).result.is_some()
    }

    /// Waits; says whether it is done.
    pub fn wait(self: &Arc<Self>, timeout: Option<Duration>) -> Result<bool> {
        if self.is_done() {
            return Ok(true);
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if self.runtime.is_here() {
            return runtime::wait_until(&self.runtime, deadline, &|| self.is_done());
        }
        let mut state = lock(&self.state);
        while state.result.is_none() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // The runtime may be freed meanwhile: then nothing finishes this any more.
            let slice = left.unwrap_or(Duration::from_millis(200)).min(Duration::from_millis(200));
            if left == Some(Duration::ZERO) {
                return Ok(false);
            }
            state = self.changed.wait_timeout(state, slice).unwrap_or_else(PoisonError::into_inner).0;
            if state.result.is_none() {
                self.runtime.check()?;
            }
        }
        Ok(true)
    }
}

fn view_bytes(text: &Text) -> &[u8] {
    let view = text.view();
    // SAFETY: a view of a text covers its own bytes.
    unsafe { std::slice::from_raw_parts(view.ptr.cast(), view.len) }
}

/// Starts an operation and gives out its future.
pub fn start(core: &Core, runtime: &Runtime, operation: LocalBoxFuture<Result<String>>) -> usize {
    let future = Shared::new(&core.shared);
    let task = Rc::new(Task {
        future: RefCell::new(Some(operation)),
        cancelled: std::cell::Cell::new(false),
        waker: RefCell::new(None),
    });
    let key = core.keep(task.clone());
    *lock(&future.task) = Some(key);
    let finishing = future.clone();
    runtime.spawn(async move {
        let result = std::future::poll_fn(|context| {
            if task.cancelled.get() {
                return Poll::Ready(Err(Error::new(Code::Aborted, "the operation was cancelled")));
            }
            *task.waker.borrow_mut() = Some(context.waker().clone());
            let taken = task.future.borrow_mut().take();
            let Some(mut operation) = taken else { return Poll::Pending };
            let polled = operation.as_mut().poll(context);
            if polled.is_pending() && !task.cancelled.get() {
                *task.future.borrow_mut() = Some(operation);
                return Poll::Pending;
            }
            // A cancellation that came while it was polled: dropping it is what cancels.
            drop(operation);
            match polled {
                Poll::Ready(result) => Poll::Ready(result),
                Poll::Pending => Poll::Ready(Err(Error::new(Code::Aborted, "the operation was cancelled"))),
            }
        })
        .await;
        finishing.finish(result);
        if let Some(key) = lock(&finishing.task).take() {
            finishing.runtime.bury(key);
        }
    });
    handles::insert(Kind::Future, Object::Shared(future))
}

/// Adds a reference.
#[unsafe(no_mangle)]
pub extern "C" fn tw_future_retain(future: *mut tw_future) {
    retain(future);
}

/// Takes a reference away. NULL is allowed. The operation goes on: only `tw_future_cancel` ends it.
#[unsafe(no_mangle)]
pub extern "C" fn tw_future_release(future: *mut tw_future) {
    release(future);
}

/// Waits until the operation is done.
///
/// `timeout_ms`: negative waits for ever. On the thread of a hosted runtime, outside callbacks, this polls the runtime.
///
/// Statuses: `TW_OK` when it is done, whatever its result; `TW_TIMEOUT`; `SELF_WAIT` on the runtime's own thread, where
/// the wait would never end; `RUNTIME_CLOSED` when the runtime was freed first.
#[unsafe(no_mangle)]
pub extern "C" fn tw_future_wait(future: *mut tw_future, timeout_ms: i64, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let future: Arc<Shared> = shared(future)?;
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        Ok(if future.wait(timeout)? { TW_OK } else { TW_TIMEOUT })
    })
}

/// The result.
///
/// Statuses: `TW_OK` and `*result` is the JSON that the operation promises; `TW_PENDING` and `*result` is empty; or the
/// operation's own error.
///
/// `*result` is borrowed from the future, until its last reference is released.
#[unsafe(no_mangle)]
pub extern "C" fn tw_future_result(
    future: *mut tw_future,
    result: *mut tw_str,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let future: Arc<Shared> = shared(future)?;
        let result = out(result, "result")?;
        let settled = lock(&future.state).result.clone();
        match settled {
            None => {
                result.set(EMPTY);
                Ok(TW_PENDING)
            }
            Some(settled) => settled.map(|text| result.set(text.view())),
        }
    })
}

/// Calls `done` on the runtime's thread when the operation is done; soon, if it is already.
///
/// Statuses: `INVALID_ARGUMENT` for a NULL callback, `RUNTIME_CLOSED`.
///
/// `drop` frees `user_data` behind the call, or when the operation can never be done any more.
#[unsafe(no_mangle)]
pub extern "C" fn tw_future_on_done(
    future: *mut tw_future,
    done: tw_done_fn,
    user_data: *mut c_void,
    drop: tw_drop_fn,
    error: *mut *mut tw_error,
) -> tw_status {
    let user = UserData::new(user_data, drop);
    enter(error, || {
        let (future, done): (Arc<Shared>, _) = (shared(future)?, function(done)?);
        let is_done = {
            let mut state = lock(&future.state);
            if state.result.is_none() {
                state.callbacks.push((done, user));
                return Ok(TW_OK);
            }
            future.clone()
        };
        future.runtime.later(move |_| is_done.tell(done, user))?;
        Ok(TW_OK)
    })
}

/// Cancels the operation: it ends with `ABORTED`. For a run, its prompt is withdrawn or its turn cancelled with cause
/// `user`. An operation that is done stays as it is.
///
/// Statuses: `RUNTIME_CLOSED`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_future_cancel(future: *mut tw_future, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let future: Arc<Shared> = shared(future)?;
        let key = *lock(&future.task);
        let Some(key) = key else { return Ok(TW_OK) };
        future.runtime.call(move |core| {
            let Ok(task) = core.value::<Rc<Task>>(key) else { return Ok(()) };
            task.cancelled.set(true);
            let operation = task.future.borrow_mut().take();
            std::mem::drop(operation);
            let waker = task.waker.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
            Ok(())
        })?;
        Ok(TW_OK)
    })
}
