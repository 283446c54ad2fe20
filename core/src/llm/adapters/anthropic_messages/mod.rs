//! Anthropic's messages wire: Anthropic itself, and the servers that speak it (llama.cpp, LiteLLM, gateways).
//!
//! One request is one POST to `<base>/v1/messages`. Thinking is a reasoning block; its signature, and what was redacted,
//! is kept in the message's replay state and goes back exactly as it came, because the provider refuses a history in
//! which it was changed. Thinking whose signature never came stays in the log and is not sent.

mod decode;
mod request;

pub use decode::AnthropicDecoder;

use super::http::{Credential, HttpAdapter, HttpBuilder, Outgoing, Wire, invalid};
use crate::error::Result;
use crate::llm::Failure;

/// An adapter for one server that speaks Anthropic's messages wire.
pub type AnthropicMessages = HttpAdapter<AnthropicWire>;

/// Builds an [`AnthropicMessages`].
pub type AnthropicMessagesBuilder = HttpBuilder<AnthropicWire>;

/// The messages wire with its options.
#[derive(Clone, Debug)]
pub struct AnthropicWire {
    version: String,
    betas: Vec<String>,
    cache_markers: bool,
    bearer: bool,
    default_max_tokens: u64,
    thinking_budgets: Vec<(String, u64)>,
}

impl Default for AnthropicWire {
    fn default() -> Self {
        Self {
            version: "2023-06-01".into(),
            betas: Vec::new(),
            cache_markers: true,
            bearer: false,
            default_max_tokens: 4096,
            thinking_budgets: Vec::new(),
        }
    }
}

impl Wire for AnthropicWire {
    const NAME: &'static str = "AnthropicMessages";
    const PATH: &'static str = "/v1/messages";
    const OWN_MEMBERS: &'static [&'static str] = request::OWN_MEMBERS;
    type Decoder = AnthropicDecoder;

    fn credential(&self) -> Credential {
        if self.bearer { Credential::Bearer } else { Credential::Header("x-api-key") }
    }

    fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![("anthropic-version", self.version.clone())];
        if !self.betas.is_empty() {
            headers.push(("anthropic-beta", self.betas.join(",")));
        }
        headers
    }

    fn settle(&mut self, _host: &str) -> Result<()> {
        const SMALLEST_BUDGET: u64 = 1024;
        if self.default_max_tokens == 0 {
            return Err(invalid("default_max_tokens must be a positive integer".into()));
        }
        match self.thinking_budgets.iter().find(|(_, tokens)| *tokens < SMALLEST_BUDGET) {
            Some((effort, _)) => {
                Err(invalid(format!("the thinking budget of `{effort}` is at least {SMALLEST_BUDGET}")))
            }
            None => Ok(()),
        }
    }

    fn body(&self, outgoing: Outgoing<'_>) -> Result<String, Failure> {
        request::body(outgoing, self)
    }

    fn decoder(&self, id_prefix: String) -> AnthropicDecoder {
        AnthropicDecoder::new(id_prefix)
    }
}

impl AnthropicMessagesBuilder {
    /// The value of `anthropic-version`; `2023-06-01` by default.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.wire.version = version.into();
        self
    }

    /// Adds a value to `anthropic-beta`.
    pub fn beta(mut self, name: impl Into<String>) -> Self {
        self.wire.betas.push(name.into());
        self
    }

    /// Marks the end of the tools, of the system prompt and of the last two user messages as cacheable; on by default,
    /// because an agent sends its history again with every step.
    pub fn cache_markers(mut self, mark: bool) -> Self {
        self.wire.cache_markers = mark;
        self
    }

    /// Sends the key as `authorization: Bearer`, as gateways want it, instead of `x-api-key`.
    pub fn bearer(mut self, bearer: bool) -> Self {
        self.wire.bearer = bearer;
        self
    }

    /// The output ceiling where neither the caller nor the model's own default gives one; the wire demands one. 4096 by
    /// default.
    pub fn default_max_tokens(mut self, tokens: u64) -> Self {
        self.wire.default_max_tokens = tokens;
        self
    }

    /// Lets an effort mean a thinking budget in tokens, as older models want it. An effort without one is sent as
    /// `output_config.effort` with adaptive thinking; `off` and `none` disable thinking.
    pub fn thinking_budget(mut self, effort: impl Into<String>, tokens: u64) -> Self {
        self.wire.thinking_budgets.push((effort.into(), tokens));
        self
    }
}
