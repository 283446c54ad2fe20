//! The scripts of the model and tool doubles as data (SCENARIO.md sections 4 and 5).

use crate::action::Action;
use crate::scenario::present;
use crate::value::{MessageSpec, OnAbort, ThrowSpec};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;
use std::collections::HashMap;

/// The scripts of the agents.
#[derive(Clone, Debug)]
pub enum ModelScript {
    /// Of the default agent.
    One(Vec<ResponseSpec>),
    /// By agent.
    ByAgent(HashMap<String, Vec<ResponseSpec>>),
}

impl Default for ModelScript {
    fn default() -> Self {
        ModelScript::One(Vec::new())
    }
}

/// Read by hand, so that an error names the field and not only "no variant matched".
impl<'de> Deserialize<'de> for ModelScript {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        let read = if json.is_array() {
            serde_json::from_value(json).map(ModelScript::One)
        } else {
            serde_json::from_value(json).map(ModelScript::ByAgent)
        };
        read.map_err(D::Error::custom)
    }
}

/// One scripted response (section 4).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(missing_docs, reason = "the members of SCENARIO.md 4")]
pub struct ResponseSpec {
    pub chunks: Option<Vec<Json>>,
    pub reasoning: Option<String>,
    pub text: Option<String>,
    #[serde(default)]
    pub calls: Vec<CallSpec>,
    pub usage: Option<Json>,
    #[serde(default, deserialize_with = "present")]
    pub finish: Option<Json>,
    pub error: Option<Json>,
    pub aborted: Option<Json>,
    pub throw: Option<ThrowSpec>,
    pub replay_state: Option<Json>,
    #[serde(default)]
    pub gates: HashMap<String, String>,
    pub on_abort: Option<OnAbort>,
}

/// A scripted tool call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the members of SCENARIO.md 4")]
pub struct CallSpec {
    pub id: Option<String>,
    pub name: Option<String>,
    #[serde(default = "empty_object")]
    pub arguments: String,
}

fn empty_object() -> String {
    "{}".into()
}

/// A tool double (section 5).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(missing_docs, reason = "the members of SCENARIO.md 5")]
pub struct ToolSpec {
    pub name: String,
    #[serde(default)]
    pub description: String,
    pub parameters: Option<Json>,
    pub agent: Option<String>,
    pub parallel: Option<ParallelSpec>,
    #[serde(default)]
    pub validate: bool,
    pub result: Option<ResultSpec>,
    pub gate: Option<String>,
    pub on_abort: Option<OnAbort>,
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub contexts: Vec<MessageSpec>,
    #[serde(default)]
    pub concludes_turn: bool,
    #[serde(default)]
    pub actions: Vec<Action>,
    pub meta: Option<Json>,
    #[serde(default)]
    pub calls: HashMap<String, CallOverride>,
}

/// What one call does otherwise.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(missing_docs, reason = "the members of SCENARIO.md 5")]
pub struct CallOverride {
    pub result: Option<ResultSpec>,
    pub gate: Option<String>,
    pub on_abort: Option<OnAbort>,
    pub contexts: Option<Vec<MessageSpec>>,
    pub concludes_turn: Option<bool>,
    pub actions: Option<Vec<Action>>,
    pub meta: Option<Json>,
}

/// `parallel`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum ParallelSpec {
    /// Always or never.
    Always(bool),
    /// By an argument.
    ByArgument(ArgumentSpec),
}

/// The object form of [`ParallelSpec`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the members of SCENARIO.md 5")]
pub struct ArgumentSpec {
    pub argument: String,
    pub equals: Json,
}

/// `result`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum ResultSpec {
    /// A text.
    Text(String),
    /// Anything else.
    Object(ResultObject),
}

/// The object form of [`ResultSpec`]; one member is present.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the members of SCENARIO.md 5")]
pub struct ResultObject {
    pub text: Option<String>,
    pub content: Option<Vec<Json>>,
    pub error: Option<ThrowSpec>,
}
