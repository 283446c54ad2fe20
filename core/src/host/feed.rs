//! Model adapters that a host writes: it is given the request and pushes chunks, now or later, from any thread.

use crate::error::{Code, Error, Result};
use crate::json::{Object, Value};
use crate::llm::{Adapter, Chunk, ChunkStream, ModelInfo, ModelRequest};
use crate::runtime::{LocalBoxFuture, Signal};
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};

/// A request as JSON: `{"config", "system"?, "tools"?, "messages", "sessionId"?}`.
pub fn request_value(request: &ModelRequest) -> Value {
    let mut object = Object::new();
    let header = request.header.to_value();
    for (name, member) in header.as_object().into_iter().flat_map(Object::iter) {
        object.insert(name, member);
    }
    object.insert("messages", request.messages.iter().map(|message| message.to_value()).collect::<Vec<_>>());
    object.insert_some("sessionId", request.session_id.as_deref());
    object.into()
}

#[derive(Default)]
struct Feed {
    chunks: VecDeque<Chunk>,
    ended: Option<Result<()>>,
    /// Nobody reads any more.
    closed: bool,
    waker: Option<Waker>,
}

fn lock(feed: &Mutex<Feed>) -> MutexGuard<'_, Feed> {
    feed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a host's adapter puts the chunks of one answer. Clones are the same sink, and may be used on any thread. If the
/// last one goes away before [`ChunkSink::finish`], the answer fails.
#[derive(Clone)]
pub struct ChunkSink(Arc<Owner>);

struct Owner(Arc<Mutex<Feed>>);

impl Drop for Owner {
    fn drop(&mut self) {
        end(&self.0, Err(Error::host("the adapter went away before it finished its answer")));
    }
}

fn end(feed: &Mutex<Feed>, result: Result<()>) {
    let waker = {
        let mut feed = lock(feed);
        feed.ended.get_or_insert(result);
        feed.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl ChunkSink {
    /// Adds a chunk (STR-01). Fails with `MALFORMED_CHUNK` for what is none, and with `ABORTED` when nobody reads any
    /// more: stop then.
    pub fn push(&self, chunk: &Value) -> Result<()> {
        let chunk = Chunk::from_value(chunk)
            .ok_or_else(|| Error::new(Code::MalformedChunk, format!("{} is not a stream chunk", chunk.to_text())))?;
        self.push_chunk(chunk)
    }

    /// As [`ChunkSink::push`], for a chunk that is one already.
    pub fn push_chunk(&self, chunk: Chunk) -> Result<()> {
        self.push_chunks([chunk])
    }

    /// As [`ChunkSink::push_chunk`], for several at once.
    pub fn push_chunks(&self, chunks: impl IntoIterator<Item = Chunk>) -> Result<()> {
        let waker = {
            let mut feed = lock(&self.0.0);
            if feed.closed || feed.ended.is_some() {
                return Err(Error::new(Code::Aborted, "this answer is over; nobody reads its chunks"));
            }
            feed.chunks.extend(chunks);
            feed.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Ends the answer, behind the chunks pushed so far; an error fails it (FAIL-04). Only the first call counts.
    pub fn finish(&self, result: Result<()>) {
        end(&self.0.0, result);
    }

    /// Whether nobody reads any more. A cancelled turn still reads: its request's signal fires, and the adapter is to stop
    /// and finish.
    pub fn is_closed(&self) -> bool {
        lock(&self.0.0).closed
    }
}

/// What an adapter still does after it was started, polled with the stream and dropped with it. Its end is the answer's.
pub type Producing = LocalBoxFuture<Result<()>>;

type Start = dyn Fn(ModelRequest, ChunkSink) -> Option<Producing>;

/// A host's adapter.
pub struct HostAdapter {
    start: Box<Start>,
    models: HashMap<String, ModelInfo>,
}

impl HostAdapter {
    /// An adapter that `start` serves: it begins an answer, and returns what is still to be done, if that is a future.
    pub fn new(start: impl Fn(ModelRequest, ChunkSink) -> Option<Producing> + 'static) -> Self {
        Self { start: Box::new(start), models: HashMap::new() }
    }

    /// Says what is known of a model; unlisted models advertise nothing.
    pub fn model(mut self, name: impl Into<String>, info: ModelInfo) -> Self {
        self.models.insert(name.into(), info);
        self
    }
}

impl Adapter for HostAdapter {
    fn model_info(&self, _provider: &str, model: &str, _signal: &Signal) -> LocalBoxFuture<Result<ModelInfo>> {
        Box::pin(std::future::ready(Ok(self.models.get(model).cloned().unwrap_or_default())))
    }

    fn stream(&self, request: ModelRequest) -> ChunkStream {
        let feed: Arc<Mutex<Feed>> = Arc::default();
        // Made first: if starting panics, the sink must still learn that nobody reads.
        let mut stream = Box::pin(FeedStream { feed: feed.clone(), producing: None });
        stream.producing = (self.start)(request, ChunkSink(Arc::new(Owner(feed))));
        stream
    }
}

struct FeedStream {
    feed: Arc<Mutex<Feed>>,
    producing: Option<Producing>,
}

impl Drop for FeedStream {
    fn drop(&mut self) {
        lock(&self.feed).closed = true;
    }
}

impl futures_core::Stream for FeedStream {
    type Item = Result<Chunk>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        if let Some(producing) = &mut self.producing
            && let Poll::Ready(result) = producing.as_mut().poll(context)
        {
            self.producing = None;
            end(&self.feed, result);
        }
        let mut feed = lock(&self.feed);
        if let Some(chunk) = feed.chunks.pop_front() {
            return Poll::Ready(Some(Ok(chunk)));
        }
        match feed.ended.clone() {
            Some(Err(error)) => {
                feed.ended = Some(Ok(()));
                Poll::Ready(Some(Err(error)))
            }
            Some(Ok(())) => Poll::Ready(None),
            None => {
                feed.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
