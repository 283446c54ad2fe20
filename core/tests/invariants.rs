//! Invariants as an opt-in plug-in that really vetoes. Named after the catalogue's ids.

use turnwheel::invariants::{Invariants, InvariantsConfig, violation};
use turnwheel::llm::adapters::Scripted;
use turnwheel::runtime::PumpState;
use turnwheel::session::{SurfaceOp, TurnEndReason};
use turnwheel::{Agent, Code, Context, EventData, Tool, ToolOutput, json};

fn context(script: Scripted) -> Context {
    let ctx = Context::new();
    ctx.llm().register("fake", script).expect("a new route");
    ctx
}

fn open(ctx: &Context) -> Agent {
    ctx.runtime().block_on(ctx.agent("a").provider("fake").model("m").open()).expect("the agent opens")
}

fn settle(ctx: &Context) {
    while ctx.runtime().pump() != PumpState::Idle {}
}

fn core_checks(ctx: &Context) {
    Invariants::load(&InvariantsConfig::default()).expect("loaded").register_core(ctx).expect("registered");
}

#[test]
fn inv_1_to_4_packages_are_selected_by_patterns_and_registered_once() {
    let config = |allow: &[&str], block: &[&str]| InvariantsConfig {
        enabled: true,
        package_allowlist: allow.iter().map(|pattern| (*pattern).to_owned()).collect(),
        package_blocklist: block.iter().map(|pattern| (*pattern).to_owned()).collect(),
    };
    for (allow, block) in [(vec![""], vec![]), (vec![" a"], vec![]), (vec!["a", "a"], vec![]), (vec![], vec!["("])] {
        assert!(Invariants::load(&config(&allow, &block)).is_err(), "{allow:?} {block:?}");
    }
    let invariants = Invariants::load(&config(&["^turn", "note"], &["wheel$"])).expect("loaded");
    let selected = ["turnstile", "my-notes", "turnwheel", "Turn"].map(|name| invariants.selects(name));
    assert_eq!(selected, [true, true, false, false]);
    let ctx = Context::new();
    let first = invariants.register(&ctx, "turnwheel", |_| panic!("filtered out, never installed")).expect("taken");
    assert_eq!(invariants.register(&ctx, "turnwheel", |_| Ok(vec![])).expect_err("taken").code(), &Code::DuplicateName);
    first.dispose();
    invariants.register(&ctx, "turnwheel", |_| Ok(vec![])).expect("free again");
    let failing = invariants.register(&ctx, "turnstile", |_| Err(violation("turnstile", "no")));
    assert_eq!(failing.expect_err("failed").code(), &Code::Invariant);
    invariants.register(&ctx, "turnstile", |_| Ok(vec![])).expect("a failed installer frees the name");
}

#[test]
fn inv_7_a_whole_life_with_tools_and_cancels_breaks_no_rule() {
    let ctx = context(Scripted::new().calls([("c1", "noop", "{}"), ("c2", "stop", "{}")]).text("done"));
    core_checks(&ctx);
    ctx.tools().register(Tool::new("noop", |_| async { Ok(ToolOutput::value("ok")) })).expect("registered");
    let stop = Tool::new("stop", |call| async move {
        call.agent().expect("an agent's call").cancel(turnwheel::CancelCause::User);
        Ok(ToolOutput::value("ok"))
    });
    ctx.tools().register(stop).expect("registered");
    let agent = open(&ctx);
    agent.followup("one").expect("accepted");
    settle(&ctx);
    let result = ctx.runtime().block_on(agent.run("two").expect("accepted")).expect("ran");
    assert_eq!((result.text.as_str(), result.reason), ("done", TurnEndReason::Completed));
}

#[test]
fn inv_14_a_violation_is_refused_before_it_is_committed() {
    let ctx = context(Scripted::new().text("hi"));
    core_checks(&ctx);
    let agent = open(&ctx);
    let refuse = |kind: &str, data, op: Option<SurfaceOp>| {
        let before = agent.session().len();
        let error = agent.session().append_raw(kind, data, op, None, false).expect_err("refused");
        assert_eq!((error.code(), agent.session().len()), (&Code::Invariant, before), "{kind}: {error:?}");
    };
    refuse("turn/start", json!({"turn": 2}), None);
    refuse("turn/end", json!({"turn": 1, "reason": {"kind": "completed"}}), None);
    refuse("step/start", json!({"turn": 1, "step": 1}), None);
    refuse(
        "assistant/chunk",
        json!({"turn": 1, "step": 1, "chunk": {"type": "text-delta", "index": 0, "text": "x"}}),
        None,
    );
    refuse("tool/call", json!({"turn": 1, "step": 1, "callId": "c", "name": "n", "arguments": ""}), None);
    refuse("request/context", json!({"provider": "p", "model": "m"}), None);
    refuse("todo/write", json!({"todos": []}), None);
    refuse("llm/retry-started", json!({"retryId": "r", "turn": 1, "step": 1, "retry": 1}), None);
    refuse("compaction/end", json!({"compactionId": "c", "turn": null}), None);
    let result = ctx.runtime().block_on(agent.run("still works").expect("accepted")).expect("ran");
    assert_eq!(result.reason, TurnEndReason::Completed);
}

#[test]
fn inv_8_a_violation_in_history_fails_the_load() {
    let ctx = context(Scripted::new());
    let agent = open(&ctx);
    agent.session().append_raw("turn/start", json!({"turn": 5}), None, None, false).expect("nobody checks yet");
    let error =
        Invariants::load(&InvariantsConfig::default()).expect("loaded").register_core(&ctx).expect_err("refused");
    assert_eq!(error.code(), &Code::Invariant);
    assert!(error.message().contains("turn 5"), "{error:?}");
}

#[test]
fn inv_12_a_request_that_the_log_does_not_explain_is_not_sent() {
    let script = Scripted::new().text("never");
    let ctx = context(script.clone());
    core_checks(&ctx);
    // A surface event that a listener appends after the history was taken is missing from this request (REQ-13).
    ctx.waterfall::<turnwheel::agent::RequestEvent, _>(|request, next| async move {
        let message = json!({"id": "m", "role": "user", "content": [], "source": {"kind": "user"}});
        request.agent.session().append_raw("user/message", message, Some(SurfaceOp::Append), None, false)?;
        next.call().await
    })
    .expect("registered");
    let agent = open(&ctx);
    agent.followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!(script.request_count(), 0);
    let end = agent.session().events_from(0).into_iter().next_back().expect("a log");
    let EventData::TurnEnd { reason: TurnEndReason::Error(failure), .. } = &end.data else { panic!("{end:?}") };
    assert!(failure.message.contains("cannot be rebuilt"), "{failure:?}");
}

#[test]
fn inv_12_a_request_whose_header_is_not_the_logged_one_is_not_sent() {
    let own = json!({"provider": "fake", "model": "m"});
    let with = |key: &str, value| {
        let mut config = turnwheel::json::Object::new();
        config.insert("provider", "fake");
        config.insert("model", "m");
        config.insert(key, value);
        json!({"config": (turnwheel::json::Value::from(config))})
    };
    let tool = json!({"name": "t", "description": "d", "parameters": {"type": "object"}});
    let headers = [
        with("model", json!("other")),
        with("temperature", json!(0.5)),
        with("maxTokens", json!(7)),
        with("stop", json!(["END"])),
        json!({"config": (own.clone()), "system": "of somebody else"}),
        json!({"config": (own.clone()), "tools": [(tool)]}),
    ];
    for header in headers {
        let script = Scripted::new().text("never");
        let ctx = context(script.clone());
        // Who writes a header of its own behind the loop's makes the log tell of a request that is not the one to be sent.
        let logged = header.clone();
        ctx.check_requests(move |session, _| {
            let data = json!({"header": (logged.clone()), "reason": "change"});
            session.append_raw("request/header", data, None, None, false).map(drop)
        })
        .expect("registered");
        core_checks(&ctx);
        let agent = open(&ctx);
        agent.followup("go").expect("accepted");
        settle(&ctx);
        assert_eq!(script.request_count(), 0, "{header:?}");
        let end = agent.session().events_from(0).into_iter().next_back().expect("a log");
        let EventData::TurnEnd { reason: TurnEndReason::Error(failure), .. } = &end.data else { panic!("{end:?}") };
        assert!(failure.message.contains("the request header cannot be rebuilt"), "{header:?}: {failure:?}");
    }
}
