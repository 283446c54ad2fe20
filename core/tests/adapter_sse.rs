//! The chat-completions wire as pure code: one test per row of `cases/bug-reports.md` that concerns it, and three
//! properties. Rows about sockets are in `openai_http.rs`; rows about other wires in `anthropic_sse.rs` and `responses_sse.rs`.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used)]

#[path = "support/wire.rs"]
mod wire;

use proptest::prelude::*;
use turnwheel::json::Value;
use turnwheel::llm::Chunk;
use turnwheel::llm::adapters::openai_chat::ChatDecoder;
use turnwheel::llm::sse::{Sse, SseFramer};
use turnwheel::message::{Block, Usage};
use wire::{Answer, body, decode_with};

/// Decodes a body that arrives in these reads.
fn decode(reads: &[&[u8]]) -> Answer {
    decode_with(&mut ChatDecoder::new("made"), reads)
}

fn decode_text(body: &str) -> Answer {
    decode(&[body.as_bytes()])
}

fn text(text: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{"content":{}}}}}]}}"#, Value::from(text))
}

/// A payload with these entries of `tool_calls`.
fn calls(entries: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{entries}]}}}}]}}"#)
}

const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const CALLS: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;
const DONE: &str = "[DONE]";

fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
    (id.to_owned(), name.to_owned(), arguments.to_owned())
}

/// Decodes payloads of tool calls that end properly.
fn calls_of(payloads: &[String]) -> Answer {
    let mut all = payloads.iter().map(String::as_str).collect::<Vec<_>>();
    all.extend([CALLS, DONE]);
    decode_text(&body(&all))
}

#[test]
fn case_001_character_cut_by_a_read() {
    let body = body(&[&text("漢字"), STOP, DONE]);
    let whole = decode_text(&body);
    assert_eq!(whole.text(), "漢字");
    for cut in 0..=body.len() {
        let (a, b) = body.as_bytes().split_at(cut);
        assert_eq!(decode(&[a, b]), whole, "cut at {cut}");
    }
}

#[test]
fn case_002_one_byte_at_a_time() {
    let body = body(&[&text("a😀b"), STOP, DONE]);
    let bytes = body.as_bytes().chunks(1).collect::<Vec<_>>();
    assert_eq!(decode(&bytes).text(), "a😀b");
    let invalid = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\xff\xfeb\"}}]}\n\ndata: [DONE]\n\n";
    assert_eq!(decode(&[invalid]).text(), "a\u{fffd}\u{fffd}b");
}

#[test]
fn case_004_crlf_endings() {
    let lf = format!("event: chunk\n{}", body(&[&text("x"), STOP, DONE]));
    let whole = decode_text(&lf);
    assert_eq!(whole.text(), "x");
    assert_eq!(decode_text(&lf.replace('\n', "\r\n")), whole);
    assert_eq!(decode_text(&lf.replace('\n', "\r")), whole);
}

#[test]
fn case_005_crlf_cut_between_reads() {
    let data = |reads: &[&[u8]]| {
        let (mut framer, mut events) = (SseFramer::default(), Vec::new());
        for read in reads {
            let fed = framer.feed(read, |found| {
                if let Sse::Event { data, .. } = found {
                    events.push(data.into_owned());
                }
            });
            assert_eq!(fed, Ok(()));
        }
        events
    };
    assert_eq!(data(&[b"data: A\r\n", b"data: B\r", b"\n", b"data: C\r\n", b"\n"]), ["A\nB\nC"]);
    assert_eq!(data(&[b"data: A\r\n", b"data: B\r", b"data: C\r\n", b"\n"]), ["A\nB\nC"]);
}

#[test]
fn case_007_block_without_data() {
    let answer = decode_text(&format!("id: 1\n\n: ping\n\nevent: x\n\n{}", body(&[&text("a"), STOP, DONE])));
    assert_eq!((answer.text().as_str(), answer.skipped), ("a", 0));
}

#[test]
fn case_010_comment_sent_as_data() {
    let answer = decode_text(&body(&[&text("a"), ": OPENROUTER PROCESSING", &text("b"), STOP, DONE]));
    assert_eq!((answer.text().as_str(), answer.skipped, answer.code().as_str()), ("ab", 1, "stop"));
    let answer = decode_text(&body(&[&text("a"), "PROCESSING", DONE]));
    let failure = answer.failure.unwrap();
    assert_eq!(failure.code, "MALFORMED_RESPONSE");
    assert!(failure.message.ends_with(": PROCESSING"), "the payload is quoted: {}", failure.message);
}

#[test]
fn case_011_done_ends_at_once_and_a_drop_is_no_success() {
    let done = decode_text(&body(&[&text("a"), DONE, "not JSON and not read"]));
    assert!(done.is_done_early);
    assert_eq!(done.code(), "stop");
    let dropped = decode_text(&body(&[&text("a"), &text("b")]));
    assert_eq!(dropped.code(), "STREAM_CLOSED");
    assert_eq!(dropped.blocks(), [], "partial text is not closed");
    let half_sentinel = decode_text(&format!("{}data: [DONE]", body(&[&text("a")])));
    assert_eq!(half_sentinel.code(), "STREAM_CLOSED");
    let half_sentinel = decode_text(&format!("{}data: [DONE]\n", body(&[&text("a")])));
    assert_eq!(half_sentinel.code(), "STREAM_CLOSED");
}

#[test]
fn case_013_finish_reason_without_done() {
    let answer = decode_text(&body(&[&text("a"), STOP]));
    assert_eq!((answer.text().as_str(), answer.code().as_str()), ("a", "stop"));
}

#[test]
fn case_014_stream_stops_inside_arguments() {
    let start = calls(r#"{"index":0,"id":"c","function":{"name":"write","arguments":"{\"text\":\""}}"#);
    let more = calls(&format!(r#"{{"index":0,"function":{{"arguments":"{}"}}}}"#, "x".repeat(40_000)));
    for payloads in [vec![start.as_str(), more.as_str()], vec![start.as_str(), more.as_str(), DONE]] {
        let answer = decode_text(&body(&payloads));
        assert_eq!(answer.code(), "STREAM_CLOSED");
        assert_eq!(answer.blocks(), [], "the call is not handed on as a block");
    }
}

#[test]
fn case_016_error_object_under_status_200() {
    let answer = decode_text(&body(&[&text("a"), r#"{"error":{"message":"m","code":"c","status_code":400}}"#]));
    let failure = answer.failure.unwrap();
    assert_eq!((failure.message.as_str(), failure.code.as_str()), ("m", "INVALID_REQUEST"));
    assert_eq!(failure.status, Some(400));
    let code = |error: &str| decode_text(&body(&[error])).code();
    assert_eq!(code(r#"{"error":{"message":"m","code":429}}"#), "RATE_LIMIT");
    assert_eq!(code(r#"{"error":{"message":"m","code":502},"choices":[]}"#), "SERVER");
    assert_eq!(code(r#"{"object":"error","message":"m","code":503}"#), "SERVER");
    assert_eq!(code(r#"{"error":{"message":"m","type":"server_error"}}"#), "SERVER");
    assert_eq!(code(r#"{"error":{"message":"m","type":"insufficient_quota"}}"#), "QUOTA");
    assert_eq!(code(r#"{"error":"plain text"}"#), "UNKNOWN");
    assert_eq!(decode_text(&format!("event: error\n{}", body(&[r#"{"message":"m"}"#]))).failure.unwrap().message, "m");
}

#[test]
fn case_017_choices_null_beside_an_error() {
    let failure = |message: &str| {
        let payload = format!(r#"{{"choices":null,"error_type":"BadRequest","error_message":"{message}"}}"#);
        let failure = decode_text(&body(&[&payload])).failure.unwrap();
        assert_eq!(failure.message, message);
        failure.code
    };
    assert_eq!(failure("context length"), "CONTEXT_WINDOW_EXCEEDED");
    assert_eq!(failure("This model's maximum context length is 8192 tokens"), "CONTEXT_WINDOW_EXCEEDED");
    assert_eq!(failure("bad temperature"), "INVALID_REQUEST");
}

#[test]
fn case_025_empty_choices() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
    let answer = decode_text(&body(&[r#"{"choices":[]}"#, r#"{"id":"x"}"#, &text("a"), STOP, usage, DONE]));
    assert_eq!((answer.text().as_str(), answer.code().as_str()), ("a", "stop"));
    assert_eq!(answer.usage().map(|usage| (usage.input_tokens, usage.output_tokens)), Some((3, 2)));
}

#[test]
fn case_026_usage_in_a_last_chunk_without_choices() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":5}}}"#;
    let answer = decode_text(&body(&[&text("a"), STOP, usage]));
    let expected = Usage {
        input_tokens: 6,
        output_tokens: 7,
        cache_read_tokens: Some(4),
        cache_write_tokens: None,
        reasoning_tokens: Some(5),
    };
    assert_eq!((answer.usage(), answer.code().as_str()), (Some(expected), "stop"));
    let hit = r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":1,"prompt_cache_hit_tokens":0}}"#;
    let answer = decode_text(&body(&[&text("a"), STOP, hit, DONE]));
    assert_eq!(answer.usage().map(|usage| (usage.input_tokens, usage.cache_read_tokens)), Some((10, Some(0))));
}

#[test]
fn case_028_calls_without_index() {
    let expected = [call("a", "f", r#"{"x":1}"#), call("b", "g", r#"{"x":2}"#)];
    let a = r#"{"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}"#;
    let b = r#"{"id":"b","function":{"name":"g","arguments":"{\"x\":2}"}}"#;
    assert_eq!(calls_of(&[calls(&format!("{a},{b}"))]).calls(), expected);
    assert_eq!(calls_of(&[calls(a), calls(b)]).calls(), expected);
}

#[test]
fn case_029_arguments_alone_continue_the_last_call() {
    let a = calls(r#"{"id":"a","function":{"name":"f","arguments":"{}"}}"#);
    let b = calls(r#"{"id":"b","function":{"name":"g","arguments":""}}"#);
    let more = calls(r#"{"function":{"arguments":"{\"x\":2}"}}"#);
    let answer = calls_of(&[a.clone(), b.clone(), more.clone()]);
    assert_eq!(answer.calls(), [call("a", "f", "{}"), call("b", "g", r#"{"x":2}"#)]);
    let half = calls(r#"{"id":"a","function":{"name":"f","arguments":"{\"x\":"}}"#);
    assert_eq!(calls_of(&[half, b, more]).code(), "MALFORMED_RESPONSE", "either call could be meant");
}

#[test]
fn case_031_name_comes_after_the_id() {
    let first = calls(r#"{"index":0,"id":"a","function":{"name":"","arguments":""}}"#);
    let second = calls(r#"{"index":0,"function":{"name":"f","arguments":"{\"x\":1}"}}"#);
    let third = calls(r#"{"index":0,"id":"","function":{"name":"","arguments":""}}"#);
    assert_eq!(calls_of(&[first, second, third]).calls(), [call("a", "f", r#"{"x":1}"#)]);
}

#[test]
fn case_032_index_without_id() {
    let part = |index: u32, name: &str, text: &str| {
        calls(&format!(
            r#"{{"index":{index},"function":{{"name":{},"arguments":{}}}}}"#,
            Value::from(name),
            Value::from(text)
        ))
    };
    let answer = calls_of(&[part(0, "f", "{\"x\""), part(0, "", ":1}"), part(1, "f", "{}")]);
    assert_eq!(answer.calls(), [call("made-0", "f", r#"{"x":1}"#), call("made-1", "f", "{}")]);
}

#[test]
fn case_034_summary_repeats_the_whole_call() {
    let part = |text: &str| {
        calls(&format!(r#"{{"index":0,"id":"X","function":{{"name":"f","arguments":{}}}}}"#, Value::from(text)))
    };
    let parts = vec![part("{\"a\""), part(":1"), part("}")];
    let encoded = Value::from(r#"{"a":1}"#).to_text();
    for summary in [encoded.clone(), Value::from(encoded).to_text(), r#"{ "a": 1 }"#.to_owned()] {
        let mut all = parts.clone();
        all.push(part(&summary));
        assert_eq!(calls_of(&all).calls(), [call("X", "f", r#"{"a":1}"#)], "{summary}");
    }
    let mut all = parts;
    all.push(part(r#"{"a":2}"#));
    assert_eq!(calls_of(&all).code(), "MALFORMED_RESPONSE");
}

#[test]
fn case_035_one_chunk_per_whole_call() {
    for index in ["", r#""index":0,"#] {
        let whole = |id: &str| {
            calls(&format!(r#"{{{index}"id":"{id}","function":{{"name":"f","arguments":"{{\"id\":\"{id}\"}}"}}}}"#))
        };
        let answer = calls_of(&[whole("a"), whole("b"), whole("c")]);
        let expected = ["a", "b", "c"].map(|id| call(id, "f", &format!(r#"{{"id":"{id}"}}"#)));
        assert_eq!(answer.calls(), expected);
    }
}

#[test]
fn case_037_arguments_as_an_object() {
    let with = |arguments: &str| {
        calls_of(&[calls(&format!(r#"{{"index":0,"id":"a","function":{{"name":"f","arguments":{arguments}}}}}"#))])
    };
    assert_eq!(with(r#"{"a":1}"#).calls(), [call("a", "f", r#"{"a":1}"#)]);
    assert_eq!(with("null").calls(), [call("a", "f", "{}")]);
    assert_eq!(with("5").calls(), [call("a", "f", "5")], "the tool's schema refuses it, visibly");
    let message = r#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":{"a":1}}}]},"finish_reason":"tool_calls"}]}"#;
    assert_eq!(decode_text(&body(&[message])).calls(), [call("a", "f", r#"{"a":1}"#)]);
}

#[test]
fn case_038_empty_arguments() {
    for arguments in ["", " ", "null"] {
        let part = format!(r#"{{"index":0,"id":"a","function":{{"name":"f","arguments":"{arguments}"}}}}"#);
        assert_eq!(calls_of(&[calls(&part)]).calls(), [call("a", "f", "{}")]);
    }
}

#[test]
fn case_041_unknown_is_counted_and_malformed_is_an_error() {
    let custom = calls(r#"{"index":0,"id":"a","type":"custom","custom":{"name":"f","input":"x"}}"#);
    let answer = decode_text(&body(&[r#"{"object":"chat.progress"}"#, &custom, &text("a"), STOP, DONE]));
    assert_eq!((answer.text().as_str(), answer.skipped), ("a", 2));
    for payload in [
        "[1]",
        r#"{"choices":{}}"#,
        r#"{"choices":[3]}"#,
        r#"{"choices":[{"delta":"x"}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":{}}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":"first"}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":"f"}]}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":7}]}"#,
    ] {
        assert_eq!(decode_text(&body(&[payload])).code(), "MALFORMED_RESPONSE", "{payload}");
    }
    let bare = r#"{"choices":[{"delta":null},{"finish_reason":"stop"}]}"#;
    assert_eq!(decode_text(&body(&[&text("a"), bare])).code(), "stop", "optional members are optional");
}

#[test]
fn a_malformed_payload_is_quoted_up_to_120_characters() {
    let failure = decode_text(&body(&[&"ü".repeat(500)])).failure.unwrap();
    assert!(failure.message.ends_with(&format!(": {}", "ü".repeat(120))));
}

#[test]
fn reasoning_and_text_are_one_block_each_and_empty_fragments_open_none() {
    let payload = |delta: &str| format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#);
    let payloads = [
        payload(r#"{"role":"assistant","content":""}"#),
        payload(r#"{"content":"","reasoning_content":"a"}"#),
        payload(r#"{"content":"x"}"#),
        payload(r#"{"reasoning":"b","reasoning_content":null}"#),
        payload(r#"{"content":"y","reasoning":"c","reasoning_content":"c"}"#),
    ];
    let mut all = payloads.iter().map(String::as_str).collect::<Vec<_>>();
    all.extend([STOP, DONE]);
    let answer = decode_text(&body(&all));
    assert_eq!(answer.blocks(), [Block::Reasoning("abc".into()), Block::Text("xy".into())]);
    let kinds = answer.chunks.iter().map(Chunk::kind).collect::<Vec<_>>();
    let (r, t) = ("reasoning-delta", "text-delta");
    let expected = ["block-start", r, "block-start", t, r, r, t, "block-end", "block-end", "finish"];
    assert_eq!(kinds, expected);
}

#[test]
fn id_and_name_are_repeated_in_every_delta_once_known() {
    let first = calls(r#"{"index":3,"id":"a","function":{"name":"f","arguments":""}}"#);
    let second = calls(r#"{"index":3,"function":{"arguments":"{}"}}"#);
    let answer = calls_of(&[first, second]);
    let delta = |arguments: &str| Chunk::ToolCallDelta {
        index: 0,
        id: Some("a".into()),
        name: Some("f".into()),
        arguments_delta: arguments.into(),
    };
    assert_eq!(answer.chunks[1..3], [delta(""), delta("{}")]);
}

#[test]
fn finish_reasons_map_as_the_wire_means_them() {
    let finish = |reason: &str| {
        let stop = format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"{reason}"}}]}}"#);
        decode_text(&body(&[&text("a"), &stop, DONE])).code()
    };
    assert_eq!(finish("length"), "max-tokens");
    assert_eq!(finish("content_filter"), "CONTENT_FILTER");
    assert_eq!(finish(""), "stop", "an empty reason, sent with every delta by some, is none");
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0}}"#;
    let empty = decode_text(&body(&[STOP, usage, DONE]));
    assert_eq!(empty.code(), "EMPTY_RESPONSE");
    assert!(empty.usage().is_some(), "the failed attempt is accounted for");
}

/// Pattern 3: {finish reason, sentinel, error object, end of body} x {no output, text, whole call, half call}.
#[test]
fn the_terminal_truth_table() {
    let whole = calls(r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}"#);
    let half = calls(r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}"#);
    let error = r#"{"error":{"message":"m","code":503}}"#;
    let outputs = [None, Some(text("a")), Some(whole), Some(half)];
    let table: [(&[&str], [&str; 4]); 6] = [
        (&[STOP, DONE], ["EMPTY_RESPONSE", "stop", "stop", "stop"]),
        (&[CALLS], ["EMPTY_RESPONSE", "stop", "tool-calls", "tool-calls"]),
        (&[DONE], ["EMPTY_RESPONSE", "stop", "tool-calls", "STREAM_CLOSED"]),
        (&[], ["STREAM_CLOSED"; 4]),
        (&[error], ["SERVER"; 4]),
        (&[STOP, error], ["SERVER"; 4]),
    ];
    for (ends, expected) in table {
        for (output, expected) in outputs.iter().zip(expected) {
            let mut payloads = output.iter().map(String::as_str).collect::<Vec<_>>();
            payloads.extend(ends);
            let answer = decode_text(&body(&payloads));
            assert_eq!(answer.code(), expected, "{payloads:?}");
            if answer.failure.is_some() {
                assert_eq!(answer.blocks(), [], "a failed answer closes no block");
            }
        }
    }
}

/// How a server writes the calls of one answer.
#[derive(Clone, Copy, Debug)]
struct Habits {
    index: Index,
    id: Member,
    name: Member,
    /// Calls go side by side, a fragment of each in turn.
    interleaved: bool,
    /// All fragments that are due together share one payload.
    together: bool,
}

#[derive(Clone, Copy, Debug)]
enum Index {
    Proper,
    Missing,
    Zero,
    OnlyLater,
}

#[derive(Clone, Copy, Debug)]
enum Member {
    First,
    Every,
    EmptyLater,
    SecondOnly,
    Never,
}

impl Member {
    fn at(self, part: usize, value: &str) -> Option<String> {
        match (self, part) {
            (Member::First | Member::EmptyLater, 0) | (Member::Every, _) | (Member::SecondOnly, 1) => {
                Some(value.into())
            }
            (Member::EmptyLater, _) => Some(String::new()),
            (Member::First | Member::SecondOnly | Member::Never, _) => None,
        }
    }
}

fn write(call_number: usize, part: usize, call: &(String, String, Vec<String>), habits: Habits) -> String {
    let index = match (habits.index, part) {
        (Index::Proper, _) | (Index::OnlyLater, 1..) => Some(call_number),
        (Index::Zero, _) => Some(0),
        (Index::Missing, _) | (Index::OnlyLater, 0) => None,
    };
    let mut entry = Vec::new();
    entry.extend(index.map(|index| format!(r#""index":{index}"#)));
    entry.extend(habits.id.at(part, &call.0).map(|id| format!(r#""id":"{id}""#)));
    let mut function = vec![format!(r#""arguments":{}"#, Value::from(call.2[part].as_str()))];
    function.extend(habits.name.at(part, &call.1).map(|name| format!(r#""name":"{name}""#)));
    entry.push(format!(r#""function":{{{}}}"#, function.join(",")));
    format!("{{{}}}", entry.join(","))
}

fn serialise(model: &[(String, String, Vec<String>)], habits: Habits) -> Vec<String> {
    let rounds = model.iter().map(|call| call.2.len()).max().unwrap_or(0);
    let mut payloads = Vec::new();
    if habits.interleaved {
        for part in 0..rounds {
            let due = model.iter().enumerate().filter(|(_, call)| part < call.2.len());
            let entries = due.map(|(number, call)| write(number, part, call, habits)).collect::<Vec<_>>();
            match habits.together {
                true => payloads.push(calls(&entries.join(","))),
                false => payloads.extend(entries.iter().map(|entry| calls(entry))),
            }
        }
    } else {
        for (number, call) in model.iter().enumerate() {
            payloads.extend((0..call.2.len()).map(|part| calls(&write(number, part, call, habits))));
        }
    }
    payloads
}

fn member() -> impl Strategy<Value = Member> {
    prop_oneof![
        Just(Member::First),
        Just(Member::Every),
        Just(Member::EmptyLater),
        Just(Member::SecondOnly),
        Just(Member::Never)
    ]
}

fn habits() -> impl Strategy<Value = Habits> {
    let index = prop_oneof![Just(Index::Proper), Just(Index::Missing), Just(Index::Zero), Just(Index::OnlyLater)];
    let all = (index, member(), member(), any::<bool>(), any::<bool>());
    let all =
        all.prop_map(|(index, id, name, interleaved, together)| Habits { index, id, name, interleaved, together });
    // Servers whose fragments can be told apart by nothing at all write one call after the other; anything else would
    // be unreadable for everybody.
    all.prop_map(|habits| {
        let is_named = matches!(habits.index, Index::Proper) || matches!(habits.id, Member::Every);
        Habits { interleaved: habits.interleaved && is_named, ..habits }
    })
}

/// Calls with distinct ids, two tools, and arguments cut into two to four fragments.
fn model() -> impl Strategy<Value = Vec<(String, String, Vec<String>)>> {
    let call = (prop_oneof![Just("f"), Just("g")], 0u32..1000, prop::collection::vec(0usize..40, 1..4));
    prop::collection::vec(call, 1..4).prop_map(|calls| {
        let with_ids = calls.into_iter().enumerate().map(|(number, (name, value, mut cuts))| {
            let text = format!(r#"{{"n":{number},"v":{value},"s":"}}{{"}}"#);
            cuts.iter_mut().for_each(|cut| *cut %= text.len() + 1);
            cuts.sort_unstable();
            let mut start = 0;
            let mut parts = Vec::new();
            for cut in cuts.into_iter().chain([text.len()]) {
                parts.push(text[start..cut].to_owned());
                start = cut;
            }
            (format!("id{number}"), name.to_owned(), parts)
        });
        with_ids.collect()
    })
}

/// A body with characters of every width, reasoning, calls, comments and usage.
fn recorded() -> String {
    let first = calls(r#"{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"k\":"}}"#);
    let second = calls(r#"{"index":0,"function":{"arguments":"\"é漢😀\"}"}}"#);
    let reasoning = r#"{"choices":[{"delta":{"role":"assistant","content":null,"reasoning_content":"hm é"}}]}"#;
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9}}"#;
    let all = body(&[reasoning, &text("漢"), &text("😀 x"), &first, &second, CALLS, usage, DONE]);
    format!(": hello\n\n{}", all.replace("data: {\"choices\":[]", ": ping\n\ndata: {\"choices\":[]"))
}

#[test]
fn every_single_cut_of_a_recorded_stream_gives_the_same_chunks() {
    let whole = decode_text(&recorded());
    assert_eq!(whole.code(), "tool-calls");
    assert_eq!(whole.calls(), [call("a", "f", r#"{"k":"é漢😀"}"#)]);
    for ending in ["\n", "\r\n", "\r"] {
        let body = recorded().replace('\n', ending);
        for cut in 0..=body.len() {
            let (a, b) = body.as_bytes().split_at(cut);
            assert_eq!(decode(&[a, b]), whole, "{ending:?} cut at {cut}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_byte_cut_and_any_line_ending_give_the_same_chunks(
        cuts in prop::collection::vec(0usize..4096, 0..24),
        endings in prop::collection::vec(0usize..3, 64),
    ) {
        let mut endings = endings.into_iter().cycle();
        let body = recorded().lines().fold(Vec::new(), |mut body, line| {
            body.extend_from_slice(line.as_bytes());
            // A CR before a line feed of the next, empty line would be one ending: a real server never mixes these.
            let ending = if line.is_empty() { endings.next().unwrap_or(0) } else { 0 };
            body.extend_from_slice(["\n", "\r\n", "\r"][ending].as_bytes());
            body
        });
        let mut cuts = cuts.into_iter().map(|cut| cut % (body.len() + 1)).collect::<Vec<_>>();
        cuts.sort_unstable();
        let mut reads = Vec::new();
        let mut start = 0;
        for cut in cuts.into_iter().chain([body.len()]) {
            reads.push(&body[start..cut]);
            start = cut;
        }
        prop_assert_eq!(decode(&reads), decode_text(&recorded()));
    }

    #[test]
    fn any_habit_of_writing_tool_calls_gives_the_same_calls_or_an_error(model in model(), habits in habits()) {
        let payloads = serialise(&model, habits);
        let answer = calls_of(&payloads);
        match &answer.failure {
            Some(failure) => prop_assert_eq!(&failure.code, "MALFORMED_RESPONSE"),
            None => {
                let expected = model.iter().map(|call| (call.1.clone(), call.2.concat())).collect::<Vec<_>>();
                let found = answer.calls().into_iter().map(|call| (call.1, call.2)).collect::<Vec<_>>();
                prop_assert_eq!(found, expected, "{:?}", payloads);
                for (call, (id, ..)) in model.iter().zip(answer.calls()) {
                    let is_known = !matches!(habits.id, Member::Never);
                    prop_assert!(if is_known { id == call.0 } else { id.starts_with("made-") }, "{id}");
                }
            }
        }
    }

    #[test]
    fn an_ordinary_server_is_always_understood(model in model(), interleaved: bool, together: bool, every: bool) {
        let member = if every { Member::Every } else { Member::First };
        let habits = Habits { index: Index::Proper, id: member, name: member, interleaved, together };
        prop_assert_eq!(calls_of(&serialise(&model, habits)).failure, None);
    }

    #[test]
    fn no_bytes_at_all_can_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), noise in "\\PC{0,40}") {
        decode(&[&bytes]);
        decode_text(&body(&[&noise, &text(&noise), &calls(&noise)]));
    }
}
