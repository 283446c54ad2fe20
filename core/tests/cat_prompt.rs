//! The system prompt and runtime contexts: data.md section 23. Named after the ids.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{ends, hello, noop, open, settle, user_messages};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use turnwheel::llm::ToolSchema;
use turnwheel::system_prompt::{Assembly, AssemblyRequest, ContextText, PromptText, ToolOrder, UNLISTED_TOOLS};
use turnwheel::{Agent, Code, Context, json};

fn fresh() -> (Context, Agent) {
    let ctx = agents::context(hello());
    let agent = open(&ctx, "a");
    (ctx, agent)
}

/// The assembly of the next step, and its system text.
fn assembled(ctx: &Context, agent: &Agent) -> turnwheel::Result<(Assembly, Option<String>)> {
    let signal = turnwheel::runtime::Signal::new();
    let assembly = ctx.runtime().block_on(turnwheel::system_prompt::assemble(ctx.root(), agent, &signal))?;
    let system = turnwheel::system_prompt::render_system(&assembly)?;
    Ok((assembly, system.map(|text| text.to_string())))
}

fn system(ctx: &Context, agent: &Agent) -> String {
    assembled(ctx, agent).expect("assembled").1.unwrap_or_default()
}

fn failing(ctx: &Context, agent: &Agent) -> (Code, String) {
    let error = assembled(ctx, agent).map(drop).expect_err("refused");
    (error.code().clone(), error.message().to_owned())
}

#[test]
fn sys_1_and_7_sections_sort_by_order_ties_stay_and_empty_ones_leave_no_line() {
    let (ctx, agent) = fresh();
    for (name, order, text) in [("c", 2.0, "C"), ("a", 1.0, "A"), ("d", 2.0, "D"), ("e", 1.5, ""), ("w", 3.0, "  ")] {
        ctx.prompt().section(name, order, text).expect("registered");
    }
    assert_eq!(system(&ctx, &agent), "A\n\nC\n\nD\n\n  ");
    for order in [f64::NAN, f64::INFINITY] {
        assert_eq!(ctx.prompt().section("bad", order, "x").expect_err("refused").code(), &Code::InvalidPrompt);
    }
}

#[test]
fn sys_2_and_3_persona_and_identity_have_their_places_and_a_shadowed_function_is_not_called() {
    let (ctx, agent) = fresh();
    ctx.prompt().section("rest", 5.0, "rest").expect("registered");
    assert_eq!(system(&ctx, &agent), "rest", "no words of ours unless asked for (D-24)");
    let persona = ctx.prompt().persona("").expect("registered");
    assert_eq!(system(&ctx, &agent), "rest", "an empty persona leaves no line");
    persona.dispose();
    let called = Rc::new(Cell::new(false));
    let flag = called.clone();
    let global = PromptText::dynamic(move |_| {
        flag.set(true);
        Ok(Some("global".into()))
    });
    ctx.prompt().persona(global).expect("registered");
    ctx.prompt().identity().expect("registered");
    let own = agent.ctx().expect("live");
    own.prompt().persona("own").expect("shadows");
    let text = system(&ctx, &agent);
    assert!(text.ends_with("\n\nown\n\nrest") && text.starts_with("You are"), "{text}");
    assert!(!called.get());
    for (name, order) in [("before", -100.5), ("between", -50.0), ("after", 0.5)] {
        ctx.prompt().section(name, order, name).expect("registered");
    }
    let text = system(&ctx, &agent);
    assert!(text.starts_with("before\n\nYou are") && text.ends_with("\n\nbetween\n\nown\n\nafter\n\nrest"), "{text}");
    assert_eq!(own.prompt().persona("twice").expect_err("taken").code(), &Code::DuplicateName);
}

#[test]
fn sys_4_a_complete_section_stands_alone_whatever_listeners_do_and_two_are_an_error() {
    let (ctx, agent) = fresh();
    let computed = Rc::new(Cell::new(false));
    let flag = computed.clone();
    let other = PromptText::dynamic(move |_| {
        flag.set(true);
        Ok(Some("other".into()))
    });
    ctx.prompt().section("other", 1.0, other).expect("registered");
    ctx.prompt().complete_section("all", 2.0, "all of {{model}}").expect("registered");
    ctx.waterfall::<AssemblyRequest, _>(|_, next| async move {
        let mut assembly = next.call().await?;
        assembly.sections.clear();
        assembly.tools.push(std::sync::Arc::new(ToolSchema::new("added", "", json!({"type": "object"}))));
        Ok(assembly)
    })
    .expect("registered");
    let (assembly, text) = assembled(&ctx, &agent).expect("assembled");
    assert_eq!(text.as_deref(), Some("all of m"));
    assert!(computed.get(), "the others are still computed");
    assert_eq!(assembly.tools.len(), 1, "tools are the listener's to change");
    ctx.prompt().complete_section("too", 3.0, "x").expect("registered");
    assert_eq!(failing(&ctx, &agent).0, Code::InvalidPrompt);
}

#[test]
fn sys_5_references_are_strict_and_inserted_text_is_not_scanned_again() {
    let (ctx, agent) = fresh();
    ctx.prompt().variable("name", "{{model}}").expect("registered");
    ctx.prompt().variable("unset", PromptText::dynamic(|_| Ok(None))).expect("registered");
    let text: Rc<RefCell<String>> = Rc::default();
    let given = text.clone();
    ctx.prompt().section("s", 1.0, PromptText::dynamic(move |_| Ok(Some(given.borrow().clone())))).expect("registered");
    let put = |template: &str| *text.borrow_mut() = template.to_owned();
    put("{{name}} and {{ alone");
    assert_eq!(system(&ctx, &agent), "{{model}} and {{ alone");
    for bad in ["{{unknown}}", "{{constructor}}", "{{ name }}", "{{unset}}", "{{}}", "{{Name}}"] {
        put(bad);
        assert_eq!(failing(&ctx, &agent).0, Code::InvalidPrompt, "{bad}");
    }
    for bad in ["", "A", "a-b", "1a"] {
        assert_eq!(ctx.prompt().variable(bad, "x").expect_err("refused").code(), &Code::InvalidPrompt, "{bad}");
    }
}

#[test]
fn sys_6_every_variable_is_evaluated_at_every_assembly_and_the_nearest_wins() {
    let (ctx, agent) = fresh();
    let count = Rc::new(Cell::new(0));
    let counted = count.clone();
    let counting = PromptText::dynamic(move |_| {
        counted.set(counted.get() + 1);
        Ok(Some("x".into()))
    });
    ctx.prompt().variable("unused", counting).expect("registered");
    ctx.prompt().variable("place", "global").expect("registered");
    agent.ctx().expect("live").prompt().variable("place", "own").expect("registered");
    ctx.prompt().section("s", 1.0, "{{provider}} {{model}} {{place}}").expect("registered");
    assert_eq!(system(&ctx, &agent), "fake m own");
    system(&ctx, &agent);
    assert_eq!(count.get(), 2);
    let builder = ctx.agent("b").provider("fake").model("m").cwd("/work/here");
    let there = ctx.runtime().block_on(builder.create()).expect("created").agent().clone();
    let own = there.ctx().expect("live");
    own.prompt().section("s", 1.0, "{{provider}} {{model}} in {{cwd}}").expect("shadows");
    assert_eq!(system(&ctx, &there), "fake m in /work/here");
    let broken = PromptText::dynamic(|_| Err(turnwheel::Error::host("broken provider")));
    ctx.prompt().variable("broken", broken).expect("registered");
    assert_eq!(failing(&ctx, &agent).1, "broken provider", "even if unused");
}

#[test]
fn host_7_names_sort_by_utf_16_code_units() {
    let (ctx, agent) = fresh();
    // U+1F600 begins with the unit D83D, which is less than FF61, although its code point is larger.
    for name in ["\u{ff61}", "\u{1f600}"] {
        ctx.tools().register(noop(name)).expect("registered");
    }
    let (assembly, _) = assembled(&ctx, &agent).expect("assembled");
    let names: Vec<_> = assembly.tools.iter().map(|tool| tool.name()).collect();
    assert_eq!(names, ["\u{1f600}", "\u{ff61}"]);
}

#[test]
fn sys_8_to_10_tools_are_ordered_before_the_listeners_and_by_code_units() {
    let (ctx, agent) = fresh();
    for name in ["b", "a", "B"] {
        ctx.tools().register(noop(name)).expect("registered");
    }
    let names = || {
        let (assembly, _) = assembled(&ctx, &agent).expect("assembled");
        assembly.tools.iter().map(|tool| tool.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["B", "a", "b"], "upper case sorts before lower");
    let list = |order: &[&str]| ToolOrder::listed(order.iter().map(|name| (*name).to_owned()).collect());
    for bad in [&["a"][..], &[UNLISTED_TOOLS, UNLISTED_TOOLS], &["a", "a", UNLISTED_TOOLS]] {
        assert_eq!(list(bad).expect_err("refused").code(), &Code::InvalidPrompt);
    }
    ctx.prompt().set_tool_order(list(&["b", UNLISTED_TOOLS, "a"]).expect("an order"));
    assert_eq!(names(), ["b", "B", "a"]);
    let hide = agent.ctx().expect("live").tools().restrict(None, Some(vec!["b".into()])).expect("restricted");
    assert_eq!(names(), ["B", "a"], "known but restricted names are fine");
    hide.dispose();
    ctx.waterfall::<AssemblyRequest, _>(|_, next| async move {
        let mut assembly = next.call().await?;
        assembly.tools.insert(0, std::sync::Arc::new(ToolSchema::new("zzz", "", json!({"type": "object"}))));
        Ok(assembly)
    })
    .expect("registered");
    assert_eq!(names(), ["zzz", "b", "B", "a"], "ordering is not repeated");
    ctx.prompt().set_tool_order(list(&["nowhere", UNLISTED_TOOLS]).expect("an order"));
    let (code, message) = failing(&ctx, &agent);
    assert_eq!(code, Code::InvalidPrompt);
    assert!(message.contains("\"nowhere\"") && message.contains("B, a, b"), "{message}");
}

#[test]
fn snap_1_to_3_a_suppressed_set_is_not_even_computed() {
    let (ctx, agent) = fresh();
    let calls = Rc::new(Cell::new(0));
    let counted = calls.clone();
    let text = PromptText::dynamic(move |_| {
        counted.set(counted.get() + 1);
        Ok(Some("sunny".into()))
    });
    ctx.prompt().context("weather", 1.0, text).expect("registered");
    ctx.waterfall::<AssemblyRequest, _>(|_, next| async move {
        let mut assembly = next.call().await?;
        assembly.contexts.push(ContextText { name: "added".into(), text: "more".into() });
        Ok(assembly)
    })
    .expect("registered");
    let suppressor = agent.ctx().expect("live").prompt().suppress_contexts().expect("registered");
    agent.followup(agents::prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!((user_messages(&agent).len(), calls.get()), (1, 0));
    suppressor.dispose();
    agent.followup(agents::prompt("q2")).expect("accepted");
    settle(&ctx);
    let shown = agents::events(&agent).into_iter().filter(|event| event.json().contains("sunny")).collect::<Vec<_>>();
    assert_eq!(shown.len(), 1);
    let data = shown[0].data_value();
    let source = data.get("source").expect("a source").to_text();
    let sections = r#""sections":[{"name":"weather","text":"sunny"},{"name":"added","text":"more"}]"#;
    assert!(source.contains(r#""form":"snapshot""#) && source.contains(sections), "{source}");
    assert_eq!(ends(&agent), ["completed", "completed"]);
}

#[test]
fn snap_4_the_end_of_the_last_context_is_told_once() {
    let (ctx, agent) = fresh();
    let ask = |id: &str| {
        agent.followup(agents::prompt(id)).expect("accepted");
        settle(&ctx);
        user_messages(&agent).len()
    };
    assert_eq!(ask("q1"), 1, "nothing was ever shown, nothing is said");
    let weather = ctx.prompt().context("weather", 1.0, "sunny").expect("registered");
    assert_eq!(ask("q2"), 3);
    weather.dispose();
    assert_eq!(ask("q3"), 5);
    assert_eq!(ask("q4"), 6, "it is remembered and not repeated");
    let cleared = agents::events(&agent).into_iter().rfind(|event| event.json().contains("dsh-system-prompt"));
    assert!(!cleared.expect("the last word").json().contains("\"form\""));
}
