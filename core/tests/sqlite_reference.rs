//! Reading the reference's SQLite database, built here by its description (SQL-01 to SQL-08).
#![cfg(feature = "sqlite")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/store.rs"]
mod support;

use rusqlite::{Connection, params};
use std::path::PathBuf;
use std::sync::Arc;
use support::{block_on, code, event, id, sample};
use tempfile::TempDir;
use turnwheel::json::{self, Value};
use turnwheel::session::{Event, SessionHeader};
use turnwheel::storage::jsonl::{JsonlOptions, JsonlStore};
use turnwheel::storage::sqlite::{ReferenceDatabase, SqliteStore};
use turnwheel::storage::{Store, copy_session};
use turnwheel::{Code, Result};

const SCHEMA: &str = "
CREATE TABLE persistence_state (singleton INTEGER PRIMARY KEY CHECK (singleton = 1), store_id TEXT NOT NULL) STRICT;
CREATE TABLE sessions (
  id TEXT PRIMARY KEY, version INTEGER NOT NULL, created_at INTEGER NOT NULL, cwd TEXT, parent_session TEXT,
  seed_length INTEGER, origin TEXT, delegation_depth INTEGER, agent_preset TEXT, incarnation TEXT NOT NULL,
  revision INTEGER NOT NULL
) STRICT;
CREATE TABLE events (
  session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, seq INTEGER NOT NULL, type TEXT NOT NULL,
  time INTEGER NOT NULL, data ANY NOT NULL, source_event_seqs ANY, surface_op TEXT,
  ignorable INTEGER CHECK (ignorable IS NULL OR ignorable IN (0, 1)), PRIMARY KEY (session_id, seq)
) STRICT;
INSERT INTO persistence_state VALUES (1, '8c2b9a52-5d0c-4b5e-9c2e-0f6f1d1a7c11');
PRAGMA application_id = 1146308688;
PRAGMA user_version = 17;
PRAGMA journal_mode = WAL;
";

struct Fixture {
    directory: TempDir,
    sql: Connection,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let sql = Connection::open(directory.path().join("reference.db")).expect("a database");
        sql.execute_batch(SCHEMA).expect("the schema");
        Self { directory, sql }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("reference.db")
    }

    fn store(&self) -> ReferenceDatabase {
        ReferenceDatabase::new(self.path())
    }

    fn session(&self, name: &str) {
        let statement =
            "INSERT INTO sessions VALUES (?1, 0, 1700000000000, '/home/demo', NULL, NULL, NULL, NULL, NULL, 'i', 1)";
        self.sql.execute(statement, [name]).expect("a session");
    }

    /// One event as the reference stores it.
    fn put(&self, session: &str, event: &Event) {
        let value = event.to_value();
        let text = value.get("data").expect("data").to_text();
        let sources = value.get("sourceEventSeqs").and_then(Value::as_array).map(|seqs| {
            let seqs: Vec<i64> = seqs.iter().map(|seq| seq.as_i64().expect("a seq")).collect();
            encode_seqs(&seqs)
        });
        let placed = value.get("surfaceOp").map(Value::to_text);
        let ignorable = event.ignorable.then_some(1);
        let frame = zstd::encode_all(text.as_bytes(), 3).expect("a frame");
        let row = params![session, event.seq, event.kind(), event.time, text, sources, placed, ignorable];
        let statement = "INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        if text.len() >= 4096 && frame.len() < text.len() {
            let row = params![session, event.seq, event.kind(), event.time, frame, sources, placed, ignorable];
            self.sql.execute(statement, row).expect("an event");
        } else {
            self.sql.execute(statement, row).expect("an event");
        }
    }

    /// A packed row by its JSONL text.
    fn put_packed(&self, session: &str, row: &str) {
        let row = json::parse(row).expect("JSON");
        let number = |key: &str| row.get(key).and_then(Value::as_i64).expect("a number");
        let (kind, data) = (row.get("type").and_then(Value::as_str), row.get("data").expect("data").to_text());
        let statement = "INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5, NULL, NULL, 0)";
        self.sql.execute(statement, params![session, number("seq0"), kind, number("time0"), data]).expect("a row");
    }

    fn events(&self, name: &str) -> Result<Vec<Arc<Event>>> {
        block_on(self.store().read(&id(name))).map(|log| log.expect("stored").events.into())
    }
}

/// SQL-08, written from its text: LEB128 of the first value, then of 2d or 2|d|-1.
fn encode_seqs(seqs: &[i64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut last = 0;
    for (index, seq) in seqs.iter().enumerate() {
        let difference = seq - last;
        let mut number = match (index, difference) {
            (0, first) => first as u64,
            (_, d) if d >= 0 => 2 * d as u64,
            (_, d) => 2 * d.unsigned_abs() - 1,
        };
        last = *seq;
        while number >= 0x80 {
            bytes.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
    }
    bytes
}

fn record(seq: u64, extra: &str) -> Arc<Event> {
    event(&format!(r#"{{"type":"feedback/record","seq":{seq},"time":{},"data":{{"n":{seq}}}{extra}}}"#, 9000 - seq))
}

#[test]
fn the_example_bytes_of_sources_are_those_of_the_description() {
    // 300 is 0xac 0x02; +2 is 4; -3 is 5; 0 is 0.
    assert_eq!(encode_seqs(&[300, 302, 299, 299]), [0xac, 0x02, 4, 5, 0]);
}

#[test]
fn sql_04_and_08_events_are_read_with_all_their_members() {
    let fixture = Fixture::new();
    fixture.session("a");
    let big = "x".repeat(5000);
    let events = [
        record(0, ""),
        record(1, r#","ignorable":true"#),
        event(&format!(r#"{{"type":"feedback/record","seq":2,"time":5,"data":{{"text":"{big}"}}}}"#)),
        record(3, ""),
    ];
    events.iter().for_each(|event| fixture.put("a", event));
    let stored: String =
        fixture.sql.query_row("SELECT typeof(data) FROM events WHERE seq = 2", [], |row| row.get(0)).expect("a row");
    assert_eq!(stored, "blob", "the test reaches SQL-07");
    assert_eq!(fixture.events("a").expect("readable"), events);
}

#[test]
fn every_sample_is_imported_to_the_byte() {
    let samples = [
        "01-plain-text",
        "02-tool-turn",
        "04-retry-and-error",
        "05-packed-rows",
        "08-compaction-replace",
        "10-vocabulary",
    ];
    let fixture = Fixture::new();
    let target = SqliteStore::new(fixture.directory.path().join("ours.db"));
    let files = JsonlStore::new(JsonlOptions::new(fixture.directory.path().join("files")));
    let mut with_sources = 0;
    for name in samples {
        fixture.session(name);
        let events = sample(&format!("{name}.json"));
        with_sources += events.iter().filter(|event| event.source_event_seqs.is_some()).count();
        events.iter().for_each(|event| fixture.put(name, event));
        assert_eq!(fixture.events(name).expect("readable"), events, "{name}");
        for target in [&target as &dyn Store, &files] {
            let copied = block_on(copy_session(&fixture.store(), target, &id(name))).expect("copied");
            assert_eq!(copied.events, events.len() as u64);
            assert_eq!(block_on(target.read(&id(name))).expect("readable").expect("stored").events, events);
        }
        let again = block_on(copy_session(&fixture.store(), &target, &id(name)));
        assert_eq!(code(again), Code::SessionAlreadyExists);
    }
    assert!(with_sources > 0, "some events cite sources");
    let header = block_on(target.read(&id("01-plain-text"))).expect("readable").expect("stored").header;
    assert_eq!(header.delegation_depth, None, "SQL-11: absent stays absent");
}

#[test]
fn sql_05_and_06_packed_rows_are_unpacked_within_their_bounds() {
    let fixture = Fixture::new();
    let row = |members: usize| {
        let gaps = vec!["1"; members - 1].join(",");
        let texts = vec![r#""t""#; members].join(",");
        format!(
            r#"{{"type":"text-chunks","seq0":0,"time0":10,"data":{{"turn":1,"step":1,"index":0,"dt":[{gaps}],"texts":[{texts}]}}}}"#
        )
    };
    for members in [3, 1024] {
        let name = format!("good-{members}");
        fixture.session(&name);
        fixture.put_packed(&name, &row(members));
        fixture.put(&name, &record(members as u64, ""));
        let events = fixture.events(&name).expect("readable");
        assert_eq!(events.len(), members + 1);
        assert_eq!(
            events[2].json(),
            r#"{"type":"assistant/chunk","seq":2,"time":12,"data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"t"}}}"#
        );
    }
    for members in [2, 1025] {
        let name = format!("bad-{members}");
        fixture.session(&name);
        fixture.put_packed(&name, &row(members));
        assert_eq!(code(fixture.events(&name)), Code::CorruptLog, "{members} members");
    }
    fixture.session("long");
    fixture.put_packed("long", &row(3).replacen("\"t\"", &format!("\"{}\"", "t".repeat(1_048_576)), 1));
    assert_eq!(code(fixture.events("long")), Code::CorruptLog);
    fixture.session("odd");
    fixture.put_packed("odd", &row(3).replace("\"dt\":[1,1]", "\"dt\":[1]"));
    assert_eq!(code(fixture.events("odd")), Code::CorruptLog);
}

#[test]
fn damage_is_corruption_and_other_sessions_stay_readable() {
    let harm = [
        "UPDATE events SET data = 7 WHERE seq = 1 AND session_id = 'a'",
        "UPDATE events SET data = '{' WHERE seq = 1 AND session_id = 'a'",
        "UPDATE events SET data = x'00' WHERE seq = 1 AND session_id = 'a'",
        "DELETE FROM events WHERE seq = 1 AND session_id = 'a'",
        "UPDATE events SET source_event_seqs = x'8000' WHERE seq = 1 AND session_id = 'a'",
        "UPDATE events SET source_event_seqs = x'80' WHERE seq = 1 AND session_id = 'a'",
        "UPDATE events SET source_event_seqs = x'0003' WHERE seq = 1 AND session_id = 'a'",
        "UPDATE events SET source_event_seqs = 'text' WHERE seq = 1 AND session_id = 'a'",
        "UPDATE events SET surface_op = 'append' WHERE seq = 1 AND session_id = 'a'",
        "UPDATE sessions SET cwd = 'relative' WHERE id = 'a'",
        "UPDATE sessions SET origin = 'elsewhere' WHERE id = 'a'",
    ];
    for harm in harm {
        let fixture = Fixture::new();
        for name in ["a", "b"] {
            fixture.session(name);
            (0..3).for_each(|seq| fixture.put(name, &record(seq, "")));
        }
        assert_eq!(fixture.sql.execute(harm, []).expect(harm), 1);
        assert_eq!(code(fixture.events("a")), Code::CorruptLog, "{harm}");
        assert_eq!(fixture.events("b").expect("readable").len(), 3, "{harm}");
    }
}

#[test]
fn ver_01_a_session_of_another_version_is_listed_and_not_read() {
    let fixture = Fixture::new();
    fixture.session("a");
    fixture.put("a", &record(0, ""));
    fixture.sql.execute("UPDATE sessions SET version = 1", []).expect("changed");
    assert_eq!(code(fixture.events("a")), Code::UnsupportedFormat);
    let listed: Vec<SessionHeader> = block_on(fixture.store().list()).expect("a list");
    assert_eq!(listed.len(), 1);
}

#[test]
fn ver_04_unknown_types_are_refused_until_registered() {
    let fixture = Fixture::new();
    fixture.session("a");
    let own = event(r#"{"type":"acme/note","seq":0,"time":1,"data":null}"#);
    fixture.put("a", &own);
    assert_eq!(code(fixture.events("a")), Code::UnsupportedFormat);
    let store = fixture.store();
    store.register_event_type("acme/note");
    let log = block_on(store.read(&id("a"))).expect("readable").expect("stored");
    assert_eq!(log.events, [own]);
}

#[test]
fn sql_01_any_other_database_is_refused() {
    let changes = [
        "PRAGMA user_version = 16",
        "PRAGMA user_version = 18",
        "PRAGMA application_id = 7",
        "CREATE INDEX more ON events (type)",
        "CREATE TABLE more (x)",
        "ALTER TABLE sessions ADD COLUMN more TEXT",
        "DROP TABLE persistence_state",
    ];
    for change in changes {
        let fixture = Fixture::new();
        fixture.sql.execute_batch(change).expect(change);
        assert_eq!(code(block_on(fixture.store().list())), Code::UnsupportedFormat, "{change}");
    }
    let missing = ReferenceDatabase::new("/nowhere/at all.db");
    assert_eq!(code(block_on(missing.list())), Code::StoreFailed);
}

#[test]
fn it_is_never_written_and_our_store_says_what_it_is() {
    let fixture = Fixture::new();
    fixture.session("a");
    fixture.put("a", &record(0, ""));
    assert_eq!(code(block_on(fixture.store().create(&SessionHeader::new("b", 1)))), Code::UnsupportedFormat);
    assert_eq!(code(block_on(fixture.store().open(&id("a")))), Code::UnsupportedFormat);
    let ours = SqliteStore::new(fixture.path());
    let error = block_on(ours.list()).expect_err("not ours");
    assert_eq!(error.code(), &Code::UnsupportedFormat);
    assert!(error.message().contains("ReferenceDatabase"), "{}", error.message());
}

#[test]
fn a_session_without_events_is_not_found() {
    let fixture = Fixture::new();
    fixture.session("empty");
    assert!(block_on(fixture.store().read(&id("empty"))).expect("no error").is_none());
}
