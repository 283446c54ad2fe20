//! Reading the SQLite database of the reference implementation (SQL-01 to SQL-08), to import from it. It is never
//! written: its own program checks the text of every definition in it, and has no use for ours.

use super::{database, rows};
use crate::background::run_blocking;
use crate::error::{Code, Error, Result};
use crate::id::SessionId;
use crate::json::{self, Object, Value};
use crate::runtime::LocalBoxFuture;
use crate::session::SessionHeader;
use crate::storage::jsonl::frames;
use crate::storage::{EventTypes, LogReader, Opened, SessionWriter, Store, StoredLog};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// SQL-01.
pub(super) const APPLICATION_ID: i64 = 1_146_308_688;
const USER_VERSION: i64 = 17;

/// SQL-06.
const PACKED_MEMBERS: std::ops::RangeInclusive<usize> = 3..=1024;
const PACKED_BYTES: usize = 1_048_576;

/// A column's name and type, and whether it may be null.
type Column = (&'static str, &'static str, bool);

/// SQL-02 to SQL-04: the tables by name, each with its columns in order.
const TABLES: [(&str, &[Column]); 3] = [
    (
        "events",
        &[
            ("session_id", "TEXT", false),
            ("seq", "INTEGER", false),
            ("type", "TEXT", false),
            ("time", "INTEGER", false),
            ("data", "ANY", false),
            ("source_event_seqs", "ANY", true),
            ("surface_op", "TEXT", true),
            ("ignorable", "INTEGER", true),
        ],
    ),
    ("persistence_state", &[("singleton", "INTEGER", true), ("store_id", "TEXT", false)]),
    (
        "sessions",
        &[
            ("id", "TEXT", false),
            ("version", "INTEGER", false),
            ("created_at", "INTEGER", false),
            ("cwd", "TEXT", true),
            ("parent_session", "TEXT", true),
            ("seed_length", "INTEGER", true),
            ("origin", "TEXT", true),
            ("delegation_depth", "INTEGER", true),
            ("agent_preset", "TEXT", true),
            ("incarnation", "TEXT", false),
            ("revision", "INTEGER", false),
        ],
    ),
];

const HEADER: &str = "SELECT id, version, created_at, cwd, parent_session, seed_length, origin, delegation_depth, \
                      agent_preset FROM sessions";

/// The sessions in a database of the reference, to be listed, read and copied from. Opening or creating one fails.
#[derive(Clone)]
pub struct ReferenceDatabase {
    path: PathBuf,
    event_types: EventTypes,
}

impl ReferenceDatabase {
    /// The types its logs may hold.
    pub(in crate::storage) fn event_types(&self) -> &EventTypes {
        &self.event_types
    }

    /// The database at `path`. Nothing is read yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), event_types: EventTypes::default() }
    }

    /// Lets logs hold events of a plug-in's type (D-21).
    pub fn register_event_type(&self, kind: impl Into<String>) {
        self.event_types.register(kind);
    }

    async fn reading<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self, &Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let this = self.clone();
        run_blocking(move || {
            let connection = database::connect(&this.path, OpenFlags::SQLITE_OPEN_READ_ONLY)
                .map_err(|error| database::failed("open", &this.path, &error))?;
            check(&connection, &this.path)?;
            work(&this, &connection)
        })
        .await?
    }

    fn read_only<T>(&self) -> LocalBoxFuture<Result<T>>
    where
        T: 'static,
    {
        let message = format!(
            "{} is a database of the reference harness, which is read and not written: copy the session into a store \
             of your own with import_session",
            self.path.display()
        );
        Box::pin(std::future::ready(Err(Error::new(Code::UnsupportedFormat, message))))
    }
}

impl Store for ReferenceDatabase {
    fn register_event_type(&self, kind: &str) {
        ReferenceDatabase::register_event_type(self, kind);
    }

    fn list(&self) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        self.list_page(None, usize::MAX)
    }

    fn list_page(&self, after: Option<&SessionId>, limit: usize) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        let (this, after) = (self.clone(), after.cloned());
        Box::pin(async move { this.reading(move |this, db| this.headers(db, after.as_deref(), limit)).await })
    }

    fn read(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<StoredLog>>> {
        let (this, id) = (self.clone(), id.clone());
        Box::pin(async move { this.reading(move |this, db| this.log(db, &id)).await })
    }

    fn open(&self, _id: &SessionId) -> LocalBoxFuture<Result<Option<Opened>>> {
        self.read_only()
    }

    fn create(&self, _header: &SessionHeader) -> LocalBoxFuture<Result<Rc<dyn SessionWriter>>> {
        self.read_only()
    }
}

impl ReferenceDatabase {
    fn failed(&self, error: rusqlite::Error) -> Error {
        database::failed("read", &self.path, &error)
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    /// Headers of whatever version (VER-07).
    fn headers(&self, db: &Connection, after: Option<&str>, limit: usize) -> Result<Vec<SessionHeader>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let query = format!("{HEADER} WHERE ?1 IS NULL OR id > ?1 ORDER BY id LIMIT ?2");
        let values = db.prepare(&query).and_then(|mut query| {
            let rows = query.query_map(params![after, limit], header_value)?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        });
        let values = values.map_err(|error| self.failed(error))?;
        Ok(values.into_iter().filter_map(|(_, value)| SessionHeader::from_value(&value).ok()).collect())
    }

    fn log(&self, db: &Connection, id: &SessionId) -> Result<Option<StoredLog>> {
        let failed = |error| self.failed(error);
        // One snapshot for header and events.
        let db = db.unchecked_transaction().map_err(failed)?;
        let header =
            db.query_row(&format!("{HEADER} WHERE id = ?1"), [id.as_str()], header_value).optional().map_err(failed)?;
        let Some((version, mut value)) = header else { return Ok(None) };
        if let Value::Object(object) = &mut value {
            object.insert("version", version as f64);
        }
        let header = LogReader::header(value.to_text().as_bytes(), &self.place())?;
        let mut log = LogReader::new(header, self.place(), &self.event_types);
        let mut query = db
            .prepare(
                "SELECT seq, type, time, data, source_event_seqs, surface_op, ignorable FROM events \
                 WHERE session_id = ?1 ORDER BY seq",
            )
            .map_err(failed)?;
        let mut rows = query.query([id.as_str()]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            self.take(&mut log, row)?;
        }
        // PCO-01: a session without events does not exist in storage.
        if log.next_seq() == 0 { Ok(None) } else { log.finish().map(Some) }
    }

    fn take(&self, log: &mut LogReader, row: &Row<'_>) -> Result<()> {
        let failed = |error| self.failed(error);
        let seq: i64 = row.get(0).map_err(failed)?;
        let damage = |log: &LogReader, what: &str| Err(log.damage(&format!("event {seq}: {what}")));
        let text = match row.get_ref(3).map_err(failed)? {
            ValueRef::Text(text) => text.to_vec(),
            ValueRef::Blob(frame) => {
                frames::check()?;
                let mut plain = Vec::new();
                match frames::decompress(frame, &mut plain) {
                    Ok(()) => plain,
                    Err(error) => return damage(log, &format!("its data does not decompress: {error}")),
                }
            }
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => return damage(log, "its data is no text"),
        };
        let Ok(data) = json::parse_lossy(&text) else { return damage(log, "its data is no JSON") };
        log.note_replaced(data.replaced);
        let mut event = Object::new();
        event.insert("type", row.get::<_, String>(1).map_err(failed)?);
        let time = row.get::<_, i64>(2).map_err(failed)?;
        let marked: Option<i64> = row.get(6).map_err(failed)?;
        if marked == Some(0) {
            event.insert("seq0", seq as f64);
            event.insert("time0", time as f64);
            event.insert("data", data.value);
            return take_packed(log, Value::Object(event), text.len());
        }
        event.insert("seq", seq as f64);
        event.insert("time", time as f64);
        event.insert("data", data.value);
        match row.get_ref(4).map_err(failed)? {
            ValueRef::Null => {}
            ValueRef::Blob(bytes) => match decode_seqs(bytes) {
                Some(seqs) => {
                    event.insert("sourceEventSeqs", seqs);
                }
                None => return damage(log, "its sources are malformed"),
            },
            _ => return damage(log, "its sources are no blob"),
        }
        if let Some(text) = row.get::<_, Option<String>>(5).map_err(failed)? {
            match json::parse(&text) {
                Ok(operation) => {
                    event.insert("surfaceOp", operation);
                }
                Err(_) => return damage(log, "its placement is no JSON"),
            }
        }
        if marked == Some(1) {
            event.insert("ignorable", true);
        }
        log.take_value(Value::Object(event))
    }
}

/// SQL-05, SQL-06.
fn take_packed(log: &mut LogReader, row: Value, bytes: usize) -> Result<()> {
    let first = log.next_seq();
    let payload = |key: &str| row.get("data").and_then(|data| data.get(key)).and_then(Value::as_array).map(<[_]>::len);
    let members = payload("texts").or_else(|| payload("args")).unwrap_or_default();
    if !PACKED_MEMBERS.contains(&members) || bytes > PACKED_BYTES {
        return Err(log.damage(&format!(
            "the packed row of seq {first} is beyond its bounds ({members} members, {bytes} bytes)"
        )));
    }
    rows::take_packed(log, &row)
}

/// SQL-08: the first value as LEB128, then differences, zigzag. `None` for anything that a writer would not write.
fn decode_seqs(mut bytes: &[u8]) -> Option<Vec<Value>> {
    let mut seqs: Vec<Value> = Vec::new();
    let mut last: i64 = 0;
    while !bytes.is_empty() {
        let number = read_leb128(&mut bytes)?;
        last = match seqs.is_empty() {
            true => i64::try_from(number).ok()?,
            false => {
                let half = i64::try_from(number >> 1).ok()?;
                last.checked_add(if number & 1 == 0 { half } else { -half - 1 })?
            }
        };
        (last >= 0 && last as f64 <= json::MAX_SAFE).then_some(())?;
        seqs.push(Value::from(last as f64));
    }
    Some(seqs)
}

/// One number, in its shortest form.
fn read_leb128(bytes: &mut &[u8]) -> Option<u64> {
    let mut number: u64 = 0;
    for shift in (0..63).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return (byte != 0 || shift == 0).then_some(number);
        }
    }
    None
}

/// A session's header as JSON of our version, and the version that it has.
fn header_value(row: &Row<'_>) -> rusqlite::Result<(i64, Value)> {
    let number = |index: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(index)?.map(|number| number as f64));
    let mut header = Object::new();
    header.insert("version", crate::session::FORMAT_VERSION);
    header.insert("id", row.get::<_, String>(0)?);
    header.insert_some("createdAt", number(2)?);
    header.insert_some("cwd", row.get::<_, Option<String>>(3)?);
    header.insert_some("parentSession", row.get::<_, Option<String>>(4)?);
    header.insert_some("seedLength", number(5)?);
    header.insert_some("origin", row.get::<_, Option<String>>(6)?);
    header.insert_some("delegationDepth", number(7)?);
    header.insert_some("agentPreset", row.get::<_, Option<String>>(8)?);
    Ok((row.get(1)?, Value::Object(header)))
}

/// Refuses whatever is not the reference's database in the one version that is known.
fn check(db: &Connection, path: &Path) -> Result<()> {
    let failed = |error| database::failed("open", path, &error);
    let refused = |what: &str| {
        let message = format!("{} {what}", path.display());
        Err(Error::new(Code::UnsupportedFormat, message).with("path", path.to_string_lossy().as_ref()))
    };
    let (application, version, _) = database::identity(db).map_err(failed)?;
    if application != APPLICATION_ID {
        return refused("is not a database of the reference harness");
    }
    if version != USER_VERSION {
        return refused(&format!("has schema {version} of the reference harness; only schema {USER_VERSION} is known"));
    }
    let objects = db
        .prepare("SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name")
        .and_then(|mut query| {
            let rows = query.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })
        .map_err(failed)?;
    let expected = TABLES.iter().map(|(table, _)| ("table".to_owned(), (*table).to_owned()));
    if !objects.iter().cloned().eq(expected) {
        return refused("has other tables or indexes than a database of the reference harness");
    }
    for (table, columns) in TABLES {
        let is_strict: bool = db
            .query_row("SELECT strict FROM pragma_table_list WHERE name = ?1", [table], |row| row.get(0))
            .map_err(failed)?;
        let found = db
            .prepare("SELECT name, type, \"notnull\" FROM pragma_table_info(?1)")
            .and_then(|mut query| {
                let rows = query.query_map([table], |row| {
                    Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, !row.get::<_, bool>(2)?))
                })?;
                rows.collect::<rusqlite::Result<Vec<_>>>()
            })
            .map_err(failed)?;
        let is_same =
            found.iter().map(|(name, kind, null)| (name.as_str(), kind.as_str(), *null)).eq(columns.iter().copied());
        if !is_strict || !is_same {
            return refused(&format!("has a table `{table}` that is not that of the reference harness"));
        }
    }
    Ok(())
}
