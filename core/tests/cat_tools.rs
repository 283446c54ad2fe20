//! The scheduling of tool calls: agent.md section 8. Tests are named after the ids they show.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{
    Log, at_first, context, count, ends, events, kinds, lines, noop, open, pending, prompt, record, release, results,
    settle, shared, user_messages,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use turnwheel::context::LoopOptions;
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::runtime::Signal;
use turnwheel::session::InboxTarget;
use turnwheel::tools::{ExecuteRequest, PostExecute, PreDecision, PreExecute};
use turnwheel::{CancelCause, Context, Error, EventData, Tool, ToolOutput, json};

type Gates = Rc<RefCell<HashMap<String, Signal>>>;

/// A model that makes these calls of these tools once, and then only talks.
fn calling(calls: &[(&str, &str)]) -> Scripted {
    let calls: Vec<_> = calls.iter().map(|(id, name)| (*id, *name, "{}")).collect();
    Scripted::new().calls(calls).respond(|_| ScriptedReply::text("done"))
}

/// A tool whose every call notes its start and waits for a gate of its own id.
fn held(name: &str) -> (Tool, Log, Gates) {
    let (ran, gates) = (Log::default(), Gates::default());
    let (log, table) = (ran.clone(), gates.clone());
    let tool = Tool::new(name, move |call| {
        let id = call.call_id().to_string();
        log.borrow_mut().push(id.clone());
        let gate = table.borrow_mut().entry(id.clone()).or_default().clone();
        async move {
            gate.cancelled().await;
            Ok(ToolOutput::value(format!("result of {id}")))
        }
    });
    (tool, ran, gates)
}

fn let_go(ctx: &Context, gates: &Gates, id: &str) {
    let gate = gates.borrow_mut().entry(id.to_owned()).or_default().clone();
    release(&gate);
    settle(ctx);
}

fn ids(results: &[(String, String)]) -> Vec<&str> {
    results.iter().map(|(id, _)| id.as_str()).collect()
}

#[test]
fn tool_1_and_13_calls_start_behind_the_committed_message_and_a_result_says_whose_it_is() {
    let ctx = context(calling(&[("k1", "odd")]));
    let odd = |_| async { Ok(ToolOutput::value("ok").with_meta(json!({"rows": 3}))) };
    ctx.tools().register(Tool::new("odd", odd)).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    let log = kinds(&agent);
    let at = log.iter().position(|kind| kind == "assistant/message").expect("committed");
    assert_eq!(log[at + 1..at + 3], ["tool/call", "tool/result"]);
    let call = events(&agent)[at + 1].data_value();
    assert_eq!(call, json!({"turn": 1, "step": 1, "callId": "k1", "name": "odd", "arguments": "{}"}));
    let result = events(&agent)[at + 2].data_value();
    let members: Vec<_> = result.as_object().expect("an object").iter().map(|(key, _)| key.to_owned()).collect();
    assert_eq!(members, ["turn", "step", "message", "meta"], "no error without one");
    assert_eq!(result.get("meta"), Some(&json!({"rows": 3})));
    let source = result.get("message").and_then(|message| message.get("source"));
    assert_eq!(source, Some(&json!({"kind": "tool", "callId": "k1"})));
}

#[test]
fn tool_4_whatever_is_not_certainly_parallel_is_exclusive() {
    let ctx = context(calling(&[("k1", "panics"), ("k2", "panics"), ("k3", "ghost"), ("k4", "panics")]));
    let (tool, ran, gates) = held("panics");
    ctx.tools().register(tool.parallel_when(|_| panic!("planned"))).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(*ran.borrow(), ["k1"]);
    let_go(&ctx, &gates, "k1");
    assert_eq!(*ran.borrow(), ["k1", "k2"]);
    let_go(&ctx, &gates, "k2");
    assert_eq!(*ran.borrow(), ["k1", "k2", "k4"]);
    let_go(&ctx, &gates, "k4");
    assert_eq!(results(&agent)[2], ("k3".to_owned(), "UNKNOWN_TOOL".to_owned()));
    assert_eq!(ends(&agent), ["completed"]);
}

#[test]
fn tool_4_a_tool_that_is_hidden_from_the_agent_is_a_barrier_whatever_it_says_of_itself() {
    let ctx = context(calling(&[("k1", "read"), ("k2", "secret"), ("k3", "read")]));
    let (tool, ran, gates) = held("read");
    ctx.tools().register(tool.parallel()).expect("registered");
    ctx.tools().register(noop("secret").parallel()).expect("registered");
    let agent = open(&ctx, "a");
    agent.ctx().expect("live").tools().restrict(None, Some(vec!["secret".into()])).expect("restricted");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(*ran.borrow(), ["k1"], "k3 would run beside it if k2 were parallel");
    let_go(&ctx, &gates, "k1");
    assert_eq!(*ran.borrow(), ["k1", "k3"]);
    let_go(&ctx, &gates, "k3");
    assert_eq!(results(&agent)[1], ("k2".to_owned(), "UNKNOWN_TOOL".to_owned()));
}

#[test]
fn tool_6_a_group_keeps_the_cap_that_it_began_with() {
    let calls = [("k1", "read"), ("k2", "read"), ("k3", "read"), ("k4", "wall"), ("k5", "read"), ("k6", "read")];
    let ctx = context(calling(&calls));
    let (tool, ran, gates) = held("read");
    ctx.tools().register(tool.parallel()).expect("registered");
    ctx.tools().register(noop("wall")).expect("registered");
    let (narrowing, layer) = (ctx.clone(), Rc::new(RefCell::new(None)));
    let kept = layer.clone();
    at_first(&ctx, "tool/call", move |_| {
        *kept.borrow_mut() = Some(narrowing.set_max_parallel_tool_calls(1).expect("a layer"));
    });
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(*ran.borrow(), ["k1", "k2", "k3"], "the group had begun");
    for id in ["k1", "k2", "k3"] {
        let_go(&ctx, &gates, id);
    }
    assert_eq!(ran.borrow().last().map(String::as_str), Some("k5"));
    assert_eq!(ran.borrow().len(), 4, "the next group is serial");
    let_go(&ctx, &gates, "k5");
    let_go(&ctx, &gates, "k6");
    assert_eq!(ends(&agent), ["completed"]);
}

#[test]
fn exe_28_a_call_whose_arguments_are_invalid_is_a_barrier_and_the_classifier_sees_checked_ones_only() {
    let calls = [("k1", "read", "{\"n\": 1}"), ("k2", "read", "{\"n\": \"one\"}"), ("k3", "read", "{\"n\": 3}")];
    let ctx = context(Scripted::new().calls(calls).text("done"));
    let (tool, ran, gates) = held("read");
    let seen: Rc<RefCell<Vec<u64>>> = Rc::default();
    let asked = seen.clone();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let tool = tool.parameters(schema).parallel_when(move |arguments| {
        let n = arguments.get("n").and_then(turnwheel::json::Value::as_u64);
        asked.borrow_mut().push(n.expect("only what the schema allows comes here"));
        true
    });
    ctx.tools().register(tool).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(*ran.borrow(), ["k1"], "k3 would run beside it if k2 were parallel");
    let_go(&ctx, &gates, "k1");
    assert_eq!(*ran.borrow(), ["k1", "k3"]);
    let_go(&ctx, &gates, "k3");
    assert_eq!(results(&agent)[1], ("k2".to_owned(), "INVALID_ARGS".to_owned()));
    assert_eq!(*seen.borrow(), [1, 3], "and never k2");
}

#[test]
fn tool_9_a_cancel_while_policy_is_asked_still_gets_the_stage_behind_the_body() {
    let ctx = context(calling(&[("k1", "noop"), ("k2", "noop")]));
    ctx.tools().register(noop("noop")).expect("registered");
    let approval = Signal::new();
    let approving = approval.clone();
    ctx.waterfall::<PreExecute, _>(move |_, next| {
        let approving = approving.clone();
        async move {
            approving.cancelled().await;
            next.call().await
        }
    })
    .expect("registered");
    let checked = Log::default();
    let checking = checked.clone();
    ctx.waterfall::<PostExecute, _>(move |request, next| {
        checking.borrow_mut().push(request.call.call_id.to_string());
        async move { next.call().await }
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    agent.cancel(CancelCause::User);
    release(&approval);
    settle(&ctx);
    let answered = ["k1", "k2"].map(|id| (id.to_owned(), "ABORTED_BEFORE_DISPATCH".to_owned()));
    assert_eq!(results(&agent), answered);
    assert_eq!(*checked.borrow(), ["k1"], "the call that policy had before it, and not one that never began");
}

#[test]
fn tool_5_and_6_a_pool_starts_calls_in_model_order_up_to_the_cap_and_refills() {
    for cap in [1, 2] {
        let options = LoopOptions { max_parallel_tool_calls: cap, ..LoopOptions::default() };
        let ctx = Context::builder().loop_options(options).build();
        let calls = [("k1", "read"), ("k2", "read"), ("k3", "read"), ("k4", "write")];
        ctx.llm().register("fake", calling(&calls)).expect("a new route");
        let (tool, ran, gates) = held("read");
        ctx.tools().register(tool.parallel()).expect("registered");
        let (write, wrote, write_gates) = held("write");
        ctx.tools().register(write).expect("registered");
        let agent = open(&ctx, "a");
        agent.followup(prompt("q1")).expect("accepted");
        settle(&ctx);
        assert_eq!(ran.borrow().len(), cap);
        for (at, id) in ["k1", "k2", "k3"].iter().enumerate() {
            assert!(wrote.borrow().is_empty(), "a barrier waits for the pool");
            let_go(&ctx, &gates, id);
            assert_eq!(ran.borrow().len(), (at + 1 + cap).min(3));
        }
        assert_eq!((ran.borrow().join(" "), wrote.borrow().join(" ")), ("k1 k2 k3".into(), "k4".into()));
        let_go(&ctx, &write_gates, "k4");
        assert_eq!(ids(&results(&agent)), ["k1", "k2", "k3", "k4"]);
    }
}

#[test]
fn tool_6_ten_calls_overlap_by_default() {
    let names: Vec<_> = (0..12).map(|n| format!("k{n}")).collect();
    let calls: Vec<_> = names.iter().map(|name| (name.as_str(), "read")).collect();
    let ctx = context(calling(&calls));
    let (tool, ran, _) = held("read");
    ctx.tools().register(tool.parallel()).expect("registered");
    open(&ctx, "a").followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(ran.borrow().len(), 10);
}

#[test]
fn tool_7_and_24_the_mode_is_read_again_before_each_start() {
    let ctx = context(calling(&[("k1", "read"), ("k2", "read"), ("k3", "read")]));
    let (tool, ran, gates) = held("read");
    let exclusive = Rc::new(Cell::new(false));
    let (mode, flip) = (exclusive.clone(), exclusive.clone());
    ctx.tools().register(tool.parallel_when(move |_| !mode.get())).expect("registered");
    ctx.waterfall::<PreExecute, _>(move |request, next| {
        if request.call.call_id.as_str() == "k1" {
            flip.set(true);
        }
        async move { next.call().await }
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(*ran.borrow(), ["k1"], "k2 became a barrier; k1 keeps its classification");
    let_go(&ctx, &gates, "k1");
    assert_eq!(*ran.borrow(), ["k1", "k2"]);
    exclusive.set(false);
    let_go(&ctx, &gates, "k2");
    assert_eq!(*ran.borrow(), ["k1", "k2", "k3"], "read again behind the barrier");
}

#[test]
fn tool_8_9_and_12_the_stage_before_the_body_is_ordered_and_a_call_that_is_answered_there_takes_no_slot() {
    let options = LoopOptions { max_parallel_tool_calls: 2, ..LoopOptions::default() };
    let ctx = Context::builder().loop_options(options).build();
    let calls = [("k1", "read"), ("k2", "read"), ("k3", "read"), ("k4", "read")];
    ctx.llm().register("fake", calling(&calls)).expect("a new route");
    let (tool, ran, gates) = held("read");
    ctx.tools().register(tool.parallel()).expect("registered");
    let (asked, approval) = (Log::default(), Signal::new());
    let (asking, approving) = (asked.clone(), approval.clone());
    ctx.waterfall::<PreExecute, _>(move |request, next| {
        let id = request.call.call_id.to_string();
        asking.borrow_mut().push(id.clone());
        let approving = approving.clone();
        async move {
            match id.as_str() {
                "k2" => Ok(PreDecision::Deny("no".into())),
                "k3" => {
                    approving.cancelled().await;
                    next.call().await
                }
                _ => next.call().await,
            }
        }
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!((asked.borrow().join(" "), ran.borrow().join(" ")), ("k1 k2 k3".into(), "k1".into()));
    assert_eq!(count(&agent, "tool/call"), 3, "a call is logged before it is asked about");
    let_go(&ctx, &gates, "k1");
    assert_eq!(count(&agent, "tool/result"), 0, "finished siblings wait for the approval");
    release(&approval);
    settle(&ctx);
    assert_eq!(ran.borrow().join(" "), "k1 k3 k4", "the denied call holds no slot");
    assert_eq!(ids(&results(&agent)), ["k1", "k2"]);
    let_go(&ctx, &gates, "k4");
    let_go(&ctx, &gates, "k3");
    assert_eq!(ids(&results(&agent)), ["k1", "k2", "k3", "k4"]);
}

#[test]
fn tool_9_a_denial_gets_the_stage_behind_the_body_and_a_final_answer_does_not() {
    let ctx = context(calling(&[("k1", "noop"), ("k2", "noop"), ("k3", "noop")]));
    ctx.tools().register(noop("noop")).expect("registered");
    ctx.waterfall::<PreExecute, _>(|request, next| async move {
        match request.call.call_id.as_str() {
            "k1" => Ok(PreDecision::Deny("no".into())),
            "k2" => Err(Error::host("planned")),
            _ => next.call().await,
        }
    })
    .expect("registered");
    let checked = Log::default();
    let checking = checked.clone();
    ctx.waterfall::<PostExecute, _>(move |request, next| {
        checking.borrow_mut().push(request.call.call_id.to_string());
        async move { next.call().await }
    })
    .expect("registered");
    open(&ctx, "a").followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(*checked.borrow(), ["k1", "k3"]);
}

#[test]
fn tool_10_11_and_26_results_commit_in_model_order_each_followed_by_its_contexts() {
    let ctx = context(calling(&[("k1", "read"), ("k2", "read"), ("k3", "read")]));
    let gate = Signal::new();
    let opened = gate.clone();
    let read = Tool::new("read", move |call| {
        let opened = opened.clone();
        async move {
            opened.cancelled().await;
            for n in 1..3 {
                call.defer_context(shared(&format!("{} context {n}", call.call_id())));
            }
            Ok(ToolOutput::value("ok"))
        }
    });
    ctx.tools().register(read.parallel()).expect("registered");
    let heard = record(&ctx);
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    heard.borrow_mut().clear();
    release(&gate);
    settle(&ctx);
    let order = lines(&heard, &["result", "log tool", "inserted", "log step/end"]);
    let of = |id: &str| {
        let contexts = [1, 2].map(|n| format!("inserted {id} context {n}"));
        [vec![format!("result {id}"), "log tool/result".into()], contexts.to_vec()].concat()
    };
    let expected = [of("k1"), of("k2"), of("k3"), vec!["log step/end".into()]].concat();
    assert_eq!(order[..expected.len()], expected);
    let messages = user_messages(&agent);
    assert_eq!(messages[1..3], ["k1 context 1", "k1 context 2"]);
    assert_eq!((messages.len(), count(&agent, "step/end")), (7, 2));
}

#[test]
fn tool_14_and_15_siblings_of_a_concluding_call_still_run_and_waiting_input_keeps_the_turn_going() {
    for steered in [false, true] {
        let script = calling(&[("k1", "last"), ("k2", "noop")]);
        let ctx = context(script.clone());
        let last = Tool::new("last", |call| async move {
            call.conclude_turn();
            Ok(ToolOutput::value("ok"))
        });
        ctx.tools().register(last).expect("registered");
        ctx.tools().register(noop("noop")).expect("registered");
        if steered {
            at_first(&ctx, "tool/call", |agent| drop(agent.steer(prompt("s1")).expect("accepted")));
        }
        let agent = open(&ctx, "a");
        agent.followup(prompt("q1")).expect("accepted");
        settle(&ctx);
        assert_eq!(ids(&results(&agent)), ["k1", "k2"]);
        assert_eq!((ends(&agent), script.request_count()), (vec!["completed".to_owned()], 1 + usize::from(steered)));
    }
}

#[test]
fn tool_16_to_18_and_20_a_cancel_waits_for_started_bodies_and_answers_the_calls_of_every_later_group() {
    let calls = [("k1", "read"), ("k2", "fails"), ("k3", "read"), ("k4", "write"), ("k5", "read")];
    let options = LoopOptions { max_parallel_tool_calls: 2, ..LoopOptions::default() };
    let ctx = Context::builder().loop_options(options).build();
    ctx.llm().register("fake", calling(&calls)).expect("a new route");
    let (read, ran, gates) = held("read");
    ctx.tools().register(read.parallel()).expect("registered");
    let gate = Signal::new();
    let opened = gate.clone();
    let fails = Tool::new("fails", move |_| {
        let opened = opened.clone();
        async move {
            opened.cancelled().await;
            Err::<ToolOutput, _>(Error::coded("QuotaError", "QUOTA", "used up"))
        }
    });
    ctx.tools().register(fails.parallel()).expect("registered");
    ctx.tools().register(noop("write")).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    agent.cancel(CancelCause::User);
    settle(&ctx);
    assert_eq!(count(&agent, "tool/result"), 0, "nothing is abandoned");
    release(&gate);
    let_go(&ctx, &gates, "k1");
    assert_eq!(*ran.borrow(), ["k1"]);
    let answered: Vec<_> = results(&agent).into_iter().map(|(id, code)| format!("{id} {code}")).collect();
    let skipped = ["k3", "k4", "k5"].map(|id| format!("{id} ABORTED_BEFORE_DISPATCH"));
    let expected = [vec!["k1 ABORTED".to_owned(), "k2 QUOTA".into()], skipped.to_vec()].concat();
    assert_eq!(answered, expected, "a more specific failure stays");
    let errors: Vec<_> = events(&agent)
        .iter()
        .filter_map(|event| match &event.data {
            EventData::ToolResult { error, .. } => error.as_ref().map(|error| error.name.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(errors, ["AbortError", "QuotaError", "AbortError", "AbortError", "AbortError"]);
    assert_eq!((count(&agent, "tool/call"), ends(&agent)), (5, vec!["aborted".to_owned()]));
}

#[test]
fn tool_17_a_cancel_before_the_first_start_answers_every_call() {
    let ctx = context(calling(&[("k1", "noop"), ("k2", "ghost")]));
    ctx.tools().register(noop("noop")).expect("registered");
    at_first(&ctx, "assistant/message", |agent| agent.cancel(CancelCause::User));
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    let codes: Vec<_> = results(&agent).into_iter().map(|(_, code)| code).collect();
    assert_eq!(codes, ["ABORTED_BEFORE_DISPATCH"; 2]);
}

#[test]
fn tool_19_contexts_of_a_call_that_was_overtaken_stay_parked_whatever_the_cause() {
    for cause in [CancelCause::User, CancelCause::Parent, CancelCause::Disposed] {
        let ctx = context(calling(&[("k1", "read")]));
        let gate = Signal::new();
        let opened = gate.clone();
        let read = Tool::new("read", move |call| {
            call.defer_context(shared("context"));
            let opened = opened.clone();
            async move {
                opened.cancelled().await;
                Ok(ToolOutput::value("ok"))
            }
        });
        ctx.tools().register(read).expect("registered");
        let agent = open(&ctx, "a");
        agent.followup(prompt("q1")).expect("accepted");
        settle(&ctx);
        agent.cancel(cause);
        release(&gate);
        settle(&ctx);
        assert_eq!(pending(&agent, InboxTarget::NextStep), ["context"]);
        assert_eq!((ends(&agent), agent.state().expect("state").parked.len()), (vec!["aborted".to_owned()], 1));
    }
}

#[test]
fn tool_21_22_and_d_11_a_failure_of_the_scheduler_drains_bodies_and_answers_every_call() {
    let script = calling(&[("k1", "read"), ("k2", "read"), ("k3", "write")]);
    let ctx = context(script.clone());
    let (read, ran, gates) = held("read");
    ctx.tools().register(read.parallel()).expect("registered");
    ctx.tools().register(noop("write")).expect("registered");
    let once = Cell::new(true);
    ctx.check_events(move |_, event| {
        if event.kind() == "tool/result" && once.replace(false) {
            return Err(Error::host("the first result is refused"));
        }
        Ok(())
    })
    .expect("registered");
    let heard = record(&ctx);
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    let_go(&ctx, &gates, "k1");
    assert_eq!(count(&agent, "turn/end"), 0, "the body under way is awaited");
    let_go(&ctx, &gates, "k2");
    let answered: Vec<_> = results(&agent).into_iter().map(|(id, code)| format!("{id} {code}")).collect();
    assert_eq!(answered, ["k1 TOOL_SCHEDULER_FAILED", "k2 -", "k3 TOOL_SCHEDULER_FAILED"]);
    assert_eq!(ran.borrow().len(), 2);
    assert_eq!(lines(&heard, &["error"]), ["error 1/1 the first result is refused"], "the first failure, once");
    let log = kinds(&agent);
    assert_eq!(log[log.len() - 2..], ["step/end", "turn/end"]);
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    let history = script.last_request().expect("asked").messages;
    let answers = history.iter().filter(|message| message.source().kind() == "tool").count();
    assert_eq!(answers, 3, "the next request answers every call");
}

#[test]
fn tool_23_and_d_11_a_context_that_the_inbox_refuses_is_reported_and_the_turn_goes_on() {
    let ctx = context(calling(&[("k1", "read"), ("k2", "read")]));
    let read = Tool::new("read", |call| {
        call.defer_context(shared("same"));
        async { Ok(ToolOutput::value("ok")) }
    });
    ctx.tools().register(read).expect("registered");
    let heard = record(&ctx);
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!((ends(&agent), results(&agent).len()), (vec!["completed".to_owned()], 2));
    let errors = lines(&heard, &["error"]);
    assert!(errors.len() == 1 && errors[0].contains("same"), "{errors:?}");
}

#[test]
fn tool_25_a_wrapper_replaces_the_signal_of_one_call_only() {
    let ctx = context(calling(&[("k1", "read"), ("k2", "read")]));
    let read = Tool::new("read", |call| async move {
        Ok(ToolOutput::value(if call.signal().is_cancelled() { "cut" } else { "whole" }))
    });
    ctx.tools().register(read.parallel()).expect("registered");
    ctx.waterfall::<ExecuteRequest, _>(|request, next| {
        if request.call.call_id.as_str() == "k1" {
            let own = Signal::new();
            own.cancel(CancelCause::Hook("too slow".into()));
            *request.signal.borrow_mut() = own;
        }
        async move { next.call().await }
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    let history = agent.session().history();
    let texts: Vec<_> = history
        .iter()
        .filter(|message| message.source().kind() == "tool")
        .map(|message| message.json().contains("cut"))
        .collect();
    assert_eq!((texts, ends(&agent)), (vec![true, false], vec!["completed".to_owned()]));
}

#[test]
fn tool_3_calls_act_for_the_agent_whose_message_made_them() {
    let ctx = context(calling(&[("k1", "who")]));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (log, root) = (seen.clone(), ctx.root().clone());
    let who = Tool::new("who", move |call| {
        let initiator = root.current_initiator().map(|agent| agent.id().to_string());
        log.borrow_mut().push((call.agent().map(|agent| agent.id().to_string()), initiator));
        async { Ok(ToolOutput::value("ok")) }
    });
    ctx.tools().register(who).expect("registered");
    let (agent, _other) = (open(&ctx, "a"), open(&ctx, "b"));
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(*seen.borrow(), [(Some("a".to_owned()), Some("a".to_owned()))]);
}
