//! Agents.

use crate::context::{empty, on, promised};
use crate::future::start;
use crate::guard::{Out, UserData, enter, function, json, name, out, release, retain, text};
use crate::handles::Kind;
use crate::listen::ask_reply;
use crate::runtime::Core;
use crate::types::*;
use std::ffi::c_void;
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::error::Result;
use turnwheel::json::Value;
use turnwheel::{Agent, Message, host, json as value};

/// Runs `operation` with an agent on its thread.
pub fn on_agent<T: Send>(
    agent: *mut tw_agent,
    operation: impl FnOnce(&Rc<Core>, &Agent) -> Result<T> + Send,
) -> Result<T> {
    on::<tw_agent, Agent, T>(agent, operation)
}

/// A message from JSON; ids that are left out are made.
pub fn message(agent: &Agent, message: &Value) -> Result<Arc<Message>> {
    Ok(Arc::new(host::message(message, || agent.session().runtime().next_id())?))
}

fn promise(
    agent: *mut tw_agent,
    target: Out<*mut tw_future>,
    begin: impl FnOnce(&Rc<Core>, &Agent) -> Result<turnwheel::runtime::LocalBoxFuture<Result<String>>> + Send,
) -> Result<tw_status> {
    let future = on_agent(agent, |core, agent| {
        let operation = begin(core, agent)?;
        Ok(start(core, agent.session().runtime(), operation))
    })?;
    Ok(promised(target, future))
}

/// Adds a reference.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_retain(agent: *mut tw_agent) {
    retain(agent);
}

/// Takes a reference away; the agent lives on. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_release(agent: *mut tw_agent) {
    release(agent);
}

/// The id, which is its session's too. The caller owns `*id`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_id(agent: *mut tw_agent, id: *mut *mut tw_buf, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let target = out(id, "id")?;
        Ok(target.text(on_agent(agent, |_, agent| Ok(agent.id().as_str().to_owned()))?))
    })
}

/// What the agent is doing: `{"phase", "turn", "step", "runningTools", "latch", "parked", "nextStep", "nextTurn",
/// "status", "disposed"}`. `status` is `idle` or `running`.
///
/// Statuses: `DISPOSED`. The caller owns `*state`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_state(
    agent: *mut tw_agent,
    state: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(state, "state")?;
        let state = on_agent(agent, |_, agent| {
            let mut state = agent.state()?.to_value().as_object().cloned().unwrap_or_default();
            state.insert("status", agent.status().as_str());
            state.insert("disposed", agent.is_disposed());
            Ok(Value::from(state).to_text())
        })?;
        Ok(target.text(state))
    })
}

/// The agent's own context: what is registered through it concerns this agent only and ends with it.
///
/// Statuses: `DISPOSED`. The caller owns `*context`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_context(
    agent: *mut tw_agent,
    context: *mut *mut tw_context,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(context, "context")?;
        let handle = on_agent(agent, |core, agent| Ok(core.handle(Kind::Context, agent.ctx()?)))?;
        Ok(target.set(handle as *mut tw_context))
    })
}

/// The agent's session. The caller owns `*session`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_session(
    agent: *mut tw_agent,
    session: *mut *mut tw_session,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(session, "session")?;
        let handle = on_agent(agent, |core, agent| Ok(core.handle(Kind::Session, agent.session().clone())))?;
        Ok(target.set(handle as *mut tw_session))
    })
}

/// Delivers a message to a pending list.
///
/// `message`: a JSON string, or an object in which `id`, `role` and `source` may be missing and `content` may be a text.
/// `target`: `next-turn` or `next-step`. `wakeup`: not 0 wakes the agent, and an idle one has opened its turn when this
/// returns.
///
/// Statuses: `DUPLICATE_MESSAGE` for an id that the session accepted before, `INVALID_MESSAGE`, `INVALID_ARGUMENT`,
/// `DISPOSED`, `NOT_PUBLISHED`.
///
/// `*message_id` is the id, for receipts; the caller owns it. `message_id` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_send(
    agent: *mut tw_agent,
    message: tw_str,
    target: tw_str,
    wakeup: i32,
    message_id: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (given, target) = (json(message, "message")?, host::target(&text(target, "target")?)?);
        let id = on_agent(agent, |_, agent| {
            let message = self::message(agent, &given)?;
            Ok(agent.send(message, target, wakeup != 0)?.message_id().as_str().to_owned())
        })?;
        if let Some(target) = crate::guard::maybe(message_id) {
            target.text(id);
        }
        Ok(TW_OK)
    })
}

/// Queues a prompt for a turn of its own, and wakes: `tw_agent_send` with `next-turn`.
///
/// Parameters, statuses and ownership as for `tw_agent_send`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_followup(
    agent: *mut tw_agent,
    message: tw_str,
    message_id: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    tw_agent_send(agent, message, view("next-turn"), 1, message_id, error)
}

/// Adds input to the turn under way at its next step, and wakes: `tw_agent_send` with `next-step`.
///
/// Parameters, statuses and ownership as for `tw_agent_send`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_steer(
    agent: *mut tw_agent,
    message: tw_str,
    message_id: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    tw_agent_send(agent, message, view("next-step"), 1, message_id, error)
}

/// Adds context for the next step without waking.
///
/// Parameters, statuses and ownership as for `tw_agent_send`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_inject(
    agent: *mut tw_agent,
    message: tw_str,
    message_id: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    tw_agent_send(agent, message, view("next-step"), 0, message_id, error)
}

fn view(text: &'static str) -> tw_str {
    tw_str { ptr: text.as_ptr().cast(), len: text.len() }
}

/// Drains what is parked without sending a message.
///
/// Statuses: `DISPOSED`, `NOT_PUBLISHED`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_wake(agent: *mut tw_agent, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        on_agent(agent, |_, agent| agent.wake())?;
        Ok(TW_OK)
    })
}

/// Cancels the activity under way; the signal has fired when this returns.
///
/// `cause`: a kind as a JSON string, or `{"kind", …}`, for example `{"kind":"hook","reason":"…"}`; empty for `user`.
/// `keep_inbox`: 0 discards pending input, else it stays.
///
/// Statuses: `INVALID_JSON`, `INVALID_ARGUMENT`. Cancelling an agent that is idle or disposed is no error.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_cancel(
    agent: *mut tw_agent,
    cause: tw_str,
    keep_inbox: i32,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let cause = json(cause, "cause")?;
        let cause = if cause.is_null() { Value::from("user") } else { cause };
        let cause = host::cancel_cause(&cause)?;
        on_agent(agent, |_, agent| {
            if keep_inbox == 0 {
                agent.cancel(cause);
            } else {
                agent.cancel_keep_inbox(cause);
            }
            Ok(())
        })?;
        Ok(TW_OK)
    })
}

/// Waits for quiescence: the future is done when nothing is active.
///
/// Statuses: of the future, `SELF_WAIT` when it was asked inside the agent's own turn or maintenance (D-18).
///
/// The caller owns `*future`; its result is `null`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_when_idle(
    agent: *mut tw_agent,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(future, "future")?;
        promise(agent, target, |_, agent| {
            let idle = agent.when_idle();
            Ok(Box::pin(async move { idle.await.map(|()| empty()) }))
        })
    })
}

/// Sends a prompt and waits until the turn that took it ended.
///
/// Statuses: as for `tw_agent_send`, and `SELF_WAIT`; of the future `MESSAGE_DISCARDED`, `PARKED`, `ABORTED` behind
/// `tw_future_cancel`.
///
/// The caller owns `*future`. Its result is `{"turn", "reason", "text", "messages", "usage"}`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_run(
    agent: *mut tw_agent,
    message: tw_str,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (given, target) = (json(message, "message")?, out(future, "future")?);
        promise(agent, target, |_, agent| {
            let running = agent.run(self::message(agent, &given)?)?;
            Ok(Box::pin(async move { Ok(host::run_value(&running.await?).to_text()) }))
        })
    })
}

/// Runs a task in the idle phase; wakes wait for its end. It starts before this returns.
///
/// `task` gets a question whose payload is `{"agentId"}` and whose signal fires on cancellation; what it answers is the
/// future's result.
///
/// Statuses: `BUSY` when the agent is not idle, `DISPOSED`. `drop` frees `user_data`. The caller owns `*future`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_run_maintenance(
    agent: *mut tw_agent,
    task: tw_reply_fn,
    user_data: *mut c_void,
    drop: tw_drop_fn,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    let user = UserData::new(user_data, drop);
    enter(error, || {
        let (task, target) = (function(task)?, out(future, "future")?);
        promise(agent, target, move |_, agent| {
            let id = agent.id().as_str().to_owned();
            let done = agent.run_maintenance(move |signal| async move {
                let payload = value!({"agentId": id}).to_text();
                ask_reply(task, &user, "a maintenance task", payload, Some(&id), &signal).await
            })?;
            Ok(Box::pin(async move { Ok(done.await?.unwrap_or(Value::Null).to_text()) }))
        })
    })
}

/// What became of a message: `{"kind": "pending", "target", "parked", "why"?}`, `{"kind": "claimed", "turn", "step"?}`,
/// `{"kind": "discarded", "seq", "replacedBy"?}` or `{"kind": "ended", "turn", "reason"}`. `why` is there when it is
/// parked: `{"kind": "not-woken"}`, `"resumed"`, `"turn-ending"` or `"turn-ended"` (`turn`, `reason`). Survives restarts.
///
/// Statuses: `TW_NONE` when the session never accepted it, and `*state` is NULL. The caller owns `*state`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_receipt(
    agent: *mut tw_agent,
    message_id: tw_str,
    state: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (id, target) = (name(message_id, "message_id")?, out(state, "state")?);
        let state = on_agent(agent, |_, agent| {
            Ok(agent.receipt(id).state().map(|state| host::receipt_value(&state).to_text()))
        })?;
        Ok(match state {
            Some(state) => target.text(state),
            None => {
                target.set(std::ptr::null_mut());
                TW_NONE
            }
        })
    })
}

/// Waits until a message was discarded or the turn that took it ended.
///
/// Statuses of the future: `NOT_REGISTERED` for a message that the session never accepted, `SELF_WAIT`, `DISPOSED`.
///
/// The caller owns `*future`; its result is the state, as `tw_agent_receipt` gives it.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_settled(
    agent: *mut tw_agent,
    message_id: tw_str,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (id, target) = (name(message_id, "message_id")?, out(future, "future")?);
        promise(agent, target, |_, agent| {
            let settled = agent.receipt(id).settled();
            Ok(Box::pin(async move { Ok(host::receipt_value(&settled.await?).to_text()) }))
        })
    })
}

/// Waits until the insertion of a message is on stable storage; at once without a store.
///
/// Statuses of the future: `NOT_REGISTERED` for a message that the session never accepted, `DISPOSED`, `STORE_FAILED`.
///
/// The caller owns `*future`; its result is `null`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_durable(
    agent: *mut tw_agent,
    message_id: tw_str,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (id, target) = (name(message_id, "message_id")?, out(future, "future")?);
        promise(agent, target, |_, agent| {
            let receipt = agent.receipt(id);
            Ok(Box::pin(async move { receipt.durable().await.map(|()| empty()) }))
        })
    })
}

/// Waits until everything logged so far is on stable storage; at once without a store.
///
/// Statuses of the future: `STORE_FAILED`. The caller owns `*future`; its result is `null`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_flush(
    agent: *mut tw_agent,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(future, "future")?;
        promise(agent, target, |_, agent| {
            let agent = agent.clone();
            Ok(Box::pin(async move { agent.flush().await.map(|()| empty()) }))
        })
    })
}

/// Stops the agent, removes it and frees its id. Inside its own turn this is a request that completes when the turn has
/// unwound (D-18).
///
/// The caller owns `*future`; its result is `null`. `future` may be NULL: the disposal goes on all the same.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_dispose(
    agent: *mut tw_agent,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = crate::guard::maybe(future);
        let handle = on_agent(agent, |core, agent| {
            let disposed = agent.dispose();
            Ok(start(
                core,
                agent.session().runtime(),
                Box::pin(async move {
                    disposed.await;
                    Ok(empty())
                }),
            ))
        })?;
        match target {
            Some(target) => Ok(promised(target, handle)),
            None => {
                crate::handles::release(Kind::Future, handle);
                Ok(TW_OK)
            }
        }
    })
}

/// Delivers a notification about an agent from outside (EVT-13), to every listener that hears the agent.
///
/// `event`: `agent/created`, `agent/disposed`, `agent/status`, `agent/error` or one of `agent/inbox/…`. `payload` has the
/// event's members: `{"message"?, "turn"?, "step"?, "status"?, "error"?}`.
///
/// Statuses: `UNKNOWN_OPTION` for an event that does not exist, `INVALID_ARGUMENT` for one that only the library tells,
/// `INVALID_MESSAGE`, `DISPOSED`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_emit(
    agent: *mut tw_agent,
    event: tw_str,
    payload: tw_str,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (event, payload) = (name(event, "event")?, json(payload, "payload")?);
        on_agent(agent, |_, agent| host::emit(agent, &event, &payload))?;
        Ok(TW_OK)
    })
}
