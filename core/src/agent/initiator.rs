//! The ambient initiator: which agent's turn the running code belongs to (INI).

use super::{Agent, AgentInner};
use crate::context::Root;
use crate::error::{Code, Error, Result};
use crate::runtime::WithAmbient;
use std::any::Any;
use std::future::Future;
use std::rc::Rc;

impl Root {
    /// The agent whose turn this code runs in, if any (INI-2).
    pub fn current_initiator(&self) -> Option<Agent> {
        self.runtime.ambient().and_then(|ambient| ambient.downcast::<AgentInner>().ok()).map(Agent)
    }

    /// The initiating agent; fails when there is none.
    pub fn require_initiator(&self) -> Result<Agent> {
        let none = || Error::new(Code::NoInitiator, "no agent's turn is running here; pass the agent explicitly");
        self.current_initiator().ok_or_else(none)
    }

    /// Runs `operation` as part of an agent's doing (INI-3).
    pub fn with_initiator<T>(&self, agent: &Agent, operation: impl FnOnce() -> T) -> T {
        self.runtime.with_ambient(Some(agent.ambient()), operation)
    }

    /// Runs `operation` as nobody's doing (INI-4).
    pub fn without_initiator<T>(&self, operation: impl FnOnce() -> T) -> T {
        self.runtime.with_ambient(None, operation)
    }

    /// Lets every poll of `future` see `agent` as the initiator.
    pub fn future_with_initiator<F: Future>(
        &self,
        agent: Option<&Agent>,
        future: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        let ambient = agent.map(Agent::ambient);
        WithAmbient { runtime: self.runtime.clone(), ambient, future: Box::pin(future) }
    }
}

impl Agent {
    pub(crate) fn ambient(&self) -> Rc<dyn Any> {
        self.0.clone()
    }
}
