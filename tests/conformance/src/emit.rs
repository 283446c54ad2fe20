//! The action `emit`: a notification delivered from outside.

use crate::value::MessageSpec;
use serde_json::{Value as Json, json};
use turnwheel::agent::{Notice, NoticeKind};
use turnwheel::{Agent, AgentStatus, Context, Error, Result};

/// Delivers a notification from outside, as the action `emit` asks. A `payload.agent` is overridden: the notice is about
/// the agent it is delivered for.
pub fn emit(ctx: &Context, agent: &Agent, event: &str, payload: &Json) -> Result<()> {
    let kind = NoticeKind::parse(event).ok_or_else(|| Error::host(format!("unknown event {event}")))?;
    let id = payload.get("id").and_then(Json::as_str).unwrap_or("emitted");
    let message = || MessageSpec::to_core(&serde_json::from_value(json!({ "id": id })).expect("an id is enough"));
    let number = |key: &str| payload.get(key).and_then(Json::as_u64).unwrap_or(0);
    let agent = agent.clone();
    let notice = match kind {
        NoticeKind::Created => Notice::Created { agent },
        NoticeKind::Disposed => Notice::Disposed { agent },
        NoticeKind::Inserted => Notice::Inserted { agent, message: message()? },
        NoticeKind::Discarded => Notice::Discarded { agent, message: message()? },
        NoticeKind::Claimed => Notice::Claimed { agent, message: message()?, turn: number("turn") },
        NoticeKind::Status => {
            let running = payload.get("status").and_then(Json::as_str) == Some("running");
            let status = if running { AgentStatus::Running } else { AgentStatus::Idle };
            Notice::Status { agent, status }
        }
        NoticeKind::Error => {
            let text = payload.get("message").and_then(Json::as_str).unwrap_or("emitted");
            Notice::Error { agent, turn: number("turn"), step: number("step"), error: Error::host(text) }
        }
        NoticeKind::SessionStart
        | NoticeKind::SessionCreated
        | NoticeKind::SessionDisposed
        | NoticeKind::SessionEvent
        | NoticeKind::ToolResult
        | NoticeKind::ToolsChanged
        | NoticeKind::PromptChanged
        | NoticeKind::ModelsChanged
        | NoticeKind::ConfigStartFailed => return Err(Error::host(format!("{event} cannot be emitted here"))),
    };
    let scope = match notice.agent() {
        Some(agent) => agent.ctx()?.scope(),
        None => None,
    };
    let root = ctx.root();
    root.hub.emit(&root.scopes, scope, kind, || notice);
    Ok(())
}
