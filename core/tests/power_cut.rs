//! What a power cut at any moment leaves: everything that was acknowledged, and a log that opens and goes on.
#![cfg(all(unix, feature = "jsonl"))]

#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/power.rs"]
mod power;
#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/store.rs"]
mod support;

use power::PowerCut;
use std::sync::Arc;
use support::{BOTH, append, block_on, event, id, sample, turns};
use turnwheel::session::{Event, SessionHeader, closers};
use turnwheel::storage::Store;
use turnwheel::storage::jsonl::{Compression, FileLayer, JsonlOptions, JsonlStore};

/// A sequence that is the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

fn store(root: &std::path::Path, compression: Compression, files: Option<Arc<PowerCut>>) -> JsonlStore {
    let options = JsonlOptions::new(root).compression(compression);
    match files {
        Some(files) => JsonlStore::with_files(options, files as Arc<dyn FileLayer>),
        None => JsonlStore::new(options),
    }
}

/// Lives two lives of a session on a recording disk: created and written, closed, opened and written on.
fn live(root: &std::path::Path, compression: Compression, events: &[Arc<Event>], sizes: &[usize]) -> Arc<PowerCut> {
    let files = PowerCut::new();
    let store = store(root, compression, Some(files.clone()));
    let mut header = SessionHeader::new("demo", 1);
    header.cwd = Some("/a/b".into());
    let mut at = 0;
    let mut write = |writer: &_, size: usize| {
        let end = (at + size).min(events.len());
        append(writer, &events[at..end]).expect("a batch");
        at = end;
        files.acknowledge(at);
    };
    let writer = block_on(store.create(&header)).expect("a writer");
    let (first, second) = sizes.split_at(sizes.len() / 2);
    first.iter().for_each(|size| write(&writer, *size));
    block_on(writer.close());
    let (_, writer) = block_on(store.open(&id("demo"))).expect("free").expect("stored");
    second.iter().for_each(|size| write(&writer, *size));
    block_on(writer.close());
    files
}

/// Opens what is left, checks it, repairs it and goes on.
fn check(left: &power::Left, compression: Compression, events: &[Arc<Event>], what: &str) {
    // A layer that records and does not sync: what is checked here happens without a further cut.
    let store = store(left.root.path(), compression, Some(PowerCut::new()));
    let opened = block_on(store.open(&id("demo"))).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    let Some((log, writer)) = opened else {
        assert_eq!(left.acknowledged, 0, "{what}: the session is gone");
        let writer = block_on(store.create(&SessionHeader::new("demo", 1))).expect("it can be begun again");
        append(&writer, &events[..3]).expect("and written");
        return;
    };
    assert!(log.events.len() >= left.acknowledged, "{what}: {} of {}", log.events.len(), left.acknowledged);
    assert!(events.starts_with(&log.events.to_vec()), "{what}: not a prefix");
    let mut next: Vec<_> = closers(&log.events).into_iter().map(Arc::new).collect();
    let seq = log.events.len() + next.len();
    next.push(event(&format!(r#"{{"type":"plan/mode","seq":{seq},"time":9,"data":{{"active":true}}}}"#)));
    append(&writer, &next).expect("the repair");
    block_on(writer.close());
    let read = block_on(store.read(&id("demo"))).expect("readable").expect("there");
    assert_eq!(read.events.to_vec()[log.events.len()..], next, "{what}");
}

#[test]
fn a_power_cut_after_any_change_to_the_disk_loses_nothing_that_was_acknowledged() {
    let events = turns(8);
    for compression in BOTH {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("sessions");
        let files = live(&root, compression, &events, &[1, 2, 6, 5, 4, 6]);
        let mut dice = Dice(7);
        for count in 0..=files.changes() {
            for round in 0..12 {
                let left = files.cut(&root, count, |limit| dice.below(limit));
                check(&left, compression, &events, &format!("{compression:?}, {count} changes, round {round}"));
            }
        }
    }
}

#[test]
fn a_write_torn_at_any_byte_of_the_last_batch_leaves_a_log_that_opens_and_goes_on() {
    let events = sample("02-tool-turn.json")[..70].to_vec();
    for compression in BOTH {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("sessions");
        let files = live(&root, compression, &events, &[20, 20, 20, 10]);
        // The last three changes are the append, its sync and its acknowledgement.
        let count = files.changes() - 2;
        let whole = files.cut(&root, count, |limit| limit - 1);
        let path = block_on(store(whole.root.path(), compression, None).read(&id("demo")));
        assert_eq!(path.expect("readable").expect("there").events.len(), 70);
        let mut more = 0;
        loop {
            let mut longest = 0;
            let left = files.cut(&root, count, |limit| match limit {
                // Every name survives, and no content is replaced by zeros.
                2 | 8 => 1,
                _ => {
                    longest = limit;
                    more.min(limit - 1)
                }
            });
            assert_eq!(left.acknowledged, 60);
            check(&left, compression, &events, &format!("{compression:?}, {more} bytes of the last batch"));
            more += 1;
            if more >= longest {
                break;
            }
        }
        assert!(more > 100, "{more} bytes");
    }
}
