//! Messages: what users, models and tools say (data.md section 1).
//!
//! A message is `{id, role, content, source}` and immutable. The typed fields are what the runtime understands; the
//! JSON text, kept from the input or rendered once, is the truth, so that members nobody here knows survive.

mod block;
mod source;
mod usage;

pub use block::Block;
pub use source::Source;
pub use usage::Usage;

use crate::error::{Code, Error, Result};
use crate::id::{CallId, MessageId};
use crate::json::{Object, Value, write_str};
use std::sync::{Arc, OnceLock};

/// Who speaks. Tool results are user messages (MSG-01).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions.
    System,
    /// People, tools and plug-ins.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

/// One immutable message.
pub struct Message {
    id: MessageId,
    role: Role,
    content: Vec<Block>,
    source: Source,
    text: OnceLock<Arc<str>>,
}

impl Message {
    /// A message of human input.
    pub fn user(id: impl Into<MessageId>, content: Vec<Block>) -> Self {
        Self::new(id, Role::User, content, Source::User)
    }

    /// A message of human input with one text block.
    pub fn user_text(id: impl Into<MessageId>, text: impl Into<String>) -> Self {
        Self::user(id, vec![Block::Text(text.into())])
    }

    /// A message with a source of the caller's choice.
    pub fn new(id: impl Into<MessageId>, role: Role, content: Vec<Block>, source: Source) -> Self {
        Self { id: id.into(), role, content, source, text: OnceLock::new() }
    }

    /// What a tool answered to a call (MSG-10).
    pub fn tool_result(id: impl Into<MessageId>, call_id: CallId, content: Vec<Block>, is_error: bool) -> Self {
        let block = Block::ToolResult { tool_call_id: call_id.clone(), content, is_error: Some(is_error) };
        Self::new(id, Role::User, vec![block], Source::Tool { call_id })
    }

    /// Reads and checks a message (APP-14). The text of `value` is kept as it is.
    pub fn from_value(value: &Value) -> Result<Self> {
        let invalid = |what: &str| Error::new(Code::InvalidMessage, format!("a message needs {what}"));
        let object = value.as_object().ok_or_else(|| invalid("to be an object"))?;
        let id = object.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
        let id = MessageId::from(id.ok_or_else(|| invalid("a non-empty string `id`"))?);
        let role = match object.get("role").and_then(Value::as_str) {
            Some("system") => Role::System,
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            _ => return Err(invalid("a `role`: system, user or assistant").with("id", id.as_str())),
        };
        let content = object.get("content").and_then(Value::as_array);
        let content = content.ok_or_else(|| invalid("an array of blocks as `content`").with("id", id.as_str()))?;
        let source = object.get("source").and_then(Value::as_object);
        let source = source.ok_or_else(|| invalid("an object as `source`").with("id", id.as_str()))?;
        let source = Source::from_object(source)?;
        let content = content.iter().map(Block::from_value).collect();
        let message = Self { id, role, content, source, text: OnceLock::new() };
        message.check()?;
        if message.render() != value.to_text() {
            let _ = message.text.set(value.to_text().into());
        }
        Ok(message)
    }

    fn check(&self) -> Result<()> {
        let invalid = |what: &str| Err(Error::new(Code::InvalidMessage, what).with("id", self.id.as_str()));
        let is_model = matches!(self.source, Source::Model { .. });
        if (self.role == Role::Assistant) != is_model {
            return invalid("an assistant message, and no other, has a source of kind `model`");
        }
        if let Source::Tool { call_id } = &self.source {
            let answers = match self.content.as_slice() {
                [Block::ToolResult { tool_call_id, .. }] => tool_call_id == call_id,
                _ => false,
            };
            if self.role != Role::User || !answers {
                return invalid(
                    "a tool message is one user message with one tool-result block for its source's callId",
                );
            }
        }
        Ok(())
    }

    /// Fails for content that must not come in from outside: blocks without a type or text, and tool calls or results,
    /// which would leave a history that no provider takes (P2). Stored logs are read without this check.
    pub(crate) fn check_delivery(&self) -> Result<()> {
        let invalid = |at: usize, what: &str| {
            let message = format!("message {:?}, content[{at}]: {what}", self.id);
            Err(Error::new(Code::InvalidMessage, message).with("id", self.id.as_str()))
        };
        if self.role != Role::User {
            let message = format!("message {:?}: only user messages can be delivered", self.id);
            return Err(Error::new(Code::InvalidMessage, message).with("id", self.id.as_str()));
        }
        for (at, block) in self.content.iter().enumerate() {
            match block.kind() {
                "" => return invalid(at, "a block is an object with a `type`"),
                "text" if block.text().is_none() => return invalid(at, "a text block has a string `text`"),
                "tool-call" | "tool-result" => return invalid(at, "tool calls and results are written by the runtime"),
                _ => {}
            }
        }
        Ok(())
    }

    /// The identity.
    pub fn id(&self) -> &MessageId {
        &self.id
    }

    /// Who speaks.
    pub fn role(&self) -> Role {
        self.role
    }

    /// What is said.
    pub fn content(&self) -> &[Block] {
        &self.content
    }

    /// Where it comes from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// All text blocks, concatenated.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Block::text).collect()
    }

    /// The canonical JSON text, rendered once.
    pub fn json(&self) -> &str {
        self.text.get_or_init(|| self.render().into())
    }

    /// Appends the JSON text without keeping it.
    pub fn write(&self, out: &mut String) {
        match self.text.get() {
            Some(text) => out.push_str(text),
            None => self.render_into(out),
        }
    }

    fn render(&self) -> String {
        let mut out = String::new();
        self.render_into(&mut out);
        out
    }

    /// Key order by creator (MSG-03).
    fn render_into(&self, out: &mut String) {
        let content = |out: &mut String| {
            out.push_str("\"content\":");
            Block::write_list(&self.content, out);
        };
        match self.source {
            Source::Model { .. } => {
                out.push_str("{\"role\":\"assistant\",");
                content(out);
                out.push_str(",\"source\":");
                self.source.write(out);
            }
            Source::Tool { .. } => {
                out.push_str("{\"source\":");
                self.source.write(out);
                out.push(',');
                content(out);
                out.push_str(",\"role\":\"user\"");
            }
            _ => {
                out.push('{');
                content(out);
                out.push_str(",\"source\":");
                self.source.write(out);
                out.push_str(",\"role\":");
                write_str(self.role.as_str(), out);
            }
        }
        out.push_str(",\"id\":");
        write_str(&self.id, out);
        out.push('}');
    }

    /// The message as a JSON value.
    pub fn to_value(&self) -> Value {
        crate::json::parse(self.json()).expect("a message's own text is JSON")
    }
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.json() == other.json()
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.json())
    }
}

/// Reads a `source` object's string member, required to be non-empty.
pub(crate) fn required_text<'a>(object: &'a Object, key: &str) -> Option<&'a str> {
    object.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}
