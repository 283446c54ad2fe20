//! A store in memory whose openings can be held back, and which counts the writers it has out.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::id::SessionId;
use turnwheel::runtime::{LocalBoxFuture, Signal};
use turnwheel::session::{Event, SessionHeader};
use turnwheel::storage::{Opened, SessionWriter, Store, StoredLog};
use turnwheel::{Code, Error, Result};

#[derive(Clone, Default)]
pub struct MemoryStore(pub Rc<Inner>);

type Log = (SessionHeader, Vec<Arc<Event>>);

#[derive(Default)]
pub struct Inner {
    pub logs: RefCell<BTreeMap<SessionId, Log>>,
    /// Openings wait for this.
    pub gate: RefCell<Option<Signal>>,
    /// Batches wait for this.
    pub append_gate: RefCell<Option<Signal>>,
    /// Ids whose logs cannot be read.
    pub damaged: RefCell<Vec<SessionId>>,
    pub openings: Cell<u64>,
    pub writers: Cell<i64>,
}

impl MemoryStore {
    /// Lets later openings wait until the signal fires.
    pub fn hold(&self) -> Signal {
        let gate = Signal::new();
        *self.0.gate.borrow_mut() = Some(gate.clone());
        gate
    }

    pub fn put(&self, header: SessionHeader, events: Vec<Arc<Event>>) {
        self.0.logs.borrow_mut().insert(header.id.clone(), (header, events));
    }

    pub fn events(&self, id: &str) -> Vec<Arc<Event>> {
        self.0.logs.borrow().get(id).map(|log| log.1.clone()).unwrap_or_default()
    }

    fn wait(&self) -> LocalBoxFuture<()> {
        self.0.openings.set(self.0.openings.get() + 1);
        match self.0.gate.borrow().clone() {
            Some(gate) => Box::pin(async move { drop(gate.cancelled().await) }),
            None => Box::pin(std::future::ready(())),
        }
    }

    fn writer(&self, header: SessionHeader) -> Rc<dyn SessionWriter> {
        self.0.writers.set(self.0.writers.get() + 1);
        Rc::new(Writer { store: self.clone(), header, closed: Cell::new(false) })
    }

    fn stored(&self, id: &SessionId) -> Result<Option<StoredLog>> {
        if self.0.damaged.borrow().contains(id) {
            return Err(Error::new(Code::CorruptLog, "damaged"));
        }
        let logs = self.0.logs.borrow();
        let log = logs.get(id).map(|(header, events)| StoredLog {
            header: header.clone(),
            events: events.clone().into(),
            replaced_characters: 0,
            torn_bytes: 0,
        });
        Ok(log)
    }
}

impl Store for MemoryStore {
    fn list(&self) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        let headers = self.0.logs.borrow().values().map(|log| log.0.clone()).collect();
        Box::pin(std::future::ready(Ok(headers)))
    }

    fn read(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<StoredLog>>> {
        Box::pin(std::future::ready(self.stored(id)))
    }

    fn open(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<Opened>>> {
        let (store, id, wait) = (self.clone(), id.clone(), self.wait());
        Box::pin(async move {
            wait.await;
            Ok(store.stored(&id)?.map(|log| {
                let writer = store.writer(log.header.clone());
                (log, writer)
            }))
        })
    }

    fn create(&self, header: &SessionHeader) -> LocalBoxFuture<Result<Rc<dyn SessionWriter>>> {
        let (store, header, wait) = (self.clone(), header.clone(), self.wait());
        Box::pin(async move {
            wait.await;
            if store.0.logs.borrow().contains_key(&header.id) {
                return Err(Error::new(Code::SessionAlreadyExists, "stored already"));
            }
            Ok(store.writer(header))
        })
    }
}

struct Writer {
    store: MemoryStore,
    header: SessionHeader,
    closed: Cell<bool>,
}

impl SessionWriter for Writer {
    fn append(&self, events: Vec<Arc<Event>>) -> LocalBoxFuture<Result<()>> {
        let (store, header, gate) =
            (self.store.clone(), self.header.clone(), self.store.0.append_gate.borrow().clone());
        let keep = move || {
            let mut logs = store.0.logs.borrow_mut();
            logs.entry(header.id.clone()).or_insert_with(|| (header, Vec::new())).1.extend(events);
            Ok(())
        };
        match gate {
            Some(gate) => Box::pin(async move {
                gate.cancelled().await;
                keep()
            }),
            None => Box::pin(std::future::ready(keep())),
        }
    }

    fn close(&self) -> LocalBoxFuture<()> {
        if !self.closed.replace(true) {
            self.store.0.writers.set(self.store.0.writers.get() - 1);
        }
        Box::pin(std::future::ready(()))
    }
}
