//! A store of one's own: sessions in memory, gone with the process. `turnwheel::testing::store_suite` is run on it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::id::SessionId;
use turnwheel::runtime::LocalBoxFuture;
use turnwheel::session::{Event, SessionHeader};
use turnwheel::storage::{Opened, SessionWriter, Store, StoredLog};
use turnwheel::{Code, Error, Result};

/// The store. Clones share their sessions.
#[derive(Clone, Default)]
pub struct MemoryStore(Rc<Inner>);

type Log = (SessionHeader, Vec<Arc<Event>>);

#[derive(Default)]
struct Inner {
    logs: RefCell<BTreeMap<SessionId, Log>>,
    /// The ids that have a writer.
    held: RefCell<HashSet<SessionId>>,
}

fn ready<T: 'static>(value: T) -> LocalBoxFuture<T> {
    Box::pin(std::future::ready(value))
}

impl MemoryStore {
    fn log(&self, id: &SessionId) -> Option<StoredLog> {
        let logs = self.0.logs.borrow();
        let (header, events) = logs.get(id)?;
        let (header, events) = (header.clone(), events.clone());
        Some(StoredLog { header, events: events.into(), replaced_characters: 0, torn_bytes: 0 })
    }

    /// The right to write, if nobody has it.
    fn hold(&self, header: &SessionHeader, otherwise: Code) -> Result<Rc<dyn SessionWriter>> {
        if !self.0.held.borrow_mut().insert(header.id.clone()) {
            let message = format!("session {:?} has a writer in this process; close it first", header.id);
            return Err(Error::new(otherwise, message));
        }
        Ok(Rc::new(Writer { store: self.clone(), header: header.clone(), is_closed: Cell::new(false) }))
    }
}

impl Store for MemoryStore {
    fn list(&self) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        ready(Ok(self.0.logs.borrow().values().map(|(header, _)| header.clone()).collect()))
    }

    fn read(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<StoredLog>>> {
        ready(Ok(self.log(id)))
    }

    fn open(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<Opened>>> {
        let opened = self.log(id).map(|log| {
            let writer = self.hold(&log.header, Code::SessionLocked)?;
            Ok((log, writer))
        });
        ready(opened.transpose())
    }

    fn create(&self, header: &SessionHeader) -> LocalBoxFuture<Result<Rc<dyn SessionWriter>>> {
        if self.0.logs.borrow().contains_key(&header.id) {
            let message = format!("a session {:?} exists already; open it or choose another id", header.id);
            return ready(Err(Error::new(Code::SessionAlreadyExists, message)));
        }
        ready(self.hold(header, Code::SessionAlreadyExists))
    }
}

struct Writer {
    store: MemoryStore,
    header: SessionHeader,
    is_closed: Cell<bool>,
}

impl Writer {
    fn append_now(&self, events: Vec<Arc<Event>>) -> Result<()> {
        if self.is_closed.get() {
            return Err(Error::new(Code::StoreFailed, "the writer is closed; open the session again"));
        }
        let mut logs = self.store.0.logs.borrow_mut();
        let next = logs.get(&self.header.id).map_or(0, |(_, stored)| stored.len() as u64);
        if let Some(event) = (next..).zip(&events).find_map(|(seq, event)| (event.seq != seq).then_some(event)) {
            let message = format!("the log goes on with seq {next}, and the batch has {}", event.seq);
            return Err(Error::new(Code::StoreConflict, message));
        }
        if !events.is_empty() {
            let log = logs.entry(self.header.id.clone()).or_insert_with(|| (self.header.clone(), Vec::new()));
            log.1.extend(events);
        }
        Ok(())
    }

    fn give_up(&self) {
        if !self.is_closed.replace(true) {
            self.store.0.held.borrow_mut().remove(&self.header.id);
        }
    }
}

impl SessionWriter for Writer {
    fn append(&self, events: Vec<Arc<Event>>) -> LocalBoxFuture<Result<()>> {
        ready(self.append_now(events))
    }

    fn close(&self) -> LocalBoxFuture<()> {
        self.give_up();
        ready(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.give_up();
    }
}
