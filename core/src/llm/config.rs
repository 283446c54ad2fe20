//! The request header: what is sent to a model besides the messages (HDR-01 to HDR-03).

use crate::error::{Code, Error, Result};
use crate::json::{Object, Value};
use std::sync::Arc;

/// How to call a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallConfig {
    /// The provider route; empty when none was chosen.
    pub provider: String,
    /// The model; empty when none was chosen.
    pub model: String,
    /// A reasoning effort that the model offers.
    pub reasoning_effort: Option<String>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Output ceiling in tokens.
    pub max_tokens: Option<u64>,
    /// Texts that end the answer.
    pub stop: Option<Vec<String>>,
}

impl CallConfig {
    /// A config for a route.
    pub fn new(provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self { provider: provider.into(), model: model.into(), ..Self::default() }
    }

    /// Reads a config. Absent provider and model read as empty; null members mean absent (D-14); unknown ones fail.
    pub fn from_value(value: &Value) -> Result<Self> {
        let object = value.as_object().ok_or_else(|| bad("a call config is an object"))?;
        let mut config = Self::default();
        for (key, value) in object.iter().filter(|(_, value)| !value.is_null()) {
            let text = || value.as_str().map(str::to_owned).ok_or_else(|| bad(&format!("`{key}` must be a string")));
            match key {
                "provider" => config.provider = text()?,
                "model" => config.model = text()?,
                "reasoningEffort" => config.reasoning_effort = Some(text()?),
                "temperature" => {
                    let number = value.as_f64().filter(|number| number.is_finite());
                    config.temperature = Some(number.ok_or_else(|| bad("`temperature` must be a finite number"))?);
                }
                "maxTokens" => {
                    let number = value.as_u64().filter(|number| *number > 0);
                    config.max_tokens = Some(number.ok_or_else(|| bad("`maxTokens` must be a positive integer"))?);
                }
                "stop" => {
                    let items = value.as_array().ok_or_else(|| bad("`stop` must be a list of strings"))?;
                    let texts = items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<_>>();
                    config.stop = Some(texts.ok_or_else(|| bad("`stop` must be a list of strings"))?);
                }
                _ => {
                    let known = "provider, model, reasoningEffort, temperature, maxTokens, stop";
                    return Err(Error::new(Code::UnknownOption, format!("no call option `{key}`; there are: {known}")));
                }
            }
        }
        Ok(config)
    }

    /// The config as JSON, in the order of HDR-01.
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.insert("provider", self.provider.as_str());
        object.insert("model", self.model.as_str());
        object.insert_some("reasoningEffort", self.reasoning_effort.as_deref());
        object.insert_some("temperature", self.temperature);
        object.insert_some("maxTokens", self.max_tokens);
        let stop = self.stop.as_ref().map(|stop| stop.iter().map(Value::from).collect::<Vec<_>>());
        object.insert_some("stop", stop);
        Value::Object(object)
    }
}

fn bad(message: &str) -> Error {
    Error::new(Code::InvalidArgument, message)
}

/// What the model sees of a tool.
#[derive(Clone, Debug)]
pub struct ToolSchema {
    name: String,
    description: String,
    parameters: Value,
    text: String,
}

impl ToolSchema {
    /// A tool by name, with a JSON Schema for its arguments.
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: Value) -> Self {
        let (name, description) = (name.into(), description.into());
        let mut object = Object::new();
        object.insert("name", name.as_str());
        object.insert("description", description.as_str());
        object.insert("parameters", parameters.clone());
        let text = Value::Object(object).to_text();
        Self { name, description, parameters, text }
    }

    /// Reads `{name, description, parameters}`.
    pub fn from_value(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        Some(Self::new(text("name")?, text("description")?, value.get("parameters")?.clone()))
    }

    /// The tool's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the tool does, for the model.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The JSON Schema of the arguments.
    pub fn parameters(&self) -> &Value {
        &self.parameters
    }

    /// The JSON text; two tools are equal when their texts are (HDR-03).
    pub fn json(&self) -> &str {
        &self.text
    }
}

impl PartialEq for ToolSchema {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// Which members of a config came from the adapter rather than the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdapterDefaults {
    /// `reasoning_effort` is the model's default.
    pub reasoning_effort: bool,
    /// `max_tokens` is the model's default.
    pub max_tokens: bool,
}

/// A request without its messages, as it is logged. Built in canonical form (HDR-02).
#[derive(Clone, Debug, PartialEq)]
pub struct RequestHeader {
    /// How the model is called.
    pub config: CallConfig,
    /// Which of that came from the adapter.
    pub adapter_defaults: AdapterDefaults,
    /// The system prompt; never empty.
    pub system: Option<Arc<str>>,
    /// The tools, in the order sent.
    pub tools: Vec<Arc<ToolSchema>>,
}

impl RequestHeader {
    /// Reads a header; the error says which member is wrong (APP-15).
    pub fn from_value(value: &Value) -> Result<Self> {
        let bad = |what: &str| Error::new(Code::InvalidEvent, format!("request header: {what}"));
        let config = value.get("config").ok_or_else(|| bad("`config` is missing"))?;
        let config = CallConfig::from_value(config).map_err(|error| bad(error.message()))?;
        if config.provider.is_empty() || config.model.is_empty() {
            return Err(bad("provider and model must not be empty"));
        }
        if config.reasoning_effort.as_deref() == Some("") {
            return Err(bad("reasoningEffort must not be empty"));
        }
        let mut adapter_defaults = AdapterDefaults::default();
        if let Some(defaults) = value.get("adapterDefaults") {
            let defaults = defaults.as_object().ok_or_else(|| bad("`adapterDefaults` must be an object"))?;
            for (key, mark) in defaults.iter() {
                let present = match key {
                    "reasoningEffort" => config.reasoning_effort.is_some(),
                    "maxTokens" => config.max_tokens.is_some(),
                    _ => false,
                };
                if !present || mark.as_bool() != Some(true) {
                    return Err(bad(&format!("`adapterDefaults.{key}` must be true and name a member of the config")));
                }
                match key {
                    "maxTokens" => adapter_defaults.max_tokens = true,
                    _ => adapter_defaults.reasoning_effort = true,
                }
            }
        }
        let system = value.get("system").and_then(Value::as_str).filter(|text| !text.is_empty()).map(Arc::from);
        let tools = value.get("tools").and_then(Value::as_array).unwrap_or_default();
        let tools = tools.iter().map(|tool| ToolSchema::from_value(tool).map(Arc::new)).collect::<Option<_>>();
        let tools = tools.ok_or_else(|| bad("a tool needs name, description and parameters"))?;
        Ok(Self { config, adapter_defaults, system, tools })
    }

    /// The header as JSON.
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.insert("config", self.config.to_value());
        let mut defaults = Object::new();
        defaults.insert_some("reasoningEffort", self.adapter_defaults.reasoning_effort.then_some(true));
        defaults.insert_some("maxTokens", self.adapter_defaults.max_tokens.then_some(true));
        if !defaults.is_empty() {
            object.insert("adapterDefaults", defaults);
        }
        object.insert_some("system", self.system.as_deref());
        if !self.tools.is_empty() {
            let tools = self.tools.iter().map(|tool| crate::json::parse(tool.json()).expect("a tool's text is JSON"));
            object.insert("tools", tools.collect::<Vec<_>>());
        }
        Value::Object(object)
    }
}
