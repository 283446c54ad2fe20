//! Hand-written agents: a driver that drives nothing, for tests of what surrounds a driver.

use std::rc::Rc;
use std::sync::Arc;
use turnwheel::agent::{AgentOptions, AgentState, Driver, MaintenanceTask};
use turnwheel::runtime::{LocalBoxFuture, Signal};
use turnwheel::session::{InboxTarget, SessionHeader};
use turnwheel::{Agent, AgentStatus, CancelCause, Context, Message, Result, Session};

/// Takes messages into the inbox and never runs. With a signal it is idle only once that has fired.
pub struct Still(pub Agent, pub Option<Signal>);

impl Driver for Still {
    fn deliver(&self, message: Arc<Message>, target: InboxTarget, _wakeup: bool, _after_cancel: bool) -> Result<()> {
        self.0.inbox().append(target, vec![message])
    }
    fn wake(&self, _after_cancel: bool) {}
    fn abort(&self, _cause: CancelCause, _keep_inbox: bool) {}
    fn reset_latch(&self) {}
    fn status(&self) -> AgentStatus {
        AgentStatus::Idle
    }
    fn state(&self) -> AgentState {
        let (latch, parked) = (Vec::new(), Vec::new());
        let running_tools = Vec::new();
        AgentState { phase: "idle", turn: 0, step: 0, running_tools, latch, parked, next_step: 0, next_turn: 0 }
    }
    fn when_idle(&self) -> LocalBoxFuture<()> {
        match self.1.clone() {
            Some(gate) => Box::pin(async move { drop(gate.cancelled().await) }),
            None => Box::pin(std::future::ready(())),
        }
    }
    fn run_maintenance(&self, _task: MaintenanceTask) -> Result<()> {
        Ok(())
    }
    fn published(&self) {}
}

/// A hand-written agent of this context, not entered yet.
pub fn still(ctx: &Context, id: &str) -> Agent {
    let session = Session::new(ctx.runtime(), SessionHeader::new(id, 0)).expect("a valid header");
    Agent::assemble(ctx, session, AgentOptions::default(), |agent| Rc::new(Still(agent.clone(), None)))
        .expect("assembled")
}
