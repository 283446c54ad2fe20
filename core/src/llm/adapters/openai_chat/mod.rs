//! OpenAI-compatible chat completions: OpenAI, DeepSeek, llama.cpp, vLLM, Ollama, OpenRouter, LiteLLM and others.
//!
//! One request is one POST to `<base>/chat/completions` whose answer streams. `request` writes the body, [`ChatDecoder`]
//! makes chunks of the payloads, `calls` decides which call a fragment belongs to, `details` keeps signed reasoning. What
//! servers *send* differently is told apart by looking at it; what they *take* differently is a [`Dialect`].

mod calls;
mod decode;
mod details;
mod request;

pub use super::http::{Decoder, Progress};
pub use decode::ChatDecoder;

use super::http::{HttpAdapter, HttpBuilder, Outgoing, Wire, invalid};
use crate::error::Result;
use crate::llm::Failure;

/// An adapter for one OpenAI-compatible server.
pub type OpenAiChat = HttpAdapter<ChatWire>;

/// Builds an [`OpenAiChat`].
pub type OpenAiChatBuilder = HttpBuilder<ChatWire>;

/// Whose way of taking requests a server follows. Without one the host decides: `api.openai.com`, `api.deepseek.com` and
/// `openrouter.ai` have theirs, any other is [`Dialect::Generic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `max_tokens`, `reasoning_effort`.
    Generic,
    /// `max_completion_tokens`, `reasoning_effort`.
    OpenAi,
    /// `thinking` and `reasoning_effort`; earlier reasoning goes back as `reasoning_content` (DSK-09, DSK-14).
    DeepSeek,
    /// Like generic.
    Vllm,
    /// The effort goes to the chat template (`chat_template_kwargs`).
    LlamaCpp,
    /// Like generic.
    Ollama,
    /// The effort is `reasoning: {effort}`; `reasoning_details` go back as they came.
    OpenRouter,
    /// Like generic; `thinking_blocks` go back as they came.
    LiteLlm,
}

impl Dialect {
    /// All dialects by the names that hosts use.
    pub const ALL: [(&'static str, Dialect); 8] = [
        ("generic", Dialect::Generic),
        ("openai", Dialect::OpenAi),
        ("deepseek", Dialect::DeepSeek),
        ("vllm", Dialect::Vllm),
        ("llama.cpp", Dialect::LlamaCpp),
        ("ollama", Dialect::Ollama),
        ("openrouter", Dialect::OpenRouter),
        ("litellm", Dialect::LiteLlm),
    ];

    /// Reads a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, dialect)| dialect)
    }

    fn of_host(host: &str) -> Self {
        let is = |domain: &str| host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
        match host {
            _ if is("api.openai.com") || is("openai.azure.com") => Dialect::OpenAi,
            _ if is("api.deepseek.com") => Dialect::DeepSeek,
            _ if is("openrouter.ai") => Dialect::OpenRouter,
            _ => Dialect::Generic,
        }
    }
}

/// How an effort is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EffortStyle {
    /// `reasoning_effort`.
    Member,
    /// DeepSeek's switch, then `reasoning_effort`.
    Thinking,
    /// `reasoning: {effort}`.
    Object,
    /// `chat_template_kwargs`.
    Template,
}

/// The chat-completions wire with its dialect.
#[derive(Clone, Debug)]
pub struct ChatWire {
    dialect: Option<Dialect>,
    max_tokens_member: Option<String>,
    reasoning_in_history: Option<bool>,
    thinking_member: Option<bool>,
    effort: EffortStyle,
    asks_usage: bool,
}

impl Default for ChatWire {
    fn default() -> Self {
        Self {
            dialect: None,
            max_tokens_member: None,
            reasoning_in_history: None,
            thinking_member: None,
            effort: EffortStyle::Member,
            asks_usage: true,
        }
    }
}

impl ChatWire {
    fn max_tokens_member(&self) -> &str {
        self.max_tokens_member.as_deref().unwrap_or("max_tokens")
    }
}

impl Wire for ChatWire {
    const NAME: &'static str = "OpenAiChat";
    const PATH: &'static str = "/chat/completions";
    const OWN_MEMBERS: &'static [&'static str] = request::OWN_MEMBERS;
    type Decoder = ChatDecoder;

    fn settle(&mut self, host: &str) -> Result<()> {
        let dialect = *self.dialect.get_or_insert_with(|| Dialect::of_host(host));
        self.effort = match dialect {
            _ if self.thinking_member == Some(true) => EffortStyle::Thinking,
            Dialect::DeepSeek if self.thinking_member != Some(false) => EffortStyle::Thinking,
            Dialect::OpenRouter => EffortStyle::Object,
            Dialect::LlamaCpp => EffortStyle::Template,
            Dialect::Generic
            | Dialect::OpenAi
            | Dialect::DeepSeek
            | Dialect::Vllm
            | Dialect::Ollama
            | Dialect::LiteLlm => EffortStyle::Member,
        };
        self.reasoning_in_history = self.reasoning_in_history.or(Some(dialect == Dialect::DeepSeek));
        if self.max_tokens_member.is_none() && dialect == Dialect::OpenAi {
            self.max_tokens_member = Some("max_completion_tokens".into());
        }
        let members = ["max_tokens", "max_completion_tokens"];
        if !members.contains(&self.max_tokens_member()) {
            return Err(invalid(format!("the output ceiling's member is one of {}", members.join(" and "))));
        }
        Ok(())
    }

    fn body(&self, outgoing: Outgoing<'_>) -> Result<String, Failure> {
        request::body(outgoing, self)
    }

    fn decoder(&self, id_prefix: String) -> ChatDecoder {
        ChatDecoder::new(id_prefix)
    }
}

impl OpenAiChatBuilder {
    /// Whose way of taking requests the server follows; found out from the host by default. The options below override
    /// single points of it, wherever they stand.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.wire.dialect = Some(dialect);
        self
    }

    /// The member for the output ceiling: `max_tokens`, or `max_completion_tokens` as newer OpenAI models want it.
    pub fn max_tokens_member(mut self, name: impl Into<String>) -> Self {
        self.wire.max_tokens_member = Some(name.into());
        self
    }

    /// Sends earlier reasoning back as `reasoning_content` (DSK-09). Off but for DeepSeek: many servers refuse it.
    pub fn reasoning_in_history(mut self, send: bool) -> Self {
        self.wire.reasoning_in_history = Some(send);
        self
    }

    /// Sends DeepSeek's `thinking` member with an effort; `off` then disables it (DSK-14).
    pub fn thinking_member(mut self, send: bool) -> Self {
        self.wire.thinking_member = Some(send);
        self
    }

    /// Asks for usage with `stream_options`; on by default. Off for servers that refuse the member: an answer then has
    /// usage only if the server sends it unasked.
    pub fn asks_usage(mut self, ask: bool) -> Self {
        self.wire.asks_usage = ask;
        self
    }
}
