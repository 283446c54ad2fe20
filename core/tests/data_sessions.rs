//! Seeds, forks, order, repair, versions and old shapes: data.md sections 6 to 8. Named after the ids.
#![cfg(feature = "jsonl")]

#[path = "support/store.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod store;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use store::{BOTH, Fixture, block_on, code, event, put, sample};
use turnwheel::invariants::LogOrder;
use turnwheel::json::Value;
use turnwheel::session::{Event, EventData, EventLog, Session, SessionHeader, closers, legacy};
use turnwheel::storage::Store;
use turnwheel::storage::jsonl::Compression;
use turnwheel::{Code, Context, Notice, NoticeKind, json};

const HEADER: &str =
    r#"{"type":"session","version":0,"id":"demo","createdAt":1,"cwd":"/home/demo","delegationDepth":0}"#;

/// An event by type and data, at a seq.
fn at(seq: usize, kind: &str, data: &str) -> Arc<Event> {
    event(&format!(r#"{{"type":"{kind}","seq":{seq},"time":{},"data":{data}}}"#, 100 + seq))
}

/// A log by types and data.
fn log(items: &[(&str, &str)]) -> Vec<Arc<Event>> {
    items.iter().enumerate().map(|(seq, (kind, data))| at(seq, kind, data)).collect()
}

/// One empty turn.
fn turn() -> Vec<Arc<Event>> {
    log(&[("turn/start", r#"{"turn":1}"#), ("turn/end", r#"{"turn":1,"reason":{"kind":"completed"}}"#)])
}

fn seeded(ctx: &Context, seed: Vec<Arc<Event>>) -> Session {
    Session::seeded(ctx.runtime(), SessionHeader::new("s", 1), seed).expect("a session")
}

fn kinds(session: &Session) -> Vec<String> {
    session.events_from(0).iter().map(|event| event.kind().to_owned()).collect()
}

#[test]
fn seed_1_to_6_a_seed_is_taken_over_as_it_is_and_marked_once() {
    let ctx = Context::new();
    let heard = Rc::new(RefCell::new(Vec::new()));
    let log = heard.clone();
    ctx.on(NoticeKind::SessionEvent, move |notice| {
        if let Notice::SessionEvent { event, .. } = notice {
            log.borrow_mut().push(event.kind().to_owned());
        }
        Ok(())
    })
    .expect("registered");
    let seed = turn();
    let agent = ctx.runtime().block_on(ctx.agent("a").seed(seed.clone()).create()).expect("created").agent().clone();
    let session = agent.session();
    assert_eq!(session.events_from(0)[..2], seed[..], "seq and time are kept");
    assert_eq!(kinds(session), ["turn/start", "turn/end", "session/end-seed"]);
    assert_eq!(session.event(2).expect("the mark").data_value().to_text(), "{}");
    assert_eq!((session.first_live_seq(), heard.borrow().len()), (2, 0), "the mark is not published");
    let again = seeded(&ctx, session.events_from(0));
    assert_eq!((again.len(), again.first_live_seq()), (3, 3), "picked up untouched, the log does not grow");
    again.append("plan/mode", json!({"active": true})).expect("logged");
    let third = seeded(&ctx, again.events_from(0));
    assert_eq!((third.len(), third.first_live_seq()), (5, 4), "the first mark is not the last");
    assert_eq!(kinds(&seeded(&ctx, Vec::new())), ["session/end-seed"], "an empty seed is a seed");
    let fresh = Session::new(ctx.runtime(), SessionHeader::new("n", 1)).expect("a session");
    assert!(fresh.is_empty(), "without a seed there is no mark");
    let marking = fresh.append_raw("session/end-seed", json!({}), None, None, false);
    assert_eq!(code(marking), Code::ReservedEvent);
}

#[test]
fn seed_5_and_rep_8_a_bracket_that_an_earlier_life_left_open_blocks_nothing_and_is_not_closed() {
    let open = log(&[("turn/start", r#"{"turn":1}"#), ("compaction/start", r#"{"compactionId":"c","turn":1}"#)]);
    let closing = closers(&open.clone().into());
    assert_eq!(closing.iter().map(Event::kind).collect::<Vec<_>>(), ["turn/end"]);
    let mut order = LogOrder::default();
    for event in open.iter().chain(&closing.into_iter().map(Arc::new).collect::<Vec<_>>()) {
        order.check(event).expect("closers are never blocked");
        order.apply(event);
    }
    order.apply(&at(3, "session/end-seed", "{}"));
    let next = at(4, "compaction/start", r#"{"compactionId":"d","turn":null}"#);
    order.check(&next).expect("the orphan belongs to a dead life");
}

#[test]
fn fork_1_to_8_a_fork_takes_the_prefix_and_neither_presets_nor_the_inbox() {
    let ctx = Context::new();
    let edit = |header: &mut SessionHeader| {
        header.cwd = Some("/w".into());
        header.agent_preset = Some("p".into());
        header.origin = Some("subagent".into());
        header.delegation_depth = Some(2);
    };
    let source = ctx.runtime().block_on(ctx.agent("a").header(edit).create()).expect("created").agent().clone();
    let fork = |from: &str, at: Option<u64>, id: &str| ctx.fork_session(from, at, Some(id.into()));
    // FORK-02: the id comes first, before the source is looked up.
    assert_eq!(code(fork("nobody", None, "a")), Code::SessionAlreadyExists);
    assert_eq!(code(fork("nobody", None, "b")), Code::SessionNotFound);
    assert_eq!(code(fork("a", Some(0), "b")), Code::InvalidBoundary);
    let empty = fork("a", None, "empty").expect("forked");
    assert_eq!((empty.header().seed_length, kinds(&empty)), (Some(0), vec!["session/end-seed".to_owned()]));

    source.inject("pending").expect("accepted");
    let session = source.session();
    session.append_raw("turn/start", json!({"turn": 1}), None, None, false).expect("logged");
    assert_eq!(code(fork("a", None, "b")), Code::OpenTurn);
    assert!(fork("a", Some(0), "before").is_ok(), "the boundary is inclusive: event 0 stands before the turn");
    session
        .append_raw("turn/end", json!({"turn": 1, "reason": {"kind": "completed"}}), None, None, false)
        .expect("logged");
    session.append("plan/mode", json!({"active": true})).expect("logged");
    assert_eq!(code(fork("a", Some(4), "b")), Code::InvalidBoundary);
    let child = fork("a", None, "b").expect("log-only events behind the turn are inherited");
    assert_eq!(child.events_from(0)[..4], session.events_from(0)[..]);
    let header = child.header();
    assert_eq!((header.cwd.as_deref(), header.parent_session.as_deref()), (Some("/w"), Some("a")));
    assert_eq!(header.seed_length, Some(4), "the mark is not counted");
    assert_eq!((&header.agent_preset, &header.origin, header.delegation_depth), (&None, &None, None));
    // FORK-06 and FORK-07: a resume keeps the fork length, and what was pending in the parent is not the child's.
    let resumed = ctx.agent("c").resume_from(SessionHeader { id: "c".into(), ..header.clone() }, child.events_from(0));
    let resumed = ctx.runtime().block_on(resumed).expect("resumed").agent().clone();
    assert_eq!(resumed.session().header().seed_length, Some(4));
    assert!(!resumed.inbox().has_pending() && source.inbox().has_pending());
}

#[test]
fn ord_1_to_9_each_rule_refuses_what_breaks_it_and_nothing_else() {
    let message = r#""message":{"id":"m","role":"user","source":{"kind":"tool","callId":"c"},"content":[{"type":"tool-result","toolCallId":"c","content":[]}]}"#;
    let result = |error: &str| format!(r#"{{"turn":1,"step":1,{message}{error}}}"#);
    let (plain, unstarted) = (result(""), result(r#","error":{"name":"n","code":"TOOL_NOT_STARTED"}"#));
    let call = r#"{"turn":1,"step":1,"callId":"c","name":"n","arguments":""}"#;
    let header = r#"{"header":{"config":{"provider":"p","model":"m"}},"reason":"initial"}"#;
    let retry = |id: &str, n: u64, provider: &str| {
        format!(r#"{{"retryId":"{id}","turn":1,"step":1,"provider":"{provider}","policyKey":"k","retry":{n}}}"#)
    };
    let started = |id: &str, n: u64| format!(r#"{{"retryId":"{id}","turn":1,"step":1,"retry":{n}}}"#);
    let (one, two, again) = (retry("r", 1, "p"), retry("r", 2, "p"), retry("x", 2, "p"));
    let (foreign, begun, early) = (retry("r", 1, "q"), started("r", 1), started("r", 2));
    let compaction = |turn: &str| format!(r#"{{"compactionId":"c","turn":{turn}}}"#);
    let (inside, between) = (compaction("1"), compaction("null"));
    const T: (&str, &str) = ("turn/start", r#"{"turn":1}"#);
    const S: (&str, &str) = ("step/start", r#"{"turn":1,"step":1}"#);
    const S_END: (&str, &str) = ("step/end", r#"{"turn":1,"step":1}"#);
    const T_END: (&str, &str) = ("turn/end", r#"{"turn":1,"reason":{"kind":"completed"}}"#);
    let h = ("request/header", header);
    // What stands before, the candidate, and whether it may follow.
    type Item<'a> = (&'a str, &'a str);
    let cases: Vec<(Vec<Item<'_>>, Item<'_>, bool)> = vec![
        (vec![], T, true),
        (vec![], ("turn/start", r#"{"turn":2}"#), false),
        (vec![T], ("turn/start", r#"{"turn":2}"#), false),
        (vec![T, T_END], ("turn/start", r#"{"turn":3}"#), false),
        (vec![T, T_END], ("turn/start", r#"{"turn":2}"#), true),
        (vec![T], ("step/start", r#"{"turn":1,"step":2}"#), false),
        (vec![T, S], ("step/start", r#"{"turn":1,"step":2}"#), false),
        (vec![T, S, S_END], ("step/start", r#"{"turn":1,"step":2}"#), true),
        (vec![T, T_END, ("turn/start", r#"{"turn":2}"#)], ("step/start", r#"{"turn":2,"step":1}"#), true),
        (vec![T], T_END, true),
        (vec![T, S], T_END, false),
        (vec![T], ("turn/end", r#"{"turn":2,"reason":{"kind":"completed"}}"#), false),
        (vec![T, S], ("step/end", r#"{"turn":1,"step":2}"#), false),
        (vec![T], ("tool/call", call), false),
        (vec![T, S], ("tool/call", call), true),
        (
            vec![T, S, S_END],
            ("assistant/chunk", r#"{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"stop"}}}"#),
            false,
        ),
        (vec![T, S, ("tool/call", call)], ("tool/result", &plain), true),
        (vec![T, S], ("tool/result", &plain), false),
        (vec![T, S], ("tool/result", &unstarted), true),
        (vec![T, S, ("tool/call", call), S_END], ("tool/result", &plain), false),
        // ORD-07: a step may end with unanswered calls.
        (vec![T, S, ("tool/call", call)], S_END, true),
        (vec![], ("todo/write", r#"{"todos":[]}"#), false),
        (vec![T], ("todo/write", r#"{"todos":[]}"#), true),
        (vec![], h, false),
        (vec![T], ("request/context", r#"{"provider":"p","model":"m"}"#), true),
        (vec![], ("session/end-seed", "{}"), true),
        (vec![T, S, h], ("llm/retry", &one), true),
        (vec![T, h], ("llm/retry", &one), false),
        (vec![T, S, h], ("llm/retry", &foreign), false),
        (vec![T, S, h], ("llm/retry", &two), false),
        (vec![T, S, h, ("llm/retry", &one)], ("llm/retry", &two), true),
        (vec![T, S, h, ("llm/retry", &one)], ("llm/retry", &again), false),
        (vec![T, S, h, ("llm/retry", &one)], ("llm/retry-started", &begun), true),
        (vec![T, S, h, ("llm/retry", &one)], ("llm/retry-started", &early), false),
        (vec![T, S, h], ("llm/retry-started", &begun), false),
        (vec![T], ("compaction/start", &inside), true),
        (vec![], ("compaction/start", &inside), false),
        (vec![], ("compaction/start", &between), true),
        (vec![T], ("compaction/start", &between), false),
        (vec![T, ("compaction/start", &inside)], ("compaction/end", &inside), true),
        (vec![T, ("compaction/start", &inside), T_END], ("compaction/end", &inside), false),
        (vec![("compaction/start", &between), T], ("compaction/end", &between), false),
    ];
    for (before, (kind, data), allowed) in cases {
        let mut order = LogOrder::default();
        for (seq, (kind, data)) in before.iter().enumerate() {
            let event = surfaced(seq, kind, data);
            order.check(&event).unwrap_or_else(|rule| panic!("{before:?}: {rule}"));
            order.apply(&event);
        }
        let verdict = order.check(&surfaced(before.len(), kind, data));
        assert_eq!(verdict.is_ok(), allowed, "{kind} {data} behind {before:?}: {verdict:?}");
    }
    // A chain of a later step takes a fresh id, and starts to count again.
    let mut order = LogOrder::default();
    let second = retry("r", 1, "p").replace("\"step\":1", "\"step\":2");
    let before = [T, S, h, ("llm/retry", &one), S_END, ("step/start", r#"{"turn":1,"step":2}"#)];
    before.iter().enumerate().for_each(|(seq, (kind, data))| order.apply(&surfaced(seq, kind, data)));
    assert!(order.check(&at(6, "llm/retry", &second)).is_err());
    order.check(&at(6, "llm/retry", &second.replace("\"r\"", "\"s\""))).expect("a fresh one");
}

/// As `at`, with the placement that messages need.
fn surfaced(seq: usize, kind: &str, data: &str) -> Arc<Event> {
    let op = if kind == "tool/result" { r#","surfaceOp":"append""# } else { "" };
    event(&format!(r#"{{"type":"{kind}","seq":{seq},"time":1,"data":{data}{op}}}"#))
}

#[test]
fn ord_5_and_6_a_replaced_result_needs_a_turn_only_and_messages_need_none() {
    let message = r#"{"turn":1,"step":1,"message":{"id":"m","role":"user","source":{"kind":"tool","callId":"c"},"content":[{"type":"tool-result","toolCallId":"c","content":[]}]}}"#;
    let op = r#""surfaceOp":{"op":"replace","start":0,"end":0},"sourceEventSeqs":[0]"#;
    let trimmed = event(&format!(r#"{{"type":"tool/result","seq":9,"time":1,"data":{message},{op}}}"#));
    let user = r#"{"id":"m","role":"user","content":[],"source":{"kind":"user"}}"#;
    let user = event(&format!(r#"{{"type":"user/message","seq":9,"time":1,"data":{user},"surfaceOp":"append"}}"#));
    let mut order = LogOrder::default();
    assert!(order.check(&trimmed).is_err());
    order.check(&user).expect("also between turns");
    order.apply(&at(0, "turn/start", r#"{"turn":1}"#));
    order.check(&trimmed).expect("no step is needed");
}

#[test]
fn rep_2_3_and_8_only_asked_and_unanswered_calls_of_the_open_step_are_closed() {
    let ask = r#"{"turn":1,"step":1,"message":{"id":"a","role":"assistant","source":{"kind":"model","provider":"p","model":"m"},"content":[{"type":"tool-call","id":"c","name":"n","arguments":""},{"type":"tool-call","id":"d","name":"n","arguments":""}]}}"#;
    let answer = |op: &str| {
        format!(
            r#"{{"type":"tool/result","seq":3,"time":9,"data":{{"turn":1,"step":1,"message":{{"id":"m","role":"user","source":{{"kind":"tool","callId":"c"}},"content":[{{"type":"tool-result","toolCallId":"c","content":[]}}]}}}},{op}}}"#
        )
    };
    let asked = |rest: Vec<Arc<Event>>| {
        let mut log = log(&[("turn/start", r#"{"turn":1}"#), ("step/start", r#"{"turn":1,"step":1}"#)]);
        log.push(event(&format!(
            r#"{{"type":"assistant/message","seq":2,"time":8,"data":{ask},"surfaceOp":"append"}}"#
        )));
        log.extend(rest);
        closers(&log.into())
    };
    let ids = |closers: &[Event]| {
        let id = |event: &Event| match &event.data {
            EventData::ToolResult { message, .. } => message.id().to_string(),
            _ => event.kind().to_owned(),
        };
        closers.iter().map(id).collect::<Vec<_>>()
    };
    let both = ["interrupted-tool-result-c-3", "interrupted-tool-result-d-4", "step/end", "turn/end"];
    assert_eq!(ids(&asked(vec![])), both);
    let one = ["interrupted-tool-result-d-4", "step/end", "turn/end"];
    for op in [r#""surfaceOp":"append""#, r#""surfaceOp":{"op":"replace","start":2,"end":2},"sourceEventSeqs":[2]"#] {
        assert_eq!(ids(&asked(vec![event(&answer(op))])), one, "{op}");
    }
    // A start without a block that asked for it is not a pending call.
    let unasked = log(&[
        ("turn/start", r#"{"turn":1}"#),
        ("step/start", r#"{"turn":1,"step":1}"#),
        ("tool/call", r#"{"turn":1,"step":1,"callId":"x","name":"n","arguments":""}"#),
    ]);
    assert_eq!(ids(&closers(&unasked.into())), ["step/end", "turn/end"]);
}

#[test]
fn rep_5_and_9_inspections_agree_to_the_byte_and_leave_the_file_alone() {
    let stored = &sample("02-tool-turn.json")[..14];
    for compression in BOTH {
        let fixture = Fixture::new(compression);
        fixture.write(stored, &[]);
        let before = std::fs::read(fixture.path()).expect("a file");
        let inspect = || closers(&fixture.log().events).iter().map(|event| event.json().to_owned()).collect::<Vec<_>>();
        let first = inspect();
        assert!(!first.is_empty());
        assert_eq!(first, inspect());
        let time = stored.last().expect("an event").time;
        assert!(closers(&fixture.log().events).iter().all(|event| event.time == time));
        assert_eq!(std::fs::read(fixture.path()).expect("a file"), before);
        let (log, writer) = fixture.open().expect("opened").expect("stored");
        store::append(&writer, &closers(&log.events).into_iter().map(Arc::new).collect::<Vec<_>>()).expect("repaired");
        block_on(writer.close());
        let repaired = fixture.log().events.to_vec();
        assert_eq!(repaired[stored.len()..].iter().map(|event| event.json()).collect::<Vec<_>>(), first);
        assert!(closers(&repaired.clone().into()).is_empty(), "what was repaired needs nothing");
    }
}

#[test]
fn ver_1_to_4_and_7_another_version_is_told_from_damage_and_is_listed() {
    let read = |header: &str, body: &str| {
        let fixture = Fixture::new(Compression::None);
        put(&fixture.path(), format!("{header}\n{body}\n").as_bytes());
        let error = fixture.read().expect_err("refused");
        let listed = block_on(fixture.store.list()).expect("a listing").len();
        (error, listed)
    };
    for (version, words) in [("1", "newer"), ("0.5", "newer"), ("-1", "no upgrade path")] {
        let (error, listed) = read(&HEADER.replace(":0,\"id\"", &format!(":{version},\"id\"")), "not even JSON");
        assert_eq!((error.code(), listed), (&Code::UnsupportedFormat, 1), "{error:?}");
        assert!(error.message().contains(words) && error.context().get("path").is_some(), "{error:?}");
    }
    let (error, listed) = read(r#"{"type":"session","version":7,"what":"ever"}"#, "");
    assert_eq!((error.code(), listed), (&Code::UnsupportedFormat, 0), "a foreign shape is not listed");
    for header in [HEADER.replace(":0,\"id\"", ":\"0\",\"id\""), HEADER.replace("\"version\":0,", "")] {
        assert_eq!(read(&header, "").0.code(), &Code::CorruptLog);
    }
    let unknown = r#"{"type":"of/somebody","seq":0,"time":1,"data":null}"#;
    let (error, _) = read(HEADER, unknown);
    assert_eq!(error.code(), &Code::UnsupportedFormat, "{error:?}");
    assert!(error.message().contains("of/somebody"), "{error:?}");
}

#[test]
fn ver_5_an_unknown_required_type_can_be_appended_and_is_refused_at_the_next_read() {
    let ctx = Context::new();
    let session = Session::new(ctx.runtime(), SessionHeader::new("demo", 1)).expect("a session");
    session.append_raw("of/somebody", json!({}), None, None, false).expect("a live log takes it");
    let fixture = Fixture::new(Compression::Zstd);
    fixture.write(&session.events_from(0), &[]);
    assert_eq!(code(fixture.read()), Code::UnsupportedFormat);
}

#[test]
fn leg_1_to_8_old_shapes_are_read_as_new_ones_and_the_file_stays_as_it_was() {
    let convert = |text: &str| legacy::convert(turnwheel::json::parse(text).expect("JSON"), "s", &EventLog::default());
    let data = |kind: &str, data: &str| {
        let value = convert(&format!(r#"{{"type":"{kind}","seq":3,"time":1,"data":{data}}}"#)).expect("converted");
        (
            value.get("type").and_then(Value::as_str).unwrap_or_default().to_owned(),
            value.get("data").map(Value::to_text),
        )
    };
    let same =
        |kind: &str, text: &str| assert_eq!(data(kind, text), (kind.to_owned(), Some(text.to_owned())), "{text}");
    let turns = |kind: &str, old: &str, new: &str| assert_eq!(data(kind, old).1.as_deref(), Some(new), "{old}");
    turns("turn/start", r#"{"turn":2,"trigger":{"kind":"user","x":1}}"#, r#"{"turn":2}"#);
    let end = |reason: &str| format!(r#"{{"turn":1,"reason":{reason}}}"#);
    let aborted = |cause: &str| end(&format!(r#"{{"kind":"aborted","reason":{{"kind":"{cause}"}}}}"#));
    turns("turn/end", &end(r#"{"kind":"aborted"}"#), &aborted("legacy"));
    turns("turn/end", &end(r#"{"kind":"disposed"}"#), &aborted("disposed"));
    let failed = |error: &str| end(&format!(r#"{{"kind":"error","error":{error}}}"#));
    turns(
        "turn/end",
        &end(r#"{"kind":"error","step":1,"failure":{"message":"m","code":"AUTH"}}"#),
        &failed(r#"{"message":"m","code":"AUTH"}"#),
    );
    turns(
        "turn/end",
        &end(r#"{"kind":"error","step":0,"message":"m"}"#),
        &failed(r#"{"message":"m","code":"UNKNOWN"}"#),
    );
    for current in [aborted("of a plug-in"), end(r#"{"kind":"of a plug-in","x":1}"#), end(r#"{"kind":"completed"}"#)] {
        same("turn/end", &current);
    }
    let (kind, user) = data("steering/message", r#"{"turn":1,"content":[],"source":{"kind":"user"}}"#);
    let user = user.unwrap_or_default();
    assert!(
        kind == "user/message" && user.contains(r#""id":"legacy-message:s:0""#) && user.contains(r#""role":"user""#),
        "{user}"
    );
    for refused in [
        r#"{"type":"turn/start","seq":0,"time":1,"data":{"turn":0,"trigger":{"kind":"user"}}}"#,
        r#"{"type":"turn/start","seq":0,"time":1,"data":{"turn":1,"trigger":{"kind":""}}}"#,
        r#"{"type":"turn/end","seq":0,"time":1,"data":{"turn":1,"reason":{"kind":"completed","x":1}}}"#,
        r#"{"type":"turn/end","seq":0,"time":1,"data":{"turn":1,"reason":{"kind":"error"}}}"#,
        r#"{"type":"turn/end","seq":0,"time":1,"data":{"turn":1,"reason":{"kind":"error","step":-1,"message":"m"}}}"#,
    ] {
        assert!(convert(refused).is_err(), "{refused}");
    }
    let fixture = Fixture::new(Compression::None);
    let body = r#"{"type":"turn/start","seq":0,"time":1,"data":{"turn":1,"trigger":{"kind":"user"}}}
{"type":"turn/end","seq":1,"time":1,"data":{"turn":1,"reason":{"kind":"disposed"}}}
"#;
    let file = format!("{HEADER}\n{body}");
    put(&fixture.path(), file.as_bytes());
    assert_eq!(fixture.log().events.get(0).expect("stored").data_value().to_text(), r#"{"turn":1}"#);
    let (log, writer) = fixture.open().expect("opened").expect("stored");
    store::append(&writer, &[at(2, "plan/mode", r#"{"active":true}"#)]).expect("appended");
    block_on(writer.close());
    assert_eq!(log.events.len(), 2);
    let now = std::fs::read_to_string(fixture.path()).expect("a file");
    assert!(now.starts_with(&file) && now.len() > file.len(), "old rows stay as they were: {now}");
}
