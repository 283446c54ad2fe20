//! Sessions in one SQLite database, for programs that want one file, one writer and SQL over their logs.
//!
//! One connection writes, on a background thread. What is asked of it while it waits for the disk is carried out in one
//! transaction afterwards, so the batches of many sessions share one sync. Readers have connections of their own and
//! are kept out by nobody. Which events are stored is the core's business; this module knows rows.

mod database;
mod owner;
mod queue;
mod reference;
mod rows;

pub use reference::ReferenceDatabase;

use super::{EventTypes, Opened, SessionWriter, Store, StoredLog};
use crate::background::run_blocking;
use crate::error::{Code, Error, Result};
use crate::id::SessionId;
use crate::runtime::LocalBoxFuture;
use crate::session::{Event, SessionHeader};
use owner::Instance;
use queue::{Claim, Operation, Queue};
use rusqlite::Connection;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many idle connections for reading are kept.
const READERS_KEPT: usize = 4;

/// A store of sessions in one SQLite database. Clones are the same store and may be used on any thread.
#[derive(Clone)]
pub struct SqliteStore(Arc<Inner>);

struct Inner {
    path: PathBuf,
    /// SQLite's connections and the owner's lock do not survive a fork.
    process: u32,
    event_types: EventTypes,
    /// Ids with a writer that has not written yet (PCO-02).
    created: Mutex<HashSet<SessionId>>,
    queue: Queue,
    instance: Arc<Instance>,
    readers: Mutex<Vec<Connection>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SqliteStore {
    /// A store in the database at `path`, which is made by the first write. Nothing is read or written yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path: PathBuf = path.into();
        // A relative path means what it means now, also when the program changes its directory later.
        let path = std::path::absolute(&path).unwrap_or(path);
        let instance = Arc::new(Instance::new(&path));
        Self(Arc::new(Inner {
            queue: Queue::new(path.clone(), instance.clone()),
            path,
            process: std::process::id(),
            event_types: EventTypes::default(),
            created: Mutex::default(),
            instance,
            readers: Mutex::default(),
        }))
    }

    /// Lets logs hold events of a plug-in's type (D-21). A log with a type that is neither known nor registered nor
    /// marked ignorable is refused with `UNSUPPORTED_FORMAT`.
    pub fn register_event_type(&self, kind: impl Into<String>) {
        self.0.event_types.register(kind);
    }

    /// The types its logs may hold.
    pub(in crate::storage) fn event_types(&self) -> &EventTypes {
        &self.0.event_types
    }

    /// The database's file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Runs a reading function on a connection in the background; `None` while there is no database.
    async fn reading<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner, &Connection) -> Result<T> + Send + 'static,
    ) -> Result<Option<T>> {
        let inner = self.0.clone();
        run_blocking(move || inner.reading(work)).await?
    }
}

impl Store for SqliteStore {
    fn register_event_type(&self, kind: &str) {
        SqliteStore::register_event_type(self, kind);
    }

    fn list(&self) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        self.list_page(None, usize::MAX)
    }

    fn list_page(&self, after: Option<&SessionId>, limit: usize) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        let (store, after) = (self.clone(), after.cloned());
        Box::pin(async move {
            let page = store.reading(move |inner, db| rows::headers(db, &inner.path, after.as_deref(), limit)).await?;
            Ok(page.unwrap_or_default())
        })
    }

    fn read(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<StoredLog>>> {
        let (store, id) = (self.clone(), id.clone());
        Box::pin(async move {
            let log = store.reading(move |inner, db| rows::read(db, &inner.path, &id, &inner.event_types)).await?;
            Ok(log.flatten())
        })
    }

    fn exists(&self, id: &SessionId) -> LocalBoxFuture<Result<bool>> {
        let (store, id) = (self.clone(), id.clone());
        Box::pin(async move {
            let found = store.reading(move |inner, db| rows::exists(db, &inner.path, &id)).await?;
            Ok(found.unwrap_or_default())
        })
    }

    fn open(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<Opened>>> {
        let (store, id) = (self.clone(), id.clone());
        Box::pin(async move {
            // A database that is not there is not made by looking for a session in it.
            if !store.exists(&id).await? {
                return Ok(None);
            }
            // Giving this up at any point gives the session up: the writer that goes says so.
            let writer = SqliteWriter(Writer::of_stored(store.0.clone(), id.clone()));
            store.0.submit(Operation::Claim(writer.0.clone())).await?;
            let log = store.read(&id).await?;
            Ok(log.map(|log| (log, Rc::new(writer) as Rc<dyn SessionWriter>)))
        })
    }

    fn create(&self, header: &SessionHeader) -> LocalBoxFuture<Result<Rc<dyn SessionWriter>>> {
        let (store, header) = (self.clone(), header.clone());
        Box::pin(async move {
            header.check()?;
            let reserved = locked(&store.0.created).insert(header.id.clone());
            if !reserved {
                return Err(already_exists(&header.id, &store.0.path));
            }
            // From here on the writer gives the reservation back when it goes.
            let writer = SqliteWriter(Writer::of_new(store.0.clone(), &header));
            if store.exists(&header.id).await? {
                return Err(already_exists(&header.id, &store.0.path));
            }
            Ok(Rc::new(writer) as Rc<dyn SessionWriter>)
        })
    }
}

impl Inner {
    fn check_process(&self) -> Result<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(Error::new(Code::Forked, "the store was made before this process forked; make a new one in the child"))
    }

    async fn submit(&self, operation: Operation) -> Result<()> {
        self.check_process()?;
        self.queue.submit(operation).await
    }

    fn reading<T>(&self, work: impl FnOnce(&Self, &Connection) -> Result<T>) -> Result<Option<T>> {
        self.check_process()?;
        let kept = locked(&self.readers).pop();
        let connection = match kept.filter(|_| self.path.exists()) {
            Some(connection) => connection,
            None => match database::open_reader(&self.path)? {
                Some(connection) => connection,
                None => return Ok(None),
            },
        };
        let result = work(self, &connection)?;
        let mut readers = locked(&self.readers);
        if readers.len() < READERS_KEPT {
            readers.push(connection);
        }
        Ok(Some(result))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let readers = std::mem::take(&mut *locked(&self.readers));
        database::close_elsewhere(self.process, readers);
    }
}

/// The writer of one session. Dropping it gives the session up, as `close` does.
struct SqliteWriter(Arc<Writer>);

/// What a writer and the background share.
struct Writer {
    store: Arc<Inner>,
    id: SessionId,
    /// The header of a session that nothing is stored of.
    new: Option<String>,
    state: Mutex<WriterState>,
}

#[derive(Default)]
struct WriterState {
    /// The right to write; `None` before the first batch of a new session, and after it is given up.
    claim: Option<Claim>,
    is_closed: bool,
}

impl Writer {
    fn of_stored(store: Arc<Inner>, id: SessionId) -> Arc<Self> {
        Arc::new(Self { store, id, new: None, state: Mutex::default() })
    }

    /// The caller has reserved the id.
    fn of_new(store: Arc<Inner>, header: &SessionHeader) -> Arc<Self> {
        let (id, new) = (header.id.clone(), Some(header.to_value().to_text()));
        Arc::new(Self { store, id, new, state: Mutex::default() })
    }

    fn give_back_id(&self) {
        if self.new.is_some() {
            locked(&self.store.created).remove(&self.id);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let claim = locked(&self.state).claim.take();
        if let Some(claim) = claim.filter(|_| self.store.check_process().is_ok()) {
            self.store.instance.release(claim);
            self.store.queue.submit_unattended(Operation::Abandon(claim));
        }
        if !locked(&self.state).is_closed {
            self.give_back_id();
        }
    }
}

impl SessionWriter for SqliteWriter {
    fn append(&self, events: Vec<Arc<Event>>) -> LocalBoxFuture<Result<()>> {
        let writer = self.0.clone();
        Box::pin(async move {
            if locked(&writer.state).is_closed {
                let message = format!("the writer of session {:?} is closed; open the session again", writer.id);
                return Err(Error::new(Code::StoreFailed, message));
            }
            writer.store.submit(Operation::Append(writer.clone(), events)).await
        })
    }

    fn close(&self) -> LocalBoxFuture<()> {
        let writer = self.0.clone();
        Box::pin(async move {
            if std::mem::replace(&mut locked(&writer.state).is_closed, true) {
                return;
            }
            // Waits for a batch that is being written. What cannot be noted is found out when the next writer comes.
            let _ = writer.store.submit(Operation::Close(writer.clone())).await;
            writer.give_back_id();
        })
    }
}

fn already_exists(id: &str, path: &Path) -> Error {
    let message = format!("a session {id:?} exists already; choose another id, or open it ({})", path.display());
    Error::new(Code::SessionAlreadyExists, message).with("id", id).with("path", path.to_string_lossy().as_ref())
}
