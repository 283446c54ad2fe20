//! What a store and the loop promise each other: nothing happens before its intent is durable, and nothing is lost.

#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/faults.rs"]
mod faults;

use faults::{FaultyFiles, Op};
use std::cell::Cell;
use std::io::ErrorKind;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::agent::{Parked, ReceiptState};
use turnwheel::llm::adapters::Scripted;
use turnwheel::session::{Delivery, EventData, InboxTarget, TurnEndReason};
use turnwheel::storage::Store;
use turnwheel::storage::jsonl::{Compression, JsonlOptions, JsonlStore};
use turnwheel::{Agent, CancelCause, Code, Context, Durability, Message, Result, Tool, ToolOutput};

fn context(store: JsonlStore, script: &Scripted) -> Context {
    let ctx = Context::builder().store(store).build();
    ctx.llm().register("fake", script.clone()).expect("a new route");
    ctx
}

fn at(root: &Path) -> JsonlStore {
    JsonlStore::new(JsonlOptions::new(root).compression(Compression::None))
}

fn open(ctx: &Context) -> Result<Agent> {
    ctx.runtime().block_on(ctx.agent("demo").provider("fake").model("m").open())
}

fn idle(ctx: &Context, agent: &Agent) {
    ctx.runtime().block_on(agent.when_idle()).expect("idle");
}

fn turn_ends(agent: &Agent) -> Vec<TurnEndReason> {
    let events = agent.session().events_from(0);
    let ends = events.iter().filter_map(|event| match &event.data {
        EventData::TurnEnd { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    ends.collect()
}

#[test]
fn a_04_no_request_is_sent_when_the_log_cannot_be_made_durable_and_nothing_is_lost() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = FaultyFiles::new();
    let options = JsonlOptions::new(directory.path()).compression(Compression::None);
    let script = Scripted::new().text("one").text("two");
    let ctx = context(JsonlStore::with_files(options, files.clone()), &script);
    let agent = open(&ctx).expect("opened");
    files.fail_next(Op::Append, ErrorKind::StorageFull);
    agent.followup("first").expect("accepted");
    idle(&ctx, &agent);
    assert_eq!(script.request_count(), 0, "no effect before its intent is stored");
    let TurnEndReason::Error(failure) = &turn_ends(&agent)[0] else { panic!("{:?}", turn_ends(&agent)) };
    assert_eq!(failure.code, "STORE_FAILED");
    agent.followup("second").expect("accepted");
    idle(&ctx, &agent);
    assert_eq!(script.request_count(), 1);
    let live: Vec<_> = agent.session().events_from(0).iter().map(|event| event.json().to_owned()).collect();
    ctx.runtime().block_on(ctx.close()).expect("closed");
    let stored = ctx.runtime().block_on(at(directory.path()).read(&"demo".into())).expect("readable").expect("there");
    let stored: Vec<_> = stored.events.iter().map(|event| event.json().to_owned()).collect();
    assert_eq!(stored, live);
}

#[test]
fn a_04_no_tool_body_starts_when_its_call_cannot_be_made_durable() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = FaultyFiles::new();
    let options = JsonlOptions::new(directory.path()).compression(Compression::None);
    let script = Scripted::new().calls([("c1", "pay", "{}"), ("c2", "pay", "{}")]).text("after");
    let ctx = context(JsonlStore::with_files(options, files.clone()), &script);
    let paid = Rc::new(Cell::new(0));
    let paying = paid.clone();
    ctx.tools()
        .register(Tool::new("pay", move |_| {
            paying.set(paying.get() + 1);
            files_fail(&files);
            async { Ok(ToolOutput::value("paid")) }
        }))
        .expect("registered");
    let agent = open(&ctx).expect("opened");
    agent.followup("go").expect("accepted");
    idle(&ctx, &agent);
    assert_eq!(paid.get(), 1, "the second call's intent could not be stored");
    assert_eq!(turn_ends(&agent)[0].kind(), "error");
    let results: Vec<_> = agent.session().history().iter().filter(|m| m.source().kind() == "tool").collect();
    assert_eq!(results.len(), 2, "every call of a committed message has a result (P2, D-11)");
    assert!(results[1].json().contains("\"isError\":true"));
    let codes = agent.session().events_from(0).into_iter().filter_map(|event| match &event.data {
        EventData::ToolResult { error, .. } => error.as_ref().map(|error| error.code.clone()),
        _ => None,
    });
    assert_eq!(codes.collect::<Vec<_>>(), ["TOOL_SCHEDULER_FAILED"]);
}

/// Lets the next append fail.
fn files_fail(files: &Arc<FaultyFiles>) {
    files.fail_next(Op::Append, ErrorKind::StorageFull);
}

#[test]
fn a_session_continues_where_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = Scripted::new().text("one").text("two");
    for turn in 1..=2 {
        let ctx = context(at(directory.path()), &script);
        let agent = open(&ctx).expect("opened");
        let result = ctx.runtime().block_on(agent.run("go").expect("accepted")).expect("ran");
        assert_eq!((result.turn, result.reason), (turn, TurnEndReason::Completed));
        assert_eq!(script.last_request().expect("a request").messages.len() as u64, turn * 2 - 1);
        ctx.runtime().block_on(ctx.close()).expect("closed");
    }
}

#[test]
fn d_10_a_claim_that_a_crash_kept_from_its_step_is_pending_again_and_survives_a_second_crash() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = Scripted::new().text("answered at last");
    {
        // The crash: the process is gone between claim and step, with everything logged so far stored.
        let ctx = context(at(directory.path()), &script);
        ctx.waterfall::<turnwheel::agent::PreStep, _>(|_, _| std::future::pending()).expect("registered");
        let agent = open(&ctx).expect("opened");
        agent.inject(Message::user_text("c1", "context")).expect("accepted");
        agent.followup(Message::user_text("q1", "the prompt")).expect("accepted");
        ctx.runtime().block_on(agent.flush()).expect("stored");
        assert_eq!(agent.session().delivery("q1"), Some(Delivery::Claimed { turn: 1, step: None }));
        ctx.runtime().close();
        std::mem::forget(ctx);
    }
    for crash in 0..2 {
        let ctx = context(at_unlocked(directory.path()), &script);
        let agent = open(&ctx).expect("opened");
        assert_eq!(turn_ends(&agent), [TurnEndReason::Interrupted]);
        for (id, target) in [("q1", InboxTarget::NextTurn), ("c1", InboxTarget::NextStep)] {
            let parked = Some(Parked::Resumed);
            assert_eq!(agent.receipt(id).state(), Some(ReceiptState::Pending { target, parked }), "life {crash}");
        }
        assert_eq!(agent.state().expect("state").parked.len(), 2, "restored input is parked");
        if crash == 0 {
            ctx.runtime().block_on(agent.flush()).expect("stored");
            ctx.runtime().close();
            std::mem::forget(ctx);
            continue;
        }
        agent.wake().expect("awake");
        idle(&ctx, &agent);
        let history: Vec<_> = agent.session().history().iter().map(|message| message.text()).collect();
        assert_eq!(history, ["context", "the prompt", "answered at last"]);
        ctx.runtime().block_on(ctx.close()).expect("closed");
    }
}

/// The lock of a session dies with its process; a forgotten context in this one is not dead, so tests of crashes work
/// on a copy of the files.
fn at_unlocked(root: &Path) -> JsonlStore {
    let copy = root.join("copy");
    let fresh = tempfile::tempdir_in(root).expect("a directory").keep();
    let source = if copy.exists() { copy.clone() } else { root.to_owned() };
    copy_sessions(&source, &fresh);
    if copy.exists() {
        std::fs::remove_dir_all(&copy).expect("removable");
    }
    std::fs::rename(&fresh, &copy).expect("renamed");
    at(&copy)
}

fn copy_sessions(from: &Path, to: &Path) {
    let source = from.join("_no-cwd").join("demo");
    let target = to.join("_no-cwd").join("demo");
    std::fs::create_dir_all(&target).expect("made");
    std::fs::copy(source.join("session.jsonl"), target.join("session.jsonl")).expect("copied");
}

#[test]
fn a_log_damaged_in_the_middle_is_refused_by_line_and_left_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = Scripted::new().text("one").text("two");
    let ctx = context(at(directory.path()), &script);
    let agent = open(&ctx).expect("opened");
    for _ in 0..2 {
        ctx.runtime().block_on(agent.run("go").expect("accepted")).expect("ran");
    }
    ctx.runtime().block_on(ctx.close()).expect("closed");
    let path = directory.path().join("_no-cwd/demo/session.jsonl");
    let text = std::fs::read_to_string(&path).expect("text");
    let damaged = text.replacen("\"type\":\"step/start\"", "\"type\":step/start", 1);
    assert_ne!(damaged, text);
    std::fs::write(&path, &damaged).expect("written");
    let ctx = context(at(directory.path()), &script);
    let error = open(&ctx).expect_err("refused");
    assert_eq!(error.code(), &Code::CorruptLog);
    assert!(error.chain().contains("line"), "{error:?}");
    assert_eq!(std::fs::read_to_string(&path).expect("text"), damaged);
}

#[test]
fn case_089_a_second_opener_of_a_live_session_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = Scripted::new().text("one");
    let first = context(at(directory.path()), &script);
    let agent = open(&first).expect("opened");
    first.runtime().block_on(agent.run("go").expect("accepted")).expect("ran");
    let second = context(at(directory.path()), &script);
    assert_eq!(open(&second).expect_err("refused").code(), &Code::SessionLocked);
    first.runtime().block_on(first.close()).expect("closed");
    assert!(open(&second).is_ok());
}

#[test]
fn case_058_results_of_finished_tools_survive_a_cancel_of_a_later_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = Scripted::new().calls([("c1", "t", "{}"), ("c2", "t", "{}"), ("c3", "t", "{}")]).text("go on");
    let ctx = context(at(directory.path()), &script);
    let tool = Tool::new("t", |call| async move {
        if call.call_id().as_str() == "c3" {
            call.agent().expect("an agent's call").cancel(CancelCause::User);
        }
        Ok(ToolOutput::value("done"))
    });
    ctx.tools().register(tool).expect("registered");
    let agent = open(&ctx).expect("opened");
    agent.followup("go").expect("accepted");
    idle(&ctx, &agent);
    ctx.runtime().block_on(ctx.close()).expect("closed");
    let ctx = context(at(directory.path()), &script);
    let agent = open(&ctx).expect("opened");
    let results: Vec<_> = agent.session().history().iter().filter(|m| m.source().kind() == "tool").collect();
    let failed: Vec<_> = results.iter().map(|result| result.json().contains("\"isError\":true")).collect();
    assert_eq!(failed, [false, false, true]);
}

#[test]
fn relaxed_durability_waits_for_nothing_and_close_stores_everything() {
    let directory = tempfile::tempdir().expect("a directory");
    let ctx = Context::builder().store(at(directory.path())).durability(Durability::Relaxed).build();
    ctx.llm().register("fake", Scripted::new().text("one")).expect("a new route");
    let agent = open(&ctx).expect("opened");
    let receipt = agent.followup("go").expect("accepted");
    idle(&ctx, &agent);
    ctx.runtime().block_on(receipt.durable()).expect("durable");
    let stored = ctx.runtime().block_on(at(directory.path()).read(&"demo".into())).expect("readable").expect("there");
    assert_eq!(stored.events.len() as u64, agent.session().len());
}

#[test]
fn a_session_of_a_vanished_store_directory_is_created_anew() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = Scripted::new().text("one");
    let ctx = context(at(&directory.path().join("not/yet/there")), &script);
    let agent = open(&ctx).expect("opened");
    ctx.runtime().block_on(agent.run("go").expect("accepted")).expect("ran");
    ctx.runtime().block_on(ctx.close()).expect("closed");
}

#[test]
fn p_3_closing_says_when_events_could_not_be_stored_and_a_closed_session_takes_none() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = FaultyFiles::new();
    let options = JsonlOptions::new(directory.path()).compression(Compression::None);
    let ctx = context(JsonlStore::with_files(options, files.clone()), &Scripted::new());
    let agent = open(&ctx).expect("opened");
    let receipt = agent.inject(Message::user_text("c1", "context")).expect("accepted");
    (0..8).for_each(|_| files_fail(&files));
    assert_eq!(ctx.runtime().block_on(ctx.close()).expect_err("told").code(), &Code::StoreFailed);
    let error = agent.session().append("note", turnwheel::json!({})).expect_err("refused");
    assert_eq!(error.code(), &Code::Disposed);
    let durable = ctx.runtime().block_on(receipt.durable());
    assert_eq!(durable.expect_err("it is not stored").code(), &Code::StoreFailed);
}

#[test]
fn an_id_that_no_file_system_takes_is_refused_when_the_agent_is_opened() {
    let directory = tempfile::tempdir().expect("a directory");
    let ctx = context(at(directory.path()), &Scripted::new());
    let opened = ctx.runtime().block_on(ctx.agent("x".repeat(300)).provider("fake").model("m").open());
    assert_eq!(opened.expect_err("refused").code(), &Code::InvalidArgument);
}
