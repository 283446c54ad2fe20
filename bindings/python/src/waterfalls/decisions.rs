//! The payloads and decisions of each waterfall, as plain JSON.

use super::Bridge;
use crate::convert;
use crate::errors::to_py;
use crate::notices;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;
use turnwheel::agent::{PreStep, PreStepDecision, Recovery, RequestErrorEvent, RequestEvent, Waterfall};
use turnwheel::error::{Code, Error, Result};
use turnwheel::host;
use turnwheel::json::Value;
use turnwheel::llm::{CallConfig, ToolSchema};
use turnwheel::runtime::Signal;
use turnwheel::system_prompt::{Assembly, AssemblyRequest, ContextText, Section};
use turnwheel::tools::{PostDecision, PostExecute, PreDecision, PreExecute};
use turnwheel::{Block, Message};

fn bad(event: &str, expected: &str) -> Error {
    Error::new(Code::InvalidArgument, format!("a decision of {event} is {expected}"))
}

fn messages(value: Option<&Value>) -> Result<Vec<Arc<Message>>> {
    let list = value.and_then(Value::as_array).unwrap_or_default();
    list.iter().map(|message| Message::from_value(message).map(Arc::new)).collect()
}

fn blocks(value: &Value) -> Vec<Block> {
    match value {
        Value::String(text) => vec![Block::Text(text.clone())],
        other => other.as_array().unwrap_or_default().iter().map(Block::from_value).collect(),
    }
}

/// A member that is given: `None` in Python means absent (D-14).
fn given<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|member| !member.is_null())
}

fn kind(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("kind")?.as_str())
}

impl Bridge for PreStep {
    fn signal(&self) -> &Signal {
        &self.signal
    }

    fn describe(&self, py: Python<'_>, data: &Bound<'_, PyDict>) -> PyResult<()> {
        data.set_item("turn", self.turn)?;
        data.set_item("step", self.step)?;
        let messages = self.messages.borrow().clone();
        data.set_item("messages", convert::messages(py, &messages)?)
    }

    fn take_back(&self, payload: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = convert::argument(&payload.getattr("messages")?, "messages")?;
        let messages = messages(Some(&value)).map_err(|error| to_py(payload.py(), &error))?;
        *self.messages.borrow_mut() = messages;
        Ok(())
    }

    fn decision(value: &Value, _inner: Option<PreStepDecision>) -> Result<PreStepDecision> {
        match kind(value) {
            Some("reject") => Ok(PreStepDecision::Reject),
            Some("enter") if value.get("messages").is_some() => {
                Ok(PreStepDecision::Enter(messages(value.get("messages"))?))
            }
            _ => Err(bad(Self::NAME, "{\"kind\": \"enter\", \"messages\": [...]} or {\"kind\": \"reject\"}")),
        }
    }
}

impl Bridge for RequestEvent {
    fn signal(&self) -> &Signal {
        &self.signal
    }

    fn describe(&self, _py: Python<'_>, data: &Bound<'_, PyDict>) -> PyResult<()> {
        data.set_item("turn", self.turn)?;
        data.set_item("step", self.step)
    }

    fn decision(value: &Value, _inner: Option<CallConfig>) -> Result<CallConfig> {
        CallConfig::from_value(value)
    }
}

impl Bridge for RequestErrorEvent {
    fn signal(&self) -> &Signal {
        &self.signal
    }

    fn describe(&self, py: Python<'_>, data: &Bound<'_, PyDict>) -> PyResult<()> {
        data.set_item("turn", self.turn)?;
        data.set_item("step", self.step)?;
        data.set_item("provider", &self.provider)?;
        data.set_item("failure", convert::to_py(py, &self.failure.to_value())?)?;
        let policy = self.retry_policy.as_deref().map(host::retry_policy_value);
        data.set_item("retry_policy", policy.map(|policy| convert::to_py(py, &policy)).transpose()?)
    }

    fn decision(value: &Value, _inner: Option<Recovery>) -> Result<Recovery> {
        match kind(value) {
            Some("retry") => Ok(Recovery::Retry),
            Some("terminal") => Ok(Recovery::Terminal),
            _ => Err(bad(Self::NAME, "\"retry\" or \"terminal\"")),
        }
    }
}

impl Bridge for AssemblyRequest {
    fn signal(&self) -> &Signal {
        &self.signal
    }

    fn describe(&self, _py: Python<'_>, _data: &Bound<'_, PyDict>) -> PyResult<()> {
        Ok(())
    }

    fn decision(value: &Value, inner: Option<Assembly>) -> Result<Assembly> {
        let bad = || bad(Self::NAME, "a dict of sections, tools, variables and contexts, as `await next()` gives it");
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let mut assembly = inner.unwrap_or_default();
        if let Some(list) = given(value, "sections") {
            let section = |value: &Value| {
                let order = value.get("order").and_then(Value::as_f64).unwrap_or_default();
                Some(Section { name: text(value, "name")?, order, text: text(value, "text")?.into() })
            };
            let list = list.as_array().ok_or_else(bad)?.iter();
            assembly.sections = list.map(section).collect::<Option<_>>().ok_or_else(bad)?;
        }
        if let Some(list) = given(value, "tools") {
            let list = list.as_array().ok_or_else(bad)?.iter();
            let tools = list.map(|tool| ToolSchema::from_value(tool).map(Arc::new));
            assembly.tools = tools.collect::<Option<_>>().ok_or_else(bad)?;
        }
        if let Some(variables) = given(value, "variables") {
            let variables = variables.as_object().ok_or_else(bad)?.iter();
            assembly.variables =
                variables.map(|(name, text)| (name.to_owned(), text.as_str().map(Arc::from))).collect();
        }
        if let Some(list) = given(value, "contexts") {
            let context =
                |value: &Value| Some(ContextText { name: text(value, "name")?, text: text(value, "text")?.into() });
            let list = list.as_array().ok_or_else(bad)?.iter();
            assembly.contexts = list.map(context).collect::<Option<_>>().ok_or_else(bad)?;
        }
        Ok(assembly)
    }
}

impl Bridge for PreExecute {
    fn signal(&self) -> &Signal {
        &self.call.signal
    }

    fn describe(&self, py: Python<'_>, data: &Bound<'_, PyDict>) -> PyResult<()> {
        notices::call_members(py, data, &self.call)
    }

    fn decision(value: &Value, _inner: Option<PreDecision>) -> Result<PreDecision> {
        let reason = given(value, "reason").and_then(Value::as_str).map(str::to_owned);
        match (kind(value), reason) {
            (Some("allow"), _) => Ok(PreDecision::Allow),
            (Some("deny"), Some(reason)) => Ok(PreDecision::Deny(reason)),
            (Some("ask"), reason) => Ok(PreDecision::Ask(reason)),
            _ => Err(bad(
                Self::NAME,
                "{\"kind\": \"allow\"}, {\"kind\": \"deny\", \"reason\": ...} or {\"kind\": \"ask\"}",
            )),
        }
    }
}

impl Bridge for PostExecute {
    fn signal(&self) -> &Signal {
        &self.call.signal
    }

    fn describe(&self, py: Python<'_>, data: &Bound<'_, PyDict>) -> PyResult<()> {
        notices::call_members(py, data, &self.call)?;
        notices::outcome_members(py, data, &self.outcome)
    }

    fn decision(value: &Value, _inner: Option<PostDecision>) -> Result<PostDecision> {
        let contexts = messages(given(value, "contexts"))?;
        match (kind(value), given(value, "feedback")) {
            (Some("accept"), _) => Ok(PostDecision::Accept {
                content: given(value, "content").map(blocks),
                value: given(value, "value").cloned(),
                contexts,
            }),
            (Some("block"), Some(feedback)) => Ok(PostDecision::Block { feedback: blocks(feedback), contexts }),
            _ => Err(bad(Self::NAME, "{\"kind\": \"accept\", ...} or {\"kind\": \"block\", \"feedback\": ...}")),
        }
    }
}
