//! Turns and how they stop: agent.md sections 6 and 9. Tests are named after the ids they show.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{
    at_first, context, count, ends, events, gated, hello, kinds, lines, noop, on_first, open, pending, prompt, record,
    refuse, release, settle, shared, turn_ends, user_messages,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::agent::{PreStep, PreStepDecision, ReceiptState, Recovery, RequestErrorEvent, RequestEvent};
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::llm::{Failure, FinishReason};
use turnwheel::runtime::{Signal, yield_now};
use turnwheel::session::{InboxTarget, TurnEndReason};
use turnwheel::system_prompt::PromptText;
use turnwheel::{Agent, AgentStatus, CancelCause, Code, Context, Error, EventData, Message, Notice, NoticeKind};

/// Takes part in `agent/pre-step` and delegates.
fn before_step(ctx: &Context, look: impl Fn(&PreStep) + 'static) {
    ctx.waterfall::<PreStep, _>(move |step, next| {
        look(&step);
        async move { next.call().await }
    })
    .expect("registered");
}

fn calls() -> ScriptedReply {
    ScriptedReply::calls([("c1", "noop", "{}")])
}

fn with_noop(script: Scripted) -> Context {
    let ctx = context(script);
    ctx.tools().register(noop("noop")).expect("registered");
    ctx
}

fn failure(agent: &Agent, turn: usize) -> Failure {
    match &turn_ends(agent)[turn] {
        TurnEndReason::Error(failure) => failure.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn turn_3_to_6_a_boundary_claims_assembles_and_proposes_the_batch() {
    let ctx = with_noop(Scripted::new().reply(calls()).text("done"));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let assembled = seen.clone();
    let section = PromptText::dynamic(move |_| {
        assembled.borrow_mut().push("assembled".to_owned());
        Ok(Some("be kind".into()))
    });
    ctx.prompt().section("s", 1.0, section).expect("registered");
    let proposed = seen.clone();
    before_step(&ctx, move |step| {
        let ids: Vec<_> = step.messages.borrow().iter().map(|message| message.id().to_string()).collect();
        assert!(!step.signal.is_cancelled());
        let line = format!("{} {}/{} {}", step.agent.id(), step.turn, step.step, ids.join(","));
        proposed.borrow_mut().push(line);
    });
    let agent = open(&ctx, "a");
    agent.inject(prompt("i1")).expect("accepted");
    agent.followup(prompt("q1")).expect("accepted");
    agent.followup(prompt("q2")).expect("accepted");
    agent.inject(prompt("i2")).expect("accepted");
    ctx.runtime().pump();
    let expected = ["assembled", "a 1/1 i1,q1", "assembled", "a 1/2 i2"];
    assert_eq!(seen.borrow()[..4], expected);
    settle(&ctx);
    assert_eq!(seen.borrow()[4..], ["assembled", "a 2/1 q2"]);
}

#[test]
fn turn_7_the_batch_is_read_when_the_innermost_continuation_runs_and_a_listener_that_answers_drops_the_snapshot() {
    let ctx = context(hello());
    ctx.prompt().context("clock", 1.0, "It is noon.").expect("registered");
    let answers = Rc::new(Cell::new(false));
    let answering = answers.clone();
    ctx.waterfall::<PreStep, _>(move |step, next| {
        step.messages.borrow_mut().push(shared(&format!("added {}", step.turn)));
        let answer = answering.get().then(|| PreStepDecision::Enter(step.messages.borrow().clone()));
        async move {
            match answer {
                Some(answer) => Ok(answer),
                None => next.call().await,
            }
        }
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    answers.set(true);
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(user_messages(&agent), ["q1", "added 1"], "no snapshot");
    answers.set(false);
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    let messages = user_messages(&agent);
    assert_eq!(messages[2..4], ["q2", "added 2"]);
    assert_eq!(messages.len(), 5, "the snapshot is proposed again, behind the edited batch (RCX-4)");
}

#[test]
fn turn_8_and_48_the_decision_replaces_the_batch_and_what_it_omits_is_gone() {
    let script = hello();
    let ctx = context(script.clone());
    ctx.waterfall::<PreStep, _>(|_, _| async {
        Ok(PreStepDecision::Enter(vec![shared("x"), Arc::new(Message::user_text("q1", "rewritten"))]))
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.inject(prompt("i1")).expect("accepted");
    let receipt = agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    let messages: Vec<_> =
        script.last_request().expect("asked").messages.iter().map(|message| message.text()).collect();
    assert_eq!(messages, ["text of x", "rewritten"]);
    assert!(!agent.inbox().has_pending());
    let ended = Some(ReceiptState::Ended { turn: 1, reason: TurnEndReason::Completed });
    assert_eq!((receipt.state(), agent.receipt("i1").state()), (ended.clone(), ended));
}

#[test]
fn turn_9_pre_step_runs_once_a_step_and_not_again_for_a_retry() {
    let down = || Failure::new("SERVER", "down");
    let ctx = with_noop(Scripted::new().error(down()).reply(calls()).error(down()).text("done"));
    ctx.waterfall::<RequestErrorEvent, _>(|_, _| async { Ok(Recovery::Retry) }).expect("registered");
    let steps = Rc::new(RefCell::new(Vec::new()));
    let seen = steps.clone();
    before_step(&ctx, move |step| {
        assert_eq!(count(&step.agent, "step/start") as u64, step.step - 1, "the proposed step is not open yet");
        seen.borrow_mut().push(step.step);
    });
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(*steps.borrow(), [1, 2]);
    assert_eq!(ends(&agent), ["completed"]);
}

#[test]
fn turn_10_and_11_a_message_that_the_log_refuses_fails_the_open_step_and_the_earlier_ones_stay() {
    let ctx = context(hello());
    ctx.check_events(|_, event| match &event.data {
        EventData::UserMessage(message) if message.id().as_str() == "q1" => Err(Error::host("q1 is refused")),
        _ => Ok(()),
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.inject(prompt("i1")).expect("accepted");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    let log = kinds(&agent);
    assert_eq!(log[log.len() - 4..], ["step/start", "user/message", "step/end", "turn/end"]);
    assert_eq!(failure(&agent, 0), Failure::new("UNKNOWN", "q1 is refused"));
}

#[test]
fn turn_30_and_39_a_refused_step_end_leaves_the_step_open_and_closes_the_turn_as_an_error() {
    let ctx = context(hello());
    refuse(&ctx, "step/end");
    let heard = record(&ctx);
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert_eq!((count(&agent, "step/end"), ends(&agent)), (0, vec!["error".to_owned()]));
    assert_eq!(lines(&heard, &["error"]), ["error 1/1 step/end is refused"]);
    assert_eq!((agent.status(), pending(&agent, InboxTarget::NextTurn)), (AgentStatus::Idle, vec!["q2".into()]));
    refuse(&ctx, "turn/end");
    agent.wake().expect("awake");
    settle(&ctx);
    let errors = lines(&heard, &["error 2"]);
    assert_eq!(errors, ["error 2/1 step/end is refused", "error 2/1 turn/end is refused"], "one attempt, reported");
}

#[test]
fn turn_31_a_refused_turn_end_is_reported_and_the_next_turn_takes_the_next_number() {
    let ctx = context(hello());
    let refusing = refuse(&ctx, "turn/end");
    let heard = record(&ctx);
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert_eq!(lines(&heard, &["error"]), ["error 1/1 turn/end is refused"]);
    assert_eq!((agent.status(), ends(&agent).len()), (AgentStatus::Idle, 0));
    assert_eq!(pending(&agent, InboxTarget::NextTurn), ["q2"]);
    refusing.set(false);
    agent.wake().expect("awake");
    settle(&ctx);
    assert_eq!((agent.state().expect("state").turn, ends(&agent)), (2, vec!["completed".to_owned()]));
}

#[test]
fn turn_32_blocked_overrides_an_earlier_result_of_the_turn() {
    for finish in [FinishReason::MaxTokens, FinishReason::Stop] {
        let reply = ScriptedReply { finish: Some(finish), ..ScriptedReply::text("cut") };
        let ctx = context(Scripted::new().reply(reply));
        ctx.waterfall::<PreStep, _>(|step, next| async move {
            if step.step == 2 { Ok(PreStepDecision::Reject) } else { next.call().await }
        })
        .expect("registered");
        at_first(&ctx, "step/start", |agent| drop(agent.steer(prompt("s1")).expect("accepted")));
        let agent = open(&ctx, "a");
        agent.followup(prompt("q1")).expect("accepted");
        settle(&ctx);
        assert_eq!(ends(&agent), ["blocked"]);
        assert_eq!(count(&agent, "step/start"), 1);
    }
}

#[test]
fn turn_35_and_36_an_error_is_recorded_with_its_causes_and_a_repeated_cause_once() {
    let ctx = context(hello());
    ctx.waterfall::<PreStep, _>(|_, _| async {
        let root = Error::host("disk full");
        let middle = Error::coded("IoError", "E_IO", "cannot save").caused_by(root);
        let same = Error::host("cannot save").caused_by(middle);
        Err(Error::host("step refused").caused_by(same))
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(failure(&agent, 0), Failure::new("UNKNOWN", "step refused: cannot save: disk full"));
}

#[test]
fn turn_37_an_error_at_a_boundary_names_the_last_committed_step() {
    let ctx = with_noop(Scripted::new().reply(calls()).text("never"));
    ctx.waterfall::<PreStep, _>(|step, next| async move {
        if step.step == 2 { Err(Error::host("planned")) } else { next.call().await }
    })
    .expect("registered");
    let heard = record(&ctx);
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(lines(&heard, &["error"]), ["error 1/1 planned"]);
}

#[test]
fn turn_38_and_d_10_a_cancel_from_an_error_listener_changes_no_reason_and_later_wakes_are_latched() {
    let ctx = context(hello());
    ctx.waterfall::<PreStep, _>(|step, next| async move {
        if step.turn == 1 { Err(Error::host("planned")) } else { next.call().await }
    })
    .expect("registered");
    on_first(&ctx, NoticeKind::Error, |agent| {
        assert_eq!(count(agent, "turn/end"), 0, "it is told before the turn ends");
        agent.cancel_keep_inbox(CancelCause::User);
        agent.steer(prompt("s1")).expect("accepted");
        assert_eq!(pending(agent, InboxTarget::NextTurn), ["s1"]);
    });
    let agent = open(&ctx, "a");
    let receipt = agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(ends(&agent), ["error", "completed"]);
    assert_eq!(user_messages(&agent), ["s1"], "the turn's end accounts for the claim of a failed turn");
    assert!(matches!(receipt.state(), Some(ReceiptState::Ended { turn: 1, .. })));
}

#[test]
fn turn_41_and_43_one_signal_spans_a_turn_and_the_next_turn_has_another() {
    let ctx = with_noop(Scripted::new().reply(calls()).text("done").text("done"));
    let signals: Rc<RefCell<Vec<(u64, Signal)>>> = Rc::default();
    let (at_step, at_request, at_stop, at_tool) = (signals.clone(), signals.clone(), signals.clone(), signals.clone());
    before_step(&ctx, move |step| at_step.borrow_mut().push((step.turn, step.signal.clone())));
    ctx.waterfall::<RequestEvent, _>(move |request, next| {
        at_request.borrow_mut().push((request.turn, request.signal.clone()));
        async move { next.call().await }
    })
    .expect("registered");
    ctx.waterfall::<turnwheel::tools::PreExecute, _>(move |request, next| {
        at_tool.borrow_mut().push((1, request.call.signal.clone()));
        async move { next.call().await }
    })
    .expect("registered");
    ctx.on_turn_stopping(move |stopping| {
        at_stop.borrow_mut().push((stopping.turn, stopping.signal.clone()));
        async { Ok(()) }
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    let signals = signals.borrow();
    assert_eq!(signals.len(), 9);
    let first = &signals[0].1;
    for (turn, signal) in signals.iter() {
        assert_eq!(signal.is_same(first), *turn == 1);
    }
}

#[test]
fn turn_42_context_that_arrives_while_the_last_boundary_is_emptied_starts_a_turn_of_its_own() {
    let ctx = context(hello());
    ctx.waterfall::<PreStep, _>(|step, next| async move {
        if (step.turn, step.step) != (1, 2) {
            return next.call().await;
        }
        step.agent.inject(prompt("i1"))?;
        Ok(PreStepDecision::Enter(vec![]))
    })
    .expect("registered");
    at_first(&ctx, "step/start", |agent| drop(agent.steer(prompt("s1")).expect("accepted")));
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(ends(&agent), ["completed", "completed"]);
    assert_eq!(user_messages(&agent), ["q1", "i1"]);
}

#[test]
fn turn_44_and_d_03_a_cancel_from_the_turns_end_leaves_its_reason_and_parks_the_queue() {
    let ctx = context(hello());
    at_first(&ctx, "turn/end", |agent| agent.cancel_keep_inbox(CancelCause::User));
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert_eq!(ends(&agent), ["completed"], "the cancel does not vanish with the old signal");
    assert_eq!(agent.state().expect("state").parked.len(), 1);
    assert_eq!(agent.status(), AgentStatus::Idle);
}

#[test]
fn turn_49_and_d_03_there_is_no_moment_between_two_turns_of_one_driver() {
    let ctx = context(hello());
    let runtime = ctx.runtime().clone();
    at_first(&ctx, "turn/end", move |agent| {
        let agent = agent.clone();
        runtime.spawn(async move {
            yield_now().await;
            assert_eq!(agent.state().expect("state").turn, 2, "the next turn is open already");
            agent.cancel_keep_inbox(CancelCause::Parent);
        });
    });
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert_eq!(turn_ends(&agent), [TurnEndReason::Completed, TurnEndReason::Aborted(CancelCause::Parent)]);
    assert_eq!(pending(&agent, InboxTarget::NextTurn), ["q2"], "its claim entered no step (D-10)");
}

#[test]
fn turn_46_input_during_a_step_joins_the_next_step_behind_the_results_and_a_prompt_waits_for_its_turn() {
    let ctx = context(Scripted::new().calls([("c1", "wait", "{}")]).text("done").text("done"));
    let (tool, _, gate) = gated("wait");
    ctx.tools().register(tool).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    agent.followup(prompt("q2")).expect("accepted");
    agent.steer(prompt("s1")).expect("accepted");
    release(&gate);
    settle(&ctx);
    let order = kinds(&agent);
    let order: Vec<_> = order.iter().map(String::as_str).filter(|kind| !kind.starts_with("agent/")).collect();
    let result = order.iter().position(|kind| *kind == "tool/result").expect("a result");
    assert_eq!(order[result..result + 5], ["tool/result", "step/end", "step/start", "user/message", "assistant/chunk"]);
    assert_eq!(user_messages(&agent), ["q1", "s1", "q2"]);
    assert_eq!(ends(&agent), ["completed", "completed"]);
}

#[test]
fn turn_34_a_failure_under_a_cancelled_signal_is_an_abort_and_is_not_reported() {
    let ctx = context(hello());
    let heard = record(&ctx);
    ctx.waterfall::<PreStep, _>(|step, _| async move {
        step.agent.cancel(CancelCause::Hook("policy".into()));
        Err(Error::host("lost"))
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(turn_ends(&agent), [TurnEndReason::Aborted(CancelCause::Hook("policy".into()))]);
    assert!(lines(&heard, &["error"]).is_empty());
    assert!(!events(&agent).iter().any(|event| event.json().contains("lost")));
}

#[test]
fn stop_1_the_stop_boundary_is_asked_only_when_the_turn_would_close() {
    let asked = |prepare: &dyn Fn(&Context), script: Scripted| {
        let ctx = with_noop(script);
        prepare(&ctx);
        let turns = Rc::new(RefCell::new(Vec::new()));
        let seen = turns.clone();
        ctx.on_turn_stopping(move |stopping| {
            seen.borrow_mut().push((stopping.turn, count(&stopping.agent, "step/end")));
            async { Ok(()) }
        })
        .expect("registered");
        let agent = open(&ctx, "a");
        agent.followup(prompt("q1")).expect("accepted");
        settle(&ctx);
        let turns = turns.borrow().clone();
        (turns, ends(&agent).remove(0))
    };
    let tools = Scripted::new().reply(calls()).text("done");
    assert_eq!(asked(&|_| {}, tools), (vec![(1, 2)], "completed".into()), "not while results are owed");
    let blocked = |ctx: &Context| {
        ctx.waterfall::<PreStep, _>(|_, _| async { Ok(PreStepDecision::Reject) }).expect("registered");
    };
    assert_eq!(asked(&blocked, Scripted::new()), (vec![], "blocked".into()));
    assert_eq!(asked(&|_| {}, Scripted::new()), (vec![], "error".into()));
    let aborted = |ctx: &Context| at_first(ctx, "step/end", |agent| agent.cancel(CancelCause::User));
    assert_eq!(asked(&aborted, hello()), (vec![], "aborted".into()));
    let steered = |ctx: &Context| at_first(ctx, "step/end", |agent| drop(agent.steer(prompt("s1")).expect("accepted")));
    assert_eq!(asked(&steered, hello()), (vec![(1, 2)], "completed".into()), "not while input waits");
}

#[test]
fn stop_2_and_3_input_extends_a_turn_as_often_as_it_comes_whoever_else_listens() {
    let ctx = context(hello());
    let left = Rc::new(Cell::new(5));
    for _ in 0..2 {
        let left = left.clone();
        ctx.on_turn_stopping(move |stopping| {
            let extend = left.get() > 0;
            left.set(left.get() - i32::from(extend));
            async move {
                if extend {
                    stopping.agent.inject("go on")?;
                }
                Ok(())
            }
        })
        .expect("registered");
    }
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!((ends(&agent), count(&agent, "step/end")), (vec!["completed".to_owned()], 4));
    assert_eq!(user_messages(&agent).len(), 6);
}

#[test]
fn turn_27_a_scheduler_or_log_failure_closes_the_step_and_reports_the_error_as_it_was_raised() {
    let ctx = with_noop(Scripted::new().reply(calls()).text("never"));
    refuse(&ctx, "tool/call");
    let seen = Rc::new(RefCell::new(None));
    let error = seen.clone();
    ctx.on(NoticeKind::Error, move |notice| {
        let Notice::Error { error: raised, .. } = notice else { return Ok(()) };
        *error.borrow_mut() = Some(raised.code().clone());
        Ok(())
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!((ends(&agent), count(&agent, "step/end")), (vec!["error".to_owned()], 1));
    assert_eq!(*seen.borrow(), Some(Code::HostError));
}
