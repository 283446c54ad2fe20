//! Opening and forking agents, and what comes after a crash.

use crate::host;
use crate::world::{Life, Slot, World};
use std::rc::Rc;
use turnwheel::context::LoopOptions;
use turnwheel::id::SessionId;
use turnwheel::{Agent, Code, Durability};

/// How the contexts of a run are built.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// With the store.
    pub stored: bool,
    /// When the log is made durable.
    pub durability: Durability,
    /// Options of the loop.
    pub options: LoopOptions,
}

impl World {
    /// Opens the agent of a slot unless it is open.
    pub fn open(self: &Rc<Self>, who: u64) {
        let (at, slot) = {
            let mut slots = self.slots.borrow_mut();
            let at = who as usize % slots.len();
            let slot = slots[at].clone();
            if slot.opening || slot.agent.as_ref().is_some_and(|agent| !agent.is_disposed()) {
                return;
            }
            slots[at].opening = true;
            slots[at].agent = None;
            (at, slot)
        };
        let life = self.life(slot.context);
        let builder = life.ctx.agent(slot.name.as_str()).provider("sim").model("m").setup(host::setup(self, &life));
        let remains = life.remains.borrow_mut().remove(&slot.name);
        let (world, number) = (Rc::downgrade(self), life.number);
        life.ctx.runtime().spawn(async move {
            let opened = match (remains, slot.seed) {
                (Some((header, events)), _) => {
                    builder.resume_from(header, events).await.map(|handle| handle.agent().clone())
                }
                (None, Some((header, seed))) => {
                    let edit = move |fields: &mut turnwheel::session::SessionHeader| {
                        fields.parent_session = header.parent_session;
                        fields.seed_length = header.seed_length;
                    };
                    builder.header(edit).seed(seed).open().await
                }
                (None, None) => builder.open().await,
            };
            let Some(world) = world.upgrade().filter(|world| world.is_alive(number)) else { return };
            world.opened(number, at, opened);
        });
    }

    fn opened(&self, life: usize, at: usize, opened: turnwheel::Result<Agent>) {
        let mut slots = self.slots.borrow_mut();
        slots[at].opening = false;
        match opened {
            Ok(agent) => slots[at].agent = Some(agent),
            Err(error) => {
                self.note(|| format!("[{life}] {} could not be opened: {error:?}", slots[at].name));
                // The id may still be held by an agent that is being disposed, and stores and listeners may fail.
                let planned = matches!(
                    error.code(),
                    Code::StoreFailed
                        | Code::SessionLocked
                        | Code::SessionAlreadyExists
                        | Code::HostError
                        | Code::Disposed
                        | Code::Panic
                        | Code::RuntimeClosed
                        | Code::InactiveEffect
                );
                self.expect("OPEN", planned, || format!("{}: {error:?}", slots[at].name));
            }
        }
    }

    /// Forks an agent's log: into a bare session, or into another agent.
    pub fn fork(self: &Rc<Self>, life: &Rc<Life>, agent: &Agent, bare: bool, back: u64) {
        let events = agent.session().events_from(0);
        let Some(at) = events.len().checked_sub(1 + back as usize) else { return };
        if life.ctx.root().session(agent.id()).is_none_or(|session| !session.is_same(agent.session())) {
            return;
        }
        let balanced = Self::is_boundary(&events, at);
        if self.slots.borrow().len() >= 6 {
            return;
        }
        let name = format!("f{}", self.fresh_id());
        let seed = if bare {
            let forked = life.ctx.fork_session(agent.id(), Some(at as u64), Some(SessionId::from(name.as_str())));
            forked.map(|session| session.events_from(0))
        } else {
            life.ctx.fork_seed(agent.session(), Some(at as u64))
        };
        match seed {
            Ok(seed) => {
                self.expect("FORK", balanced, || format!("forked inside a turn at {at}"));
                let same = seed.iter().zip(&events).take(at + 1).all(|(copy, event)| copy.json() == event.json());
                self.expect("FORK", same && seed.len() > at, || format!("a fork at {at} differs"));
                if !bare {
                    let mut header = agent.session().header().clone();
                    header.parent_session = Some(agent.id().clone());
                    header.seed_length = Some(seed.len() as u64);
                    let context = life.context;
                    let slot = Slot { name, context, agent: None, opening: false, seed: Some((header, seed)) };
                    let who = {
                        let mut slots = self.slots.borrow_mut();
                        slots.push(slot);
                        slots.len() as u64 - 1
                    };
                    self.open(who);
                }
            }
            Err(error) => {
                let expected = *error.code() == Code::OpenTurn && !balanced || *error.code() == Code::HostError;
                self.expect("FORK", expected, || format!("fork at {at} failed: {error:?}"));
            }
        }
    }

    /// Sweeps away what crashed and begins the next life of its context.
    pub fn reap(self: &Rc<Self>, build: Build) {
        let dead: Vec<_> = self.lives.borrow().iter().filter(|life| !life.alive.get()).cloned().collect();
        for old in dead {
            let close = old.crash_in.get().is_some_and(|(_, close)| close);
            let remains = std::mem::take(&mut *old.remains.borrow_mut());
            self.bury(&old, close);
            let life = self.live(old.context, build.stored, build.durability, build.options);
            host::install(self, &life);
            if !build.stored {
                *life.remains.borrow_mut() = remains
                    .into_iter()
                    .map(|(id, (header, mut events))| {
                        // Without a store, what a log at hand holds is cut anywhere.
                        let mut dice = self.decisions.dice("crash.cut", &id);
                        let inherited = header.seed_length.unwrap_or(0) as usize;
                        let lost = dice.below(6) as usize;
                        let kept = events.len().saturating_sub(lost).max(inherited.min(events.len()));
                        events.truncate(kept);
                        (id, (header, events))
                    })
                    .collect();
            }
            let slots = {
                let mut slots = self.slots.borrow_mut();
                for slot in slots.iter_mut().filter(|slot| slot.context == old.context) {
                    slot.agent = None;
                    slot.opening = false;
                }
                slots.len() as u64
            };
            for who in 0..slots {
                if self.slots.borrow()[who as usize].context == old.context {
                    self.open(who);
                }
            }
        }
    }

    /// Frees the memory of a dead process. Its callbacks are inert, so nothing of this can be seen.
    pub fn bury(&self, old: &Rc<Life>, close: bool) {
        let runtime = old.ctx.runtime().clone();
        if close {
            runtime.close();
        }
        for agent in old.ctx.agents() {
            drop(agent.dispose());
        }
        let ctx = old.ctx.clone();
        runtime.spawn(async move { drop(ctx.close().await) });
        for _ in 0..100 {
            self.clock.advance(std::time::Duration::ZERO);
            for slot in self.gates_of(old.number) {
                slot.open();
            }
            while runtime.pump() == turnwheel::runtime::PumpState::More {}
            if runtime.task_count() == 0 {
                break;
            }
        }
        runtime.close();
        self.forget(old.number);
    }
}
