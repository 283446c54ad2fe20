//! The vocabulary of dynamically typed hosts: whole programs in JSON, and what is refused.

use std::cell::RefCell;
use std::rc::Rc;
use turnwheel::error::Code;
use turnwheel::host::{
    self, HostAdapter, HostListener, HostNext, ListenOptions, Options, Setup, WaterfallEvent, error_value, notice_text,
    notice_value, run_value,
};
use turnwheel::json::{Value, parse};
use turnwheel::runtime::{LocalBoxFuture, PumpState};
use turnwheel::{Agent, Context, Error, Notice, Result, ToolOutput, json};

/// Decides with `answer`, after delegating with `edited` if that is given.
#[derive(Default)]
struct Recorder {
    heard: RefCell<Vec<Value>>,
    inner: RefCell<Vec<Value>>,
    delegate: bool,
    edited: Option<Value>,
    answer: Option<Value>,
}

struct Shared(Rc<Recorder>);

impl HostListener for Shared {
    fn notice(&self, notice: &Notice) -> Result<()> {
        assert_eq!(notice_text(notice), notice_value(notice).to_text(), "both forms are the same JSON");
        self.0.heard.borrow_mut().push(notice_value(notice));
        Ok(())
    }

    fn decide(&self, event: WaterfallEvent, next: Option<HostNext>) -> LocalBoxFuture<Result<Option<Value>>> {
        self.0.heard.borrow_mut().push(event.value());
        let recorder = self.0.clone();
        Box::pin(async move {
            if let Some(next) = next.filter(|_| recorder.delegate) {
                let decided = next.call(recorder.edited.as_ref()).await?;
                recorder.inner.borrow_mut().push(decided);
            }
            Ok(recorder.answer.clone())
        })
    }
}

fn listen(ctx: &Context, name: &str, recorder: Recorder) -> Rc<Recorder> {
    let recorder = Rc::new(recorder);
    host::listen(ctx, name, ListenOptions::default(), Rc::new(Shared(recorder.clone()))).expect("registered");
    recorder
}

fn delegating() -> Recorder {
    Recorder { delegate: true, ..Recorder::default() }
}

fn deciding(answer: Value) -> Recorder {
    Recorder { answer: Some(answer), ..Recorder::default() }
}

fn context(options: Value, replies: Value) -> Context {
    let ctx = host::context_builder(Options::new(&options, "a context").expect("an object")).expect("options").build();
    let script = json!({"kind": "scripted"});
    let mut script = script.as_object().cloned().expect("an object");
    script.insert("replies", replies);
    let script = Value::from(script);
    let adapter = host::adapter(Options::new(&script, "an adapter").expect("an object")).expect("an adapter");
    ctx.llm().register_shared(&["fake"], adapter).expect("a new route");
    ctx
}

fn open(ctx: &Context, id: &str, options: Value) -> Result<Agent> {
    let options = Options::new(&options, "an agent")?;
    ctx.runtime().block_on(host::open_agent(ctx, id, options, Setup::default())?)
}

fn agent(ctx: &Context) -> Agent {
    open(ctx, "a", json!({"provider": "fake", "model": "m"})).expect("the agent opens")
}

fn run(ctx: &Context, agent: &Agent, text: &str) -> Value {
    let message = host::message(&text.into(), || ctx.runtime().next_id()).expect("a message");
    let result = ctx.runtime().block_on(agent.run(message).expect("accepted"));
    run_value(&result.expect("the turn ends"))
}

fn kind(result: &Value) -> String {
    result.get("reason").and_then(|reason| reason.get("kind")).and_then(Value::as_str).unwrap_or("?").to_owned()
}

fn member<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(value, |value, key| value.get(key).unwrap_or_else(|| panic!("no {key} in {value}")))
}

#[test]
fn a_program_in_json_runs_a_tool_turn_and_hears_every_event() {
    let call = json!([{"calls": [{"id": "c1", "name": "add", "arguments": {"a": 2, "b": 3}}]}, {"text": "It is 5."}]);
    let ctx = context(json!({"maxParallelToolCalls": 2, "turnBudget": {"toolCalls": 5}}), call);
    let schema = json!({"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}});
    let mut definition =
        json!({"name": "add", "parallel": true, "timeoutMs": 60000}).as_object().cloned().expect("one");
    definition.insert("parameters", schema);
    let definition = Value::from(definition);
    let tool = host::tool(Options::new(&definition, "a tool").expect("an object"), |call| async move {
        let value = host::tool_call_value(&call);
        assert_eq!(member(&value, &["callId"]), &Value::from("c1"));
        assert_eq!(member(&value, &["agentId"]), &Value::from("a"));
        host::tool_output(&json!({"value": call.number("a")? + call.number("b")?, "meta": {"unit": "apples"}}))
    });
    ctx.tools().register(tool.expect("a tool")).expect("registered");
    let prompt = json!({"kind": "section", "name": "tone", "order": 1, "text": "Be brief."});
    host::prompt_input(&ctx, Options::new(&prompt, "a prompt input").expect("an object"), None).expect("registered");

    let names = [
        "agent/created",
        "session/event",
        "agent/status",
        "agent/inbox/inserted",
        "agent/inbox/claimed",
        "agent/session-start",
        "tools/result",
        "session/created",
    ];
    let notices: Vec<_> = names.iter().map(|name| (name, listen(&ctx, name, Recorder::default()))).collect();
    let waterfalls = [
        "agent/pre-step",
        "agent/request",
        "system-prompt/assemble",
        "tools/pre-execute",
        "tools/execute",
        "tools/post-execute",
    ];
    let waterfalls: Vec<_> = waterfalls.iter().map(|name| (name, listen(&ctx, name, delegating()))).collect();
    let stopping = listen(&ctx, "agent/turn-stopping", Recorder::default());

    let agent = agent(&ctx);
    let result = run(&ctx, &agent, "Add 2 and 3.");
    assert_eq!((kind(&result).as_str(), member(&result, &["text"])), ("completed", &Value::from("It is 5.")));
    for (name, recorder) in &notices {
        let heard = recorder.heard.borrow();
        let first = heard.first().unwrap_or_else(|| panic!("{name} was not heard"));
        assert_eq!(member(first, &["event"]), &Value::from(**name));
        assert_eq!(member(first, &["sessionId"]), &Value::from("a"));
    }
    for (name, recorder) in &waterfalls {
        let heard = recorder.heard.borrow();
        assert_eq!(member(heard.first().expect("heard"), &["agentId"]), &Value::from("a"), "{name}");
        assert_eq!(heard.len(), recorder.inner.borrow().len(), "{name}: every continuation gave a decision");
    }
    let decided = |name: &str| {
        let found = waterfalls.iter().find(|(known, _)| **known == name).expect("listened");
        found.1.inner.borrow()[0].clone()
    };
    assert_eq!(decided("tools/pre-execute"), json!({"kind": "allow"}));
    assert_eq!(decided("tools/post-execute"), json!({"kind": "accept"}));
    assert_eq!(member(&decided("agent/request"), &["model"]), &Value::from("m"));
    assert_eq!(member(&decided("tools/execute"), &["content"]), &json!([{"type": "text", "text": "5"}]));
    assert_eq!(member(&decided("tools/execute"), &["meta"]), &json!({"unit": "apples"}));
    assert_eq!(member(&decided("agent/pre-step"), &["kind"]), &Value::from("enter"));
    let assembly = decided("system-prompt/assemble");
    assert_eq!(member(&assembly, &["sections"]), &json!([{"name": "tone", "order": 1, "text": "Be brief."}]));
    assert_eq!(*stopping.heard.borrow(), [json!({"event": "agent/turn-stopping", "agentId": "a", "turn": 1})]);
}

#[test]
fn a_pre_step_listener_edits_the_batch_before_it_delegates() {
    let ctx = context(Value::Null, json!([{"text": "ok"}]));
    let edited = json!({"messages": [{
        "id": "mine", "role": "user", "content": [{"type": "text", "text": "changed"}], "source": {"kind": "user"}
    }]});
    let recorder = listen(&ctx, "agent/pre-step", Recorder { edited: Some(edited.clone()), ..delegating() });
    let agent = agent(&ctx);
    run(&ctx, &agent, "original");
    let entered = member(&recorder.inner.borrow()[0], &["messages"]).clone();
    assert_eq!(Some(&entered), edited.get("messages"));
    assert_eq!(agent.session().history().iter().next().map(|message| message.text()).as_deref(), Some("changed"));
}

#[test]
fn decisions_rule_the_turn() {
    let cases = [
        ("agent/pre-step", json!({"kind": "reject"}), "blocked"),
        ("agent/pre-step", json!("reject"), "blocked"),
        ("agent/request", json!({"provider": "fake", "model": "other", "maxTokens": null}), "completed"),
        ("tools/pre-execute", json!({"kind": "deny", "reason": "no"}), "completed"),
        ("tools/post-execute", json!({"kind": "block", "feedback": "no"}), "completed"),
        ("tools/execute", json!({"content": "replaced", "isError": true}), "completed"),
    ];
    for (name, answer, ends) in cases {
        let ctx = context(Value::Null, json!([{"calls": [{"id": "c1", "name": "say"}]}, {"text": "ok"}]));
        let said = turnwheel::Tool::new("say", |_| async { Ok(ToolOutput::value("said")) });
        ctx.tools().register(said).expect("registered");
        listen(&ctx, name, deciding(answer));
        let agent = agent(&ctx);
        let result = run(&ctx, &agent, "go");
        assert_eq!(kind(&result), ends, "{name}");
        let is_denied =
            agent.session().history().iter().any(|message| message.to_value().to_text().contains("\"isError\":true"));
        assert_eq!(is_denied, name.starts_with("tools/"), "{name}");
    }
}

#[test]
fn a_decision_that_is_none_fails_the_turn_and_says_what_one_is() {
    let cases = [
        (
            "agent/pre-step",
            json!({"kind": "enter"}),
            "a decision of agent/pre-step is {\"kind\": \"enter\", \"messages\": [...]}",
        ),
        ("agent/pre-step", json!({"kind": "reject", "why": 1}), "a decision of agent/pre-step has no option `why`"),
        ("agent/request", json!({"modle": "m"}), "no call option `modle`"),
        (
            "system-prompt/assemble",
            json!({"sections": [{"name": "x"}]}),
            "a decision of system-prompt/assemble is an object",
        ),
    ];
    for (name, answer, expected) in cases {
        let ctx = context(Value::Null, json!([{"text": "ok"}]));
        listen(&ctx, name, deciding(answer));
        let agent = agent(&ctx);
        let result = run(&ctx, &agent, "go");
        assert_eq!(kind(&result), "error", "{name}");
        let message = member(&result, &["reason", "error", "message"]).as_str().expect("a text");
        assert!(message.contains(expected), "{name}: {message}");
    }
}

#[test]
fn only_pre_step_can_be_edited_and_a_silent_listener_is_an_error() {
    let ctx = context(Value::Null, json!([{"text": "ok"}]));
    listen(&ctx, "agent/request", Recorder { edited: Some(json!({"turn": 7})), ..delegating() });
    let result = run(&ctx, &agent(&ctx), "go");
    let message = member(&result, &["reason", "error", "message"]).as_str().expect("a text");
    assert!(message.contains("the payload of agent/request cannot be edited"), "{message}");

    let ctx = context(Value::Null, json!([{"text": "ok"}]));
    listen(&ctx, "agent/request", Recorder::default());
    let result = run(&ctx, &agent(&ctx), "go");
    let message = member(&result, &["reason", "error", "message"]).as_str().expect("a text");
    assert!(message.contains("must decide or call its continuation"), "{message}");
}

#[test]
fn a_host_adapter_pushes_chunks_now_and_later() {
    let ctx = Context::new();
    let (sender, sinks) = std::sync::mpsc::channel();
    let adapter = HostAdapter::new(move |request, sink| {
        let asked = host::request_value(&request);
        assert_eq!(member(&asked, &["config", "model"]), &Value::from("m"));
        assert_eq!(member(&asked, &["sessionId"]), &Value::from("a"));
        sink.push(&json!({"type": "block-start", "index": 0, "blockType": "text"})).expect("read");
        let refused = sink.push(&json!({"type": "noise"})).expect_err("no chunk");
        assert_eq!(*refused.code(), Code::MalformedChunk);
        sender.send(sink).expect("waited for");
        None
    });
    ctx.llm().register("fake", adapter).expect("a new route");
    let agent = agent(&ctx);
    let running = agent.run("hi").expect("accepted");
    while ctx.runtime().pump() != PumpState::Idle {}
    let sink = sinks.try_recv().expect("the adapter was asked");
    let pushing = std::thread::spawn(move || {
        sink.push(&json!({"type": "text-delta", "index": 0, "text": "later"})).expect("read");
        sink.push(&json!({"type": "finish", "reason": {"kind": "stop"}})).expect("read");
        sink.finish(Ok(()));
        assert_eq!(
            sink.push(&json!({"type": "text-delta", "index": 0, "text": "x"})).expect_err("over").code(),
            &Code::Aborted
        );
    });
    let result = ctx.runtime().block_on(running).expect("the turn ends");
    pushing.join().expect("the thread ends");
    assert_eq!(result.text, "later");

    let running = agent.run("again").expect("accepted");
    while ctx.runtime().pump() != PumpState::Idle {}
    let sink = sinks.try_recv().expect("the adapter was asked");
    drop(sink);
    let result = ctx.runtime().block_on(running).expect("the turn ends");
    let failed = result.reason.to_value();
    let message = member(&failed, &["error", "message"]).as_str().expect("a text");
    assert!(message.contains("the adapter went away"), "{message}");

    agent.followup("cancelled").expect("accepted");
    while ctx.runtime().pump() != PumpState::Idle {}
    let sink = sinks.try_recv().expect("the adapter was asked");
    agent.cancel(host::cancel_cause(&"user".into()).expect("a cause"));
    assert!(!sink.is_closed(), "the loop waits for the adapter to react to its signal");
    sink.finish(Err(host::error_from_value(&"stopped".into())));
    while ctx.runtime().pump() != PumpState::Idle {}
    assert!(sink.is_closed(), "an answer that is over has no reader");
    assert_eq!(agent.session().turn_end(3).map(|reason| reason.kind().to_owned()).as_deref(), Some("aborted"));
}

#[test]
fn forks_logs_and_seeds_open_agents() {
    let ctx = context(Value::Null, json!([{"text": "one"}, {"text": "two"}]));
    let first = agent(&ctx);
    run(&ctx, &first, "q1");
    let fork = json!({"provider": "fake", "model": "m", "fork": {"from": "a"}});
    let forked = open(&ctx, "b", fork).expect("forked");
    assert_eq!(forked.session().header().parent_session.as_deref(), Some("a"));
    assert_eq!(forked.session().history().iter().count(), 2);
    let whole = host::session_value(first.session());
    ctx.runtime().block_on(first.dispose());
    let mut options = json!({"provider": "fake", "model": "m"}).as_object().cloned().expect("an object");
    options.insert("log", parse(&whole.to_text()).expect("JSON"));
    let resumed = open(&ctx, "a", options.into()).expect("resumed");
    assert_eq!(
        resumed.session().first_live_seq(),
        whole.get("events").and_then(Value::as_array).expect("events").len() as u64
    );
    assert_eq!(member(&run(&ctx, &resumed, "q2"), &["text"]), &Value::from("two"));
    let receipt = resumed.session().history().iter().next().map(|message| message.id().clone()).expect("a message");
    let state = resumed.receipt(receipt).state().expect("known");
    assert_eq!(host::receipt_value(&state), json!({"kind": "ended", "turn": 1, "reason": {"kind": "completed"}}));
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let unknown = |value: Value| -> Error {
        let options = Options::new(&value, "a context").expect("an object");
        host::context_builder(options).map(|_| ()).expect_err("refused")
    };
    let error = unknown(json!({"stroe": {}}));
    assert_eq!(*error.code(), Code::UnknownOption);
    assert!(error.message().starts_with("a context has no option `stroe`; there are: "), "{}", error.message());
    assert_eq!(*unknown(json!({"turnBudget": {"stpes": 1}})).code(), Code::UnknownOption);
    assert_eq!(*unknown(json!({"maxParallelToolCalls": 0})).code(), Code::InvalidArgument);
    assert_eq!(*unknown(json!({"store": {"kind": "tape"}})).code(), Code::InvalidArgument);
    assert_eq!(*unknown(json!({"durability": "never"})).code(), Code::InvalidArgument);

    let ctx = context(Value::Null, json!([]));
    let refused = |options: Value| open(&ctx, "x", options).expect_err("refused").code().clone();
    assert_eq!(refused(json!({"modle": "m"})), Code::UnknownOption);
    assert_eq!(refused(json!({"mode": "invent"})), Code::InvalidArgument);
    assert_eq!(refused(json!({"cwd": "relative"})), Code::InvalidHeader);
    assert_eq!(refused(json!({"seed": [], "fork": {"from": "x"}})), Code::SessionNotFound);
    assert_eq!(refused(json!({"maxTokens": 0})), Code::InvalidArgument);
    let error = host::listen(&ctx, "agent/typo", ListenOptions::default(), Rc::new(Shared(Rc::default())));
    assert_eq!(error_value(&error.map(|_| ()).expect_err("refused")).get("code"), Some(&Value::from("UNKNOWN_OPTION")));
    assert_eq!(*ListenOptions::from_value(&json!({"onec": true})).expect_err("refused").code(), Code::UnknownOption);
    assert_eq!(*host::tool_output(&json!({})).expect_err("refused").code(), Code::InvalidToolOutput);
    assert_eq!(*host::message(&json!(3), String::new).expect_err("refused").code(), Code::InvalidMessage);
    assert_eq!(*host::cancel_cause(&json!({})).expect_err("refused").code(), Code::InvalidArgument);
}

#[test]
fn a_listener_of_log_events_names_the_types_it_hears() {
    let ctx = context(Value::Null, json!([{"text": "ok"}]));
    let recorder = Rc::new(Recorder::default());
    let options = ListenOptions::from_value(&json!({"types": ["turn/end"]})).expect("options");
    host::listen(&ctx, "session/event", options.clone(), Rc::new(Shared(recorder.clone()))).expect("registered");
    run(&ctx, &agent(&ctx), "go");
    let heard: Vec<_> = recorder.heard.borrow().iter().map(|event| member(event, &["data", "type"]).clone()).collect();
    assert_eq!(heard, ["turn/end".into()]);
    let refused = host::listen(&ctx, "agent/status", options, Rc::new(Shared(recorder)));
    assert_eq!(*refused.map(|_| ()).expect_err("refused").code(), Code::InvalidArgument);
}
