//! The tools of the double.

use super::{Host, on_signal};
use std::sync::Arc;
use std::time::Duration;
use turnwheel::{Block, Context, Error, Message, Result, Tool, ToolCall, ToolOutput, json};

/// Registers them.
pub fn install(host: &Host, ctx: &Context) {
    let strict = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let loose = json!({"type": "object", "properties": {"n": {"type": "number"}}});
    let tools = [
        tool(host, "now"),
        tool(host, "gated"),
        tool(host, "par").parameters(loose).parallel_when(|arguments| arguments.get("n").is_none()),
        tool(host, "fail"),
        tool(host, "coded"),
        tool(host, "slow").timeout(Duration::from_millis(50)),
        tool(host, "attach").parallel(),
        tool(host, "conclude"),
        tool(host, "meddle"),
        tool(host, "strict").parameters(strict),
    ];
    for tool in tools {
        if let (Err(error), Some((world, _))) = (ctx.tools().register(tool), host.live()) {
            world.violate("SETUP", format!("a tool was refused: {error:?}"));
        }
    }
}

fn tool(host: &Host, name: &'static str) -> Tool {
    let host = host.clone();
    Tool::new(name, move |call| run(host.clone(), name, call))
}

async fn run(host: Host, name: &'static str, call: ToolCall) -> Result<ToolOutput> {
    let Some((world, _)) = host.live() else { return Ok(ToolOutput::value("dead")) };
    let agent = call.agent().cloned().ok_or_else(|| Error::host("no agent"))?;
    let id = agent.id().to_string();
    begins(&host, &call, &id);
    let _guard = on_signal(&world, host.number, &id, call.signal());
    host.trouble("tool.body", &id).await?;
    match name {
        "gated" => world.gate(host.number, &id, "tool.gated").await,
        "par" => {
            let waits = world.decisions.dice("tool.par", &id).steady(60);
            if waits {
                world.gate(host.number, &id, "tool.par").await;
            }
        }
        "slow" => {
            let gate = world.gate(host.number, &id, "tool.slow");
            let honours = world.decisions.dice("tool.slow", &id).steady(60);
            if honours {
                super::either(gate, call.signal().cancelled()).await;
            } else {
                gate.await;
            }
        }
        "fail" => return Err(Error::host("planned failure of a tool")),
        "coded" => return Err(Error::coded("SimError", "SIM_CODE", "planned coded failure")),
        "attach" => {
            let repeats = world.decisions.dice("tool.attach", &id).chance(25);
            let known = world.with_watch(host.number, &id, |watch| watch.fold.states.keys().next().cloned());
            let message = match known.flatten().filter(|_| repeats) {
                Some(known) => Arc::new(Message::user_text(known, "attached again")),
                None => Arc::new(Message::user_text(world.fresh_id(), "attached")),
            };
            call.defer_context(message);
        }
        "conclude" => {
            call.conclude_turn();
            world.with_watch(host.number, &id, |watch| watch.concluded = true);
        }
        "meddle" => inner(&host, &id, &agent).await,
        _ => {}
    }
    if let Some((world, _)) = host.live() {
        world.meddle("tool.end", &id, 10);
    }
    Ok(ToolOutput::content(vec![Block::Text("done".into())]))
}

/// A body begins: its call is in the log, is durable where it has to be, and has not begun before.
fn begins(host: &Host, call: &ToolCall, id: &str) {
    let Some((world, life)) = host.live() else { return };
    let facts = world.with_watch(life.number, id, |watch| {
        let seq = watch.fold.started(call.call_id());
        (seq, seq.is_some_and(|seq| watch.bodies.insert(seq)))
    });
    let Some((Some(seq), first)) = facts else {
        return world.violate("P1", format!("a body of {id:?} runs without its tool/call"));
    };
    world.expect("TOOL-ONCE", first, || format!("the body of call {:?} of {id:?} runs twice", call.call_id()));
    if life.effects_wait {
        let durable = world.disk.durable(id);
        world.expect("A-04", durable > seq, || format!("a body of {id:?} runs, its call {seq} is not stored"));
    }
}

/// A tool that waits for others, or for itself, which has to fail at once (D-18).
async fn inner(host: &Host, id: &str, agent: &turnwheel::Agent) {
    let Some((world, life)) = host.live() else { return };
    world.meddle("tool.meddle", id, 60);
    let choice = world.decisions.dice("tool.inner", id).below(4);
    match choice {
        1 => {
            let refused = agent.when_idle().await.is_err();
            world.expect("D-18", refused || agent.is_disposed(), || format!("{id:?} waits for itself"));
        }
        2 => world.dispose(&life, agent).await,
        3 => {
            // Waiting goes up only, or two agents may wait for each other.
            let above = world.slot_of(id) + 1;
            let count = world.slots.borrow().len() as u64;
            let other = if above < count { world.agent(above) } else { None };
            if let Some((_, other)) = other {
                let gate = world.gate(host.number, id, "tool.other");
                super::either(other.when_idle(), gate).await;
            }
        }
        _ => {}
    }
}
