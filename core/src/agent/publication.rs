//! The publication transaction (FAC): what brings an agent to life, whatever drives it.
//!
//! An agent is built, composed by its setup, and only then made visible: first its session, then itself, each
//! announcement with a veto. Whatever fails before the handle is returned is rolled back, and the original error is
//! what the caller gets. A factory of your own is a [`Publication`] with a driver of your own.

use super::lifecycle::{Lifecycle, Operation};
use super::registry::{AgentFactory, AgentHandle, CreateOptions, ResumeOptions};
use super::{Agent, Driver, StartSource};
use crate::context::{Context, Root};
use crate::error::{Code, Error, Result};
use crate::id::SessionId;
use crate::runtime::{LocalBoxFuture, Signal};
use crate::session::{Event, EventData, EventLog, Session, SessionHeader};
use crate::storage::{SessionWriter, StoredLog};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

type MakeDriver = Box<dyn Fn(&Agent) -> Rc<dyn Driver>>;

/// Publishes agents that `make_driver` gives a driver each, and disposes them when it is unloaded. Clones are the same
/// publication.
#[derive(Clone)]
pub struct Publication(Rc<PublicationInner>);

pub(super) struct PublicationInner {
    make_driver: MakeDriver,
    /// Lifecycles that have not finished, pending and published ones.
    pub(super) live: RefCell<BTreeMap<u64, Rc<Lifecycle>>>,
    next: Cell<u64>,
    unloaded: Cell<bool>,
}

impl PublicationInner {
    pub(super) fn next_key(&self) -> u64 {
        let key = self.next.get();
        self.next.set(key + 1);
        key
    }
}

impl Publication {
    /// A publication of agents with this driver.
    pub fn new(make_driver: impl Fn(&Agent) -> Rc<dyn Driver> + 'static) -> Self {
        Self(Rc::new(PublicationInner {
            make_driver: Box::new(make_driver),
            live: RefCell::default(),
            next: Cell::new(0),
            unloaded: Cell::new(false),
        }))
    }

    /// Whether it was unloaded.
    pub fn is_unloaded(&self) -> bool {
        self.0.unloaded.get()
    }

    /// Owner, runtime, factory, creation signal: in this order (ID-6).
    fn check_start(&self, owner: &Context, signal: Option<&Signal>) -> Result<()> {
        owner.fiber().check()?;
        owner.root().runtime.check_open()?;
        if self.is_unloaded() {
            return Err(not_active());
        }
        signal.map_or(Ok(()), Signal::check)
    }

    async fn create_agent(self, owner: Context, options: CreateOptions) -> Result<AgentHandle> {
        let root = owner.root().clone();
        let session = new_session(&root, options.header, options.seed)?;
        options.agent.check()?;
        let signal = options.signal.as_ref();
        self.check_start(&owner, signal)?;
        let lifecycle = Lifecycle::attach(&self.0, &owner, session.id(), signal);
        let operation = Operation::new(&lifecycle);
        let opened = async {
            let writer = match &root.storage {
                Some(storage) => {
                    let preparation = storage.store().create(session.header());
                    Some(lifecycle.acquire(preparation, signal, release).await?)
                }
                None => None,
            };
            lifecycle.make(&owner, session, options.agent, writer, 0, &*self.0.make_driver)?;
            lifecycle.compose_and_publish(options.setup, signal, StartSource::Startup).await
        };
        let opened = opened.await;
        let settled = lifecycle.settle(opened).await;
        operation.done();
        settled
    }

    async fn resume_agent(self, owner: Context, options: ResumeOptions) -> Result<AgentHandle> {
        let root = owner.root().clone();
        root.check_free(&options.id)?;
        options.agent.check()?;
        let signal = options.signal.as_ref();
        self.check_start(&owner, signal)?;
        let lifecycle = Lifecycle::attach(&self.0, &owner, &options.id, signal);
        let operation = Operation::new(&lifecycle);
        let opened = async {
            let (header, events, writer) = match options.log {
                Some((header, events)) => {
                    root.event_types.check_log(&events)?;
                    (header, events, None)
                }
                None => {
                    let storage = root.storage.as_ref().ok_or_else(crate::context::no_store)?;
                    let preparation = storage.store().open(&options.id);
                    let opened = lifecycle.acquire(preparation, signal, release_opened).await?;
                    let (log, writer) = opened.ok_or_else(|| {
                        let message = format!("no session {:?} is stored; create it instead", options.id);
                        Error::new(Code::SessionNotFound, message).with("id", options.id.as_str())
                    })?;
                    warn_of_replacements(&log);
                    (log.header, log.events, Some(writer))
                }
            };
            let stored = events.len() as u64;
            let restored = check_identity(&options.id, &header).and_then(|()| restore(&root, header, events));
            let session = match (restored, &writer) {
                (Ok(session), _) => session,
                (Err(error), Some(writer)) => {
                    writer.close().await;
                    return Err(error);
                }
                (Err(error), None) => return Err(error),
            };
            lifecycle.make(&owner, session, options.agent, writer, stored, &*self.0.make_driver)?;
            lifecycle.compose_and_publish(options.setup, signal, StartSource::Resume).await
        };
        let opened = opened.await;
        let settled = lifecycle.settle(opened).await;
        operation.done();
        settled
    }
}

impl AgentFactory for Publication {
    fn create(&self, owner: Context, options: CreateOptions) -> LocalBoxFuture<Result<AgentHandle>> {
        Box::pin(self.clone().create_agent(owner, options))
    }

    fn resume(&self, owner: Context, options: ResumeOptions) -> LocalBoxFuture<Result<AgentHandle>> {
        Box::pin(self.clone().resume_agent(owner, options))
    }

    fn unload(&self) -> LocalBoxFuture<()> {
        self.0.unloaded.set(true);
        let live: Vec<_> = self.0.live.borrow().values().cloned().collect();
        let endings: Vec<_> = live.iter().map(|lifecycle| lifecycle.end(not_active())).collect();
        Box::pin(async move {
            for ending in endings {
                ending.await;
            }
        })
    }
}

fn not_active() -> Error {
    Error::new(Code::NoFactory, "the agent loop is not active any more")
}

fn release(writer: Rc<dyn SessionWriter>) -> LocalBoxFuture<()> {
    writer.close()
}

fn release_opened(opened: Option<(StoredLog, Rc<dyn SessionWriter>)>) -> LocalBoxFuture<()> {
    match opened {
        Some((_, writer)) => writer.close(),
        None => Box::pin(std::future::ready(())),
    }
}

fn warn_of_replacements(log: &StoredLog) {
    if log.replaced_characters > 0 {
        let count = log.replaced_characters;
        tracing::warn!(target: "turnwheel", session = %log.header.id, "{count} broken characters were read as U+FFFD");
    }
}

fn new_session(root: &Root, mut header: SessionHeader, seed: Option<Vec<Arc<Event>>>) -> Result<Session> {
    header.created_at = root.runtime.now_ms().max(0) as u64;
    root.check_free(&header.id)?;
    header.check()?;
    match seed {
        Some(seed) => {
            check_lossless(&seed)?;
            check_balanced(&seed)?;
            Session::seeded(&root.runtime, header, seed)
        }
        None => Session::new(&root.runtime, header),
    }
}

/// A log is restored under its own id only: its lineage and its messages' receipts go by it (ID-1).
fn check_identity(id: &SessionId, header: &SessionHeader) -> Result<()> {
    if header.id != *id {
        let message = format!("the log is of session {:?} and cannot be resumed as {id:?}; fork it instead", header.id);
        return Err(Error::new(Code::IdentityMismatch, message).with("id", id.as_str()));
    }
    Ok(())
}

/// The stored events, the closers of an interrupted turn, and the mark of a new life.
fn restore(root: &Root, header: SessionHeader, mut events: EventLog) -> Result<Session> {
    let closers = crate::session::closers(&events);
    events.extend(closers.into_iter().map(Arc::new));
    Session::seeded(&root.runtime, header, events)
}

/// A seed is what JSON can carry exactly (ID-9).
fn check_lossless(seed: &[Arc<Event>]) -> Result<()> {
    match seed.iter().find_map(|event| Some((event, event.data.find_lossy()?))) {
        Some((event, reason)) => {
            let message = format!("event {} of the seed, {}: {reason}", event.seq, event.kind());
            Err(Error::new(Code::InvalidJson, message).with("seq", event.seq))
        }
        None => Ok(()),
    }
}

/// A seed must not end inside a turn (D-23).
fn check_balanced(seed: &[Arc<Event>]) -> Result<()> {
    let last = seed.iter().rev().find_map(|event| match event.data {
        EventData::TurnStart { turn } => Some(Some(turn)),
        EventData::TurnEnd { .. } => Some(None),
        _ => None,
    });
    match last.flatten() {
        Some(turn) => {
            let message = format!("the seed ends inside turn {turn}; cut it after that turn's turn/end");
            Err(Error::new(Code::UnbalancedSeed, message).with("turn", turn))
        }
        None => Ok(()),
    }
}
