//! Messages and errors as data (SCENARIO.md sections 3.1 and 3.5).

use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::sync::Arc;
use turnwheel::json::Value;
use turnwheel::llm::Failure;
use turnwheel::{Error, Message};

/// What stands in a scenario for one lone surrogate of a host's string (D-22).
const LONE: &str = "$lone-surrogate";

/// A value as the core takes it. Rust's strings hold no lone surrogate, and JSON text does.
pub fn core_value(json: Json) -> Value {
    let text = json.to_string();
    match text.contains(LONE) {
        true => turnwheel::json::parse(&text.replace(LONE, "\\ud800")).expect("it was JSON before"),
        false => Value::from(json),
    }
}

/// A message in short form.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the members of SCENARIO.md 3.1")]
pub struct MessageSpec {
    pub id: String,
    #[serde(default)]
    pub text: String,
    pub content: Option<Json>,
    pub source: Option<Json>,
}

impl MessageSpec {
    /// The message it stands for.
    pub fn to_core(&self) -> Result<Arc<Message>, Error> {
        let content = self.content.clone().unwrap_or_else(|| json!([{ "type": "text", "text": self.text }]));
        let source = self.source.clone().unwrap_or_else(|| json!({ "kind": "user" }));
        let message = json!({ "id": self.id, "role": "user", "content": content, "source": source });
        Message::from_value(&core_value(message)).map(Arc::new)
    }
}

/// An error to throw (section 3.5).
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum ThrowSpec {
    /// A plain error.
    Plain(String),
    /// A coded or structured one.
    Coded(ErrorFacts),
}

/// The object form of [`ThrowSpec`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(missing_docs, reason = "the members of SCENARIO.md 3.5")]
pub struct ErrorFacts {
    pub message: String,
    pub code: Option<String>,
    pub name: Option<String>,
    #[serde(default)]
    pub llm: bool,
    pub status: Option<u16>,
    pub provider_retry_after_ms: Option<f64>,
}

impl ThrowSpec {
    /// The error.
    pub fn to_core(&self) -> Error {
        let facts = match self {
            ThrowSpec::Plain(message) => return Error::host(message.as_str()),
            ThrowSpec::Coded(facts) => facts,
        };
        if facts.llm {
            let code = facts.code.clone().unwrap_or_else(|| "UNKNOWN".into());
            let mut failure = Failure::new(code, facts.message.as_str());
            failure.status = facts.status;
            failure.provider_retry_after_ms = facts.provider_retry_after_ms;
            return Error::model(failure);
        }
        match &facts.code {
            Some(code) => {
                let name = facts.name.clone().unwrap_or_else(|| "HarnessError".into());
                Error::coded(name, code.as_str(), facts.message.as_str())
            }
            None => Error::host(facts.message.as_str()),
        }
    }
}

/// What a holder does when its signal fires.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum OnAbort {
    /// Fail with `aborted at gate <gate>`.
    Fail,
    /// Keep holding.
    Ignore,
    /// Go on as if the gate had opened.
    Continue,
}
