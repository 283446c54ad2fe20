//! The handle: receipts, owned runs, budgets, refusals. Named after the decisions of DECISIONS.md where one applies.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::agent::{Parked, PreStep, PreStepDecision, ReceiptState};
use turnwheel::context::{Budget, LoopOptions};
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::llm::{Chunk, FinishReason};
use turnwheel::runtime::{ManualClock, Ports};
use turnwheel::session::{InboxTarget, TurnEndReason};
use turnwheel::{
    Agent, AgentStatus, CancelCause, Code, Context, EventData, Message, NoticeKind, Tool, ToolOutput, json,
};

fn context(script: Scripted) -> Context {
    let ctx = Context::new();
    ctx.llm().register("fake", script).expect("a new route");
    ctx
}

fn hello() -> Scripted {
    Scripted::repeat(vec![
        Chunk::TextDelta { index: 0, text: "hi".into() },
        Chunk::Finish { reason: FinishReason::Stop, replay_state: None },
    ])
}

fn open(ctx: &Context, id: &str) -> Agent {
    ctx.runtime().block_on(ctx.agent(id).provider("fake").model("m").open()).expect("the agent opens")
}

fn settle(ctx: &Context) {
    while ctx.runtime().pump() != turnwheel::runtime::PumpState::Idle {}
}

fn kinds(agent: &Agent) -> Vec<String> {
    agent.session().events_from(0).iter().map(|event| event.kind().to_owned()).collect()
}

fn turn_ends(agent: &Agent) -> Vec<TurnEndReason> {
    let events = agent.session().events_from(0);
    let reason = |event: &Arc<turnwheel::session::Event>| match &event.data {
        EventData::TurnEnd { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    events.iter().filter_map(reason).collect()
}

/// A tool whose calls wait until the gate is opened.
fn gated(name: &str) -> (Tool, Rc<Cell<bool>>, turnwheel::runtime::Signal) {
    let gate = turnwheel::runtime::Signal::new();
    let (opened, ran) = (gate.clone(), Rc::new(Cell::new(false)));
    let flag = ran.clone();
    let tool = Tool::new(name, move |_| {
        let (gate, flag) = (opened.clone(), flag.clone());
        async move {
            flag.set(true);
            gate.cancelled().await;
            Ok(ToolOutput::value("done"))
        }
    });
    (tool, ran, gate)
}

#[test]
fn a_waking_send_on_an_idle_agent_has_opened_the_turn_when_it_returns() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    agent.followup(Message::user_text("q1", "hello")).expect("accepted");
    assert_eq!(agent.status(), AgentStatus::Running);
    assert_eq!(kinds(&agent), ["agent/inbox/spliced", "turn/start", "agent/inbox/spliced"]);
    settle(&ctx);
    assert_eq!(agent.status(), AgentStatus::Idle);
    assert_eq!(turn_ends(&agent), [TurnEndReason::Completed]);
}

#[test]
fn a_01_a_receipt_tells_what_became_of_a_message() {
    let ctx = context(Scripted::new().calls([("c1", "wait", "{}")]).text("after"));
    let agent = open(&ctx, "a");
    let (tool, _, gate) = gated("wait");
    ctx.tools().register(tool).expect("registered");
    let first = agent.followup(Message::user_text("q1", "one")).expect("accepted");
    let second = agent.followup(Message::user_text("q2", "two")).expect("accepted");
    settle(&ctx);
    let waits = |parked| Some(ReceiptState::Pending { target: InboxTarget::NextTurn, parked });
    assert_eq!(first.state(), Some(ReceiptState::Claimed { turn: 1, step: Some(1) }));
    assert_eq!(second.state(), waits(None));
    agent.cancel_keep_inbox(CancelCause::User);
    assert_eq!(second.state(), waits(Some(Parked::TurnEnding)));
    gate.cancel(CancelCause::User);
    settle(&ctx);
    let ended = ctx.runtime().block_on(first.settled()).expect("settled");
    assert_eq!(ended, ReceiptState::Ended { turn: 1, reason: TurnEndReason::Aborted(CancelCause::User) });
    let reason = TurnEndReason::Aborted(CancelCause::User);
    assert_eq!(second.state(), waits(Some(Parked::TurnEnded { turn: 1, reason })));
    let seq = agent.session().len();
    agent.cancel(CancelCause::User);
    let discarded = ctx.runtime().block_on(second.settled()).expect("settled");
    assert_eq!(discarded, ReceiptState::Discarded { seq, replaced_by: None });
    assert_eq!(agent.receipt("never sent").state(), None);
}

#[test]
fn a_01_a_receipt_says_why_a_message_waits_and_what_replaced_it() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    let waits = |parked| Some(ReceiptState::Pending { target: InboxTarget::NextStep, parked });
    let note = agent.inject(Message::user_text("i1", "a note")).expect("accepted");
    assert_eq!(note.state(), waits(Some(Parked::NotWoken)));
    // Neither does a turn that ended well wake what came behind it.
    agent.followup(Message::user_text("q1", "one")).expect("accepted");
    ctx.runtime().block_on(agent.when_idle()).expect("idle");
    assert!(matches!(note.state(), Some(ReceiptState::Ended { turn: 1, .. })));
    let later = agent.inject(Message::user_text("i2", "another")).expect("accepted");
    assert_eq!(later.state(), waits(Some(Parked::NotWoken)));
    let seq = agent.session().len();
    agent.inbox().replace("i2", Message::user_text("i3", "a better one").into()).expect("replaced");
    assert_eq!(later.state(), Some(ReceiptState::Discarded { seq, replaced_by: Some("i3".into()) }));
    assert_eq!(agent.receipt("i3").state(), waits(Some(Parked::NotWoken)));
}

#[test]
fn a_03_a_run_returns_text_messages_usage_and_reason_of_its_turn() {
    let usage = turnwheel::message::Usage { input_tokens: 3, output_tokens: 4, ..Default::default() };
    let reply = |text: &str| ScriptedReply { usage: Some(usage), ..ScriptedReply::text(text) };
    let call = ScriptedReply { usage: Some(usage), ..ScriptedReply::calls([("c1", "noop", "{}")]) };
    let ctx = context(Scripted::new().reply(call).reply(reply("five")));
    ctx.tools().register(Tool::new("noop", |_| async { Ok(ToolOutput::value("ok")) })).expect("registered");
    let agent = open(&ctx, "a");
    let result = ctx.runtime().block_on(agent.run("2 + 3?").expect("accepted")).expect("ran");
    assert_eq!((result.turn, result.text.as_str()), (1, "five"));
    assert_eq!(result.reason, TurnEndReason::Completed);
    assert_eq!((result.usage.input_tokens, result.usage.output_tokens), (6, 8));
    assert_eq!(result.messages.len(), 4, "prompt, call, result, answer");
}

#[test]
fn a_03_dropping_a_run_cancels_its_turn_with_cause_user_or_withdraws_the_prompt() {
    let ctx = context(Scripted::new().calls([("c1", "wait", "{}")]));
    let agent = open(&ctx, "a");
    let (tool, ran, gate) = gated("wait");
    ctx.tools().register(tool).expect("registered");
    let run = agent.run("go").expect("accepted");
    let queued = agent.run(Message::user_text("q2", "never")).expect("accepted");
    settle(&ctx);
    assert!(ran.get());
    drop(queued);
    assert!(matches!(agent.receipt("q2").state(), Some(ReceiptState::Discarded { .. })));
    drop(run);
    gate.cancel(CancelCause::User);
    settle(&ctx);
    assert_eq!(turn_ends(&agent), [TurnEndReason::Aborted(CancelCause::User)]);
}

#[test]
fn a_03_a_stream_yields_the_events_of_the_turn_that_takes_the_prompt() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    agent.followup("first").expect("accepted");
    let mut stream = agent.stream("second").expect("accepted");
    let seen = ctx.runtime().block_on(async {
        let mut seen = Vec::new();
        while let Some(event) = stream.next().await {
            seen.push(event.expect("an event").kind().to_owned());
        }
        seen
    });
    assert_eq!(seen.first().map(String::as_str), Some("turn/start"));
    assert_eq!(seen.last().map(String::as_str), Some("turn/end"));
    assert_eq!(seen.iter().filter(|kind| *kind == "turn/start").count(), 1);
    assert_eq!(turn_ends(&agent).len(), 2);
}

#[test]
fn a_05_a_turn_ends_when_its_budget_of_steps_is_used_up_and_the_queue_stays() {
    let turn_budget = Budget { steps: Some(3), ..Budget::default() };
    let options = LoopOptions { turn_budget, ..LoopOptions::default() };
    let ctx = Context::builder().loop_options(options).build();
    let script = Scripted::new().respond(|_| ScriptedReply::calls([("c1", "noop", "{}")]));
    ctx.llm().register("fake", script).expect("a new route");
    ctx.tools().register(Tool::new("noop", |_| async { Ok(ToolOutput::value("ok")) })).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    agent.followup(Message::user_text("q2", "next")).expect("accepted");
    settle(&ctx);
    assert_eq!(turn_ends(&agent), [TurnEndReason::Aborted(CancelCause::Hook("budget: steps 3/3".into()))]);
    let budget = agent.session().events_from(0).into_iter().find(|event| event.kind() == "turn/budget");
    let budget = budget.expect("the budget is logged");
    assert!(budget.ignorable);
    assert_eq!(budget.data_value(), json!({"turn": 1, "budget": "steps", "limit": 3, "used": 3}));
    assert_eq!(agent.state().expect("state").parked.len(), 1);
}

#[test]
fn d_04_a_latch_is_replayed_only_while_a_message_that_asked_to_wake_is_pending() {
    let ctx = context(Scripted::new().calls([("c1", "wait", "{}")]).text("never"));
    let agent = open(&ctx, "a");
    let (tool, _, gate) = gated("wait");
    ctx.tools().register(tool).expect("registered");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    agent.cancel(CancelCause::User);
    agent.followup(Message::user_text("q2", "latched")).expect("accepted");
    agent.inject(Message::user_text("c1", "context")).expect("accepted");
    assert!(agent.inbox().remove("q2").expect("removable"));
    gate.cancel(CancelCause::User);
    settle(&ctx);
    assert_eq!(turn_ends(&agent).len(), 1, "the unrelated context starts no turn");
    assert!(agent.inbox().has_pending());
}

#[test]
fn d_05_a_disposed_agent_cannot_be_driven() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    ctx.runtime().block_on(agent.dispose());
    let error = agent.followup("late").expect_err("refused");
    assert_eq!(error.code(), &Code::Disposed);
    assert!(agent.session().is_empty());
    assert!(ctx.find_agent("a").is_none());
    assert!(open(&ctx, "a").session().is_empty(), "the id is free again");
}

#[test]
fn d_08_a_message_id_is_accepted_once_and_a_refusal_logs_nothing() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    agent.followup(Message::user_text("q1", "one")).expect("accepted");
    settle(&ctx);
    let before = agent.session().len();
    let error = agent.followup(Message::user_text("q1", "again")).expect_err("refused");
    assert_eq!(error.code(), &Code::DuplicateMessage);
    assert_eq!(agent.session().len(), before);
}

#[test]
fn d_09_core_event_types_cannot_be_appended_directly() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    let error = agent.session().append("agent/inbox/spliced", json!({})).expect_err("refused");
    assert_eq!(error.code(), &Code::ReservedEvent);
    assert!(agent.session().append("my-plugin/note", json!({"text": "free"})).is_ok());
}

#[test]
fn d_12_every_turn_stopping_listener_runs() {
    let ctx = context(hello());
    let ran = Rc::new(Cell::new(0));
    for _ in 0..3 {
        let ran = ran.clone();
        ctx.on_turn_stopping(move |_| {
            ran.set(ran.get() + 1);
            async { Ok(()) }
        })
        .expect("registered");
    }
    open(&ctx, "a").followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!(ran.get(), 3);
}

#[test]
fn d_13_a_second_call_of_next_fails() {
    let ctx = context(hello());
    let code = Rc::new(RefCell::new(None));
    let seen = code.clone();
    ctx.waterfall::<PreStep, _>(move |_, next| {
        let seen = seen.clone();
        async move {
            let decision = next.call().await?;
            *seen.borrow_mut() = next.call().await.err().map(|error| error.code().clone());
            Ok(decision)
        }
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!(*code.borrow(), Some(Code::NextCalledTwice));
    assert_eq!(turn_ends(&agent), [TurnEndReason::Completed]);
}

#[test]
fn d_15_setup_cannot_drive_and_a_wake_from_created_starts_after_session_start() {
    let ctx = context(hello());
    let order = Rc::new(RefCell::new(Vec::new()));
    for kind in [NoticeKind::Created, NoticeKind::SessionStart, NoticeKind::Status] {
        let order = order.clone();
        ctx.on(kind, move |notice| {
            order.borrow_mut().push(notice.kind().as_str());
            if notice.kind() == NoticeKind::Created {
                notice.agent().expect("an agent").followup("early")?;
            }
            Ok(())
        })
        .expect("registered");
    }
    let agent = ctx.agent("a").provider("fake").model("m").setup(|own| async move {
        let agent = own.own_agent().expect("the agent's own context");
        let error = agent.followup("too early").expect_err("refused");
        assert_eq!(error.code(), &Code::NotPublished);
        Ok(())
    });
    let agent = ctx.runtime().block_on(agent.open()).expect("opened");
    settle(&ctx);
    assert_eq!(*order.borrow(), ["agent/created", "agent/session-start", "agent/status", "agent/status"]);
    assert_eq!(turn_ends(&agent), [TurnEndReason::Completed]);
}

#[test]
fn d_18_waiting_for_oneself_fails_and_disposing_oneself_is_a_request() {
    let ctx = context(Scripted::new().calls([("c1", "suicide", "{}")]));
    let waited = Rc::new(RefCell::new(None));
    let seen = waited.clone();
    ctx.tools()
        .register(Tool::new("suicide", move |call| {
            let seen = seen.clone();
            async move {
                let agent = call.agent().expect("an agent's call").clone();
                *seen.borrow_mut() = agent.when_idle().await.err().map(|error| error.code().clone());
                agent.dispose().await;
                Ok(ToolOutput::value("requested"))
            }
        }))
        .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!(*waited.borrow(), Some(Code::SelfWait));
    assert_eq!(turn_ends(&agent), [TurnEndReason::Aborted(CancelCause::Disposed)]);
    assert!(ctx.find_agent("a").is_none());
    assert_eq!(ctx.runtime().task_count(), 0);
}

#[test]
fn case_044_and_046_what_follows_depends_on_calls_and_not_on_the_finish_label() {
    let odd = |finish: FinishReason, reply: ScriptedReply| ScriptedReply { finish: Some(finish), ..reply };
    let script = Scripted::new()
        .reply(odd(FinishReason::Stop, ScriptedReply::calls([("c1", "noop", "{}")])))
        .reply(odd(FinishReason::ToolCalls, ScriptedReply::text("no calls at all")));
    let ctx = context(script.clone());
    ctx.tools().register(Tool::new("noop", |_| async { Ok(ToolOutput::value("ok")) })).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!(script.request_count(), 2);
    assert_eq!(turn_ends(&agent), [TurnEndReason::Completed]);
}

#[test]
fn case_085_a_listener_may_await_another_agents_turn() {
    let ctx = context(hello());
    let other = open(&ctx, "other");
    let inner = other.clone();
    ctx.waterfall::<PreStep, _>(move |step, next| {
        let inner = inner.clone();
        async move {
            if step.agent.id().as_str() == "asking" {
                let answer = inner.run("help")?.await?;
                assert_eq!(answer.text, "hi");
            }
            next.call().await
        }
    })
    .expect("registered");
    let agent = open(&ctx, "asking");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!(turn_ends(&agent), [TurnEndReason::Completed]);
    assert_eq!(turn_ends(&other), [TurnEndReason::Completed]);
}

#[test]
fn a_listener_that_panics_fails_its_turn_and_the_agent_goes_on() {
    let ctx = context(hello());
    let once = Cell::new(false);
    ctx.waterfall::<PreStep, _>(move |_, next| {
        assert!(once.replace(true), "planned panic");
        async move { next.call().await }
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("one").expect("accepted");
    settle(&ctx);
    agent.followup("two").expect("accepted");
    settle(&ctx);
    let ends = turn_ends(&agent);
    assert_eq!(ends[0].kind(), "error");
    assert_eq!(ends[1], TurnEndReason::Completed);
}

#[test]
fn listeners_that_call_back_into_every_public_method_find_no_borrow_held() {
    let ctx = context(Scripted::new().calls([("c1", "noop", "{}")]).text("done"));
    ctx.tools().register(Tool::new("noop", |_| async { Ok(ToolOutput::value("ok")) })).expect("registered");
    let touched = Rc::new(Cell::new(0));
    for kind in NoticeKind::ALL {
        let (inner, touched) = (ctx.clone(), touched.clone());
        ctx.on(kind, move |notice| {
            touched.set(touched.get() + 1);
            let _ = (inner.agents(), inner.llm().providers(), inner.tools().schemas());
            inner.on(NoticeKind::Status, |_| Ok(()))?.dispose();
            if notice.kind() != NoticeKind::PromptChanged {
                inner.prompt().variable("late", "x")?.dispose();
            }
            let _ = inner.runtime().pump();
            if let Some(agent) = notice.agent() {
                let _ = (agent.state(), agent.status(), agent.inbox().has_pending(), agent.session().history().len());
                let _ = (agent.receipt("q1").state(), agent.session().surface_nodes(), agent.wake());
                let _ = agent.inbox().replace("nobody", Arc::new(Message::user_text("n", "")));
                let _ = agent.run_maintenance(|_| async { Ok(()) });
                let _ = agent.session().append("note", json!({}));
            }
            Ok(())
        })
        .expect("registered");
    }
    let agent = open(&ctx, "a");
    agent.followup(Message::user_text("q1", "go")).expect("accepted");
    settle(&ctx);
    ctx.runtime().block_on(agent.dispose());
    assert!(touched.get() > 30);
    let ends = turn_ends(&agent);
    assert_eq!(ends, [TurnEndReason::Completed], "{:?}", kinds(&agent));
}

#[test]
fn a_rejected_proposal_blocks_the_turn_and_wake_drains_what_it_parked() {
    let ctx = context(hello());
    let reject = Rc::new(Cell::new(true));
    let deciding = reject.clone();
    ctx.waterfall::<PreStep, _>(move |_, next| {
        let reject = deciding.get();
        async move { if reject { Ok(PreStepDecision::Reject) } else { next.call().await } }
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("one").expect("accepted");
    agent.followup("two").expect("accepted");
    settle(&ctx);
    assert_eq!(turn_ends(&agent), [TurnEndReason::Blocked]);
    assert_eq!(agent.state().expect("state").parked.len(), 1);
    reject.set(false);
    agent.wake().expect("awake");
    settle(&ctx);
    assert_eq!(turn_ends(&agent), [TurnEndReason::Blocked, TurnEndReason::Completed]);
}

#[test]
fn two_runs_with_the_same_inputs_write_the_same_bytes() {
    let run = || {
        let clock = ManualClock::new(1_000);
        let ids = Rc::new(turnwheel::id::CountingIds::new("id"));
        let ctx = Context::builder().ports(Ports { clock: Rc::new(clock), ids }).build();
        ctx.llm().register("fake", Scripted::new().calls([("c1", "noop", "{}")]).text("done")).expect("a new route");
        ctx.tools().register(Tool::new("noop", |_| async { Ok(ToolOutput::value("ok")) })).expect("registered");
        let agent = open(&ctx, "a");
        agent.followup("go").expect("accepted");
        settle(&ctx);
        agent.session().events_from(0).iter().map(|event| event.json().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

#[test]
fn a_timer_cuts_a_tool_that_is_too_slow_and_its_signal_says_so() {
    let clock = ManualClock::new(0);
    let ids = Rc::new(turnwheel::id::RandomIds);
    let ctx = Context::builder().ports(Ports { clock: Rc::new(clock.clone()), ids }).build();
    ctx.llm().register("fake", Scripted::new().calls([("c1", "slow", "{}")]).text("ok")).expect("a new route");
    let slow = Tool::new("slow", |call| async move {
        call.signal().cancelled().await;
        Ok(ToolOutput::value("gave up"))
    });
    ctx.tools().register(slow.timeout(std::time::Duration::from_millis(50))).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!(agent.state().expect("state").running_tools, ["c1"]);
    clock.advance(std::time::Duration::from_millis(50));
    settle(&ctx);
    let results = agent.session().events_from(0);
    let error = results.iter().find_map(|event| match &event.data {
        EventData::ToolResult { error, .. } => error.clone(),
        _ => None,
    });
    assert_eq!(error.map(|error| error.code).as_deref(), Some("TOOL_TIMEOUT"));
    assert_eq!(turn_ends(&agent), [TurnEndReason::Completed]);
}

#[test]
fn a_05_a_spent_budget_of_calls_answers_the_calls_that_had_not_started() {
    let turn_budget = Budget { tool_calls: Some(2), ..Budget::default() };
    let ctx = Context::builder().loop_options(LoopOptions { turn_budget, ..LoopOptions::default() }).build();
    let script = Scripted::new().calls([("c1", "noop", "{}"), ("c2", "noop", "{}"), ("c3", "noop", "{}")]);
    ctx.llm().register("fake", script.clone()).expect("a new route");
    ctx.tools().register(Tool::new("noop", |_| async { Ok(ToolOutput::value("ok")) }).parallel()).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!(turn_ends(&agent), [TurnEndReason::Aborted(CancelCause::Hook("budget: tool-calls 2/2".into()))]);
    let errors: Vec<_> = agent.session().history().iter().map(|m| m.json().contains("\"isError\":true")).collect();
    assert_eq!(errors, [false, false, false, false, true], "prompt, calls, two results, one that never ran");
    assert_eq!(script.request_count(), 1);
}

#[test]
fn a_05_an_agents_budget_of_tokens_holds_over_its_turns() {
    let agent_budget = Budget { tokens: Some(10), ..Budget::default() };
    let ctx = Context::builder().loop_options(LoopOptions { agent_budget, ..LoopOptions::default() }).build();
    let usage = turnwheel::message::Usage { input_tokens: 4, output_tokens: 2, ..Default::default() };
    let reply =
        move |_: &turnwheel::llm::ModelRequest| ScriptedReply { usage: Some(usage), ..ScriptedReply::text("hi") };
    ctx.llm().register("fake", Scripted::new().respond(reply)).expect("a new route");
    let agent = open(&ctx, "a");
    for _ in 0..3 {
        agent.followup("go").expect("accepted");
        settle(&ctx);
    }
    let spent = TurnEndReason::Aborted(CancelCause::Hook("budget: tokens 12/10".into()));
    assert_eq!(turn_ends(&agent), [TurnEndReason::Completed, TurnEndReason::Completed, spent]);
    assert_eq!(agent.state().expect("state").parked.len(), 1, "the prompt is kept");
}

#[test]
fn bad_schemas_and_values_that_are_not_json_are_named() {
    let ctx = context(Scripted::new().calls([("c1", "nan", "{}")]).text("sorry"));
    let bad = Tool::new("bad", |_| async { Ok(ToolOutput::value("")) }).parameters(json!({"type": "objekt"}));
    let error = ctx.tools().register(bad).expect_err("refused");
    assert_eq!(error.code(), &Code::UnsupportedSchema);
    assert!(error.message().contains("\"bad\"") && error.message().contains("type"), "{}", error.message());
    ctx.tools().register(Tool::new("nan", |_| async { Ok(ToolOutput::value(f64::NAN)) })).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    let events = agent.session().events_from(0);
    let error = events.iter().find_map(|event| match &event.data {
        EventData::ToolResult { error, .. } => error.clone(),
        _ => None,
    });
    assert_eq!(error.map(|error| error.code).as_deref(), Some("INVALID_TOOL_OUTPUT"));
    assert_eq!(turn_ends(&agent), [TurnEndReason::Completed], "the model hears of it and the turn goes on");
}

#[test]
fn a_05_the_time_of_a_turn_and_of_an_agent_is_a_budget_on_the_logs_clock() {
    for of_agent in [false, true] {
        let clock = ManualClock::new(0);
        let ids = Rc::new(turnwheel::id::RandomIds);
        let limit = Budget { wall_ms: Some(100), ..Budget::default() };
        let options = if of_agent {
            LoopOptions { agent_budget: limit, ..LoopOptions::default() }
        } else {
            LoopOptions { turn_budget: limit, ..LoopOptions::default() }
        };
        let ports = Ports { clock: Rc::new(clock.clone()), ids };
        let ctx = Context::builder().ports(ports).loop_options(options).build();
        let script = Scripted::new().respond(|_| ScriptedReply::calls([("c1", "work", "{}")]));
        ctx.llm().register("fake", script.clone()).expect("a new route");
        let work = Tool::new("work", move |_| {
            clock.advance(std::time::Duration::from_millis(60));
            async { Ok(ToolOutput::value("done")) }
        });
        ctx.tools().register(work).expect("registered");
        let agent = open(&ctx, "a");
        agent.followup("go").expect("accepted");
        settle(&ctx);
        let spent = TurnEndReason::Aborted(CancelCause::Hook("budget: wall-ms 120/100".into()));
        assert_eq!((script.request_count(), turn_ends(&agent)), (2, vec![spent]), "the running step finishes");
        let budgets: Vec<_> =
            agent.session().events_from(0).iter().filter(|event| event.kind() == "turn/budget").cloned().collect();
        let data = budgets[0].data_value();
        let told = ["turn", "budget", "limit", "used"].map(|key| data.get(key).cloned());
        assert_eq!(told, [json!(1), json!("wall-ms"), json!(100), json!(120)].map(Some));
        assert_eq!(data.get("scope"), of_agent.then(|| json!("agent")).as_ref(), "whose budget, if not the turn's");
        assert!(budgets[0].ignorable);
        agent.followup("again").expect("accepted");
        settle(&ctx);
        // A turn has its own hundred milliseconds, an agent has spent them for good.
        assert_eq!(script.request_count(), if of_agent { 2 } else { 4 });
    }
}

#[test]
fn a_06_a_turn_that_takes_too_long_is_cancelled_and_the_queue_is_kept() {
    let clock = ManualClock::new(0);
    let ids = Rc::new(turnwheel::id::RandomIds);
    let turn_timeout = Some(std::time::Duration::from_secs(1));
    let ctx = Context::builder()
        .ports(Ports { clock: Rc::new(clock.clone()), ids })
        .loop_options(LoopOptions { turn_timeout, ..LoopOptions::default() })
        .build();
    ctx.llm().register("fake", hello()).expect("a new route");
    let hangs = ctx.waterfall::<PreStep, _>(|step, next| async move {
        step.signal.cancelled().await;
        next.call().await
    });
    let agent = open(&ctx, "a");
    agent.followup(Message::user_text("q1", "slow")).expect("accepted");
    agent.followup(Message::user_text("q2", "queued")).expect("accepted");
    settle(&ctx);
    clock.advance(std::time::Duration::from_secs(1));
    settle(&ctx);
    let timeout = TurnEndReason::Aborted(CancelCause::Hook("timeout: turn 1000ms".into()));
    assert_eq!(turn_ends(&agent), [timeout]);
    assert_eq!(agent.state().expect("state").parked.len(), 2, "the prompt that entered no step is back (D-10)");
    hangs.expect("registered").dispose();
    agent.wake().expect("awake");
    settle(&ctx);
    assert_eq!(turn_ends(&agent).len(), 3);
}

#[test]
fn a_03_a_run_whose_prompt_is_parked_by_a_failing_turn_is_told_instead_of_waiting_for_ever() {
    let failure = turnwheel::llm::Failure::new("SERVER", "down");
    let ctx = context(Scripted::new().reply(ScriptedReply::error(failure)).text("never asked"));
    let agent = open(&ctx, "a");
    let first = agent.run("one").expect("accepted");
    let second = agent.run(Message::user_text("q2", "two")).expect("accepted");
    let mut third = agent.stream(Message::user_text("q3", "three")).expect("accepted");
    assert_eq!(ctx.runtime().block_on(first).expect("ran").reason.kind(), "error");
    assert_eq!(ctx.runtime().block_on(second).expect_err("parked").code(), &Code::Parked);
    let error = ctx.runtime().block_on(third.next()).expect("an item").expect_err("parked");
    assert_eq!(error.code(), &Code::Parked);
    assert!(ctx.runtime().block_on(third.next()).is_none());
    assert!(matches!(agent.receipt("q2").state(), Some(ReceiptState::Discarded { .. })), "withdrawn, in the log");
    assert!(!agent.inbox().has_pending());
}

#[test]
fn d_18_a_receipt_cannot_be_awaited_inside_the_turn_that_it_waits_for() {
    let ctx = context(Scripted::new().calls([("c1", "wait", "{}")]).text("done"));
    let codes = Rc::new(RefCell::new(Vec::new()));
    let seen = codes.clone();
    let wait = Tool::new("wait", move |call| {
        let seen = seen.clone();
        async move {
            let agent = call.agent().expect("an agent's call").clone();
            for id in ["q1", "nobody"] {
                let error = agent.receipt(id).settled().await.expect_err("refused");
                seen.borrow_mut().push(error.code().clone());
            }
            Ok(ToolOutput::value("ok"))
        }
    });
    ctx.tools().register(wait).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(Message::user_text("q1", "go")).expect("accepted");
    settle(&ctx);
    assert_eq!(*codes.borrow(), [Code::SelfWait, Code::NotRegistered]);
    assert_eq!(turn_ends(&agent), [TurnEndReason::Completed]);
}

#[test]
fn p_3_a_wake_from_a_discarded_listener_that_survives_the_discarding_runs() {
    let ctx = context(Scripted::new().calls([("c1", "wait", "{}")]).text("the replacement"));
    let (tool, _, gate) = gated("wait");
    ctx.tools().register(tool).expect("registered");
    let once = Cell::new(false);
    ctx.on(NoticeKind::Discarded, move |notice| {
        if !once.replace(true) {
            notice.agent().expect("an agent").steer(Message::user_text("s1", "instead"))?;
        }
        Ok(())
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    agent.followup("queued").expect("accepted");
    settle(&ctx);
    agent.cancel(CancelCause::User);
    gate.cancel(CancelCause::User);
    settle(&ctx);
    assert_eq!(turn_ends(&agent), [TurnEndReason::Aborted(CancelCause::User), TurnEndReason::Completed]);
    assert_eq!(agent.receipt("s1").state().map(|state| format!("{state:?}").contains("Ended")), Some(true));
}

#[test]
fn p_2_content_that_no_provider_takes_is_refused_at_delivery() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    let contents = [
        json!([5]),
        json!([{"type": "text"}]),
        json!([{"no": "type"}]),
        json!([{"type": "tool-call", "id": "c", "name": "n", "arguments": "{}"}]),
        json!([{"type": "tool-result", "toolCallId": "c", "content": []}]),
    ];
    for content in contents {
        let mut value = turnwheel::json::Object::new();
        value.insert("id", "m");
        value.insert("role", "user");
        value.insert("content", content.clone());
        value.insert("source", json!({"kind": "user"}));
        let message = Message::from_value(&value.into()).expect("readable");
        let error = agent.followup(message).expect_err("refused");
        assert_eq!(error.code(), &Code::InvalidMessage, "{content}");
        assert!(agent.session().is_empty());
    }
}

#[test]
fn tool_8_bodies_go_on_while_the_policy_of_a_later_call_waits() {
    let ctx = context(Scripted::new().calls([("c1", "fetch", "{}"), ("c2", "fetch", "{}")]).text("done"));
    let (body, policy) = (turnwheel::runtime::Signal::new(), turnwheel::runtime::Signal::new());
    let finished = Rc::new(Cell::new(false));
    let (gate, flag) = (body.clone(), finished.clone());
    let fetch = Tool::new("fetch", move |call| {
        let (gate, flag) = (gate.clone(), flag.clone());
        async move {
            if call.call_id().as_str() == "c1" {
                gate.cancelled().await;
                flag.set(true);
            }
            Ok(ToolOutput::value("ok"))
        }
    });
    ctx.tools().register(fetch.parallel()).expect("registered");
    let approval = policy.clone();
    ctx.waterfall::<turnwheel::tools::PreExecute, _>(move |request, next| {
        let approval = approval.clone();
        async move {
            if request.call.call_id.as_str() == "c2" {
                approval.cancelled().await;
            }
            next.call().await
        }
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    body.cancel(CancelCause::User);
    settle(&ctx);
    assert!(finished.get(), "the first body ran to its end beside the second call's policy");
    assert!(!kinds(&agent).contains(&"tool/result".to_owned()), "and its result waits (TOOL-12)");
    policy.cancel(CancelCause::User);
    settle(&ctx);
    assert_eq!(turn_ends(&agent), [TurnEndReason::Completed]);
}

#[test]
fn a_01_to_a_03_a_delivery_that_was_refused_after_its_send_returned_is_told_to_whoever_waits() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    let refusing = Rc::new(Cell::new(false));
    let flag = refusing.clone();
    ctx.check_events(move |_, event| {
        let late = flag.get() && format!("{:?}", event.data).contains("late");
        if late { Err(turnwheel::Error::host("refused")) } else { Ok(()) }
    })
    .expect("registered");
    let told: Rc<RefCell<Vec<String>>> = Rc::default();
    let (outside, log, late, once) = (ctx.clone(), told.clone(), agent.clone(), Cell::new(true));
    ctx.on(NoticeKind::SessionEvent, move |notice| {
        let at_the_end = matches!(notice, turnwheel::Notice::SessionEvent { event, .. } if event.kind() == "turn/end");
        if !at_the_end || !once.replace(false) {
            return Ok(());
        }
        refusing.set(true);
        // Sent and waited for by nobody's turn. The checks refuse both when the publication under way is over.
        outside.without_initiator(|| -> turnwheel::Result<()> {
            let mut stream = late.stream(Message::user_text("s1", "late, streamed"))?;
            let receipt = late.followup(Message::user_text("s2", "late, sent"))?;
            let (streamed, durable) = (log.clone(), log.clone());
            outside.runtime().spawn(async move {
                let error = stream.next().await.expect("an end").expect_err("refused");
                streamed.borrow_mut().push(format!("stream {}", error.code().as_str()));
            });
            outside.runtime().spawn(async move {
                let error = receipt.durable().await.expect_err("refused");
                durable.borrow_mut().push(format!("durable {}", error.code().as_str()));
            });
            Ok(())
        })?
    })
    .expect("registered");
    agent.followup("first").expect("accepted");
    settle(&ctx);
    told.borrow_mut().sort();
    assert_eq!(*told.borrow(), ["durable NOT_REGISTERED", "stream NOT_REGISTERED"]);
    let error = ctx.runtime().block_on(agent.receipt("never sent").durable()).expect_err("nothing to wait for");
    assert_eq!(error.code().as_str(), "NOT_REGISTERED");
}

#[test]
fn a_01_a_turn_that_ended_well_without_taking_a_prompt_is_why_that_prompt_waits() {
    let ctx = context(hello());
    let first = Cell::new(true);
    ctx.waterfall::<PreStep, _>(move |step, next| {
        if first.replace(false) {
            step.messages.borrow_mut().clear();
        }
        async move { next.call().await }
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(Message::user_text("q1", "one")).expect("accepted");
    let second = agent.followup(Message::user_text("q2", "two")).expect("accepted");
    settle(&ctx);
    let why = Parked::TurnEnded { turn: 1, reason: TurnEndReason::Completed };
    let parked = Some(ReceiptState::Pending { target: InboxTarget::NextTurn, parked: Some(why) });
    assert_eq!(second.state(), parked);
    // Put in place of itself it has waited all the same.
    agent.inbox().replace("q2", Message::user_text("q2", "two, in other words").into()).expect("replaced");
    assert_eq!(second.state(), parked);
}
