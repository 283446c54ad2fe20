//! From a model request to the body of a responses request.

use super::ResponsesWire;
use super::decode::KIND;
use crate::json::{Value, write_number, write_str};
use crate::llm::Failure;
use crate::llm::adapters::http::{List, NO_OUTPUT, Outgoing, comma_member, member, placeholder, write_extra};
use crate::message::{Block, Message, Role, Source};

/// The members that the body writes itself, and that extra members must not repeat.
pub(super) const OWN_MEMBERS: &[&str] = &[
    "model",
    "instructions",
    "input",
    "stream",
    "store",
    "include",
    "reasoning",
    "tools",
    "temperature",
    "max_output_tokens",
];

/// The request body.
pub(super) fn body(outgoing: Outgoing<'_>, wire: &ResponsesWire) -> Result<String, Failure> {
    let request = outgoing.request;
    let config = &request.header.config;
    if config.stop.as_ref().is_some_and(|stop| !stop.is_empty()) {
        let message = "the responses wire has no stop sequences; leave `stop` out or use chat completions";
        return Err(Failure::new("UNSUPPORTED_OPTION", message));
    }
    let mut out = String::with_capacity(1024);
    out.push_str("{\"model\":");
    write_str(&config.model, &mut out);
    if let Some(system) = &request.header.system {
        comma_member("instructions", &mut out);
        write_str(system, &mut out);
    }
    out.push_str(",\"input\":[");
    let mut items = List::new(&mut out);
    for message in request.messages.iter() {
        match message.role() {
            Role::System => write_system(&message, &mut items),
            Role::User => write_user(outgoing, &message, &mut items)?,
            Role::Assistant => write_assistant(&message, &mut items),
        }
    }
    out.push_str("],\"stream\":true,\"store\":false");
    if let Some(effort) = &config.reasoning_effort {
        if wire.encrypted_reasoning {
            out.push_str(",\"include\":[\"reasoning.encrypted_content\"]");
        }
        out.push_str(",\"reasoning\":{\"effort\":");
        write_str(if effort == "off" { "none" } else { effort }, &mut out);
        if let Some(summary) = &wire.reasoning_summary {
            comma_member("summary", &mut out);
            write_str(summary, &mut out);
        }
        out.push('}');
    }
    write_tools(outgoing, &mut out);
    if let Some(temperature) = config.temperature {
        comma_member("temperature", &mut out);
        write_number(temperature, &mut out);
    }
    if let Some(max_tokens) = config.max_tokens {
        comma_member("max_output_tokens", &mut out);
        write_number(max_tokens as f64, &mut out);
    }
    write_extra(outgoing.extra, &mut out);
    out.push('}');
    Ok(out)
}

fn write_tools(outgoing: Outgoing<'_>, out: &mut String) {
    let tools = &outgoing.request.header.tools;
    if tools.is_empty() {
        return;
    }
    out.push_str(",\"tools\":[");
    let mut list = List::new(out);
    for tool in tools {
        let out = list.next();
        out.push_str("{\"type\":\"function\",\"name\":");
        write_str(tool.name(), out);
        comma_member("description", out);
        write_str(tool.description(), out);
        comma_member("parameters", out);
        tool.parameters().write(out);
        // Strict schemas forbid optional members, which our tools may have.
        out.push_str(",\"strict\":false}");
    }
    out.push(']');
}

fn write_system(message: &Message, items: &mut List<'_>) {
    let text: String = message.content().iter().filter_map(Block::text).collect();
    let out = items.next();
    out.push_str("{\"role\":\"system\",\"content\":");
    write_str(&text, out);
    out.push('}');
}

/// Texts and images as input parts.
fn parts(outgoing: Outgoing<'_>, content: &[Block]) -> Result<Vec<String>, Failure> {
    let text_part = |text: &str| {
        let mut out = "{\"type\":\"input_text\",\"text\":".to_owned();
        write_str(text, &mut out);
        out.push('}');
        out
    };
    let mut parts = Vec::new();
    for block in content {
        match block {
            Block::Other(value) if block.kind() == "image" => match outgoing.image(value)? {
                Some(image) => {
                    parts.push(text_part(&image.handle));
                    let url = format!("data:{};base64,{}", image.media_type, image.base64);
                    let mut out = "{\"type\":\"input_image\",\"image_url\":".to_owned();
                    write_str(&url, &mut out);
                    out.push('}');
                    parts.push(out);
                }
                None => parts.push(text_part(&placeholder(value))),
            },
            _ => parts.extend(block.text().filter(|text| !text.is_empty()).map(text_part)),
        }
    }
    Ok(parts)
}

/// Results first: they belong to the calls before them.
fn write_user(outgoing: Outgoing<'_>, message: &Message, items: &mut List<'_>) -> Result<(), Failure> {
    let mut has_results = false;
    for block in message.content() {
        let Block::ToolResult { tool_call_id, content, is_error: _ } = block else { continue };
        has_results = true;
        let has_image = content.iter().any(|block| block.kind() == "image") && outgoing.takes_images();
        let text: String = match has_image {
            true => String::new(),
            false => content.iter().map(said).collect(),
        };
        let out = items.next();
        out.push_str("{\"type\":\"function_call_output\",\"call_id\":");
        write_str(tool_call_id, out);
        comma_member("output", out);
        if has_image {
            out.push_str(&format!("[{}]", parts(outgoing, content)?.join(",")));
        } else {
            write_str(if text.is_empty() { NO_OUTPUT } else { &text }, out);
        }
        out.push('}');
    }
    let parts = parts(outgoing, message.content())?;
    if has_results && parts.is_empty() {
        return Ok(());
    }
    let out = items.next();
    out.push_str("{\"role\":\"user\",\"content\":");
    if parts.is_empty() {
        out.push_str("\"\"");
    } else {
        out.push_str(&format!("[{}]", parts.join(",")));
    }
    out.push('}');
    Ok(())
}

fn said(block: &Block) -> String {
    match block {
        Block::Other(value) if block.kind() == "image" => placeholder(value),
        _ => block.text().unwrap_or_default().to_owned(),
    }
}

/// The items of an answer, in order. A reasoning item must be followed by what it led to; one at the end is left out.
fn write_assistant(message: &Message, items: &mut List<'_>) {
    let entries = entries(message);
    let last_said = message.content().iter().rposition(|block| match block {
        Block::ToolCall { .. } => true,
        _ => block.text().is_some_and(|text| !text.is_empty()),
    });
    for (at, block) in message.content().iter().enumerate() {
        let entry = entries.get(at).filter(|entry| !entry.is_null());
        match block {
            Block::ToolCall { id, name, arguments } => {
                let out = items.next();
                out.push_str("{\"type\":\"function_call\",\"call_id\":");
                write_str(id, out);
                comma_member("name", out);
                write_str(name, out);
                comma_member("arguments", out);
                write_str(if arguments.trim().is_empty() { "{}" } else { arguments }, out);
                out.push('}');
            }
            _ if block.reasoning().is_some() => {
                if let Some(item) = entry.filter(|_| last_said.is_some_and(|last| at < last)) {
                    item.write(items.next());
                }
            }
            _ => {
                let Some(text) = block.text().filter(|text| !text.is_empty()) else { continue };
                let out = items.next();
                out.push_str("{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",");
                member("text", out);
                write_str(text, out);
                out.push_str(",\"annotations\":[]}]}");
            }
        }
    }
}

/// The replay entries, if the envelope is this wire's and fits the blocks.
fn entries(message: &Message) -> Vec<Value> {
    let Source::Model { replay_state: Some(state), .. } = message.source() else { return Vec::new() };
    let kind = state.get("response").and_then(|response| response.get("kind")).and_then(Value::as_str);
    let entries = state.get("blocks").and_then(Value::as_array).unwrap_or_default();
    if kind == Some(KIND) && entries.len() == message.content().len() { entries.to_vec() } else { Vec::new() }
}
