//! The surface, what the model sees of it, and the request header: data.md sections 4 and 5. Named after the ids.

use std::sync::Arc;
use turnwheel::json::Value;
use turnwheel::llm::RequestHeader;
use turnwheel::session::{Event, EventData, Session, SessionHeader, Surface, SurfaceOp};
use turnwheel::{Code, Context, Result, json};

fn parse(text: &str) -> Value {
    json::parse(text).expect("JSON")
}

fn session() -> (Context, Session) {
    let ctx = Context::new();
    let session = Session::new(ctx.runtime(), SessionHeader::new("demo", 1)).expect("a session");
    (ctx, session)
}

fn user(id: &str) -> Value {
    json!({"id": id, "role": "user", "content": [{"type": "text", "text": id}], "source": {"kind": "user"}})
}

fn assistant(id: &str, text: Option<&str>) -> Value {
    let content = text.map(|text| json!({"type": "text", "text": text}));
    let mut message = json!({"id": id, "role": "assistant", "content": [],
        "source": {"kind": "model", "provider": "p", "model": "m"}});
    if let (Value::Object(message), Some(block)) = (&mut message, content) {
        message.insert("content", vec![block]);
    }
    with("message", message)
}

/// `{turn:1, step:1, <key>: value}`.
fn with(key: &str, value: Value) -> Value {
    let mut data = json!({"turn": 1, "step": 1});
    if let Value::Object(data) = &mut data {
        data.insert(key, value);
    }
    data
}

fn result(call: &str, text: &str) -> Value {
    with(
        "message",
        json!({"id": format!("r-{call}"), "role": "user", "source": {"kind": "tool", "callId": call},
        "content": [{"type": "tool-result", "toolCallId": call, "isError": false,
            "content": [{"type": "text", "text": text}]}]}),
    )
}

const APPEND: Option<SurfaceOp> = Some(SurfaceOp::Append);

fn replace(start: u64, end: u64) -> Option<SurfaceOp> {
    Some(SurfaceOp::Replace { start, end })
}

fn put(session: &Session, kind: &str, data: Value, op: Option<SurfaceOp>, sources: &[u64]) -> Result<Arc<Event>> {
    let sources = (!sources.is_empty()).then(|| sources.to_vec());
    session.append_raw(kind, data, op, sources, false)
}

/// A session with five user messages, seqs 0 to 4.
fn five() -> (Context, Session) {
    let (ctx, session) = session();
    for id in ["a", "b", "c", "d", "e"] {
        put(&session, "user/message", user(id), APPEND, &[]).expect("logged");
    }
    (ctx, session)
}

fn history(session: &Session) -> Vec<String> {
    session.history().iter().map(|message| message.id().to_string()).collect()
}

fn refused(session: &Session, kind: &str, data: Value, op: Option<SurfaceOp>, sources: &[u64]) -> String {
    let (length, nodes) = (session.len(), session.surface_nodes());
    let error = put(session, kind, data, op, sources).expect_err("refused");
    assert_eq!(error.code(), &Code::InvalidSurface, "{error:?}");
    assert_eq!((session.len(), session.surface_nodes()), (length, nodes), "nothing has changed");
    error.message().to_owned()
}

#[test]
fn surf_1_to_4_a_span_is_one_of_positions_and_a_later_start_may_be_the_larger_seq() {
    let (_ctx, session) = five();
    // [0 1 2 3 4] -> [0 5 3 4] -> [0 6 4], and now the first node of a span can have the larger seq.
    put(&session, "user/message", user("f"), replace(1, 2), &[1, 2]).expect("replaced");
    assert_eq!(session.surface_nodes(), [0, 5, 3, 4]);
    refused(&session, "user/message", user("x"), replace(3, 5), &[3, 5]);
    put(&session, "user/message", user("g"), replace(5, 3), &[3, 5]).expect("replaced");
    assert_eq!(session.surface_nodes(), [0, 6, 4]);
    assert_eq!(history(&session), ["a", "g", "e"]);
    for (start, end) in [(1, 4), (4, 1), (7, 7), (99, 4), (4, 0)] {
        refused(&session, "user/message", user("x"), replace(start, end), &[0, 1, 4, 6]);
    }
    for op in [
        r#"{"op":"replace","start":0,"end":0,"more":1}"#,
        r#"{"op":"replace","start":0}"#,
        r#"{"op":"replace","start":-1,"end":0}"#,
        r#"{"op":"replace","start":0.5,"end":1}"#,
        r#"{"op":"insert","start":0,"end":0}"#,
        r#""prepend""#,
    ] {
        assert!(SurfaceOp::from_value(&parse(op)).is_none(), "{op}");
    }
}

#[test]
fn surf_5_and_6_sources_are_checked_in_order_and_name_every_node_that_goes() {
    let (_ctx, session) = five();
    let message = refused(&session, "user/message", user("x"), replace(0, 2), &[2, 2, 99]);
    assert!(message.contains("duplicates"), "{message}");
    let message = refused(&session, "user/message", user("x"), replace(0, 2), &[2, 5]);
    assert!(message.contains("earlier"), "{message}");
    let message = refused(&session, "user/message", user("x"), replace(0, 2), &[0, 2]);
    assert!(message.contains("1 is missing"), "{message}");
    refused(&session, "user/message", user("x"), replace(0, 2), &[]);
    let empty = session.append_raw("user/message", user("x"), APPEND, Some(vec![]), false);
    assert_eq!(empty.expect_err("refused").code(), &Code::InvalidSurface);
    // More than the nodes may be named, in any order; what a replaced node itself came from need not be.
    put(&session, "user/message", user("f"), replace(1, 2), &[2, 0, 1]).expect("replaced");
    put(&session, "user/message", user("g"), replace(5, 3), &[5, 3]).expect("replaced");
}

#[test]
fn surf_7_and_der_2_an_empty_answer_is_a_node_without_a_message_and_empty_sources_are_not_absent_ones() {
    let (_ctx, session) = five();
    let answer = assistant("n", None);
    let logged = session.append_raw("assistant/message", answer, APPEND, Some(vec![]), false).expect("logged");
    assert!(logged.json().contains("\"sourceEventSeqs\":[]"), "{}", logged.json());
    let unknown = put(&session, "assistant/message", assistant("o", Some("x")), APPEND, &[]).expect("logged");
    assert!(!unknown.json().contains("sourceEventSeqs"));
    let again = Event::from_value(&logged.to_value()).expect("an event");
    assert_eq!(again.source_event_seqs, Some(vec![]));
    assert_eq!(session.surface_nodes(), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(history(&session), ["a", "b", "c", "d", "e", "o"]);
    put(&session, "user/message", user("f"), replace(4, 5), &[4, 5]).expect("the empty node bounds a span");
    assert_eq!(history(&session), ["a", "b", "c", "d", "f", "o"]);
}

#[test]
fn surf_8_and_9_a_result_is_replaced_by_itself_with_other_content_and_messages_replace_anything() {
    let (_ctx, session) = session();
    put(&session, "assistant/message", assistant("n", Some("x")), APPEND, &[]).expect("logged");
    put(&session, "tool/result", result("c", "a long text"), APPEND, &[]).expect("logged");
    put(&session, "tool/result", result("d", "another"), APPEND, &[]).expect("logged");
    put(&session, "tool/result", result("c", "short"), replace(1, 1), &[1]).expect("trimmed");
    assert_eq!(session.surface_nodes(), [0, 3, 2]);
    refused(&session, "tool/result", result("c", "x"), replace(3, 2), &[2, 3]);
    refused(&session, "tool/result", result("c", "x"), replace(0, 0), &[0]);
    let text = result("c", "x").to_text();
    for (from, to) in [
        ("\"step\":1", "\"step\":2"),
        ("r-c", "other"),
        ("\"isError\":false", "\"isError\":true"),
        ("\"isError\":false,", ""),
        ("\"turn\":1", "\"turn\":1,\"meta\":1"),
        ("\"turn\":1", "\"turn\":1,\"error\":{\"name\":\"n\",\"code\":\"c\"}"),
    ] {
        refused(&session, "tool/result", parse(&text.replace(from, to)), replace(3, 3), &[3]);
    }
    put(&session, "user/message", user("sum"), replace(0, 3), &[0, 3]).expect("half of a pair goes");
    assert_eq!(history(&session), ["sum", "r-d"]);
}

#[test]
fn surf_10_12_and_13_a_fold_tells_what_each_replacement_shadowed_and_counts_them() {
    let (_ctx, session) = five();
    put(&session, "user/message", user("f"), replace(1, 2), &[1, 2]).expect("replaced");
    put(&session, "user/message", user("g"), replace(5, 3), &[5, 3]).expect("replaced");
    let (mut surface, mut shadowed, mut transcript) = (Surface::default(), Vec::new(), Vec::new());
    for event in session.events_from(0) {
        shadowed.extend(surface.apply(&event));
        if event.surface_op == Some(SurfaceOp::Append) {
            transcript.push(event.seq);
        }
    }
    assert_eq!(shadowed, [vec![1, 2], vec![5, 3]]);
    assert_eq!((surface.nodes(), surface.generation()), ([0, 6, 4].as_slice(), 2));
    assert_eq!(surface.nodes(), session.surface_nodes());
    assert_eq!(transcript, [0, 1, 2, 3, 4], "what people see is what was appended, replaced or not");
}

#[test]
fn der_1_3_and_4_messages_come_verbatim_and_log_only_events_derive_nothing() {
    let (_ctx, session) = session();
    put(&session, "user/message", user("a"), APPEND, &[]).expect("logged");
    for (kind, data) in [
        ("assistant/chunk", with("chunk", json!({"type": "text-delta", "index": 0, "text": "of a failed attempt"}))),
        ("tool/call", json!({"turn": 1, "step": 1, "callId": "c", "name": "n", "arguments": "{}"})),
        ("todo/write", json!({"todos": []})),
        ("compaction/summary", json!({"summary": [{"type": "text", "text": "not this"}]})),
    ] {
        put(&session, kind, data, None, &[]).expect("logged");
    }
    let before = session.history();
    put(&session, "assistant/message", assistant("b", Some("x")), APPEND, &[]).expect("logged");
    put(&session, "tool/result", result("c", "y"), APPEND, &[]).expect("logged");
    assert_eq!((before.len(), history(&session)), (1, vec!["a".into(), "b".into(), "r-c".into()]), "taken before");
    let texts: Vec<_> = session.history().iter().map(|message| message.json().to_owned()).collect();
    assert_eq!(texts[0], user("a").to_text());
    assert_eq!(Some(texts[1].clone()), assistant("b", Some("x")).get("message").map(Value::to_text));
}

#[test]
fn hdr_1_to_3_a_header_leaves_out_what_is_empty_and_compares_field_by_field() {
    let read = |text: &str| RequestHeader::from_value(&parse(text)).expect("a header");
    let full = r#"{"config":{"provider":"p","model":"m","reasoningEffort":"low","temperature":0.5,"maxTokens":9,"stop":["a","b"]},"adapterDefaults":{"maxTokens":true},"system":"s","tools":[{"name":"n","description":"d","parameters":{"type":"object","properties":{"b":{},"a":{}}}}]}"#;
    assert_eq!(read(full).to_value().to_text(), full);
    let config = r#"{"provider":"p","model":"m"}"#;
    let empty = read(&format!(r#"{{"config":{config},"system":"","tools":[],"adapterDefaults":{{}}}}"#));
    assert_eq!(empty.to_value().to_text(), format!(r#"{{"config":{config}}}"#));
    assert!(empty == read(&format!(r#"{{"config":{config}}}"#)));
    for (from, to) in [
        (r#"["a","b"]"#, r#"["b","a"]"#),
        (r#""b":{},"a":{}"#, r#""a":{},"b":{}"#),
        (r#""system":"s""#, r#""system":"t""#),
        (r#""adapterDefaults":{"maxTokens":true},"#, ""),
        (r#""temperature":0.5"#, r#""temperature":1"#),
    ] {
        assert!(read(full) != read(&full.replace(from, to)), "{to} is a change");
    }
    let reordered = full.replace(r#""provider":"p","model":"m""#, r#""model":"m","provider":"p""#);
    assert!(read(full) == read(&reordered), "the order of a header's own members is none");
}

#[test]
fn hdr_4_and_6_the_latest_header_and_context_are_in_force_whole() {
    let (_ctx, session) = session();
    let header = |config: Value| json!({"header": {"config": config}, "reason": "change"});
    let first = header(json!({"provider": "p", "model": "m", "temperature": 0.5, "maxTokens": 7}));
    put(&session, "request/header", first, None, &[]).expect("logged");
    let second = header(json!({"provider": "p", "model": "n"}));
    put(&session, "request/header", second, None, &[]).expect("logged");
    let config = session.request_header().expect("a header").config.clone();
    assert_eq!((config.model.as_str(), config.temperature, config.max_tokens), ("n", None, None));
    put(&session, "request/context", json!({"provider": "p", "model": "m", "contextWindow": 5}), None, &[])
        .expect("logged");
    put(&session, "request/context", json!({"provider": "p", "model": "m"}), None, &[]).expect("logged");
    assert_eq!(
        session.request_context().expect("a context").context_window,
        None,
        "an absent window clears the old one"
    );
    let EventData::RequestContext(context) = &session.event(2).expect("an event").data else { panic!("a context") };
    assert_eq!(context.context_window, Some(5));
}
