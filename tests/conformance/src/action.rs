//! An action as data (SCENARIO.md section 7), with the fields each one may have.

use crate::value::MessageSpec;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value as Json};

/// One action. Its fields are checked against the table of section 7 when it is read.
#[derive(Clone, Debug)]
pub struct Action {
    /// The action's name.
    pub act: String,
    fields: Map<String, Json>,
    /// Nested actions.
    pub actions: Vec<Action>,
}

const MESSAGE: [&str; 4] = ["id", "text", "content", "source"];

/// The fields of an action besides `act`; `None` for an unknown action.
fn allowed(act: &str) -> Option<(&'static [&'static str], bool)> {
    Some(match act {
        "followup" | "steer" | "inject" => (&["agent"], true),
        "send" => (&["agent", "target", "wakeup"], true),
        "cancel" => (&["agent", "cause", "keepInbox"], false),
        "inbox-append" | "inbox-prepend" => (&["agent", "target"], true),
        "inbox-replace" => (&["agent", "replace"], true),
        "inbox-remove" => (&["agent", "remove"], false),
        "inbox-splice" => (&["agent", "target", "start", "deleteCount", "insert"], false),
        "inbox-clear" | "dispose" | "create" => (&["agent"], false),
        "open" => (&["gate"], false),
        "when-idle" => (&["agent", "name"], false),
        "maintenance" => (&["agent", "name", "gate", "onAbort", "fail", "actions"], false),
        "wait-for" => (&["agent", "event", "count"], false),
        "set" => (&["section", "context", "variable", "text", "agent"], false),
        "select" => (&["agent", "provider", "model", "reasoningEffort"], false),
        "tool-add" | "tool-remove" => (&["tool"], false),
        "emit" => (&["agent", "event", "payload"], false),
        "session-append" => (&["agent", "event"], false),
        "session-fork" => (&["from", "at", "id"], false),
        "resume" => (&["agent", "mode", "keep", "options"], false),
        "fork" => (&["from", "at", "id", "options"], false),
        "refuse" => (&["type", "count"], false),
        "start" => (&["agents"], false),
        "wake" => (&["agent"], false),
        "ask" => (&["agent", "what", "id"], false),
        "settled" | "durable" => (&["agent", "id", "name"], false),
        "run" => (&["agent", "name", "detached"], true),
        "withdraw" => (&["name"], false),
        "elapse" => (&["agent", "ms", "event", "count"], false),
        "store" => (&["refuses"], false),
        "batch" => (&["actions"], false),
        _ => return None,
    })
}

impl<'de> Deserialize<'de> for Action {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Map::<String, Json>::deserialize(deserializer)?;
        let act = match fields.remove("act") {
            Some(Json::String(act)) => act,
            _ => return Err(D::Error::missing_field("act")),
        };
        let Some((known, message)) = allowed(&act) else {
            return Err(D::Error::custom(format!("unknown action `{act}`")));
        };
        let is_known = |key: &String| known.contains(&key.as_str()) || (message && MESSAGE.contains(&key.as_str()));
        if let Some(key) = fields.keys().find(|key| !is_known(key)) {
            return Err(D::Error::custom(format!("unknown field `{key}` of action `{act}`")));
        }
        let actions = match fields.remove("actions") {
            Some(actions) => serde_json::from_value(actions).map_err(D::Error::custom)?,
            None => Vec::new(),
        };
        Ok(Self { act, fields, actions })
    }
}

impl Action {
    /// A field.
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.fields.get(key)
    }

    /// A text field.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Json::as_str)
    }

    /// A number field.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.get(key).and_then(Json::as_f64)
    }

    /// A flag; absent reads as false.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key).and_then(Json::as_bool).unwrap_or(false)
    }

    /// A field of a type of its own.
    pub fn read<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, String> {
        let value = self.get(key).cloned();
        let read = |value| serde_json::from_value(value).map_err(|error| format!("`{key}` of {}: {error}", self.act));
        value.map(read).transpose()
    }

    /// The message that the action's own fields stand for.
    pub fn message(&self) -> Result<MessageSpec, String> {
        let own = self.fields.iter().filter(|(key, _)| MESSAGE.contains(&key.as_str()));
        let own: Map<String, Json> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
        serde_json::from_value(Json::Object(own)).map_err(|error| format!("message of {}: {error}", self.act))
    }
}
