//! Agents from other threads: what is asked travels to the runtime's thread, and the answer back.

use super::{Agent, RunResult};
use crate::context::{Context, Root};
use crate::error::{Code, Error, Result};
use crate::id::{MessageId, SessionId};
use crate::message::Message;
use crate::session::{CancelCause, InboxTarget};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

type Command = Box<dyn FnOnce(&Rc<Root>) + Send>;

/// The way into a root from other threads.
pub(crate) type Commands = mpsc::UnboundedSender<Command>;

/// An agent by its id, from any thread. It keeps nothing alive: when the agent is gone, calls fail.
#[derive(Clone, Debug)]
pub struct AgentRef {
    id: SessionId,
    commands: Commands,
}

impl Context {
    /// A handle to an agent that other threads may hold. Calls are carried out when this thread pumps.
    pub fn agent_ref(&self, id: impl Into<SessionId>) -> AgentRef {
        let commands = self.root().commands.get_or_init(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            let root = Rc::downgrade(self.root());
            self.runtime().without_ambient(carry_out(root, receiver));
            sender
        });
        AgentRef { id: id.into(), commands: commands.clone() }
    }
}

async fn carry_out(root: Weak<Root>, mut commands: mpsc::UnboundedReceiver<Command>) {
    while let Some(command) = commands.recv().await {
        let Some(root) = root.upgrade() else { return };
        command(&root);
    }
}

impl AgentRef {
    /// The agent's id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Runs `call` with the agent on the runtime's thread.
    pub async fn call<T: Send + 'static>(&self, call: impl FnOnce(&Agent) -> Result<T> + Send + 'static) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        self.post(move |agent| {
            let _ = sender.send(agent.and_then(|agent| crate::events::guarded(|| call(&agent))));
        })?;
        receiver.await.unwrap_or_else(|_| Err(closed()))
    }

    fn post(&self, call: impl FnOnce(Result<Agent>) + Send + 'static) -> Result<()> {
        let id = self.id.clone();
        let command: Command = Box::new(move |root| {
            let gone = || Error::new(Code::SessionNotFound, format!("no live agent {id:?}")).with("id", id.as_str());
            call(root.agents.get(&id).ok_or_else(gone));
        });
        self.commands.send(command).map_err(|_| closed())
    }

    /// Delivers a message; resolves when it is in the inbox.
    pub async fn send(&self, message: Message, target: InboxTarget, wakeup: bool) -> Result<MessageId> {
        self.call(move |agent| Ok(agent.send(Arc::new(message), target, wakeup)?.message_id().clone())).await
    }

    /// Queues a prompt for a turn of its own, and wakes.
    pub async fn followup(&self, text: impl Into<String>) -> Result<MessageId> {
        let text = text.into();
        self.call(move |agent| Ok(agent.followup(text)?.message_id().clone())).await
    }

    /// Sends a prompt and waits until the turn that took it ended. Dropping the future does not cancel: the turn belongs
    /// to the runtime's thread.
    pub async fn run(&self, text: impl Into<String>) -> Result<RunResult> {
        let (sender, receiver) = oneshot::channel();
        let text = text.into();
        self.post(move |agent| {
            let started = agent.and_then(|agent| Ok((agent.root()?, agent.run(text)?)));
            match started {
                Ok((root, run)) => root.runtime.without_ambient(async move {
                    let _ = sender.send(run.await);
                }),
                Err(error) => {
                    let _ = sender.send(Err(error));
                }
            }
        })?;
        receiver.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Cancels the activity under way and discards pending input. Fails only when the runtime is gone.
    pub fn cancel(&self, cause: CancelCause) -> Result<()> {
        self.post(move |agent| {
            if let Ok(agent) = agent {
                agent.cancel(cause);
            }
        })
    }
}

fn closed() -> Error {
    Error::new(Code::RuntimeClosed, "the runtime of this agent is gone")
}
