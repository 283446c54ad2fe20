//! What a failing disk, a dying process and any cut or changed byte leave behind.
#![cfg(feature = "jsonl")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/faults.rs"]
mod faults;
#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/store.rs"]
mod support;

use faults::{EIO, FaultyFiles, Op};
use proptest::prelude::*;
use std::fs;
use std::io::ErrorKind;
use std::sync::Arc;
use support::{BOTH, Fixture, append, block_on, code, event, sample, turns};
use turnwheel::Code;
use turnwheel::session::closers;
use turnwheel::storage::jsonl::{Compression, JsonlOptions};

#[test]
fn a_full_disk_fails_the_batch_and_leaves_the_file_as_it_was() {
    for compression in BOTH {
        for op in [Op::Append, Op::Sync] {
            // A short write on a full disk; a sync that fails because the disk does.
            let mut fixture = Fixture::new(compression);
            let files = FaultyFiles::new();
            fixture.through(files.clone());
            let events = turns(3);
            let writer = fixture.create().expect("a writer");
            append(&writer, &events[..3]).expect("a batch");
            let before = fixture.bytes();
            files.fail_next(op, ErrorKind::StorageFull);
            let error = append(&writer, &events[3..6]).expect_err("the disk is full");
            assert_eq!(error.code(), &Code::StoreFailed);
            assert!(error.message().contains("free space"), "{error}");
            assert!(error.message().contains(&*fixture.path().to_string_lossy()), "{error}");
            assert!(fixture.bytes() == before);
            append(&writer, &events[3..6]).expect("the same batch again");
            append(&writer, &events[6..]).expect("and on");
            assert_eq!(fixture.log().events, events);
        }
    }
}

#[test]
fn a_batch_that_cannot_be_taken_back_is_taken_back_before_the_next() {
    for compression in BOTH {
        let mut fixture = Fixture::new(compression);
        let files = FaultyFiles::new();
        fixture.through(files.clone());
        let events = turns(2);
        let writer = fixture.create().expect("a writer");
        append(&writer, &events[..3]).expect("a batch");
        files.fail_next(Op::Append, ErrorKind::StorageFull);
        files.fail_next(Op::Truncate, ErrorKind::PermissionDenied);
        let error = append(&writer, &events[3..]).expect_err("both fail");
        assert!(error.message().contains("append to") && error.message().contains("cut"), "{error}");
        assert!(fixture.log().torn_bytes > 0 || compression == Compression::None, "half a batch is there");
        files.fail_next(Op::Truncate, ErrorKind::PermissionDenied);
        assert_eq!(code(append(&writer, &events[3..])), Code::StoreFailed);
        append(&writer, &events[3..]).expect("the disk works again");
        let log = fixture.log();
        assert_eq!((log.events.to_vec(), log.torn_bytes), (events, 0));
    }
}

#[test]
fn a_failed_first_batch_leaves_no_session_and_can_be_tried_again() {
    for op in [Op::Append, Op::SyncAll, Op::SyncDir] {
        let mut fixture = Fixture::new(Compression::Zstd);
        let files = FaultyFiles::new();
        fs::create_dir_all(fixture.path().parent().expect("a directory")).expect("directories");
        fixture.through(files.clone());
        let writer = fixture.create().expect("a writer");
        files.fail_next(op, ErrorKind::StorageFull);
        assert_eq!(code(append(&writer, &turns(1))), Code::StoreFailed);
        assert!(fixture.read().expect("no error").is_none(), "{op:?}");
        let directory = fixture.path().parent().expect("a directory").to_owned();
        assert_eq!(fs::read_dir(directory).expect("a directory").count(), 0, "{op:?}");
        append(&writer, &turns(1)).expect("the same batch again");
        assert_eq!(fixture.log().events, turns(1));
    }
}

#[test]
fn after_a_failed_sync_the_batch_is_written_again_and_a_later_sync_alone_is_not_trusted() {
    for compression in BOTH {
        let mut fixture = Fixture::new(compression);
        let files = FaultyFiles::new();
        fixture.through(files.clone());
        let events = turns(2);
        let writer = fixture.create().expect("a writer");
        append(&writer, &events[..3]).expect("a batch");
        let before = fixture.bytes();
        files.fail_next_with(Op::Sync, EIO);
        let error = append(&writer, &events[3..]).expect_err("the disk fails");
        assert_eq!(error.context().get("osError").and_then(|number| number.as_u64()), Some(EIO as u64));
        assert!(fixture.bytes() == before, "what was written is taken back");
        let written = files.appended();
        append(&writer, &events[3..]).expect("the same batch again");
        assert_eq!(files.appended() - written, fixture.bytes().len() as u64 - before.len() as u64);
        assert_eq!(fixture.log().events, events);
    }
}

#[test]
fn a_directory_whose_name_could_not_be_made_durable_is_synced_by_the_next_attempt() {
    let mut fixture = Fixture::new(Compression::Zstd);
    let files = FaultyFiles::new();
    fixture.through(files.clone());
    let writer = fixture.create().expect("a writer");
    for attempt in 0..2 {
        files.fail_next_with(Op::SyncDir, EIO);
        assert_eq!(code(append(&writer, &turns(1))), Code::StoreFailed, "attempt {attempt}");
    }
    append(&writer, &turns(1)).expect("the same batch again");
    assert_eq!(fixture.log().events, turns(1));
}

#[test]
fn an_unreadable_disk_is_a_store_error_and_no_damage() {
    let mut fixture = Fixture::new(Compression::Zstd);
    fixture.write(&turns(1), &[]);
    let files = FaultyFiles::new();
    fixture.through(files.clone());
    files.fail_next_with(Op::Read, EIO);
    assert_eq!(code(fixture.read()), Code::StoreFailed);
    files.fail_next_with(Op::Open, EIO);
    assert_eq!(code(fixture.open()), Code::StoreFailed);
    assert!(fixture.open().expect("the disk works again").is_some());
}

#[test]
fn recovered_events_survive_a_repair_that_fails_once() {
    let mut fixture = Fixture::new(Compression::Zstd);
    fixture.write(&turns(2)[..5], &[3]);
    let mut bytes = fixture.bytes();
    bytes.truncate(bytes.len() - 2);
    fixture.put(&bytes);
    let files = FaultyFiles::new();
    fixture.through(files.clone());
    let (log, writer) = fixture.open().expect("free").expect("stored");
    assert_eq!(log.events.to_vec(), turns(2)[..5]);
    assert!(log.torn_bytes > 0);
    assert!(fixture.bytes() == bytes, "opening leaves the file untouched");
    files.fail_next(Op::Append, ErrorKind::StorageFull);
    assert_eq!(code(append(&writer, &turns(2)[5..])), Code::StoreFailed);
    append(&writer, &turns(2)[5..]).expect("the same batch again");
    let log = fixture.log();
    assert_eq!((log.events.to_vec(), log.torn_bytes), (turns(2), 0));
}

#[test]
fn a_complete_turn_end_without_its_newline_is_torn() {
    let fixture = Fixture::new(Compression::None);
    fixture.write(&turns(1), &[]);
    let mut bytes = fixture.bytes();
    bytes.pop();
    fixture.put(&bytes);
    let log = fixture.log();
    assert_eq!(log.events.len(), 2);
    assert_eq!(closers(&log.events).len(), 1);
}

#[test]
fn the_whole_blocks_of_a_torn_frame_are_recovered() {
    let fixture = Fixture::new(Compression::Zstd);
    // Text that does not compress away, in more than one block of 128 KiB.
    let mut state = 1_u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 11
    };
    let record = |seq: u64, text: String| {
        event(&format!(r#"{{"type":"feedback/record","seq":{seq},"time":1,"data":{{"text":"{text}"}}}}"#))
    };
    let events: Vec<_> = (0..400).map(|seq| record(seq, (0..60).map(|_| format!("{:x}", noise())).collect())).collect();
    fixture.write(&events, &[1]);
    let bytes = fixture.bytes();
    fixture.put(&bytes[..bytes.len() - bytes.len() / 4]);
    let (log, writer) = fixture.open().expect("free").expect("stored");
    assert!(log.events.len() > 100 && log.events.len() < 400, "{} events", log.events.len());
    assert!(events.starts_with(&log.events.to_vec()));
    append(&writer, &events[log.events.len()..]).expect("the repair");
    let log = fixture.log();
    assert_eq!((log.events.to_vec(), log.torn_bytes), (events, 0));
}

/// A session of real events: chunks of all kinds, tool calls, packed rows.
fn events() -> Vec<Arc<turnwheel::session::Event>> {
    let mut events = sample("02-tool-turn.json");
    events.truncate(70);
    events
}

fn written(compression: Compression, sizes: &[usize]) -> (Fixture, Vec<u8>) {
    let fixture = Fixture::new(compression);
    fixture.write(&events(), sizes);
    let bytes = fixture.bytes();
    (fixture, bytes)
}

/// Cuts the file, and checks that what is left is a prefix, can be repaired and written on.
fn check_cut(fixture: &Fixture, bytes: &[u8], cut: usize) {
    fixture.put(&bytes[..cut]);
    let all = events();
    let opened = match fixture.open() {
        Ok(opened) => opened.expect("stored"),
        Err(error) => {
            assert_eq!(error.code(), &Code::CorruptLog, "cut at {cut}: {error:?}");
            assert!(cut < 160, "only the header may not be cut: {cut}");
            return;
        }
    };
    let (log, writer) = opened;
    assert!(all.starts_with(&log.events.to_vec()), "cut at {cut}");
    let mut expected = log.events.to_vec();
    expected.extend(closers(&log.events).into_iter().map(Arc::new));
    let seq = expected.len();
    expected.push(event(&format!(r#"{{"type":"plan/mode","seq":{seq},"time":9,"data":{{"active":true}}}}"#)));
    append(&writer, &expected[log.events.len()..seq]).expect("the repair");
    append(&writer, &expected[seq..]).expect("the next batch");
    block_on(writer.close());
    let log = fixture.log();
    assert_eq!(log.events, expected, "cut at {cut}");
    assert_eq!(log.torn_bytes, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_into_batches_reads_back_as_the_same_events(
        sizes in proptest::collection::vec(0_usize..20, 0..8),
        zstd: bool,
        pack_chunks: bool,
    ) {
        let compression = if zstd { Compression::Zstd } else { Compression::None };
        let fixture = Fixture::with(|options| JsonlOptions { compression, pack_chunks, ..options });
        let events = sample("05-packed-rows.json");
        fixture.write(&events, &sizes);
        prop_assert_eq!(fixture.log().events, events);
    }

    #[test]
    fn any_byte_cut_yields_a_prefix_or_a_named_error_and_appending_after_repair_works(
        at in 0.0_f64..1.0,
        zstd: bool,
        sizes in proptest::collection::vec(1_usize..30, 0..5),
    ) {
        let (fixture, bytes) = written(if zstd { Compression::Zstd } else { Compression::None }, &sizes);
        check_cut(&fixture, &bytes, (at * bytes.len() as f64) as usize);
    }

    #[test]
    fn any_changed_byte_is_read_or_refused_by_name(at in 0.0_f64..1.0, byte: u8, zstd: bool) {
        let (fixture, mut bytes) = written(if zstd { Compression::Zstd } else { Compression::None }, &[20, 20]);
        let at = (at * bytes.len() as f64) as usize;
        bytes[at] = byte;
        fixture.put(&bytes);
        if let Err(error) = fixture.read() {
            prop_assert!(matches!(error.code(), Code::CorruptLog | Code::UnsupportedFormat), "{error:?}");
        }
    }
}

#[test]
fn every_cut_of_the_last_batch_is_repaired() {
    for compression in BOTH {
        let (fixture, bytes) = written(compression, &[60]);
        let start = bytes.len().saturating_sub(120);
        (start..=bytes.len()).for_each(|cut| check_cut(&fixture, &bytes, cut));
    }
}
