//! A log in memory. It reads like a list of events; runs of delta chunks are kept packed.

use super::event::Event;
use super::packed::{Delta, Run};
use super::spares;
use std::fmt;
use std::sync::Arc;

/// A growing list of events. Adding one costs the same at any length; one far back is found by a binary search. Deltas
/// are packed once their run has ended, and handed out as events equal to those that were added.
#[derive(Clone, Default)]
pub struct EventLog {
    /// Where each part begins, and the part.
    parts: Vec<(u64, Part)>,
    /// The run that still grows, as events: whoever follows a live session asks for just these.
    tail: Vec<Arc<Event>>,
    len: u64,
}

#[derive(Clone)]
enum Part {
    One(Arc<Event>),
    Run(Box<Run>),
}

/// What [`EventLog::parts`] hands out.
pub(super) enum PartRef {
    /// Any event.
    One(Arc<Event>),
    /// Deltas: the first of them, and how many.
    Deltas(Arc<Event>, u64),
}

/// How many deltas wait in the tail at most.
const MAX_TAIL: usize = 64;

impl EventLog {
    /// How many events there are.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an event.
    pub fn push(&mut self, event: Arc<Event>) {
        match Delta::of(&event) {
            Some(delta) => {
                let continues = self.tail.last().is_none_or(|last| {
                    last.seq.checked_add(1) == Some(event.seq)
                        && Delta::of(last).is_some_and(|before| delta.continues(&before))
                });
                if !continues || self.tail.len() == MAX_TAIL {
                    self.pack_tail();
                }
                self.tail.push(event);
            }
            None => {
                self.pack_tail();
                self.push_part(self.len, Part::One(event));
            }
        }
        self.len += 1;
    }

    /// Adds a delta that is no event yet, packed at once.
    #[cfg(any(feature = "jsonl", test))]
    pub(crate) fn push_delta(&mut self, seq: u64, time: i64, delta: &Delta<'_>) {
        self.pack_tail();
        self.pack(self.len, seq, time, delta, 0);
        self.len += 1;
    }

    fn pack(&mut self, at: u64, seq: u64, time: i64, delta: &Delta<'_>, room: usize) {
        if let Some((_, Part::Run(run))) = self.parts.last_mut()
            && run.take(seq, time, delta)
        {
            return;
        }
        self.push_part(at, Part::Run(Box::new(Run::new(seq, time, delta, room))));
    }

    fn pack_tail(&mut self) {
        let mut tail = std::mem::take(&mut self.tail);
        let first = self.len - tail.len() as u64;
        let room = tail.iter().filter_map(|event| Delta::of(event)).map(|delta| Run::size_of(delta.fragment)).sum();
        for (at, event) in (first..).zip(tail.drain(..)) {
            match Delta::of(&event) {
                Some(delta) => {
                    self.pack(at, event.seq, event.time, &delta, room);
                    spares::keep(event);
                }
                None => self.push_part(at, Part::One(event)),
            }
        }
        // Its room is used again.
        self.tail = tail;
    }

    fn push_part(&mut self, at: u64, part: Part) {
        if let Some((_, Part::Run(run))) = self.parts.last_mut() {
            run.end();
        }
        self.parts.push((at, part));
    }

    /// Gives back the room kept for more.
    pub(crate) fn shrink(&mut self) {
        self.pack_tail();
        if let Some((_, Part::Run(run))) = self.parts.last_mut() {
            run.end();
        }
        self.parts.shrink_to_fit();
    }

    /// The event at a position.
    pub fn get(&self, at: usize) -> Option<Arc<Event>> {
        self.iter_from(at).next()
    }

    /// The last event.
    pub fn last(&self) -> Option<Arc<Event>> {
        self.get(self.len().checked_sub(1)?)
    }

    /// The events in order.
    pub fn iter(&self) -> impl Iterator<Item = Arc<Event>> + '_ {
        self.iter_from(0)
    }

    /// The events from a position on.
    pub fn iter_from(&self, at: usize) -> impl Iterator<Item = Arc<Event>> + '_ {
        let at = at as u64;
        let packed = self.len - self.tail.len() as u64;
        let first = if at >= packed { self.parts.len() } else { self.part_of(at) };
        let parts = self.parts[first..].iter().flat_map(move |(start, part)| {
            let (one, run) = match part {
                Part::One(event) => (Some(event.clone()), None),
                Part::Run(run) => (None, Some(run.events_from(at.saturating_sub(*start)))),
            };
            one.into_iter().chain(run.into_iter().flatten())
        });
        let skipped = usize::try_from(at.saturating_sub(packed)).unwrap_or(usize::MAX);
        parts.chain(self.tail.get(skipped..).unwrap_or_default().iter().cloned())
    }

    fn part_of(&self, at: u64) -> usize {
        self.parts.partition_point(|(start, _)| *start <= at).saturating_sub(1)
    }

    /// The events that are not packed deltas, in order: all messages, brackets and whatever else has a meaning of its
    /// own. A walk over a whole log costs what these are.
    pub fn marks(&self) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        self.marks_from(0)
    }

    /// As [`EventLog::marks`], from a position on.
    pub fn marks_from(&self, at: usize) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        let at = at as u64;
        let first = self.parts.partition_point(|(start, _)| *start < at);
        let skipped = at.saturating_sub(self.len - self.tail.len() as u64);
        let tail = self.tail.get(usize::try_from(skipped).unwrap_or(usize::MAX)..).unwrap_or_default();
        let parts = self.parts[first..].iter().filter_map(|(_, part)| match part {
            Part::One(event) => Some(event),
            Part::Run(_) => None,
        });
        parts.chain(tail)
    }

    /// The events as a list.
    pub fn to_vec(&self) -> Vec<Arc<Event>> {
        let mut list = Vec::with_capacity(self.len());
        list.extend(self.iter());
        list
    }

    /// The parts in order; a run of deltas counts as one.
    pub(super) fn parts(&self) -> impl Iterator<Item = PartRef> + '_ {
        let parts = self.parts.iter().map(|(_, part)| match part {
            Part::One(event) => PartRef::One(event.clone()),
            Part::Run(run) => {
                let first = run.events_from(0).next().expect("a run has a member");
                debug_assert_eq!(first.seq, run.first_seq());
                PartRef::Deltas(first, run.len())
            }
        });
        parts.chain(self.tail.iter().map(|event| PartRef::One(event.clone())))
    }
}

impl From<Vec<Arc<Event>>> for EventLog {
    fn from(events: Vec<Arc<Event>>) -> Self {
        events.into_iter().collect()
    }
}

impl From<EventLog> for Vec<Arc<Event>> {
    fn from(log: EventLog) -> Self {
        log.to_vec()
    }
}

impl FromIterator<Arc<Event>> for EventLog {
    fn from_iter<T: IntoIterator<Item = Arc<Event>>>(events: T) -> Self {
        let mut log = Self::default();
        log.extend(events);
        log
    }
}

impl Extend<Arc<Event>> for EventLog {
    fn extend<T: IntoIterator<Item = Arc<Event>>>(&mut self, events: T) {
        events.into_iter().for_each(|event| self.push(event));
    }
}

impl PartialEq for EventLog {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<T: AsRef<[Arc<Event>]>> PartialEq<T> for EventLog {
    fn eq(&self, other: &T) -> bool {
        self.iter().eq(other.as_ref().iter().cloned())
    }
}

impl fmt::Debug for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
