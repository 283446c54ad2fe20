//! The types of the interface: views of text, statuses, opaque handles and callbacks.
#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_void};

/// 0, an outcome (1 to 99) or an error (from 100).
pub type tw_status = i32;

/// The operation did what it says.
pub const TW_OK: tw_status = 0;
/// An outcome: there is nothing more, or no such thing.
pub const TW_NONE: tw_status = 1;
/// An outcome: the time was over before the operation was; it goes on.
pub const TW_TIMEOUT: tw_status = 2;
/// An outcome: not finished yet.
pub const TW_PENDING: tw_status = 3;
/// An outcome of `tw_runtime_poll`: there is more to do at once; poll again.
pub const TW_MORE: tw_status = 4;

/// A view of UTF-8 text. It owns nothing. `ptr` may be NULL when `len` is 0. Text that the library gives out has a NUL
/// byte behind its end, which `len` does not count.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tw_str {
    /// The first byte.
    pub ptr: *const c_char,
    /// How many bytes there are.
    pub len: usize,
}

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident = $kind:ident;)*) => {
        $(impl Handle for $name {
            const KIND: crate::handles::Kind = crate::handles::Kind::$kind;
        })*
    };
}

/// A type of handles.
pub trait Handle {
    /// Its tag.
    const KIND: crate::handles::Kind;
}

/// What went wrong: code, message, facts, causes. Owned: free it with `tw_error_free`.
pub struct tw_error(());
/// Text that the library gives away. Owned: free it with `tw_buf_free`.
pub struct tw_buf(());
/// A thread that agents live on. Owned: end it with `tw_runtime_close` or `tw_runtime_free`.
pub struct tw_runtime(());
/// What an application registers through, and opens agents on. Shared.
pub struct tw_context(());
/// An agent. Shared.
pub struct tw_agent(());
/// An agent's log. Shared.
pub struct tw_session(());
/// Something registered. Shared; releasing it changes nothing, `tw_registration_dispose` undoes the registration.
pub struct tw_registration(());
/// A mounted plug-in. Shared.
pub struct tw_plugin(());
/// A route that may be switched while an agent runs. Shared.
pub struct tw_selection(());
/// Events of a log, one after the other. Shared.
pub struct tw_stream(());
/// The result of something that takes time. Shared.
pub struct tw_future(());
/// Fires once, when something is cancelled. Shared.
pub struct tw_signal(());
/// One dispatch of a waterfall, to be decided. Shared.
pub struct tw_next(());
/// One call of a tool, to be answered. Shared.
pub struct tw_call(());
/// One request to a model adapter written in C, to be answered with chunks. Shared.
pub struct tw_answer(());
/// A question to other host code: a setup, a maintenance task, a prompt text, an approval. Shared.
pub struct tw_reply(());
/// A notification. Borrowed: valid on this thread until the callback returns.
pub struct tw_notice(());

opaque! {
    tw_error = Error;
    tw_buf = Buf;
    tw_runtime = Runtime;
    tw_context = Context;
    tw_agent = Agent;
    tw_session = Session;
    tw_registration = Registration;
    tw_plugin = Plugin;
    tw_selection = Selection;
    tw_stream = Stream;
    tw_future = Future;
    tw_signal = Signal;
    tw_next = Next;
    tw_call = Call;
    tw_answer = Answer;
    tw_reply = Reply;
    tw_notice = Notice;
}

/// Ends a callback: frees its `user_data`. Called exactly once, also when the registration failed.
pub type tw_drop_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;
/// Does something on the runtime's thread.
pub type tw_task_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;
/// Hears a notification. `notice` is borrowed until the callback returns.
pub type tw_notice_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, notice: *const tw_notice)>;
/// Decides a waterfall: answer `next` now, or retain it and answer later. `next` is borrowed.
pub type tw_next_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, next: *mut tw_next)>;
/// Hears what the continuation decided, as JSON; or its error, and then `decision` is empty. Everything is borrowed.
pub type tw_then_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, next: *mut tw_next, decision: tw_str, failed: *const tw_error)>;
/// Runs a tool: answer `call` now, or retain it and answer later. `call` is borrowed.
pub type tw_call_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, call: *mut tw_call)>;
/// Says whether a call with these arguments may overlap its siblings: not 0 if so.
pub type tw_parallel_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, arguments: tw_str) -> i32>;
/// Serves a model request: push chunks into `answer` now, or retain it and push later. `answer` is borrowed.
pub type tw_answer_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, answer: *mut tw_answer)>;
/// Answers a question: now, or later after retaining `reply`. `reply` is borrowed.
pub type tw_reply_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, reply: *mut tw_reply)>;
/// Composes an agent or a plug-in through `context`, and answers `reply` when that is done. Both are borrowed.
pub type tw_setup_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, context: *mut tw_context, reply: *mut tw_reply)>;
/// Refuses an event or a request, or lets it pass by returning 0. To refuse, return any other number; what is written to
/// `*why` says why. `why` takes an owned buffer from `tw_buf_new`, or stays NULL.
pub type tw_check_fn = Option<
    unsafe extern "C" fn(user_data: *mut c_void, session_id: tw_str, subject: tw_str, why: *mut *mut tw_buf) -> i32,
>;
/// Hears that a future is done. `future` is borrowed.
pub type tw_done_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, future: *mut tw_future)>;
/// Hears that a signal fired, and why: a cause as JSON. Both are borrowed.
pub type tw_signal_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, cause: tw_str)>;
/// Hears what the library reports and nobody can be told otherwise. `level` is 1 for an error, 2 for a warning.
pub type tw_log_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, level: i32, message: tw_str)>;
