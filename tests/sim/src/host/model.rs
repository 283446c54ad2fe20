//! The double of a model. It looks at what it is sent before it answers.

use super::Host;
use crate::fold::unsendable;
use crate::world::{Life, World};
use futures_core::Stream;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};
use turnwheel::llm::{Adapter, Chunk, ChunkStream, Failure, FinishReason, ModelInfo, ModelRequest};
use turnwheel::message::Usage;
use turnwheel::runtime::{LocalBoxFuture, Signal};
use turnwheel::session::EventData;
use turnwheel::{Error, Result};

/// Serves the route `sim`.
pub struct Model {
    /// Where decisions come from.
    pub host: Host,
}

impl Adapter for Model {
    fn model_info(&self, _: &str, _: &str, _: &Signal) -> LocalBoxFuture<Result<ModelInfo>> {
        let host = self.host.clone();
        Box::pin(async move {
            let mut info = ModelInfo::default();
            let Some((world, life)) = host.live() else { return Ok(info) };
            // The port does not tell whose request this is; the ambient initiator does (INI-6).
            let Some(id) = life.ctx.root().current_initiator().map(|agent| agent.id().to_string()) else {
                world.violate("INI", "model info is asked for outside any agent's turn");
                return Ok(info);
            };
            let (waits, fails, window) = {
                let mut dice = world.decisions.dice("model.info", &id);
                (dice.chance(4), dice.chance(2), dice.chance(5))
            };
            if waits {
                world.gate(host.number, &id, "model.info").await;
            }
            info.context_window = window.then_some(1_000);
            if fails { Err(Error::host("planned failure of model info")) } else { Ok(info) }
        })
    }

    fn stream(&self, request: ModelRequest) -> ChunkStream {
        let id = request.session_id.as_ref().map_or_else(String::new, ToString::to_string);
        let mut items = VecDeque::new();
        if let Some((world, life)) = self.host.live() {
            inspect(&world, &life, &id, &request);
            world.meddle("model.stream", &id, 6);
            let panics = super::may_panic(&world, &id);
            assert!(!panics, "planned panic of the adapter");
            items = answer(&world, &id);
        } else {
            items.push_back(Item::Chunk(Chunk::Finish { reason: FinishReason::Stop, replay_state: None }));
        }
        Box::pin(Answer { host: self.host.clone(), id, items, signal: request.signal, waiting: None })
    }
}

/// P1, P2 and A-04, at the moment an effect happens.
fn inspect(world: &Rc<World>, life: &Life, id: &str, request: &ModelRequest) {
    let messages: Vec<_> = request.messages.iter().collect();
    if let Some(what) = unsendable(messages.iter()) {
        world.violate("P2", format!("{id:?} sends what a provider refuses: {what}"));
    }
    let facts = world.with_watch(life.number, id, |watch| {
        let same = messages.iter().eq(watch.fold.history());
        let header = watch.fold.header.as_deref() == Some(&*request.header);
        let events = watch.session.events_from(0);
        let intent = events.iter().rev().find(|event| {
            event.surface_op.is_some()
                || matches!(
                    event.data,
                    EventData::StepStart { .. } | EventData::RequestHeader { .. } | EventData::RequestContext(_)
                )
        });
        (same, header, intent.map_or(0, |event| event.seq + 1), watch.fold.step.is_some())
    });
    let Some((same, header, intent, in_step)) = facts else {
        return world.violate("P1", format!("a request of {id:?}, which nobody announced"));
    };
    world.expect("P1", same, || format!("{id:?} sends other messages than its log derives"));
    world.expect("P1", header, || format!("{id:?} sends another header than its log holds"));
    world.expect("P1", in_step, || format!("{id:?} sends a request outside a step"));
    world.expect("P3", !request.signal.is_cancelled(), || format!("{id:?} sends a request after a cancel"));
    if life.effects_wait {
        let durable = world.disk.durable(id);
        world.expect("A-04", durable >= intent, || format!("{id:?} sends with {durable} of {intent} events stored"));
    }
}

enum Item {
    Chunk(Chunk),
    Wait { honours: bool },
    Meddle,
    Throw,
    Panic,
}

/// What the model says.
fn answer(world: &Rc<World>, id: &str) -> VecDeque<Item> {
    let mut dice = world.decisions.dice("model.answer", id);
    let mut items = VecDeque::new();
    let calls = if dice.steady(60) { 1 + dice.below(4) } else { 0 };
    if dice.chance(25) {
        items.push_back(Item::Chunk(Chunk::ReasoningDelta { index: 9, text: "hm".into() }));
    }
    if dice.chance(10) {
        items.push_back(Item::Meddle);
    }
    if calls == 0 || dice.chance(40) {
        items.push_back(Item::Chunk(Chunk::TextDelta { index: 0, text: "an answer".into() }));
    }
    if dice.chance(20) {
        items.push_back(Item::Wait { honours: dice.chance(70) });
    }
    for call in 0..calls {
        let (tool, arguments) = TOOLS[dice.below(TOOLS.len() as u64) as usize];
        // Ids repeat across steps, as those of some providers do.
        let call_id = dice.chance(60).then(|| format!("c{call}-{}", world.events.get()));
        items.push_back(Item::Chunk(Chunk::ToolCallDelta {
            index: 20 + call,
            id: call_id,
            name: Some(tool.into()),
            arguments_delta: arguments.into(),
        }));
    }
    if dice.chance(15) {
        items.push_back(Item::Wait { honours: dice.chance(70) });
    }
    if dice.chance(30) {
        let usage = Usage { input_tokens: 3, output_tokens: 5, ..Usage::default() };
        items.push_back(Item::Chunk(Chunk::Usage(usage)));
    }
    if dice.chance(5) {
        items.push_back(Item::Throw);
    }
    if dice.chance(1) {
        items.push_back(Item::Panic);
    }
    if dice.chance(8) {
        items.push_back(Item::Meddle);
    }
    let failure = || Failure::new("RATE_LIMIT", "planned failure of the model");
    let reason = match dice.below(100) {
        0..8 if dice.chance(100) => Some(FinishReason::error(failure())),
        8..12 if dice.chance(100) => Some(FinishReason::aborted(failure())),
        12..20 if dice.chance(100) => Some(FinishReason::MaxTokens),
        20..25 if dice.chance(100) => None,
        25..50 => Some(FinishReason::ToolCalls),
        _ => Some(FinishReason::Stop),
    };
    if let Some(reason) = reason {
        items.push_back(Item::Chunk(Chunk::Finish { reason, replay_state: None }));
    }
    items
}

const TOOLS: [(&str, &str); 13] = [
    ("now", "{}"),
    ("gated", "{}"),
    ("par", "{}"),
    ("par", "{\"n\":1}"),
    ("par", ""),
    ("fail", "{}"),
    ("coded", "null"),
    ("slow", "{}"),
    ("attach", "{}"),
    ("conclude", "{}"),
    ("meddle", "{}"),
    ("strict", "{\"path\":5}"),
    ("nope", "{not json"),
];

struct Answer {
    host: Host,
    id: String,
    items: VecDeque<Item>,
    signal: Signal,
    waiting: Option<LocalBoxFuture<()>>,
}

impl Stream for Answer {
    type Item = Result<Chunk>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Option<Result<Chunk>>> {
        let this = &mut *self;
        loop {
            if let Some(waiting) = &mut this.waiting {
                if waiting.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                this.waiting = None;
            }
            let Some((world, life)) = this.host.live() else { return Poll::Ready(None) };
            match this.items.pop_front() {
                None => return Poll::Ready(None),
                Some(Item::Chunk(chunk)) => return Poll::Ready(Some(Ok(chunk))),
                Some(Item::Throw) => return Poll::Ready(Some(Err(Error::host("planned failure of the stream")))),
                Some(Item::Panic) => panic!("planned panic of the stream"),
                Some(Item::Meddle) => world.meddle("model.chunk", &this.id, 60),
                Some(Item::Wait { honours }) => {
                    let gate = world.gate(life.number, &this.id, "model.chunk");
                    let signal = this.signal.clone();
                    this.waiting = Some(if honours {
                        Box::pin(async move {
                            super::either(gate, signal.cancelled()).await;
                        })
                    } else {
                        Box::pin(gate)
                    });
                }
            }
        }
    }
}
