//! Pending input and what became of it, as a fold over the log (INB, A-01, D-08, D-10).
//!
//! Nothing here is stored: drop it, fold the same events again, and get an equal one.

use super::event::{Event, EventData, InboxTarget, Splice};
use super::reason::TurnEndReason;
use crate::error::{Code, Error, Result};
use crate::id::MessageId;
use crate::message::Message;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// What became of a message that the inbox accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It waits.
    Pending {
        /// In this list.
        target: InboxTarget,
        /// The event that put it there.
        seq: u64,
    },
    /// This turn took it.
    Claimed {
        /// The turn.
        turn: u64,
        /// The step it was taken for, once that has started.
        step: Option<u64>,
    },
    /// It was removed before any turn took it, by the event of this seq.
    Discarded {
        /// The event that removed it.
        seq: u64,
    },
}

/// Where a turn lies in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnSpan {
    /// The turn's number.
    pub turn: u64,
    /// Seq of its `turn/start`.
    pub start: u64,
    /// Seq of its `turn/end`, once it ended.
    pub end: Option<u64>,
}

/// A claimed message and the list it came from.
pub type Claim = (InboxTarget, Arc<Message>);

/// The fold.
#[derive(Clone, Debug, Default)]
pub struct InboxFold {
    next_step: VecDeque<Arc<Message>>,
    next_turn: VecDeque<Arc<Message>>,
    deliveries: HashMap<MessageId, Delivery>,
    turns: Vec<TurnSpan>,
    last_turn: u64,
    in_turn: bool,
    unentered: Vec<Claim>,
    /// Claims of the step that just opened whose messages are not in the log yet.
    entering: Vec<Claim>,
    lost: Vec<Claim>,
    /// Since when the messages of this turn's claims had waited: a claim that is undone never interrupted that (D-10).
    claimed_since: HashMap<MessageId, u64>,
}

impl InboxFold {
    /// A pending list.
    pub fn list(&self, target: InboxTarget) -> &VecDeque<Arc<Message>> {
        match target {
            InboxTarget::NextStep => &self.next_step,
            InboxTarget::NextTurn => &self.next_turn,
        }
    }

    fn list_mut(&mut self, target: InboxTarget) -> &mut VecDeque<Arc<Message>> {
        match target {
            InboxTarget::NextStep => &mut self.next_step,
            InboxTarget::NextTurn => &mut self.next_turn,
        }
    }

    /// Whether anything is pending.
    pub fn has_pending(&self) -> bool {
        !self.next_step.is_empty() || !self.next_turn.is_empty()
    }

    /// What became of a message; `None` if it was never accepted.
    pub fn delivery(&self, id: &str) -> Option<Delivery> {
        self.deliveries.get(id).copied()
    }

    /// Where a turn of this session lies.
    pub fn turn(&self, turn: u64) -> Option<TurnSpan> {
        let at = self.turns.binary_search_by_key(&turn, |span| span.turn).ok()?;
        self.turns.get(at).copied()
    }

    /// The number of the last turn that began, ended or not (ID-10); 0 before the first.
    pub fn last_turn(&self) -> u64 {
        self.last_turn
    }

    /// Claims of the open turn that entered no step yet.
    pub fn unentered(&self) -> &[Claim] {
        &self.unentered
    }

    /// Claims of a turn that a crash ended before their messages entered a step (D-10).
    pub fn lost(&self) -> &[Claim] {
        &self.lost
    }

    /// Checks a splice against the resulting contents of both lists (INB-9).
    pub fn check(&self, splice: &Splice) -> Result<()> {
        let list = self.list(splice.target);
        let end = splice.start.checked_add(splice.removed_count).filter(|end| *end <= list.len());
        let Some(end) = end else {
            let message = format!(
                "splice of {} at {} reaches beyond the {} pending messages",
                splice.removed_count,
                splice.start,
                list.len()
            );
            return Err(Error::new(Code::InvalidEvent, message));
        };
        for (at, message) in splice.inserted.iter().enumerate() {
            let id = message.id();
            let stays = |target: InboxTarget| {
                let removed = if target == splice.target { splice.start..end } else { 0..0 };
                let mut list = self.list(target).iter().enumerate();
                list.any(|(i, other)| other.id() == id && !removed.contains(&i))
            };
            let pending = matches!(self.delivery(id), Some(Delivery::Pending { .. }))
                && (stays(InboxTarget::NextStep) || stays(InboxTarget::NextTurn));
            if pending || splice.inserted[..at].iter().any(|other| other.id() == id) {
                return Err(duplicate(id));
            }
        }
        Ok(())
    }

    /// Checks that no inserted message was accepted before, unless this very splice takes it out (D-08).
    pub fn check_new(&self, splice: &Splice) -> Result<()> {
        let leaving = self.list(splice.target).iter().skip(splice.start).take(splice.removed_count);
        let leaving: Vec<_> = leaving.map(|message| message.id()).collect();
        let known = |id: &MessageId| self.deliveries.contains_key(id) && !leaving.contains(&id);
        match splice.inserted.iter().find(|message| known(message.id())) {
            Some(message) => Err(duplicate(message.id())),
            None => Ok(()),
        }
    }

    /// Folds a committed event. `replayed` events before the session's own part only count turns (INB-24).
    pub fn apply(&mut self, event: &Event, own: bool) -> Result<Vec<Arc<Message>>> {
        match &event.data {
            EventData::TurnStart { turn } => {
                self.last_turn = *turn;
                self.in_turn = true;
                self.unentered.clear();
                self.entering.clear();
                self.lost.clear();
                self.claimed_since.clear();
                if self.turns.last().is_none_or(|last| last.turn < *turn) {
                    self.turns.push(TurnSpan { turn: *turn, start: event.seq, end: None });
                }
            }
            EventData::StepStart { turn, step } => {
                self.entering = std::mem::take(&mut self.unentered);
                for (_, message) in &self.entering {
                    let claimed = Delivery::Claimed { turn: *turn, step: Some(*step) };
                    self.deliveries.insert(message.id().clone(), claimed);
                }
            }
            EventData::UserMessage(message) => self.entering.retain(|(_, claimed)| claimed.id() != message.id()),
            // Behind its messages the step goes on: what is missing was left out by the decision (TURN-8).
            EventData::RequestHeader { .. }
            | EventData::RequestContext(_)
            | EventData::AssistantChunk { .. }
            | EventData::AssistantMessage { .. } => self.entering.clear(),
            EventData::TurnEnd { turn, reason } => {
                self.in_turn = false;
                let mut claims = std::mem::take(&mut self.entering);
                claims.append(&mut self.unentered);
                if *reason == TurnEndReason::Interrupted {
                    self.lost = claims;
                }
                if let Some(last) = self.turns.last_mut().filter(|last| last.turn == *turn) {
                    last.end = Some(event.seq);
                }
            }
            EventData::InboxSpliced(splice) if own => return self.splice(event.seq, splice),
            _ => {}
        }
        Ok(Vec::new())
    }

    fn splice(&mut self, seq: u64, splice: &Splice) -> Result<Vec<Arc<Message>>> {
        self.check(splice)?;
        let range = splice.start..splice.start + splice.removed_count;
        // A message that is replaced under its own id, or whose claim is undone, has waited since it first came.
        let since = splice.inserted.iter().map(|message| match self.deliveries.get(message.id()) {
            Some(Delivery::Pending { seq, .. }) => *seq,
            Some(Delivery::Claimed { .. }) => self.claimed_since.get(message.id()).copied().unwrap_or(seq),
            Some(Delivery::Discarded { .. }) | None => seq,
        });
        let since: Vec<_> = since.collect();
        let list = self.list_mut(splice.target);
        let removed: Vec<_> = list.drain(range).collect();
        for (i, message) in splice.inserted.iter().enumerate() {
            list.insert(splice.start + i, message.clone());
        }
        let turn = self.last_turn;
        for message in &removed {
            let delivery = if splice.canceled || !self.in_turn {
                Delivery::Discarded { seq }
            } else {
                self.unentered.push((splice.target, message.clone()));
                if let Some(Delivery::Pending { seq, .. }) = self.deliveries.get(message.id()) {
                    self.claimed_since.insert(message.id().clone(), *seq);
                }
                Delivery::Claimed { turn, step: None }
            };
            self.deliveries.insert(message.id().clone(), delivery);
        }
        for (message, seq) in splice.inserted.iter().zip(since) {
            self.deliveries.insert(message.id().clone(), Delivery::Pending { target: splice.target, seq });
            self.unentered.retain(|(_, claimed)| claimed.id() != message.id());
            self.entering.retain(|(_, claimed)| claimed.id() != message.id());
            self.lost.retain(|(_, claimed)| claimed.id() != message.id());
        }
        Ok(removed)
    }
}

fn duplicate(id: &MessageId) -> Error {
    let message = format!("message {id:?} was accepted before; give a new message a new id");
    Error::new(Code::DuplicateMessage, message).with("id", id.as_str())
}
