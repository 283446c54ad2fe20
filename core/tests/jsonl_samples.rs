//! The reference implementation's sample logs: read, written again, repaired, refused.
#![cfg(feature = "jsonl")]

#[path = "support/samples.rs"]
mod samples;

use std::path::Path;

#[test]
fn every_sample_is_read_written_repaired_or_refused_as_the_reference_does() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/samples");
    let outcomes = samples::check_directory(&directory);
    let failures: Vec<_> = outcomes.iter().filter(|(_, outcome)| outcome.is_err()).collect();
    for (name, outcome) in &failures {
        eprintln!("{name}: {}", outcome.as_ref().err().map(String::as_str).unwrap_or_default());
    }
    assert!(failures.is_empty(), "{} of {} checks failed", failures.len(), outcomes.len());
    assert!(outcomes.len() >= 90, "only {} checks ran: samples are missing", outcomes.len());
}
