//! Some hundred kills in all; `make crash` does two thousand for each store.

use std::path::PathBuf;
use turnwheel_crash::parent::{Plan, run};
use turnwheel_crash::stores::Kind;

fn kill(kind: Kind, kills: u64) {
    let plan = Plan { program: PathBuf::from(env!("CARGO_BIN_EXE_crash")), kind, kills, seed: 7_000 };
    let (in_change, by_clock) = run(&plan).unwrap_or_else(|what| panic!("{what}"));
    assert_eq!(in_change + by_clock, kills);
    assert!(by_clock > 0, "both ways of dying were tried: {in_change} and {by_clock}");
}

#[test]
fn p_2_p_3_a_process_killed_at_any_moment_leaves_a_raw_log_that_goes_on() {
    kill(Kind::Raw, 40);
}

#[test]
fn p_2_p_3_a_process_killed_at_any_moment_leaves_a_zstd_log_that_goes_on() {
    kill(Kind::Zstd, 40);
}

#[test]
fn p_2_p_3_a_process_killed_at_any_moment_leaves_a_database_that_goes_on() {
    kill(Kind::Sqlite, 40);
}
