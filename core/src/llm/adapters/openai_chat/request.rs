//! From a model request to the wire body (DSK-03 to DSK-12).

use super::{ChatWire, EffortStyle, details};
use crate::json::{write_number, write_str};
use crate::llm::adapters::http::{Image, List, NO_OUTPUT, Outgoing, comma_member as member, placeholder, write_extra};
use crate::llm::{CallConfig, Failure, ModelRequest};
use crate::message::{Block, Message, Role, Source};

/// The members that the body writes itself, and that extra members must not repeat.
pub(super) const OWN_MEMBERS: &[&str] = &[
    "model",
    "messages",
    "stream",
    "stream_options",
    "thinking",
    "reasoning_effort",
    "reasoning",
    "tools",
    "temperature",
    "max_tokens",
    "max_completion_tokens",
    "stop",
];

/// What introduces the images of tool results, which a `tool` message cannot carry (DSK-12).
const TOOL_IMAGES: &str = "Images from the tool results above:";

/// The request body, members in the order of DSK-03.
pub(super) fn body(outgoing: Outgoing<'_>, wire: &ChatWire) -> Result<String, Failure> {
    let request = outgoing.request;
    let config = &request.header.config;
    let mut out = String::with_capacity(1024);
    out.push_str("{\"model\":");
    write_str(&config.model, &mut out);
    out.push_str(",\"messages\":[");
    let mut messages = Messages { list: List::new(&mut out), outgoing, wire, tool_images: Vec::new() };
    if let Some(system) = &request.header.system {
        plain(messages.list.next(), "system", system);
    }
    for message in request.messages.iter() {
        messages.write(&message)?;
    }
    messages.flush_images();
    out.push_str("],\"stream\":true");
    if wire.asks_usage {
        out.push_str(",\"stream_options\":{\"include_usage\":true}");
    }
    write_effort(config, wire, &mut out);
    write_tools(request, &mut out);
    if let Some(temperature) = config.temperature {
        member("temperature", &mut out);
        write_number(temperature, &mut out);
    }
    if let Some(max_tokens) = config.max_tokens {
        member(wire.max_tokens_member(), &mut out);
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
    write_extra(outgoing.extra, &mut out);
    out.push('}');
    Ok(out)
}

/// The effort, in the manner of the dialect (DSK-14).
fn write_effort(config: &CallConfig, wire: &ChatWire, out: &mut String) {
    let Some(effort) = &config.reasoning_effort else { return };
    let is_off = matches!(effort.as_str(), "off" | "none");
    match wire.effort {
        EffortStyle::Member => {}
        EffortStyle::Thinking => {
            let switch = if is_off { "disabled" } else { "enabled" };
            out.push_str(&format!(",\"thinking\":{{\"type\":\"{switch}\"}}"));
            if is_off {
                return;
            }
        }
        EffortStyle::Object => {
            out.push_str(",\"reasoning\":{\"effort\":");
            write_str(if is_off { "none" } else { effort }, out);
            out.push('}');
            return;
        }
        EffortStyle::Template => {
            out.push_str(&format!(",\"chat_template_kwargs\":{{\"enable_thinking\":{}", !is_off));
            if !is_off {
                member("reasoning_effort", out);
                write_str(effort, out);
            }
            out.push('}');
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

/// The text of blocks without separator, so that cached prefixes hold (DSK-06); blocks of unknown types are skipped
/// (DSK-10), and an image is a placeholder.
fn text_of(blocks: &[Block]) -> String {
    let mut text = String::new();
    for block in blocks {
        match block {
            Block::Other(value) if block.kind() == "image" => text.push_str(&placeholder(value)),
            _ => text.push_str(block.text().unwrap_or_default()),
        }
    }
    text
}

struct Messages<'a> {
    list: List<'a>,
    outgoing: Outgoing<'a>,
    wire: &'a ChatWire,
    /// Images of tool results; they follow the last of consecutive results.
    tool_images: Vec<Image>,
}

enum Part {
    Text(String),
    Image(Image),
}

impl Messages<'_> {
    fn write(&mut self, message: &Message) -> Result<(), Failure> {
        let has_results = message.content().iter().any(|block| matches!(block, Block::ToolResult { .. }));
        if !has_results {
            self.flush_images();
        }
        match message.role() {
            Role::System => plain(self.list.next(), "system", &text_of(message.content())),
            Role::User => self.user(message, has_results)?,
            Role::Assistant => self.assistant(message),
        }
        Ok(())
    }

    /// Texts, and images each after its handle text (DSK-11).
    fn parts(&self, blocks: &[Block]) -> Result<Vec<Part>, Failure> {
        let mut parts: Vec<Part> = Vec::new();
        let say = |text: &str, parts: &mut Vec<Part>| match parts.last_mut() {
            Some(Part::Text(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => parts.push(Part::Text(text.to_owned())),
        };
        for block in blocks {
            match block {
                Block::Other(value) if block.kind() == "image" => match self.outgoing.image(value)? {
                    Some(image) => {
                        let gap = if parts.is_empty() { "" } else { "\n" };
                        say(&format!("{gap}{}", image.handle), &mut parts);
                        parts.push(Part::Image(image));
                    }
                    None => say(&placeholder(value), &mut parts),
                },
                _ => say(block.text().unwrap_or_default(), &mut parts),
            }
        }
        Ok(parts)
    }

    /// The text first, then one `tool` message a result; with results only there is no user message (DSK-08).
    fn user(&mut self, message: &Message, has_results: bool) -> Result<(), Failure> {
        let parts = self.parts(message.content())?;
        if !has_results || !parts.is_empty() {
            self.user_message(&parts);
        }
        for block in message.content() {
            let Block::ToolResult { tool_call_id, content, is_error: _ } = block else { continue };
            let mut text = String::new();
            for part in self.parts(content)? {
                match part {
                    Part::Text(part) => text.push_str(&part),
                    Part::Image(image) => self.tool_images.push(image),
                }
            }
            let out = self.list.next();
            out.push_str("{\"role\":\"tool\",\"tool_call_id\":");
            write_str(tool_call_id, out);
            member("content", out);
            write_str(if text.is_empty() { NO_OUTPUT } else { &text }, out);
            out.push('}');
        }
        Ok(())
    }

    /// Parts that are all text go as one string.
    fn user_message(&mut self, parts: &[Part]) {
        let out = self.list.next();
        if let [] | [Part::Text(_)] = parts {
            let text = parts.first().map_or("", |part| if let Part::Text(text) = part { text } else { "" });
            return plain(out, "user", text);
        }
        out.push_str("{\"role\":\"user\",\"content\":[");
        let mut list = List::new(out);
        for part in parts {
            let out = list.next();
            match part {
                Part::Text(text) => {
                    out.push_str("{\"type\":\"text\",\"text\":");
                    write_str(text, out);
                    out.push('}');
                }
                Part::Image(image) => {
                    out.push_str("{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:");
                    out.push_str(&format!("{};base64,{}\"}}}}", image.media_type, image.base64));
                }
            }
        }
        out.push_str("]}");
    }

    fn flush_images(&mut self) {
        let images = std::mem::take(&mut self.tool_images);
        if !images.is_empty() {
            let intro = std::iter::once(Part::Text(TOOL_IMAGES.to_owned()));
            self.user_message(&intro.chain(images.into_iter().map(Part::Image)).collect::<Vec<_>>());
        }
    }

    /// Content is always text and never null (DSK-09). An answer without text and calls is left out: servers refuse it,
    /// and being durable it would be refused for ever.
    fn assistant(&mut self, message: &Message) {
        let text = text_of(message.content());
        let has_calls = message.content().iter().any(|block| matches!(block, Block::ToolCall { .. }));
        if text.is_empty() && !has_calls {
            return;
        }
        let out = self.list.next();
        out.push_str("{\"role\":\"assistant\",\"content\":");
        write_str(&text, out);
        if self.wire.reasoning_in_history == Some(true) {
            let reasoning: String = message.content().iter().filter_map(Block::reasoning).collect();
            if !reasoning.is_empty() {
                member("reasoning_content", out);
                write_str(&reasoning, out);
            }
        }
        if let Source::Model { replay_state: Some(state), .. } = message.source() {
            details::write(state, out);
        }
        if has_calls {
            write_calls(message, out);
        }
        out.push('}');
    }
}

fn write_calls(message: &Message, out: &mut String) {
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

    fn written(request: &ModelRequest, wire: &ChatWire, extra: &Object) -> String {
        let outgoing = Outgoing { request, info: None, images: None, extra };
        body(outgoing, wire).expect("the wire carries it")
    }

    fn messages(request: &ModelRequest, wire: &ChatWire) -> String {
        let body = parse(&written(request, wire, &Object::new())).expect("the body is JSON");
        body.get("messages").map(Value::to_text).unwrap_or_default()
    }

    #[test]
    fn members_come_in_the_order_of_the_wire_and_absent_ones_are_left_out() {
        let mut request = request(vec![Message::user_text("u", "hi")]);
        let bare = r#"{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}"#;
        assert_eq!(written(&request, &ChatWire::default(), &Object::new()), bare);
        let header = Arc::make_mut(&mut request.header);
        header.system = None;
        header.config.temperature = Some(0.0);
        header.config.max_tokens = Some(5);
        header.config.stop = Some(Vec::new());
        header.config.reasoning_effort = Some("low".into());
        header.tools = vec![Arc::new(ToolSchema::new("t", "d", crate::json!({"type": "object"})))];
        let dialect = ChatWire { max_tokens_member: Some("max_completion_tokens".into()), ..ChatWire::default() };
        let full = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true},"reasoning_effort":"low","tools":[{"type":"function","function":{"name":"t","description":"d","parameters":{"type":"object"}}}],"temperature":0,"max_completion_tokens":5,"stop":[],"top_p":0.5}"#;
        assert_eq!(written(&request, &dialect, &Object::from_iter([("top_p", 0.5)])), full);
    }

    #[test]
    fn thinking_is_switched_by_a_member_of_its_own_where_the_dialect_has_it() {
        let mut request = request(Vec::new());
        let dialect = ChatWire { effort: EffortStyle::Thinking, ..ChatWire::default() };
        Arc::make_mut(&mut request.header).config.reasoning_effort = Some("off".into());
        assert!(written(&request, &dialect, &Object::new()).ends_with(r#""thinking":{"type":"disabled"}}"#));
        Arc::make_mut(&mut request.header).config.reasoning_effort = Some("high".into());
        assert!(
            written(&request, &dialect, &Object::new())
                .ends_with(r#""thinking":{"type":"enabled"},"reasoning_effort":"high"}"#)
        );
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
        assert_eq!(messages(&with_text, &ChatWire::default()), expected);
        let mut alone = request(vec![Message::user("u", vec![result("")])]);
        Arc::make_mut(&mut alone.header).system = None;
        let expected = r#"[{"role":"tool","tool_call_id":"c","content":"(no output)"}]"#;
        assert_eq!(messages(&alone, &ChatWire::default()), expected);
    }

    #[test]
    fn assistant_content_is_text_and_reasoning_goes_back_only_on_request() {
        let call = Block::ToolCall { id: "c".into(), name: "t".into(), arguments: "{\"a\":".into() };
        let mut request = request(vec![assistant(vec![Block::Reasoning("why".into()), call])]);
        Arc::make_mut(&mut request.header).system = None;
        let call = r#""tool_calls":[{"id":"c","type":"function","function":{"name":"t","arguments":"{\"a\":"}}]"#;
        let generic = messages(&request, &ChatWire::default());
        assert_eq!(generic, format!(r#"[{{"role":"assistant","content":"",{call}}}]"#));
        let dialect = ChatWire { reasoning_in_history: Some(true), ..ChatWire::default() };
        let deepseek = messages(&request, &dialect);
        assert_eq!(deepseek, format!(r#"[{{"role":"assistant","content":"","reasoning_content":"why",{call}}}]"#));
    }

    #[test]
    fn unknown_blocks_are_skipped_and_images_become_a_placeholder() {
        let other = |kind: &str| Block::Other(crate::json!({"type": kind, "x": 1}));
        let mut request =
            request(vec![Message::user("u", vec![other("hologram"), other("image"), Block::Text("?".into())])]);
        Arc::make_mut(&mut request.header).system = None;
        let expected = r#"[{"role":"user","content":"[image omitted: this model is sent text only]?"}]"#;
        assert_eq!(messages(&request, &ChatWire::default()), expected);
    }
}
