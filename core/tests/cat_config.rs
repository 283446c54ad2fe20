//! Agents that the configuration lists: agent.md section 22. Named after the ids.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;
#[path = "support/memory_store.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod memory_store;

use agents::{Log, gated, hello, open, prompt, release, settle};
use memory_store::MemoryStore;
use std::rc::Rc;
use turnwheel::agent::AgentOptions;
use turnwheel::config::{ConfiguredAgent, IDENTITY_OVERRIDES, IdentityOverride, IdentityOverrides};
use turnwheel::context::LoopOptions;
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::session::SessionHeader;
use turnwheel::{Code, Context, Notice, NoticeKind, Tool, ToolOutput, json};

fn entry(label: &str) -> ConfiguredAgent {
    let agent = AgentOptions { provider: Some("fake".into()), model: Some("m".into()), max_tokens: None };
    ConfiguredAgent { agent, ..ConfiguredAgent::new(label) }
}

fn exact(label: &str, id: &str) -> ConfiguredAgent {
    ConfiguredAgent { session_id: Some(id.into()), ..entry(label) }
}

fn resumed(label: &str, id: &str) -> ConfiguredAgent {
    ConfiguredAgent { resume_session_id: Some(id.into()), ..entry(label) }
}

fn on_store(store: &MemoryStore) -> Context {
    let ctx = Context::builder().store(store.clone()).build();
    ctx.llm().register("fake", hello()).expect("a new route");
    ctx
}

/// Session and code of the failures that are reported.
fn failures(ctx: &Context) -> Log {
    let log = Log::default();
    let heard = log.clone();
    ctx.on(NoticeKind::ConfigStartFailed, move |notice| {
        if let Notice::ConfigStartFailed { session_id, error } = notice {
            heard.borrow_mut().push(format!("{session_id} {}", error.code().as_str()));
        }
        Err(turnwheel::Error::host("contained"))
    })
    .expect("registered");
    log
}

fn ids(ctx: &Context) -> Vec<String> {
    ctx.agents().iter().map(|agent| agent.id().to_string()).collect()
}

#[test]
fn cfg_1_an_entry_is_read_by_its_members() {
    let value = json!({"id": "main", "provider": "fake", "model": "m", "maxTokens": 5, "cwd": "/w", "sessionId": "s"});
    let read = ConfiguredAgent::from_value(&value).expect("an entry");
    let agent = AgentOptions { max_tokens: Some(5), ..entry("main").agent };
    assert_eq!(read, ConfiguredAgent { agent, cwd: Some("/w".into()), ..exact("main", "s") });
    for bad in [json!({"id": "a", "colour": "red"}), json!({"id": 1}), json!({"id": "a", "maxTokens": -1}), json!([])] {
        assert_eq!(ConfiguredAgent::from_value(&bad).expect_err("refused").code(), &Code::InvalidArgument);
    }
}

#[test]
fn cfg_2_3_12_and_13_without_a_store_agents_are_there_when_the_start_returns() {
    let ctx = agents::context(hello());
    let fresh = ConfiguredAgent { cwd: Some("/work".into()), ..entry("main") };
    ctx.start_agents(&[fresh, exact("other", "known")]).expect("started");
    let live = ids(&ctx);
    assert!(live[0].starts_with("main-session-") && live[0].len() > "main-session-".len(), "{live:?}");
    assert_eq!(live[1], "known");
    assert_eq!(ctx.agents()[0].session().header().cwd.as_deref(), Some("/work"));
    ctx.runtime().block_on(ctx.close()).expect("closed");
    assert!(ctx.agents().is_empty(), "their context owns them");
}

#[test]
fn cfg_4_an_exact_id_is_restored_or_created_and_an_unreadable_session_is_never_shadowed() {
    let store = MemoryStore::default();
    let ctx = on_store(&store);
    let agent = open(&ctx, "known");
    agent.followup(prompt("q1")).expect("accepted");
    ctx.runtime().block_on(agent.when_idle()).expect("idle");
    ctx.runtime().block_on(ctx.close()).expect("closed");

    store.put(SessionHeader::new("broken", 0), Vec::new());
    store.0.damaged.borrow_mut().push("broken".into());
    let ctx = on_store(&store);
    let failed = failures(&ctx);
    let elsewhere = ConfiguredAgent { cwd: Some("/elsewhere".into()), ..exact("a", "known") };
    ctx.start_agents(&[elsewhere, exact("b", "new"), exact("c", "broken")]).expect("started");
    settle(&ctx);
    assert_eq!(ids(&ctx), ["known", "new"]);
    let restored = ctx.find_agent("known").expect("live");
    assert_eq!(agents::user_messages(&restored), ["q1"]);
    assert_eq!(restored.session().header().cwd, None, "a restored session keeps its own directory (CFG-13)");
    assert_eq!(*failed.borrow(), ["broken CORRUPT_LOG"]);
}

#[test]
fn cfg_5_a_draining_predecessor_is_waited_for() {
    let ctx = agents::context(Scripted::new().calls([("c1", "wait", "{}")]));
    let failed = failures(&ctx);
    let (tool, _, gate) = gated("wait");
    ctx.tools().register(tool).expect("registered");
    let old = open(&ctx, "a");
    old.followup("go").expect("accepted");
    settle(&ctx);
    let draining = old.dispose();
    ctx.start_agents(&[exact("main", "a")]).expect("started");
    settle(&ctx);
    assert_eq!(ctx.find_agent("a").as_ref(), Some(&old), "it waits");
    release(&gate);
    ctx.runtime().block_on(draining);
    settle(&ctx);
    assert!(ctx.find_agent("a").is_some_and(|agent| agent != old));
    assert!(failed.borrow().is_empty());
}

#[test]
fn cfg_5_and_11_an_end_of_the_loop_ends_the_wait_in_silence() {
    let ctx = agents::context(Scripted::new().calls([("c1", "wait", "{}")]));
    let failed = failures(&ctx);
    let (tool, _, gate) = gated("wait");
    ctx.tools().register(tool).expect("registered");
    let old = open(&ctx, "a");
    old.followup("go").expect("accepted");
    settle(&ctx);
    drop(old.dispose());
    ctx.start_agents(&[exact("main", "a")]).expect("started");
    settle(&ctx);
    let closing = ctx.clone();
    ctx.runtime().spawn(async move { closing.close().await.expect("closed") });
    settle(&ctx);
    release(&gate);
    settle(&ctx);
    assert!(ctx.agents().is_empty());
    assert!(failed.borrow().is_empty());
    assert_eq!(ctx.runtime().task_count(), 0);
}

#[test]
fn cfg_6_and_d_19_a_healthy_holder_of_the_id_is_reported_and_not_waited_for() {
    let ctx = agents::context(hello());
    let failed = failures(&ctx);
    let holder = open(&ctx, "a");
    ctx.start_agents(&[exact("main", "a"), exact("other", "b")]).expect("the list itself is right");
    settle(&ctx);
    assert_eq!(*failed.borrow(), ["a SESSION_ALREADY_EXISTS"]);
    assert!(!holder.is_disposed());
    assert_eq!(ids(&ctx), ["a", "b"], "the other entry is unaffected");
}

#[test]
fn cfg_7_and_11_a_session_to_resume_must_exist_and_a_failure_is_contained() {
    let store = MemoryStore::default();
    let ctx = on_store(&store);
    let failed = failures(&ctx);
    ctx.start_agents(&[resumed("a", "missing"), resumed("b", "  ")]).expect("started");
    settle(&ctx);
    assert_eq!(*failed.borrow(), ["missing SESSION_NOT_FOUND"]);
    assert!(ids(&ctx)[0].starts_with("b-session-"), "blank counts as absent");
    let without = agents::context(hello());
    let failed = failures(&without);
    without.start_agents(&[resumed("a", "x")]).expect("started");
    assert_eq!(*failed.borrow(), ["x NO_STORE"]);
}

#[test]
fn cfg_9_a_list_that_cannot_be_right_starts_nothing() {
    let both = ConfiguredAgent { resume_session_id: Some("y".into()), ..exact("a", "x") };
    let unlimited =
        ConfiguredAgent { agent: AgentOptions { max_tokens: Some(0), ..AgentOptions::default() }, ..entry("a") };
    for bad in [both, exact("a", ""), exact("a", "first"), resumed("a", "first"), entry(" "), unlimited] {
        let ctx = agents::context(hello());
        let error = ctx.start_agents(&[exact("one", "first"), bad]).expect_err("refused");
        assert_eq!(error.code(), &Code::InvalidArgument);
        settle(&ctx);
        assert!(ctx.agents().is_empty());
    }
}

#[test]
fn cfg_10_a_launcher_overrides_identities_by_label() {
    let ctx = agents::context(hello());
    let failed = failures(&ctx);
    let mut overrides = IdentityOverrides::new();
    overrides.insert("main".into(), IdentityOverride { id: "chosen".into(), resume: false });
    overrides.insert("back".into(), IdentityOverride { id: "stored".into(), resume: true });
    ctx.provide(IDENTITY_OVERRIDES, Rc::new(overrides)).expect("provided");
    let both = ConfiguredAgent { resume_session_id: Some("y".into()), ..exact("main", "x") };
    ctx.start_agents(&[both, exact("back", "z"), exact("plain", "w")]).expect("both configured identities are dropped");
    assert_eq!(ids(&ctx), ["chosen", "w"]);
    assert_eq!(*failed.borrow(), ["stored NO_STORE"]);
}

#[test]
fn cfg_14_the_limit_of_overlapping_calls_is_checked_and_layers_over_it_fall_back() {
    let none = LoopOptions { max_parallel_tool_calls: 0, ..LoopOptions::default() };
    let refused = Context::builder().loop_options(none).try_build();
    assert_eq!(refused.map(drop).expect_err("refused").code(), &Code::InvalidArgument);
    assert_eq!(LoopOptions::default().max_parallel_tool_calls, 10);
    let calls = || ScriptedReply::calls((0..4).map(|i| (format!("c{i}"), "wait", "{}")));
    let ctx = agents::context(Scripted::new().respond(move |_| calls()));
    assert_eq!(ctx.set_max_parallel_tool_calls(0).expect_err("refused").code(), &Code::InvalidArgument);
    let running = Rc::new(std::cell::Cell::new((0_usize, 0_usize)));
    let counted = running.clone();
    let tool = Tool::new("wait", move |_| {
        let counted = counted.clone();
        async move {
            let (now, most) = counted.get();
            counted.set((now + 1, most.max(now + 1)));
            for _ in 0..8 {
                turnwheel::runtime::yield_now().await;
            }
            counted.set((counted.get().0 - 1, counted.get().1));
            Ok(ToolOutput::value("ok"))
        }
    });
    ctx.tools().register(tool.parallel()).expect("registered");
    ctx.tools().register(Tool::new("stop", |_| async { Ok(ToolOutput::value("")) })).expect("registered");
    let agent = open(&ctx, "a");
    let most = |limit: Option<usize>| {
        let layer = limit.map(|limit| ctx.set_max_parallel_tool_calls(limit).expect("a layer"));
        running.set((0, 0));
        let steps = agents::count(&agent, "step/end");
        agent.followup("go").expect("accepted");
        while agents::count(&agent, "step/end") == steps {
            ctx.runtime().pump();
        }
        agent.cancel(turnwheel::CancelCause::User);
        settle(&ctx);
        if let Some(layer) = layer {
            layer.dispose();
        }
        running.get().1
    };
    assert_eq!(most(Some(2)), 2, "in force from the next group on");
    assert_eq!(most(None), 4, "and gone with its layer");
}
