//! From the events of a responses stream to chunks. Pure: no I/O, no clock, no ids of its own.
//!
//! Each output item is a block. The last word on an item is its `done` event, or the terminal event, which repeats all
//! items. The answer is complete with `response.completed` or `response.incomplete`; a body that ends without one is
//! `STREAM_CLOSED`, whatever was said before.

use crate::json::{Object, Value, parse};
use crate::llm::adapters::http::{Decoder, Progress, quote, stream_failure};
use crate::llm::{Chunk, Failure, FinishReason};
use crate::message::{Block, Usage};

/// The kind of this wire's replay envelopes.
pub(super) const KIND: &str = "openai-responses";

/// Decodes one answer.
pub struct ResponsesDecoder {
    id_prefix: String,
    slots: Vec<Slot>,
    skipped: u64,
    is_done: bool,
}

/// One output item. Its position is the harness index.
struct Slot {
    /// `output_index`, or the item's id from servers that number nothing.
    key: Value,
    kind: Kind,
    text: String,
    /// The part of a text or summary that the last delta belonged to.
    part: Option<u64>,
    call_id: String,
    name: String,
    /// The reasoning item to send back.
    item: Value,
    is_closed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
    Call,
}

fn malformed(what: &str, payload: &str) -> Failure {
    Failure::new("MALFORMED_RESPONSE", format!("{what}: {}", quote(payload)))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl ResponsesDecoder {
    /// A decoder. `id_prefix` makes the ids of calls that the server sends without one; it should be unique per answer.
    pub fn new(id_prefix: impl Into<String>) -> Self {
        Self { id_prefix: id_prefix.into(), slots: Vec::new(), skipped: 0, is_done: false }
    }

    fn skip(&mut self, what: &str, text: &str) {
        self.skipped += 1;
        tracing::debug!(target: "turnwheel", "skipped {what}: {}", quote(text));
    }

    fn event(&mut self, kind: &str, value: &Value, payload: &str, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        match kind {
            "response.created" | "response.in_progress" | "response.queued" => {}
            "response.content_part.added" | "response.content_part.done" => {}
            "response.reasoning_summary_part.added" | "response.reasoning_summary_part.done" => {}
            "response.output_text.annotation.added" => {}
            "response.output_item.added" | "response.output_item.done" => {
                let item = value.get("item").filter(|item| item.as_object().is_some());
                let item = item.ok_or_else(|| malformed("an output item is missing", payload))?;
                let key = value.get("output_index").or_else(|| item.get("id")).cloned().unwrap_or(Value::Null);
                self.item(key, item, kind.ends_with("done"), out);
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                self.delta(Kind::Text, value, "content_index", payload, out)?;
            }
            "response.reasoning_summary_text.delta" => {
                self.delta(Kind::Reasoning, value, "summary_index", payload, out)?;
            }
            "response.reasoning_text.delta" => self.delta(Kind::Reasoning, value, "content_index", payload, out)?,
            "response.function_call_arguments.delta" => self.delta(Kind::Call, value, "none", payload, out)?,
            "response.output_text.done" | "response.refusal.done" => self.whole(Kind::Text, value, out),
            "response.reasoning_summary_text.done" | "response.reasoning_text.done" => {
                self.whole(Kind::Reasoning, value, out);
            }
            "response.function_call_arguments.done" => self.whole(Kind::Call, value, out),
            _ => self.skip("an event of an unknown type", payload),
        }
        Ok(())
    }

    fn find(&self, key: &Value) -> Option<usize> {
        self.slots.iter().position(|slot| slot.key == *key)
    }

    fn open(&mut self, key: Value, kind: Kind, out: &mut Vec<Chunk>) -> usize {
        let block_type = match kind {
            Kind::Text => "text",
            Kind::Reasoning => "reasoning",
            Kind::Call => "tool-call",
        };
        let at = self.slots.len();
        out.push(Chunk::BlockStart { index: at as u64, block_type: block_type.to_owned() });
        let (text, call_id, name) = (String::new(), String::new(), String::new());
        self.slots.push(Slot { key, kind, text, part: None, call_id, name, item: Value::Null, is_closed: false });
        at
    }

    /// An item begins, or is whole.
    fn item(&mut self, key: Value, item: &Value, is_done: bool, out: &mut Vec<Chunk>) {
        let kind = match text(item, "type") {
            "message" => Kind::Text,
            "reasoning" => Kind::Reasoning,
            "function_call" => Kind::Call,
            _ => return self.skip("an output item of an unknown type", &item.to_text()),
        };
        let at = match self.find(&key).filter(|at| self.slots[*at].kind == kind) {
            Some(at) => at,
            None => self.open(key, kind, out),
        };
        let slot = &mut self.slots[at];
        for (member, to) in [("call_id", &mut slot.call_id), ("name", &mut slot.name)] {
            let given = text(item, member);
            if !given.is_empty() {
                *to = given.to_owned();
            }
        }
        if kind == Kind::Reasoning {
            slot.item = kept_reasoning(item);
        }
        if is_done && !slot.is_closed {
            let whole = item_text(kind, item);
            // What the deltas said stands where the whole item says nothing.
            if !whole.is_empty() {
                slot.text = whole;
            }
            self.close(at, out);
        }
    }

    fn slot_for(&mut self, kind: Kind, value: &Value, out: &mut Vec<Chunk>) -> Option<usize> {
        let key = value.get("output_index").or_else(|| value.get("item_id")).cloned().unwrap_or(Value::Null);
        match self.find(&key) {
            Some(at) => (self.slots[at].kind == kind).then_some(at),
            // A call without its item has no name; text needs none.
            None if kind == Kind::Call => None,
            None => Some(self.open(key, kind, out)),
        }
    }

    fn delta(
        &mut self,
        kind: Kind,
        value: &Value,
        part: &str,
        payload: &str,
        out: &mut Vec<Chunk>,
    ) -> Result<(), Failure> {
        let fragment = value.get("delta").and_then(Value::as_str);
        let fragment = fragment.ok_or_else(|| malformed("a delta without its text", payload))?;
        let at = self.slot_for(kind, value, out);
        let at = at.ok_or_else(|| malformed("a delta that fits no output item", payload))?;
        let slot = &mut self.slots[at];
        if slot.is_closed {
            return Err(malformed("a delta for an output item that has ended", payload));
        }
        // Parts of a summary are paragraphs.
        let part = value.get(part).and_then(Value::as_u64);
        let is_next = kind == Kind::Reasoning && slot.part.is_some() && part != slot.part;
        slot.part = part.or(slot.part);
        let fragment = if is_next { format!("\n\n{fragment}") } else { fragment.to_owned() };
        slot.text.push_str(&fragment);
        out.push(slot.delta(at as u64, fragment));
        Ok(())
    }

    /// A part is whole. It is news only to who saw no delta of it.
    fn whole(&mut self, kind: Kind, value: &Value, out: &mut Vec<Chunk>) {
        let Some(at) = self.slot_for(kind, value, out) else { return };
        let slot = &mut self.slots[at];
        let member = if kind == Kind::Call { "arguments" } else { "text" };
        let whole = value.get(member).or_else(|| value.get("refusal")).and_then(Value::as_str).unwrap_or_default();
        if slot.text.is_empty() && !slot.is_closed && !whole.is_empty() {
            slot.text = whole.to_owned();
            out.push(slot.delta(at as u64, whole.to_owned()));
        } else if kind == Kind::Call && !slot.is_closed && !whole.is_empty() {
            slot.text = whole.to_owned();
        }
    }

    fn close(&mut self, at: usize, out: &mut Vec<Chunk>) {
        let slot = &mut self.slots[at];
        slot.is_closed = true;
        let text = std::mem::take(&mut slot.text);
        let block = match slot.kind {
            Kind::Text => Block::Text(text),
            Kind::Reasoning => Block::Reasoning(text),
            Kind::Call => {
                let id = match slot.call_id.as_str() {
                    "" => format!("{}-{at}", self.id_prefix),
                    id => id.to_owned(),
                };
                let arguments = if matches!(text.trim(), "" | "null") { "{}".to_owned() } else { text };
                Block::ToolCall { id: id.into(), name: slot.name.clone(), arguments }
            }
        };
        out.push(Chunk::BlockEnd { index: at as u64, block });
    }

    /// The terminal event: items that came no other way, ends, usage, finish.
    fn finish(&mut self, response: &Value, status: &str, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        self.is_done = true;
        for (index, item) in (0_u64..).zip(response.get("output").and_then(Value::as_array).unwrap_or_default()) {
            let by_id = item.get("id").filter(|id| self.find(id).is_some()).cloned();
            let key = by_id.unwrap_or_else(|| Value::from(index));
            if self.find(&key).is_none_or(|at| !self.slots[at].is_closed) {
                self.item(key, item, true, out);
            }
        }
        let why = response.get("incomplete_details").map_or("", |details| text(details, "reason"));
        let is_cut = status == "incomplete" && matches!(why, "max_output_tokens" | "max_tokens" | "");
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            let is_half = slot.kind == Kind::Call && !slot.text.is_empty() && parse(&slot.text).is_err();
            if !slot.is_closed && is_half && !is_cut {
                let message = "a tool call of the stream was never finished, although the answer was";
                return Err(Failure::new("MALFORMED_RESPONSE", message));
            }
            if !slot.is_closed {
                self.close(at, out);
            }
        }
        let calls = self.slots.iter().filter(|slot| slot.kind == Kind::Call);
        if !is_cut && calls.clone().any(|slot| slot.name.is_empty()) {
            return Err(Failure::new("MALFORMED_RESPONSE", "a tool call of the stream never named its tool"));
        }
        let reason = match status {
            _ if is_cut => FinishReason::MaxTokens,
            "incomplete" => {
                let message = format!("the model stopped with reason `{}`", quote(why));
                FinishReason::error(Failure::new(why.to_uppercase(), message))
            }
            _ if self.slots.is_empty() => {
                FinishReason::error(Failure::new("EMPTY_RESPONSE", "the model answered with nothing"))
            }
            _ if calls.count() > 0 => FinishReason::ToolCalls,
            _ => FinishReason::Stop,
        };
        out.extend(response.get("usage").and_then(read_usage).map(Chunk::Usage));
        let replay_state = self.replay_state(response);
        out.push(Chunk::Finish { reason, replay_state: replay_state.map(Box::new) });
        Ok(())
    }

    fn replay_state(&self, response: &Value) -> Option<Value> {
        if self.slots.iter().all(|slot| slot.item.is_null()) {
            return None;
        }
        let mut envelope = Object::new();
        envelope.insert("kind", KIND);
        envelope.insert("version", 1_u64);
        envelope.insert_some("model", response.get("model").and_then(Value::as_str));
        envelope.insert_some("id", response.get("id").and_then(Value::as_str));
        let mut state = Object::new();
        state.insert("response", envelope);
        state.insert("blocks", self.slots.iter().map(|slot| slot.item.clone()).collect::<Vec<_>>());
        Some(Value::Object(state))
    }
}

impl Slot {
    fn delta(&self, index: u64, text: String) -> Chunk {
        match self.kind {
            Kind::Text => Chunk::TextDelta { index, text },
            Kind::Reasoning => Chunk::ReasoningDelta { index, text },
            Kind::Call => {
                let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
                let (id, name) = (given(&self.call_id), given(&self.name));
                Chunk::ToolCallDelta { index, id, name, arguments_delta: text }
            }
        }
    }
}

/// The text of a whole item.
fn item_text(kind: Kind, item: &Value) -> String {
    let parts = |key: &str| item.get(key).and_then(Value::as_array).unwrap_or_default();
    let part_text = |part: &Value| match text(part, "text") {
        "" => text(part, "refusal").to_owned(),
        text => text.to_owned(),
    };
    match kind {
        Kind::Text => parts("content").iter().map(part_text).collect(),
        Kind::Call => match item.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_text(),
        },
        Kind::Reasoning => {
            let summary = parts("summary").iter().map(part_text).collect::<Vec<_>>().join("\n\n");
            match summary.is_empty() {
                true => parts("content").iter().map(part_text).collect::<Vec<_>>().join("\n\n"),
                false => summary,
            }
        }
    }
}

/// The reasoning item to send back: only an encrypted one is of use to a provider that stores nothing.
fn kept_reasoning(item: &Value) -> Value {
    if text(item, "encrypted_content").is_empty() {
        return Value::Null;
    }
    let mut kept = Object::new();
    kept.insert("type", "reasoning");
    for key in ["id", "summary", "content", "encrypted_content"] {
        if let Some(value) = item.get(key).filter(|value| !value.is_null()) {
            kept.insert(key, value.clone());
        }
    }
    if kept.get("summary").is_none() {
        kept.insert("summary", Vec::<Value>::new());
    }
    Value::Object(kept)
}

impl Decoder for ResponsesDecoder {
    fn skipped(&self) -> u64 {
        self.skipped
    }

    fn payload(&mut self, name: &str, data: &str, out: &mut Vec<Chunk>) -> Result<Progress, Failure> {
        let payload = data.trim();
        if self.is_done {
            return Ok(Progress::Done);
        }
        // Without a terminal event the other wire's sentinel ends nothing.
        if payload == "[DONE]" {
            self.end(out)?;
            return Ok(Progress::Done);
        }
        if payload.is_empty() || payload.starts_with(':') {
            self.skip("a comment sent as data", payload);
            return Ok(Progress::KeepAlive);
        }
        let value = parse(payload);
        let value = value.map_err(|error| malformed(&format!("a stream payload is not JSON ({error})"), payload))?;
        if value.as_object().is_none() {
            return Err(malformed("a stream payload is not an object", payload));
        }
        let kind = value.get("type").and_then(Value::as_str).unwrap_or(name).to_owned();
        let nothing = Value::Null;
        let response = value.get("response").unwrap_or(&nothing);
        match kind.as_str() {
            "ping" | "keepalive" => return Ok(Progress::KeepAlive),
            "response.completed" => self.finish(response, "completed", out)?,
            "response.incomplete" => self.finish(response, "incomplete", out)?,
            "response.failed" | "response.cancelled" => {
                let error = response.get("error").filter(|error| !error.is_null()).unwrap_or(response);
                return Err(stream_failure(error));
            }
            "error" => return Err(stream_failure(&value)),
            _ if text(&value, "object") == "response" => match text(&value, "status") {
                "failed" | "cancelled" => return Err(stream_failure(&value)),
                status => self.finish(&value, if status.is_empty() { "completed" } else { status }, out)?,
            },
            _ if value.get("error").is_some_and(|error| !error.is_null()) => return Err(stream_failure(&value)),
            kind => self.event(kind, &value, payload, out)?,
        }
        Ok(if self.is_done { Progress::Done } else { Progress::More })
    }

    fn end(&mut self, _out: &mut Vec<Chunk>) -> Result<(), Failure> {
        if self.is_done {
            return Ok(());
        }
        let message = "the stream ended without response.completed; the answer is incomplete";
        Err(Failure::new("STREAM_CLOSED", message))
    }

    fn has_finish_reason(&self) -> bool {
        self.is_done
    }
}

/// Maps the wire's usage; input and cached input are disjoint here (MSG-26).
fn read_usage(usage: &Value) -> Option<Usage> {
    let count = |object: &Value, key: &str| object.get(key).and_then(Value::as_u64);
    let detail = |group: &str, key: &str| count(usage.get(group)?, key);
    let (input, output) = (count(usage, "input_tokens"), count(usage, "output_tokens"));
    if input.is_none() && output.is_none() {
        return None;
    }
    let cached = detail("input_tokens_details", "cached_tokens");
    let written = detail("input_tokens_details", "cache_write_tokens");
    let cache = cached.unwrap_or(0).saturating_add(written.unwrap_or(0));
    Some(Usage {
        input_tokens: input.unwrap_or(0).saturating_sub(cache),
        output_tokens: output.unwrap_or(0),
        cache_read_tokens: cached,
        cache_write_tokens: written,
        reasoning_tokens: detail("output_tokens_details", "reasoning_tokens"),
    })
}
