//! Scenario listeners (SCENARIO.md section 6).

use crate::rules::{DoSpec, EnterItem, WhenSpec};
use crate::value::{MessageSpec, OnAbort};
use crate::world::World;
use serde_json::Value as Json;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use turnwheel::agent::{
    Notice, NoticeKind, PreStep, PreStepDecision, Recovery, RequestErrorEvent, RequestEvent, TurnStopping, Waterfall,
};
use turnwheel::events::Next;
use turnwheel::json::Value;
use turnwheel::llm::CallConfig;
use turnwheel::runtime::Signal;
use turnwheel::system_prompt::AssemblyRequest;
use turnwheel::tools::{PostDecision, PostExecute, PreDecision, PreExecute, ToolCallInfo};
use turnwheel::{Agent, Block, Context, Error, Message, Result};

/// What a dispatch tells the filters of `when`.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    agent: String,
    turn: Option<u64>,
    step: Option<u64>,
    status: Option<String>,
    kind: Option<String>,
    id: Option<String>,
    tool: Option<String>,
    call_id: Option<String>,
    source: Option<String>,
}

impl Facts {
    fn of(agent: &Agent, turn: Option<u64>, step: Option<u64>) -> Self {
        Self { agent: agent.id().as_str().into(), turn, step, ..Self::default() }
    }

    fn of_call(call: &ToolCallInfo) -> Self {
        let agent = call.agent.as_ref().map(|agent| agent.id().as_str().to_owned()).unwrap_or_default();
        let (tool, call_id) = (Some(call.name.clone()), Some(call.call_id.as_str().to_owned()));
        Self { agent, tool, call_id, ..Self::default() }
    }

    fn of_notice(notice: &Notice) -> Self {
        let mut facts = Self::default();
        if let Some(agent) = notice.agent() {
            facts.agent = agent.id().as_str().into();
        }
        match notice {
            Notice::Status { status, .. } => facts.status = Some(status.as_str().into()),
            Notice::Inserted { message, .. } | Notice::Discarded { message, .. } => {
                facts.id = Some(message.id().as_str().into());
            }
            Notice::Claimed { message, turn, .. } => {
                facts.id = Some(message.id().as_str().into());
                facts.turn = Some(*turn);
            }
            Notice::SessionStart { source, .. } => facts.source = Some(source.as_str().into()),
            Notice::Error { turn, step, .. } => (facts.turn, facts.step) = (Some(*turn), Some(*step)),
            Notice::SessionEvent { session, event, .. } => {
                facts.agent = session.id().as_str().into();
                facts.kind = Some(event.kind().into());
                let data = event.data_value();
                facts.turn = data.get("turn").and_then(Value::as_u64);
                facts.step = data.get("step").and_then(Value::as_u64);
            }
            Notice::ToolResult { result, .. } => {
                facts.tool = Some(result.call.name.clone());
                facts.call_id = Some(result.call.call_id.as_str().into());
            }
            Notice::SessionCreated { .. }
            | Notice::SessionDisposed { .. }
            | Notice::ToolsChanged { .. }
            | Notice::PromptChanged { .. }
            | Notice::ModelsChanged
            | Notice::ConfigStartFailed { .. }
            | Notice::Created { .. }
            | Notice::Disposed { .. } => {}
        }
        facts
    }

    fn match_filters(&self, when: &WhenSpec) -> bool {
        let number = |wanted: Option<u64>, given: Option<u64>| wanted.is_none() || wanted == given;
        let text = |wanted: &Option<String>, given: &Option<String>| wanted.is_none() || wanted == given;
        when.agent.as_ref().is_none_or(|agent| *agent == self.agent)
            && number(when.turn, self.turn)
            && number(when.step, self.step)
            && text(&when.status, &self.status)
            && text(&when.kind, &self.kind)
            && text(&when.id, &self.id)
            && text(&when.tool, &self.tool)
            && text(&when.call_id, &self.call_id)
            && text(&when.source, &self.source)
    }
}

/// One listener of the scenario in one lifetime.
#[derive(Clone)]
struct Listener {
    world: Weak<World>,
    index: usize,
}

/// A dispatch that reached a matching listener.
struct Hit {
    world: Rc<World>,
    index: usize,
}

impl Hit {
    fn then(&self) -> &DoSpec {
        &self.world.scenario.on[self.index].then
    }

    /// Parts 3 and 4: holds and throws.
    async fn hold_and_throw(&self, signal: &Signal) -> Result<()> {
        let then = self.then();
        if let Some(gate) = &then.gate {
            let on_abort = then.on_abort.unwrap_or(OnAbort::Ignore);
            self.world.gates.hold(gate, Some(signal), on_abort).await?;
        }
        self.throw()
    }

    /// Delegates; with `nextTwice` a second time as well, whose failure is recorded.
    async fn delegate<T: 'static>(&self, next: &Next<T>) -> Result<T> {
        let answer = next.call().await;
        if self.then().next_twice
            && let Err(error) = next.call().await
        {
            self.world.failed(&format!("listener {}", self.world.listener_name(self.index)), &error);
        }
        answer
    }

    fn throw(&self) -> Result<()> {
        self.then().throw.as_ref().map_or(Ok(()), |error| Err(error.to_core()))
    }
}

impl Listener {
    /// Counts the dispatch and, if it matches, does parts 1 and 2: records and acts.
    fn reach(&self, facts: &Facts) -> Option<Hit> {
        let world = self.world.upgrade()?;
        let spec = &world.scenario.on[self.index];
        if !facts.match_filters(&spec.when) {
            return None;
        }
        let reached = world.count(self.index);
        if spec.when.nth.is_some_and(|nth| nth != reached) {
            return None;
        }
        if let Some(name) = &spec.name {
            world.recorder.hit(&facts.agent, name, &spec.event);
        }
        let place = format!("listener {}", world.listener_name(self.index));
        world.perform_batch(&spec.then.actions, &place);
        Some(Hit { world, index: self.index })
    }
}

/// Registers the scenario's listener `index` through a context.
pub fn register(world: &Rc<World>, ctx: &Context, index: usize) -> Result<()> {
    let listener = Listener { world: Rc::downgrade(world), index };
    let event = world.scenario.on[index].event.as_str();
    match event {
        PreStep::NAME => ctx.waterfall::<PreStep, _>(move |event, next| pre_step(listener.clone(), event, next)),
        RequestEvent::NAME => {
            ctx.waterfall::<RequestEvent, _>(move |event, next| request(listener.clone(), event, next))
        }
        RequestErrorEvent::NAME => {
            ctx.waterfall::<RequestErrorEvent, _>(move |event, next| request_error(listener.clone(), event, next))
        }
        AssemblyRequest::NAME => ctx.waterfall::<AssemblyRequest, _>(move |event, next| {
            let listener = listener.clone();
            async move {
                let Some(hit) = listener.reach(&Facts::of(&event.agent, None, None)) else {
                    return next.call().await;
                };
                hit.hold_and_throw(&event.signal).await?;
                hit.delegate(&next).await
            }
        }),
        PreExecute::NAME => {
            ctx.waterfall::<PreExecute, _>(move |event, next| pre_execute(listener.clone(), event, next))
        }
        PostExecute::NAME => {
            ctx.waterfall::<PostExecute, _>(move |event, next| post_execute(listener.clone(), event, next))
        }
        "agent/turn-stopping" => ctx.on_turn_stopping(move |event| stopping(listener.clone(), event)),
        _ => {
            let kind = NoticeKind::parse(event).ok_or_else(|| Error::host(format!("unknown event {event}")))?;
            ctx.on(kind, move |notice| match listener.reach(&Facts::of_notice(notice)) {
                Some(hit) => hit.throw(),
                None => Ok(()),
            })
        }
    }
    .map(|_| ())
}

/// What `return` says has no form here: a Rust listener returns nothing that could be looked at (D-12).
async fn stopping(listener: Listener, event: Rc<TurnStopping>) -> Result<()> {
    match listener.reach(&Facts::of(&event.agent, Some(event.turn), None)) {
        Some(hit) => hit.hold_and_throw(&event.signal).await,
        None => Ok(()),
    }
}

async fn pre_step(listener: Listener, event: Rc<PreStep>, next: Next<PreStepDecision>) -> Result<PreStepDecision> {
    let Some(hit) = listener.reach(&Facts::of(&event.agent, Some(event.turn), Some(event.step))) else {
        return next.call().await;
    };
    hit.hold_and_throw(&event.signal).await?;
    let then = hit.then();
    if then.reject {
        return Ok(PreStepDecision::Reject);
    }
    if let Some(items) = &then.enter {
        let offered = event.messages.borrow().clone();
        let read = |item: &EnterItem| match item {
            EnterItem::Message(message) => message.to_core(),
            EnterItem::Offered(id) => {
                let found = offered.iter().find(|message| message.id().as_str() == id).cloned();
                found.ok_or_else(|| Error::host(format!("message {id} was not offered")))
            }
        };
        return items.iter().map(read).collect::<Result<_>>().map(PreStepDecision::Enter);
    }
    let PreStepDecision::Enter(inner) = hit.delegate(&next).await? else {
        return Ok(PreStepDecision::Reject);
    };
    let mut messages = read_all(&then.prepend)?;
    messages.extend(inner.into_iter().filter(|message| !then.drop.iter().any(|id| message.id().as_str() == id)));
    messages.extend(read_all(&then.append)?);
    Ok(PreStepDecision::Enter(messages))
}

fn read_all(messages: &[MessageSpec]) -> Result<Vec<Arc<Message>>> {
    messages.iter().map(MessageSpec::to_core).collect()
}

async fn request(listener: Listener, event: Rc<RequestEvent>, next: Next<CallConfig>) -> Result<CallConfig> {
    let Some(hit) = listener.reach(&Facts::of(&event.agent, Some(event.turn), Some(event.step))) else {
        return next.call().await;
    };
    hit.hold_and_throw(&event.signal).await?;
    let then = hit.then();
    if let Some(config) = &then.config {
        return CallConfig::from_value(&Value::from(config.clone()));
    }
    let config = hit.delegate(&next).await?;
    let mut edited = crate::record::plain(&config.to_value());
    if let Some(members) = edited.as_object_mut() {
        members.extend(then.set.clone());
        members.retain(|key, _| !then.unset.contains(key));
        members.extend(then.undefined.iter().map(|key| (key.clone(), Json::Null)));
    }
    CallConfig::from_value(&Value::from(edited))
}

async fn request_error(listener: Listener, event: Rc<RequestErrorEvent>, next: Next<Recovery>) -> Result<Recovery> {
    let Some(hit) = listener.reach(&Facts::of(&event.agent, Some(event.turn), Some(event.step))) else {
        return next.call().await;
    };
    hit.hold_and_throw(&event.signal).await?;
    if hit.then().retry { Ok(Recovery::Retry) } else { hit.delegate(&next).await }
}

async fn pre_execute(listener: Listener, event: Rc<PreExecute>, next: Next<PreDecision>) -> Result<PreDecision> {
    let Some(hit) = listener.reach(&Facts::of_call(&event.call)) else {
        return next.call().await;
    };
    hit.hold_and_throw(&event.call.signal).await?;
    match &hit.then().deny {
        Some(reason) => Ok(PreDecision::Deny(reason.clone())),
        None => hit.delegate(&next).await,
    }
}

async fn post_execute(listener: Listener, event: Rc<PostExecute>, next: Next<PostDecision>) -> Result<PostDecision> {
    let Some(hit) = listener.reach(&Facts::of_call(&event.call)) else {
        return next.call().await;
    };
    hit.hold_and_throw(&event.call.signal).await?;
    let then = hit.then();
    let added = read_all(&then.contexts)?;
    if let Some(text) = &then.block {
        return Ok(PostDecision::Block { feedback: vec![Block::Text(text.clone())], contexts: added });
    }
    if let Some(text) = &then.content {
        let content = Some(vec![Block::Text(text.clone())]);
        return Ok(PostDecision::Accept { content, value: None, contexts: added });
    }
    let mut decision = hit.delegate(&next).await?;
    match &mut decision {
        PostDecision::Accept { contexts, .. } | PostDecision::Block { contexts, .. } => contexts.extend(added),
    }
    Ok(decision)
}
