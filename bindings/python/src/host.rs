//! One host per context: the core on an event loop's thread, and its pump.
//!
//! A wake on the loop's own thread schedules one `call_soon`: what follows a user's synchronous call waits for the
//! loop. Completions pump inline, because nothing of the user's is on the stack below them. A wake from another thread
//! writes one byte to a socket that the loop watches, so background threads never need the interpreter lock.

use crate::agent::{self, AgentRef};
use crate::captured::{Captured, reset_initiator};
use crate::convert;
use crate::ctx::CtxRef;
use crate::errors::{IntoPyResult, IntoResult, invalid, to_py};
use crate::gate::{Arena, Handle, Owner, guarded, hosts_here};
use crate::session::SessionRef;
use crate::stores::{self, HostCell};
use crate::tasks::EventLoop;
use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use turnwheel::agent::{AgentStatus, Notice, NoticeKind};
use turnwheel::config::ConfiguredAgent;
use turnwheel::context::{Budget, LoopOptions};
use turnwheel::id::{MessageId, SessionId};
use turnwheel::runtime::{PumpState, Runtime};
use turnwheel::storage::{Durability, Store};
use turnwheel::{Agent, Context};

/// The state behind a host, reachable on its own thread only.
pub struct HostState {
    pub owner: Owner,
    pub runtime: Runtime,
    pub ctx: Context,
    pub arena: Arena,
    pub event_loop: EventLoop,
    /// The Python `Context`: makes the objects that listeners get.
    pub frontend: Py<PyAny>,
    base: Rc<Captured>,
    pump: RefCell<Option<(Py<PyAny>, Py<PyAny>)>>,
    completing: Arc<AtomicBool>,
    wakes: UnixStream,
    fatal: RefCell<Option<PyErr>>,
    closed: Cell<bool>,
    sent: RefCell<HashMap<MessageId, Captured>>,
    turns: RefCell<HashMap<SessionId, Rc<Captured>>>,
    /// This host, for stores that are made before it.
    cell: HostCell,
}

impl HostState {
    /// Runs a completion: what it wakes is pumped before this returns.
    pub fn complete(self: &Rc<Self>, py: Python<'_>, completion: impl FnOnce()) -> PyResult<()> {
        let outer = self.completing.swap(true, Ordering::Relaxed);
        let done = guarded(|| {
            completion();
            Ok(())
        });
        self.completing.store(outer, Ordering::Relaxed);
        done.and(self.pump_now(py))
    }

    fn pump_now(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        for key in self.owner.take_buried() {
            self.arena.remove(key);
        }
        let state = guarded(|| Ok(self.runtime.pump()))?;
        if state == PumpState::More {
            let pump = self.pump.borrow().as_ref().map(|(soon, pump)| (soon.clone_ref(py), pump.clone_ref(py)));
            if let Some((call_soon, pump)) = pump {
                call_soon.call1(py, (pump,))?;
            }
        }
        let fatal = self.fatal.borrow_mut().take();
        fatal.map_or(Ok(()), Err)
    }

    /// Remembers an exception that must end the program and not only a callback; the pump raises it.
    pub fn note_fatal(&self, py: Python<'_>, raised: &PyErr) {
        if raised.is_instance_of::<PyKeyboardInterrupt>(py) || raised.is_instance_of::<PySystemExit>(py) {
            *self.fatal.borrow_mut() = Some(raised.clone_ref(py));
        }
    }

    /// Gives a value to this host.
    pub fn handle<T: 'static>(&self, value: T) -> Handle<T> {
        Handle::new(self, value)
    }

    /// Remembers in which context a message was sent: the turn that takes it runs its callbacks there.
    pub fn remember_sender(&self, py: Python<'_>, message: &MessageId) -> PyResult<()> {
        let captured = Captured::current(py)?;
        self.sent.borrow_mut().insert(message.clone(), captured);
        Ok(())
    }

    /// Forgets a message that was not accepted.
    pub fn forget_sender(&self, message: &MessageId) {
        let captured = self.sent.borrow_mut().remove(message);
        drop(captured);
    }

    /// The context of an agent's turn; `otherwise` outside any.
    pub fn context_of(&self, agent: Option<&Agent>, otherwise: &Rc<Captured>) -> Rc<Captured> {
        let turn = agent.and_then(|agent| self.turns.borrow().get(agent.id()).cloned());
        turn.unwrap_or_else(|| otherwise.clone())
    }

    fn begin_turn(&self, agent: &Agent, message: &MessageId, turn: u64) {
        let sent = self.sent.borrow_mut().remove(message);
        let captured = Python::attach(|py| {
            let from = sent.as_ref().unwrap_or(&self.base);
            from.of_turn(py, self.owner.id(), agent.id(), turn)
        });
        if let Ok(captured) = captured {
            let before = self.turns.borrow_mut().insert(agent.id().clone(), Rc::new(captured));
            drop(before);
        }
    }

    fn follow_turns(this: &Weak<Self>, ctx: &Context) -> turnwheel::Result<()> {
        let on = |kind, follow: fn(&HostState, &Notice)| {
            let host = this.clone();
            ctx.on(kind, move |notice| {
                if let Some(host) = host.upgrade() {
                    follow(&host, notice);
                }
                Ok(())
            })
        };
        on(NoticeKind::Claimed, |host, notice| {
            if let Notice::Claimed { agent, message, turn } = notice {
                host.begin_turn(agent, message.id(), *turn);
            }
        })?;
        on(NoticeKind::Discarded, |host, notice| {
            if let Notice::Discarded { message, .. } = notice {
                host.forget_sender(message.id());
            }
        })?;
        on(NoticeKind::Disposed, |host, notice| {
            let Some(agent) = notice.agent() else { return };
            let captured = host.turns.borrow_mut().remove(agent.id());
            drop(captured);
            let mut sent = host.sent.borrow_mut();
            let (gone, kept) = sent.drain().partition(|(id, _)| agent.session().delivery(id).is_some());
            *sent = kept;
            drop(sent);
            let gone: HashMap<MessageId, Captured> = gone;
            drop(gone);
        })?;
        Ok(())
    }

    fn kill(self: &Rc<Self>, py: Python<'_>) {
        if self.closed.replace(true) {
            return;
        }
        // A closed loop has no readers any more and says so.
        let _ = self.event_loop.get(py).call_method1("remove_reader", (self.wakes.as_raw_fd(),));
        self.runtime.close();
        let pump = self.pump.borrow_mut().take();
        drop(pump);
        self.arena.clear();
        let host = self.owner.leave();
        drop(host);
    }
}

/// Ends every host of this thread, before the interpreter goes away.
pub fn shutdown(py: Python<'_>) {
    for host in hosts_here() {
        host.kill(py);
    }
}

/// The options of a host's context.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct HostOptions {
    store: Option<Py<PyAny>>,
    durability: String,
    max_parallel_tool_calls: usize,
    turn_budget: HashMap<String, Option<u64>>,
    agent_budget: HashMap<String, Option<u64>>,
    turn_timeout: Option<f64>,
    max_tool_result_bytes: Option<u64>,
}

/// The Python side has checked the names.
fn budget(limits: &HashMap<String, Option<u64>>) -> Budget {
    let limit = |name: &str| limits.get(name).copied().flatten();
    Budget {
        steps: limit("steps"),
        tool_calls: limit("tool_calls"),
        tokens: limit("tokens"),
        wall_ms: limit("wall_ms"),
    }
}

impl HostOptions {
    fn build(self, py: Python<'_>, host: &HostCell) -> PyResult<Context> {
        let durability = Durability::parse(&self.durability).ok_or_else(|| {
            invalid(format!("durability is effects, every-event, turn or relaxed, not {:?}", self.durability))
        })?;
        let loop_options = LoopOptions {
            max_parallel_tool_calls: self.max_parallel_tool_calls,
            turn_budget: budget(&self.turn_budget),
            agent_budget: budget(&self.agent_budget),
            turn_timeout: self
                .turn_timeout
                .map(Duration::try_from_secs_f64)
                .transpose()
                .map_err(|error| invalid(error.to_string()))?,
            max_tool_result_bytes: self.max_tool_result_bytes,
        };
        let builder = Context::builder().durability(durability).loop_options(loop_options);
        Ok(match self.store {
            None => builder.build(),
            Some(store) => builder.store(stores::store(host, store.bind(py))?).build(),
        })
    }
}

/// The core on one event loop.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
pub struct Host {
    owner: Owner,
    root: Py<CtxRef>,
}

#[pymethods]
impl Host {
    #[new]
    fn new(
        py: Python<'_>,
        event_loop: &Bound<'_, PyAny>,
        frontend: Py<PyAny>,
        options: HostOptions,
    ) -> PyResult<Py<Self>> {
        let cell = HostCell::default();
        let ctx = guarded(|| options.build(py, &cell))?;
        let failed = |error: std::io::Error| invalid(format!("no socket pair for wakes: {error}"));
        let (wakes, waker) = UnixStream::pair().map_err(failed)?;
        wakes.set_nonblocking(true).map_err(failed)?;
        waker.set_nonblocking(true).map_err(failed)?;
        let host = Rc::new(HostState {
            owner: Owner::new(),
            runtime: ctx.runtime().clone(),
            ctx: ctx.clone(),
            arena: Arena::default(),
            event_loop: EventLoop::new(event_loop)?,
            frontend,
            base: Rc::new(Captured::current(py)?),
            pump: RefCell::new(None),
            completing: Arc::default(),
            wakes,
            fatal: RefCell::new(None),
            closed: Cell::new(false),
            sent: RefCell::default(),
            turns: RefCell::default(),
            cell: cell.clone(),
        });
        let _ = cell.set(Rc::downgrade(&host));
        host.owner.enter(host.clone());
        HostState::follow_turns(&Rc::downgrade(&host), &ctx).or_raise()?;
        let root = Py::new(py, CtxRef::new(&host, ctx))?;
        let this = Py::new(py, Host { owner: host.owner.clone(), root })?;
        let pump = this.getattr(py, "pump")?;
        let call_soon = event_loop.getattr("call_soon")?.unbind();
        event_loop.call_method1("add_reader", (host.wakes.as_raw_fd(), this.getattr(py, "on_wake")?))?;
        *host.pump.borrow_mut() = Some((call_soon.clone_ref(py), pump.clone_ref(py)));
        let completing = host.completing.clone();
        host.runtime.set_notify_hook(Some(Arc::new(move |on_owner_thread| {
            if !on_owner_thread {
                // Full means that a wake is waiting already.
                let _ = (&waker).write(&[1]);
            } else if !completing.load(Ordering::Relaxed) {
                Python::try_attach(|py| call_soon.call1(py, (&pump,)).map(drop));
            }
        })));
        Ok(this)
    }

    /// Its number, by which `doing` names it.
    #[getter]
    fn number(&self) -> u64 {
        self.owner.id()
    }

    /// The root context.
    #[getter]
    fn root(&self, py: Python<'_>) -> Py<CtxRef> {
        self.root.clone_ref(py)
    }

    /// Polls what was woken. Called by the loop.
    fn pump(&self, py: Python<'_>) -> PyResult<()> {
        self.owner.host().map_or(Ok(()), |host| host.pump_now(py))
    }

    /// A background thread woke something. Called by the loop.
    fn on_wake(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(host) = self.owner.host() else { return Ok(()) };
        let mut bytes = [0; 64];
        let _ = (&host.wakes).read(&mut bytes);
        host.pump_now(py)
    }

    /// Whether this host can still be used; raises on a foreign thread and after a fork.
    fn check(&self) -> PyResult<bool> {
        let error = match self.owner.host() {
            Ok(_) => return Ok(true),
            Err(error) => error,
        };
        if self.owner.is_here() { Ok(false) } else { Err(error) }
    }

    /// Whether this host can still be used on this thread.
    fn is_alive(&self) -> bool {
        self.owner.host().is_ok()
    }

    /// Opens an agent: a future of its handle.
    #[pyo3(signature = (id, options, setup=None, owner=None))]
    fn open_agent(
        &self,
        py: Python<'_>,
        id: &str,
        options: &Bound<'_, PyAny>,
        setup: Option<Py<PyAny>>,
        owner: Option<&CtxRef>,
    ) -> PyResult<Py<PyAny>> {
        let host = self.owner.host()?;
        let options = convert::argument(options, "options")?;
        guarded(|| {
            let ctx = owner.map_or_else(|| Ok(host.ctx.clone()), CtxRef::context)?;
            let opening = agent::open(py, &host, &ctx, id, &options, setup)?;
            let weak = Rc::downgrade(&host);
            host.as_caller(py, || {
                host.export(py, async move {
                    let opened = opening.await;
                    Python::attach(|py| {
                        let agent = opened.map_err(|error| to_py(py, &error))?;
                        let host = weak.upgrade().ok_or_else(|| invalid("the context is closed"))?;
                        Ok(Py::new(py, AgentRef::new(&host, agent))?.into_any())
                    })
                })
            })
        })
    }

    /// Opens agents as an application's configuration would.
    fn start_agents(&self, py: Python<'_>, entries: &Bound<'_, PyAny>) -> PyResult<()> {
        let host = self.owner.host()?;
        let entries = convert::argument(entries, "entries")?;
        let entries = entries.as_array().unwrap_or_default().iter().map(ConfiguredAgent::from_value);
        let entries = entries.collect::<turnwheel::Result<Vec<_>>>().or_raise()?;
        guarded(|| host.as_caller(py, || host.ctx.start_agents(&entries)).or_raise())
    }

    /// The handle of a live agent.
    fn find_agent(&self, id: &str) -> PyResult<Option<AgentRef>> {
        let host = self.owner.host()?;
        Ok(host.ctx.find_agent(id).map(|agent| AgentRef::new(&host, agent)))
    }

    /// The ids of the live agents, in order of registration.
    fn agent_ids(&self) -> PyResult<Vec<String>> {
        let host = self.owner.host()?;
        Ok(host.ctx.agents().iter().map(|agent| agent.id().to_string()).collect())
    }

    /// The headers of stored sessions, a page: a future of a list of dicts.
    fn list_sessions(&self, py: Python<'_>, after: Option<String>, limit: usize) -> PyResult<Py<PyAny>> {
        let host = self.owner.host()?;
        let (ctx, after) = (host.ctx.clone(), after.map(SessionId::from));
        host.export(py, async move {
            let headers = ctx.list_sessions(after.as_ref(), limit).await;
            Python::attach(|py| stores::headers_to_py(py, &headers.map_err(|error| to_py(py, &error))?))
        })
    }

    /// Copies a session from another store, or to it: a future of what was copied.
    fn copy_session(&self, py: Python<'_>, other: &Bound<'_, PyAny>, id: String, imports: bool) -> PyResult<Py<PyAny>> {
        let host = self.owner.host()?;
        let (ctx, other) = (host.ctx.clone(), stores::store(&host.cell, other)?);
        host.export(py, async move {
            let copied = match imports {
                true => ctx.import_session(&*other, id).await,
                false => ctx.export_session(&*other, id).await,
            };
            Python::attach(|py| stores::copied_to_py(py, &copied.map_err(|error| to_py(py, &error))?))
        })
    }

    /// Runs one case of the store suite: a future that fails with what was found.
    fn check_store(&self, py: Python<'_>, case: String, open: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let host = self.owner.host()?;
        let cell = host.cell.clone();
        let open = move || -> turnwheel::Result<Rc<dyn Store>> {
            Python::attach(|py| open.call0(py).and_then(|store| stores::store(&cell, store.bind(py)))).or_error()
        };
        host.export_done(py, async move { turnwheel::testing::check_store(&case, open).await })
    }

    /// The agent whose doing the calling code is. With `required` it raises `NO_INITIATOR` where there is none.
    fn initiator(&self, py: Python<'_>, required: bool) -> PyResult<Option<AgentRef>> {
        let host = self.owner.host()?;
        let agent = host.as_caller(py, || match required {
            true => host.ctx.require_initiator().map(Some),
            false => host.ctx.initiator(),
        });
        Ok(agent.or_raise()?.map(|agent| AgentRef::new(&host, agent)))
    }

    /// Makes what the calling code does an agent's doing, or nobody's: the token takes it back.
    #[pyo3(signature = (agent=None))]
    fn enter_initiator(&self, py: Python<'_>, agent: Option<&AgentRef>) -> PyResult<Py<PyAny>> {
        let host = self.owner.host()?;
        let agent = agent.map(AgentRef::agent).transpose()?;
        // The core refuses boundaries while it closes.
        match &agent {
            Some(agent) => host.ctx.with_initiator(agent, || ()),
            None => host.ctx.without_initiator(|| ()),
        }
        .or_raise()?;
        host.set_initiator(py, agent.as_deref())
    }

    /// Leaves what `enter_initiator` entered.
    fn leave_initiator(&self, py: Python<'_>, token: Py<PyAny>) -> PyResult<()> {
        reset_initiator(py, token)
    }

    /// Forks a bare session.
    #[pyo3(signature = (from_id, at=None, id=None))]
    fn fork_session(&self, from_id: &str, at: Option<i64>, id: Option<String>) -> PyResult<SessionRef> {
        let host = self.owner.host()?;
        // No log has such an event; the core says so of the last one that could be.
        let at = at.map(|at| u64::try_from(at).unwrap_or(u64::MAX));
        let session = guarded(|| host.ctx.fork_session(from_id, at, id.map(Into::into)).or_raise())?;
        Ok(SessionRef::new(&host, session))
    }

    /// Whether the calling code is part of a turn that is under way, which it would keep from ending.
    fn is_in_turn(&self, py: Python<'_>) -> PyResult<bool> {
        let host = self.owner.host()?;
        Ok(host.initiator(py).is_some_and(|agent| agent.status() == AgentStatus::Running))
    }

    /// Disposes every agent, makes everything durable and undoes what was registered.
    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let host = self.owner.host()?;
        let ctx = host.ctx.clone();
        host.export_done(py, async move { ctx.close().await })
    }

    /// Drops the core. Handles stay and say so.
    fn kill(&self, py: Python<'_>) {
        if let Ok(host) = self.owner.host() {
            host.kill(py);
        }
    }
}
