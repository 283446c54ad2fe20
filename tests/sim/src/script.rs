//! Scripts: the list of stimuli that a seed stands for.

use crate::dice::Rng;
use std::time::Duration;

/// What the scheduler, or host code, does next. Subjects are slots of agents, modulo how many there are.
#[derive(Clone, Debug)]
pub enum Op {
    /// Delivers a message: a fresh one, or the id of the `repeat`-th known one again.
    Send { who: u64, how: How, repeat: Option<u64> },
    /// Cancels.
    Cancel { who: u64, cause: u64, keep: bool },
    /// Edits a pending list.
    Edit { who: u64, edit: Edit, next_turn: bool, at: i64 },
    /// Wakes.
    Wake { who: u64 },
    /// An owned run or a stream of events; perhaps dropped again by [`Op::DropOne`].
    Own { who: u64, stream: bool },
    /// A delivery that a check refuses, and a wait for it.
    Vetoed { who: u64, how: u64 },
    /// Drops a run or stream under way.
    DropOne { nth: u64 },
    /// A maintenance task.
    Maintain { who: u64, task: u64 },
    /// Disposes an agent.
    Dispose { who: u64 },
    /// Opens an agent that is not live.
    Open { who: u64 },
    /// Forks an agent, perhaps with the fork being an agent.
    Fork { who: u64, bare: bool, back: u64 },
    /// The process of a context dies, `after` more events.
    Crash { context: u64, after: u64, close: bool },
    /// Opens a gate.
    Gate { nth: u64 },
    /// Opens every gate.
    AllGates,
    /// Moves the clock.
    Clock(Duration),
    /// One pump, without waiting for it to have nothing more to do.
    Pump { context: u64 },
    /// Pumps until nothing moves, then everything is checked.
    Settle,
    /// Appends an event of a plug-in, or tries a reserved one.
    Append { who: u64, reserved: bool },
    /// Replaces the older part of the surface, as a compaction does.
    Compact { who: u64, keep: u64 },
    /// Registers a listener and takes one away.
    Listener { who: u64, kind: u64 },
    /// Asks everything that can be asked.
    Query { who: u64 },
    /// Does something after a few turns of the executor.
    Later { yields: u64, op: Box<Op> },
}

/// How a message is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the agent's methods")]
pub enum How {
    Followup,
    Steer,
    Inject,
    /// Next-turn, without waking.
    Quiet,
}

/// An edit of the inbox.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names of the inbox's methods")]
pub enum Edit {
    Append,
    Prepend,
    Splice { count: i64, insert: u64 },
    Replace { same_id: bool },
    Remove,
    Clear,
}

/// The script of a seed.
pub fn script(seed: u64) -> Vec<Op> {
    let mut rng = Rng::new(seed ^ 0x0005_C219);
    let count = 12 + rng.below(60);
    (0..count).map(|_| stimulus(&mut rng)).collect()
}

fn stimulus(rng: &mut Rng) -> Op {
    match rng.below(100) {
        0..18 => Op::Settle,
        18..23 => Op::Pump { context: rng.below(2) },
        23..37 => Op::Gate { nth: rng.below(8) },
        37..39 => Op::AllGates,
        39..43 => Op::Clock(Duration::from_millis([1, 60, 250, 2_000][rng.below(4) as usize])),
        43..45 => Op::Open { who: rng.below(6) },
        45..47 => Op::Crash { context: rng.below(2), after: rng.below(12), close: rng.percent(5) },
        47..62 => {
            let how = if rng.percent(70) { How::Followup } else { How::Steer };
            Op::Send { who: rng.below(6), how, repeat: None }
        }
        _ => act(rng, 0),
    }
}

/// Something that host code may do as well, from wherever it is called.
pub fn act(rng: &mut Rng, depth: u64) -> Op {
    let who = rng.below(6);
    match rng.below(100) {
        0..34 => {
            let how = [How::Followup, How::Followup, How::Steer, How::Inject, How::Quiet][rng.below(5) as usize];
            let repeat = rng.percent(8).then(|| rng.below(16));
            Op::Send { who, how, repeat }
        }
        34..46 => Op::Cancel { who, cause: rng.below(3), keep: rng.percent(55) },
        46..60 => {
            let edit = match rng.below(6) {
                0 => Edit::Append,
                1 => Edit::Prepend,
                2 => Edit::Splice { count: rng.below(4) as i64 - 1, insert: rng.below(3) },
                3 => Edit::Replace { same_id: rng.percent(50) },
                4 => Edit::Remove,
                _ => Edit::Clear,
            };
            Op::Edit { who, edit, next_turn: rng.percent(50), at: rng.below(6) as i64 - 2 }
        }
        60..66 => Op::Wake { who },
        66..71 => Op::Own { who, stream: rng.percent(30) },
        71..74 => Op::DropOne { nth: rng.below(4) },
        74..78 => Op::Maintain { who, task: rng.below(4) },
        78..81 => Op::Dispose { who },
        81..83 => Op::Open { who },
        83..85 => Op::Fork { who, bare: rng.percent(50), back: rng.below(12) },
        85..88 => Op::Append { who, reserved: rng.percent(30) },
        88..90 => Op::Compact { who, keep: rng.below(6) },
        90..92 => Op::Listener { who, kind: rng.below(16) },
        92..94 => Op::Query { who },
        94..95 => Op::Vetoed { who, how: rng.below(4) },
        95..96 => Op::Pump { context: rng.below(2) },
        _ if depth < 2 => Op::Later { yields: rng.below(4), op: Box::new(act(rng, depth + 1)) },
        _ => Op::Wake { who },
    }
}

impl Op {
    /// The slot it is about.
    pub fn subject(&self) -> u64 {
        match self {
            Op::Send { who, .. } | Op::Cancel { who, .. } | Op::Edit { who, .. } | Op::Wake { who } => *who,
            Op::Own { who, .. } | Op::Maintain { who, .. } | Op::Dispose { who } | Op::Open { who } => *who,
            Op::Fork { who, .. } | Op::Append { who, .. } | Op::Compact { who, .. } => *who,
            Op::Listener { who, .. } | Op::Query { who } | Op::Vetoed { who, .. } => *who,
            Op::Later { op, .. } => op.subject(),
            Op::DropOne { .. } | Op::Crash { .. } | Op::Gate { .. } | Op::AllGates => 0,
            Op::Clock(_) | Op::Pump { .. } | Op::Settle => 0,
        }
    }

    /// Makes it about a slot.
    pub fn aim(&mut self, slot: u64) {
        match self {
            Op::Send { who, .. } | Op::Cancel { who, .. } | Op::Edit { who, .. } | Op::Wake { who } => *who = slot,
            Op::Own { who, .. } | Op::Maintain { who, .. } | Op::Dispose { who } | Op::Open { who } => *who = slot,
            Op::Fork { who, .. } | Op::Append { who, .. } | Op::Compact { who, .. } => *who = slot,
            Op::Listener { who, .. } | Op::Query { who } | Op::Vetoed { who, .. } => *who = slot,
            Op::Later { op, .. } => op.aim(slot),
            Op::DropOne { .. } | Op::Crash { .. } | Op::Gate { .. } | Op::AllGates => {}
            Op::Clock(_) | Op::Pump { .. } | Op::Settle => {}
        }
    }
}
