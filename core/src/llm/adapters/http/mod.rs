//! What all adapters over HTTP share: one POST whose answer streams as server-sent events.
//!
//! A [`Wire`] says what differs between providers: path, headers, body and decoder. All of it is pure. The rest is here,
//! once: `options` checks what an adapter is made of, `transport` moves bytes on the background threads, `stream` joins
//! framer and decoder on the owner's thread and watches for silence and cancellation, `error` classifies. Nothing here
//! retries (RTY-12). An adapter for another wire implements [`Wire`] and is an [`HttpAdapter`] of it.

mod body;
mod error;
mod images;
mod key;
mod options;
mod stream;
mod transport;

pub(super) use body::{List, NO_OUTPUT, comma_member, is_blank, member, placeholder, write_extra};
pub(super) use error::{quote, stream_failure};
pub use images::{Image, ImageSource};
pub use options::HttpBuilder;
pub(super) use options::invalid;

use crate::error::Result;
use crate::json::Object;
use crate::llm::{Adapter, Chunk, ChunkStream, Failure, ModelInfo, ModelRequest};
use crate::runtime::{Clock, LocalBoxFuture, Signal};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// Whether more payloads are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The answer goes on.
    More,
    /// The payload says that the connection lives, and nothing else.
    KeepAlive,
    /// The finish chunk was produced; further bytes do not matter.
    Done,
}

/// Turns the payloads of one answer into chunks. Pure: no I/O, no clock. After a failure it is not used again.
pub trait Decoder: Unpin {
    /// Takes the payload of one event. Chunks are appended to `out`; a failure ends the answer.
    fn payload(&mut self, name: &str, data: &str, out: &mut Vec<Chunk>) -> Result<Progress, Failure>;

    /// The body ended, properly or not.
    fn end(&mut self, out: &mut Vec<Chunk>) -> Result<(), Failure>;

    /// Whether a finish reason came, so that the answer is complete even if the body breaks off now.
    fn has_finish_reason(&self) -> bool;

    /// How many payloads and parts of payloads were skipped because nobody here knows their kind.
    fn skipped(&self) -> u64;
}

/// How the key is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// `authorization: Bearer <key>`.
    Bearer,
    /// The key alone in a header of this name.
    Header(&'static str),
}

/// What a wire may look at while it writes a request.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    /// The request.
    pub request: &'a ModelRequest,
    /// What the options say of the model.
    pub info: Option<&'a ModelInfo>,
    /// Where the bytes of images are.
    pub images: Option<&'a ImageSource>,
    /// Members for every body, already checked against [`Wire::OWN_MEMBERS`].
    pub extra: &'a Object,
}

/// What differs between providers. Implementations hold their dialect options.
pub trait Wire: Clone + Default + fmt::Debug + 'static {
    /// The adapter's name in messages and `Debug` output.
    const NAME: &'static str;
    /// What follows the base URL, with a leading slash.
    const PATH: &'static str;
    /// The members that the body writes itself, and that extra members must not repeat.
    const OWN_MEMBERS: &'static [&'static str];
    /// What reads the answers.
    type Decoder: Decoder;

    /// How the key is sent.
    fn credential(&self) -> Credential {
        Credential::Bearer
    }

    /// Headers besides `content-type`, `accept`, `user-agent` and the key.
    fn headers(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Checks the options for a server of this host, and settles what depends on it.
    fn settle(&mut self, host: &str) -> Result<()> {
        let _ = host;
        Ok(())
    }

    /// The JSON body. Fails when the wire cannot carry what is asked.
    fn body(&self, outgoing: Outgoing<'_>) -> Result<String, Failure>;

    /// A decoder for one answer. `id_prefix` is unique and makes the ids of calls that the server sends without one.
    fn decoder(&self, id_prefix: String) -> Self::Decoder;
}

/// An adapter for one server.
pub struct HttpAdapter<W: Wire>(Rc<Inner<W>>);

impl<W: Wire> Clone for HttpAdapter<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Inner<W> {
    wire: W,
    url: reqwest::Url,
    key: key::Key,
    headers: reqwest::header::HeaderMap,
    client: transport::Client,
    extra: Object,
    limits: Limits,
    clock: Rc<dyn Clock>,
    models: HashMap<String, ModelInfo>,
    images: Option<ImageSource>,
}

/// How long things may take. All but `total` count only while somebody waits (DSK-22).
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Until the first byte of the answer, connecting included.
    first_byte: Duration,
    /// Without a byte.
    idle: Duration,
    /// Without an event; keep-alive comments and pings do not count.
    event_idle: Duration,
    /// The whole request, the consumer's own time included.
    total: Option<Duration>,
}

impl<W: Wire> HttpAdapter<W> {
    /// Starts an adapter for the server at `base_url`, for example `https://api.openai.com/v1`.
    pub fn builder(base_url: impl Into<String>) -> HttpBuilder<W> {
        HttpBuilder::new(base_url.into())
    }
}

impl<W: Wire> Adapter for HttpAdapter<W> {
    /// What the options say of the model; an unlisted model is not refused (ADP-04).
    fn model_info(&self, _provider: &str, model: &str, _signal: &Signal) -> LocalBoxFuture<Result<ModelInfo>> {
        let info = self.0.models.get(model).cloned().unwrap_or_default();
        Box::pin(std::future::ready(Ok(info)))
    }

    /// A cancellation ends the stream with an `aborted` finish and closes the socket; any other failure is an error item
    /// with the failure's facts.
    fn stream(&self, request: ModelRequest) -> ChunkStream {
        Box::pin(stream::HttpStream::new(self.0.clone(), request))
    }
}

impl<W: Wire> fmt::Debug for HttpAdapter<W> {
    /// Neither the key nor the values of headers are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers = self.0.headers.keys().collect::<Vec<_>>();
        f.debug_struct(W::NAME)
            .field("host", &self.0.url.host_str().unwrap_or_default())
            .field("path", &self.0.url.path())
            .field("headers", &headers)
            .field("wire", &self.0.wire)
            .field("limits", &self.0.limits)
            .finish_non_exhaustive()
    }
}
