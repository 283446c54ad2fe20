//! A scenario file as data (SCENARIO.md section 3). Every struct refuses unknown fields.

use crate::action::Action;
use crate::doubles::{ModelScript, ToolSpec};
use crate::rules::ListenerSpec;
use crate::value::ThrowSpec;
use serde::{Deserialize, Deserializer};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use turnwheel::agent::{NoticeKind, WATERFALL_NAMES};
use turnwheel::{AgentOptions, Durability};

/// The feature tags of sections 11 and 13.
const TAGS: [&str; 16] = [
    "sync-start",
    "sync-notify",
    "tool-hooks",
    "arg-validation",
    "model-info",
    "selection",
    "assemble",
    "raw-append",
    "lenient-stream",
    "unbalanced-seed",
    "ownership",
    "initiator",
    "emit",
    "event-checks",
    "config",
    "store",
];

/// One scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Scenario {
    /// The format version.
    pub format: u32,
    /// Equals the file name.
    pub name: String,
    /// Subject area.
    pub group: Option<String>,
    /// What is observed.
    pub doc: String,
    /// Feature tags.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Extra recordings.
    #[serde(default)]
    pub record: Vec<String>,
    /// Options of the loop.
    #[serde(default, rename = "loop")]
    pub loop_spec: LoopSpec,
    /// Provider routes.
    #[serde(default = "default_providers")]
    pub providers: Vec<ProviderSpec>,
    /// Prompt configuration.
    #[serde(default)]
    pub prompt: PromptSpec,
    /// Prompt sections.
    #[serde(default)]
    pub sections: Vec<TextSpec>,
    /// Runtime contexts.
    #[serde(default)]
    pub contexts: Vec<TextSpec>,
    /// Prompt variables.
    #[serde(default)]
    pub variables: Vec<VariableSpec>,
    /// Tool doubles.
    #[serde(default)]
    pub tools: Vec<ToolSpec>,
    /// Types of plug-in events.
    #[serde(default)]
    pub event_types: Vec<EventTypeSpec>,
    /// Declared agents.
    #[serde(default = "default_agents")]
    pub agents: Vec<AgentSpec>,
    /// Scripted responses.
    #[serde(default)]
    pub model: ModelScript,
    /// Listeners.
    #[serde(default)]
    pub on: Vec<ListenerSpec>,
    /// Stimuli.
    pub steps: Vec<Action>,
    /// The recorded result.
    pub expect: Option<Json>,
}

impl Scenario {
    /// Reads a scenario and checks what types do not.
    pub fn parse(text: &str) -> Result<Self, String> {
        let scenario: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        scenario.check()?;
        Ok(scenario)
    }

    fn check(&self) -> Result<(), String> {
        if self.format != 1 {
            return Err(format!("format {} is not supported", self.format));
        }
        if self.doc.is_empty() || self.group.as_deref() == Some("") {
            return Err("`doc` and `group` must not be empty".into());
        }
        let known = |names: &[&str], name: &String| names.contains(&name.as_str());
        if let Some(tag) = self.needs.iter().find(|tag| !known(&TAGS, tag)) {
            return Err(format!("unknown feature tag {tag:?}"));
        }
        if let Some(record) = self.record.iter().find(|record| !known(&["inbox", "initiator"], record)) {
            return Err(format!("unknown recording {record:?}"));
        }
        if let Some(name) = self.loop_spec.durability_name.as_deref().filter(|name| Durability::parse(name).is_none()) {
            return Err(format!("unknown durability {name:?}"));
        }
        for listener in &self.on {
            let event = listener.event.as_str();
            let waterfall = WATERFALL_NAMES.contains(&event) && event != "tools/execute";
            if NoticeKind::parse(event).is_none() && !waterfall && event != "agent/turn-stopping" {
                return Err(format!("unknown event {event:?}"));
            }
            if listener.then.returned.is_some() && event != "agent/turn-stopping" {
                return Err(format!("`return` has a meaning in agent/turn-stopping only, not in {event}"));
            }
            if !matches!(listener.scope.as_deref(), None | Some("global" | "agent")) {
                return Err(format!("unknown scope {:?}", listener.scope));
            }
        }
        Ok(())
    }

    /// The agent that an action without `agent` means.
    pub fn default_agent(&self) -> &str {
        self.agents.first().map_or("a1", |agent| agent.id.as_str())
    }

    /// Whether something extra is recorded.
    pub fn records(&self, what: &str) -> bool {
        self.record.iter().any(|recorded| recorded == what)
    }

    /// Whether the scenario depends on a feature.
    pub fn needs(&self, tag: &str) -> bool {
        self.needs.iter().any(|needed| needed == tag)
    }

    /// The declared agent of an id.
    pub fn agent(&self, id: &str) -> Option<&AgentSpec> {
        self.agents.iter().find(|agent| agent.id == id)
    }
}

/// `loop`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LoopSpec {
    /// Cap of the tool scheduler.
    pub max_parallel_tool_calls: Option<usize>,
    /// What one turn may spend.
    pub turn_budget: Option<BudgetSpec>,
    /// How large a tool's result may be.
    pub max_tool_result_bytes: Option<u64>,
    /// How long one turn may take.
    pub turn_timeout_ms: Option<u64>,
    /// What has to be stored when.
    #[serde(rename = "durability")]
    pub durability_name: Option<String>,
}

impl LoopSpec {
    /// The policy in force.
    pub fn durability(&self) -> Durability {
        self.durability_name.as_deref().and_then(Durability::parse).unwrap_or_default()
    }
}

/// One of `eventTypes`: a type of plug-in events that the program knows (D-21).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the members of SCENARIO.md 13")]
pub struct EventTypeSpec {
    #[serde(rename = "type")]
    pub kind: String,
    pub version: u32,
}

/// `loop.turnBudget`; a limit that is not given is off.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(missing_docs, reason = "the members of SCENARIO.md 3")]
pub struct BudgetSpec {
    pub steps: Option<u64>,
    pub tool_calls: Option<u64>,
}

/// One provider route.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSpec {
    /// The route.
    pub id: String,
    /// What the models advertise.
    #[serde(default)]
    pub models: HashMap<String, ModelSpec>,
}

/// What one model advertises.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(missing_docs, reason = "the members of SCENARIO.md 3.3")]
pub struct ModelSpec {
    pub context_window: Option<u64>,
    pub max_tokens: Option<u64>,
    #[serde(default)]
    pub efforts: Vec<String>,
    pub effort: Option<String>,
}

fn default_providers() -> Vec<ProviderSpec> {
    vec![ProviderSpec { id: "mock".into(), models: HashMap::new() }]
}

/// `prompt`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(missing_docs, reason = "the members of SCENARIO.md 3.4")]
pub struct PromptSpec {
    #[serde(default)]
    pub identity: bool,
    #[serde(default)]
    pub persona: String,
    pub runtime_context: Option<bool>,
    pub tool_order: Option<Vec<String>>,
}

/// A section or a runtime context.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the members of SCENARIO.md 3.4")]
pub struct TextSpec {
    pub name: String,
    pub order: f64,
    pub text: String,
    pub agent: Option<String>,
    #[serde(default)]
    pub complete: bool,
}

/// A prompt variable.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the members of SCENARIO.md 3.4")]
pub struct VariableSpec {
    pub name: String,
    pub text: Option<String>,
    pub agent: Option<String>,
}

/// A declared agent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(missing_docs, reason = "the members of SCENARIO.md 3.2")]
pub struct AgentSpec {
    #[serde(default = "default_agent_id")]
    pub id: String,
    pub options: Option<OptionsSpec>,
    pub cwd: Option<String>,
    pub parent_session: Option<String>,
    pub seed_length: Option<u64>,
    pub delegation_depth: Option<u64>,
    pub seed: Option<Vec<Json>>,
    pub stored: Option<StoredSpec>,
    #[serde(default, deserialize_with = "present")]
    pub select: Option<Json>,
    pub owner: Option<String>,
    pub setup: Option<SetupSpec>,
    pub create: Option<bool>,
}

impl AgentSpec {
    /// An agent that was not declared, as `fork` makes them.
    pub fn undeclared(id: &str) -> Self {
        let json = json!({ "id": id });
        serde_json::from_value(json).expect("an agent needs an id only")
    }
}

/// `null` is a value here, unlike an absent member.
pub fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

fn default_agent_id() -> String {
    "a1".into()
}

fn default_agents() -> Vec<AgentSpec> {
    vec![AgentSpec::undeclared("a1")]
}

/// Agent options.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(missing_docs, reason = "the members of SCENARIO.md 3.2")]
pub struct OptionsSpec {
    pub provider: Option<String>,
    pub model: Option<String>,
    pub max_tokens: Option<f64>,
}

impl OptionsSpec {
    /// The options in force where none are given.
    pub fn mock() -> Self {
        Self { provider: Some("mock".into()), model: Some("m1".into()), max_tokens: None }
    }

    /// What the core takes. A ceiling that its type cannot hold becomes 0, which it refuses likewise.
    pub fn to_core(&self) -> AgentOptions {
        let max_tokens = self.max_tokens.map(|limit| if limit.fract() == 0.0 { limit.max(0.0) as u64 } else { 0 });
        AgentOptions { provider: self.provider.clone(), model: self.model.clone(), max_tokens }
    }
}

/// A stored log.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the members of SCENARIO.md 3.2")]
pub struct StoredSpec {
    #[serde(default)]
    pub header: serde_json::Map<String, Json>,
    pub events: Vec<Json>,
}

/// `setup`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the members of SCENARIO.md 3.2")]
pub struct SetupSpec {
    pub throw: ThrowSpec,
}
