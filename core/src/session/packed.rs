//! Runs of delta chunks as a log keeps them in memory: what all members share once, and a few bytes for each.
//!
//! A stream of small deltas is nine tenths of a log. As events of their own they would take hundreds of bytes each, most
//! of it the same; in a run a delta takes its text, its gap in time and its length. It is made an event again when
//! somebody asks for it, and then equals the one that was logged.

use super::event::{Event, EventData};
use crate::llm::Chunk;
use std::sync::Arc;

/// So long a run is decoded from its start when one member is asked for, which then costs about as much as a lookup.
const MAX_MEMBERS: u32 = 64;

/// The three kinds of delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeltaKind {
    Text,
    Reasoning,
    ToolCall,
}

/// A delta chunk without its envelope.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delta<'a> {
    pub(crate) kind: DeltaKind,
    pub(crate) turn: u64,
    pub(crate) step: u64,
    pub(crate) index: u64,
    /// Of tool calls only, as is `name`.
    pub(crate) id: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    pub(crate) fragment: &'a str,
}

impl<'a> Delta<'a> {
    /// `None` for anything but a delta that is written as this version writes it: a text of its own would be lost.
    pub(crate) fn of(event: &'a Event) -> Option<Self> {
        if event.has_own_text() || event.ignorable || event.surface_op.is_some() || event.source_event_seqs.is_some() {
            return None;
        }
        let EventData::AssistantChunk { turn, step, chunk } = &event.data else {
            return None;
        };
        let (kind, index, id, name, fragment) = match chunk {
            Chunk::TextDelta { index, text } => (DeltaKind::Text, *index, None, None, text),
            Chunk::ReasoningDelta { index, text } => (DeltaKind::Reasoning, *index, None, None, text),
            Chunk::ToolCallDelta { index, id, name, arguments_delta } => {
                (DeltaKind::ToolCall, *index, id.as_deref(), name.as_deref(), arguments_delta)
            }
            Chunk::BlockStart { .. } | Chunk::BlockEnd { .. } | Chunk::Usage(_) | Chunk::Finish { .. } => return None,
        };
        Some(Self { kind, turn: *turn, step: *step, index, id, name, fragment })
    }

    /// Whether both may stand in one run.
    pub(crate) fn continues(&self, other: &Delta<'_>) -> bool {
        self.kind == other.kind
            && (self.turn, self.step, self.index) == (other.turn, other.step, other.index)
            && self.id == other.id
            && self.name == other.name
    }
}

/// Consecutive deltas of one block.
#[derive(Clone)]
pub(super) struct Run {
    kind: DeltaKind,
    turn: u64,
    step: u64,
    index: u64,
    id: Option<Box<str>>,
    name: Option<Box<str>>,
    first_seq: u64,
    first_time: i64,
    last_time: i64,
    members: u32,
    /// For each member: the gap in time to the one before, the length of its fragment, the fragment.
    bytes: Vec<u8>,
}

impl Run {
    /// A run of one, with room for as many bytes as `room` says.
    pub(super) fn new(seq: u64, time: i64, delta: &Delta<'_>, room: usize) -> Self {
        let mut run = Self {
            kind: delta.kind,
            turn: delta.turn,
            step: delta.step,
            index: delta.index,
            id: delta.id.map(Into::into),
            name: delta.name.map(Into::into),
            first_seq: seq,
            first_time: time,
            last_time: time,
            members: 0,
            bytes: Vec::with_capacity(room),
        };
        run.add(time, delta.fragment);
        run
    }

    pub(super) fn len(&self) -> u64 {
        u64::from(self.members)
    }

    pub(super) fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// Adds the delta, if it belongs here and there is room.
    pub(super) fn take(&mut self, seq: u64, time: i64, delta: &Delta<'_>) -> bool {
        let fits =
            self.members < MAX_MEMBERS && seq == self.first_seq + self.len() && delta.continues(&self.shared(""));
        if fits {
            self.add(time, delta.fragment);
        }
        fits
    }

    fn add(&mut self, time: i64, fragment: &str) {
        let gap = time.wrapping_sub(self.last_time);
        // The sign goes to the lowest bit, so that small gaps are short whichever way they go.
        write_count(((gap << 1) ^ (gap >> 63)) as u64, &mut self.bytes);
        write_count(fragment.len() as u64, &mut self.bytes);
        self.bytes.extend_from_slice(fragment.as_bytes());
        self.last_time = time;
        self.members += 1;
    }

    /// Gives back the room kept for more, unless that is less than an allocator rounds to.
    pub(super) fn end(&mut self) {
        if self.bytes.capacity() - self.bytes.len() >= 16 {
            self.bytes.shrink_to_fit();
        }
    }

    /// How many bytes a member takes whose delay and text are short.
    pub(super) fn size_of(fragment: &str) -> usize {
        fragment.len() + 2
    }

    fn shared<'a>(&'a self, fragment: &'a str) -> Delta<'a> {
        Delta {
            kind: self.kind,
            turn: self.turn,
            step: self.step,
            index: self.index,
            id: self.id.as_deref(),
            name: self.name.as_deref(),
            fragment,
        }
    }

    /// The members from `at` on, as events.
    pub(super) fn events_from(&self, at: u64) -> impl Iterator<Item = Arc<Event>> + '_ {
        let mut bytes = &self.bytes[..];
        let mut time = self.first_time;
        let members = (self.first_seq..).take(self.members as usize).map(move |seq| {
            let gap = read_count(&mut bytes);
            time = time.wrapping_add((gap >> 1) as i64 ^ -((gap & 1) as i64));
            let length = read_count(&mut bytes) as usize;
            let (fragment, rest) = bytes.split_at(length);
            bytes = rest;
            (seq, time, fragment)
        });
        members.skip(usize::try_from(at).unwrap_or(usize::MAX)).map(|(seq, time, fragment)| {
            let text = std::str::from_utf8(fragment).expect("a fragment is cut where it was joined").to_owned();
            Arc::new(Event::new(seq, time, self.data(text)))
        })
    }

    fn data(&self, text: String) -> EventData {
        let index = self.index;
        let chunk = match self.kind {
            DeltaKind::Text => Chunk::TextDelta { index, text },
            DeltaKind::Reasoning => Chunk::ReasoningDelta { index, text },
            DeltaKind::ToolCall => Chunk::ToolCallDelta {
                index,
                id: self.id.as_deref().map(str::to_owned),
                name: self.name.as_deref().map(str::to_owned),
                arguments_delta: text,
            },
        };
        EventData::AssistantChunk { turn: self.turn, step: self.step, chunk }
    }
}

/// Seven bits a byte, the lowest first; the high bit says that more follow.
fn write_count(mut count: u64, out: &mut Vec<u8>) {
    while count >= 0x80 {
        out.push(count as u8 | 0x80);
        count >>= 7;
    }
    out.push(count as u8);
}

fn read_count(bytes: &mut &[u8]) -> u64 {
    let (mut count, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first().expect("a run holds as many members as it counts");
        *bytes = rest;
        count |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return count;
        }
        shift += 7;
    }
}
