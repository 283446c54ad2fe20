//! Agents that an application's configuration lists: they are started with it and owned by its context (CFG).
//!
//! The list is checked as a whole before any agent exists. What goes wrong afterwards concerns one entry: it is reported
//! by `agent-loop/config-start-failed` and has no other effect.

use crate::agent::{AgentFactory, AgentOptions, CreateOptions, Notice, NoticeKind, ResumeOptions};
use crate::context::{Context, Root};
use crate::error::{Code, Error, Result};
use crate::id::SessionId;
use crate::json::Value;
use crate::runtime::Signal;
use crate::session::CancelCause;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::task::Poll;

/// One entry of the list (CFG-1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfiguredAgent {
    /// Names the entry; a fresh session's id starts with it (`id` in JSON).
    pub label: String,
    /// Route and ceiling.
    pub agent: AgentOptions,
    /// The working directory of a fresh session; a restored one keeps its own (CFG-13).
    pub cwd: Option<String>,
    /// The exact session to restore, or to create if there is none.
    pub session_id: Option<String>,
    /// The session to restore; blank counts as absent.
    pub resume_session_id: Option<String>,
}

/// Another identity for an entry, chosen by whoever launches the program (CFG-10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityOverride {
    /// The session.
    pub id: String,
    /// Whether it must exist; otherwise it is restored or created.
    pub resume: bool,
}

/// Overrides by label, provided as the service [`IDENTITY_OVERRIDES`] before the agents are started.
pub type IdentityOverrides = HashMap<String, IdentityOverride>;

/// The name of the service that holds [`IdentityOverrides`].
pub const IDENTITY_OVERRIDES: &str = "agent-loop/identity-overrides";

/// Which session an entry stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    /// A new session (CFG-2).
    Fresh,
    /// This one, restored or created (CFG-3, CFG-4).
    Exact(SessionId),
    /// This one, which must exist (CFG-7).
    Resume(SessionId),
}

impl ConfiguredAgent {
    /// An entry with a label only.
    pub fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), ..Self::default() }
    }

    /// Reads `{id, provider?, model?, maxTokens?, cwd?, sessionId?, resumeSessionId?}`.
    pub fn from_value(value: &Value) -> Result<Self> {
        let bad = |what: String| Error::new(Code::InvalidArgument, format!("a configured agent {what}"));
        let object = value.as_object().ok_or_else(|| bad("is an object".into()))?;
        let mut entry = Self::default();
        for (key, member) in object.iter() {
            let text = || member.as_str().map(str::to_owned).ok_or_else(|| bad(format!("has a text as {key:?}")));
            match key {
                "id" => entry.label = text()?,
                "provider" => entry.agent.provider = Some(text()?),
                "model" => entry.agent.model = Some(text()?),
                "cwd" => entry.cwd = Some(text()?),
                "sessionId" => entry.session_id = Some(text()?),
                "resumeSessionId" => entry.resume_session_id = Some(text()?),
                "maxTokens" => {
                    let limit = member.as_u64().ok_or_else(|| bad("has a positive integer as \"maxTokens\"".into()))?;
                    entry.agent.max_tokens = Some(limit);
                }
                _ => return Err(bad(format!("has no member {key:?}"))),
            }
        }
        Ok(entry)
    }

    fn identity(&self, overrides: &IdentityOverrides) -> Result<Identity> {
        let bad = |what: &str| Err(Error::new(Code::InvalidArgument, format!("agent {:?}: {what}", self.label)));
        if self.label.trim().is_empty() {
            return bad("an entry needs an id as its label");
        }
        self.agent.check()?;
        let resume = self.resume_session_id.as_deref().filter(|id| !id.trim().is_empty());
        match overrides.get(&self.label) {
            Some(other) if other.id.is_empty() => return bad("the overriding id is empty"),
            Some(other) if other.resume => return Ok(Identity::Resume(other.id.as_str().into())),
            Some(other) => return Ok(Identity::Exact(other.id.as_str().into())),
            None => {}
        }
        match (self.session_id.as_deref(), resume) {
            (Some(_), Some(_)) => bad("give sessionId or resumeSessionId, not both"),
            (Some(""), None) => bad("sessionId is empty"),
            (Some(id), None) => Ok(Identity::Exact(id.into())),
            (None, Some(id)) => Ok(Identity::Resume(id.into())),
            (None, None) => Ok(Identity::Fresh),
        }
    }
}

impl Context {
    /// Starts the agents of a list, owned by this context. Fails for a list that cannot be right before any agent exists
    /// (CFG-9). Without a store they are there when this returns; with one they follow.
    pub fn start_agents(&self, entries: &[ConfiguredAgent]) -> Result<()> {
        self.fiber().check()?;
        let factory = self.root().agents.factory()?;
        let overrides = self.get::<IdentityOverrides>(IDENTITY_OVERRIDES).unwrap_or_default();
        let mut taken = HashSet::new();
        let mut starts = Vec::new();
        for entry in entries {
            let identity = entry.identity(&overrides)?;
            if let Identity::Exact(id) | Identity::Resume(id) = &identity
                && !taken.insert(id.clone())
            {
                let message = format!("agent {:?}: session {id:?} is named by two entries", entry.label);
                return Err(Error::new(Code::InvalidArgument, message).with("id", id.as_str()));
            }
            starts.push((entry.clone(), identity));
        }
        let stopped = Signal::new();
        let stop = stopped.clone();
        self.effect(move || stop.cancel(CancelCause::Disposed))?;
        for (entry, identity) in starts {
            let id = match &identity {
                Identity::Fresh => format!("{}-session-{}", entry.label, self.runtime().next_id()).into(),
                Identity::Exact(id) | Identity::Resume(id) => id.clone(),
            };
            let start = Start { ctx: self.clone(), factory: factory.clone(), stopped: stopped.clone(), entry, id };
            self.runtime().without_ambient(start.run(identity));
        }
        Ok(())
    }

    /// Sets how many tool bodies of one step may overlap, from the next group of calls on; ending the registration
    /// brings the earlier limit back (CFG-14). Fails for 0.
    pub fn set_max_parallel_tool_calls(&self, limit: usize) -> Result<crate::context::Registration> {
        self.fiber().check()?;
        check_parallel(limit)?;
        let key = self.root().parallel_limits.add(limit);
        let root = Rc::downgrade(self.root());
        self.effect(move || {
            if let Some(root) = root.upgrade() {
                root.parallel_limits.remove(key);
            }
        })
    }
}

/// Fails for a limit that lets no call run.
pub(crate) fn check_parallel(limit: usize) -> Result<()> {
    if limit == 0 {
        return Err(Error::new(Code::InvalidArgument, "max_parallel_tool_calls must be a positive integer"));
    }
    Ok(())
}

/// Limits that lie over the configured one; the newest is in force.
#[derive(Default)]
pub(crate) struct ParallelLimits {
    layers: std::cell::RefCell<Vec<(u64, usize)>>,
    next: Cell<u64>,
}

impl ParallelLimits {
    fn add(&self, limit: usize) -> u64 {
        let key = self.next.get();
        self.next.set(key + 1);
        self.layers.borrow_mut().push((key, limit));
        key
    }

    fn remove(&self, key: u64) {
        self.layers.borrow_mut().retain(|layer| layer.0 != key);
    }

    pub(crate) fn in_force(&self) -> Option<usize> {
        self.layers.borrow().last().map(|layer| layer.1)
    }
}

/// One entry on its way.
struct Start {
    ctx: Context,
    factory: Rc<dyn AgentFactory>,
    stopped: Signal,
    entry: ConfiguredAgent,
    id: SessionId,
}

impl Start {
    async fn run(self, identity: Identity) {
        let opened = match identity {
            Identity::Fresh => self.create().await,
            Identity::Exact(_) => self.restore_or_create().await,
            Identity::Resume(_) => self.resume().await,
        };
        let Err(error) = opened else { return };
        // Once the end began, nobody is to be told (CFG-11).
        if self.is_ending() {
            return;
        }
        let id = &self.id;
        tracing::warn!(target: "turnwheel", session = %id, "a configured agent could not be started: {error:?}");
        let root = self.ctx.root();
        root.hub.emit(&root.scopes, None, NoticeKind::ConfigStartFailed, || Notice::ConfigStartFailed {
            session_id: id.clone(),
            error,
        });
    }

    fn is_ending(&self) -> bool {
        self.stopped.is_cancelled() || !self.ctx.root().agents.is_served_by(&self.factory)
    }

    async fn create(&self) -> Result<()> {
        let mut options = CreateOptions::new(self.id.clone());
        options.header.cwd.clone_from(&self.entry.cwd);
        options.agent = self.entry.agent.clone();
        options.signal = Some(self.stopped.clone());
        self.factory.create(self.ctx.clone(), options).await.map(|_| ())
    }

    async fn resume(&self) -> Result<()> {
        self.wait_for_predecessor().await?;
        let (id, agent) = (self.id.clone(), self.entry.agent.clone());
        let options = ResumeOptions { id, agent, setup: None, signal: Some(self.stopped.clone()), log: None };
        self.factory.resume(self.ctx.clone(), options).await.map(|_| ())
    }

    /// Creates only what the store does not list: a session that cannot be read is never shadowed (CFG-4).
    async fn restore_or_create(&self) -> Result<()> {
        let Some(storage) = self.ctx.root().storage.clone() else {
            self.wait_for_predecessor().await?;
            return self.create().await;
        };
        let Err(error) = self.resume().await else { return Ok(()) };
        if *error.code() != Code::SessionNotFound {
            return Err(error);
        }
        let listed = storage.store().list().await?;
        if listed.iter().any(|header| header.id == self.id) {
            return Err(error);
        }
        self.create().await
    }

    /// Waits until a predecessor of the same id has drained (CFG-5). A holder that is not ending keeps the id: that is
    /// a failure, and not waited for (D-19).
    async fn wait_for_predecessor(&self) -> Result<()> {
        let mut stopped = Box::pin(self.stopped.cancelled());
        std::future::poll_fn(|context| {
            use std::future::Future;
            let root: &Rc<Root> = self.ctx.root();
            if stopped.as_mut().poll(context).is_ready() || self.is_ending() {
                return Poll::Ready(Err(Error::new(Code::NoFactory, "the agent loop is not active any more")));
            }
            if root.agents.get(&self.id).is_none() && root.session(&self.id).is_none() {
                return Poll::Ready(Ok(()));
            }
            if !root.agents.is_draining(&self.id) {
                return Poll::Ready(root.check_free(&self.id));
            }
            root.agents.watch_drains(context);
            Poll::Pending
        })
        .await
    }
}
