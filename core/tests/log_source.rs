//! Logs that are looked at without a store: what lies at a path, and what an examination says.

use std::fs;
use std::path::{Path, PathBuf};
use turnwheel::error::Code;
use turnwheel::storage::jsonl::log_text;
use turnwheel::storage::{LogSource, Verdict};

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/samples")
}

#[test]
fn a_file_of_either_encoding_is_read_wherever_it_lies() {
    for name in ["01-plain-text", "02-tool-turn", "04-retry-and-error", "08-compaction-replace", "10-vocabulary"] {
        let plain = LogSource::at(samples().join(format!("{name}.jsonl"))).expect("a file");
        let packed = LogSource::at(samples().join(format!("{name}.jsonl.zstd"))).expect("a file");
        let (plain_log, packed_log) = (plain.read(None).expect("a log"), packed.read(None).expect("a log"));
        assert_eq!(log_text(&plain_log), log_text(&packed_log), "{name}");
        assert_eq!(plain.text(None).expect("text"), packed.text(None).expect("text"), "{name}");
        assert!(Verdict::of(&plain_log).is_sound(), "{name}: {:?}", Verdict::of(&plain_log).disorder);
        assert_eq!(plain.read(Some(&plain_log.header.id)).expect("its id").events, plain_log.events);
        assert_eq!(*plain.read(Some("another")).expect_err("another id").code(), Code::SessionNotFound);
    }
}

#[test]
fn an_export_of_events_reads_back_as_the_same_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let log =
        LogSource::at(samples().join("05-packed-rows.jsonl")).and_then(|source| source.read(None)).expect("a log");
    let path = folder.path().join("again");
    fs::write(&path, log_text(&log)).expect("a file");
    let again = LogSource::at(&path).and_then(|source| source.read(None)).expect("a log");
    assert_eq!((again.header, again.events), (log.header, log.events));
}

#[test]
fn what_is_no_log_is_refused_with_what_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = LogSource::at(folder.path().join("nothing")).expect_err("nothing is there");
    assert_eq!(*refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("name a store's folder, a log file or a database"));
    let path = folder.path().join("file");
    for bytes in [&b""[..], b"hello\n", b"SQLite format 3", b"\x28\xb5\x2f\xfd rubbish"] {
        fs::write(&path, bytes).expect("a file");
        let source = LogSource::at(&path).expect("a file");
        assert_eq!(*source.read(None).expect_err("no log").code(), Code::CorruptLog);
    }
    let empty = LogSource::at(folder.path().to_path_buf()).expect("a folder");
    assert_eq!(*empty.read(None).expect_err("no session").code(), Code::SessionNotFound);
    assert!(empty.list(None, 10).expect("a list").is_empty());
}

#[test]
fn a_lone_file_is_never_repaired() {
    let source = LogSource::at(samples().join("01-plain-text.jsonl")).expect("a file");
    assert_eq!(*source.repair(None).expect_err("a file is only read").code(), Code::InvalidArgument);
}

#[test]
fn a_torn_sample_is_examined_without_being_changed() {
    let mut seen = 0;
    for entry in fs::read_dir(samples().join("torn")).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if !(name.ends_with(".jsonl") || name.ends_with(".jsonl.zstd")) || name.contains("repaired") {
            continue;
        }
        let before = fs::read(&entry).expect("a file");
        if let Ok(log) = LogSource::at(&entry).and_then(|source| source.read(None)) {
            let verdict = Verdict::of(&log);
            assert_eq!(verdict.events, log.events.len() as u64);
            seen += usize::from(verdict.torn_bytes > 0 || !verdict.closers.is_empty());
        }
        assert_eq!(fs::read(&entry).expect("a file"), before, "{name}");
    }
    assert!(seen > 0, "no torn sample could be examined");
}
