//! Agents from other threads.

use turnwheel::agent::AgentRef;
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::session::TurnEndReason;
use turnwheel::{Code, Context, EventData};

fn is_send<T: Send + Sync + Clone>(_: &T) {}

/// Drives a future of another thread.
fn wait<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

fn context() -> (Context, AgentRef) {
    let ctx = Context::new();
    ctx.llm().register("fake", Scripted::new().respond(|_| ScriptedReply::text("hi"))).expect("a new route");
    ctx.runtime().block_on(ctx.agent("a").provider("fake").model("m").open()).expect("opened");
    let agent = ctx.agent_ref("a");
    is_send(&agent);
    (ctx, agent)
}

#[test]
fn case_088_sends_from_many_threads_at_once_are_serialised_and_each_has_its_turn() {
    let (ctx, agent) = context();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let agent = agent.clone();
            std::thread::spawn(move || {
                (0..50).for_each(|_| {
                    let result = wait(agent.run("hello")).expect("ran");
                    assert_eq!((result.text.as_str(), result.reason), ("hi", TurnEndReason::Completed));
                });
            })
        })
        .collect();
    let (done, all) = tokio::sync::oneshot::channel();
    let joiner = std::thread::spawn(move || {
        let ok = threads.into_iter().all(|thread| thread.join().is_ok());
        done.send(ok).ok();
    });
    assert_eq!(ctx.runtime().block_on(all), Ok(true));
    assert!(joiner.join().is_ok());
    let agent = ctx.find_agent("a").expect("live");
    let events = agent.session().events_from(0);
    let turns = events.iter().filter(|event| matches!(event.data, EventData::TurnEnd { .. })).count();
    assert_eq!((turns, agent.session().history().len()), (400, 800));
}

#[test]
fn an_agent_that_is_gone_and_a_runtime_that_is_gone_are_named() {
    let (ctx, agent) = context();
    ctx.runtime().block_on(ctx.find_agent("a").expect("live").dispose());
    let error = ctx.runtime().block_on(agent.followup("late")).expect_err("gone");
    assert_eq!(error.code(), &Code::SessionNotFound);
    ctx.runtime().close();
    let error = wait(agent.followup("later")).expect_err("gone");
    assert_eq!(error.code(), &Code::RuntimeClosed);
}
