//! A closed handle frees everything.

use std::rc::Rc;
use turnwheel::llm::adapters::Scripted;
use turnwheel::llm::{Chunk, FinishReason};
use turnwheel::{Context, NoticeKind, Tool, ToolOutput};

fn resident_kib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux shows a process its memory");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("the second field is a count");
    pages * 4
}

fn rounds(ctx: &Context, count: usize) {
    for _ in 0..count {
        let agent = ctx.agent("one").provider("fake").model("m").setup(|own| async move {
            own.on(NoticeKind::SessionEvent, |_| Ok(()))?;
            own.tools().register(Tool::new("noop", |_| async { Ok(ToolOutput::value("")) }))?;
            Ok(())
        });
        let agent = ctx.runtime().block_on(agent.open()).expect("the id is free again after each round");
        agent.followup("hello").expect("accepted");
        ctx.runtime().block_on(agent.when_idle()).expect("idle");
        assert!(agent.session().len() > 5);
        ctx.runtime().block_on(agent.dispose());
    }
}

#[test]
fn ten_thousand_agents_created_run_and_disposed_leave_nothing() {
    let ctx = Context::new();
    let chunks = vec![
        Chunk::TextDelta { index: 0, text: "hi".into() },
        Chunk::Finish { reason: FinishReason::Stop, replay_state: None },
    ];
    ctx.llm().register("fake", Scripted::repeat(chunks)).expect("a new route");
    rounds(&ctx, 1_000);
    let before = resident_kib();
    rounds(&ctx, 10_000);
    let after = resident_kib();
    assert!(after < before + 1_024, "{before} KiB grew to {after} KiB");
    assert_eq!(ctx.runtime().task_count(), 0);
    assert!(ctx.agents().is_empty());
}

#[test]
fn a_runtime_that_ends_without_waiting_leaves_nothing() {
    let held = Rc::new(());
    let left = Rc::downgrade(&held);
    {
        let ctx = Context::new();
        ctx.llm().register("fake", Scripted::new()).expect("a new route");
        let listener = move |_: &_| {
            let _kept = &held;
            Ok(())
        };
        ctx.on(NoticeKind::SessionEvent, listener).expect("registered");
        let agent = ctx.runtime().block_on(ctx.agent("one").provider("fake").model("m").open()).expect("opened");
        // What never ends is what closing would wait for.
        let never = agent.run_maintenance(|_| std::future::pending::<turnwheel::Result<()>>()).expect("begun");
        let closing = ctx.clone();
        ctx.runtime().spawn(async move { drop(closing.close().await) });
        while ctx.runtime().pump() == turnwheel::runtime::PumpState::More {}
        drop(never);
        ctx.runtime().close();
        ctx.abandon();
    }
    assert!(left.upgrade().is_none(), "the agent and its root hold each other");
}
