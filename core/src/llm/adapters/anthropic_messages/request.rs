//! From a model request to the body of a messages request.

use super::AnthropicWire;
use super::decode::KIND;
use crate::json::{Value, parse, write_number, write_str};
use crate::llm::adapters::http::{List, NO_OUTPUT, Outgoing, comma_member, is_blank, member, placeholder, write_extra};
use crate::llm::{CallConfig, Failure};
use crate::message::{Block, Message, Role, Source};

/// The members that the body writes itself, and that extra members must not repeat.
pub(super) const OWN_MEMBERS: &[&str] = &[
    "model",
    "max_tokens",
    "system",
    "messages",
    "stream",
    "tools",
    "temperature",
    "stop_sequences",
    "thinking",
    "output_config",
];

const MARKER: &str = ",\"cache_control\":{\"type\":\"ephemeral\"}";

const TOOL_RESULT: &str = "{\"type\":\"tool_result\"";

/// What a user message says that has nothing to say: the wire takes no empty ones.
const EMPTY: &str = "(empty message)";

/// One message of the wire: its role and its blocks, each as JSON text without the closing brace.
struct Turn {
    is_user: bool,
    blocks: Vec<String>,
}

/// The request body.
pub(super) fn body(outgoing: Outgoing<'_>, wire: &AnthropicWire) -> Result<String, Failure> {
    let request = outgoing.request;
    let config = &request.header.config;
    let (turns, system) = turns(outgoing)?;
    let mut out = String::with_capacity(1024);
    out.push_str("{\"model\":");
    write_str(&config.model, &mut out);
    let budget = budget(config, wire);
    // The budget is part of the ceiling on this wire; here the ceiling is what the answer may have besides.
    let ceiling = config.max_tokens.unwrap_or(wire.default_max_tokens).saturating_add(budget.unwrap_or(0));
    comma_member("max_tokens", &mut out);
    write_number(ceiling as f64, &mut out);
    if !system.is_empty() {
        out.push_str(",\"system\":[");
        let mut list = List::new(&mut out);
        for (at, text) in system.iter().enumerate() {
            let is_last = at + 1 == system.len();
            write_block(list.next(), &text_block(text), wire.cache_markers && is_last);
        }
        out.push(']');
    }
    write_tools(outgoing, wire, &mut out);
    out.push_str(",\"messages\":[");
    let mut list = List::new(&mut out);
    let users = turns.iter().filter(|turn| turn.is_user).count();
    let mut user = 0;
    for turn in &turns {
        user += usize::from(turn.is_user);
        // The last user message, and the one before it, up to which the previous request was cached.
        let is_marked = wire.cache_markers && turn.is_user && user + 2 > users;
        write_turn(list.next(), turn, is_marked);
    }
    out.push_str("],\"stream\":true");
    if let Some(temperature) = config.temperature {
        comma_member("temperature", &mut out);
        write_number(temperature, &mut out);
    }
    if let Some(stop) = config.stop.as_ref().filter(|stop| !stop.is_empty()) {
        out.push_str(",\"stop_sequences\":[");
        let mut list = List::new(&mut out);
        for text in stop {
            write_str(text, list.next());
        }
        out.push(']');
    }
    write_effort(config, budget, &mut out);
    write_extra(outgoing.extra, &mut out);
    out.push('}');
    Ok(out)
}

fn budget(config: &CallConfig, wire: &AnthropicWire) -> Option<u64> {
    let effort = config.reasoning_effort.as_ref()?;
    wire.thinking_budgets.iter().find(|(name, _)| name == effort).map(|(_, tokens)| *tokens)
}

fn write_effort(config: &CallConfig, budget: Option<u64>, out: &mut String) {
    match (config.reasoning_effort.as_deref(), budget) {
        (None, _) => {}
        (_, Some(tokens)) => {
            out.push_str(&format!(",\"thinking\":{{\"type\":\"enabled\",\"budget_tokens\":{tokens}}}"));
        }
        (Some("off" | "none"), None) => out.push_str(",\"thinking\":{\"type\":\"disabled\"}"),
        (Some(effort), None) => {
            out.push_str(",\"thinking\":{\"type\":\"adaptive\"},\"output_config\":{\"effort\":");
            write_str(effort, out);
            out.push('}');
        }
    }
}

fn write_tools(outgoing: Outgoing<'_>, wire: &AnthropicWire, out: &mut String) {
    let tools = &outgoing.request.header.tools;
    if tools.is_empty() {
        return;
    }
    out.push_str(",\"tools\":[");
    let mut list = List::new(out);
    for (at, tool) in tools.iter().enumerate() {
        let out = list.next();
        out.push_str("{\"name\":");
        write_str(tool.name(), out);
        comma_member("description", out);
        write_str(tool.description(), out);
        comma_member("input_schema", out);
        tool.parameters().write(out);
        if wire.cache_markers && at + 1 == tools.len() {
            out.push_str(MARKER);
        }
        out.push('}');
    }
    out.push(']');
}

/// Writes an open block and closes it.
fn write_block(out: &mut String, block: &str, is_marked: bool) {
    out.push_str(block);
    if is_marked {
        out.push_str(MARKER);
    }
    out.push('}');
}

fn write_turn(out: &mut String, turn: &Turn, is_marked: bool) {
    out.push_str(if turn.is_user {
        "{\"role\":\"user\",\"content\":["
    } else {
        "{\"role\":\"assistant\",\"content\":["
    });
    let mut list = List::new(out);
    for (at, block) in turn.blocks.iter().enumerate() {
        write_block(list.next(), block, is_marked && at + 1 == turn.blocks.len());
    }
    out.push_str("]}");
}

fn text_block(text: &str) -> String {
    let mut out = "{\"type\":\"text\",\"text\":".to_owned();
    write_str(text, &mut out);
    out
}

/// The messages, neighbours of one role joined, and the system texts.
fn turns(outgoing: Outgoing<'_>) -> Result<(Vec<Turn>, Vec<String>), Failure> {
    let request = outgoing.request;
    let mut system: Vec<String> = request.header.system.iter().map(|text| text.to_string()).collect();
    let mut turns: Vec<Turn> = Vec::new();
    let mut last_user_is_empty = false;
    for message in request.messages.iter() {
        let (is_user, blocks) = match message.role() {
            Role::System => {
                let text: String = message.content().iter().filter_map(Block::text).collect();
                if is_blank(&text) {
                    continue;
                }
                // The wire has one place for system texts, before everything; a later one is said by the user.
                if turns.is_empty() {
                    system.push(text);
                    continue;
                }
                (true, vec![text_block(&format!("<system>\n{text}\n</system>"))])
            }
            Role::User => (true, user_blocks(outgoing, &message)?),
            Role::Assistant => (false, assistant_blocks(&message)),
        };
        if blocks.is_empty() {
            last_user_is_empty |= is_user;
            continue;
        }
        last_user_is_empty = false;
        if turns.is_empty() && !is_user {
            turns.push(Turn { is_user: true, blocks: vec![text_block(EMPTY)] });
        }
        match turns.last_mut().filter(|turn| turn.is_user == is_user) {
            Some(turn) => turn.blocks.extend(blocks),
            None => turns.push(Turn { is_user, blocks }),
        }
    }
    let ends_with_user = turns.last().is_some_and(|turn| turn.is_user);
    if turns.is_empty() || (last_user_is_empty && !ends_with_user) {
        turns.push(Turn { is_user: true, blocks: vec![text_block(EMPTY)] });
    }
    for turn in &mut turns {
        // Nothing may stand between the calls and their results.
        turn.blocks.sort_by_key(|block| !block.starts_with(TOOL_RESULT));
    }
    Ok((turns, system.into_iter().filter(|text| !is_blank(text)).collect()))
}

/// Results first: they must directly follow the calls. Blank texts are refused by the wire and left out.
fn user_blocks(outgoing: Outgoing<'_>, message: &Message) -> Result<Vec<String>, Failure> {
    let mut blocks = Vec::new();
    for block in message.content() {
        let Block::ToolResult { tool_call_id, content, is_error } = block else { continue };
        let mut out = format!("{TOOL_RESULT},\"tool_use_id\":");
        write_str(&wire_id(tool_call_id), &mut out);
        comma_member("content", &mut out);
        out.push('[');
        let mut parts = content_blocks(outgoing, content)?;
        if parts.is_empty() {
            parts.push(text_block(NO_OUTPUT));
        }
        let mut list = List::new(&mut out);
        for part in parts {
            write_block(list.next(), &part, false);
        }
        out.push(']');
        if *is_error == Some(true) {
            out.push_str(",\"is_error\":true");
        }
        blocks.push(out);
    }
    blocks.extend(content_blocks(outgoing, message.content())?);
    Ok(blocks)
}

/// Texts and images.
fn content_blocks(outgoing: Outgoing<'_>, content: &[Block]) -> Result<Vec<String>, Failure> {
    let mut blocks = Vec::new();
    for block in content {
        match block {
            Block::Other(value) if block.kind() == "image" => match outgoing.image(value)? {
                Some(image) => {
                    blocks.push(text_block(&image.handle));
                    let mut out = "{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":".to_owned();
                    write_str(&image.media_type, &mut out);
                    out.push_str(&format!(",\"data\":\"{}\"}}", image.base64));
                    blocks.push(out);
                }
                None => blocks.push(text_block(&placeholder(value))),
            },
            _ => blocks.extend(block.text().filter(|text| !is_blank(text)).map(text_block)),
        }
    }
    Ok(blocks)
}

/// The blocks of an answer, in order. Thinking goes back only with what the provider gave for it.
fn assistant_blocks(message: &Message) -> Vec<String> {
    let entries = entries(message);
    let mut blocks = Vec::new();
    for (at, block) in message.content().iter().enumerate() {
        let entry = entries.get(at);
        let kept = |key: &str| entry.and_then(|entry| entry.get(key)).and_then(Value::as_str);
        match block {
            Block::ToolCall { id, name, arguments } => {
                let mut out = "{\"type\":\"tool_use\",\"id\":".to_owned();
                write_str(&wire_id(id), &mut out);
                comma_member("name", &mut out);
                write_str(name, &mut out);
                comma_member("input", &mut out);
                // The wire types input as an object. What is none stays in the log and goes as an empty one.
                let is_object = parse(arguments).is_ok_and(|value| value.as_object().is_some());
                out.push_str(if is_object { arguments.trim() } else { "{}" });
                blocks.push(out);
            }
            Block::Other(value) if kept("type") == Some("verbatim") => {
                let text = value.to_text();
                blocks.extend(text.strip_suffix('}').map(str::to_owned));
            }
            _ => {
                if let (Some(thinking), Some(signature)) = (block.reasoning(), kept("signature")) {
                    let mut out = "{\"type\":\"thinking\",\"thinking\":".to_owned();
                    write_str(thinking, &mut out);
                    comma_member("signature", &mut out);
                    write_str(signature, &mut out);
                    blocks.push(out);
                } else if let (Some(_), Some(data)) = (block.reasoning(), kept("data")) {
                    let mut out = "{\"type\":\"redacted_thinking\",".to_owned();
                    member("data", &mut out);
                    write_str(data, &mut out);
                    blocks.push(out);
                } else if let Some(text) = block.text().filter(|text| !is_blank(text)) {
                    blocks.push(text_block(text));
                }
            }
        }
    }
    blocks
}

/// The replay entries, if the envelope is this wire's and fits the blocks. One that does not is ignored: the message
/// then goes without signatures, which the provider takes.
fn entries(message: &Message) -> Vec<Value> {
    let Source::Model { replay_state: Some(state), .. } = message.source() else { return Vec::new() };
    let kind = state.get("response").and_then(|response| response.get("kind")).and_then(Value::as_str);
    let entries = state.get("blocks").and_then(Value::as_array).unwrap_or_default();
    if kind == Some(KIND) && entries.len() == message.content().len() { entries.to_vec() } else { Vec::new() }
}

/// An id in the letters that the wire takes. Ids of other providers may have others; changed ones stay distinct.
fn wire_id(id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !id.is_empty() && id.chars().all(is_plain) {
        return id.to_owned();
    }
    let plain: String = id.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    // FNV-1a, so that the same id is changed in the same way in every request.
    let hash =
        id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{plain}_{hash:016x}")
}
