//! The options that all adapters over HTTP share, checked once when the adapter is built.

use super::key::Key;
use super::{HttpAdapter, ImageSource, Inner, Limits, Wire, transport};
use crate::error::{Code, Error, Result};
use crate::json::{Object, Value};
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

/// Builds an [`HttpAdapter`]. Options of one wire only are added by that wire's module.
#[must_use = "an option does nothing before `build`"]
pub struct HttpBuilder<W: Wire> {
    pub(in super::super) wire: W,
    base_url: String,
    key: Key,
    headers: Vec<(String, String)>,
    extra: Object,
    first_byte: Option<Duration>,
    idle: Duration,
    event_idle: Duration,
    total: Option<Duration>,
    allow_insecure_http: bool,
    connection: transport::Connection,
    clock: Option<Rc<dyn Clock>>,
    models: HashMap<String, ModelInfo>,
    images: Option<ImageSource>,
}

pub(in super::super) fn invalid(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}

impl<W: Wire> HttpBuilder<W> {
    pub(super) fn new(base_url: String) -> Self {
        Self {
            wire: W::default(),
            base_url,
            key: Key::None,
            headers: Vec::new(),
            extra: Object::new(),
            first_byte: None,
            idle: IDLE,
            event_idle: EVENT_IDLE,
            total: None,
            allow_insecure_http: false,
            connection: transport::Connection { connect: CONNECT, ..Default::default() },
            clock: None,
            models: HashMap::new(),
            images: None,
        }
    }

    /// The API key. Without one no header for it is sent, as local servers like it.
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

    /// Adds a header to every request. Its value is treated as a secret.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds a member to every request body, for example `top_p`.
    pub fn extra_member(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.extra.insert(name, value);
        self
    }

    /// How long the first byte of an answer may take, connecting included; like `idle_timeout` by default. Ends with
    /// `TIMEOUT`.
    pub fn first_byte_timeout(mut self, limit: Duration) -> Self {
        self.first_byte = Some(limit);
        self
    }

    /// How long the server may send no byte while somebody waits; 300 s by default. The consumer's own time does not
    /// count. Ends with `TIMEOUT`.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle = limit;
        self
    }

    /// How long the server may send nothing but keep-alive comments and pings; 600 s by default. Ends with `TIMEOUT`.
    pub fn event_idle_timeout(mut self, limit: Duration) -> Self {
        self.event_idle = limit;
        self
    }

    /// How long a request may take from its start to its end, whatever happens; unlimited by default, because long
    /// answers are legal. Ends with `TIMEOUT`.
    pub fn total_timeout(mut self, limit: Duration) -> Self {
        self.total = Some(limit);
        self
    }

    /// How long connecting may take, the TLS handshake included; 30 s by default. Ends with `TIMEOUT`.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connection.connect = limit;
        self
    }

    /// Allows plain `http` to other machines. The key then travels readable.
    pub fn allow_insecure_http(mut self, allow: bool) -> Self {
        self.allow_insecure_http = allow;
        self
    }

    /// Trusts the certificates of this PEM text besides those that the machine trusts, for a private authority.
    pub fn ca_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.connection.ca_pem = Some(pem.into());
        self
    }

    /// Sends requests through this proxy (`http://`, `https://`) instead of the one that the environment names. A proxy
    /// is never used for a server on this machine unless it is given here.
    pub fn proxy(mut self, url: impl Into<String>) -> Self {
        self.connection.proxy = transport::Proxy::Url(url.into());
        self
    }

    /// Ignores the proxy that the environment names (`HTTPS_PROXY`, `ALL_PROXY`).
    pub fn no_proxy(mut self) -> Self {
        self.connection.proxy = transport::Proxy::None;
        self
    }

    /// Speaks HTTP/2 from the first byte, also without TLS. By default a server with TLS chooses between HTTP/2 and
    /// HTTP/1.1, and one without speaks HTTP/1.1.
    pub fn http2_prior_knowledge(mut self, only: bool) -> Self {
        self.connection.http2_only = only;
        self
    }

    /// Says what is known of a model; unlisted models advertise nothing.
    pub fn model(mut self, name: impl Into<String>, info: ModelInfo) -> Self {
        self.models.insert(name.into(), info);
        self
    }

    /// Where the bytes of images are. Images are sent to models that declare `image` among their input modalities;
    /// otherwise, and without a source, a placeholder text stands for each (ADP-11).
    pub fn images(mut self, source: ImageSource) -> Self {
        self.images = Some(source);
        self
    }

    /// The clock of the limits; the machine's by default. Connecting alone is always timed by the machine's.
    pub fn clock(mut self, clock: Rc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Checks the options. A key given as text is checked too (`INVALID_CREDENTIAL`).
    pub fn build(mut self) -> Result<HttpAdapter<W>> {
        let url = self.url()?;
        if let Key::Fixed(_) = self.key {
            self.key.read()?;
        }
        self.wire.settle(url.host_str().unwrap_or_default())?;
        if let Some(name) = self.extra.keys().find(|name| W::OWN_MEMBERS.contains(name)) {
            return Err(invalid(format!("`{name}` is written by the adapter and cannot be an extra member")));
        }
        let client = transport::Client::new(&url, self.connection.clone())?;
        let limits = Limits {
            first_byte: self.first_byte.unwrap_or(self.idle),
            idle: self.idle,
            event_idle: self.event_idle,
            total: self.total,
        };
        let (headers, clock) = (self.header_map()?, self.clock.unwrap_or_else(|| Rc::new(SystemClock::default())));
        let (wire, key, extra, models, images) = (self.wire, self.key, self.extra, self.models, self.images);
        Ok(HttpAdapter(Rc::new(Inner { wire, url, key, headers, client, extra, limits, clock, models, images })))
    }

    /// Base and path, with or without a slash at the end of the base.
    fn url(&self) -> Result<Url> {
        let base = self.base_url.trim();
        // What stands before the host's `@` or behind a `?` may be a secret.
        let shown = || format!("the base URL of {}", W::NAME);
        if !base.starts_with("http://") && !base.starts_with("https://") {
            let scheme = base.split_once("://").map_or("none", |(scheme, _)| scheme);
            return Err(invalid(format!("{}: begin with http:// or https://, not `{scheme}`", shown())));
        }
        if base.trim_end_matches('/').ends_with(W::PATH) {
            return Err(invalid(format!("{}: leave {} off, it is added", shown(), W::PATH)));
        }
        let mut url = Url::parse(base).map_err(|error| invalid(format!("{}: {error}", shown())))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("the base URL must not hold a user name or password".into()));
        }
        match url.scheme() {
            "http" if !self.allow_insecure_http && !transport::is_loopback(&url) => {
                let message = "plain http sends the key readable; use https, or allow it with `allow_insecure_http`";
                return Err(invalid(message.into()));
            }
            _ => {}
        }
        let base = url.path().trim_end_matches('/');
        // A base that ends with the version, as that of other wires does, is meant all the same.
        let version = W::PATH.strip_suffix(W::PATH.rsplit_once('/').map_or("", |(_, name)| name));
        let version = version.unwrap_or_default().trim_end_matches('/');
        let path = format!("{}{}", base.strip_suffix(version).unwrap_or(base), W::PATH);
        url.set_path(&path);
        Ok(url)
    }

    fn header_map(&self) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        let agent = concat!("turnwheel/", env!("CARGO_PKG_VERSION"));
        headers.insert("user-agent", HeaderValue::from_static(agent));
        headers.insert("accept", HeaderValue::from_static("text/event-stream"));
        // Compressed event streams are buffered by many servers. One that comes all the same is read.
        headers.insert("accept-encoding", HeaderValue::from_static("identity"));
        for (name, value) in self.wire.headers() {
            let value = HeaderValue::from_str(&value);
            headers.insert(name, value.map_err(|_| invalid(format!("the value of header `{name}` cannot be sent")))?);
        }
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

impl<W: Wire> fmt::Debug for HttpBuilder<W> {
    /// Neither the key nor the URL, which might hold one, nor the values of headers are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers = self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>();
        f.debug_struct("HttpBuilder").field("adapter", &W::NAME).field("headers", &headers).finish_non_exhaustive()
    }
}
