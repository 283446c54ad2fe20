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

/// A folder in the layout of `tests/samples` that nobody has seen: one log, described by hand.
#[test]
fn make_samples_checks_any_folder_and_finds_what_is_wrong_in_it() {
    let line = |text: &str| format!("{text}\n");
    let header = r#"{"type":"session","version":0,"id":"new one","createdAt":7,"delegationDepth":0}"#;
    let start = r#"{"type":"turn/start","seq":0,"time":9,"data":{"turn":1}}"#;
    let said = r#"{"type":"user/message","seq":1,"time":9,"data":{"id":"m","role":"user","content":[],"source":{"kind":"user"}},"surfaceOp":"append"}"#;
    let end = r#"{"type":"turn/end","seq":2,"time":9,"data":{"turn":1,"reason":{"kind":"interrupted"}}}"#;
    let report = format!(
        r#"{{"files":{{"raw":"any.log","repaired":"fixed.log"}},"storedAt":{{"raw":"_no-cwd/new~0020one/session.jsonl"}},
            "header":{{"version":0,"id":"new one","createdAt":7,"delegationDepth":0}},"storedEvents":[{start},{said}],
            "events":[{start},{said},{end}],"surface":[1],"appendBatches":[[0,0],[1,1]],
            "messages":[{{"id":"m","role":"user","content":[],"source":{{"kind":"user"}}}}]}}"#
    );
    let log = [header, start, said].map(line).concat();
    let check = |report: &str, log: &str| {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("any.log"), log).expect("a log");
        std::fs::write(directory.path().join("fixed.log"), [header, start, said, end].map(line).concat())
            .expect("a log");
        std::fs::write(directory.path().join("new.json"), report).expect("a report");
        let outcomes = samples::check_directory(directory.path());
        (outcomes.len(), outcomes.iter().filter(|(_, outcome)| outcome.is_err()).count())
    };
    assert_eq!(check(&report, &log), (3, 0), "read, written and repaired");
    assert_eq!(check(&report.replace("\"surface\":[1]", "\"surface\":[0,1]"), &log).1, 1);
    assert_eq!(check(&report.replace("createdAt\":7,\"delegation", "createdAt\":8,\"delegation"), &log).1, 1);
    assert_eq!(check(&report, &log.replace("\"turn\":1", "\"turn\":2")).1, 2, "read and repaired differ");
    assert_eq!(check(&report, &log.replace("\"seq\":1", "\"seq\":7")).1, 3, "a torn tail instead of an event");
}
