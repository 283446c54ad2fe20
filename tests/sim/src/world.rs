//! The state of one run: the lives of processes, the slots of agents, gates, and the first violation.

use crate::dice::{Decisions, Kept};
use crate::gates::Gate;
use crate::store::{Disk, Log, SimStore};
use crate::watch::Watch;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use turnwheel::context::{LoopOptions, Registration};
use turnwheel::id::CountingIds;
use turnwheel::runtime::{ManualClock, Ports, PumpState};
use turnwheel::session::Event;
use turnwheel::{Agent, Context, Durability, Notice};

/// A broken invariant.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Its name.
    pub invariant: &'static str,
    /// What was seen.
    pub what: String,
}

/// One life of a process: a context with all that is registered on it.
pub struct Life {
    /// Its number.
    pub number: usize,
    /// Which of the run's contexts it is a life of.
    pub context: usize,
    /// The context.
    pub ctx: Context,
    /// Whether sessions are stored.
    pub stored: bool,
    /// Whether model requests and tool bodies wait for the store.
    pub effects_wait: bool,
    /// False once it crashed: its callbacks then do nothing.
    pub alive: Cell<bool>,
    /// How many events it has until it crashes, and whether its runtime is closed then.
    pub crash_in: Cell<Option<(u64, bool)>>,
    /// Logs as they were when it crashed.
    pub remains: RefCell<BTreeMap<String, Log>>,
    /// Listeners that stimuli registered.
    pub registrations: RefCell<Vec<Registration>>,
}

/// A place for an agent.
#[derive(Clone)]
pub struct Slot {
    /// Its id.
    pub name: String,
    /// The context it belongs to.
    pub context: usize,
    /// The agent, while it is live.
    pub agent: Option<Agent>,
    /// It is being opened.
    pub opening: bool,
    /// What it is opened with, the first time.
    pub seed: Option<Log>,
}

/// See the module.
pub struct World {
    /// Randomness.
    pub decisions: Decisions,
    /// The clock of all contexts.
    pub clock: ManualClock,
    /// The store of all contexts.
    pub disk: Disk,
    /// The newest life of each context.
    pub lives: RefCell<Vec<Rc<Life>>>,
    /// The agents.
    pub slots: RefCell<Vec<Slot>>,
    watches: RefCell<BTreeMap<(usize, String), Watch>>,
    pub(crate) gates: RefCell<Vec<Rc<Gate>>>,
    /// Runs and streams that can be dropped.
    pub switches: RefCell<Vec<Weak<Gate>>>,
    /// Waits for deliveries that were or will be refused.
    pub(crate) waits: RefCell<Vec<Rc<crate::vetoed::Wait>>>,
    violation: RefCell<Option<Violation>>,
    trace: Option<RefCell<Vec<String>>>,
    /// How deep calls are nested, and how many are left.
    pub depth: Cell<u32>,
    /// See `depth`.
    pub left: Cell<u32>,
    next_life: Cell<usize>,
    next_message: Cell<u64>,
    /// All event texts, in the order of their publication.
    pub hash: Cell<u64>,
    /// Events published.
    pub events: Cell<u64>,
}

impl World {
    /// An empty world.
    pub fn new(seed: u64, kept: Kept, traced: bool) -> Rc<Self> {
        Rc::new(Self {
            decisions: Decisions::new(seed, kept),
            clock: ManualClock::new(1_000),
            disk: Disk::default(),
            lives: RefCell::default(),
            slots: RefCell::default(),
            watches: RefCell::default(),
            gates: RefCell::default(),
            switches: RefCell::default(),
            waits: RefCell::default(),
            violation: RefCell::default(),
            trace: traced.then(RefCell::default),
            depth: Cell::new(0),
            left: Cell::new(250),
            next_life: Cell::new(0),
            next_message: Cell::new(0),
            hash: Cell::new(0xCBF2_9CE4_8422_2325),
            events: Cell::new(0),
        })
    }

    /// Begins a life of a context.
    pub fn live(
        self: &Rc<Self>,
        context: usize,
        stored: bool,
        durability: Durability,
        options: LoopOptions,
    ) -> Rc<Life> {
        let number = self.next_life.get();
        self.next_life.set(number + 1);
        let ids = Rc::new(CountingIds::new(format!("id{number}")));
        let ports = Ports { clock: Rc::new(self.clock.clone()), ids };
        let mut builder = Context::builder().ports(ports).durability(durability).loop_options(options);
        if stored {
            builder = builder.store(SimStore::new(self, number));
        }
        let life = Rc::new(Life {
            number,
            context,
            ctx: builder.build(),
            stored,
            effects_wait: stored && matches!(durability, Durability::Effects | Durability::EveryEvent),
            alive: Cell::new(true),
            crash_in: Cell::new(None),
            remains: RefCell::default(),
            registrations: RefCell::default(),
        });
        let mut lives = self.lives.borrow_mut();
        match lives.get_mut(context) {
            Some(place) => *place = life.clone(),
            None => lives.push(life.clone()),
        }
        life
    }

    /// Whether a life is not over.
    pub fn is_alive(&self, life: usize) -> bool {
        self.lives.borrow().iter().any(|other| other.number == life && other.alive.get())
    }

    /// The life of a context.
    pub fn life(&self, context: usize) -> Rc<Life> {
        let lives = self.lives.borrow();
        lives[context % lives.len()].clone()
    }

    /// Notes a violation; the first one counts.
    pub fn violate(&self, invariant: &'static str, what: impl Into<String>) {
        let what = what.into();
        self.note(|| format!("VIOLATION {invariant}: {what}"));
        self.violation.borrow_mut().get_or_insert(Violation { invariant, what });
    }

    /// The first violation.
    pub fn violation(&self) -> Option<Violation> {
        self.violation.borrow().clone()
    }

    /// Adds a line to the trace.
    pub fn note(&self, line: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let indent = "  ".repeat(self.depth.get() as usize);
            trace.borrow_mut().push(format!("{indent}{}", line()));
        }
    }

    /// The trace.
    pub fn trace(&self) -> Vec<String> {
        self.trace.as_ref().map(|trace| trace.borrow().clone()).unwrap_or_default()
    }

    /// A message id that was not used before.
    pub fn fresh_id(&self) -> String {
        self.next_message.set(self.next_message.get() + 1);
        format!("m{}", self.next_message.get())
    }

    /// What is known of a session.
    pub fn with_watch<T>(&self, life: usize, id: &str, f: impl FnOnce(&mut Watch) -> T) -> Option<T> {
        let mut watches = self.watches.borrow_mut();
        watches.get_mut(&(life, id.to_owned())).map(f)
    }

    /// The watched sessions of a life.
    pub fn watched(&self, life: usize) -> Vec<String> {
        let watches = self.watches.borrow();
        watches.keys().filter(|key| key.0 == life).map(|key| key.1.clone()).collect()
    }

    /// Takes a notification of a life: first of all listeners.
    pub fn hear(&self, life: &Life, notice: &Notice) {
        if !life.alive.get() {
            return;
        }
        let id = match notice {
            Notice::SessionCreated { session } => {
                match Watch::new(session) {
                    Ok(watch) => {
                        let key = (life.number, session.id().to_string());
                        let old = self.watches.borrow_mut().insert(key, watch);
                        let paired = old.is_none_or(|old| old.is_paired());
                        self.expect("PAIRING", paired, || {
                            format!("a new session {:?} while one is live", session.id())
                        });
                    }
                    Err(what) => self.violate("RESTORED-LOG", format!("{:?}: {what}", session.id())),
                }
                session.id().clone()
            }
            Notice::SessionDisposed { session } | Notice::SessionEvent { session, .. } => session.id().clone(),
            other => match other.agent() {
                Some(agent) => agent.id().clone(),
                None => return,
            },
        };
        self.note(|| describe(life.number, &id, notice));
        let heard = self.with_watch(life.number, &id, |watch| watch.hear(notice));
        match heard {
            Some(Err((invariant, what))) => self.violate(invariant, what),
            None => self.violate("PAIRING", format!("{:?} of {id:?} without its creation", notice.kind())),
            Some(Ok(())) => {}
        }
        if let Notice::SessionEvent { event, .. } = notice {
            self.events.set(self.events.get() + 1);
            let mut hash = self.hash.get();
            for byte in event.json().bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
            }
            self.hash.set(hash);
            self.count_down(life);
        }
    }

    /// Notes a violation unless something holds.
    pub fn expect(&self, invariant: &'static str, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violate(invariant, what());
        }
    }

    fn count_down(&self, life: &Life) {
        match life.crash_in.get() {
            Some((0, _)) => self.kill(life),
            Some((left, close)) => life.crash_in.set(Some((left - 1, close))),
            None => {}
        }
    }

    /// The process of a life is gone at this very moment; what is left of it is swept away later.
    pub fn kill(&self, life: &Life) {
        if !life.alive.replace(false) {
            return;
        }
        self.note(|| format!("CRASH of life {}", life.number));
        for id in self.watched(life.number) {
            let log = self
                .with_watch(life.number, &id, |watch| (watch.session.header().clone(), watch.session.events_from(0)));
            // What was disposed may be stored anew by an agent that is not announced yet.
            let attached = life.ctx.root().session(&id).is_some();
            if let Some((header, events)) = log.filter(|_| attached) {
                self.compare_stored(life, &id, &events);
                life.remains.borrow_mut().insert(id, (header, events));
            }
        }
        self.disk.crash(life.number, |len| {
            let mut dice = self.decisions.dice("crash.arrived", "disk");
            dice.below(len as u64 + 1) as usize
        });
    }

    /// What is stored is a prefix of what happened.
    pub fn compare_stored(&self, life: &Life, id: &str, events: &[Arc<Event>]) {
        if !life.stored {
            return;
        }
        if let Some((_, stored)) = self.disk.log(id) {
            let prefix = stored.len() <= events.len()
                && stored.iter().zip(events).all(|(stored, live)| stored.json() == live.json());
            let held = self.disk.held_by(life.number).iter().any(|held| held == id);
            self.expect("STORE-PREFIX", prefix || !held, || format!("{id:?}: what is stored never happened"));
        }
    }

    /// Pumps every context until nothing moves.
    pub fn settle(&self) {
        for round in 0.. {
            if round > 2_000 {
                return self.violate("LIVELOCK", "the runtimes do not come to rest");
            }
            let lives = self.lives.borrow().clone();
            // A pump that woke a task of a context pumped before asks for another round.
            let before: u64 = self.events.get();
            let mut more = false;
            for life in &lives {
                match life.ctx.runtime().pump() {
                    PumpState::More => more = true,
                    PumpState::Idle => {}
                    PumpState::Reentrant => return,
                }
            }
            if !more && before == self.events.get() {
                break;
            }
        }
    }

    /// Forgets the watches of a life.
    pub fn forget(&self, life: usize) {
        self.watches.borrow_mut().retain(|key, _| key.0 != life);
    }
}

fn describe(life: usize, id: &str, notice: &Notice) -> String {
    let what = match notice {
        Notice::SessionEvent { event, .. } => event.json().chars().take(240).collect(),
        Notice::Status { status, .. } => format!("{status:?}"),
        Notice::Inserted { message, .. } | Notice::Discarded { message, .. } => message.id().to_string(),
        Notice::Claimed { message, turn, .. } => format!("{} by turn {turn}", message.id()),
        Notice::Error { turn, step, error, .. } => format!("{turn}/{step} {error:?}"),
        _ => String::new(),
    };
    format!("[{life}] {id} {} {what}", notice.kind().as_str())
}
