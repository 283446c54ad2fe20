//! Write-behind: windows, rounds, bounds, and a store that is slow or fails (WB, PCO, A-04).

#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/agents.rs"]
mod agents;
#[path = "support/slow_store.rs"]
mod slow_store;

use agents::{open, prompt, settle};
use slow_store::SlowStore;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;
use turnwheel::llm::adapters::Scripted;
use turnwheel::llm::{Adapter, Chunk, ChunkStream, ModelRequest};
use turnwheel::runtime::{ManualClock, Ports};
use turnwheel::session::{EventData, TurnEndReason};
use turnwheel::{Agent, CancelCause, Code, Context, Durability, Notice, NoticeKind, Tool, ToolOutput, json};

/// The bound on what waits to be stored, in events; a turn's brackets may come on top.
const BOUND: u64 = 8192 + 16;

const WINDOW: Duration = Duration::from_millis(200);

fn context(store: &SlowStore, durability: Durability, adapter: impl Adapter + 'static) -> (Context, ManualClock) {
    let clock = ManualClock::new(1_000);
    let ports = Ports { clock: Rc::new(clock.clone()), ..Ports::default() };
    let ctx = Context::builder().store(store.clone()).durability(durability).ports(ports).build();
    ctx.llm().register("fake", adapter).expect("a new route");
    (ctx, clock)
}

fn advance(ctx: &Context, clock: &ManualClock, by: Duration) {
    clock.advance(by);
    settle(ctx);
}

/// An event of a plug-in, which nothing waits for.
fn note(agent: &Agent) {
    agent.session().append("note", json!({})).expect("appended");
}

fn unstored(agent: &Agent, store: &SlowStore, id: &str) -> u64 {
    agent.session().len() - store.events(id).len() as u64
}

fn end_of(agent: &Agent) -> Option<TurnEndReason> {
    let events = agent.session().events_from(0);
    events.iter().rev().find_map(|event| match &event.data {
        EventData::TurnEnd { reason, .. } => Some(reason.clone()),
        _ => None,
    })
}

#[test]
fn wb_01_the_first_event_opens_a_window_that_later_ones_do_not_extend_and_its_round_carries_all_sessions() {
    let store = SlowStore::default();
    let (ctx, clock) = context(&store, Durability::Effects, Scripted::new());
    let (a, b) = (open(&ctx, "a"), open(&ctx, "b"));
    advance(&ctx, &clock, WINDOW);
    let before = store.appends().len();
    note(&a);
    for _ in 0..3 {
        advance(&ctx, &clock, WINDOW / 4);
        note(&a);
        note(&b);
    }
    assert_eq!(store.appends().len(), before, "the window is open");
    advance(&ctx, &clock, WINDOW / 4);
    let round = store.appends().split_off(before);
    assert_eq!(round, [("a".into(), 4), ("b".into(), 3)], "in the order of their first events");
    advance(&ctx, &clock, WINDOW * 10);
    assert_eq!(store.appends().len(), before + 2, "nothing to write, no round");
}

#[test]
fn pco_05_a_session_whose_store_is_slow_holds_no_other_up() {
    let store = SlowStore::default();
    let (ctx, _clock) = context(&store, Durability::Effects, Scripted::new().text("one").text("two"));
    let (slow, fast) = (open(&ctx, "slow"), open(&ctx, "fast"));
    store.hold("slow");
    slow.followup(prompt("q1")).expect("accepted");
    fast.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert_eq!(end_of(&fast), Some(TurnEndReason::Completed));
    assert_eq!(end_of(&slow), None, "its request waits for its log");
    store.release("slow");
    settle(&ctx);
    assert_eq!(end_of(&slow), Some(TurnEndReason::Completed));
}

#[test]
fn wb_02_what_arrives_during_a_write_is_the_next_batch() {
    let store = SlowStore::default();
    let (ctx, _clock) = context(&store, Durability::EveryEvent, Scripted::new());
    let agent = open(&ctx, "a");
    settle(&ctx);
    store.hold("a");
    let before = store.appends().len();
    (0..5).for_each(|_| note(&agent));
    settle(&ctx);
    assert_eq!(store.appends()[before..], [("a".into(), 1)]);
    store.release("a");
    settle(&ctx);
    // No window: the policy wants every event written at once, and the clock stands still.
    assert_eq!(store.appends()[before..], [("a".into(), 1), ("a".into(), 4)]);
    assert_eq!(store.events("a"), agent.session().events_from(0));
}

#[test]
fn a_04_a_turn_that_ends_during_a_write_is_written_behind_it_without_a_window() {
    let store = SlowStore::default();
    let (ctx, clock) = context(&store, Durability::Turn, Scripted::new().text("one"));
    let agent = open(&ctx, "a");
    advance(&ctx, &clock, WINDOW);
    store.hold("a");
    note(&agent);
    advance(&ctx, &clock, WINDOW);
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(end_of(&agent), Some(TurnEndReason::Completed), "nothing of it waits for the store");
    assert!(unstored(&agent, &store, "a") > 1, "the write under way has the note only");
    store.release("a");
    settle(&ctx);
    assert_eq!(store.events("a"), agent.session().events_from(0));
}

#[test]
fn a_04_a_failing_disk_is_reported_once_retried_ever_less_often_and_loses_nothing() {
    let store = SlowStore::default();
    let (ctx, clock) = context(&store, Durability::Effects, Scripted::new().text("one"));
    let reports = Rc::new(RefCell::new(Vec::new()));
    let heard = reports.clone();
    ctx.on(NoticeKind::Error, move |notice| {
        let Notice::Error { error, .. } = notice else { return Ok(()) };
        heard.borrow_mut().push(error.code().clone());
        Ok(())
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    advance(&ctx, &clock, WINDOW);
    store.fail("a");
    note(&agent);
    let before = store.attempts();
    advance(&ctx, &clock, WINDOW);
    assert_eq!(*reports.borrow(), [Code::StoreFailed]);
    for (seconds, attempts) in [(1, 2), (2, 3), (4, 4), (8, 5), (16, 6), (32, 7), (64, 8), (64, 9)] {
        advance(&ctx, &clock, Duration::from_secs(seconds) - Duration::from_millis(1));
        assert_eq!(store.attempts() - before, attempts - 1, "{seconds} s are not over");
        advance(&ctx, &clock, Duration::from_millis(1));
        assert_eq!(store.attempts() - before, attempts);
    }
    note(&agent);
    advance(&ctx, &clock, WINDOW);
    assert_eq!(store.attempts() - before, 10, "an event tries again as well (WB-04)");
    assert_eq!(reports.borrow().len(), 1, "once");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert!(matches!(end_of(&agent), Some(TurnEndReason::Error(failure)) if failure.code == "STORE_FAILED"));
    assert_eq!(agent.session().events_from(0).iter().filter(|event| event.kind() == "assistant/chunk").count(), 0);
    store.mend("a");
    advance(&ctx, &clock, Duration::from_secs(64));
    assert_eq!(store.events("a"), agent.session().events_from(0), "nothing lost, nothing twice, in order");
    agent.wake().expect("awake");
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert_eq!(end_of(&agent), Some(TurnEndReason::Completed));
    let reported = reports.borrow().len();
    store.fail("a");
    note(&agent);
    advance(&ctx, &clock, WINDOW);
    assert_eq!(reports.borrow().len(), reported + 1, "the next failure is news again");
}

/// An answer of so many fragments, made as it is read; counts what was read.
struct Flood {
    fragments: usize,
    read: Rc<Cell<usize>>,
}

impl Adapter for Flood {
    fn stream(&self, _request: ModelRequest) -> ChunkStream {
        let (mut left, read) = (self.fragments, self.read.clone());
        Box::pin(Stream(move || {
            read.set(read.get() + 1);
            left = left.checked_sub(1)?;
            Some(Ok(if left == 0 { agents::stop() } else { agents::text(0, "fragment") }))
        }))
    }
}

/// A stream that is always ready.
struct Stream<F>(F);

impl<F: FnMut() -> Option<turnwheel::Result<Chunk>> + Unpin> futures_core::Stream for Stream<F> {
    type Item = turnwheel::Result<Chunk>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready((self.0)())
    }
}

#[test]
fn case_145_a_stream_that_outruns_its_store_waits_for_it_under_every_policy() {
    for durability in [Durability::Effects, Durability::Turn, Durability::Relaxed] {
        let store = SlowStore::default();
        let read = Rc::new(Cell::new(0));
        let (ctx, clock) = context(&store, durability, Flood { fragments: 50_000, read: read.clone() });
        let agent = open(&ctx, "a");
        advance(&ctx, &clock, WINDOW);
        agent.followup(prompt("q1")).expect("accepted");
        let mut rounds = 0;
        store.hold("a");
        while end_of(&agent).is_none() || unstored(&agent, &store, "a") > 0 {
            advance(&ctx, &clock, WINDOW);
            assert!(unstored(&agent, &store, "a") <= BOUND, "{durability:?}: {}", unstored(&agent, &store, "a"));
            store.release("a");
            store.hold("a");
            rounds += 1;
        }
        assert!(rounds >= 50_000 / BOUND, "{durability:?}: {rounds}");
        assert_eq!(end_of(&agent), Some(TurnEndReason::Completed));
    }
}

#[test]
fn case_145_big_events_fill_a_queue_by_their_bytes() {
    let store = SlowStore::default();
    let (ctx, clock) = context(
        &store,
        Durability::Relaxed,
        Scripted::new().calls([("c1", "big", "{}"), ("c2", "big", "{}"), ("c3", "big", "{}")]).text("done"),
    );
    let started = Rc::new(Cell::new(0));
    let counted = started.clone();
    ctx.tools()
        .register(Tool::new("big", move |_| {
            counted.set(counted.get() + 1);
            async { Ok(ToolOutput::value("x".repeat(5 << 20))) }
        }))
        .expect("registered");
    let agent = open(&ctx, "a");
    advance(&ctx, &clock, WINDOW);
    store.hold("a");
    agent.followup(prompt("q1")).expect("accepted");
    advance(&ctx, &clock, WINDOW);
    assert_eq!(started.get(), 2, "the third waits until ten megabytes are stored");
    store.release("a");
    settle(&ctx);
    assert_eq!(started.get(), 3);
    assert_eq!(end_of(&agent), Some(TurnEndReason::Completed));
}

#[test]
fn a_cancel_ends_the_wait_for_a_store_that_hangs() {
    let store = SlowStore::default();
    let read = Rc::new(Cell::new(0));
    let (ctx, clock) = context(&store, Durability::Relaxed, Flood { fragments: 50_000, read: read.clone() });
    let agent = open(&ctx, "a");
    advance(&ctx, &clock, WINDOW);
    store.hold("a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    let taken = read.get();
    assert!(taken < 10_000 && end_of(&agent).is_none());
    agent.cancel(CancelCause::User);
    settle(&ctx);
    assert!(matches!(end_of(&agent), Some(TurnEndReason::Aborted(_))), "{:?}", end_of(&agent));
    assert_eq!(read.get(), taken);
}

#[test]
fn a_full_queue_before_a_failing_disk_ends_the_turn_under_the_policy_that_waits_for_nothing() {
    let store = SlowStore::default();
    let read = Rc::new(Cell::new(0));
    let (ctx, clock) = context(&store, Durability::Relaxed, Flood { fragments: 50_000, read: read.clone() });
    let agent = open(&ctx, "a");
    advance(&ctx, &clock, WINDOW);
    store.fail("a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert!(matches!(end_of(&agent), Some(TurnEndReason::Error(failure)) if failure.code == "STORE_FAILED"));
    assert!(unstored(&agent, &store, "a") <= BOUND);
    store.mend("a");
    ctx.runtime().block_on(agent.flush()).expect("stored");
    assert_eq!(store.events("a"), agent.session().events_from(0));
}
