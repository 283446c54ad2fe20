//! Durable storage: the port that stores implement, and the stores.
//!
//! Nothing in the port assumes local files: every method is asynchronous, appending is conditional on where the log is
//! expected to end, and a session has one writer at a time.

#[cfg(feature = "jsonl")]
mod canonical;
mod coordinator;
#[cfg(feature = "jsonl")]
pub mod jsonl;
mod log;
#[cfg(feature = "jsonl")]
mod owner;
#[cfg(feature = "sqlite")]
mod source;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod transfer;

pub(crate) use coordinator::SessionSink;
pub use coordinator::{Coordinator, Durability};
pub use log::{EventTypes, LogReader};
#[cfg(feature = "sqlite")]
pub use source::{LogSource, Verdict};
pub use transfer::{Copied, copy_session};

use crate::error::Result;
use crate::id::SessionId;
use crate::runtime::LocalBoxFuture;
use crate::session::{Event, EventLog, SessionHeader};
use std::rc::Rc;
use std::sync::Arc;

/// A session as stored: the committed prefix, without closers for an interrupted turn.
#[derive(Clone, Debug)]
pub struct StoredLog {
    /// The header.
    pub header: SessionHeader,
    /// The events; `seq` equals the index.
    pub events: EventLog,
    /// Characters that had to be replaced by U+FFFD to read the log (D-22).
    pub replaced_characters: usize,
    /// Bytes behind the committed prefix that a repair drops (a torn tail).
    pub torn_bytes: u64,
}

/// A stored session and the right to write it.
pub type Opened = (StoredLog, Rc<dyn SessionWriter>);

/// A store of sessions.
pub trait Store {
    /// The headers of all stored sessions, in no order. Reads headers only.
    fn list(&self) -> LocalBoxFuture<Result<Vec<SessionHeader>>>;

    /// The headers of up to `limit` sessions whose ids follow `after` in the order of their bytes, in that order. Reads
    /// headers only. Override it where a store can seek: as it stands it sorts the whole list.
    fn list_page(&self, after: Option<&SessionId>, limit: usize) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        let (list, after) = (self.list(), after.cloned());
        Box::pin(async move {
            let mut headers = list.await?;
            headers.retain(|header| after.as_ref().is_none_or(|after| header.id.as_str() > after.as_str()));
            headers.sort_by(|a, b| a.id.as_str().cmp(b.id.as_str()));
            headers.truncate(limit);
            Ok(headers)
        })
    }

    /// Reads a session and never writes (PCO-07). `None` if there is none.
    fn read(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<StoredLog>>>;

    /// Whether a session of this id is stored.
    fn exists(&self, id: &SessionId) -> LocalBoxFuture<Result<bool>> {
        let read = self.read(id);
        Box::pin(async move { Ok(read.await?.is_some()) })
    }

    /// Reads a session and becomes its one writer. `None` if there is none. Fails with `SESSION_LOCKED`, naming the
    /// holder, when somebody else writes it; a holder that died holds nothing.
    fn open(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<Opened>>>;

    /// Becomes the writer of a new session. Nothing is stored before the first append (PCO-01). Fails with
    /// `SESSION_ALREADY_EXISTS` when one of this id is stored.
    fn create(&self, header: &SessionHeader) -> LocalBoxFuture<Result<Rc<dyn SessionWriter>>>;

    /// Takes events of a plug-in's type for known from now on (D-21). A store that reads any type need not care.
    fn register_event_type(&self, _kind: &str) {}
}

impl<T: Store + ?Sized> Store for Rc<T> {
    fn list(&self) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        (**self).list()
    }

    fn list_page(&self, after: Option<&SessionId>, limit: usize) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        (**self).list_page(after, limit)
    }

    fn read(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<StoredLog>>> {
        (**self).read(id)
    }

    fn exists(&self, id: &SessionId) -> LocalBoxFuture<Result<bool>> {
        (**self).exists(id)
    }

    fn open(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<Opened>>> {
        (**self).open(id)
    }

    fn create(&self, header: &SessionHeader) -> LocalBoxFuture<Result<Rc<dyn SessionWriter>>> {
        (**self).create(header)
    }

    fn register_event_type(&self, kind: &str) {
        (**self).register_event_type(kind);
    }
}

/// Appends to one session. The coordinator calls `append` again only after the last call ended. Appends of different
/// sessions are under way at the same time, so that a store may commit whatever it has been given in one go, and a slow
/// session holds no other up (PCO-05).
pub trait SessionWriter {
    /// Makes a batch durable. The first event's seq must be where the stored log ends (`STORE_CONFLICT` otherwise), and
    /// the others follow it. On failure nothing of the batch is stored and the same batch may be tried again. A crash may
    /// tear a batch, but never a session's first: it holds what the session inherited.
    fn append(&self, events: Vec<Arc<Event>>) -> LocalBoxFuture<Result<()>>;

    /// Gives the session up.
    fn close(&self) -> LocalBoxFuture<()>;
}
