//! The responses wire as pure code: its terminal truth table, what servers leave out, and every cut.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used)]

#[path = "support/wire.rs"]
mod wire;

use proptest::prelude::*;
use turnwheel::json::{Value, parse};
use turnwheel::llm::Chunk;
use turnwheel::llm::adapters::openai_responses::ResponsesDecoder;
use turnwheel::message::{Block, Usage};
use wire::{Answer, assert_cuts_do_not_matter, decode_with};

const CREATED: &str = r#"{"type":"response.created","response":{"id":"resp_1","object":"response","status":"in_progress","model":"m","output":[]}}"#;
const USAGE: &str = r#""usage":{"input_tokens":20,"input_tokens_details":{"cached_tokens":12},"output_tokens":9,"output_tokens_details":{"reasoning_tokens":4},"total_tokens":29}"#;

fn body(events: &[String]) -> String {
    let line = |event: &String| {
        let value = parse(event).unwrap();
        format!("event: {}\ndata: {event}\n\n", value.get("type").and_then(Value::as_str).unwrap_or("message"))
    };
    events.iter().map(line).collect()
}

fn item(event: &str, index: u64, item: &str) -> String {
    format!(r#"{{"type":"response.output_item.{event}","output_index":{index},"item":{item}}}"#)
}

fn delta(kind: &str, index: u64, part: &str, text: &str) -> String {
    let text = Value::from(text);
    format!(r#"{{"type":"response.{kind}.delta","item_id":"i{index}","output_index":{index},{part},"delta":{text}}}"#)
}

fn text(index: u64, fragment: &str) -> String {
    delta("output_text", index, r#""content_index":0"#, fragment)
}

fn arguments(index: u64, fragment: &str) -> String {
    delta("function_call_arguments", index, r#""sequence_number":1"#, fragment)
}

fn completed() -> String {
    format!(
        r#"{{"type":"response.completed","response":{{"id":"resp_1","model":"m","status":"completed","output":[],{USAGE}}}}}"#
    )
}

fn incomplete(reason: &str) -> String {
    format!(
        r#"{{"type":"response.incomplete","response":{{"status":"incomplete","incomplete_details":{{"reason":"{reason}"}},"output":[],{USAGE}}}}}"#
    )
}

const MESSAGE: &str = r#"{"id":"msg","type":"message","role":"assistant","status":"in_progress","content":[]}"#;

fn call_item(status: &str, arguments: &str) -> String {
    let arguments = Value::from(arguments);
    format!(
        r#"{{"id":"fc","type":"function_call","call_id":"c1","name":"f","status":"{status}","arguments":{arguments}}}"#
    )
}

fn decode(events: &[String]) -> Answer {
    let created = [CREATED.to_owned()];
    decode_with(&mut ResponsesDecoder::new("made"), &[body(&[&created, events].concat()).as_bytes()])
}

fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
    (id.to_owned(), name.to_owned(), arguments.to_owned())
}

#[test]
fn text_streams_and_usage_is_disjoint() {
    let answer = decode(&[item("added", 0, MESSAGE), text(0, "hel"), text(0, "lo"), completed()]);
    assert_eq!((answer.text().as_str(), answer.code().as_str()), ("hello", "stop"));
    assert!(answer.is_done_early);
    let usage = Usage {
        input_tokens: 8,
        output_tokens: 9,
        cache_read_tokens: Some(12),
        cache_write_tokens: None,
        reasoning_tokens: Some(4),
    };
    assert_eq!(answer.usage(), Some(usage));
}

#[test]
fn calls_take_the_whole_arguments_as_authority() {
    let whole = [
        item("added", 0, &call_item("in_progress", "")),
        arguments(0, "{\"x\":"),
        arguments(0, "1}"),
        item("done", 0, &call_item("completed", "{\"x\":1}")),
        completed(),
    ];
    let answer = decode(&whole);
    assert_eq!((answer.calls(), answer.code().as_str()), (vec![call("c1", "f", "{\"x\":1}")], "tool-calls"));
    let no_done = [&whole[..3], &whole[4..]].concat();
    assert_eq!(decode(&no_done).calls(), answer.calls(), "an item without its end");
    let only_done = [whole[3].clone(), completed()];
    assert_eq!(decode(&only_done).calls(), answer.calls(), "an item without its beginning");
    let orphan = [arguments(0, "{}"), completed()];
    assert_eq!(decode(&orphan).code(), "MALFORMED_RESPONSE", "arguments of no call");
}

#[test]
fn items_that_only_the_terminal_event_holds_are_read() {
    let output = format!(
        r#"[{{"id":"m","type":"message","content":[{{"type":"output_text","text":"a"}}]}},{}]"#,
        call_item("completed", "{}")
    );
    let last =
        format!(r#"{{"type":"response.completed","response":{{"status":"completed","output":{output},{USAGE}}}}}"#);
    let answer = decode(&[last]);
    assert_eq!((answer.text().as_str(), answer.calls().len(), answer.code().as_str()), ("a", 1, "tool-calls"));
    let whole = format!(r#"data: {{"object":"response","status":"completed","output":{output},{USAGE}}}{}"#, "\n\n");
    let unstreamed = decode_with(&mut ResponsesDecoder::new("made"), &[whole.as_bytes()]);
    assert_eq!(unstreamed.blocks(), answer.blocks(), "a server that does not stream");
    let streamed = decode(&[
        item("added", 0, MESSAGE),
        text(0, "a"),
        item("done", 0, r#"{"id":"m","type":"message","content":[{"type":"output_text","text":"a"}]}"#),
        format!(r#"{{"type":"response.completed","response":{{"output":{output}}}}}"#),
    ]);
    assert_eq!(streamed.text(), "a", "an item that was streamed is not read twice");
}

#[test]
fn encrypted_reasoning_is_kept_by_position_and_plain_reasoning_is_not() {
    let reasoning = |encrypted: &str| {
        format!(
            r#"{{"id":"rs","type":"reasoning","summary":[{{"type":"summary_text","text":"A"}},{{"type":"summary_text","text":"B"}}]{encrypted}}}"#
        )
    };
    let summary =
        |part: u64, text: &str| delta("reasoning_summary_text", 0, &format!(r#""summary_index":{part}"#), text);
    let events = |encrypted: &str| {
        decode(&[
            item("added", 0, r#"{"id":"rs","type":"reasoning","summary":[]}"#),
            summary(0, "A"),
            summary(1, "B"),
            item("done", 0, &reasoning(encrypted)),
            item("added", 1, MESSAGE),
            text(1, "t"),
            completed(),
        ])
    };
    let answer = events(r#","encrypted_content":"gAAA""#);
    assert_eq!(answer.blocks(), [Block::Reasoning("A\n\nB".into()), Block::Text("t".into())]);
    let said: String = answer
        .chunks
        .iter()
        .filter_map(|chunk| match chunk {
            Chunk::ReasoningDelta { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(said, "A\n\nB", "deltas say what the block holds");
    let Some(Chunk::Finish { replay_state: Some(state), .. }) = answer.chunks.last() else { panic!("kept") };
    let blocks = state.get("blocks").and_then(Value::as_array).unwrap();
    assert_eq!(blocks[0].get("encrypted_content").and_then(Value::as_str), Some("gAAA"));
    assert!(blocks[1].is_null());
    let plain = events("");
    assert!(matches!(plain.chunks.last(), Some(Chunk::Finish { replay_state: None, .. })));
}

#[test]
fn unknown_is_counted_and_malformed_is_an_error() {
    let search = r#"{"id":"ws","type":"web_search_call","status":"completed"}"#;
    let odd = r#"{"type":"response.hologram.delta"}"#.to_owned();
    let answer = decode(&[odd, item("done", 0, search), item("added", 1, MESSAGE), text(1, "a"), completed()]);
    assert_eq!((answer.text().as_str(), answer.skipped), ("a", 2));
    for payload in
        [r#"{"type":"response.output_item.added"}"#, r#"{"type":"response.output_text.delta","output_index":0}"#]
    {
        assert_eq!(decode(&[payload.to_owned()]).code(), "MALFORMED_RESPONSE", "{payload}");
    }
}

#[test]
fn failures_inside_the_stream_are_named() {
    let failed = |code: &str, message: &str| {
        let event = format!(
            r#"{{"type":"response.failed","response":{{"status":"failed","error":{{"code":"{code}","message":"{message}"}}}}}}"#
        );
        decode(&[event]).code()
    };
    assert_eq!(failed("server_error", "m"), "SERVER");
    assert_eq!(failed("rate_limit_exceeded", "Rate limit reached"), "RATE_LIMIT");
    assert_eq!(failed("context_length_exceeded", "m"), "CONTEXT_WINDOW_EXCEEDED");
    assert_eq!(failed("insufficient_quota", "m"), "QUOTA");
    let error = r#"{"type":"error","code":"server_error","message":"boom","param":null}"#.to_owned();
    let answer = decode(&[item("added", 0, MESSAGE), text(0, "a"), error]);
    assert_eq!((answer.code().as_str(), answer.failure.unwrap().message.as_str()), ("SERVER", "boom"));
    assert_eq!(
        decode(&[item("added", 0, MESSAGE), text(0, "a"), incomplete("content_filter")]).code(),
        "CONTENT_FILTER"
    );
}

/// {completed, incomplete, failed, sentinel, end of body} x {no output, text, whole call, half call}.
#[test]
fn the_terminal_truth_table() {
    let failed = r#"{"type":"response.failed","response":{"error":{"code":"server_error","message":"m"}}}"#.to_owned();
    let outputs = [
        vec![],
        vec![item("added", 0, MESSAGE), text(0, "a")],
        vec![item("added", 0, &call_item("in_progress", "")), arguments(0, "{}")],
        vec![item("added", 0, &call_item("in_progress", "")), arguments(0, "{\"x\":")],
    ];
    let table = [
        (Some(completed()), ["EMPTY_RESPONSE", "stop", "tool-calls", "MALFORMED_RESPONSE"]),
        (Some(incomplete("max_output_tokens")), ["max-tokens"; 4]),
        (Some(failed), ["SERVER"; 4]),
        (None, ["STREAM_CLOSED"; 4]),
    ];
    for (ending, expected) in table {
        for (output, expected) in outputs.iter().zip(expected) {
            let events = output.iter().cloned().chain(ending.clone()).collect::<Vec<_>>();
            assert_eq!(decode(&events).code(), expected, "{events:?}");
        }
    }
    let sentinel = format!("{}data: [DONE]\n\n", body(&outputs[1]));
    let answer = decode_with(&mut ResponsesDecoder::new("made"), &[sentinel.as_bytes()]);
    assert_eq!(answer.code(), "STREAM_CLOSED");
}

fn recorded() -> String {
    body(&[
        CREATED.to_owned(),
        item("added", 0, MESSAGE),
        text(0, "漢"),
        text(0, "😀 é"),
        item("done", 0, r#"{"id":"msg","type":"message","content":[{"type":"output_text","text":"漢😀 é"}]}"#),
        item("added", 1, &call_item("in_progress", "")),
        arguments(1, "{\"k\":\"é"),
        arguments(1, "漢\"}"),
        item("done", 1, &call_item("completed", "{\"k\":\"é漢\"}")),
        completed(),
    ])
}

#[test]
fn every_single_cut_of_a_recorded_stream_gives_the_same_chunks() {
    let whole = decode_with(&mut ResponsesDecoder::new("made"), &[recorded().as_bytes()]);
    assert_eq!(whole.calls(), [call("c1", "f", "{\"k\":\"é漢\"}")]);
    assert_cuts_do_not_matter(&recorded(), &["\n", "\r\n", "\r"], || ResponsesDecoder::new("made"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_delta_order_gives_the_same_blocks(order in prop::collection::vec(0usize..3, 0..20)) {
        let other = call_item("in_progress", "").replace("c1", "c2");
        let mut queues: Vec<std::collections::VecDeque<String>> = vec![
            vec![item("added", 0, MESSAGE), text(0, "a"), text(0, "b")].into(),
            vec![item("added", 1, &call_item("in_progress", "")), arguments(1, "{\"x\":"), arguments(1, "1}")].into(),
            vec![item("added", 2, &other), arguments(2, "{\"y\":"), arguments(2, "2}")].into(),
        ];
        let mut events = Vec::new();
        for which in order.into_iter().chain([0, 1, 2].repeat(3)) {
            events.extend(queues[which].pop_front());
        }
        events.push(completed());
        let answer = decode(&events);
        prop_assert_eq!(answer.text(), "ab");
        let mut calls = answer.calls();
        calls.sort_unstable();
        prop_assert_eq!(calls, [call("c1", "f", "{\"x\":1}"), call("c2", "f", "{\"y\":2}")]);
    }

    #[test]
    fn no_bytes_at_all_can_make_the_decoder_panic(at in 0usize..3000, noise in "\\PC{0,40}") {
        let mut broken = recorded().into_bytes();
        let at = at % broken.len();
        broken.splice(at..at + 1, noise.bytes());
        decode_with(&mut ResponsesDecoder::new("made"), &[&broken]);
    }
}
