//! Agents: the handle that everything programs against. This module knows no loop: what drives an agent sits behind
//! [`Driver`], and can be replaced.

mod agents;
mod boundary;
mod events;
mod inbox;
mod initiator;
mod lifecycle;
mod publication;
mod registry;
mod remote;
mod run;
mod selection;

pub use agents::{Agents, Entered};
pub(crate) use boundary::Boundaries;
pub use boundary::Initiated;
pub use events::{
    EventCheck, Hub, Notice, NoticeKind, NoticeListener, PreStep, PreStepDecision, Recovery, RequestCheck,
    RequestErrorEvent, RequestEvent, StartSource, StoppingListener, TurnStopping, WATERFALL_NAMES, Waterfall,
    unknown_event,
};
pub use inbox::Inbox;
pub use publication::Publication;
pub use registry::{AgentFactory, AgentHandle, CreateOptions, Registry, ResumeOptions, Setup, SetupCommit};
pub use remote::AgentRef;
pub(crate) use remote::Commands;
pub use run::{EventStream, Parked, Receipt, ReceiptState, RunResult};
pub use selection::{ModelChoice, ModelSelection};

use crate::context::{Context, Root};
use crate::error::{Code, Error, Result};
use crate::id::{MessageId, SessionId};
use crate::json::{Object, Value};
use crate::message::Message;
use crate::runtime::{LocalBoxFuture, Signal, oneshot};
use crate::scope::ScopeKey;
use crate::session::{CancelCause, InboxTarget, Session};
use once_cell::unsync::OnceCell;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// The route and ceiling an agent asks for (ID-4). Everything is optional until a request is built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentOptions {
    /// The provider route.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// Output ceiling in tokens; positive.
    pub max_tokens: Option<u64>,
}

impl AgentOptions {
    /// Fails for a ceiling that is not positive or not a safe integer (ID-5).
    pub fn check(&self) -> Result<()> {
        match self.max_tokens {
            Some(limit) if limit == 0 || limit as f64 > crate::json::MAX_SAFE => {
                Err(Error::new(Code::InvalidArgument, format!("max_tokens must be a positive integer, not {limit}")))
            }
            _ => Ok(()),
        }
    }
}

/// What an agent is doing, as the public sees it (ST-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentStatus {
    /// Nothing drives turns.
    Idle,
    /// A driver drains turns.
    Running,
}

impl AgentStatus {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            AgentStatus::Idle => "idle",
            AgentStatus::Running => "running",
        }
    }
}

/// A plain record of what the driver is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentState {
    /// `idle`, `maintenance` or `running`.
    pub phase: &'static str,
    /// The turn under way, or the last one.
    pub turn: u64,
    /// The step under way; 0 outside one.
    pub step: u64,
    /// Calls whose tool bodies are running.
    pub running_tools: Vec<String>,
    /// Messages whose wake is remembered for when the activity under way has ended.
    pub latch: Vec<MessageId>,
    /// Pending messages that nothing is scheduled to read until the next wake.
    pub parked: Vec<MessageId>,
    /// Length of the next-step list.
    pub next_step: usize,
    /// Length of the next-turn list.
    pub next_turn: usize,
}

impl AgentState {
    /// The record as JSON.
    pub fn to_value(&self) -> Value {
        let ids = |ids: &[MessageId]| ids.iter().map(|id| Value::from(id.as_str())).collect::<Vec<_>>();
        let mut object = Object::new();
        object.insert("phase", self.phase);
        object.insert("turn", self.turn);
        object.insert("step", self.step);
        object.insert("runningTools", self.running_tools.iter().map(Value::from).collect::<Vec<_>>());
        object.insert("latch", ids(&self.latch));
        object.insert("parked", ids(&self.parked));
        object.insert("nextStep", self.next_step);
        object.insert("nextTurn", self.next_turn);
        Value::Object(object)
    }
}

/// A maintenance task as a driver takes it.
pub type MaintenanceTask = Box<dyn FnOnce(Signal) -> LocalBoxFuture<()>>;

/// What drives an agent. The default is the turn loop of `agent_loop`.
pub trait Driver {
    /// Inserts a message and, with `wakeup`, wakes the agent (WAKE-1, WAKE-2). `after_cancel` is what
    /// [`Driver::is_cancelled`] said when the sender called: a delivery that has to wait for a publication to unwind
    /// counts as sent then (D-02, WAKE-6).
    fn deliver(&self, message: Arc<Message>, target: InboxTarget, wakeup: bool, after_cancel: bool) -> Result<()>;
    /// Wakes the agent for what is pending, without a message; `after_cancel` as for a delivery.
    fn wake(&self, after_cancel: bool);
    /// Whether the activity under way has been cancelled: wakes that come in now are for a turn behind it (WAKE-5).
    fn is_cancelled(&self) -> bool {
        false
    }
    /// Cancels the activity under way. Clearing the inbox is not this method's business.
    fn abort(&self, cause: CancelCause, keep_inbox: bool);
    /// Whether there is an activity that can be cancelled.
    fn is_active(&self) -> bool {
        true
    }
    /// Forgets remembered wakes (WAKE-14): pending input is about to be discarded. A wake that comes in meanwhile is
    /// remembered, so that what survives the discarding is not stranded (P3).
    fn reset_latch(&self);
    /// What the public sees.
    fn status(&self) -> AgentStatus;
    /// What it is doing.
    fn state(&self) -> AgentState;
    /// Resolves when nothing is active, and nothing that replaced it (IDLE-2).
    fn when_idle(&self) -> LocalBoxFuture<()>;
    /// Runs a task in the idle phase; fails at once when the agent is not idle (MNT-1).
    fn run_maintenance(&self, task: MaintenanceTask) -> Result<()>;
    /// Whether the caller runs inside this agent's maintenance task, which has no initiator of its own (MNT-8).
    fn is_in_maintenance(&self) -> bool {
        false
    }
    /// Whether the code under way is polled by the very task that drives the turn, so that the turn waits for what this
    /// code waits for. What the turn has merely started runs in a task of its own.
    fn is_in_turn(&self) -> bool {
        false
    }
    /// The agent is published: wakes that arrived while it was being announced start now (D-15).
    fn published(&self);
}

/// How far an agent's publication or disposal has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Being set up: cannot be driven.
    Private,
    /// Being announced: wakes are remembered.
    Announcing,
    /// Can be driven.
    Live,
    /// Disposal began.
    Disposing,
}

/// A handle to an agent. Clones are the same agent.
#[derive(Clone)]
pub struct Agent(pub(crate) Rc<AgentInner>);

pub(crate) struct AgentInner {
    pub(crate) session: Session,
    pub(crate) options: AgentOptions,
    pub(crate) scope: ScopeKey,
    pub(crate) root: Weak<Root>,
    pub(crate) ctx: RefCell<Option<Context>>,
    pub(crate) driver: OnceCell<Rc<dyn Driver>>,
    pub(crate) stage: Cell<Stage>,
    pub(crate) promised: RefCell<HashSet<MessageId>>,
    pub(crate) owner: Option<Weak<AgentInner>>,
    /// The agents whose owned runs this one's turn waits for.
    pub(crate) awaits: RefCell<Vec<Weak<AgentInner>>>,
    pub(crate) disposal: RefCell<Option<registry::Disposal>>,
}

impl Agent {
    /// The identity shared with the session (ID-1).
    pub fn id(&self) -> &SessionId {
        self.0.session.id()
    }

    /// The options it was created with.
    pub fn options(&self) -> &AgentOptions {
        &self.0.options
    }

    /// The session it drives; the log is the durable truth.
    pub fn session(&self) -> &Session {
        &self.0.session
    }

    /// The pending input.
    pub fn inbox(&self) -> Inbox {
        Inbox::new(Rc::downgrade(&self.0))
    }

    /// The agent's own context: what is registered through it concerns this agent only and ends with it.
    pub fn ctx(&self) -> Result<Context> {
        let ctx = self.0.ctx.borrow().clone();
        ctx.ok_or_else(|| self.disposed())
    }

    /// The scope key.
    pub(crate) fn scope(&self) -> ScopeKey {
        self.0.scope
    }

    pub(crate) fn root(&self) -> Result<Rc<Root>> {
        self.0.root.upgrade().ok_or_else(|| Error::new(Code::RuntimeClosed, "the context is closed"))
    }

    pub(crate) fn disposed(&self) -> Error {
        Error::new(Code::Disposed, format!("agent {:?} is disposed", self.id())).with("agentId", self.id().as_str())
    }

    /// The driver.
    pub(crate) fn driver(&self) -> Result<Rc<dyn Driver>> {
        self.0.driver.get().cloned().ok_or_else(|| self.disposed())
    }

    /// Fails unless the agent may be driven (D-05, D-15).
    fn check_drivable(&self) -> Result<()> {
        match self.0.stage.get() {
            // Nothing is accepted that could not be started (D-06).
            Stage::Announcing | Stage::Live => self.root()?.runtime.check_open(),
            Stage::Disposing => Err(self.disposed()),
            Stage::Private => {
                let message = "setup composes and cannot drive: send from agent/session-start instead";
                Err(Error::new(Code::NotPublished, message).with("agentId", self.id().as_str()))
            }
        }
    }

    /// Delivers a message to a list; with `wakeup` the agent runs it. On an idle agent the turn is open and the message
    /// claimed when this returns (ST-5). From inside a log observer the delivery follows as soon as the publication
    /// unwinds (D-02).
    pub fn send(&self, message: Arc<Message>, target: InboxTarget, wakeup: bool) -> Result<Receipt> {
        self.check_drivable()?;
        let receipt = Receipt::new(self.clone(), message.id().clone());
        let driver = self.driver()?;
        let after_cancel = driver.is_cancelled();
        if !self.session().is_publishing() {
            driver.deliver(message, target, wakeup, after_cancel)?;
            return Ok(receipt);
        }
        self.inbox().check_new_id(message.id())?;
        self.0.promised.borrow_mut().insert(message.id().clone());
        let agent = self.clone();
        self.session().when_appendable(move || {
            agent.0.promised.borrow_mut().remove(message.id());
            let delivered = agent.driver().and_then(|driver| driver.deliver(message, target, wakeup, after_cancel));
            if let Err(error) = delivered {
                tracing::error!(target: "turnwheel", agent = %agent.id(), "a deferred delivery failed: {error:?}");
            }
        });
        Ok(receipt)
    }

    /// Queues a prompt for a turn of its own, and wakes.
    pub fn followup(&self, message: impl IntoMessage) -> Result<Receipt> {
        self.send(message.into_message(self)?, InboxTarget::NextTurn, true)
    }

    /// Adds input to the turn under way at its next step, and wakes.
    pub fn steer(&self, message: impl IntoMessage) -> Result<Receipt> {
        self.send(message.into_message(self)?, InboxTarget::NextStep, true)
    }

    /// Adds context for the next step, without waking.
    pub fn inject(&self, message: impl IntoMessage) -> Result<Receipt> {
        self.send(message.into_message(self)?, InboxTarget::NextStep, false)
    }

    /// Drains what is parked without sending a message.
    pub fn wake(&self) -> Result<()> {
        self.check_drivable()?;
        let after_cancel = self.driver()?.is_cancelled();
        let agent = self.clone();
        self.session().when_appendable(move || {
            if let Ok(driver) = agent.driver() {
                driver.wake(after_cancel);
            }
        });
        Ok(())
    }

    /// Cancels the activity under way and discards pending input (CAN-2). The signal fires before this returns.
    pub fn cancel(&self, cause: CancelCause) {
        self.cancel_with(cause, false);
    }

    /// Cancels the activity under way and keeps pending input.
    pub fn cancel_keep_inbox(&self, cause: CancelCause) {
        self.cancel_with(cause, true);
    }

    pub(crate) fn cancel_with(&self, cause: CancelCause, keep_inbox: bool) {
        let Ok(driver) = self.driver() else { return };
        // A detached agent has nothing pending that could be discarded in the log.
        if keep_inbox || self.0.ctx.borrow().is_none() {
            return driver.abort(cause, keep_inbox);
        }
        if self.session().is_publishing() {
            // Nothing can be logged now: abort at once, discard when the publication has unwound (D-02).
            driver.abort(cause, false);
            let agent = self.clone();
            return self.session().when_appendable(move || {
                if let Ok(driver) = agent.driver() {
                    driver.reset_latch();
                }
                agent.clear_inbox();
            });
        }
        // What a `discarded` listener starts on an idle agent is not what this call cancels (CAN-6).
        let was_active = driver.is_active();
        driver.reset_latch();
        self.clear_inbox();
        if was_active {
            driver.abort(cause, false);
        }
    }

    fn clear_inbox(&self) {
        if let Err(error) = self.inbox().clear() {
            tracing::error!(target: "turnwheel", agent = %self.id(), "pending input could not be discarded: {error:?}");
        }
    }

    /// What the public sees.
    pub fn status(&self) -> AgentStatus {
        self.driver().map_or(AgentStatus::Idle, |driver| driver.status())
    }

    /// What the driver is doing.
    pub fn state(&self) -> Result<AgentState> {
        Ok(self.driver()?.state())
    }

    /// Whether the agent was disposed or is being disposed.
    pub fn is_disposed(&self) -> bool {
        self.0.stage.get() == Stage::Disposing
    }

    /// Resolves when nothing is active. Failed and cancelled runs are no failure here (IDLE-3). Fails with `SELF_WAIT`
    /// inside the agent's own turn or maintenance (D-18).
    pub fn when_idle(&self) -> impl Future<Output = Result<()>> + use<> {
        let waits = self.check_no_self_wait().and_then(|()| self.driver()).map(|driver| driver.when_idle());
        async move {
            waits?.await;
            Ok(())
        }
    }

    /// Fails where waiting for this agent would never end: inside its own turn or maintenance, and inside the turn of an
    /// agent that it is itself waiting for, directly or through others (D-18).
    pub(crate) fn check_no_self_wait(&self) -> Result<()> {
        let never = |message: String| Err(Error::new(Code::SelfWait, message).with("agentId", self.id().as_str()));
        let initiator = self.root().ok().and_then(|root| root.current_initiator());
        let initiator = initiator.filter(|initiator| initiator.status() == AgentStatus::Running);
        let in_turn = initiator.as_ref() == Some(self);
        if in_turn || self.driver().is_ok_and(|driver| driver.is_in_maintenance()) {
            let what = "an agent cannot wait for itself inside its own turn or maintenance; wait from outside";
            return never(what.into());
        }
        match initiator {
            Some(initiator) if initiator.is_in_turn() && self.waits_for(&initiator) => never(format!(
                "agent {:?} is waiting for the turn of {:?} in which this is; send without waiting, or wait from outside",
                self.id(),
                initiator.id()
            )),
            _ => Ok(()),
        }
    }

    /// Whether the code under way is what this agent's turn waits for.
    fn is_in_turn(&self) -> bool {
        self.driver().is_ok_and(|driver| driver.is_in_turn())
    }

    /// Whether this agent's turn waits for another's, directly or through others.
    fn waits_for(&self, other: &Agent) -> bool {
        let (mut seen, mut next) = (Vec::new(), vec![self.clone()]);
        while let Some(agent) = next.pop() {
            if agent == *other {
                return true;
            }
            let awaited: Vec<_> = agent.0.awaits.borrow().iter().filter_map(Weak::upgrade).map(Agent).collect();
            next.extend(awaited.into_iter().filter(|awaited| !seen.contains(awaited)));
            seen.push(agent);
        }
        false
    }

    /// Runs a task in the idle phase; wakes wait for its end (MNT). Fails at once with `BUSY` when the agent is not
    /// idle. The task starts before this returns, and runs to its end whether the result is awaited or not.
    pub fn run_maintenance<T: 'static, F: Future<Output = Result<T>> + 'static>(
        &self,
        task: impl FnOnce(Signal) -> F + 'static,
    ) -> Result<LocalBoxFuture<Result<T>>> {
        self.check_drivable()?;
        let (sender, receiver) = oneshot();
        let run: MaintenanceTask = Box::new(move |signal| {
            Box::pin(async move {
                sender.send(crate::events::guarded_future(move || Box::pin(task(signal))).await);
            })
        });
        self.driver()?.run_maintenance(run)?;
        Ok(Box::pin(async move {
            let gone = || Err(Error::new(Code::Disposed, "the maintenance task ended without a result"));
            receiver.await.unwrap_or_else(gone)
        }))
    }

    /// Delivers a notification about this agent.
    pub(crate) fn emit(&self, kind: NoticeKind, make: impl FnOnce(Agent) -> Notice) {
        if let Ok(root) = self.root() {
            root.hub.emit(&root.scopes, Some(self.scope()), kind, || make(self.clone()));
        }
    }

    /// Resolves when everything logged so far is on stable storage.
    pub async fn flush(&self) -> Result<()> {
        self.session().flush().await
    }
}

impl PartialEq for Agent {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agent({})", self.id())
    }
}

/// What can be delivered: a message, or text that becomes one with a new id.
pub trait IntoMessage {
    /// The message.
    fn into_message(self, agent: &Agent) -> Result<Arc<Message>>;
}

impl IntoMessage for Arc<Message> {
    fn into_message(self, _agent: &Agent) -> Result<Arc<Message>> {
        Ok(self)
    }
}

impl IntoMessage for Message {
    fn into_message(self, _agent: &Agent) -> Result<Arc<Message>> {
        Ok(Arc::new(self))
    }
}

impl IntoMessage for &str {
    fn into_message(self, agent: &Agent) -> Result<Arc<Message>> {
        Ok(Arc::new(Message::user_text(agent.root()?.runtime.next_id(), self)))
    }
}

impl IntoMessage for String {
    fn into_message(self, agent: &Agent) -> Result<Arc<Message>> {
        self.as_str().into_message(agent)
    }
}
