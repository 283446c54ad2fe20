//! Listeners as data (SCENARIO.md section 6).

use crate::action::Action;
use crate::value::{MessageSpec, OnAbort, ThrowSpec};
use serde::Deserialize;
use serde_json::Value as Json;

/// A listener (section 6).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the members of SCENARIO.md 6")]
pub struct ListenerSpec {
    pub name: Option<String>,
    pub event: String,
    pub scope: Option<String>,
    pub agent: Option<String>,
    #[serde(default)]
    pub when: WhenSpec,
    #[serde(default, rename = "do")]
    pub then: DoSpec,
}

/// Filters of a listener.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(missing_docs, reason = "the members of SCENARIO.md 6")]
pub struct WhenSpec {
    pub agent: Option<String>,
    pub turn: Option<u64>,
    pub step: Option<u64>,
    pub status: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub id: Option<String>,
    pub tool: Option<String>,
    pub call_id: Option<String>,
    pub source: Option<String>,
    pub nth: Option<u64>,
}

/// What a listener does.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(missing_docs, reason = "the members of SCENARIO.md 6")]
pub struct DoSpec {
    #[serde(default)]
    pub actions: Vec<Action>,
    pub gate: Option<String>,
    pub on_abort: Option<OnAbort>,
    pub throw: Option<ThrowSpec>,
    #[serde(default)]
    pub reject: bool,
    pub enter: Option<Vec<EnterItem>>,
    #[serde(default)]
    pub prepend: Vec<MessageSpec>,
    #[serde(default)]
    pub drop: Vec<String>,
    #[serde(default)]
    pub append: Vec<MessageSpec>,
    pub config: Option<Json>,
    #[serde(default)]
    pub set: serde_json::Map<String, Json>,
    #[serde(default)]
    pub unset: Vec<String>,
    #[serde(default)]
    pub undefined: Vec<String>,
    #[serde(default)]
    pub next_twice: bool,
    #[serde(default, rename = "return")]
    pub returned: Option<Json>,
    #[serde(default)]
    pub retry: bool,
    pub deny: Option<String>,
    pub block: Option<String>,
    pub content: Option<String>,
    #[serde(default)]
    pub contexts: Vec<MessageSpec>,
}

/// An item of `enter`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum EnterItem {
    /// A message that was offered.
    Offered(String),
    /// A message of its own.
    Message(MessageSpec),
}
