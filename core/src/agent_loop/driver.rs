//! The phases of an agent: idle, maintenance, running; wakes, the latch, cancellation, quiescence (ST, WAKE, CAN, MNT).
//!
//! Deciding and committing never has a suspension in between: "nothing is pending" and "go idle" are one step, and so
//! are closing a turn and opening the next (D-03).

use super::budget::Ledger;
use super::runtime_context::RuntimeContext;
use crate::agent::{Agent, AgentInner, AgentState, AgentStatus, Driver, MaintenanceTask, Notice, NoticeKind, Stage};
use crate::context::Root;
use crate::error::{Code, Error, Result};
use crate::id::MessageId;
use crate::message::Message;
use crate::runtime::{LocalBoxFuture, Signal, WakerSet};
use crate::session::{CancelCause, InboxTarget, Session};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;

/// What the agent is doing.
enum Phase {
    Idle,
    Maintenance(Activity),
    Running(Activity),
}

/// An activity that can be cancelled.
#[derive(Default)]
struct Activity {
    signal: Signal,
    step: u64,
    /// Whether that step is open.
    is_in_step: bool,
    /// Messages that asked to wake when this activity could not deliver them (D-04).
    latch: Vec<MessageId>,
    /// The outcome is decided and the driver will not look at the inbox again: wakes are latched (D-03).
    closing: bool,
    /// Pending input is being discarded on behalf of a cancel to come: wakes are latched.
    discarding: bool,
    /// Whether every cancel so far kept the inbox; none came yet if absent.
    kept_inbox: Option<bool>,
}

/// The driver of one agent.
pub(super) struct LoopDriver {
    this: Weak<LoopDriver>,
    agent: Weak<AgentInner>,
    root: Weak<Root>,
    phase: RefCell<Phase>,
    retiring: Cell<bool>,
    announced_wakes: RefCell<Vec<MessageId>>,
    /// The runtime's task of the maintenance under way.
    maintenance_task: Cell<Option<u64>>,
    /// The runtime's task that drains the turns.
    turn_task: Cell<Option<u64>>,
    idle_waiters: WakerSet,
    /// Whether this loop instance has logged a request header (HDR-05).
    pub(super) has_requested: Cell<bool>,
    pub(super) contexts: RuntimeContext,
    pub(super) ledger: Ledger,
    pub(super) running_tools: RefCell<Vec<String>>,
}

impl LoopDriver {
    pub(super) fn new(agent: &Agent) -> Rc<Self> {
        Rc::new_cyclic(|this| Self {
            this: this.clone(),
            agent: Rc::downgrade(&agent.0),
            root: agent.0.root.clone(),
            phase: RefCell::new(Phase::Idle),
            retiring: Cell::new(false),
            announced_wakes: RefCell::default(),
            maintenance_task: Cell::new(None),
            turn_task: Cell::new(None),
            idle_waiters: WakerSet::default(),
            has_requested: Cell::new(false),
            contexts: RuntimeContext::default(),
            ledger: Ledger::default(),
            running_tools: RefCell::default(),
        })
    }

    pub(super) fn agent(&self) -> Result<Agent> {
        self.agent.upgrade().map(Agent).ok_or_else(|| Error::new(Code::Disposed, "the agent is gone"))
    }

    pub(super) fn root(&self) -> Result<Rc<Root>> {
        self.root.upgrade().ok_or_else(|| Error::new(Code::RuntimeClosed, "the context is closed"))
    }

    pub(super) fn session(&self) -> Result<Session> {
        Ok(self.agent()?.session().clone())
    }

    fn with_activity<T>(&self, read: impl FnOnce(&mut Activity) -> T) -> Option<T> {
        match &mut *self.phase.borrow_mut() {
            Phase::Idle => None,
            Phase::Maintenance(activity) | Phase::Running(activity) => Some(read(activity)),
        }
    }

    /// The signal of the turn under way.
    pub(super) fn turn_signal(&self) -> Signal {
        self.with_activity(|activity| activity.signal.clone()).unwrap_or_default()
    }

    /// The last committed step of the turn under way.
    pub(super) fn step(&self) -> u64 {
        self.with_activity(|activity| activity.step).unwrap_or(0)
    }

    pub(super) fn enter_step(&self, step: u64) {
        self.with_activity(|activity| {
            activity.step = step;
            activity.is_in_step = true;
        });
    }

    pub(super) fn leave_step(&self) {
        self.with_activity(|activity| activity.is_in_step = false);
    }

    /// Whether every cancel of this turn kept the inbox.
    pub(super) fn kept_inbox(&self) -> bool {
        self.with_activity(|activity| activity.kept_inbox == Some(true)).unwrap_or(false)
    }

    /// From here on the driver does not look at the inbox again in this run.
    pub(super) fn begin_closing(&self) {
        self.with_activity(|activity| activity.closing = true);
    }

    /// A fresh signal for the next turn of this run (TURN-41).
    pub(super) fn renew(&self) {
        self.with_activity(|activity| *activity = Activity::default());
    }

    /// Whether the driver may go on to queued work.
    pub(super) fn may_continue(&self) -> bool {
        self.agent().is_ok_and(|agent| agent.0.stage.get() == Stage::Live && agent.inbox().has_pending())
    }

    fn start(&self) {
        let (Ok(agent), Ok(root), Some(this)) = (self.agent(), self.root(), self.this.upgrade()) else { return };
        // The phase is committed once nothing can fail any more (D-06).
        if agent.0.stage.get() != Stage::Live || root.runtime.check_open().is_err() {
            return;
        }
        *self.phase.borrow_mut() = Phase::Running(Activity::default());
        self.emit_status(&agent, AgentStatus::Running);
        let runtime = root.runtime.clone();
        root.runtime.spawn_with(Some(agent.ambient()), async move {
            this.turn_task.set(runtime.current_task());
            while this.turn().await {}
            this.turn_task.set(None);
            this.retire();
        });
    }

    fn emit_status(&self, agent: &Agent, status: AgentStatus) {
        agent.emit(NoticeKind::Status, |agent| Notice::Status { agent, status });
    }

    /// Goes idle and replays latched wakes, in one step (WAKE-12, D-03).
    fn retire(&self) {
        let ended = std::mem::replace(&mut *self.phase.borrow_mut(), Phase::Idle);
        let (latch, was_running) = match ended {
            Phase::Idle => (Vec::new(), false),
            Phase::Maintenance(activity) => (activity.latch, false),
            Phase::Running(activity) => (activity.latch, true),
        };
        if was_running && let Ok(agent) = self.agent() {
            self.retiring.set(true);
            self.emit_status(&agent, AgentStatus::Idle);
            self.retiring.set(false);
        }
        self.replay(latch);
        if matches!(*self.phase.borrow(), Phase::Idle) {
            self.idle_waiters.wake_all();
        }
    }

    /// Starts a run for remembered wakes whose messages are still pending (D-04).
    fn replay(&self, latch: Vec<MessageId>) {
        let pending = self.pending_of(latch);
        if pending.is_empty() {
            return;
        }
        let is_idle = {
            let mut phase = self.phase.borrow_mut();
            // Maintenance that an idle listener started takes the remembered wakes over (ST-16).
            if let Phase::Maintenance(activity) = &mut *phase {
                activity.latch.extend(pending);
                return;
            }
            matches!(*phase, Phase::Idle)
        };
        if is_idle {
            self.start();
        }
    }

    fn pending_of(&self, mut ids: Vec<MessageId>) -> Vec<MessageId> {
        let Ok(session) = self.session() else { return Vec::new() };
        let pending = |id: &MessageId| matches!(session.delivery(id), Some(crate::session::Delivery::Pending { .. }));
        ids.retain(pending);
        ids
    }

    /// Wakes for these messages. `cancelled` says whether the activity under way had been cancelled before they came
    /// in (WAKE-6).
    fn wake_for(&self, ids: Vec<MessageId>, cancelled: bool) {
        let Ok(agent) = self.agent() else { return };
        if agent.0.stage.get() == Stage::Announcing {
            self.announced_wakes.borrow_mut().extend(ids);
            return;
        }
        let is_idle = {
            match &mut *self.phase.borrow_mut() {
                Phase::Idle => true,
                Phase::Maintenance(activity) => {
                    activity.latch.extend(ids);
                    false
                }
                Phase::Running(activity) => {
                    let disposed = activity.signal.cause() == Some(CancelCause::Disposed);
                    if (cancelled || activity.closing || activity.discarding) && !disposed {
                        activity.latch.extend(ids);
                    }
                    false
                }
            }
        };
        if is_idle {
            self.start();
        }
    }

    /// Reports a failure (TURN-37).
    pub(super) fn report(&self, turn: u64, error: &Error) {
        if let Ok(agent) = self.agent() {
            let (step, error) = (self.step(), error.clone());
            agent.emit(NoticeKind::Error, |agent| Notice::Error { agent, turn, step, error });
        }
    }
}

impl Driver for LoopDriver {
    fn deliver(&self, message: Arc<Message>, target: InboxTarget, wakeup: bool, after_cancel: bool) -> Result<()> {
        // Classified before the insertion: what an insertion observer cancels counts as sent before (WAKE-6).
        let cancelled = wakeup && after_cancel;
        let target = if cancelled { InboxTarget::NextTurn } else { target };
        let id = message.id().clone();
        self.agent()?.inbox().append(target, vec![message])?;
        if wakeup {
            self.wake_for(vec![id], cancelled);
        }
        Ok(())
    }

    fn wake(&self, after_cancel: bool) {
        let Ok(session) = self.session() else { return };
        let pending: Vec<_> = {
            let inbox = session.inbox();
            let lists = inbox.list(InboxTarget::NextStep).iter().chain(inbox.list(InboxTarget::NextTurn));
            lists.map(|message| message.id().clone()).collect()
        };
        if !pending.is_empty() {
            self.wake_for(pending, after_cancel);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.with_activity(|activity| activity.signal.is_cancelled()).unwrap_or(false)
    }

    fn abort(&self, cause: CancelCause, keep_inbox: bool) {
        let signal = self.with_activity(|activity| {
            activity.kept_inbox = Some(activity.kept_inbox.unwrap_or(true) && keep_inbox);
            activity.signal.clone()
        });
        if let Some(signal) = signal {
            signal.cancel(cause);
        }
    }

    fn is_active(&self) -> bool {
        !matches!(*self.phase.borrow(), Phase::Idle)
    }

    fn reset_latch(&self) {
        self.with_activity(|activity| {
            activity.latch.clear();
            activity.discarding = true;
        });
    }

    fn status(&self) -> AgentStatus {
        match *self.phase.borrow() {
            Phase::Running(_) => AgentStatus::Running,
            Phase::Idle | Phase::Maintenance(_) => AgentStatus::Idle,
        }
    }

    fn state(&self) -> AgentState {
        let (phase, step, latch, ends) = match &*self.phase.borrow() {
            Phase::Idle => ("idle", 0, Vec::new(), true),
            Phase::Maintenance(activity) => ("maintenance", 0, activity.latch.clone(), true),
            Phase::Running(activity) => {
                let ends = activity.closing || activity.signal.is_cancelled();
                ("running", if activity.is_in_step { activity.step } else { 0 }, activity.latch.clone(), ends)
            }
        };
        let mut state = AgentState {
            phase,
            turn: 0,
            step,
            running_tools: self.running_tools.borrow().clone(),
            latch,
            parked: Vec::new(),
            next_step: 0,
            next_turn: 0,
        };
        if let Ok(session) = self.session() {
            let inbox = session.inbox();
            let (steps, turns) = (inbox.list(InboxTarget::NextStep), inbox.list(InboxTarget::NextTurn));
            state.turn = inbox.last_turn();
            state.next_step = steps.len();
            state.next_turn = turns.len();
            let is_pending =
                |id: &MessageId| matches!(inbox.delivery(id), Some(crate::session::Delivery::Pending { .. }));
            state.latch.retain(is_pending);
            // A latched wake drains both lists from their heads, so everything rides along with it.
            let drains = !ends || !state.latch.is_empty();
            if !drains {
                state.parked = steps.iter().chain(turns).map(|message| message.id().clone()).collect();
            }
        }
        state
    }

    fn when_idle(&self) -> LocalBoxFuture<()> {
        let Some(this) = self.this.upgrade() else { return Box::pin(std::future::ready(())) };
        Box::pin(std::future::poll_fn(move |context| {
            if matches!(*this.phase.borrow(), Phase::Idle) && !this.retiring.get() {
                return Poll::Ready(());
            }
            this.idle_waiters.register(context);
            Poll::Pending
        }))
    }

    fn run_maintenance(&self, task: MaintenanceTask) -> Result<()> {
        let agent = self.agent()?;
        let root = self.root()?;
        let this = self.this.upgrade().ok_or_else(|| Error::new(Code::Disposed, "the agent is gone"))?;
        let signal = {
            let mut phase = self.phase.borrow_mut();
            if !matches!(*phase, Phase::Idle) {
                let message = format!("agent {:?} is busy; wait with when_idle() first", agent.id());
                return Err(Error::new(Code::Busy, message).with("agentId", agent.id().as_str()));
            }
            let activity = Activity::default();
            let signal = activity.signal.clone();
            *phase = Phase::Maintenance(activity);
            signal
        };
        let runtime = root.runtime.clone();
        root.runtime.spawn(async move {
            this.maintenance_task.set(runtime.current_task());
            task(signal).await;
            this.maintenance_task.set(None);
            this.retire();
        });
        Ok(())
    }

    fn is_in_maintenance(&self) -> bool {
        let task = self.maintenance_task.get();
        task.is_some() && self.root().is_ok_and(|root| root.runtime.current_task() == task)
    }

    fn is_in_turn(&self) -> bool {
        let task = self.turn_task.get();
        task.is_some() && self.root().is_ok_and(|root| root.runtime.current_task() == task)
    }

    fn published(&self) {
        let wakes = std::mem::take(&mut *self.announced_wakes.borrow_mut());
        let pending = self.pending_of(wakes);
        if !pending.is_empty() {
            self.wake_for(pending, false);
        }
    }
}
