//! Status, wakes and the latch, idle waiters, maintenance: agent.md sections 3, 4, 11 and 12. Named after the ids.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{
    at_first, busy, context, count, ends, hello, kinds, lines, on_first, open, pending, prompt, record, refuse,
    release, settle, user_messages, waiting,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use turnwheel::agent::PreStep;
use turnwheel::llm::adapters::Scripted;
use turnwheel::runtime::{Signal, yield_now};
use turnwheel::session::InboxTarget;
use turnwheel::system_prompt::PromptText;
use turnwheel::{Agent, AgentStatus, CancelCause, Code, Context, Error, Message, Notice, NoticeKind};

fn on_idle(ctx: &Context, act: impl Fn(&Agent) + 'static) {
    let done = Cell::new(false);
    ctx.on(NoticeKind::Status, move |notice| {
        if let Notice::Status { agent, status: AgentStatus::Idle } = notice
            && !done.replace(true)
        {
            act(agent);
        }
        Ok(())
    })
    .expect("registered");
}

fn phase(agent: &Agent) -> &'static str {
    agent.state().expect("state").phase
}

fn latch(agent: &Agent) -> Vec<String> {
    agent.state().expect("state").latch.iter().map(ToString::to_string).collect()
}

#[test]
fn st_1_and_2_there_are_two_statuses_over_three_phases_and_maintenance_is_idle() {
    let ctx = context(waiting());
    let heard = record(&ctx);
    let agent = open(&ctx, "a");
    assert_eq!((agent.status(), phase(&agent)), (AgentStatus::Idle, "idle"));
    let gate = Signal::new();
    let opened = gate.clone();
    let task = move |_| async move {
        opened.cancelled().await;
        Ok(())
    };
    drop(agent.run_maintenance(task).expect("idle"));
    assert_eq!((agent.status(), phase(&agent)), (AgentStatus::Idle, "maintenance"));
    release(&gate);
    settle(&ctx);
    assert!(lines(&heard, &["status", "log"]).is_empty());
    agent.followup(prompt("q1")).expect("accepted");
    assert_eq!((agent.status(), phase(&agent)), (AgentStatus::Running, "running"));
}

#[test]
fn st_3_7_and_9_a_burst_is_one_running_interval_that_ends_behind_the_last_turn_and_before_waiters_resolve() {
    let ctx = context(hello());
    let heard = record(&ctx);
    let agent = open(&ctx, "a");
    for id in ["q1", "q2", "q3"] {
        agent.followup(prompt(id)).expect("accepted");
    }
    let (waiter, log) = (agent.when_idle(), heard.clone());
    ctx.runtime().spawn(async move {
        waiter.await.expect("idle");
        log.borrow_mut().push("waiter resolved".into());
    });
    settle(&ctx);
    let order = lines(&heard, &["status", "log turn/", "waiter"]);
    let turn = ["log turn/start", "log turn/end"];
    let expected = [&["status running"], &turn[..], &turn, &turn, &["status idle", "waiter resolved"]].concat();
    assert_eq!(order, expected);
}

#[test]
fn st_4_5_and_turn_45_a_waking_call_returns_with_the_turn_open_and_its_batch_claimed() {
    let ctx = context(hello());
    let heard = record(&ctx);
    let log = heard.clone();
    let section = PromptText::dynamic(move |_| {
        log.borrow_mut().push("assembled".into());
        Ok(Some("be kind".into()))
    });
    ctx.prompt().section("s", 1.0, section).expect("registered");
    let agent = open(&ctx, "a");
    heard.borrow_mut().clear();
    agent.followup(prompt("q1")).expect("accepted");
    let start = [
        "log agent/inbox/spliced",
        "inserted q1",
        "status running",
        "log turn/start",
        "log agent/inbox/spliced",
        "claimed q1 by 1",
    ];
    assert_eq!(*heard.borrow(), start);
    settle(&ctx);
    let rest = [
        "assembled",
        "log step/start",
        "log user/message",
        "log request/header",
        "log request/context",
        "log assistant/chunk",
        "log assistant/chunk",
        "log assistant/message",
        "log step/end",
        "log turn/end",
        "status idle",
    ];
    assert_eq!(heard.borrow()[start.len()..], rest);
}

#[test]
fn st_6_and_10_can_11_turn_1_and_18_a_cancel_in_the_running_notification_ends_the_run_without_a_turn() {
    let ctx = context(hello());
    let heard = record(&ctx);
    on_first(&ctx, NoticeKind::Status, |agent| {
        let state = agent.state().expect("state");
        assert_eq!((state.phase, state.turn, state.step), ("running", 0, 0));
        assert_eq!(count(agent, "turn/start"), 0, "running does not imply an open turn");
        agent.cancel_keep_inbox(CancelCause::User);
    });
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    assert_eq!(agent.status(), AgentStatus::Idle);
    assert_eq!(kinds(&agent), ["agent/inbox/spliced"]);
    assert_eq!(lines(&heard, &["status", "error"]), ["status running", "status idle"]);
    assert_eq!(pending(&agent, InboxTarget::NextTurn), ["q1"], "as the cancel left it");
    agent.wake().expect("awake");
    settle(&ctx);
    assert_eq!(ends(&agent), ["completed"]);
    assert_eq!(agent.state().expect("state").turn, 1, "the number was not consumed");
    on_first(&ctx, NoticeKind::Status, |agent| {
        let state = agent.state().expect("state");
        assert_eq!((state.phase, state.turn, state.step), ("running", 1, 0), "the last turn's number, and no step");
        agent.cancel_keep_inbox(CancelCause::User);
    });
    agent.followup(prompt("q2")).expect("accepted");
    assert_eq!((agent.status(), ends(&agent).len()), (AgentStatus::Idle, 1), "this run has a signal of its own");
}

#[test]
fn st_11_and_12_a_failing_status_listener_stalls_neither_a_transition_nor_a_disposal() {
    let ctx = context(waiting());
    ctx.on(NoticeKind::Status, |_| Err(Error::host("planned"))).expect("registered");
    ctx.on(NoticeKind::Status, |_| panic!("planned")).expect("registered");
    let heard = record(&ctx);
    let (agent, gate) = busy(&ctx);
    drop(agent.dispose());
    settle(&ctx);
    assert!(!heard.borrow().contains(&"agent/disposed".to_owned()), "the body is awaited");
    release(&gate);
    settle(&ctx);
    assert_eq!(lines(&heard, &["status", "agent/disposed"]), ["status running", "status idle", "agent/disposed"]);
}

#[test]
fn st_13_wake_21_and_d_06_a_start_that_cannot_succeed_leaves_the_agent_idle_and_the_error_with_the_caller() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    agent.inject(prompt("c1")).expect("accepted");
    ctx.runtime().close();
    let heard = record(&ctx);
    assert_eq!(agent.followup(prompt("q1")).expect_err("refused").code(), &Code::RuntimeClosed);
    assert_eq!(agent.wake().expect_err("refused").code(), &Code::RuntimeClosed);
    assert_eq!((agent.status(), phase(&agent)), (AgentStatus::Idle, "idle"));
    assert_eq!(agent.session().len(), 1);
    assert!(heard.borrow().is_empty());
}

#[test]
fn st_14_turn_2_and_19_a_refused_turn_start_consumes_neither_number_nor_inbox() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    let refusing = refuse(&ctx, "turn/start");
    let heard = record(&ctx);
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert_eq!(lines(&heard, &["error"]), ["error 1/0 turn/start is refused"]);
    assert_eq!(agent.status(), AgentStatus::Idle);
    assert_eq!(pending(&agent, InboxTarget::NextTurn), ["q2"]);
    assert_eq!(agent.state().expect("state").turn, 1);
    refusing.set(false);
    agent.wake().expect("awake");
    settle(&ctx);
    assert_eq!(agent.state().expect("state").turn, 2);
    assert_eq!(user_messages(&agent), ["q1", "q2"]);
}

#[test]
fn st_15_a_waking_send_in_an_idle_listener_starts_a_driver_inside_the_notification() {
    let ctx = context(hello());
    on_idle(&ctx, |agent| {
        assert_eq!(agent.status(), AgentStatus::Idle);
        agent.followup(prompt("q2")).expect("accepted");
        assert_eq!(agent.status(), AgentStatus::Running);
        assert_eq!(agent.state().expect("state").turn, 2, "its turn is open");
    });
    let heard = record(&ctx);
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(ends(&agent), ["completed", "completed"]);
    assert_eq!(lines(&heard, &["status"]).len(), 4);
}

#[test]
fn st_16_maintenance_started_by_an_idle_listener_takes_the_latch_over() {
    let ctx = context(waiting());
    let gate = Signal::new();
    let opened = gate.clone();
    on_idle(&ctx, move |agent| {
        let opened = opened.clone();
        let task = move |_| async move {
            opened.cancelled().await;
            Ok(())
        };
        drop(agent.run_maintenance(task).expect("idle"));
    });
    let (agent, tool) = busy(&ctx);
    agent.cancel(CancelCause::User);
    agent.followup(prompt("q2")).expect("accepted");
    release(&tool);
    settle(&ctx);
    assert_eq!((phase(&agent), latch(&agent)), ("maintenance", vec!["q2".to_owned()]));
    assert_eq!(ends(&agent), ["aborted"]);
    release(&gate);
    settle(&ctx);
    assert_eq!(ends(&agent), ["aborted", "completed"]);
}

#[test]
fn wake_2_and_inb_14_a_refused_insertion_reaches_the_caller_and_wakes_nobody() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    let refusing = refuse(&ctx, "agent/inbox/spliced");
    let heard = record(&ctx);
    let error = agent.followup(prompt("q1")).expect_err("refused");
    assert_eq!(error.message(), "agent/inbox/spliced is refused");
    assert!(agent.session().is_empty() && !agent.inbox().has_pending() && heard.borrow().is_empty());
    assert_eq!(agent.status(), AgentStatus::Idle);
    refusing.set(false);
    agent.followup(prompt("q1")).expect("the id was not used up");
}

#[test]
fn wake_3_a_wake_opens_a_turn_although_its_message_was_removed_between_insertion_and_wake() {
    let ctx = context(hello());
    on_first(&ctx, NoticeKind::Inserted, |agent| assert!(agent.inbox().remove("q1").expect("removable")));
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(ends(&agent), ["completed"]);
    assert_eq!(count(&agent, "step/start"), 0);
}

#[test]
fn wake_4_and_9_neither_a_wake_on_a_running_agent_nor_a_delivery_without_wake_sets_a_latch() {
    let ctx = context(waiting());
    let (agent, gate) = busy(&ctx);
    agent.followup(prompt("q2")).expect("accepted");
    agent.steer(prompt("s1")).expect("accepted");
    assert!(latch(&agent).is_empty());
    agent.cancel(CancelCause::User);
    agent.inject(prompt("i1")).expect("accepted");
    agent.send(prompt("n1").into(), InboxTarget::NextTurn, false).expect("accepted");
    assert!(latch(&agent).is_empty());
    assert_eq!(pending(&agent, InboxTarget::NextStep), ["i1"], "it is not retargeted");
    release(&gate);
    settle(&ctx);
    assert_eq!(ends(&agent), ["aborted"], "nothing starts by itself");
    assert_eq!(agent.state().expect("state").parked.len(), 2);
}

#[test]
fn wake_6_a_message_whose_insertion_observer_cancels_counts_as_sent_before_the_cancel() {
    let ctx = context(waiting());
    let (agent, gate) = busy(&ctx);
    on_first(&ctx, NoticeKind::Inserted, |agent| agent.cancel_keep_inbox(CancelCause::User));
    agent.steer(prompt("s1")).expect("accepted");
    assert_eq!(pending(&agent, InboxTarget::NextStep), ["s1"]);
    assert!(latch(&agent).is_empty());
    release(&gate);
    settle(&ctx);
    assert_eq!(ends(&agent), ["aborted"]);
    assert_eq!(agent.state().expect("state").parked.len(), 1);
}

#[test]
fn wake_5_and_8_a_disposed_cancel_retargets_later_wakes_and_never_latches() {
    for (cause, latches) in [(CancelCause::User, true), (CancelCause::Disposed, false)] {
        let ctx = context(waiting());
        let (agent, gate) = busy(&ctx);
        agent.cancel(cause);
        agent.steer(prompt("s1")).expect("accepted");
        assert_eq!(pending(&agent, InboxTarget::NextTurn), ["s1"]);
        assert_eq!(!latch(&agent).is_empty(), latches);
        release(&gate);
        settle(&ctx);
        assert_eq!(ends(&agent).len(), if latches { 2 } else { 1 });
    }
}

#[test]
fn wake_8_20_mnt_7_and_d_05_nothing_is_accepted_once_disposal_began_and_it_waits_for_maintenance() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    let (gate, cause) = (Signal::new(), Rc::new(RefCell::new(None)));
    let (opened, seen) = (gate.clone(), cause.clone());
    let task = move |signal: Signal| async move {
        *seen.borrow_mut() = Some(signal.cancelled().await);
        opened.cancelled().await;
        Ok(())
    };
    drop(agent.run_maintenance(task).expect("idle"));
    agent.followup(prompt("q1")).expect("accepted");
    drop(agent.dispose());
    settle(&ctx);
    assert_eq!(*cause.borrow(), Some(CancelCause::Disposed));
    assert!(ctx.find_agent("a").is_some(), "the task is awaited");
    let length = agent.session().len();
    for error in [
        agent.followup(prompt("q2")).map(|_| ()),
        agent.inject(prompt("i1")).map(|_| ()),
        agent.wake(),
        agent.run_maintenance(|_| async { Ok(()) }).map(|_| ()),
    ] {
        assert_eq!(error.expect_err("refused").code(), &Code::Disposed);
    }
    release(&gate);
    settle(&ctx);
    assert!(ctx.find_agent("a").is_none());
    assert_eq!(agent.session().len(), length);
    assert_eq!(kinds(&agent), ["agent/inbox/spliced", "agent/inbox/spliced"], "inserted, then discarded");
}

#[test]
fn wake_12_13_and_st_8_the_latch_covers_the_whole_window_and_is_replayed_behind_idle() {
    let ctx = context(waiting());
    let heard = record(&ctx);
    let (agent, gate) = busy(&ctx);
    agent.cancel(CancelCause::User);
    agent.followup(prompt("q2")).expect("accepted");
    for _ in 0..3 {
        settle(&ctx);
        assert_eq!(latch(&agent), ["q2"], "however slow the turn is to end");
    }
    release(&gate);
    let waiter = agent.when_idle();
    let log = heard.clone();
    ctx.runtime().spawn(async move {
        waiter.await.expect("idle");
        log.borrow_mut().push("waiter resolved".into());
    });
    settle(&ctx);
    let expected = [
        "status running",
        "log turn/start",
        "log turn/end",
        "status idle",
        "status running",
        "log turn/start",
        "log turn/end",
        "status idle",
        "waiter resolved",
    ];
    assert_eq!(lines(&heard, &["status", "log turn/", "waiter"]), expected);
}

#[test]
fn wake_14_and_can_4_a_later_cancel_clears_latch_and_new_input_and_one_that_keeps_the_inbox_clears_neither() {
    for keep in [true, false] {
        let ctx = context(waiting());
        let (agent, gate) = busy(&ctx);
        agent.cancel(CancelCause::Parent);
        agent.followup(prompt("q2")).expect("accepted");
        if keep {
            agent.cancel_keep_inbox(CancelCause::User);
        } else {
            agent.cancel(CancelCause::User);
        }
        assert_eq!(latch(&agent).len(), usize::from(keep));
        release(&gate);
        settle(&ctx);
        let first = turnwheel::session::TurnEndReason::Aborted(CancelCause::Parent);
        assert_eq!(agents::turn_ends(&agent)[0], first, "the first cause wins");
        assert_eq!(ends(&agent).len(), 1 + usize::from(keep));
        assert!(!agent.inbox().has_pending());
    }
}

#[test]
fn wake_16_a_replacement_sent_right_after_a_cancel_runs_by_itself() {
    // From a running listener.
    let ctx = context(hello());
    on_first(&ctx, NoticeKind::Status, |agent| {
        agent.cancel(CancelCause::User);
        agent.followup(prompt("r1")).expect("accepted");
    });
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(user_messages(&agent), ["r1"]);
    // From an observer of the signal.
    let ctx = context(waiting());
    let (agent, gate) = busy(&ctx);
    let guard = Rc::new(RefCell::new(None));
    let (keep, sender) = (guard.clone(), agent.clone());
    ctx.waterfall::<PreStep, _>(move |step, next| {
        let sender = sender.clone();
        let observer = move |_: &CancelCause| drop(sender.followup(prompt("r2")).expect("accepted"));
        if step.turn == 2 {
            *keep.borrow_mut() = Some(step.signal.on_cancel(observer));
            step.agent.cancel(CancelCause::User);
        }
        async move { next.call().await }
    })
    .expect("registered");
    release(&gate);
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert_eq!(user_messages(&agent), ["q1", "r2"]);
    // In the same call stack.
    let ctx = context(waiting());
    let (agent, gate) = busy(&ctx);
    agent.cancel(CancelCause::User);
    agent.steer(prompt("r3")).expect("accepted");
    release(&gate);
    settle(&ctx);
    assert_eq!(user_messages(&agent), ["q1", "r3"]);
}

#[test]
fn wake_17_and_d_03_a_wake_that_lands_between_the_decision_to_stop_and_idle_runs() {
    for deferred in [false, true] {
        let ctx = context(hello());
        let runtime = ctx.runtime().clone();
        at_first(&ctx, "turn/end", move |agent| {
            let agent = agent.clone();
            let send = async move {
                if deferred {
                    yield_now().await;
                }
                agent.followup(prompt("q2")).expect("accepted");
            };
            runtime.spawn(send);
        });
        let agent = open(&ctx, "a");
        agent.followup(prompt("q1")).expect("accepted");
        settle(&ctx);
        assert_eq!(user_messages(&agent), ["q1", "q2"]);
    }
}

#[test]
fn wake_17_and_d_03_a_wake_from_the_turn_end_of_a_blocked_turn_runs() {
    let ctx = context(hello());
    ctx.waterfall::<PreStep, _>(|step, next| async move {
        if step.turn == 1 { Ok(turnwheel::agent::PreStepDecision::Reject) } else { next.call().await }
    })
    .expect("registered");
    at_first(&ctx, "turn/end", |agent| drop(agent.followup(prompt("q2")).expect("accepted")));
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(ends(&agent), ["blocked", "completed"]);
}

#[test]
fn wake_18_and_d_03_a_wake_from_an_error_listener_runs_behind_the_failed_turn() {
    let ctx = context(Scripted::new().error(turnwheel::llm::Failure::new("SERVER", "down")).text("up"));
    on_first(&ctx, NoticeKind::Error, |agent| drop(agent.steer(prompt("again")).expect("accepted")));
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(ends(&agent), ["error", "completed"]);
    assert_eq!(user_messages(&agent), ["q1", "again"]);
}

#[test]
fn wake_19_a_restored_inbox_wakes_nobody() {
    let ctx = context(hello());
    let first = open(&ctx, "a");
    first.send(prompt("q1").into(), InboxTarget::NextTurn, false).expect("accepted");
    let log = agents::events(&first);
    let header = turnwheel::session::SessionHeader::new("b", 1);
    let heard = record(&ctx);
    let resumed = ctx.agent("b").provider("fake").model("m").resume_from(header, log);
    let agent = ctx.runtime().block_on(resumed).expect("resumed").agent().clone();
    settle(&ctx);
    assert_eq!(agent.status(), AgentStatus::Idle);
    assert_eq!(pending(&agent, InboxTarget::NextTurn), ["q1"]);
    assert!(lines(&heard, &["status", "inserted", "log"]).is_empty());
}

#[test]
fn wake_23_context_injected_behind_a_followup_misses_its_first_request() {
    let script = hello();
    let ctx = context(script.clone());
    let agent = open(&ctx, "a");
    agent.inject(prompt("before")).expect("accepted");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!((script.request_count(), user_messages(&agent)), (1, vec!["before".to_owned(), "q1".into()]));
    agent.followup(prompt("q2")).expect("accepted");
    agent.inject(prompt("behind")).expect("accepted");
    settle(&ctx);
    assert_eq!(script.request_count(), 3);
    assert_eq!((count(&agent, "turn/end"), count(&agent, "step/end")), (2, 3));
}

#[test]
fn idle_1_to_3_and_5_a_waiter_follows_whatever_replaces_the_activity_and_never_fails() {
    let ctx = context(waiting());
    let (agent, gate) = busy(&ctx);
    let resolved = Rc::new(Cell::new(false));
    let (waiter, done) = (agent.when_idle(), resolved.clone());
    ctx.runtime().spawn(async move {
        waiter.await.expect("never fails");
        done.set(true);
    });
    let maintenance = Signal::new();
    let opened = maintenance.clone();
    on_idle(&ctx, move |agent| {
        let opened = opened.clone();
        let task = move |_| async move {
            opened.cancelled().await;
            Ok(())
        };
        drop(agent.run_maintenance(task).expect("idle"));
    });
    agent.cancel(CancelCause::User);
    release(&gate);
    settle(&ctx);
    assert!(!resolved.get(), "maintenance that replaced the turn is covered (IDLE-6)");
    agent.followup(prompt("q2")).expect("accepted");
    agent.cancel(CancelCause::User);
    release(&maintenance);
    settle(&ctx);
    assert!(resolved.get(), "although the cancel dropped everything");
    ctx.runtime().block_on(agent.when_idle()).expect("at once when nothing is active");
}

#[test]
fn idle_3_and_turn_40_failures_do_not_leave_the_driver() {
    let ctx = context(Scripted::new().error(turnwheel::llm::Failure::new("SERVER", "down")));
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("the sender is not told");
    ctx.runtime().block_on(agent.when_idle()).expect("neither is whoever waits");
    assert_eq!(ends(&agent), ["error"]);
}

#[test]
fn idle_7_and_d_18_waiting_for_oneself_inside_maintenance_fails_and_disposing_oneself_is_a_request() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    let (own, other) = (agent.clone(), open(&ctx, "b"));
    let task = move |_| async move {
        yield_now().await;
        other.when_idle().await.expect("waiting for another agent is legal");
        let code = own.when_idle().await.map_err(|error| error.code().clone());
        own.dispose().await;
        Ok(code)
    };
    let task = agent.run_maintenance(task).expect("idle");
    let code = Rc::new(RefCell::new(None));
    let seen = code.clone();
    ctx.runtime().spawn(async move { *seen.borrow_mut() = Some(task.await.expect("ran")) });
    settle(&ctx);
    assert_eq!(*code.borrow(), Some(Err(Code::SelfWait)));
    assert!(ctx.find_agent("a").is_none(), "the disposal completed behind the task");
}

#[test]
fn mnt_1_maintenance_is_refused_by_name_while_anything_is_active() {
    let ctx = context(waiting());
    let (agent, _gate) = busy(&ctx);
    let error = agent.run_maintenance(|_| async { Ok(()) }).map(|_| ()).expect_err("running");
    assert_eq!(error.code(), &Code::Busy);
    assert!(error.message().contains("\"a\""));
}

#[test]
fn mnt_2_3_and_4_a_task_starts_at_once_its_outcome_is_returned_and_nothing_is_logged() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    let length = agent.session().len();
    let started = Rc::new(Cell::new(false));
    let flag = started.clone();
    let value = agent.run_maintenance(move |signal| {
        flag.set(!signal.is_cancelled());
        async { Ok(41) }
    });
    let value = value.expect("idle");
    assert!(started.get());
    assert_eq!(phase(&agent), "idle", "it is free again before the call returns");
    assert_eq!(ctx.runtime().block_on(value).expect("ran"), 41);
    let failing = agent.run_maintenance(|_| async { Err::<(), _>(Error::host("planned")) }).expect("no failure here");
    assert_eq!(phase(&agent), "idle");
    assert_eq!(ctx.runtime().block_on(failing).expect_err("failed").message(), "planned");
    let panicking = agent.run_maintenance::<(), std::future::Ready<_>>(|_| panic!("planned")).expect("no failure here");
    assert!(ctx.runtime().block_on(panicking).is_err());
    assert_eq!((agent.session().len(), agent.state().expect("state").turn), (length, 1));
}

#[test]
fn mnt_5_6_and_wake_7_wakes_wait_for_maintenance_and_a_removed_one_is_not_replayed() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    let run = |gate: &Signal| {
        let opened = gate.clone();
        let task = move |_| async move {
            opened.cancelled().await;
            Ok(())
        };
        drop(agent.run_maintenance(task).expect("idle"));
    };
    let first = Signal::new();
    run(&first);
    agent.steer(prompt("s1")).expect("accepted");
    assert_eq!(pending(&agent, InboxTarget::NextStep), ["s1"], "not retargeted");
    agent.inbox().remove("s1").expect("removable");
    release(&first);
    settle(&ctx);
    assert_eq!(count(&agent, "turn/start"), 0);
    let second = Signal::new();
    run(&second);
    agent.cancel(CancelCause::User);
    agent.steer(prompt("s2")).expect("accepted");
    assert_eq!(pending(&agent, InboxTarget::NextTurn), ["s2"], "retargeted: the maintenance was cancelled");
    release(&second);
    settle(&ctx);
    assert_eq!(user_messages(&agent), ["s2"]);
}

#[test]
fn mnt_8_maintenance_keeps_the_callers_initiator() {
    let ctx = context(hello());
    let (agent, caller) = (open(&ctx, "a"), open(&ctx, "caller"));
    let seen = Rc::new(RefCell::new(Vec::new()));
    for initiator in [None, Some(&caller)] {
        let (root, seen) = (ctx.root().clone(), seen.clone());
        let task = move |_| async move {
            yield_now().await;
            seen.borrow_mut().push(root.current_initiator().map(|agent| agent.id().to_string()));
            Ok(())
        };
        let start = || drop(agent.run_maintenance(task).expect("idle"));
        match initiator {
            Some(caller) => ctx.root().with_initiator(caller, start),
            None => start(),
        }
        settle(&ctx);
    }
    assert_eq!(*seen.borrow(), [None, Some("caller".to_owned())]);
}

#[test]
fn wake_1_the_four_ways_of_delivery_differ_in_list_and_wake_only() {
    let ctx = context(waiting());
    let (agent, _gate) = busy(&ctx);
    let message = |id: &str| -> std::sync::Arc<Message> { prompt(id).into() };
    agent.send(message("n1"), InboxTarget::NextTurn, false).expect("accepted");
    agent.followup(prompt("n2")).expect("accepted");
    agent.steer(prompt("s1")).expect("accepted");
    agent.inject(prompt("s2")).expect("accepted");
    assert_eq!(pending(&agent, InboxTarget::NextTurn), ["n1", "n2"]);
    assert_eq!(pending(&agent, InboxTarget::NextStep), ["s1", "s2"]);
}
