//! `crash [--kills N] [--seed S] [--store raw|zstd|sqlite]`: kills N times, in turn with every store unless one is named.

use std::process::ExitCode;
use turnwheel_crash::child::{self, Life};
use turnwheel_crash::parent::{Plan, run};
use turnwheel_crash::stores::Kind;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.first().map(String::as_str) {
        Some("--child") => live(&arguments[1..]),
        _ => kill(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

fn live(arguments: &[String]) -> Result<(), String> {
    let [store, directory, seed, kill_at, messages] = arguments else {
        return Err("crash --child STORE DIRECTORY SEED KILL_AT MESSAGES".into());
    };
    let number = |text: &String| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    let kind = Kind::parse(store).ok_or_else(|| format!("there is no store {store:?}"))?;
    let kill_at = Some(number(kill_at)?).filter(|at| *at > 0);
    let life = Life { kind, directory: directory.as_ref(), seed: number(seed)?, kill_at, messages: number(messages)? };
    child::live(&life).map_err(|error| format!("{error:?}"))
}

fn kill(arguments: &[String]) -> Result<(), String> {
    let (mut kills, mut seed, mut kinds) = (100, 1, Kind::ALL.to_vec());
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return Err(format!("{:?} needs a value", pair[0])) };
        let number = || value.parse::<u64>().map_err(|error| format!("{name} {value:?}: {error}"));
        match name.as_str() {
            "--kills" => kills = number()?,
            "--seed" => seed = number()?,
            "--store" => kinds = vec![Kind::parse(value).ok_or_else(|| format!("there is no store {value:?}"))?],
            _ => return Err(format!("unknown option {name}; crash [--kills N] [--seed S] [--store NAME]")),
        }
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    for kind in kinds {
        let plan = Plan { program: program.clone(), kind, kills, seed };
        let (in_change, by_clock) = run(&plan)?;
        println!(
            "{}: {kills} kills ({in_change} in a change to the disk, {by_clock} by the clock), 0 failures",
            kind.name()
        );
    }
    Ok(())
}
