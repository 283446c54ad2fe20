//! Views of a context and what is decided by them: members, receivers, quiet registrations, checks of every dispatch, and
//! plug-ins that are mounted more than once.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{Log, hello, open, settle};
use std::cell::Cell;
use std::rc::Rc;
use turnwheel::agent::PreStep;
use turnwheel::context::{PluginDefinition, PluginState};
use turnwheel::events::{DispatchMode, Placement, PluginEvent};
use turnwheel::tools::ToolOutcome;
use turnwheel::{Context, Error, NoticeKind, Tool, ToolOutput, json};

struct Saved;

impl PluginEvent for Saved {
    const NAME: &'static str = "files/saved";
    type Answer = u32;
}

struct Tenant(&'static str);

fn note(log: &Log, what: &str) {
    log.borrow_mut().push(what.to_owned());
}

fn take(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.borrow_mut())
}

fn tool() -> Tool {
    Tool::new("t", |_| async { Ok(ToolOutput::value("done")) })
}

#[test]
fn ctx_1_an_extended_view_has_its_own_members_the_same_owner_and_leaves_its_parent_alone() {
    let ctx = Context::new();
    let tenant = ctx.extend(Tenant("north"));
    let counted = tenant.extend(7u32);
    assert!(ctx.member::<Tenant>().is_none() && tenant.member::<u32>().is_none());
    let name = |ctx: &Context| ctx.member::<Tenant>().map(|tenant| tenant.0);
    assert_eq!((name(&counted), counted.member::<u32>().as_deref()), (Some("north"), Some(&7)));
    assert_eq!((name(&tenant.extend(Tenant("south"))), name(&tenant)), (Some("south"), Some("north")));
    assert!(Rc::ptr_eq(ctx.fiber(), counted.fiber()) && Rc::ptr_eq(ctx.root(), counted.root()));
    // What is registered through the view is the parent's: it ends with it, and is visible to it.
    counted.tools().register(tool()).expect("registered");
    assert_eq!(ctx.tools().schemas().len(), 1);
    ctx.runtime().block_on(ctx.fiber().clone().dispose());
    assert!(ctx.tools().schemas().is_empty());
    // What is mounted from the view carries its members on.
    let seen = Rc::new(Cell::new(None));
    let told = seen.clone();
    let fresh = Context::new();
    let body = move |ctx: Context| {
        told.set(ctx.member::<Tenant>().map(|tenant| tenant.0));
        async { Ok(()) }
    };
    fresh.extend(Tenant("west")).plugin(body).expect("mounted");
    settle(&fresh);
    assert_eq!(seen.get(), Some("west"));
}

#[test]
fn evt_14_and_15_a_receivers_predicate_passes_listeners_over_but_for_global_ones_and_does_not_own_them() {
    let ctx = Context::new();
    let log = Log::default();
    let listen = |ctx: &Context, name: &'static str, placement: Placement| {
        let log = log.clone();
        let heard = move |_: &Saved| {
            note(&log, name);
            Ok(None)
        };
        ctx.on_event_placed(placement, heard).expect("registered")
    };
    let once = Placement { once: true, ..Placement::default() };
    let north = ctx.new_scope().expect("a scope");
    listen(&north.ctx().extend(Tenant("north")), "north, in a scope that hears nothing of this", Placement::default());
    listen(&ctx.extend(Tenant("north")), "north", Placement::default());
    listen(&ctx.extend(Tenant("south")), "south once", once);
    listen(&ctx, "nobody's", Placement::default());
    let everywhere = listen(&ctx, "global", Placement { global: true, ..Placement::default() });
    let to = |name: &'static str| {
        ctx.received_by(move |listener| listener.member::<Tenant>().is_some_and(|tenant| tenant.0 == name))
    };
    to("north").emit_event(Saved).expect("heard");
    assert_eq!(take(&log), ["north", "global"]);
    // A listener that was passed over is not spent.
    for expected in [&["south once", "global"][..], &["global"]] {
        assert!(ctx.runtime().block_on(to("south").serial(Saved)).expect("heard").is_none());
        assert_eq!(take(&log), expected);
    }
    ctx.runtime().block_on(to("north").parallel(Saved)).expect("heard");
    assert_eq!(take(&log), ["north", "global"]);
    everywhere.dispose();
    assert!(to("north").bail(Saved).expect("asked").is_none());
    assert_eq!(take(&log), ["north"]);
    ctx.received_by(|_| panic!("planned panic")).emit_event(Saved).expect("nobody qualifies");
    assert!(take(&log).is_empty());
    ctx.emit_event(Saved).expect("heard");
    assert_eq!(take(&log), ["north", "nobody's"], "without a predicate everybody of the scope hears it");
}

#[test]
fn evt_12_a_check_sees_every_dispatch_with_mode_name_payload_and_receiver_and_its_failure_prevents_it() {
    let ctx = agents::context(hello());
    let agent = open(&ctx, "a");
    let (log, refused) = (Log::default(), Rc::new(Cell::new("")));
    let (seen, refusing, scope) = (log.clone(), refused.clone(), agent.ctx().expect("live").scope());
    let check = ctx
        .check_dispatches(move |dispatch| {
            let routed = if dispatch.receiver == scope { " to a" } else { "" };
            let first = dispatch.payload::<PreStep>().map_or(String::new(), |step| format!(" step {}", step.step));
            note(&seen, &format!("{:?} {}{first}{routed}", dispatch.mode, dispatch.name));
            if dispatch.name == refusing.get() { Err(Error::coded("Veto", "VETO", "not this one")) } else { Ok(()) }
        })
        .expect("registered");
    agent.followup("hi").expect("accepted");
    ctx.runtime().block_on(agent.when_idle()).expect("idle");
    let mut lines = take(&log);
    lines.retain(|line| !line.contains("session/event"));
    assert_eq!(
        lines,
        [
            "Emit agent/inbox/inserted to a",
            "Emit agent/status to a",
            "Emit agent/inbox/claimed to a",
            "Waterfall system-prompt/assemble to a",
            "Waterfall agent/pre-step step 1 to a",
            "Waterfall agent/request to a",
            "Serial agent/turn-stopping to a",
            "Emit agent/status to a",
        ]
    );
    // A waterfall that is prevented fails what it decides about; its listeners do not run.
    let heard = log.clone();
    let _deciding = ctx
        .waterfall::<PreStep, _>(move |_, next| {
            note(&heard, "pre-step listener");
            async move { next.call().await }
        })
        .expect("registered");
    refused.set("agent/pre-step");
    agent.followup("again").expect("accepted");
    ctx.runtime().block_on(agent.when_idle()).expect("idle");
    assert!(!take(&log).contains(&"pre-step listener".to_owned()));
    match agent.session().turn_end(2) {
        Some(turnwheel::session::TurnEndReason::Error(failure)) => assert_eq!(failure.message, "not this one"),
        other => panic!("{other:?}"),
    }
    // So does an event of a plug-in, in every mode.
    let own = log.clone();
    ctx.on_event(move |_: &Saved| {
        note(&own, "heard");
        Ok(Some(1))
    })
    .expect("registered");
    refused.set(Saved::NAME);
    ctx.emit_event(Saved).expect_err("prevented");
    ctx.bail(Saved).expect_err("prevented");
    ctx.runtime().block_on(ctx.serial(Saved)).expect_err("prevented");
    let error = ctx.runtime().block_on(ctx.parallel(Saved)).expect_err("prevented");
    assert_eq!(error.code().as_str(), "VETO");
    let modes = [DispatchMode::Emit, DispatchMode::Bail, DispatchMode::Serial, DispatchMode::Parallel];
    assert_eq!(take(&log), modes.map(|mode| format!("{mode:?} files/saved")));
    // A notification that is prevented is not heard; what it is about has happened.
    let status = log.clone();
    ctx.on(NoticeKind::Inserted, move |_| {
        note(&status, "inserted is heard");
        Ok(())
    })
    .expect("registered");
    refused.set("agent/inbox/inserted");
    agent.followup("third").expect("accepted");
    ctx.runtime().block_on(agent.when_idle()).expect("idle");
    assert!(!take(&log).contains(&"inserted is heard".to_owned()));
    check.dispose();
    assert_eq!(ctx.bail(Saved).expect("heard"), Some(1));
    assert_eq!(take(&log), ["heard"]);
}

#[test]
fn lay_6_a_quiet_registration_is_announced_neither_when_it_comes_nor_when_it_goes() {
    let ctx = Context::new();
    let log = Log::default();
    for kind in [NoticeKind::ToolsChanged, NoticeKind::PromptChanged] {
        let log = log.clone();
        ctx.on(kind, move |notice| {
            note(&log, notice.kind().as_str());
            Ok(())
        })
        .expect("registered");
    }
    let quiet = ctx.quiet();
    let tool_registration = quiet.tools().register(tool()).expect("registered");
    let section = quiet.prompt().section("s", 1.0, "text").expect("registered");
    assert_eq!(ctx.tools().schemas().len(), 1, "it is in force all the same");
    tool_registration.dispose();
    section.dispose();
    assert!(log.borrow().is_empty());
    ctx.tools().register(tool()).expect("its neighbours are not quiet").dispose();
    assert_eq!(take(&log), ["tools/changed", "tools/changed"]);
}

#[test]
fn ctx_23_removing_a_plug_in_disposes_each_of_its_mounts_and_no_other() {
    let ctx = Context::new();
    let log = Log::default();
    let body = {
        let log = log.clone();
        move |ctx: Context| {
            let log = log.clone();
            async move { ctx.effect(move || note(&log, "undone")).map(drop) }
        }
    };
    let twice = PluginDefinition::new(&[], body.clone());
    let scope = ctx.new_scope().expect("a scope");
    let first = ctx.mount(&twice).expect("mounted");
    let second = scope.ctx().mount(&twice.clone()).expect("mounted");
    let other = ctx.mount(&PluginDefinition::new(&[], body)).expect("mounted");
    let elsewhere = Context::new();
    let foreign = elsewhere.mount(&twice).expect("mounted");
    settle(&ctx);
    settle(&elsewhere);
    ctx.runtime().block_on(ctx.unmount(&twice));
    assert_eq!([&first, &second].map(|plugin| plugin.state()), [PluginState::Disposed; 2]);
    assert_eq!([&other, &foreign].map(|plugin| plugin.state()), [PluginState::Active; 2]);
    assert_eq!(take(&log), ["undone", "undone"]);
    // It can be mounted again.
    let again = ctx.mount(&twice).expect("mounted");
    settle(&ctx);
    assert_eq!(again.state(), PluginState::Active);
}

#[test]
fn def_1_a_tool_says_what_a_user_interface_shows_of_its_calls_and_answers_and_the_model_sees_none_of_it() {
    let ctx = Context::new();
    let shown = tool()
        .present_call(|arguments| Ok(json!({"title": (arguments.clone())})))
        .present_result(|_, outcome| if outcome.is_error { Err(Error::host("no view")) } else { Ok(json!("fine")) });
    ctx.tools().register(shown).expect("registered");
    ctx.tools().register(Tool::new("plain", |_| async { Ok(ToolOutput::value(1)) })).expect("registered");
    let tools = ctx.tools();
    let title = tools.present_call("t", &json!({"a": 1})).expect("shown");
    assert_eq!(title, Some(json!({"title": {"a": 1}})));
    let outcome = ToolOutcome::default();
    assert_eq!(tools.present_result("t", &json!({}), &outcome).expect("shown"), Some(json!("fine")));
    let failed = ToolOutcome { is_error: true, ..ToolOutcome::default() };
    assert_eq!(tools.present_result("t", &json!({}), &failed).expect_err("as the view failed").message(), "no view");
    for name in ["plain", "absent"] {
        assert_eq!(tools.present_call(name, &json!({})).expect("nothing to show"), None);
        assert_eq!(tools.present_result(name, &json!({}), &outcome).expect("nothing to show"), None);
    }
    let scope = ctx.new_scope().expect("a scope");
    scope.ctx().tools().restrict(None, Some(vec!["t".to_owned()])).expect("restricted");
    assert_eq!(scope.ctx().tools().present_call("t", &json!({})).expect("not visible here"), None);
    assert_eq!(tools.schemas()[0].description(), "", "what the model sees is name, description and parameters");
}

#[test]
fn ctx_16_and_23_an_observer_that_removes_a_plug_in_as_it_is_mounted_reaches_that_mount() {
    let ctx = Context::new();
    let definition = PluginDefinition::new(&[], |_| async { Ok(()) });
    let (inside, removed) = (ctx.clone(), definition.clone());
    ctx.on_plugin(move |change| {
        if matches!(change, turnwheel::context::PluginChange::Mounted(_)) {
            inside.runtime().spawn(inside.unmount(&removed));
        }
        Ok(())
    })
    .expect("registered");
    let plugin = ctx.mount(&definition).expect("mounted");
    settle(&ctx);
    assert_eq!(plugin.state(), PluginState::Disposed);
}

#[test]
fn a_plug_in_that_removes_itself_in_its_body_is_gone_when_the_body_has_returned() {
    let ctx = Context::new();
    let slot: Rc<std::cell::RefCell<Option<PluginDefinition>>> = Rc::default();
    let own = slot.clone();
    let definition = PluginDefinition::new(&[], move |ctx: Context| {
        let definition = own.borrow().clone().expect("there");
        async move {
            ctx.unmount(&definition).await;
            Ok(())
        }
    });
    *slot.borrow_mut() = Some(definition.clone());
    let plugin = ctx.mount(&definition).expect("mounted");
    settle(&ctx);
    assert_eq!(plugin.state(), PluginState::Disposed);
    ctx.runtime().block_on(ctx.close()).expect("closed");
    slot.borrow_mut().take();
}

#[test]
fn lay_6_and_evt_14_what_a_view_says_of_itself_does_not_go_on_to_what_is_opened_through_it() {
    let ctx = agents::context(hello());
    let log = Log::default();
    let heard = log.clone();
    ctx.on(NoticeKind::ToolsChanged, move |_| {
        note(&heard, "changed");
        Ok(())
    })
    .expect("registered");
    let saved = log.clone();
    ctx.on_event(move |_: &Saved| {
        note(&saved, "saved");
        Ok(None)
    })
    .expect("registered");
    let agent = open(&ctx.quiet().received_by(|_| false), "a");
    let own = agent.ctx().expect("live");
    own.tools().register(tool()).expect("registered");
    own.emit_event(Saved).expect("heard");
    assert_eq!(take(&log), ["changed", "saved"]);
}

#[test]
fn evt_12_what_a_check_registers_hears_the_dispatch_that_was_checked() {
    let ctx = agents::context(hello());
    let agent = open(&ctx, "a");
    let (log, done) = (Log::default(), Rc::new(Cell::new(false)));
    let (inside, heard) = (ctx.clone(), log.clone());
    ctx.check_dispatches(move |dispatch| {
        if dispatch.name == "agent/inbox/inserted" && !done.replace(true) {
            let heard = heard.clone();
            inside.on(NoticeKind::Inserted, move |_| {
                note(&heard, "inserted");
                Ok(())
            })?;
        }
        Ok(())
    })
    .expect("registered");
    agent.followup("hi").expect("accepted");
    assert_eq!(take(&log), ["inserted"]);
    ctx.runtime().block_on(agent.when_idle()).expect("idle");
}
