//! Notifications as JSON. A host makes the JSON only when its listener asks: most listeners look at the name and leave.

use super::results::{error_value, outcome_members};
use crate::agent::Notice;
use crate::json::{Object, Value, write_str};
use crate::session::Event;
use crate::tools::ToolCallInfo;

/// A notification as `{"event", "agentId"?, "sessionId"?, …}` with the members of EVT-13. `session/event` has the event
/// of the log as `data`; `tools/result` has the call and its answer.
pub fn notice_value(notice: &Notice) -> Value {
    let mut object = Object::new();
    object.insert("event", notice.kind().as_str());
    object.insert_some("agentId", notice.agent().map(|agent| agent.id().as_str()));
    let mut session = notice.agent().map(|agent| agent.id().as_str());
    match notice {
        Notice::SessionCreated { session: about }
        | Notice::SessionDisposed { session: about }
        | Notice::SessionEvent { session: about, .. } => session = Some(about.id().as_str()),
        Notice::ConfigStartFailed { session_id, .. } => session = Some(session_id.as_str()),
        Notice::Created { .. }
        | Notice::Disposed { .. }
        | Notice::Status { .. }
        | Notice::Inserted { .. }
        | Notice::Claimed { .. }
        | Notice::Discarded { .. }
        | Notice::SessionStart { .. }
        | Notice::Error { .. }
        | Notice::ToolResult { .. }
        | Notice::ToolsChanged { .. }
        | Notice::PromptChanged { .. }
        | Notice::ModelsChanged => {}
    }
    object.insert_some("sessionId", session);
    match notice {
        // The scope of a registration has no face outside Rust.
        Notice::SessionCreated { .. }
        | Notice::SessionDisposed { .. }
        | Notice::Created { .. }
        | Notice::Disposed { .. }
        | Notice::ToolsChanged { .. }
        | Notice::PromptChanged { .. }
        | Notice::ModelsChanged => {}
        Notice::Status { status, .. } => {
            object.insert("status", status.as_str());
        }
        Notice::Inserted { message, .. } | Notice::Discarded { message, .. } => {
            object.insert("message", message.to_value());
        }
        Notice::Claimed { message, turn, .. } => {
            object.insert("message", message.to_value());
            object.insert("turn", *turn);
        }
        Notice::SessionStart { source, .. } => {
            object.insert("source", source.as_str());
        }
        Notice::Error { turn, step, error, .. } => {
            object.insert("turn", *turn);
            object.insert("step", *step);
            object.insert("error", error_value(error));
        }
        Notice::SessionEvent { event, .. } => {
            object.insert("data", event.to_value());
        }
        Notice::ConfigStartFailed { error, .. } => {
            object.insert("error", error_value(error));
        }
        Notice::ToolResult { result, .. } => {
            call_members(&result.call, &mut object);
            outcome_members(&result.outcome, &mut object);
        }
    }
    object.into()
}

/// The canonical text of [`notice_value`]. For `session/event` it is put together from the event's own text and nothing
/// is parsed or copied twice.
pub fn notice_text(notice: &Notice) -> String {
    match notice {
        Notice::SessionEvent { session, agent, event } => {
            event_text(session.id(), agent.as_ref().map(|agent| agent.id().as_str()), event)
        }
        _ => notice_value(notice).to_text(),
    }
}

/// The text of a `session/event` notification.
pub fn event_text(session: &str, agent: Option<&str>, event: &Event) -> String {
    let mut text = String::with_capacity(event.json().len() + 96);
    text.push_str("{\"event\":\"session/event\"");
    if let Some(agent) = agent {
        text.push_str(",\"agentId\":");
        write_str(agent, &mut text);
    }
    text.push_str(",\"sessionId\":");
    write_str(session, &mut text);
    text.push_str(",\"data\":");
    text.push_str(event.json());
    text.push('}');
    text
}

/// The members of a tool call.
pub(super) fn call_members(call: &ToolCallInfo, object: &mut Object) {
    object.insert("callId", call.call_id.as_str());
    object.insert("name", call.name.as_str());
    object.insert("arguments", call.arguments.clone());
    object.insert_some("parentCallId", call.parent.as_deref());
    if call.root_call_id != call.call_id {
        object.insert("rootCallId", call.root_call_id.as_str());
    }
}
