//! The ambient initiator: agent.md section 15. Named after the ids.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{hello, open, release, settle};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use turnwheel::llm::adapters::Scripted;
use turnwheel::runtime::{Signal, yield_now};
use turnwheel::{Agent, Code, Context, Tool, ToolOutput};

fn now(ctx: &Context) -> Option<String> {
    ctx.initiator().expect("the context is open").map(|agent| agent.id().to_string())
}

#[test]
fn ini_1_to_5_boundaries_nest_restore_and_follow_their_own_operation_only() {
    let ctx = agents::context(hello());
    let (a, b) = (open(&ctx, "a"), open(&ctx, "b"));
    assert_eq!(now(&ctx), None);
    assert_eq!(ctx.require_initiator().expect_err("none").code(), &Code::NoInitiator);
    let value = ctx.with_initiator(&a, || {
        assert_eq!(ctx.require_initiator().expect("there"), a, "the exact agent");
        ctx.with_initiator(&b, || assert_eq!(now(&ctx).as_deref(), Some("b"))).expect("open");
        ctx.without_initiator(|| assert_eq!(now(&ctx), None)).expect("open");
        assert_eq!(now(&ctx).as_deref(), Some("a"));
        7
    });
    assert_eq!((value.expect("open"), now(&ctx)), (7, None));
    let panicking = std::panic::AssertUnwindSafe(|| ctx.with_initiator(&a, || panic!("planned panic")));
    assert!(std::panic::catch_unwind(panicking).is_err());
    assert_eq!(now(&ctx), None, "restored on failure too");
    let log: Rc<RefCell<Vec<Option<String>>>> = Rc::default();
    for agent in [Some(&a), Some(&b), None] {
        let (looking, seen) = (ctx.clone(), log.clone());
        let operation = async move {
            for _ in 0..2 {
                seen.borrow_mut().push(now(&looking));
                yield_now().await;
            }
        };
        ctx.runtime().spawn(ctx.initiate(agent, operation).expect("open"));
    }
    settle(&ctx);
    let ids = |id: &str| Some(id.to_owned());
    assert_eq!(*log.borrow(), [ids("a"), ids("b"), None, ids("a"), ids("b"), None], "overlapping ones are isolated");
    assert_eq!(now(&ctx), None);
}

#[test]
fn ini_6_7_and_14_a_driver_runs_in_its_own_boundary_and_a_creation_in_its_creators() {
    let ctx = agents::context(Scripted::new().calls([("c1", "delegate", "{}")]).text("child's").text("parent's"));
    let seen: Rc<RefCell<Vec<String>>> = Rc::default();
    let (log, looking) = (seen.clone(), ctx.clone());
    let tool = Tool::new("delegate", move |_| {
        let (log, ctx) = (log.clone(), looking.clone());
        async move {
            let note = |what: &str| log.borrow_mut().push(format!("{what} {}", now(&ctx).unwrap_or_default()));
            note("tool");
            let (inner, composing) = (log.clone(), ctx.clone());
            let builder = ctx.agent("child").provider("fake").model("m").setup(move |own| async move {
                let named = own.own_agent().expect("its own context names it").id().to_string();
                inner.borrow_mut().push(format!("setup of {named} by {}", now(&composing).unwrap_or_default()));
                let (log, looking) = (inner.clone(), composing.clone());
                own.waterfall::<turnwheel::agent::PreStep, _>(move |_, next| {
                    log.borrow_mut().push(format!("child's turn {}", now(&looking).unwrap_or_default()));
                    async move { next.call().await }
                })?;
                Ok(())
            });
            let child = builder.create().await?;
            child.agent().followup("go")?;
            note("after waking");
            child.agent().when_idle().await?;
            note("after waiting");
            Ok(ToolOutput::value("done"))
        }
    });
    ctx.tools().register(tool).expect("registered");
    let parent = open(&ctx, "parent");
    parent.followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!(
        *seen.borrow(),
        [
            "tool parent",
            "setup of child by parent",
            "after waking parent",
            "child's turn child",
            "after waiting parent",
        ]
    );
    assert_eq!(now(&ctx), None);
}

#[test]
fn ini_8_an_initiator_says_nothing_about_being_alive() {
    let ctx = agents::context(hello());
    let agent = open(&ctx, "a");
    ctx.runtime().block_on(agent.dispose());
    let seen = ctx.with_initiator(&agent, || ctx.initiator()).expect("open").expect("readable");
    assert!(seen.is_some_and(|agent| agent.is_disposed()));
}

#[test]
fn ini_9_to_13_a_close_refuses_new_boundaries_and_waits_for_open_ones_but_not_for_its_own() {
    let ctx = agents::context(hello());
    let agent: Agent = open(&ctx, "a");
    let (gate, states) = (Signal::new(), Rc::new(RefCell::new(Vec::new())));
    let (opened, log, inside) = (gate.clone(), states.clone(), ctx.clone());
    let unrelated = async move {
        opened.cancelled().await;
        let reads = inside.initiator().is_ok();
        let opens = inside.without_initiator(|| ()).is_ok();
        log.borrow_mut().push((reads, opens));
    };
    ctx.runtime().spawn(ctx.initiate(Some(&agent), unrelated).expect("open"));
    drop(ctx.initiate(None, async {}).expect("one that is dropped is released at once"));
    let failing = ctx.initiate(None, async { Err::<(), _>("failed") }).expect("open");
    ctx.runtime().block_on(failing).expect_err("a failed one too");
    let (closing, closed) = (ctx.clone(), Rc::new(Cell::new(false)));
    let flag = closed.clone();
    let inner = ctx.clone();
    let own_chain = async move {
        let close = async move {
            closing.close().await.expect("closed");
            flag.set(true);
        };
        inner.initiate(None, close).expect("open").await;
    };
    ctx.runtime().spawn(ctx.initiate(Some(&agent), own_chain).expect("open"));
    settle(&ctx);
    assert!(!closed.get(), "the unrelated boundary is waited for");
    release(&gate);
    settle(&ctx);
    assert!(closed.get(), "the chain that closes is not");
    assert_eq!(*states.borrow(), [(true, false)], "while closing, reads answer and new boundaries are refused");
    let refused = [
        ctx.initiator().map(drop),
        ctx.require_initiator().map(drop),
        ctx.with_initiator(&agent, || ()),
        ctx.without_initiator(|| ()),
        ctx.initiate(None, async {}).map(drop),
    ];
    for refusal in refused {
        assert_eq!(refusal.expect_err("closed").code(), &Code::RuntimeClosed);
    }
    assert!(ctx.reopen().expect("reusable").initiator().is_ok());
}
