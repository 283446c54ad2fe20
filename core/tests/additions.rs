//! What turnwheel adds to the catalogue, where no other file shows it. Named after the ids.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;
#[path = "support/memory_store.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod memory_store;

use agents::{gated, hello, open, prompt, release, settle, waiting};
use memory_store::MemoryStore;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use turnwheel::agent::{Parked, ReceiptState};
use turnwheel::host::{HostListener, HostNext, ListenOptions, WaterfallEvent, listen, notice_value};
use turnwheel::json::Value;
use turnwheel::llm::adapters::Scripted;
use turnwheel::runtime::{LocalBoxFuture, Signal};
use turnwheel::session::{InboxTarget, TurnEndReason};
use turnwheel::{CancelCause, Context, Notice, NoticeKind, Result, json};

fn on_store(store: &MemoryStore, script: Scripted) -> Context {
    let ctx = Context::builder().store(store.clone()).build();
    ctx.llm().register("fake", script).expect("a new route");
    ctx
}

#[test]
fn a_01_receipts_survive_a_restart() {
    let store = MemoryStore::default();
    let before = on_store(&store, hello());
    let agent = open(&before, "a");
    agent.followup(prompt("ran")).expect("accepted");
    settle(&before);
    agent.inject(prompt("waits")).expect("accepted");
    before.runtime().block_on(agent.flush()).expect("stored");
    // The process dies: nothing is closed, and what the store has is all there is.
    let after = MemoryStore::default();
    after.put(agent.session().header().clone(), store.events("a"));
    let ctx = on_store(&after, hello());
    let agent = open(&ctx, "a");
    let ended = ReceiptState::Ended { turn: 1, reason: TurnEndReason::Completed };
    assert_eq!(agent.receipt("ran").state(), Some(ended));
    let parked = Some(Parked::Resumed);
    assert_eq!(agent.receipt("waits").state(), Some(ReceiptState::Pending { target: InboxTarget::NextStep, parked }));
    agent.wake().expect("awake");
    let settled = ctx.runtime().block_on(agent.receipt("waits").settled()).expect("settled");
    assert_eq!(settled, ReceiptState::Ended { turn: 2, reason: TurnEndReason::Completed });
}

#[test]
fn a_02_an_acceptance_is_durable_once_the_store_has_the_insertion_and_not_before() {
    let store = MemoryStore::default();
    let gate = Signal::new();
    *store.0.append_gate.borrow_mut() = Some(gate.clone());
    let ctx = on_store(&store, hello());
    let agent = open(&ctx, "a");
    let receipt = agent.inject(prompt("c1")).expect("accepted");
    let durable = Rc::new(Cell::new(false));
    let (flag, looking) = (durable.clone(), store.clone());
    ctx.runtime().spawn(async move {
        receipt.durable().await.expect("durable");
        assert_eq!(looking.events("a").len(), 1, "it is there when the receipt says so");
        flag.set(true);
    });
    settle(&ctx);
    assert!(!durable.get() && store.events("a").is_empty());
    release(&gate);
    settle(&ctx);
    assert!(durable.get());
    assert!(store.events("a")[0].json().contains("\"c1\""));
}

#[test]
fn a_07_the_state_is_a_plain_record_of_phase_turn_step_tools_latch_parked_and_queues() {
    let ctx = agents::context(waiting());
    let (tool, _, gate) = gated("wait");
    ctx.tools().register(tool).expect("registered");
    let agent = open(&ctx, "a");
    let state = || agent.state().expect("state").to_value();
    let record = |phase: &str, turn: u64, step: u64, tools: Value, latch: Value, parked: Value, lengths: [u64; 2]| {
        json!({
            "phase": phase, "turn": turn, "step": step, "runningTools": (tools), "latch": (latch), "parked": (parked),
            "nextStep": (lengths[0]), "nextTurn": (lengths[1]),
        })
    };
    assert_eq!(state(), record("idle", 0, 0, json!([]), json!([]), json!([]), [0, 0]));
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    agent.inject(prompt("i1")).expect("accepted");
    agent.followup(prompt("q2")).expect("accepted");
    assert_eq!(state(), record("running", 1, 1, json!(["c1"]), json!([]), json!([]), [1, 1]), "a call runs");
    agent.cancel_keep_inbox(CancelCause::User);
    agent.followup(prompt("q3")).expect("accepted");
    assert_eq!(state().get("latch"), Some(&json!(["q3"])), "the wake behind the cancel is remembered");
    release(&gate);
    settle(&ctx);
    assert_eq!(state(), record("idle", 3, 0, json!([]), json!([]), json!([]), [0, 0]));
}

/// Keeps what crosses the border, as JSON.
struct Border(Rc<RefCell<Vec<Value>>>);

impl HostListener for Border {
    fn notice(&self, notice: &Notice) -> Result<()> {
        self.0.borrow_mut().push(notice_value(notice));
        Ok(())
    }

    fn decide(&self, event: WaterfallEvent, next: Option<HostNext>) -> LocalBoxFuture<Result<Option<Value>>> {
        self.0.borrow_mut().push(event.value());
        Box::pin(async move {
            match next {
                Some(next) => next.call(None).await.map(Some),
                None => Ok(None),
            }
        })
    }
}

#[test]
fn a_08_everything_that_crosses_names_its_agent_by_the_id_that_finds_it() {
    let ctx = agents::context(waiting());
    let (tool, _, gate) = gated("wait");
    ctx.tools().register(tool).expect("registered");
    let heard = Rc::new(RefCell::new(Vec::new()));
    let notices = [NoticeKind::Created, NoticeKind::SessionStart, NoticeKind::Inserted, NoticeKind::Claimed];
    let rest = [NoticeKind::Status, NoticeKind::SessionEvent, NoticeKind::ToolResult, NoticeKind::Disposed];
    let waterfalls = ["agent/pre-step", "agent/request", "tools/pre-execute", "tools/post-execute"];
    let names: Vec<_> = notices.iter().chain(&rest).map(|kind| kind.as_str()).chain(waterfalls).collect();
    for name in &names {
        listen(&ctx, name, ListenOptions::default(), Rc::new(Border(heard.clone()))).expect("registered");
    }
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(ctx.find_agent("a").as_ref(), Some(&agent), "the id gives the live handle back");
    release(&gate);
    settle(&ctx);
    ctx.runtime().block_on(agent.dispose());
    assert!(ctx.find_agent("a").is_none());
    let heard = heard.borrow();
    let id = json!("a");
    for name in names {
        let about: Vec<_> = heard.iter().filter(|event| event.get("event") == Some(&json!(name))).collect();
        assert!(!about.is_empty() && about.iter().all(|event| event.get("agentId") == Some(&id)), "{name}: {about:?}");
    }
}
