//! What stimuli and host callbacks do to agents, and what they expect in return.

use crate::fold::State;
use crate::host;
use crate::script::{Edit, How, Op};
use crate::watch::TARGETS;
use crate::world::{Life, World};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use turnwheel::agent::ReceiptState;
use turnwheel::message::Source;
use turnwheel::runtime::PumpState;
use turnwheel::session::{Delivery, EventData};
use turnwheel::{Agent, CancelCause, Code, Error, Message, NoticeKind, json};

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
                spawn(life, disposal);
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
        if agent.ctx().is_ok() {
            return;
        }
        let before = agent.session().len();
        let refused = agent.followup(message()).is_err()
            && agent.wake().is_err()
            && agent.run(message()).is_err()
            && agent.inbox().append(TARGETS[0], vec![message()]).is_err()
            && agent.run_maintenance(|_| async { Ok(()) }).is_err();
        self.expect("D-05", refused && agent.session().len() == before, || format!("{agent:?} does not refuse"));
    }

    /// A fresh message, or one with the id of a known one.
    fn message(&self, life: &Life, agent: &Agent, repeat: Option<u64>) -> Arc<Message> {
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
        let known = self.before_delivery(life, agent, &id, wakes);
        let before = agent.session().len();
        let sent = match how {
            How::Followup => agent.followup(message),
            How::Steer => agent.steer(message),
            How::Inject => agent.inject(message),
            How::Quiet => agent.send(message, TARGETS[1], false),
        };
        self.after_delivery(life, agent, &id, known, before, sent.err());
    }

    /// Whether the session of an agent is announced and not disposed.
    fn is_attached(life: &Life, agent: &Agent) -> bool {
        life.ctx.root().session(agent.id()).is_some_and(|live| live.is_same(agent.session()))
    }

    fn before_delivery(&self, life: &Life, agent: &Agent, id: &str, wakes: bool) -> bool {
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
        known.unwrap_or(false)
    }

    fn after_delivery(&self, life: &Life, agent: &Agent, id: &str, known: bool, before: u64, failed: Option<Error>) {
        if !agent.session().is_publishing() {
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
                self.expect("D-08", before == agent.session().len(), || format!("the refusal of {id:?} was logged"));
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
    fn note_cancel(&self, life: &Life, agent: &Agent, keep: bool) {
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

    /// Owned runs and streams live in a task, which a switch ends early.
    fn own(self: &Rc<Self>, life: &Rc<Life>, agent: &Agent, stream: bool) {
        let message = self.message(life, agent, None);
        let id = message.id().to_string();
        // Only code of the agent's own turn or maintenance can be inside it.
        let inside = agent.state().is_ok_and(|state| state.phase != "idle");
        let known = self.before_delivery(life, agent, &id, true);
        let before = agent.session().len();
        let switch = self.switch(life.number, agent.id());
        let (world, life, agent) = (self.clone(), life.clone(), agent.clone());
        let refused = |error: Error| {
            if !(inside && *error.code() == Code::SelfWait) {
                world.after_delivery(&life, &agent, &id, known, before, Some(error));
            }
            world.with_watch(life.number, agent.id(), |watch| watch.waking.remove(&id));
        };
        if stream {
            match agent.stream(message) {
                Err(error) => return refused(error),
                Ok(mut events) => spawn(&life, async move {
                    let mut last = None;
                    let ended = std::future::poll_fn(|context| {
                        loop {
                            if switch.poll(context).is_ready() {
                                return Poll::Ready(false);
                            }
                            match events.poll(context) {
                                Poll::Ready(Some(Ok(event))) => last = Some(event),
                                Poll::Ready(_) => return Poll::Ready(true),
                                Poll::Pending => return Poll::Pending,
                            }
                        }
                    });
                    let _ = ended.await;
                }),
            }
        } else {
            match agent.run(message) {
                Err(error) => return refused(error),
                Ok(mut run) => {
                    let (world, agent, id) = (Rc::downgrade(&world), agent.clone(), id.clone());
                    let number = life.number;
                    spawn(&life, async move {
                        let result = std::future::poll_fn(|context| match run.as_mut().poll(context) {
                            Poll::Ready(result) => Poll::Ready(Some(result)),
                            Poll::Pending => switch.poll(context).map(|()| None),
                        });
                        let result = result.await;
                        let Some(world) = world.upgrade().filter(|world| world.is_alive(number)) else { return };
                        let life = world.lives.borrow().iter().find(|life| life.number == number).cloned();
                        let Some(life) = life else { return };
                        match result {
                            None => world.drop_run(&life, &agent, &id, run),
                            Some(Ok(result)) => {
                                let ended = agent.session().turn_end(result.turn);
                                world.expect("A-03", ended.as_ref() == Some(&result.reason), || format!("{result:?}"));
                            }
                            Some(Err(error)) => {
                                // A parked prompt is withdrawn, so that it cannot run behind its caller's back.
                                let withdrawn = || match agent.session().delivery(&id) {
                                    Some(Delivery::Discarded { .. }) | None => true,
                                    Some(_) => false,
                                };
                                let expected = match error.code() {
                                    Code::MessageDiscarded | Code::Disposed => true,
                                    Code::Parked => withdrawn(),
                                    _ => false,
                                };
                                world.expect("A-03", expected, || format!("a run failed: {error:?}"));
                            }
                        }
                    });
                }
            }
        }
        world.after_delivery(&life, &agent, &id, known, before, None);
    }

    fn drop_run<T>(&self, life: &Life, agent: &Agent, id: &str, run: T) {
        self.note(|| format!("drop the run of {id}"));
        let claimed = match agent.session().delivery(id) {
            Some(Delivery::Claimed { turn }) => agent.session().turn_end(turn).is_none(),
            _ => false,
        };
        if claimed {
            self.note_cancel(life, agent, true);
        }
        drop(run);
    }

    fn maintain(self: &Rc<Self>, life: &Rc<Life>, agent: &Agent, task: u64) {
        let idle = agent.state().is_ok_and(|state| state.phase == "idle");
        let (world, number, id) = (Rc::downgrade(self), life.number, agent.id().to_string());
        let started = agent.run_maintenance(move |signal| async move {
            let Some(world) = world.upgrade() else { return Ok(()) };
            let guard = host::on_signal(&world, number, &id, &signal);
            world.meddle("maintenance", &id, 30);
            match task {
                1 => return Err(Error::host("planned failure of maintenance")),
                2 => world.gate(number, &id, "maintenance").await,
                3 if host::may_panic(&world, &id) => panic!("planned panic in maintenance"),
                _ => {}
            }
            world.meddle("maintenance.end", &id, 30);
            drop(guard);
            Ok(())
        });
        match started {
            Ok(result) => spawn(life, async move { drop(result.await) }),
            Err(error) => {
                let expected = match error.code() {
                    Code::Busy => !idle,
                    code => matches!(code, Code::Disposed | Code::NotPublished),
                };
                self.expect("MNT", expected, || format!("maintenance of {agent:?} refused: {error:?}"));
            }
        }
    }

    /// Asks for the disposal of an agent.
    pub fn dispose(&self, life: &Life, agent: &Agent) -> turnwheel::runtime::LocalBoxFuture<()> {
        self.with_watch(life.number, agent.id(), |watch| {
            watch.disposing = true;
            watch.kept = Some(false);
            watch.need.clear();
        });
        agent.dispose()
    }

    fn append(&self, life: &Life, agent: &Agent, reserved: bool) {
        let publishing = agent.session().is_publishing();
        let kind = if reserved { "turn/end" } else { "sim/note" };
        let done = agent.session().append(kind, json!({"text": "a note"}));
        if !life.alive.get() {
            return;
        }
        let as_expected = match &done {
            Ok(_) => !reserved && !publishing,
            Err(error) if reserved => *error.code() == Code::ReservedEvent,
            Err(error) => publishing && *error.code() == Code::Reentrant,
        };
        self.expect("D-09", as_expected, || format!("append of {kind}, publishing {publishing}: {done:?}"));
    }

    fn compact(&self, life: &Life, agent: &Agent, keep: u64) {
        let idle = agent.state().is_ok_and(|state| state.phase == "idle") && !agent.session().is_publishing();
        let span = self.with_watch(life.number, agent.id(), |watch| {
            let nodes = &watch.fold.surface;
            let end = nodes.len().checked_sub(1 + keep as usize)?;
            let next = nodes.get(end + 1).and_then(|node| node.1.as_ref());
            let cuts = next.is_some_and(|message| matches!(message.source(), Source::Tool { .. }));
            let sources = nodes[..=end].iter().map(|node| node.0).collect::<Vec<_>>();
            (!cuts && watch.fold.turn.is_none()).then_some(sources)
        });
        let Some(sources) = span.flatten().filter(|sources| idle && !sources.is_empty()) else { return };
        let (start, end) = (sources[0], sources[sources.len() - 1]);
        let summary = Arc::new(Message::user_text(self.fresh_id(), "a summary"));
        let done = agent.session().replace_surface(summary, start, end, sources);
        self.expect("SURFACE", done.is_ok(), || format!("compaction of {agent:?}: {done:?}"));
    }

    fn listen(self: &Rc<Self>, life: &Rc<Life>, agent: &Agent, kind: u64) {
        let kind = NoticeKind::ALL[kind as usize % NoticeKind::ALL.len()];
        let (world, id, number) = (Rc::downgrade(self), agent.id().to_string(), life.number);
        let listener = move |_: &turnwheel::Notice| {
            if let Some(world) = world.upgrade().filter(|world| world.is_alive(number)) {
                world.meddle("late-listener", &id, 6);
            }
            Ok(())
        };
        let registered = match agent.ctx() {
            Ok(ctx) if kind as u64 % 2 == 0 => ctx.on(kind, listener),
            _ => life.ctx.on(kind, listener),
        };
        let Ok(registered) = registered else { return };
        let old = {
            let mut registrations = life.registrations.borrow_mut();
            registrations.push(registered);
            (registrations.len() > 3).then(|| registrations.remove(0))
        };
        if let Some(old) = old {
            drop(old.dispose());
        }
    }

    /// Asks everything; what is answered has to agree with the log.
    pub fn query(&self, life: &Life, agent: &Agent) {
        let _ = (agent.state(), life.ctx.agents().len(), agent.inbox().is_empty(), agent.ctx().is_ok());
        let session = agent.session();
        let _ = (session.history().len(), session.surface_nodes().len(), session.request_header());
        if session.is_publishing() {
            return;
        }
        let states = self.with_watch(life.number, agent.id(), |watch| {
            if !watch.session.is_same(session) {
                return Vec::new();
            }
            watch.fold.states.iter().map(|(id, state)| (id.clone(), state.clone())).collect()
        });
        for (id, state) in states.unwrap_or_default() {
            let answer = agent.receipt(id.as_str()).state();
            let right = match (&answer, &state) {
                (Some(ReceiptState::Pending { target, .. }), State::Pending(at)) => *target == TARGETS[*at],
                (Some(ReceiptState::Claimed { turn }), State::Claimed(taken)) => {
                    turn == taken && session.turn_end(*turn).is_none()
                }
                (Some(ReceiptState::Ended { turn, reason }), State::Claimed(taken)) => {
                    turn == taken && session.turn_end(*turn).as_ref() == Some(reason)
                }
                (Some(ReceiptState::Discarded), State::Discarded) => true,
                _ => false,
            };
            self.expect("RECEIPT", right, || format!("receipt of {id:?}: {answer:?}, the log says {state:?}"));
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

/// Starts a task that is nobody's doing: what a turn started may outlive it, and is not inside the next one (INI-4).
fn spawn(life: &Life, task: impl Future<Output = ()> + 'static) {
    let root = life.ctx.root();
    root.without_initiator(|| root.runtime.spawn(task));
}

impl Op {
    /// The slot it is about.
    fn subject(&self) -> u64 {
        match self {
            Op::Send { who, .. } | Op::Cancel { who, .. } | Op::Edit { who, .. } | Op::Wake { who } => *who,
            Op::Own { who, .. } | Op::Maintain { who, .. } | Op::Dispose { who } | Op::Open { who } => *who,
            Op::Fork { who, .. } | Op::Append { who, .. } | Op::Compact { who, .. } => *who,
            Op::Listener { who, .. } | Op::Query { who } => *who,
            Op::Later { op, .. } => op.subject(),
            Op::DropOne { .. } | Op::Crash { .. } | Op::Gate { .. } | Op::AllGates => 0,
            Op::Clock(_) | Op::Pump { .. } | Op::Settle => 0,
        }
    }

    /// Makes it about a slot.
    fn aim(&mut self, slot: u64) {
        match self {
            Op::Send { who, .. } | Op::Cancel { who, .. } | Op::Edit { who, .. } | Op::Wake { who } => *who = slot,
            Op::Own { who, .. } | Op::Maintain { who, .. } | Op::Dispose { who } | Op::Open { who } => *who = slot,
            Op::Fork { who, .. } | Op::Append { who, .. } | Op::Compact { who, .. } => *who = slot,
            Op::Listener { who, .. } | Op::Query { who } => *who = slot,
            Op::Later { op, .. } => op.aim(slot),
            Op::DropOne { .. } | Op::Crash { .. } | Op::Gate { .. } | Op::AllGates => {}
            Op::Clock(_) | Op::Pump { .. } | Op::Settle => {}
        }
    }
}
