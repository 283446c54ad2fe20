//! The log that agents depend on, and their identity: agent.md sections 1 and 2. Tests are named after the ids they show.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{
    at_first, context, count, ends, events, hello, kinds, lines, noop, open, pending, prompt, record, refuse, settle,
    shared,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::context::Cleanup;
use turnwheel::json::{Object, Value};
use turnwheel::llm::adapters::Scripted;
use turnwheel::message::Block;
use turnwheel::runtime::{ManualClock, Ports, Signal};
use turnwheel::session::{Event, InboxTarget, SurfaceOp};
use turnwheel::{
    Agent, AgentOptions, CancelCause, Code, Context, EventData, Message, Notice, NoticeKind, Tool, ToolOutput, json,
};

#[test]
fn log_1_an_append_returns_the_stored_record_that_everybody_sees() {
    let clock = ManualClock::new(17);
    let ctx = Context::builder().ports(Ports { clock: Rc::new(clock), ..Ports::default() }).build();
    let agent = open(&ctx, "a");
    let seen = Rc::new(RefCell::new(None));
    let heard = seen.clone();
    ctx.on(NoticeKind::SessionEvent, move |notice| {
        let Notice::SessionEvent { event, .. } = notice else { return Ok(()) };
        *heard.borrow_mut() = Some(event.clone());
        Ok(())
    })
    .expect("registered");
    for seq in 0..3 {
        let event = agent.session().append("note", json!({"n": seq})).expect("appended");
        assert_eq!((event.seq, event.time), (seq, 17));
        assert_eq!(event.data_value(), json!({"n": seq}));
        assert!(Arc::ptr_eq(&event, &agent.session().event(seq).expect("stored")));
        assert!(Arc::ptr_eq(&event, seen.borrow().as_ref().expect("heard")));
    }
}

#[test]
fn log_2_what_json_cannot_carry_exactly_is_refused_wherever_it_comes_in() {
    let ctx = context(Scripted::new().calls([("c1", "odd", "{}")]).text("done"));
    let odd = |_| async { Ok(ToolOutput::value("ok").with_meta(f64::NAN)) };
    ctx.tools().register(Tool::new("odd", odd)).expect("registered");
    let agent = open(&ctx, "a");
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0] {
        // The macro goes through text, where such a number is null already.
        let mut object = Object::new();
        object.insert("type", "widget");
        object.insert("n", Value::Array(vec![number.into()]));
        let value = Value::Object(object);
        let error = agent.session().append("note", value.clone()).expect_err("refused");
        assert_eq!(error.code(), &Code::InvalidJson);
        let message = Message::user("q0", vec![Block::Other(value.clone())]);
        let error = agent.followup(message).expect_err("refused");
        assert_eq!(error.code(), &Code::InvalidJson, "a message is logged too");
    }
    assert!(agent.session().is_empty() && !agent.inbox().has_pending());
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    let code = events(&agent).iter().find_map(|event| match &event.data {
        EventData::ToolResult { error, .. } => error.as_ref().map(|error| error.code.clone()),
        _ => None,
    });
    assert_eq!(code.as_deref(), Some("INVALID_TOOL_OUTPUT"), "presentation data is logged too");
    assert_eq!(ends(&agent), ["completed"]);
}

#[test]
fn log_3_and_d_02_from_a_log_observer_agents_are_driven_in_order_and_what_must_return_data_fails() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    agent.inject(prompt("old")).expect("accepted");
    let codes = Rc::new(RefCell::new(Vec::new()));
    let seen = codes.clone();
    at_first(&ctx, "note", move |agent| {
        let step = InboxTarget::NextStep;
        let code = |failed: turnwheel::Result<()>| {
            let code = failed.err().map_or("ok".to_owned(), |error| error.code().as_str().to_owned());
            seen.borrow_mut().push(code);
        };
        code(agent.session().append("nested", json!({})).map(|_| ()));
        code(agent.inbox().splice(step, 0.0, 1.0, vec![]).map(|_| ()));
        code(agent.inbox().claim(step, 1).map(|_| ()));
        code(agent.inbox().replace("old", shared("new")).map(|_| ()));
        code(agent.inbox().remove("old").map(|_| ()));
        agent.cancel(CancelCause::User);
        code(agent.inject(prompt("i1")).map(|_| ()));
        code(agent.followup(prompt("q1")).map(|_| ()));
        code(agent.followup(prompt("q1")).map(|_| ()));
        assert_eq!(agent.session().len(), 2, "nothing is logged while the note is published");
    });
    let notes = record(&ctx);
    agent.session().append("note", json!({})).expect("appended");
    let refused = ["REENTRANT"; 5].map(String::from);
    let expected = [refused.as_slice(), &["ok".into(), "ok".into(), "DUPLICATE_MESSAGE".into()]].concat();
    assert_eq!(*codes.borrow(), expected);
    let order = lines(&notes, &["inserted", "discarded", "status", "claimed"]);
    let expected =
        ["discarded old", "inserted i1", "inserted q1", "status running", "claimed i1 by 1", "claimed q1 by 1"];
    assert_eq!(order, expected);
    settle(&ctx);
    assert_eq!(ends(&agent), ["completed"]);
}

#[test]
fn log_4_and_7_a_veto_before_the_commit_logs_nothing_and_a_failure_after_it_changes_nothing() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    let refusing = refuse(&ctx, "note");
    let heard = record(&ctx);
    let error = agent.session().append("note", json!({})).expect_err("vetoed");
    assert_eq!(error.message(), "note is refused");
    assert!(agent.session().is_empty() && heard.borrow().is_empty());
    refusing.set(false);
    ctx.on(NoticeKind::SessionEvent, |_| panic!("planned")).expect("registered");
    let late = record(&ctx);
    agent.session().append("note", json!({})).expect("appended whatever an observer does");
    assert_eq!(*late.borrow(), ["log note"], "observers behind the failing one hear it");
    let asked = Rc::new(Cell::new(0));
    let asking = asked.clone();
    ctx.check_events(move |_, _| {
        asking.set(asking.get() + 1);
        Ok(())
    })
    .expect("registered");
    let replace = agent.session().replace_surface(shared("sum"), 5, 6, vec![5]);
    assert!(replace.is_err(), "there is no such span");
    assert_eq!(asked.get(), 0, "the surface is validated first");
}

#[test]
fn log_5_a_listener_registered_by_an_observer_of_an_append_does_not_hear_that_append() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    let late = Rc::new(Cell::new(0));
    let (inner, counting) = (ctx.clone(), late.clone());
    at_first(&ctx, "note", move |_| {
        let counting = counting.clone();
        inner
            .on(NoticeKind::SessionEvent, move |_| {
                counting.set(counting.get() + 1);
                Ok(())
            })
            .expect("registered");
    });
    agent.session().append("note", json!({})).expect("appended");
    assert_eq!(late.get(), 0);
    agent.session().append("note", json!({})).expect("appended");
    assert_eq!(late.get(), 1);
}

#[test]
fn log_6_a_session_that_is_not_attached_stores_appends_and_publishes_none() {
    let ctx = context(hello());
    let heard = record(&ctx);
    let builder = ctx.agent("a").setup(|own| async move {
        let agent = own.own_agent().expect("its own context");
        agent.session().append("early", json!({})).map(|_| ())
    });
    let handle = ctx.runtime().block_on(builder.create()).expect("created");
    let session = handle.agent().session().clone();
    assert_eq!(session.len(), 1);
    ctx.runtime().block_on(handle.dispose());
    session.append("late", json!({})).expect("appended");
    assert_eq!(session.len(), 2);
    assert!(lines(&heard, &["log"]).is_empty());
}

#[test]
fn log_8_and_9_only_messages_stand_on_the_surface_and_an_empty_answer_contributes_nothing() {
    let empty = turnwheel::llm::adapters::ScriptedReply::default();
    let ctx = context(Scripted::new().calls([("c1", "noop", "{}")]).reply(empty));
    ctx.tools().register(noop("noop")).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    let log = events(&agent);
    for event in &log {
        let is_message = matches!(event.kind(), "user/message" | "assistant/message" | "tool/result");
        assert_eq!(event.surface_op.is_some(), is_message, "{}", event.kind());
        assert!(event.surface_op.is_none() || event.surface_op == Some(SurfaceOp::Append));
        let cited = |seq: &u64| log[*seq as usize].kind().to_owned();
        let sources = event.source_event_seqs.as_ref().map(|seqs| seqs.iter().map(cited).collect::<Vec<_>>());
        match event.kind() {
            "assistant/message" => {
                assert!(sources.expect("it cites").iter().all(|kind| kind == "assistant/chunk"));
            }
            "tool/result" => assert_eq!(sources.expect("it cites"), ["tool/call"]),
            _ => assert_eq!(sources, None),
        }
    }
    let history = agent.session().history();
    assert_eq!(history.len(), 3, "prompt, calls, result; the empty answer is left out");
    agent.followup(prompt("q2")).expect("accepted");
    assert_eq!(history.len(), 3, "a history is a snapshot");
}

#[test]
fn log_13_a_disposal_asked_for_during_an_append_waits_until_it_has_unwound() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    agent.inject(prompt("c1")).expect("accepted");
    at_first(&ctx, "note", |agent| drop(agent.dispose()));
    let heard = record(&ctx);
    agent.session().append("note", json!({})).expect("appended");
    settle(&ctx);
    let expected = ["log note", "log agent/inbox/spliced", "discarded c1", "agent/disposed", "session/disposed"];
    assert_eq!(*heard.borrow(), expected);
}

#[test]
fn id_1_and_11_an_agent_and_its_session_share_one_id_and_creation_returns_the_handle() {
    let ctx = context(hello());
    let handle = ctx.runtime().block_on(ctx.agent("a").create()).expect("created");
    let agent = ctx.find_agent("a").expect("registered");
    assert_eq!(handle.agent(), &agent);
    assert_eq!(agent.id(), agent.session().id());
    ctx.runtime().block_on(handle.dispose());
    assert!(ctx.find_agent("a").is_none());
}

#[test]
fn id_2_and_3_an_id_is_taken_until_the_last_cleanup_of_its_agent_has_run() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    let gate = Signal::new();
    let waiting = gate.clone();
    let cleanup =
        move || -> turnwheel::runtime::LocalBoxFuture<()> { Box::pin(async move { drop(waiting.cancelled().await) }) };
    agent.ctx().expect("its context").fiber().own(Cleanup::Async(Box::new(cleanup)));
    let create = || ctx.runtime().block_on(ctx.agent("a").create()).map(|_| ());
    assert_eq!(create().expect_err("taken").code(), &Code::SessionAlreadyExists);
    drop(agent.dispose());
    settle(&ctx);
    assert_eq!(create().expect_err("still being cleaned up").code(), &Code::SessionAlreadyExists);
    assert!(ctx.root().session("a").is_some());
    agents::release(&gate);
    settle(&ctx);
    create().expect("free again");
}

#[test]
fn id_6_creation_checks_the_session_then_the_options_then_the_owner_then_the_signal() {
    let ctx = context(hello());
    let taken = open(&ctx, "taken");
    let owner = open(&ctx, "owner").ctx().expect("its context");
    let cancelled = Signal::new();
    cancelled.cancel(CancelCause::User);
    let bad = AgentOptions { max_tokens: Some(0), ..AgentOptions::default() };
    let code = |builder: turnwheel::context::AgentBuilder| {
        let created = ctx.runtime().block_on(builder.create());
        created.map_or_else(|error| error.code().as_str().to_owned(), |_| "created".into())
    };
    let live = |id: &str| owner.agent(id).signal(cancelled.clone());
    assert_eq!(code(live("taken").options(bad.clone()).cwd("relative")), "SESSION_ALREADY_EXISTS");
    assert_eq!(code(live("b").options(bad.clone()).cwd("relative")), "INVALID_HEADER");
    let gap = vec![Arc::new(Event::new(3, 1, EventData::EndSeed))];
    assert_eq!(code(live("b").options(bad.clone()).seed(gap)), "INVALID_EVENT");
    assert_eq!(code(live("b").options(bad.clone())), "INVALID_ARGUMENT");
    assert_eq!(code(live("b")), "ABORTED");
    let agent = owner.own_agent().expect("an agent's context");
    ctx.runtime().block_on(agent.dispose());
    assert_eq!(code(live("b").options(bad)), "INVALID_ARGUMENT");
    assert_eq!(code(live("b")), "INACTIVE_EFFECT");
    assert_eq!(code(ctx.agent("b")), "created", "no failure left anything behind");
    assert!(!taken.is_disposed());
}

#[test]
fn id_7_and_13_the_published_agent_shows_its_options_and_every_assembly_reads_them() {
    let script = Scripted::new().text("one").text("two");
    let ctx = context(script.clone());
    ctx.prompt().section("route", 1.0, "{{provider}} {{model}} {{cwd}}").expect("registered");
    let options = AgentOptions {
        provider: Some("fake".into()),
        model: Some("m".into()),
        max_tokens: Some(9_007_199_254_740_991),
    };
    let builder = ctx.agent("a").options(options.clone()).cwd("/here");
    let agent = ctx.runtime().block_on(builder.open()).expect("opened");
    assert_eq!(agent.options(), &options);
    for id in ["q1", "q2"] {
        agent.followup(prompt(id)).expect("accepted");
        settle(&ctx);
        let header = script.last_request().expect("asked").header;
        assert_eq!(header.system.as_deref(), Some("fake m /here"));
        assert_eq!(header.config.max_tokens, Some(9_007_199_254_740_991));
    }
}

#[test]
fn id_8_creation_metadata_is_kept_in_the_session_header() {
    let clock = ManualClock::new(42);
    let ctx = Context::builder().ports(Ports { clock: Rc::new(clock), ..Ports::default() }).build();
    let builder = ctx.agent("a").cwd("/work").header(|header| {
        header.parent_session = Some("p".into());
        header.origin = Some("subagent".into());
        header.delegation_depth = Some(2);
        header.agent_preset = Some("reviewer".into());
        header.created_at = 7;
    });
    let agent = ctx.runtime().block_on(builder.open()).expect("opened");
    let expected = json!({"version": 0, "id": "a", "createdAt": 42, "cwd": "/work", "parentSession": "p",
        "origin": "subagent", "delegationDepth": 2, "agentPreset": "reviewer"});
    let header = agent.session().header().to_value();
    let members = |value: &turnwheel::json::Value| {
        let object = value.as_object().expect("an object");
        let mut members: Vec<_> = object.iter().map(|(key, value)| format!("{key}={}", value.to_text())).collect();
        members.sort();
        members
    };
    assert_eq!(members(&header), members(&expected), "the caller's creation time is not taken");
    let odd = ctx.agent("b").header(|header| header.origin = Some("person".into()));
    assert_eq!(ctx.runtime().block_on(odd.create()).expect_err("refused").code(), &Code::InvalidHeader);
}

#[test]
fn id_9_and_10_a_bad_seed_leaves_the_id_usable_and_turns_are_numbered_on() {
    let ctx = context(hello());
    let parent = open(&ctx, "parent");
    for id in ["q1", "q2"] {
        parent.followup(prompt(id)).expect("accepted");
        settle(&ctx);
    }
    let create = |seed| ctx.runtime().block_on(ctx.agent("child").provider("fake").model("m").seed(seed).create());
    let error = create(events(&parent)[1..].to_vec()).expect_err("not contiguous from 0");
    assert_eq!(error.code(), &Code::InvalidEvent);
    assert!(ctx.find_agent("child").is_none() && ctx.root().session("child").is_none());
    let child = create(events(&parent)).expect("the id is free").agent().clone();
    child.followup(prompt("q3")).expect("accepted");
    settle(&ctx);
    let turns = |agent: &Agent| {
        let turn = |event: &Arc<Event>| match event.data {
            EventData::TurnStart { turn } => Some(turn),
            _ => None,
        };
        events(agent).iter().filter_map(turn).collect::<Vec<_>>()
    };
    assert_eq!(turns(&child), [1, 2, 3]);
    // A turn that never ended counts as well: the stored log stops right behind turn/start.
    let cut =
        events(&parent).into_iter().take_while(|event| !matches!(event.data, EventData::StepStart { turn: 2, .. }));
    let header = turnwheel::session::SessionHeader::new("cut", 1);
    let resumed = ctx.agent("cut").provider("fake").model("m").resume_from(header, cut.collect::<Vec<_>>());
    let resumed = ctx.runtime().block_on(resumed).expect("resumed").agent().clone();
    resumed.wake().expect("awake");
    settle(&ctx);
    assert_eq!(turns(&resumed), [1, 2, 3]);
}

#[test]
fn id_14_only_an_agents_own_context_has_an_agent() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    let own = agent.ctx().expect("its context");
    assert_eq!(own.own_agent(), Some(agent));
    assert!(own.scope().is_some());
    assert_eq!((ctx.own_agent(), ctx.scope()), (None, None));
}

#[test]
fn log_10_a_seeded_session_ends_its_seed_with_a_mark_that_is_not_published() {
    let ctx = context(hello());
    let heard = record(&ctx);
    let create = |id: &str, seed| {
        let created = ctx.runtime().block_on(ctx.agent(id).seed(seed).create());
        created.expect("created").agent().clone()
    };
    let first = create("a", vec![]);
    assert_eq!(kinds(&first), ["session/end-seed"]);
    let second = create("b", events(&first));
    assert_eq!(count(&second, "session/end-seed"), 1, "the mark is not repeated");
    assert!(lines(&heard, &["log"]).is_empty());
    assert!(pending(&second, InboxTarget::NextTurn).is_empty());
}
