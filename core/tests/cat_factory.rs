//! Creation, publication and disposal: agent.md sections 14 and 23. Named after the ids.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;
#[path = "support/memory_store.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod memory_store;
#[path = "support/still.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod still;

use agents::{Log, ends, gated, hello, kinds, lines, noop, on_first, open, pending, prompt, record, release, settle};
use memory_store::MemoryStore;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use still::Still;
use turnwheel::agent::{AgentHandle, CreateOptions, Publication, ResumeOptions, SetupCommit, StartSource};
use turnwheel::runtime::Signal;
use turnwheel::session::InboxTarget;
use turnwheel::{Agent, CancelCause, Code, Context, Error, Notice, NoticeKind, Result};

/// What became of an operation that runs by itself.
type Outcome = Rc<RefCell<Option<Result<Agent>>>>;

fn start(ctx: &Context, operation: impl Future<Output = Result<AgentHandle>> + 'static) -> Outcome {
    let outcome = Outcome::default();
    let done = outcome.clone();
    ctx.runtime().spawn(async move {
        let opened = operation.await.map(|handle| handle.agent().clone());
        *done.borrow_mut() = Some(opened);
    });
    outcome
}

fn failure(outcome: &Outcome) -> (Code, String) {
    let outcome = outcome.borrow();
    let error = outcome.as_ref().expect("it is over").as_ref().expect_err("it failed");
    (error.code().clone(), error.message().to_owned())
}

fn with_setup<F: Future<Output = Result<Option<SetupCommit>>> + 'static>(
    id: &str,
    setup: impl FnOnce(Context) -> F + 'static,
) -> CreateOptions {
    let mut options = CreateOptions::new(id.into());
    options.agent.provider = Some("fake".into());
    options.agent.model = Some("m".into());
    options.setup = Some(Box::new(move |ctx| Box::pin(setup(ctx))));
    options
}

fn resumption(id: &str) -> ResumeOptions {
    ResumeOptions { id: id.into(), agent: Default::default(), setup: None, signal: None, log: None }
}

fn on_store(store: &MemoryStore) -> Context {
    let ctx = Context::builder().store(store.clone()).build();
    ctx.llm().register("fake", hello()).expect("a new route");
    ctx
}

fn note(log: &Log, what: &str) {
    log.borrow_mut().push(what.to_owned());
}

#[test]
fn fac_1_one_factory_at_a_time_and_none_without_one() {
    let ctx = Context::builder().without_loop().build();
    let create = |ctx: &Context| ctx.runtime().block_on(ctx.registry().create(CreateOptions::new("a".into())));
    assert_eq!(create(&ctx).expect_err("no factory").code(), &Code::NoFactory);
    let resumed = ctx.runtime().block_on(ctx.registry().resume(resumption("a")));
    assert_eq!(resumed.expect_err("no factory").code(), &Code::NoFactory);
    let never = || Rc::new(Publication::new(|_| unreachable!("nothing is made")));
    let owner = ctx.new_scope().expect("a scope");
    owner.ctx().registry().set_factory(never()).expect("the slot is free");
    assert_eq!(ctx.registry().set_factory(never()).expect_err("taken").code(), &Code::DuplicateName);
    ctx.runtime().block_on(owner.dispose());
    ctx.registry().set_factory(never()).expect("the slot cleared with its owner");
}

#[test]
fn fac_3_to_6_and_8_a_creation_goes_through_its_stages_in_order() {
    let ctx = agents::context(hello());
    let log = record(&ctx);
    let (composing, committing, looking) = (log.clone(), log.clone(), ctx.clone());
    let options = with_setup("a", move |own| async move {
        note(&composing, "setup");
        assert!(looking.find_agent("a").is_none() && looking.root().session("a").is_none(), "both ids are invisible");
        for kind in [NoticeKind::SessionCreated, NoticeKind::Created, NoticeKind::SessionStart] {
            let (heard, looking) = (composing.clone(), looking.clone());
            own.on(kind, move |notice| {
                let findable = looking.find_agent("a").is_some();
                heard.borrow_mut().push(format!("own {} {findable}", notice.kind().as_str()));
                Ok(())
            })?;
        }
        let commit: SetupCommit = Box::new(move || {
            note(&committing, "commit");
            assert!(looking.find_agent("a").is_none());
            Ok(())
        });
        Ok(Some(commit))
    });
    let handle = ctx.runtime().block_on(ctx.registry().create(options)).expect("created");
    assert_eq!(
        *log.borrow(),
        [
            "setup",
            "commit",
            "session/created",
            "own session/created true",
            "agent/created",
            "own agent/created true",
            "agent/session-start",
            "own agent/session-start true",
        ]
    );
    assert_eq!(ctx.find_agent("a").as_ref(), Some(handle.agent()));
}

#[test]
fn fac_4_and_24_an_owner_that_goes_away_during_setup_ends_the_creation_and_says_so() {
    let ctx = agents::context(hello());
    let owner = ctx.new_scope().expect("a scope");
    let undone = Rc::new(Cell::new(false));
    let flag = undone.clone();
    let options = with_setup("a", move |own| async move {
        own.effect(move || flag.set(true))?;
        std::future::pending().await
    });
    let outcome = start(&ctx, {
        let registry = owner.ctx().registry();
        async move { registry.create(options).await }
    });
    settle(&ctx);
    assert!(outcome.borrow().is_none(), "setup never settles by itself");
    ctx.runtime().block_on(owner.dispose());
    assert!(undone.get(), "the unload waits for the private scope");
    settle(&ctx);
    let (code, message) = failure(&outcome);
    assert_eq!(code, Code::InactiveEffect);
    assert!(message.contains("owns agent \"a\""), "{message}");
    open(&ctx, "a");
}

#[test]
fn fac_6_and_12_a_failing_commit_rolls_back_and_its_error_comes_out_unchanged() {
    let ctx = agents::context(hello());
    let log = record(&ctx);
    let undone = Rc::new(Cell::new(false));
    let flag = undone.clone();
    let options = with_setup("a", move |own| async move {
        own.effect(move || flag.set(true))?;
        let commit: SetupCommit = Box::new(|| Err(Error::coded("Late", "LATE", "cannot commit")));
        Ok(Some(commit))
    });
    let error = ctx.runtime().block_on(ctx.registry().create(options)).expect_err("failed");
    assert_eq!((error.code().as_str(), error.message()), ("LATE", "cannot commit"));
    assert!(undone.get(), "the rollback is over when the error comes out");
    assert!(log.borrow().is_empty(), "nobody heard of it");
}

#[test]
fn fac_7_and_16_a_signal_ends_a_setup_that_never_settles_and_means_nothing_afterwards() {
    let ctx = agents::context(hello());
    let stuck = with_setup("stuck", |_| std::future::pending());
    let signal = Signal::new();
    let outcome = start(&ctx, {
        let registry = ctx.registry();
        let options = CreateOptions { signal: Some(signal.clone()), ..stuck };
        async move { registry.create(options).await }
    });
    signal.cancel(CancelCause::Hook("too slow".into()));
    settle(&ctx);
    assert_eq!(failure(&outcome).0, Code::Aborted);
    let own = Signal::new();
    let inner = own.clone();
    let options = with_setup("suicidal", move |_| async move {
        inner.cancel(CancelCause::User);
        Ok(None)
    });
    let options = CreateOptions { signal: Some(own), ..options };
    let error = ctx.runtime().block_on(ctx.registry().create(options)).expect_err("cancelled by its own setup");
    assert_eq!(error.code(), &Code::Aborted);
    let late = Signal::new();
    let options = CreateOptions { signal: Some(late.clone()), ..CreateOptions::new("kept".into()) };
    let handle = ctx.runtime().block_on(ctx.registry().create(options)).expect("created");
    late.cancel(CancelCause::User);
    settle(&ctx);
    assert!(!handle.agent().is_disposed());
}

#[test]
fn fac_9_creations_start_up_and_loads_resume_and_their_listeners_cannot_veto() {
    let store = MemoryStore::default();
    let ctx = on_store(&store);
    let sources: Rc<RefCell<Vec<StartSource>>> = Rc::default();
    let heard = sources.clone();
    ctx.on(NoticeKind::SessionStart, move |notice| {
        if let Notice::SessionStart { source, .. } = notice {
            heard.borrow_mut().push(*source);
        }
        Err(Error::host("no veto"))
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.inject(prompt("q1")).expect("accepted");
    ctx.runtime().block_on(agent.flush()).expect("stored");
    ctx.runtime().block_on(agent.dispose());
    ctx.runtime().block_on(ctx.agent("a").resume()).expect("resumed");
    assert_eq!(*sources.borrow(), [StartSource::Startup, StartSource::Resume]);
}

#[test]
fn fac_13_and_27_what_was_announced_is_paired_and_what_was_not_goes_in_silence() {
    for (kind, expected) in [
        (NoticeKind::SessionCreated, vec!["session/created", "session/disposed"]),
        (NoticeKind::Created, vec!["session/created", "agent/created", "agent/disposed", "session/disposed"]),
    ] {
        let ctx = agents::context(hello());
        let log = record(&ctx);
        let disposing = ctx.clone();
        ctx.on(kind, move |_| {
            // The future need not be awaited: the disposal is under way.
            drop(disposing.find_agent("a").expect("findable from the first announcement on").dispose());
            Ok(())
        })
        .expect("registered");
        let error =
            ctx.runtime().block_on(ctx.registry().create(CreateOptions::new("a".into()))).expect_err("disposed");
        assert_eq!(error.code(), &Code::Disposed);
        assert_eq!(*log.borrow(), expected, "disposed during {}", kind.as_str());
    }
}

#[test]
fn fac_15_of_two_creations_of_one_id_both_set_up_and_the_entry_decides() {
    let ctx = agents::context(hello());
    let gates = [Signal::new(), Signal::new()];
    let setups = Rc::new(Cell::new(0));
    let undone = Rc::new(Cell::new(0));
    let outcomes: Vec<_> = gates
        .iter()
        .map(|gate| {
            let (gate, setups, undone) = (gate.clone(), setups.clone(), undone.clone());
            let options = with_setup("a", move |own| async move {
                setups.set(setups.get() + 1);
                own.effect(move || undone.set(undone.get() + 1))?;
                gate.cancelled().await;
                Ok(None)
            });
            let registry = ctx.registry();
            start(&ctx, async move { registry.create(options).await })
        })
        .collect();
    assert_eq!(setups.get(), 2, "nothing is reserved before the entry");
    release(&gates[1]);
    settle(&ctx);
    let winner = outcomes[1].borrow().clone().expect("over").expect("created");
    release(&gates[0]);
    settle(&ctx);
    assert_eq!(failure(&outcomes[0]).0, Code::SessionAlreadyExists);
    assert_eq!(undone.get(), 1, "the loser is cleaned up");
    assert_eq!(ctx.find_agent("a").as_ref(), Some(&winner));
    winner.followup("hello").expect("the winner is unaffected");
    settle(&ctx);
    assert_eq!(ends(&winner), ["completed"]);
}

#[test]
fn fac_17_a_signal_that_has_fired_rejects_before_setup_and_store() {
    let store = MemoryStore::default();
    let ctx = on_store(&store);
    let fired = Signal::new();
    fired.cancel(CancelCause::User);
    let options = with_setup("a", |_| async { panic!("setup must not run") });
    let options = CreateOptions { signal: Some(fired.clone()), ..options };
    let error = ctx.runtime().block_on(ctx.registry().create(options)).expect_err("cancelled");
    assert_eq!(error.code(), &Code::Aborted);
    let options = ResumeOptions { signal: Some(fired), ..resumption("a") };
    let error = ctx.runtime().block_on(ctx.registry().resume(options)).expect_err("cancelled");
    assert_eq!(error.code(), &Code::Aborted);
    assert_eq!(store.0.openings.get(), 0);
}

#[test]
fn fac_18_19_and_d_16_an_agent_stops_leaves_loses_its_scope_and_then_its_session() {
    let ctx = agents::context(hello());
    let log = Log::default();
    let agent = open(&ctx, "a");
    let own = agent.ctx().expect("live");
    let (tool, _, gate) = gated("wait");
    own.tools().register(tool).expect("registered");
    for kind in [NoticeKind::Status, NoticeKind::Disposed, NoticeKind::SessionDisposed] {
        let heard = log.clone();
        own.on(kind, move |notice| {
            note(&heard, notice.kind().as_str());
            Ok(())
        })
        .expect("registered");
        let heard = log.clone();
        ctx.on(kind, move |notice| {
            heard.borrow_mut().push(format!("all {}", notice.kind().as_str()));
            Ok(())
        })
        .expect("registered");
    }
    let undoing = log.clone();
    own.effect(move || note(&undoing, "scope undone")).expect("registered");
    let again = (agent.dispose(), agent.dispose());
    ctx.runtime().block_on(async { (again.0.await, again.1.await) });
    release(&gate);
    assert_eq!(
        *log.borrow(),
        ["agent/disposed", "all agent/disposed", "scope undone", "all session/disposed"],
        "its own listeners hear its disposal (D-16); all callers share one teardown (FAC-21)"
    );
}

#[test]
fn fac_18_an_agent_leaves_also_when_its_turn_and_its_scope_end_badly() {
    let store = MemoryStore::default();
    let ctx = Context::builder().store(store.clone()).build();
    let hold = Signal::new();
    let script = agents::Played::new().reply([agents::Piece::Hold(hold.clone())]).say([agents::text(0, "again")]);
    ctx.llm().register("fake", script).expect("a new route");
    let log = record(&ctx);
    let agent = open(&ctx, "a");
    let own = agent.ctx().expect("live");
    let undone = Rc::new(Cell::new(false));
    let flag = undone.clone();
    own.effect(move || flag.set(true)).expect("registered");
    own.effect(|| panic!("planned: a cleanup that fails")).expect("registered");
    own.on(NoticeKind::Disposed, |_| Err(Error::host("planned: a listener that fails"))).expect("registered");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    log.borrow_mut().clear();
    let disposing = agent.dispose();
    release(&hold);
    ctx.runtime().block_on(disposing);
    assert!(undone.get(), "what was registered before the cleanup that failed is undone all the same");
    let order = lines(&log, &["status", "log turn/end", "agent/disposed", "session/disposed"]);
    assert_eq!(order, ["log turn/end", "status idle", "agent/disposed", "session/disposed"]);
    assert_eq!(store.0.writers.get(), 0, "the session is given up");
    assert!(ctx.find_agent("a").is_none() && ctx.root().session("a").is_none());
    let agent = open(&ctx, "a");
    agent.followup(prompt("q2")).expect("the id is free");
    settle(&ctx);
    assert_eq!(ends(&agent).last().map(String::as_str), Some("completed"));
}

#[test]
fn fac_24_the_first_reason_that_ends_a_creation_is_the_one_that_comes_out() {
    for owner_first in [true, false] {
        let ctx = agents::context(hello());
        let owner = ctx.new_scope().expect("a scope");
        let signal = Signal::new();
        let stuck = with_setup("a", |_| std::future::pending());
        let outcome = start(&ctx, {
            let registry = owner.ctx().registry();
            let options = CreateOptions { signal: Some(signal.clone()), ..stuck };
            async move { registry.create(options).await }
        });
        settle(&ctx);
        if owner_first {
            ctx.runtime().block_on(owner.dispose());
        }
        signal.cancel(CancelCause::Hook("too slow".into()));
        ctx.runtime().block_on(owner.dispose());
        ctx.runtime().block_on(ctx.close()).expect("closed");
        settle(&ctx);
        let expected = if owner_first { Code::InactiveEffect } else { Code::Aborted };
        assert_eq!(failure(&outcome).0, expected);
    }
}

#[test]
fn fac_20_and_scp_15_what_a_parent_made_ends_with_it_and_hears_nothing_of_it() {
    let ctx = agents::context(hello());
    let log = record(&ctx);
    let parent = open(&ctx, "parent");
    let own = parent.ctx().expect("live");
    own.tools().register(noop("of-parent")).expect("registered");
    let heard = Log::default();
    let listener = heard.clone();
    own.on(NoticeKind::Status, move |notice| {
        note(&listener, notice.agent().expect("an agent").id());
        Ok(())
    })
    .expect("registered");
    let child = open(&own, "child");
    assert!(child.ctx().expect("live").tools().schemas().is_empty(), "ownership is no scope parentage");
    child.followup("hello").expect("accepted");
    settle(&ctx);
    assert!(heard.borrow().is_empty());
    log.borrow_mut().clear();
    ctx.runtime().block_on(parent.dispose());
    assert!(ctx.agents().is_empty());
    // D-16: the parent leaves the registry before its scope, and with it the child, is disposed.
    let expected = ["agent/disposed", "agent/disposed", "session/disposed", "session/disposed"];
    assert_eq!(lines(&log, &["agent/", "session/"]), expected);
}

#[test]
fn fac_21_to_23_and_d_17_an_owner_that_unloads_joins_a_disposal_under_way() {
    let ctx = agents::context(agents::Played::new().say([
        turnwheel::llm::Chunk::ToolCallDelta {
            index: 0,
            id: Some("c1".into()),
            name: Some("wait".into()),
            arguments_delta: "{}".into(),
        },
        agents::finish(turnwheel::llm::FinishReason::ToolCalls),
    ]));
    let owner = ctx.new_scope().expect("a scope");
    let (tool, _, gate) = gated("wait");
    ctx.tools().register(tool).expect("registered");
    let agent = open(owner.ctx(), "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    let disposing = agent.dispose();
    let joined = Rc::new(Cell::new(false));
    let (flag, unloading) = (joined.clone(), owner.dispose());
    ctx.runtime().spawn(async move {
        unloading.await;
        flag.set(true);
    });
    settle(&ctx);
    assert!(!joined.get() && ctx.find_agent("a").is_some(), "both wait for the tool (FAC-30)");
    release(&gate);
    ctx.runtime().block_on(disposing);
    settle(&ctx);
    assert!(joined.get());
    let second = ctx.new_scope().expect("a scope");
    let other = open(second.ctx(), "b");
    ctx.runtime().block_on(other.dispose());
    let again = open(&ctx, "b");
    ctx.runtime().block_on(second.dispose());
    assert!(!again.is_disposed(), "a finished disposal left nothing with the owner");
}

#[test]
fn fac_25_and_38_a_factory_that_unloads_clears_its_slot_and_ends_everything_it_made() {
    let ctx = agents::context(hello());
    let built = open(&ctx, "live");
    let options = with_setup("pending", |_| std::future::pending());
    let outcome = start(&ctx, {
        let registry = ctx.registry();
        async move { registry.create(options).await }
    });
    settle(&ctx);
    let closing = ctx.clone();
    ctx.runtime().block_on(closing.close()).expect("closed");
    settle(&ctx);
    let (code, message) = failure(&outcome);
    assert_eq!(code, Code::NoFactory);
    assert!(message.contains("not active"), "{message}");
    assert!(built.is_disposed() && ctx.agents().is_empty());

    let ctx = Context::builder().without_loop().build();
    let gate = Signal::new();
    let opened = gate.clone();
    let slow = Publication::new(move |agent| Rc::new(Still(agent.clone(), Some(opened.clone()))));
    let slot = ctx.registry().set_factory(Rc::new(slow)).expect("free");
    let handle = ctx.runtime().block_on(ctx.registry().create(CreateOptions::new("a".into()))).expect("created");
    let unloading = slot.dispose().expect("an unload takes time");
    let refused = ctx.runtime().block_on(ctx.registry().create(CreateOptions::new("b".into())));
    assert_eq!(refused.expect_err("the slot is clear at once").code(), &Code::NoFactory);
    assert!(ctx.find_agent("a").is_some(), "while the old agent drains");
    assert!(handle.agent().is_disposed());
    release(&gate);
    ctx.runtime().block_on(unloading);
    assert!(ctx.find_agent("a").is_none());
}

#[test]
fn fac_26_a_disposal_asked_for_by_a_listener_cancels_at_once_and_removes_when_the_call_has_unwound() {
    let ctx = agents::context(hello());
    let log = record(&ctx);
    let seen = Log::default();
    on_first(&ctx, NoticeKind::SessionStart, |agent| drop(agent.dispose()));
    let (heard, looking) = (seen.clone(), ctx.clone());
    ctx.on(NoticeKind::SessionStart, move |notice| {
        let agent = notice.agent().expect("an agent");
        let refused = agent.followup("too late").expect_err("refused").code() == &Code::Disposed;
        heard.borrow_mut().push(format!("disposed {refused} findable {}", looking.find_agent("a").is_some()));
        Ok(())
    })
    .expect("registered");
    let error = ctx.runtime().block_on(ctx.registry().create(CreateOptions::new("a".into()))).expect_err("disposed");
    assert_eq!(error.code(), &Code::Disposed);
    assert_eq!(*seen.borrow(), ["disposed true findable true"], "later listeners still saw a live entry");
    assert!(lines(&log, &["agent/disposed"]).len() == 1 && ctx.find_agent("a").is_none());
}

#[test]
fn fac_28_and_d_05_the_idle_of_a_disposal_starts_no_run() {
    let ctx = agents::context(agents::Played::new().reply([agents::Piece::Hold(Signal::new())]));
    let agent = open(&ctx, "a");
    let refusal = Rc::new(RefCell::new(None));
    let seen = refusal.clone();
    ctx.on(NoticeKind::Status, move |notice| {
        let Notice::Status { agent, status: turnwheel::AgentStatus::Idle } = notice else { return Ok(()) };
        *seen.borrow_mut() = agent.followup("again").err().map(|error| error.code().clone());
        Ok(())
    })
    .expect("registered");
    let (tool, _, _) = gated("never");
    ctx.tools().register(tool).expect("registered");
    agent
        .run_maintenance(|signal| async move {
            drop(signal.cancelled().await);
            Ok(())
        })
        .map(drop)
        .expect("started");
    ctx.runtime().block_on(agent.dispose());
    assert!(refusal.borrow().is_none(), "maintenance has no status");
    let ctx = agents::context(hello());
    let agent = open(&ctx, "b");
    let seen = refusal.clone();
    ctx.on(NoticeKind::Status, move |notice| {
        let Notice::Status { agent, status: turnwheel::AgentStatus::Idle } = notice else { return Ok(()) };
        *seen.borrow_mut() = agent.followup("again").err().map(|error| error.code().clone());
        Ok(())
    })
    .expect("registered");
    agent.followup("go").expect("accepted");
    ctx.runtime().block_on(agent.dispose());
    assert_eq!(*refusal.borrow(), Some(Code::Disposed));
    assert_eq!(ends(&agent), ["aborted"]);
}

#[test]
fn fac_31_resuming_without_a_store_says_so() {
    let ctx = agents::context(hello());
    let error = ctx.runtime().block_on(ctx.registry().resume(resumption("a"))).expect_err("no store");
    assert_eq!(error.code(), &Code::NoStore);
    assert!(ctx.root().session("a").is_none());
}

#[test]
fn fac_32_to_34_a_preparation_that_comes_too_late_is_released_and_never_publishes() {
    let store = MemoryStore::default();
    let ctx = on_store(&store);
    let agent = open(&ctx, "a");
    agent.inject(prompt("q1")).expect("accepted");
    ctx.runtime().block_on(agent.dispose());
    assert_eq!(store.0.writers.get(), 0, "a disposal gives the session up");
    let log = record(&ctx);

    let signal = Signal::new();
    let gate = store.hold();
    let cancelled = start(&ctx, {
        let registry = ctx.registry();
        let options = ResumeOptions { signal: Some(signal.clone()), ..resumption("a") };
        async move { registry.resume(options).await }
    });
    let owner = ctx.new_scope().expect("a scope");
    let orphaned = start(&ctx, {
        let registry = owner.ctx().registry();
        async move { registry.resume(resumption("a")).await }
    });
    settle(&ctx);
    signal.cancel(CancelCause::User);
    ctx.runtime().block_on(owner.dispose());
    settle(&ctx);
    assert_eq!(failure(&cancelled).0, Code::Aborted);
    assert_eq!(failure(&orphaned).0, Code::InactiveEffect);
    release(&gate);
    settle(&ctx);
    assert_eq!(store.0.writers.get(), 0, "what arrived late was released");
    assert!(log.borrow().is_empty());

    let failing = store.hold();
    let given_up = {
        let registry = ctx.registry();
        let mut operation = Box::pin(async move { registry.resume(resumption("a")).await });
        let polled =
            std::future::poll_fn(|context| std::task::Poll::Ready(operation.as_mut().poll(context).is_pending()));
        assert!(ctx.runtime().block_on(polled));
        operation
    };
    drop(given_up);
    release(&failing);
    settle(&ctx);
    assert_eq!(store.0.writers.get(), 0, "an operation that is dropped ends too");
    *store.0.gate.borrow_mut() = None;
    let refused =
        ResumeOptions { setup: Some(Box::new(|_| Box::pin(async { Err(Error::host("no")) }))), ..resumption("a") };
    ctx.runtime().block_on(ctx.registry().resume(refused)).expect_err("setup failed");
    assert_eq!(store.0.writers.get(), 0, "released also when it did not publish");
}

#[test]
fn fac_32_and_37_a_resumed_agent_goes_on_where_it_was_and_a_failed_resume_loses_nothing() {
    let store = MemoryStore::default();
    let ctx = on_store(&store);
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    agent.inject(prompt("context")).expect("accepted");
    ctx.runtime().block_on(agent.flush()).expect("stored");
    // A program that ends without disposing its agents, so that what is pending stays pending.
    ctx.runtime().close();

    let ctx = on_store(&store);
    let refused =
        ResumeOptions { setup: Some(Box::new(|_| Box::pin(async { Err(Error::host("not yet")) }))), ..resumption("a") };
    ctx.runtime().block_on(ctx.registry().resume(refused)).expect_err("setup failed");
    let agent = open(&ctx, "a");
    assert_eq!(pending(&agent, InboxTarget::NextStep), ["context"], "P3: a failed resume discards nothing");
    assert_eq!(agent.status(), turnwheel::AgentStatus::Idle, "and invents no turn");
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert_eq!(ends(&agent), ["completed", "completed"]);
    assert_eq!(agent.session().turn(2).map(|span| span.end.is_some()), Some(true), "numbering continues");
}

#[test]
fn fac_35_an_id_that_is_live_cannot_be_resumed() {
    let store = MemoryStore::default();
    let ctx = on_store(&store);
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    let openings = store.0.openings.get();
    let before = kinds(&agent);
    let error = ctx.runtime().block_on(ctx.registry().resume(resumption("a"))).expect_err("live");
    assert_eq!(error.code(), &Code::SessionAlreadyExists);
    assert_eq!(store.0.openings.get(), openings, "the store is not even asked");
    assert!(kinds(&agent).starts_with(&before));
}

#[test]
fn fac_36_lineage_survives_a_resume_unchanged() {
    let store = MemoryStore::default();
    let ctx = on_store(&store);
    let builder = ctx.agent("a").provider("fake").model("m").cwd("/work").header(|header| {
        header.parent_session = Some("elder".into());
        header.delegation_depth = Some(2);
    });
    let handle = ctx.runtime().block_on(builder.create()).expect("created");
    let header = handle.agent().session().header().clone();
    handle.agent().inject(prompt("q1")).expect("accepted");
    ctx.runtime().block_on(handle.dispose());
    let resumed = ctx.runtime().block_on(ctx.agent("a").cwd("/elsewhere").resume()).expect("resumed");
    assert_eq!(resumed.agent().session().header(), &header);
}

#[test]
fn syn_5_and_7_publication_does_not_suspend_and_a_disposal_cancels_before_it_returns() {
    let ctx = agents::context(hello());
    let pumped = Rc::new(Cell::new(false));
    let flag = pumped.clone();
    let spawning = ctx.clone();
    ctx.on(NoticeKind::Created, move |_| {
        let flag = flag.clone();
        spawning.runtime().spawn(async move {
            turnwheel::runtime::yield_now().await;
            flag.set(true);
        });
        Ok(())
    })
    .expect("registered");
    let seen = Rc::new(Cell::new(true));
    let (flag, seeing) = (pumped.clone(), seen.clone());
    ctx.on(NoticeKind::SessionStart, move |_| {
        seeing.set(flag.get());
        Ok(())
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    assert!(!seen.get(), "nothing else ran between the announcements");
    let signal: Rc<RefCell<Option<Signal>>> = Rc::default();
    let held = signal.clone();
    ctx.waterfall::<turnwheel::agent::PreStep, _>(move |step, next| {
        *held.borrow_mut() = Some(step.signal.clone());
        async move {
            step.signal.cancelled().await;
            next.call().await
        }
    })
    .expect("registered");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    let signal = signal.borrow_mut().take().expect("a step is being decided");
    assert!(signal.cause().is_none());
    let disposing = agent.dispose();
    assert!(agent.is_disposed());
    assert_eq!(signal.cause(), Some(CancelCause::Disposed), "cancelled before anybody polls the disposal");
    settle(&ctx);
    ctx.runtime().block_on(disposing);
    assert_eq!(agents::turn_ends(&agent), [turnwheel::session::TurnEndReason::Aborted(CancelCause::Disposed)]);
}
