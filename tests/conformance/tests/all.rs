//! Every scenario passes, but for those listed as pending.

use std::path::Path;
use turnwheel_conformance::{Options, run_folder};

/// Scenarios of our own, for behaviours that no recorded one covers: the expectations were reasoned by hand.
#[test]
fn every_scenario_of_our_own_does_what_was_reasoned() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (scenarios, pending) = (here.join("scenarios-own"), Some(here.join("pending-own.txt")));
    let report = run_folder(&Options { scenarios, pending, is_whole_set: true, ..Options::default() });
    let report = report.expect("the folder can be read");
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    assert!(report.passed > 0);
}

#[test]
fn every_scenario_does_what_was_recorded_or_decided() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let options = Options {
        scenarios: here.join("scenarios"),
        decisions: Some(here.join("decisions")),
        pending: Some(here.join("pending.txt")),
        is_whole_set: true,
    };
    let report = run_folder(&options).expect("the folder can be read");
    let failed = report.failed.iter().map(|(name, lines)| format!("{name}\n{}\n", lines.join("\n")));
    assert!(report.failed.is_empty(), "{}", failed.collect::<String>());
}
