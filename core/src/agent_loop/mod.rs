//! The default loop: what drains an agent's turns.
//!
//! `publish` brings agents to life and ends them, `driver` holds the phases, `turn` is the state machine of a turn,
//! `step` one model request with what follows from it, `tool_calls` the scheduler of a message's calls. Nothing outside
//! depends on this module; another [`AgentFactory`] may take its place.

mod budget;
mod driver;
mod publish;
mod runtime_context;
mod step;
mod tool_calls;
mod turn;

use crate::agent::{AgentFactory, AgentHandle, CreateOptions, ResumeOptions};
use crate::context::{Context, Root};
use crate::error::Result;
use crate::runtime::LocalBoxFuture;
use crate::session::Session;
use crate::storage::Durability;

/// The factory of agents that the default loop drives.
pub struct AgentLoop;

impl AgentFactory for AgentLoop {
    fn create(&self, owner: Context, options: CreateOptions) -> LocalBoxFuture<Result<AgentHandle>> {
        Box::pin(publish::create(owner, options))
    }

    fn resume(&self, owner: Context, options: ResumeOptions) -> LocalBoxFuture<Result<AgentHandle>> {
        Box::pin(publish::resume(owner, options))
    }
}

/// Holds an external effect back until everything logged is durable. Fails when that cannot be had.
pub(crate) async fn barrier(root: &Root, session: &Session) -> Result<()> {
    let before_effects = |policy| matches!(policy, Durability::Effects | Durability::EveryEvent);
    match &root.storage {
        Some(storage) if before_effects(storage.durability()) => session.flush().await,
        _ => Ok(()),
    }
}
