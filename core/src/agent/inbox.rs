//! The inbox: pending input as a projection of the log.
//!
//! Nothing here is stored: drop it, fold the same events again, and get an equal one; that is why a mutation appends
//! before it mutates.

use super::events::{Notice, NoticeKind};
use super::{Agent, AgentInner};
use crate::error::{Code, Error, Result};
use crate::id::MessageId;
use crate::message::Message;
use crate::session::{Claim, EventData, InboxTarget, Splice};
use std::rc::Weak;
use std::sync::Arc;

/// The pending lists of one agent.
#[derive(Clone)]
pub struct Inbox {
    agent: Weak<AgentInner>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Removal {
    Claim,
    Cancel,
    /// Puts claims back: the ids are known and that is right.
    Undo,
}

impl Inbox {
    pub(super) fn new(agent: Weak<AgentInner>) -> Self {
        Self { agent }
    }

    fn agent(&self) -> Result<Agent> {
        self.agent.upgrade().map(Agent).ok_or_else(|| Error::new(Code::Disposed, "the agent is gone"))
    }

    /// The messages pending in a list, in order.
    pub fn pending(&self, target: InboxTarget) -> Vec<Arc<Message>> {
        match self.agent() {
            Ok(agent) => agent.session().inbox().list(target).iter().cloned().collect(),
            Err(_) => Vec::new(),
        }
    }

    /// How many messages are pending in a list.
    pub fn len(&self, target: InboxTarget) -> usize {
        self.agent().map_or(0, |agent| agent.session().inbox().list(target).len())
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        !self.has_pending()
    }

    /// Whether anything is pending in either list (INB-2).
    pub fn has_pending(&self) -> bool {
        self.agent().is_ok_and(|agent| agent.session().inbox().has_pending())
    }

    /// Adds messages at the tail of a list (INB-15). Never wakes the agent (INB-28).
    pub fn append(&self, target: InboxTarget, messages: Vec<Arc<Message>>) -> Result<()> {
        let end = self.len(target);
        self.change(target, end, 0, messages, Removal::Cancel).map(|_| ())
    }

    /// Adds messages at the head of a list.
    pub fn prepend(&self, target: InboxTarget, messages: Vec<Arc<Message>>) -> Result<()> {
        self.change(target, 0, 0, messages, Removal::Cancel).map(|_| ())
    }

    /// Removes and inserts, with JavaScript's rules for start and count (INB-4, INB-5). Returns what was removed.
    pub fn splice(
        &self,
        target: InboxTarget,
        start: f64,
        delete_count: f64,
        messages: Vec<Arc<Message>>,
    ) -> Result<Vec<Arc<Message>>> {
        let (start, count) = normalise(self.len(target), start, delete_count);
        self.change(target, start, count, messages, Removal::Cancel)
    }

    /// Replaces a pending message in place, perhaps by one with the same id; says whether it was pending (INB-16).
    pub fn replace(&self, id: &str, message: Arc<Message>) -> Result<bool> {
        match self.find(id)? {
            Some((target, at)) => self.change(target, at, 1, vec![message], Removal::Cancel).map(|_| true),
            None => Ok(false),
        }
    }

    /// Removes a pending message; says whether it was pending (INB-17).
    pub fn remove(&self, id: &str) -> Result<bool> {
        match self.find(id)? {
            Some((target, at)) => self.change(target, at, 1, Vec::new(), Removal::Cancel).map(|_| true),
            None => Ok(false),
        }
    }

    /// Empties next-step, then next-turn; each list as it is when its turn comes (INB-18, INB-19).
    pub fn clear(&self) -> Result<()> {
        for target in [InboxTarget::NextStep, InboxTarget::NextTurn] {
            self.change(target, 0, self.len(target), Vec::new(), Removal::Cancel)?;
        }
        Ok(())
    }

    /// Takes the batch of a boundary: all of next-step and, at a turn boundary, the head of next-turn (INB-20, INB-21).
    pub fn claim(&self, boundary: InboxTarget, turn: u64) -> Result<Vec<Arc<Message>>> {
        let step = InboxTarget::NextStep;
        let mut claimed = self.change(step, 0, self.len(step), Vec::new(), Removal::Claim)?;
        if boundary == InboxTarget::NextTurn {
            let count = self.len(boundary).min(1);
            claimed.extend(self.change(boundary, 0, count, Vec::new(), Removal::Claim)?);
        }
        let agent = self.agent()?;
        for message in &claimed {
            agent.emit(NoticeKind::Claimed, |agent| Notice::Claimed { agent, message: message.clone(), turn });
        }
        Ok(claimed)
    }

    /// Puts claims that entered no step back to the front of their lists, one splice a list (D-10).
    pub(crate) fn unclaim(&self, claims: &[Claim]) -> Result<()> {
        for target in [InboxTarget::NextStep, InboxTarget::NextTurn] {
            let messages: Vec<_> =
                claims.iter().filter(|claim| claim.0 == target).map(|claim| claim.1.clone()).collect();
            self.change(target, 0, 0, messages, Removal::Undo)?;
        }
        Ok(())
    }

    /// The list and position of a pending message; next-turn is looked at first.
    fn find(&self, id: &str) -> Result<Option<(InboxTarget, usize)>> {
        let agent = self.agent()?;
        let inbox = agent.session().inbox();
        let position = |target| inbox.list(target).iter().position(|message| message.id().as_str() == id);
        let in_turn = position(InboxTarget::NextTurn).map(|at| (InboxTarget::NextTurn, at));
        Ok(in_turn.or_else(|| position(InboxTarget::NextStep).map(|at| (InboxTarget::NextStep, at))))
    }

    fn change(
        &self,
        target: InboxTarget,
        start: usize,
        count: usize,
        inserted: Vec<Arc<Message>>,
        removal: Removal,
    ) -> Result<Vec<Arc<Message>>> {
        if count == 0 && inserted.is_empty() {
            return Ok(Vec::new());
        }
        let agent = self.agent()?;
        if agent.0.ctx.borrow().is_none() {
            // The log has no store behind it any more: what it took now would be lost in silence (D-05).
            return Err(agent.disposed());
        }
        inserted.iter().try_for_each(|message| message.check_delivery())?;
        let canceled = removal == Removal::Cancel && count > 0;
        let splice = Splice { target, start, removed_count: count, inserted: inserted.clone(), canceled };
        let removed: Vec<_> = {
            let inbox = agent.session().inbox();
            inbox.check(&splice)?;
            if removal != Removal::Undo {
                inbox.check_new(&splice)?;
            }
            inbox.list(target).iter().skip(start).take(count).cloned().collect()
        };
        agent.session().log(EventData::InboxSpliced(splice))?;
        if canceled {
            for message in &removed {
                agent.emit(NoticeKind::Discarded, |agent| Notice::Discarded { agent, message: message.clone() });
            }
        }
        for message in &inserted {
            agent.emit(NoticeKind::Inserted, |agent| Notice::Inserted { agent, message: message.clone() });
        }
        Ok(removed)
    }

    /// Fails unless a message of this id may be delivered now, also behind deliveries that wait for a publication to
    /// unwind.
    pub(crate) fn check_new_id(&self, id: &MessageId) -> Result<()> {
        let agent = self.agent()?;
        let session = agent.session();
        // The splice under publication is folded behind it.
        let published = session.len().checked_sub(1).and_then(|seq| session.event(seq));
        let being_inserted = published.is_some_and(|event| match &event.data {
            EventData::InboxSpliced(splice) => splice.inserted.iter().any(|message| message.id() == id),
            _ => false,
        });
        let known = being_inserted || session.delivery(id).is_some() || agent.0.promised.borrow().contains(id);
        if known {
            let message = format!("message {id:?} was accepted before; give a new message a new id");
            return Err(Error::new(Code::DuplicateMessage, message).with("id", id.as_str()));
        }
        Ok(())
    }

    /// The agent whose inbox this is.
    pub fn owner(&self) -> Option<Agent> {
        self.agent.upgrade().map(Agent)
    }
}

/// JavaScript's `splice` rules; a start in (−1, 0] is plain 0 (D-07).
fn normalise(len: usize, start: f64, delete_count: f64) -> (usize, usize) {
    let length = len as f64;
    let start = if start.is_nan() { 0.0 } else { start.trunc() };
    let start = if start < 0.0 { (length + start).max(0.0) } else { start.min(length) } as usize;
    let count = if delete_count.is_nan() { 0.0 } else { delete_count.trunc().max(0.0) };
    (start, count.min((len - start) as f64) as usize)
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids = |target| self.pending(target).iter().map(|message| message.id().clone()).collect::<Vec<_>>();
        write!(
            f,
            "Inbox {{ next_step: {:?}, next_turn: {:?} }}",
            ids(InboxTarget::NextStep),
            ids(InboxTarget::NextTurn)
        )
    }
}
