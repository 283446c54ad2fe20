//! The workloads W1 to W8 in Rust (`tests/bench/README.md`).
//!
//! ```text
//! workloads <name>             measures one workload and prints its figures as one JSON line
//! workloads turns <name> <n>   runs n turns of w1 or w2, with fixed ids and a fixed clock, and prints nothing: for
//!                              callgrind, where the difference of two n is the cost of the turns between
//! ```

mod measure;
mod models;
mod workloads;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["turns", name, count] => match count.parse() {
            Ok(count) => workloads::turns(name, count),
            Err(_) => return usage(),
        },
        [name] => match workloads::run(name) {
            Some(figures) => println!("{}", measure::json(&figures)),
            None => return usage(),
        },
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: workloads {} | workloads turns <w1|w2> <count>", workloads::NAMES.join("|"));
    ExitCode::from(2)
}
