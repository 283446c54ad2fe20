//! Every scenario passes, but for those listed as pending.

use std::path::Path;
use turnwheel_conformance::{Options, run_folder};

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
