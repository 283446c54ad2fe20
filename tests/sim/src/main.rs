//! `sim --seeds N [--start S]`, `sim --seed X [--trace] [--stimuli 1,2] [--decisions a:b:1,…]`.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use turnwheel_sim::run::{Outcome, Part, run};
use turnwheel_sim::shrink::{replayable, shrink};

/// Every so many seeds a run is repeated: it has to publish the same bytes (P6).
const REPEAT_EVERY: u64 = 16;

struct Options {
    seeds: u64,
    start: u64,
    seed: Option<u64>,
    trace: bool,
    keep_going: u64,
    part: Part,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(what) => {
            eprintln!(
                "{what}\nusage: sim --seeds N [--start S] [--failures N] | sim --seed X [--trace] [--stimuli LIST] [--decisions LIST]"
            );
            return ExitCode::from(2);
        }
    };
    let failed = match options.seed {
        Some(seed) => one(seed, &options),
        None => many(&options),
    };
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options =
        Options { seeds: 1_000, start: 0, seed: None, trace: false, keep_going: 1, part: Part::default() };
    while let Some(name) = arguments.next() {
        if name == "--trace" {
            options.trace = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} needs a number, not {value:?}"));
        let items = || value.split(',').filter(|item| !item.is_empty());
        match name.as_str() {
            "--seeds" => options.seeds = number()?,
            "--start" => options.start = number()?,
            "--seed" => options.seed = Some(number()?),
            "--failures" => options.keep_going = number()?,
            "--stimuli" => {
                let list: Result<BTreeSet<usize>, _> = items().map(str::parse).collect();
                options.part.stimuli = Some(list.map_err(|_| format!("bad list {value:?}"))?);
            }
            "--decisions" => options.part.decisions = Some(items().map(str::to_owned).collect()),
            _ => return Err(format!("unknown option {name}")),
        }
    }
    Ok(options)
}

fn one(seed: u64, options: &Options) -> bool {
    let outcome = run(seed, &options.part, options.trace);
    for line in &outcome.trace {
        println!("{line}");
    }
    let failed = outcome.violation.is_some();
    if failed && !options.trace {
        report(seed, &outcome);
    } else if let Some(violation) = &outcome.violation {
        println!("seed {seed}: {}: {}", violation.invariant, violation.what);
    }
    println!("{} passed, {} failed", u8::from(!failed), u8::from(failed));
    failed
}

fn many(options: &Options) -> bool {
    let (began, mut told) = (Instant::now(), Instant::now());
    let (mut passed, mut failed, mut events) = (0, 0, 0);
    for seed in options.start..options.start + options.seeds {
        let outcome = run(seed, &Part::default(), false);
        events += outcome.events;
        if outcome.violation.is_some() {
            failed += 1;
            report(seed, &outcome);
        } else if seed % REPEAT_EVERY == 0 && run(seed, &Part::default(), false).hash != outcome.hash {
            failed += 1;
            println!("seed {seed}: P6: two runs published different bytes");
        } else {
            passed += 1;
        }
        if failed >= options.keep_going {
            break;
        }
        if told.elapsed() > Duration::from_secs(3) {
            told = Instant::now();
            let rate = (passed + failed) as f64 / began.elapsed().as_secs_f64();
            println!("{} seeds, {events} events, {rate:.0} seeds/s, {failed} failed", passed + failed);
        }
    }
    let rate = (passed + failed) as f64 / began.elapsed().as_secs_f64();
    println!("{events} events, {rate:.0} seeds/s, seeds {}..{}", options.start, options.start + passed + failed);
    println!("{passed} passed, {failed} failed");
    failed > 0
}

fn report(seed: u64, outcome: &Outcome) {
    let Some(violation) = &outcome.violation else { return };
    println!("seed {seed}: {}: {}", violation.invariant, violation.what);
    println!("the script:\n{}", replayable(seed, &Part::default()));
    let part = shrink(seed, outcome, Duration::from_secs(10));
    println!("shrunk:\n{}", replayable(seed, &part));
    if let Some(violation) = run(seed, &part, false).violation {
        println!("  {}: {}", violation.invariant, violation.what);
    }
}
