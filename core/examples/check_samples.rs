//! Checks the JSONL codec against a directory of sample logs in the layout of `tests/samples`:
//! `cargo run --example check_samples -- DIR`.

#[path = "../tests/support/samples.rs"]
mod samples;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from).filter(|path| path.is_dir()) else {
        eprintln!("usage: check_samples DIR (a directory laid out as tests/samples)");
        return ExitCode::from(2);
    };
    let outcomes = samples::check_directory(&directory);
    let failures: Vec<_> =
        outcomes.iter().filter_map(|(name, outcome)| Some((name, outcome.as_ref().err()?))).collect();
    for (name, failure) in &failures {
        println!("FAILED {name}: {failure}");
    }
    println!("{} passed, {} failed", outcomes.len() - failures.len(), failures.len());
    if failures.is_empty() && !outcomes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
