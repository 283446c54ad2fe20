//! What the simulator knows about one live session by itself: from the notifications, the log, and its own calls.

use crate::fold::{Fold, State};
use std::collections::BTreeSet;
use turnwheel::agent::Parked;
use turnwheel::session::{Delivery, EventData, InboxTarget, TurnEndReason};
use turnwheel::{Agent, AgentStatus, CancelCause, Notice, Session};

/// The lists by index.
pub const TARGETS: [InboxTarget; 2] = [InboxTarget::NextStep, InboxTarget::NextTurn];

/// One live session and its agent.
pub struct Watch {
    /// The session.
    pub session: Session,
    /// The agent that drives it, once announced; never for a bare fork.
    pub agent: Option<Agent>,
    /// The independent reading of its log.
    pub fold: Fold,
    running: bool,
    created: u32,
    disposed: u32,
    /// Ids that a delivery accepted.
    pub accepted: BTreeSet<String>,
    /// Ids whose delivery asked to wake.
    pub waking: BTreeSet<String>,
    /// Pending messages that have to run, because their wake was excused by no parking case.
    pub need: BTreeSet<String>,
    /// The run under way was cancelled.
    pub cancelled: bool,
    /// What was pending when the last failure was reported.
    at_error: Option<BTreeSet<String>>,
    /// Whether every cancel of the run kept the inbox; none came yet if absent.
    pub kept: Option<bool>,
    /// Somebody asked for its disposal.
    pub disposing: bool,
    /// Whether the simulator did anything to it.
    pub touched: bool,
    expected: [Vec<String>; 2],
    /// Ids that ever asked to wake, and whether anything woke the agent since it was idle.
    pub wakers: BTreeSet<String>,
    /// See `wakers`.
    pub woken: bool,
    /// Waking calls under way, or waiting for the end of a publication.
    pub calls: u32,
    /// A tool of the step under way concluded the turn.
    pub concluded: bool,
    results: bool,
    /// Calls whose body began, by the seq of their `tool/call`.
    pub bodies: BTreeSet<u64>,
    /// Where this life of the session begins in its log.
    live_from: u64,
}

impl Watch {
    /// Begins to watch a session that was just announced.
    pub fn new(session: &Session) -> Result<Self, String> {
        let mut fold = Fold::new(session.header());
        for event in session.events_from(0) {
            fold.feed(&event)?;
        }
        if fold.turn.is_some() {
            return Err("the session begins inside a turn".into());
        }
        let (expected, live_from) = (fold.restored(), fold.count);
        Ok(Self {
            session: session.clone(),
            agent: None,
            fold,
            running: false,
            created: 0,
            disposed: 0,
            accepted: BTreeSet::new(),
            waking: BTreeSet::new(),
            need: BTreeSet::new(),
            cancelled: false,
            at_error: None,
            kept: None,
            disposing: false,
            touched: false,
            expected,
            wakers: BTreeSet::new(),
            woken: false,
            calls: 0,
            concluded: false,
            results: false,
            bodies: BTreeSet::new(),
            live_from,
        })
    }

    /// Follows a notification. An error names the invariant and what broke it.
    pub fn hear(&mut self, notice: &Notice) -> Result<(), (&'static str, String)> {
        match notice {
            Notice::SessionEvent { event, .. } => return self.event(event),
            Notice::Created { agent } => {
                self.agent = Some(agent.clone());
                self.created += 1;
                self.check("PAIRING", self.created == 1 && self.disposed == 0, "agent/created")?;
            }
            Notice::Disposed { .. } => {
                self.disposed += 1;
                self.check("PAIRING", self.created == 1 && self.disposed == 1, "agent/disposed")?;
            }
            Notice::Status { status, .. } => {
                let running = *status == AgentStatus::Running;
                self.check("STATUS", running != self.running, "a status is repeated")?;
                self.running = running;
                if running {
                    let asked = self.fold.lists.iter().flatten().any(|id| self.wakers.contains(id));
                    self.check(
                        "D-04",
                        asked || self.woken || self.calls > 0,
                        "it runs and nothing pending asked to wake",
                    )?;
                } else {
                    (self.cancelled, self.kept) = (false, None);
                    self.woken = false;
                    self.check("STATUS", self.fold.turn.is_none(), "idle inside a turn")?;
                }
            }
            Notice::SessionStart { .. } => {
                let lists = [0, 1].map(|at| self.fold.lists[at].iter().cloned().collect::<Vec<_>>());
                let as_expected = self.touched || lists == self.expected;
                let what = format!("restored {lists:?}, expected {:?}", self.expected);
                self.check("D-10", as_expected, &what)?;
            }
            Notice::Inserted { message, .. } => {
                let known = self.fold.states.contains_key(message.id().as_str());
                self.check("P1", known, "inserted before it is in the log")?;
            }
            Notice::Claimed { message, turn, .. } => {
                let state = self.fold.states.get(message.id().as_str());
                let claimed = matches!(state, Some(State::Claimed(taken)) if taken == turn);
                // An observer of an earlier claim may have had it put back or gone on; the log must know it anyway.
                self.check("P1", claimed || state.is_some(), "claimed before it is in the log")?;
            }
            Notice::Discarded { message, .. } => {
                let state = self.fold.states.get(message.id().as_str());
                self.check("P1", state.is_some(), "discarded before it is in the log")?;
            }
            Notice::Error { .. } => self.at_error = Some(self.need.clone()),
            Notice::SessionCreated { .. }
            | Notice::SessionDisposed { .. }
            | Notice::ToolResult { .. }
            | Notice::ToolsChanged { .. }
            | Notice::PromptChanged { .. }
            | Notice::ModelsChanged
            | Notice::ConfigStartFailed { .. } => {}
        }
        Ok(())
    }

    fn check(&self, invariant: &'static str, holds: bool, what: &str) -> Result<(), (&'static str, String)> {
        if holds { Ok(()) } else { Err((invariant, format!("{:?}: {what}", self.session.id()))) }
    }

    fn event(&mut self, event: &turnwheel::session::Event) -> Result<(), (&'static str, String)> {
        // Observers see the lists as they were before the splice (INB-11).
        if let Some(what) = self.inbox_differs() {
            return Err(("INBOX-FOLD", format!("{:?} before event {}: {what}", self.session.id(), event.seq)));
        }
        if matches!(&event.data, EventData::TurnEnd { reason: TurnEndReason::Aborted(_), .. })
            && self.kept == Some(true)
        {
            let lost = self.fold.unentered.first().map(|(_, id)| id.clone());
            self.check("D-10", lost.is_none(), &format!("{lost:?} entered no step and is not put back"))?;
        }
        self.fold.feed(event).map_err(|what| ("LOG", format!("{:?}: {what}", self.session.id())))?;
        let (live, mine) = (self.session.history(), self.fold.history().count());
        let last = live.len().checked_sub(1).and_then(|at| live.get(at));
        let same = live.len() == mine && last.as_ref() == self.fold.history().last();
        self.check("HISTORY-FOLD", same, &format!("history at event {}", event.seq))?;
        let (starts, cancelled) = (matches!(event.data, EventData::StepStart { .. }), self.cancelled);
        self.check("CANCEL", !(starts && cancelled), "a step starts after a cancel")?;
        if let EventData::TurnEnd { reason: TurnEndReason::Completed | TurnEndReason::MaxTokens, .. } = &event.data {
            let answered = self.results;
            self.check("D-01", self.concluded || !answered, "a turn closes with results that the model never saw")?;
        }
        self.account(event);
        Ok(())
    }

    /// Keeps the account of messages that have to run.
    fn account(&mut self, event: &turnwheel::session::Event) {
        match &event.data {
            EventData::InboxSpliced(splice) => {
                let inserted: BTreeSet<_> = splice.inserted.iter().map(|message| message.id().to_string()).collect();
                let pending = |fold: &Fold, id: &str| matches!(fold.states.get(id), Some(State::Pending(_)));
                let kept = std::mem::take(&mut self.need);
                self.need = kept.into_iter().filter(|id| pending(&self.fold, id)).collect();
                // What D-10 puts back was counted when it came in; it is parked.
                for id in inserted {
                    if self.waking.remove(&id) {
                        self.need.insert(id);
                    }
                }
            }
            EventData::StepStart { .. } => (self.concluded, self.results) = (false, false),
            EventData::ToolResult { .. } => self.results = true,
            EventData::TurnStart { .. } => {
                self.results = false;
                (self.cancelled, self.kept) = (false, None);
                self.at_error = None;
            }
            EventData::TurnEnd { reason, .. } => self.turn_ended(reason),
            _ => {}
        }
    }

    /// The parking cases that stay: blocked, an empty first entry, an error, a budget.
    fn turn_ended(&mut self, reason: &TurnEndReason) {
        let steps = self.fold.turns.last().map_or(0, |turn| turn.steps);
        match reason {
            TurnEndReason::Blocked => self.need.clear(),
            TurnEndReason::Completed if steps == 0 => self.need.clear(),
            TurnEndReason::Aborted(CancelCause::Hook(why)) if why.starts_with("budget:") => self.need.clear(),
            TurnEndReason::Error(_) => match self.at_error.take() {
                Some(parked) => self.need.retain(|id| !parked.contains(id)),
                None => self.need.clear(),
            },
            _ => {}
        }
    }

    /// Where the live inbox and the log disagree, if they do.
    pub fn inbox_differs(&self) -> Option<String> {
        let inbox = self.agent.as_ref()?.inbox();
        for (at, target) in TARGETS.into_iter().enumerate() {
            let live: Vec<_> = inbox.pending(target).iter().map(|message| message.id().to_string()).collect();
            if !live.iter().eq(self.fold.lists[at].iter()) {
                return Some(format!("{target:?} is {live:?}, the log says {:?}", self.fold.lists[at]));
            }
        }
        None
    }

    /// Whether the public saw it running last.
    pub fn is_running(&self) -> bool {
        self.running
    }

    /// Whether creation and disposal have been announced.
    pub fn is_paired(&self) -> bool {
        self.created == self.disposed
    }

    /// Whether a pending message waits for this reason.
    pub fn is_parked_for(&self, id: &str, why: &Parked) -> bool {
        let since = self.fold.since.get(id).copied().unwrap_or(u64::MAX);
        let ended = self.fold.turns.last().filter(|turn| turn.start >= self.live_from);
        let waited = ended.and_then(|turn| turn.end).is_some_and(|end| end > since);
        match why {
            Parked::TurnEnding => self.running,
            _ if self.running => false,
            Parked::TurnEnded { turn, reason } => {
                let is_last = ended.is_some_and(|last| last.number == *turn && last.reason.as_ref() == Some(reason));
                is_last && waited
            }
            Parked::Resumed => ended.is_none() && since < self.live_from,
            Parked::NotWoken => !waited && (ended.is_some() || since >= self.live_from),
        }
    }

    /// Compares a session with the log: everything it derives.
    pub fn compare(&self, session: &Session, which: &str) -> Result<(), (&'static str, String)> {
        let id = session.id();
        let fail = |what: String| Err(("FOLD", format!("{which} {id:?}: {what}")));
        let live: Vec<_> = session.history().iter().collect();
        if !live.iter().eq(self.fold.history()) {
            return fail("its history differs from the log's".into());
        }
        if !session.surface_nodes().iter().eq(self.fold.surface.iter().map(|node| &node.0)) {
            return fail("its surface differs".into());
        }
        let header = session.request_header();
        if header.as_deref() != self.fold.header.as_deref() || session.request_context() != self.fold.context {
            return fail("its request header or context differs".into());
        }
        for (message, state) in &self.fold.states {
            let same = match (session.delivery(message), state) {
                (Some(Delivery::Pending { target, .. }), State::Pending(at)) => target == TARGETS[*at],
                (Some(Delivery::Claimed { turn, .. }), State::Claimed(taken)) => turn == *taken,
                (Some(Delivery::Discarded { .. }), State::Discarded) => true,
                _ => false,
            };
            if !same {
                return fail(format!("message {message:?} is {:?}, the log says {state:?}", session.delivery(message)));
            }
        }
        for turn in &self.fold.turns {
            if session.turn_end(turn.number) != turn.reason {
                return fail(format!("turn {} ended {:?}", turn.number, session.turn_end(turn.number)));
            }
        }
        Ok(())
    }
}
