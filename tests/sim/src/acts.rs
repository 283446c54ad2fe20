//! What stimuli and host callbacks do to agents, and what they expect in return.

use crate::host;
use crate::script::{Edit, How, Op};
use crate::watch::TARGETS;
use crate::world::{Life, World};
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::runtime::PumpState;
use turnwheel::session::EventData;
use turnwheel::{Agent, CancelCause, Code, Error, Message};

/// What was so before a delivery.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    /// The id was accepted before.
    known: bool,
    wakes: bool,
    events: u64,
}

impl World {
    /// The agent of a slot and its life, if it is live.
    pub fn agent(&self, who: u64) -> Option<(Rc<Life>, Agent)> {
        let (agent, context) = {
            let slots = self.slots.borrow();
            let slot = &slots[who as usize % slots.len()];
            (slot.agent.clone()?, slot.context)
        };
        let life = self.life(context);
        life.alive.get().then_some((life, agent))
    }

    /// The slot of an agent.
    pub fn slot_of(&self, id: &str) -> u64 {
        self.slots.borrow().iter().position(|slot| slot.name == id).unwrap_or(0) as u64
    }

    /// Host code calls back, perhaps.
    pub fn meddle(self: &Rc<Self>, site: &str, subject: &str, percent: u64) {
        if self.decisions.is_calm() || self.depth.get() > 3 {
            return;
        }
        let mut rng = {
            let mut dice = self.decisions.dice(site, subject);
            if !dice.chance(percent) {
                return;
            }
            dice.rng()
        };
        let mut op = crate::script::act(&mut rng, 0);
        if rng.percent(60) {
            op.aim(self.slot_of(subject));
        }
        self.act(&op);
    }

    /// Does one thing.
    pub fn act(self: &Rc<Self>, op: &Op) {
        if self.left.get() == 0 {
            return;
        }
        self.left.set(self.left.get() - 1);
        self.note(|| format!("> {op:?}"));
        self.depth.set(self.depth.get() + 1);
        self.perform(op);
        self.depth.set(self.depth.get() - 1);
    }

    fn perform(self: &Rc<Self>, op: &Op) {
        match op {
            Op::Send { who, how, repeat } => self.on(*who, |life, agent| self.send(life, agent, *how, *repeat)),
            Op::Cancel { who, cause, keep } => self.on(*who, |life, agent| self.cancel(life, agent, *cause, *keep)),
            Op::Edit { who, edit, next_turn, at } => {
                self.on(*who, |life, agent| self.edit(life, agent, *edit, usize::from(*next_turn), *at));
            }
            Op::Wake { who } => self.on(*who, |life, agent| self.wake(life, agent)),
            Op::Own { who, stream } => self.on(*who, |life, agent| self.own(life, agent, *stream)),
            Op::Vetoed { who, how } => self.on(*who, |life, agent| self.vetoed(life, agent, *how)),
            Op::DropOne { nth } => {
                let switch = {
                    let mut switches = self.switches.borrow_mut();
                    switches.retain(|switch| switch.strong_count() > 0);
                    if switches.is_empty() { None } else { switches[*nth as usize % switches.len()].upgrade() }
                };
                if let Some(switch) = switch {
                    switch.open();
                }
            }
            Op::Maintain { who, task } => self.on(*who, |life, agent| self.maintain(life, agent, *task)),
            Op::Dispose { who } => self.on(*who, |life, agent| {
                let disposal = self.dispose(life, agent);
                crate::owned::spawn(life, disposal);
            }),
            Op::Open { who } => self.open(*who),
            Op::Fork { who, bare, back } => self.on(*who, |life, agent| self.fork(life, agent, *bare, *back)),
            Op::Crash { context, after, close } => {
                let life = self.life(*context as usize);
                if self.depth.get() <= 1 && *after == 0 {
                    life.crash_in.set(Some((0, *close)));
                    self.kill(&life);
                } else if life.crash_in.get().is_none() {
                    life.crash_in.set(Some((*after, *close)));
                }
            }
            Op::Gate { nth } => self.open_gate(*nth),
            Op::AllGates => drop(self.open_gates()),
            Op::Clock(duration) => self.clock.advance(*duration),
            Op::Pump { context } => {
                let life = self.life(*context as usize);
                while life.ctx.runtime().pump() == PumpState::More {}
            }
            Op::Settle => {
                self.settle();
                self.check_settled();
            }
            Op::Append { who, reserved } => self.on(*who, |life, agent| self.append(life, agent, *reserved)),
            Op::Compact { who, keep } => self.on(*who, |life, agent| self.compact(life, agent, *keep)),
            Op::Listener { who, kind } => self.on(*who, |life, agent| self.listen(life, agent, *kind)),
            Op::Query { who } => self.on(*who, |life, agent| self.query(life, agent)),
            Op::Later { yields, op } => {
                let (world, op) = (Rc::downgrade(self), (**op).clone());
                let life = self.life(op.subject() as usize);
                let yields = *yields;
                life.ctx.runtime().spawn(async move {
                    for _ in 0..yields {
                        host::yield_now().await;
                    }
                    if let Some(world) = world.upgrade() {
                        world.act(&op);
                    }
                });
            }
        }
    }

    fn on(&self, who: u64, f: impl FnOnce(&Rc<Life>, &Agent)) {
        if let Some((life, agent)) = self.agent(who) {
            if !Self::is_attached(&life, &agent) {
                return self.expect_refusals(&agent);
            }
            self.with_watch(life.number, agent.id(), |watch| watch.touched = true);
            f(&life, &agent);
        }
    }

    /// A disposed agent refuses everything (D-05).
    fn expect_refusals(&self, agent: &Agent) {
        let message = || Arc::new(Message::user_text(self.fresh_id(), "late"));
        let before = agent.session().len();
        let refused = agent.followup(message()).is_err()
            && agent.wake().is_err()
            && agent.run(message()).is_err()
            && agent.inbox().append(TARGETS[0], vec![message()]).is_err()
            && agent.run_maintenance(|_| async { Ok(()) }).is_err();
        self.expect("D-05", refused && agent.session().len() == before, || format!("{agent:?} does not refuse"));
    }

    /// A fresh message, or one with the id of a known one.
    pub(crate) fn message(&self, life: &Life, agent: &Agent, repeat: Option<u64>) -> Arc<Message> {
        let known = repeat.and_then(|nth| {
            self.with_watch(life.number, agent.id(), |watch| {
                let ids: Vec<_> = watch.accepted.iter().chain(watch.fold.states.keys()).cloned().collect();
                ids.get(nth as usize % ids.len().max(1)).cloned()
            })
        });
        let id = known.flatten().unwrap_or_else(|| self.fresh_id());
        Arc::new(Message::user_text(id.clone(), format!("text of {id}")))
    }

    fn send(self: &Rc<Self>, life: &Rc<Life>, agent: &Agent, how: How, repeat: Option<u64>) {
        let message = self.message(life, agent, repeat);
        let id = message.id().to_string();
        let wakes = matches!(how, How::Followup | How::Steer);
        let sent = self.before_delivery(life, agent, &id, wakes);
        let done = match how {
            How::Followup => agent.followup(message),
            How::Steer => agent.steer(message),
            How::Inject => agent.inject(message),
            How::Quiet => agent.send(message, TARGETS[1], false),
        };
        self.after_delivery(life, agent, &id, sent, done.err());
    }

    /// Whether the session of an agent is announced and not disposed.
    pub(crate) fn is_attached(life: &Life, agent: &Agent) -> bool {
        life.ctx.root().session(agent.id()).is_some_and(|live| live.is_same(agent.session()))
    }

    pub(crate) fn before_delivery(&self, life: &Life, agent: &Agent, id: &str, wakes: bool) -> Sent {
        let known = self.with_watch(life.number, agent.id(), |watch| {
            let known = watch.accepted.contains(id) || watch.fold.states.contains_key(id);
            watch.woken |= wakes;
            watch.calls += u32::from(wakes);
            if wakes && !known {
                watch.waking.insert(id.to_owned());
                watch.wakers.insert(id.to_owned());
            }
            known
        });
        Sent { known: known.unwrap_or(false), wakes, events: agent.session().len() }
    }

    pub(crate) fn after_delivery(&self, life: &Life, agent: &Agent, id: &str, sent: Sent, failed: Option<Error>) {
        let Sent { known, wakes, events } = sent;
        if wakes && !agent.session().is_publishing() {
            self.with_watch(life.number, agent.id(), |watch| watch.calls = watch.calls.saturating_sub(1));
        }
        if !life.alive.get() || !Self::is_attached(life, agent) {
            return;
        }
        let Some(error) = failed else {
            self.expect("D-08", !known, || format!("{id:?} was accepted twice by {agent:?}"));
            self.with_watch(life.number, agent.id(), |watch| watch.accepted.insert(id.to_owned()));
            return;
        };
        match error.code() {
            Code::DuplicateMessage => {
                self.expect("D-08", known, || format!("{agent:?} refused the new id {id:?}: {error:?}"));
                self.expect("D-08", events == agent.session().len(), || format!("the refusal of {id:?} was logged"));
            }
            Code::Disposed | Code::NotPublished | Code::RuntimeClosed => {}
            _ => self.violate("ACCEPT", format!("{agent:?} refused {id:?}: {error:?}")),
        }
        if !known {
            self.with_watch(life.number, agent.id(), |watch| watch.waking.remove(id));
        }
    }

    /// What a cancel does to the account: one that keeps the inbox parks what is pending, unless the run was cancelled
    /// before. What comes in from here on is latched.
    pub(crate) fn note_cancel(&self, life: &Life, agent: &Agent, keep: bool) {
        let running = agent.state().is_ok_and(|state| state.phase == "running");
        if running && Self::is_attached(life, agent) {
            self.with_watch(life.number, agent.id(), |watch| {
                if keep && !watch.cancelled {
                    watch.need.clear();
                }
                watch.cancelled = true;
                watch.kept = Some(watch.kept.unwrap_or(true) && keep);
            });
        }
    }

    fn cancel(&self, life: &Life, agent: &Agent, cause: u64, keep: bool) {
        let cause = match cause {
            0 => CancelCause::User,
            1 => CancelCause::Parent,
            _ => CancelCause::Hook("planned".into()),
        };
        self.note_cancel(life, agent, keep);
        if keep { agent.cancel_keep_inbox(cause) } else { agent.cancel(cause) }
    }

    fn edit(&self, life: &Life, agent: &Agent, edit: Edit, list: usize, at: i64) {
        let (inbox, target) = (agent.inbox(), TARGETS[list]);
        let pending: Vec<_> = TARGETS.iter().flat_map(|target| inbox.pending(*target)).collect();
        let one = (!pending.is_empty()).then(|| pending[at.unsigned_abs() as usize % pending.len()].id().to_string());
        let id = one.unwrap_or_else(|| "nobody".into());
        let fresh = || self.message(life, agent, None);
        let (publishing, before) = (agent.session().is_publishing(), agent.session().len());
        let done = match edit {
            Edit::Append => inbox.append(target, vec![fresh()]),
            Edit::Prepend => inbox.prepend(target, vec![fresh(), fresh()]),
            Edit::Splice { count, insert } => {
                let inserted = (0..insert).map(|_| fresh()).collect();
                inbox.splice(target, at as f64, count as f64, inserted).map(drop)
            }
            Edit::Replace { same_id: true } => {
                inbox.replace(&id, Arc::new(Message::user_text(id.clone(), "another text"))).map(drop)
            }
            Edit::Replace { same_id: false } => inbox.replace(&id, fresh()).map(drop),
            Edit::Remove => inbox.remove(&id).map(drop),
            Edit::Clear => inbox.clear(),
        };
        if !life.alive.get() {
            return;
        }
        if publishing {
            let refused = done.as_ref().err().is_none_or(|error| *error.code() == Code::Reentrant);
            let what = || format!("{edit:?} while publishing: {done:?}");
            self.expect("D-02", refused && agent.session().len() == before, what);
        } else if let Err(error) = done {
            let disposed = *error.code() == Code::Disposed && agent.is_disposed();
            self.expect("ACCEPT", disposed, || format!("{edit:?} of {agent:?} failed: {error:?}"));
        }
    }

    fn wake(&self, life: &Life, agent: &Agent) {
        self.with_watch(life.number, agent.id(), |watch| {
            watch.woken = true;
            let pending: Vec<_> = watch.fold.lists.iter().flatten().cloned().collect();
            watch.wakers.extend(pending);
        });
        if !agent.session().is_publishing() && !agent.is_disposed() {
            self.with_watch(life.number, agent.id(), |watch| {
                watch.need.extend(watch.fold.lists.iter().flatten().cloned());
            });
        }
        if let Err(error) = agent.wake() {
            let refused = matches!(error.code(), Code::Disposed | Code::NotPublished);
            self.expect("ACCEPT", refused, || format!("wake failed: {error:?}"));
        }
    }

    /// Whether the log ends outside a turn at `at`.
    pub fn is_boundary(events: &[Arc<turnwheel::session::Event>], at: usize) -> bool {
        let edge = events[..=at].iter().rev().find_map(|event| match event.data {
            EventData::TurnStart { .. } => Some(false),
            EventData::TurnEnd { .. } => Some(true),
            _ => None,
        });
        edge.unwrap_or(true)
    }
}
