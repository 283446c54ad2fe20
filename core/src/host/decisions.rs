//! The payload and the decision of each waterfall, both ways.

use super::notices::call_members;
use super::options::Options;
use super::results::{block_list, blocks, list, outcome_members, outcome_value};
use crate::agent::{PreStep, PreStepDecision, Recovery, RequestErrorEvent, RequestEvent, Waterfall};
use crate::error::{Code, Error, Result};
use crate::json::{Object, Value};
use crate::llm::{CallConfig, ToolSchema};
use crate::message::Message;
use crate::runtime::Signal;
use crate::session::ErrorInfo;
use crate::system_prompt::{Assembly, AssemblyRequest, ContextText, Section};
use crate::tools::{ExecuteRequest, PostDecision, PostExecute, PreDecision, PreExecute, ToolOutcome};
use std::sync::Arc;

/// A waterfall whose decision has a JSON form, the same in every host.
pub trait Decided: Waterfall {
    /// A decision as JSON.
    fn decided(decision: &Self::Output) -> Value;
}

/// How a waterfall crosses the border.
pub(super) trait Bridge: Decided {
    /// The turn's signal.
    fn signal(&self) -> Signal;
    /// The payload's own members.
    fn describe(&self, object: &mut Object);
    /// Takes over what a listener edited in its payload before it delegates.
    fn edit(&self, edited: &Value) -> Result<()> {
        let _ = edited;
        let message = format!("the payload of {} cannot be edited; change the decision instead", Self::NAME);
        Err(Error::new(Code::InvalidArgument, message))
    }
    /// Reads a decision; `inner` is what the continuation decided, if it ran.
    fn decision(value: &Value, inner: Option<Self::Output>) -> Result<Self::Output>;
}

fn bad(event: &str, expected: &str) -> Error {
    Error::new(Code::InvalidArgument, format!("a decision of {event} is {expected}"))
}

fn messages(value: &Value, what: &str) -> Result<Vec<Arc<Message>>> {
    let items = value.as_array();
    let items = items.ok_or_else(|| Error::new(Code::InvalidArgument, format!("{what} is a list of messages")))?;
    items.iter().map(|message| Message::from_value(message).map(Arc::new)).collect()
}

fn optional_messages(value: Option<&Value>, what: &str) -> Result<Vec<Arc<Message>>> {
    value.map_or(Ok(Vec::new()), |value| messages(value, what))
}

/// The kind of a decision, which may be the whole of it.
fn kind(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("kind")?.as_str())
}

/// The members of a decision beside its kind; a bare kind has none.
fn members<'a>(value: &'a Value, of: &str) -> Result<Options<'a>> {
    let options = Options::new(if value.as_str().is_some() { Value::NULL } else { value }, of)?;
    options.value("kind");
    Ok(options)
}

impl Bridge for PreStep {
    fn signal(&self) -> Signal {
        self.signal.clone()
    }

    fn describe(&self, object: &mut Object) {
        object.insert("turn", self.turn);
        object.insert("step", self.step);
        object.insert("messages", list(&*self.messages.borrow()));
    }

    fn edit(&self, edited: &Value) -> Result<()> {
        let options = Options::new(edited, "the edited payload of agent/pre-step")?;
        // A host may hand its whole payload back.
        for fixed in ["event", "agentId", "sessionId", "turn", "step"] {
            options.value(fixed);
        }
        let edited = options.value("messages").map(|value| messages(value, "`messages`")).transpose()?;
        options.finish()?;
        if let Some(edited) = edited {
            *self.messages.borrow_mut() = edited;
        }
        Ok(())
    }

    fn decision(value: &Value, _inner: Option<PreStepDecision>) -> Result<PreStepDecision> {
        let options = members(value, "a decision of agent/pre-step")?;
        let decision = match (kind(value), options.value("messages")) {
            (Some("reject"), None) => PreStepDecision::Reject,
            (Some("enter"), Some(entered)) => PreStepDecision::Enter(messages(entered, "`messages`")?),
            _ => return Err(bad(Self::NAME, "{\"kind\": \"enter\", \"messages\": [...]} or {\"kind\": \"reject\"}")),
        };
        options.finish()?;
        Ok(decision)
    }
}

impl Decided for PreStep {
    fn decided(decision: &PreStepDecision) -> Value {
        let mut object = Object::new();
        match decision {
            PreStepDecision::Enter(messages) => {
                object.insert("kind", "enter");
                object.insert("messages", list(messages));
            }
            PreStepDecision::Reject => {
                object.insert("kind", "reject");
            }
        }
        object.into()
    }
}

impl Bridge for RequestEvent {
    fn signal(&self) -> Signal {
        self.signal.clone()
    }

    fn describe(&self, object: &mut Object) {
        object.insert("turn", self.turn);
        object.insert("step", self.step);
    }

    fn decision(value: &Value, _inner: Option<CallConfig>) -> Result<CallConfig> {
        CallConfig::from_value(value)
    }
}

impl Decided for RequestEvent {
    fn decided(decision: &CallConfig) -> Value {
        decision.to_value()
    }
}

impl Bridge for RequestErrorEvent {
    fn signal(&self) -> Signal {
        self.signal.clone()
    }

    fn describe(&self, object: &mut Object) {
        object.insert("turn", self.turn);
        object.insert("step", self.step);
        object.insert("provider", self.provider.as_str());
        object.insert("failure", self.failure.to_value());
        object.insert_some("retryPolicy", self.retry_policy.as_deref().map(super::retry_policy_value));
    }

    fn decision(value: &Value, _inner: Option<Recovery>) -> Result<Recovery> {
        match kind(value) {
            Some("retry") => Ok(Recovery::Retry),
            Some("terminal") => Ok(Recovery::Terminal),
            _ => Err(bad(Self::NAME, "\"retry\" or \"terminal\"")),
        }
    }
}

impl Decided for RequestErrorEvent {
    fn decided(decision: &Recovery) -> Value {
        match decision {
            Recovery::Retry => "retry".into(),
            Recovery::Terminal => "terminal".into(),
        }
    }
}

impl Bridge for AssemblyRequest {
    fn signal(&self) -> Signal {
        self.signal.clone()
    }

    fn describe(&self, _object: &mut Object) {}

    /// Members that are left out stay as the continuation decided.
    fn decision(value: &Value, inner: Option<Assembly>) -> Result<Assembly> {
        let bad =
            || bad(Self::NAME, "an object of sections, tools, variables and contexts, as the continuation gives it");
        let options = members(value, "a decision of system-prompt/assemble")?;
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let mut assembly = inner.unwrap_or_default();
        if let Some(list) = options.value("sections") {
            let section = |value: &Value| {
                let order = value.get("order").and_then(Value::as_f64).unwrap_or_default();
                Some(Section { name: text(value, "name")?, order, text: text(value, "text")?.into() })
            };
            let list = list.as_array().ok_or_else(bad)?.iter();
            assembly.sections = list.map(section).collect::<Option<_>>().ok_or_else(bad)?;
        }
        if let Some(list) = options.value("tools") {
            let list = list.as_array().ok_or_else(bad)?.iter();
            let tools = list.map(|tool| ToolSchema::from_value(tool).map(Arc::new));
            assembly.tools = tools.collect::<Option<_>>().ok_or_else(bad)?;
        }
        if let Some(variables) = options.value("variables") {
            let variables = variables.as_object().ok_or_else(bad)?.iter();
            assembly.variables =
                variables.map(|(name, text)| (name.to_owned(), text.as_str().map(Arc::from))).collect();
        }
        if let Some(list) = options.value("contexts") {
            let context =
                |value: &Value| Some(ContextText { name: text(value, "name")?, text: text(value, "text")?.into() });
            let list = list.as_array().ok_or_else(bad)?.iter();
            assembly.contexts = list.map(context).collect::<Option<_>>().ok_or_else(bad)?;
        }
        options.finish()?;
        Ok(assembly)
    }
}

impl Decided for AssemblyRequest {
    fn decided(assembly: &Assembly) -> Value {
        let mut object = Object::new();
        let sections = assembly.sections.iter().map(
            |section| crate::json!({"name": section.name, "order": section.order, "text": section.text.to_string()}),
        );
        object.insert("sections", sections.collect::<Vec<_>>());
        let tools = assembly.tools.iter().map(|tool| crate::json::parse(tool.json()).expect("a tool's text is JSON"));
        object.insert("tools", tools.collect::<Vec<_>>());
        let mut variables = Object::new();
        for (name, text) in &assembly.variables {
            variables.insert(name.as_str(), text.as_deref().map_or(Value::Null, Value::from));
        }
        object.insert("variables", variables);
        let contexts = assembly.contexts.iter();
        let contexts = contexts.map(|text| crate::json!({"name": text.name, "text": text.text.to_string()}));
        object.insert("contexts", contexts.collect::<Vec<_>>());
        object.into()
    }
}

impl Bridge for PreExecute {
    fn signal(&self) -> Signal {
        self.call.signal.clone()
    }

    fn describe(&self, object: &mut Object) {
        call_members(&self.call, object);
    }

    fn decision(value: &Value, _inner: Option<PreDecision>) -> Result<PreDecision> {
        let options = members(value, "a decision of tools/pre-execute")?;
        let decision = match (kind(value), options.text("reason")?) {
            (Some("allow"), None) => PreDecision::Allow,
            (Some("deny"), Some(reason)) => PreDecision::Deny(reason),
            (Some("ask"), reason) => PreDecision::Ask(reason),
            _ => {
                let expected = "{\"kind\": \"allow\"}, {\"kind\": \"deny\", \"reason\": ...} or {\"kind\": \"ask\"}";
                return Err(bad(Self::NAME, expected));
            }
        };
        options.finish()?;
        Ok(decision)
    }
}

impl Decided for PreExecute {
    fn decided(decision: &PreDecision) -> Value {
        match decision {
            PreDecision::Allow => crate::json!({"kind": "allow"}),
            PreDecision::Deny(reason) => crate::json!({"kind": "deny", "reason": reason}),
            PreDecision::Ask(Some(reason)) => crate::json!({"kind": "ask", "reason": reason}),
            PreDecision::Ask(None) => crate::json!({"kind": "ask"}),
        }
    }
}

impl Bridge for ExecuteRequest {
    fn signal(&self) -> Signal {
        self.signal.borrow().clone()
    }

    fn describe(&self, object: &mut Object) {
        call_members(&self.call, object);
    }

    fn decision(value: &Value, _inner: Option<ToolOutcome>) -> Result<ToolOutcome> {
        let options = members(value, "a decision of tools/execute")?;
        let content = options.value("content").ok_or_else(|| bad(Self::NAME, "an object with `content`"))?;
        let error = options.read("error", "an object of `name` and `code`", |value| {
            let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
            Some(ErrorInfo { name: text("name")?, code: text("code")? })
        })?;
        let outcome = ToolOutcome {
            content: blocks(content, "`content`")?,
            is_error: options.flag("isError", error.is_some())?,
            error,
            value: options.value("value").cloned(),
            meta: options.value("meta").cloned(),
            contexts: optional_messages(options.value("contexts"), "`contexts`")?,
            concludes_turn: options.flag("concludesTurn", false)?,
        };
        options.finish()?;
        Ok(outcome)
    }
}

impl Decided for ExecuteRequest {
    fn decided(outcome: &ToolOutcome) -> Value {
        outcome_value(outcome)
    }
}

impl Bridge for PostExecute {
    fn signal(&self) -> Signal {
        self.call.signal.clone()
    }

    fn describe(&self, object: &mut Object) {
        call_members(&self.call, object);
        outcome_members(&self.outcome, object);
    }

    fn decision(value: &Value, _inner: Option<PostDecision>) -> Result<PostDecision> {
        let options = members(value, "a decision of tools/post-execute")?;
        let contexts = optional_messages(options.value("contexts"), "`contexts`")?;
        let content = |name: &str| options.value(name).map(|value| blocks(value, &format!("`{name}`"))).transpose();
        let decision = match kind(value) {
            Some("accept") => {
                PostDecision::Accept { content: content("content")?, value: options.value("value").cloned(), contexts }
            }
            Some("block") => match content("feedback")? {
                Some(feedback) => PostDecision::Block { feedback, contexts },
                None => return Err(bad(Self::NAME, "{\"kind\": \"block\", \"feedback\": ...} when it blocks")),
            },
            _ => {
                let expected = "{\"kind\": \"accept\", ...} or {\"kind\": \"block\", \"feedback\": ...}";
                return Err(bad(Self::NAME, expected));
            }
        };
        options.finish()?;
        Ok(decision)
    }
}

impl Decided for PostExecute {
    fn decided(decision: &PostDecision) -> Value {
        let mut object = Object::new();
        let contexts = match decision {
            PostDecision::Accept { content, value, contexts } => {
                object.insert("kind", "accept");
                object.insert_some("content", content.as_deref().map(block_list));
                object.insert_some("value", value.clone());
                contexts
            }
            PostDecision::Block { feedback, contexts } => {
                object.insert("kind", "block");
                object.insert("feedback", block_list(feedback));
                contexts
            }
        };
        if !contexts.is_empty() {
            object.insert("contexts", list(contexts));
        }
        object.into()
    }
}
