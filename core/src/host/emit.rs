//! Notifications that host code delivers itself, and the texts that a host shows of the runtime's own.

use super::compose::message;
use super::results::error_from_value;
use crate::agent::{Agent, AgentStatus, Notice, NoticeKind, unknown_event};
use crate::error::{Code, Error, Result};
use crate::json::Value;
use crate::texts;
use std::sync::Arc;

/// Delivers a notification about an agent from outside (EVT-13), to every listener that hears the agent. `payload` has
/// the event's members: `message`, `turn`, `step`, `status`, `error`. Fails with `INVALID_ARGUMENT` for what only the
/// runtime tells.
pub fn emit(agent: &Agent, event: &str, payload: &Value) -> Result<()> {
    let kind = NoticeKind::parse(event).ok_or_else(|| unknown_event(event))?;
    let given = || {
        let given = payload.get("message").cloned().unwrap_or(Value::Null);
        Ok::<_, Error>(Arc::new(message(&given, || agent.session().runtime().next_id())?))
    };
    let number = |key: &str| payload.get(key).and_then(Value::as_u64).unwrap_or_default();
    let own = agent.clone();
    let notice = match kind {
        NoticeKind::Created => Notice::Created { agent: own },
        NoticeKind::Disposed => Notice::Disposed { agent: own },
        NoticeKind::Inserted => Notice::Inserted { agent: own, message: given()? },
        NoticeKind::Discarded => Notice::Discarded { agent: own, message: given()? },
        NoticeKind::Claimed => Notice::Claimed { agent: own, message: given()?, turn: number("turn") },
        NoticeKind::Status => {
            let is_running = payload.get("status").and_then(Value::as_str) == Some("running");
            let status = if is_running { AgentStatus::Running } else { AgentStatus::Idle };
            Notice::Status { agent: own, status }
        }
        NoticeKind::Error => {
            let error = error_from_value(payload.get("error").unwrap_or(&Value::Null));
            Notice::Error { agent: own, turn: number("turn"), step: number("step"), error }
        }
        NoticeKind::SessionStart
        | NoticeKind::SessionCreated
        | NoticeKind::SessionDisposed
        | NoticeKind::SessionEvent
        | NoticeKind::ToolResult
        | NoticeKind::ToolsChanged
        | NoticeKind::PromptChanged
        | NoticeKind::ModelsChanged
        | NoticeKind::ConfigStartFailed => {
            return Err(Error::new(Code::InvalidArgument, format!("{event} is told by the runtime only")));
        }
    };
    let ctx = agent.ctx()?;
    ctx.root().hub.emit(&ctx.root().scopes, ctx.scope(), kind, || notice);
    Ok(())
}

/// The runtime's own texts that reach a model, by key: for hosts that recognize them in a log.
pub fn texts_value() -> Value {
    crate::json!({
        "TOOL_ABORTED_BEFORE_DISPATCH": texts::TOOL_ABORTED_BEFORE_DISPATCH,
        "TOOL_ABORTED": texts::TOOL_ABORTED,
        "TOOL_NOT_STARTED": texts::TOOL_NOT_STARTED,
        "TOOL_OUTCOME_UNKNOWN": texts::TOOL_OUTCOME_UNKNOWN,
        "TOOL_SCHEDULER_FAILED": texts::TOOL_SCHEDULER_FAILED,
        "UNKNOWN_TOOL": texts::UNKNOWN_TOOL,
        "INVALID_ARGS": texts::INVALID_ARGS,
        "CONTEXT_SNAPSHOT": texts::CONTEXT_SNAPSHOT,
        "CONTEXT_CLEARED": texts::CONTEXT_CLEARED,
        "HARNESS_IDENTITY": texts::HARNESS_IDENTITY,
        "RESULT_BLOCKED": texts::RESULT_BLOCKED,
    })
}
