//! Events and their dispatch: agent.md section 16. Named after the ids.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{Log, hello, open, prompt, settle};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use turnwheel::agent::{PreStep, PreStepDecision, WATERFALL_NAMES};
use turnwheel::context::Registration;
use turnwheel::events::Placement;
use turnwheel::{Agent, AgentStatus, Code, Context, Error, Notice, NoticeKind};

fn note(log: &Log, what: &str) {
    log.borrow_mut().push(what.to_owned());
}

fn listen(ctx: &Context, placement: Placement, log: &Log, name: &'static str) -> Registration {
    let log = log.clone();
    ctx.on_placed(NoticeKind::Status, placement, move |_| {
        note(&log, name);
        Ok(())
    })
    .expect("registered")
}

fn emit(agent: &Agent) {
    let ctx = agent.ctx().expect("live");
    ctx.emit(Notice::Status { agent: agent.clone(), status: AgentStatus::Idle });
}

/// Keeps what is reported, a line of its fields each.
#[derive(Clone, Default)]
struct Reported(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Reported {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!("{field}={value:?} "));
            }
        }
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.0.lock().expect("no panic").push(fields.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn evt_2_16_and_17_listeners_run_in_order_and_once_ones_are_gone_before_they_run() {
    let ctx = agents::context(hello());
    let agent = open(&ctx, "a");
    let log = Log::default();
    listen(&ctx, Placement::default(), &log, "first");
    listen(&ctx, Placement { once: true, ..Placement::default() }, &log, "once");
    listen(&ctx, Placement { prepend: true, ..Placement::default() }, &log, "in front");
    listen(&agent.ctx().expect("live"), Placement { once: true, ..Placement::default() }, &log, "own once");
    let again = log.clone();
    let inner = agent.clone();
    ctx.on_placed(NoticeKind::Status, Placement { once: true, ..Placement::default() }, move |_| {
        note(&again, "recursive");
        emit(&inner);
        Ok(())
    })
    .expect("registered");
    emit(&agent);
    assert_eq!(*log.borrow(), ["in front", "first", "once", "own once", "recursive", "in front", "first"]);
    let same = Rc::new(|_: &Notice| Ok(()));
    let (one, two) = (same.clone(), same);
    let registrations = [one, two].map(|listener| ctx.on(NoticeKind::Status, move |notice| listener(notice)));
    let [one, two] = registrations.map(|registered| registered.expect("two independent registrations"));
    one.dispose();
    two.dispose();
}

#[test]
fn evt_3_the_set_of_listeners_is_that_of_the_moment_a_dispatch_begins() {
    let ctx = agents::context(hello());
    let agent = open(&ctx, "a");
    let log = Log::default();
    let removed: Rc<RefCell<Option<Registration>>> = Rc::default();
    let (adding, removing, heard) = (ctx.clone(), removed.clone(), log.clone());
    ctx.on_placed(NoticeKind::Status, Placement { once: true, ..Placement::default() }, move |_| {
        listen(&adding, Placement::default(), &heard, "added");
        removing.borrow().as_ref().expect("registered").dispose();
        Ok(())
    })
    .expect("registered");
    *removed.borrow_mut() = Some(listen(&ctx, Placement::default(), &log, "removed"));
    emit(&agent);
    assert_eq!(std::mem::take(&mut *log.borrow_mut()), ["removed"]);
    emit(&agent);
    assert_eq!(*log.borrow(), ["added"]);
}

#[test]
fn evt_5_and_7_a_waterfall_nests_and_shares_its_payload() {
    let ctx = agents::context(hello());
    let log = Log::default();
    for name in ["outer", "inner"] {
        let log = log.clone();
        ctx.waterfall::<PreStep, _>(move |step, next| {
            let log = log.clone();
            async move {
                note(&log, &format!("{name} {}", step.messages.borrow().len()));
                step.messages.borrow_mut().push(agents::shared(name));
                let decision = next.call().await?;
                note(&log, &format!("{name} back"));
                Ok(decision)
            }
        })
        .expect("registered");
    }
    let agent = open(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    assert_eq!(*log.borrow(), ["outer 1", "inner 2", "inner back", "outer back"]);
    assert_eq!(agents::user_messages(&agent), ["q1", "outer", "inner"]);
    let silent = ctx.waterfall::<PreStep, _>(|_, _| async { Ok(PreStepDecision::Reject) });
    silent.expect("registered").dispose();
    let placement = Placement { prepend: true, ..Placement::default() };
    ctx.waterfall_placed::<PreStep, _>(placement, |_, _| async { Ok(PreStepDecision::Reject) }).expect("registered");
    log.borrow_mut().clear();
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    assert!(log.borrow().is_empty(), "not delegating skips everything inside");
    assert_eq!(agents::ends(&agent), ["completed", "blocked"]);
}

#[test]
fn evt_9_to_11_notifications_are_contained_and_routed_by_the_agent_they_name() {
    let ctx = agents::context(hello());
    let (a, b) = (open(&ctx, "a"), open(&ctx, "b"));
    let log = Log::default();
    ctx.on(NoticeKind::Status, |_| Err(Error::host("contained"))).expect("registered");
    ctx.on(NoticeKind::Status, |_| panic!("planned panic")).expect("registered");
    listen(&a.ctx().expect("live"), Placement::default(), &log, "a's");
    listen(&b.ctx().expect("live"), Placement::default(), &log, "b's");
    // Emitted through one agent's context about the other: the subject decides.
    let reported = Reported::default();
    tracing::subscriber::with_default(reported.clone(), || {
        a.ctx().expect("live").emit(Notice::Status { agent: b.clone(), status: AgentStatus::Idle });
    });
    assert_eq!(*log.borrow(), ["b's"]);
    let reported = reported.0.lock().expect("no panic").clone();
    assert_eq!(reported.len(), 2, "each failure once: {reported:?}");
    for (line, why) in reported.iter().zip(["contained", "planned panic"]) {
        assert!(line.contains("event=\"agent/status\"") && line.contains(why), "{line}");
    }
}

#[test]
fn evt_13_the_names_are_those_of_the_catalogue() {
    let names: Vec<_> = NoticeKind::ALL.iter().map(|kind| kind.as_str()).collect();
    for name in [
        "agent/created",
        "agent/disposed",
        "agent/status",
        "agent/inbox/inserted",
        "agent/inbox/claimed",
        "agent/inbox/discarded",
        "agent/session-start",
        "agent/error",
        "agent-loop/config-start-failed",
    ] {
        assert!(names.contains(&name), "{name}");
        assert_eq!(NoticeKind::parse(name).map(NoticeKind::as_str), Some(name));
    }
    for name in ["agent/pre-step", "agent/request", "agent/request-error"] {
        assert!(WATERFALL_NAMES.contains(&name), "{name}");
    }
    assert_eq!(turnwheel::agent::unknown_event("agent/nothing").code(), &Code::UnknownOption);
}

#[test]
fn evt_14_and_15_a_global_listener_hears_every_scope_and_lives_as_long_as_its_context() {
    let ctx = agents::context(hello());
    let (a, b) = (open(&ctx, "a"), open(&ctx, "b"));
    let log = Log::default();
    let own = a.ctx().expect("live");
    listen(&own, Placement::default(), &log, "scoped");
    listen(&own, Placement { global: true, ..Placement::default() }, &log, "global");
    emit(&b);
    assert_eq!(std::mem::take(&mut *log.borrow_mut()), ["global"]);
    emit(&a);
    assert_eq!(std::mem::take(&mut *log.borrow_mut()), ["scoped", "global"]);
    ctx.runtime().block_on(a.dispose());
    emit(&b);
    assert!(log.borrow().is_empty());
}

#[test]
fn evt_1_8_and_12_checks_are_raw_their_first_failure_stops_the_rest_and_prevents_the_event() {
    let ctx = agents::context(hello());
    let agent = open(&ctx, "a");
    let log = Log::default();
    let checked = log.clone();
    ctx.check_events(move |_, event| {
        note(&checked, "first");
        if event.kind() == "my/note" { Err(Error::coded("Veto", "VETO", "not this one")) } else { Ok(()) }
    })
    .expect("registered");
    let later = log.clone();
    ctx.check_events(move |_, _| {
        note(&later, "later");
        Ok(())
    })
    .expect("registered");
    let error = agent.session().append("my/note", turnwheel::json!({})).expect_err("vetoed");
    assert_eq!(error.code().as_str(), "VETO");
    assert_eq!(*log.borrow(), ["first"]);
    assert!(agent.session().is_empty());
    agent.session().append("my/other", turnwheel::json!({})).expect("appended");
}
