//! Calls that a tool's body makes: the whole pipeline, on the parent's account (EXE-27).

use super::call::ToolCall;
use super::events::{ToolCallInfo, ToolOutcome};
use super::pipeline::Execution;
use super::registry::Tools;
use crate::error::{Code, Error, Result};
use crate::json::{Object, Value};
use crate::message::Block;
use crate::session::Session;

impl ToolCall {
    /// Calls another tool. Policy, guards, checks and cancellation apply as to any call; the result has no `meta`, its
    /// contexts go to this call, and it is logged as a code dispatch only. Fails when it cannot be logged.
    pub async fn call(&self, name: &str, arguments: impl Into<Value>) -> Result<ToolOutcome> {
        let closed = || Error::new(Code::RuntimeClosed, "the context is closed");
        let root = self.root.upgrade().ok_or_else(closed)?;
        let number = self.attachments.nested.get() + 1;
        self.attachments.nested.set(number);
        let info = ToolCallInfo {
            call_id: format!("{}:code:{number}", self.call_id()).into(),
            name: name.to_owned(),
            arguments: arguments.into(),
            agent: self.agent().cloned(),
            signal: self.signal.clone(),
            parent: Some(self.call_id().clone()),
            root_call_id: self.info.root_call_id.clone(),
        };
        let session = info.agent.as_ref().map(|agent| agent.session().clone());
        let facts = facts(&info);
        if let Some(session) = &session {
            session.append("tool/code-dispatch-start", facts.clone().into())?;
        }
        let mut outcome = Execution::new(root, self.scope, info).run().await?;
        if let Some(session) = &session {
            log_end(session, facts, &outcome)?;
        }
        self.attachments.contexts.borrow_mut().append(&mut outcome.contexts);
        Ok(outcome)
    }
}

fn facts(info: &ToolCallInfo) -> Object {
    let mut facts = Object::new();
    facts.insert("rootCallId", info.root_call_id.as_str());
    facts.insert_some("parentCallId", info.parent.as_deref());
    facts.insert("subCallId", info.call_id.as_str());
    facts.insert("name", info.name.as_str());
    facts.insert("arguments", info.arguments.clone());
    facts
}

fn log_end(session: &Session, mut facts: Object, outcome: &ToolOutcome) -> Result<()> {
    facts.insert("isError", outcome.is_error);
    facts.insert("content", outcome.content.iter().map(Block::to_value).collect::<Vec<_>>());
    session.append("tool/code-dispatch", facts.into()).map(|_| ())
}

impl Tools {
    /// Runs one call through the whole pipeline, outside any turn. The scope is the agent's, or this context's when the
    /// call has no agent. Fails only when a store cannot make the log durable before the body runs.
    pub async fn execute(&self, call: ToolCallInfo) -> Result<ToolOutcome> {
        let scope = call.agent.as_ref().map_or(self.ctx.scope(), |agent| Some(agent.scope()));
        Execution::new(self.ctx.root().clone(), scope, call).run().await
    }
}
