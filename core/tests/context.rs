//! Contexts: services, plug-ins, scopes and their lifetimes. Named after the catalogue's ids.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use turnwheel::context::{PluginChange, PluginState};
use turnwheel::runtime::{PumpState, Signal};
use turnwheel::{CancelCause, Code, Context, Error, NoticeKind};

fn settle(ctx: &Context) {
    while ctx.runtime().pump() != PumpState::Idle {}
}

type Log = Rc<RefCell<Vec<String>>>;

fn note(log: &Log, text: impl Into<String>) {
    log.borrow_mut().push(text.into());
}

#[test]
fn ctx_3_a_plugin_body_runs_later_and_its_failure_is_heard_by_whoever_waits() {
    let ctx = Context::new();
    let log = Log::default();
    let seen = log.clone();
    let plugin = ctx
        .plugin(move |_| {
            note(&seen, "body");
            async { Err(Error::host("cannot load")) }
        })
        .expect("mounted");
    assert_eq!(plugin.state(), PluginState::Pending);
    assert!(log.borrow().is_empty());
    let error = ctx.runtime().block_on(plugin.ready()).expect_err("failed");
    assert_eq!(error.message(), "cannot load");
    assert_eq!(plugin.state(), PluginState::Failed);
}

#[test]
fn ctx_4_and_18_to_20_a_plugin_runs_while_its_services_are_there_and_again_when_a_provider_changes() {
    let ctx = Context::new();
    let log = Log::default();
    let seen = log.clone();
    let plugin = ctx
        .inject(&["clock"], move |ctx| {
            let clock = ctx.get::<String>("clock").expect("a required service is there");
            note(&seen, format!("load {clock}"));
            let seen = seen.clone();
            let undone = ctx.effect(move || note(&seen, "unload")).map(|_| ());
            async move { undone }
        })
        .expect("mounted");
    settle(&ctx);
    assert_eq!((plugin.state(), ctx.get::<String>("clock")), (PluginState::Pending, None));
    let first = ctx.provide("clock", Rc::new("sundial".to_owned())).expect("free");
    assert_eq!(ctx.provide("clock", Rc::new(1)).expect_err("taken").code(), &Code::DuplicateName);
    settle(&ctx);
    assert_eq!(plugin.state(), PluginState::Active);
    let withdrawn = first.dispose().expect("an asynchronous cleanup");
    assert_eq!(ctx.get::<String>("clock"), None, "hidden at once (CTX-19)");
    assert_eq!(*log.borrow(), ["load sundial"], "and its dependants are still to go");
    ctx.runtime().block_on(withdrawn);
    assert_eq!(*log.borrow(), ["load sundial", "unload"], "dependants are gone before the withdrawal ends");
    ctx.provide("clock", Rc::new("quartz".to_owned())).expect("free again");
    settle(&ctx);
    ctx.runtime().block_on(plugin.dispose());
    assert_eq!(*log.borrow(), ["load sundial", "unload", "load quartz", "unload"]);
    assert_eq!(plugin.state(), PluginState::Disposed);
}

#[test]
fn ctx_5_a_requirement_lost_while_loading_takes_effect_when_the_body_has_loaded() {
    let ctx = Context::new();
    let (gate, loads) = (Signal::new(), Rc::new(Cell::new(0)));
    let (opened, counted) = (gate.clone(), loads.clone());
    let plugin = ctx
        .inject(&["db"], move |_| {
            counted.set(counted.get() + 1);
            let gate = opened.clone();
            async move {
                gate.cancelled().await;
                Ok(())
            }
        })
        .expect("mounted");
    let db = ctx.provide("db", Rc::new(1)).expect("free");
    settle(&ctx);
    assert_eq!(plugin.state(), PluginState::Loading);
    let withdrawn = Rc::new(Cell::new(false));
    let flag = withdrawn.clone();
    let waits = db.dispose().expect("an asynchronous cleanup");
    ctx.runtime().spawn(async move {
        waits.await;
        flag.set(true);
    });
    settle(&ctx);
    assert!(!withdrawn.get(), "the provider waits for the loading body");
    gate.cancel(CancelCause::User);
    settle(&ctx);
    assert!(withdrawn.get());
    assert_eq!((plugin.state(), loads.get()), (PluginState::Pending, 1));
}

#[test]
fn ctx_18_a_service_is_seen_once_the_plugin_that_provides_it_is_active() {
    let ctx = Context::new();
    let gate = Signal::new();
    let opened = gate.clone();
    ctx.plugin(move |ctx| {
        let gate = opened.clone();
        async move {
            ctx.provide("late", Rc::new(7))?;
            gate.cancelled().await;
            Ok(())
        }
    })
    .expect("mounted");
    settle(&ctx);
    assert_eq!(ctx.get::<i32>("late"), None);
    gate.cancel(CancelCause::User);
    settle(&ctx);
    assert_eq!(ctx.get::<i32>("late").as_deref(), Some(&7));
}

#[test]
fn ctx_14_and_15_a_disposed_context_takes_no_registration_and_its_effects_are_undone_newest_first() {
    let ctx = Context::new();
    let log = Log::default();
    let seen = log.clone();
    let kept = Rc::new(RefCell::new(None));
    let keep = kept.clone();
    let plugin = ctx
        .plugin(move |ctx| {
            for name in ["a", "b", "c"] {
                let seen = seen.clone();
                ctx.effect(move || note(&seen, name)).expect("a loading fiber takes registrations");
            }
            *keep.borrow_mut() = Some(ctx);
            async { Ok(()) }
        })
        .expect("mounted");
    ctx.runtime().block_on(plugin.ready()).expect("active");
    ctx.runtime().block_on(plugin.dispose());
    ctx.runtime().block_on(plugin.dispose());
    assert_eq!(*log.borrow(), ["c", "b", "a"]);
    let kept = kept.borrow_mut().take().expect("kept");
    assert_eq!(kept.on(NoticeKind::Status, |_| Ok(())).expect_err("refused").code(), &Code::InactiveEffect);
}

#[test]
fn ctx_23_one_plugin_mounted_twice_gives_two_independent_ones() {
    let ctx = Context::new();
    let count = Rc::new(Cell::new(0));
    let mount = || {
        let count = count.clone();
        ctx.plugin(move |ctx| {
            count.set(count.get() + 1);
            let count = count.clone();
            let undone = ctx.effect(move || count.set(count.get() - 1)).map(|_| ());
            async move { undone }
        })
        .expect("mounted")
    };
    let (first, _second) = (mount(), mount());
    settle(&ctx);
    assert_eq!(count.get(), 2);
    ctx.runtime().block_on(first.dispose());
    assert_eq!(count.get(), 1);
    ctx.runtime().block_on(ctx.close()).expect("closed");
    assert_eq!(count.get(), 0);
}

#[test]
fn scp_9_to_13_scopes_form_chains_without_cycles_and_events_flow_up_them() {
    let ctx = Context::new();
    let scopes = &ctx.root().scopes;
    let (parent, child, stranger) = (scopes.mint(), scopes.mint(), scopes.mint());
    let binding = scopes.bind(child, parent).expect("bound");
    assert_eq!(scopes.bind(child, stranger).expect_err("bound once").code(), &Code::ScopeConflict);
    assert_eq!(scopes.bind(parent, child).expect_err("a cycle").code(), &Code::ScopeConflict);
    assert_eq!(scopes.rebind(&binding, child).expect_err("itself").code(), &Code::ScopeConflict);
    assert_eq!(scopes.chain(child), [child, parent]);
    scopes.rebind(&binding, stranger).expect("moved");
    assert_eq!(scopes.chain(child), [child, stranger]);
}

#[test]
fn ctx_16_a_child_is_owned_before_it_is_announced_and_observers_may_end_it_or_refuse_it() {
    let ctx = Context::new();
    let log = Log::default();
    let mount = |name: &'static str| {
        let log = log.clone();
        ctx.plugin(move |own| {
            note(&log, format!("{name} runs"));
            let log = log.clone();
            own.effect(move || note(&log, format!("{name} undone"))).expect("registered");
            async { Ok(()) }
        })
    };
    let heard = log.clone();
    let watching = ctx
        .on_plugin(move |change| {
            let what = match change {
                PluginChange::Mounted(plugin) => format!("mounted {:?}", plugin.state()),
                PluginChange::Disposed(plugin) => format!("disposed {:?}", plugin.state()),
            };
            note(&heard, &what);
            Ok(())
        })
        .expect("registered");
    let first = mount("first").expect("mounted");
    settle(&ctx);
    ctx.runtime().block_on(first.dispose());
    assert_eq!(log.take(), ["mounted Pending", "first runs", "first undone", "disposed Disposed"]);

    // A failing observer of the mounting rolls it back: the body never runs.
    let refusing = ctx.on_plugin(|change| match change {
        PluginChange::Mounted(_) => Err(Error::host("not here")),
        PluginChange::Disposed(_) => Err(Error::host("contained")),
    });
    assert_eq!(mount("refused").map(drop).expect_err("refused").message(), "not here");
    settle(&ctx);
    assert_eq!(log.take(), ["mounted Pending", "disposed Disposed"]);
    refusing.expect("registered").dispose();

    // An observer may end the child, or what owns it, from inside.
    let ending = ctx.on_plugin(|change| {
        if let PluginChange::Mounted(plugin) = change {
            drop(plugin.dispose());
        }
        Ok(())
    });
    mount("ended").expect("mounted");
    settle(&ctx);
    assert_eq!(log.take(), ["mounted Pending", "disposed Disposed"]);
    ending.expect("registered").dispose();
    watching.dispose();
    let parent = Rc::new(RefCell::new(None));
    let (kept, inner) = (parent.clone(), log.clone());
    let mounted = ctx
        .plugin(move |own| {
            let inner = inner.clone();
            own.plugin(move |_| {
                note(&inner, "the child runs");
                async { Ok(()) }
            })
            .expect("mounted");
            async { Ok(()) }
        })
        .expect("mounted");
    *kept.borrow_mut() = Some(mounted.clone());
    ctx.on_plugin(move |change| {
        if let (PluginChange::Mounted(_), Some(parent)) = (change, parent.borrow().as_ref()) {
            drop(parent.dispose());
        }
        Ok(())
    })
    .expect("registered");
    settle(&ctx);
    assert_eq!(mounted.state(), PluginState::Disposed);
    assert!(log.take().is_empty(), "the child went with its parent before it ran");
}
