//! Doubles for models: they break, record and replay as they say; and no secret is left behind anywhere.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used)]

#[path = "support/agents.rs"]
#[allow(dead_code)]
mod agents;
#[path = "support/http.rs"]
mod http;
#[path = "support/traced.rs"]
mod traced;

use agents::{count, events, finish, open, settle};
use http::{HEAD, KEY, answer, collect, request};
use turnwheel::llm::adapters::{AnthropicMessages, OpenAiChat, OpenAiResponses};
use turnwheel::llm::{Adapter, Chunk, Failure, FinishReason, ModelRequest, retry};
use turnwheel::session::TurnEndReason;
use turnwheel::testing::{Cassette, Fault, Faulty, Scripted, ScriptedReply};
use turnwheel::{Agent, CancelCause, Context, EventData};

const ANSWER: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn hello() -> Scripted {
    Scripted::new().respond(|_| ScriptedReply::text("hello"))
}

fn ask(adapter: &dyn Adapter) -> (Vec<Chunk>, Option<Failure>) {
    collect(adapter, request())
}

fn last_reason(agent: &Agent) -> TurnEndReason {
    let found = events(agent).into_iter().rev().find_map(|event| match &event.data {
        EventData::TurnEnd { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    found.unwrap()
}

#[test]
fn faults_come_in_order_and_then_nothing_is_broken_any_more() {
    let failure = Failure::new("SERVER", "m");
    let faults = [Fault::Cut(1), Fault::Fail(0, failure.clone()), Fault::None, Fault::Crumble];
    let faulty = Faulty::new(hello(), faults);
    let (chunks, found) = ask(&faulty);
    assert_eq!((chunks.len(), found.unwrap().code.as_str()), (1, "STREAM_CLOSED"));
    assert_eq!(ask(&faulty), (Vec::new(), Some(failure)));
    let whole = ask(&faulty);
    let (crumbs, found) = ask(&faulty);
    assert_eq!(found, None);
    let said: Vec<_> = crumbs
        .iter()
        .filter_map(|chunk| match chunk {
            Chunk::TextDelta { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(said, ["h", "e", "l", "l", "o"]);
    assert_eq!(ask(&faulty), whole, "after the last fault");
    assert_eq!(faulty.request_count(), 5);
}

#[test]
fn a_stall_waits_for_the_cancellation_and_keeps_what_was_said() {
    let ctx = agents::context(Faulty::new(hello(), [Fault::Stall(2)]));
    let agent = open(&ctx, "a");
    agent.followup("q").unwrap();
    settle(&ctx);
    assert_eq!(count(&agent, "assistant/chunk"), 2);
    agent.cancel(CancelCause::User);
    settle(&ctx);
    assert!(matches!(last_reason(&agent), TurnEndReason::Aborted(_)));
    assert_eq!(agent.session().history().iter().last().unwrap().text(), "hello");
}

#[test]
fn case_014_a_call_that_was_cut_is_never_run() {
    let calls = Scripted::new().calls([("c", "f", "{\"x\":1}")]);
    let ctx = agents::context(Faulty::new(calls, [Fault::Cut(2)]));
    let agent = open(&ctx, "a");
    agent.followup("q").unwrap();
    settle(&ctx);
    assert_eq!((count(&agent, "tool/call"), count(&agent, "assistant/message")), (0, 0));
    let TurnEndReason::Error(failure) = last_reason(&agent) else { panic!("an error") };
    assert_eq!(failure.code, "STREAM_CLOSED");
}

/// Plays two turns of one agent on an adapter and returns what it said.
fn play(adapter: impl Adapter + 'static) -> (Vec<String>, TurnEndReason) {
    let ctx = agents::context(adapter);
    let agent = open(&ctx, "a");
    for text in ["one", "two"] {
        agent.followup(text).unwrap();
        settle(&ctx);
    }
    (agent.session().history().iter().map(|message| message.text()).collect(), last_reason(&agent))
}

#[test]
fn a_cassette_replays_what_it_recorded_and_a_miss_is_loud() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.cassette");
    let model =
        || Scripted::new().reply(ScriptedReply::text("first")).reply(ScriptedReply::error(Failure::new("SERVER", "m")));
    let recorded = play(Cassette::record(&path, model()).unwrap());
    let cassette = Cassette::replay(&path).unwrap();
    assert_eq!(cassette.remaining(), 2);
    assert_eq!(play(cassette.clone()), recorded, "failures included");
    assert_eq!(cassette.remaining(), 0);
    let (_, failure) = ask(&cassette);
    let failure = failure.unwrap();
    assert_eq!(failure.code, "CASSETTE_MISS");
    assert!(failure.message.contains("every recorded exchange has been replayed"), "{}", failure.message);
    let fresh = Cassette::replay(&path).unwrap();
    let failure = ask(&fresh).1.unwrap();
    assert!(failure.message.contains("differs in: config, messages"), "{}", failure.message);
    std::fs::write(&path, "no cassette\n").unwrap();
    assert!(Cassette::replay(&path).is_err());
    assert!(Cassette::replay(folder.path().join("none")).is_err());
}

#[test]
fn a_miss_is_not_retried() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.cassette");
    drop(Cassette::record(&path, hello()).unwrap());
    let ctx = agents::context(Cassette::replay(&path).unwrap());
    retry::install(&ctx).unwrap();
    let agent = open(&ctx, "a");
    agent.followup("q").unwrap();
    settle(&ctx);
    assert_eq!(count(&agent, "llm/retry"), 0);
    let TurnEndReason::Error(failure) = last_reason(&agent) else { panic!("an error") };
    assert_eq!(failure.code, "CASSETTE_MISS");
}

/// Runs turns that work, fail with the key quoted, and fail to connect, with a store and a cassette; then looks through
/// everything that is left.
#[test]
fn no_secret_is_left_behind_by_a_run() {
    const HEADER: &str = "gateway-secret-9876543210";
    traced::start();
    let folder = tempfile::tempdir().unwrap();
    let quoting = format!(
        "HTTP/1.1 401 Unauthorized\r\nx-request-id: r\r\nconnection: close\r\n\r\n{{\"error\":{{\"message\":\"bad key {KEY} and {HEADER}\"}}}}"
    );
    let stream_error = format!("{HEAD}data: {{\"error\":{{\"message\":\"key {KEY} is out of order\"}}}}\n\n");
    let rubbish = format!("{HEAD}data: rubbish {KEY}\n\n");
    let answers = [format!("{HEAD}{ANSWER}"), quoting, stream_error, rubbish];
    let mut shown = String::new();
    for (number, text) in answers.into_iter().enumerate() {
        let (url, served) = answer(text);
        let chat = OpenAiChat::builder(&url).api_key(KEY).header("x-gateway", HEADER).build().unwrap();
        shown.push_str(&format!("{chat:?}"));
        let cassette = Cassette::record(folder.path().join(format!("{number}.cassette")), chat).unwrap();
        let store = turnwheel::storage::jsonl::JsonlStore::new(turnwheel::storage::jsonl::JsonlOptions::new(
            folder.path().join("sessions"),
        ));
        let ctx = Context::builder().store(store).build();
        ctx.llm().register("fake", cassette).unwrap();
        let agent = open(&ctx, &format!("agent-{number}"));
        let result = ctx.runtime().block_on(agent.run("hi").unwrap());
        shown.push_str(&format!("{result:?}"));
        events(&agent).iter().for_each(|event| shown.push_str(event.json()));
        assert!(served.recv().unwrap().contains(KEY), "the key was really sent");
        ctx.runtime().block_on(ctx.close()).unwrap();
    }
    for builder in [
        format!("{:?}", OpenAiChat::builder("https://e.com").api_key(KEY).proxy(format!("http://u:{KEY}@p"))),
        format!("{:?}", AnthropicMessages::builder("https://e.com").api_key(KEY).build().unwrap()),
        format!("{:?}", OpenAiResponses::builder("https://e.com").api_key(KEY).build().unwrap()),
        format!("{:?}", OpenAiChat::builder("https://e.com").proxy(format!("nonsense {KEY}")).build().unwrap_err()),
        format!("{:?}", OpenAiChat::builder(format!("https://u:{KEY}@e.com")).build().unwrap_err()),
        format!("{:?}", OpenAiChat::builder(format!("ftp://u:{KEY}@e.com")).build().unwrap_err()),
        format!("{:?}", OpenAiChat::builder("https://e.com").header("x", format!("{KEY}\n")).build().unwrap_err()),
    ] {
        shown.push_str(&builder);
    }
    let traced = traced::text();
    assert!(traced.contains("hyper_util") && traced.contains("TRACE"), "all levels of all crates are kept:\n{traced}");
    let mut left = vec![("what was shown".to_owned(), shown), ("what was traced".to_owned(), traced)];
    let mut folders = vec![folder.path().to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                left.push((
                    path.display().to_string(),
                    String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned(),
                ));
            }
        }
    }
    assert!(left.len() >= 10, "sessions and cassettes were looked through: {}", left.len());
    for (place, text) in left {
        for secret in [KEY, HEADER] {
            assert!(!text.contains(secret), "{place} holds a secret");
        }
    }
    let _ = (finish(FinishReason::Stop), request() as ModelRequest);
}
