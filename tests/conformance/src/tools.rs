//! The tool double (SCENARIO.md section 5).

use crate::doubles::{CallOverride, ParallelSpec, ResultSpec, ToolSpec};
use crate::value::{OnAbort, core_value};
use crate::world::World;
use serde_json::json;
use std::rc::{Rc, Weak};
use std::time::Duration;
use turnwheel::json::Value;
use turnwheel::{Block, Error, Result, Tool, ToolCall, ToolOutput};

/// The tool that a declaration stands for.
pub fn tool(world: &Rc<World>, spec: &ToolSpec) -> Tool {
    let (shared, weak) = (Rc::new(spec.clone()), Rc::downgrade(world));
    let body = move |call: ToolCall| run(weak.clone(), shared.clone(), call);
    let mut tool = Tool::new(spec.name.as_str(), body).description(spec.description.as_str());
    if let Some(parameters) = &spec.parameters {
        tool = tool.parameters(Value::from(parameters.clone()));
    }
    if !spec.validate {
        tool = tool.unchecked();
    }
    if let Some(limit) = spec.timeout_ms {
        tool = tool.timeout(Duration::from_millis(limit));
    }
    match spec.parallel.clone() {
        None | Some(ParallelSpec::Always(false)) => tool,
        Some(ParallelSpec::Always(true)) => tool.parallel(),
        Some(ParallelSpec::ByArgument(rule)) => {
            let expected = Value::from(rule.equals);
            tool.parallel_when(move |arguments| arguments.get(&rule.argument) == Some(&expected))
        }
    }
}

async fn run(world: Weak<World>, spec: Rc<ToolSpec>, call: ToolCall) -> Result<ToolOutput> {
    let world = world.upgrade().ok_or_else(|| Error::host("the scenario is over"))?;
    let id = call.call_id().as_str().to_owned();
    let own = spec.calls.get(&id).cloned().unwrap_or_else(CallOverride::default);
    world.recorder.run(&world, &call);
    world.perform_batch(own.actions.as_ref().unwrap_or(&spec.actions), &format!("tool {id}"));
    if let Some(gate) = own.gate.as_ref().or(spec.gate.as_ref()) {
        let on_abort = own.on_abort.or(spec.on_abort).unwrap_or(OnAbort::Ignore);
        let held = world.gates.hold(gate, Some(call.signal()), on_abort).await;
        attach(&own, &spec, &call)?;
        held?;
    } else {
        attach(&own, &spec, &call)?;
    }
    let output = match own.result.as_ref().or(spec.result.as_ref()) {
        None => text(""),
        Some(ResultSpec::Text(result)) => text(result),
        Some(ResultSpec::Object(result)) => {
            if let Some(error) = &result.error {
                return Err(error.to_core());
            }
            match &result.content {
                Some(blocks) => {
                    let read = |block: &serde_json::Value| Block::from_value(&Value::from(block.clone()));
                    ToolOutput::content(blocks.iter().map(read).collect())
                }
                None => text(result.text.as_deref().unwrap_or_default()),
            }
        }
    };
    Ok(match own.meta.or_else(|| spec.meta.clone()) {
        Some(meta) => output.with_meta(Value::from(meta)),
        None => output,
    })
}

fn text(text: &str) -> ToolOutput {
    ToolOutput::content(vec![Block::from_value(&core_value(json!({ "type": "text", "text": text })))])
}

/// Contexts and the mark come before a throw, too.
fn attach(own: &CallOverride, spec: &ToolSpec, call: &ToolCall) -> Result<()> {
    for message in own.contexts.as_ref().unwrap_or(&spec.contexts) {
        call.defer_context(message.to_core()?);
    }
    if own.concludes_turn.unwrap_or(spec.concludes_turn) {
        call.conclude_turn();
    }
    Ok(())
}
