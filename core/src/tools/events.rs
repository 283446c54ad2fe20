//! The events of tool calls.

use crate::agent::Agent;
use crate::id::CallId;
use crate::json::Value;
use crate::message::{Block, Message};
use crate::runtime::Signal;
use crate::session::ErrorInfo;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// A call as the pipeline was given it.
#[derive(Clone, Debug)]
pub struct ToolCallInfo {
    /// The call's id.
    pub call_id: CallId,
    /// The tool called.
    pub name: String,
    /// The parsed arguments; the raw text when that was not JSON (TOOL-2).
    pub arguments: Value,
    /// The agent whose call it is.
    pub agent: Option<Agent>,
    /// Fires when the turn is cancelled.
    pub signal: Signal,
    /// The call whose body makes this one, for nested calls (EXE-27).
    pub parent: Option<CallId>,
    /// The call of the model that this one goes back to; its own id unless it is nested (EXE-01).
    pub root_call_id: CallId,
}

impl ToolCallInfo {
    /// A call that is not nested.
    pub fn new(call_id: impl Into<CallId>, name: impl Into<String>, arguments: Value, signal: Signal) -> Self {
        let call_id = call_id.into();
        let root_call_id = call_id.clone();
        Self { call_id, name: name.into(), arguments, agent: None, signal, parent: None, root_call_id }
    }
}

/// `tools/pre-execute`: may this call run?
#[derive(Debug)]
pub struct PreExecute {
    /// The call.
    pub call: Rc<ToolCallInfo>,
}

/// What policy decides about a call (EXE-05).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreDecision {
    /// Run it.
    Allow,
    /// Answer with a failed result that gives this reason.
    Deny(String),
    /// Somebody must approve it; without an approval service it is denied (EXE-06).
    Ask(Option<String>),
}

/// `tools/execute`: the body is about to run. A wrapper may replace the signal before it delegates (EXE-10).
#[derive(Debug)]
pub struct ExecuteRequest {
    /// The call.
    pub call: Rc<ToolCallInfo>,
    /// The signal the body gets, joined with the caller's.
    pub signal: RefCell<Signal>,
}

/// The answer to a call.
#[derive(Clone, Debug, Default)]
pub struct ToolOutcome {
    /// What the model sees.
    pub content: Vec<Block>,
    /// Whether the call failed.
    pub is_error: bool,
    /// Name and code of a structured failure.
    pub error: Option<ErrorInfo>,
    /// The returned value; never logged (EXE-13).
    pub value: Option<Value>,
    /// Data for whoever redraws the call.
    pub meta: Option<Value>,
    /// Messages for the next step.
    pub contexts: Vec<Arc<Message>>,
    /// Whether the turn ends with this step.
    pub concludes_turn: bool,
}

/// `tools/post-execute`: is this result acceptable?
#[derive(Debug)]
pub struct PostExecute {
    /// The call.
    pub call: Rc<ToolCallInfo>,
    /// The result so far.
    pub outcome: Rc<ToolOutcome>,
}

/// What policy makes of a result (EXE-18).
#[derive(Clone, Debug)]
pub enum PostDecision {
    /// Keep it, perhaps with other content or another value, and further contexts.
    Accept {
        /// Replaces what the model sees.
        content: Option<Vec<Block>>,
        /// Replaces the value; checked and rendered again.
        value: Option<Value>,
        /// Messages for the next step, behind the body's.
        contexts: Vec<Arc<Message>>,
    },
    /// Answer with a failed result instead (EXE-19).
    Block {
        /// What the model sees.
        feedback: Vec<Block>,
        /// Messages for the next step, instead of the body's.
        contexts: Vec<Arc<Message>>,
    },
}

impl PostDecision {
    /// Keeps the result as it is.
    pub fn accept() -> Self {
        PostDecision::Accept { content: None, value: None, contexts: Vec::new() }
    }
}

/// `tools/result`: a call is answered.
#[derive(Clone, Debug)]
pub struct ToolResultNotice {
    /// The call.
    pub call: Rc<ToolCallInfo>,
    /// The answer.
    pub outcome: Rc<ToolOutcome>,
}
