//! Events of plug-ins in every mode of EVT-1, and the versions of what plug-ins log (D-21).

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{Log, hello, open, release, settle};
use std::rc::Rc;
use turnwheel::events::{Placement, PluginEvent};
use turnwheel::json::Value;
use turnwheel::runtime::Signal;
use turnwheel::storage::jsonl::{JsonlOptions, JsonlStore};
use turnwheel::{Code, Context, Error, json};

/// Who knows the way to a place?
struct Way(&'static str);

impl PluginEvent for Way {
    const NAME: &'static str = "map/way";
    type Answer = u32;
}

fn note(log: &Log, what: &str) {
    log.borrow_mut().push(what.to_owned());
}

/// A listener that notes its name and answers, if it has an answer.
fn listen(ctx: &Context, log: &Log, name: &'static str, answer: Option<u32>) {
    let log = log.clone();
    ctx.on_event(move |way: &Way| {
        note(&log, &format!("{name} {}", way.0));
        Ok(answer)
    })
    .expect("registered");
}

/// One that answers when the gate opens.
fn wait(ctx: &Context, log: &Log, name: &'static str, gate: &Signal, answer: Result<Option<u32>, &'static str>) {
    let (log, gate) = (log.clone(), gate.clone());
    ctx.on_event_async(move |_: Rc<Way>| {
        let (log, gate) = (log.clone(), gate.clone());
        note(&log, &format!("{name} begins"));
        async move {
            gate.cancelled().await;
            note(&log, &format!("{name} ends"));
            answer.map_err(Error::host)
        }
    })
    .expect("registered");
}

fn take(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.borrow_mut())
}

#[test]
fn evt_1_and_4_bail_asks_at_once_in_order_until_one_answers_and_zero_is_an_answer() {
    let (ctx, log) = (Context::new(), Log::default());
    listen(&ctx, &log, "first", None);
    listen(&ctx, &log, "second", Some(0));
    listen(&ctx, &log, "third", Some(3));
    assert_eq!(ctx.bail(Way("home")).expect("answered"), Some(0));
    assert_eq!(take(&log), ["first home", "second home"]);
    let gate = Signal::new();
    let early = Context::new();
    wait(&early, &log, "late", &gate, Ok(Some(9)));
    assert_eq!(early.bail(Way("home")).expect("nobody in time"), None);
    assert_eq!(take(&log), ["late begins"], "started and not waited for");
}

#[test]
fn evt_1_and_8_emit_runs_every_listener_at_once_and_the_first_failure_reaches_the_emitter() {
    let (ctx, log) = (Context::new(), Log::default());
    listen(&ctx, &log, "first", Some(1));
    let bad = ctx.on_event(|_: &Way| Err(Error::host("lost"))).expect("registered");
    listen(&ctx, &log, "last", Some(2));
    assert_eq!(ctx.emit_event(Way("home")).expect_err("not contained").message(), "lost");
    assert_eq!(take(&log), ["first home"]);
    bad.dispose();
    ctx.on_event_placed(Placement { prepend: true, once: true, ..Placement::default() }, {
        let log = log.clone();
        move |_: &Way| {
            note(&log, "in front, once");
            Ok(None)
        }
    })
    .expect("registered");
    for _ in 0..2 {
        ctx.emit_event(Way("home")).expect("delivered");
    }
    assert_eq!(take(&log), ["in front, once", "first home", "last home", "first home", "last home"]);
    ctx.on_event(|_: &Way| -> turnwheel::Result<Option<u32>> { panic!("planned panic") }).expect("registered");
    assert_eq!(ctx.emit_event(Way("home")).expect_err("a panic is its listener's failure").code(), &Code::Panic);
}

#[test]
fn evt_1_serial_awaits_one_after_the_other_and_bails() {
    let (ctx, log) = (Context::new(), Log::default());
    let gate = Signal::new();
    wait(&ctx, &log, "first", &gate, Ok(None));
    listen(&ctx, &log, "second", Some(7));
    listen(&ctx, &log, "third", Some(8));
    let asked = ctx.serial(Way("home"));
    let answer = log.clone();
    ctx.runtime().spawn(async move {
        let found = asked.await.expect("answered");
        note(&answer, &format!("answer {found:?}"));
    });
    settle(&ctx);
    assert_eq!(take(&log), ["first begins"]);
    release(&gate);
    settle(&ctx);
    assert_eq!(take(&log), ["first ends", "second home", "answer Some(7)"]);
}

#[test]
fn evt_1_parallel_awaits_all_together_and_aggregates_failures() {
    let (ctx, log) = (Context::new(), Log::default());
    let gates = [Signal::new(), Signal::new(), Signal::new()];
    wait(&ctx, &log, "a", &gates[0], Err("a failed"));
    wait(&ctx, &log, "b", &gates[1], Ok(Some(1)));
    wait(&ctx, &log, "c", &gates[2], Err("c failed"));
    let all = ctx.parallel(Way("home"));
    let heard = log.clone();
    ctx.runtime().spawn(async move {
        let error = all.await.expect_err("two failed");
        note(&heard, error.message());
        let errors = error.context().get("errors").and_then(Value::as_array).map(|list| list.to_vec());
        assert_eq!(errors.expect("all of them"), [Value::from("a failed"), Value::from("c failed")]);
    });
    settle(&ctx);
    assert_eq!(take(&log), ["a begins", "b begins", "c begins"]);
    for gate in gates.iter().rev() {
        release(gate);
        settle(&ctx);
    }
    assert_eq!(take(&log), ["c ends", "b ends", "a ends", "2 listeners of map/way failed"]);
    let alone = Context::new();
    alone.on_event(|_: &Way| Err(Error::coded("MapError", "NO_MAP", "no map"))).expect("registered");
    listen(&alone, &log, "other", None);
    let error = alone.runtime().block_on(alone.parallel(Way("home"))).expect_err("one failed");
    assert_eq!((error.code().as_str(), take(&log)), ("NO_MAP", vec!["other home".to_owned()]));
}

#[test]
fn scp_12_plug_in_events_of_an_agents_scope_are_heard_by_it_and_above_and_end_with_their_context() {
    let ctx = agents::context(hello());
    let (a, b) = (open(&ctx, "a"), open(&ctx, "b"));
    let log = Log::default();
    listen(&ctx, &log, "global", None);
    listen(&a.ctx().expect("live"), &log, "a's", None);
    listen(&b.ctx().expect("live"), &log, "b's", None);
    a.ctx().expect("live").emit_event(Way("home")).expect("delivered");
    assert_eq!(take(&log), ["global home", "a's home"]);
    let held = a.ctx().expect("live");
    ctx.runtime().block_on(a.dispose());
    held.emit_event(Way("home")).expect("delivered");
    assert_eq!(take(&log), ["global home"]);
}

fn on_disk(folder: &std::path::Path) -> Context {
    let ctx = Context::builder().store(JsonlStore::new(JsonlOptions::new(folder))).build();
    ctx.llm().register("fake", hello()).expect("a new route");
    ctx
}

/// A life of session "a" in which `act` may log; closed at its end.
fn live(folder: &std::path::Path, version: Option<u32>, act: impl Fn(&turnwheel::Session)) -> turnwheel::Result<()> {
    let ctx = on_disk(folder);
    if let Some(version) = version {
        ctx.register_event_type("acme/score", version)?;
    }
    let opened = ctx.runtime().block_on(ctx.agent("a").provider("fake").model("m").open());
    if let Ok(agent) = &opened {
        act(agent.session());
    }
    ctx.runtime().block_on(ctx.close())?;
    opened.map(drop)
}

#[test]
fn d_21_a_registered_type_is_required_and_its_version_stands_in_the_log_before_its_events() {
    let folder = tempfile::tempdir().expect("a folder");
    live(folder.path(), Some(2), |session| {
        session.append("acme/score", json!({"points": 1})).expect("logged");
        session.append("acme/score", json!({"points": 2})).expect("logged");
        let kinds: Vec<_> =
            session.events_from(0).iter().map(|event| (event.kind().to_owned(), event.ignorable)).collect();
        let expected = [("session/event-types", true), ("acme/score", false), ("acme/score", false)];
        assert_eq!(kinds, expected.map(|(kind, ignorable)| (kind.to_owned(), ignorable)));
        let versions = session.event(0).expect("logged").data_value();
        assert_eq!(versions, json!({"types": {"acme/score": 2}}));
    })
    .expect("written");
    let refused = live(folder.path(), None, |_| ()).expect_err("the plug-in is missing");
    assert_eq!(refused.code(), &Code::UnsupportedFormat);
    let older = live(folder.path(), Some(1), |_| ()).expect_err("the plug-in is too old");
    assert_eq!(older.code(), &Code::UnsupportedFormat);
    assert!(older.message().contains("version 2") && older.message().contains("knows 1"), "{}", older.message());
    live(folder.path(), Some(3), |session| {
        assert_eq!(session.event_type_version("acme/score"), Some(2), "what wrote the events so far");
        session.append("acme/score", json!({"total": 3})).expect("logged");
        assert_eq!(session.event_type_version("acme/score"), Some(3));
    })
    .expect("a newer plug-in reads older events");
    let of_two = live(folder.path(), Some(2), |_| ()).expect_err("raised meanwhile");
    assert_eq!(of_two.code(), &Code::UnsupportedFormat);
}

#[test]
fn d_21_types_of_the_runtime_and_second_versions_are_refused() {
    let ctx = Context::new();
    ctx.register_event_type("acme/score", 1).expect("registered");
    ctx.register_event_type("acme/score", 1).expect("the same again");
    for (kind, version, code) in [
        ("acme/score", 2, Code::DuplicateName),
        ("turn/start", 1, Code::ReservedEvent),
        ("todo/write", 1, Code::ReservedEvent),
        ("session/event-types", 1, Code::ReservedEvent),
        ("acme/other", 0, Code::InvalidArgument),
        ("", 1, Code::InvalidArgument),
    ] {
        assert_eq!(ctx.register_event_type(kind, version).expect_err("refused").code(), &code, "{kind} {version}");
    }
}
