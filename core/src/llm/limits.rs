//! Rate limits shared by all agents of a route: requests and tokens per minute.
//!
//! Places are given in the order of asking, and an agent has one request at a time, so that none is passed over. A request
//! counts with an estimate of its tokens when it starts, and with what the provider reports once it does. Over a minute
//! the limits hold up to the error of the estimates of requests that are under way.

use super::{Chunk, ChunkStream, Failure, FinishReason, ModelRequest};
use crate::error::{Code, Error, Result};
use crate::message::Block;
use crate::runtime::{LocalBoxFuture, Runtime, WakerSet};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

const WINDOW_MS: i64 = 60_000;

/// Limits of a route; what is absent is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Requests that may start within any minute.
    pub requests_per_minute: Option<u64>,
    /// Tokens, input and output, of requests that started within any minute.
    pub tokens_per_minute: Option<u64>,
}

impl RateLimits {
    /// Fails for a limit of 0, under which nothing would ever run.
    pub fn check(&self) -> Result<()> {
        if self.requests_per_minute == Some(0) || self.tokens_per_minute == Some(0) {
            return Err(Error::new(Code::InvalidArgument, "a rate limit is a positive number; leave it out for none"));
        }
        Ok(())
    }
}

/// A request that started.
struct Entry {
    id: u64,
    at_ms: i64,
    tokens: u64,
}

/// The state of a route's limits.
pub(super) struct Limiter {
    limits: RateLimits,
    runtime: Runtime,
    started: RefCell<VecDeque<Entry>>,
    queue: RefCell<VecDeque<u64>>,
    next: Cell<u64>,
    changed: WakerSet,
}

impl Limiter {
    pub(super) fn new(limits: RateLimits, runtime: Runtime) -> Self {
        let (started, queue, next) = (RefCell::default(), RefCell::default(), Cell::new(0));
        Self { limits, runtime, started, queue, next, changed: WakerSet::default() }
    }

    /// How long until a request of so many tokens may start; 0 if it may now.
    fn wait_ms(&self, tokens: u64) -> i64 {
        let now_ms = self.runtime.now_ms();
        let mut started = self.started.borrow_mut();
        while started.front().is_some_and(|entry| now_ms - entry.at_ms >= WINDOW_MS) {
            started.pop_front();
        }
        let count = started.len() as u64;
        let spent: u64 = started.iter().map(|entry| entry.tokens).sum();
        // One that is larger than the whole limit starts alone.
        let too_many = self.limits.requests_per_minute.is_some_and(|limit| count >= limit);
        let too_much = self.limits.tokens_per_minute.is_some_and(|limit| count > 0 && spent + tokens > limit);
        if !too_many && !too_much {
            return 0;
        }
        started.front().map_or(0, |entry| (entry.at_ms + WINDOW_MS - now_ms).max(1))
    }

    fn start(&self, id: u64, tokens: u64) {
        self.started.borrow_mut().push_back(Entry { id, at_ms: self.runtime.now_ms(), tokens });
        self.leave(id);
    }

    fn leave(&self, id: u64) {
        self.queue.borrow_mut().retain(|waiting| *waiting != id);
        self.changed.wake_all();
    }

    fn settle(&self, id: u64, tokens: u64) {
        if let Some(entry) = self.started.borrow_mut().iter_mut().find(|entry| entry.id == id) {
            entry.tokens = tokens;
        }
        self.changed.wake_all();
    }

    /// The stream of a request, which starts when its place has come.
    pub(super) fn stream(self: &Rc<Self>, request: ModelRequest, start: Start) -> ChunkStream {
        let id = self.next.get();
        self.next.set(id + 1);
        self.queue.borrow_mut().push_back(id);
        let cancelled = request.signal.cancelled();
        Box::pin(Limited {
            limiter: self.clone(),
            id,
            tokens: estimate(&request),
            cancelled: Box::pin(async move {
                cancelled.await;
            }),
            timer: None,
            waiting: Some((request, start)),
            inner: None,
        })
    }
}

pub(super) type Start = Box<dyn FnOnce(ModelRequest) -> ChunkStream>;

struct Limited {
    limiter: Rc<Limiter>,
    id: u64,
    tokens: u64,
    cancelled: LocalBoxFuture<()>,
    timer: Option<LocalBoxFuture<()>>,
    waiting: Option<(ModelRequest, Start)>,
    inner: Option<ChunkStream>,
}

impl Drop for Limited {
    fn drop(&mut self) {
        if self.waiting.is_some() {
            self.limiter.leave(self.id);
        }
    }
}

impl futures_core::Stream for Limited {
    type Item = Result<Chunk>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(inner) = &mut self.inner {
                let item = inner.as_mut().poll_next(context);
                if let Poll::Ready(Some(Ok(Chunk::Usage(usage)))) = &item {
                    let cache = usage.cache_read_tokens.unwrap_or(0) + usage.cache_write_tokens.unwrap_or(0);
                    self.limiter.settle(self.id, usage.input_tokens + usage.output_tokens + cache);
                }
                return item;
            }
            if self.cancelled.as_mut().poll(context).is_ready() {
                let Some((request, _)) = self.waiting.take() else { return Poll::Ready(None) };
                self.limiter.leave(self.id);
                let failure = Failure::new("ABORTED", request.signal.error().message());
                let reason = FinishReason::aborted(failure);
                return Poll::Ready(Some(Ok(Chunk::Finish { reason, replay_state: None })));
            }
            let limiter = self.limiter.clone();
            let is_first = limiter.queue.borrow().front() == Some(&self.id);
            let wait_ms = if is_first { limiter.wait_ms(self.tokens) } else { i64::MAX };
            if wait_ms == 0 {
                let Some((request, start)) = self.waiting.take() else { return Poll::Ready(None) };
                limiter.start(self.id, self.tokens);
                self.timer = None;
                self.inner = Some(start(request));
                continue;
            }
            limiter.changed.register(context);
            if !is_first {
                return Poll::Pending;
            }
            let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(1));
            let timer = self.timer.get_or_insert_with(|| limiter.runtime.sleep(wait));
            match timer.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => self.timer = None,
            }
        }
    }
}

/// A rough count of a request's tokens: four bytes of text each, and the ceiling of the answer where there is one.
fn estimate(request: &ModelRequest) -> u64 {
    fn bytes(blocks: &[Block]) -> usize {
        blocks
            .iter()
            .map(|block| match block {
                Block::ToolCall { name, arguments, .. } => name.len() + arguments.len(),
                Block::ToolResult { content, .. } => bytes(content),
                Block::Text(_) | Block::Reasoning(_) | Block::Other(_) => {
                    block.text().or_else(|| block.reasoning()).map_or(0, str::len)
                }
            })
            .sum()
    }
    let said: usize = request.messages.iter().map(|message| bytes(message.content())).sum();
    let system = request.header.system.as_ref().map_or(0, |text| text.len());
    let tools: usize = request.header.tools.iter().map(|tool| tool.json().len()).sum();
    (said + system + tools) as u64 / 4 + request.header.config.max_tokens.unwrap_or(0)
}
