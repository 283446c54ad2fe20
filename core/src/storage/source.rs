//! Logs to look at: a folder of JSONL files, one such file, or a database, told apart by what is in them.
//!
//! Everything here blocks and belongs on a thread that may wait. Only [`LogSource::repair`] writes.

use super::jsonl::{Compression, JsonlOptions, JsonlStore, log_text, read_log, read_text};
use super::sqlite::{ReferenceDatabase, SqliteStore};
use super::{Store, StoredLog};
use crate::error::{Code, Error, Result};
use crate::id::SessionId;
use crate::invariants::LogOrder;
use crate::json::{Object, Value};
use crate::runtime::Runtime;
use crate::session::{Event, KNOWN_TYPES, SessionHeader, closers};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// How every SQLite database begins.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";
/// Where a database says which program it is of, and what the reference's says.
const APPLICATION_ID: std::ops::Range<usize> = 68..72;
const REFERENCE_ID: [u8; 4] = [0x44, 0x53, 0x48, 0x50];

/// Where logs are read from, without the right to write them. Any number may look while a program writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSource {
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Folder(Compression),
    Database,
    Reference,
}

/// What an examination of one log found.
#[derive(Debug)]
pub struct Verdict {
    /// The session.
    pub id: SessionId,
    /// How many events can be read.
    pub events: u64,
    /// Bytes behind the committed prefix: an append under way, or one that a crash cut. The next opening drops them.
    pub torn_bytes: u64,
    /// Characters that had to be replaced to read the log (D-22).
    pub replaced_characters: usize,
    /// What the next opening appends to close an interrupted turn (REP-01); of a session that runs now, nothing is.
    pub closers: Vec<Event>,
    /// Types of plug-ins that must be registered to open the session (D-21).
    pub needs_types: Vec<String>,
    /// Events that break the order of logs (ORD-01 to ORD-09), each with its seq and the rule.
    pub disorder: Vec<(u64, String)>,
}

impl Verdict {
    /// Examines a log.
    pub fn of(log: &StoredLog) -> Self {
        let mut order = LogOrder::default();
        let (mut disorder, mut types) = (Vec::new(), BTreeSet::new());
        // What was inherited may begin and end anywhere.
        let inherited = log.header.seed_length.unwrap_or(0);
        for event in log.events.iter() {
            if let Err(rule) = order.check(&event)
                && event.seq >= inherited
            {
                disorder.push((event.seq, rule));
            }
            order.apply(&event);
            if !event.ignorable && KNOWN_TYPES.binary_search(&event.kind()).is_err() {
                types.insert(event.kind().to_owned());
            }
        }
        Self {
            id: log.header.id.clone(),
            events: log.events.len() as u64,
            torn_bytes: log.torn_bytes,
            replaced_characters: log.replaced_characters,
            closers: closers(&log.events),
            needs_types: types.into_iter().collect(),
            disorder,
        }
    }

    /// Whether the log is whole and in order. A torn tail and an open turn are no faults: opening mends them.
    pub fn is_sound(&self) -> bool {
        self.disorder.is_empty()
    }

    /// The verdict as JSON, for hosts.
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.insert("id", self.id.as_str());
        object.insert("events", self.events);
        object.insert("tornBytes", self.torn_bytes);
        object.insert("replacedCharacters", self.replaced_characters);
        object.insert("closers", self.closers.iter().map(Event::to_value).collect::<Vec<_>>());
        object.insert("needsTypes", self.needs_types.iter().map(|kind| kind.as_str().into()).collect::<Vec<Value>>());
        let disorder = self.disorder.iter().map(|(seq, rule)| {
            Value::Object(Object::from_iter([("seq", Value::from(*seq)), ("rule", Value::from(rule.as_str()))]))
        });
        object.insert("disorder", disorder.collect::<Vec<_>>());
        object.insert("isSound", self.is_sound());
        Value::Object(object)
    }
}

impl LogSource {
    /// What lies at `path`. Fails with `INVALID_ARGUMENT` when there is nothing.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let refused =
            |what: String| Error::new(Code::InvalidArgument, what).with("path", path.to_string_lossy().as_ref());
        let missing = |error: std::io::Error| {
            refused(format!(
                "cannot look at {}: {error}; name a store's folder, a log file or a database",
                path.display()
            ))
        };
        let kind = if std::fs::metadata(&path).map_err(missing)?.is_dir() {
            let files = JsonlStore::new(JsonlOptions::new(&path));
            // All files below one root have one encoding; which one, only a look at them tells.
            match block_on(files.list_page(None, 1)) {
                Err(error) if *error.code() == Code::UnsupportedFormat => Kind::Folder(Compression::None),
                Ok(_) | Err(_) => Kind::Folder(Compression::Zstd),
            }
        } else {
            let mut head = Vec::new();
            let file = File::open(&path).map_err(missing)?;
            file.take(100).read_to_end(&mut head).map_err(missing)?;
            match head.get(APPLICATION_ID) {
                Some(id) if head.starts_with(SQLITE_MAGIC) && *id == REFERENCE_ID => Kind::Reference,
                Some(_) | None if head.starts_with(SQLITE_MAGIC) => Kind::Database,
                Some(_) | None => Kind::File,
            }
        };
        Ok(Self { path, kind })
    }

    /// Up to `limit` headers whose ids follow `after`, in the order of ids.
    pub fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<SessionHeader>> {
        match self.kind {
            Kind::File => Ok(vec![read_text(&self.path)?.0]),
            _ => block_on(self.store().list_page(after.map(SessionId::from).as_ref(), limit)),
        }
    }

    /// Reads a session; without an id, the only one there is. Fails with `SESSION_NOT_FOUND`.
    pub fn read(&self, id: Option<&str>) -> Result<StoredLog> {
        if let Some(file) = self.file(id)? {
            return read_log(&file);
        }
        let id = self.only(id)?;
        block_on(self.store().read(&id))?.ok_or_else(|| self.not_found(&id))
    }

    /// A session as the text of a plain JSONL file. Of a file it is the exact text, also when its events cannot be read.
    pub fn text(&self, id: Option<&str>) -> Result<Vec<u8>> {
        match self.file(id)? {
            Some(file) => Ok(read_text(&file)?.1),
            None => Ok(log_text(&self.read(id)?).into_bytes()),
        }
    }

    /// Changes whenever the session does, at the price of looking at a file's length and times.
    pub fn revision(&self, id: Option<&str>) -> Result<String> {
        let file = self.file(id)?.unwrap_or_else(|| self.path.clone());
        let mut wal = file.clone().into_os_string();
        wal.push("-wal");
        let stamp = |path: &Path| {
            let data = std::fs::metadata(path).ok()?;
            let changed = data.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
            Some(format!("{}-{}", data.len(), changed.as_nanos()))
        };
        let whole = [Some(file), matches!(self.kind, Kind::Database | Kind::Reference).then(|| PathBuf::from(wal))];
        Ok(whole.into_iter().flatten().filter_map(|path| stamp(&path)).collect::<Vec<_>>().join("+"))
    }

    /// Closes what a crash left open, as opening the agent would: appends the closers, in place of a torn tail. Returns how
    /// many events were appended. Fails with `SESSION_LOCKED` while a program writes the session.
    pub fn repair(&self, id: Option<&str>) -> Result<usize> {
        if matches!(self.kind, Kind::File | Kind::Reference) {
            let message = format!("{} is only read: name the store's folder or database instead", self.path.display());
            return Err(Error::new(Code::InvalidArgument, message));
        }
        let id = self.only(id)?;
        let store = match self.kind {
            Kind::Database => Rc::new(SqliteStore::new(&self.path)) as Rc<dyn Store>,
            _ => self.store(),
        };
        block_on(async move {
            let (log, writer) = store.open(&id).await?.ok_or_else(|| self.not_found(&id))?;
            let closers: Vec<_> = closers(&log.events).into_iter().map(Arc::new).collect();
            let count = closers.len();
            let appended = if count > 0 { writer.append(closers).await } else { Ok(()) };
            writer.close().await;
            appended.map(|()| count)
        })
    }

    fn store(&self) -> Rc<dyn Store> {
        match self.kind {
            Kind::Database => {
                let store = SqliteStore::new(&self.path);
                store.event_types().register_any();
                Rc::new(store)
            }
            Kind::Reference => {
                let store = ReferenceDatabase::new(&self.path);
                store.event_types().register_any();
                Rc::new(store)
            }
            Kind::Folder(compression) => Rc::new(self.files(compression)),
            Kind::File => Rc::new(self.files(Compression::None)),
        }
    }

    fn files(&self, compression: Compression) -> JsonlStore {
        JsonlStore::new(JsonlOptions::new(&self.path).compression(compression))
    }

    /// The one file that the session is; `None` in a database.
    fn file(&self, id: Option<&str>) -> Result<Option<PathBuf>> {
        match self.kind {
            Kind::Database | Kind::Reference => Ok(None),
            Kind::File => {
                if let Some(id) = id {
                    let id = SessionId::from(id);
                    let (header, _) = read_text(&self.path)?;
                    return if header.id == id { Ok(Some(self.path.clone())) } else { Err(self.not_found(&id)) };
                }
                Ok(Some(self.path.clone()))
            }
            Kind::Folder(compression) => {
                let (id, store) = (self.only(id)?, self.files(compression));
                let found = block_on(store.locate(&id))?;
                found.map(Some).ok_or_else(|| self.not_found(&id))
            }
        }
    }

    /// The id, or that of the only session.
    fn only(&self, id: Option<&str>) -> Result<SessionId> {
        if let Some(id) = id {
            return Ok(id.into());
        }
        let some = self.list(None, 6)?;
        match &some[..] {
            [only] => Ok(only.id.clone()),
            [] => Err(Error::new(Code::SessionNotFound, format!("{} has no sessions", self.path.display()))),
            many => {
                let names: Vec<&str> = many.iter().take(5).map(|header| header.id.as_str()).collect();
                let more = if many.len() > 5 { ", …" } else { "" };
                let what =
                    format!("{} has several sessions; name one: {}{more}", self.path.display(), names.join(", "));
                Err(Error::new(Code::InvalidArgument, what))
            }
        }
    }

    fn not_found(&self, id: &SessionId) -> Error {
        let message = format!("{} has no session {id:?}; list it to see what it has", self.path.display());
        Error::new(Code::SessionNotFound, message).with("id", id.as_str())
    }
}

/// Waits for a store on a runtime of its own.
fn block_on<F: Future>(work: F) -> F::Output {
    Runtime::default().block_on(work)
}
