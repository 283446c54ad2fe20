//! From the events of a messages stream to chunks. Pure: no I/O, no clock, no ids of its own.
//!
//! A block ends with its stop event. The answer is complete when a stop reason or `message_stop` came; a body that ends
//! with neither is `STREAM_CLOSED`, whatever was said before.

use crate::json::{Object, Value, parse};
use crate::llm::adapters::http::{Decoder, Progress, quote, stream_failure};
use crate::llm::{Chunk, Failure, FinishReason};
use crate::message::{Block, Usage};

/// The kind of this wire's replay envelopes.
pub(super) const KIND: &str = "anthropic-messages";

/// Decodes one answer.
pub struct AnthropicDecoder {
    id_prefix: String,
    slots: Vec<Slot>,
    usage: Option<Usage>,
    message: Object,
    stop: Option<String>,
    skipped: u64,
    is_done: bool,
}

/// One content block. Its position is the harness index.
struct Slot {
    /// The wire's index.
    index: u64,
    kind: Kind,
    /// Text, thinking or argument text.
    text: String,
    is_closed: bool,
}

enum Kind {
    Text,
    Thinking {
        signature: String,
    },
    Redacted {
        data: String,
    },
    Tool {
        id: String,
        name: String,
        input: Option<Value>,
    },
    /// A block that only the provider understands: kept and sent back as it came.
    Verbatim(Object),
}

fn malformed(what: &str, payload: &str) -> Failure {
    Failure::new("MALFORMED_RESPONSE", format!("{what}: {}", quote(payload)))
}

fn text_of(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

impl AnthropicDecoder {
    /// A decoder. `id_prefix` makes the ids of calls that the server sends without one; it should be unique per answer.
    pub fn new(id_prefix: impl Into<String>) -> Self {
        Self {
            id_prefix: id_prefix.into(),
            slots: Vec::new(),
            usage: None,
            message: Object::new(),
            stop: None,
            skipped: 0,
            is_done: false,
        }
    }

    fn skip(&mut self, what: &str, text: &str) {
        self.skipped += 1;
        tracing::debug!(target: "turnwheel", "skipped {what}: {}", quote(text));
    }

    fn event(&mut self, kind: &str, value: &Value, text: &str, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        match kind {
            "message_start" => {
                let message = value.get("message").ok_or_else(|| malformed("`message_start` has no message", text))?;
                self.begin(message);
                // Some servers put content there already.
                for (index, block) in (0..).zip(message.get("content").and_then(Value::as_array).unwrap_or_default()) {
                    self.open(index, block, out);
                }
                Ok(())
            }
            "content_block_start" => {
                let block = value.get("content_block").filter(|block| block.as_object().is_some());
                let block = block.ok_or_else(|| malformed("`content_block_start` has no block", text))?;
                self.open(index_of(value, text)?, block, out);
                Ok(())
            }
            "content_block_delta" => {
                let delta = value.get("delta").filter(|delta| delta.as_object().is_some());
                let delta = delta.ok_or_else(|| malformed("`content_block_delta` has no delta", text))?;
                self.delta(index_of(value, text)?, delta, text, out)
            }
            "content_block_stop" => {
                let index = index_of(value, text)?;
                match self.slots.iter().position(|slot| slot.index == index) {
                    Some(at) => self.close(at, out),
                    None => self.skip("the end of a block that never began", text),
                }
                Ok(())
            }
            "message_delta" => {
                if let Some(usage) = value.get("usage") {
                    self.usage = read_usage(usage, self.usage).or(self.usage);
                }
                let reason = value.get("delta").and_then(|delta| delta.get("stop_reason")).and_then(Value::as_str);
                if let Some(reason) = reason {
                    self.stop = Some(reason.to_owned());
                }
                Ok(())
            }
            _ => {
                self.skip("an event of an unknown type", text);
                Ok(())
            }
        }
    }

    fn begin(&mut self, message: &Value) {
        for key in ["model", "id"] {
            if let Some(text) = message.get(key).and_then(Value::as_str) {
                self.message.insert(key, text);
            }
        }
        if let Some(usage) = message.get("usage") {
            self.usage = read_usage(usage, self.usage).or(self.usage);
        }
        if let Some(reason) = message.get("stop_reason").and_then(Value::as_str) {
            self.stop = Some(reason.to_owned());
        }
    }

    /// Opens a block. What a start event holds already counts as its first delta.
    fn open(&mut self, index: u64, block: &Value, out: &mut Vec<Chunk>) {
        if self.slots.iter().any(|slot| slot.index == index) {
            return self.skip("a second start of a block", &block.to_text());
        }
        let kind = match block.get("type").and_then(Value::as_str).unwrap_or_default() {
            "text" => Kind::Text,
            "thinking" => Kind::Thinking { signature: text_of(block, "signature") },
            "redacted_thinking" => Kind::Redacted { data: text_of(block, "data") },
            "tool_use" => {
                let filled = |input: &&Value| input.as_object().is_none_or(|members| !members.is_empty());
                let input = block.get("input").filter(|input| !input.is_null()).filter(filled).cloned();
                Kind::Tool { id: text_of(block, "id"), name: text_of(block, "name"), input }
            }
            _ => Kind::Verbatim(block.as_object().cloned().unwrap_or_default()),
        };
        let said = match kind {
            Kind::Text => text_of(block, "text"),
            Kind::Thinking { .. } => text_of(block, "thinking"),
            Kind::Redacted { .. } | Kind::Tool { .. } | Kind::Verbatim(_) => String::new(),
        };
        let block_type = match &kind {
            Kind::Text => "text".to_owned(),
            Kind::Thinking { .. } | Kind::Redacted { .. } => "reasoning".to_owned(),
            Kind::Tool { .. } => "tool-call".to_owned(),
            Kind::Verbatim(block) => block.get("type").and_then(Value::as_str).unwrap_or("unknown").to_owned(),
        };
        let at = self.slots.len();
        self.slots.push(Slot { index, kind, text: String::new(), is_closed: false });
        out.push(Chunk::BlockStart { index: at as u64, block_type });
        if !said.is_empty() {
            self.say(at, &said, out);
        }
    }

    /// Adds text to a block.
    fn say(&mut self, at: usize, fragment: &str, out: &mut Vec<Chunk>) {
        let slot = &mut self.slots[at];
        slot.text.push_str(fragment);
        let (index, text) = (at as u64, fragment.to_owned());
        match &slot.kind {
            Kind::Text => out.push(Chunk::TextDelta { index, text }),
            Kind::Thinking { .. } | Kind::Redacted { .. } => out.push(Chunk::ReasoningDelta { index, text }),
            Kind::Tool { id, name, .. } => {
                let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
                out.push(Chunk::ToolCallDelta { index, id: given(id), name: given(name), arguments_delta: text });
            }
            Kind::Verbatim(_) => {}
        }
    }

    fn delta(&mut self, index: u64, delta: &Value, text: &str, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        let kind = delta.get("type").and_then(Value::as_str).unwrap_or_default();
        let at = self.slots.iter().position(|slot| slot.index == index);
        let Some(at) = at.or_else(|| self.open_for(index, kind, out)) else {
            return Err(malformed("a delta for a block that never began", text));
        };
        if self.slots[at].is_closed {
            return Err(malformed("a delta for a block that has ended", text));
        }
        let slot = &mut self.slots[at];
        let member = |key: &str| delta.get(key).and_then(Value::as_str);
        let fragment = match (&mut slot.kind, kind) {
            (Kind::Text, "text_delta") => member("text"),
            (Kind::Tool { .. } | Kind::Verbatim(_), "input_json_delta") => member("partial_json"),
            (Kind::Thinking { signature }, "thinking_delta" | "signature_delta") => {
                let signed = member("signature").unwrap_or_default();
                signature.push_str(signed);
                // Beside the signature a gateway may send the whole text again.
                let is_repeat = |text: &&str| !signed.is_empty() && *text == slot.text;
                Some(member("thinking").filter(|text| !is_repeat(text)).unwrap_or_default())
            }
            (_, "citations_delta") => return Ok(()),
            (_, "text_delta" | "input_json_delta" | "thinking_delta" | "signature_delta") => {
                return Err(malformed("a delta of another kind than its block", text));
            }
            _ => {
                self.skip("a delta of an unknown type", text);
                return Ok(());
            }
        };
        let fragment = fragment.ok_or_else(|| malformed("a delta without its text", text))?.to_owned();
        if !fragment.is_empty() {
            self.say(at, &fragment, out);
        }
        Ok(())
    }

    /// Opens a block whose start event is missing, where the delta says all that is needed.
    fn open_for(&mut self, index: u64, kind: &str, out: &mut Vec<Chunk>) -> Option<usize> {
        let block = match kind {
            "text_delta" => crate::json!({"type": "text"}),
            "thinking_delta" => crate::json!({"type": "thinking"}),
            _ => return None,
        };
        self.open(index, &block, out);
        Some(self.slots.len() - 1)
    }

    fn close(&mut self, at: usize, out: &mut Vec<Chunk>) {
        let slot = &mut self.slots[at];
        if std::mem::replace(&mut slot.is_closed, true) {
            return;
        }
        let text = std::mem::take(&mut slot.text);
        let block = match &mut slot.kind {
            Kind::Text => Block::Text(text),
            Kind::Thinking { .. } => Block::Reasoning(text),
            Kind::Redacted { .. } => Block::Reasoning(String::new()),
            Kind::Tool { id, name, input } => {
                let id = if id.is_empty() { format!("{}-{at}", self.id_prefix) } else { id.clone() };
                let arguments = match (text.trim(), input) {
                    ("", Some(input)) => input.to_text(),
                    ("" | "null", _) => "{}".to_owned(),
                    _ => text,
                };
                Block::ToolCall { id: id.into(), name: name.clone(), arguments }
            }
            Kind::Verbatim(block) => {
                if let Ok(input) = parse(&text) {
                    block.insert("input", input);
                }
                Block::Other(Value::Object(block.clone()))
            }
        };
        out.push(Chunk::BlockEnd { index: at as u64, block });
    }

    /// Ends what is open, then usage and finish.
    fn finish(&mut self, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        if std::mem::replace(&mut self.is_done, true) {
            return Ok(());
        }
        let reason = finish_reason(self.stop.as_deref(), &self.slots);
        let is_cut = reason == FinishReason::MaxTokens;
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            if slot.is_closed {
                continue;
            }
            let is_half = matches!(slot.kind, Kind::Tool { .. }) && parse(&slot.text).is_err() && !slot.text.is_empty();
            if is_half && self.stop.is_none() {
                let message = "the stream ended in the middle of a tool call and gave no stop reason";
                return Err(Failure::new("STREAM_CLOSED", message));
            }
            if is_half && !is_cut {
                let message = "a tool call of the stream was never finished, although the answer was";
                return Err(Failure::new("MALFORMED_RESPONSE", message));
            }
            if is_half {
                tracing::debug!(target: "turnwheel", "a tool call was cut by the output ceiling and is dropped");
            }
            self.close(at, out);
        }
        let nameless = |slot: &Slot| matches!(&slot.kind, Kind::Tool { name, .. } if name.is_empty());
        if !is_cut && self.slots.iter().any(nameless) {
            return Err(Failure::new("MALFORMED_RESPONSE", "a tool call of the stream never named its tool"));
        }
        out.extend(self.usage.take().map(Chunk::Usage));
        let replay_state = self.replay_state();
        out.push(Chunk::Finish { reason, replay_state: replay_state.map(Box::new) });
        Ok(())
    }

    /// What the provider wants back besides the blocks: one entry a block, null where the block says it all.
    fn replay_state(&mut self) -> Option<Value> {
        let entry = |slot: &Slot| match &slot.kind {
            Kind::Thinking { signature } if !signature.is_empty() => {
                crate::json!({"type": "thinking", "signature": signature.as_str()})
            }
            Kind::Redacted { data } => crate::json!({"type": "redacted_thinking", "data": data.as_str()}),
            Kind::Verbatim(_) => crate::json!({"type": "verbatim"}),
            Kind::Text | Kind::Thinking { .. } | Kind::Tool { .. } => Value::Null,
        };
        let blocks: Vec<Value> = self.slots.iter().map(entry).collect();
        if blocks.iter().all(Value::is_null) {
            return None;
        }
        let mut response = Object::new();
        response.insert("kind", KIND);
        response.insert("version", 1_u64);
        for (key, value) in self.message.iter() {
            response.insert(key, value.clone());
        }
        let mut state = Object::new();
        state.insert("response", response);
        state.insert("blocks", blocks);
        Some(Value::Object(state))
    }

    /// A whole message, from a server that does not stream.
    fn whole(&mut self, message: &Value, out: &mut Vec<Chunk>) {
        self.begin(message);
        for (index, block) in (0..).zip(message.get("content").and_then(Value::as_array).unwrap_or_default()) {
            self.open(index, block, out);
        }
        for at in 0..self.slots.len() {
            self.close(at, out);
        }
    }
}

fn index_of(value: &Value, text: &str) -> Result<u64, Failure> {
    value.get("index").and_then(Value::as_u64).ok_or_else(|| malformed("an event of a block has no `index`", text))
}

impl Decoder for AnthropicDecoder {
    fn skipped(&self) -> u64 {
        self.skipped
    }

    fn payload(&mut self, name: &str, data: &str, out: &mut Vec<Chunk>) -> Result<Progress, Failure> {
        let text = data.trim();
        if self.is_done {
            return Ok(Progress::Done);
        }
        // Gateways that speak both wires close with the other one's sentinel.
        if text == "[DONE]" {
            self.end(out)?;
            return Ok(Progress::Done);
        }
        if text.is_empty() || text.starts_with(':') {
            self.skip("a comment sent as data", text);
            return Ok(Progress::KeepAlive);
        }
        let value = parse(text).map_err(|error| malformed(&format!("a stream payload is not JSON ({error})"), text))?;
        if value.as_object().is_none() {
            return Err(malformed("a stream payload is not an object", text));
        }
        let kind = value.get("type").and_then(Value::as_str).unwrap_or(name).to_owned();
        match kind.as_str() {
            "ping" => return Ok(Progress::KeepAlive),
            "error" => return Err(stream_failure(&value)),
            _ if value.get("error").is_some_and(|error| !error.is_null()) => return Err(stream_failure(&value)),
            "message" => self.whole(&value, out),
            "message_stop" => {
                self.finish(out)?;
                return Ok(Progress::Done);
            }
            kind => self.event(kind, &value, text, out)?,
        }
        Ok(Progress::More)
    }

    fn end(&mut self, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        if self.stop.is_none() && !self.is_done {
            let message = "the stream ended without a stop reason or message_stop; the answer is incomplete";
            return Err(Failure::new("STREAM_CLOSED", message));
        }
        self.finish(out)
    }

    fn has_finish_reason(&self) -> bool {
        self.stop.is_some()
    }
}

fn finish_reason(stop: Option<&str>, slots: &[Slot]) -> FinishReason {
    let has_calls = slots.iter().any(|slot| matches!(slot.kind, Kind::Tool { .. }));
    match stop {
        // The window being full cuts an answer as the ceiling does.
        Some("max_tokens" | "model_context_window_exceeded") => FinishReason::MaxTokens,
        None | Some("end_turn" | "stop_sequence" | "tool_use") => match slots.is_empty() {
            true => FinishReason::error(Failure::new("EMPTY_RESPONSE", "the model answered with nothing")),
            false if has_calls => FinishReason::ToolCalls,
            false => FinishReason::Stop,
        },
        Some(other) => {
            let message = format!("the model stopped with reason `{}`", quote(other));
            FinishReason::error(Failure::new(other.to_uppercase(), message))
        }
    }
}

/// Reads usage over what is known; later counts replace earlier ones. This wire's input excludes what a cache gave
/// or took (MSG-26).
fn read_usage(usage: &Value, known: Option<Usage>) -> Option<Usage> {
    let count = |key: &str| usage.get(key).and_then(Value::as_u64);
    let (input, output) = (count("input_tokens"), count("output_tokens"));
    if input.is_none() && output.is_none() {
        return None;
    }
    let known = known.unwrap_or_default();
    let details = usage.get("output_tokens_details");
    let thinking =
        details.and_then(|details| details.get("thinking_tokens").or_else(|| details.get("reasoning_tokens")));
    Some(Usage {
        input_tokens: input.unwrap_or(known.input_tokens),
        output_tokens: output.unwrap_or(known.output_tokens),
        cache_read_tokens: count("cache_read_input_tokens").or(known.cache_read_tokens),
        cache_write_tokens: count("cache_creation_input_tokens").or(known.cache_write_tokens),
        reasoning_tokens: thinking.and_then(Value::as_u64).or(known.reasoning_tokens),
    })
}
