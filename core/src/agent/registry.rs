//! The registry of live agents, and the port of what makes them (REG, FAC-1).

use super::events::{Notice, NoticeKind};
use super::{Agent, AgentOptions};
use crate::context::{Cleanup, Context, Registration, Root};
use crate::error::{Code, Error, Result};
use crate::id::SessionId;
use crate::runtime::{LocalBoxFuture, Signal, WakerSet};
use crate::session::{Event, EventLog, SessionHeader};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context as TaskContext;

/// Disposes an agent; all callers share one completion.
pub(crate) type Disposal = Rc<dyn Fn() -> LocalBoxFuture<()>>;

/// Runs after setup, at once before publication; a failure rolls back (FAC-6).
pub type SetupCommit = Box<dyn FnOnce() -> Result<()>>;

/// Composes an unpublished agent through its own context.
pub type Setup = Box<dyn FnOnce(Context) -> LocalBoxFuture<Result<Option<SetupCommit>>>>;

/// What an agent is created with.
pub struct CreateOptions {
    /// The session header; `created_at` is set at creation.
    pub header: SessionHeader,
    /// History to start from.
    pub seed: Option<Vec<Arc<Event>>>,
    /// Route and ceiling.
    pub agent: AgentOptions,
    /// Composes the agent before anybody can see it.
    pub setup: Option<Setup>,
    /// Cancels the creation, and nothing after it.
    pub signal: Option<Signal>,
}

impl CreateOptions {
    /// Options with an id only.
    pub fn new(id: SessionId) -> Self {
        let header = SessionHeader::new(id, 0);
        Self { header, seed: None, agent: AgentOptions::default(), setup: None, signal: None }
    }
}

/// What an agent is resumed with.
pub struct ResumeOptions {
    /// The session.
    pub id: SessionId,
    /// Route and ceiling.
    pub agent: AgentOptions,
    /// Composes the agent before anybody can see it.
    pub setup: Option<Setup>,
    /// Cancels the resumption, and nothing after it.
    pub signal: Option<Signal>,
    /// A log at hand, instead of the store's.
    pub log: Option<(SessionHeader, EventLog)>,
}

/// An agent together with the right to dispose it (ID-11).
#[derive(Clone, Debug)]
pub struct AgentHandle(Agent);

impl AgentHandle {
    /// A handle to an agent of a factory.
    pub fn new(agent: Agent) -> Self {
        Self(agent)
    }

    /// The agent.
    pub fn agent(&self) -> &Agent {
        &self.0
    }

    /// Stops the agent, removes it and frees its id.
    pub fn dispose(&self) -> LocalBoxFuture<()> {
        self.0.dispose()
    }
}

/// Makes agents. One factory at a time serves a root.
pub trait AgentFactory {
    /// Creates an agent owned by `owner` (FAC-2).
    fn create(&self, owner: Context, options: CreateOptions) -> LocalBoxFuture<Result<AgentHandle>>;
    /// Restores an agent.
    fn resume(&self, owner: Context, options: ResumeOptions) -> LocalBoxFuture<Result<AgentHandle>>;
    /// The slot is lost: pending operations are cancelled and every live agent it made is disposed, beginning before
    /// this returns; the future waits for all of them (FAC-25, FAC-38).
    fn unload(&self) -> LocalBoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

struct Entry {
    agent: Agent,
    order: u64,
    announced: Cell<bool>,
    announcing: Cell<bool>,
    detach_requested: Cell<bool>,
}

/// The live agents of a root.
#[derive(Default)]
pub struct Registry {
    entries: RefCell<HashMap<SessionId, Rc<Entry>>>,
    order: RefCell<BTreeMap<u64, SessionId>>,
    next: Cell<u64>,
    factory: RefCell<Option<Rc<dyn AgentFactory>>>,
    /// Ids of agents whose teardown is under way.
    draining: RefCell<HashMap<SessionId, usize>>,
    drained: WakerSet,
}

impl Registry {
    /// Takes the factory's slot until `ctx` ends; a second factory is refused (FAC-1).
    pub fn set_factory(&self, ctx: &Context, factory: Rc<dyn AgentFactory>) -> Result<Registration> {
        ctx.fiber().check()?;
        if self.factory.borrow().is_some() {
            return Err(Error::new(Code::DuplicateName, "an agent factory is registered already"));
        }
        *self.factory.borrow_mut() = Some(factory);
        let root = Rc::downgrade(ctx.root());
        Ok(ctx.fiber().own(Cleanup::Async(Box::new(move || match root.upgrade() {
            Some(root) => root.agents.unload_factory(),
            None => Box::pin(std::future::ready(())),
        }))))
    }

    /// Whether this factory is the one in the slot.
    pub(crate) fn is_served_by(&self, factory: &Rc<dyn AgentFactory>) -> bool {
        self.factory.borrow().as_ref().is_some_and(|live| Rc::ptr_eq(live, factory))
    }

    /// Counts a teardown that begins.
    pub(super) fn begin_drain(&self, id: &SessionId) {
        *self.draining.borrow_mut().entry(id.clone()).or_default() += 1;
    }

    /// Counts a teardown that is over.
    pub(super) fn end_drain(&self, id: &SessionId) {
        let mut draining = self.draining.borrow_mut();
        if let Some(count) = draining.get_mut(id) {
            *count -= 1;
            if *count == 0 {
                draining.remove(id);
            }
        }
        drop(draining);
        self.drained.wake_all();
    }

    /// Whether an agent of this id is being torn down.
    pub(crate) fn is_draining(&self, id: &str) -> bool {
        self.draining.borrow().contains_key(id)
    }

    /// Registers to be woken when a teardown is over, or the factory's slot is lost.
    pub(crate) fn watch_drains(&self, context: &TaskContext<'_>) {
        self.drained.register(context);
    }

    /// Clears the slot at once and unloads what was in it.
    pub(crate) fn unload_factory(&self) -> LocalBoxFuture<()> {
        let factory = self.factory.borrow_mut().take();
        self.drained.wake_all();
        factory.map_or_else(|| Box::pin(std::future::ready(())) as _, |factory| factory.unload())
    }

    /// Lets go of the factory and of every agent, without a word and without waiting.
    pub(crate) fn abandon(&self) {
        let factory = self.factory.borrow_mut().take();
        let entries = std::mem::take(&mut *self.entries.borrow_mut());
        self.order.borrow_mut().clear();
        for entry in entries.values() {
            let ctx = entry.agent.0.ctx.borrow_mut().take();
            drop(ctx);
        }
        drop(entries);
        drop(factory);
    }

    /// The factory.
    pub fn factory(&self) -> Result<Rc<dyn AgentFactory>> {
        let none = || Error::new(Code::NoFactory, "no agent factory is registered; register an agent loop first");
        self.factory.borrow().clone().ok_or_else(none)
    }

    /// The live agent of an id.
    pub fn get(&self, id: &str) -> Option<Agent> {
        self.entries.borrow().get(id).map(|entry| entry.agent.clone())
    }

    /// The live agents, in order of registration (REG-9).
    pub fn list(&self) -> Vec<Agent> {
        let entries = self.entries.borrow();
        self.order.borrow().values().filter_map(|id| Some(entries.get(id)?.agent.clone())).collect()
    }

    /// The live agents that no agent owns (REG-10).
    pub fn roots(&self) -> Vec<Agent> {
        self.list().into_iter().filter(|agent| agent.0.owner.is_none()).collect()
    }

    /// Whether the live agent `id` was created through `owner`'s own context (REG-11).
    pub fn is_owned_by(&self, id: &str, owner: &Agent) -> bool {
        self.get(id)
            .is_some_and(|agent| agent.0.owner.as_ref().is_some_and(|live| live.ptr_eq(&Rc::downgrade(&owner.0))))
    }

    /// How many agents are live.
    pub fn len(&self) -> usize {
        self.entries.borrow().len()
    }

    /// Whether none is live.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes an agent findable without announcing it; gives what names the entry (REG-2).
    pub(crate) fn enter(&self, agent: &Agent) -> Result<u64> {
        let id = agent.id();
        if self.entries.borrow().contains_key(id) {
            let message = format!("an agent {id:?} is live; dispose it first or choose another id");
            return Err(Error::new(Code::SessionAlreadyExists, message).with("id", id.as_str()));
        }
        let order = self.next.get();
        self.next.set(order + 1);
        let entry = Entry {
            agent: agent.clone(),
            order,
            announced: Cell::new(false),
            announcing: Cell::new(false),
            detach_requested: Cell::new(false),
        };
        self.entries.borrow_mut().insert(id.clone(), Rc::new(entry));
        self.order.borrow_mut().insert(order, id.clone());
        Ok(order)
    }

    fn entry(&self, agent: &Agent) -> Option<Rc<Entry>> {
        self.entries.borrow().get(agent.id()).filter(|entry| entry.agent == *agent).cloned()
    }

    /// Emits `agent/created`, once; the first failing listener vetoes (REG-3, REG-4).
    pub(crate) fn announce(&self, root: &Root, agent: &Agent) -> Result<()> {
        let entry = self.entry(agent).filter(|entry| !entry.announced.get());
        let Some(entry) = entry else {
            return Err(Error::new(Code::NotRegistered, format!("agent {:?} cannot be announced", agent.id())));
        };
        // Marked before the dispatch, so that a vetoed announcement is paired with a disposal (REG-5).
        entry.announced.set(true);
        entry.announcing.set(true);
        let notice = Notice::Created { agent: agent.clone() };
        let verdict = root.hub.emit_or_veto(&root.scopes, Some(agent.scope()), &notice);
        entry.announcing.set(false);
        if entry.detach_requested.get() {
            self.detach(root, agent, entry.order);
        }
        verdict
    }

    /// Removes exactly this entry and, if it was announced, emits `agent/disposed` (REG-7, REG-8). During the
    /// announcement the removal waits (REG-6). False when the entry is gone.
    pub(crate) fn detach(&self, root: &Root, agent: &Agent, order: u64) -> bool {
        let Some(entry) = self.entry(agent).filter(|entry| entry.order == order) else { return false };
        if entry.announcing.get() {
            entry.detach_requested.set(true);
            return true;
        }
        self.entries.borrow_mut().remove(agent.id());
        self.order.borrow_mut().remove(&entry.order);
        if entry.announced.get() {
            let notice = || Notice::Disposed { agent: agent.clone() };
            root.hub.emit(&root.scopes, Some(agent.scope()), NoticeKind::Disposed, notice);
        }
        true
    }
}
