//! `conformance [--pending FILE] [--decisions DIR] [--show NAME] DIR`: runs the scenarios of a folder.

use std::process::ExitCode;
use turnwheel_conformance::{Options, Report, run_folder, show};

const USAGE: &str = "usage: conformance [--pending FILE] [--decisions DIR] [--show NAME] DIR";

fn main() -> ExitCode {
    let outcome = parse().and_then(|(options, shown)| match shown {
        Some(name) => {
            let result = show(&options, &name)?;
            println!("{}", serde_json::to_string_pretty(&result).map_err(|error| error.to_string())?);
            Ok(true)
        }
        None => run_folder(&options).map(|report| print(&report)),
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
    }
}

fn parse() -> Result<(Options, Option<String>), String> {
    let (mut options, mut shown, mut folder) = (Options::default(), None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| USAGE.to_owned());
        match argument.as_str() {
            "--pending" => options.pending = Some(value()?.into()),
            "--decisions" => options.decisions = Some(value()?.into()),
            "--show" => shown = Some(value()?),
            other if other.starts_with('-') || folder.is_some() => return Err(USAGE.into()),
            other => folder = Some(other.into()),
        }
    }
    options.scenarios = folder.ok_or(USAGE)?;
    Ok((options, shown))
}

/// Prints a report; whether nothing failed.
fn print(report: &Report) -> bool {
    for (name, lines) in &report.failed {
        println!("FAIL {name}");
        for line in lines {
            println!("{line}");
        }
    }
    for name in &report.pending {
        println!("pending {name}");
    }
    println!("{} passed, {} failed", report.passed, report.failed.len());
    report.failed.is_empty()
}
