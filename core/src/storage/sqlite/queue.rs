//! The one writer: operations wait in a queue, and all that wait are carried out in one transaction (group commit).

use super::owner::Instance;
use super::{Writer, already_exists, database, locked, rows};
use crate::background;
use crate::error::{Code, Error, Result};
use crate::session::Event;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// How many operations share a transaction; more would keep the first ones waiting for nothing.
const GROUP_LIMIT: usize = 512;

/// The right to write a session: its row, and a number that the next owner changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) session: i64,
    fence: i64,
}

/// What is asked of the writing connection.
pub(super) enum Operation {
    /// Makes the writer the owner of its stored session.
    Claim(Arc<Writer>),
    /// Stores a batch, whole or not at all.
    Append(Arc<Writer>, Vec<Arc<Event>>),
    /// Gives the session up.
    Close(Arc<Writer>),
    /// Gives the session of a writer up that is gone.
    Abandon(Claim),
}

struct Job {
    operation: Operation,
    /// The batch as rows, rendered before the transaction begins.
    rows: Vec<rows::Row>,
    reply: Option<oneshot::Sender<Result<()>>>,
}

/// Operations in the order in which they were asked for.
#[derive(Clone)]
pub(super) struct Queue(Arc<Shared>);

struct Shared {
    path: PathBuf,
    process: u32,
    instance: Arc<Instance>,
    waiting: Mutex<Waiting>,
    /// Held by the background thread that writes.
    database: Mutex<Database>,
}

#[derive(Default)]
struct Database {
    writing: Option<database::Writing>,
    /// The connection that has failed last, open until another one works. Whoever closes a database last makes the rest
    /// of its log a part of it, also a transaction that failed when it was synced, and the next one to open it needs
    /// room on the disk.
    failed: Option<Connection>,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    is_draining: bool,
}

impl Queue {
    pub(super) fn new(path: PathBuf, instance: Arc<Instance>) -> Self {
        let (waiting, database) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Shared { path, process: std::process::id(), instance, waiting, database }))
    }

    /// Carries an operation out after those before it. It is carried out also if nobody waits any more.
    pub(super) async fn submit(&self, operation: Operation) -> Result<()> {
        let _outstanding = background::Outstanding::new();
        let (reply, answer) = oneshot::channel();
        self.push(Job { operation, rows: Vec::new(), reply: Some(reply) })?;
        answer.await.map_err(|_| Error::new(Code::Panic, "a background task ended without an answer"))?
    }

    /// As [`Queue::submit`], for who cannot wait.
    pub(super) fn submit_unattended(&self, operation: Operation) {
        // Without background threads nothing is open that could be given up.
        let _ = self.push(Job { operation, rows: Vec::new(), reply: None });
    }

    fn push(&self, job: Job) -> Result<()> {
        let background = background::handle()?;
        let starts = {
            let mut waiting = locked(&self.0.waiting);
            waiting.jobs.push_back(job);
            !std::mem::replace(&mut waiting.is_draining, true)
        };
        if starts {
            let shared = self.0.clone();
            background.spawn_blocking(move || shared.drain());
        }
        Ok(())
    }
}

/// Lets a later operation start a new drain if this one panics.
struct Draining<'a>(&'a Shared);

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            locked(&self.0.waiting).is_draining = false;
        }
    }
}

impl Shared {
    fn drain(&self) {
        let _draining = Draining(self);
        loop {
            let group = self.take_group();
            if group.is_empty() {
                return;
            }
            self.carry_out(group);
        }
    }

    /// The operations of the next transaction: one of a writer, so that each finds what the one before it left.
    fn take_group(&self) -> Vec<Job> {
        let mut waiting = locked(&self.waiting);
        let mut writers = HashSet::new();
        let mut group = Vec::new();
        while group.len() < GROUP_LIMIT {
            let Some(job) = waiting.jobs.front() else { break };
            if job.operation.writer().is_some_and(|writer| !writers.insert(Arc::as_ptr(writer))) {
                break;
            }
            group.extend(waiting.jobs.pop_front());
        }
        waiting.is_draining = !group.is_empty();
        group
    }

    fn carry_out(&self, group: Vec<Job>) {
        // A writer that stored nothing has nothing to give up, and makes no database.
        let is_idle = |job: &Job| matches!(&job.operation, Operation::Close(w) if locked(&w.state).claim.is_none());
        let (idle, mut group): (Vec<_>, Vec<_>) = group.into_iter().partition(is_idle);
        let released = idle.iter().map(|_| Ok(Outcome::Released)).collect();
        self.settle(idle, released);
        if group.is_empty() {
            return;
        }
        for job in &mut group {
            if let Operation::Append(_, events) = &job.operation {
                job.rows = rows::of_batch(events);
            }
        }
        let mut database = locked(&self.database);
        match self.transact(&mut database, &group) {
            Ok(outcomes) => self.settle(group, outcomes),
            // One that cannot be carried out must not hold the others back.
            Err(_) if group.len() > 1 => {
                for job in group {
                    let outcome = self.transact(&mut database, std::slice::from_ref(&job));
                    let outcome = outcome.map(|mut outcomes| outcomes.remove(0)).unwrap_or_else(Err);
                    self.settle(vec![job], vec![outcome]);
                }
            }
            Err(error) => self.settle(group, vec![Err(error)]),
        }
    }

    /// One transaction. An operation that is refused changes nothing and does not keep the others from being stored.
    fn transact(&self, database: &mut Database, group: &[Job]) -> Result<Vec<Result<Outcome>>> {
        let mut writing = match database.writing.take() {
            Some(writing) => {
                writing.check_place()?;
                writing
            }
            None => database::Writing::open(&self.path, &mut database.failed)?,
        };
        let outcomes = self.run_all(&mut writing.connection, group);
        if outcomes.is_ok() {
            database.writing = Some(writing);
            database.failed = None;
        } else {
            // It is not trusted with another try.
            database.failed = Some(writing.connection);
        }
        outcomes
    }

    fn run_all(&self, connection: &mut Connection, group: &[Job]) -> Result<Vec<Result<Outcome>>> {
        let failed = |error: rusqlite::Error| database::failed("write", &self.path, &error);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let mut outcomes = Vec::with_capacity(group.len());
        for job in group {
            outcomes.push(match self.run(&transaction, job) {
                Ok(outcome) => Ok(outcome),
                Err(Refusal::Refused(error)) => Err(error),
                Err(Refusal::Failed(error)) => return Err(failed(error)),
            });
        }
        transaction.commit().map_err(failed)?;
        Ok(outcomes)
    }

    fn run(&self, db: &Connection, job: &Job) -> Result<Outcome, Refusal> {
        match &job.operation {
            Operation::Claim(writer) => self.claim(db, writer),
            Operation::Append(writer, events) => self.append(db, writer, events, &job.rows),
            Operation::Close(writer) => {
                let claim = locked(&writer.state).claim;
                claim.map_or(Ok(()), |claim| release(db, claim))?;
                Ok(Outcome::Released)
            }
            Operation::Abandon(claim) => {
                release(db, *claim)?;
                Ok(Outcome::Released)
            }
        }
    }

    fn claim(&self, db: &Connection, writer: &Writer) -> Result<Outcome, Refusal> {
        let query = "SELECT s.key, s.fence, o.instance, o.record FROM sessions s LEFT JOIN owners o \
                     ON o.session = s.key WHERE s.id = ?1";
        let row = db
            .prepare_cached(query)?
            .query_row([writer.id.as_str()], |row| {
                let owner: Option<(String, String)> = row.get::<_, Option<String>>(2)?.zip(row.get(3)?);
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, owner))
            })
            .optional()?;
        let Some((session, fence, owner)) = row else {
            let message = format!("session {:?} was removed from {} meanwhile", writer.id, self.path.display());
            return Err(Error::new(Code::SessionNotFound, message).with("id", writer.id.as_str()).into());
        };
        if let Some((instance, record)) = owner.filter(|(instance, _)| self.instance.is_held(instance, session)) {
            return Err(super::owner::session_locked(&writer.id, &self.path, &instance, &record).into());
        }
        let claim = Claim { session, fence: fence + 1 };
        db.prepare_cached("UPDATE sessions SET fence = ?2 WHERE key = ?1")?.execute(params![session, claim.fence])?;
        self.note_owner(db, claim)?;
        Ok(Outcome::Claimed(claim))
    }

    fn note_owner(&self, db: &Connection, claim: Claim) -> Result<(), Refusal> {
        let (instance, record) = self.instance.identify()?;
        let statement = "INSERT OR REPLACE INTO owners (session, instance, record) VALUES (?1, ?2, ?3)";
        db.prepare_cached(statement)?.execute(params![claim.session, instance, record])?;
        Ok(())
    }

    fn append(
        &self,
        db: &Connection,
        writer: &Writer,
        events: &[Arc<Event>],
        rows: &[rows::Row],
    ) -> Result<Outcome, Refusal> {
        let claim = locked(&writer.state).claim;
        let next = match (claim, &writer.new) {
            (Some(claim), _) => self.check_claim(db, writer, claim)?,
            (None, Some(_)) if self.is_stored(db, writer)? => {
                return Err(already_exists(&writer.id, &self.path).into());
            }
            (None, Some(_)) => 0,
            (None, None) => return Err(lost(writer).into()),
        };
        check_seqs(&writer.id, events, next)?;
        let (Some(last), Some(header)) = (events.last(), claim.map(|_| "").or(writer.new.as_deref())) else {
            return Ok(Outcome::Stored);
        };
        let after = last.seq + 1;
        let (claim, outcome) = match claim {
            Some(claim) => {
                db.prepare_cached("UPDATE sessions SET next_seq = ?2 WHERE key = ?1")?
                    .execute(params![claim.session, after])?;
                (claim, Outcome::Stored)
            }
            None => {
                let statement = "INSERT INTO sessions (id, header, next_seq, fence) VALUES (?1, ?2, ?3, 1)";
                db.prepare_cached(statement)?.execute(params![writer.id.as_str(), header, after])?;
                let claim = Claim { session: db.last_insert_rowid(), fence: 1 };
                self.note_owner(db, claim)?;
                (claim, Outcome::Claimed(claim))
            }
        };
        rows::insert(db, claim.session, rows)?;
        Ok(outcome)
    }

    fn is_stored(&self, db: &Connection, writer: &Writer) -> rusqlite::Result<bool> {
        db.prepare_cached("SELECT 1 FROM sessions WHERE id = ?1")?.exists([writer.id.as_str()])
    }

    /// The seq at which the session goes on, if the writer still is its owner.
    fn check_claim(&self, db: &Connection, writer: &Writer, claim: Claim) -> Result<u64, Refusal> {
        let row = db
            .prepare_cached("SELECT next_seq, fence FROM sessions WHERE key = ?1")?
            .query_row([claim.session], |row| Ok((row.get::<_, u64>(0)?, row.get::<_, i64>(1)?)))
            .optional()?;
        match row {
            Some((next, fence)) if fence == claim.fence => Ok(next),
            Some(_) | None => Err(lost(writer).into()),
        }
    }

    fn settle(&self, group: Vec<Job>, outcomes: Vec<Result<Outcome>>) {
        for (job, outcome) in group.into_iter().zip(outcomes) {
            match (&job.operation, &outcome) {
                (Operation::Claim(writer) | Operation::Append(writer, _), Ok(Outcome::Claimed(claim))) => {
                    self.instance.hold(*claim);
                    locked(&writer.state).claim = Some(*claim);
                }
                (Operation::Close(writer), _) => {
                    if let Some(claim) = locked(&writer.state).claim.take() {
                        self.instance.release(claim);
                    }
                }
                _ => {}
            }
            if let Some(reply) = job.reply {
                let _ = reply.send(outcome.map(|_| ()));
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let database = std::mem::take(&mut *locked(&self.database));
        database::close_elsewhere(self.process, database);
    }
}

impl Operation {
    fn writer(&self) -> Option<&Arc<Writer>> {
        match self {
            Operation::Claim(writer) | Operation::Append(writer, _) | Operation::Close(writer) => Some(writer),
            Operation::Abandon(_) => None,
        }
    }
}

/// What an operation did.
enum Outcome {
    Claimed(Claim),
    Stored,
    Released,
}

/// Why an operation did not.
enum Refusal {
    /// It asked for what cannot be; the transaction goes on.
    Refused(Error),
    /// The database failed.
    Failed(rusqlite::Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal::Refused(error)
    }
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Refusal::Failed(error)
    }
}

fn release(db: &Connection, claim: Claim) -> rusqlite::Result<()> {
    let statement = "DELETE FROM owners WHERE session = ?1 \
                     AND EXISTS (SELECT 1 FROM sessions WHERE key = ?1 AND fence = ?2)";
    db.prepare_cached(statement)?.execute(params![claim.session, claim.fence])?;
    Ok(())
}

/// PCO-04.
fn check_seqs(id: &str, events: &[Arc<Event>], next: u64) -> Result<()> {
    let Some((index, event)) = events.iter().enumerate().find(|(index, event)| event.seq != next + *index as u64)
    else {
        return Ok(());
    };
    let expected = next + index as u64;
    let message = format!(
        "session {id:?} goes on with seq {expected} at position {index} of the batch, not with {}; read it again",
        event.seq
    );
    let error = Error::new(Code::StoreConflict, message).with("expected", expected);
    Err(error.with("found", event.seq).with("index", index))
}

fn lost(writer: &Writer) -> Error {
    let message = format!(
        "session {:?} was removed, or another writer has taken it over; what this writer has can be stored no more",
        writer.id
    );
    Error::new(Code::StoreConflict, message).with("id", writer.id.as_str())
}
