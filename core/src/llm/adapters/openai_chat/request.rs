//! From a model request to the wire body (DSK-03 to DSK-10). The text is written directly: no tree is built, and the
//! stored text of tools and arguments goes out as it is.

use super::Dialect;
use crate::json::{write_number, write_str};
use crate::llm::{CallConfig, ModelRequest};
use crate::message::{Block, Message, Role};

/// What a `tool` message says when the tool said nothing: an empty one is refused by some servers.
const NO_OUTPUT: &str = "(no output)";

/// What stands for an image, which this text-only path cannot carry (ADP-11).
const IMAGE: &str = "[image omitted: this model is sent text only]";

/// The members that the body writes itself, and that extra members must not repeat.
pub(super) const OWN_MEMBERS: [&str; 11] = [
    "model",
    "messages",
    "stream",
    "stream_options",
    "thinking",
    "reasoning_effort",
    "tools",
    "temperature",
    "max_tokens",
    "max_completion_tokens",
    "stop",
];

/// The request body, members in the order of DSK-03.
pub(super) fn body(request: &ModelRequest, dialect: &Dialect) -> String {
    let config = &request.header.config;
    let mut out = String::with_capacity(1024);
    out.push_str("{\"model\":");
    write_str(&config.model, &mut out);
    out.push_str(",\"messages\":[");
    let mut messages = List::new(&mut out);
    if let Some(system) = &request.header.system {
        plain(messages.next(), "system", system);
    }
    for message in request.messages.iter() {
        write_message(&message, dialect, &mut messages);
    }
    out.push_str("],\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    write_effort(config, dialect, &mut out);
    write_tools(request, &mut out);
    if let Some(temperature) = config.temperature {
        out.push_str(",\"temperature\":");
        write_number(temperature, &mut out);
    }
    if let Some(max_tokens) = config.max_tokens {
        member(dialect.max_tokens_member.as_str(), &mut out);
        write_number(max_tokens as f64, &mut out);
    }
    if let Some(stop) = &config.stop {
        out.push_str(",\"stop\":[");
        let mut list = List::new(&mut out);
        for text in stop {
            write_str(text, list.next());
        }
        out.push(']');
    }
    for (key, value) in dialect.extra_members.iter() {
        member(key, &mut out);
        value.write(&mut out);
    }
    out.push('}');
    out
}

/// Puts commas between the items of a list.
struct List<'a> {
    out: &'a mut String,
    is_first: bool,
}

impl<'a> List<'a> {
    fn new(out: &'a mut String) -> Self {
        Self { out, is_first: true }
    }

    fn next(&mut self) -> &mut String {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(',');
        }
        self.out
    }
}

fn member(name: &str, out: &mut String) {
    out.push(',');
    write_str(name, out);
    out.push(':');
}

/// The effort, and DeepSeek's switch before it where the server has one (DSK-14).
fn write_effort(config: &CallConfig, dialect: &Dialect, out: &mut String) {
    let Some(effort) = &config.reasoning_effort else { return };
    if dialect.thinking_member {
        let is_off = effort == "off";
        out.push_str(if is_off {
            ",\"thinking\":{\"type\":\"disabled\"}"
        } else {
            ",\"thinking\":{\"type\":\"enabled\"}"
        });
        if is_off {
            return;
        }
    }
    member("reasoning_effort", out);
    write_str(effort, out);
}

fn write_tools(request: &ModelRequest, out: &mut String) {
    if request.header.tools.is_empty() {
        return;
    }
    out.push_str(",\"tools\":[");
    let mut tools = List::new(out);
    for tool in &request.header.tools {
        let out = tools.next();
        // A tool's own text is exactly the wire's `function` object (DSK-04).
        out.push_str("{\"type\":\"function\",\"function\":");
        out.push_str(tool.json());
        out.push('}');
    }
    out.push(']');
}

fn plain(out: &mut String, role: &str, content: &str) {
    out.push_str("{\"role\":");
    write_str(role, out);
    member("content", out);
    write_str(content, out);
    out.push('}');
}

fn write_message(message: &Message, dialect: &Dialect, messages: &mut List<'_>) {
    match message.role() {
        Role::System => plain(messages.next(), "system", &text_of(message.content())),
        Role::User => write_user(message, messages),
        Role::Assistant => write_assistant(message, dialect, messages),
    }
}

/// Text blocks without separator, so that cached prefixes hold (DSK-06); other blocks are skipped (DSK-10).
fn text_of(blocks: &[Block]) -> String {
    let mut text = String::new();
    for block in blocks {
        match block.text() {
            Some(part) => text.push_str(part),
            None if block.kind().starts_with("image") => text.push_str(IMAGE),
            None => {}
        }
    }
    text
}

/// The text first, then one `tool` message a result; with results only there is no user message (DSK-08).
fn write_user(message: &Message, messages: &mut List<'_>) {
    let text = text_of(message.content());
    let has_results = message.content().iter().any(|block| matches!(block, Block::ToolResult { .. }));
    if !has_results || !text.is_empty() {
        plain(messages.next(), "user", &text);
    }
    for block in message.content() {
        let Block::ToolResult { tool_call_id, content, is_error: _ } = block else { continue };
        let text = text_of(content);
        let out = messages.next();
        out.push_str("{\"role\":\"tool\",\"tool_call_id\":");
        write_str(tool_call_id, out);
        member("content", out);
        write_str(if text.is_empty() { NO_OUTPUT } else { &text }, out);
        out.push('}');
    }
}

/// Content is always text and never null (DSK-09). An answer without text and calls is left out: servers refuse it, and
/// being durable it would be refused for ever.
fn write_assistant(message: &Message, dialect: &Dialect, messages: &mut List<'_>) {
    let text = text_of(message.content());
    let has_calls = message.content().iter().any(|block| matches!(block, Block::ToolCall { .. }));
    if text.is_empty() && !has_calls {
        return;
    }
    let out = messages.next();
    out.push_str("{\"role\":\"assistant\",\"content\":");
    write_str(&text, out);
    if dialect.reasoning_in_history {
        let reasoning = message.content().iter().filter_map(|block| match block {
            Block::Reasoning(text) => Some(text.as_str()),
            Block::Text(_) | Block::ToolCall { .. } | Block::ToolResult { .. } | Block::Other(_) => None,
        });
        let reasoning = reasoning.collect::<String>();
        if !reasoning.is_empty() {
            member("reasoning_content", out);
            write_str(&reasoning, out);
        }
    }
    if has_calls {
        out.push_str(",\"tool_calls\":[");
        let mut calls = List::new(out);
        for block in message.content() {
            let Block::ToolCall { id, name, arguments } = block else { continue };
            let out = calls.next();
            out.push_str("{\"id\":");
            write_str(id, out);
            out.push_str(",\"type\":\"function\",\"function\":{\"name\":");
            write_str(name, out);
            member("arguments", out);
            // This wire types arguments as text, so malformed ones go back raw; only none at all is refused by some.
            write_str(if arguments.trim().is_empty() { "{}" } else { arguments }, out);
            out.push_str("}}");
        }
        out.push(']');
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Object, Value, parse};
    use crate::llm::{RequestHeader, ToolSchema};
    use crate::message::Source;
    use crate::runtime::Signal;
    use crate::session::History;
    use std::sync::Arc;

    fn request(messages: Vec<Message>) -> ModelRequest {
        let header = RequestHeader {
            config: CallConfig::new("p", "m"),
            adapter_defaults: Default::default(),
            system: Some("be brief".into()),
            tools: Vec::new(),
        };
        let messages = History::from_messages(messages.into_iter().map(Arc::new).collect());
        ModelRequest { header: Arc::new(header), messages, session_id: None, signal: Signal::new() }
    }

    fn assistant(content: Vec<Block>) -> Message {
        let source = Source::Model { provider: "p".into(), model: "m".into(), replay_state: None };
        Message::new("a", Role::Assistant, content, source)
    }

    fn messages(request: &ModelRequest, dialect: &Dialect) -> String {
        let body = parse(&body(request, dialect)).expect("the body is JSON");
        body.get("messages").map(Value::to_text).unwrap_or_default()
    }

    #[test]
    fn members_come_in_the_order_of_the_wire_and_absent_ones_are_left_out() {
        let mut request = request(vec![Message::user_text("u", "hi")]);
        let bare = r#"{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}"#;
        assert_eq!(body(&request, &Dialect::default()), bare);
        let header = Arc::make_mut(&mut request.header);
        header.system = None;
        header.config.temperature = Some(0.0);
        header.config.max_tokens = Some(5);
        header.config.stop = Some(Vec::new());
        header.config.reasoning_effort = Some("low".into());
        header.tools = vec![Arc::new(ToolSchema::new("t", "d", crate::json!({"type": "object"})))];
        let mut dialect = Dialect { max_tokens_member: "max_completion_tokens".into(), ..Dialect::default() };
        dialect.extra_members = Object::from_iter([("top_p", 0.5)]);
        let full = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true},"reasoning_effort":"low","tools":[{"type":"function","function":{"name":"t","description":"d","parameters":{"type":"object"}}}],"temperature":0,"max_completion_tokens":5,"stop":[],"top_p":0.5}"#;
        assert_eq!(body(&request, &dialect), full);
    }

    #[test]
    fn thinking_is_switched_by_a_member_of_its_own_where_the_dialect_has_it() {
        let mut request = request(Vec::new());
        let dialect = Dialect { thinking_member: true, ..Dialect::default() };
        Arc::make_mut(&mut request.header).config.reasoning_effort = Some("off".into());
        assert!(body(&request, &dialect).ends_with(r#""thinking":{"type":"disabled"}}"#));
        Arc::make_mut(&mut request.header).config.reasoning_effort = Some("high".into());
        assert!(body(&request, &dialect).ends_with(r#""thinking":{"type":"enabled"},"reasoning_effort":"high"}"#));
    }

    #[test]
    fn text_goes_before_tool_results_and_results_alone_send_no_user_message() {
        let result = |text: &str| Block::ToolResult {
            tool_call_id: "c".into(),
            content: vec![Block::Text(text.into())],
            is_error: Some(true),
        };
        let mut with_text = request(vec![Message::user("u", vec![result("r"), Block::Text("t".into())])]);
        Arc::make_mut(&mut with_text.header).system = None;
        let expected = r#"[{"role":"user","content":"t"},{"role":"tool","tool_call_id":"c","content":"r"}]"#;
        assert_eq!(messages(&with_text, &Dialect::default()), expected);
        let mut alone = request(vec![Message::user("u", vec![result("")])]);
        Arc::make_mut(&mut alone.header).system = None;
        let expected = r#"[{"role":"tool","tool_call_id":"c","content":"(no output)"}]"#;
        assert_eq!(messages(&alone, &Dialect::default()), expected);
    }

    #[test]
    fn assistant_content_is_text_and_reasoning_goes_back_only_on_request() {
        let call = Block::ToolCall { id: "c".into(), name: "t".into(), arguments: "{\"a\":".into() };
        let mut request = request(vec![assistant(vec![Block::Reasoning("why".into()), call])]);
        Arc::make_mut(&mut request.header).system = None;
        let call = r#""tool_calls":[{"id":"c","type":"function","function":{"name":"t","arguments":"{\"a\":"}}]"#;
        let generic = messages(&request, &Dialect::default());
        assert_eq!(generic, format!(r#"[{{"role":"assistant","content":"",{call}}}]"#));
        let dialect = Dialect { reasoning_in_history: true, ..Dialect::default() };
        let deepseek = messages(&request, &dialect);
        assert_eq!(deepseek, format!(r#"[{{"role":"assistant","content":"","reasoning_content":"why",{call}}}]"#));
    }

    #[test]
    fn unknown_blocks_are_skipped_and_images_become_a_placeholder() {
        let other = |kind: &str| Block::Other(crate::json!({"type": kind, "x": 1}));
        let mut request =
            request(vec![Message::user("u", vec![other("hologram"), other("image"), Block::Text("?".into())])]);
        Arc::make_mut(&mut request.header).system = None;
        let expected = format!(r#"[{{"role":"user","content":"{IMAGE}?"}}]"#);
        assert_eq!(messages(&request, &Dialect::default()), expected);
    }
}
