//! Where a message comes from. Unknown kinds are kept with all their fields (MSG-13).

use super::required_text;
use crate::error::{Code, Error, Result};
use crate::id::CallId;
use crate::json::{Object, Value, write_str};
use std::sync::Arc;

/// The `source` of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// `{kind:"user"}`: human input.
    User,
    /// `{kind:"model", provider, model, replayState?}`: the route of the request that produced it (MSG-15).
    Model {
        /// The provider route.
        provider: Arc<str>,
        /// The model.
        model: Arc<str>,
        /// Provider-private continuation data (MSG-21).
        replay_state: Option<Value>,
    },
    /// `{kind:"tool", callId}`.
    Tool {
        /// The call answered.
        call_id: CallId,
    },
    /// Any other kind, or one of the above with further fields; `kind` is a non-empty string in it.
    Other(Object),
}

impl Source {
    /// Synthetic context from a plug-in (MSG-17); `form` may be absent.
    pub fn plugin(plugin: &str, form: Option<&str>) -> Self {
        let mut object = Object::new();
        object.insert("kind", "plugin");
        object.insert("plugin", plugin);
        object.insert_some("form", form);
        Source::Other(object)
    }

    /// Reads and checks a source.
    pub fn from_object(object: &Object) -> Result<Self> {
        let invalid = |what: &str| Error::new(Code::InvalidMessage, format!("a message source needs {what}"));
        match required_text(object, "kind").ok_or_else(|| invalid("a non-empty string `kind`"))? {
            "user" if object.len() == 1 => Ok(Source::User),
            "model" => {
                let provider = required_text(object, "provider").ok_or_else(|| invalid("a `provider`"))?.into();
                let model = required_text(object, "model").ok_or_else(|| invalid("a `model`"))?.into();
                Ok(Source::Model { provider, model, replay_state: object.get("replayState").cloned() })
            }
            "tool" => {
                let call_id = object.get("callId").and_then(Value::as_str);
                Ok(Source::Tool { call_id: call_id.ok_or_else(|| invalid("a string `callId`"))?.into() })
            }
            _ => Ok(Source::Other(object.clone())),
        }
    }

    /// The kind.
    pub fn kind(&self) -> &str {
        match self {
            Source::User => "user",
            Source::Model { .. } => "model",
            Source::Tool { .. } => "tool",
            Source::Other(object) => object.get("kind").and_then(Value::as_str).unwrap_or(""),
        }
    }

    /// Appends the JSON text.
    pub fn write(&self, out: &mut String) {
        match self {
            Source::User => out.push_str("{\"kind\":\"user\"}"),
            Source::Model { provider, model, replay_state } => {
                out.push_str("{\"kind\":\"model\",\"provider\":");
                write_str(provider, out);
                out.push_str(",\"model\":");
                write_str(model, out);
                if let Some(state) = replay_state {
                    out.push_str(",\"replayState\":");
                    state.write(out);
                }
                out.push('}');
            }
            Source::Tool { call_id } => {
                out.push_str("{\"kind\":\"tool\",\"callId\":");
                write_str(call_id, out);
                out.push('}');
            }
            Source::Other(object) => Value::Object(object.clone()).write(out),
        }
    }
}
