//! Tools written in C: registering them, and answering their calls.

use crate::context::{on_context, promised, registered};
use crate::future::start;
use crate::guard::{Text, UserData, enter, function, json, name, out, release, retain};
use crate::handles::Kind;
use crate::listen::{ask_reply, fail, payload, question, signal};
use crate::question::{Question, put};
use crate::runtime::Core;
use crate::types::*;
use std::ffi::c_void;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::{self, Options};
use turnwheel::json::Value;
use turnwheel::runtime::Signal;
use turnwheel::tools::{ApprovalOutcome, RUN_CODE, ToolCallInfo};
use turnwheel::{ToolCall, ToolOutput};

type Body = unsafe extern "C" fn(*mut c_void, *mut tw_call);

/// Registers a tool.
///
/// `definition`: `{"name", "description"?, "parameters"?, "output"?, "parallel"?, "timeoutMs"?, "checked"?}`.
/// `parameters` is a JSON Schema; calls that violate it never reach `body`. `checked: false` hands arguments over as they
/// come.
/// `parallel` may be NULL; else it says for which arguments a call may overlap its siblings. It shares `user_data`.
///
/// Statuses: `UNSUPPORTED_SCHEMA`, `DUPLICATE_NAME`, `UNKNOWN_OPTION`, `INVALID_ARGUMENT`, `INACTIVE_EFFECT`. Ownership as
/// for `tw_context_on`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_tool(
    context: *mut tw_context,
    definition: tw_str,
    body: tw_call_fn,
    parallel: tw_parallel_fn,
    user_data: *mut c_void,
    drop: tw_drop_fn,
    registration: *mut *mut tw_registration,
    error: *mut *mut tw_error,
) -> tw_status {
    let user = UserData::new(user_data, drop);
    enter(error, || {
        let (definition, body) = (json(definition, "definition")?, function(body)?);
        registered(context, registration, move |core, ctx| {
            let (core, user) = (Rc::downgrade(core), Rc::new(user));
            let shared = user.clone();
            let mut tool = host::tool(Options::new(&definition, "a tool")?, move |call| {
                run(core.clone(), body, user.clone(), call)
            })?;
            if let Some(parallel) = parallel {
                tool = tool.parallel_when(move |arguments| {
                    let arguments = Text::new(arguments.to_text());
                    // SAFETY: the interface asks for a function that takes its own `user_data` and borrowed text.
                    unsafe { parallel(shared.ptr, arguments.view()) != 0 }
                });
            }
            // The reserved name is held by what runs programs, and by nothing else (DEF-02).
            match tool.name() == RUN_CODE {
                true => ctx.tools().register_runner(tool).map(Some),
                false => ctx.tools().register(tool).map(Some),
            }
        })
    })
}

/// Lets go of the call of a question when it is over.
struct Kept(Weak<Core>, u64);

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(core) = self.0.upgrade() {
            core.forget(self.1);
        }
    }
}

async fn run(core: Weak<Core>, body: Body, user: Rc<UserData>, call: ToolCall) -> Result<ToolOutput> {
    let alive = core.upgrade().ok_or_else(crate::runtime::closed)?;
    let key = alive.keep(call.clone());
    let _kept = Kept(core, key);
    let what = format!("the tool {:?}", call.name());
    let agent = call.agent().map(|agent| agent.id().as_str());
    let payload = host::tool_call_value(&call).to_text();
    let (mut question, guard) = Question::new(Kind::Call, &what, payload, agent, call.signal());
    question.local = Some((alive.shared.clone(), key));
    std::mem::drop(alive);
    let question = Arc::new(question);
    let (asked, attached) = (question.clone(), question);
    // SAFETY: the interface asks for a function that takes its own `user_data` and a borrowed call.
    let answer = put(asked, guard, None, |handle| unsafe { body(user.ptr, handle as *mut tw_call) }).await;
    // What was attached counts whether the call succeeds or fails.
    let (contexts, concludes) = attached.attachments();
    for context in contexts {
        call.defer_context(Arc::new(context));
    }
    if concludes {
        call.conclude_turn();
    }
    host::tool_output(&answer?.unwrap_or(Value::Null))
}

/// Keeps the call open behind the callback. Each retain needs a release; the last release of an unanswered call fails it.
#[unsafe(no_mangle)]
pub extern "C" fn tw_call_retain(call: *mut tw_call) {
    retain(call);
}

/// Takes a reference away. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_call_release(call: *mut tw_call) {
    release(call);
}

/// The call: `{"agentId"?, "callId", "name", "arguments", "parentCallId"?, "rootCallId"?}`.
///
/// `*payload` is borrowed until the last reference to `call` is released.
#[unsafe(no_mangle)]
pub extern "C" fn tw_call_payload(call: *mut tw_call, payload: *mut tw_str, error: *mut *mut tw_error) -> tw_status {
    self::payload(call, payload, error)
}

/// The signal that fires when the turn is cancelled or the call's time is over. The caller owns `*signal`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_call_signal(
    call: *mut tw_call,
    signal: *mut *mut tw_signal,
    error: *mut *mut tw_error,
) -> tw_status {
    self::signal(call, signal, error)
}

/// Answers, on any thread, now or later: `{"value"}` is checked and shown to the model, a string as it is and anything
/// else as JSON; `{"content"}` is a text or a list of blocks. Each may have `"meta"`. Never waits.
///
/// Statuses: `INVALID_JSON`; `INVALID_ARGUMENT` when it is answered already or nobody waits any more. An answer of the
/// wrong shape fails the call with `INVALID_TOOL_OUTPUT`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_call_answer(call: *mut tw_call, output: tw_str, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let output = json(output, "output")?;
        question(call)?.answer(Ok(Some(output)))?;
        Ok(TW_OK)
    })
}

/// Answers the model with a failure: `why` is a text or `{"message", "code"?, "name"?}` as JSON; name and code reach the
/// log.
///
/// Statuses as for `tw_call_answer`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_call_fail(call: *mut tw_call, why: tw_str, error: *mut *mut tw_error) -> tw_status {
    fail(call, why, error)
}

/// Adds a message for the next step; it counts whether the call succeeds or fails. Before the answer.
///
/// Statuses: `INVALID_MESSAGE`; `INVALID_ARGUMENT` behind the answer.
#[unsafe(no_mangle)]
pub extern "C" fn tw_call_defer_context(call: *mut tw_call, message: tw_str, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let given = json(message, "message")?;
        if given.get("id").and_then(Value::as_str).is_none() {
            return Err(Error::new(Code::InvalidMessage, "a deferred context needs an `id` of its own"));
        }
        question(call)?.defer(host::message(&given, String::new)?)?;
        Ok(TW_OK)
    })
}

/// Ends the turn with this step if the call succeeds. Before the answer.
///
/// Statuses: `INVALID_ARGUMENT` behind the answer.
#[unsafe(no_mangle)]
pub extern "C" fn tw_call_conclude_turn(call: *mut tw_call, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        question(call)?.conclude()?;
        Ok(TW_OK)
    })
}

/// Calls another tool on this call's account (EXE-27): policy, checks and cancellation apply as to any call.
///
/// Statuses: `INVALID_JSON`, `RUNTIME_CLOSED` behind the call's end. The caller owns `*future`; its result is
/// `{"content", "isError", "error"?, "value"?, …}`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_call_tool(
    call: *mut tw_call,
    tool: tw_str,
    arguments: tw_str,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (tool, arguments, target) = (name(tool, "tool")?, json(arguments, "arguments")?, out(future, "future")?);
        let question = question(call)?;
        let (shared, key) = question.local.clone().ok_or_else(crate::runtime::closed)?;
        let future = shared.call(move |core| {
            let call = core.value::<ToolCall>(key)?;
            let agent = call.agent().cloned().ok_or_else(crate::runtime::closed)?;
            let (call, runtime) = ((*call).clone(), agent.session().runtime().clone());
            Ok(start(
                core,
                &runtime,
                Box::pin(async move { Ok(host::outcome_value(&call.call(&tool, arguments).await?).to_text()) }),
            ))
        })?;
        Ok(promised(target, future))
    })
}

/// Restricts the tools that a scope inherits: `{"allow"?: […], "deny"?: […]}` (DEF-06).
///
/// Statuses: `INVALID_ARGUMENT` for a context without a scope or an empty filter, `NOT_REGISTERED` for a name that is no
/// inherited tool. Ownership as for `tw_context_on`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_restrict_tools(
    context: *mut tw_context,
    filter: tw_str,
    registration: *mut *mut tw_registration,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let filter = json(filter, "filter")?;
        registered(context, registration, move |_, ctx| {
            let options = Options::new(&filter, "a restriction")?;
            let (allow, deny) = (options.texts("allow")?, options.texts("deny")?);
            options.finish()?;
            ctx.tools().restrict(allow, deny).map(Some)
        })
    })
}

/// The tools that a context sees, as the model would: a JSON list of `{"name", "description", "parameters"}`.
///
/// The caller owns `*tools`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_tools(
    context: *mut tw_context,
    tools: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(tools, "tools")?;
        let tools = on_context(context, |_, ctx| {
            let schemas: Vec<_> = ctx.tools().schemas().iter().map(|tool| tool.json().to_owned()).collect();
            Ok(format!("[{}]", schemas.join(",")))
        })?;
        Ok(target.text(tools))
    })
}

/// Registers who is asked when policy wants a call approved, for the calls of this context's scope (EXE-06).
///
/// `approve` gets a question whose payload is `{"id", "callId", "name", "arguments", "reason"?}`, and answers `"allow"`,
/// `"reject"` or `"cancel"`.
///
/// Statuses: `DUPLICATE_NAME`, `INACTIVE_EFFECT`. Ownership as for `tw_context_on`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_approve_with(
    context: *mut tw_context,
    approve: tw_reply_fn,
    user_data: *mut c_void,
    drop: tw_drop_fn,
    registration: *mut *mut tw_registration,
    error: *mut *mut tw_error,
) -> tw_status {
    let user = UserData::new(user_data, drop);
    enter(error, || {
        let approve = function(approve)?;
        registered(context, registration, move |_, ctx| {
            ctx.tools()
                .approve_with(move |request| {
                    let payload = host::approval_value(&request).to_text();
                    let agent = request.call.agent.as_ref().map(|agent| agent.id().as_str().to_owned());
                    let signal = &request.call.signal;
                    let asked = ask_reply(approve, &user, "an approval", payload, agent.as_deref(), signal);
                    async move { outcome(asked.await?.as_ref()) }
                })
                .map(Some)
        })
    })
}

fn outcome(answer: Option<&Value>) -> Result<ApprovalOutcome> {
    match answer.and_then(Value::as_str) {
        Some("allow") => Ok(ApprovalOutcome::AllowedOnce),
        Some("reject") => Ok(ApprovalOutcome::Rejected),
        Some("cancel") => Ok(ApprovalOutcome::Cancelled),
        _ => Err(Error::new(Code::InvalidArgument, "an approval is \"allow\", \"reject\" or \"cancel\"")),
    }
}

/// Runs one call through the whole pipeline, outside any turn: `call` is `{"callId", "name", "arguments"?}`.
///
/// Statuses: `INVALID_ARGUMENT`, `UNKNOWN_OPTION`. The caller owns `*future`; its result is `{"content", "isError", …}`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_execute_tool(
    context: *mut tw_context,
    call: tw_str,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (call, target) = (json(call, "call")?, out(future, "future")?);
        let future = on_context(context, |core, ctx| {
            let options = Options::new(&call, "a call")?;
            let (id, name) = (options.required_text("callId")?, options.required_text("name")?);
            let arguments = options.value("arguments").cloned().unwrap_or_else(|| turnwheel::json!({}));
            options.finish()?;
            let mut info = ToolCallInfo::new(id, name, arguments, Signal::new());
            info.agent = ctx.own_agent();
            let tools = ctx.tools();
            Ok(start(
                core,
                ctx.runtime(),
                Box::pin(async move { Ok(host::outcome_value(&tools.execute(info).await?).to_text()) }),
            ))
        })?;
        Ok(promised(target, future))
    })
}
