//! Content blocks. Types that nobody here knows are kept verbatim (MSG-12).

use crate::id::CallId;
use crate::json::{Object, Value, write_str};

/// One part of a message's content.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// `{type:"text", text}`; may be empty (MSG-06).
    Text(String),
    /// `{type:"reasoning", text}` (MSG-07).
    Reasoning(String),
    /// `{type:"tool-call", id, name, arguments}`; the arguments are the model's own text, perhaps invalid (MSG-08).
    ToolCall {
        /// The call's id.
        id: CallId,
        /// The tool asked for.
        name: String,
        /// The raw argument text.
        arguments: String,
    },
    /// `{type:"tool-result", toolCallId, content, isError?}`; absent `isError` reads as false (MSG-09).
    ToolResult {
        /// The call answered.
        tool_call_id: CallId,
        /// The answer.
        content: Vec<Block>,
        /// Whether the call failed.
        is_error: Option<bool>,
    },
    /// Any other block: an image reference, or a type unknown here.
    Other(Value),
}

impl Block {
    /// Reads a block. A known type with members that are missing, mistyped or unknown is kept as [`Block::Other`].
    pub fn from_value(value: &Value) -> Self {
        value.as_object().and_then(Self::known).unwrap_or_else(|| Block::Other(value.clone()))
    }

    fn known(object: &Object) -> Option<Self> {
        let text = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
        let only = |count: usize| (object.len() == count).then_some(());
        match object.get("type")?.as_str()? {
            "text" => only(2).and_then(|()| Some(Block::Text(text("text")?))),
            "reasoning" => only(2).and_then(|()| Some(Block::Reasoning(text("text")?))),
            "tool-call" => {
                only(4)?;
                Some(Block::ToolCall { id: text("id")?.into(), name: text("name")?, arguments: text("arguments")? })
            }
            "tool-result" => {
                let is_error = match object.get("isError") {
                    Some(value) => Some(value.as_bool()?),
                    None => None,
                };
                only(3 + usize::from(is_error.is_some()))?;
                let content = object.get("content")?.as_array()?.iter().map(Block::from_value).collect();
                Some(Block::ToolResult { tool_call_id: text("toolCallId")?.into(), content, is_error })
            }
            _ => None,
        }
    }

    /// About how many bytes of memory it takes besides itself.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Block::Text(text) | Block::Reasoning(text) => text.len(),
            Block::ToolCall { arguments, .. } => arguments.len(),
            Block::ToolResult { content, .. } => content.iter().map(Block::weight).sum(),
            Block::Other(value) => value.weight(),
        }
    }

    /// The block's `type`.
    pub fn kind(&self) -> &str {
        match self {
            Block::Text(_) => "text",
            Block::Reasoning(_) => "reasoning",
            Block::ToolCall { .. } => "tool-call",
            Block::ToolResult { .. } => "tool-result",
            Block::Other(value) => value.get("type").and_then(Value::as_str).unwrap_or(""),
        }
    }

    /// The text of a text block, also of one with additional members.
    pub fn text(&self) -> Option<&str> {
        match self {
            Block::Text(text) => Some(text),
            Block::Other(value) if self.kind() == "text" => value.get("text")?.as_str(),
            _ => None,
        }
    }

    /// The text of a reasoning block, also of one with additional members.
    pub fn reasoning(&self) -> Option<&str> {
        match self {
            Block::Reasoning(text) => Some(text),
            Block::Other(value) if self.kind() == "reasoning" => value.get("text")?.as_str(),
            _ => None,
        }
    }

    /// Appends the JSON text.
    pub fn write(&self, out: &mut String) {
        match self {
            Block::Text(text) => {
                out.push_str("{\"type\":\"text\",\"text\":");
                write_str(text, out);
            }
            Block::Reasoning(text) => {
                out.push_str("{\"type\":\"reasoning\",\"text\":");
                write_str(text, out);
            }
            Block::ToolCall { id, name, arguments } => {
                out.push_str("{\"type\":\"tool-call\",\"id\":");
                write_str(id, out);
                out.push_str(",\"name\":");
                write_str(name, out);
                out.push_str(",\"arguments\":");
                write_str(arguments, out);
            }
            Block::ToolResult { tool_call_id, content, is_error } => {
                out.push_str("{\"type\":\"tool-result\",\"toolCallId\":");
                write_str(tool_call_id, out);
                out.push_str(",\"content\":");
                Block::write_list(content, out);
                if let Some(is_error) = is_error {
                    out.push_str(if *is_error { ",\"isError\":true" } else { ",\"isError\":false" });
                }
            }
            Block::Other(value) => return value.write(out),
        }
        out.push('}');
    }

    /// Appends the JSON text of a list of blocks.
    pub fn write_list(blocks: &[Block], out: &mut String) {
        out.push('[');
        for (i, block) in blocks.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            block.write(out);
        }
        out.push(']');
    }

    /// The block as a JSON value.
    pub fn to_value(&self) -> Value {
        let mut text = String::new();
        self.write(&mut text);
        crate::json::parse(&text).expect("a block's own text is JSON")
    }
}
