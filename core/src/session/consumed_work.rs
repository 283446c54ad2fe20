//! What came of accepted work, as a fold over a log (CWK).

use super::event::{Event, EventData, InboxTarget, Splice};
use super::reason::TurnEndReason;
use crate::id::MessageId;
use std::collections::VecDeque;
use std::sync::Arc;

/// The last turn that accounts for input, and whether input was dropped unrun after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumedWork {
    /// Seq of the accounting `turn/end`.
    pub end: Option<u64>,
    /// Whether a message was discarded after it without a replacement.
    pub dropped_unrun: bool,
}

#[derive(Default)]
struct Fold {
    work: ConsumedWork,
    lists: [VecDeque<MessageId>; 2],
    in_turn: bool,
    entered: bool,
    claimed: Vec<MessageId>,
    /// A turn that a crash ended before its claim entered a step, and what held before it: if its claim comes back,
    /// it took nothing (D-10).
    interrupted: Option<(Vec<MessageId>, ConsumedWork)>,
}

/// Folds a log, or the part of it that a session owns.
pub fn fold_consumed_work<'a>(events: impl IntoIterator<Item = &'a Arc<Event>>) -> ConsumedWork {
    let mut fold = Fold::default();
    for event in events {
        fold.apply(event);
    }
    fold.work
}

impl Fold {
    fn apply(&mut self, event: &Event) {
        match &event.data {
            EventData::TurnStart { .. } => {
                self.in_turn = true;
                self.entered = false;
                self.claimed.clear();
                self.interrupted = None;
            }
            EventData::StepStart { .. } => self.entered = true,
            EventData::TurnEnd { reason, .. } => self.end(event.seq, reason),
            EventData::InboxSpliced(splice) => self.splice(splice),
            _ => {}
        }
    }

    fn end(&mut self, seq: u64, reason: &TurnEndReason) {
        self.in_turn = false;
        let took = !self.claimed.is_empty();
        let accounts = self.entered || (took && *reason != TurnEndReason::Completed);
        if !accounts {
            return;
        }
        if !self.entered && *reason == TurnEndReason::Interrupted {
            self.interrupted = Some((std::mem::take(&mut self.claimed), self.work));
        }
        self.work = ConsumedWork { end: Some(seq), dropped_unrun: false };
    }

    fn splice(&mut self, splice: &Splice) {
        let list = &mut self.lists[usize::from(splice.target == InboxTarget::NextTurn)];
        // An owned suffix may begin behind insertions that it does not hold.
        let start = splice.start.min(list.len());
        let end = (splice.start + splice.removed_count).min(list.len());
        let removed: Vec<_> = list.drain(start..end).collect();
        for (i, message) in splice.inserted.iter().enumerate() {
            list.insert((start + i).min(list.len()), message.id().clone());
        }
        if splice.canceled {
            self.work.dropped_unrun |= splice.removed_count > 0 && splice.inserted.is_empty();
        } else if self.in_turn && splice.removed_count > 0 {
            let unknown = splice.removed_count - removed.len();
            self.claimed.extend(removed);
            self.claimed.extend((0..unknown).map(|_| MessageId::from("")));
        }
        for message in &splice.inserted {
            self.claimed.retain(|id| id != message.id());
            if let Some((claimed, before)) = &mut self.interrupted {
                claimed.retain(|id| id != message.id());
                if claimed.is_empty() {
                    self.work = *before;
                    self.interrupted = None;
                }
            }
        }
    }
}
