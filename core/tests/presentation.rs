//! How tools are presented to the model: DEF-09, SYS-12.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{noop, open, results, settle};
use std::cell::Cell;
use std::rc::Rc;
use turnwheel::llm::adapters::Scripted;
use turnwheel::message::Block;
use turnwheel::system_prompt::{ToolOrder, UNLISTED_TOOLS};
use turnwheel::tools::{PreExecute, Presentation, RUN_CODE};
use turnwheel::{Agent, Code, Context, Tool, ToolOutput, json, texts};

/// What runs programs here: a program is the name of the one tool it calls.
fn runner() -> Tool {
    Tool::new(RUN_CODE, |call| async move {
        let answer = call.call(call.text("program")?, json!({})).await?;
        Ok(ToolOutput::value(answer.content.iter().filter_map(Block::text).collect::<String>()))
    })
    .parameters(json!({"type": "object", "properties": {"program": {"type": "string"}}, "required": ["program"]}))
}

fn weather() -> Tool {
    Tool::new("weather", |_| async { Ok(ToolOutput::value("sunny")) })
        .description("Says {{nothing}} of tomorrow")
        .output(json!({"type": "string"}))
}

/// What the model was told, call by call.
fn answers(agent: &Agent) -> Vec<String> {
    let text = |block: &Block| match block {
        Block::ToolResult { content, .. } => content.iter().filter_map(Block::text).collect(),
        _ => String::new(),
    };
    let told = |event: &std::sync::Arc<turnwheel::session::Event>| match &event.data {
        turnwheel::EventData::ToolResult { message, .. } => {
            Some(message.content().iter().map(text).collect::<String>())
        }
        _ => None,
    };
    agents::events(agent).iter().filter_map(told).collect()
}

/// The names of the tools sent, and the sections between order 99 and 199.
fn sent(ctx: &Context, agent: &Agent) -> (Vec<String>, Vec<(String, f64)>) {
    let signal = turnwheel::runtime::Signal::new();
    let assembly = ctx.runtime().block_on(turnwheel::system_prompt::assemble(ctx.root(), agent, &signal));
    let assembly = assembly.expect("assembled");
    turnwheel::system_prompt::render_system(&assembly).expect("a tool's own words are no prompt variables");
    let names = assembly.tools.iter().map(|tool| tool.name().to_owned()).collect();
    (names, assembly.sections.iter().map(|section| (section.name.clone(), section.order)).collect())
}

fn guided() -> Vec<(String, f64)> {
    vec![("tools:code".into(), 99.0), ("tools:code-tools".into(), 100.0)]
}

#[test]
fn def_9_the_nearest_declaration_along_the_chain_wins_and_two_in_one_scope_conflict() {
    let ctx = Context::new();
    let tools = ctx.tools();
    assert_eq!(tools.presentation(), Presentation::Native);
    let global = tools.present(Presentation::Code).expect("declared");
    assert_eq!(tools.present(Presentation::Both).expect_err("refused").code(), &Code::DuplicateName);
    let scope = ctx.new_scope().expect("a scope");
    assert_eq!(scope.ctx().tools().presentation(), Presentation::Code);
    let near = scope.ctx().tools().present(Presentation::Native).expect("another scope");
    assert_eq!(scope.ctx().tools().presentation(), Presentation::Native);
    near.dispose();
    assert_eq!(scope.ctx().tools().presentation(), Presentation::Code);
    global.dispose();
    assert_eq!(scope.ctx().tools().presentation(), Presentation::Native);
    assert_eq!(tools.register(noop(RUN_CODE)).expect_err("reserved").code(), &Code::InvalidArgument);
    assert_eq!(tools.register_runner(noop("run")).expect_err("another name").code(), &Code::InvalidArgument);
}

#[test]
fn def_9_in_code_mode_a_direct_call_is_refused_before_policy_with_a_hint_and_a_program_may_call() {
    let model = Scripted::new()
        .calls([("k1", "weather", "{}"), ("k2", "nothing", "{}"), ("k3", RUN_CODE, "{\"program\": \"weather\"}")])
        .text("done");
    let ctx = agents::context(model);
    ctx.tools().register(weather()).expect("registered");
    ctx.tools().register_runner(runner()).expect("registered");
    ctx.tools().present(Presentation::Code).expect("declared");
    let asked = Rc::new(std::cell::RefCell::new(Vec::new()));
    let heard = asked.clone();
    ctx.waterfall::<PreExecute, _>(move |event, next| {
        heard.borrow_mut().push(event.call.name.clone());
        async move { next.call().await }
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    let answers = answers(&agent);
    let hint = format!("{} \"weather\" {}", texts::UNKNOWN_TOOL, texts::CODE_ONLY_HINT);
    assert_eq!(answers[0], hint);
    assert_eq!(answers[1], format!("{} \"nothing\"", texts::UNKNOWN_TOOL), "what is not there gets no hint");
    assert_eq!(answers[2], "sunny");
    assert_eq!(*asked.borrow(), ["nothing", RUN_CODE, "weather"], "policy never saw the refused call");
    let codes: Vec<_> = results(&agent).into_iter().map(|(_, code)| code).collect();
    assert_eq!(codes[..2], ["UNKNOWN_TOOL", "UNKNOWN_TOOL"]);
}

#[test]
fn def_9_and_sys_12_each_mode_shows_its_tools_and_only_the_modes_with_programs_have_guidance() {
    let ctx = agents::context(agents::hello());
    ctx.tools().register(weather()).expect("registered");
    ctx.tools().register_runner(runner()).expect("registered");
    let (native, code, both) = (open(&ctx, "native"), open(&ctx, "code"), open(&ctx, "both"));
    let present = |agent: &Agent, mode| agent.ctx().expect("live").tools().present(mode).expect("declared");
    present(&code, Presentation::Code);
    present(&both, Presentation::Both);
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(sent(&ctx, &native), (names(&["weather"]), vec![]));
    assert_eq!(sent(&ctx, &code), (names(&[RUN_CODE]), guided()));
    assert_eq!(sent(&ctx, &both), (names(&[RUN_CODE, "weather"]), guided()));
    // The order knows the runner only where it is shown.
    let order = |names: &[&str]| ToolOrder::listed(names.iter().map(|name| (*name).to_owned()).collect()).expect("ok");
    ctx.prompt().set_tool_order(order(&["weather", UNLISTED_TOOLS]));
    assert_eq!(sent(&ctx, &both).0, ["weather", RUN_CODE]);
    // Its author's own words take the place of ours.
    ctx.prompt().section("tools:code", 99.0, "Write Python.").expect("registered");
    let signal = turnwheel::runtime::Signal::new();
    let assembly = ctx.runtime().block_on(turnwheel::system_prompt::assemble(ctx.root(), &code, &signal));
    let text = turnwheel::system_prompt::render_system(&assembly.expect("assembled")).expect("rendered");
    let text = text.expect("there is some");
    assert!(text.starts_with("Write Python.") && text.contains("\"output\":{\"type\":\"string\"}"), "{text}");
}

#[test]
fn def_9_programs_alone_without_anything_that_runs_them_fail_the_turn_with_what_to_do() {
    let ctx = agents::context(agents::hello());
    ctx.tools().present(Presentation::Code).expect("declared");
    let agent = open(&ctx, "a");
    let told = Rc::new(Cell::new(false));
    let flag = told.clone();
    ctx.on(turnwheel::NoticeKind::Error, move |notice| {
        if let turnwheel::Notice::Error { error, .. } = notice {
            flag.set(error.code() == &Code::NotRegistered && error.message().contains("run_code runner"));
        }
        Ok(())
    })
    .expect("registered");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    assert!(told.get());
    assert_eq!(agents::ends(&agent), ["error"]);
}
