//! The root: the shared state behind all contexts of one runtime.

use super::service::ServiceTable;
use crate::agent::{Agent, AgentInner, Boundaries, Commands, Hub, Notice, NoticeKind, Registry};
use crate::agent_loop::config::{ParallelLimits, check_parallel};
use crate::error::{Code, Error, Result};
use crate::id::SessionId;
use crate::llm::ModelTable;
use crate::runtime::Runtime;
use crate::scope::{ScopeKey, Scopes};
use crate::session::{Event, EventData, EventTypes, Session, SessionHeader};
use crate::storage::Coordinator;
use crate::system_prompt::PromptTable;
use crate::tools::ToolTable;
use once_cell::unsync::OnceCell;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

/// Limits on what may be spent; none is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Model requests with what follows from them.
    pub steps: Option<u64>,
    /// Tool calls.
    pub tool_calls: Option<u64>,
    /// Tokens of all requests: input, cached input and output.
    pub tokens: Option<u64>,
    /// Time in turns, in milliseconds.
    pub wall_ms: Option<u64>,
}

impl Budget {
    pub(crate) fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// Options of the default loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopOptions {
    /// How many tool bodies of one step may overlap; at least 1 (CFG-14).
    pub max_parallel_tool_calls: usize,
    /// What one turn may spend; 200 steps by default.
    pub turn_budget: Budget,
    /// What one agent may spend in its session's life.
    pub agent_budget: Budget,
    /// How long a turn may take before it is cancelled; none by default.
    pub turn_timeout: Option<Duration>,
    /// How many bytes the content and the meta of one tool result may have, as they stand in the log; 16 MiB by default. A
    /// larger result becomes an error of the call, `TOOL_RESULT_TOO_LARGE`: nothing of it is logged or sent.
    pub max_tool_result_bytes: Option<u64>,
}

impl LoopOptions {
    /// Fails for a limit of overlapping tool bodies that is not positive.
    pub fn check(&self) -> Result<()> {
        check_parallel(self.max_parallel_tool_calls)
    }
}

impl Default for LoopOptions {
    fn default() -> Self {
        let turn_budget = Budget { steps: Some(200), ..Budget::default() };
        Self {
            max_parallel_tool_calls: 10,
            turn_budget,
            agent_budget: Budget::default(),
            turn_timeout: None,
            max_tool_result_bytes: Some(16 << 20),
        }
    }
}

/// The state that all contexts of one runtime share.
pub struct Root {
    /// The executor and ports.
    pub runtime: Runtime,
    /// Scope links.
    pub scopes: Scopes,
    /// Listener tables.
    pub hub: Hub,
    /// Live agents.
    pub agents: Registry,
    pub(crate) tools: ToolTable,
    pub(crate) prompt: PromptTable,
    pub(crate) models: ModelTable,
    pub(crate) services: ServiceTable,
    pub(crate) event_types: Rc<EventTypes>,
    pub(crate) plugin_events: crate::events::PluginEvents,
    pub(crate) plugins: crate::events::Channel<super::plugin::PluginObserver>,
    pub(crate) commands: OnceCell<Commands>,
    pub(crate) storage: Option<Rc<Coordinator>>,
    pub(crate) loop_options: Cell<LoopOptions>,
    pub(crate) parallel_limits: ParallelLimits,
    pub(crate) boundaries: Boundaries,
    pub(crate) has_loop: bool,
    sessions: RefCell<HashMap<SessionId, Session>>,
    next_session: Cell<u64>,
}

impl Root {
    pub(crate) fn new(
        runtime: Runtime,
        storage: Option<Rc<Coordinator>>,
        loop_options: LoopOptions,
        has_loop: bool,
    ) -> Rc<Self> {
        Rc::new(Self {
            hub: Hub::new(runtime.notifying()),
            runtime,
            scopes: Scopes::default(),
            agents: Registry::default(),
            tools: ToolTable::default(),
            prompt: PromptTable::default(),
            models: ModelTable::default(),
            services: ServiceTable::default(),
            event_types: Rc::default(),
            plugin_events: crate::events::PluginEvents::default(),
            plugins: crate::events::Channel::default(),
            commands: OnceCell::new(),
            storage,
            loop_options: Cell::new(loop_options),
            parallel_limits: ParallelLimits::default(),
            boundaries: Boundaries::default(),
            has_loop,
            sessions: RefCell::default(),
            next_session: Cell::new(1),
        })
    }

    /// How many tool bodies of one step may overlap now.
    pub(crate) fn max_parallel_tool_calls(&self) -> usize {
        let configured = self.loop_options.get().max_parallel_tool_calls.max(1);
        self.parallel_limits.in_force().unwrap_or(configured)
    }

    /// The live session of an id.
    pub fn session(&self, id: &str) -> Option<Session> {
        self.sessions.borrow().get(id).cloned()
    }

    /// Fails when a live session has this id.
    pub(crate) fn check_free(&self, id: &SessionId) -> Result<()> {
        if self.sessions.borrow().contains_key(id) {
            let message = format!("a session {id:?} is live; dispose its agent first or choose another id");
            return Err(Error::new(Code::SessionAlreadyExists, message).with("id", id.as_str()));
        }
        Ok(())
    }

    /// Makes a session findable and lets its events be heard (STORE-01).
    pub(crate) fn enter_session(
        self: &Rc<Self>,
        session: &Session,
        scope: Option<ScopeKey>,
        agent: Weak<AgentInner>,
    ) -> Result<()> {
        self.check_free(session.id())?;
        session.use_event_types(&self.event_types)?;
        self.sessions.borrow_mut().insert(session.id().clone(), session.clone());
        let root = Rc::downgrade(self);
        let checking = root.clone();
        session.set_check(Some(Rc::new(move |session, event| match checking.upgrade() {
            Some(root) if !root.hub.event_checks().is_empty() => {
                root.hub.check_event(&root.scopes, scope, session, event)
            }
            _ => Ok(()),
        })));
        session.set_publisher(Some(Rc::new(move |session, event| {
            let Some(root) = root.upgrade() else { return };
            root.hub.emit(&root.scopes, scope, NoticeKind::SessionEvent, || Notice::SessionEvent {
                session: session.clone(),
                agent: agent.upgrade().map(Agent),
                event: event.clone(),
            });
        })));
        Ok(())
    }

    /// Removes a session; its events are no longer heard.
    pub(crate) fn detach_session(&self, session: &Session, scope: Option<ScopeKey>, announced: bool) {
        let removed = {
            let mut sessions = self.sessions.borrow_mut();
            let same = sessions.get(session.id()).is_some_and(|live| live.is_same(session));
            if same { sessions.remove(session.id()) } else { None }
        };
        if removed.is_some() {
            session.set_publisher(None);
            session.set_check(None);
            if announced {
                let make = || Notice::SessionDisposed { session: session.clone() };
                self.hub.emit(&self.scopes, scope, NoticeKind::SessionDisposed, make);
            }
        }
        session.wake_watchers();
    }

    /// An id that no live session has (APP-18).
    pub(crate) fn free_session_id(&self) -> SessionId {
        loop {
            let next = self.next_session.get();
            self.next_session.set(next + 1);
            let id = SessionId::from(format!("session-{next}"));
            if !self.sessions.borrow().contains_key(&id) {
                return id;
            }
        }
    }

    /// Forks a bare session (FORK-01 to FORK-05).
    pub(crate) fn fork_session(self: &Rc<Self>, from: &str, at: Option<u64>, id: Option<SessionId>) -> Result<Session> {
        let id = id.unwrap_or_else(|| self.free_session_id());
        let child = self.session(&id).filter(|child| child.header().parent_session.as_deref() == Some(from));
        if child.is_none() {
            self.check_free(&id)?;
        }
        let source = self
            .session(from)
            .ok_or_else(|| Error::new(Code::SessionNotFound, format!("no live session {from:?}")).with("id", from))?;
        let seed = fork_seed(&source, at)?;
        if let Some(child) = child {
            // The answer to the first call may have been lost: the same fork is the same child.
            let is_the_same = at.is_some() && child.header().seed_length == Some(seed.len() as u64);
            return if is_the_same { Ok(child) } else { self.check_free(&id).map(|()| child) };
        }
        let mut header = SessionHeader::new(id, self.runtime.now_ms().max(0) as u64);
        header.cwd = source.header().cwd.clone();
        header.parent_session = Some(source.id().clone());
        header.seed_length = Some(seed.len() as u64);
        let session = Session::seeded(&self.runtime, header, seed)?;
        self.enter_session(&session, None, Weak::new())?;
        let notice = Notice::SessionCreated { session: session.clone() };
        if let Err(error) = self.hub.emit_or_veto(&self.scopes, None, &notice) {
            self.detach_session(&session, None, true);
            return Err(error);
        }
        Ok(session)
    }

    /// Disposes every agent, gives up what is being opened, and makes everything durable.
    pub(crate) async fn close(&self) -> Result<()> {
        let mut disposals: Vec<_> = self.agents.list().iter().map(Agent::dispose).collect();
        disposals.push(self.agents.unload_factory());
        for disposal in disposals {
            disposal.await;
        }
        let sessions: Vec<_> = self.sessions.borrow().values().cloned().collect();
        for session in sessions {
            self.detach_session(&session, None, true);
        }
        match &self.storage {
            Some(storage) => storage.close().await,
            None => Ok(()),
        }
    }

    /// Lets go of agents and sessions as they are.
    pub(crate) fn abandon(&self) {
        self.agents.abandon();
        let sessions = std::mem::take(&mut *self.sessions.borrow_mut());
        drop(sessions);
    }
}

/// The inclusive prefix that a fork takes over (FORK-03, FORK-04).
pub(super) fn fork_seed(source: &Session, at: Option<u64>) -> Result<Vec<Arc<Event>>> {
    let events = source.log_so_far();
    let boundary = match at {
        None if events.is_empty() => return Ok(Vec::new()),
        None => events.len() as u64 - 1,
        Some(at) => at,
    };
    if boundary >= events.len() as u64 {
        let message = format!("session {:?} has no event {boundary}", source.id());
        return Err(Error::new(Code::InvalidBoundary, message).with("seq", boundary));
    }
    let last_edge = events.marks().rev().filter(|event| event.seq <= boundary).find_map(|event| match event.data {
        EventData::TurnStart { .. } => Some(true),
        EventData::TurnEnd { .. } => Some(false),
        _ => None,
    });
    if last_edge == Some(true) {
        let message = format!("event {boundary} lies inside a turn; fork at or after its turn/end");
        return Err(Error::new(Code::OpenTurn, message).with("seq", boundary));
    }
    Ok(events.iter().take(boundary as usize + 1).collect())
}
