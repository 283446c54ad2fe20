//! Connections: how they are opened, which databases are ours, and what SQLite's errors mean.

use crate::background;
use crate::error::{Code, Error, Result};
use crate::storage::jsonl::files::{self, DiskFiles, FileLayer};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `TWLS`: the mark of our databases.
const APPLICATION_ID: i64 = 0x5457_4c53;

/// The schema's version. A newer one is refused; an older one would be migrated here.
const SCHEMA_VERSION: i64 = 1;

/// How long a connection waits for another's lock.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// `events.body` is the JSON text of an event or a packed run of chunks (ROW), or that text as a zstd frame.
const SCHEMA: &str = "
CREATE TABLE sessions (
  key INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  header TEXT NOT NULL,
  next_seq INTEGER NOT NULL,
  fence INTEGER NOT NULL
) STRICT;
CREATE TABLE owners (
  session INTEGER PRIMARY KEY REFERENCES sessions(key) ON DELETE CASCADE,
  instance TEXT NOT NULL,
  record TEXT NOT NULL
) STRICT;
CREATE TABLE events (
  session INTEGER NOT NULL REFERENCES sessions(key) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  members INTEGER NOT NULL,
  type TEXT NOT NULL,
  time INTEGER NOT NULL,
  body ANY NOT NULL,
  PRIMARY KEY (session, seq)
) STRICT;
";

/// The writing connection.
pub(super) struct Writing {
    pub(super) connection: Connection,
    path: PathBuf,
    /// Which file the connection writes.
    place: Option<(u64, u64)>,
}

impl Writing {
    /// Opens the database to write, and makes it if there is none. A connection that could not make it is left behind.
    pub(super) fn open(path: &Path, left: &mut Option<Connection>) -> Result<Self> {
        make_file(path)?;
        let failed = |error: rusqlite::Error| failed("open", path, &error);
        let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
        let is_new = check_identity(&connection, path)?;
        if is_new && let Err(error) = create_schema(&mut connection, path) {
            *left = Some(connection);
            return Err(error);
        }
        connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        connection.pragma_update(None, "fullfsync", true).map_err(failed)?;
        connection.pragma_update(None, "checkpoint_fullfsync", true).map_err(failed)?;
        connection.pragma_update(None, "foreign_keys", true).map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(32);
        Ok(Self { connection, path: path.to_owned(), place: place_of(path) })
    }

    /// What is written to a file without a name is gone when it is closed.
    pub(super) fn check_place(&self) -> Result<()> {
        if place_of(&self.path) == self.place {
            return Ok(());
        }
        let message = format!(
            "{} was removed or replaced from outside; put it back, or open the sessions again",
            self.path.display()
        );
        Err(Error::new(Code::StoreConflict, message).with("path", self.path.to_string_lossy().as_ref()))
    }
}

/// Opens the database to read; `None` if there is none, or one that nothing was ever written to.
pub(super) fn open_reader(path: &Path) -> Result<Option<Connection>> {
    if !path.exists() {
        return Ok(None);
    }
    // With write access, because a reader of a database in WAL mode may have to recover the log of a crashed writer.
    let failed = |error: rusqlite::Error| failed("open", path, &error);
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
    if check_identity(&connection, path)? {
        return Ok(None);
    }
    connection.pragma_update(None, "query_only", true).map_err(failed)?;
    Ok(Some(connection))
}

/// A connection that trusts nothing in the file.
pub(super) fn connect(path: &Path, mode: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_WAIT)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    Ok(connection)
}

/// Closing a connection may write a checkpoint, which is no work for the runtime's thread. After a fork the parent's
/// connections are not the child's to close.
pub(super) fn close_elsewhere<T: Send + 'static>(process: u32, connections: T) {
    if process != std::process::id() {
        return std::mem::forget(connections);
    }
    if let Ok(background) = background::handle() {
        background.spawn_blocking(move || drop(connections));
    }
}

/// The database's file, private to the user.
fn make_file(path: &Path) -> Result<()> {
    let made = match path.parent() {
        Some(directory) => files::create_private_dirs(&DiskFiles, directory, directory, &files::KnownDirs::default()),
        None => Ok(()),
    };
    match made.and_then(|()| DiskFiles.create(path)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_file() => Ok(()),
        Err(error) => Err(file_failed("create", path, &error)),
    }
}

/// Whether the database is still empty. Fails unless it is empty or ours, in a version that we know.
fn check_identity(connection: &Connection, path: &Path) -> Result<bool> {
    let failed = |error: rusqlite::Error| failed("open", path, &error);
    let (application, version, objects) = identity(connection).map_err(failed)?;
    let unsupported = |what: String| {
        let error = Error::new(Code::UnsupportedFormat, format!("{} {what}", path.display()));
        Err(error.with("path", path.to_string_lossy().as_ref()))
    };
    match application {
        0 if version == 0 && objects == 0 => Ok(true),
        APPLICATION_ID if version == SCHEMA_VERSION => Ok(false),
        APPLICATION_ID => unsupported(format!(
            "has schema {version} of a newer version of turnwheel: upgrade to open it (this version knows {SCHEMA_VERSION})"
        )),
        super::reference::APPLICATION_ID => unsupported(
            "is a database of the reference harness, which is read and not written: import its sessions through \
             ReferenceDatabase"
                .to_owned(),
        ),
        _ => unsupported("is a database of another program; give the store a file of its own".to_owned()),
    }
}

/// Application id, user version, and how many objects there are.
pub(super) fn identity(connection: &Connection) -> rusqlite::Result<(i64, i64, i64)> {
    let number = |query: &str| connection.query_row(query, [], |row| row.get(0));
    Ok((
        number("PRAGMA application_id")?,
        number("PRAGMA user_version")?,
        number("SELECT count(*) FROM sqlite_schema")?,
    ))
}

fn create_schema(connection: &mut Connection, path: &Path) -> Result<()> {
    let failed = |error: rusqlite::Error| failed("set up", path, &error);
    // Two processes may be the first at once: the journal's mode is changed under an exclusive lock that is not waited
    // for, so the slower one tries again.
    let started = std::time::Instant::now();
    loop {
        match connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)) {
            Ok(mode) if mode == "wal" => break,
            Ok(mode) => {
                let message = format!("{} is on a file system without WAL (mode {mode})", path.display());
                return Err(Error::new(Code::StoreFailed, message + "; put it on a local disk"));
            }
            Err(error) if is_busy(&error) && started.elapsed() < BUSY_WAIT => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(failed(error)),
        }
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    if check_identity(&transaction, path)? {
        transaction.execute_batch(SCHEMA).map_err(failed)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION).map_err(failed)?;
    }
    transaction.commit().map_err(failed)
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

#[cfg(unix)]
fn place_of(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|data| (data.dev(), data.ino()))
}

#[cfg(not(unix))]
fn place_of(path: &Path) -> Option<(u64, u64)> {
    path.is_file().then_some((0, 0))
}

/// The error of a failed operation of SQLite, with what to do about it.
pub(super) fn failed(operation: &str, path: &Path, error: &rusqlite::Error) -> Error {
    use rusqlite::Error as Sql;
    let code = error.sqlite_error_code();
    let is_damage =
        matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::TypeMismatch))
            || matches!(
                error,
                Sql::FromSqlConversionFailure(..) | Sql::IntegralValueOutOfRange(..) | Sql::InvalidColumnType(..)
            )
            || matches!(error, Sql::Utf8Error(..));
    if is_damage {
        let message = format!(
            "the database {} is damaged: {error}; what is in it is left as it is, restore a backup or recover it with \
             sqlite3's .recover",
            path.display()
        );
        return Error::new(Code::CorruptLog, message).with("path", path.to_string_lossy().as_ref());
    }
    let advice = match code {
        Some(ErrorCode::DiskFull) => "free space for the store, then try again",
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "another program keeps it locked; end it or wait",
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            "give this process write access to the file and its directory"
        }
        _ => "check the disk, then try again",
    };
    let message = format!("cannot {operation} {}: {error}; {advice}", path.display());
    let failed = Error::new(Code::StoreFailed, message).with("operation", operation);
    failed.with("path", path.to_string_lossy().as_ref())
}

/// The error of a failed file operation beside the database.
pub(super) fn file_failed(operation: &str, path: &Path, error: &io::Error) -> Error {
    let message = format!("cannot {operation} {}: {error}; check the disk and the directory's rights", path.display());
    let failed = Error::new(Code::StoreFailed, message).with("operation", operation);
    failed.with("path", path.to_string_lossy().as_ref())
}
