//! Messages, events and what may be appended: data.md sections 1 to 3. Named after the ids.
#![cfg(feature = "jsonl")]

#[path = "support/store.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod store;

use std::sync::Arc;
use store::{BOTH, Fixture, append, block_on, code, event};
use turnwheel::id::SessionId;
use turnwheel::json::{Object, Value};
use turnwheel::message::{Role, Source, Usage};
use turnwheel::session::{Event, KNOWN_TYPES, Session, SessionHeader, SurfaceOp};
use turnwheel::storage::Store;
use turnwheel::{Block, Code, Context, Message, Result, json};

fn parse(text: &str) -> Value {
    json::parse(text).expect("JSON")
}

fn message(text: &str) -> Result<Message> {
    Message::from_value(&parse(text))
}

fn session() -> (Context, Session) {
    let ctx = Context::new();
    let session = Session::new(ctx.runtime(), SessionHeader::new("demo", 1)).expect("a session");
    (ctx, session)
}

/// Puts a message of people, plug-ins or the system on the surface.
fn say(session: &Session, text: &str) -> Result<Arc<Event>> {
    session.append_raw("user/message", parse(text), Some(SurfaceOp::Append), None, false)
}

#[test]
fn msg_1_10_and_16_roles_are_three_and_a_result_is_one_user_message_for_its_call() {
    for role in ["system", "user"] {
        let text = format!(r#"{{"id":"m","role":"{role}","content":[],"source":{{"kind":"user"}}}}"#);
        assert_eq!(message(&text).expect("a message").role().as_str(), role);
    }
    let result = |role: &str, call: &str, blocks: &str| {
        let source = format!(r#"{{"kind":"tool","callId":"{call}"}}"#);
        message(&format!(r#"{{"id":"m","role":"{role}","content":[{blocks}],"source":{source}}}"#))
    };
    let block = r#"{"type":"tool-result","toolCallId":"c","content":[]}"#;
    assert_eq!(result("user", "c", block).expect("a result").role(), Role::User);
    for (role, call, blocks) in [
        ("tool", "c", block.to_owned()),
        ("assistant", "c", block.to_owned()),
        ("user", "other", block.to_owned()),
        ("user", "c", String::new()),
        ("user", "c", format!("{block},{block}")),
        ("user", "c", r#"{"type":"text","text":"x"}"#.to_owned()),
    ] {
        assert_eq!(code(result(role, call, &blocks)), Code::InvalidMessage, "{role} {call} {blocks}");
    }
}

#[test]
fn msg_2_an_id_stays_through_log_history_file_and_fork() {
    let (ctx, session) = session();
    let text = r#"{"role":"user","id":"my id","source":{"kind":"user"},"content":[]}"#;
    say(&session, text).expect("logged");
    assert_eq!(session.history().get(0).expect("a message").json(), text);
    let forked = Session::seeded(ctx.runtime(), SessionHeader::new("fork", 2), session.events_from(0)).expect("a fork");
    assert_eq!(forked.history().get(0).expect("a message").json(), text);
    assert_eq!(code(message(r#"{"id":"","role":"user","content":[],"source":{"kind":"user"}}"#)), Code::InvalidMessage);
}

#[test]
fn msg_3_creators_write_their_own_key_order_and_readers_keep_any() {
    let keys = |message: &Message| message.to_value().as_object().expect("an object").keys().collect::<Vec<_>>().join();
    let model = Source::from_object(parse(r#"{"kind":"model","provider":"p","model":"m"}"#).as_object().expect("one"));
    assert_eq!(keys(&Message::user_text("m", "x")), "content,source,role,id");
    assert_eq!(keys(&Message::tool_result("m", "c".into(), vec![], false)), "source,content,role,id");
    let assistant = Message::new("m", Role::Assistant, vec![], model.expect("a source"));
    assert_eq!(keys(&assistant), "role,content,source,id");
    let foreign = r#"{"source":{"kind":"user"},"id":"m","content":[],"role":"user"}"#;
    assert_eq!(message(foreign).expect("a message").json(), foreign);
}

/// The joined keys, for comparison.
trait Join {
    fn join(self) -> String;
}

impl Join for Vec<&str> {
    fn join(self) -> String {
        self.as_slice().join(",")
    }
}

#[test]
fn msg_4_and_app_6_and_7_nesting_of_any_depth_is_copied_and_what_was_logged_does_not_change() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let (_ctx, session) = session();
    let mut data = parse(&format!("{{\"deep\":{}}}", nested(20_000)));
    let logged = session.append("my/deep", data.clone()).expect("logged");
    if let Value::Object(object) = &mut data {
        object.insert("deep", 1);
    }
    assert_eq!(logged.data_value().to_text(), format!("{{\"deep\":{}}}", nested(20_000)));
    let content = format!(r#"[{{"type":"x","y":{}}}]"#, nested(20_000));
    let text = format!(r#"{{"content":{content},"source":{{"kind":"user"}},"role":"user","id":"m"}}"#);
    assert_eq!(say(&session, &text).expect("logged").data.message().expect("a message").json(), text);

    let fixture = Fixture::new(BOTH[0]);
    fixture.write(&session.events_from(0), &[]);
    assert_eq!(fixture.log().events, session.events_from(0));
}

#[test]
fn msg_5_to_9_blocks_stay_as_and_where_they_are() {
    assert_eq!(
        code(message(r#"{"id":"m","role":"user","content":"x","source":{"kind":"user"}}"#)),
        Code::InvalidMessage
    );
    let blocks = [
        r#"{"type":"text","text":""}"#,
        r#"{"type":"reasoning","text":"a"}"#,
        r#"{"type":"reasoning","text":"b"}"#,
        r#"{"type":"text","text":"c"}"#,
        r#"{"type":"text","text":"d"}"#,
        r#"{"type":"tool-call","id":"1","name":"n","arguments":"{ \"a\": 1.0 ,}"}"#,
        r#"{"type":"tool-call","id":"2","name":"n","arguments":""}"#,
    ];
    let text = format!(
        r#"{{"role":"assistant","content":[{}],"source":{{"kind":"model","provider":"p","model":"m"}},"id":"m"}}"#,
        blocks.as_slice().join(",")
    );
    let (_ctx, session) = session();
    let data = parse(&format!(r#"{{"turn":1,"step":1,"message":{text}}}"#));
    session.append_raw("assistant/message", data, Some(SurfaceOp::Append), None, false).expect("logged");
    let derived = session.history().get(0).expect("a message");
    assert_eq!((derived.json(), derived.content().len()), (text.as_str(), blocks.len()));
    // A creator always says whether a result is an error; that others do not is kept.
    let made = Message::tool_result("m", "c".into(), vec![Block::Text(String::new())], false);
    assert!(made.json().contains(r#""isError":false"#), "{made:?}");
    let bare = r#"{"id":"m","role":"user","source":{"kind":"tool","callId":"c"},"content":[{"type":"tool-result","toolCallId":"c","content":[]}]}"#;
    assert_eq!(message(bare).expect("a result").json(), bare);
}

#[test]
fn msg_11_to_21_unknown_blocks_and_sources_survive_log_history_file_and_fork() {
    let hash = "0123456789abcdef".repeat(4);
    let image = format!(
        r#"{{"type":"image","attachment":{{"attachmentId":"sha256:{hash}","mediaType":"image/png","bytes":70,"width":1,"height":2,"originalDimensions":{{"width":9,"height":9}}}}}}"#
    );
    let contents = [
        image.as_str(),
        r#"{"type":"hologram","rays":[null,{"z":1,"a":2}]}"#,
        r#"{"type":"text","text":"x","lang":"de"}"#,
    ];
    let sources = [
        r#"{"kind":"user","rpcId":"r","clientTimeZone":"Europe/Berlin"}"#,
        r#"{"kind":"plugin","plugin":"p"}"#,
        r#"{"kind":"plugin","plugin":"p","form":"snapshot","sections":[{"name":"n","text":"t"}]}"#,
        r#"{"kind":"goal","goalId":"g","revision":1,"round":2}"#,
        r#"{"kind":"coordinator","form":"relay","senderSessionId":"nobody here"}"#,
        r#"{"kind":"skill-catalog","form":"catalog","update":true,"entries":[{"name":"n","description":"d"}]}"#,
        r#"{"kind":"session-reference","form":"recall","version":1,"references":[{"capturedThroughSeq":null,"sessionId":"s"}]}"#,
        r#"{"kind":"never heard of","x":[1e+21,null]}"#,
    ];
    let mut texts: Vec<String> = Vec::new();
    for (i, (content, source)) in contents.iter().cycle().zip(sources).enumerate() {
        texts.push(format!(r#"{{"id":"m{i}","role":"user","content":[{content}],"source":{source}}}"#));
    }
    for compression in BOTH {
        let (ctx, session) = session();
        for text in &texts {
            say(&session, text).expect("logged");
        }
        let state = r#"{"response":{"a":1},"blocks":[null,{"sig":"x"},null]}"#;
        let model = format!(r#"{{"kind":"model","provider":"p","model":"m","replayState":{state}}}"#);
        let data = format!(
            r#"{{"turn":1,"step":1,"message":{{"role":"assistant","content":[{{"type":"text","text":"x"}}],"source":{model},"id":"a"}}}}"#
        );
        session.append_raw("assistant/message", parse(&data), Some(SurfaceOp::Append), None, false).expect("logged");
        let fixture = Fixture::new(compression);
        fixture.write(&session.events_from(0), &[2]);
        let log = fixture.log();
        let loaded = Session::seeded(ctx.runtime(), log.header, log.events).expect("loaded");
        for session in [&session, &loaded] {
            let history: Vec<_> = session.history().iter().map(|message| message.json().to_owned()).collect();
            assert_eq!(history[..texts.len()], texts[..]);
            assert!(history[texts.len()].contains(&model), "{}", history[texts.len()]);
        }
    }
    let source = |source: &str| message(&format!(r#"{{"id":"m","role":"user","content":[],"source":{source}}}"#));
    for wrong in [r#"{"kind":""}"#, r#"{"plugin":"p"}"#, r#""user""#, r#"{"kind":"model","provider":"p","model":"m"}"#]
    {
        assert_eq!(code(source(wrong)), Code::InvalidMessage, "{wrong}");
    }
    let assistant =
        |source: &str| message(&format!(r#"{{"id":"m","role":"assistant","content":[],"source":{source}}}"#));
    for wrong in
        [r#"{"kind":"user"}"#, r#"{"kind":"model","provider":"","model":"m"}"#, r#"{"kind":"model","provider":"p"}"#]
    {
        assert_eq!(code(assistant(wrong)), Code::InvalidMessage, "{wrong}");
    }
}

#[test]
fn msg_26_usage_keeps_the_members_that_were_reported() {
    for text in [
        r#"{"inputTokens":1,"outputTokens":2}"#,
        r#"{"inputTokens":1,"outputTokens":2,"cacheReadTokens":0,"cacheWriteTokens":4,"reasoningTokens":2}"#,
    ] {
        assert_eq!(Usage::from_value(&parse(text)).expect("usage").to_value().to_text(), text);
    }
}

#[test]
fn rec_1_a_log_is_numbered_from_0_and_times_may_go_back_and_be_negative() {
    let (ctx, session) = session();
    for seq in 0..3 {
        assert_eq!(session.append("plan/mode", json!({"active": true})).expect("logged").seq, seq);
    }
    let at =
        |seq: u64, time: &str| format!(r#"{{"type":"plan/mode","seq":{seq},"time":{time},"data":{{"active":true}}}}"#);
    let events = vec![event(&at(0, "5")), event(&at(1, "-5"))];
    let loaded = Session::seeded(ctx.runtime(), SessionHeader::new("old", 1), events).expect("loaded");
    assert_eq!(loaded.event(1).map(|event| event.time), Some(-5));
    for wrong in ["0.5", "9007199254740992", "\"1\"", "null"] {
        assert_eq!(code(Event::from_value(&parse(&at(0, wrong)))), Code::InvalidEvent, "{wrong}");
    }
    let gap = vec![event(&at(0, "5")), event(&at(2, "5"))];
    assert_eq!(code(Session::seeded(ctx.runtime(), SessionHeader::new("gap", 1), gap)), Code::InvalidEvent);
}

#[test]
fn rec_2_live_events_write_their_members_in_this_order_and_stored_ones_keep_theirs() {
    let (_ctx, session) = session();
    say(&session, r#"{"id":"m","role":"user","content":[],"source":{"kind":"user"}}"#).expect("logged");
    let replaced = session.replace_surface(Arc::new(Message::user_text("s", "sum")), 0, 0, vec![0]).expect("replaced");
    let value = replaced.to_value();
    let keys: Vec<_> = value.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp"]);
    let stored = r#"{"data":{"active":true},"time":1,"seq":0,"ignorable":true,"type":"plan/mode"}"#;
    assert_eq!(event(stored).json(), stored);
}

#[test]
fn rec_30_and_31_these_types_are_known_and_payloads_of_others_than_the_core_are_not_looked_at() {
    let listed = "agent-preset/selected agent/inbox/spliced approval/asked approval/decided approval/policy \
        assistant/chunk assistant/message command/done command/run compaction/end compaction/prune compaction/start \
        compaction/summary feedback/record goal/change hook/invoked hook/result llm/retry llm/retry-started \
        permission/preset plan/mode request/context request/header sandbox/mode schedule/change session/end-seed \
        session/title session/title-llm-request step/end step/start subagent/descriptor team/member \
        team/message/delivered team/message/queued team/task todo/write tool-workflow/agent-end \
        tool-workflow/agent-start tool-workflow/run-end tool-workflow/run-start tool/call tool/code-dispatch \
        tool/code-dispatch-start tool/result turn/end turn/start user/message web/deepseek-search-llm-request";
    assert_eq!(KNOWN_TYPES.to_vec(), listed.split_whitespace().collect::<Vec<_>>());
    let core = turnwheel::session::CORE_TYPES;
    let odd = [r#"null"#, r#"[]"#, r#""text""#, r#"{"version":"ninety","10":1,"2":2,"turn":null}"#];
    let mut events = Vec::new();
    for kind in KNOWN_TYPES.iter().filter(|kind| !core.contains(kind)) {
        for data in odd {
            let seq = events.len();
            events.push(event(&format!(r#"{{"type":"{kind}","seq":{seq},"time":1,"data":{data}}}"#)));
        }
    }
    assert_eq!(events.len(), 4 * (48 - 13));
    for compression in BOTH {
        let fixture = Fixture::new(compression);
        fixture.write(&events, &[7]);
        assert_eq!(fixture.log().events, events);
    }
}

#[test]
fn app_1_and_13_an_envelope_has_these_members_and_no_others() {
    let good = r#"{"type":"plan/mode","seq":0,"time":1,"data":null}"#;
    assert_eq!(event(good).json(), good);
    for (from, to) in [
        ("\"data\":null", "\"data\":null,\"more\":1"),
        (",\"data\":null", ""),
        ("\"plan/mode\"", "7"),
        ("\"seq\":0", "\"seq\":-1"),
        ("\"seq\":0", "\"seq\":\"0\""),
        ("\"data\":null", "\"data\":null,\"ignorable\":false"),
        ("\"data\":null", "\"data\":null,\"ignorable\":1"),
    ] {
        assert_eq!(code(Event::from_value(&parse(&good.replace(from, to)))), Code::InvalidEvent, "{to}");
    }
}

#[test]
fn app_4_and_5_shared_parts_and_a_key_named_proto_are_data() {
    let part = json!({"a": [1]});
    let mut object = Object::new();
    object.insert("x", part.clone());
    object.insert("y", part);
    object.insert("__proto__", json!({"toString": null}));
    let (_ctx, session) = session();
    let logged = session.append("my/note", Value::Object(object)).expect("logged");
    let text = r#"{"x":{"a":[1]},"y":{"a":[1]},"__proto__":{"toString":null}}"#;
    assert_eq!(logged.data_value().to_text(), text);
}

#[test]
fn app_8_retired_events_are_refused_at_append_at_seed_and_at_load() {
    let header = r#"{"header":{"config":{"provider":"p","model":"m"}},"reason":"fallback"}"#;
    for (kind, data) in [("request/header-delta", "{}"), ("request/header", header), ("mode/set", "{}")] {
        let (ctx, session) = session();
        let appended = session.append_raw(kind, parse(data), None, None, false);
        assert!(appended.is_err(), "{kind} is refused at append");
        let text = format!(r#"{{"type":"{kind}","seq":0,"time":1,"data":{data}}}"#);
        let seeded = Event::from_value(&parse(&text))
            .and_then(|event| Session::seeded(ctx.runtime(), SessionHeader::new("s", 1), vec![Arc::new(event)]));
        assert!(seeded.is_err(), "{kind} is refused in a seed");
        let fixture = Fixture::new(BOTH[0]);
        let line = r#"{"type":"session","version":0,"id":"demo","createdAt":1,"cwd":"/home/demo","delegationDepth":0}"#;
        store::put(&fixture.path(), format!("{line}\n{text}\n").as_bytes());
        assert_eq!(code(fixture.read()), Code::CorruptLog, "{kind} is refused at load");
    }
}

#[test]
fn app_12_the_ignorable_mark_survives_reading_forking_and_writing_again() {
    let marked = r#"{"type":"of/somebody","seq":0,"time":1,"data":null,"ignorable":true}"#;
    let known = r#"{"type":"plan/mode","seq":1,"time":1,"data":{"active":true},"ignorable":true}"#;
    for compression in BOTH {
        let fixture = Fixture::new(compression);
        fixture.write(&[event(marked), event(known)], &[]);
        let ctx = Context::new();
        let fork = Session::seeded(ctx.runtime(), SessionHeader::new("fork", 1), fixture.log().events).expect("a fork");
        let other = Fixture::new(compression);
        other.write(&fork.events_from(0), &[]);
        let texts: Vec<_> = other.log().events.iter().take(2).map(|event| event.json().to_owned()).collect();
        assert_eq!(texts, [marked, known]);
    }
}

#[test]
fn app_14_and_15_a_message_or_header_that_is_wrong_is_named_by_its_seq() {
    let surface =
        |data: &str| format!(r#"{{"type":"user/message","seq":7,"time":1,"data":{data},"surfaceOp":"append"}}"#);
    for data in [
        r#"{"role":"user","content":[],"source":{"kind":"user"}}"#,
        r#"{"id":"m","role":"tool","content":[],"source":{"kind":"user"}}"#,
        r#"{"id":"m","role":"user","content":{},"source":{"kind":"user"}}"#,
        r#"{"id":"m","role":"user","content":[],"source":{}}"#,
    ] {
        let error = Event::from_value(&parse(&surface(data))).expect_err("refused");
        assert_eq!(error.context().get("seq").and_then(Value::as_u64), Some(7), "{error:?}");
    }
    let header = |config: &str, more: &str| {
        let data = format!(r#"{{"header":{{"config":{config}{more}}},"reason":"initial"}}"#);
        Event::from_value(&parse(&format!(r#"{{"type":"request/header","seq":7,"time":1,"data":{data}}}"#)))
    };
    let route = r#"{"provider":"p","model":"m","maxTokens":5}"#;
    for (config, more) in [
        (r#"{"provider":"","model":"m"}"#, ""),
        (r#"{"provider":"p"}"#, ""),
        (r#"{"provider":"p","model":"m","reasoningEffort":""}"#, ""),
        (route, r#","adapterDefaults":{"maxTokens":false}"#),
        (route, r#","adapterDefaults":{"reasoningEffort":true}"#),
        (route, r#","adapterDefaults":{"temperature":true}"#),
        (route, r#","adapterDefaults":[]"#),
    ] {
        let error = header(config, more).expect_err("refused");
        assert_eq!(error.context().get("seq").and_then(Value::as_u64), Some(7), "{error:?}");
    }
    header(route, r#","adapterDefaults":{"maxTokens":true}"#).expect("a mark of a member that is there");
    header(route, r#","adapterDefaults":{}"#).expect("no mark");
}

#[test]
fn app_16_and_host_4_a_stored_log_is_read_with_numbers_that_no_append_takes() {
    let stored = r#"{"type":"plan/mode","seq":0,"time":1,"data":{"a":-0,"b":1e400,"a":-0}}"#;
    let fixture = Fixture::new(BOTH[0]);
    let line = r#"{"type":"session","version":0,"id":"demo","createdAt":1,"cwd":"/home/demo","delegationDepth":0}"#;
    store::put(&fixture.path(), format!("{line}\n{stored}\n").as_bytes());
    let data = fixture.log().events.get(0).expect("stored").data_value();
    assert_eq!(data.get("b").and_then(Value::as_f64), Some(f64::INFINITY));
    assert!(data.get("a").and_then(Value::as_f64).is_some_and(|zero| zero == 0.0 && zero.is_sign_negative()));
    assert_eq!(
        data.as_object().expect("an object").keys().collect::<Vec<_>>(),
        ["a", "b"],
        "the last wins, in its place"
    );
    let (_ctx, session) = session();
    assert_eq!(code(session.append("plan/mode", data)), Code::InvalidJson);
}

#[test]
fn app_17_every_field_of_a_header_is_checked_and_unknown_ones_are_dropped() {
    let full = r#"{"version":0,"id":"a","createdAt":0,"cwd":"/x","parentSession":"p","seedLength":0,"origin":"subagent","delegationDepth":1,"agentPreset":"x"}"#;
    let read = |text: &str| SessionHeader::from_value(&parse(text));
    let header = read(&full.replace("\"id\"", "\"more\":[1],\"id\"")).expect("a header");
    assert_eq!(header.to_value().to_text(), full);
    for (from, to) in [
        ("\"a\"", "\"\""),
        (":0,\"cwd\"", ":-1,\"cwd\""),
        (":0,\"cwd\"", ":-0,\"cwd\""),
        (":0,\"cwd\"", ":1.5,\"cwd\""),
        ("\"/x\"", "\"x\""),
        ("\"p\"", "7"),
        ("seedLength\":0", "seedLength\":-1"),
        ("\"subagent\"", "\"agent\""),
        ("Depth\":1", "Depth\":\"1\""),
        ("\"x\"}", "null}"),
    ] {
        assert_eq!(code(read(&full.replacen(from, to, 1))), Code::InvalidHeader, "{to}");
    }
    let bare = read(r#"{"version":0,"id":"a","createdAt":0}"#).expect("a header");
    assert_eq!((bare.seed_length, bare.cwd), (None, None), "absent is not 0");
}

#[test]
fn app_18_an_id_that_nobody_gave_counts_up_and_skips_what_is_taken() {
    let ctx = Context::new();
    let opened = |id: &str| ctx.runtime().block_on(ctx.agent(id).create()).expect("opened");
    let (_source, _taken) = (opened("a"), opened("session-2"));
    let fork = || ctx.fork_session("a", None, None).expect("forked").id().to_string();
    let ids = [fork(), fork(), fork()];
    assert!(!ids.contains(&"session-2".to_owned()), "{ids:?}");
    let number = |id: &String| id.strip_prefix("session-").and_then(|n| n.parse::<u64>().ok()).expect("session-<n>");
    assert!(ids.iter().map(number).is_sorted(), "{ids:?}");
    let odd = "a/b\\c: \u{1F600}~..";
    let fixture = Fixture::new(BOTH[1]);
    let header = SessionHeader::new(odd, 1);
    let writer = block_on(fixture.store.create(&header)).expect("a writer");
    append(&writer, &[event(r#"{"type":"plan/mode","seq":0,"time":1,"data":{"active":true}}"#)]).expect("stored");
    assert!(block_on(fixture.store.read(&SessionId::from(odd))).expect("readable").is_some());
}
