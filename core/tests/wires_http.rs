//! What the adapters of all wires share, and what each of them sends, against a server on loopback.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used)]

#[path = "support/http.rs"]
mod http;

use http::*;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use turnwheel::json::{Value, parse};
use turnwheel::llm::adapters::http::ImageSource;
use turnwheel::llm::adapters::{AnthropicMessages, OpenAiChat, OpenAiResponses};
use turnwheel::llm::{Adapter, Chunk, ModelInfo, ModelRequest, ToolSchema};
use turnwheel::message::{Block, Message, Source};
use turnwheel::runtime::{ManualClock, Runtime, Signal};
use turnwheel::session::{CancelCause, History};

const CHAT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\n";
const CHAT_END: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
const MESSAGES: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n",
    "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hello\"}}\n\n",
);
const MESSAGES_END: &str = concat!(
    "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n",
    "data: {\"type\":\"message_stop\"}\n\n",
);
const RESPONSES: &str = "data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"hello\"}\n\n";
const RESPONSES_END: &str =
    "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[]}}\n\n";

/// Each wire: its name, the adapter for a URL, the beginning of an answer, and its end.
type Wire = (&'static str, fn(&str) -> Box<dyn Adapter>, &'static str, &'static str);

const WIRES: [Wire; 3] = [
    ("chat", |url| Box::new(OpenAiChat::builder(url).api_key(KEY).build().unwrap()), CHAT, CHAT_END),
    ("messages", |url| Box::new(AnthropicMessages::builder(url).api_key(KEY).build().unwrap()), MESSAGES, MESSAGES_END),
    (
        "responses",
        |url| Box::new(OpenAiResponses::builder(url).api_key(KEY).build().unwrap()),
        RESPONSES,
        RESPONSES_END,
    ),
];

/// The request text that an adapter sends.
fn sent_by(wire: &Wire, adapter: impl FnOnce(&str) -> Box<dyn Adapter>, request: ModelRequest) -> String {
    let (url, served) = answer(format!("{HEAD}{}{}", wire.2, wire.3));
    let (chunks, failure) = collect(&*adapter(&url), request);
    assert_eq!(failure, None, "{}", wire.0);
    assert_eq!(text_of(&chunks), "hello");
    served.recv().unwrap()
}

fn body_of(sent: &str) -> Value {
    parse(sent.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn with_history(messages: Vec<Message>) -> ModelRequest {
    let messages = History::from_messages(messages.into_iter().map(Arc::new).collect());
    ModelRequest { messages, ..request() }
}

fn full_request() -> ModelRequest {
    let mut request = request();
    let header = Arc::make_mut(&mut request.header);
    header.system = Some("be brief".into());
    header.config.temperature = Some(0.5);
    header.config.max_tokens = Some(64);
    header.config.reasoning_effort = Some("low".into());
    header.tools = vec![Arc::new(ToolSchema::new("t", "d", turnwheel::json!({"type": "object"})))];
    request
}

fn result(id: &str, content: Vec<Block>, is_error: bool) -> Message {
    let result = Block::ToolResult { tool_call_id: id.into(), content, is_error: Some(is_error) };
    Message::user("r", vec![result])
}

fn sent_messages(history: Vec<Message>) -> Value {
    body_of(&sent_by(&WIRES[1], WIRES[1].1, with_history(history))).get("messages").unwrap().clone()
}

fn sent_input(history: Vec<Message>) -> Value {
    body_of(&sent_by(&WIRES[2], WIRES[2].1, with_history(history))).get("input").unwrap().clone()
}

fn answered(content: Vec<Block>, replay_state: Option<Value>) -> Message {
    let source = Source::Model { provider: "p".into(), model: "m".into(), replay_state };
    Message::new("a", turnwheel::message::Role::Assistant, content, source)
}

#[test]
fn the_messages_wire_is_asked_as_it_wants_it() {
    let sent = sent_by(&WIRES[1], WIRES[1].1, full_request());
    let head = sent.split_once("\r\n\r\n").unwrap().0.to_lowercase();
    assert!(head.starts_with("post /v1/messages "), "a base that ends with /v1 is not doubled: {head}");
    assert!(head.contains("anthropic-version: 2023-06-01") && head.contains(&format!("x-api-key: {KEY}")));
    assert!(!head.contains("authorization:"));
    let expected = concat!(
        r#"{"model":"m","max_tokens":64,"system":[{"type":"text","text":"be brief","cache_control":{"type":"ephemeral"}}],"#,
        r#""tools":[{"name":"t","description":"d","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}],"#,
        r#""messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}],"#,
        r#""stream":true,"temperature":0.5,"thinking":{"type":"adaptive"},"output_config":{"effort":"low"}}"#
    );
    assert_eq!(body_of(&sent).to_text(), expected);
    let budgeted = |url: &str| {
        let builder = AnthropicMessages::builder(url).api_key(KEY).bearer(true).cache_markers(false);
        Box::new(builder.thinking_budget("low", 2048).beta("b").build().unwrap()) as Box<dyn Adapter>
    };
    let sent = sent_by(&WIRES[1], budgeted, full_request());
    assert!(sent.contains(&format!("authorization: Bearer {KEY}")) && sent.contains("anthropic-beta: b"));
    let body = body_of(&sent);
    assert_eq!(body.get("thinking").unwrap().to_text(), r#"{"type":"enabled","budget_tokens":2048}"#);
    assert_eq!(body.get("max_tokens").unwrap().to_text(), "2112", "the budget comes on top of the answer's ceiling");
    assert!(!body.to_text().contains("cache_control"));
}

#[test]
fn the_responses_wire_is_asked_as_it_wants_it() {
    let sent = sent_by(&WIRES[2], WIRES[2].1, full_request());
    assert!(sent.starts_with("POST /v1/responses "));
    let expected = concat!(
        r#"{"model":"m","instructions":"be brief","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}],"#,
        r#""stream":true,"store":false,"include":["reasoning.encrypted_content"],"reasoning":{"effort":"low"},"#,
        r#""tools":[{"type":"function","name":"t","description":"d","parameters":{"type":"object"},"strict":false}],"#,
        r#""temperature":0.5,"max_output_tokens":64}"#
    );
    assert_eq!(body_of(&sent).to_text(), expected);
    let mut with_stop = request();
    Arc::make_mut(&mut with_stop.header).config.stop = Some(vec!["x".into()]);
    let adapter = OpenAiResponses::builder("http://127.0.0.1:1").build().unwrap();
    assert_eq!(collect(&adapter, with_stop).1.unwrap().code, "UNSUPPORTED_OPTION");
}

#[test]
fn dialects_of_chat_completions_write_their_own_members() {
    use turnwheel::llm::adapters::openai_chat::Dialect;
    let body = |dialect: Dialect| {
        let adapter =
            move |url: &str| Box::new(OpenAiChat::builder(url).dialect(dialect).build().unwrap()) as Box<dyn Adapter>;
        let reasoning = answered(vec![Block::Reasoning("why".into()), Block::Text("t".into())], None);
        let mut request = with_history(vec![reasoning, Message::user_text("u", "hi")]);
        request.header = full_request().header;
        body_of(&sent_by(&WIRES[0], adapter, request)).to_text()
    };
    let expected: [(Dialect, &[&str], &[&str]); 5] = [
        (Dialect::Generic, &["\"max_tokens\":64", "\"reasoning_effort\":\"low\""], &["reasoning_content", "thinking"]),
        (Dialect::OpenAi, &["\"max_completion_tokens\":64", "\"reasoning_effort\":\"low\""], &["\"max_tokens\""]),
        (
            Dialect::DeepSeek,
            &["\"thinking\":{\"type\":\"enabled\"},\"reasoning_effort\":\"low\"", "\"reasoning_content\":\"why\""],
            &[],
        ),
        (Dialect::OpenRouter, &["\"reasoning\":{\"effort\":\"low\"}"], &["reasoning_effort"]),
        (
            Dialect::LlamaCpp,
            &["\"chat_template_kwargs\":{\"enable_thinking\":true,\"reasoning_effort\":\"low\"}"],
            &["thinking\":{"],
        ),
    ];
    for (dialect, has, lacks) in expected {
        let body = body(dialect);
        has.iter().for_each(|part| assert!(body.contains(part), "{dialect:?} has {part}: {body}"));
        lacks.iter().for_each(|part| assert!(!body.contains(part), "{dialect:?} lacks {part}: {body}"));
    }
    let of_host = |url: &str| format!("{:?}", OpenAiChat::builder(url).build().unwrap());
    assert!(of_host("https://api.openai.com/v1").contains("Some(OpenAi)"));
    assert!(of_host("https://api.deepseek.com").contains("Some(DeepSeek)"));
    assert!(of_host("https://openrouter.ai/api/v1").contains("Some(OpenRouter)"));
    assert!(of_host("https://evil-openrouter.ai/v1").contains("Some(Generic)"));
}

#[test]
fn case_050_the_blocks_of_an_answer_go_back_unchanged() {
    let state = parse(r#"{"response":{"kind":"anthropic-messages","version":1},"blocks":[{"type":"thinking","signature":"s+g="},null,null,null,{"type":"redacted_thinking","data":"xyz"}]}"#).unwrap();
    let call = |id: &str| Block::ToolCall { id: id.into(), name: "f".into(), arguments: "{\"b\": 1,\"a\":2}".into() };
    let blocks = vec![
        Block::Reasoning("hm".into()),
        Block::Text("t".into()),
        call("c1"),
        call("c2"),
        Block::Reasoning(String::new()),
    ];
    let history = |state| {
        let ok = |id: &str| result(id, vec![Block::Text("ok".into())], false);
        vec![Message::user_text("u", "hi"), answered(blocks.clone(), state), ok("c1"), ok("c2")]
    };
    let sent = sent_by(&WIRES[1], WIRES[1].1, with_history(history(Some(state.clone()))));
    let expected = concat!(
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s+g="},{"type":"text","text":"t"},"#,
        r#"{"type":"tool_use","id":"c1","name":"f","input":{"b": 1,"a":2}},{"type":"tool_use","id":"c2","name":"f","input":{"b": 1,"a":2}},"#,
        r#"{"type":"redacted_thinking","data":"xyz"}]}"#
    );
    assert!(sent.contains(expected), "byte for byte: {sent}");
    let results = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"ok"}]},{"type":"tool_result","#;
    assert!(sent.contains(results), "the results are one user message: {sent}");
    // An envelope that does not fit, or of another wire, is ignored: unsigned thinking is not sent (PAI-01).
    let shorter =
        parse(r#"{"response":{"kind":"anthropic-messages"},"blocks":[{"type":"thinking","signature":"s"}]}"#).unwrap();
    let foreign = parse(&state.to_text().replace("anthropic-messages", "pi-ai")).unwrap();
    for state in [None, Some(shorter), Some(foreign)] {
        let messages = sent_messages(history(state)).to_text();
        assert!(!messages.contains("thinking") && messages.contains("\"text\":\"t\""), "{messages}");
    }
}

#[test]
fn encrypted_reasoning_goes_back_before_what_it_led_to() {
    let item = r#"{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"gAAA"}"#;
    let state = parse(&format!(r#"{{"response":{{"kind":"openai-responses"}},"blocks":[{item},null]}}"#)).unwrap();
    let blocks = vec![
        Block::Reasoning("A".into()),
        Block::ToolCall { id: "c".into(), name: "f".into(), arguments: "{\"a\":".into() },
    ];
    let input = sent_input(vec![
        Message::user_text("u", "hi"),
        answered(blocks, Some(state.clone())),
        result("c", Vec::new(), false),
    ]);
    let expected = format!(
        r#"[{{"role":"user","content":[{{"type":"input_text","text":"hi"}}]}},{item},{{"type":"function_call","call_id":"c","name":"f","arguments":"{{\"a\":"}},{{"type":"function_call_output","call_id":"c","output":"(no output)"}}]"#
    );
    assert_eq!(input.to_text(), expected);
    let dangling = vec![answered(
        vec![Block::Text("t".into()), Block::Reasoning("A".into())],
        Some(parse(&format!(r#"{{"response":{{"kind":"openai-responses"}},"blocks":[null,{item}]}}"#)).unwrap()),
    )];
    assert!(!sent_input(dangling).to_text().contains("gAAA"), "reasoning that led to nothing is refused by the wire");
}

#[test]
fn case_043_malformed_arguments_become_an_object_where_the_wire_wants_one() {
    for (arguments, expected) in [("{\"a\":", "{}"), ("[1]", "{}"), ("", "{}"), ("{\"a\":1}", "{\"a\":1}")] {
        let call = Block::ToolCall { id: "c".into(), name: "f".into(), arguments: arguments.into() };
        let messages = sent_messages(vec![
            Message::user_text("u", "hi"),
            answered(vec![call], None),
            result("c", Vec::new(), true),
        ]);
        let messages = messages.to_text();
        assert!(messages.contains(&format!("\"input\":{expected}}}")), "{messages}");
        assert!(messages.contains("\"is_error\":true"));
    }
}

#[test]
fn case_055_and_056_nothing_empty_is_sent_on_the_messages_wire() {
    let call = Block::ToolCall { id: "c".into(), name: "f".into(), arguments: "{}".into() };
    let history = vec![
        Message::user_text("u", "hi"),
        answered(vec![Block::Text(String::new()), call], None),
        result("c", vec![Block::Text(" ".into())], false),
        answered(vec![Block::Reasoning("only thought".into())], None),
        Message::user_text("v", "\n"),
    ];
    let text = sent_messages(history).to_text();
    assert!(!text.contains("\"text\":\"\"") && !text.contains("\"text\":\" \"") && !text.contains("only thought"));
    assert!(text.contains("(no output)") && !text.contains("\"content\":[]"), "{text}");
    let alone = sent_messages(vec![Message::user_text("u", "")]).to_text();
    assert!(alone.contains("(empty message)"), "{alone}");
}

#[test]
fn ids_of_other_providers_are_put_into_the_letters_of_the_messages_wire() {
    let call = |id: &str| Block::ToolCall { id: id.into(), name: "f".into(), arguments: "{}".into() };
    let messages = sent_messages(vec![
        Message::user_text("u", "hi"),
        answered(vec![call("fc:1|a"), call("fc:1.a")], None),
        result("fc:1|a", Vec::new(), false),
        result("fc:1.a", Vec::new(), false),
    ]);
    let text = messages.to_text();
    let ids: Vec<&str> = text.split("\"id\":\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let results: Vec<&str> =
        text.split("\"tool_use_id\":\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(ids, results);
    assert_ne!(ids[0], ids[1], "different ids stay different");
    assert!(ids.iter().all(|id| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))));
}

#[test]
fn case_095_images_are_sent_in_each_wires_way_or_named_in_a_placeholder() {
    let id = format!("sha256:{}", "ab".repeat(32));
    let image = Block::Other(turnwheel::json!({
        "type": "image",
        "attachment": {"attachmentId": (id.as_str()), "mediaType": "image/png", "bytes": 3, "width": 2, "height": 1}
    }));
    let call = Block::ToolCall { id: "c".into(), name: "f".into(), arguments: "{}".into() };
    let history = || {
        vec![
            Message::user("u", vec![Block::Text("see".into()), image.clone()]),
            answered(vec![call.clone()], None),
            result("c", vec![image.clone()], false),
        ]
    };
    let info = || ModelInfo { input_modalities: Some(vec!["text".into(), "image".into()]), ..ModelInfo::default() };
    let source = || ImageSource::Function(Rc::new(|id| id.starts_with("sha256:abab").then(|| vec![1, 2, 3])));
    type Seeing = fn(&str, ModelInfo, ImageSource) -> Box<dyn Adapter>;
    let adapters: [Seeing; 3] = [
        |url, info, source| Box::new(OpenAiChat::builder(url).model("m", info).images(source).build().unwrap()),
        |url, info, source| Box::new(AnthropicMessages::builder(url).model("m", info).images(source).build().unwrap()),
        |url, info, source| Box::new(OpenAiResponses::builder(url).model("m", info).images(source).build().unwrap()),
    ];
    let expected = [
        r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AQID"}}"#,
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AQID"}"#,
        r#"{"type":"input_image","image_url":"data:image/png;base64,AQID"}"#,
    ];
    for ((wire, make), expected) in WIRES.iter().zip(adapters).zip(expected) {
        let sent = sent_by(wire, |url| make(url, info(), source()), with_history(history()));
        assert_eq!(sent.matches(expected).count(), 2, "{}: {sent}", wire.0);
        assert!(sent.contains(&format!("[image {id}, 2x1]")), "each is named before it (MSG-25)");
        let sent = sent_by(wire, wire.1, with_history(history()));
        assert_eq!(sent.matches("[image sha256:abababab omitted").count(), 2, "{}: {sent}", wire.0);
        let missing = make("http://127.0.0.1:1", info(), ImageSource::Function(Rc::new(|_| None)));
        let failure = collect(&*missing, with_history(history())).1.unwrap();
        assert_eq!(failure.code, "UNSUPPORTED_CONTENT");
    }
}

#[test]
fn case_068_cancelling_closes_the_socket_on_every_wire() {
    for (name, adapter, beginning, _) in WIRES {
        let (url, closed) = serve(move |socket, _| {
            socket.write_all(format!("{HEAD}{beginning}").as_bytes()).unwrap();
            time_until_closed(socket)
        });
        let signal = Signal::new();
        let adapter = adapter(&url);
        let request = ModelRequest { signal: signal.clone(), ..request() };
        Runtime::default().block_on(async {
            let mut stream = adapter.stream(request);
            while !matches!(next(&mut stream).await, Some(Ok(Chunk::TextDelta { .. }))) {}
            signal.cancel(CancelCause::User);
            // The stream is not even polled again.
            let closed = closed.recv().unwrap().expect("the socket closes");
            assert!(closed < Duration::from_millis(100), "{name}: {closed:?}");
        });
    }
}

#[test]
fn the_limits_for_the_first_byte_and_for_the_whole_run_on_the_clock_port() {
    type Limited = fn(&str, Rc<ManualClock>) -> Box<dyn Adapter>;
    let first: Limited = |url, clock| {
        Box::new(OpenAiChat::builder(url).first_byte_timeout(Duration::from_secs(5)).clock(clock).build().unwrap())
    };
    let total: Limited = |url, clock| {
        Box::new(OpenAiChat::builder(url).total_timeout(Duration::from_secs(5)).clock(clock).build().unwrap())
    };
    for (make, beginning, expected) in [(first, String::new(), "first byte"), (total, format!("{HEAD}{CHAT}"), "total")]
    {
        let (arrived, reached) = std::sync::mpsc::channel();
        let (url, closed) = serve(move |socket, _| {
            socket.write_all(beginning.as_bytes()).unwrap();
            arrived.send(()).unwrap();
            time_until_closed(socket)
        });
        let clock = Rc::new(ManualClock::new(1_000));
        let adapter = make(&url, clock.clone());
        let failure = Runtime::default().block_on(async {
            let mut stream = adapter.stream(request());
            if expected == "total" {
                while !matches!(next(&mut stream).await, Some(Ok(Chunk::TextDelta { .. }))) {}
                // The consumer's own time counts for the whole.
                clock.advance(Duration::from_secs(4));
            }
            let first = std::future::poll_fn(|context| std::task::Poll::Ready(stream.as_mut().poll_next(context)));
            assert!(first.await.is_pending());
            reached.recv().unwrap();
            clock.advance(Duration::from_secs(5));
            next(&mut stream).await.unwrap().unwrap_err()
        });
        let failure = failure.failure().unwrap();
        assert_eq!(failure.code, "TIMEOUT");
        assert!(failure.message.contains(expected), "{}", failure.message);
        assert!(closed.recv().unwrap().is_some(), "the socket closes");
    }
}
