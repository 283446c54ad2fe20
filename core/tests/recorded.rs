//! What real servers sent, byte by byte (`tests/fixtures/wires`, made by `tests/real/record.py`): llama.cpp with SmolLM2, and
//! LiteLLM's proxy. Each stream is replayed at every cut; each error answer goes through the adapter.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used)]

#[path = "support/http.rs"]
mod http;
#[path = "support/wire.rs"]
mod wire;

use http::{answer, collect, request};
use std::collections::BTreeMap;
use turnwheel::llm::Adapter;
use turnwheel::llm::adapters::anthropic_messages::AnthropicDecoder;
use turnwheel::llm::adapters::http::Decoder;
use turnwheel::llm::adapters::openai_chat::ChatDecoder;
use turnwheel::llm::adapters::openai_responses::ResponsesDecoder;
use turnwheel::llm::adapters::{AnthropicMessages, OpenAiChat, OpenAiResponses};
use wire::{Answer, assert_cuts_do_not_matter, decode_with};

struct Fixture {
    status: u16,
    kind: String,
    body: Vec<u8>,
}

fn fixtures() -> BTreeMap<String, Fixture> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/wires");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut words = head.split(' ');
        let status = words.next().unwrap().parse().unwrap();
        let kind = words.next().unwrap().trim_end_matches(';').to_owned();
        (
            path.file_stem().unwrap().to_str().unwrap().to_owned(),
            Fixture { status, kind, body: bytes[end + 1..].to_vec() },
        )
    };
    std::fs::read_dir(folder).unwrap().map(read).collect()
}

fn decode(name: &str, body: &[u8]) -> Answer {
    match wire_of(name) {
        "messages" => decode_with(&mut AnthropicDecoder::new("made"), &[body]),
        "responses" => decode_with(&mut ResponsesDecoder::new("made"), &[body]),
        _ => decode_with(&mut ChatDecoder::new("made"), &[body]),
    }
}

fn wire_of(name: &str) -> &str {
    name.split('-').nth(1).unwrap()
}

fn adapter_of(name: &str, url: &str) -> Box<dyn Adapter> {
    match wire_of(name) {
        "messages" => Box::new(AnthropicMessages::builder(url).build().unwrap()),
        "responses" => Box::new(OpenAiResponses::builder(url).build().unwrap()),
        _ => Box::new(OpenAiChat::builder(url).build().unwrap()),
    }
}

/// How each recorded answer ends. The reasons are those of the requests in `record.py`.
const ENDS: [(&str, &str); 25] = [
    ("litellm-chat-limited", "RATE_LIMIT"),
    ("litellm-chat-mock-broken", "SERVER"),
    ("litellm-chat-mock-limited", "RATE_LIMIT"),
    ("litellm-chat-mock-text", "stop"),
    // The mock has a call beside `finish_reason: stop`; the loop looks at the calls.
    ("litellm-chat-mock-tool", "stop"),
    ("litellm-chat-text", "stop"),
    ("litellm-chat-tool", "tool-calls"),
    ("litellm-chat-unknown", "INVALID_REQUEST"),
    ("litellm-messages-limited", "RATE_LIMIT"),
    ("litellm-messages-text", "stop"),
    ("litellm-messages-tool", "tool-calls"),
    ("litellm-responses-limited", "RATE_LIMIT"),
    ("litellm-responses-text", "stop"),
    ("litellm-responses-tool", "tool-calls"),
    ("llamacpp-chat-bad", "INVALID_REQUEST"),
    ("llamacpp-chat-ceiling", "max-tokens"),
    ("llamacpp-chat-overflow", "CONTEXT_WINDOW_EXCEEDED"),
    ("llamacpp-chat-text", "stop"),
    ("llamacpp-messages-ceiling", "max-tokens"),
    ("llamacpp-messages-overflow", "CONTEXT_WINDOW_EXCEEDED"),
    ("llamacpp-messages-text", "stop"),
    ("llamacpp-responses-bad", "INVALID_REQUEST"),
    // This server says `completed` of an answer that its ceiling cut; nothing in the stream says otherwise.
    ("llamacpp-responses-ceiling", "stop"),
    ("llamacpp-responses-overflow", "CONTEXT_WINDOW_EXCEEDED"),
    ("llamacpp-responses-text", "stop"),
];

#[test]
fn every_recorded_answer_ends_as_its_request_makes_it_end() {
    let fixtures = fixtures();
    let names = fixtures.keys().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(names, ENDS.map(|(name, _)| name), "each fixture has its row");
    for (name, end) in ENDS {
        let Fixture { status, kind, body } = &fixtures[name];
        if *status == 200 && kind == "text/event-stream" {
            assert_eq!(decode(name, body).code(), end, "{name}");
        }
        let body = String::from_utf8(body.clone()).unwrap();
        let head = format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n");
        let (url, _served) = answer(format!("{head}{body}"));
        let (chunks, failure) = collect(&*adapter_of(name, &url), request());
        let found = failure.map(|failure| failure.code).unwrap_or_else(|| match chunks.last() {
            Some(turnwheel::llm::Chunk::Finish { reason, .. }) => reason.kind().to_owned(),
            other => panic!("{name}: {other:?}"),
        });
        assert_eq!(found, end, "{name} over HTTP");
    }
}

#[test]
fn every_recorded_stream_is_read_the_same_at_every_cut() {
    fn check<D: Decoder>(body: &str, decoder: impl Fn() -> D) {
        assert_cuts_do_not_matter(body, &["\n"], decoder);
    }
    for (name, fixture) in fixtures() {
        if fixture.status != 200 || fixture.kind != "text/event-stream" {
            continue;
        }
        let body = String::from_utf8(fixture.body).unwrap();
        match wire_of(&name) {
            "messages" => check(&body, || AnthropicDecoder::new("made")),
            "responses" => check(&body, || ResponsesDecoder::new("made")),
            _ => check(&body, || ChatDecoder::new("made")),
        }
    }
}

#[test]
fn calls_text_and_usage_of_the_proxy_are_the_same_on_every_wire() {
    let fixtures = fixtures();
    for wire in ["chat", "messages", "responses"] {
        let name = format!("litellm-{wire}-tool");
        let answer = decode(&name, &fixtures[&name].body);
        let calls = answer.calls();
        assert_eq!(calls.len(), 1, "{name}");
        let arguments = turnwheel::json::parse(&calls[0].2).unwrap().to_text();
        assert_eq!((calls[0].1.as_str(), arguments.as_str()), ("weather", r#"{"city":"Zürich"}"#), "{name}");
        let name = format!("litellm-{wire}-text");
        let answer = decode(&name, &fixtures[&name].body);
        assert_eq!(answer.text(), "Grüezi from upstream.", "{name}");
        // The server behind the proxy counted 20 tokens of input, 12 of them cached, and 9 of output (MSG-26).
        if let Some(usage) = answer.usage() {
            let counted = (usage.input_tokens + usage.cache_read_tokens.unwrap_or(0), usage.output_tokens);
            assert_eq!(counted, (20, 9), "{name}");
        }
    }
}
