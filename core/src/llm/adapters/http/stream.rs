//! The stream of one request, on the owner's thread: starts the exchange at the first poll, feeds bytes through framer
//! and decoder, and watches for silence and cancellation.

use super::error::{Head, http_failure};
use super::transport::{Event, Exchange};
use super::{Credential, Decoder, Inner, Outgoing, Progress, Wire};
use crate::error::{Code, Error, Result};
use crate::llm::sse::{Sse, SseFramer};
use crate::llm::{Chunk, Failure, FinishReason, ModelRequest};
use crate::runtime::{LocalBoxFuture, SignalGuard};
use futures_core::Stream;
use reqwest::header::HeaderValue;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An error body, or the body of a server that does not stream, is read up to this size.
const BODY_LIMIT: usize = 64 * 1024 * 1024;

/// Shorter texts are no secrets but words that would be found all over a message.
const SHORTEST_SECRET: usize = 8;

pub(super) struct HttpStream<W: Wire> {
    adapter: Rc<Inner<W>>,
    request: ModelRequest,
    cancelled: LocalBoxFuture<()>,
    state: State,
    head: Head,
    framer: SseFramer,
    decoder: W::Decoder,
    /// What is read as a whole: an error body, or an answer that is not a stream.
    body: Vec<u8>,
    has_head: bool,
    has_bytes: bool,
    /// The key and header values that were sent: a provider that quotes them must not bring them into the log.
    secrets: Vec<String>,
    chunks: std::collections::VecDeque<Chunk>,
    /// Handed on after the chunks.
    failure: Option<Failure>,
    watch: Watch,
}

enum State {
    Unsent,
    /// The guard closes the socket on cancellation without waiting for the next poll.
    Open(Exchange, #[expect(dead_code, reason = "held for its drop")] SignalGuard),
    Closed,
}

/// How long the server has been silent. Only time in which somebody waits counts (DSK-22).
#[derive(Default)]
struct Watch {
    /// When the request began; fixed at the first poll.
    began_ms: Option<i64>,
    byte_since_ms: Option<i64>,
    event_since_ms: Option<i64>,
    /// The timer and the moment it fires at.
    timer: Option<(i64, LocalBoxFuture<()>)>,
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl<W: Wire> HttpStream<W> {
    pub(super) fn new(adapter: Rc<Inner<W>>, request: ModelRequest) -> Self {
        let cancelled = request.signal.cancelled();
        // Unique in the session whatever the server sent before.
        let decoder = adapter.wire.decoder(format!("call_{}", uuid::Uuid::new_v4().simple()));
        Self {
            adapter,
            cancelled: Box::pin(async move {
                cancelled.await;
            }),
            state: State::Unsent,
            head: Head::default(),
            framer: SseFramer::default(),
            decoder,
            body: Vec::new(),
            has_head: false,
            has_bytes: false,
            secrets: Vec::new(),
            chunks: Default::default(),
            failure: None,
            watch: Watch::default(),
            request,
        }
    }

    /// Sends the request. Key and URL come from the same reading (DSK-17).
    fn open(&mut self) -> Result<()> {
        let adapter = &self.adapter;
        let mut headers = adapter.headers.clone();
        let secrets = headers.values().filter(|value| value.is_sensitive());
        self.secrets = secrets.filter_map(|value| value.to_str().ok().map(str::to_owned)).collect();
        if let Some(key) = adapter.key.read()? {
            let (name, text) = match adapter.wire.credential() {
                Credential::Bearer => ("authorization", format!("Bearer {key}")),
                Credential::Header(name) => (name, key.clone()),
            };
            let value = HeaderValue::from_str(&text);
            let mut value = value.map_err(|_| Error::new(Code::InvalidArgument, "the API key cannot be sent"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
            self.secrets.push(key);
        }
        // A longer secret may hold a shorter one.
        self.secrets.retain(|secret| secret.len() >= SHORTEST_SECRET);
        self.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        let outgoing = Outgoing {
            request: &self.request,
            info: adapter.models.get(&self.request.header.config.model),
            images: adapter.images.as_ref(),
            extra: &adapter.extra,
        };
        let body = adapter.wire.body(outgoing).map_err(Error::model)?;
        self.watch.began_ms = Some(adapter.clock.now_ms());
        let exchange = adapter.client.post(adapter.url.clone(), headers, body)?;
        let handle = exchange.abort_handle();
        let guard = self.request.signal.on_cancel(move |_| handle.abort());
        self.state = State::Open(exchange, guard);
        Ok(())
    }

    fn receive(&mut self, event: Event) {
        self.watch.byte_since_ms = None;
        match event {
            Event::Head(head) => {
                if let (Some(encoding), true) = (&head.encoding, is_success(&head)) {
                    let message = format!("the answer is encoded as `{encoding}`, which was not asked for");
                    self.fail(Failure::new("MALFORMED_RESPONSE", message));
                }
                self.head = head;
                self.has_head = true;
            }
            Event::Bytes(bytes) if is_success(&self.head) && !self.head.is_json => self.read(&bytes),
            Event::Bytes(bytes) => {
                self.watch.event_since_ms = None;
                let room = BODY_LIMIT.saturating_sub(self.body.len());
                self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            // A complete answer is not undone by the way the connection ends.
            Event::Failed(_) if self.decoder.has_finish_reason() => self.end(),
            Event::Failed(failure) if is_success(&self.head) || self.head.status == 0 => self.fail(failure),
            Event::Failed(_) => self.end(),
        }
    }

    /// Feeds bytes of the event stream.
    fn read(&mut self, bytes: &[u8]) {
        self.has_bytes |= !bytes.is_empty();
        let (decoder, watch) = (&mut self.decoder, &mut self.watch);
        let (mut chunks, mut outcome) = (Vec::new(), Ok(Progress::More));
        let fed = self.framer.feed(bytes, |found| {
            if let Sse::Event { name, data } = found {
                // Bytes after the sentinel or an error are ignored (SSE-02).
                if !matches!(outcome, Ok(Progress::Done) | Err(_)) {
                    outcome = decoder.payload(name, &data, &mut chunks);
                    if !matches!(outcome, Ok(Progress::KeepAlive)) {
                        watch.event_since_ms = None;
                    }
                }
            }
        });
        self.chunks.extend(chunks);
        match (outcome, fed) {
            (Err(failure), _) => self.fail(failure),
            (Ok(Progress::Done), _) => self.state = State::Closed,
            (Ok(_), Err(error)) => self.fail(Failure::new("MALFORMED_RESPONSE", error.to_string())),
            (Ok(_), Ok(())) => {}
        }
    }

    /// The body ended.
    fn end(&mut self) {
        self.state = State::Closed;
        let mut chunks = Vec::new();
        let ended = if self.head.status == 0 {
            Err(Failure::new("TRANSPORT", "the request ended without an answer"))
        } else if !is_success(&self.head) {
            let now_ms = u64::try_from(self.adapter.clock.now_ms()).unwrap_or(0);
            let now: SystemTime = UNIX_EPOCH + Duration::from_millis(now_ms);
            Err(http_failure(&self.head, &String::from_utf8_lossy(&self.body), now))
        } else if self.head.is_json && !self.body.is_empty() {
            let text = String::from_utf8_lossy(&self.body);
            let read = self.decoder.payload("", &text, &mut chunks);
            read.and_then(|_| self.decoder.end(&mut chunks))
        } else if !self.has_bytes {
            Err(Failure::new("EMPTY_RESPONSE", "the provider answered with an empty body"))
        } else {
            self.decoder.end(&mut chunks)
        };
        self.chunks.extend(chunks);
        if let Err(failure) = ended {
            self.fail(failure);
        }
    }

    /// Closes the socket and hands the failure on after what was decoded before it.
    fn fail(&mut self, mut failure: Failure) {
        self.state = State::Closed;
        failure.request_id = failure.request_id.or_else(|| self.head.request_id.clone());
        for secret in &self.secrets {
            failure.message = failure.message.replace(secret.as_str(), "[key]");
        }
        self.failure = Some(failure);
    }

    /// Arms or polls the watchdog; says which limit has passed.
    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<&'static str> {
        let (clock, limits) = (&self.adapter.clock, self.adapter.limits);
        loop {
            let now_ms = clock.now_ms();
            let watch = &mut self.watch;
            let left = |since_ms: &mut Option<i64>, limit: Duration| {
                let waited = now_ms.saturating_sub(*since_ms.get_or_insert(now_ms)).max(0);
                millis(limit).saturating_sub(waited)
            };
            let until_byte = if self.has_head { limits.idle } else { limits.first_byte };
            let byte_left = left(&mut watch.byte_since_ms, until_byte);
            let event_left = left(&mut watch.event_since_ms, limits.event_idle);
            let total_left = limits.total.map_or(i64::MAX, |limit| left(&mut watch.began_ms, limit));
            if total_left <= 0 {
                return Poll::Ready("the request took longer than its total limit");
            }
            if byte_left <= 0 {
                return Poll::Ready(match self.has_head {
                    true => "the provider sent no byte for longer than the idle limit",
                    false => "the provider did not begin to answer within the limit for the first byte",
                });
            }
            if event_left <= 0 {
                return Poll::Ready("the provider sent nothing but keep-alive for longer than the idle limit");
            }
            let wait_ms = byte_left.min(event_left).min(total_left);
            let due_ms = now_ms.saturating_add(wait_ms);
            // One timer serves many reads: when it fires early the rest is waited for again. One that would fire late,
            // because another limit is in force now, is made anew.
            if watch.timer.as_ref().is_none_or(|(armed_ms, _)| *armed_ms > due_ms) {
                let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0));
                watch.timer = Some((due_ms, clock.sleep(wait)));
            }
            let Some((_, timer)) = &mut watch.timer else { continue };
            match timer.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => watch.timer = None,
            }
        }
    }

    fn time_out(&mut self, what: &str) {
        if is_success(&self.head) || self.head.status == 0 {
            self.fail(Failure::new("TIMEOUT", what));
        } else {
            // The status is known; its body may stay away.
            self.end();
        }
    }

    /// What is ready to be handed on.
    fn ready(&mut self) -> Option<Result<Chunk>> {
        let item = match self.chunks.pop_front() {
            Some(chunk) => Ok(chunk),
            None => Err(Error::model(self.failure.take()?)),
        };
        // From here on it is the consumer's time.
        self.watch.byte_since_ms = None;
        self.watch.event_since_ms = None;
        Some(item)
    }

    fn is_over(&self) -> bool {
        matches!(self.state, State::Closed) && self.chunks.is_empty() && self.failure.is_none()
    }
}

fn is_success(head: &Head) -> bool {
    (200..300).contains(&head.status)
}

impl<W: Wire> Stream for HttpStream<W> {
    type Item = Result<Chunk>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.is_over() {
            return Poll::Ready(None);
        }
        if this.cancelled.as_mut().poll(context).is_ready() {
            this.state = State::Closed;
            this.chunks.clear();
            this.failure = None;
            let failure = Failure::new("ABORTED", this.request.signal.error().message());
            let reason = FinishReason::aborted(failure);
            return Poll::Ready(Some(Ok(Chunk::Finish { reason, replay_state: None })));
        }
        loop {
            if let Some(item) = this.ready() {
                return Poll::Ready(Some(item));
            }
            let event = match &mut this.state {
                State::Closed => return Poll::Ready(None),
                State::Unsent => {
                    if let Err(error) = this.open() {
                        this.state = State::Closed;
                        return Poll::Ready(Some(Err(error)));
                    }
                    continue;
                }
                State::Open(exchange, _) => exchange.poll(context),
            };
            match event {
                Poll::Ready(Some(event)) => this.receive(event),
                Poll::Ready(None) => this.end(),
                Poll::Pending => match this.poll_silence(context) {
                    Poll::Ready(what) => this.time_out(what),
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }
}
