//! Version, text, errors and runtimes.

use crate::guard::{
    Failure, RuntimeOptions, Text, UserData, buf_handle, enter, function, json, out, quietly, release, shared, text,
};
use crate::handles::{self, Kind, Object};
use crate::runtime::{self, RuntimeHandle, Shared};
use crate::types::*;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// The version of the interface: within a major, functions are only added.
pub const TW_ABI_VERSION: u32 = 1;

/// The version of the interface that the library has. Compare it with `TW_ABI_VERSION` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn tw_abi_version() -> u32 {
    TW_ABI_VERSION
}

/// The version of the library, for example `0.1.0`. Static.
#[unsafe(no_mangle)]
pub extern "C" fn tw_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// How many handles are live in this process: for tests that look for leaks.
#[unsafe(no_mangle)]
pub extern "C" fn tw_handle_count() -> u64 {
    let mut count = 0;
    quietly(|| count = handles::count());
    count
}

/// The stable name of a status, for example `DUPLICATE_MESSAGE`; `UNKNOWN` for a number that is none. Static.
#[unsafe(no_mangle)]
pub extern "C" fn tw_status_name(status: tw_status) -> *const c_char {
    status_name(status).as_ptr().cast()
}

macro_rules! status_names {
    ($($number:literal $name:literal,)*) => {
        fn status_name(status: tw_status) -> &'static str {
            match status {
                0 => "OK\0",
                1 => "NONE\0",
                2 => "TIMEOUT\0",
                3 => "PENDING\0",
                4 => "MORE\0",
                599 => "OTHER\0",
                $($number => concat!($name, "\0"),)*
                _ => "UNKNOWN\0",
            }
        }
    };
}

include!("status_names.rs");

/// The library's own texts that reach a model, as a JSON object by key, for example `TOOL_ABORTED`: for programs that
/// recognize them in a log.
///
/// The caller owns `*texts`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_texts(texts: *mut *mut tw_buf, error: *mut *mut tw_error) -> tw_status {
    enter(error, || Ok(out(texts, "texts")?.text(turnwheel::host::texts_value().to_text())))
}

/// Copies text into a buffer that the library owns, for outputs of callbacks.
///
/// Statuses: `INVALID_ARGUMENT` for text that is not UTF-8. The caller owns `*buf`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_buf_new(content: tw_str, buf: *mut *mut tw_buf, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let (content, buf) = (text(content, "content")?, out(buf, "buf")?);
        Ok(buf.set(buf_handle(content)))
    })
}

/// The text of a buffer, borrowed until `tw_buf_free`. Empty for what is no buffer.
#[unsafe(no_mangle)]
pub extern "C" fn tw_buf_str(buf: *const tw_buf) -> tw_str {
    let mut view = crate::guard::EMPTY;
    quietly(|| {
        if let Ok(text) = shared::<_, Text>(buf) {
            view = text.view();
        }
    });
    view
}

/// Frees a buffer. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_buf_free(buf: *mut tw_buf) {
    release(buf);
}

fn of_error(error: *const tw_error, part: impl FnOnce(&Failure) -> tw_str) -> tw_str {
    let mut view = crate::guard::EMPTY;
    quietly(|| {
        if let Ok(failure) = shared::<_, Failure>(error) {
            view = part(&failure);
        }
    });
    view
}

/// The status of an error; 0 for what is no error.
#[unsafe(no_mangle)]
pub extern "C" fn tw_error_status(error: *const tw_error) -> tw_status {
    let mut status = TW_OK;
    quietly(|| {
        if let Ok(failure) = shared::<_, Failure>(error) {
            status = failure.error.code().number();
        }
    });
    status
}

/// The stable code, for example `DUPLICATE_MESSAGE`; for an error of host code the code that it brought along. Borrowed
/// until `tw_error_free`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_error_code(error: *const tw_error) -> tw_str {
    of_error(error, |failure| failure.code.view())
}

/// What happened, to what, and what to do. Borrowed until `tw_error_free`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_error_message(error: *const tw_error) -> tw_str {
    of_error(error, |failure| failure.message.view())
}

/// The whole error: `{"code", "number", "message", "name"?, "context"?, "failure"?, "retry"?, "cause"?}`. Borrowed until
/// `tw_error_free`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_error_json(error: *const tw_error) -> tw_str {
    of_error(error, |failure| failure.json.view())
}

/// Frees an error. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_error_free(error: *mut tw_error) {
    release(error);
}

/// Makes a runtime.
///
/// `options`: `{"mode"?}`: `threaded` (the default) gives it a thread of its own, on which callbacks run; `hosted` lets
/// it live on this thread, which calls `tw_runtime_poll` when the descriptor of `tw_runtime_fd` is readable.
///
/// Statuses: `INVALID_JSON`, `INVALID_ARGUMENT`, `UNKNOWN_OPTION`, `STORE_FAILED` when the machine gives no thread or
/// descriptor.
///
/// The caller owns `*runtime`: `tw_runtime_close`, then `tw_runtime_free`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_runtime_new(
    options: tw_str,
    runtime: *mut *mut tw_runtime,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (options, target) = (json(options, "options")?, out(runtime, "runtime")?);
        let shared = match RuntimeOptions::read(&options)? {
            RuntimeOptions::Threaded => runtime::threaded()?,
            RuntimeOptions::Hosted => runtime::hosted()?,
        };
        let handle = Arc::new(RuntimeHandle(shared));
        Ok(target.set(handles::insert(Kind::Runtime, Object::Shared(handle)) as *mut tw_runtime))
    })
}

/// What is behind a runtime's handle.
pub fn runtime_of(runtime: *const tw_runtime) -> turnwheel::Result<Arc<Shared>> {
    let handle: Arc<RuntimeHandle> = shared(runtime)?;
    Ok(handle.0.clone())
}

/// Disposes every agent, makes everything durable, ends the runtime and waits for its thread. Futures that are pending
/// end with `RUNTIME_CLOSED`.
///
/// Statuses: `SELF_WAIT` inside a callback; `RUNTIME_CLOSED` when it is closed already; the store's error, when all else
/// is done, if events could not be stored; `FORKED` in the child of a fork.
///
/// Handles of what lived there stay valid and answer `RUNTIME_CLOSED`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_runtime_close(runtime: *mut tw_runtime, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        runtime::close(&runtime_of(runtime)?)?;
        Ok(TW_OK)
    })
}

/// Ends a runtime without waiting: tasks are dropped, what is not durable yet may be lost. NULL is allowed, and so is a
/// call inside a callback: the end comes when it has returned. Never blocks, so callbacks that run now may still run.
/// Listeners may hear of what ends here (an aborted turn, a disposed agent) a last time; what they call answers
/// `RUNTIME_CLOSED`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_runtime_free(runtime: *mut tw_runtime) {
    release(runtime);
}

/// For hosted runtimes: does what there is to do.
///
/// `timeout_ms`: how long to wait when there is nothing to do: 0 not at all, negative for ever.
///
/// Statuses: `TW_OK` when nothing can proceed; `TW_MORE` when the time slice was over first (2 ms or 1,024 steps): poll
/// again, after what else is due; `SELF_WAIT` inside a callback; `WRONG_THREAD`; `INVALID_ARGUMENT` for a runtime with a
/// thread of its own; `RUNTIME_CLOSED`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_runtime_poll(runtime: *mut tw_runtime, timeout_ms: i32, error: *mut *mut tw_error) -> tw_status {
    enter(error, || Ok(if runtime::poll_once(&runtime_of(runtime)?, timeout_ms)? { TW_MORE } else { TW_OK }))
}

/// For hosted runtimes: a descriptor that is readable when `tw_runtime_poll` has something to do. Watch it, and neither
/// read nor close it.
///
/// Statuses: `INVALID_ARGUMENT` for a runtime with a thread of its own.
#[unsafe(no_mangle)]
pub extern "C" fn tw_runtime_fd(runtime: *mut tw_runtime, fd: *mut i32, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let (shared, fd) = (runtime_of(runtime)?, out(fd, "fd")?);
        Ok(fd.set(runtime::descriptor(&shared)?))
    })
}

/// Runs `task` on the runtime's thread, in one go and between all else, and waits for it. Calls of the library inside it
/// cost no thread crossing.
///
/// Statuses: `INVALID_ARGUMENT` for a NULL callback, `RUNTIME_CLOSED`. `drop` frees `user_data`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_runtime_run(
    runtime: *mut tw_runtime,
    task: tw_task_fn,
    user_data: *mut c_void,
    drop: tw_drop_fn,
    error: *mut *mut tw_error,
) -> tw_status {
    let user = UserData::new(user_data, drop);
    enter(error, || {
        let (shared, task) = (runtime_of(runtime)?, function(task)?);
        shared.call(move |_| {
            let user = user;
            // SAFETY: the interface asks for a function that takes its own `user_data`.
            unsafe { task(user.ptr) };
            Ok(())
        })?;
        Ok(TW_OK)
    })
}
