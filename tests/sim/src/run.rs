//! One run: a seed, its script, and the end at which everything has to come to rest.

use crate::dice::{Kept, Rng};
use crate::host;
use crate::open::Build;
use crate::script::{Op, script};
use crate::world::{Life, Slot, Violation, World};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use turnwheel::context::{Budget, LoopOptions};
use turnwheel::{Code, Durability, Session};

/// Which part of a seed's script and decisions a run keeps.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// The stimuli by position; all of them if absent.
    pub stimuli: Option<BTreeSet<usize>>,
    /// The decisions that deviate from the default; all of them if absent.
    pub decisions: Kept,
}

/// What a run brought.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first violation.
    pub violation: Option<Violation>,
    /// A hash of every event published, in order.
    pub hash: u64,
    /// How many events there were.
    pub events: u64,
    /// The decisions that deviated.
    pub taken: Vec<String>,
    /// What happened, if asked for.
    pub trace: Vec<String>,
}

/// Runs a seed.
pub fn run(seed: u64, part: &Part, traced: bool) -> Outcome {
    crate::panics::install();
    crate::panics::take();
    let world = World::new(seed, part.decisions.clone(), traced);
    let build = begin(&world, seed);
    for (at, op) in script(seed).iter().enumerate() {
        if part.stimuli.as_ref().is_some_and(|kept| !kept.contains(&at)) {
            continue;
        }
        world.note(|| format!("# stimulus {at}"));
        world.act(op);
        world.reap(build);
        look(&world);
        if world.violation().is_some() {
            break;
        }
    }
    if world.violation().is_none() {
        world.finish(build);
        look(&world);
    }
    let outcome = Outcome {
        violation: world.violation(),
        hash: world.hash.get(),
        events: world.events.get(),
        taken: world.decisions.taken(),
        trace: world.trace(),
    };
    world.scrap();
    outcome
}

/// Panics of the core and errors that it could only log are violations too.
fn look(world: &World) {
    for (invariant, what) in crate::panics::take() {
        world.violate(invariant, what);
    }
}

fn begin(world: &Rc<World>, seed: u64) -> Build {
    let mut rng = Rng::new(seed ^ 0xB361);
    let policies =
        [Durability::Effects, Durability::Effects, Durability::EveryEvent, Durability::Turn, Durability::Relaxed];
    let options = LoopOptions {
        max_parallel_tool_calls: 1 + rng.below(4) as usize,
        turn_budget: Budget {
            steps: Some(3 + rng.below(6)),
            tool_calls: rng.percent(10).then(|| 1 + rng.below(4)),
            ..Budget::default()
        },
        ..LoopOptions::default()
    };
    let build = Build { stored: rng.percent(65), durability: policies[rng.below(5) as usize], options };
    let (contexts, agents) = (1 + rng.below(4) / 3, 1 + rng.below(4));
    for context in 0..contexts as usize {
        let life = world.live(context, build.stored, build.durability, build.options);
        host::install(world, &life);
    }
    for agent in 0..agents {
        let context = (agent % contexts) as usize;
        let name = format!("a{agent}");
        world.slots.borrow_mut().push(Slot { name, context, agent: None, opening: false, seed: None });
    }
    for who in 0..agents {
        world.open(who);
    }
    build
}

impl World {
    /// Everything that has to hold while nothing moves.
    pub fn check_settled(self: &Rc<Self>) {
        self.check_waits();
        let lives = self.lives.borrow().clone();
        for life in lives.iter().filter(|life| life.alive.get()) {
            for id in self.watched(life.number) {
                self.check_one(life, &id);
            }
        }
    }

    fn check_one(self: &Rc<Self>, life: &Rc<Life>, id: &str) {
        let Some(live) = life.ctx.root().session(id) else { return };
        let held = self.held(life.number, id);
        let checked = self.with_watch(life.number, id, |watch| {
            watch.calls = 0;
            if let Some(what) = watch.inbox_differs() {
                return Err(("INBOX-FOLD", format!("{id:?}: {what}")));
            }
            if !watch.session.is_same(&live) || watch.session.len() != watch.fold.count {
                return Err(("P1", format!("{id:?}: the log has events that nobody heard")));
            }
            watch.compare(&watch.session, "live")?;
            let lost = watch.accepted.iter().find(|id| !watch.fold.states.contains_key(*id));
            if let Some(lost) = lost.filter(|_| !watch.disposing) {
                return Err(("P3", format!("{id:?} accepted {lost:?}, and it is nowhere")));
            }
            let events = watch.session.events_from(0);
            let copy = Session::seeded(life.ctx.runtime(), watch.session.header().clone(), events);
            match copy {
                Ok(copy) => watch.compare(&copy, "restored")?,
                Err(error) => return Err(("FOLD", format!("{id:?} cannot be restored: {error:?}"))),
            }
            let Some(agent) = watch.agent.clone().filter(|_| !watch.disposing) else { return Ok(None) };
            let state = agent.state().map_err(|error| ("STATE", format!("{id:?}: {error:?}")))?;
            let running = state.phase == "running";
            if running != watch.is_running() {
                return Err(("STATUS", format!("{id:?} is {}, the last status said otherwise", state.phase)));
            }
            if state.phase != "idle" {
                let what = || format!("{id:?} is {} and nothing holds it: {state:?}", state.phase);
                return held.map(|_| None).ok_or_else(|| ("NO-DRIVER", what()));
            }
            if watch.fold.turn.is_some() {
                return Err(("LOG", format!("{id:?} is idle inside a turn")));
            }
            if let Some(parked) = watch.need.first() {
                return Err(("P3", format!("{id:?} is idle and {parked:?}, whose wake nothing excuses, is pending")));
            }
            let pending = watch.fold.lists.iter().flatten().count();
            if state.parked.len() != pending {
                return Err(("STATE", format!("{id:?} is idle with {pending} pending, parked {:?}", state.parked)));
            }
            Ok(Some(agent))
        });
        match checked {
            Some(Err((invariant, what))) => self.violate(invariant, what),
            Some(Ok(Some(agent))) => {
                self.query(life, &agent);
                let mut idle = Box::pin(agent.when_idle());
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                let ready = std::future::Future::poll(idle.as_mut(), &mut context).is_ready();
                self.expect("IDLE", ready, || format!("{id:?} is idle, when_idle() is not ready"));
            }
            Some(Ok(None)) | None => {}
        }
        let events = live.events_from(0);
        self.compare_stored(life, id, &events);
    }

    /// Lets everything come to rest, wakes what is parked, ends everything, and looks at what is left.
    pub fn finish(self: &Rc<Self>, build: Build) {
        self.decisions.calm_down();
        for life in self.lives.borrow().iter() {
            life.crash_in.set(None);
        }
        self.left.set(0);
        self.note(|| "# the end: the host is calm now".into());
        self.rest();
        if self.violation().is_some() {
            return;
        }
        let slots = self.slots.borrow().clone();
        self.left.set(100);
        for (who, slot) in slots.iter().enumerate() {
            if slot.agent.as_ref().is_none_or(|agent| agent.is_disposed()) {
                self.act(&Op::Open { who: who as u64 });
            }
        }
        self.rest();
        for who in 0..slots.len() {
            self.act(&Op::Wake { who: who as u64 });
        }
        self.left.set(0);
        self.rest();
        self.check_drained();
        if self.violation().is_none() {
            self.end(build);
        }
    }

    /// Opens gates and moves the clock until nothing moves.
    fn rest(self: &Rc<Self>) {
        for round in 0.. {
            self.settle();
            self.check_settled();
            if self.violation().is_some() {
                return;
            }
            let held = self.open_gates();
            let busy = self.lives.borrow().iter().any(|life| life.ctx.runtime().task_count() > 0);
            if !held && (!busy || round > 6) {
                return;
            }
            self.clock.advance(Duration::from_secs(10));
            if round > 200 {
                return self.violate("REST", "gates never end");
            }
        }
    }

    /// After a wake with a calm host nothing is pending, and everybody is idle.
    fn check_drained(&self) {
        let lives = self.lives.borrow().clone();
        for life in &lives {
            for id in self.watched(life.number) {
                let state = self.with_watch(life.number, &id, |watch| {
                    let agent = watch.agent.clone().filter(|agent| !agent.is_disposed())?;
                    Some((agent.state().map(|state| state.phase), watch.fold.lists.iter().flatten().count()))
                });
                if let Some((phase, pending)) = state.flatten() {
                    let at_rest = phase.as_ref().is_ok_and(|phase| *phase == "idle") && pending == 0;
                    self.expect("DRAIN", at_rest, || format!("{id:?} after a wake: {phase:?}, {pending} pending"));
                }
            }
        }
    }

    /// Closes every context; nothing may be left, and what is stored is all there was.
    fn end(self: &Rc<Self>, build: Build) {
        let lives = self.lives.borrow().clone();
        for life in &lives {
            let sessions: Vec<_> = self
                .watched(life.number)
                .into_iter()
                .filter_map(|id| life.ctx.root().session(&id).filter(|_| life.ctx.find_agent(&id).is_some()))
                .collect();
            for agent in life.ctx.agents() {
                drop(self.dispose(life, &agent));
            }
            let ctx = life.ctx.clone();
            let closed = Rc::new(std::cell::Cell::new(false));
            let done = closed.clone();
            life.ctx.runtime().spawn(async move {
                // Closing tells of what the store refused for good on the way.
                let result = ctx.close().await;
                done.set(result.is_ok() || result.is_err_and(|error| *error.code() == Code::StoreFailed));
            });
            self.rest();
            self.expect("CLOSE", closed.get(), || "the context does not close".into());
            let (tasks, agents) = (life.ctx.runtime().task_count(), life.ctx.agents().len());
            self.expect("TASKS", tasks == 0, || format!("{tasks} tasks are alive after the end"));
            self.expect("TASKS", agents == 0, || format!("{agents} agents are live after the end"));
            for id in self.watched(life.number) {
                let paired = self.with_watch(life.number, &id, |watch| watch.is_paired());
                self.expect("PAIRING", paired == Some(true), || format!("{id:?} was created and never disposed"));
            }
            let held = self.disk.held_by(life.number);
            self.expect("LOCKS", held.is_empty(), || format!("{held:?} are held after the end"));
            if build.stored {
                for session in sessions {
                    let (stored, live) = (self.disk.durable(session.id()), session.len());
                    let what = || format!("{:?}: {stored} of {live} events are stored after the end", session.id());
                    self.expect("STORE-ALL", stored == live, what);
                }
            }
        }
    }

    /// Frees what a run leaves behind, also one that was cut short.
    pub fn scrap(self: &Rc<Self>) {
        self.decisions.calm_down();
        self.left.set(0);
        let lives = self.lives.borrow().clone();
        for life in lives {
            life.alive.set(false);
            self.bury(&life, false);
        }
        self.slots.borrow_mut().clear();
        self.lives.borrow_mut().clear();
    }
}
