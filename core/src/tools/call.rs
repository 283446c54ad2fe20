//! One call, as a tool's body sees it, and what the body returns.

use super::events::ToolCallInfo;
use crate::agent::Agent;
use crate::context::Root;
use crate::error::{Code, Error, Result};
use crate::id::CallId;
use crate::json::Value;
use crate::message::{Block, Message};
use crate::runtime::Signal;
use crate::scope::ScopeKey;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// What a body attached to its call; kept whether the call succeeds or fails.
#[derive(Default)]
pub(super) struct Attachments {
    pub(super) contexts: RefCell<Vec<Arc<Message>>>,
    pub(super) concludes_turn: Cell<bool>,
    pub(super) entered: Cell<bool>,
    /// How many calls the body has made.
    pub(super) nested: Cell<u64>,
}

/// One call of a tool. Clones are the same call.
#[derive(Clone)]
pub struct ToolCall {
    pub(super) info: Rc<ToolCallInfo>,
    pub(super) signal: Signal,
    pub(super) attachments: Rc<Attachments>,
    pub(super) root: Weak<Root>,
    pub(super) scope: Option<ScopeKey>,
}

impl ToolCall {
    /// The id the model gave. With it a tool can make its effect idempotent: a call that is repeated after a crash has
    /// another id.
    pub fn call_id(&self) -> &CallId {
        &self.info.call_id
    }

    /// The call as the pipeline was given it.
    pub fn info(&self) -> &ToolCallInfo {
        &self.info
    }

    /// The tool called.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// The parsed arguments.
    pub fn arguments(&self) -> &Value {
        &self.info.arguments
    }

    /// The agent whose call it is.
    pub fn agent(&self) -> Option<&Agent> {
        self.info.agent.as_ref()
    }

    /// Fires when the turn is cancelled or the call's time is over. The body is awaited all the same (EXE-14).
    pub fn signal(&self) -> &Signal {
        &self.signal
    }

    /// Adds a message for the next step (EXE-26).
    pub fn defer_context(&self, message: Arc<Message>) {
        self.attachments.contexts.borrow_mut().push(message);
    }

    /// Ends the turn with this step if the call succeeds (TOOL-14).
    pub fn conclude_turn(&self) {
        self.attachments.concludes_turn.set(true);
    }

    /// The string argument `name`.
    pub fn text(&self, name: &str) -> Result<&str> {
        self.arguments().get(name).and_then(Value::as_str).ok_or_else(|| missing(name, "a string"))
    }

    /// The number argument `name`.
    pub fn number(&self, name: &str) -> Result<f64> {
        self.arguments().get(name).and_then(Value::as_f64).ok_or_else(|| missing(name, "a number"))
    }

    /// The integer argument `name`.
    pub fn integer(&self, name: &str) -> Result<i64> {
        self.arguments().get(name).and_then(Value::as_i64).ok_or_else(|| missing(name, "an integer"))
    }
}

fn missing(name: &str, kind: &str) -> Error {
    Error::new(Code::InvalidArgs, format!("\"{name}\" must be {kind}"))
}

/// What a body returns: a value, which is checked and rendered for the model, or content blocks as they are.
#[derive(Clone, Debug)]
pub struct ToolOutput {
    pub(super) value: Option<Value>,
    pub(super) content: Option<Vec<Block>>,
    pub(super) meta: Option<Value>,
}

impl ToolOutput {
    /// A JSON value. The model sees a string as it is and anything else as JSON text.
    pub fn value(value: impl Into<Value>) -> Self {
        Self { value: Some(value.into()), content: None, meta: None }
    }

    /// Content blocks.
    pub fn content(content: Vec<Block>) -> Self {
        Self { value: None, content: Some(content), meta: None }
    }

    /// Adds data for whoever redraws the call; the model does not see it.
    pub fn with_meta(mut self, meta: impl Into<Value>) -> Self {
        self.meta = Some(meta.into());
        self
    }

    /// What the model sees.
    pub(super) fn blocks(&self) -> Vec<Block> {
        match (&self.content, &self.value) {
            (Some(content), _) => content.clone(),
            (None, Some(value)) => render(value),
            (None, None) => Vec::new(),
        }
    }
}

/// A value for the model: a string as it is, anything else as JSON text.
pub(super) fn render(value: &Value) -> Vec<Block> {
    vec![Block::Text(value.as_str().map_or_else(|| value.to_text(), str::to_owned))]
}

impl<T: Into<Value>> From<T> for ToolOutput {
    fn from(value: T) -> Self {
        Self::value(value)
    }
}
