//! Shrinks a failing script: fewer stimuli, then fewer decisions of host code, as long as the same invariant breaks.

use crate::run::{Outcome, Part, run};
use crate::script::script;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The smallest part of a seed's script that was found to break the same invariant.
pub fn shrink(seed: u64, outcome: &Outcome, time: Duration) -> Part {
    let Some(violation) = &outcome.violation else { return Part::default() };
    let invariant = violation.invariant;
    let deadline = Instant::now() + time;
    let fails = |part: &Part| run(seed, part, false).violation.is_some_and(|found| found.invariant == invariant);
    let all: Vec<usize> = (0..script(seed).len()).collect();
    let mut part = Part::default();
    // Twice: with fewer decisions some stimuli become needless.
    for _ in 0..2 {
        let stimuli: Vec<_> = part.stimuli.clone().map_or(all.clone(), |kept| kept.into_iter().collect());
        let (decisions, kept) = (
            part.decisions.clone(),
            minimise(stimuli, deadline, |kept: &BTreeSet<usize>| {
                fails(&Part { stimuli: Some(kept.clone()), decisions: part.decisions.clone() })
            }),
        );
        part = Part { stimuli: Some(kept), decisions };
        let taken = run(seed, &part, false).taken;
        let stimuli = part.stimuli.clone();
        let kept = minimise(taken, deadline, |kept: &BTreeSet<String>| {
            fails(&Part { stimuli: stimuli.clone(), decisions: Some(kept.clone()) })
        });
        part.decisions = Some(kept);
    }
    part
}

/// Delta debugging.
fn minimise<T: Clone + Ord>(items: Vec<T>, deadline: Instant, fails: impl Fn(&BTreeSet<T>) -> bool) -> BTreeSet<T> {
    let mut kept = items;
    let mut size = kept.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut removed = false;
        while at < kept.len() {
            if Instant::now() > deadline {
                return kept.into_iter().collect();
            }
            let end = (at + size).min(kept.len());
            let without: BTreeSet<T> = kept[..at].iter().chain(&kept[end..]).cloned().collect();
            if fails(&without) {
                kept.drain(at..end);
                removed = true;
            } else {
                at = end;
            }
        }
        if size == 1 && !removed {
            return kept.into_iter().collect();
        }
        if !removed || size > 1 {
            size = (size / 2).max(1);
        }
    }
}

/// A script as text that can be replayed.
pub fn replayable(seed: u64, part: &Part) -> String {
    let mut text = format!("sim --seed {seed} --trace");
    if let Some(stimuli) = &part.stimuli {
        let list: Vec<_> = stimuli.iter().map(ToString::to_string).collect();
        text.push_str(&format!(" --stimuli {:?}", list.join(",")));
    }
    if let Some(decisions) = &part.decisions {
        let list: Vec<_> = decisions.iter().cloned().collect();
        text.push_str(&format!(" --decisions {:?}", list.join(",")));
    }
    for (at, op) in script(seed).iter().enumerate() {
        if part.stimuli.as_ref().is_none_or(|kept| kept.contains(&at)) {
            text.push_str(&format!("\n  {at:3}  {op:?}"));
        }
    }
    for decision in part.decisions.iter().flatten() {
        text.push_str(&format!("\n  host {decision}"));
    }
    text
}
