//! Why turns end and why agents are cancelled (REC-05, CAN-1).

use crate::json::{Object, Value};
use crate::llm::Failure;

/// Why an agent is cancelled.
#[derive(Clone, Debug, PartialEq)]
pub enum CancelCause {
    /// A person asked.
    User,
    /// The agent that awaited this one was cancelled.
    Parent,
    /// A listener or policy asked, with its reason.
    Hook(String),
    /// The agent is being disposed.
    Disposed,
    /// A cause of an imported log, or one this version does not know.
    Other(Value),
}

impl CancelCause {
    /// The kind in JSON.
    pub fn kind(&self) -> &str {
        match self {
            CancelCause::User => "user",
            CancelCause::Parent => "parent",
            CancelCause::Hook(_) => "hook",
            CancelCause::Disposed => "disposed",
            CancelCause::Other(value) => value.get("kind").and_then(Value::as_str).unwrap_or("other"),
        }
    }

    /// Reads `{kind, reason?}`.
    pub fn from_value(value: &Value) -> Self {
        let members = value.as_object().map_or(0, Object::len);
        let reason = value.get("reason").and_then(Value::as_str);
        match (value.get("kind").and_then(Value::as_str), members, reason) {
            (Some("user"), 1, _) => CancelCause::User,
            (Some("parent"), 1, _) => CancelCause::Parent,
            (Some("disposed"), 1, _) => CancelCause::Disposed,
            (Some("hook"), 2, Some(reason)) => CancelCause::Hook(reason.to_owned()),
            _ => CancelCause::Other(value.clone()),
        }
    }

    /// The cause as JSON.
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        match self {
            CancelCause::Other(value) => return value.clone(),
            CancelCause::Hook(reason) => {
                object.insert("kind", "hook");
                object.insert("reason", reason.as_str());
            }
            _ => {
                object.insert("kind", self.kind());
            }
        }
        Value::Object(object)
    }
}

/// Why a turn ended.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEndReason {
    /// The model owes nothing more.
    Completed,
    /// A pre-step listener rejected the proposal.
    Blocked,
    /// Some step hit the output ceiling.
    MaxTokens,
    /// The process ended inside the turn; written by repair only.
    Interrupted,
    /// The turn was cancelled.
    Aborted(CancelCause),
    /// The turn failed.
    Error(Failure),
    /// A reason of a plug-in or of a newer version.
    Other(Value),
}

impl TurnEndReason {
    /// The kind in JSON.
    pub fn kind(&self) -> &str {
        match self {
            TurnEndReason::Completed => "completed",
            TurnEndReason::Blocked => "blocked",
            TurnEndReason::MaxTokens => "max-tokens",
            TurnEndReason::Interrupted => "interrupted",
            TurnEndReason::Aborted(_) => "aborted",
            TurnEndReason::Error(_) => "error",
            TurnEndReason::Other(value) => value.get("kind").and_then(Value::as_str).unwrap_or("other"),
        }
    }

    /// Reads a reason; what is not of a known shape is kept as it is.
    pub fn from_value(value: &Value) -> Self {
        let members = value.as_object().map_or(0, Object::len);
        match (value.get("kind").and_then(Value::as_str), members) {
            (Some("completed"), 1) => TurnEndReason::Completed,
            (Some("blocked"), 1) => TurnEndReason::Blocked,
            (Some("max-tokens"), 1) => TurnEndReason::MaxTokens,
            (Some("interrupted"), 1) => TurnEndReason::Interrupted,
            (Some("aborted"), 2) if value.get("reason").is_some_and(|reason| reason.get("kind").is_some()) => {
                TurnEndReason::Aborted(CancelCause::from_value(value.get("reason").unwrap_or(&Value::Null)))
            }
            (Some("error"), 2) => match value.get("error").and_then(Failure::from_value) {
                Some(failure) => TurnEndReason::Error(failure),
                None => TurnEndReason::Other(value.clone()),
            },
            _ => TurnEndReason::Other(value.clone()),
        }
    }

    /// The reason as JSON.
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.insert("kind", self.kind());
        match self {
            TurnEndReason::Other(value) => return value.clone(),
            TurnEndReason::Aborted(cause) => {
                object.insert("reason", cause.to_value());
            }
            TurnEndReason::Error(failure) => {
                object.insert("error", failure.to_value());
            }
            _ => {}
        }
        Value::Object(object)
    }
}
