//! OpenAI's responses wire: OpenAI itself, and the servers that speak it (llama.cpp, vLLM, LiteLLM, OpenRouter).
//!
//! One request is one POST to `<base>/responses` that stores nothing at the provider: the whole history is sent every
//! time. Reasoning comes encrypted, is kept in the message's replay state and goes back as it came. The wire has no stop
//! sequences; a request with some is refused with `UNSUPPORTED_OPTION`.

mod decode;
mod request;

pub use decode::ResponsesDecoder;

use super::http::{HttpAdapter, HttpBuilder, Outgoing, Wire};
use crate::llm::Failure;

/// An adapter for one server that speaks the responses wire.
pub type OpenAiResponses = HttpAdapter<ResponsesWire>;

/// Builds an [`OpenAiResponses`].
pub type OpenAiResponsesBuilder = HttpBuilder<ResponsesWire>;

/// The responses wire with its options.
#[derive(Clone, Debug)]
pub struct ResponsesWire {
    reasoning_summary: Option<String>,
    encrypted_reasoning: bool,
}

impl Default for ResponsesWire {
    fn default() -> Self {
        Self { reasoning_summary: None, encrypted_reasoning: true }
    }
}

impl Wire for ResponsesWire {
    const NAME: &'static str = "OpenAiResponses";
    const PATH: &'static str = "/responses";
    const OWN_MEMBERS: &'static [&'static str] = request::OWN_MEMBERS;
    type Decoder = ResponsesDecoder;

    fn body(&self, outgoing: Outgoing<'_>) -> Result<String, Failure> {
        request::body(outgoing, self)
    }

    fn decoder(&self, id_prefix: String) -> ResponsesDecoder {
        ResponsesDecoder::new(id_prefix)
    }
}

impl OpenAiResponsesBuilder {
    /// Asks for a summary of the reasoning, for example `auto`; without one it stays invisible.
    pub fn reasoning_summary(mut self, style: impl Into<String>) -> Self {
        self.wire.reasoning_summary = Some(style.into());
        self
    }

    /// Asks for encrypted reasoning where a reasoning effort is asked for; on by default. Off for servers that refuse it:
    /// reasoning then does not go back.
    pub fn encrypted_reasoning(mut self, ask: bool) -> Self {
        self.wire.encrypted_reasoning = ask;
        self
    }
}
