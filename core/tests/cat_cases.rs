//! Reported bugs of other systems in the areas tools and resume, a test a row of cases/bug-reports.md.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;
#[path = "support/memory_store.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod memory_store;

use agents::{count, ends, events, gated, hello, open, prompt, settle, user_messages};
use memory_store::MemoryStore;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::context::LoopOptions;
use turnwheel::json::Value;
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::message::Block;
use turnwheel::runtime::Signal;
use turnwheel::session::Event;
use turnwheel::tools::{ApprovalOutcome, PreDecision, PreExecute};
use turnwheel::{Agent, AgentStatus, Context, Message, Tool, ToolOutput, json};

fn on_store(store: &MemoryStore, model: Scripted) -> Context {
    let ctx = Context::builder().store(store.clone()).build();
    ctx.llm().register("fake", model).expect("a new route");
    ctx
}

/// A tool that counts its runs.
fn counting(name: &str) -> (Tool, Rc<Cell<u32>>) {
    let runs = Rc::new(Cell::new(0));
    let counted = runs.clone();
    let tool = Tool::new(name, move |_| {
        counted.set(counted.get() + 1);
        async { Ok(ToolOutput::value("ok")) }
    });
    (tool, runs)
}

/// Lets a program die while the tool `pay` runs, its call logged.
fn killed_in_a_tool(store: &MemoryStore, calls: &[(&str, &str, &str)]) {
    let ctx = on_store(store, Scripted::new().calls(calls.to_vec()));
    let (tool, _, _gate) = gated("pay");
    ctx.tools().register(tool.parallel()).expect("registered");
    ctx.tools().register(agents::noop("fast").parallel()).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    ctx.runtime().block_on(agent.flush()).expect("stored");
    ctx.runtime().close();
}

/// Every tool call of the history has exactly one result, right behind its message.
fn is_sendable(agent: &Agent) -> bool {
    let mut owed: Vec<String> = Vec::new();
    for message in agent.session().history().iter() {
        for block in message.content() {
            match block {
                Block::ToolCall { id, .. } => owed.push(id.to_string()),
                Block::ToolResult { .. } => {
                    let value = block.to_value();
                    let id = value.get("toolCallId").and_then(Value::as_str).unwrap_or_default().to_owned();
                    match owed.iter().position(|call| *call == id) {
                        Some(at) => drop(owed.remove(at)),
                        None => return false,
                    }
                }
                Block::Text(_) if !owed.is_empty() => return false,
                _ => {}
            }
        }
    }
    owed.is_empty()
}

#[test]
fn case_038_no_arguments_in_any_spelling_are_an_empty_object() {
    let ctx =
        agents::context(Scripted::new().calls([("c1", "t", ""), ("c2", "t", " "), ("c3", "t", "null")]).text("done"));
    let seen: Rc<RefCell<Vec<Value>>> = Rc::default();
    let log = seen.clone();
    let tool = Tool::new("t", move |call| {
        log.borrow_mut().push(call.arguments().clone());
        async { Ok(ToolOutput::value("ok")) }
    });
    ctx.tools().register(tool).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!(*seen.borrow(), [json!({}), json!({}), json!({})]);
}

#[test]
fn case_080_every_accepted_id_is_in_one_state_after_a_crash() {
    let store = MemoryStore::default();
    let ctx = on_store(&store, Scripted::new().calls([("c1", "wait", "{}")]));
    let (tool, _, _gate) = gated("wait");
    ctx.tools().register(tool).expect("registered");
    let agent = open(&ctx, "a");
    let ids = ["q1", "q2", "q3", "q4"];
    for id in ids {
        agent.followup(prompt(id)).expect("accepted");
        settle(&ctx);
    }
    agent.inbox().remove("q4").expect("removable");
    ctx.runtime().block_on(agent.flush()).expect("stored");
    ctx.runtime().close();
    let ctx = on_store(&store, hello());
    let agent = open(&ctx, "a");
    let states: Vec<_> = ids.iter().map(|id| format!("{:?}", agent.receipt(*id).state().expect("known"))).collect();
    assert!(states[0].starts_with("Ended") && states[3].starts_with("Discarded"), "{states:?}");
    assert!(states[1].starts_with("Pending") && states[2].starts_with("Pending"), "{states:?}");
    agent.wake().expect("live");
    settle(&ctx);
    assert_eq!(user_messages(&agent), ["q1", "q2", "q3"]);
}

#[test]
fn case_091_parallel_results_are_each_their_own_however_the_bodies_interleave() {
    for round in 0..100_u64 {
        let calls: Vec<_> = (0..8).map(|i| (format!("c{i}"), "t".to_owned(), format!("{{\"n\":{i}}}"))).collect();
        let ctx = agents::context(Scripted::new().reply(ScriptedReply::calls(calls)).text("done"));
        let tool = Tool::new("t", move |call| async move {
            let n = call.integer("n")?;
            for _ in 0..(n as u64 * 7 + round * 13) % 11 {
                turnwheel::runtime::yield_now().await;
            }
            Ok(ToolOutput::value(format!("answer {n}")))
        });
        ctx.tools().register(tool.parallel()).expect("registered");
        let agent = open(&ctx, "a");
        agent.followup("go").expect("accepted");
        settle(&ctx);
        let results: Vec<_> = events(&agent).into_iter().filter(|event| event.kind() == "tool/result").collect();
        for (i, result) in results.iter().enumerate() {
            let text = result.json();
            assert!(text.contains(&format!("\"c{i}\"")) && text.contains(&format!("answer {i}\"")), "{text}");
        }
        assert_eq!((results.len(), ends(&agent)), (8, vec!["completed".to_owned()]));
    }
}

#[test]
fn case_094_a_tool_that_ran_when_the_process_died_is_unknown_and_not_run_again() {
    let store = MemoryStore::default();
    killed_in_a_tool(&store, &[("c1", "pay", "{}")]);
    let ctx = on_store(&store, hello());
    let (tool, runs) = counting("pay");
    ctx.tools().register(tool).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert_eq!(runs.get(), 0);
    assert_eq!(agents::results(&agent), [("c1".to_owned(), "TOOL_OUTCOME_UNKNOWN".to_owned())]);
    assert!(is_sendable(&agent));
}

#[test]
fn case_097_of_parallel_calls_cut_by_a_crash_each_is_closed_by_its_own_id() {
    let store = MemoryStore::default();
    killed_in_a_tool(&store, &[("c1", "fast", "{}"), ("c2", "pay", "{}"), ("c3", "pay", "{}")]);
    let ctx = on_store(&store, hello());
    let agent = open(&ctx, "a");
    let unknown = |id: &str| (id.to_owned(), "TOOL_OUTCOME_UNKNOWN".to_owned());
    assert_eq!(agents::results(&agent), [("c1".to_owned(), "-".to_owned()), unknown("c2"), unknown("c3")]);
    assert_eq!((ends(&agent), is_sendable(&agent)), (vec!["interrupted".to_owned()], true));
}

#[test]
fn case_101_and_104_parallel_approvals_have_ids_of_their_own_and_each_answer_reaches_its_call() {
    let calls = [("c1", "t", "{}"), ("c2", "t", "{}"), ("c3", "t", "{}")];
    let ctx = agents::context(Scripted::new().calls(calls).text("done"));
    let (tool, runs) = counting("t");
    ctx.tools().register(tool.parallel()).expect("registered");
    ctx.waterfall::<PreExecute, _>(|_, _| async { Ok(PreDecision::Ask(None)) }).expect("registered");
    let asked: Rc<RefCell<Vec<String>>> = Rc::default();
    let log = asked.clone();
    ctx.tools()
        .approve_with(move |request| {
            log.borrow_mut().push(request.id.clone());
            let refused = request.call.call_id.as_str() == "c2";
            async move { Ok(if refused { ApprovalOutcome::Rejected } else { ApprovalOutcome::AllowedOnce }) }
        })
        .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    let ids: std::collections::HashSet<_> = asked.borrow().iter().cloned().collect();
    assert_eq!((ids.len(), runs.get()), (3, 2));
    let failed: Vec<_> = agents::results(&agent).into_iter().map(|(id, code)| (id, code == "-")).collect();
    assert_eq!(failed, [("c1".to_owned(), true), ("c2".to_owned(), false), ("c3".to_owned(), true)]);
    let outcomes: HashMap<_, _> = events(&agent)
        .iter()
        .filter(|event| event.kind() == "approval/decided")
        .map(|event| (event.data_value().get("id").map(Value::to_text), event.data_value().get("outcome").cloned()))
        .collect();
    assert_eq!(outcomes.len(), 3, "every question has its own answer in the log");
}

#[test]
fn case_107_outputs_of_approved_calls_are_sent_once_each() {
    let script = Scripted::new().calls([("c1", "t", "{}")]).calls([("c2", "t", "{}")]).text("done");
    let ctx = agents::context(script.clone());
    let (tool, runs) = counting("t");
    ctx.tools().register(tool).expect("registered");
    ctx.waterfall::<PreExecute, _>(|_, _| async { Ok(PreDecision::Ask(None)) }).expect("registered");
    ctx.tools().approve_with(|_| async { Ok(ApprovalOutcome::AllowedOnce) }).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    let sent = script.last_request().expect("asked").messages;
    let results = sent.iter().filter(|message| message.content().iter().any(|b| matches!(b, Block::ToolResult { .. })));
    assert_eq!((results.count(), runs.get(), is_sendable(&agent)), (2, 2, true));
}

#[test]
fn case_109_110_and_113_recovery_is_idempotent_sendable_and_ends_idle() {
    let store = MemoryStore::default();
    killed_in_a_tool(&store, &[("c1", "pay", "{}"), ("c2", "pay", "{}")]);
    let stored = store.events("a").len();
    let mut lengths = Vec::new();
    for _ in 0..3 {
        let ctx = on_store(&store, hello());
        let agent = open(&ctx, "a");
        assert_eq!(agent.status(), AgentStatus::Idle);
        ctx.runtime().block_on(agent.when_idle()).expect("nothing is under way");
        assert_eq!((count(&agent, "tool/result"), is_sendable(&agent)), (2, true));
        assert_eq!(ends(&agent), ["interrupted"]);
        ctx.runtime().block_on(ctx.close()).expect("closed");
        lengths.push(store.events("a").len());
    }
    assert!(lengths[0] > stored && lengths[1] == lengths[0] && lengths[2] == lengths[0], "{stored} {lengths:?}");
    let before: Vec<Arc<Event>> = store.events("a");
    assert!(
        before[..stored].iter().enumerate().all(|(seq, event)| event.seq == seq as u64),
        "stored rows are untouched"
    );
}

#[test]
fn case_112_a_session_killed_in_a_turn_is_listed() {
    use turnwheel::storage::Store;
    let store = MemoryStore::default();
    killed_in_a_tool(&store, &[("c1", "pay", "{}")]);
    let ctx = Context::new();
    let listed = ctx.runtime().block_on(store.list()).expect("listed");
    assert_eq!(listed.iter().map(|header| header.id.to_string()).collect::<Vec<_>>(), ["a"]);
    let closers = turnwheel::session::closers(&store.events("a").into());
    assert!(closers.iter().any(|event| event.json().contains("interrupted")), "and can be told to be interrupted");
}

#[test]
fn case_116_the_id_and_the_prompt_are_durable_before_the_first_request() {
    let store = MemoryStore::default();
    let seen: Rc<RefCell<Vec<String>>> = Rc::default();
    let (log, looking) = (seen.clone(), store.clone());
    let model = Scripted::new().respond(move |_| {
        *log.borrow_mut() = looking.events("a").iter().map(|event| event.kind().to_owned()).collect();
        ScriptedReply::text("hi")
    });
    let ctx = on_store(&store, model);
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert!(seen.borrow().contains(&"user/message".to_owned()), "{:?}", seen.borrow());
}

#[test]
fn case_131_a_lone_surrogate_in_a_tools_result_never_reaches_the_log() {
    let ctx = agents::context(Scripted::new().calls([("c1", "t", "{\"x\":\"\\ud83d\"}")]).text("done"));
    let seen: Rc<RefCell<Option<Value>>> = Rc::default();
    let log = seen.clone();
    let tool = Tool::new("t", move |call| {
        *log.borrow_mut() = Some(call.arguments().clone());
        let echoed = call.text("x").unwrap_or_default().to_owned();
        async move { Ok(ToolOutput::value(echoed)) }
    });
    ctx.tools().register(tool).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!(*seen.borrow(), Some(json!({"x": "\u{fffd}"})));
    assert_eq!(ends(&agent), ["completed"]);
    let result = events(&agent).into_iter().find(|event| event.kind() == "tool/result").expect("a result");
    assert!(turnwheel::json::parse(result.json()).is_ok() && !result.json().contains("\\ud83d"));
}

#[test]
fn case_140_a_result_of_20_megabytes_is_an_error_and_the_log_stays_small() {
    let store = MemoryStore::default();
    let ctx = on_store(&store, Scripted::new().calls([("c1", "edit", "{}")]).text("less, then"));
    let whole = || "x".repeat(20_000_000);
    let tool = Tool::new("edit", move |_| async move {
        Ok(ToolOutput::value("edited").with_meta(json!({"before": (whole()), "after": (whole())})))
    });
    ctx.tools().register(tool).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!(ends(&agent), ["completed"]);
    assert_eq!(agents::results(&agent), [("c1".to_owned(), "TOOL_RESULT_TOO_LARGE".to_owned())]);
    assert!(is_sendable(&agent));
    ctx.runtime().block_on(agent.flush()).expect("stored");
    let bytes: usize = events(&agent).iter().map(|event| event.json().len()).sum();
    assert!(bytes < 10_000, "{bytes} bytes were logged");
}

#[test]
fn case_140_the_bound_can_be_moved_and_taken_away() {
    for (limit, kept) in [(Some(1_000), false), (Some(2_000), true), (None, true)] {
        let options = LoopOptions { max_tool_result_bytes: limit, ..LoopOptions::default() };
        let ctx = Context::builder().loop_options(options).build();
        ctx.llm().register("fake", Scripted::new().calls([("c1", "t", "{}")]).text("done")).expect("a new route");
        let tool = Tool::new("t", |_| async { Ok(ToolOutput::content(vec![Block::Text("x".repeat(1_500))])) });
        ctx.tools().register(tool).expect("registered");
        let agent = open(&ctx, "a");
        agent.followup("go").expect("accepted");
        settle(&ctx);
        let code = if kept { "-" } else { "TOOL_RESULT_TOO_LARGE" };
        assert_eq!(agents::results(&agent), [("c1".to_owned(), code.to_owned())]);
    }
}

#[test]
fn case_133_values_that_json_cannot_carry_are_a_tool_error_and_no_broken_log() {
    let odd = [f64::NAN, f64::INFINITY, -0.0];
    let calls: Vec<_> = (0..odd.len()).map(|i| (format!("c{i}"), "t".to_owned(), format!("{{\"n\":{i}}}"))).collect();
    let ctx = agents::context(Scripted::new().reply(ScriptedReply::calls(calls)).text("done"));
    let tool = Tool::new("t", move |call| async move {
        let n = call.integer("n")? as usize;
        Ok(ToolOutput::value(Value::from(odd[n])))
    });
    ctx.tools().register(tool).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    let codes: Vec<_> = agents::results(&agent).into_iter().map(|result| result.1).collect();
    assert_eq!(codes, ["INVALID_TOOL_OUTPUT", "INVALID_TOOL_OUTPUT", "INVALID_TOOL_OUTPUT"]);
    assert_eq!(ends(&agent), ["completed"]);
}

#[test]
fn case_164_what_maintenance_asks_a_model_stays_out_of_a_resumed_transcript() {
    let store = MemoryStore::default();
    killed_in_a_tool(&store, &[("c1", "pay", "{}")]);
    let ctx = on_store(&store, Scripted::new().text("private summary").text("public answer"));
    let agent = open(&ctx, "a");
    let asking = ctx.clone();
    let task = agent.run_maintenance(move |signal: Signal| async move {
        let call = asking.llm().prepare(turnwheel::llm::CallConfig::new("fake", "m"), &signal).await?;
        let header = turnwheel::llm::RequestHeader {
            config: call.config,
            adapter_defaults: call.defaults,
            system: None,
            tools: Vec::new(),
        };
        let mut stream = call.adapter.stream(turnwheel::llm::ModelRequest {
            header: Arc::new(header),
            messages: turnwheel::session::History::from_messages(vec![Arc::new(Message::user_text("s", "sum up"))]),
            session_id: None,
            signal,
        });
        let mut assembler = turnwheel::llm::Assembler::new();
        while let Some(chunk) = std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await {
            assembler.push(&chunk?);
        }
        Ok(assembler.assemble()?.content.iter().filter_map(Block::text).collect::<String>())
    });
    let before = agent.session().len();
    let summary = ctx.runtime().block_on(task.expect("started")).expect("ran");
    assert_eq!((summary.as_str(), agent.session().len()), ("private summary", before));
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert!(!events(&agent).iter().any(|event| event.json().contains("private summary")));
    assert_eq!(ends(&agent), ["interrupted", "completed"]);
}
