//! The adapter port: what serves a provider route.

use super::{Chunk, RequestHeader};
use crate::error::Result;
use crate::id::SessionId;
use crate::runtime::{LocalBoxFuture, Signal};
use crate::session::History;
use std::pin::Pin;
use std::sync::Arc;

/// The pieces of one answer. An error item, like a failing finish chunk, ends it (FAIL-04).
pub type ChunkStream = Pin<Box<dyn futures_core::Stream<Item = Result<Chunk>>>>;

/// One model request, as it is sent.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// Config, system prompt and tools.
    pub header: Arc<RequestHeader>,
    /// The history.
    pub messages: History,
    /// The session it is made for.
    pub session_id: Option<SessionId>,
    /// Fires when the turn is cancelled. An adapter stops at once and closes its connection.
    pub signal: Signal,
}

/// What is known of a model (ADP-05). Everything is optional: an unlisted model exists and advertises nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelInfo {
    /// The window in tokens.
    pub context_window: Option<u64>,
    /// The output ceiling to use where the caller gives none.
    pub default_max_tokens: Option<u64>,
    /// The reasoning efforts the model offers.
    pub efforts: Vec<String>,
    /// The effort to use where the caller gives none; one of `efforts`.
    pub default_effort: Option<String>,
    /// Kinds of input, when declared.
    pub input_modalities: Option<Vec<String>>,
}

/// Serves model requests. One attempt per stream: retries are a policy of the loop (RTY-12).
pub trait Adapter {
    /// What is known of a model. Fails when the route cannot serve it.
    fn model_info(&self, provider: &str, model: &str, signal: &Signal) -> LocalBoxFuture<Result<ModelInfo>> {
        let _ = (provider, model, signal);
        Box::pin(std::future::ready(Ok(ModelInfo::default())))
    }

    /// Starts one request. The stream does the work as it is polled; dropping it closes the connection.
    fn stream(&self, request: ModelRequest) -> ChunkStream;
}
