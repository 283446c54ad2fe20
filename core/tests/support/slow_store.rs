//! A store in memory whose appends can be held back or made to fail, session by session.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::id::SessionId;
use turnwheel::runtime::{LocalBoxFuture, Signal};
use turnwheel::session::{CancelCause, Event, SessionHeader};
use turnwheel::storage::{Opened, SessionWriter, Store, StoredLog};
use turnwheel::{Code, Error, Result};

#[derive(Clone, Default)]
pub struct SlowStore(Rc<Inner>);

#[derive(Default)]
struct Inner {
    logs: RefCell<BTreeMap<SessionId, Vec<Arc<Event>>>>,
    held: RefCell<BTreeMap<SessionId, Signal>>,
    failing: RefCell<BTreeSet<SessionId>>,
    appends: RefCell<Vec<(SessionId, usize)>>,
    attempts: Cell<u64>,
}

impl SlowStore {
    /// Holds the appends of a session back until `release`.
    pub fn hold(&self, id: &str) {
        self.0.held.borrow_mut().insert(id.into(), Signal::new());
    }

    pub fn release(&self, id: &str) {
        let held = self.0.held.borrow_mut().remove(&SessionId::from(id));
        held.expect("it is held").cancel(CancelCause::User);
    }

    /// Lets every append of a session fail until `mend`.
    pub fn fail(&self, id: &str) {
        self.0.failing.borrow_mut().insert(id.into());
    }

    pub fn mend(&self, id: &str) {
        self.0.failing.borrow_mut().remove(&SessionId::from(id));
    }

    /// What is stored of a session.
    pub fn events(&self, id: &str) -> Vec<Arc<Event>> {
        self.0.logs.borrow().get(&SessionId::from(id)).cloned().unwrap_or_default()
    }

    /// Appends that began, and how many events each carried.
    pub fn appends(&self) -> Vec<(SessionId, usize)> {
        self.0.appends.borrow().clone()
    }

    /// How many appends were tried.
    pub fn attempts(&self) -> u64 {
        self.0.attempts.get()
    }
}

impl Store for SlowStore {
    fn list(&self) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn read(&self, _: &SessionId) -> LocalBoxFuture<Result<Option<StoredLog>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn open(&self, _: &SessionId) -> LocalBoxFuture<Result<Option<Opened>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn create(&self, header: &SessionHeader) -> LocalBoxFuture<Result<Rc<dyn SessionWriter>>> {
        let writer: Rc<dyn SessionWriter> = Rc::new(Writer(self.clone(), header.id.clone()));
        Box::pin(std::future::ready(Ok(writer)))
    }
}

struct Writer(SlowStore, SessionId);

impl SessionWriter for Writer {
    fn append(&self, events: Vec<Arc<Event>>) -> LocalBoxFuture<Result<()>> {
        let (store, id) = (self.0.clone(), self.1.clone());
        store.0.appends.borrow_mut().push((id.clone(), events.len()));
        store.0.attempts.set(store.0.attempts.get() + 1);
        let held = store.0.held.borrow().get(&id).cloned();
        Box::pin(async move {
            if let Some(held) = held {
                held.cancelled().await;
            }
            if store.0.failing.borrow().contains(&id) {
                return Err(Error::new(Code::StoreFailed, "the disk is full"));
            }
            store.0.logs.borrow_mut().entry(id).or_default().extend(events);
            Ok(())
        })
    }

    fn close(&self) -> LocalBoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}
