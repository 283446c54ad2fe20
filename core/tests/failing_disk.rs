//! Stores on a disk that is full or broken, down to the system calls: they pause, report once, retry ever less often, lose
//! nothing, and no effect happens before its intent is stored.
#![cfg(all(target_os = "linux", target_env = "gnu", feature = "sqlite"))]

#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/agents.rs"]
mod agents;
#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/failing_disk.rs"]
mod failing_disk;

use agents::{open, prompt, results};
use failing_disk::{Disk, EIO, ENOSPC};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use turnwheel::llm::adapters::Scripted;
use turnwheel::runtime::{ManualClock, Ports, PumpState, background_operations};
use turnwheel::session::TurnEndReason;
use turnwheel::storage::Store;
use turnwheel::storage::jsonl::{Compression, JsonlOptions, JsonlStore};
use turnwheel::storage::sqlite::SqliteStore;
use turnwheel::{Agent, Code, Context, Notice, NoticeKind, Tool, ToolOutput};

const WINDOW: Duration = Duration::from_millis(200);

type Fault = fn(&Disk);

const STORES: [&str; 3] = ["sqlite", "jsonl", "zstd"];

/// Ways for a disk to fail. A full one takes nothing, a part of a page, or some pages.
const FAULTS: [Fault; 5] = [
    |disk| disk.fail_writes(ENOSPC, 0),
    |disk| disk.fail_writes(ENOSPC, 100),
    |disk| disk.fail_writes(ENOSPC, 10_000),
    |disk| disk.fail_writes(EIO, 0),
    |disk| disk.fail_syncs(EIO),
];

fn store(kind: &str, root: &Path) -> Rc<dyn Store> {
    let jsonl = |compression| JsonlStore::new(JsonlOptions::new(root.join(kind)).compression(compression));
    match kind {
        "sqlite" => Rc::new(SqliteStore::new(root.join("sessions.db"))),
        "jsonl" => Rc::new(jsonl(Compression::None)),
        _ => Rc::new(jsonl(Compression::Zstd)),
    }
}

/// Every store with every fault, each in a directory of its own.
fn everywhere(disk: &Disk, play: impl Fn(&str, &Path, Fault)) {
    for kind in STORES {
        for (number, fault) in FAULTS.iter().enumerate() {
            println!("{kind} with fault {number}");
            let root = disk.root().join(format!("{kind}-{number}"));
            std::fs::create_dir(&root).expect("a directory");
            play(kind, &root, *fault);
            disk.mend();
        }
    }
}

struct World {
    ctx: Context,
    clock: ManualClock,
    reports: Rc<RefCell<Vec<Code>>>,
}

impl World {
    fn new(store: Rc<dyn Store>, script: &Scripted) -> Self {
        let clock = ManualClock::new(1_000);
        let ports = Ports { clock: Rc::new(clock.clone()), ..Ports::default() };
        let ctx = Context::builder().store(store).ports(ports).build();
        ctx.llm().register("fake", script.clone()).expect("a new route");
        let reports = Rc::new(RefCell::new(Vec::new()));
        let heard = reports.clone();
        ctx.on(NoticeKind::Error, move |notice| {
            let Notice::Error { error, .. } = notice else { return Ok(()) };
            heard.borrow_mut().push(error.code().clone());
            Ok(())
        })
        .expect("registered");
        Self { ctx, clock, reports }
    }

    /// Runs until nothing is left to do but to wait for the clock.
    fn settle(&self) {
        loop {
            while self.ctx.runtime().pump() != PumpState::Idle {}
            if background_operations() == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.settle();
    }

    fn prompt(&self, agent: &Agent, id: &str) {
        agent.followup(prompt(id)).expect("accepted");
        self.settle();
    }
}

fn live(agent: &Agent) -> Vec<String> {
    agent.session().events_from(0).iter().map(|event| event.json().to_owned()).collect()
}

/// What a store that knows nothing of the failures finds.
fn stored(world: &World, kind: &str, root: &Path, id: &str) -> Vec<String> {
    let log = world.ctx.runtime().block_on(store(kind, root).read(&id.into()));
    let log = log.unwrap_or_else(|error| panic!("{error:?}"));
    log.map_or(Vec::new(), |log| log.events.iter().map(|event| event.json().to_owned()).collect())
}

/// More text than the room that a fault leaves, also compressed.
fn filler() -> String {
    let mut state = 1u32;
    let letters = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + (state >> 24) as u8 % 26)
    });
    letters.take(40_000).collect()
}

fn ended_by_the_store(agent: &Agent) -> bool {
    matches!(agents::turn_ends(agent).last(), Some(TurnEndReason::Error(failure)) if failure.code == "STORE_FAILED")
}

#[test]
fn a_04_a_failing_disk_pauses_is_reported_once_retried_ever_less_often_and_loses_nothing() {
    let Some(disk) =
        Disk::of_test("a_04_a_failing_disk_pauses_is_reported_once_retried_ever_less_often_and_loses_nothing")
    else {
        return;
    };
    everywhere(&disk, |kind, root, fail| {
        let script = Scripted::new().text("one").text("two").text("three");
        let world = World::new(store(kind, root), &script);
        let (agent, other) = (open(&world.ctx, "a"), open(&world.ctx, "b"));
        world.prompt(&agent, "q1");
        world.advance(WINDOW);
        let before = stored(&world, kind, root, "a");
        assert_eq!(before, live(&agent));
        fail(&disk);
        // Two sessions share their writes.
        for agent in [&agent, &other] {
            agent.session().append("note", turnwheel::json!({ "filler": filler() })).expect("appended");
        }
        world.advance(WINDOW);
        assert_eq!(*world.reports.borrow(), [Code::StoreFailed, Code::StoreFailed], "once a session");
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
            let failures = disk.failures();
            world.advance(Duration::from_secs(seconds) - Duration::from_millis(1));
            assert_eq!(disk.failures(), failures, "{seconds} s are not over");
            world.advance(Duration::from_millis(1));
            assert!(disk.failures() > failures, "tried again after {seconds} s");
        }
        assert_eq!(world.reports.borrow().len(), 2, "and not again");
        world.prompt(&agent, "q2");
        assert!(ended_by_the_store(&agent), "{:?}", agents::turn_ends(&agent));
        assert_eq!(script.request_count(), 1, "no request before its intent is stored");
        let kept = stored(&world, kind, root, "a");
        assert!(live(&agent).starts_with(&kept) && kept.len() >= before.len(), "what was stored stays readable");
        disk.mend();
        world.advance(Duration::from_secs(64));
        assert_eq!(stored(&world, kind, root, "a"), live(&agent), "nothing lost, nothing twice, in order");
        assert_eq!(stored(&world, kind, root, "b"), live(&other));
        agent.wake().expect("awake");
        world.prompt(&agent, "q3");
        assert_eq!(agents::turn_ends(&agent).last(), Some(&TurnEndReason::Completed));
        world.ctx.runtime().block_on(world.ctx.close()).expect("everything is stored");
        assert_eq!(stored(&world, kind, root, "a"), live(&agent));
    });
}

#[test]
fn a_04_no_tool_body_starts_while_the_disk_fails() {
    let Some(disk) = Disk::of_test("a_04_no_tool_body_starts_while_the_disk_fails") else { return };
    everywhere(&disk, |kind, root, fail| {
        let script = Scripted::new().calls([("c1", "pay", "{}"), ("c2", "pay", "{}")]).text("after");
        let world = World::new(store(kind, root), &script);
        let agent = open(&world.ctx, "a");
        let paid = Rc::new(Cell::new(0));
        let (paying, failing) = (paid.clone(), disk.clone());
        // While the first call runs, the disk begins to fail: its result is stored with the second call's intent.
        let tool = Tool::new("pay", move |_| {
            paying.set(paying.get() + 1);
            fail(&failing);
            async { Ok(ToolOutput::value(filler())) }
        });
        world.ctx.tools().register(tool).expect("registered");
        world.prompt(&agent, "q1");
        assert_eq!(paid.get(), 1, "the second call's intent could not be stored");
        let found: Vec<_> = results(&agent).into_iter().map(|(id, code)| format!("{id} {code}")).collect();
        assert_eq!(found, ["c1 -", "c2 TOOL_SCHEDULER_FAILED"], "every call has a result (P2, D-11)");
        assert_eq!(script.request_count(), 1);
        disk.mend();
        world.advance(Duration::from_secs(1));
        assert_eq!(stored(&world, kind, root, "a"), live(&agent));
        world.prompt(&agent, "q2");
        assert_eq!(agents::turn_ends(&agent).last(), Some(&TurnEndReason::Completed));
        assert_eq!((script.request_count(), paid.get()), (2, 1));
    });
}

#[test]
fn a_04_a_session_that_begins_on_a_failing_disk_is_stored_once_it_works() {
    let Some(disk) = Disk::of_test("a_04_a_session_that_begins_on_a_failing_disk_is_stored_once_it_works") else {
        return;
    };
    everywhere(&disk, |kind, root, fail| {
        let script = Scripted::new().text("one").text("two");
        let world = World::new(store(kind, root), &script);
        fail(&disk);
        let agent = open(&world.ctx, "a");
        agent.session().append("note", turnwheel::json!({ "filler": filler() })).expect("appended");
        world.prompt(&agent, "q1");
        assert!(ended_by_the_store(&agent), "{:?}", agents::turn_ends(&agent));
        assert_eq!(script.request_count(), 0);
        disk.mend();
        world.advance(Duration::from_secs(1));
        assert_eq!(stored(&world, kind, root, "a"), live(&agent));
        world.prompt(&agent, "q2");
        assert_eq!(agents::turn_ends(&agent).last(), Some(&TurnEndReason::Completed));
    });
}

#[test]
fn a_disk_that_cannot_be_read_refuses_by_name_and_serves_again() {
    let Some(disk) = Disk::of_test("a_disk_that_cannot_be_read_refuses_by_name_and_serves_again") else { return };
    for kind in STORES {
        let script = Scripted::new().text("one");
        let world = World::new(store(kind, disk.root()), &script);
        let agent = open(&world.ctx, "a");
        world.prompt(&agent, "q1");
        world.ctx.runtime().block_on(world.ctx.close()).expect("stored");
        let whole = live(&agent);
        disk.fail_reads(EIO);
        let fresh = store(kind, disk.root());
        let error = world.ctx.runtime().block_on(fresh.read(&"a".into())).expect_err("unreadable");
        assert_eq!(error.code(), &Code::StoreFailed, "{kind}: not to be taken for damage: {error:?}");
        disk.mend();
        let log = world.ctx.runtime().block_on(fresh.read(&"a".into())).expect("readable").expect("there");
        assert_eq!(log.events.iter().map(|event| event.json().to_owned()).collect::<Vec<_>>(), whole, "{kind}");
    }
}
