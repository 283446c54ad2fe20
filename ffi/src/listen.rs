//! Listeners, and what they answer with.

use crate::context::registered;
use crate::guard::{UserData, enter, function, json, name, out, release, retain, shared};
use crate::handles::Kind;
use crate::notice::deliver;
use crate::question::{Asked, Question, put};
use crate::types::*;
use std::ffi::c_void;
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::{
    HostListener, HostNext, ListenOptions, Listening, WaterfallEvent, check_event_name, error_from_value, listen,
};
use turnwheel::json::Value;
use turnwheel::runtime::LocalBoxFuture;
use turnwheel::{Notice, host};

enum Listener {
    Notice(unsafe extern "C" fn(*mut c_void, *const tw_notice), UserData),
    Next(unsafe extern "C" fn(*mut c_void, *mut tw_next), UserData),
}

impl HostListener for Listener {
    fn notice(&self, notice: &Notice) -> Result<()> {
        let Listener::Notice(heard, user) = self else { return Ok(()) };
        // SAFETY: the interface asks for a function that takes its own `user_data` and a borrowed notice.
        deliver(notice, |handle| unsafe { heard(user.ptr, handle) })
    }

    fn decide(&self, event: WaterfallEvent, next: Option<HostNext>) -> LocalBoxFuture<Result<Option<Value>>> {
        let Listener::Next(decide, user) = self else { return Box::pin(std::future::ready(Ok(None))) };
        let agent = event.agent.as_ref().map(|agent| agent.id().as_str().to_owned());
        let what = format!("a listener of {}", event.name);
        let payload = event.value().to_text();
        let (question, guard) = Question::new(Kind::Next, &what, payload, agent.as_deref(), &event.signal);
        // SAFETY: the interface asks for a function that takes its own `user_data` and a borrowed question.
        put(question, guard, next, |handle| unsafe { decide(user.ptr, handle as *mut tw_next) })
    }
}

fn add(
    context: *mut tw_context,
    event: String,
    options: ListenOptions,
    listener: Listener,
    registration: *mut *mut tw_registration,
) -> Result<tw_status> {
    registered(context, registration, move |_, ctx| listen(ctx, &event, options, Rc::new(listener)).map(Some))
}

/// Hears a notification: `session/created`, `session/disposed`, `session/event`, `agent/created`, `agent/disposed`,
/// `agent/status`, `agent/inbox/inserted`, `agent/inbox/claimed`, `agent/inbox/discarded`, `agent/session-start`,
/// `agent/error`, `tools/result`, `tools/changed`, `system-prompt/changed`, `models/changed`,
/// `agent-loop/config-start-failed`.
///
/// `heard` is called at the point of delivery, before the operation that caused it goes on.
/// `options`: `{"prepend"?, "once"?, "global"?, "types"?}`; `types` names the log events that a listener of
/// `session/event` hears.
///
/// Statuses: `UNKNOWN_OPTION` for an event that does not exist or an unknown option, `INVALID_ARGUMENT` for an event that
/// is decided, `INACTIVE_EFFECT` when the context is disposed.
///
/// It lasts as long as the context. `*registration` is the caller's to release; `registration` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_on(
    context: *mut tw_context,
    event: tw_str,
    options: tw_str,
    heard: tw_notice_fn,
    user_data: *mut c_void,
    drop: tw_drop_fn,
    registration: *mut *mut tw_registration,
    error: *mut *mut tw_error,
) -> tw_status {
    let user = UserData::new(user_data, drop);
    enter(error, || {
        let (event, heard) = (name(event, "event")?, function(heard)?);
        let options = ListenOptions::from_value(&json(options, "options")?)?;
        if !matches!(check_event_name(&event)?, Listening::Notice(_)) {
            let message = format!("{event} is decided and not only heard: use tw_context_decide");
            return Err(Error::new(Code::InvalidArgument, message));
        }
        add(context, event, options, Listener::Notice(heard, user), registration)
    })
}

/// Decides a waterfall, or takes part in `agent/turn-stopping`: `agent/pre-step`, `agent/request`, `agent/request-error`,
/// `system-prompt/assemble`, `tools/pre-execute`, `tools/execute`, `tools/post-execute`, `agent/turn-stopping`.
///
/// `decide` gets a `tw_next`: it answers with a decision, fails, passes, or delegates and answers then. The first
/// listener is the outermost. `options`: `{"prepend"?, "once"?, "global"?}`.
///
/// Statuses and ownership as for `tw_context_on`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_decide(
    context: *mut tw_context,
    event: tw_str,
    options: tw_str,
    decide: tw_next_fn,
    user_data: *mut c_void,
    drop: tw_drop_fn,
    registration: *mut *mut tw_registration,
    error: *mut *mut tw_error,
) -> tw_status {
    let user = UserData::new(user_data, drop);
    enter(error, || {
        let (event, decide) = (name(event, "event")?, function(decide)?);
        let options = ListenOptions::from_value(&json(options, "options")?)?;
        if matches!(check_event_name(&event)?, Listening::Notice(_)) {
            let message = format!("{event} is only heard: use tw_context_on");
            return Err(Error::new(Code::InvalidArgument, message));
        }
        add(context, event, options, Listener::Next(decide, user), registration)
    })
}

fn asked<H: Handle>(handle: *const H) -> Result<Arc<Question>> {
    let asked: Arc<Asked> = shared(handle)?;
    Ok(asked.0.clone())
}

/// The question behind a handle, for the other kinds of questions.
pub fn question<H: Handle>(handle: *const H) -> Result<Arc<Question>> {
    asked(handle)
}

/// Writes the payload, which lives as long as the question's handles.
pub fn payload<H: Handle>(handle: *const H, target: *mut tw_str, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let question = asked(handle)?;
        Ok(out(target, "payload")?.set(question.payload.view()))
    })
}

/// Writes the signal.
pub fn signal<H: Handle>(handle: *const H, target: *mut *mut tw_signal, error: *mut *mut tw_error) -> tw_status {
    enter(error, || crate::signal::write(&asked(handle)?.signal, target))
}

/// Fails the question with an error of the host.
pub fn fail<H: Handle>(handle: *const H, why: tw_str, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let why = host::error_from_value(&json(why, "why")?);
        asked(handle)?.answer(Err(why))?;
        Ok(TW_OK)
    })
}

/// Keeps the dispatch open behind the callback. Each retain needs a release; the last release of an unanswered dispatch
/// fails it, and nothing else.
#[unsafe(no_mangle)]
pub extern "C" fn tw_next_retain(next: *mut tw_next) {
    retain(next);
}

/// Takes a reference away. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_next_release(next: *mut tw_next) {
    release(next);
}

/// What is to be decided: `{"event", "agentId"?, …}` with the members of the event.
///
/// `*payload` is borrowed until the last reference to `next` is released.
#[unsafe(no_mangle)]
pub extern "C" fn tw_next_payload(next: *mut tw_next, payload: *mut tw_str, error: *mut *mut tw_error) -> tw_status {
    self::payload(next, payload, error)
}

/// The signal that fires when the turn is cancelled. The caller owns `*signal`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_next_signal(
    next: *mut tw_next,
    signal: *mut *mut tw_signal,
    error: *mut *mut tw_error,
) -> tw_status {
    self::signal(next, signal, error)
}

/// Decides, on any thread, now or later. Never waits.
///
/// `decision` is JSON, as the continuation would give it: for `agent/pre-step` `{"kind": "enter", "messages": […]}` or
/// `{"kind": "reject"}`; for `agent/request` a call config; for `agent/request-error` `"retry"` or `"terminal"`; for
/// `system-prompt/assemble` `{"sections", "tools", "variables", "contexts"}`; for `tools/pre-execute` `{"kind": "allow"}`,
/// `{"kind": "deny", "reason"}` or `{"kind": "ask", "reason"?}`; for `tools/execute` `{"content", "isError"?, …}`; for
/// `tools/post-execute` `{"kind": "accept", "content"?, "value"?, "contexts"?}` or `{"kind": "block", "feedback"}`; for
/// `agent/turn-stopping` nothing. Empty behind `tw_next_proceed` keeps what the continuation decided.
///
/// Statuses: `INVALID_JSON`; `INVALID_ARGUMENT` when it is answered already or nobody waits any more. A decision of the
/// wrong shape fails the dispatch.
#[unsafe(no_mangle)]
pub extern "C" fn tw_next_answer(next: *mut tw_next, decision: tw_str, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let decision = json(decision, "decision")?;
        asked(next)?.answer(Ok((!decision.is_null()).then_some(decision)))?;
        Ok(TW_OK)
    })
}

/// Fails this listener, on any thread: `why` is a text or `{"message", "code"?, "name"?}` as JSON.
///
/// Statuses as for `tw_next_answer`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_next_fail(next: *mut tw_next, why: tw_str, error: *mut *mut tw_error) -> tw_status {
    fail(next, why, error)
}

/// Delegates and keeps what the continuation decides: what a listener does that has nothing to say.
///
/// Statuses: `NEXT_CALLED_TWICE`; `INVALID_ARGUMENT` when it is answered already. For `agent/turn-stopping`, which has no
/// continuation, answer instead.
#[unsafe(no_mangle)]
pub extern "C" fn tw_next_pass(next: *mut tw_next, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        asked(next)?.pass()?;
        Ok(TW_OK)
    })
}

/// Delegates, and calls `then` on the runtime's thread with what the continuation decided; answer there, or later.
///
/// `edited` is empty, or `{"messages": […]}` for `agent/pre-step`: what replaces the offered batch first.
///
/// Statuses: `NEXT_CALLED_TWICE`, `INVALID_JSON`, `INVALID_ARGUMENT`. `drop` frees `user_data` behind the call, or when
/// the dispatch ends without it.
#[unsafe(no_mangle)]
pub extern "C" fn tw_next_proceed(
    next: *mut tw_next,
    edited: tw_str,
    then: tw_then_fn,
    user_data: *mut c_void,
    drop: tw_drop_fn,
    error: *mut *mut tw_error,
) -> tw_status {
    let user = UserData::new(user_data, drop);
    enter(error, || {
        let (edited, then) = (json(edited, "edited")?, function(then)?);
        asked(next)?.proceed((!edited.is_null()).then_some(edited), (then, user))?;
        Ok(TW_OK)
    })
}

/// Puts a question to a `tw_reply_fn`.
pub fn ask_reply(
    ask: unsafe extern "C" fn(*mut c_void, *mut tw_reply),
    user: &UserData,
    what: &str,
    payload: String,
    agent: Option<&str>,
    signal: &turnwheel::runtime::Signal,
) -> LocalBoxFuture<Result<Option<Value>>> {
    let (question, guard) = Question::new(Kind::Reply, what, payload, agent, signal);
    // SAFETY: the interface asks for a function that takes its own `user_data` and a borrowed question.
    put(question, guard, None, |handle| unsafe { ask(user.ptr, handle as *mut tw_reply) })
}

/// Keeps the question open behind the callback. Each retain needs a release; the last release of an unanswered question
/// fails it.
#[unsafe(no_mangle)]
pub extern "C" fn tw_reply_retain(reply: *mut tw_reply) {
    retain(reply);
}

/// Takes a reference away. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_reply_release(reply: *mut tw_reply) {
    release(reply);
}

/// What is asked, as JSON; see the function that registered the callback. Borrowed until the last reference is released.
#[unsafe(no_mangle)]
pub extern "C" fn tw_reply_payload(reply: *mut tw_reply, payload: *mut tw_str, error: *mut *mut tw_error) -> tw_status {
    self::payload(reply, payload, error)
}

/// The signal that fires when the answer is not wanted any more. The caller owns `*signal`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_reply_signal(
    reply: *mut tw_reply,
    signal: *mut *mut tw_signal,
    error: *mut *mut tw_error,
) -> tw_status {
    self::signal(reply, signal, error)
}

/// Answers with JSON, or with nothing, on any thread. Never waits.
///
/// Statuses: `INVALID_JSON`; `INVALID_ARGUMENT` when it is answered already or nobody waits any more.
#[unsafe(no_mangle)]
pub extern "C" fn tw_reply_answer(reply: *mut tw_reply, answer: tw_str, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let answer = json(answer, "answer")?;
        asked(reply)?.answer(Ok((!answer.is_null()).then_some(answer)))?;
        Ok(TW_OK)
    })
}

/// Answers with a failure: `why` is a text or `{"message", "code"?, "name"?}` as JSON.
///
/// Statuses as for `tw_reply_answer`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_reply_fail(reply: *mut tw_reply, why: tw_str, error: *mut *mut tw_error) -> tw_status {
    fail(reply, why, error)
}

/// Adds checks that may refuse: an event of the log before it is committed (APP-10), or a model request before it is sent.
///
/// `what` is `event` or `request`. `check` gets the session's id and the event or request as JSON, and returns 0 to let it
/// pass. It may read and not append.
///
/// Statuses: `INVALID_ARGUMENT` for another `what` or a NULL callback, `INACTIVE_EFFECT`. Ownership as for `tw_context_on`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_check(
    context: *mut tw_context,
    what: tw_str,
    check: tw_check_fn,
    user_data: *mut c_void,
    drop: tw_drop_fn,
    registration: *mut *mut tw_registration,
    error: *mut *mut tw_error,
) -> tw_status {
    let user = UserData::new(user_data, drop);
    enter(error, || {
        let (what, check) = (name(what, "what")?, function(check)?);
        registered(context, registration, move |_, ctx| match what.as_str() {
            "event" => ctx.check_events(move |session, event| asks(check, &user, session.id(), event.json())).map(Some),
            "request" => ctx
                .check_requests(move |session, request| {
                    asks(check, &user, session.id(), &host::request_value(request).to_text())
                })
                .map(Some),
            other => Err(Error::new(Code::InvalidArgument, format!("a check is of event or request, not {other:?}"))),
        })
    })
}

type Check = unsafe extern "C" fn(*mut c_void, tw_str, tw_str, *mut *mut tw_buf) -> i32;

fn asks(check: Check, user: &UserData, session: &str, subject: &str) -> Result<()> {
    let (session, subject) = (crate::guard::Text::new(session), crate::guard::Text::new(subject));
    let mut why = std::ptr::null_mut();
    // SAFETY: the interface asks for a function that takes its own `user_data`, borrowed texts and a place for a buffer.
    let verdict = unsafe { check(user.ptr, session.view(), subject.view(), &raw mut why) };
    let text = if why.is_null() { None } else { crate::guard::take_buf(why) };
    if verdict == 0 {
        return Ok(());
    }
    let text = text.unwrap_or_else(|| "a check refused it".into());
    Err(turnwheel::json::parse(&text).map_or_else(|_| Error::host(text), |value| error_from_value(&value)))
}
