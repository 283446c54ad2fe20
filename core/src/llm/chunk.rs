//! Stream chunks: what an adapter yields while a model answers (STR-01, STR-02).

use super::Failure;
use crate::json::{Object, Value, write_number, write_str};
use crate::message::{Block, Usage};

/// One piece of a streamed answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Chunk {
    /// A block begins. `index` is a key, not a position (STR-04).
    BlockStart {
        /// The block's key.
        index: u64,
        /// `text`, `reasoning`, `tool-call`, or a type unknown here.
        block_type: String,
    },
    /// More text.
    TextDelta {
        /// The block's key.
        index: u64,
        /// The fragment.
        text: String,
    },
    /// More reasoning.
    ReasoningDelta {
        /// The block's key.
        index: u64,
        /// The fragment.
        text: String,
    },
    /// More of a tool call.
    ToolCallDelta {
        /// The block's key.
        index: u64,
        /// The call's id, when known.
        id: Option<String>,
        /// The tool's name, when known.
        name: Option<String>,
        /// The fragment of the argument text.
        arguments_delta: String,
    },
    /// A block ends; `block` is the authority for its content (STR-05).
    BlockEnd {
        /// The block's key.
        index: u64,
        /// The whole block.
        block: Block,
    },
    /// Token usage.
    Usage(Usage),
    /// The answer ends.
    Finish {
        /// Why.
        reason: FinishReason,
        /// Provider-private continuation data, `{response, blocks?}` (MSG-21). Boxed, like failures, so that the many
        /// chunks that are deltas stay small.
        replay_state: Option<Box<Value>>,
    },
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq)]
pub enum FinishReason {
    /// The model was done.
    Stop,
    /// The model wants its tool calls answered.
    ToolCalls,
    /// The output limit was hit.
    MaxTokens,
    /// The call failed.
    Error(Box<Failure>),
    /// The call was aborted.
    Aborted(Box<Failure>),
}

impl FinishReason {
    /// The call failed.
    pub fn error(failure: Failure) -> Self {
        FinishReason::Error(Box::new(failure))
    }

    /// The call was aborted.
    pub fn aborted(failure: Failure) -> Self {
        FinishReason::Aborted(Box::new(failure))
    }

    /// The kind in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::ToolCalls => "tool-calls",
            FinishReason::MaxTokens => "max-tokens",
            FinishReason::Error(_) => "error",
            FinishReason::Aborted(_) => "aborted",
        }
    }

    fn from_value(value: &Value) -> Option<Self> {
        let failure = || Failure::from_value(value.get("failure")?);
        match value.get("kind")?.as_str()? {
            "stop" => Some(FinishReason::Stop),
            "tool-calls" => Some(FinishReason::ToolCalls),
            "max-tokens" => Some(FinishReason::MaxTokens),
            "error" => Some(FinishReason::error(failure()?)),
            "aborted" => Some(FinishReason::aborted(failure()?)),
            _ => None,
        }
    }

    fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.insert("kind", self.kind());
        if let FinishReason::Error(failure) | FinishReason::Aborted(failure) = self {
            object.insert("failure", failure.to_value());
        }
        Value::Object(object)
    }
}

impl Chunk {
    /// About how many bytes of memory it takes besides itself.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Chunk::TextDelta { text, .. } | Chunk::ReasoningDelta { text, .. } => text.len(),
            Chunk::ToolCallDelta { arguments_delta, .. } => arguments_delta.len(),
            Chunk::BlockEnd { block, .. } => block.weight(),
            Chunk::Finish { replay_state, .. } => replay_state.as_ref().map_or(0, |state| state.weight()),
            Chunk::BlockStart { .. } | Chunk::Usage(_) => 0,
        }
    }

    /// Whether it counts as a token when the time to the first one is measured: text, reasoning or a piece of a call's
    /// arguments that is not empty, or a call's name, even an empty one (STR-06).
    pub fn is_token(&self) -> bool {
        match self {
            Chunk::TextDelta { text, .. } | Chunk::ReasoningDelta { text, .. } => !text.is_empty(),
            Chunk::ToolCallDelta { name, arguments_delta, .. } => name.is_some() || !arguments_delta.is_empty(),
            Chunk::BlockStart { .. } | Chunk::BlockEnd { .. } | Chunk::Usage(_) | Chunk::Finish { .. } => false,
        }
    }

    /// The chunk's `type`.
    pub fn kind(&self) -> &'static str {
        match self {
            Chunk::BlockStart { .. } => "block-start",
            Chunk::TextDelta { .. } => "text-delta",
            Chunk::ReasoningDelta { .. } => "reasoning-delta",
            Chunk::ToolCallDelta { .. } => "tool-call-delta",
            Chunk::BlockEnd { .. } => "block-end",
            Chunk::Usage(_) => "usage",
            Chunk::Finish { .. } => "finish",
        }
    }

    /// Reads a chunk; `None` for an unknown type or a known one with members missing, mistyped or unknown.
    pub fn from_value(value: &Value) -> Option<Self> {
        let object = value.as_object()?;
        let text = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
        let index = || object.get("index").and_then(Value::as_u64);
        let optional_text = |key: &str| match object.get(key) {
            Some(value) => value.as_str().map(|text| Some(text.to_owned())),
            None => Some(None),
        };
        let (chunk, members) = match object.get("type")?.as_str()? {
            "block-start" => (Chunk::BlockStart { index: index()?, block_type: text("blockType")? }, 3),
            "text-delta" => (Chunk::TextDelta { index: index()?, text: text("text")? }, 3),
            "reasoning-delta" => (Chunk::ReasoningDelta { index: index()?, text: text("text")? }, 3),
            "tool-call-delta" => {
                let (id, name) = (optional_text("id")?, optional_text("name")?);
                let members = 3 + usize::from(id.is_some()) + usize::from(name.is_some());
                let arguments_delta = text("argumentsDelta")?;
                (Chunk::ToolCallDelta { index: index()?, id, name, arguments_delta }, members)
            }
            "block-end" => (Chunk::BlockEnd { index: index()?, block: Block::from_value(object.get("block")?) }, 3),
            "usage" => (Chunk::Usage(Usage::from_value(object.get("usage")?)?), 2),
            "finish" => {
                let replay_state = object.get("replayState").cloned().map(Box::new);
                let members = 2 + usize::from(replay_state.is_some());
                (Chunk::Finish { reason: FinishReason::from_value(object.get("reason")?)?, replay_state }, members)
            }
            _ => return None,
        };
        (object.len() == members).then_some(chunk)
    }

    /// Appends the JSON text.
    pub fn write(&self, out: &mut String) {
        out.push_str("{\"type\":\"");
        out.push_str(self.kind());
        out.push('"');
        let member = |name: &str, out: &mut String| {
            out.push_str(",\"");
            out.push_str(name);
            out.push_str("\":");
        };
        let text = |name: &str, text: &str, out: &mut String| {
            member(name, out);
            write_str(text, out);
        };
        if let Some(index) = self.index() {
            member("index", out);
            write_number(index as f64, out);
        }
        match self {
            Chunk::BlockStart { block_type, .. } => text("blockType", block_type, out),
            Chunk::TextDelta { text: fragment, .. } | Chunk::ReasoningDelta { text: fragment, .. } => {
                text("text", fragment, out);
            }
            Chunk::ToolCallDelta { id, name, arguments_delta, .. } => {
                if let Some(id) = id {
                    text("id", id, out);
                }
                if let Some(name) = name {
                    text("name", name, out);
                }
                text("argumentsDelta", arguments_delta, out);
            }
            Chunk::BlockEnd { block, .. } => {
                member("block", out);
                block.write(out);
            }
            Chunk::Usage(usage) => {
                member("usage", out);
                usage.to_value().write(out);
            }
            Chunk::Finish { reason, replay_state } => {
                member("reason", out);
                reason.to_value().write(out);
                if let Some(state) = replay_state {
                    member("replayState", out);
                    state.write(out);
                }
            }
        }
        out.push('}');
    }

    /// The key of the block this chunk belongs to.
    pub fn index(&self) -> Option<u64> {
        match self {
            Chunk::BlockStart { index, .. }
            | Chunk::TextDelta { index, .. }
            | Chunk::ReasoningDelta { index, .. }
            | Chunk::ToolCallDelta { index, .. }
            | Chunk::BlockEnd { index, .. } => Some(*index),
            Chunk::Usage(_) | Chunk::Finish { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Block, Usage};

    #[test]
    fn str_6_what_counts_as_a_token() {
        let text = |text: &str| Chunk::TextDelta { index: 0, text: text.into() };
        let thought = |text: &str| Chunk::ReasoningDelta { index: 0, text: text.into() };
        let call = |id: Option<&str>, name: Option<&str>, arguments: &str| Chunk::ToolCallDelta {
            index: 0,
            id: id.map(Into::into),
            name: name.map(Into::into),
            arguments_delta: arguments.into(),
        };
        for token in
            [text("a"), thought(" "), call(None, None, "{"), call(None, Some(""), ""), call(None, Some("f"), "")]
        {
            assert!(token.is_token(), "{token:?}");
        }
        let block = Block::Text("a".into());
        let others = [
            text(""),
            thought(""),
            call(Some("c"), None, ""),
            Chunk::BlockStart { index: 0, block_type: "text".into() },
            Chunk::BlockEnd { index: 0, block },
            Chunk::Usage(Usage::default()),
        ];
        for other in others {
            assert!(!other.is_token(), "{other:?}");
        }
    }
}
