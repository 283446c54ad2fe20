//! Invariants, model selection, the consumed-work fold: agent.md sections 19 to 21. Named after the ids.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{hello, open, prompt, settle};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::agent::{ModelChoice, ModelSelection, RequestEvent};
use turnwheel::invariants::{Invariants, InvariantsConfig, violation};
use turnwheel::llm::adapters::Scripted;
use turnwheel::session::{ConsumedWork, Event, fold_consumed_work};
use turnwheel::{AgentStatus, Code, Context, Error, Notice, json};

#[test]
fn inv_5_and_6_a_failing_installer_frees_the_name_and_a_violation_names_its_package() {
    let ctx = Context::new();
    let checks = Invariants::load(&InvariantsConfig::default()).expect("loaded");
    let error = checks.register(&ctx, "mine", |_| Err(Error::host("cannot install"))).expect_err("failed");
    assert_eq!(error.message(), "cannot install");
    let undone = Rc::new(Cell::new(false));
    let flag = undone.clone();
    let install = move |ctx: &Context| Ok(vec![ctx.effect(move || flag.set(true))?]);
    let registered = checks.register(&ctx, "mine", install).expect("the name is free");
    let taken = checks.register(&ctx, "mine", |_| Ok(Vec::new())).expect_err("taken");
    assert_eq!(taken.code(), &Code::DuplicateName);
    registered.dispose();
    assert!(undone.get());
    checks.register(&ctx, "mine", |_| Ok(Vec::new())).expect("free again");
    let found = violation("mine", "something is off");
    assert_eq!((found.code(), found.message()), (&Code::Invariant, "mine: something is off"));
    assert_eq!(found.context().get("package").and_then(|name| name.as_str()), Some("mine"));
}

#[test]
fn inv_9_a_repeated_status_is_reported_and_stops_nothing() {
    let ctx = agents::context(hello());
    let checks = Invariants::load(&InvariantsConfig::default()).expect("loaded");
    checks.register_core(&ctx).expect("registered");
    let agent = open(&ctx, "a");
    ctx.emit(Notice::Status { agent: agent.clone(), status: AgentStatus::Running });
    ctx.emit(Notice::Status { agent: agent.clone(), status: AgentStatus::Running });
    agent.followup("go").expect("the notification is contained, so the agent goes on");
    settle(&ctx);
    assert_eq!(agents::ends(&agent), ["completed"]);
}

#[test]
fn mod_1_5_and_6_an_empty_selection_changes_nothing_and_its_registrations_remove_it() {
    let script = Scripted::new().text("one").text("two").text("three");
    let ctx = agents::context(script.clone());
    ctx.llm().register("other", script.clone()).expect("a new route");
    let selection = ModelSelection::new(None);
    let registrations = selection.install(&ctx).expect("installed");
    let agent = open(&ctx, "a");
    let ask = |id: &str| {
        agent.followup(prompt(id)).expect("accepted");
        settle(&ctx);
        let header = script.last_request().expect("asked").header;
        (header.config.provider.clone(), header.config.model.clone())
    };
    let route = |provider: &str, model: &str| (provider.to_owned(), model.to_owned());
    assert_eq!(ask("q1"), route("fake", "m"));
    let choice = ModelChoice { provider: "other".into(), model: "n".into(), reasoning_effort: None };
    selection.select(Some(choice.clone()));
    assert_eq!(selection.current(), Some(choice));
    assert_eq!(ask("q2"), route("other", "n"));
    for registration in &registrations {
        registration.dispose();
    }
    let requests = Rc::new(Cell::new(0));
    let count = requests.clone();
    ctx.waterfall::<RequestEvent, _>(move |_, next| {
        count.set(count.get() + 1);
        async move {
            let mut config = next.call().await?;
            (config.provider, config.model) = ("fake".into(), "back".into());
            Ok(config)
        }
    })
    .expect("registered");
    assert_eq!(ask("q3"), route("fake", "back"), "a removed selection overrides nobody");
    assert_eq!(requests.get(), 1);
}

/// A log by the short words of its events.
fn log(words: &[&str]) -> Vec<Arc<Event>> {
    let message = |id: &str| json!({"id": id, "role": "user", "content": [], "source": {"kind": "user"}});
    let splice = |value| ("agent/inbox/spliced", value);
    let event = |word: &str| match word {
        "start" => ("turn/start", json!({"turn": 1})),
        "step" => ("step/start", json!({"turn": 1, "step": 1})),
        "insert" => splice(json!({"target": "next-turn", "start": 0, "inserted": [(message("q"))]})),
        "claim" => splice(json!({"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []})),
        "cancel" => {
            splice(json!({"target": "next-turn", "start": 0, "removedCount": 1, "inserted": [], "outcome": "canceled"}))
        }
        "swap" => splice(
            json!({"target": "next-turn", "start": 0, "removedCount": 1, "inserted": [(message("r"))], "outcome": "canceled"}),
        ),
        kind => ("turn/end", json!({"turn": 1, "reason": {"kind": kind}})),
    };
    let numbered = words.iter().enumerate().map(|(seq, word)| {
        let (kind, data) = event(word);
        let value = json!({"type": kind, "seq": (seq as u64), "time": 1, "data": (data)});
        Arc::new(Event::from_value(&value).expect("an event"))
    });
    numbered.collect()
}

#[test]
fn cwk_1_to_7_one_pass_tells_the_last_accounting_end_and_what_was_dropped_after_it() {
    let work = |words: &[&str]| fold_consumed_work(&log(words));
    let is = |end: Option<u64>, dropped_unrun: bool| ConsumedWork { end, dropped_unrun };
    assert_eq!(work(&[]), is(None, false));
    assert_eq!(work(&["insert", "start", "claim", "step", "completed"]), is(Some(4), false));
    assert_eq!(work(&["insert", "start", "claim", "completed"]), is(None, false), "it took nothing in the end (CWK-6)");
    assert_eq!(work(&["insert", "start", "claim", "blocked"]), is(Some(3), false));
    assert_eq!(work(&["start", "blocked"]), is(None, false));
    assert_eq!(work(&["insert", "start", "claim", "strange-new-end"]), is(Some(3), false), "never a success (CWK-7)");
    assert_eq!(work(&["insert", "claim", "start", "blocked"]), is(None, false), "a removal between turns is nobody's");
    assert_eq!(work(&["insert", "cancel"]), is(None, true));
    let in_turn = ["insert", "start", "cancel", "blocked"];
    assert_eq!(work(&in_turn), is(None, true), "a removal with a cancel outcome inside a turn is no claim (CWK-3)");
    let both = ["insert", "insert", "start", "claim", "cancel", "blocked"];
    assert_eq!(work(&both), is(Some(5), false), "the claim beside it is, and its turn accounts for both");
    assert_eq!(work(&["insert", "insert", "start", "claim", "blocked", "cancel"]), is(Some(4), true));
    assert_eq!(work(&["insert", "swap"]), is(None, false), "a replacement drops nothing");
    assert_eq!(work(&["insert", "cancel", "insert", "start", "claim", "blocked"]), is(Some(5), false));
    assert_eq!(work(&["insert", "cancel", "insert", "start", "claim", "completed"]), is(None, true));
}
