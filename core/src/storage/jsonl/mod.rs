//! Sessions as JSONL files, the ones that the reference implementation writes and reads (JL, ROW, ZST).
//!
//! A session is one file that only grows. The writer holds a lock on it that ends with its process; readers take none.
//! The lock belongs to the open file: a process that forks without `exec` shares it with its child. A small file beside
//! it says who holds the lock; it has no other meaning and may be deleted.
//! All file work, rendering and compression run in the background and never on the runtime's thread.

pub(super) mod files;
pub(super) mod frames;
mod header;
mod layout;
mod lone;
mod reader;
pub(super) mod rows;
mod tree;
mod writer;

pub use files::{DiskFiles, FileLayer, Revision};
pub use lone::{log_text, read_log, read_text};

use super::owner::Owner;
use super::{SessionWriter, Store, StoredLog};
use crate::background::run_blocking;
use crate::error::{Code, Error, Result};
use crate::id::SessionId;
use crate::runtime::LocalBoxFuture;
use crate::session::SessionHeader;
use reader::{Contents, ReadContext};
use std::collections::HashSet;
use std::fs::TryLockError;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use writer::JsonlWriter;

/// How often a read starts again because the file changed under it, before it gives up (JL-21).
const READ_ATTEMPTS: usize = 32;

/// How often it starts again while the file merely grows.
const GROWN_ATTEMPTS: usize = 4;

/// The encoding of all files below a root (JL-15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Plain text: `session.jsonl`.
    #[cfg_attr(not(feature = "zstd"), default)]
    None,
    /// One zstd frame per append: `session.jsonl.zstd`. Needs the feature `zstd`; without it every use is
    /// `UNSUPPORTED_FORMAT`.
    #[cfg_attr(feature = "zstd", default)]
    Zstd,
}

impl Compression {
    fn file_name(self) -> &'static str {
        match self {
            Compression::None => "session.jsonl",
            Compression::Zstd => "session.jsonl.zstd",
        }
    }

    fn check(self) -> Result<()> {
        if self == Compression::Zstd { frames::check() } else { Ok(()) }
    }

    fn other(self) -> Self {
        match self {
            Compression::None => Compression::Zstd,
            Compression::Zstd => Compression::None,
        }
    }
}

/// Where and how sessions are stored (JL-23).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonlOptions {
    /// The directory that holds all sessions; made on the first write.
    pub root: PathBuf,
    /// The encoding of every file below the root.
    pub compression: Compression,
    /// Whether runs of stream chunks are written as one line. Reading takes both.
    pub pack_chunks: bool,
}

impl JsonlOptions {
    /// zstd and packed chunks below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), compression: Compression::default(), pack_chunks: true }
    }

    /// Sets the encoding.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }
}

/// A session's log as it is stored, for an export or for other tools (JL-22).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawLog {
    /// The header.
    pub header: SessionHeader,
    /// What to call the exported file: the text is plain also when the store compresses.
    pub file_name: &'static str,
    /// The exact text, header line included. Plain files have a torn tail in it; a torn last zstd frame is left out.
    pub text: Vec<u8>,
}

/// A store of sessions in files.
#[derive(Clone)]
pub struct JsonlStore(Arc<Inner>);

struct Inner {
    options: JsonlOptions,
    files: Arc<dyn FileLayer>,
    /// Types besides REC-30 that logs may hold (D-21).
    event_types: RwLock<HashSet<String>>,
    /// Ids with a writer that may not have written yet (PCO-02).
    created: Mutex<HashSet<SessionId>>,
    known_dirs: files::KnownDirs,
}

impl JsonlStore {
    /// A store on the disk. Nothing is read or written yet.
    pub fn new(options: JsonlOptions) -> Self {
        Self::with_files(options, Arc::new(DiskFiles))
    }

    /// A store on another file layer, for tests of what happens when a disk fails.
    pub fn with_files(options: JsonlOptions, files: Arc<dyn FileLayer>) -> Self {
        let (event_types, created, known_dirs) = (RwLock::default(), Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { options, files, event_types, created, known_dirs }))
    }

    /// Lets logs hold events of a plug-in's type (D-21). A log with a type that is neither known nor registered nor
    /// marked ignorable is refused with `UNSUPPORTED_FORMAT`.
    pub fn register_event_type(&self, kind: impl Into<String>) {
        self.0.event_types.write().unwrap_or_else(PoisonError::into_inner).insert(kind.into());
    }

    /// The options.
    pub fn options(&self) -> &JsonlOptions {
        &self.0.options
    }

    /// The file that a session of this header has, or would have (JL-01).
    pub fn path_of(&self, header: &SessionHeader) -> Result<PathBuf> {
        self.0.path_of(header)
    }

    /// The file of a stored session. `None` if there is none.
    pub fn locate(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<PathBuf>>> {
        let (inner, id) = (self.0.clone(), id.clone());
        Box::pin(inner.run(move |inner| tree::find(&inner, &id)))
    }

    /// Which content a stored session has now (JL-21). `None` if there is none.
    pub fn revision(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<Revision>>> {
        let (inner, id) = (self.0.clone(), id.clone());
        Box::pin(inner.run(move |inner| match tree::find(&inner, &id)? {
            Some(path) => files::Revision::of(&path).map(Some).map_err(|error| io_error("examine", &path, &error)),
            None => Ok(None),
        }))
    }

    /// The headers of all stored sessions with the revision of each, in no order. Reads headers only (JL-16).
    pub fn list_revisions(&self) -> LocalBoxFuture<Result<Vec<(SessionHeader, Revision)>>> {
        let inner = self.0.clone();
        Box::pin(inner.run(move |inner| tree::list_revisions(&inner)))
    }

    /// A session's exact text (JL-22). `None` if there is none.
    pub fn read_raw(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<RawLog>>> {
        let (inner, id) = (self.0.clone(), id.clone());
        Box::pin(inner.run(move |inner| match tree::find(&inner, &id)? {
            Some(path) => inner.read_raw(&path, &id).map(Some),
            None => Ok(None),
        }))
    }
}

impl Store for JsonlStore {
    fn register_event_type(&self, kind: &str) {
        JsonlStore::register_event_type(self, kind);
    }

    fn list(&self) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        let inner = self.0.clone();
        Box::pin(inner.run(move |inner| tree::list(&inner)))
    }

    fn list_page(&self, after: Option<&SessionId>, limit: usize) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        let (inner, after) = (self.0.clone(), after.cloned());
        Box::pin(inner.run(move |inner| tree::list_page(&inner, after.as_ref(), limit)))
    }

    fn read(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<StoredLog>>> {
        let (inner, id) = (self.0.clone(), id.clone());
        Box::pin(inner.run(move |inner| match tree::find(&inner, &id)? {
            Some(path) => inner.read(&path, &id).map(|(contents, len)| Some(contents.into_log(len))),
            None => Ok(None),
        }))
    }

    fn exists(&self, id: &SessionId) -> LocalBoxFuture<Result<bool>> {
        let (inner, id) = (self.0.clone(), id.clone());
        Box::pin(inner.run(move |inner| tree::find(&inner, &id).map(|found| found.is_some())))
    }

    fn open(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<(StoredLog, Rc<dyn SessionWriter>)>>> {
        let (inner, id) = (self.0.clone(), id.clone());
        Box::pin(async move {
            let opened = inner.run(move |inner| inner.open(&id)).await?;
            Ok(opened.map(|(log, writer)| (log, Rc::new(writer) as Rc<dyn SessionWriter>)))
        })
    }

    fn create(&self, header: &SessionHeader) -> LocalBoxFuture<Result<Rc<dyn SessionWriter>>> {
        let (inner, header) = (self.0.clone(), header.clone());
        Box::pin(async move {
            let writer = inner.run(move |inner| inner.create(header)).await?;
            Ok(Rc::new(writer) as Rc<dyn SessionWriter>)
        })
    }
}

/// What is made of the bytes of a file.
trait Parse<T>: Fn(&[u8], &ReadContext<'_>) -> Result<T> {}

impl<T, F: Fn(&[u8], &ReadContext<'_>) -> Result<T>> Parse<T> for F {}

impl Inner {
    /// Runs file work in the background, unless this build has no codec for the files.
    async fn run<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce(Arc<Self>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.options.compression.check()?;
        run_blocking(move || work(self)).await?
    }

    fn path_of(&self, header: &SessionHeader) -> Result<PathBuf> {
        let options = &self.options;
        layout::session_path(&options.root, header.cwd.as_deref(), &header.id, options.compression)
    }

    /// Reads a file as it is at one moment (JL-21). Returns its length besides.
    fn read(&self, path: &Path, id: &SessionId) -> Result<(Contents, u64)> {
        self.read_with(path, id, |bytes, context| {
            reader::read(bytes, context).map(|contents| (contents, bytes.len() as u64))
        })
    }

    fn read_raw(&self, path: &Path, id: &SessionId) -> Result<RawLog> {
        let (header, text) = self.read_with(path, id, reader::text)?;
        Ok(RawLog { header, file_name: Compression::None.file_name(), text })
    }

    fn read_with<T>(&self, path: &Path, id: &SessionId, parse: impl Parse<T>) -> Result<T> {
        let failed = |error: io::Error| io_error("read", path, &error);
        for attempt in 1..=READ_ATTEMPTS {
            let before = files::Revision::of(path).map_err(failed)?;
            let mut bytes = self.files.read(path).map_err(failed)?;
            let after = files::Revision::of(path).map_err(failed)?;
            if before == after {
                return self.parse(path, id, &bytes, &parse);
            }
            // A busy writer must not keep readers out: a log that only grew still begins with what it was before.
            if attempt >= GROWN_ATTEMPTS && before.may_have_grown_to(&after) {
                bytes.truncate(before.size());
                if let Ok(read) = self.parse(path, id, &bytes, &parse) {
                    return Ok(read);
                }
            }
        }
        let message = format!("{} changes faster than it can be read; try again", path.display());
        Err(Error::new(Code::StoreFailed, message).with("path", path.to_string_lossy().as_ref()))
    }

    fn parse<T>(&self, path: &Path, id: &SessionId, bytes: &[u8], parse: &impl Parse<T>) -> Result<T> {
        let event_types = self.event_types.read().unwrap_or_else(PoisonError::into_inner).clone();
        let context = ReadContext {
            path,
            compression: self.options.compression,
            is_registered: &|kind| event_types.contains(kind),
            check_place: &|line| tree::check_place(self, path, line, Some(id)),
        };
        parse(bytes, &context)
    }

    fn open(self: Arc<Self>, id: &SessionId) -> Result<Option<(StoredLog, JsonlWriter)>> {
        let Some(path) = tree::find(&self, id)? else {
            return Ok(None);
        };
        let file = self.files.open(&path).map_err(|error| io_error("open", &path, &error))?;
        lock(&file, &path, id)?;
        writer::remove_leftovers(&*self.files, &path, Some(&file));
        let (contents, len) = self.read(&path, id)?;
        let writer = JsonlWriter::opened(self, path, file, &contents, len);
        Ok(Some((contents.into_log(len), writer)))
    }

    fn create(self: Arc<Self>, header: SessionHeader) -> Result<JsonlWriter> {
        header.check()?;
        let path = self.path_of(&header)?;
        layout::check_names(&path, &header.id)?;
        let reserved = self.created.lock().unwrap_or_else(PoisonError::into_inner).insert(header.id.clone());
        if !reserved {
            return Err(already_exists(&header.id, &path));
        }
        // From here on the writer gives the reservation back when it goes.
        let writer = JsonlWriter::created(self.clone(), path, header);
        writer.check_absent()?;
        Ok(writer)
    }
}

impl Contents {
    fn into_log(self, file_len: u64) -> StoredLog {
        StoredLog {
            header: self.header,
            events: self.events,
            replaced_characters: self.replaced,
            torn_bytes: file_len - self.valid_len,
        }
    }
}

/// Becomes the one writer of a file, until the file is closed or the process ends.
fn lock(file: &std::fs::File, path: &Path, id: &str) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let record = std::fs::read_to_string(owner_path(path)).ok();
            let owner = record.as_deref().and_then(Owner::parse);
            let holder = owner.as_ref().map_or("another writer".to_owned(), Owner::describe);
            let message = format!("session {id:?} is held by {holder}: {}; close it there first", path.display());
            let error = Error::new(Code::SessionLocked, message).with("id", id);
            let error = error.with("path", path.to_string_lossy().as_ref());
            Err(match owner {
                Some(owner) => error.with("holder", owner.to_value()),
                None => error,
            })
        }
        Err(TryLockError::Error(error)) => Err(io_error("lock", path, &error)),
    }
}

/// The record of who holds the lock on a session's file.
fn owner_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".owner");
    PathBuf::from(name)
}

fn already_exists(id: &SessionId, path: &Path) -> Error {
    let message = format!("a session {id:?} exists already; choose another id, or open it ({})", path.display());
    let error = Error::new(Code::SessionAlreadyExists, message).with("id", id.as_str());
    error.with("path", path.to_string_lossy().as_ref())
}

/// A failed file operation, with what to do about it.
fn io_error(operation: &str, path: &Path, error: &io::Error) -> Error {
    use io::ErrorKind;
    let advice = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free space for the store, then try again",
        ErrorKind::PermissionDenied | ErrorKind::Unsupported if operation == "publish" => {
            "put the store on a file system with hard links"
        }
        ErrorKind::PermissionDenied => "give this process access to the store's directory",
        ErrorKind::ReadOnlyFilesystem => "put the store on a writable file system",
        ErrorKind::Unsupported => "put the store on a file system with hard links and file locks",
        ErrorKind::NotFound => "the file or directory was removed from outside",
        _ => "check the disk, then try again",
    };
    let message = format!("cannot {operation} {}: {error}; {advice}", path.display());
    let failed = Error::new(Code::StoreFailed, message).with("operation", operation);
    let failed = failed.with("path", path.to_string_lossy().as_ref());
    match error.raw_os_error() {
        Some(number) => failed.with("osError", number),
        None => failed,
    }
}
