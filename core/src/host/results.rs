//! What operations give back, as JSON.

use super::options::Options;
use crate::agent::{Parked, ReceiptState, RunResult};
use crate::error::{Code, Error, Result};
use crate::json;
use crate::json::{Object, Value};
use crate::llm::Failure;
use crate::message::{Block, Message};
use crate::session::{Session, SurfaceOp, fold_consumed_work};
use crate::tools::{ApprovalRequest, ToolOutcome};
use std::sync::Arc;

pub(super) fn list<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> Vec<Value> {
    messages.into_iter().map(|message| message.to_value()).collect()
}

pub(super) fn block_list(blocks: &[Block]) -> Vec<Value> {
    blocks.iter().map(Block::to_value).collect()
}

/// An error as `{"code", "number", "message", "name"?, "context"?, "failure"?, "retry"?, "cause"?}`. `failure` is what a
/// model's provider reported; `retry` is there when repeating the very same call can help, as `{"afterMs"}`; `cause` another error of this shape.
pub fn error_value(error: &Error) -> Value {
    let mut object = Object::new();
    object.insert("code", error.code().as_str());
    object.insert("number", error.code().number());
    object.insert("message", error.message());
    object.insert_some("name", error.name());
    if !error.context().is_empty() {
        object.insert("context", error.context().clone());
    }
    object.insert_some("failure", error.failure().map(Failure::to_value));
    if let Some(after) = error.retry() {
        object.insert("retry", crate::json!({"afterMs": after.as_secs_f64() * 1000.0}));
    }
    object.insert_some("cause", error.cause().map(error_value));
    object.into()
}

/// The error that host code raised: a text, or `{"message", "code"?, "name"?, "failure"?}`. With a code it is a coded
/// error, whose name and code reach the log (EXE-21); with a failure it is a model failure (FAIL-01).
pub fn error_from_value(value: &Value) -> Error {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    if let Some(failure) = value.get("failure").and_then(Failure::from_value) {
        return Error::model(failure);
    }
    let message = value.as_str().or_else(|| text("message")).unwrap_or("host code failed and said nothing");
    match (text("code"), text("name")) {
        (Some(code), name) => Error::coded(name.unwrap_or("Error"), code, message),
        (None, Some(name)) => Error::host(message).named(name),
        (None, None) => Error::host(message),
    }
}

/// What became of a message: `{"kind": "pending", "target", "parked", "why"?}`, `{"kind": "claimed", "turn", "step"?}`,
/// `{"kind": "discarded", "seq", "replacedBy"?}` or `{"kind": "ended", "turn", "reason"}`. `why` is there when `parked`
/// is true: `{"kind": "not-woken"}`, `{"kind": "resumed"}`, `{"kind": "turn-ending"}` or
/// `{"kind": "turn-ended", "turn", "reason"}`.
pub fn receipt_value(state: &ReceiptState) -> Value {
    let mut object = Object::new();
    match state {
        ReceiptState::Pending { target, parked } => {
            object.insert("kind", "pending");
            object.insert("target", target.as_str());
            object.insert("parked", parked.is_some());
            if let Some(why) = parked {
                object.insert("why", why_parked(why));
            }
        }
        ReceiptState::Claimed { turn, step } => {
            object.insert("kind", "claimed");
            object.insert("turn", *turn);
            if let Some(step) = step {
                object.insert("step", *step);
            }
        }
        ReceiptState::Discarded { seq, replaced_by } => {
            object.insert("kind", "discarded");
            object.insert("seq", *seq);
            if let Some(id) = replaced_by {
                object.insert("replacedBy", id.as_str());
            }
        }
        ReceiptState::Ended { turn, reason } => {
            object.insert("kind", "ended");
            object.insert("turn", *turn);
            object.insert("reason", reason.to_value());
        }
    }
    object.into()
}

fn why_parked(why: &Parked) -> Value {
    match why {
        Parked::NotWoken => json!({"kind": "not-woken"}),
        Parked::Resumed => json!({"kind": "resumed"}),
        Parked::TurnEnding => json!({"kind": "turn-ending"}),
        Parked::TurnEnded { turn, reason } => {
            json!({"kind": "turn-ended", "turn": (*turn), "reason": (reason.to_value())})
        }
    }
}

/// What an owned run brought: `{"turn", "reason", "text", "messages", "usage"}`.
pub fn run_value(result: &RunResult) -> Value {
    let mut object = Object::new();
    object.insert("turn", result.turn);
    object.insert("reason", result.reason.to_value());
    object.insert("text", result.text.as_str());
    object.insert("messages", list(&result.messages));
    object.insert("usage", result.usage.to_value());
    object.into()
}

/// A session as one can keep it elsewhere and resume from: `{"header", "events"}`.
pub fn session_value(session: &Session) -> Value {
    let mut object = Object::new();
    object.insert("header", session.header().to_value());
    object.insert("events", session.events_from(0).iter().map(|event| event.to_value()).collect::<Vec<_>>());
    object.into()
}

/// A question for approval: `{"id", "callId", "name", "arguments", "agentId"?, "reason"?}` (EXE-06).
pub fn approval_value(request: &ApprovalRequest) -> Value {
    let mut object = Object::new();
    object.insert("id", request.id.as_str());
    object.insert_some("agentId", request.call.agent.as_ref().map(|agent| agent.id().as_str()));
    super::notices::call_members(&request.call, &mut object);
    object.insert_some("reason", request.reason.as_deref());
    object.into()
}

/// The consumed-work fold of a session's log: `{"end": seq or null, "droppedUnrun"}`.
pub fn work_value(session: &Session) -> Value {
    let work = fold_consumed_work(&session.marks_from(0));
    crate::json!({"end": work.end, "droppedUnrun": work.dropped_unrun})
}

/// Appends any event that is not one of the inbox's: `{"type", "data", "surfaceOp"?, "sourceEventSeqs"?, "ignorable"?}`.
/// Gives its seq.
pub fn append_raw(session: &Session, event: &Value) -> Result<u64> {
    let options = Options::new(event, "an event")?;
    let kind = options.required_text("type")?;
    let surface_op = options.read("surfaceOp", "\"append\" or a replacement", SurfaceOp::from_value)?;
    let sources = options.read("sourceEventSeqs", "a list of seqs", |value| {
        value.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<_>>>()
    })?;
    let data = options.value("data").cloned().unwrap_or(Value::Null);
    let ignorable = options.flag("ignorable", false)?;
    options.finish()?;
    Ok(session.append_raw(&kind, data, surface_op, sources, ignorable)?.seq)
}

/// A tool's answer: `{"content", "isError", "error"?, "value"?, "meta"?, "contexts"?, "concludesTurn"?}`.
pub fn outcome_value(outcome: &ToolOutcome) -> Value {
    let mut object = Object::new();
    outcome_members(outcome, &mut object);
    object.into()
}

pub(super) fn outcome_members(outcome: &ToolOutcome, object: &mut Object) {
    object.insert("content", block_list(&outcome.content));
    object.insert("isError", outcome.is_error);
    if let Some(error) = &outcome.error {
        object.insert("error", crate::json!({"name": error.name, "code": error.code}));
    }
    object.insert_some("value", outcome.value.clone());
    object.insert_some("meta", outcome.meta.clone());
    if !outcome.contexts.is_empty() {
        object.insert("contexts", list(&outcome.contexts));
    }
    object.insert_some("concludesTurn", outcome.concludes_turn.then_some(true));
}

/// Content blocks: a list of blocks, or a text that stands for one text block.
pub(super) fn blocks(value: &Value, what: &str) -> Result<Vec<Block>> {
    match value {
        Value::String(text) => Ok(vec![Block::Text(text.clone())]),
        Value::Array(items) => Ok(items.iter().map(Block::from_value).collect()),
        _ => {
            let message = format!("{what} is a text or a list of blocks, for example {{\"type\": \"text\", …}}");
            Err(Error::new(Code::InvalidArgument, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn errors_carry_code_number_facts_and_cause() {
        let error = Error::new(Code::DuplicateMessage, "twice").with("id", "m1").caused_by(Error::host("why"));
        let expected = json!({
            "code": "DUPLICATE_MESSAGE", "number": 401, "message": "twice", "context": {"id": "m1"},
            "cause": {"code": "HOST_ERROR", "number": 501, "message": "why"},
        });
        assert_eq!(error_value(&error), expected);
    }

    #[test]
    fn retry_advice_is_data() {
        let failure = json!({"code": "RATE_LIMIT", "message": "slow down", "status": 429, "providerRetryAfterMs": 250});
        let error = error_from_value(&json!({"failure": failure.clone()}));
        assert_eq!(error_value(&error).get("failure"), Some(&failure));
        assert_eq!(error_value(&error).get("retry"), Some(&json!({"afterMs": 250})));
    }

    #[test]
    fn host_errors_are_texts_or_coded() {
        assert_eq!(error_from_value(&json!("bad")).message(), "bad");
        let coded = error_from_value(&json!({"message": "no", "code": "E_NO", "name": "NoError"}));
        assert_eq!((coded.code().as_str(), coded.name(), coded.code().number()), ("E_NO", Some("NoError"), 599));
    }
}
