//! One core, and what JavaScript and native code know of each other: keys for native things, numbers for JavaScript's.

use crate::promises::{Exported, Slot};
use crate::raw::Js;
use crate::realm::{self, Realm, lock, next_id};
use rustc_hash::FxHashMap as HashMap;
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use turnwheel::agent::{Notice, NoticeKind};
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::error_from_value;
use turnwheel::id::{MessageId, SessionId};
use turnwheel::json::Value;
use turnwheel::runtime::Runtime;
use turnwheel::session::History;
use turnwheel::{Agent, AgentStatus, Context, Session};

/// Something that the JavaScript half keeps under a number until this is dropped, on whatever thread.
pub struct Kept {
    core: u64,
    id: u64,
    graveyard: Arc<Mutex<Vec<u64>>>,
}

impl Kept {
    /// The number.
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        lock(&self.graveyard).push(self.id);
    }
}

/// An exception of JavaScript on its way through the core.
struct Thrown(Kept);

/// A session, with the agent that drives it, as JavaScript names them: by one key.
pub struct Seat {
    /// The session.
    pub session: Session,
    /// The agent; none for a bare session, and before the agent is there.
    agent: OnceCell<Agent>,
    /// Whether JavaScript has an object for it, and will say when that is gone.
    is_held: Cell<bool>,
    /// How many bytes of it the garbage collector was told of.
    told: Cell<i64>,
}

/// About what an event costs in memory.
const EVENT_BYTES: u64 = 512;

/// See the module.
pub struct Host {
    /// Its number.
    pub id: u64,
    /// The JavaScript half.
    pub realm: Rc<Realm>,
    /// The core's executor.
    pub runtime: Runtime,
    /// The root context.
    pub ctx: Context,
    /// Whether something was woken on this thread and nobody pumped since.
    pub is_dirty: Arc<AtomicBool>,
    arena: RefCell<HashMap<u64, Rc<dyn Any>>>,
    seats: RefCell<HashMap<SessionId, u64>>,
    /// Seats whose sessions are over.
    vacated: RefCell<Vec<u64>>,
    graveyard: Arc<Mutex<Vec<u64>>>,
    /// The asynchronous context in which a message was sent, until a turn takes it.
    sent: RefCell<HashMap<MessageId, Rc<Kept>>>,
    /// The asynchronous context of each agent's turn.
    turns: RefCell<HashMap<SessionId, Rc<Kept>>>,
    /// The histories that JavaScript has read last, by session.
    histories: RefCell<HashMap<SessionId, History>>,
    pub(crate) exported: RefCell<HashMap<u64, Rc<Exported>>>,
    pub(crate) pending: RefCell<HashMap<u64, Rc<Slot>>>,
    is_closed: Cell<bool>,
    /// How many agents are in a turn.
    running: Cell<usize>,
    /// Whether agents start by themselves.
    starts_agents: Cell<bool>,
    /// What JavaScript was told last: whether something is under way.
    is_busy: Cell<bool>,
}

impl Host {
    /// A core on a realm.
    pub fn new(realm: Rc<Realm>, ctx: Context) -> Result<Rc<Self>> {
        let (id, is_dirty) = (next_id(), Arc::new(AtomicBool::new(false)));
        let host = Rc::new(Host {
            id,
            runtime: ctx.runtime().clone(),
            ctx: ctx.clone(),
            is_dirty: is_dirty.clone(),
            arena: RefCell::default(),
            seats: RefCell::default(),
            vacated: RefCell::default(),
            graveyard: Arc::default(),
            sent: RefCell::default(),
            turns: RefCell::default(),
            histories: RefCell::default(),
            exported: RefCell::default(),
            pending: RefCell::default(),
            is_closed: Cell::new(false),
            running: Cell::new(0),
            starts_agents: Cell::new(false),
            is_busy: Cell::new(false),
            realm,
        });
        host.runtime.set_notify_hook(Some(host.realm.notify_hook(id, is_dirty)));
        follow_turns(&host, &ctx)?;
        realm::enter(host.clone());
        Ok(host)
    }

    /// Gives a value to this core; gives its key.
    pub fn put<T: 'static>(&self, value: T) -> u64 {
        let key = next_id();
        self.arena.borrow_mut().insert(key, Rc::new(value));
        key
    }

    /// The value of a key.
    pub fn get<T: 'static>(&self, key: u64) -> Result<Rc<T>> {
        let value = self.arena.borrow().get(&key).cloned();
        value.and_then(|value| value.downcast::<T>().ok()).ok_or_else(|| {
            let message = "this object is over: what it belonged to has ended or was closed";
            Error::new(Code::RuntimeClosed, message)
        })
    }

    /// Drops a value, outside the borrow: it may own anything.
    pub fn remove(&self, key: u64) {
        let removed = self.arena.borrow_mut().remove(&key);
        if let Some(Ok(seat)) = removed.map(Rc::downcast::<Seat>) {
            if seat.told.get() != 0 {
                self.realm.env.adjust_external(-seat.told.get());
            }
            let mut seats = self.seats.borrow_mut();
            if seats.get(seat.session.id()) == Some(&key) {
                seats.remove(seat.session.id());
            }
            drop(seats);
        }
    }

    /// The key of a session, the same as long as JavaScript knows it.
    pub fn seat(&self, session: &Session, agent: Option<&Agent>) -> u64 {
        let known = self.seats.borrow().get(session.id()).copied();
        if let Some(key) = known
            && let Ok(seat) = self.get::<Seat>(key)
            && seat.session.is_same(session)
        {
            if let Some(agent) = agent {
                seat.agent.get_or_init(|| agent.clone());
            }
            return key;
        }
        let seat =
            Seat { session: session.clone(), agent: OnceCell::new(), is_held: Cell::new(false), told: Cell::new(0) };
        if let Some(agent) = agent {
            seat.agent.get_or_init(|| agent.clone());
        }
        let key = self.put(seat);
        self.seats.borrow_mut().insert(session.id().clone(), key);
        key
    }

    /// JavaScript has an object for a seat from now on.
    pub fn hold(&self, key: u64) {
        if let Ok(seat) = self.get::<Seat>(key) {
            seat.is_held.set(true);
        }
    }

    /// Drops the seats of sessions that are over, unless JavaScript has objects for them.
    fn clear_vacated(&self) {
        if self.vacated.borrow().is_empty() {
            return;
        }
        for key in self.vacated.take() {
            let Ok(seat) = self.get::<Seat>(key) else { continue };
            if !seat.is_held.get() {
                self.remove(key);
            } else if seat.told.get() == 0 {
                // A small object is all that the collector sees of a session that is over, and it would not hurry.
                let bytes = i64::try_from(seat.session.len().saturating_mul(EVENT_BYTES)).unwrap_or(i64::MAX);
                seat.told.set(bytes);
                self.realm.env.adjust_external(bytes);
            }
        }
    }

    /// How many messages of `history` JavaScript has, if it still has `have` of those it read last; and that it reads this.
    pub fn read_history(&self, session: &SessionId, history: &History, have: usize) -> usize {
        let before = self.histories.borrow_mut().insert(session.clone(), history.clone());
        before.filter(|before| before.len() == have && history.extends(before)).map_or(0, |before| before.len())
    }

    /// As [`Host::seat`], for an agent.
    pub fn seat_of(&self, agent: &Agent) -> u64 {
        self.seat(agent.session(), Some(agent))
    }

    /// The agent of a seat.
    pub fn agent(&self, key: u64) -> Result<Agent> {
        let seat = self.get::<Seat>(key)?;
        if let Some(agent) = seat.agent.get() {
            return Ok(agent.clone());
        }
        let agent = self.ctx.find_agent(seat.session.id()).filter(|agent| agent.session().is_same(&seat.session));
        let gone = || Error::new(Code::Disposed, format!("session {:?} has no agent", &**seat.session.id()));
        agent.inspect(|agent| drop(seat.agent.set(agent.clone()))).ok_or_else(gone)
    }

    /// Names something that JavaScript keeps.
    pub fn kept(&self, id: u64) -> Kept {
        Kept { core: self.id, id, graveyard: self.graveyard.clone() }
    }

    /// Tells JavaScript what nobody names any more.
    pub fn forget_released(&self) {
        self.clear_vacated();
        let released = std::mem::take(&mut *lock(&self.graveyard));
        if released.is_empty() {
            return;
        }
        let env = self.realm.env;
        for some in released.chunks(64) {
            env.scoped(|| {
                let mut arguments = vec![env.number(self.id as f64)];
                arguments.extend(some.iter().map(|id| env.number(*id as f64)));
                env.call(&self.realm.js.released, &arguments);
            });
        }
    }

    /// The error of an exception, as JavaScript described it: `{message, code?, name?, failure?, kept}`.
    pub fn error_from(&self, json: &str) -> Error {
        let value = turnwheel::json::parse_lossy(json.as_bytes()).map_or(Value::Null, |parsed| parsed.value);
        let error = error_from_value(&value);
        match value.get("kept").and_then(Value::as_u64) {
            Some(id) => error.with_host(Arc::new(Thrown(self.kept(id)))),
            None => error,
        }
    }

    /// The number of the exception that an error is, if JavaScript threw it here.
    pub fn thrown(&self, error: &Error) -> Option<u64> {
        let thrown = error.host_object()?.downcast_ref::<Thrown>()?;
        (thrown.0.core == self.id).then_some(thrown.0.id)
    }

    /// A JavaScript error.
    pub fn error(&self, error: &Error) -> Js {
        self.realm.error(Some(self), error)
    }

    /// Remembers in which asynchronous context a message was sent: the turn that takes it runs its callbacks there. Gives
    /// what was remembered before.
    pub fn remember_sender(&self, message: &MessageId, context: Option<Rc<Kept>>) -> Option<Rc<Kept>> {
        let mut sent = self.sent.borrow_mut();
        match context {
            Some(context) => sent.insert(message.clone(), context),
            None => sent.get(message).cloned(),
        }
    }

    /// The message was not accepted: what was remembered before holds again.
    pub fn restore_sender(&self, message: &MessageId, before: Option<Rc<Kept>>) {
        let mut sent = self.sent.borrow_mut();
        let now = match before {
            Some(before) => sent.insert(message.clone(), before),
            None => sent.remove(message),
        };
        drop(sent);
        drop(now);
    }

    /// The number of the asynchronous context of an agent's turn; 0 outside any.
    pub fn context_of(&self, agent: Option<&Agent>) -> u64 {
        agent.and_then(|agent| self.turns.borrow().get(agent.id()).map(|context| context.id)).unwrap_or_default()
    }

    /// Whether something is under way that may call JavaScript, if that has changed since it was asked last.
    pub fn busy_change(&self) -> Option<bool> {
        let is_busy = !self.is_closed.get()
            && (self.running.get() > 0
                || self.starts_agents.get()
                || !self.exported.borrow().is_empty()
                || !self.pending.borrow().is_empty());
        (self.is_busy.replace(is_busy) != is_busy).then_some(is_busy)
    }

    /// Agents start by themselves from now on: the core is never idle for good.
    pub fn starts_agents(&self) {
        self.starts_agents.set(true);
    }

    /// Ends a core whose JavaScript half is gone: in order, and without it.
    pub fn end_unattended(self: &Rc<Self>) {
        let host = self.clone();
        self.runtime.spawn(async move {
            if let Err(error) = host.ctx.close().await {
                realm::warn(&format!("a context that nobody closed did not end in order: {error}"));
            }
            host.close();
        });
    }

    /// Drops the core. Keys stay and say so.
    pub fn close(&self) {
        if self.is_closed.replace(true) {
            return;
        }
        self.runtime.close();
        let arena = std::mem::take(&mut *self.arena.borrow_mut());
        let told = |value: &Rc<dyn Any>| value.downcast_ref::<Seat>().map_or(0, |seat| seat.told.get());
        let told: i64 = arena.values().map(told).sum();
        if told != 0 {
            self.realm.env.adjust_external(-told);
        }
        drop(arena);
        let (sent, turns) = (self.sent.take(), self.turns.take());
        drop((sent, turns));
        realm::leave(self.id);
    }

    /// Runs `operation` as the doing of the agent of a seat, in the turn whose asynchronous context has that number, if
    /// that turn is still under way. Seat 0 is nobody.
    pub fn as_caller<T>(&self, seat: u64, context: u64, operation: impl FnOnce() -> T) -> T {
        let agent = (seat != 0).then(|| self.agent(seat).ok()).flatten();
        let is_under_way =
            |agent: &Agent| self.context_of(Some(agent)) == context && agent.status() == AgentStatus::Running;
        match agent.filter(is_under_way) {
            Some(agent) => self.ctx.root().with_initiator(&agent, operation),
            None => operation(),
        }
    }
}

fn follow_turns(host: &Rc<Host>, ctx: &Context) -> Result<()> {
    let weak = Rc::downgrade(host);
    ctx.on(NoticeKind::Claimed, move |notice| {
        if let (Some(host), Notice::Claimed { agent, message, .. }) = (weak.upgrade(), notice) {
            let sent = host.sent.borrow_mut().remove(message.id());
            let before = match sent {
                Some(context) => host.turns.borrow_mut().insert(agent.id().clone(), context),
                None => None,
            };
            drop(before);
        }
        Ok(())
    })?;
    let weak = Rc::downgrade(host);
    ctx.on(NoticeKind::Status, move |notice| {
        if let (Some(host), Notice::Status { status, .. }) = (weak.upgrade(), notice) {
            let running = host.running.get();
            host.running.set(match status {
                AgentStatus::Running => running + 1,
                AgentStatus::Idle => running.saturating_sub(1),
            });
        }
        Ok(())
    })?;
    let weak = Rc::downgrade(host);
    ctx.on(NoticeKind::Discarded, move |notice| {
        if let (Some(host), Notice::Discarded { message, .. }) = (weak.upgrade(), notice) {
            host.restore_sender(message.id(), None);
        }
        Ok(())
    })?;
    let weak = Rc::downgrade(host);
    ctx.on(NoticeKind::Disposed, move |notice| {
        if let (Some(host), Notice::Disposed { agent }) = (weak.upgrade(), notice) {
            let context = host.turns.borrow_mut().remove(agent.id());
            drop(context);
        }
        Ok(())
    })?;
    let weak = Rc::downgrade(host);
    ctx.on(NoticeKind::SessionDisposed, move |notice| {
        if let (Some(host), Notice::SessionDisposed { session }) = (weak.upgrade(), notice) {
            host.histories.borrow_mut().remove(session.id());
            let seat = host.seats.borrow().get(session.id()).copied();
            host.vacated.borrow_mut().extend(seat);
        }
        Ok(())
    })?;
    Ok(())
}
