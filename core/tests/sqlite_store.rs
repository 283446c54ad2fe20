//! The SQLite store through its port and through the loop: owners, damage, versions, group commit, failures.
#![cfg(feature = "sqlite")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/store.rs"]
mod support;

use rusqlite::Connection;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use support::{append, block_on, code, event, id, sample, turns};
use tempfile::TempDir;
use turnwheel::llm::adapters::Scripted;
use turnwheel::session::{Event, EventData, SessionHeader, TurnEndReason};
use turnwheel::storage::jsonl::{JsonlOptions, JsonlStore};
use turnwheel::storage::sqlite::SqliteStore;
use turnwheel::storage::{SessionWriter, Store};
use turnwheel::{Code, Context};

struct Fixture {
    directory: TempDir,
    store: SqliteStore,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let store = SqliteStore::new(directory.path().join("sessions.db"));
        Self { directory, store }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("sessions.db")
    }

    /// Another connection to the database.
    fn sql(&self) -> Connection {
        Connection::open(self.path()).expect("the database")
    }

    fn create(&self, name: &str) -> Rc<dyn SessionWriter> {
        block_on(self.store.create(&SessionHeader::new(name, 1_700_000_000_000))).expect("a writer")
    }

    fn write(&self, name: &str, events: &[Arc<Event>]) {
        let writer = self.create(name);
        append(&writer, events).expect("a batch");
        block_on(writer.close());
    }

    fn events(&self, name: &str) -> Vec<Arc<Event>> {
        block_on(self.store.read(&id(name))).expect("readable").expect("stored").events.into()
    }

    fn read_code(&self, name: &str) -> Code {
        code(block_on(self.store.read(&id(name))))
    }
}

#[test]
fn nothing_is_made_by_looking() {
    let fixture = Fixture::new();
    assert!(block_on(fixture.store.list()).expect("a list").is_empty());
    assert!(block_on(fixture.store.open(&id("a"))).expect("no error").is_none());
    let writer = fixture.create("a");
    block_on(writer.close());
    assert_eq!(fs::read_dir(fixture.directory.path()).expect("a directory").count(), 0);
}

#[cfg(unix)]
#[test]
fn the_files_are_private_and_the_journal_is_a_wal() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    let writer = fixture.create("a");
    append(&writer, &turns(1)).expect("a batch");
    let entries = fs::read_dir(fixture.directory.path()).expect("a directory");
    let files: Vec<_> = entries.map(|entry| entry.expect("an entry")).collect();
    assert!(files.len() >= 4, "database, log, index and the owner's lock: {files:?}");
    for file in files {
        assert_eq!(file.metadata().expect("exists").permissions().mode() & 0o777, 0o600, "{file:?}");
    }
    let bytes = fs::read(fixture.path()).expect("the database");
    assert_eq!(bytes[18..20], [2, 2], "the file's own mark of WAL mode");
}

#[test]
fn the_second_opener_is_told_who_holds_the_session() {
    let fixture = Fixture::new();
    let writer = fixture.create("a");
    append(&writer, &turns(1)).expect("a batch");
    let other = SqliteStore::new(fixture.path());
    let error = block_on(other.open(&id("a"))).err().expect("held");
    assert_eq!(error.code(), &Code::SessionLocked);
    let pid = u64::from(std::process::id());
    let holder = error.context().get("holder").expect("the holder");
    assert_eq!(holder.get("pid").and_then(|pid| pid.as_u64()), Some(pid));
    assert!(error.message().contains(&format!("this process ({pid})")), "{}", error.message());
}

/// Not a test of its own: the other process of the next test.
#[test]
fn holder_process() {
    let Ok(path) = std::env::var("TURNWHEEL_TEST_HOLD_SQLITE") else {
        return;
    };
    let _held = block_on(SqliteStore::new(path).open(&id("a"))).expect("free").expect("stored");
    println!("held");
    std::io::stdout().flush().expect("a pipe");
    let _ = std::io::stdin().read(&mut [0]);
    std::process::abort();
}

#[test]
fn a_dead_holder_is_detected_and_its_lock_removed() {
    let fixture = Fixture::new();
    fixture.write("a", &turns(1));
    let mut holder = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "holder_process", "--nocapture"])
        .env("TURNWHEEL_TEST_HOLD_SQLITE", fixture.path())
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
    let error = block_on(fixture.store.open(&id("a"))).err().expect("held");
    assert_eq!(error.code(), &Code::SessionLocked);
    assert!(error.message().contains(&format!("process {}", holder.id())), "{}", error.message());
    holder.kill().expect("killed");
    holder.wait().expect("gone");
    let (log, writer) = block_on(fixture.store.open(&id("a"))).expect("free").expect("stored");
    assert_eq!(log.events, turns(1));
    append(&writer, &turns(2)[3..]).expect("the new owner writes");
    let names = fs::read_dir(fixture.directory.path()).expect("a directory");
    let owners =
        names.filter(|name| name.as_ref().expect("an entry").file_name().to_string_lossy().contains("-owner-"));
    assert_eq!(owners.count(), 1, "the dead owner's lock is gone");
}

#[test]
fn a_writer_that_was_taken_over_may_append_nothing() {
    let fixture = Fixture::new();
    let stale = fixture.create("a");
    append(&stale, &turns(1)).expect("a batch");
    fixture.sql().execute("UPDATE sessions SET fence = fence + 1", []).expect("taken over");
    assert_eq!(code(append(&stale, &turns(2)[3..])), Code::StoreConflict);
    assert_eq!(fixture.events("a"), turns(1));
}

#[test]
fn what_waits_for_the_disk_shares_one_transaction() {
    let fixture = Fixture::new();
    let writers: Vec<_> = (0..64).map(|n| fixture.create(&format!("s{n}"))).collect();
    writers.iter().for_each(|writer| append(writer, &turns(1)).expect("a first batch"));
    let before = commits(&fixture.path());
    // While another connection holds the write lock, one transaction waits for it and the rest waits for that.
    let blocker = fixture.sql();
    blocker.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let mut appends: Vec<_> = writers.iter().map(|writer| writer.append(turns(2)[3..].to_vec())).collect();
    let start = |append: &mut _| futures_poll_once(append);
    assert!(appends.iter_mut().all(|append| start(append).is_none()));
    blocker.execute_batch("ROLLBACK").expect("released");
    for append in appends {
        block_on(append).expect("a batch");
    }
    let made = commits(&fixture.path()) - before;
    assert!((1..=3).contains(&made), "64 batches took {made} transactions");
    assert_eq!(fixture.events("s63"), turns(2));
}

fn futures_poll_once<T>(future: &mut std::pin::Pin<Box<dyn Future<Output = T>>>) -> Option<T> {
    match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

/// How many transactions the write-ahead log has: frames that carry the size of the database.
fn commits(path: &Path) -> usize {
    let bytes = fs::read(path.with_extension("db-wal")).expect("the log");
    let page = u32::from_be_bytes(bytes[8..12].try_into().expect("four bytes")) as usize;
    bytes[32..].chunks_exact(24 + page).filter(|frame| frame[4..8] != [0; 4]).count()
}

#[test]
fn a_batch_that_fails_holds_no_other_back_and_is_tried_again() {
    let fixture = Fixture::new();
    let (good, bad) = (fixture.create("good"), fixture.create("bad"));
    append(&good, &turns(1)).expect("a batch");
    append(&bad, &turns(1)).expect("a batch");
    let sql = fixture.sql();
    sql.execute_batch(
        "CREATE TRIGGER planned BEFORE INSERT ON events
           WHEN NEW.session = (SELECT key FROM sessions WHERE id = 'bad') AND NEW.seq = 4
           BEGIN SELECT RAISE(ABORT, 'planned'); END;",
    )
    .expect("a trigger");
    sql.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let mut appends = [&bad, &good].map(|writer| writer.append(turns(2)[3..].to_vec()));
    assert!(appends.iter_mut().all(|append| futures_poll_once(append).is_none()));
    sql.execute_batch("ROLLBACK").expect("released");
    let [failed, stored] = appends.map(block_on);
    let error = failed.expect_err("planned");
    assert_eq!(error.code(), &Code::StoreFailed);
    assert!(error.message().contains("planned") && error.message().contains("sessions.db"), "{}", error.message());
    stored.expect("another session's batch");
    assert_eq!(fixture.events("bad"), turns(1), "nothing of the failed batch, though its first event went in");
    sql.execute_batch("DROP TRIGGER planned").expect("dropped");
    append(&bad, &turns(2)[3..]).expect("the same batch");
    assert_eq!(fixture.events("bad"), turns(2));
}

#[test]
fn a_listing_reads_headers_only_and_seeks() {
    let fixture = Fixture::new();
    for name in ["a", "b", "c"] {
        fixture.write(name, &turns(1));
    }
    let sql = fixture.sql();
    sql.execute("UPDATE events SET body = 'damaged'", []).expect("damaged");
    let ids = |headers: Vec<SessionHeader>| headers.into_iter().map(|header| header.id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(block_on(fixture.store.list()).expect("a list")), ["a", "b", "c"]);
    assert_eq!(ids(block_on(fixture.store.list_page(Some(&id("a")), 1)).expect("a page")), ["b"]);
    let plan: String = sql
        .query_row("EXPLAIN QUERY PLAN SELECT header FROM sessions WHERE id > 'a' ORDER BY id LIMIT 1", [], |row| {
            row.get(3)
        })
        .expect("a plan");
    assert!(plan.contains("USING INDEX") && plan.contains("id>?"), "{plan}");
}

#[test]
fn damage_is_reported_and_leaves_everything_as_it_is() {
    let harm = [
        "DELETE FROM events WHERE seq = 1",
        "DELETE FROM events WHERE seq = 5",
        "UPDATE events SET body = substr(body, 1, 9) WHERE seq = 1",
        "UPDATE events SET body = x'28b52ffd00' WHERE seq = 1",
        "UPDATE events SET body = 7 WHERE seq = 1",
        "UPDATE events SET members = 2 WHERE seq = 1",
        "UPDATE events SET body = replace(body, '\"seq\":1', '\"seq\":2') WHERE seq = 1",
        "UPDATE events SET body = replace(body, '\"time\"', '\"tame\"') WHERE seq = 1",
        "UPDATE sessions SET header = '{}' WHERE id = 'a'",
        "UPDATE sessions SET header = replace(header, '\"a\"', '\"b\"') WHERE id = 'a'",
        "UPDATE sessions SET next_seq = 5 WHERE id = 'a'",
        "UPDATE sessions SET next_seq = -1 WHERE id = 'a'",
    ];
    for harm in harm {
        let fixture = Fixture::new();
        fixture.write("a", &turns(2));
        fixture.write("other", &turns(2));
        let sql = fixture.sql();
        let session = "session = (SELECT key FROM sessions WHERE id = 'a') AND seq";
        sql.execute(&harm.replace("WHERE seq", &format!("WHERE {session}")), []).expect(harm);
        let version: i64 = sql.query_row("PRAGMA data_version", [], |row| row.get(0)).expect("a number");
        assert_eq!(fixture.read_code("a"), Code::CorruptLog, "{harm}");
        assert_eq!(fixture.events("other"), turns(2), "{harm}");
        let unchanged: i64 = sql.query_row("PRAGMA data_version", [], |row| row.get(0)).expect("a number");
        assert_eq!(version, unchanged, "reading writes nothing");
        assert_eq!(code(block_on(fixture.store.open(&id("a")))), Code::CorruptLog, "{harm}");
        let owners: i64 = sql.query_row("SELECT count(*) FROM owners", [], |row| row.get(0)).expect("a count");
        assert!(owners <= 1, "an opening that failed gives the session up");
    }
}

#[test]
fn a_file_that_is_no_database_is_damage() {
    let fixture = Fixture::new();
    fs::write(fixture.path(), "no database\n".repeat(1000)).expect("a file");
    assert_eq!(code(block_on(fixture.store.list())), Code::CorruptLog);
    let writer = block_on(fixture.store.create(&SessionHeader::new("a", 1)));
    assert_eq!(code(writer), Code::CorruptLog);
    assert!(fs::read(fixture.path()).expect("the file").starts_with(b"no database\n"), "left as it is");
}

#[test]
fn a_newer_schema_and_other_databases_are_refused_and_untouched() {
    let fixture = Fixture::new();
    fixture.write("a", &turns(1));
    fixture.sql().pragma_update(None, "user_version", 2).expect("a newer version");
    let again = SqliteStore::new(fixture.path());
    let error = block_on(again.read(&id("a"))).expect_err("newer");
    assert_eq!(error.code(), &Code::UnsupportedFormat);
    assert!(error.message().contains("schema 2 of a newer version of turnwheel: upgrade"), "{}", error.message());
    assert_eq!(code(block_on(again.create(&SessionHeader::new("b", 1)))), Code::UnsupportedFormat);

    let fixture = Fixture::new();
    fixture.sql().execute_batch("CREATE TABLE mine (x)").expect("a table");
    assert_eq!(code(block_on(fixture.store.list())), Code::UnsupportedFormat);
    let count: i64 =
        fixture.sql().query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).expect("a count");
    assert_eq!(count, 1);
}

#[cfg(unix)]
#[test]
fn a_writer_notices_that_its_database_was_removed() {
    let fixture = Fixture::new();
    let writer = fixture.create("a");
    append(&writer, &turns(1)).expect("a batch");
    fs::remove_file(fixture.path()).expect("removed");
    assert_eq!(code(append(&writer, &turns(2)[3..])), Code::StoreConflict);
}

#[test]
fn unknown_required_types_are_refused_until_they_are_registered() {
    let fixture = Fixture::new();
    let own = event(r#"{"type":"acme/note","seq":0,"time":1,"data":{"x":1}}"#);
    fixture.write("a", std::slice::from_ref(&own));
    assert_eq!(fixture.read_code("a"), Code::UnsupportedFormat);
    fixture.store.register_event_type("acme/note");
    assert_eq!(fixture.events("a"), [own]);
}

#[test]
fn many_processes_worth_of_stores_write_side_by_side() {
    let fixture = Fixture::new();
    fixture.write("seed", &turns(1));
    let path = fixture.path();
    std::thread::scope(|scope| {
        for n in 0..5 {
            let path = path.clone();
            scope.spawn(move || {
                let store = SqliteStore::new(path);
                let writer = block_on(store.create(&SessionHeader::new(format!("s{n}"), 1))).expect("a writer");
                for batch in turns(10).chunks(3) {
                    append(&writer, batch).expect("no store is locked out");
                }
                block_on(writer.close());
            });
        }
    });
    for n in 0..5 {
        assert_eq!(fixture.events(&format!("s{n}")), turns(10));
    }
}

fn context(store: SqliteStore, script: &Scripted) -> Context {
    let ctx = Context::builder().store(store).build();
    ctx.llm().register("fake", script.clone()).expect("a new route");
    ctx
}

#[test]
fn an_agent_lives_on_in_another_process_worth_of_store() {
    let fixture = Fixture::new();
    for turn in 1..=3 {
        let script = Scripted::new().text("answer");
        let ctx = context(SqliteStore::new(fixture.path()), &script);
        let run = async {
            let agent = ctx.agent("demo").provider("fake").model("m").open().await?;
            agent.run("go")?.await?;
            Ok::<_, turnwheel::Error>(agent.session().history().len())
        };
        assert_eq!(ctx.runtime().block_on(run).expect("ran"), 2 * turn);
        ctx.runtime().block_on(ctx.close()).expect("closed");
    }
}

#[test]
fn a_04_a_turn_whose_intent_cannot_be_stored_ends_before_the_request_and_loses_nothing() {
    let fixture = Fixture::new();
    let script = Scripted::new().text("one").text("two");
    let ctx = context(fixture.store.clone(), &script);
    let open = ctx.agent("demo").provider("fake").model("m").open();
    let agent = ctx.runtime().block_on(open).expect("opened");
    ctx.runtime().block_on(agent.run("first").expect("accepted")).expect("ran");
    let planned = "CREATE TRIGGER planned BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'planned'); END;";
    fixture.sql().execute_batch(planned).expect("a trigger");
    let run = ctx.runtime().block_on(agent.run("second").expect("accepted"));
    assert!(matches!(run.expect("an outcome").reason, TurnEndReason::Error { .. }));
    assert_eq!(script.request_count(), 1, "the second request was not sent");
    fixture.sql().execute_batch("DROP TRIGGER planned").expect("dropped");
    ctx.runtime().block_on(agent.run("third").expect("accepted")).expect("ran");
    ctx.runtime().block_on(ctx.close()).expect("everything is stored");
    let events = fixture.events("demo");
    let prompts = events.iter().filter(|event| matches!(event.data, EventData::UserMessage(_))).count();
    assert_eq!(prompts, 3);
}

fn samples() -> Vec<Vec<Arc<Event>>> {
    let names = [
        "01-plain-text",
        "02-tool-turn",
        "04-retry-and-error",
        "05-packed-rows",
        "08-compaction-replace",
        "10-vocabulary",
    ];
    names.iter().map(|name| sample(&format!("{name}.json"))).collect()
}

#[test]
fn sessions_are_imported_and_exported_to_the_byte_and_never_over_another() {
    let fixture = Fixture::new();
    let jsonl = |name: &str| JsonlStore::new(JsonlOptions::new(fixture.directory.path().join(name)));
    let (source, target) = (jsonl("source"), jsonl("target"));
    let logs = samples();
    let ctx = context(fixture.store.clone(), &Scripted::new());
    for (number, events) in logs.iter().enumerate() {
        let mut header = SessionHeader::new(format!("sample-{number}"), 1_700_000_000_000 + number as u64);
        header.parent_session = Some("somebody".into());
        header.seed_length = Some(1);
        header.delegation_depth = Some(1);
        let writer = block_on(source.create(&header)).expect("a writer");
        append(&writer, events).expect("a batch");
        block_on(writer.close());
        let import = || ctx.runtime().block_on(ctx.import_session(&source, header.id.clone()));
        let copied = import().expect("imported");
        assert_eq!((&copied.header, copied.events), (&header, events.len() as u64));
        assert_eq!(code(import()), Code::SessionAlreadyExists);
        let export = || ctx.runtime().block_on(ctx.export_session(&target, header.id.clone()));
        export().expect("exported");
        assert_eq!(code(export()), Code::SessionAlreadyExists);
        for store in [&fixture.store as &dyn Store, &target] {
            let log = block_on(store.read(&header.id)).expect("readable").expect("stored");
            assert_eq!(log.header, header);
            assert_eq!(log.events, *events, "events are equal when their texts are");
        }
    }
    let missing = ctx.runtime().block_on(ctx.import_session(&source, "nobody"));
    assert_eq!(code(missing), Code::SessionNotFound);
    let without = Context::new();
    assert_eq!(code(without.runtime().block_on(without.import_session(&source, "sample-0"))), Code::NoStore);
}

#[test]
fn a_live_session_is_exported_with_all_that_it_has_logged_and_not_imported_over() {
    let fixture = Fixture::new();
    let other = JsonlStore::new(JsonlOptions::new(fixture.directory.path().join("other")));
    let ctx = context(fixture.store.clone(), &Scripted::new().text("one"));
    let agent = ctx.runtime().block_on(ctx.agent("demo").provider("fake").model("m").open()).expect("opened");
    ctx.runtime().block_on(agent.run("go").expect("accepted")).expect("ran");
    let copied = ctx.runtime().block_on(ctx.export_session(&other, "demo")).expect("exported");
    assert_eq!(copied.events, agent.session().len());
    assert_eq!(code(ctx.runtime().block_on(ctx.import_session(&other, "demo"))), Code::SessionAlreadyExists);
}

#[test]
fn a_chunk_with_keys_in_another_order_keeps_its_text() {
    let fixture = Fixture::new();
    let chunk = |seq: u64, text: &str| event(&text.replace("SEQ", &seq.to_string()));
    let plain = r#"{"type":"assistant/chunk","seq":SEQ,"time":1,"data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"x"}}}"#;
    let other = r#"{"type":"assistant/chunk","time":1,"seq":SEQ,"data":{"turn":1,"step":1,"chunk":{"index":0,"type":"text-delta","text":"x"}}}"#;
    let events: Vec<_> = (0..8).map(|seq| chunk(seq, if seq == 4 { other } else { plain })).collect();
    fixture.write("a", &events);
    assert_eq!(fixture.events("a"), events);
    let rows: i64 = fixture.sql().query_row("SELECT count(*) FROM events", [], |row| row.get(0)).expect("a count");
    assert_eq!(rows, 3, "four packed, the odd one, three packed");
}
