//! The options of the adapter, checked once when it is built.

use super::request::OWN_MEMBERS;
use super::{Dialect, Inner, Key, Limits, OpenAiChat, transport};
use crate::error::{Code, Error, Result};
use crate::json::Value;
use crate::llm::ModelInfo;
use crate::runtime::{Clock, SystemClock};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// The limits of DSK-15 and DSK-25; the event limit leaves a slow server on keep-alive twice the time of a silent one.
const IDLE: Duration = Duration::from_secs(300);
const EVENT_IDLE: Duration = Duration::from_secs(600);
const CONNECT: Duration = Duration::from_secs(30);

/// Builds an [`OpenAiChat`].
#[must_use = "an option does nothing before `build`"]
pub struct OpenAiChatBuilder {
    base_url: String,
    key: Key,
    headers: Vec<(String, String)>,
    idle: Duration,
    event_idle: Duration,
    connect: Duration,
    allow_insecure_http: bool,
    dialect: Dialect,
    clock: Option<Rc<dyn Clock>>,
    models: HashMap<String, ModelInfo>,
}

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}

impl OpenAiChatBuilder {
    pub(super) fn new(base_url: String) -> Self {
        Self {
            base_url,
            key: Key::None,
            headers: Vec::new(),
            idle: IDLE,
            event_idle: EVENT_IDLE,
            connect: CONNECT,
            allow_insecure_http: false,
            dialect: Dialect::default(),
            clock: None,
            models: HashMap::new(),
        }
    }

    /// The API key. Without one no `authorization` header is sent, as local servers like it.
    pub fn api_key(mut self, key: impl Into<String>) -> Self {
        self.key = Key::Fixed(key.into());
        self
    }

    /// Reads the API key from an environment variable, for example `OPENAI_API_KEY`, at every request. Without the
    /// variable requests fail with `MISSING_CREDENTIAL`.
    pub fn api_key_from_env(mut self, name: impl Into<String>) -> Self {
        self.key = Key::Env(name.into());
        self
    }

    /// Asks for the API key at every request. It must not block.
    pub fn api_key_with(mut self, read: impl Fn() -> Result<String> + 'static) -> Self {
        self.key = Key::Callback(Rc::new(read));
        self
    }

    /// Adds a header to every request.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// How long the server may send no byte while somebody waits; 300 s by default. The time until the first byte counts,
    /// the consumer's own time does not. Ends with `TIMEOUT`.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle = limit;
        self
    }

    /// How long the server may send nothing but keep-alive comments; 600 s by default. Ends with `TIMEOUT`.
    pub fn event_idle_timeout(mut self, limit: Duration) -> Self {
        self.event_idle = limit;
        self
    }

    /// How long connecting may take, the TLS handshake included; 30 s by default. Ends with `TIMEOUT`.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect = limit;
        self
    }

    /// Allows plain `http` to other machines. The key then travels readable.
    pub fn allow_insecure_http(mut self, allow: bool) -> Self {
        self.allow_insecure_http = allow;
        self
    }

    /// The member for the output ceiling: `max_tokens` by default, `max_completion_tokens` for newer OpenAI models.
    pub fn max_tokens_member(mut self, name: impl Into<String>) -> Self {
        self.dialect.max_tokens_member = name.into();
        self
    }

    /// Sends earlier reasoning back as `reasoning_content` (DSK-09). Off by default: many servers refuse it.
    pub fn reasoning_in_history(mut self, send: bool) -> Self {
        self.dialect.reasoning_in_history = send;
        self
    }

    /// Sends DeepSeek's `thinking` member with an effort; `off` then disables it (DSK-14).
    pub fn thinking_member(mut self, send: bool) -> Self {
        self.dialect.thinking_member = send;
        self
    }

    /// Adds a member to every request body, for example `top_p`.
    pub fn extra_member(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.dialect.extra_members.insert(name, value);
        self
    }

    /// Says what is known of a model; unlisted models advertise nothing.
    pub fn model(mut self, name: impl Into<String>, info: ModelInfo) -> Self {
        self.models.insert(name.into(), info);
        self
    }

    /// The clock of the idle limits; the machine's by default.
    pub fn clock(mut self, clock: Rc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Checks the options. A key given as text is checked too (`INVALID_CREDENTIAL`).
    pub fn build(self) -> Result<OpenAiChat> {
        let url = self.url()?;
        if let Key::Fixed(_) = self.key {
            self.key.read()?;
        }
        let members = ["max_tokens", "max_completion_tokens"];
        if !members.contains(&self.dialect.max_tokens_member.as_str()) {
            return Err(invalid(format!("the output ceiling's member is one of {}", members.join(" and "))));
        }
        if let Some(name) = self.dialect.extra_members.keys().find(|name| OWN_MEMBERS.contains(name)) {
            return Err(invalid(format!("`{name}` is written by the adapter and cannot be an extra member")));
        }
        let client = transport::Client::new(&url, self.connect);
        let limits = Limits { idle: self.idle, event_idle: self.event_idle };
        let (headers, clock) = (self.header_map()?, self.clock.unwrap_or_else(|| Rc::new(SystemClock::default())));
        let (key, dialect, models) = (self.key, self.dialect, self.models);
        Ok(OpenAiChat(Rc::new(Inner { url, key, headers, client, dialect, limits, clock, models })))
    }

    /// `<base>/chat/completions`, with or without a slash at the end of the base.
    fn url(&self) -> Result<Url> {
        let base = self.base_url.trim();
        let shown = || format!("base URL {base:?}");
        if !base.starts_with("http://") && !base.starts_with("https://") {
            return Err(invalid(format!("{}: begin with http:// or https://", shown())));
        }
        if base.trim_end_matches('/').ends_with("/chat/completions") {
            return Err(invalid(format!("{}: leave /chat/completions off, it is added", shown())));
        }
        let mut url = Url::parse(base).map_err(|error| invalid(format!("{}: {error}", shown())))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("the base URL must not hold a user name or password".into()));
        }
        match url.scheme() {
            "https" => {}
            "http" if self.allow_insecure_http || transport::is_loopback(&url) => {}
            "http" => {
                let message = "plain http sends the key readable; use https, or allow it with `allow_insecure_http`";
                return Err(invalid(message.into()));
            }
            other => return Err(invalid(format!("the base URL is http or https, not `{other}`"))),
        }
        let path = format!("{}/chat/completions", url.path().trim_end_matches('/'));
        url.set_path(&path);
        Ok(url)
    }

    fn header_map(&self) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        let agent = concat!("turnwheel/", env!("CARGO_PKG_VERSION"));
        headers.insert("user-agent", HeaderValue::from_static(agent));
        headers.insert("accept", HeaderValue::from_static("text/event-stream"));
        for (name, value) in &self.headers {
            let parsed = HeaderName::from_bytes(name.as_bytes());
            let name = parsed.map_err(|_| invalid(format!("`{name}` is not a header name")))?;
            let parsed = HeaderValue::from_str(value);
            let mut value = parsed.map_err(|_| invalid(format!("the value of header `{name}` cannot be sent")))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        Ok(headers)
    }
}

impl fmt::Debug for OpenAiChatBuilder {
    /// Neither the key nor the URL, which might hold one, nor the values of headers are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers = self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>();
        f.debug_struct("OpenAiChatBuilder").field("headers", &headers).finish_non_exhaustive()
    }
}
