//! Contexts: what an application composes its agents with.
//!
//! A context is a view of one shared root with an owner (a fiber) and, inside an agent, a scope. What is registered
//! through a context is visible in its scope and lives as long as its fiber.

mod builder;
mod effect;
mod fiber;
mod members;
mod plugin;
mod root;
mod scope;
mod service;
mod stored;

pub(crate) use builder::no_store;
pub use builder::{AgentBuilder, ContextBuilder};
pub use effect::Composite;
pub use fiber::{Cleanup, Fiber, Registration};
pub(crate) use members::Listening;
use members::{Members, Receives};
pub use plugin::{Plugin, PluginChange, PluginDefinition, PluginObserver, PluginState};
pub use root::{Budget, LoopOptions, Root};
pub use scope::Scope;

use crate::agent::{Agent, AgentInner, Notice, NoticeKind, TurnStopping, Waterfall};
use crate::error::{Code, Error, Result};
use crate::events::{Dispatch, ListenerId, Next, Placement};
use crate::id::SessionId;
use crate::llm::{ModelRequest, Models};
use crate::runtime::Runtime;
use crate::scope::ScopeKey;
use crate::session::{Event, Session};
use crate::system_prompt::Prompt;
use crate::tools::Tools;
use std::fmt;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// A handle to a context. Clones are the same context.
#[derive(Clone)]
pub struct Context {
    root: Rc<Root>,
    fiber: Rc<Fiber>,
    scope: Option<ScopeKey>,
    agent: Weak<AgentInner>,
    members: Option<Rc<Members>>,
    receives: Option<Rc<Receives>>,
    pub(crate) quiet: bool,
}

impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}

impl Context {
    /// A root context without a store, on a runtime of its own.
    pub fn new() -> Self {
        ContextBuilder::default().build()
    }

    /// A root context with options.
    pub fn builder() -> ContextBuilder {
        ContextBuilder::default()
    }

    pub(crate) fn from_root(root: Rc<Root>) -> Self {
        Self::over(root, Fiber::new())
    }

    /// The global view with an owner.
    fn over(root: Rc<Root>, fiber: Rc<Fiber>) -> Self {
        Self { root, fiber, scope: None, agent: Weak::new(), members: None, receives: None, quiet: false }
    }

    /// The context of a new scope with a fiber of its own.
    pub(crate) fn scoped(&self, scope: ScopeKey, agent: Weak<AgentInner>) -> Self {
        Self { scope: Some(scope), agent, ..self.with_fiber(Fiber::new()) }
    }

    /// The same view with another owner. How its registrations are announced and who receives what it dispatches is of this
    /// very view and does not go on.
    fn with_fiber(&self, fiber: Rc<Fiber>) -> Self {
        Self { fiber, receives: None, quiet: false, ..self.clone() }
    }

    /// The shared root.
    pub fn root(&self) -> &Rc<Root> {
        &self.root
    }

    /// The runtime everything here runs on.
    pub fn runtime(&self) -> &Runtime {
        &self.root.runtime
    }

    /// The owner of what is registered here.
    pub fn fiber(&self) -> &Rc<Fiber> {
        &self.fiber
    }

    /// The scope of what is registered here; none for the global layer.
    pub fn scope(&self) -> Option<ScopeKey> {
        self.scope
    }

    /// The agent whose context this is (ID-14).
    pub fn own_agent(&self) -> Option<Agent> {
        self.agent.upgrade().map(Agent)
    }

    /// Lets `undo` run when this context ends, or earlier through the registration.
    pub fn effect(&self, undo: impl FnOnce() + 'static) -> Result<Registration> {
        self.fiber.check()?;
        Ok(self.fiber.own(Cleanup::Sync(Box::new(undo))))
    }

    /// Hears a notification. A listener's failure is reported and has no other effect, but on `agent/created`, where it
    /// vetoes the creation (REG-4).
    pub fn on(&self, kind: NoticeKind, listener: impl Fn(&Notice) -> Result<()> + 'static) -> Result<Registration> {
        self.on_placed(kind, Placement::default(), listener)
    }

    /// As [`Context::on`], with a place in the order.
    pub fn on_placed(
        &self,
        kind: NoticeKind,
        placement: Placement,
        listener: impl Fn(&Notice) -> Result<()> + 'static,
    ) -> Result<Registration> {
        self.fiber.check()?;
        let id = self.root.hub.notices(kind).add(self.scope, placement, Rc::new(listener));
        Ok(self.own_listener(id, move |root, id| root.hub.notices(kind).remove(id)))
    }

    /// Takes part in a waterfall: delegate with `next.call()`, or answer without it (EVT-5).
    pub fn waterfall<P: Waterfall, F>(
        &self,
        listener: impl Fn(Rc<P>, Next<P::Output>) -> F + 'static,
    ) -> Result<Registration>
    where
        F: Future<Output = Result<P::Output>> + 'static,
    {
        self.waterfall_placed(Placement::default(), listener)
    }

    /// As [`Context::waterfall`], with a place in the order.
    pub fn waterfall_placed<P: Waterfall, F>(
        &self,
        placement: Placement,
        listener: impl Fn(Rc<P>, Next<P::Output>) -> F + 'static,
    ) -> Result<Registration>
    where
        F: Future<Output = Result<P::Output>> + 'static,
    {
        self.fiber.check()?;
        let listener = Rc::new(move |payload, next| Box::pin(listener(payload, next)) as _);
        let id = P::channel(&self.root.hub).add(self.scope, placement, listener);
        Ok(self.own_listener(id, |root, id| P::channel(&root.hub).remove(id)))
    }

    /// Hears `agent/turn-stopping`; the turn waits for the listener (STOP-1).
    pub fn on_turn_stopping<F>(&self, listener: impl Fn(Rc<TurnStopping>) -> F + 'static) -> Result<Registration>
    where
        F: Future<Output = Result<()>> + 'static,
    {
        self.on_turn_stopping_placed(Placement::default(), listener)
    }

    /// As [`Context::on_turn_stopping`], with a place in the order.
    pub fn on_turn_stopping_placed<F>(
        &self,
        placement: Placement,
        listener: impl Fn(Rc<TurnStopping>) -> F + 'static,
    ) -> Result<Registration>
    where
        F: Future<Output = Result<()>> + 'static,
    {
        self.fiber.check()?;
        let listener = Rc::new(move |payload| Box::pin(listener(payload)) as _);
        let id = self.root.hub.stopping().add(self.scope, placement, listener);
        Ok(self.own_listener(id, |root, id| root.hub.stopping().remove(id)))
    }

    /// Lets `check` refuse events before they are committed. It may read, and not append (APP-09).
    pub fn check_events(&self, check: impl Fn(&Session, &Event) -> Result<()> + 'static) -> Result<Registration> {
        self.fiber.check()?;
        let id = self.root.hub.event_checks().add(self.scope, Placement::default(), Rc::new(check));
        Ok(self.own_listener(id, |root, id| root.hub.event_checks().remove(id)))
    }

    /// Shows `check` every dispatch before it begins: notifications, waterfalls, `agent/turn-stopping` and the events of
    /// plug-ins (EVT-12). Its failure prevents the dispatch, and is the failure of whatever dispatches. A notification of
    /// something that has happened already cannot fail: there the failure is reported, and nobody hears it.
    pub fn check_dispatches(&self, check: impl Fn(&Dispatch<'_>) -> Result<()> + 'static) -> Result<Registration> {
        self.fiber.check()?;
        let id = self.root.hub.dispatch_checks().add(self.scope, Placement::default(), Rc::new(check));
        Ok(self.own_listener(id, |root, id| root.hub.dispatch_checks().remove(id)))
    }

    /// Lets `check` refuse the loop's model requests before they are sent.
    pub fn check_requests(
        &self,
        check: impl Fn(&Session, &ModelRequest) -> Result<()> + 'static,
    ) -> Result<Registration> {
        self.fiber.check()?;
        let id = self.root.hub.request_checks().add(self.scope, Placement::default(), Rc::new(check));
        Ok(self.own_listener(id, |root, id| root.hub.request_checks().remove(id)))
    }

    fn own_listener(&self, id: ListenerId, remove: impl FnOnce(&Root, ListenerId) + 'static) -> Registration {
        let root = Rc::downgrade(&self.root);
        self.fiber.own(Cleanup::Sync(Box::new(move || {
            if let Some(root) = root.upgrade() {
                remove(&root, id);
            }
        })))
    }

    /// The model routes.
    pub fn llm(&self) -> Models {
        Models::new(self.clone())
    }

    /// The tools, as this context sees them.
    pub fn tools(&self) -> Tools {
        Tools::new(self.clone())
    }

    /// The system prompt, as this context sees it.
    pub fn prompt(&self) -> Prompt {
        Prompt::new(self.clone())
    }

    /// Opens an agent: resumes what the store has under this id, or creates it.
    pub fn agent(&self, id: impl Into<SessionId>) -> AgentBuilder {
        AgentBuilder::new(self.clone(), id.into())
    }

    /// The live agent of an id.
    pub fn find_agent(&self, id: &str) -> Option<Agent> {
        self.root.agents.get(id)
    }

    /// The live agents, in order of registration.
    pub fn agents(&self) -> Vec<Agent> {
        self.root.agents.list()
    }

    /// Forks a bare session from a live one, up to and including the event `at` (FORK). Giving the child's id makes it safe
    /// to repeat: when that very fork is live already, it is returned.
    pub fn fork_session(&self, from: &str, at: Option<u64>, id: Option<SessionId>) -> Result<Session> {
        self.root.fork_session(from, at, id)
    }

    /// The events that a fork of a live session starts from. Fails with `SESSION_NOT_FOUND` when no session of its id is
    /// live, and with `SESSION_NOT_LIVE` when another one is: an equal-looking object of an earlier life (FORK-08).
    pub fn fork_seed(&self, from: &Session, at: Option<u64>) -> Result<Vec<Arc<Event>>> {
        let refused =
            |code, what: &str| Err(Error::new(code, format!("{what} {:?}", from.id())).with("id", from.id().as_str()));
        match self.root.session(from.id()) {
            Some(live) if live.is_same(from) => {}
            Some(_) => return refused(Code::SessionNotLive, "this is not the live session"),
            None => return refused(Code::SessionNotFound, "no live session"),
        }
        root::fork_seed(from, at)
    }

    /// Disposes every agent, makes everything durable, and undoes what was registered. The runtime stays usable for
    /// whoever still waits on it, and [`Context::reopen`] gives the root back empty.
    ///
    /// Fails with `SELF_WAIT` inside a turn of one of its own agents: closing waits for that turn. Fails with the store's
    /// error, when all else is done, if events could not be stored.
    pub async fn close(&self) -> Result<()> {
        if let Some(agent) = self.root.current_initiator() {
            agent.check_no_self_wait()?;
        }
        let boundaries = &self.root.boundaries;
        boundaries.begin_closing();
        let drained = boundaries.drained();
        let stored = self.root.close().await;
        drained.await;
        self.fiber.clone().dispose().await;
        boundaries.dispose();
        stored
    }

    /// For bindings that end a runtime without waiting: lets go of the agents of a runtime that is closed. They and
    /// their root hold each other otherwise, when closing had to wait for something, and with them what the host registered.
    #[doc(hidden)]
    pub fn abandon(&self) {
        self.root.abandon();
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.own_agent() {
            Some(agent) => write!(f, "Context(of {:?})", agent.id()),
            None => f.write_str("Context"),
        }
    }
}
