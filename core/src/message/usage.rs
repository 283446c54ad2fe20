//! Token usage of one model call (MSG-26).

use crate::json::{Object, Value};

/// Input, cache read and cache write are disjoint; reasoning is contained in output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read that were in no cache.
    pub input_tokens: u64,
    /// Tokens written, reasoning included.
    pub output_tokens: u64,
    /// Tokens read from a cache.
    pub cache_read_tokens: Option<u64>,
    /// Tokens written to a cache.
    pub cache_write_tokens: Option<u64>,
    /// Of the output, tokens of reasoning.
    pub reasoning_tokens: Option<u64>,
}

impl Usage {
    /// Reads usage; `None` if it is not of this shape.
    pub fn from_value(value: &Value) -> Option<Self> {
        let object = value.as_object()?;
        let optional = |key: &str| match object.get(key) {
            Some(value) => value.as_u64().map(Some),
            None => Some(None),
        };
        Some(Self {
            input_tokens: object.get("inputTokens")?.as_u64()?,
            output_tokens: object.get("outputTokens")?.as_u64()?,
            cache_read_tokens: optional("cacheReadTokens")?,
            cache_write_tokens: optional("cacheWriteTokens")?,
            reasoning_tokens: optional("reasoningTokens")?,
        })
    }

    /// The usage as JSON.
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.insert("inputTokens", self.input_tokens);
        object.insert("outputTokens", self.output_tokens);
        object.insert_some("cacheReadTokens", self.cache_read_tokens);
        object.insert_some("cacheWriteTokens", self.cache_write_tokens);
        object.insert_some("reasoningTokens", self.reasoning_tokens);
        Value::Object(object)
    }

    /// The sum of two usages.
    pub fn plus(self, other: Self) -> Self {
        let add = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
        };
        Self {
            input_tokens: self.input_tokens + other.input_tokens,
            output_tokens: self.output_tokens + other.output_tokens,
            cache_read_tokens: add(self.cache_read_tokens, other.cache_read_tokens),
            cache_write_tokens: add(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens: add(self.reasoning_tokens, other.reasoning_tokens),
        }
    }
}
