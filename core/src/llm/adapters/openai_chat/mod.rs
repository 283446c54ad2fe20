//! OpenAI-compatible chat completions over HTTP: OpenAI, DeepSeek, llama.cpp, vLLM, Ollama, gateways.
//!
//! One request is one POST to `<base>/chat/completions` whose answer streams. The work is split so that most of it is
//! pure: `request` writes the body, [`SseFramer`](crate::llm::sse::SseFramer) cuts events, [`ChatDecoder`] makes chunks
//! of them, `error` classifies; `transport` moves bytes on the background threads and `stream` joins them on the owner's
//! thread. Nothing here retries (RTY-12).

mod calls;
mod decode;
mod error;
mod options;
mod request;
mod stream;
mod transport;

pub use decode::{ChatDecoder, Progress};
pub use options::OpenAiChatBuilder;

use crate::error::{Error, Result};
use crate::json::Object;
use crate::llm::{Adapter, ChunkStream, Failure, ModelInfo, ModelRequest};
use crate::runtime::{Clock, LocalBoxFuture, Signal};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// An adapter for one server.
#[derive(Clone)]
pub struct OpenAiChat(Rc<Inner>);

struct Inner {
    url: reqwest::Url,
    key: Key,
    headers: reqwest::header::HeaderMap,
    client: transport::Client,
    dialect: Dialect,
    limits: Limits,
    clock: Rc<dyn Clock>,
    models: HashMap<String, ModelInfo>,
}

/// Where servers differ in what they take.
#[derive(Clone, Debug)]
struct Dialect {
    max_tokens_member: String,
    reasoning_in_history: bool,
    thinking_member: bool,
    extra_members: Object,
}

impl Default for Dialect {
    fn default() -> Self {
        Self {
            max_tokens_member: "max_tokens".into(),
            reasoning_in_history: false,
            thinking_member: false,
            extra_members: Object::new(),
        }
    }
}

/// How long the server may be silent while somebody waits for it (DSK-22).
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Without a byte.
    idle: Duration,
    /// Without an event; keep-alive comments do not count.
    event_idle: Duration,
}

/// Where the key comes from. It is read once per request (DSK-17).
#[derive(Clone, Default)]
enum Key {
    #[default]
    None,
    Fixed(String),
    Env(String),
    Callback(Rc<dyn Fn() -> Result<String>>),
}

impl Key {
    /// The key to send, checked (ADP-20). No message shows it.
    fn read(&self) -> Result<Option<String>> {
        let text = match self {
            Key::None => return Ok(None),
            Key::Fixed(text) => text.clone(),
            Key::Env(name) => std::env::var(name).map_err(|_| {
                let message = format!("no API key: the environment variable {name} is not set to text");
                Error::model(Failure::new("MISSING_CREDENTIAL", message))
            })?,
            Key::Callback(read) => read()?,
        };
        let key = text.trim();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = "the API key must be non-empty printable ASCII without spaces";
            return Err(Error::model(Failure::new("INVALID_CREDENTIAL", message)));
        }
        Ok(Some(key.to_owned()))
    }
}

impl OpenAiChat {
    /// Starts an adapter for the server at `base_url`, for example `https://api.openai.com/v1`.
    pub fn builder(base_url: impl Into<String>) -> OpenAiChatBuilder {
        OpenAiChatBuilder::new(base_url.into())
    }
}

impl Adapter for OpenAiChat {
    /// What the options say of the model; an unlisted model is not refused (ADP-04).
    fn model_info(&self, _provider: &str, model: &str, _signal: &Signal) -> LocalBoxFuture<Result<ModelInfo>> {
        let info = self.0.models.get(model).cloned().unwrap_or_default();
        Box::pin(std::future::ready(Ok(info)))
    }

    /// A cancellation ends the stream with an `aborted` finish and closes the socket; any other failure is an error item
    /// with the failure's facts.
    fn stream(&self, request: ModelRequest) -> ChunkStream {
        Box::pin(stream::ChatStream::new(self.0.clone(), request))
    }
}

impl fmt::Debug for OpenAiChat {
    /// Neither the key nor the values of headers are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers = self.0.headers.keys().collect::<Vec<_>>();
        f.debug_struct("OpenAiChat")
            .field("host", &self.0.url.host_str().unwrap_or_default())
            .field("path", &self.0.url.path())
            .field("headers", &headers)
            .field("dialect", &self.0.dialect)
            .field("limits", &self.0.limits)
            .finish_non_exhaustive()
    }
}
