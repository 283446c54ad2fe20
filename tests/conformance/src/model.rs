//! The model double: plays scripted responses, holds at gates, and records what it was asked (SCENARIO.md section 4).

use crate::doubles::ResponseSpec;
use crate::gates::Gates;
use crate::scenario::{ModelSpec, ProviderSpec};
use crate::value::{OnAbort, core_value};
use crate::world::World;
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use turnwheel::llm::{Adapter, Chunk, ChunkStream, ModelInfo, ModelRequest};
use turnwheel::runtime::{LocalBoxFuture, Signal};
use turnwheel::{Error, Result};

/// Serves one provider route.
pub struct ModelDouble {
    world: Weak<World>,
    models: HashMap<String, ModelSpec>,
}

impl ModelDouble {
    /// The double of a route.
    pub fn new(world: &Rc<World>, provider: &ProviderSpec) -> Self {
        Self { world: Rc::downgrade(world), models: provider.models.clone() }
    }
}

impl Adapter for ModelDouble {
    fn model_info(&self, _provider: &str, model: &str, _signal: &Signal) -> LocalBoxFuture<Result<ModelInfo>> {
        let spec = self.models.get(model).cloned().unwrap_or_default();
        let info = ModelInfo {
            context_window: spec.context_window,
            default_max_tokens: spec.max_tokens,
            efforts: spec.efforts,
            default_effort: spec.effort,
            input_modalities: None,
        };
        Box::pin(std::future::ready(Ok(info)))
    }

    fn stream(&self, request: ModelRequest) -> ChunkStream {
        let failed =
            |message: String| Playback { chunks: vec![], end: Some(Error::host(message)), ..Playback::empty() };
        let Some(world) = self.world.upgrade() else {
            return Box::pin(failed("the scenario is over".into()));
        };
        world.recorder.request(&world, &request);
        let agent = request.session_id.as_ref().map_or("", |id| id.as_str());
        let playback = match world.next_response(agent) {
            Some(response) => Playback::new(&response, world.gates.clone(), request.signal.clone()),
            None => Err(format!("the script of {agent} has no response left")),
        };
        Box::pin(playback.unwrap_or_else(|problem| {
            world.problem(problem.clone());
            failed(problem)
        }))
    }
}

/// One response as it is being played.
struct Playback {
    chunks: Vec<Chunk>,
    /// How the stream fails behind the last chunk.
    end: Option<Error>,
    gates_at: HashMap<usize, String>,
    gates: Gates,
    signal: Signal,
    on_abort: OnAbort,
    position: usize,
    hold: Option<LocalBoxFuture<Result<()>>>,
    done: bool,
}

impl Playback {
    fn empty() -> Self {
        Self {
            chunks: Vec::new(),
            end: None,
            gates_at: HashMap::new(),
            gates: Gates::default(),
            signal: Signal::new(),
            on_abort: OnAbort::Fail,
            position: 0,
            hold: None,
            done: false,
        }
    }

    fn new(response: &ResponseSpec, gates: Gates, signal: Signal) -> Result<Self, String> {
        let read = |json: Json| {
            let chunk = Chunk::from_value(&core_value(json.clone()));
            chunk.ok_or_else(|| format!("not a chunk: {json}"))
        };
        let chunks = expand(response).into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let mut gates_at = HashMap::new();
        for (position, gate) in &response.gates {
            let reached = position.parse().ok().filter(|position| *position <= chunks.len());
            let position = reached.ok_or_else(|| format!("there is no gate position {position:?}"))?;
            gates_at.insert(position, gate.clone());
        }
        let end = response.throw.as_ref().map(|error| error.to_core());
        let on_abort = response.on_abort.unwrap_or(OnAbort::Fail);
        Ok(Self { chunks, end, gates_at, gates, signal, on_abort, ..Self::empty() })
    }
}

impl futures_core::Stream for Playback {
    type Item = Result<Chunk>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.done {
            return Poll::Ready(None);
        }
        if this.hold.is_none()
            && let Some(gate) = this.gates_at.remove(&this.position)
        {
            this.hold = Some(Box::pin(this.gates.hold(&gate, Some(&this.signal), this.on_abort)));
        }
        if let Some(hold) = &mut this.hold {
            let Poll::Ready(released) = hold.as_mut().poll(context) else {
                return Poll::Pending;
            };
            this.hold = None;
            if let Err(error) = released {
                this.done = true;
                return Poll::Ready(Some(Err(error)));
            }
        }
        let chunk = this.chunks.get(this.position).cloned();
        this.position += 1;
        match chunk {
            Some(chunk) => Poll::Ready(Some(Ok(chunk))),
            None => {
                this.done = true;
                Poll::Ready(this.end.take().map(Err))
            }
        }
    }
}

/// The chunks a response stands for.
fn expand(response: &ResponseSpec) -> Vec<Json> {
    if let Some(chunks) = &response.chunks {
        return chunks.clone();
    }
    let mut blocks = Vec::new();
    if let Some(text) = &response.reasoning {
        blocks.push(("reasoning", json!({ "text": text }), json!({ "type": "reasoning", "text": text })));
    }
    if let Some(text) = &response.text {
        blocks.push(("text", json!({ "text": text }), json!({ "type": "text", "text": text })));
    }
    for call in &response.calls {
        let mut delta = json!({});
        let mut block = json!({ "type": "tool-call" });
        for (key, value) in [("id", &call.id), ("name", &call.name)] {
            if let Some(value) = value {
                delta[key] = json!(value);
                block[key] = json!(value);
            }
        }
        delta["argumentsDelta"] = json!(call.arguments);
        block["arguments"] = json!(call.arguments);
        blocks.push(("tool-call", delta, block));
    }
    let broken = response.error.is_some() || response.aborted.is_some() || response.throw.is_some();
    let count = blocks.len();
    let mut chunks = Vec::new();
    for (index, (kind, members, block)) in blocks.into_iter().enumerate() {
        chunks.push(json!({ "type": "block-start", "index": index, "blockType": kind }));
        let mut delta = json!({ "type": format!("{kind}-delta"), "index": index });
        for (key, value) in members.as_object().into_iter().flatten() {
            delta[key.as_str()] = value.clone();
        }
        chunks.push(delta);
        if !(broken && index + 1 == count) {
            chunks.push(json!({ "type": "block-end", "index": index, "block": block }));
        }
    }
    if let Some(usage) = &response.usage {
        chunks.push(json!({ "type": "usage", "usage": usage }));
    }
    chunks.extend(finish(response));
    chunks
}

fn finish(response: &ResponseSpec) -> Option<Json> {
    if response.throw.is_some() {
        return None;
    }
    let reason = match (&response.error, &response.aborted, &response.finish) {
        (Some(failure), _, _) => json!({ "kind": "error", "failure": failure }),
        (None, Some(failure), _) => json!({ "kind": "aborted", "failure": failure }),
        (None, None, Some(Json::Null)) => return None,
        (None, None, Some(kind)) => json!({ "kind": kind }),
        (None, None, None) if response.calls.is_empty() => json!({ "kind": "stop" }),
        (None, None, None) => json!({ "kind": "tool-calls" }),
    };
    let mut chunk = json!({ "type": "finish", "reason": reason });
    if let Some(state) = &response.replay_state {
        chunk["replayState"] = state.clone();
    }
    Some(chunk)
}
