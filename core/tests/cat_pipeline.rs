//! Tools: definition, scoping, the execution pipeline: data.md sections 19 and 20. Named after the ids.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{Log, count, events, hello, kinds, noop, open, settle};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use turnwheel::json::Value;
use turnwheel::llm::adapters::Scripted;
use turnwheel::message::Block;
use turnwheel::runtime::{ManualClock, Ports, Signal};
use turnwheel::tools::{
    ApprovalOutcome, ExecuteRequest, PostDecision, PostExecute, PreDecision, PreExecute, ToolCallInfo, ToolOutcome,
};
use turnwheel::{Agent, CancelCause, Code, Context, Error, Message, Notice, NoticeKind, Tool, ToolOutput, json};

fn note(log: &Log, what: &str) {
    log.borrow_mut().push(what.to_owned());
}

fn info(name: &str, arguments: Value) -> ToolCallInfo {
    ToolCallInfo::new("c1", name, arguments, Signal::new())
}

fn run(ctx: &Context, call: ToolCallInfo) -> ToolOutcome {
    ctx.runtime().block_on(ctx.tools().execute(call)).expect("no store stands in the way")
}

fn call(ctx: &Context, name: &str) -> ToolOutcome {
    run(ctx, info(name, json!({})))
}

fn shown(outcome: &ToolOutcome) -> String {
    outcome.content.iter().filter_map(Block::text).collect()
}

fn code(outcome: &ToolOutcome) -> Option<(String, String)> {
    outcome.error.as_ref().map(|error| (error.name.clone(), error.code.clone()))
}

fn coded(name: &str, code: &str) -> Option<(String, String)> {
    Some((name.to_owned(), code.to_owned()))
}

/// Notes every stage that a call passes.
fn watch(ctx: &Context) -> Log {
    let log = Log::default();
    let heard = log.clone();
    ctx.waterfall::<PreExecute, _>(move |_, next| {
        note(&heard, "pre");
        async move { next.call().await }
    })
    .expect("registered");
    let heard = log.clone();
    ctx.waterfall::<ExecuteRequest, _>(move |_, next| {
        note(&heard, "wrapper");
        async move { next.call().await }
    })
    .expect("registered");
    let heard = log.clone();
    ctx.waterfall::<PostExecute, _>(move |_, next| {
        note(&heard, "post");
        async move { next.call().await }
    })
    .expect("registered");
    let heard = log.clone();
    ctx.tools()
        .guard(move |_| {
            note(&heard, "guard");
            Ok(None)
        })
        .expect("registered");
    let heard = log.clone();
    ctx.on(NoticeKind::ToolResult, move |_| {
        note(&heard, "result");
        Ok(())
    })
    .expect("registered");
    log
}

fn decide(ctx: &Context, decision: PreDecision) {
    ctx.waterfall::<PreExecute, _>(move |_, _| {
        let decision = decision.clone();
        async move { Ok(decision) }
    })
    .expect("registered");
}

fn after(ctx: &Context, decision: impl Fn() -> PostDecision + 'static) {
    ctx.waterfall::<PostExecute, _>(move |_, _| {
        let decision = decision();
        async move { Ok(decision) }
    })
    .expect("registered");
}

fn texts(text: &str) -> Vec<Block> {
    vec![Block::Text(text.into())]
}

#[test]
fn def_1_and_10_the_model_sees_name_description_and_parameters_and_a_program_the_output_too() {
    let ctx = Context::new();
    let tool = noop("t").description("does it").output(json!({"type": "string"}));
    ctx.tools().register(tool).expect("registered");
    let native = ctx.tools().schemas()[0].json().to_owned();
    assert!(native.contains("does it") && !native.contains("output"), "{native}");
    let mut code = ctx.tools().code_schemas();
    assert_eq!(code[0].output, Some(json!({"type": "string"})));
    code[0].output = None;
    assert!(ctx.tools().code_schemas()[0].output.is_some(), "what is handed out is detached");
}

#[test]
fn def_2_a_bad_definition_is_refused_and_nobody_is_told() {
    let ctx = Context::new();
    let told = Rc::new(Cell::new(0));
    let count = told.clone();
    ctx.on(NoticeKind::ToolsChanged, move |_| {
        count.set(count.get() + 1);
        Ok(())
    })
    .expect("registered");
    ctx.tools().register(noop("taken")).expect("registered");
    for (tool, expected) in [
        (noop("t").output(json!({"anyOf": []})), Code::UnsupportedSchema),
        (noop("t").parameters(json!({"type": ["string"]})), Code::UnsupportedSchema),
        (noop("t").timeout(Duration::ZERO), Code::InvalidArgument),
        (noop("run_code"), Code::InvalidArgument),
        (noop(""), Code::InvalidArgument),
        (noop("taken"), Code::DuplicateName),
    ] {
        assert_eq!(ctx.tools().register(tool).expect_err("refused").code(), &expected);
    }
    assert_eq!((told.get(), ctx.tools().schemas().len()), (1, 1));
}

#[test]
fn def_3_and_4_an_undo_removes_its_own_entry_and_a_nearer_tool_shadows() {
    let ctx = Context::new();
    let scope = ctx.new_scope().expect("a scope");
    let say = |text: &'static str| Tool::new("t", move |_| async move { Ok(ToolOutput::value(text)) });
    let first = ctx.tools().register(say("first")).expect("registered");
    first.dispose();
    ctx.tools().register(say("second")).expect("free again");
    first.dispose();
    scope.ctx().tools().register(say("near")).expect("shadowing is legal");
    assert_eq!(shown(&run(scope.ctx(), info("t", json!({})))), "near");
    assert_eq!(shown(&call(&ctx, "t")), "second");
    ctx.runtime().block_on(scope.dispose());
    assert_eq!(shown(&run(scope.ctx(), info("t", json!({})))), "second", "the owner's end undoes it");
}

#[test]
fn def_8_guards_run_on_allowed_calls_only_far_to_near_and_the_first_reason_wins() {
    let ctx = Context::new();
    let [far, near] = std::array::from_fn(|_| ctx.new_scope().expect("a scope"));
    ctx.root().scopes.bind(near.key(), far.key()).expect("bound");
    ctx.tools().register(noop("t")).expect("registered");
    let log = Log::default();
    for (name, scope, reason) in
        [("near", near.ctx(), Some("near says no")), ("far", far.ctx(), Some("far says no")), ("global", &ctx, None)]
    {
        let heard = log.clone();
        let guard = move |_: &ToolCallInfo| {
            note(&heard, name);
            Ok(reason.map(str::to_owned))
        };
        scope.tools().guard(guard).expect("registered");
    }
    assert_eq!(shown(&run(near.ctx(), info("t", json!({})))), "Error: far says no");
    assert_eq!(*log.borrow(), ["global", "far"]);
    log.borrow_mut().clear();
    decide(&ctx, PreDecision::Deny("policy".into()));
    assert_eq!(shown(&run(near.ctx(), info("t", json!({})))), "Error: policy");
    assert!(log.borrow().is_empty());
}

#[test]
fn exe_1_and_2_a_call_passes_its_stages_in_order() {
    let ctx = Context::new();
    let log = watch(&ctx);
    let (body, last) = (log.clone(), log.clone());
    let tool = Tool::new("t", move |call| {
        let log = body.clone();
        async move {
            note(&log, "body");
            assert_eq!(call.call_id().as_str(), "c1");
            Ok(ToolOutput::value("x"))
        }
    });
    let tool = tool.finalize_content(move |call, outcome| {
        note(&last, "finalize");
        assert_eq!((call.root_call_id.as_str(), shown(outcome).as_str()), ("c1", "x"));
        Ok(None)
    });
    ctx.tools().register(tool).expect("registered");
    assert_eq!(shown(&call(&ctx, "t")), "x");
    assert_eq!(*log.borrow(), ["pre", "guard", "wrapper", "body", "post", "finalize", "result"]);
}

#[test]
fn exe_3_and_4_bad_json_and_a_cancelled_signal_are_answered_before_anybody_is_asked() {
    let ctx = Context::new();
    let log = watch(&ctx);
    let last = log.clone();
    let tool = noop("t").finalize_content(move |_, _| {
        note(&last, "finalize");
        Ok(None)
    });
    ctx.tools().register(tool).expect("registered");
    let cancelled = |arguments: Value| {
        let call = info("t", arguments);
        call.signal.cancel(CancelCause::User);
        call
    };
    let aborted = run(&ctx, cancelled(json!({})));
    assert_eq!(code(&aborted), coded("AbortError", "ABORTED_BEFORE_DISPATCH"));
    assert_eq!(std::mem::take(&mut *log.borrow_mut()), ["finalize", "result"]);
    let lossy = run(&ctx, cancelled(Value::from(f64::NAN)));
    assert_eq!(code(&lossy), coded("ToolArgsError", "INVALID_ARGS"), "the argument error comes first");
    assert_eq!(*log.borrow(), ["finalize", "result"]);
}

#[test]
fn exe_5_a_listener_that_fails_is_no_denial() {
    let ctx = Context::new();
    ctx.tools().register(noop("t")).expect("registered");
    let log = watch(&ctx);
    ctx.waterfall::<PreExecute, _>(|_, _| async { Err(Error::host("broken policy")) }).expect("registered");
    assert_eq!(shown(&call(&ctx, "t")), "Error: broken policy");
    assert_eq!(*log.borrow(), ["pre", "result"], "post-execute does not see it");
}

#[test]
fn exe_6_and_rec_20_a_question_is_logged_put_answered_and_guards_still_run() {
    let ctx = agents::context(hello());
    ctx.tools().register(noop("t")).expect("registered");
    let log = watch(&ctx);
    decide(&ctx, PreDecision::Ask(Some("risky".into())));
    let agent = open(&ctx, "a");
    let of_agent = |id: &str| {
        let call = ToolCallInfo::new(id, "t", json!({}), Signal::new());
        ToolCallInfo { agent: Some(agent.clone()), ..call }
    };
    assert_eq!(shown(&run(&ctx, of_agent("c0"))), "Error: risky", "nobody is there to ask");
    assert!(agent.session().is_empty(), "and nothing was asked");
    let answers = [
        ("c1", Ok(ApprovalOutcome::AllowedOnce), "allowed-once", true),
        ("c2", Ok(ApprovalOutcome::Rejected), "rejected", false),
        ("c3", Ok(ApprovalOutcome::Cancelled), "cancelled", false),
        ("c4", Ok(ApprovalOutcome::Unavailable), "unavailable", false),
        ("c5", Err(Error::host("broken")), "unavailable", false),
    ];
    let table: Rc<Vec<_>> = Rc::new(answers.iter().map(|row| (row.0, row.1.clone())).collect());
    ctx.tools()
        .approve_with(move |request| {
            let answer = table.iter().find(|row| row.0 == request.call.call_id.as_str()).map(|row| row.1.clone());
            assert_eq!(request.reason.as_deref(), Some("risky"));
            async move { answer.expect("a row") }
        })
        .expect("registered");
    let mut texts = Vec::new();
    for (id, _, outcome, runs) in answers {
        log.borrow_mut().clear();
        let before = agent.session().len();
        let answer = run(&ctx, of_agent(id));
        assert_eq!(answer.is_error, !runs, "{id}");
        assert_eq!(log.borrow().contains(&"guard".to_owned()), runs, "guards run after an approval");
        let logged = agent.session().events_from(before);
        let [asked, decided] = logged.as_slice() else { panic!("{logged:?}") };
        let question = asked.data_value();
        assert_eq!((asked.kind(), decided.kind()), ("approval/asked", "approval/decided"));
        assert_eq!(question.get("callId").and_then(Value::as_str), Some(id));
        assert_eq!(
            decided.data_value(),
            json!({"id": (question.get("id").expect("an id").clone()), "outcome": outcome})
        );
        if !runs && id != "c5" {
            texts.push(shown(&answer));
        }
    }
    texts.dedup();
    assert_eq!(texts.len(), 3, "each has a text of its own: {texts:?}");
    ctx.tools().guard(|_| Ok(Some("guarded".into()))).expect("registered");
    assert_eq!(shown(&run(&ctx, of_agent("c1"))), "Error: guarded", "an approval overrides no guard");
    assert!(shown(&run(&ctx, info("t", json!({})))).contains("risky"), "a call without an agent is denied");
}

#[test]
fn exe_6_a_cancellation_withdraws_the_question() {
    let ctx = agents::context(Scripted::new().calls([("c1", "t", "{}")]));
    ctx.tools().register(noop("t")).expect("registered");
    decide(&ctx, PreDecision::Ask(None));
    ctx.tools().approve_with(|_| std::future::pending()).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!((count(&agent, "approval/asked"), count(&agent, "approval/decided")), (1, 0));
    agent.cancel(CancelCause::User);
    settle(&ctx);
    assert_eq!(agents::ends(&agent), ["aborted"]);
    assert_eq!(count(&agent, "approval/decided"), 1, "every question has one answer");
    assert_eq!(agents::results(&agent), [("c1".to_owned(), String::new())], "a denied call stays denied (EXE-15)");
}

#[test]
fn exe_7_and_8_a_denial_has_no_code_and_an_unknown_tool_is_found_at_dispatch() {
    let ctx = Context::new();
    let log = watch(&ctx);
    let unknown = call(&ctx, "nowhere");
    assert_eq!(code(&unknown), coded("ToolNotFoundError", "UNKNOWN_TOOL"));
    assert!(shown(&unknown).contains("\"nowhere\""));
    assert_eq!(std::mem::take(&mut *log.borrow_mut()), ["pre", "guard", "wrapper", "post", "result"]);
    decide(&ctx, PreDecision::Deny("not today".into()));
    let denied = call(&ctx, "nowhere");
    assert_eq!((shown(&denied).as_str(), code(&denied), denied.is_error), ("Error: not today", None, true));
    assert_eq!(*log.borrow(), ["pre", "post", "result"]);
}

#[test]
fn exe_9_invalid_arguments_are_found_behind_the_wrappers() {
    let ctx = Context::new();
    let parameters =
        json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "null"}}, "required": ["a"]});
    let log = watch(&ctx);
    ctx.tools().register(noop("t").parameters(parameters)).expect("registered");
    let outcome = run(&ctx, info("t", json!({"b": 1})));
    assert_eq!(code(&outcome), coded("ToolArgsError", "INVALID_ARGS"));
    let expected = "Error: invalid arguments: missing required property \"a\"; \"b\" must be null";
    assert_eq!(shown(&outcome), expected);
    assert_eq!(*log.borrow(), ["pre", "guard", "wrapper", "post", "result"]);
}

#[test]
fn exe_10_the_bodys_signal_fires_with_the_callers_or_the_wrappers() {
    for by_wrapper in [false, true] {
        let ctx = Context::new();
        let own = Signal::new();
        let replacing = own.clone();
        ctx.waterfall::<ExecuteRequest, _>(move |request, next| {
            *request.signal.borrow_mut() = replacing.clone();
            async move { next.call().await }
        })
        .expect("registered");
        let fired = Rc::new(Cell::new(false));
        let flag = fired.clone();
        let tool = Tool::new("t", move |call| {
            let flag = flag.clone();
            async move {
                call.signal().cancelled().await;
                flag.set(true);
                Ok(ToolOutput::value("late"))
            }
        });
        ctx.tools().register(tool).expect("registered");
        let call = info("t", json!({}));
        let signal = if by_wrapper { own } else { call.signal.clone() };
        let running = ctx.clone();
        ctx.runtime().spawn(async move { drop(running.tools().execute(call).await) });
        settle(&ctx);
        assert!(!fired.get());
        signal.cancel(CancelCause::User);
        settle(&ctx);
        assert!(fired.get(), "by the wrapper: {by_wrapper}");
    }
}

#[test]
fn exe_11_a_wrapper_may_answer_and_its_value_goes_by_the_tools_contract() {
    let ctx = Context::new();
    let body = Rc::new(Cell::new(false));
    let flag = body.clone();
    let tool = Tool::new("t", move |_| {
        flag.set(true);
        async { Ok(ToolOutput::value("body")) }
    });
    ctx.tools().register(tool.output(json!({"type": "string"}))).expect("registered");
    let answer: Rc<RefCell<Option<ToolOutcome>>> = Rc::default();
    let given = answer.clone();
    let log = Log::default();
    let heard = log.clone();
    ctx.waterfall::<ExecuteRequest, _>(move |_, _| {
        let answer = given.borrow().clone();
        async move { answer.ok_or_else(|| Error::host("broken wrapper")) }
    })
    .expect("registered");
    ctx.waterfall::<PostExecute, _>(move |_, next| {
        note(&heard, "post");
        async move { next.call().await }
    })
    .expect("registered");
    let answered = |outcome: ToolOutcome| {
        *answer.borrow_mut() = Some(outcome);
        call(&ctx, "t")
    };
    let good = answered(ToolOutcome { value: Some(json!("cached")), ..ToolOutcome::default() });
    assert_eq!((shown(&good).as_str(), good.is_error), ("cached", false));
    let bad = answered(ToolOutcome { value: Some(json!(1)), ..ToolOutcome::default() });
    assert_eq!(code(&bad), coded("ToolOutputError", "INVALID_TOOL_OUTPUT"));
    let bare = answered(ToolOutcome { content: texts("bare"), ..ToolOutcome::default() });
    assert_eq!(code(&bare), coded("ToolOutputError", "INVALID_TOOL_OUTPUT"), "a bare success fails the check");
    let failed = answered(ToolOutcome { content: texts("as it is"), is_error: true, ..ToolOutcome::default() });
    assert_eq!(shown(&failed), "as it is");
    log.borrow_mut().clear();
    *answer.borrow_mut() = None;
    assert_eq!(shown(&call(&ctx, "t")), "Error: broken wrapper");
    assert!(log.borrow().is_empty(), "a wrapper that fails ends the call without post");
    assert!(!body.get());
}

#[test]
fn exe_12_and_13_a_value_is_checked_rendered_and_never_logged() {
    let ctx = agents::context(Scripted::new().calls([("c1", "t", "{}")]).text("done"));
    let tool = Tool::new("t", |_| async { Ok(ToolOutput::value(json!({"secret": 1})).with_meta(json!({"m": 1}))) });
    ctx.tools().register(tool.output(json!({"type": "object"}))).expect("registered");
    let bad = Tool::new("bad", |_| async { Ok(ToolOutput::value(json!(1))) });
    ctx.tools().register(bad.output(json!({"type": "string"}))).expect("registered");
    assert_eq!(code(&call(&ctx, "bad")), coded("ToolOutputError", "INVALID_TOOL_OUTPUT"));
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    let result = events(&agent).into_iter().find(|event| event.kind() == "tool/result").expect("a result");
    let data = result.data_value();
    assert!(data.get("value").is_none() && data.get("meta").is_some());
    assert!(data.to_text().contains("{\\\"secret\\\":1}"), "the model sees the rendering: {}", data.to_text());
}

#[test]
fn exe_14_to_17_a_started_body_is_awaited_and_only_its_success_becomes_an_abort() {
    let cases = [("ok", "ABORTED", true), ("fails", "MINE", true), ("denied", "", false)];
    for (how, expected, keeps) in cases {
        let ctx = Context::new();
        let tool = Tool::new("t", move |call| async move {
            call.defer_context(std::sync::Arc::new(Message::user_text("ctx", "changed files")));
            call.conclude_turn();
            call.signal().cancelled().await;
            if how == "fails" { Err(Error::coded("Own", "MINE", "stopped")) } else { Ok(ToolOutput::value("done")) }
        });
        ctx.tools().register(tool).expect("registered");
        let call = info("t", json!({}));
        let signal = call.signal.clone();
        if how == "denied" {
            let signal = signal.clone();
            ctx.waterfall::<PreExecute, _>(move |_, _| {
                signal.cancel(CancelCause::User);
                async { Ok(PreDecision::Deny("no".into())) }
            })
            .expect("registered");
        }
        let answer: Rc<RefCell<Option<ToolOutcome>>> = Rc::default();
        let (done, running) = (answer.clone(), ctx.clone());
        ctx.runtime().spawn(async move { *done.borrow_mut() = running.tools().execute(call).await.ok() });
        settle(&ctx);
        signal.cancel(CancelCause::User);
        settle(&ctx);
        let outcome = answer.borrow().clone().expect("answered");
        assert_eq!(outcome.error.as_ref().map_or("", |error| error.code.as_str()), expected, "{how}");
        assert_eq!(outcome.contexts.len(), usize::from(keeps), "contexts survive: {how}");
        assert!(!outcome.concludes_turn && outcome.value.is_none());
    }
    let ctx = Context::new();
    ctx.tools().register(noop("t")).expect("registered");
    let call = info("t", json!({}));
    let signal = call.signal.clone();
    ctx.waterfall::<PostExecute, _>(move |_, _| {
        signal.cancel(CancelCause::User);
        async { Ok(PostDecision::Block { feedback: texts("blocked"), contexts: Vec::new() }) }
    })
    .expect("registered");
    assert_eq!(shown(&run(&ctx, call)), "blocked", "what post-execute made a failure stays that failure");
}

#[test]
fn exe_18_to_20_policy_behind_the_call_replaces_or_blocks() {
    let defer = |id: &'static str| std::sync::Arc::new(Message::user_text(id, id));
    let ctx = Context::new();
    let tool = Tool::new("t", move |call| async move {
        call.defer_context(std::sync::Arc::new(Message::user_text("body", "")));
        Ok(ToolOutput::value("old"))
    });
    ctx.tools().register(tool.output(json!({"type": "string"}))).expect("registered");
    let decision: Rc<RefCell<PostDecision>> = Rc::new(RefCell::new(PostDecision::accept()));
    let given = decision.clone();
    after(&ctx, move || given.borrow().clone());
    ctx.waterfall::<ExecuteRequest, _>(move |_, next| async move {
        let mut outcome = next.call().await?;
        outcome.contexts.push(std::sync::Arc::new(Message::user_text("wrapper", "")));
        Ok(outcome)
    })
    .expect("registered");
    let decided = |content: Option<Vec<Block>>, value: Option<Value>| {
        *decision.borrow_mut() = PostDecision::Accept { content, value, contexts: vec![defer("post")] };
        call(&ctx, "t")
    };
    let ids =
        |outcome: &ToolOutcome| outcome.contexts.iter().map(|message| message.id().to_string()).collect::<Vec<_>>();
    let content = decided(Some(texts("other words")), None);
    assert_eq!((shown(&content).as_str(), content.value.clone()), ("other words", Some(json!("old"))));
    assert_eq!(ids(&content), ["body", "wrapper", "post"]);
    let value = decided(None, Some(json!("new")));
    assert_eq!((shown(&value).as_str(), value.value), ("new", Some(json!("new"))));
    assert!(decided(None, Some(json!(1))).is_error, "a new value is checked again");
    assert!(decided(Some(Vec::new()), Some(json!("x"))).is_error, "not both");
    *decision.borrow_mut() = PostDecision::Block { feedback: texts("no good"), contexts: vec![defer("post")] };
    let blocked = call(&ctx, "t");
    assert_eq!((shown(&blocked).as_str(), code(&blocked), blocked.is_error), ("no good", None, true));
    assert_eq!(ids(&blocked), ["post"], "contexts of body and wrapper are dropped");
    *decision.borrow_mut() = PostDecision::Block { feedback: Vec::new(), contexts: Vec::new() };
    assert!(!shown(&call(&ctx, "t")).is_empty(), "a block without a word has a fallback");
    *decision.borrow_mut() = PostDecision::Accept { content: None, value: Some(json!("x")), contexts: Vec::new() };
    assert!(call(&ctx, "unknown").is_error, "a failure has no value to replace");
}

#[test]
fn exe_21_what_is_thrown_is_one_text_and_only_our_own_errors_have_a_code() {
    let ctx = Context::new();
    let fail = |name: &str, error: fn() -> Error| Tool::new(name, move |_| async move { Err(error()) });
    ctx.tools().register(fail("plain", || Error::host("plain words"))).expect("registered");
    ctx.tools().register(fail("coded", || Error::coded("Mine", "MINE", "coded words"))).expect("registered");
    ctx.tools().register(Tool::new("panics", |_| async { panic!("planned panic") })).expect("registered");
    let plain = call(&ctx, "plain");
    assert_eq!((shown(&plain).as_str(), code(&plain), plain.content.len()), ("Error: plain words", None, 1));
    assert_eq!(code(&call(&ctx, "coded")), coded("Mine", "MINE"));
    assert!(shown(&call(&ctx, "panics")).contains("planned panic"));
}

#[test]
fn exe_22_a_tool_has_the_last_word_on_its_content_and_on_nothing_else() {
    let ctx = Context::new();
    let last = |name: &str| Tool::new(name, |_| async { Err(Error::host("broken")) });
    let tool = last("t").finalize_content(|_, outcome| Ok(Some(texts(&format!("[{}]", shown(outcome))))));
    ctx.tools().register(tool).expect("registered");
    let failing = noop("failing").finalize_content(|_, _| Err(Error::coded("Fin", "FIN", "cannot finish")));
    ctx.tools().register(failing).expect("registered");
    after(&ctx, || PostDecision::Accept { content: Some(texts("from policy")), value: None, contexts: Vec::new() });
    let outcome = call(&ctx, "t");
    assert_eq!((shown(&outcome).as_str(), outcome.is_error), ("[from policy]", true));
    assert_eq!(code(&call(&ctx, "failing")), coded("Fin", "FIN"));
}

#[test]
fn exe_23_and_24_observers_of_a_result_cannot_change_it_and_only_a_success_concludes() {
    let ctx = Context::new();
    let concluding = |name: &str, fails: bool| {
        Tool::new(name, move |call| async move {
            call.conclude_turn();
            if fails { Err(Error::host("no")) } else { Ok(ToolOutput::value("ok")) }
        })
    };
    ctx.tools().register(concluding("good", false)).expect("registered");
    ctx.tools().register(concluding("bad", true)).expect("registered");
    let seen: Rc<RefCell<Vec<bool>>> = Rc::default();
    let heard = seen.clone();
    ctx.on(NoticeKind::ToolResult, move |notice| {
        if let Notice::ToolResult { result, .. } = notice {
            heard.borrow_mut().push(result.outcome.concludes_turn);
        }
        Err(Error::host("contained"))
    })
    .expect("registered");
    assert!(call(&ctx, "good").concludes_turn && !call(&ctx, "bad").concludes_turn);
    assert_eq!(*seen.borrow(), [true, false]);
}

#[test]
fn exe_25_a_deadline_replaces_whatever_comes_and_the_body_is_awaited() {
    let clock = ManualClock::default();
    let ports = Ports { clock: Rc::new(clock.clone()), ..Ports::default() };
    let ctx = Context::builder().ports(ports).build();
    let (gate, ended) = (Signal::new(), Rc::new(Cell::new(false)));
    let (opened, flag) = (gate.clone(), ended.clone());
    let tool = Tool::new("t", move |call| {
        let (opened, flag) = (opened.clone(), flag.clone());
        async move {
            call.signal().cancelled().await;
            opened.cancelled().await;
            flag.set(true);
            Ok(ToolOutput::value("just too late"))
        }
    });
    ctx.tools().register(tool.timeout(Duration::from_millis(50))).expect("registered");
    let answer: Rc<RefCell<Option<ToolOutcome>>> = Rc::default();
    let (done, running) = (answer.clone(), ctx.clone());
    let call = info("t", json!({}));
    ctx.runtime().spawn(async move { *done.borrow_mut() = running.tools().execute(call).await.ok() });
    settle(&ctx);
    clock.advance(Duration::from_millis(50));
    settle(&ctx);
    assert!(answer.borrow().is_none() && !ended.get(), "cooperative: the body is awaited (EXE-14)");
    agents::release(&gate);
    settle(&ctx);
    let outcome = answer.borrow().clone().expect("answered");
    assert_eq!(code(&outcome), coded("ToolTimeoutError", "TOOL_TIMEOUT"));
    assert_eq!(shown(&outcome), "Error: tool call timed out after 50ms");
}

#[test]
fn exe_27_a_nested_call_takes_the_whole_way_and_is_logged_as_a_code_dispatch_only() {
    let ctx = agents::context(Scripted::new().calls([("c1", "outer", "{}")]).text("done"));
    let inner = Tool::new("inner", |call| async move {
        call.defer_context(std::sync::Arc::new(Message::user_text("from-inner", "note")));
        Ok(ToolOutput::value("inner answer").with_meta(json!({"m": 1})))
    });
    ctx.tools().register(inner).expect("registered");
    let outer = Tool::new("outer", |call| async move {
        let answer = call.call("inner", json!({"n": 1})).await?;
        assert!(answer.meta.is_none() && answer.contexts.is_empty());
        let denied = call.call("forbidden", json!({})).await?;
        Ok(ToolOutput::value(format!("{} / {}", shown(&answer), shown(&denied))))
    });
    ctx.tools().register(outer).expect("registered");
    let seen = Log::default();
    let heard = seen.clone();
    ctx.tools()
        .guard(move |call| {
            let parent = call.parent.as_deref().unwrap_or("-");
            heard.borrow_mut().push(format!("{} {} {parent} {}", call.name, call.call_id, call.root_call_id));
            Ok((call.name == "forbidden").then(|| "guarded".to_owned()))
        })
        .expect("registered");
    let agent: Agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!(*seen.borrow(), ["outer c1 - c1", "inner c1:code:1 c1 c1", "forbidden c1:code:2 c1 c1"]);
    let of_tools: Vec<_> = kinds(&agent).into_iter().filter(|kind| kind.starts_with("tool/")).collect();
    let pair = ["tool/code-dispatch-start", "tool/code-dispatch"];
    assert_eq!(of_tools, ["tool/call", pair[0], pair[1], pair[0], pair[1], "tool/result"]);
    let all = events(&agent);
    let dispatch = all.iter().find(|event| event.kind() == "tool/code-dispatch").expect("logged").data_value();
    assert_eq!(
        dispatch,
        json!({
            "rootCallId": "c1", "parentCallId": "c1", "subCallId": "c1:code:1", "name": "inner", "arguments": {"n": 1},
            "isError": false, "content": [{"type": "text", "text": "inner answer"}]
        })
    );
    assert!(all.iter().any(|event| event.json().contains("inner answer / Error: guarded")));
    assert!(agents::user_messages(&agent).contains(&"from-inner".to_owned()), "its contexts are its parent's");
    assert_eq!(agents::ends(&agent), ["completed"]);
}

#[test]
fn exe_26_and_28_a_deferred_context_is_spliced_first_and_only_a_clear_yes_is_parallel() {
    let ctx = agents::context(Scripted::new().calls([("c1", "t", "{}")]).text("done"));
    let tool = Tool::new("t", |call| async move {
        call.defer_context(std::sync::Arc::new(Message::user_text("later", "note")));
        Ok(ToolOutput::value("ok"))
    });
    let asked: Rc<RefCell<Vec<Value>>> = Rc::default();
    let seen = asked.clone();
    let tool = tool.parallel_when(move |arguments| {
        seen.borrow_mut().push(arguments.clone());
        panic!("planned panic: a classifier that fails says no")
    });
    ctx.tools().register(tool).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!(*asked.borrow(), [json!({})]);
    let kinds = kinds(&agent);
    let result = kinds.iter().position(|kind| kind == "tool/result").expect("a result");
    assert_eq!(kinds[result + 1], "agent/inbox/spliced");
    assert_eq!(agents::ends(&agent), ["completed"]);
}
