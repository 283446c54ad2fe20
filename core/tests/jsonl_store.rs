//! The JSONL store through its port: what is stored, who may write, what a listing shows.
#![cfg(feature = "jsonl")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/store.rs"]
mod support;

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use support::{BOTH, Fixture, append, block_on, code, event, id, put, turns};
use turnwheel::Code;
use turnwheel::storage::Store;
use turnwheel::storage::jsonl::Compression;

#[test]
fn a_session_without_events_does_not_exist_in_storage() {
    let fixture = Fixture::new(Compression::Zstd);
    let writer = fixture.create().expect("a writer");
    append(&writer, &[]).expect("an empty batch does nothing");
    assert!(!fixture.root.exists());
    assert!(fixture.read().expect("no error").is_none());
    assert!(fixture.open().expect("no error").is_none());
    assert!(!block_on(fixture.store.exists(&id("demo"))).expect("no error"));
    assert!(block_on(fixture.store.list()).expect("no error").is_empty());
}

#[test]
fn what_was_written_is_read_back_in_both_encodings() {
    for compression in BOTH {
        let fixture = Fixture::new(compression);
        fixture.write(&turns(4), &[1, 4, 2]);
        let log = fixture.log();
        assert_eq!(log.events, turns(4));
        assert!(block_on(fixture.store.exists(&id("demo"))).expect("no error"));
        assert_eq!((log.torn_bytes, log.replaced_characters), (0, 0));
        assert_eq!(log.header.delegation_depth, Some(0), "always written");
        assert_eq!(block_on(fixture.store.list()).expect("a list"), [log.header]);
    }
}

#[cfg(unix)]
#[test]
fn files_are_private_and_no_temporary_name_stays() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new(Compression::Zstd);
    fixture.write(&turns(1), &[]);
    let mode = |path: &std::path::Path| fs::metadata(path).expect("exists").permissions().mode() & 0o777;
    let path = fixture.path();
    let directory = path.parent().expect("a directory");
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(directory), 0o700);
    assert_eq!(mode(&fixture.root), 0o700);
    assert_eq!(fs::read_dir(directory).expect("a directory").count(), 1, "closed: no temporary name, no owner record");
}

#[test]
fn a_second_opener_is_told_that_the_session_is_held_and_where() {
    let fixture = Fixture::new(Compression::Zstd);
    let writer = fixture.create().expect("a writer");
    append(&writer, &turns(1)).expect("a batch");
    let error = fixture.open().err().expect("held by its creator");
    assert_eq!(error.code(), &Code::SessionLocked);
    assert!(error.message().contains(&*fixture.path().to_string_lossy()));
    assert_eq!(fixture.log().events, turns(1), "reading needs no lock");
    block_on(writer.close());
    let (_, opened) = fixture.open().expect("free").expect("stored");
    assert_eq!(code(fixture.open()), Code::SessionLocked);
    drop(opened);
    assert!(fixture.open().expect("free again").is_some());
    assert_eq!(code(append(&writer, &turns(2)[3..])), Code::StoreFailed, "a closed writer stays closed");
}

/// Not a test of its own: the other process of the next test.
#[test]
fn holder_process() {
    let Ok(root) = std::env::var("TURNWHEEL_TEST_HOLD") else {
        return;
    };
    let options = turnwheel::storage::jsonl::JsonlOptions::new(root);
    let store = turnwheel::storage::jsonl::JsonlStore::new(options);
    let _held = block_on(store.open(&id("demo"))).expect("free").expect("stored");
    println!("held");
    std::io::stdout().flush().expect("a pipe");
    let _ = std::io::stdin().read(&mut [0]);
    std::process::abort();
}

#[test]
fn a_lock_ends_with_its_process() {
    let fixture = Fixture::new(Compression::Zstd);
    fixture.write(&turns(1), &[]);
    let mut holder = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "holder_process", "--nocapture"])
        .env("TURNWHEEL_TEST_HOLD", &fixture.root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process");
    let mut seen = Vec::new();
    let mut output = holder.stdout.take().expect("a pipe");
    let mut byte = [0];
    while !seen.ends_with(b"held\n") && output.read(&mut byte).expect("output") == 1 {
        seen.push(byte[0]);
    }
    let error = fixture.open().err().expect("held");
    assert_eq!(error.code(), &Code::SessionLocked);
    assert!(error.message().contains(&format!("pid {} on ", holder.id())), "{error}");
    assert!(error.message().contains("jsonl_store"), "the program: {error}");
    let holder_id = error.context().get("holder").and_then(|holder| holder.get("pid")?.as_u64());
    assert_eq!(holder_id, Some(holder.id().into()));
    holder.kill().expect("killed");
    holder.wait().expect("gone");
    let (_, writer) = fixture.open().expect("a dead holder holds nothing").expect("stored");
    let error = fixture.open().err().expect("held by this process");
    assert!(error.message().contains("this very process"), "the dead holder's record is replaced: {error}");
    block_on(writer.close());
}

/// A first batch that died on its way, before or after it got its name.
#[test]
fn what_a_process_left_when_it_died_while_publishing_is_cleared_away_and_what_another_publishes_is_not() {
    let fixture = Fixture::new(Compression::Zstd);
    let path = fixture.path();
    let temporary = |name: &str| path.with_file_name(format!("session.jsonl.zstd.{name}.tmp"));
    put(&temporary("0123456789ab"), b"half a first ba");
    assert!(block_on(fixture.store.list()).expect("a list").is_empty());
    assert!(fixture.open().expect("no session").is_none());
    let busy = fs::File::create(temporary("ba9876543210")).expect("another process's");
    busy.lock().expect("locked");
    fixture.write(&turns(1), &[]);
    assert!(!temporary("0123456789ab").exists() && temporary("ba9876543210").exists());
    fs::hard_link(&path, temporary("aaaaaaaaaaaa")).expect("published, and killed before the other name went");
    let (log, writer) = fixture.open().expect("free").expect("stored");
    assert_eq!(log.events, turns(1));
    assert!(!temporary("aaaaaaaaaaaa").exists() && path.exists());
    append(&writer, &turns(2)[3..]).expect("it goes on");
}

#[test]
fn a_page_of_a_listing_reads_the_headers_of_that_page_only() {
    let mut fixture = Fixture::new(Compression::None);
    for name in ["d", "a", "é", "b/1", "c"] {
        fixture.header.id = id(name);
        fixture.write(&turns(1), &[]);
    }
    let page = |after: Option<&str>, limit| -> turnwheel::Result<Vec<String>> {
        let headers = block_on(fixture.store.list_page(after.map(id).as_ref(), limit))?;
        Ok(headers.into_iter().map(|header| header.id.to_string()).collect())
    };
    assert_eq!(page(None, 2).expect("a page"), ["a", "b/1"]);
    assert_eq!(page(Some("b/1"), 2).expect("a page"), ["c", "d"]);
    assert_eq!(page(Some("d"), 9).expect("a page"), ["é"]);
    assert_eq!(page(Some("bb"), 1).expect("a page"), ["c"], "the id it follows need not exist");
    // A header that makes every listing fail that reads it (JL-16).
    let text = fs::read_to_string(fixture.path()).expect("the last session written, c");
    put(&fixture.path(), text.replacen("\"createdAt\"", "\"sandboxMode\":\"read-only\",\"createdAt\"", 1).as_bytes());
    assert!(block_on(fixture.store.list()).is_err() && page(Some("b/1"), 1).is_err());
    assert_eq!(page(None, 2).expect("a page"), ["a", "b/1"]);
    assert_eq!(page(Some("c"), 2).expect("a page"), ["d", "é"]);
}

#[test]
fn an_id_that_is_known_or_stored_anywhere_cannot_be_created() {
    let mut fixture = Fixture::new(Compression::None);
    let first = fixture.create().expect("a writer");
    assert_eq!(code(fixture.create()), Code::SessionAlreadyExists, "known, though nothing is stored");
    block_on(first.close());
    fixture.write(&turns(1), &[]);
    fixture.header.cwd = None;
    assert_eq!(code(fixture.create()), Code::SessionAlreadyExists, "stored below another project");
}

#[test]
fn a_first_batch_never_overwrites_what_another_process_published() {
    let fixture = Fixture::new(Compression::Zstd);
    let late = fixture.create().expect("a writer");
    let other = turnwheel::storage::jsonl::JsonlStore::new(fixture.store.options().clone());
    let fast = block_on(other.create(&fixture.header)).expect("the other process knows nothing of it");
    append(&fast, &turns(2)).expect("published");
    assert_eq!(code(append(&late, &turns(1))), Code::SessionAlreadyExists);
    assert_eq!(fixture.log().events, turns(2));
}

#[test]
fn a_batch_goes_on_where_the_log_ends_or_conflicts() {
    let fixture = Fixture::new(Compression::Zstd);
    let writer = fixture.create().expect("a writer");
    let events = turns(2);
    assert_eq!(code(append(&writer, &events[1..])), Code::StoreConflict);
    append(&writer, &events[..2]).expect("a batch");
    assert_eq!(code(append(&writer, &events[1..])), Code::StoreConflict);
    let gap = [events[2].clone(), events[4].clone()];
    assert_eq!(code(append(&writer, &gap)), Code::StoreConflict);
    append(&writer, &events[2..]).expect("nothing of the refused batches is stored");
    assert_eq!(fixture.log().events, events);
}

#[test]
fn a_writer_notices_that_a_program_without_the_lock_wrote() {
    let fixture = Fixture::new(Compression::None);
    let writer = fixture.create().expect("a writer");
    append(&writer, &turns(1)).expect("a batch");
    let mut file = fs::OpenOptions::new().append(true).open(fixture.path()).expect("the file");
    file.write_all(b"{}\n").expect("written");
    assert_eq!(code(append(&writer, &turns(2)[3..])), Code::StoreConflict);
}

#[cfg(unix)]
#[test]
fn a_writer_notices_that_its_file_was_removed() {
    let fixture = Fixture::new(Compression::None);
    let writer = fixture.create().expect("a writer");
    append(&writer, &turns(1)).expect("a batch");
    fs::remove_dir_all(&fixture.root).expect("removed");
    assert_eq!(code(append(&writer, &turns(2)[3..])), Code::StoreConflict);
}

#[test]
fn a_listing_reads_headers_only_and_skips_foreign_files() {
    let fixture = Fixture::new(Compression::None);
    fixture.write(&turns(1), &[]);
    let mut damaged = fixture.bytes();
    damaged.extend_from_slice(b"garbage\n{\"type\":\"turn/end\",\"seq\":9}\n");
    fixture.put(&damaged);
    assert_eq!(code(fixture.read()), Code::CorruptLog);
    put(&fixture.root.join("--x--/empty/session.jsonl"), b"");
    put(&fixture.root.join("--x--/foreign/session.jsonl"), b"{\"some\":\"json\"}\n");
    put(&fixture.root.join("--x--/notes.txt"), b"notes");
    put(&fixture.root.join("--x--/torn/session.jsonl"), b"{\"type\":\"session\",\"version\":0");
    put(&fixture.root.join("unrelated/a/session.jsonl.zstd"), b"not below a project");
    let listed = block_on(fixture.store.list()).expect("a list");
    assert_eq!(listed.iter().map(|header| header.id.as_str()).collect::<Vec<_>>(), ["demo"]);
}

#[test]
fn a_root_has_one_encoding_and_no_flat_files() {
    let fixture = Fixture::new(Compression::Zstd);
    fixture.write(&turns(1), &[]);
    let stray = fixture.root.join("--x--/a/session.jsonl");
    put(&stray, b"");
    let error = block_on(fixture.store.list()).expect_err("a file of the other encoding");
    assert!(error.message().contains(&*stray.to_string_lossy()));
    assert_eq!(code(fixture.read()), Code::UnsupportedFormat);
    fs::remove_file(&stray).expect("removed");
    put(&fixture.root.join("--x--/old.jsonl"), b"");
    assert_eq!(code(fixture.read()), Code::UnsupportedFormat);
}

#[test]
fn the_same_id_below_two_projects_is_an_error() {
    let fixture = Fixture::new(Compression::Zstd);
    fixture.write(&turns(1), &[]);
    put(&fixture.root.join("_no-cwd/demo/session.jsonl.zstd"), &fixture.bytes());
    assert_eq!(code(fixture.read()), Code::CorruptLog);
    assert_eq!(code(block_on(fixture.store.list())), Code::CorruptLog);
}

#[test]
fn a_copied_directory_is_unreadable_under_another_name() {
    let fixture = Fixture::new(Compression::Zstd);
    fixture.write(&turns(1), &[]);
    put(&fixture.root.join("--home-demo--/copy/session.jsonl.zstd"), &fixture.bytes());
    assert_eq!(code(block_on(fixture.store.read(&id("copy")))), Code::CorruptLog);
}

#[test]
fn damage_in_the_middle_names_its_line() {
    let fixture = Fixture::new(Compression::None);
    fixture.write(&turns(3), &[]);
    let text = String::from_utf8(fixture.bytes()).expect("text");
    let mut lines: Vec<_> = text.lines().collect();
    lines[5] = "{\"type\":\"plan/mode\",";
    fixture.put(format!("{}\n", lines.join("\n")).as_bytes());
    let error = fixture.read().expect_err("damaged");
    assert_eq!(error.code(), &Code::CorruptLog);
    assert_eq!(error.context().get("line").and_then(|line| line.as_u64()), Some(5));
    assert_eq!(code(fixture.open()), Code::CorruptLog);
}

#[test]
fn damage_in_a_frame_names_its_byte() {
    let fixture = Fixture::new(Compression::Zstd);
    fixture.write(&turns(1), &[1]);
    let mut bytes = fixture.bytes();
    *bytes.last_mut().expect("not empty") ^= 1;
    fixture.put(&bytes);
    let error = fixture.read().expect_err("a wrong checksum is corruption, also at the end");
    assert_eq!(error.code(), &Code::CorruptLog);
    assert!(error.context().get("offset").and_then(|offset| offset.as_u64()).is_some_and(|offset| offset > 0));
    let mut bytes = fixture.bytes();
    bytes.truncate(bytes.len() - 1);
    bytes.extend_from_slice(b"\x00junk that is no frame");
    fixture.put(&bytes);
    assert_eq!(code(fixture.read()), Code::CorruptLog);
}

#[test]
fn characters_that_had_to_be_replaced_are_counted() {
    let fixture = Fixture::new(Compression::None);
    fixture.write(&turns(1), &[]);
    let mut bytes = fixture.bytes();
    bytes.extend_from_slice(br#"{"type":"feedback/record","seq":3,"time":1,"data":{"text":"\ud800 "#);
    bytes.extend_from_slice(b"\xff\"}}\n");
    fixture.put(&bytes);
    let log = fixture.log();
    assert_eq!(log.replaced_characters, 2);
    assert!(log.events.get(3).expect("stored").json().contains("\u{fffd} \u{fffd}"));
}

#[test]
fn a_reader_beside_a_busy_writer_sees_a_prefix() {
    let fixture = Fixture::new(Compression::Zstd);
    let writer = fixture.create().expect("a writer");
    append(&writer, &turns(1)).expect("a batch");
    let options = fixture.store.options().clone();
    let is_done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen_done = is_done.clone();
    let reader = std::thread::spawn(move || {
        let store = turnwheel::storage::jsonl::JsonlStore::new(options);
        let all = turns(200);
        let mut longest = 0;
        while !seen_done.load(std::sync::atomic::Ordering::SeqCst) {
            let log = block_on(store.read(&id("demo"))).expect("readable at any moment").expect("stored");
            assert!(all.starts_with(&log.events.to_vec()));
            assert!(log.events.len() >= longest, "a log never gets shorter");
            longest = log.events.len();
        }
    });
    for batch in turns(200)[3..].chunks(3) {
        append(&writer, batch).expect("a batch");
    }
    is_done.store(true, std::sync::atomic::Ordering::SeqCst);
    reader.join().expect("the reader is content");
}

#[test]
fn a_session_directory_may_be_a_symbolic_link_to_its_place() {
    let fixture = Fixture::new(Compression::Zstd);
    fixture.write(&turns(1), &[]);
    let linked = fixture.root.with_file_name("linked");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&fixture.root, &linked).expect("a link");
    #[cfg(not(unix))]
    fs::rename(&fixture.root, &linked).expect("renamed");
    let options = turnwheel::storage::jsonl::JsonlOptions::new(linked);
    let store = turnwheel::storage::jsonl::JsonlStore::new(options);
    assert!(block_on(store.read(&id("demo"))).expect("readable").is_some());
}

#[test]
fn a_registered_event_type_opens_a_log_that_is_refused_without() {
    let fixture = Fixture::new(Compression::Zstd);
    let own = event(r#"{"type":"acme/note","seq":0,"time":1,"data":{"x":1}}"#);
    fixture.write(std::slice::from_ref(&own), &[]);
    let error = fixture.read().expect_err("unknown");
    assert_eq!(error.code(), &Code::UnsupportedFormat);
    assert!(error.message().contains("acme/note") && error.message().contains("session.jsonl.zstd"));
    fixture.store.register_event_type("acme/note");
    assert_eq!(fixture.log().events, [own]);
}

#[test]
fn an_unreadable_root_is_an_error_that_names_it() {
    let fixture = Fixture::new(Compression::Zstd);
    put(&fixture.root, b"a file where the root should be");
    let error = block_on(fixture.store.list()).expect_err("not a directory");
    assert_eq!(error.code(), &Code::StoreFailed);
    assert!(error.message().contains(&*fixture.root.to_string_lossy()));
}
