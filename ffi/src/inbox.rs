//! The pending input of an agent.

use crate::agent::{message, on_agent};
use crate::guard::{enter, json, maybe, name, out, text};
use crate::types::*;
use turnwheel::error::{Code, Error, Result};
use turnwheel::json::Value;
use turnwheel::{Agent, Message, host};

fn messages(agent: &Agent, given: &Value) -> Result<Vec<std::sync::Arc<Message>>> {
    match given {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => items.iter().map(|item| message(agent, item)).collect(),
        _ => Err(Error::new(Code::InvalidArgument, "`messages` is a list of messages")),
    }
}

fn list(messages: &[std::sync::Arc<Message>]) -> String {
    Value::from(messages.iter().map(|message| message.to_value()).collect::<Vec<_>>()).to_text()
}

/// The messages pending in a list, as JSON, in order.
///
/// `target`: `next-turn` or `next-step`. The caller owns `*messages`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_inbox_pending(
    agent: *mut tw_agent,
    target: tw_str,
    messages: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (target, result) = (host::target(&text(target, "target")?)?, out(messages, "messages")?);
        Ok(result.text(on_agent(agent, |_, agent| Ok(list(&agent.inbox().pending(target))))?))
    })
}

/// Removes and inserts, with JavaScript's rules for `start` and `delete_count`. Never wakes the agent.
///
/// `messages`: a JSON list of messages to insert; empty for none. Append with a `start` of `INFINITY`, prepend with 0.
///
/// Statuses: `DUPLICATE_MESSAGE`, `INVALID_MESSAGE`, `REENTRANT` inside a log observer, `DISPOSED`.
///
/// `*removed` is the JSON list of what was removed; the caller owns it. `removed` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tw_inbox_splice(
    agent: *mut tw_agent,
    target: tw_str,
    start: f64,
    delete_count: f64,
    messages: tw_str,
    removed: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (target, given) = (host::target(&text(target, "target")?)?, json(messages, "messages")?);
        let taken = on_agent(agent, |_, agent| {
            let inserted = self::messages(agent, &given)?;
            let inbox = agent.inbox();
            let taken = inbox.splice(target, start.min(1e15), delete_count, inserted)?;
            Ok(list(&taken))
        })?;
        if let Some(removed) = maybe(removed) {
            removed.text(taken);
        }
        Ok(TW_OK)
    })
}

/// Adds messages at the tail of a list: `tw_inbox_splice` at its end.
#[unsafe(no_mangle)]
pub extern "C" fn tw_inbox_append(
    agent: *mut tw_agent,
    target: tw_str,
    messages: tw_str,
    error: *mut *mut tw_error,
) -> tw_status {
    tw_inbox_splice(agent, target, f64::INFINITY, 0.0, messages, std::ptr::null_mut(), error)
}

/// Adds messages at the head of a list: `tw_inbox_splice` at 0.
#[unsafe(no_mangle)]
pub extern "C" fn tw_inbox_prepend(
    agent: *mut tw_agent,
    target: tw_str,
    messages: tw_str,
    error: *mut *mut tw_error,
) -> tw_status {
    tw_inbox_splice(agent, target, 0.0, 0.0, messages, std::ptr::null_mut(), error)
}

/// Replaces a pending message in place, perhaps by one with the same id.
///
/// Statuses: `TW_NONE` when it is not pending; `DUPLICATE_MESSAGE`, `INVALID_MESSAGE`, `REENTRANT`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_inbox_replace(
    agent: *mut tw_agent,
    message_id: tw_str,
    message: tw_str,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (id, given) = (name(message_id, "message_id")?, json(message, "message")?);
        let was_pending = on_agent(agent, |_, agent| agent.inbox().replace(&id, self::message(agent, &given)?))?;
        Ok(if was_pending { TW_OK } else { TW_NONE })
    })
}

/// Removes a pending message.
///
/// Statuses: `TW_NONE` when it is not pending; `REENTRANT`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_inbox_remove(agent: *mut tw_agent, message_id: tw_str, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let id = name(message_id, "message_id")?;
        let was_pending = on_agent(agent, |_, agent| agent.inbox().remove(&id))?;
        Ok(if was_pending { TW_OK } else { TW_NONE })
    })
}

/// Discards everything pending.
///
/// Statuses: `REENTRANT`, `DISPOSED`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_inbox_clear(agent: *mut tw_agent, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        on_agent(agent, |_, agent| agent.inbox().clear())?;
        Ok(TW_OK)
    })
}
