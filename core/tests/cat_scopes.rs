//! Scopes, layers, contexts, fibers and effects: agent.md sections 17 and 18. Named after the ids.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{Log, hello, noop, open, settle};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use turnwheel::context::{Composite, PluginState, Registration};
use turnwheel::runtime::Signal;
use turnwheel::scope::{Layers, Scopes};
use turnwheel::{CancelCause, Code, Context, Error, Notice, NoticeKind};

fn note(log: &Log, what: &str) {
    log.borrow_mut().push(what.to_owned());
}

/// Lets `undo` note itself when it starts and, once the gate is open, when it ends.
fn slow(composite: &Composite, log: &Log, name: &'static str, gate: &Signal) {
    let (log, gate) = (log.clone(), gate.clone());
    composite.defer_async(move || {
        Box::pin(async move {
            note(&log, &format!("{name} starts"));
            gate.cancelled().await;
            note(&log, &format!("{name} ends"));
        })
    });
}

fn quick(composite: &Composite, log: &Log, name: &'static str) {
    let log = log.clone();
    composite.defer(move || note(&log, name));
}

#[test]
fn scp_2_to_6_a_scope_is_usable_at_once_owns_what_is_registered_and_ends_once() {
    let ctx = Context::new();
    let log = Log::default();
    let scope = ctx.new_scope().expect("a scope");
    scope.ctx().tools().register(noop("mine")).expect("usable at once");
    let undoing = log.clone();
    scope.ctx().effect(move || note(&undoing, "undone")).expect("registered");
    assert_eq!(scope.ctx().scope(), Some(scope.key()));
    let inner = scope.ctx().new_scope().expect("a scope below");
    assert_ne!(inner.ctx().scope(), Some(scope.key()), "the nearest tag wins");
    let mounted: Rc<RefCell<Option<Context>>> = Rc::default();
    let seen = mounted.clone();
    scope
        .ctx()
        .plugin(move |ctx| {
            *seen.borrow_mut() = Some(ctx);
            async { Ok(()) }
        })
        .expect("mounted");
    settle(&ctx);
    assert_eq!(
        mounted.borrow().as_ref().and_then(Context::scope),
        Some(scope.key()),
        "plug-ins beneath inherit the tag"
    );
    let raw = scope.registration().dispose().expect("the raw disposer takes time");
    let second = scope.dispose();
    ctx.runtime().block_on(async { (raw.await, second.await) });
    assert_eq!(*log.borrow(), ["undone"]);
    assert!(scope.ctx().tools().schemas().is_empty());
    // As a part of a composite effect a scope ends in its place among the others, and not by itself before them.
    log.borrow_mut().clear();
    let composed = ctx
        .composite(|parts| {
            quick(parts, &log, "first part");
            let scope = ctx.new_scope()?;
            let undoing = log.clone();
            scope.ctx().effect(move || note(&undoing, "the scope"))?;
            parts.adopt(scope.registration());
            quick(parts, &log, "last part");
            Ok(())
        })
        .expect("composed");
    ctx.runtime().block_on(composed.dispose().expect("the scope takes time"));
    assert_eq!(*log.borrow(), ["last part", "the scope", "first part"]);
}

#[test]
fn scp_7_and_8_nothing_is_registered_or_minted_through_a_scope_that_ends() {
    let ctx = Context::new();
    let scope = ctx.new_scope().expect("a scope");
    let late = scope.ctx().clone();
    let code: Rc<RefCell<Option<Code>>> = Rc::default();
    let seen = code.clone();
    scope
        .ctx()
        .effect(move || *seen.borrow_mut() = late.effect(|| {}).err().map(|error| error.code().clone()))
        .expect("registered");
    ctx.runtime().block_on(scope.dispose());
    assert_eq!(*code.borrow(), Some(Code::InactiveEffect), "while it ends");
    let refused = [
        scope.ctx().tools().register(noop("t")).map(drop),
        scope.ctx().on(NoticeKind::Status, |_| Ok(())).map(drop),
        scope.ctx().new_scope().map(drop),
        scope.ctx().plugin(|_| async { Ok(()) }).map(drop),
        scope.ctx().composite(|_| Ok(())).map(drop),
    ];
    for refusal in refused {
        assert_eq!(refusal.expect_err("inactive").code(), &Code::InactiveEffect);
    }
}

#[test]
fn scp_9_to_11_and_18_links_are_made_once_without_cycles_and_chains_are_nearest_first() {
    let scopes = Scopes::default();
    let (a, b, c) = (scopes.mint(), scopes.mint(), scopes.mint());
    let of_a = scopes.bind(a, b).expect("bound");
    assert_eq!(scopes.bind(a, c).expect_err("bound already").code(), &Code::ScopeConflict);
    let of_b = scopes.bind(b, c).expect("bound");
    assert_eq!(scopes.chain(a), [a, b, c]);
    for parent in [a, c] {
        assert_eq!(scopes.bind(c, parent).expect_err("a cycle").code(), &Code::ScopeConflict);
    }
    for parent in [a, b] {
        assert_eq!(scopes.rebind(&of_b, parent).expect_err("a cycle").code(), &Code::ScopeConflict);
    }
    assert_eq!(scopes.chain(a), [a, b, c], "what is refused changes nothing");
    // Only what binding gave moves a key: `Binding` has no other maker, and there is no way to take a link away.
    scopes.rebind(&of_a, c).expect("moved");
    assert_eq!(scopes.chain(a), [a, c]);
    let ctx = agents::context(hello());
    let (middle, top) = (open(&ctx, "middle"), ctx.new_scope().expect("a scope"));
    let (low, key) = (ctx.new_scope().expect("a scope"), middle.ctx().expect("live").scope().expect("tagged"));
    let links = &ctx.root().scopes;
    links.bind(low.key(), key).expect("bound");
    links.bind(key, top.key()).expect("bound");
    ctx.runtime().block_on(middle.dispose());
    assert_eq!(links.chain(low.key()), [low.key(), key, top.key()], "links outlive the scope");
}

#[test]
fn scp_12_and_13_events_flow_up_the_chain_as_it_is_at_each_dispatch() {
    let ctx = Context::new();
    let [parent, other, child, sibling] = std::array::from_fn(|_| ctx.new_scope().expect("a scope"));
    let links = &ctx.root().scopes;
    let binding = links.bind(child.key(), parent.key()).expect("bound");
    links.bind(sibling.key(), parent.key()).expect("bound");
    let log = Log::default();
    let listeners = [
        ("all", &ctx),
        ("parent", parent.ctx()),
        ("other", other.ctx()),
        ("child", child.ctx()),
        ("sibling", sibling.ctx()),
    ];
    for (name, listening) in listeners {
        let heard = log.clone();
        listening
            .on(NoticeKind::ToolsChanged, move |_| {
                note(&heard, name);
                Ok(())
            })
            .expect("registered");
    }
    let heard = |scope| {
        ctx.emit(Notice::ToolsChanged { scope });
        std::mem::take(&mut *log.borrow_mut())
    };
    assert_eq!(heard(Some(child.key())), ["all", "parent", "child"]);
    assert_eq!(heard(Some(parent.key())), ["all", "parent"], "never listeners below");
    assert_eq!(heard(None), ["all"]);
    links.rebind(&binding, other.key()).expect("moved");
    assert_eq!(heard(Some(child.key())), ["all", "other", "child"]);
}

#[test]
fn scp_16_an_ordinary_service_through_an_agents_context_is_nobodys_own() {
    let ctx = agents::context(hello());
    let agent = open(&ctx, "a");
    agent.ctx().expect("live").provide("clock", Rc::new(7_u8)).expect("provided");
    assert_eq!(ctx.get::<u8>("clock").as_deref(), Some(&7));
}

#[test]
fn lay_1_to_4_layers_merge_far_to_near_and_a_nearer_entry_takes_the_earlier_place() {
    let (scopes, layers) = (Scopes::default(), Layers::<&str>::default());
    let (near, far) = (scopes.mint(), scopes.mint());
    scopes.bind(near, far).expect("bound");
    layers.add(None, "a", "global a").expect("free");
    layers.add(None, "b", "global b").expect("free");
    layers.add(Some(far), "c", "far c").expect("free");
    layers.add(Some(near), "a", "near a").expect("free");
    let shown = |scope| layers.merged(&scopes, scope).into_iter().map(|seen| seen.value).collect::<Vec<_>>();
    assert_eq!(shown(Some(near)), ["near a", "global b", "far c"]);
    assert_eq!(shown(Some(far)), ["global a", "global b", "far c"]);
    assert_eq!(shown(None), ["global a", "global b"]);
    assert_eq!(layers.find(&scopes, Some(near), "c").map(|seen| seen.layer), Some(Some(far)));
    assert!(layers.find(&scopes, None, "c").is_none());
    let stranger = scopes.mint();
    assert_eq!(shown(Some(stranger)), ["global a", "global b"], "reading makes no layer");
}

#[test]
fn lay_7_8_9_and_14_duplicates_are_refused_by_layer_and_an_undo_removes_its_own_only() {
    let (scopes, layers) = (Scopes::default(), Layers::<u8>::default());
    let scope = scopes.mint();
    let first = layers.add(None, "a", 1).expect("free");
    let global = layers.add(None, "a", 2).expect_err("taken");
    layers.add(Some(scope), "a", 3).expect("shadowing is legal");
    let scoped = layers.add(Some(scope), "a", 4).expect_err("taken");
    assert_eq!((global.code(), scoped.code()), (&Code::DuplicateName, &Code::DuplicateName));
    assert_ne!(global.message(), scoped.message(), "the author sees which layer to fix");
    layers.remove(None, first);
    let again = layers.add(None, "a", 5).expect("free again");
    layers.remove(None, first);
    assert_eq!(layers.find(&scopes, None, "a").map(|seen| seen.value), Some(5));
    layers.remove(None, again);
    assert!(layers.find(&scopes, None, "a").is_none());
    let ctx = Context::new();
    let deny = || ctx.tools().guard(|_| Ok(Some("no".into()))).expect("equal guards are registrations of their own");
    ctx.tools().register(noop("t")).expect("registered");
    let denied = || {
        let call =
            turnwheel::tools::ToolCallInfo::new("c1", "t", turnwheel::json!({}), turnwheel::runtime::Signal::new());
        ctx.runtime().block_on(ctx.tools().execute(call)).expect("no store stands in the way").is_error
    };
    let (one, two): (Registration, Registration) = (deny(), deny());
    one.dispose();
    assert!(denied(), "the other one still stands");
    two.dispose();
    assert!(!denied());
}

#[test]
fn lay_5_6_and_sys_11_a_failing_change_listener_rolls_the_registration_back_and_is_told_again() {
    let ctx = Context::new();
    let log = Log::default();
    let (heard, looking) = (log.clone(), ctx.clone());
    let refusing = Rc::new(Cell::new(true));
    let flag = refusing.clone();
    for kind in [NoticeKind::ToolsChanged, NoticeKind::PromptChanged] {
        let (heard, looking, flag) = (heard.clone(), looking.clone(), flag.clone());
        ctx.on(kind, move |notice| {
            heard.borrow_mut().push(format!("{} {}", notice.kind().as_str(), looking.tools().schemas().len()));
            if flag.get() { Err(Error::host("refused")) } else { Ok(()) }
        })
        .expect("registered");
    }
    assert_eq!(ctx.tools().register(noop("t")).expect_err("vetoed").message(), "refused");
    ctx.prompt().section("s", 1.0, "text").expect_err("vetoed");
    assert_eq!(
        std::mem::take(&mut *log.borrow_mut()),
        ["tools/changed 1", "tools/changed 0", "system-prompt/changed 0", "system-prompt/changed 0"]
    );
    refusing.set(false);
    let tool = ctx.tools().register(noop("t")).expect("nothing was left behind");
    ctx.prompt().section("s", 1.0, "text").expect("nor here");
    ctx.tools().register(noop("t")).expect_err("taken");
    tool.dispose();
    tool.dispose();
    assert_eq!(*log.borrow(), ["tools/changed 1", "system-prompt/changed 1", "tools/changed 0"], "one notice a change");
}

#[test]
fn lay_11_to_13_restrictions_filter_what_is_inherited_along_the_whole_chain() {
    let ctx = Context::new();
    let [grand, parent, child] = std::array::from_fn(|_| ctx.new_scope().expect("a scope"));
    let links = &ctx.root().scopes;
    links.bind(child.key(), parent.key()).expect("bound");
    links.bind(parent.key(), grand.key()).expect("bound");
    for name in ["a", "b", "c"] {
        ctx.tools().register(noop(name)).expect("registered");
    }
    parent.ctx().tools().register(noop("own")).expect("registered");
    let names = |scope: &turnwheel::context::Scope| {
        scope.ctx().tools().schemas().iter().map(|schema| schema.name().to_owned()).collect::<Vec<_>>()
    };
    let list = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    grand.ctx().tools().restrict(list(&["a", "b"]), None).expect("restricted");
    child.ctx().tools().restrict(None, list(&["a"])).expect("restricted");
    assert_eq!(names(&child), ["b", "own"], "an ancestor's restriction reaches all descendants");
    assert_eq!(names(&parent), ["a", "b", "own"], "a descendant's never goes up");
    ctx.tools().register(noop("later")).expect("registered");
    assert!(!names(&grand).contains(&"later".to_owned()), "restrictions apply to what comes later too");
    let error = parent.ctx().tools().restrict(None, list(&["own"])).expect_err("its own registration");
    assert!(error.message().contains("there are: a, b"), "{}", error.message());
    for refused in [
        ctx.tools().restrict(list(&["a"]), None),
        child.ctx().tools().restrict(None, None),
        child.ctx().tools().restrict(list(&["unknown"]), None),
        child.ctx().tools().restrict(list(&["run_code"]), None),
    ] {
        assert_eq!(refused.expect_err("refused").code(), &Code::InvalidArgument);
    }
    child.ctx().tools().restrict(list(&[]), None).expect("an empty list is a filter");
    assert!(names(&child).is_empty(), "{:?}", names(&child));
    let runner = ctx.tools().register_runner(noop("run_code")).expect("registered");
    let reserved = parent.ctx().tools().restrict(None, list(&["run_code"]));
    assert_eq!(reserved.expect_err("reserved, also when there is one").code(), &Code::InvalidArgument);
    runner.dispose();
}

#[test]
fn ctx_6_and_12_an_effect_is_undone_once_by_whoever_comes_first_and_an_owner_joins() {
    let ctx = Context::new();
    let scope = ctx.new_scope().expect("a scope");
    let (log, gate) = (Log::default(), Signal::new());
    let registration = scope
        .ctx()
        .composite(|parts| {
            slow(parts, &log, "a", &gate);
            Ok(())
        })
        .expect("built");
    let pending = registration.dispose().expect("it takes time");
    assert!(registration.dispose().is_none(), "a second call gives nothing");
    drop(pending);
    let done = Rc::new(Cell::new(false));
    let (flag, ending) = (done.clone(), scope.dispose());
    ctx.runtime().spawn(async move {
        ending.await;
        flag.set(true);
    });
    settle(&ctx);
    assert!(!done.get(), "the owner joins what is under way, though its starter went away");
    agents::release(&gate);
    settle(&ctx);
    assert!(done.get());
    assert_eq!(*log.borrow(), ["a starts", "a ends"]);
}

#[test]
fn ctx_7_parts_of_one_effect_are_undone_in_reverse_one_by_one_and_siblings_overlap() {
    let ctx = Context::new();
    let scope = ctx.new_scope().expect("a scope");
    let (log, gate) = (Log::default(), Signal::new());
    for (first, second) in [("a1", "a2"), ("b1", "b2")] {
        scope
            .ctx()
            .composite(|parts| {
                slow(parts, &log, first, &gate);
                slow(parts, &log, second, &gate);
                Ok(())
            })
            .expect("built");
    }
    let ending = scope.dispose();
    ctx.runtime().spawn(ending);
    settle(&ctx);
    assert_eq!(*log.borrow(), ["b2 starts", "a2 starts"], "siblings start in reverse and overlap");
    agents::release(&gate);
    settle(&ctx);
    let log = log.borrow();
    let place = |what: &str| log.iter().position(|line| line == what).expect("it happened");
    for name in ["a", "b"] {
        assert!(place(&format!("{name}2 ends")) < place(&format!("{name}1 starts")), "{log:?}");
    }
}

#[test]
fn ctx_8_and_15_a_cleanup_that_fails_skips_what_it_may_depend_on_and_nothing_else() {
    let ctx = Context::new();
    let scope = ctx.new_scope().expect("a scope");
    let log = Log::default();
    scope
        .ctx()
        .composite(|parts| {
            quick(parts, &log, "skipped");
            parts.defer(|| panic!("planned panic"));
            quick(parts, &log, "ran");
            Ok(())
        })
        .expect("built");
    scope.ctx().effect(|| panic!("planned panic")).expect("registered");
    let undoing = log.clone();
    scope.ctx().effect(move || note(&undoing, "sibling")).expect("registered");
    ctx.runtime().block_on(scope.dispose());
    ctx.runtime().block_on(scope.dispose());
    assert_eq!(*log.borrow(), ["sibling", "ran"], "a disposal never fails, and is idempotent");
}

#[test]
fn ctx_9_a_registration_is_moved_into_an_effect_by_identity() {
    let ctx = Context::new();
    let log = Log::default();
    let undoing = log.clone();
    let moved = ctx.effect(move || note(&undoing, "moved")).expect("registered");
    let composite = ctx
        .composite(|parts| {
            quick(parts, &log, "first");
            parts.adopt(&moved);
            quick(parts, &log, "last");
            Ok(())
        })
        .expect("built");
    assert!(moved.dispose().is_none() && log.borrow().is_empty(), "it is not its own any more");
    if let Some(rest) = composite.dispose() {
        ctx.runtime().block_on(rest);
    }
    assert_eq!(*log.borrow(), ["last", "moved", "first"]);
}

#[test]
fn ctx_10_a_body_that_fails_undoes_what_it_had_collected() {
    let ctx = Context::new();
    let log = Log::default();
    let built = ctx.composite(|parts| {
        quick(parts, &log, "undone");
        Err(Error::coded("Mine", "MINE", "no"))
    });
    assert_eq!(built.expect_err("failed").code().as_str(), "MINE");
    assert_eq!(*log.borrow(), ["undone"]);
    ctx.runtime().block_on(ctx.close()).expect("closed");
    assert_eq!(log.borrow().len(), 1, "its entry is gone");
}

#[test]
fn ctx_11_an_unload_from_inside_a_body_waits_for_the_body() {
    let ctx = Context::new();
    let scope = ctx.new_scope().expect("a scope");
    let log = Log::default();
    scope
        .ctx()
        .composite(|parts| {
            let ending = scope.dispose();
            let ended = log.clone();
            ctx.runtime().spawn(async move {
                ending.await;
                note(&ended, "unloaded");
            });
            note(&log, "body goes on");
            quick(parts, &log, "undone");
            Ok(())
        })
        .map(drop)
        .expect("built");
    settle(&ctx);
    assert_eq!(*log.borrow(), ["body goes on", "undone", "unloaded"]);
}

#[test]
fn ctx_13_a_synchronous_cleanup_is_done_when_its_disposer_returns() {
    let ctx = Context::new();
    let log = Log::default();
    let composite = ctx
        .composite(|parts| {
            quick(parts, &log, "one");
            quick(parts, &log, "two");
            Ok(())
        })
        .expect("built");
    let rest = composite.dispose();
    assert_eq!(*log.borrow(), ["two", "one"]);
    drop(rest);
    let scope = ctx.new_scope().expect("a scope");
    let undoing = log.clone();
    scope.ctx().effect(move || note(&undoing, "scope")).expect("registered");
    let ending = scope.dispose();
    assert_eq!(log.borrow().len(), 2, "an unload undoes nothing inside the call");
    ctx.runtime().block_on(ending);
    assert_eq!(log.borrow().len(), 3);
}

#[test]
fn ctx_17_and_23_a_plugin_disposed_before_its_body_never_runs_it_and_every_mount_is_its_own() {
    let ctx = Context::new();
    let runs = Rc::new(Cell::new(0));
    let mount = || {
        let runs = runs.clone();
        let body = move |_| {
            runs.set(runs.get() + 1);
            async { Ok(()) }
        };
        ctx.plugin(body).expect("mounted")
    };
    let (first, second, third) = (mount(), mount(), mount());
    let ending = first.dispose();
    ctx.runtime().block_on(ending);
    settle(&ctx);
    assert_eq!((runs.get(), first.state()), (2, PluginState::Disposed));
    ctx.runtime().block_on(second.dispose());
    assert_eq!((second.state(), third.state()), (PluginState::Disposed, PluginState::Active));
}

#[test]
fn ctx_20_and_21_a_service_is_seen_by_type_and_its_effects_are_bound_to_the_context_it_is_given() {
    struct Notes(Log);
    impl Notes {
        fn keep(&self, caller: &Context) {
            let log = self.0.clone();
            caller.effect(move || note(&log, "undone with its caller")).expect("registered");
        }
    }
    let ctx = Context::new();
    let log = Log::default();
    ctx.provide("notes", Rc::new(Notes(log.clone()))).expect("provided");
    assert!(ctx.get::<String>("notes").is_none() && ctx.get::<Notes>("absent").is_none());
    let caller = ctx.new_scope().expect("a scope");
    caller.ctx().get::<Notes>("notes").expect("there").keep(caller.ctx());
    ctx.runtime().block_on(caller.dispose());
    assert_eq!(*log.borrow(), ["undone with its caller"]);
}

#[test]
fn ctx_22_a_closed_root_is_empty_and_can_be_used_again() {
    let ctx = agents::context(hello());
    ctx.tools().register(noop("old")).expect("registered");
    let agent = open(&ctx, "a");
    assert_eq!(ctx.reopen().expect_err("open").code(), &Code::Busy);
    ctx.runtime().block_on(ctx.close()).expect("closed");
    assert!(agent.is_disposed());
    assert_eq!(ctx.tools().register(noop("t")).expect_err("closed").code(), &Code::InactiveEffect);
    let again = ctx.reopen().expect("reusable");
    assert!(again.tools().schemas().is_empty() && again.llm().providers().is_empty());
    again.llm().register("fake", hello()).expect("free again");
    let agent = open(&again, "a");
    agent.followup("hello").expect("accepted");
    settle(&again);
    assert_eq!(agents::ends(&agent), ["completed"]);
    agent.cancel(CancelCause::User);
}

#[test]
fn ctx_24_only_an_agents_own_context_has_an_agent() {
    let ctx = agents::context(hello());
    let agent = open(&ctx, "a");
    let own = agent.ctx().expect("live");
    assert!(ctx.own_agent().is_none() && ctx.new_scope().expect("a scope").ctx().own_agent().is_none());
    assert_eq!(own.own_agent().as_ref(), Some(&agent));
    assert_eq!(own.new_scope().expect("a scope").ctx().own_agent().as_ref(), Some(&agent));
}
