//! Cancellation, agent.md section 10, and the reported faults of loops, inboxes and cancels. Named after ids and rows.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{
    Piece, Played, at_first, busy, context, count, ends, events, finish, hello, kinds, lines, noop, on_first, open,
    pending, prompt, record, release, results, settle, shared, stop, text, turn_ends, user_messages, waiting,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use turnwheel::agent::{Parked, PreStep, ReceiptState, Recovery, RequestErrorEvent};
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::llm::{Chunk, Failure, FinishReason};
use turnwheel::message::{Block, Usage};
use turnwheel::runtime::{ManualClock, Ports, Signal};
use turnwheel::session::{Delivery, Event, InboxTarget, TurnEndReason};
use turnwheel::{AgentStatus, CancelCause, Code, Context, Error, EventData, Notice, NoticeKind, Tool, ToolOutput};

fn signals(ctx: &Context) -> Rc<RefCell<Vec<Signal>>> {
    let signals: Rc<RefCell<Vec<Signal>>> = Rc::default();
    let seen = signals.clone();
    ctx.waterfall::<PreStep, _>(move |step, next| {
        seen.borrow_mut().push(step.signal.clone());
        async move { next.call().await }
    })
    .expect("registered");
    signals
}

#[test]
fn can_1_and_5_the_signal_and_the_log_carry_the_cause_that_was_given() {
    let hook = CancelCause::Hook("budget of the team".into());
    for cause in [CancelCause::User, CancelCause::Parent, hook, CancelCause::Disposed] {
        let ctx = context(waiting());
        let signals = signals(&ctx);
        let (agent, gate) = busy(&ctx);
        agent.cancel(cause.clone());
        assert_eq!(signals.borrow()[0].cause(), Some(cause.clone()));
        release(&gate);
        settle(&ctx);
        assert_eq!(turn_ends(&agent), [TurnEndReason::Aborted(cause)]);
    }
}

#[test]
fn can_2_and_3_pending_input_is_discarded_before_the_signal_fires() {
    let ctx = context(waiting());
    let signals = signals(&ctx);
    let (agent, gate) = busy(&ctx);
    agent.steer(prompt("s1")).expect("accepted");
    agent.followup(prompt("q2")).expect("accepted");
    let signal = signals.borrow()[0].clone();
    let observed = signal.clone();
    ctx.on(NoticeKind::Discarded, move |notice| {
        assert!(!observed.is_cancelled(), "discarded listeners run before the signal");
        let Notice::Discarded { agent, message } = notice else { return Ok(()) };
        match message.id().as_str() {
            "s1" => drop(agent.followup(prompt("swept"))?),
            "q2" => drop(agent.steer(prompt("survivor"))?),
            _ => {}
        }
        Ok(())
    })
    .expect("registered");
    let sender = agent.clone();
    let _guard = signal.on_cancel(move |_| drop(sender.steer(prompt("latched")).expect("accepted")));
    let heard = record(&ctx);
    agent.cancel(CancelCause::User);
    let discarded = ["discarded s1", "discarded q2", "discarded swept"];
    assert_eq!(lines(&heard, &["discarded"]), discarded);
    assert_eq!(pending(&agent, InboxTarget::NextStep), ["survivor"], "it keeps its target: the cancel comes behind it");
    // The catalogue parks it; P3 names no such case of parking, so its wake is remembered as well.
    let latch = agent.state().expect("state").latch;
    assert_eq!(latch.iter().map(ToString::to_string).collect::<Vec<_>>(), ["survivor", "latched"]);
    release(&gate);
    settle(&ctx);
    assert_eq!(user_messages(&agent), ["q1", "survivor", "latched"], "the latched wakes drain the lists");
}

#[test]
fn can_6_and_7_a_cancel_without_activity_arms_nothing_and_one_that_keeps_the_inbox_logs_nothing() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    agent.inject(prompt("i1")).expect("accepted");
    agent.cancel_keep_inbox(CancelCause::User);
    assert_eq!((agent.session().len(), pending(&agent, InboxTarget::NextStep).len()), (1, 1));
    agent.cancel(CancelCause::User);
    assert_eq!(agent.session().len(), 2);
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(ends(&agent), ["completed"]);
}

#[test]
fn can_9_a_cancelled_maintenance_task_keeps_its_own_rejection() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    let task = agent.run_maintenance(|signal| async move {
        let cause = signal.cancelled().await;
        Err::<(), _>(Error::host(format!("stopped by {}", cause.kind())))
    });
    let task = task.expect("idle");
    agent.cancel(CancelCause::Parent);
    let error = ctx.runtime().block_on(task).expect_err("it failed");
    assert_eq!(error.message(), "stopped by parent");
    assert_eq!((agent.status(), agent.session().len()), (AgentStatus::Idle, 0));
}

#[test]
fn can_10_and_d_02_a_cancel_from_a_log_observer_fires_the_signal_at_once_and_discards_afterwards() {
    let ctx = context(waiting());
    let signals = signals(&ctx);
    let (agent, gate) = busy(&ctx);
    agent.followup(prompt("q2")).expect("accepted");
    let signal = signals.borrow()[0].clone();
    at_first(&ctx, "note", move |agent| {
        agent.cancel(CancelCause::User);
        assert!(signal.is_cancelled());
        assert!(agent.inbox().has_pending(), "nothing can be logged yet");
    });
    agent.session().append("note", turnwheel::json!({})).expect("appended");
    assert!(!agent.inbox().has_pending());
    assert!(matches!(agent.receipt("q2").state(), Some(ReceiptState::Discarded { .. })));
    release(&gate);
    settle(&ctx);
    assert_eq!(ends(&agent), ["aborted"]);
}

#[test]
fn can_12_a_cancel_right_behind_a_waking_send_closes_its_turn_without_a_step() {
    let script = hello();
    let ctx = context(script.clone());
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    agent.cancel(CancelCause::User);
    settle(&ctx);
    let expected = ["agent/inbox/spliced", "turn/start", "agent/inbox/spliced", "turn/end"];
    assert_eq!((kinds(&agent), script.request_count()), (expected.map(String::from).to_vec(), 0));
    assert_eq!(ends(&agent), ["aborted"]);
}

#[test]
fn can_13_a_cancel_in_an_idle_notification_meets_what_an_earlier_listener_started() {
    let ctx = context(hello());
    let once = Cell::new(true);
    ctx.on(NoticeKind::Status, move |notice| {
        if let Notice::Status { agent, status: AgentStatus::Idle } = notice
            && once.replace(false)
        {
            agent.followup(prompt("q2"))?;
        }
        Ok(())
    })
    .expect("registered");
    let once = Cell::new(true);
    ctx.on(NoticeKind::Status, move |notice| {
        if let Notice::Status { agent, status: AgentStatus::Idle } = notice
            && once.replace(false)
        {
            agent.cancel(CancelCause::User);
        }
        Ok(())
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(
        (ends(&agent), user_messages(&agent)),
        (vec!["completed".to_owned(), "aborted".into()], vec!["q1".into()])
    );
}

#[test]
fn can_14_a_disposal_behind_a_users_cancel_leaves_the_users_cause() {
    let ctx = context(waiting());
    let (agent, gate) = busy(&ctx);
    agent.cancel(CancelCause::User);
    drop(agent.dispose());
    release(&gate);
    settle(&ctx);
    assert_eq!(turn_ends(&agent), [TurnEndReason::Aborted(CancelCause::User)]);
    assert!(ctx.find_agent("a").is_none());
}

#[test]
fn can_15_a_cancel_of_the_parent_is_forwarded_by_whoever_awaits_the_child_and_by_nobody_else() {
    let ctx = context(waiting());
    let (parent, gate) = busy(&ctx);
    let builder = parent.ctx().expect("its context").agent("child").provider("fake").model("m");
    let child = ctx.runtime().block_on(builder.open()).expect("opened");
    child
        .ctx()
        .expect("its context")
        .waterfall::<PreStep, _>(|step, next| async move {
            step.signal.cancelled().await;
            next.call().await
        })
        .expect("registered");
    child.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    parent.cancel(CancelCause::User);
    settle(&ctx);
    assert_eq!((child.status(), ends(&child).len()), (AgentStatus::Running, 0));
    child.cancel(CancelCause::Parent);
    release(&gate);
    settle(&ctx);
    assert_eq!(turn_ends(&child), [TurnEndReason::Aborted(CancelCause::Parent)]);
}

#[test]
fn can_16_and_d_10_a_claim_that_entered_no_step_is_undone_by_a_cancel_that_keeps_the_inbox() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    agent.inject(prompt("i1")).expect("accepted");
    let receipt = agent.followup(prompt("q1")).expect("accepted");
    agent.followup(prompt("q2")).expect("accepted");
    agent.cancel_keep_inbox(CancelCause::User);
    settle(&ctx);
    assert_eq!(pending(&agent, InboxTarget::NextTurn), ["q1", "q2"], "back at the front");
    assert_eq!(pending(&agent, InboxTarget::NextStep), ["i1"]);
    let aborted = Parked::TurnEnded { turn: 1, reason: TurnEndReason::Aborted(CancelCause::User) };
    let parked = Some(aborted);
    assert_eq!(receipt.state(), Some(ReceiptState::Pending { target: InboxTarget::NextTurn, parked }));
    let log = kinds(&agent);
    let splice = "agent/inbox/spliced";
    assert_eq!(log[log.len() - 3..], [splice, splice, "turn/end"], "one splice a list, before the turn's end");
    agent.wake().expect("awake");
    settle(&ctx);
    assert_eq!(user_messages(&agent), ["i1", "q1", "q2"]);
}

fn cut(reply: ScriptedReply) -> ScriptedReply {
    ScriptedReply { finish: Some(FinishReason::MaxTokens), ..reply }
}

#[test]
fn case_047_and_049_no_call_of_a_truncated_batch_is_run_and_the_turn_ends() {
    let half = ScriptedReply::calls([("c1", "noop", "{}"), ("c2", "noop", "{\"a\":")]);
    let script = Scripted::new().reply(cut(half));
    let ctx = context(script.clone());
    ctx.tools().register(noop("noop")).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!((ends(&agent), count(&agent, "tool/call")), (vec!["max-tokens".to_owned()], 0));
    assert_eq!(script.request_count(), 1, "the same cut is not asked for again");
    assert_eq!(agent.session().history().iter().filter(|message| message.json().contains("tool-call")).count(), 0);
}

#[test]
fn case_059_an_unrelated_message_behind_a_cancelled_turn_is_answered_in_a_turn_of_its_own() {
    let script = Scripted::new().calls([("c1", "noop", "{}")]).text("about the weather");
    let ctx = context(script.clone());
    ctx.tools().register(noop("noop")).expect("registered");
    at_first(&ctx, "tool/result", |agent| agent.cancel(CancelCause::User));
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(turn_ends(&agent), [TurnEndReason::Aborted(CancelCause::User)], "closed in the log, with its cause");
    agent.followup(prompt("weather?")).expect("accepted");
    settle(&ctx);
    let last = script.last_request().expect("asked").messages.iter().next_back().expect("a message");
    assert_eq!(last.text(), "text of weather?", "the model sees the new message last");
    assert_eq!(ends(&agent), ["aborted", "completed"]);
}

#[test]
fn case_061_062_and_064_a_cancel_during_tools_leaves_paired_calls_asks_nothing_more_and_takes_new_prompts() {
    for finished_sibling in [false, true] {
        let calls: &[_] = if finished_sibling { &[("c1", "noop"), ("c2", "wait")] } else { &[("c2", "wait")] };
        let calls: Vec<_> = calls.iter().map(|(id, name)| (*id, *name, "{}")).collect();
        let script = Scripted::new().calls(calls.clone()).text("next");
        let ctx = context(script.clone());
        ctx.tools().register(noop("noop")).expect("registered");
        let wait = Tool::new("wait", |call| async move {
            call.signal().cancelled().await;
            Err::<ToolOutput, _>(call.signal().error())
        });
        ctx.tools().register(wait).expect("registered");
        let agent = open(&ctx, "a");
        agent.followup(prompt("q1")).expect("accepted");
        settle(&ctx);
        agent.cancel(CancelCause::User);
        settle(&ctx);
        assert_eq!((script.request_count(), ends(&agent)), (1, vec!["aborted".to_owned()]));
        assert_eq!(results(&agent).len(), calls.len(), "every call has its result");
        assert_eq!(results(&agent).last().map(|(_, code)| code.as_str()), Some("ABORTED"));
        agent.followup(prompt("q2")).expect("accepted");
        settle(&ctx);
        assert_eq!(ends(&agent), ["aborted", "completed"]);
    }
}

#[test]
fn case_064_a_tool_that_does_not_look_at_its_signal_is_reported_as_running_until_it_ends() {
    let ctx = context(waiting());
    let (agent, gate) = busy(&ctx);
    agent.cancel(CancelCause::User);
    settle(&ctx);
    assert_eq!(
        (agent.status(), agent.state().expect("state").running_tools),
        (AgentStatus::Running, vec!["c1".into()])
    );
    release(&gate);
    settle(&ctx);
    assert_eq!(agent.state().expect("state").running_tools, Vec::<String>::new());
    assert_eq!(results(&agent), [("c1".to_owned(), "ABORTED".to_owned())]);
}

#[test]
fn case_065_a_cancelled_answer_is_kept_with_its_usage_and_its_stream_is_dropped_each_time() {
    let usage = Usage { input_tokens: 3, output_tokens: 1, ..Usage::default() };
    let dropped = Rc::new(Cell::new(0));
    struct Counts(Rc<Cell<u32>>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let mut play = Played::new();
    for _ in 0..200 {
        let (never, counts) = (Signal::new(), Counts(dropped.clone()));
        let mut pieces: Vec<_> = [Chunk::Usage(usage), text(0, "one "), text(0, "two "), text(0, "three")]
            .into_iter()
            .map(Piece::Say)
            .collect();
        pieces.extend([Piece::Hold(never), Piece::Do(Box::new(move || drop(counts)))]);
        play = play.reply(pieces);
    }
    let adapter = Cuttable(play);
    let ctx = context(adapter);
    let agent = open(&ctx, "a");
    for n in 0..200 {
        agent.followup(prompt(&format!("q{n}"))).expect("accepted");
        settle(&ctx);
        agent.cancel(CancelCause::User);
        settle(&ctx);
    }
    assert_eq!(dropped.get(), 200, "no stream outlives its turn");
    let log = events(&agent);
    let kept = log.iter().filter(|event| match &event.data {
        EventData::AssistantMessage { message, usage: Some(seen), interrupted: true, .. } => {
            (message.text().as_str(), *seen) == ("one two three", usage)
        }
        _ => false,
    });
    assert_eq!((kept.count(), ends(&agent).len()), (200, 200));
}

/// A played model whose streams end when the request is cancelled.
struct Cuttable(Played);

impl turnwheel::llm::Adapter for Cuttable {
    fn stream(&self, request: turnwheel::llm::ModelRequest) -> turnwheel::llm::ChunkStream {
        let signal = request.signal.clone();
        Box::pin(Cut {
            inner: self.0.stream(request),
            cancelled: Box::pin(async move { drop(signal.cancelled().await) }),
        })
    }
}

struct Cut {
    inner: turnwheel::llm::ChunkStream,
    cancelled: turnwheel::runtime::LocalBoxFuture<()>,
}

impl futures_core::Stream for Cut {
    type Item = turnwheel::Result<Chunk>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        if self.cancelled.as_mut().poll(context).is_ready() {
            return std::task::Poll::Ready(Some(Err(Error::host("cut"))));
        }
        self.inner.as_mut().poll_next(context)
    }
}

#[test]
fn case_067_leaving_the_event_stream_does_not_cancel_and_no_tool_starts_after_a_cancel_returned() {
    let ctx = context(Scripted::new().calls([("c1", "noop", "{}")]).text("done"));
    ctx.tools().register(noop("noop")).expect("registered");
    let agent = open(&ctx, "a");
    let mut stream = agent.stream(prompt("q1")).expect("accepted");
    let first = ctx.runtime().block_on(stream.next()).expect("an event").expect("readable");
    assert_eq!(first.kind(), "turn/start");
    drop(stream);
    settle(&ctx);
    assert_eq!((ends(&agent), count(&agent, "tool/result")), (vec!["completed".to_owned()], 1));
    let ctx = context(Scripted::new().calls([("c1", "count", "{}"), ("c2", "count", "{}")]));
    let ran = Rc::new(Cell::new(0));
    let counting = ran.clone();
    let tool = Tool::new("count", move |_| {
        counting.set(counting.get() + 1);
        async { Ok(ToolOutput::value("ok")) }
    });
    ctx.tools().register(tool).expect("registered");
    at_first(&ctx, "tool/result", |agent| agent.cancel(CancelCause::User));
    open(&ctx, "a").followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(ran.get(), 1);
}

#[test]
fn case_073_a_steer_that_was_claimed_and_entered_no_step_is_back_at_the_head() {
    let ctx = context(Scripted::new().calls([("c1", "wait", "{}")]).respond(|_| ScriptedReply::text("hi")));
    let (agent, gate) = busy(&ctx);
    agent.steer(prompt("s1")).expect("accepted");
    let hold = Signal::new();
    let holding = hold.clone();
    ctx.waterfall::<PreStep, _>(move |step, next| {
        let holding = holding.clone();
        async move {
            if (step.turn, step.step) == (1, 2) {
                holding.cancelled().await;
            }
            next.call().await
        }
    })
    .expect("registered");
    release(&gate);
    settle(&ctx);
    assert_eq!(
        agent.receipt("s1").state(),
        Some(ReceiptState::Claimed { turn: 1, step: None }),
        "it waits before its step"
    );
    agent.inject(prompt("s2")).expect("accepted");
    agent.cancel_keep_inbox(CancelCause::User);
    release(&hold);
    settle(&ctx);
    assert_eq!(pending(&agent, InboxTarget::NextStep), ["s1", "s2"]);
    let header = turnwheel::session::SessionHeader::new("again", 1);
    let resumed = ctx.agent("again").resume_from(header, events(&agent));
    let resumed = ctx.runtime().block_on(resumed).expect("resumed").agent().clone();
    assert_eq!(pending(&resumed, InboxTarget::NextStep), ["s1", "s2"], "after a restart, too");
}

#[test]
fn case_074_whatever_arrives_around_the_end_of_a_turn_runs_once_before_anybody_hears_of_idle() {
    let moments = ["turn/start", "step/start", "assistant/chunk", "assistant/message", "step/end", "turn/end"];
    for steer in [false, true] {
        for moment in moments {
            let ctx = context(hello());
            let runtime = ctx.runtime().clone();
            at_first(&ctx, moment, move |agent| {
                let later = agent.clone();
                runtime.spawn(async move {
                    turnwheel::runtime::yield_now().await;
                    later.followup(prompt("later")).expect("accepted");
                });
                let send = if steer { agent.steer(prompt("now")) } else { agent.followup(prompt("now")) };
                send.expect("accepted");
            });
            let agent = open(&ctx, "a");
            agent.followup(prompt("q1")).expect("accepted");
            ctx.runtime().block_on(agent.when_idle()).expect("idle");
            let mut ran = user_messages(&agent);
            ran.sort();
            assert_eq!(ran, ["later", "now", "q1"], "{moment}, steer: {steer}");
        }
    }
}

#[test]
fn case_076_a_cancel_that_keeps_the_inbox_parks_it_visibly_and_wake_drains_it() {
    let ctx = context(waiting());
    let (agent, gate) = busy(&ctx);
    agent.steer(prompt("s1")).expect("accepted");
    agent.followup(prompt("q2")).expect("accepted");
    agent.cancel_keep_inbox(CancelCause::User);
    release(&gate);
    settle(&ctx);
    assert_eq!((ends(&agent).len(), agent.state().expect("state").parked.len()), (1, 2));
    agent.wake().expect("awake");
    settle(&ctx);
    assert_eq!(user_messages(&agent), ["q1", "s1", "q2"]);
}

#[test]
fn case_077_a_message_sent_between_cancel_and_idle_runs_and_only_earlier_ones_are_dropped() {
    let ctx = context(waiting());
    let (agent, gate) = busy(&ctx);
    let early = agent.followup(prompt("early")).expect("accepted");
    agent.cancel(CancelCause::User);
    let late = agent.followup(prompt("late")).expect("accepted");
    release(&gate);
    settle(&ctx);
    assert!(matches!(early.state(), Some(ReceiptState::Discarded { .. })));
    assert_eq!(late.state(), Some(ReceiptState::Ended { turn: 2, reason: TurnEndReason::Completed }));
}

#[test]
fn case_079_a_retried_send_is_refused_by_id_and_runs_once() {
    let ctx = context(waiting());
    let (agent, gate) = busy(&ctx);
    for _ in 0..3 {
        let sent = agent.steer(prompt("s1"));
        assert!(sent.is_ok() || sent.is_err_and(|error| error.code() == &Code::DuplicateMessage));
    }
    release(&gate);
    settle(&ctx);
    assert_eq!(agent.steer(prompt("s1")).expect_err("also once it ran").code(), &Code::DuplicateMessage);
    settle(&ctx);
    assert_eq!(user_messages(&agent), ["q1", "s1"]);
}

#[test]
fn case_080_every_accepted_id_is_in_exactly_one_state_wherever_the_log_is_cut() {
    let calls = |n: usize| ScriptedReply::calls([(format!("c{n}"), "send", "{}")]);
    let mut script = Scripted::new();
    for n in 0..4 {
        script = script.reply(calls(n)).text("done");
    }
    let ctx = context(script.respond(|_| ScriptedReply::text("done")));
    let sent = Rc::new(Cell::new(0));
    let sending = sent.clone();
    let tool = Tool::new("send", move |call| {
        let agent = call.agent().expect("an agent's call").clone();
        let n = sending.get();
        sending.set(n + 3);
        async move {
            agent.steer(prompt(&format!("m{n}")))?;
            agent.inject(prompt(&format!("m{}", n + 1)))?;
            agent.followup(prompt(&format!("m{}", n + 2)))?;
            Ok(ToolOutput::value("ok"))
        }
    });
    ctx.tools().register(tool).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("first")).expect("accepted");
    settle(&ctx);
    let log = events(&agent);
    for cut in 0..=log.len() {
        let id = format!("cut-{cut}");
        let header = turnwheel::session::SessionHeader::new(id.as_str(), 1);
        let resumed = ctx.agent(id.as_str()).resume_from(header, log[..cut].to_vec());
        let resumed = ctx.runtime().block_on(resumed).expect("resumed").agent().clone();
        for id in accepted(&log[..cut]) {
            let listed = [InboxTarget::NextStep, InboxTarget::NextTurn]
                .iter()
                .flat_map(|target| pending(&resumed, *target))
                .filter(|pending| *pending == id)
                .count();
            let entered = user_messages(&resumed).contains(&id);
            let state = resumed.session().delivery(&id).expect("the inbox knows what it accepted");
            let is_pending = matches!(state, Delivery::Pending { .. });
            assert_eq!((listed, is_pending), (usize::from(!entered), !entered), "{id}, cut at {cut}: {state:?}");
        }
    }
}

/// Ids that the inbox of this log accepted.
fn accepted(log: &[std::sync::Arc<Event>]) -> Vec<String> {
    let spliced = log.iter().filter_map(|event| match &event.data {
        EventData::InboxSpliced(splice) => Some(splice.inserted.clone()),
        _ => None,
    });
    spliced.flatten().map(|message| message.id().to_string()).collect()
}

#[test]
fn case_082_137_and_164_maintenance_waits_for_no_open_turn_input_runs_right_behind_it_and_nothing_of_it_is_logged() {
    let ctx = context(waiting());
    let (agent, gate) = busy(&ctx);
    let refused = agent.run_maintenance(|_| async { Ok(()) }).map(|_| ()).expect_err("calls are in flight");
    assert_eq!(refused.code(), &Code::Busy);
    release(&gate);
    ctx.runtime().block_on(agent.when_idle()).expect("idle");
    let length = agent.session().len();
    let hold = Signal::new();
    let held = hold.clone();
    let answering = Scripted::new().text("a title");
    let model = answering.clone();
    let asked = agent.session().request_header().expect("asked before");
    let task = agent.run_maintenance(move |signal| async move {
        let (messages, session_id) = (turnwheel::session::History::default(), None);
        let request = turnwheel::llm::ModelRequest { header: asked, messages, session_id, signal };
        let mut stream = turnwheel::llm::Adapter::stream(&model, request);
        let mut chunks = 0;
        while std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await.is_some() {
            chunks += 1;
        }
        held.cancelled().await;
        Ok(chunks)
    });
    let task = task.expect("idle");
    settle(&ctx);
    let receipt = agent.followup(prompt("q2")).expect("accepted");
    assert_eq!(agent.session().len(), length + 1, "the maintenance model's answer is not logged");
    release(&hold);
    assert!(ctx.runtime().block_on(task).expect("ran") > 0);
    settle(&ctx);
    assert_eq!(answering.request_count(), 1);
    assert_eq!(receipt.state(), Some(ReceiptState::Ended { turn: 2, reason: TurnEndReason::Completed }));
    assert!(!agent.session().history().iter().any(|message| message.text().contains("a title")));
}

#[test]
fn case_083_and_088_two_sends_at_once_are_two_turns_of_one_valid_history() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    for n in 0..1_000 {
        let (left, right) = (format!("l{n}"), format!("r{n}"));
        agent.followup(prompt(&left)).expect("accepted");
        agent.followup(prompt(&right)).expect("accepted");
        if n % 50 == 0 {
            settle(&ctx);
        }
    }
    settle(&ctx);
    let history = agent.session().history();
    let roles: Vec<_> = history.iter().map(|message| message.role().as_str()).collect();
    assert_eq!(roles.len(), 4_000);
    assert!(roles.chunks(2).all(|pair| pair == ["user", "assistant"]));
}

#[test]
fn case_086_idle_is_told_once_nothing_is_pending_running_or_retrying() {
    let clock = ManualClock::new(0);
    let ports = Ports { clock: Rc::new(clock.clone()), ..Ports::default() };
    let ctx = Context::builder().ports(ports).build();
    let down = finish(FinishReason::error(Failure::new("SERVER", "down")));
    ctx.llm().register("fake", Played::new().say([down]).say([text(0, "up"), stop()])).expect("a new route");
    let runtime = ctx.runtime().clone();
    ctx.waterfall::<RequestErrorEvent, _>(move |_, _| {
        let back_off = runtime.sleep(std::time::Duration::from_secs(5));
        async move {
            back_off.await;
            Ok(Recovery::Retry)
        }
    })
    .expect("registered");
    let heard = record(&ctx);
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!((lines(&heard, &["status"]), agent.status()), (vec!["status running".to_owned()], AgentStatus::Running));
    clock.advance(std::time::Duration::from_secs(5));
    settle(&ctx);
    assert_eq!(lines(&heard, &["status", "log turn/end"]), ["status running", "log turn/end", "status idle"]);
    assert_eq!(ends(&agent), ["completed"]);
}

#[test]
fn case_136_a_fork_inside_a_batch_of_calls_is_refused() {
    let ctx = context(Scripted::new().calls([("c1", "noop", "{}"), ("c2", "noop", "{}")]).text("done"));
    ctx.tools().register(noop("noop")).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    let log = events(&agent);
    let end = log.last().expect("an event").seq;
    let inside: Vec<_> = log.iter().map(|event| event.seq).filter(|seq| (1..end).contains(seq)).collect();
    assert!(inside.len() > 10);
    for seq in inside {
        let cut = ctx.fork_session("a", Some(seq), None);
        assert!(cut.is_err(), "a cut at {seq}, {}", log[seq as usize].kind());
    }
    ctx.fork_session("a", Some(end), None).expect("a turn's end is a border");
}

#[test]
fn case_149_a_run_of_five_hundred_calls_ends_although_nobody_reads_its_events() {
    let options = turnwheel::context::LoopOptions {
        turn_budget: turnwheel::context::Budget::default(),
        ..turnwheel::context::LoopOptions::default()
    };
    let ctx = Context::builder().loop_options(options).build();
    let left = Rc::new(Cell::new(500));
    let script = Scripted::new().respond(move |_| {
        left.set(left.get() - 1);
        if left.get() < 0 { ScriptedReply::text("done") } else { ScriptedReply::calls([("c", "noop", "{}")]) }
    });
    ctx.llm().register("fake", script).expect("a new route");
    ctx.tools().register(noop("noop")).expect("registered");
    let agent = open(&ctx, "a");
    let mut unread = agent.stream(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!((ends(&agent), count(&agent, "tool/result")), (vec!["completed".to_owned()], 500));
    let first = ctx.runtime().block_on(unread.next()).expect("an event").expect("readable");
    assert_eq!(first.kind(), "turn/start", "a slow reader loses nothing");
}

#[test]
fn can_8_and_11_what_was_started_is_awaited_and_a_cancelled_reservation_opens_no_turn() {
    let ctx = context(waiting());
    let (agent, gate) = busy(&ctx);
    let waiter = Rc::new(Cell::new(false));
    let (idle, done) = (agent.when_idle(), waiter.clone());
    ctx.runtime().spawn(async move {
        idle.await.expect("idle");
        done.set(true);
    });
    agent.cancel(CancelCause::User);
    settle(&ctx);
    assert!(!waiter.get());
    release(&gate);
    settle(&ctx);
    assert!(waiter.get());
    on_first(&ctx, NoticeKind::Status, |agent| agent.cancel(CancelCause::User));
    let turns = count(&agent, "turn/start");
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert_eq!(count(&agent, "turn/start"), turns);
    assert!(matches!(agent.receipt("q2").state(), Some(ReceiptState::Discarded { .. })));
}

#[test]
fn case_043_and_056_malformed_arguments_and_silent_tools_leave_a_history_that_goes_on() {
    let malformed = ScriptedReply::calls([("c1", "silent", "{\"a\":")]);
    let reasoning = ScriptedReply { reasoning: Some("thinking only".into()), ..ScriptedReply::default() };
    let ctx = context(Scripted::new().reply(malformed).reply(reasoning).text("done"));
    ctx.tools().register(Tool::new("silent", |_| async { Ok(ToolOutput::value("")) }).unchecked()).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert_eq!(ends(&agent), ["completed", "completed"]);
    let call = events(&agent).iter().find_map(|event| match &event.data {
        EventData::ToolCall { arguments, .. } => Some(arguments.clone()),
        _ => None,
    });
    assert_eq!(call.as_deref(), Some("{\"a\":"), "the log keeps the model's own text");
    let texts: Vec<_> = agent.session().history().iter().map(|message| message.content().to_vec()).collect();
    assert_eq!(texts[3], [Block::Reasoning("thinking only".into())]);
    assert!(agent.receipt("q2").state().is_some() && shared("x").text() == "text of x");
}
