//! Reported faults of peers' stores: rows of `tests/cases/bug-reports.md`, by number.
#![cfg(feature = "jsonl")]

#[path = "support/store.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod store;

use std::fs::{self, File};
use std::sync::Arc;
use store::{BOTH, Fixture, append, block_on, code, event, id, put, turns};
use turnwheel::json::Value;
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::session::{Event, EventData, Session, SessionHeader, SurfaceOp};
use turnwheel::storage::Store;
use turnwheel::storage::jsonl::{Compression, JsonlOptions, JsonlStore};
use turnwheel::{Agent, Code, Context, Message, Tool, ToolOutput, json};

fn open(ctx: &Context, id: &str) -> Agent {
    ctx.runtime().block_on(ctx.agent(id).provider("fake").model("m").open()).expect("the agent opens")
}

fn context(store: JsonlStore, script: Scripted) -> Context {
    let ctx = Context::builder().store(store).build();
    ctx.llm().register("fake", script).expect("a new route");
    ctx
}

fn turn(ctx: &Context, agent: &Agent, text: &str) {
    agent.followup(text).expect("accepted");
    ctx.runtime().block_on(agent.when_idle()).expect("idle");
}

fn message(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "content": [{"type": "text", "text": text}], "source": {"kind": "user"}})
}

fn line(context: &turnwheel::Error) -> Option<u64> {
    context.context().get("line").and_then(Value::as_u64)
}

#[test]
fn case_119_a_repeated_event_and_a_circle_of_sources_are_reported() {
    let fixture = Fixture::new(Compression::None);
    fixture.write(&turns(2), &[]);
    let text = fs::read_to_string(fixture.path()).expect("a file");
    let mut lines: Vec<_> = text.lines().collect();
    lines.insert(4, lines[3]);
    put(&fixture.path(), format!("{}\n", lines.join("\n")).as_bytes());
    let error = fixture.read().expect_err("event 2 is there twice");
    assert_eq!((error.code(), line(&error)), (&Code::CorruptLog, Some(4)), "{error:?}");
    let cites = |seq: u64, other: u64| {
        let data = message("m", "x").to_text();
        event(&format!(
            r#"{{"type":"user/message","seq":{seq},"time":1,"data":{data},"sourceEventSeqs":[{other}],"surfaceOp":"append"}}"#
        ))
    };
    let ctx = Context::new();
    let circle = vec![cites(0, 1), cites(1, 0)];
    assert_eq!(code(Session::seeded(ctx.runtime(), SessionHeader::new("s", 1), circle)), Code::InvalidSurface);
}

#[test]
fn case_121_a_fork_holds_a_copy_and_a_mark_and_counts_nothing_twice() {
    let fixture = Fixture::new(Compression::Zstd);
    let ctx = context(fixture.store.clone(), Scripted::new().respond(|_| ScriptedReply::text("answer")));
    let parent = open(&ctx, "parent");
    turn(&ctx, &parent, "one");
    turn(&ctx, &parent, "two");
    let nodes = parent.session().surface_nodes();
    let summary = Arc::new(Message::user_text("summary", "one and two"));
    parent.session().replace_surface(summary, nodes[0], nodes[3], nodes[..4].to_vec()).expect("compacted");
    let seed = ctx.fork_seed(parent.session(), None).expect("a seed");
    let length = seed.len() as u64;
    let create = ctx.agent("child").provider("fake").model("m").seed(seed).header(|header| {
        header.parent_session = Some("parent".into());
        header.seed_length = Some(length);
    });
    let child = ctx.runtime().block_on(create.create()).expect("forked").agent().clone();
    turn(&ctx, &child, "three");
    ctx.runtime().block_on(ctx.close()).expect("closed");
    let log = block_on(fixture.store.read(&id("child"))).expect("readable").expect("stored");
    let marks: Vec<_> = log.events.iter().filter(|event| matches!(event.data, EventData::EndSeed)).collect();
    assert_eq!((log.header.seed_length, marks.len(), marks[0].seq), (Some(length), 1, length));
    let own = Context::new();
    let loaded = Session::seeded(own.runtime(), log.header.clone(), log.events).expect("loaded");
    let history: Vec<_> = loaded.history().iter().map(|message| message.text()).collect();
    assert_eq!(history, ["one and two", "three", "answer"]);
}

#[test]
fn case_124_an_append_starts_on_a_clean_line_and_a_glued_record_is_named() {
    let fixture = Fixture::new(Compression::None);
    let events = turns(2);
    fixture.write(&events[..3], &[]);
    let whole = fs::read(fixture.path()).expect("a file");
    let half = &events[3].json()[..20];
    put(&fixture.path(), &[whole.as_slice(), half.as_bytes()].concat());
    let (log, writer) = fixture.open().expect("opened").expect("stored");
    assert_eq!((log.events.len(), log.torn_bytes), (3, 20));
    append(&writer, &events[3..]).expect("appended");
    block_on(writer.close());
    assert_eq!(fixture.log().events, events);
    // What a program without this rule leaves: the rest of the turn stands behind a line that is two.
    let glued = format!("{half}{}\n{}\n{}\n", events[3].json(), events[4].json(), events[5].json());
    put(&fixture.path(), &[whole.as_slice(), glued.as_bytes()].concat());
    let error = fixture.read().expect_err("refused");
    assert_eq!((error.code(), line(&error)), (&Code::CorruptLog, Some(4)), "{error:?}");
}

#[test]
fn case_125_a_damaged_session_is_named_by_line_and_keeps_nobody_from_the_others_nor_from_its_text() {
    let fixture = Fixture::new(Compression::None);
    fixture.write(&turns(3), &[]);
    let text = fs::read_to_string(fixture.path()).expect("a file");
    let ctx = context(fixture.store.clone(), Scripted::new().respond(|_| ScriptedReply::text("answer")));
    turn(&ctx, &open(&ctx, "other"), "hello");
    for wrong in ["{\"type\":", "{\"type\":\"plan/mode\",\"seq\":4,\"time\":\"now\",\"data\":{}}"] {
        let mut lines: Vec<_> = text.lines().collect();
        lines[5] = wrong;
        let damaged = format!("{}\n", lines.join("\n"));
        put(&fixture.path(), damaged.as_bytes());
        let error = fixture.read().expect_err("refused");
        let at = line(&error).or_else(|| error.context().get("seq").and_then(Value::as_u64).map(|seq| seq + 1));
        assert_eq!((error.code(), at), (&Code::CorruptLog, Some(5)), "{error:?}");
        assert_eq!(block_on(fixture.store.list()).expect("listed").len(), 2);
        let raw = block_on(fixture.store.read_raw(&fixture.header.id)).expect("exported").expect("stored");
        assert_eq!(raw.text, damaged.as_bytes());
    }
    turn(&ctx, &open(&ctx, "fresh"), "a new start");
    turn(&ctx, &ctx.find_agent("other").expect("live"), "and the other goes on");
    ctx.runtime().block_on(ctx.close()).expect("closed");
}

#[test]
fn case_130_a_nul_in_a_text_or_key_goes_through_both_encodings() {
    for compression in BOTH {
        let ctx = Context::new();
        let session = Session::new(ctx.runtime(), SessionHeader::new("demo", 1)).expect("a session");
        session.append_raw("user/message", message("m", "a\0b"), Some(SurfaceOp::Append), None, false).expect("logged");
        session.append("my/note", json!({"k\0": "\0"})).expect("logged");
        let fixture = Fixture::new(compression);
        fixture.write(&session.events_from(0), &[]);
        let events = fixture.log().events.to_vec();
        assert_eq!(events[0].data.message().expect("a message").text(), "a\0b");
        assert_eq!(events[1].data_value().get("k\0").and_then(Value::as_str), Some("\0"));
    }
}

#[test]
fn case_134_two_agents_of_one_id_never_share_a_path() {
    let fixture = Fixture::new(Compression::Zstd);
    let ctx = context(fixture.store.clone(), Scripted::new());
    let create = |id: &str| ctx.runtime().block_on(ctx.agent(id).provider("fake").model("m").create());
    let first = create("assistant").expect("created");
    assert_eq!(code(create("assistant")), Code::SessionAlreadyExists);
    first.agent().inject("keeps it stored").expect("accepted");
    ctx.runtime().block_on(ctx.close()).expect("closed");
    let later = context(fixture.store.clone(), Scripted::new());
    let again = later.runtime().block_on(later.agent("assistant").provider("fake").model("m").create());
    assert_eq!(code(again), Code::SessionAlreadyExists, "also in another life");
}

#[test]
fn case_139_listing_reads_the_header_of_a_file_of_any_size() {
    let fixture = Fixture::new(Compression::None);
    fixture.write(&turns(1), &[]);
    // A hole of a terabyte: whoever reads further than the header is noticed.
    let file = File::options().write(true).open(fixture.path()).expect("a file");
    file.set_len(1 << 40).expect("a sparse file");
    assert_eq!(block_on(fixture.store.list()).expect("listed").len(), 1);
    assert_eq!(block_on(fixture.store.list_revisions()).expect("listed").len(), 1);
    assert!(block_on(fixture.store.locate(&fixture.header.id)).expect("found").is_some());
}

#[test]
fn case_142_deltas_are_stored_together_and_close_to_their_text() {
    let deltas = 5_000;
    let text = "word ".repeat(deltas);
    let size = |pack: bool| {
        let fixture = Fixture::with(|mut options: JsonlOptions| {
            options.pack_chunks = pack;
            options.compression(Compression::None)
        });
        let reply = ScriptedReply { chunk_size: Some(5), ..ScriptedReply::text(text.clone()) };
        let ctx = context(fixture.store.clone(), Scripted::new().reply(reply));
        let agent = open(&ctx, "demo");
        turn(&ctx, &agent, "go");
        let chunks = agent.session().events_from(0).iter().filter(|event| event.kind() == "assistant/chunk").count();
        assert!(chunks >= deltas, "every delta is an event of its own");
        ctx.runtime().block_on(ctx.close()).expect("closed");
        let path = block_on(fixture.store.locate(&id("demo"))).expect("found").expect("stored");
        let stored = fs::read_to_string(path).expect("a file");
        (stored.len(), stored.lines().count())
    };
    let (packed, lines) = size(true);
    // The text stands in its deltas, in the closed block and in the message, which cites each delta by its seq; a delta
    // costs its quotes and its time besides: 5 + 5 bytes, and 5 for the citation, of 5 bytes of text.
    assert!(packed < 6 * text.len() && lines < 60, "{packed} bytes in {lines} lines for {} bytes", text.len());
    let (plain, lines) = size(false);
    assert!(lines > deltas && plain > 5 * packed, "packing can be switched off: {plain} bytes in {lines} lines");
}

#[test]
fn case_143_a_log_grows_by_what_is_new_in_each_step() {
    let fixture = Fixture::new(Compression::None);
    let script = Scripted::new().respond(|request| match request.messages.len() {
        0..=200 => ScriptedReply::calls([("c", "look", "{}")]),
        _ => ScriptedReply::text("done"),
    });
    let ctx = context(fixture.store.clone(), script);
    ctx.tools()
        .register(Tool::new("look", |_| async { Ok(ToolOutput::value("x".repeat(5_000))) }))
        .expect("a new tool");
    let agent = open(&ctx, "demo");
    turn(&ctx, &agent, "go");
    let mut ends = vec![0];
    let mut bytes = 0;
    for event in agent.session().events_from(0) {
        bytes += event.json().len();
        if event.kind() == "step/end" {
            ends.push(bytes);
        }
    }
    let steps: Vec<_> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(steps.len(), 101);
    let growth = steps[1..100].iter().max().expect("steps") - steps[1..100].iter().min().expect("steps");
    assert!(growth < 64 && steps[99] < 7_000, "a late step costs what an early one does: {steps:?}");
    ctx.runtime().block_on(ctx.close()).expect("closed");
}

#[test]
fn case_152_a_message_of_five_megabytes_is_one_line_like_any_other() {
    let text = "0123456789abcdef\n".repeat(5 * 1024 * 1024 / 17);
    for compression in BOTH {
        let fixture = Fixture::new(compression);
        let data = message("m", &text);
        let big = Event::new(0, 1, EventData::from_value("user/message", &data).expect("a message"));
        let events = [
            Arc::new(big.placed(Some(SurfaceOp::Append), None)),
            event(r#"{"type":"plan/mode","seq":1,"time":1,"data":{"active":true}}"#),
        ];
        fixture.write(&events, &[]);
        let log = fixture.log();
        assert_eq!(log.events.len(), 2);
        assert!(log.events.get(0).expect("two").data.message().expect("a message").text() == text);
    }
}

#[test]
fn case_110_and_p_2_an_orphan_in_the_middle_is_answered_in_the_request_and_stays_as_it_is_in_the_log() {
    let ask = |seq: u64, step: u64, id: &str| {
        let content = format!(r#"[{{"type":"tool-call","id":"{id}","name":"n","arguments":"{{}}"}}]"#);
        let source = r#"{"kind":"model","provider":"fake","model":"m"}"#;
        let message = format!(r#"{{"role":"assistant","content":{content},"source":{source},"id":"a{seq}"}}"#);
        let data = format!(r#"{{"turn":1,"step":{step},"message":{message}}}"#);
        event(&format!(r#"{{"type":"assistant/message","seq":{seq},"time":1,"data":{data},"surfaceOp":"append"}}"#))
    };
    let plain =
        |seq: u64, kind: &str, data: &str| event(&format!(r#"{{"type":"{kind}","seq":{seq},"time":1,"data":{data}}}"#));
    let (start, end) = (r#"{"turn":1,"step":1}"#, r#"{"turn":1,"reason":{"kind":"completed"}}"#);
    let said = message("q", "hello").to_text();
    let log = vec![
        plain(0, "turn/start", r#"{"turn":1}"#),
        plain(1, "step/start", start),
        event(&format!(r#"{{"type":"user/message","seq":2,"time":1,"data":{said},"surfaceOp":"append"}}"#)),
        ask(3, 1, "c"),
        plain(4, "step/end", start),
        plain(5, "turn/end", end),
    ];
    let fixture = Fixture::new(Compression::None);
    fixture.write(&log, &[]);
    let script = Scripted::new().respond(|_| ScriptedReply::text("answer"));
    let ctx = context(fixture.store.clone(), script.clone());
    turnwheel::invariants::Invariants::load(&Default::default()).expect("loaded").register_core(&ctx).expect("checked");
    let agent = open(&ctx, "demo");
    turn(&ctx, &agent, "go on");
    let sent: Vec<_> = script.last_request().expect("a request").messages.iter().collect();
    let kinds: Vec<_> = sent.iter().map(|message| message.source().kind().to_owned()).collect();
    assert_eq!(kinds, ["user", "model", "tool", "user"], "{sent:?}");
    assert!(sent[2].json().contains("\"toolCallId\":\"c\""), "{:?}", sent[2]);
    assert_eq!(agent.session().events_from(0)[..6], log[..], "the log has what it had");
    assert_eq!(agent.session().history().len(), 4, "and its derivation too: prompt, orphan, prompt, answer");
    ctx.runtime().block_on(ctx.close()).expect("closed");
}
