//! A store in memory that loses, at a crash, everything that it has not acknowledged.
//!
//! It waits at gates, fails before a write (nothing is stored) and behind it (everything is, and the same batch is
//! accepted again, as the port asks). Each life of a process has a handle of its own; the handle of a crashed process
//! changes nothing any more.

use crate::world::World;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use turnwheel::error::{Code, Error, Result};
use turnwheel::id::SessionId;
use turnwheel::runtime::LocalBoxFuture;
use turnwheel::session::{Event, SessionHeader};
use turnwheel::storage::{Opened, SessionWriter, Store, StoredLog};

/// A session's header and events.
pub type Log = (SessionHeader, Vec<Arc<Event>>);

/// A batch on its way, and the life that writes it.
type Batch = (usize, Vec<Arc<Event>>);

/// What is on the disk, and who holds which session.
#[derive(Default)]
pub struct Disk {
    logs: RefCell<BTreeMap<String, Log>>,
    locks: RefCell<BTreeMap<String, usize>>,
    in_flight: RefCell<BTreeMap<String, Batch>>,
}

impl Disk {
    /// How many events of a session are stored.
    pub fn durable(&self, id: &str) -> u64 {
        self.logs.borrow().get(id).map_or(0, |log| log.1.len() as u64)
    }

    /// A stored session.
    pub fn log(&self, id: &str) -> Option<Log> {
        self.logs.borrow().get(id).cloned()
    }

    /// The sessions that a life holds.
    pub fn held_by(&self, life: usize) -> Vec<String> {
        let locks = self.locks.borrow();
        locks.iter().filter(|(_, holder)| **holder == life).map(|(id, _)| id.clone()).collect()
    }

    /// The process of a life died. Of a batch that was being written, a part may have arrived.
    pub fn crash(&self, life: usize, mut arrived: impl FnMut(usize) -> usize) {
        self.locks.borrow_mut().retain(|_, holder| *holder != life);
        let all = std::mem::take(&mut *self.in_flight.borrow_mut());
        for (id, (holder, batch)) in all {
            if holder != life {
                self.in_flight.borrow_mut().insert(id, (holder, batch));
                continue;
            }
            // A first batch arrives whole or not at all: stores put a new session in its place at once.
            let first = self.durable(&id) == 0;
            let count = arrived(batch.len()).min(batch.len());
            let count = if first && count < batch.len() { 0 } else { count };
            let _ = self.put(&id, &batch[..count]);
        }
    }

    /// Adds a batch; events that are stored already, to the letter, are passed over.
    fn put(&self, id: &str, batch: &[Arc<Event>]) -> Result<()> {
        let mut logs = self.logs.borrow_mut();
        let Some((_, events)) = logs.get_mut(id) else { return Ok(()) };
        for event in batch {
            let at = event.seq as usize;
            match events.get(at) {
                Some(stored) if stored.json() == event.json() => {}
                None if at == events.len() => events.push(event.clone()),
                _ => {
                    let message = format!("event {at} does not follow the {} stored ones", events.len());
                    return Err(Error::new(Code::StoreConflict, message));
                }
            }
        }
        Ok(())
    }

    fn lock(&self, id: &str, life: usize) -> Result<()> {
        let mut locks = self.locks.borrow_mut();
        if locks.contains_key(id) {
            return Err(Error::new(Code::SessionLocked, format!("session {id:?} is held")));
        }
        locks.insert(id.to_owned(), life);
        Ok(())
    }

    fn unlock(&self, id: &str, life: usize) {
        self.locks.borrow_mut().retain(|held, holder| held != id || *holder != life);
    }
}

/// The store as one life of a process sees it.
#[derive(Clone)]
pub struct SimStore {
    world: Weak<World>,
    life: usize,
}

impl SimStore {
    /// The handle of a life.
    pub fn new(world: &Rc<World>, life: usize) -> Self {
        Self { world: Rc::downgrade(world), life }
    }

    /// The world, unless this process is dead.
    fn world(&self) -> Option<Rc<World>> {
        self.world.upgrade().filter(|world| world.is_alive(self.life))
    }

    /// Waits, and perhaps fails.
    async fn trouble(&self, site: &'static str, id: &str) -> Result<()> {
        let Some(world) = self.world() else { return Ok(()) };
        let (waits, fails) = {
            let mut dice = world.decisions.dice(site, id);
            (dice.chance(25), dice.chance(4))
        };
        if waits {
            world.gate(self.life, id, site).await;
        }
        if fails && self.world().is_some() { Err(failed(site)) } else { Ok(()) }
    }
}

fn failed(site: &str) -> Error {
    Error::new(Code::StoreFailed, format!("planned store failure ({site})"))
}

impl Store for SimStore {
    fn list(&self) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        let headers = self.world().map(|world| world.disk.logs.borrow().values().map(|log| log.0.clone()).collect());
        Box::pin(std::future::ready(Ok(headers.unwrap_or_default())))
    }

    fn read(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<StoredLog>>> {
        let (store, id) = (self.clone(), id.to_string());
        Box::pin(async move {
            store.trouble("store.read", &id).await?;
            let Some(world) = store.world() else { return Ok(None) };
            let log = world.disk.log(&id).filter(|log| !log.1.is_empty());
            Ok(log.map(|(header, events)| StoredLog {
                header,
                events: events.into(),
                replaced_characters: 0,
                torn_bytes: 0,
            }))
        })
    }

    fn open(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<Opened>>> {
        let (store, id) = (self.clone(), id.to_string());
        Box::pin(async move {
            store.trouble("store.open", &id).await?;
            let Some(world) = store.world() else { return Err(failed("dead")) };
            let Some((header, events)) = world.disk.log(&id).filter(|log| !log.1.is_empty()) else { return Ok(None) };
            world.disk.lock(&id, store.life)?;
            let log = StoredLog { header, events: events.into(), replaced_characters: 0, torn_bytes: 0 };
            let writer: Rc<dyn SessionWriter> = Rc::new(Writer { store, id });
            Ok(Some((log, writer)))
        })
    }

    fn create(&self, header: &SessionHeader) -> LocalBoxFuture<Result<Rc<dyn SessionWriter>>> {
        let (store, header) = (self.clone(), header.clone());
        Box::pin(async move {
            let id = header.id.to_string();
            store.trouble("store.create", &id).await?;
            let Some(world) = store.world() else { return Err(failed("dead")) };
            if world.disk.durable(&id) > 0 {
                return Err(Error::new(Code::SessionAlreadyExists, format!("session {id:?} is stored")));
            }
            world.disk.lock(&id, store.life)?;
            world.disk.logs.borrow_mut().insert(id.clone(), (header, Vec::new()));
            let writer: Rc<dyn SessionWriter> = Rc::new(Writer { store, id });
            Ok(writer)
        })
    }
}

struct Writer {
    store: SimStore,
    id: String,
}

impl SessionWriter for Writer {
    fn append(&self, events: Vec<Arc<Event>>) -> LocalBoxFuture<Result<()>> {
        let (store, id) = (self.store.clone(), self.id.clone());
        Box::pin(async move {
            let Some(world) = store.world() else { return Ok(()) };
            if world.disk.in_flight.borrow().contains_key(&id) {
                world.violate("STORE-PORT", format!("append to {id:?} while another one is under way"));
            }
            world.disk.in_flight.borrow_mut().insert(id.clone(), (store.life, events.clone()));
            let troubled = store.trouble("store.append", &id).await;
            let Some(world) = store.world() else { return Ok(()) };
            world.disk.in_flight.borrow_mut().remove(&id);
            troubled?;
            if let Err(error) = world.disk.put(&id, &events) {
                world.violate("STORE-PORT", format!("the coordinator's batch was refused: {error:?}"));
                return Err(error);
            }
            let mut dice = world.decisions.dice("store.behind", &id);
            if dice.chance(2) { Err(failed("behind the write")) } else { Ok(()) }
        })
    }

    fn close(&self) -> LocalBoxFuture<()> {
        let (store, id) = (self.store.clone(), self.id.clone());
        Box::pin(async move {
            if let Some(world) = store.world() {
                world.disk.unlock(&id, store.life);
            }
        })
    }
}
