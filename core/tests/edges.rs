//! Refusals that protect from waiting for ever, from using what is spent, and from confusing two sessions; and advice on
//! what may be tried again.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{hello, open, settle};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use turnwheel::json::{Object, Value};
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::llm::{AdapterDefaults, CallConfig, Failure, ModelRequest, RequestHeader};
use turnwheel::runtime::Signal;
use turnwheel::session::SessionHeader;
use turnwheel::tools::{ApprovalOutcome, violations};
use turnwheel::{Agent, Code, Context, Error, Tool, ToolOutput, json};

/// A tool that runs a prompt on the agent of a name and answers with what came of it.
fn asking(ctx: &Context, name: &str, whom: &'static str) {
    let root = ctx.clone();
    let tool = Tool::new(name, move |_| {
        let ctx = root.clone();
        async move {
            let other: Agent = ctx.find_agent(whom).ok_or_else(|| Error::host("nobody there"))?;
            match other.run("please")?.await {
                Ok(result) => Ok(ToolOutput::value(result.text)),
                Err(error) => Err(error),
            }
        }
    });
    ctx.tools().register(tool).expect("registered");
}

#[test]
fn d_18_two_agents_that_run_each_other_are_told_instead_of_waiting_for_ever() {
    let model = Scripted::new().respond(|request| {
        let last = request.messages.iter().last().expect("a prompt");
        let session = request.session_id.clone().expect("the loop names it");
        // The first request of each agent asks the next one in the ring; what comes back is repeated.
        let asked = last.json().contains("tool-result");
        if asked {
            return ScriptedReply::text(last.json());
        }
        ScriptedReply::calls([(format!("k-{session}").as_str(), format!("ask-{session}").as_str(), "{}")])
    });
    let ctx = agents::context(model);
    for (name, whom) in [("ask-a", "b"), ("ask-b", "c"), ("ask-c", "a")] {
        asking(&ctx, name, whom);
    }
    let [a, b, c] = ["a", "b", "c"].map(|id| open(&ctx, id));
    let found = Rc::new(RefCell::new(None));
    let (run, slot) = (a.run("begin").expect("accepted"), found.clone());
    ctx.runtime().spawn(async move { *slot.borrow_mut() = Some(run.await) });
    settle(&ctx);
    let result = found.borrow_mut().take().expect("nobody waits for ever").expect("the turn ended");
    assert!(result.text.contains("tool-result"));
    for agent in [&a, &b, &c] {
        assert_eq!(agents::ends(agent), ["completed"]);
    }
    let refused = agents::events(&c).iter().any(|event| event.json().contains("\"code\":\"SELF_WAIT\""));
    assert!(refused, "the one that closes the ring is told, with a code");
    assert_eq!(agents::count(&a, "turn/start"), 1, "and nothing was delivered by the refused run");
    // Once the runs are over nobody waits for anybody.
    assert!(ctx.runtime().block_on(b.when_idle()).is_ok());
}

#[test]
fn d_18_a_run_that_a_turn_starts_and_does_not_wait_for_is_no_reason_to_refuse_one_back() {
    let model = Scripted::new().calls([("k1", "begin", "{}")]).respond(|request| {
        let tool = format!("answer-{}", request.session_id.as_deref().unwrap_or_default());
        match request.session_id.as_deref() == Some("b") && !request.messages.iter().any(|m| m.json().contains("k2")) {
            true => ScriptedReply::calls([("k2", tool.as_str(), "{}")]),
            false => ScriptedReply::text("ok"),
        }
    });
    let ctx = agents::context(model);
    let root = ctx.clone();
    let begin = Tool::new("begin", move |_| {
        let ctx = root.clone();
        async move {
            let other = ctx.find_agent("b").ok_or_else(|| Error::host("nobody there"))?;
            let run = other.run("go on by yourself")?;
            ctx.runtime().spawn(async move { drop(run.await) });
            Ok(ToolOutput::value("started"))
        }
    });
    ctx.tools().register(begin).expect("registered");
    asking(&ctx, "answer-b", "a");
    let (a, b) = (open(&ctx, "a"), open(&ctx, "b"));
    a.followup("begin").expect("accepted");
    settle(&ctx);
    assert_eq!((agents::ends(&a), agents::ends(&b)), (vec!["completed".into(); 2], vec!["completed".to_owned()]));
    assert!(!agents::events(&b).iter().any(|event| event.json().contains("SELF_WAIT")));
}

#[test]
fn adp_7_and_req_8_a_prepared_call_is_streamed_once_and_with_its_own_config() {
    let ctx = agents::context(hello());
    let signal = Signal::new();
    let request = |config: CallConfig| {
        let header =
            RequestHeader { config, adapter_defaults: AdapterDefaults::default(), system: None, tools: vec![] };
        let messages = turnwheel::session::History::default();
        ModelRequest { header: header.into(), messages, session_id: None, signal: Signal::new() }
    };
    let config = CallConfig::new("fake", "m");
    let prepare = || ctx.runtime().block_on(ctx.llm().prepare(config.clone(), &signal)).expect("prepared");
    let call = prepare();
    assert!(call.stream(request(call.config.clone())).is_ok());
    let again = call.stream(request(call.config.clone())).map(drop).expect_err("spent");
    assert_eq!(again.code(), &Code::InvalidPreparedCall);
    let other = prepare();
    let changed = CallConfig { temperature: Some(0.5), ..other.config.clone() };
    let error = other.stream(request(changed)).map(drop).expect_err("another config");
    assert_eq!(error.code(), &Code::InvalidPreparedCall);
    assert!(error.message().contains("prepare the call again"));
}

#[test]
fn fork_8_a_session_of_an_earlier_life_is_not_the_live_one() {
    let ctx = agents::context(hello());
    let first = open(&ctx, "a");
    first.followup("q").expect("accepted");
    settle(&ctx);
    let old = first.session().clone();
    ctx.runtime().block_on(first.dispose());
    assert_eq!(ctx.fork_seed(&old, None).expect_err("gone").code(), &Code::SessionNotFound);
    let second = open(&ctx, "a");
    assert_eq!(ctx.fork_seed(&old, None).expect_err("another life").code(), &Code::SessionNotLive);
    assert!(ctx.fork_seed(second.session(), None).is_ok());
}

#[test]
fn id_1_a_log_is_resumed_under_its_own_id_only() {
    let ctx = agents::context(hello());
    let builder = ctx.agent("b").provider("fake").model("m");
    let resumed = builder.resume_from(SessionHeader::new("a", 1), Vec::new());
    let error = ctx.runtime().block_on(resumed).map(drop).expect_err("refused");
    assert_eq!(error.code(), &Code::IdentityMismatch);
    assert!(ctx.agents().is_empty() && ctx.root().session("a").is_none() && ctx.root().session("b").is_none());
    let own = ctx.agent("a").resume_from(SessionHeader::new("a", 1), Vec::new());
    assert!(ctx.runtime().block_on(own).is_ok());
}

#[test]
fn case_115_a_fork_whose_answer_was_lost_can_be_asked_for_again() {
    let ctx = agents::context(hello());
    let agent = open(&ctx, "a");
    agent.followup("q").expect("accepted");
    settle(&ctx);
    let end = agent.session().len() - 1;
    let fork = |at, id: &str| ctx.fork_session("a", at, Some(id.into()));
    let child = fork(Some(end), "child").expect("forked");
    agent.followup("more").expect("accepted");
    settle(&ctx);
    let again = fork(Some(end), "child").expect("the same fork");
    assert!(again.is_same(&child), "and no second child");
    let error = |result: turnwheel::Result<turnwheel::Session>| result.expect_err("refused").code().clone();
    let later = agent.session().len() - 1;
    assert_eq!(error(fork(Some(later), "child")), Code::SessionAlreadyExists, "another boundary is another fork");
    assert_eq!(error(fork(None, "child")), Code::SessionAlreadyExists, "so is wherever the log ends now");
    open(&ctx, "b");
    assert_eq!(error(ctx.fork_session("b", None, Some("child".into()))), Code::SessionAlreadyExists);
    assert_eq!(error(fork(Some(end), "b")), Code::SessionAlreadyExists, "what is no fork of it stays what it is");
}

/// `depth` arrays inside each other, and the schema of such a value.
fn nested(depth: usize) -> (Value, Value) {
    let (mut value, mut schema) = (Value::from(1), json!({"type": "integer"}));
    for _ in 0..depth {
        let mut outer = Object::new();
        outer.insert("type", "array");
        outer.insert("items", schema);
        (value, schema) = (Value::from(vec![value]), outer.into());
    }
    (value, schema)
}

#[test]
fn checking_deep_arguments_costs_no_more_than_their_size_and_names_the_place_all_the_same() {
    // With a path written out at every level this needs 20 GB of copying.
    let (value, schema) = nested(100_000);
    assert!(violations(&schema, &value, "").is_empty());
    let (value, mut schema) = nested(3);
    for name in ["b", "a"] {
        let mut properties = Object::new();
        properties.insert(name, schema);
        schema = json!({"type": "object"});
        if let Value::Object(members) = &mut schema {
            members.insert("properties", properties);
        }
    }
    let mut wrong = json!({"a": {}});
    if let Value::Object(members) = &mut wrong {
        members.insert("a", json!({"b": [[["x"]]]}));
    }
    drop(value);
    assert_eq!(violations(&schema, &wrong, ""), ["\"a.b[0][0][0]\" must be an integer"]);
    assert_eq!(violations(&schema, &wrong, "value"), ["\"value.a.b[0][0][0]\" must be an integer"]);
}

#[test]
fn what_a_refused_registration_owned_may_register_when_it_is_dropped() {
    struct Ends(Context, Rc<RefCell<Vec<Code>>>);
    impl Drop for Ends {
        fn drop(&mut self) {
            let again = self.0.tools().approve_with(|_| async { Ok(ApprovalOutcome::Rejected) });
            self.1.borrow_mut().push(again.expect_err("one is registered").code().clone());
        }
    }
    let ctx = agents::context(hello());
    let heard = Rc::new(RefCell::new(Vec::new()));
    ctx.tools().approve_with(|_| async { Ok(ApprovalOutcome::AllowedOnce) }).expect("registered");
    let owned = Ends(ctx.clone(), heard.clone());
    let refused = ctx.tools().approve_with(move |_| {
        let _kept = &owned;
        async { Ok(ApprovalOutcome::AllowedOnce) }
    });
    assert_eq!(refused.expect_err("the second one").code(), &Code::DuplicateName);
    assert_eq!(*heard.borrow(), [Code::DuplicateName]);
}

#[test]
fn retry_advice_is_data_on_every_error() {
    let of = |code: Code| Error::new(code, "x").retry();
    for code in [Code::Busy, Code::NotPublished, Code::Reentrant, Code::StoreFailed, Code::SessionLocked] {
        assert_eq!(of(code), Some(Duration::ZERO));
    }
    for code in
        [Code::InvalidArgument, Code::Disposed, Code::DuplicateMessage, Code::ToolOutcomeUnknown, Code::StoreConflict]
    {
        assert_eq!(of(code), None);
    }
    let model = |code: &str, status: Option<u16>, after: Option<f64>| {
        Error::model(Failure { status, provider_retry_after_ms: after, ..Failure::new(code, "x") }).retry()
    };
    assert_eq!(model("RATE_LIMIT", Some(429), Some(1_500.0)), Some(Duration::from_millis(1_500)));
    assert_eq!(model("RATE_LIMIT", Some(429), None), Some(Duration::ZERO));
    assert_eq!(model("HTTP_503", Some(503), None), Some(Duration::ZERO));
    assert_eq!(model("TRANSPORT", None, None), Some(Duration::ZERO));
    assert_eq!(model("AUTH", Some(401), None), None);
    assert_eq!(model("QUOTA", Some(429), Some(1_000.0)), None);
    assert_eq!(model("CONTEXT_WINDOW_EXCEEDED", Some(400), None), None);
}
