//! What a scenario can do to the system (SCENARIO.md section 7).

use crate::action::Action;
use crate::additions::{ask, wait, withdraw};
use crate::compose::choice;
use crate::doubles::ToolSpec;
use crate::scenario::{AgentSpec, OptionsSpec};
use crate::value::{MessageSpec, OnAbort};
use crate::world::{Slot, World};
use serde_json::{Value as Json, json};
use std::rc::Rc;
use std::time::Duration;
use turnwheel::json::Value;
use turnwheel::runtime::Signal;
use turnwheel::session::{EventData, InboxTarget, SurfaceOp};
use turnwheel::{CancelCause, Error, Result};

/// What came of an action.
pub enum Done {
    /// It returned this.
    Returned(Option<Json>),
    /// It is under way; the step waits for it.
    Awaited(Slot),
    /// It failed, and that is recorded.
    Failed,
}

/// Performs one action; a failure is recorded under `place`.
pub fn perform(world: &Rc<World>, action: &Action, place: &str) -> Done {
    if action.act == "batch" {
        world.perform_batch(&action.actions, place);
        return Done::Returned(None);
    }
    match act(world, action) {
        Ok(done) => done,
        Err(error) => {
            world.failed(place, &error);
            Done::Failed
        }
    }
}

fn usage(problem: String) -> Error {
    Error::host(format!("the scenario is wrong: {problem}"))
}

fn need<T>(value: Option<T>, what: &str) -> Result<T> {
    value.ok_or_else(|| usage(format!("`{what}` is missing")))
}

fn target(action: &Action) -> Result<InboxTarget> {
    need(action.text("target").and_then(InboxTarget::parse), "target")
}

fn act(world: &Rc<World>, action: &Action) -> Result<Done> {
    let id = action.text("agent").unwrap_or(world.scenario.default_agent()).to_owned();
    let agent = || world.agent(&id);
    let message = || action.message().map_err(usage).and_then(|message| message.to_core());
    let mut returned = None;
    match action.act.as_str() {
        "followup" => drop(agent()?.followup(message()?)?),
        "steer" => drop(agent()?.steer(message()?)?),
        "inject" => drop(agent()?.inject(message()?)?),
        "send" => drop(agent()?.send(message()?, target(action)?, action.flag("wakeup"))?),
        "cancel" => {
            let cause =
                action.get("cause").map_or(CancelCause::User, |cause| CancelCause::from_value(&cause.clone().into()));
            match action.flag("keepInbox") {
                true => agent()?.cancel_keep_inbox(cause),
                false => agent()?.cancel(cause),
            }
        }
        "inbox-append" => agent()?.inbox().append(target(action)?, vec![message()?])?,
        "inbox-prepend" => agent()?.inbox().prepend(target(action)?, vec![message()?])?,
        "inbox-replace" => {
            let replaced = agent()?.inbox().replace(need(action.text("replace"), "replace")?, message()?)?;
            returned = Some(json!(replaced));
        }
        "inbox-remove" => returned = Some(json!(agent()?.inbox().remove(need(action.text("remove"), "remove")?)?)),
        "inbox-splice" => {
            let inserted = action.read::<Vec<MessageSpec>>("insert").map_err(usage)?.unwrap_or_default();
            let inserted = inserted.iter().map(MessageSpec::to_core).collect::<Result<Vec<_>>>()?;
            let (start, count) = (action.number("start").unwrap_or(0.0), action.number("deleteCount").unwrap_or(0.0));
            let removed = agent()?.inbox().splice(target(action)?, start, count, inserted)?;
            returned = Some(removed.iter().map(|message| json!(message.id().as_str())).collect());
        }
        "inbox-clear" => agent()?.inbox().clear()?,
        "open" => world.gates.open(need(action.text("gate"), "gate")?),
        "when-idle" => when_idle(world, action, &id)?,
        "maintenance" => maintenance(world, action, &id)?,
        "wait-for" => {}
        "set" => set(world, action)?,
        "select" => {
            let selection = world.selections.borrow().get(&id).cloned();
            let chosen = json!({
                "provider": action.get("provider"),
                "model": action.get("model"),
                "reasoningEffort": action.get("reasoningEffort"),
            });
            need(selection, "select")?.select(choice(&chosen));
        }
        "tool-add" => {
            let spec: ToolSpec = need(action.read("tool").map_err(usage)?, "tool")?;
            world.register_tool(&world.ctx(), &spec)?;
            world.tools.borrow_mut().push(spec);
        }
        "tool-remove" => world.remove_tool(need(action.text("tool"), "tool")?)?,
        "emit" => {
            let payload = action.get("payload").cloned().unwrap_or(Json::Null);
            crate::emit::emit(&world.ctx(), &agent()?, need(action.text("event"), "event")?, &payload)?;
        }
        "session-append" => returned = Some(session_append(world, action, &id)?),
        "session-fork" => returned = Some(session_fork(world, action)?),
        "create" => {
            let spec = need(world.scenario.agent(&id).cloned(), "a declaration of the agent")?;
            return world.open_declared(&spec).map(Done::Awaited);
        }
        "fork" => return fork(world, action).map(Done::Awaited),
        "refuse" => {
            let kind = need(action.text("type"), "type")?;
            world.refusals.borrow_mut().insert(kind.to_owned(), action.number("count").unwrap_or(1.0) as u64);
        }
        "start" => {
            let ids: Vec<String> = need(action.read("agents").map_err(usage)?, "agents")?;
            world.start_configured(&ids)?;
        }
        "wake" => agent()?.wake()?,
        "ask" => ask(world, action, &id)?,
        "settled" | "durable" | "run" => wait(world, action, &id)?,
        "withdraw" => withdraw(world, action)?,
        // Whose clock is the machine's waits for the event instead.
        "elapse" => world.clock.advance(Duration::from_millis(need(action.number("ms"), "ms")? as u64)),
        "store" => world.store.refuse(action.flag("refuses")),
        "dispose" => {
            let (disposed, world) = (agent()?.dispose(), world.clone());
            let runtime = world.ctx().runtime().clone();
            runtime.spawn(async move {
                disposed.await;
                world.settled.borrow_mut().push((format!("dispose {id}"), json!("ok")));
            });
        }
        other => return Err(usage(format!("{other} is a step only"))),
    }
    Ok(Done::Returned(returned))
}

/// Reports the settlement of a named operation.
fn report(world: &World, name: &str, result: &Result<()>) {
    let settled = match result {
        Ok(()) => "ok".to_owned(),
        Err(error) => format!("failed: {}", error.message()),
    };
    world.settled.borrow_mut().push((name.to_owned(), json!(settled)));
}

fn when_idle(world: &Rc<World>, action: &Action, id: &str) -> Result<()> {
    let name = need(action.text("name"), "name")?.to_owned();
    let (idle, own) = (world.agent(id)?.when_idle(), world.clone());
    world.ctx().runtime().spawn(async move { report(&own, &name, &idle.await) });
    Ok(())
}

fn maintenance(world: &Rc<World>, action: &Action, id: &str) -> Result<()> {
    let name = need(action.text("name"), "name")?.to_owned();
    let (own, task_action, place) = (world.clone(), action.clone(), format!("maintenance {name}"));
    let on_abort = action.read::<OnAbort>("onAbort").map_err(usage)?.unwrap_or(OnAbort::Fail);
    let task = move |signal: Signal| async move {
        own.perform_batch(&task_action.actions, &place);
        if let Some(gate) = task_action.text("gate") {
            own.gates.hold(gate, Some(&signal), on_abort).await?;
        }
        task_action.text("fail").map_or(Ok(()), |message| Err(Error::host(message)))
    };
    let result = world.agent(id)?.run_maintenance(task)?;
    let own = world.clone();
    world.ctx().runtime().spawn(async move { report(&own, &name, &result.await) });
    Ok(())
}

fn set(world: &World, action: &Action) -> Result<()> {
    let kinds = ["section", "context", "variable"];
    let named = kinds.into_iter().find_map(|kind| Some((kind, action.text(kind)?)));
    let (kind, name) = need(named, "section, context or variable")?;
    let cell = need(world.text_cell(kind, name, action.text("agent")), "a declaration of the text")?;
    *cell.borrow_mut() = action.text("text").map(str::to_owned);
    Ok(())
}

fn session_append(world: &World, action: &Action, id: &str) -> Result<Json> {
    let event = Value::from(need(action.get("event").cloned(), "event")?);
    let kind = need(event.get("type").and_then(Value::as_str), "event.type")?;
    let surface_op = match event.get("surfaceOp") {
        Some(op) => Some(need(SurfaceOp::from_value(op), "a well-formed event.surfaceOp")?),
        None => None,
    };
    let seqs =
        |list: &Value| list.as_array().and_then(|list| list.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
    let sources = event.get("sourceEventSeqs").map(|list| need(seqs(list), "a list as event.sourceEventSeqs"));
    let data = event.get("data").cloned().unwrap_or(Value::Null);
    let appended = world.agent(id)?.session().append_raw(kind, data, surface_op, sources.transpose()?, false)?;
    Ok(json!(appended.seq))
}

/// A boundary as the core takes it; one below 0 lies outside every log, like one behind its end.
fn boundary(action: &Action) -> Option<u64> {
    action.number("at").map(|at| if at < 0.0 { u64::MAX } else { at as u64 })
}

fn session_fork(world: &World, action: &Action) -> Result<Json> {
    let from = need(action.text("from"), "from")?;
    let session = world.ctx().fork_session(from, boundary(action), action.text("id").map(Into::into))?;
    let types: Vec<_> = session.events_from(0).iter().map(|event| event.kind().to_owned()).collect();
    let parent = session.header().parent_session.as_ref().map(|id| id.as_str().to_owned());
    Ok(json!({ "seedLength": session.header().seed_length, "parentSession": parent, "types": types }))
}

fn fork(world: &Rc<World>, action: &Action) -> Result<Slot> {
    let (id, from) = (need(action.text("id"), "id")?, need(action.text("from"), "from")?);
    let parent = world.agent(from)?;
    let session = parent.session();
    let last_end = || {
        let events = session.events_from(0);
        events.iter().rev().find(|event| matches!(event.data, EventData::TurnEnd { .. })).map(|event| event.seq)
    };
    let seed = match boundary(action).or_else(last_end) {
        Some(at) => world.ctx().fork_seed(session, Some(at))?,
        None => Vec::new(),
    };
    let mut spec = world.scenario.agent(id).cloned().unwrap_or_else(|| AgentSpec::undeclared(id));
    spec.cwd.clone_from(&session.header().cwd);
    spec.parent_session = Some(from.to_owned());
    spec.seed_length = Some(seed.len() as u64);
    let options = action.read::<OptionsSpec>("options").map_err(usage)?;
    world.open(&spec, options, (!seed.is_empty()).then_some(seed), None)
}

/// Starts the next lifetime with one agent of this one (`resume`). A step only: it settles in between.
pub fn resume(world: &Rc<World>, action: &Action) -> Result<Slot> {
    let id = action.text("agent").unwrap_or(world.scenario.default_agent()).to_owned();
    let agent = need(world.recorder.agent(&id), "an agent to resume")?;
    match action.text("mode") {
        Some("dispose") => {
            let disposed = agent.dispose();
            world.ctx().runtime().spawn(disposed);
            world.settle();
        }
        Some("crash") => {}
        _ => return Err(usage("`mode` is crash or dispose".into())),
    }
    let mut log = agent.session().events_from(0);
    if let Some(keep) = action.number("keep") {
        log.truncate(keep as usize);
    }
    let header = agent.session().header().clone();
    world.next_lifetime()?;
    world.recorder.lifetime(&agent, world.lifetime(), log.len() as u64);
    let spec = world.scenario.agent(&id).cloned().unwrap_or_else(|| AgentSpec::undeclared(&id));
    let options = action.read::<OptionsSpec>("options").map_err(usage)?;
    world.open(&spec, options, None, Some((header, log)))
}
