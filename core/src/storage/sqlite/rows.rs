//! Rows of our own schema: events and packed runs of chunks, from and to the core's types.

use super::database::failed;
use crate::error::{Code, Error, Result};
use crate::id::SessionId;
use crate::json;
use crate::session::{Event, SessionHeader};
use crate::storage::jsonl::{frames, rows};
use crate::storage::{EventTypes, LogReader, StoredLog};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, ToSql, params};
use std::path::Path;
use std::sync::Arc;

/// Shorter texts are not compressed: a frame's own bytes would eat what it saves.
const COMPRESSED_FROM: usize = 1024;

/// One row of `events`.
pub(super) struct Row {
    seq: u64,
    members: u64,
    kind: String,
    time: i64,
    body: Body,
}

enum Body {
    Text(String),
    Frame(Vec<u8>),
}

impl ToSql for Body {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Body::Text(text) => ValueRef::Text(text.as_bytes()),
            Body::Frame(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// The rows of one batch.
pub(super) fn of_batch(events: &[Arc<Event>]) -> Vec<Row> {
    rows::split(events, true)
        .map(|members| {
            let mut text = String::new();
            rows::write_row(members, &mut text);
            let frame = (text.len() >= COMPRESSED_FROM).then(|| frames::compress(text.as_bytes()).ok()).flatten();
            let body = match frame.filter(|frame| frame.len() < text.len()) {
                Some(frame) => Body::Frame(frame),
                None => Body::Text(text),
            };
            Row {
                seq: members[0].seq,
                members: members.len() as u64,
                kind: rows::row_kind(members).to_owned(),
                time: members[0].time,
                body,
            }
        })
        .collect()
}

pub(super) fn insert(db: &Connection, session: i64, rows: &[Row]) -> rusqlite::Result<()> {
    let statement = "INSERT INTO events (session, seq, members, type, time, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let mut statement = db.prepare_cached(statement)?;
    for row in rows {
        statement.execute(params![session, row.seq, row.members, row.kind, row.time, row.body])?;
    }
    Ok(())
}

pub(super) fn exists(db: &Connection, path: &Path, id: &SessionId) -> Result<bool> {
    let found = db.prepare_cached("SELECT 1 FROM sessions WHERE id = ?1").and_then(|mut query| query.exists([&**id]));
    found.map_err(|error| failed("read", path, &error))
}

/// The headers behind `after`, in the order of their ids. A header that cannot be read is left out, and said.
pub(super) fn headers(db: &Connection, path: &Path, after: Option<&str>, limit: usize) -> Result<Vec<SessionHeader>> {
    let texts = (|| {
        let mut query =
            db.prepare_cached("SELECT id, header FROM sessions WHERE ?1 IS NULL OR id > ?1 ORDER BY id LIMIT ?2")?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows =
            query.query_map(params![after, limit], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    })();
    let texts = texts.map_err(|error| failed("list", path, &error))?;
    Ok(texts
        .into_iter()
        .filter_map(|(id, text)| match LogReader::header(text.as_bytes(), &place(path)) {
            Ok(header) => Some(header),
            Err(error) => {
                tracing::error!(target: "turnwheel", "session {id:?} is left out of the listing: {error:?}");
                None
            }
        })
        .collect())
}

fn place(path: &Path) -> String {
    path.display().to_string()
}

/// A session as it is at one moment.
pub(super) fn read(
    db: &Connection,
    path: &Path,
    id: &SessionId,
    event_types: &EventTypes,
) -> Result<Option<StoredLog>> {
    let failed = |error: rusqlite::Error| failed("read", path, &error);
    // One snapshot for header and events.
    let db = db.unchecked_transaction().map_err(failed)?;
    let row = db
        .prepare_cached("SELECT key, header, next_seq FROM sessions WHERE id = ?1")
        .and_then(|mut query| {
            let row = query
                .query_row([&**id], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, u64>(2)?)));
            row.optional()
        })
        .map_err(failed)?;
    let Some((session, header, next)) = row else {
        return Ok(None);
    };
    let header = LogReader::header(header.as_bytes(), &place(path))?;
    if header.id != *id {
        let message = format!("session {id:?} in {} has the header of {:?}", path.display(), header.id);
        return Err(Error::new(Code::CorruptLog, message).with("id", id.as_str()));
    }
    let mut log = LogReader::new(header, place(path), event_types);
    let mut query =
        db.prepare_cached("SELECT seq, members, body FROM events WHERE session = ?1 ORDER BY seq").map_err(failed)?;
    let mut rows = query.query([session]).map_err(failed)?;
    let mut plain = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let (seq, members): (u64, u64) = (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
        if seq != log.next_seq() {
            return Err(log.damage(&format!("there is seq {seq} where seq {} is expected", log.next_seq())));
        }
        let text = match row.get_ref(2).map_err(failed)? {
            ValueRef::Text(text) => text,
            ValueRef::Blob(frame) => {
                frames::check()?;
                plain.clear();
                frames::decompress(frame, &mut plain)
                    .map_err(|error| log.damage(&format!("event {seq} does not decompress: {error}")))?;
                &plain
            }
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => {
                return Err(log.damage(&format!("event {seq} is no text")));
            }
        };
        take(&mut log, text, members)?;
        if log.next_seq() != seq + members {
            return Err(log.damage(&format!("the row of seq {seq} does not hold the {members} events it should")));
        }
    }
    if log.next_seq() != next {
        return Err(log.damage(&format!("it ends at seq {} and was stored up to {next}", log.next_seq())));
    }
    log.finish().map(Some)
}

fn take(log: &mut LogReader, text: &[u8], members: u64) -> Result<()> {
    if members == 1 {
        return log.take_text(text);
    }
    let unreadable = |log: &LogReader| log.damage(&format!("the row of seq {} cannot be read", log.next_seq()));
    let parsed = json::parse_lossy(text).map_err(|_| unreadable(log))?;
    log.note_replaced(parsed.replaced);
    take_packed(log, &parsed.value)
}

/// Takes the members of a packed run.
pub(super) fn take_packed(log: &mut LogReader, row: &json::Value) -> Result<()> {
    match rows::unpack(row) {
        Some(rows::Row::Events(events)) => log.take_chunks(events),
        Some(rows::Row::Values(values)) => values.into_iter().try_for_each(|value| log.take_value(value)),
        None => Err(log.damage(&format!("the packed row of seq {} is malformed", log.next_seq()))),
    }
}
