//! Requests, streams, assembly and the runtime context: agent.md section 7. Tests are named after the ids they show.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{
    Piece, Played, at_first, context, count, ends, events, finish, hello, kinds, open, prompt, release, settle, shared,
    stop, text, turn_ends,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::agent::{Recovery, RequestErrorEvent, RequestEvent};
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::llm::{
    Adapter, CallConfig, Chunk, ChunkStream, Failure, FinishReason, ModelInfo, ModelRequest, RetryMode, RetryPolicy,
    RouteOptions,
};
use turnwheel::message::{Block, Role, Usage};
use turnwheel::runtime::{LocalBoxFuture, Signal};
use turnwheel::session::{SurfaceOp, TurnEndReason};
use turnwheel::system_prompt::PromptText;
use turnwheel::{Agent, CancelCause, Context, Error, EventData, Message, Notice, NoticeKind, Result, json};

/// Cancels the turn when a chunk that `matches` has been logged.
fn cancel_at_chunk(ctx: &Context, matches: impl Fn(&Chunk) -> bool + 'static) {
    ctx.on(NoticeKind::SessionEvent, move |notice| {
        let Notice::SessionEvent { event, agent: Some(agent), .. } = notice else { return Ok(()) };
        if let EventData::AssistantChunk { chunk, .. } = &event.data
            && matches(chunk)
        {
            agent.cancel(CancelCause::User);
        }
        Ok(())
    })
    .expect("registered");
}

/// The assistant messages of the log: content, usage and whether they were cut.
fn answers(agent: &Agent) -> Vec<(Vec<Block>, Option<Usage>, bool)> {
    let answer = |event: &Arc<turnwheel::session::Event>| match &event.data {
        EventData::AssistantMessage { message, usage, interrupted, .. } => {
            Some((message.content().to_vec(), *usage, *interrupted))
        }
        _ => None,
    };
    events(agent).iter().filter_map(answer).collect()
}

fn run(ctx: &Context) -> Agent {
    let agent = open(ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(ctx);
    agent
}

fn block(text: &str) -> Block {
    Block::Text(text.into())
}

fn failure(agent: &Agent) -> Failure {
    match turn_ends(agent).remove(0) {
        TurnEndReason::Error(failure) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn req_2_and_step_8_a_retry_keeps_the_assembly_and_derives_the_history_anew() {
    let play =
        Played::new().say([finish(FinishReason::error(Failure::new("SERVER", "down")))]).say([text(0, "up"), stop()]);
    let ctx = context(play.clone());
    let assembled = Rc::new(Cell::new(0));
    let counting = assembled.clone();
    let section = PromptText::dynamic(move |_| {
        counting.set(counting.get() + 1);
        Ok(Some(format!("version {}", counting.get())))
    });
    ctx.prompt().section("s", 1.0, section).expect("registered");
    ctx.waterfall::<RequestErrorEvent, _>(|failed, _| async move {
        let message = shared("n1").to_value();
        failed.agent.session().append_raw("user/message", message, Some(SurfaceOp::Append), None, false)?;
        Ok(Recovery::Retry)
    })
    .expect("registered");
    let agent = run(&ctx);
    let requests = play.requests.borrow();
    let lengths: Vec<_> = requests.iter().map(|request| request.messages.len()).collect();
    assert_eq!((assembled.get(), lengths), (1, vec![1, 2]));
    assert!(requests.iter().all(|request| request.header.system.as_deref() == Some("version 1")));
    assert_eq!(
        (count(&agent, "step/start"), count(&agent, "request/header"), ends(&agent)),
        (1, 1, vec!["completed".into()])
    );
}

/// An adapter whose model lookup is scripted.
struct Looked<F>(F, Scripted);

impl<F: Fn(&Signal) -> Result<ModelInfo>> Adapter for Looked<F> {
    fn model_info(&self, _: &str, _: &str, signal: &Signal) -> LocalBoxFuture<Result<ModelInfo>> {
        Box::pin(std::future::ready((self.0)(signal)))
    }

    fn stream(&self, request: ModelRequest) -> ChunkStream {
        self.1.stream(request)
    }
}

#[test]
fn req_7_and_step_12_only_a_terminal_finish_is_offered_to_recovery() {
    let offered = |prepare: &dyn Fn(&Context), adapter: Box<dyn Fn(&Context)>| {
        let ctx = Context::new();
        adapter(&ctx);
        prepare(&ctx);
        let asked = Rc::new(Cell::new(false));
        let flag = asked.clone();
        ctx.waterfall::<RequestErrorEvent, _>(move |_, next| {
            flag.set(true);
            async move { next.call().await }
        })
        .expect("registered");
        let agent = run(&ctx);
        (asked.get(), failure(&agent).message)
    };
    let hello_route = || Box::new(|ctx: &Context| drop(ctx.llm().register("fake", hello()).expect("a new route")));
    let unknown = Box::new(|ctx: &Context| {
        let adapter = Looked(|_: &Signal| Err(Error::host("no such model")), hello());
        drop(ctx.llm().register("fake", adapter).expect("a new route"));
    });
    assert_eq!(offered(&|_| {}, unknown), (false, "no such model".into()));
    let throwing = |ctx: &Context| {
        ctx.waterfall::<RequestEvent, _>(|_, _| async { Err(Error::host("planned")) }).expect("registered");
    };
    assert_eq!(offered(&throwing, hello_route()), (false, "planned".into()));
    let refusing = |ctx: &Context| drop(agents::refuse(ctx, "request/header"));
    assert_eq!(offered(&refusing, hello_route()), (false, "request/header is refused".into()));
    let open_block = Box::new(|ctx: &Context| {
        let start = Chunk::BlockStart { index: 0, block_type: "hologram".into() };
        drop(ctx.llm().register("fake", Played::new().say([start, stop()])).expect("a new route"));
    });
    assert!(!offered(&|_| {}, open_block).0);
    let nobody = Box::new(|_: &Context| {});
    assert!(offered(&|_| {}, nobody).0, "a route that nobody serves ends as a failing stream");
}

#[test]
fn req_8_a_request_goes_to_the_adapter_it_was_bound_to() {
    let (first, second) = (Scripted::new().text("first"), Scripted::new().text("second"));
    let ctx = Context::new();
    let registration = Rc::new(ctx.llm().register("fake", first).expect("a new route"));
    let inner = ctx.clone();
    at_first(&ctx, "request/header", move |_| {
        registration.dispose();
        inner.llm().register("fake", second.clone()).expect("the route is free");
    });
    let agent = run(&ctx);
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    let texts: Vec<_> = answers(&agent).into_iter().map(|answer| answer.0).collect();
    assert_eq!(texts, [vec![block("first")], vec![block("second")]]);
}

#[test]
fn req_9_to_12_header_and_context_are_logged_in_this_order_with_the_members_that_say_something() {
    let ctx = context(hello());
    let agent = run(&ctx);
    let log = kinds(&agent);
    let start = log.iter().position(|kind| kind == "step/start").expect("a step");
    let expected = ["step/start", "user/message", "request/header", "request/context", "assistant/chunk"];
    assert_eq!(log[start..start + 5], expected);
    let header = events(&agent)[start + 2].data_value();
    assert_eq!(header, json!({"header": {"config": {"provider": "fake", "model": "m"}}, "reason": "initial"}));
    assert_eq!(events(&agent)[start + 3].data_value(), json!({"provider": "fake", "model": "m"}));
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert_eq!((count(&agent, "request/header"), count(&agent, "request/context")), (1, 1), "nothing has changed");
}

#[test]
fn req_5_13_and_15_history_is_taken_before_the_waterfall_and_a_switch_must_be_returned() {
    let script = hello();
    let ctx = context(script.clone());
    ctx.waterfall::<RequestEvent, _>(|request, next| async move {
        if request.step == 1 {
            let message = shared("n1").to_value();
            request.agent.session().append_raw("user/message", message, Some(SurfaceOp::Append), None, false)?;
            request.agent.inject(prompt("i1"))?;
        }
        let mut ignored = next.call().await?;
        let seed = ignored.clone();
        ignored.model = "changed and not returned".into();
        Ok(seed)
    })
    .expect("registered");
    let lengths = Rc::new(RefCell::new(Vec::new()));
    let seen = lengths.clone();
    ctx.check_requests(move |session, request| {
        seen.borrow_mut().push(request.messages.len());
        let logged = session.request_header().expect("logged");
        assert_eq!(*logged, *request.header, "what is sent is what the log holds");
        Ok(())
    })
    .expect("registered");
    let agent = run(&ctx);
    assert_eq!(*lengths.borrow(), [1, 4], "then the prompt, the appended one, the answer and the injected one");
    assert_eq!(script.last_request().expect("asked").header.config.model, "m");
    assert_eq!((ends(&agent), count(&agent, "step/end")), (vec!["completed".to_owned()], 2));
}

#[test]
fn req_14_and_d_14_absent_members_of_a_config_are_absent_in_the_log() {
    let value = json!({"provider": "fake", "model": "m", "temperature": null, "maxTokens": null, "stop": null});
    let config = CallConfig::from_value(&value).expect("null reads as absent");
    assert_eq!(config, CallConfig::new("fake", "m"));
    let ctx = context(hello());
    ctx.waterfall::<RequestEvent, _>(move |_, _| {
        let config = config.clone();
        async move { Ok(config) }
    })
    .expect("registered");
    let agent = run(&ctx);
    assert_eq!(ends(&agent), ["completed"]);
    let header = agent.session().request_header().expect("logged");
    assert_eq!(header.config.to_value(), json!({"provider": "fake", "model": "m"}));
}

#[test]
fn req_16_a_cancel_is_noticed_behind_every_stage_of_a_request() {
    let at = |kind: &'static str| move |ctx: &Context| at_first(ctx, kind, |agent| agent.cancel(CancelCause::User));
    let waterfall = |ctx: &Context| {
        ctx.waterfall::<RequestEvent, _>(|request, next| async move {
            request.agent.cancel(CancelCause::User);
            next.call().await
        })
        .expect("registered");
    };
    type Stage<'a> = (&'a dyn Fn(&Context), usize);
    let stages: [Stage<'_>; 3] = [(&waterfall, 0), (&at("request/header"), 1), (&at("request/context"), 1)];
    for (stage, headers) in stages {
        let script = hello();
        let ctx = context(script.clone());
        stage(&ctx);
        let agent = run(&ctx);
        assert_eq!((ends(&agent), count(&agent, "request/header")), (vec!["aborted".to_owned()], headers));
        assert_eq!(script.request_count(), 0);
    }
    // While the adapter looks its model up, and right behind the start of the stream.
    let holder: Rc<RefCell<Option<Agent>>> = Rc::default();
    let cancel = |holder: &Rc<RefCell<Option<Agent>>>| {
        holder.borrow().as_ref().expect("opened").cancel(CancelCause::User);
    };
    let (script, ctx, looking) = (hello(), Context::new(), holder.clone());
    let look = move |_: &Signal| {
        cancel(&looking);
        Ok(ModelInfo::default())
    };
    ctx.llm().register("fake", Looked(look, script.clone())).expect("a new route");
    let agent = open(&ctx, "a");
    *holder.borrow_mut() = Some(agent.clone());
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!((ends(&agent), script.request_count()), (vec!["aborted".to_owned()], 0));
    let starting = holder.clone();
    let script = Scripted::new().respond(move |_| {
        cancel(&starting);
        ScriptedReply::text("never")
    });
    let ctx = context(script.clone());
    let agent = open(&ctx, "a");
    *holder.borrow_mut() = Some(agent.clone());
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!((ends(&agent), script.request_count()), (vec!["aborted".to_owned()], 1));
    assert_eq!(count(&agent, "assistant/chunk"), 0);
}

#[test]
fn step_1_and_14_a_chunk_behind_a_cancel_is_not_logged_and_the_visible_prefix_is_kept() {
    let gate = Signal::new();
    let usage = Usage { input_tokens: 5, output_tokens: 2, ..Usage::default() };
    let closed = Chunk::BlockEnd { index: 0, block: Block::Reasoning("closed".into()) };
    let call =
        Chunk::ToolCallDelta { index: 2, id: Some("c1".into()), name: Some("f".into()), arguments_delta: "{}".into() };
    let said = [Chunk::Usage(usage), closed, text(1, "open"), call];
    let mut pieces: Vec<_> = said.into_iter().map(Piece::Say).collect();
    pieces.extend([Piece::Hold(gate.clone()), Piece::Say(text(1, " too late")), Piece::Say(stop())]);
    let ctx = context(Played::new().reply(pieces));
    let agent = run(&ctx);
    agent.cancel(CancelCause::User);
    release(&gate);
    settle(&ctx);
    assert_eq!(count(&agent, "assistant/chunk"), 4);
    let content = vec![Block::Reasoning("closed".into()), block("open")];
    assert_eq!(answers(&agent), [(content, Some(usage), true)]);
    let log = events(&agent);
    let message = log.iter().position(|event| event.kind() == "assistant/message").expect("committed");
    let chunks: Vec<u64> = (message as u64 - 4..message as u64).collect();
    assert_eq!(log[message].source_event_seqs, Some(chunks), "it cites the logged chunks");
    assert_eq!(log[message + 1].kind(), "step/end");
}

#[test]
fn step_2_11_and_13_an_adapter_that_says_aborted_fails_the_turn_and_its_chunks_are_cited_by_nothing() {
    let reason = FinishReason::aborted(Failure::new("ABORTED", "socket closed"));
    let ctx = context(Played::new().say([text(0, "lost"), finish(reason)]));
    let agent = run(&ctx);
    assert_eq!(failure(&agent), Failure::new("ABORTED", "socket closed"));
    assert_eq!(count(&agent, "assistant/chunk"), 2, "the failing finish is logged like any other");
    assert!(events(&agent).iter().all(|event| event.kind() == "tool/result" || event.source_event_seqs.is_none()));
    assert_eq!(agent.session().history().len(), 1, "the prompt alone");
}

#[test]
fn step_3_to_5_and_19_content_decides_and_each_answer_cites_exactly_its_chunks() {
    let down = finish(FinishReason::error(Failure::new("SERVER", "down")));
    let play = Played::new().say([text(0, "first try"), down]).say([Chunk::Usage(Usage::default())]);
    let ctx = context(play);
    ctx.waterfall::<RequestErrorEvent, _>(|_, _| async { Ok(Recovery::Retry) }).expect("registered");
    let agent = run(&ctx);
    assert_eq!(ends(&agent), ["completed"], "a stream that just ends is a stop");
    assert_eq!(answers(&agent), [(vec![], Some(Usage::default()), false)]);
    let log = events(&agent);
    let message = log.iter().find(|event| event.kind() == "assistant/message").expect("committed");
    assert_eq!(message.source_event_seqs, Some(vec![message.seq - 1]), "this attempt's chunks only");
}

#[test]
fn step_7_to_9_recovery_is_told_everything_while_the_step_is_open() {
    let mut down = Failure::new("RATE_LIMITED", "slow down");
    down.status = Some(429);
    let ctx = context(Played::new().say([finish(FinishReason::error(down.clone()))]));
    let seen = Rc::new(RefCell::new(None));
    let telling = seen.clone();
    ctx.waterfall::<RequestErrorEvent, _>(move |event, next| {
        assert_eq!(count(&event.agent, "step/end"), 0);
        assert!(!event.signal.is_cancelled());
        *telling.borrow_mut() = Some((event.turn, event.step, event.provider.clone(), event.failure.clone()));
        assert_eq!(event.retry_policy.as_deref(), Some(&RetryPolicy::default()), "the route's own");
        async move { next.call().await }
    })
    .expect("registered");
    let agent = run(&ctx);
    assert_eq!(*seen.borrow(), Some((1, 1, "fake".to_owned(), down.clone())));
    assert_eq!(failure(&agent), down, "by default the facts of the failure end the turn");
}

#[test]
fn step_7_the_policy_is_the_routes_and_a_request_that_no_route_served_has_none() {
    let ctx = Context::new();
    let always = RetryPolicy { mode: RetryMode::Always, ..RetryPolicy::default() };
    let options = RouteOptions { retry: always.clone(), ..RouteOptions::default() };
    let fails = || Played::new().say([finish(FinishReason::error(Failure::new("SERVER", "down")))]);
    ctx.llm().register_with(&["fake"], Rc::new(fails()), options).expect("a new route");
    let seen = Rc::new(RefCell::new(Vec::new()));
    let telling = seen.clone();
    ctx.waterfall::<RequestErrorEvent, _>(move |event, next| {
        telling.borrow_mut().push((event.provider.clone(), event.retry_policy.as_deref().cloned()));
        async move { next.call().await }
    })
    .expect("registered");
    run(&ctx);
    let agent = open(&ctx, "b");
    ctx.waterfall::<RequestEvent, _>(|_, next| async move {
        let mut config = next.call().await?;
        config.provider = "nobody".into();
        Ok(config)
    })
    .expect("registered");
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert_eq!(*seen.borrow(), [("fake".to_owned(), Some(always)), ("nobody".to_owned(), None)]);
}

#[test]
fn step_15_and_16_a_cancel_at_the_last_chunk_makes_a_prefix_of_a_whole_answer() {
    let call = Block::ToolCall { id: "c1".into(), name: "f".into(), arguments: "{}".into() };
    let said = [text(0, "all of it"), Chunk::BlockEnd { index: 1, block: call }, finish(FinishReason::ToolCalls)];
    let ctx = context(Played::new().say(said));
    cancel_at_chunk(&ctx, |chunk| matches!(chunk, Chunk::Finish { .. }));
    let agent = run(&ctx);
    assert_eq!(answers(&agent), [(vec![block("all of it")], None, true)]);
    assert_eq!((ends(&agent), count(&agent, "tool/call")), (vec!["aborted".to_owned()], 0));
}

#[test]
fn step_17_a_cancel_during_recovery_commits_nothing_of_the_failed_attempt() {
    let ctx =
        context(Played::new().say([text(0, "partial"), finish(FinishReason::error(Failure::new("SERVER", "down")))]));
    ctx.waterfall::<RequestErrorEvent, _>(|event, _| async move {
        event.agent.cancel(CancelCause::User);
        Ok(Recovery::Retry)
    })
    .expect("registered");
    let agent = run(&ctx);
    assert_eq!((ends(&agent), answers(&agent).len()), (vec!["aborted".to_owned()], 0));
}

#[test]
fn step_18_a_cancel_behind_the_commit_leaves_the_message_whole_and_the_turn_aborts() {
    for reason in [FinishReason::Stop, FinishReason::MaxTokens] {
        let ctx = context(Played::new().say([text(0, "whole"), finish(reason)]));
        at_first(&ctx, "assistant/message", |agent| agent.cancel(CancelCause::User));
        let agent = run(&ctx);
        assert_eq!(answers(&agent), [(vec![block("whole")], None, false)]);
        assert_eq!(ends(&agent), ["aborted"]);
    }
}

#[test]
fn asm_1_to_3_blocks_keep_the_order_of_first_sight_and_the_first_end_is_the_authority() {
    let delta = |text: &str| Chunk::ToolCallDelta { index: 9, id: None, name: None, arguments_delta: text.into() };
    let said = [
        text(7, "b"),
        delta("{\"a\""),
        Chunk::BlockStart { index: 3, block_type: "reasoning".into() },
        text(7, "c"),
        Chunk::BlockEnd { index: 7, block: block("B") },
        text(7, "ignored"),
        Chunk::BlockEnd { index: 7, block: block("ignored") },
        Chunk::ReasoningDelta { index: 3, text: "r".into() },
        delta(":1}"),
        finish(FinishReason::ToolCalls),
    ];
    let ctx = context(Played::new().say(said).say([stop()]));
    let agent = run(&ctx);
    let call = Block::ToolCall { id: "call-9".into(), name: String::new(), arguments: "{\"a\":1}".into() };
    assert_eq!(answers(&agent)[0].0, [block("B"), call, Block::Reasoning("r".into())]);
}

#[test]
fn asm_4_an_open_block_of_an_unknown_type_fails_the_step_and_is_left_out_of_a_prefix() {
    let start = || Chunk::BlockStart { index: 0, block_type: "hologram".into() };
    let ctx = context(Played::new().say([start(), text(1, "x"), stop()]));
    let agent = run(&ctx);
    assert_eq!((ends(&agent), count(&agent, "assistant/message")), (vec!["error".to_owned()], 0));
    assert_eq!(count(&agent, "step/end"), 1);
    let ctx = context(Played::new().say([start(), text(1, "x"), stop()]));
    cancel_at_chunk(&ctx, |chunk| matches!(chunk, Chunk::TextDelta { .. }));
    let agent = run(&ctx);
    assert_eq!(answers(&agent), [(vec![block("x")], None, true)]);
}

#[test]
fn asm_5_and_step_6_a_ceiling_drops_calls_with_their_replay_entries_and_entries_that_do_not_match_drop_the_state() {
    let replay = |state: turnwheel::json::Value, reason: FinishReason| {
        let call = Block::ToolCall { id: "c1".into(), name: "f".into(), arguments: "{}".into() };
        let last = Chunk::Finish { reason, replay_state: Some(Box::new(state)) };
        let ctx = context(Played::new().say([text(0, "t"), Chunk::BlockEnd { index: 1, block: call }, last]));
        let agent = run(&ctx);
        let message = agent.session().history().get(1).expect("an answer");
        let source = message.to_value().get("source").expect("a source").clone();
        assert_eq!(source.get("provider"), Some(&json!("fake")));
        (message.content().len(), source.get("replayState").cloned())
    };
    let ceiling = || FinishReason::MaxTokens;
    let state = json!({"response": {"id": "r"}, "blocks": ["for text", "for call"]});
    let kept = json!({"response": {"id": "r"}, "blocks": ["for text"]});
    assert_eq!(replay(state, ceiling()), (1, Some(kept)));
    assert_eq!(replay(json!({"response": {}, "blocks": ["one"]}), ceiling()), (1, None));
    assert_eq!(replay(json!({"response": {"id": "r"}}), ceiling()), (1, Some(json!({"response": {"id": "r"}}))));
}

/// A context whose text the test changes.
fn clock(ctx: &Context) -> Rc<RefCell<String>> {
    let now = Rc::new(RefCell::new("It is noon.".to_owned()));
    let reading = now.clone();
    ctx.prompt()
        .context("clock", 1.0, PromptText::dynamic(move |_| Ok(Some(reading.borrow().clone()))))
        .expect("registered");
    now
}

/// The texts of plug-in messages in the log.
fn snapshots(agent: &Agent) -> Vec<String> {
    let snapshot = |event: &Arc<turnwheel::session::Event>| match &event.data {
        EventData::UserMessage(message) if message.source().kind() == "plugin" => Some(message.text()),
        _ => None,
    };
    events(agent).iter().filter_map(snapshot).collect()
}

#[test]
fn rcx_1_to_3_a_snapshot_is_sent_when_it_changed_and_one_notice_when_it_is_gone() {
    let ctx = context(hello());
    let now = clock(&ctx);
    let agent = open(&ctx, "a");
    let mut sent = Vec::new();
    for (n, text) in ["", "It is noon.", "It is noon.", "It is one.", "", ""].iter().enumerate() {
        *now.borrow_mut() = (*text).to_owned();
        agent.followup(prompt(&format!("q{n}"))).expect("accepted");
        settle(&ctx);
        sent.push(snapshots(&agent).len());
    }
    assert_eq!(sent, [0, 1, 1, 2, 3, 3]);
    let texts = snapshots(&agent);
    assert!(texts[0].ends_with("\n\nIt is noon.") && texts[1].ends_with("\n\nIt is one."));
    assert_eq!(texts[2], turnwheel::texts::CONTEXT_CLEARED);
    assert_eq!(count(&agent, "request/header"), 1, "the system prompt does not change with it");
    let sources: Vec<_> = agent
        .session()
        .history()
        .iter()
        .filter(|message| message.source().kind() == "plugin")
        .map(|message| message.to_value().get("source").expect("a source").clone())
        .collect();
    assert_eq!(sources[0].get("form"), Some(&json!("snapshot")));
    assert_eq!(sources[0].get("sections"), Some(&json!([{"name": "clock", "text": "It is noon."}])));
    assert_eq!(sources[2].get("sections"), None);
}

#[test]
fn rcx_5_only_a_replacement_of_the_retained_snapshot_makes_the_next_boundary_send_it_again() {
    let ctx = context(hello());
    let now = clock(&ctx);
    let agent = run(&ctx);
    let nodes = agent.session().surface_nodes();
    let replace = |node: u64, id: &str| {
        agent.session().replace_surface(shared(id), node, node, vec![node]).expect("replaced");
    };
    replace(nodes[0], "summary of the prompt");
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert_eq!(snapshots(&agent).len(), 1, "an unrelated replacement");
    replace(nodes[1], "summary of the snapshot");
    agent.followup(prompt("q3")).expect("accepted");
    settle(&ctx);
    assert_eq!(snapshots(&agent).len(), 2);
    let shown = *agent
        .session()
        .surface_nodes()
        .iter()
        .rev()
        .find(|seq| {
            let event = agent.session().event(**seq).expect("on the surface");
            event.data.message().is_some_and(|message| message.source().kind() == "plugin")
        })
        .expect("shown");
    replace(shown, "another summary");
    now.borrow_mut().clear();
    agent.followup(prompt("q4")).expect("accepted");
    settle(&ctx);
    assert_eq!(snapshots(&agent).last().map(String::as_str), Some(turnwheel::texts::CONTEXT_CLEARED));
}

#[test]
fn rcx_6_and_7_what_a_log_retains_is_found_again_and_a_foreign_shape_never_matches() {
    let ctx = context(hello());
    let now = clock(&ctx);
    let parent = run(&ctx);
    let resume = |id: &str, log: Vec<Arc<turnwheel::session::Event>>| {
        let header = turnwheel::session::SessionHeader::new(id, 1);
        let resumed = ctx.agent(id).provider("fake").model("m").resume_from(header, log);
        let agent = ctx.runtime().block_on(resumed).expect("resumed").agent().clone();
        agent.followup(prompt("again")).expect("accepted");
        settle(&ctx);
        agent
    };
    assert_eq!(snapshots(&resume("same", events(&parent))).len(), 1);
    // The retained snapshot has two blocks: it is superseded.
    let log: Vec<_> = events(&parent)
        .iter()
        .map(|event| match &event.data {
            EventData::UserMessage(message) if message.source().kind() == "plugin" => {
                let half = |text: &str| Block::Text(text.into());
                let (id, source) = (message.id().clone(), message.source().clone());
                let split = Message::new(id, Role::User, vec![half(&message.text()), half("")], source);
                let mut event =
                    turnwheel::session::Event::new(event.seq, event.time, EventData::UserMessage(split.into()));
                event.surface_op = Some(SurfaceOp::Append);
                Arc::new(event)
            }
            _ => event.clone(),
        })
        .collect();
    assert_eq!(snapshots(&resume("odd", log)).len(), 2);
    // It existed and none is retained: the clearing notice is due, where a log that never had one gets nothing.
    let nodes = parent.session().surface_nodes();
    parent.session().replace_surface(shared("summary"), nodes[1], nodes[1], vec![nodes[1]]).expect("replaced");
    now.borrow_mut().clear();
    let cleared = snapshots(&resume("cleared", events(&parent)));
    assert_eq!(cleared.last().map(String::as_str), Some(turnwheel::texts::CONTEXT_CLEARED));
    assert!(snapshots(&resume("never", vec![])).is_empty());
}

#[test]
fn rcx_8_and_d_20_a_snapshot_alone_is_worth_no_request() {
    let script = hello();
    let ctx = context(script.clone());
    clock(&ctx);
    agents::on_first(&ctx, NoticeKind::Inserted, |agent| assert!(agent.inbox().remove("q1").expect("removable")));
    let agent = run(&ctx);
    assert_eq!((ends(&agent), script.request_count()), (vec!["completed".to_owned()], 0));
    assert!(snapshots(&agent).is_empty());
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert_eq!(snapshots(&agent).len(), 1, "it waited");
}

#[test]
fn req_6_a_missing_route_fails_the_step_and_says_where_to_set_it() {
    let ctx = context(hello());
    let agent = ctx.runtime().block_on(ctx.agent("a").provider("fake").open()).expect("opened without a model");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    let failure = failure(&agent);
    assert!(failure.message.contains("model") && failure.message.contains("options"), "{}", failure.message);
    assert_eq!(count(&agent, "step/end"), 1);
}
