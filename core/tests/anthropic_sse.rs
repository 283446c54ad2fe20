//! The messages wire as pure code: one test per row of `cases/bug-reports.md` that concerns it, its terminal truth table,
//! and what goes back to the provider.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used)]

#[path = "support/wire.rs"]
mod wire;

use proptest::prelude::*;
use turnwheel::json::{Value, parse};
use turnwheel::llm::adapters::anthropic_messages::AnthropicDecoder;
use turnwheel::llm::{Chunk, FinishReason};
use turnwheel::message::{Block, Usage};
use wire::{Answer, assert_cuts_do_not_matter, decode_with};

const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":7,"cache_creation_input_tokens":3,"cache_read_input_tokens":11,"output_tokens":1}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

/// A body of these events, each with its name.
fn body(events: &[&str]) -> String {
    let line = |event: &&str| {
        let value = parse(event).unwrap();
        let name = value.get("type").and_then(Value::as_str).unwrap_or("message").to_owned();
        format!("event: {name}\ndata: {event}\n\n")
    };
    events.iter().map(line).collect()
}

fn start(index: u64, block: &str) -> String {
    format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
}

fn delta(index: u64, kind: &str, member: &str, text: &str) -> String {
    let text = Value::from(text);
    format!(r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{kind}","{member}":{text}}}}}"#)
}

fn text(index: u64, text: &str) -> String {
    delta(index, "text_delta", "text", text)
}

fn json(index: u64, text: &str) -> String {
    delta(index, "input_json_delta", "partial_json", text)
}

fn end(index: u64) -> String {
    format!(r#"{{"type":"content_block_stop","index":{index}}}"#)
}

fn stop_for(reason: &str) -> String {
    format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":20}}}}"#
    )
}

const TEXT: &str = r#"{"type":"text","text":""}"#;
const THINKING: &str = r#"{"type":"thinking","thinking":"","signature":""}"#;

fn tool(id: &str, name: &str) -> String {
    format!(r#"{{"type":"tool_use","id":"{id}","name":"{name}","input":{{}}}}"#)
}

fn decode(events: &[&str]) -> Answer {
    decode_with(&mut AnthropicDecoder::new("made"), &[body(events).as_bytes()])
}

/// Decodes events between the start and the end of a message.
fn answer(events: &[String], reason: &str) -> Answer {
    let stop = stop_for(reason);
    let middle = events.iter().map(String::as_str);
    decode(&[START].into_iter().chain(middle).chain([stop.as_str(), STOP]).collect::<Vec<_>>())
}

fn replay_state(answer: &Answer) -> Option<Value> {
    match answer.chunks.last() {
        Some(Chunk::Finish { replay_state, .. }) => replay_state.as_deref().cloned(),
        _ => None,
    }
}

#[test]
fn text_streams_and_usage_is_disjoint() {
    let answer = answer(&[start(0, TEXT), text(0, "hel"), text(0, "lo"), end(0)], "end_turn");
    assert_eq!((answer.text().as_str(), answer.code().as_str()), ("hello", "stop"));
    assert!(answer.is_done_early);
    let usage = Usage {
        input_tokens: 7,
        output_tokens: 20,
        cache_read_tokens: Some(11),
        cache_write_tokens: Some(3),
        reasoning_tokens: None,
    };
    assert_eq!(answer.usage(), Some(usage), "MSG-26: the cache is no part of the input");
    assert_eq!(replay_state(&answer), None, "plain text needs nothing kept");
}

#[test]
fn case_019_an_error_after_a_part_of_the_answer_commits_nothing() {
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let call = [start(1, &tool("a", "f")), json(1, "{\"x\":")];
    let events = [START, &start(0, TEXT), &text(0, "par"), &call[0], &call[1], error, STOP];
    let answer = decode(&events);
    let failure = answer.failure.clone().unwrap();
    assert_eq!((failure.code.as_str(), failure.message.as_str()), ("SERVER", "Overloaded"));
    assert_eq!(answer.blocks(), [], "nothing half-made is closed");
    assert_eq!(answer.finish(), None);
}

#[test]
fn case_020_an_overload_as_the_first_event_is_a_server_failure() {
    let answer = decode(&[r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#]);
    assert_eq!((answer.code().as_str(), answer.chunks.len()), ("SERVER", 0));
    let of = |kind: &str| decode(&[&format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"m"}}}}"#)]).code();
    let expected = [
        ("rate_limit_error", "RATE_LIMIT"),
        ("api_error", "SERVER"),
        ("authentication_error", "AUTH"),
        ("permission_error", "AUTH"),
        ("invalid_request_error", "INVALID_REQUEST"),
        ("timeout_error", "TIMEOUT"),
        ("billing_error", "QUOTA"),
    ];
    for (kind, code) in expected {
        assert_eq!(of(kind), code, "{kind}");
    }
}

#[test]
fn case_023_a_ping_is_no_progress() {
    let ping = r#"{"type":"ping"}"#;
    let answer =
        decode(&[START, ping, ping, &start(0, TEXT), &text(0, "a"), ping, &end(0), &stop_for("end_turn"), STOP]);
    assert_eq!((answer.text().as_str(), answer.keep_alives), ("a", 3));
}

#[test]
fn case_040_interleaved_calls_keep_their_slots() {
    let events = [
        start(1, &tool("a", "f")),
        start(2, &tool("b", "g")),
        json(2, "{\"y\":"),
        json(1, "{\"x\":1}"),
        json(2, "2}"),
        end(1),
    ];
    let whole = answer(&events, "tool_use");
    let expected = [wire_call("a", "f", "{\"x\":1}"), wire_call("b", "g", "{\"y\":2}")];
    assert_eq!(whole.calls(), expected, "the missing stop event changes nothing where the arguments are whole");
    assert_eq!(whole.code(), "tool-calls");
    let half = &events[..5];
    let half = half.iter().filter(|event| !event.contains("2}")).cloned().collect::<Vec<_>>();
    assert_eq!(answer(&half, "tool_use").code(), "MALFORMED_RESPONSE", "a half call is not run with {{}}");
    let cut = answer(&half, "max_tokens");
    assert_eq!(cut.code(), "max-tokens");
    let mut assembler = turnwheel::llm::Assembler::new();
    cut.chunks.iter().for_each(|chunk| assembler.push(chunk));
    assert_eq!(assembler.assemble().unwrap().content, [], "under the ceiling no call is run (BLK-07)");
}

fn wire_call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
    (id.to_owned(), name.to_owned(), arguments.to_owned())
}

#[test]
fn case_041_optional_is_optional_unknown_is_counted_and_malformed_is_an_error() {
    let bare = r#"{"type":"message_start","message":{}}"#;
    let unknown = r#"{"type":"content_block_hologram","index":0}"#;
    let answer =
        decode(&[bare, unknown, &start(0, r#"{"type":"text"}"#), &text(0, "a"), &end(0), &stop_for("end_turn"), STOP]);
    assert_eq!((answer.text().as_str(), answer.skipped, answer.code().as_str()), ("a", 1, "stop"));
    let malformed = [
        r#"{"type":"content_block_start","index":0}"#,
        r#"{"type":"content_block_delta","index":0}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta"}}"#,
        r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}"#,
        r#"{"type":"content_block_delta","index":9,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#,
        r#"{"type":"message_start"}"#,
        "[1]",
    ];
    for payload in malformed {
        let body = format!("data: {START}\n\ndata: {payload}\n\n");
        let answer = decode_with(&mut AnthropicDecoder::new("made"), &[body.as_bytes()]);
        assert_eq!(answer.code(), "MALFORMED_RESPONSE", "{payload}");
    }
}

#[test]
fn case_052_thinking_without_its_signature_is_kept_and_marked_unsigned() {
    let events = [start(0, THINKING), delta(0, "thinking_delta", "thinking", "hm")];
    let answer = answer(&events, "max_tokens");
    assert_eq!(answer.blocks(), [Block::Reasoning("hm".into())]);
    assert_eq!(answer.code(), "max-tokens");
    assert_eq!(replay_state(&answer), None, "nothing to send back");
}

#[test]
fn case_053_the_whole_text_beside_the_signature_is_said_once() {
    let last = r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"ab","signature":"sig"}}"#;
    let think = |text: &str| delta(0, "thinking_delta", "thinking", text);
    let answer = answer(&[start(0, THINKING), think("a"), think("b"), last.into(), end(0)], "end_turn");
    assert_eq!(answer.blocks(), [Block::Reasoning("ab".into())]);
    let state = replay_state(&answer).unwrap();
    assert_eq!(state.get("blocks").unwrap().to_text(), r#"[{"type":"thinking","signature":"sig"}]"#);
}

#[test]
fn signatures_redactions_and_blocks_that_only_the_provider_knows_are_kept_by_position() {
    let search = r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{}}"#;
    let events = [
        start(0, THINKING),
        delta(0, "thinking_delta", "thinking", "hm"),
        delta(0, "signature_delta", "signature", "si"),
        delta(0, "signature_delta", "signature", "g"),
        end(0),
        start(1, r#"{"type":"redacted_thinking","data":"xyz"}"#),
        end(1),
        start(2, TEXT),
        text(2, "t"),
        end(2),
        start(3, search),
        json(3, r#"{"query":"q"}"#),
        end(3),
    ];
    let answer = answer(&events, "end_turn");
    let expected = r#"{"response":{"kind":"anthropic-messages","version":1,"model":"m","id":"msg_1"},"blocks":[{"type":"thinking","signature":"sig"},{"type":"redacted_thinking","data":"xyz"},null,{"type":"verbatim"}]}"#;
    assert_eq!(replay_state(&answer).unwrap().to_text(), expected);
    let kept = Block::Other(
        turnwheel::json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}),
    );
    let blocks = answer.blocks();
    assert_eq!(blocks[..3], [Block::Reasoning("hm".into()), Block::Reasoning(String::new()), Block::Text("t".into())]);
    assert_eq!(blocks[3], kept);
}

#[test]
fn input_may_come_with_the_start_or_not_at_all() {
    let full = r#"{"type":"tool_use","id":"a","name":"f","input":{"x":1}}"#;
    assert_eq!(answer(&[start(0, full), end(0)], "tool_use").calls(), [wire_call("a", "f", "{\"x\":1}")]);
    assert_eq!(answer(&[start(0, &tool("a", "f")), end(0)], "tool_use").calls(), [wire_call("a", "f", "{}")]);
    let no_id = start(0, r#"{"type":"tool_use","name":"f"}"#);
    assert_eq!(answer(&[no_id, json(0, "{}"), end(0)], "tool_use").calls(), [wire_call("made-0", "f", "{}")]);
    let no_name = start(0, r#"{"type":"tool_use","id":"a"}"#);
    assert_eq!(answer(&[no_name, end(0)], "tool_use").code(), "MALFORMED_RESPONSE");
}

#[test]
fn a_server_that_does_not_stream_is_read_too() {
    let whole = r#"{"type":"message","model":"m","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"c","name":"f","input":{"x":1}}],"stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2}}"#;
    let answer = decode(&[whole]);
    assert_eq!((answer.text().as_str(), answer.code().as_str()), ("a", "tool-calls"));
    assert_eq!(answer.calls(), [wire_call("c", "f", "{\"x\":1}")]);
}

#[test]
fn stop_reasons_map_as_the_wire_means_them() {
    let of = |reason: &str| answer(&[start(0, TEXT), text(0, "a"), end(0)], reason).code();
    let expected = [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "max-tokens"),
        ("model_context_window_exceeded", "max-tokens"),
        ("refusal", "REFUSAL"),
        ("pause_turn", "PAUSE_TURN"),
    ];
    for (reason, code) in expected {
        assert_eq!(of(reason), code, "{reason}");
    }
    let empty = answer(&[], "end_turn");
    assert_eq!(empty.code(), "EMPTY_RESPONSE");
    assert!(empty.usage().is_some(), "the failed attempt is accounted for");
}

/// {stop reason, message_stop, error event, end of body} x {no output, text, whole call, half call}.
#[test]
fn the_terminal_truth_table() {
    let reason = stop_for("end_turn");
    let error = r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#;
    let outputs = [
        vec![],
        vec![start(0, TEXT), text(0, "a"), end(0)],
        vec![start(0, &tool("a", "f")), json(0, "{\"x\":1}"), end(0)],
        vec![start(0, &tool("a", "f")), json(0, "{\"x\":")],
    ];
    let table: [(&[&str], [&str; 4]); 6] = [
        (&[&reason, STOP], ["EMPTY_RESPONSE", "stop", "tool-calls", "MALFORMED_RESPONSE"]),
        (&[&reason], ["EMPTY_RESPONSE", "stop", "tool-calls", "MALFORMED_RESPONSE"]),
        (&[STOP], ["EMPTY_RESPONSE", "stop", "tool-calls", "STREAM_CLOSED"]),
        (&[], ["STREAM_CLOSED"; 4]),
        (&[error], ["SERVER"; 4]),
        (&[&reason, error], ["SERVER"; 4]),
    ];
    for (ends, expected) in table {
        for (output, expected) in outputs.iter().zip(expected) {
            let mut events = vec![START];
            events.extend(output.iter().map(String::as_str));
            events.extend(ends);
            let answer = decode(&events);
            assert_eq!(answer.code(), expected, "{events:?}");
            assert!(answer.failure.is_none() || answer.finish().is_none(), "an answer ends once");
        }
    }
}

/// An answer with every kind of block, characters of every width, and pings.
fn recorded() -> String {
    let events = [
        START.to_owned(),
        start(0, THINKING),
        r#"{"type":"ping"}"#.into(),
        delta(0, "thinking_delta", "thinking", "hm é"),
        delta(0, "signature_delta", "signature", "EqQB"),
        end(0),
        start(1, TEXT),
        text(1, "漢"),
        text(1, "😀 x"),
        end(1),
        start(2, &tool("toolu_1", "f")),
        json(2, ""),
        json(2, "{\"k\":"),
        json(2, "\"é漢😀\"}"),
        end(2),
        stop_for("tool_use"),
        STOP.into(),
    ];
    body(&events.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn every_single_cut_of_a_recorded_stream_gives_the_same_chunks() {
    let whole = decode_with(&mut AnthropicDecoder::new("made"), &[recorded().as_bytes()]);
    assert_eq!(whole.calls(), [wire_call("toolu_1", "f", r#"{"k":"é漢😀"}"#)]);
    assert_eq!(whole.finish(), Some(&FinishReason::ToolCalls));
    assert_cuts_do_not_matter(&recorded(), &["\n", "\r\n", "\r"], || AnthropicDecoder::new("made"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Deltas of several blocks in any order that keeps each block's own order.
    #[test]
    fn any_delta_order_gives_the_same_blocks(order in prop::collection::vec(0usize..4, 0..40), early: bool) {
        let mut queues: Vec<std::collections::VecDeque<String>> = vec![
            vec![start(0, THINKING), delta(0, "thinking_delta", "thinking", "a"), delta(0, "signature_delta", "signature", "s"), end(0)].into(),
            vec![start(1, TEXT), text(1, "b"), text(1, "é"), end(1)].into(),
            vec![start(2, &tool("x", "f")), json(2, "{\"n\""), json(2, ":1}"), end(2)].into(),
            vec![start(3, &tool("y", "g")), json(3, "{\"m\":"), json(3, "2}"), end(3)].into(),
        ];
        let mut events = Vec::new();
        if early {
            // Starts in order, as the wire promises; otherwise in any order.
            events.extend(queues.iter_mut().map(|queue| queue.pop_front().unwrap()));
        }
        for which in order.into_iter().chain([0, 1, 2, 3].repeat(4)) {
            events.extend(queues[which].pop_front());
        }
        let mut blocks = answer(&events, "tool_use").blocks();
        blocks.sort_by_key(|block| format!("{block:?}"));
        let call = |id: &str, name: &str, arguments: &str| Block::ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() };
        let mut expected = [Block::Reasoning("a".into()), Block::Text("bé".into()), call("x", "f", "{\"n\":1}"), call("y", "g", "{\"m\":2}")];
        expected.sort_by_key(|block| format!("{block:?}"));
        prop_assert_eq!(blocks, expected);
    }

    #[test]
    fn no_bytes_at_all_can_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..2000, noise in "\\PC{0,40}") {
        let mut decoder = AnthropicDecoder::new("made");
        decode_with(&mut decoder, &[&bytes]);
        let mut broken = recorded().into_bytes();
        let at = at % broken.len();
        broken.splice(at..at + 1, noise.bytes());
        decode_with(&mut AnthropicDecoder::new("made"), &[&broken]);
    }
}
