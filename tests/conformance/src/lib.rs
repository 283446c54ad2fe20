//! The conformance runner: drives turnwheel's Rust interface with the scenario files of `tests/conformance/scenarios`
//! and compares what happens with what was recorded. `SCENARIO.md` beside it defines the format.
//!
//! The runner uses the public interface only. Everything a scenario can wait for is scripted, so pumping the runtime
//! until it is idle is exact quiescence; no recorded mark is needed to wait.

mod action;
mod actions;
mod additions;
pub mod compare;
mod compose;
mod doubles;
mod emit;
mod folder;
mod gates;
mod listeners;
mod model;
mod panics;
mod record;
mod result;
mod rules;
mod scenario;
mod tools;
mod value;
mod world;

pub use folder::{Decision, Options, Report, Verdict, check, run_folder, show};
