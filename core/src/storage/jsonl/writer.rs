//! The one writer of a session: batches that are stored whole or not at all (JL-17, JL-18, JL-20, PCO-01, PCO-04).

use super::reader::Contents;
use super::{Compression, FileLayer, Inner, already_exists, files, frames, header, io_error, owner_path, rows, tree};
use crate::background::run_blocking;
use crate::error::{Code, Error, Result};
use crate::runtime::LocalBoxFuture;
use crate::session::{Event, SessionHeader};
use crate::storage::SessionWriter;
use crate::storage::owner::Owner;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The writer of one session. Dropping it gives the session up, as `close` does.
pub(super) struct JsonlWriter(Arc<Shared>);

struct Shared {
    store: Arc<Inner>,
    path: PathBuf,
    header: SessionHeader,
    /// Whether this writer holds the id in `Inner::created`.
    reserved: bool,
    state: Mutex<State>,
}

struct State {
    /// Open and locked; `None` until the first batch of a new session is published, and after `close`.
    file: Option<Arc<File>>,
    closed: bool,
    /// Where the committed part of the file ends.
    len: u64,
    /// The seq of the next event.
    next: u64,
    /// Events of a torn frame, to be written again in one frame with the next batch (ZST-09).
    recovered: Vec<Arc<Event>>,
    /// Bytes may stand behind `len`; they have to go before anything is appended.
    dirty: bool,
}

impl JsonlWriter {
    /// The writer of a session that is stored. The file is untouched until the first batch.
    pub(super) fn opened(store: Arc<Inner>, path: PathBuf, file: File, contents: &Contents, file_len: u64) -> Self {
        let state = State {
            file: Some(Arc::new(file)),
            closed: false,
            len: contents.valid_len,
            next: contents.events.len() as u64,
            recovered: contents.events.iter_from(contents.events.len() - contents.recovered).collect(),
            dirty: file_len > contents.valid_len,
        };
        let header = contents.header.clone();
        sign(&path);
        Self(Arc::new(Shared { store, path, header, reserved: false, state: Mutex::new(state) }))
    }

    /// The writer of a new session, whose id the caller has reserved.
    pub(super) fn created(store: Arc<Inner>, path: PathBuf, header: SessionHeader) -> Self {
        let state = State { file: None, closed: false, len: 0, next: 0, recovered: Vec::new(), dirty: false };
        Self(Arc::new(Shared { store, path, header, reserved: true, state: Mutex::new(state) }))
    }

    /// Fails when the id is stored, below whatever project (PCO-02).
    pub(super) fn check_absent(&self) -> Result<()> {
        self.0.check_absent()
    }
}

impl SessionWriter for JsonlWriter {
    fn append(&self, events: Vec<Arc<Event>>) -> LocalBoxFuture<Result<()>> {
        let shared = self.0.clone();
        Box::pin(async move { run_blocking(move || shared.append(&events)).await? })
    }

    fn close(&self) -> LocalBoxFuture<()> {
        let shared = self.0.clone();
        Box::pin(async move {
            // Waits for a batch that is being written. Without threads nothing is being written.
            let _ = run_blocking(move || shared.close()).await;
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in the middle of a batch leaves the state dirty, which the next batch cleans up.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back_id(&self) {
        if self.reserved {
            self.store.created.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.header.id);
        }
    }

    fn close(&self) {
        let mut state = self.state();
        if !state.closed {
            state.closed = true;
            if let Some(file) = state.file.take() {
                // While the lock is held: the record behind it would be the next owner's.
                let _ = fs::remove_file(owner_path(&self.path));
                drop(file);
            }
            self.give_back_id();
        }
    }

    fn check_absent(&self) -> Result<()> {
        match tree::find(&self.store, &self.header.id)? {
            Some(path) => Err(already_exists(&self.header.id, &path)),
            None => Ok(()),
        }
    }

    fn append(&self, events: &[Arc<Event>]) -> Result<()> {
        let mut state = self.state();
        if state.closed {
            let message = format!("the writer of session {:?} is closed; open the session again", self.header.id);
            return Err(Error::new(Code::StoreFailed, message));
        }
        self.check_seqs(events, state.next)?;
        if events.is_empty() {
            return Ok(());
        }
        match state.file.clone() {
            None => self.first_write(&mut state, events)?,
            Some(file) => self.later_write(&mut state, &file, events)?,
        }
        state.next += events.len() as u64;
        state.recovered.clear();
        Ok(())
    }

    /// PCO-04.
    fn check_seqs(&self, events: &[Arc<Event>], next: u64) -> Result<()> {
        let Some((index, event)) = events.iter().enumerate().find(|(index, event)| event.seq != next + *index as u64)
        else {
            return Ok(());
        };
        let expected = next + index as u64;
        let message = format!(
            "session {:?} goes on with seq {expected} at position {index} of the batch, not with {}; read it again",
            self.header.id, event.seq
        );
        let error = Error::new(Code::StoreConflict, message).with("expected", expected);
        Err(error.with("found", event.seq).with("index", index))
    }

    /// The bytes of one append batch.
    fn encode(&self, recovered: &[Arc<Event>], events: &[Arc<Event>]) -> Result<Vec<u8>> {
        let pack = self.store.options.pack_chunks;
        let mut text = String::new();
        if recovered.is_empty() {
            rows::write_lines(events, pack, &mut text);
        } else {
            rows::write_lines(&[recovered, events].concat(), pack, &mut text);
        }
        self.encode_text(text)
    }

    fn encode_text(&self, text: String) -> Result<Vec<u8>> {
        match self.store.options.compression {
            Compression::None => Ok(text.into_bytes()),
            Compression::Zstd => {
                frames::compress(text.as_bytes()).map_err(|error| self.failed("compress a batch for", &error))
            }
        }
    }

    fn failed(&self, operation: &str, error: &io::Error) -> Error {
        io_error(operation, &self.path, error)
    }

    /// JL-17: the file appears under its name only when header and first batch are durable, and never over another.
    fn first_write(&self, state: &mut State, events: &[Arc<Event>]) -> Result<()> {
        self.check_absent()?;
        let layer = &*self.store.files;
        let mut bytes = self.encode_text(header::render(&self.header))?;
        bytes.extend(self.encode(&[], events)?);
        let directory = self.path.parent().expect("a session's file is in a directory");
        let failed = |operation: &str, error: io::Error| self.failed(operation, &error);
        let (root, dirs) = (&self.store.options.root, &self.store.known_dirs);
        files::create_private_dirs(layer, directory, root, dirs)
            .map_err(|error| failed("make the directory of", error))?;
        remove_leftovers(layer, &self.path, None);
        let (file, temporary) = self.create_locked().map_err(|error| failed("create", error))?;
        let published = self.publish(&file, &temporary, directory, &bytes);
        // The data is safe under its name, or not at all; a leftover temporary name harms nobody.
        let _ = layer.remove(&temporary);
        published?;
        sign(&self.path);
        state.len = bytes.len() as u64;
        state.file = Some(Arc::new(file));
        Ok(())
    }

    /// A file with a name of its own. It is locked before it can be seen under the session's name, since a lock belongs
    /// to the file and not to its name; and so whoever clears leftovers away can tell that it is none.
    fn create_locked(&self) -> io::Result<(File, PathBuf)> {
        loop {
            let temporary = temporary_path(&self.path);
            let file = self.store.files.create(&temporary)?;
            // Between the two a clearing may have come; then it has or had the lock.
            match file.try_lock() {
                Ok(()) if files::is_named(&file)? => return Ok((file, temporary)),
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    fn publish(&self, file: &File, temporary: &Path, directory: &Path, bytes: &[u8]) -> Result<()> {
        let layer = &*self.store.files;
        layer.append(file, bytes).map_err(|error| self.failed("write", &error))?;
        layer.sync_all(file).map_err(|error| self.failed("sync", &error))?;
        layer.link(temporary, &self.path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => already_exists(&self.header.id, &self.path),
            _ => self.failed("publish", &error),
        })?;
        layer.sync_dir(directory).map_err(|error| {
            // The name may or may not survive a power cut; without it the batch can be tried again.
            let _ = layer.remove(&self.path);
            self.failed("sync the directory of", &error)
        })
    }

    /// JL-18 and JL-20.
    fn later_write(&self, state: &mut State, file: &File, events: &[Arc<Event>]) -> Result<()> {
        let layer = &*self.store.files;
        let bytes = self.encode(&state.recovered, events)?;
        self.check_named(file)?;
        if state.dirty {
            // Synced before anything is appended: a crash must not mix old and new bytes.
            self.roll_back(state, file)?;
        } else {
            self.check_length(file, state.len)?;
        }
        state.dirty = true;
        let written = layer.append(file, &bytes).map_err(|error| self.failed("append to", &error));
        let written = written.and_then(|()| layer.sync(file).map_err(|error| self.failed("sync", &error)));
        match written {
            Ok(()) => {
                state.dirty = false;
                state.len += bytes.len() as u64;
                Ok(())
            }
            Err(first) => match self.roll_back(state, file) {
                Ok(()) => Err(first),
                Err(second) => {
                    let message = format!("{}; and then: {}", first.message(), second.message());
                    let context = first.context().iter().map(|(key, value)| (key, value.clone()));
                    let both = context.fold(Error::new(first.code().clone(), message), |e, (k, v)| e.with(k, v));
                    Err(both.caused_by(second))
                }
            },
        }
    }

    /// Takes back what was written since the last success, also what a failed sync left: the system may believe it
    /// written and never write it, so only bytes that are written again are ever trusted.
    fn roll_back(&self, state: &mut State, file: &File) -> Result<()> {
        let layer = &*self.store.files;
        layer.truncate(file, state.len).map_err(|error| self.failed("cut the torn end off", &error))?;
        layer.sync_all(file).map_err(|error| self.failed("sync", &error))?;
        state.dirty = false;
        Ok(())
    }

    fn check_named(&self, file: &File) -> Result<()> {
        if files::is_named(file).map_err(|error| self.failed("examine", &error))? {
            return Ok(());
        }
        let message = format!("{} was removed from outside; what is logged now cannot be kept", self.path.display());
        Err(Error::new(Code::StoreConflict, message).with("path", self.path.to_string_lossy().as_ref()))
    }

    /// A program that takes no lock may have written.
    fn check_length(&self, file: &File, expected: u64) -> Result<()> {
        let found = file.metadata().map_err(|error| self.failed("examine", &error))?.len();
        if found == expected {
            return Ok(());
        }
        let message = format!(
            "{} has {found} bytes where this writer left {expected}: another program wrote it; open it again",
            self.path.display()
        );
        let error = Error::new(Code::StoreConflict, message).with("path", self.path.to_string_lossy().as_ref());
        Err(error.with("expected", expected).with("found", found))
    }
}

/// `<final>.<12 hex>.tmp`.
fn temporary_path(path: &Path) -> PathBuf {
    let random = uuid::Uuid::new_v4().simple().to_string();
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.tmp", &random[..12]));
    PathBuf::from(name)
}

/// Writes down who holds the lock, for those who ask for it. Nothing depends on it, so failing does no harm.
fn sign(path: &Path) {
    let _ = fs::write(owner_path(path), Owner::current().to_value().to_text());
}

/// Removes the temporary names that a process left behind when it died while it published a session. What another
/// process is publishing right now is locked and stays. `file` is the session's own, if it is open and locked.
pub(super) fn remove_leftovers(layer: &dyn FileLayer, path: &Path, file: Option<&File>) {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return };
    let own = file.and_then(|file| file.metadata().ok());
    let prefix = format!("{}.", name.to_string_lossy());
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !(name.starts_with(&prefix) && name.ends_with(".tmp")) {
            continue;
        }
        let Ok(found) = File::open(entry.path()) else { continue };
        let is_own = match (&own, found.metadata()) {
            (Some(own), Ok(found)) => files::is_same(own, &found),
            _ => false,
        };
        if is_own || found.try_lock().is_ok() {
            let _ = layer.remove(&entry.path());
        }
    }
}
