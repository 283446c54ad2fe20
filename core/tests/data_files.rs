//! Files, packed rows and frames: data.md sections 9 to 11. Named after the ids; more is in `jsonl_store`,
//! `jsonl_crash` and the samples.
#![cfg(feature = "jsonl")]

#[path = "support/store.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod store;

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use store::{BOTH, Fixture, append, block_on, code, event, put, turns};
use turnwheel::Code;
use turnwheel::session::Event;
use turnwheel::storage::jsonl::{Compression, DiskFiles, FileLayer, JsonlOptions};

const HEADER: &str =
    r#"{"type":"session","version":0,"id":"demo","createdAt":1,"cwd":"/home/demo","delegationDepth":0}"#;
const RAW: Compression = Compression::None;

fn mode(seq: u64) -> String {
    format!(r#"{{"type":"plan/mode","seq":{seq},"time":1,"data":{{"active":true}}}}"#)
}

fn end(seq: u64) -> String {
    format!(r#"{{"type":"turn/end","seq":{seq},"time":1,"data":{{"turn":1,"reason":{{"kind":"completed"}}}}}}"#)
}

/// Reads a plain file of these lines.
fn lines(lines: &[&str]) -> turnwheel::Result<Vec<Arc<Event>>> {
    let fixture = Fixture::new(RAW);
    let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    put(&fixture.path(), text.as_bytes());
    fixture.read().map(|log| log.expect("stored").events.into())
}

/// One zstd frame with a checksum, by the library.
fn frame(text: &str) -> Vec<u8> {
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 0).expect("an encoder");
    encoder.include_checksum(true).expect("a checksum");
    io::Write::write_all(&mut encoder, text.as_bytes()).expect("written");
    encoder.finish().expect("a frame")
}

/// Reads a zstd file of these frames.
fn framed(frames: &[&str]) -> turnwheel::Result<Vec<Arc<Event>>> {
    let fixture = Fixture::new(Compression::Zstd);
    put(&fixture.path(), &frames.iter().flat_map(|text| frame(text)).collect::<Vec<_>>());
    fixture.read().map(|log| log.expect("stored").events.into())
}

#[test]
fn jl_4_a_header_line_has_its_members_in_this_order_and_always_a_depth() {
    let mut fixture = Fixture::new(RAW);
    fixture.header.cwd = None;
    fixture.write(&turns(1), &[]);
    let first = |fixture: &Fixture| {
        let text = fs::read_to_string(fixture.path()).expect("a file");
        text.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(
        first(&fixture),
        r#"{"type":"session","version":0,"id":"demo","createdAt":1700000000000,"delegationDepth":0}"#
    );
    let mut full = Fixture::new(RAW);
    full.header.agent_preset = Some("x".into());
    full.header.delegation_depth = Some(3);
    full.header.origin = Some("subagent".into());
    full.header.seed_length = Some(0);
    full.header.parent_session = Some("p".into());
    full.write(&turns(1), &[]);
    assert_eq!(
        first(&full),
        r#"{"type":"session","version":0,"id":"demo","createdAt":1700000000000,"cwd":"/home/demo","parentSession":"p","seedLength":0,"origin":"subagent","delegationDepth":3,"agentPreset":"x"}"#
    );
    let without = HEADER.replace(",\"delegationDepth\":0", "");
    assert_eq!(code(lines(&[&without, &mode(0)])), Code::CorruptLog);
}

#[test]
fn jl_6_a_batch_is_whole_lines_and_a_byte_order_mark_is_no_json() {
    let fixture = Fixture::new(RAW);
    fixture.write(&turns(2), &[3]);
    let text = fs::read_to_string(fixture.path()).expect("a file");
    assert_eq!((text.lines().count(), text.ends_with('\n')), (1 + 6, true));
    let marked = format!("\u{feff}{HEADER}");
    assert_eq!(code(lines(&[&marked, &mode(0)])), Code::CorruptLog);
    assert_eq!(lines(&[HEADER, &format!("{}\r", mode(0))]).expect("read").len(), 1);
}

#[test]
fn jl_8_and_9_a_gap_is_damage_when_a_turn_ends_at_it_or_behind_it_and_else_a_tail() {
    assert_eq!(code(lines(&[HEADER, &mode(0), &end(5)])), Code::CorruptLog, "the line with the gap counts");
    let broken = &end(1)[..20];
    assert_eq!(lines(&[HEADER, &mode(0), broken]).expect("a tail").len(), 1, "an unparsable line does not");
    assert_eq!(lines(&[HEADER, &mode(0), &mode(5), &mode(6)]).expect("a tail").len(), 1);
    let error = lines(&[HEADER, &mode(0), broken, &mode(1), &end(2)]).expect_err("damage");
    assert_eq!(error.context().get("line").and_then(turnwheel::json::Value::as_u64), Some(2), "{error:?}");
    let error = lines(&[HEADER, &mode(0), &mode(5), &end(6)]).expect_err("damage");
    assert!(error.message().contains("seq 5 where 1 is expected"), "{error:?}");
}

#[test]
fn jl_10_a_row_with_a_wrong_start_is_dropped_whole() {
    let row = r#"{"type":"text-chunks","seq0":0,"time0":1,"data":{"turn":1,"step":1,"index":0,"dt":[0,0],"texts":["a","b","c"]}}"#;
    assert_eq!(lines(&[HEADER, &mode(0), row]).expect("a tail").len(), 1, "members 1 and 2 would fit");
    assert_eq!(code(lines(&[HEADER, &mode(0), row, &end(1)])), Code::CorruptLog);
}

/// Writes down what is done to files.
#[derive(Default)]
struct Recorded(Mutex<Vec<&'static str>>);

impl Recorded {
    fn note(&self, what: &'static str) {
        self.0.lock().expect("no panic while noting").push(what);
    }

    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock().expect("no panic while noting"))
    }
}

impl FileLayer for Recorded {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        DiskFiles.read(path)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        DiskFiles.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        DiskFiles.create(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        DiskFiles.create_dir(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        DiskFiles.remove(path)
    }

    fn append(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        self.note("append");
        DiskFiles.append(file, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.note("sync");
        DiskFiles.sync(file)
    }

    fn sync_all(&self, file: &File) -> io::Result<()> {
        self.note("sync all");
        DiskFiles.sync_all(file)
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        self.note("truncate");
        DiskFiles.truncate(file, len)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.note("sync directory");
        DiskFiles.sync_dir(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note("link");
        DiskFiles.link(from, to)
    }
}

#[test]
fn jl_17_18_and_20_content_is_synced_before_its_name_and_a_cut_before_what_follows_it() {
    for compression in BOTH {
        let mut fixture = Fixture::new(compression);
        let recorded = Arc::new(Recorded::default());
        fixture.through(recorded.clone());
        let events = turns(3);
        let writer = fixture.create().expect("a writer");
        append(&writer, &events[..3]).expect("the first batch");
        // Three directories are new: root, project, session.
        let first =
            ["sync directory", "sync directory", "sync directory", "append", "sync all", "link", "sync directory"];
        assert_eq!(recorded.take(), first);
        append(&writer, &events[3..6]).expect("a batch");
        assert_eq!(recorded.take(), ["append", "sync"]);
        block_on(writer.close());
        let mut bytes = fs::read(fixture.path()).expect("a file");
        bytes.truncate(bytes.len() - 1);
        put(&fixture.path(), &bytes);
        let (log, writer) = fixture.open().expect("opened").expect("stored");
        append(&writer, &events[log.events.len()..]).expect("a batch");
        assert_eq!(recorded.take(), ["truncate", "sync all", "append", "sync"]);
        block_on(writer.close());
        assert_eq!(fixture.log().events, events);
    }
}

#[test]
fn jl_21_a_revision_changes_with_the_content_and_with_nothing_else() {
    let fixture = Fixture::new(Compression::Zstd);
    let revision = || block_on(fixture.store.revision(&fixture.header.id)).expect("examined");
    assert_eq!(revision(), None);
    let writer = fixture.create().expect("a writer");
    append(&writer, &turns(1)).expect("stored");
    let first = revision().expect("stored");
    assert_eq!(revision(), Some(first), "reading changes nothing");
    fixture.log();
    let listed = block_on(fixture.store.list_revisions()).expect("listed");
    assert_eq!(
        listed.iter().map(|(header, revision)| (header.id.as_str(), *revision)).collect::<Vec<_>>(),
        [("demo", first)]
    );
    append(&writer, &turns(2)[3..]).expect("stored");
    let second = revision().expect("stored");
    assert!(first != second && first.to_string() != second.to_string());
    block_on(writer.close());
    // The same bytes again are another file.
    let bytes = fs::read(fixture.path()).expect("a file");
    fs::remove_file(fixture.path()).expect("removed");
    put(&fixture.path(), &bytes);
    assert_ne!(revision(), Some(second));
}

#[test]
fn jl_22_an_export_is_the_exact_text_and_leaves_a_torn_frame_out() {
    for compression in BOTH {
        let fixture = Fixture::new(compression);
        assert_eq!(block_on(fixture.store.read_raw(&fixture.header.id)).expect("read"), None);
        fixture.write(&turns(2), &[3]);
        let whole = fs::read(fixture.path()).expect("a file");
        let raw = || block_on(fixture.store.read_raw(&fixture.header.id)).expect("read").expect("stored");
        let text = raw().text;
        let plain = match compression {
            Compression::None => whole.clone(),
            Compression::Zstd => zstd::stream::decode_all(whole.as_slice()).expect("frames"),
        };
        assert!(text == plain && raw().file_name == "session.jsonl" && raw().header.id == fixture.header.id);
        put(&fixture.path(), &whole[..whole.len() - 3]);
        let torn = raw().text;
        match compression {
            Compression::None => assert_eq!(torn, whole[..whole.len() - 3]),
            Compression::Zstd => assert_eq!(torn.iter().filter(|byte| **byte == b'\n').count(), 1 + 3),
        }
        // The location and the export are there for a log that this version cannot read.
        put(
            &fixture.path(),
            &[
                whole.as_slice(),
                &match compression {
                    Compression::None => b"{\"type\":\"of/somebody\",\"seq\":6,\"time\":1,\"data\":null}\n".to_vec(),
                    Compression::Zstd => frame("{\"type\":\"of/somebody\",\"seq\":6,\"time\":1,\"data\":null}\n"),
                },
            ]
            .concat(),
        );
        assert_eq!(code(fixture.read()), Code::UnsupportedFormat);
        assert!(raw().text.ends_with(b"\"data\":null}\n"));
        let located = block_on(fixture.store.locate(&fixture.header.id)).expect("looked up");
        assert_eq!(located, Some(fixture.path()));
        assert_eq!(block_on(fixture.store.locate(&"nobody".into())).expect("looked up"), None);
    }
}

#[test]
fn jl_23_a_store_packs_and_compresses_unless_told_otherwise() {
    let options = JsonlOptions::new("/somewhere");
    assert_eq!((options.compression, options.pack_chunks), (Compression::Zstd, true));
}

/// Deltas of one run, as the text of their events.
fn deltas(texts: &[&str]) -> Vec<String> {
    let one = |(seq, text): (usize, &&str)| {
        format!(
            r#"{{"type":"assistant/chunk","seq":{seq},"time":7,"data":{{"turn":1,"step":1,"chunk":{{"type":"text-delta","index":0,"text":"{text}"}}}}}}"#
        )
    };
    texts.iter().enumerate().map(one).collect()
}

#[test]
fn row_5_8_and_9_a_run_ends_at_whatever_a_row_cannot_hold_and_at_the_batch() {
    let rows = |texts: &[String], sizes: &[usize]| {
        let fixture = Fixture::new(RAW);
        let events: Vec<_> = texts.iter().map(|text| event(text)).collect();
        fixture.write(&events, sizes);
        assert_eq!(fixture.log().events, events, "nothing of an event is lost");
        let text = fs::read_to_string(fixture.path()).expect("a file");
        text.lines().skip(1).map(|line| line.contains("text-chunks")).collect::<Vec<_>>()
    };
    let plain = deltas(&["a", "", "b", "c", "", "d"]);
    assert_eq!(rows(&plain, &[]), [true]);
    assert_eq!(rows(&plain, &[3]), [true, true], "a batch border splits a run");
    assert_eq!(rows(&plain, &[2, 2]), [false; 6], "runs of two are plain lines");
    for (from, to) in [
        ("\"index\":0", "\"index\":1"),
        ("\"index\":0", "\"index\":0,\"more\":1"),
        ("\"step\":1", "\"step\":1,\"more\":1"),
        ("\"step\":1", "\"step\":2"),
        ("\"turn\":1", "\"turn\":2"),
        ("text-delta", "reasoning-delta"),
        (",\"data\"", ",\"ignorable\":true,\"data\""),
    ] {
        let mut texts = plain.clone();
        texts[3] = texts[3].replace(from, to);
        assert_eq!(rows(&texts, &[]), [true, false, false, false], "{to}");
    }
}

#[test]
fn row_1_2_12_and_13_rows_have_exact_members_and_files_may_mix_both_layouts() {
    let row = r#"{"data":{"texts":["x"],"dt":[],"index":0,"step":1,"turn":1},"time0":7,"seq0":2,"type":"text-chunks"}"#;
    let chunks = deltas(&["a", "b"]);
    let read = lines(&[HEADER, &chunks[0], &chunks[1], row]).expect("read");
    assert_eq!(read[2].json(), chunks[1].replace("\"seq\":1", "\"seq\":2").replace("\"b\"", "\"x\""));
    for (from, to) in [("\"dt\":[]", "\"dt\":[],\"more\":1"), (",\"step\":1", ""), ("\"seq0\"", "\"more\":1,\"seq0\"")]
    {
        let malformed = row.replace(from, to);
        assert_eq!(lines(&[HEADER, &chunks[0], &chunks[1], &malformed]).expect("a tail").len(), 2, "{to}");
    }
    // A tag that is none of the three is an event of an unknown type, and is checked as one.
    let other = mode(0).replace("plan/mode", "image-chunks");
    assert_eq!(code(lines(&[HEADER, &other])), Code::UnsupportedFormat);
}

#[test]
fn zst_2_and_7_frames_hold_the_header_alone_and_then_whole_lines() {
    let header = format!("{HEADER}\n");
    let line = format!("{}\n", mode(0));
    assert_eq!(framed(&[&header, &line]).expect("read").len(), 1);
    assert_eq!(code(framed(&[&format!("{header}{line}")])), Code::CorruptLog);
    assert_eq!(code(framed(&[HEADER, &line])), Code::CorruptLog);
    for wrong in [format!("{line}{}", mode(1)), format!("{line}garbage\n"), format!("{line}{}\n", mode(7))] {
        assert_eq!(code(framed(&[&header, &wrong])), Code::CorruptLog, "{wrong}");
    }
    // The same tails in a plain file are torn and cut off (JL-07, JL-08).
    assert_eq!(lines(&[HEADER, &mode(0), "garbage"]).expect("a tail").len(), 1);
}

#[test]
fn zst_1_and_3_every_batch_is_one_frame_with_a_checksum_behind_those_before_it() {
    let fixture = Fixture::new(Compression::Zstd);
    let writer = fixture.create().expect("a writer");
    let events = turns(3);
    append(&writer, &events[..3]).expect("stored");
    let first = fs::read(fixture.path()).expect("a file");
    append(&writer, &events[3..]).expect("stored");
    let bytes = fs::read(fixture.path()).expect("a file");
    assert!(bytes.starts_with(&first), "old frames are never written again");
    let (mut at, mut texts) = (0, Vec::new());
    while at < bytes.len() {
        let size = zstd::zstd_safe::find_frame_compressed_size(&bytes[at..]).expect("a frame");
        assert!(bytes[at + 4] & 4 != 0, "the checksum flag of the frame at {at}");
        let text = zstd::stream::decode_all(&bytes[at..at + size]).expect("a frame");
        texts.push(String::from_utf8(text).expect("text").lines().count());
        at += size;
    }
    assert_eq!(texts, [1, 3, 6]);
}
