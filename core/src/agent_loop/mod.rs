//! The default loop: what drains an agent's turns.
//!
//! `driver` holds the phases, `turn` is the state machine of a turn, `step` one model request with what follows from it,
//! `tool_calls` the scheduler of a message's calls; `budget` and `runtime_context` are what a boundary looks at, `config`
//! starts the agents that a configuration lists. `agent` does not depend on this module: another
//! [`AgentFactory`](crate::agent::AgentFactory) may take its place.

mod budget;
pub mod config;
mod driver;
mod runtime_context;
mod step;
mod tool_calls;
mod turn;

pub use tool_calls::answer_tool_calls;

use crate::agent::Publication;
use crate::context::Root;
use crate::error::Result;
use crate::runtime::Signal;
use crate::session::Session;
use crate::storage::Durability;
use std::future::Future;
use std::task::Poll;

/// The factory of agents that the default loop drives.
pub(crate) fn factory() -> Publication {
    Publication::new(|agent| driver::LoopDriver::new(agent))
}

/// Holds an external effect back until everything logged is durable, or under the policies that do not ask for
/// it, until not too much is not. Fails when that cannot be had.
pub(crate) async fn barrier(root: &Root, session: &Session) -> Result<()> {
    let before_effects = |policy| matches!(policy, Durability::Effects | Durability::EveryEvent);
    match &root.storage {
        Some(storage) if before_effects(storage.durability()) || session.is_full() => session.flush().await,
        _ => Ok(()),
    }
}

/// Waits until what is logged has become durable, or the turn is cancelled.
pub(crate) async fn make_room(session: &Session, signal: &Signal) -> Result<()> {
    let (mut flush, mut cancelled) = (Box::pin(session.flush()), Box::pin(signal.cancelled()));
    std::future::poll_fn(|context| match cancelled.as_mut().poll(context) {
        Poll::Ready(_) => Poll::Ready(Err(signal.error())),
        Poll::Pending => flush.as_mut().poll(context),
    })
    .await
}
