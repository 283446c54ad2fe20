//! What plug-ins do: events of their own, compactions, listeners, questions.

use crate::fold::State;
use crate::watch::TARGETS;
use crate::world::{Life, World};
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::agent::ReceiptState;
use turnwheel::message::Source;
use turnwheel::{Agent, Code, Message, NoticeKind, json};

impl World {
    pub(crate) fn append(&self, life: &Life, agent: &Agent, reserved: bool) {
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

    pub(crate) fn compact(&self, life: &Life, agent: &Agent, keep: u64) {
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

    pub(crate) fn listen(self: &Rc<Self>, life: &Rc<Life>, agent: &Agent, kind: u64) {
        let kind = NoticeKind::ALL[kind as usize % NoticeKind::ALL.len()];
        let (world, id, number) = (Rc::downgrade(self), agent.id().to_string(), life.number);
        let listener = move |_: &turnwheel::Notice| {
            if let Some(world) = world.upgrade().filter(|world| world.is_alive(number)) {
                world.meddle("late-listener", &id, 6);
            }
            Ok(())
        };
        let registered = match agent.ctx() {
            Ok(ctx) if kind as usize & 1 == 0 => ctx.on(kind, listener),
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
        let parked = agent.state().map(|state| state.parked).unwrap_or_default();
        for (id, state) in states.unwrap_or_default() {
            let answer = agent.receipt(id.as_str()).state();
            let right = match (&answer, &state) {
                (Some(ReceiptState::Pending { target, parked: why }), State::Pending(at)) => {
                    let is_why = |why| {
                        let asked = self.with_watch(life.number, agent.id(), |watch| watch.is_parked_for(&id, why));
                        asked.unwrap_or(true)
                    };
                    let listed = parked.iter().any(|parked| parked.as_str() == id);
                    *target == TARGETS[*at] && why.is_some() == listed && why.as_ref().is_none_or(is_why)
                }
                (Some(ReceiptState::Claimed { turn, .. }), State::Claimed(taken)) => {
                    turn == taken && session.turn_end(*turn).is_none()
                }
                (Some(ReceiptState::Ended { turn, reason }), State::Claimed(taken)) => {
                    turn == taken && session.turn_end(*turn).as_ref() == Some(reason)
                }
                (Some(ReceiptState::Discarded { .. }), State::Discarded) => true,
                _ => false,
            };
            self.expect("RECEIPT", right, || format!("receipt of {id:?}: {answer:?}, the log says {state:?}"));
        }
    }
}
