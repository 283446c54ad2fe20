//! From the payloads of a chat-completions stream to chunks (SSE-02 to SSE-11). Pure: no I/O, no clock, no ids of its own.
//!
//! Block ends, usage and the finish are held back until the sentinel or the end of the body, because a usage payload may
//! follow the finish reason. The answer is complete when a finish reason *or* the sentinel came; a body that ends with
//! neither is `STREAM_CLOSED`, and so is a sentinel without a reason after half a tool call.

use super::calls::{Calls, Fragment, Taken};
use super::details::Details;
use crate::json::{Object, Value, parse};
use crate::llm::adapters::http::{Decoder, Progress, quote, stream_failure};
use crate::llm::{Chunk, Failure, FinishReason};
use crate::message::{Block, Usage};

enum Part {
    Text(String),
    Reasoning(String),
    /// The position in [`Calls`].
    Call(usize),
}

/// Decodes one answer.
pub struct ChatDecoder {
    /// Ids for calls that come without: `<prefix>-<block index>`.
    id_prefix: String,
    /// The blocks in order of opening: a block's index is its position (SSE-05).
    parts: Vec<Part>,
    text: Option<usize>,
    reasoning: Option<usize>,
    calls: Calls,
    details: Details,
    usage: Option<Usage>,
    finish: Option<String>,
    skipped: u64,
    is_done: bool,
}

fn malformed(what: &str, payload: &str) -> Failure {
    Failure::new("MALFORMED_RESPONSE", format!("{what}: {}", quote(payload)))
}

/// A member that is absent or null.
fn present<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

impl ChatDecoder {
    /// A decoder. `id_prefix` makes the ids of calls that the server sends without one; it should be unique per answer.
    pub fn new(id_prefix: impl Into<String>) -> Self {
        Self {
            id_prefix: id_prefix.into(),
            parts: Vec::new(),
            text: None,
            reasoning: None,
            calls: Calls::default(),
            details: Details::default(),
            usage: None,
            finish: None,
            skipped: 0,
            is_done: false,
        }
    }
}

impl Decoder for ChatDecoder {
    fn skipped(&self) -> u64 {
        self.skipped
    }

    fn has_finish_reason(&self) -> bool {
        self.finish.is_some()
    }

    fn payload(&mut self, name: &str, data: &str, out: &mut Vec<Chunk>) -> Result<Progress, Failure> {
        let text = data.trim();
        if self.is_done || text == "[DONE]" {
            self.close(out)?;
            return Ok(Progress::Done);
        }
        // Gateways wrap keep-alive comments as data (`data: : PROCESSING`), or send an empty one.
        if text.is_empty() || text.starts_with(':') {
            self.skip("a comment sent as data", text);
            return Ok(Progress::KeepAlive);
        }
        let value = parse(text).map_err(|error| malformed(&format!("a stream payload is not JSON ({error})"), text))?;
        if value.as_object().is_none() {
            return Err(malformed("a stream payload is not an object", text));
        }
        if is_error(name, &value) {
            return Err(stream_failure(&value));
        }
        self.chunk(&value, text, out)?;
        Ok(Progress::More)
    }

    fn end(&mut self, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        if self.is_done {
            return Ok(());
        }
        if self.finish.is_none() {
            let message = "the stream ended without a finish reason or [DONE]; the answer is incomplete";
            return Err(Failure::new("STREAM_CLOSED", message));
        }
        self.close(out)
    }
}

impl ChatDecoder {
    fn skip(&mut self, what: &str, text: &str) {
        self.skipped += 1;
        tracing::debug!(target: "turnwheel", "skipped {what}: {}", quote(text));
    }

    fn chunk(&mut self, value: &Value, text: &str, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        let usage = present(value, "usage").or_else(|| present(value.get("x_groq")?, "usage"));
        if let Some(usage) = usage {
            self.usage = read_usage(usage).or(self.usage);
        }
        let Some(choices) = present(value, "choices") else {
            if usage.is_none() {
                self.skip("a payload without choices", text);
            }
            return Ok(());
        };
        let choices = choices.as_array().ok_or_else(|| malformed("`choices` is not a list", text))?;
        for choice in choices {
            let choice = choice.as_object().ok_or_else(|| malformed("a choice is not an object", text))?;
            self.choice(choice, text, out)?;
        }
        Ok(())
    }

    fn choice(&mut self, choice: &Object, text: &str, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        let member = |key: &str| choice.get(key).filter(|value| !value.is_null());
        // A server that does not stream sends the same members in one `message`.
        if let Some(delta) = member("delta").or_else(|| member("message")) {
            let number = member("index").and_then(Value::as_u64).unwrap_or(0);
            if delta.as_object().is_none() {
                return Err(malformed("a delta is not an object", text));
            }
            self.delta(number, delta, text, out)?;
        }
        if let Some(error) = member("error") {
            return Err(stream_failure(error));
        }
        if let Some(usage) = member("usage") {
            self.usage = read_usage(usage).or(self.usage);
        }
        // An empty reason is what some servers send with every delta; it ends nothing.
        match member("finish_reason").map(Value::as_str) {
            Some(Some("")) | None => {}
            Some(Some(reason)) => self.finish = Some(reason.to_owned()),
            Some(None) => return Err(malformed("`finish_reason` is not text", text)),
        }
        Ok(())
    }

    /// One delta, in the order of SSE-04.
    fn delta(&mut self, choice: u64, delta: &Value, text: &str, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        let said = |key: &str| delta.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let is_signed = self.details.take(delta);
        // Servers that send both names send the same text under both. Beside a signature the whole text may come again.
        let known = self.reasoning.and_then(|index| self.parts.get(index));
        let is_repeat = |text: &str| is_signed && matches!(known, Some(Part::Reasoning(known)) if known == text);
        let fragment = said("reasoning_content").or_else(|| said("reasoning")).filter(|text| !is_repeat(text));
        let parts = delta.get("content").and_then(Value::as_array).unwrap_or_default();
        let thought = parts_text(parts, "thinking");
        if let Some(fragment) = fragment.or(Some(thought.as_str()).filter(|text| !text.is_empty())) {
            let index = *self.reasoning.get_or_insert(self.parts.len());
            self.say(index, Part::Reasoning, "reasoning", fragment, out);
            out.push(Chunk::ReasoningDelta { index: index as u64, text: fragment.to_owned() });
        }
        // A refusal is what the model says instead of content.
        let spoken = parts_text(parts, "text");
        let spoken = Some(spoken.as_str()).filter(|text| !text.is_empty());
        if let Some(fragment) = said("content").or_else(|| said("refusal")).or(spoken) {
            let index = *self.text.get_or_insert(self.parts.len());
            self.say(index, Part::Text, "text", fragment, out);
            out.push(Chunk::TextDelta { index: index as u64, text: fragment.to_owned() });
        }
        let Some(calls) = present(delta, "tool_calls") else { return Ok(()) };
        let calls = calls.as_array().ok_or_else(|| malformed("`tool_calls` is not a list", text))?;
        self.calls.next_payload();
        for call in calls {
            match read_fragment(choice, call) {
                Ok(Some(fragment)) => self.fragment(fragment, out)?,
                Ok(None) => self.skip("a tool call that is no function call", text),
                Err(what) => return Err(malformed(what, text)),
            }
        }
        Ok(())
    }

    /// Adds to the answer's one text or reasoning block, which opens with its first fragment (SSE-04).
    fn say(&mut self, index: usize, part: fn(String) -> Part, kind: &str, fragment: &str, out: &mut Vec<Chunk>) {
        match self.parts.get_mut(index) {
            Some(Part::Text(text) | Part::Reasoning(text)) => text.push_str(fragment),
            Some(Part::Call(_)) | None => {
                self.parts.push(part(fragment.to_owned()));
                out.push(Chunk::BlockStart { index: index as u64, block_type: kind.to_owned() });
            }
        }
    }

    fn fragment(&mut self, fragment: Fragment, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        let arguments_delta = fragment.arguments.clone();
        let position = match self.calls.take(fragment, self.parts.len() as u64)? {
            Taken::Opened(position) => {
                let index = self.parts.len() as u64;
                self.parts.push(Part::Call(position));
                out.push(Chunk::BlockStart { index, block_type: "tool-call".to_owned() });
                position
            }
            Taken::Added(position) => position,
            Taken::Repeat => return Ok(()),
        };
        let call = &self.calls.calls[position];
        // Id and name are repeated in every delta once known (SSE-06).
        let name = Some(call.name.clone()).filter(|name| !name.is_empty());
        out.push(Chunk::ToolCallDelta { index: call.block, id: call.id.clone(), name, arguments_delta });
        Ok(())
    }

    /// Ends, usage and finish, in this order (SSE-07).
    fn close(&mut self, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        if std::mem::replace(&mut self.is_done, true) {
            return Ok(());
        }
        let reason = self.finish.take();
        let calls = &self.calls.calls;
        if reason.is_none() && calls.iter().any(|call| call.is_half()) {
            let message = "the stream ended in the middle of a tool call and gave no finish reason";
            return Err(Failure::new("STREAM_CLOSED", message));
        }
        // Under the output limit calls are dropped anyway (BLK-07), so a cut one is no fault.
        let is_cut = matches!(finish_reason(reason.as_deref(), true, true), FinishReason::MaxTokens);
        if !is_cut && calls.iter().any(|call| call.name.is_empty()) {
            return Err(Failure::new("MALFORMED_RESPONSE", "a tool call of the stream never named its tool"));
        }
        for (index, part) in std::mem::take(&mut self.parts).into_iter().enumerate() {
            let block = match part {
                Part::Text(text) => Block::Text(text),
                Part::Reasoning(text) => Block::Reasoning(text),
                Part::Call(position) => self.call_block(position),
            };
            out.push(Chunk::BlockEnd { index: index as u64, block });
        }
        out.extend(self.usage.take().map(Chunk::Usage));
        let has_blocks = self.text.is_some() || self.reasoning.is_some() || !self.calls.calls.is_empty();
        let reason = finish_reason(reason.as_deref(), has_blocks, !self.calls.calls.is_empty());
        let replay_state = std::mem::take(&mut self.details).into_state();
        out.push(Chunk::Finish { reason, replay_state: replay_state.map(Box::new) });
        Ok(())
    }

    fn call_block(&mut self, position: usize) -> Block {
        let call = &mut self.calls.calls[position];
        let id = call.id.take().unwrap_or_else(|| format!("{}-{}", self.id_prefix, call.block));
        let mut arguments = std::mem::take(&mut call.arguments);
        // No arguments at all is how a tool without parameters is called.
        if matches!(arguments.trim(), "" | "null") {
            arguments = "{}".to_owned();
        }
        Block::ToolCall { id: id.into(), name: std::mem::take(&mut call.name), arguments }
    }
}

/// The text of content that came as a list of parts; a part of thinking holds such a list itself.
fn parts_text(parts: &[Value], kind: &str) -> String {
    let mut text = String::new();
    for part in parts.iter().filter(|part| part.get("type").and_then(Value::as_str) == Some(kind)) {
        match part.get(kind) {
            Some(Value::Array(inner)) => text.push_str(&parts_text(inner, "text")),
            other => text.push_str(other.and_then(Value::as_str).unwrap_or_default()),
        }
    }
    text
}

/// Maps the wire's reason (SSE-08, SSE-09), under the names that servers behind gateways use for the same things.
fn finish_reason(reason: Option<&str>, has_blocks: bool, has_calls: bool) -> FinishReason {
    const STOP: [&str; 6] = ["stop", "tool_calls", "function_call", "end_turn", "stop_sequence", "eos"];
    let lower = reason.map(str::to_lowercase);
    match (lower.as_deref(), reason) {
        (Some("length" | "max_tokens" | "model_length"), _) => FinishReason::MaxTokens,
        (Some(lower), Some(other)) if !STOP.contains(&lower) => {
            let message = format!("the model stopped with reason `{}`", quote(other));
            FinishReason::error(Failure::new(other.to_uppercase(), message))
        }
        _ if !has_blocks => FinishReason::error(Failure::new("EMPTY_RESPONSE", "the model answered with nothing")),
        (None | Some("tool_calls" | "function_call"), _) if has_calls => FinishReason::ToolCalls,
        _ => FinishReason::Stop,
    }
}

/// An error object under status 200, in the shapes that servers and gateways use.
fn is_error(name: &str, value: &Value) -> bool {
    let is_answer =
        present(value, "choices").is_some_and(|choices| choices.as_array().is_none_or(|list| !list.is_empty()));
    let says_error = value.get("object").and_then(Value::as_str) == Some("error")
        || value.get("type").and_then(Value::as_str) == Some("error");
    present(value, "error").is_some()
        || present(value, "error_message").is_some()
        || present(value, "error_type").is_some()
        || (!is_answer && (name == "error" || says_error))
}

/// Reads one entry of `tool_calls`; `None` for a kind that is no function call.
fn read_fragment(choice: u64, call: &Value) -> Result<Option<Fragment>, &'static str> {
    if call.as_object().is_none() {
        return Err("a tool call is not an object");
    }
    if present(call, "type").and_then(Value::as_str).is_some_and(|kind| !matches!(kind, "function" | "")) {
        return Ok(None);
    }
    let text = |object: &Value, key: &str, what: &'static str| match present(object, key) {
        None => Ok(None),
        Some(value) => value.as_str().map(|text| Some(text.to_owned()).filter(|text| !text.is_empty())).ok_or(what),
    };
    let index = match present(call, "index") {
        None => None,
        Some(value) => Some(value.as_u64().ok_or("a tool call's `index` is not a whole number")?),
    };
    let id = text(call, "id", "a tool call's `id` is not text")?;
    let mut fragment = Fragment { choice, index, id, ..Fragment::default() };
    if let Some(function) = present(call, "function") {
        if function.as_object().is_none() {
            return Err("a tool call's `function` is not an object");
        }
        fragment.name = text(function, "name", "a tool call's `name` is not text")?;
        match present(function, "arguments") {
            None => {}
            Some(Value::String(text)) => fragment.arguments.clone_from(text),
            // Some servers send the object itself. What is neither fails the tool's schema later, visibly.
            Some(value) => {
                fragment.arguments = value.to_text();
                fragment.is_whole = true;
            }
        }
    }
    Ok(Some(fragment))
}

/// Maps the wire's usage (SSE-10); input and cached input are disjoint here (MSG-26). What gateways report as written to
/// a cache is part of their prompt count too.
fn read_usage(usage: &Value) -> Option<Usage> {
    let count = |object: &Value, key: &str| object.get(key).and_then(Value::as_u64);
    let detail = |group: &str, key: &str| count(usage.get(group)?, key);
    let (prompt, completion) = (count(usage, "prompt_tokens"), count(usage, "completion_tokens"));
    if prompt.is_none() && completion.is_none() {
        return None;
    }
    let cached = detail("prompt_tokens_details", "cached_tokens").or_else(|| count(usage, "prompt_cache_hit_tokens"));
    let written = ["cache_write_tokens", "cache_creation_tokens"];
    let written = written.iter().find_map(|key| detail("prompt_tokens_details", key));
    let cache = cached.unwrap_or(0).saturating_add(written.unwrap_or(0));
    Some(Usage {
        input_tokens: prompt.unwrap_or(0).saturating_sub(cache),
        output_tokens: completion.unwrap_or(0),
        cache_read_tokens: cached,
        cache_write_tokens: written,
        reasoning_tokens: detail("completion_tokens_details", "reasoning_tokens"),
    })
}
