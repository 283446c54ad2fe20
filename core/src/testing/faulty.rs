//! A model whose answers break in ways that are chosen.

use crate::error::{Error, Result};
use crate::llm::{Adapter, Chunk, ChunkStream, Failure, FinishReason, ModelInfo, ModelRequest};
use crate::runtime::{LocalBoxFuture, Signal};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// What happens to one answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Nothing.
    None,
    /// After so many chunks nothing comes any more, until the request is cancelled or its turn's time is up.
    Stall(usize),
    /// After so many chunks the stream is cut: `STREAM_CLOSED`, as an adapter reports a connection that ended early.
    Cut(usize),
    /// After so many chunks this failure comes.
    Fail(usize, Failure),
    /// Every delta is cut into single characters.
    Crumble,
}

/// Breaks the answers of another adapter: the first request has the first fault, and so on; what comes after the last
/// fault is untouched. Clones share the faults.
#[derive(Clone)]
pub struct Faulty(Rc<Inner>);

struct Inner {
    adapter: Rc<dyn Adapter>,
    faults: RefCell<VecDeque<Fault>>,
    requests: Cell<usize>,
}

impl Faulty {
    /// Wraps an adapter.
    pub fn new(adapter: impl Adapter + 'static, faults: impl IntoIterator<Item = Fault>) -> Self {
        Self::shared(Rc::new(adapter), faults)
    }

    /// Wraps an adapter that others hold, too.
    pub fn shared(adapter: Rc<dyn Adapter>, faults: impl IntoIterator<Item = Fault>) -> Self {
        let faults = RefCell::new(faults.into_iter().collect());
        Self(Rc::new(Inner { adapter, faults, requests: Cell::new(0) }))
    }

    /// How many requests have come.
    pub fn request_count(&self) -> usize {
        self.0.requests.get()
    }
}

impl Adapter for Faulty {
    fn model_info(&self, provider: &str, model: &str, signal: &Signal) -> LocalBoxFuture<Result<ModelInfo>> {
        self.0.adapter.model_info(provider, model, signal)
    }

    fn stream(&self, request: ModelRequest) -> ChunkStream {
        self.0.requests.set(self.0.requests.get() + 1);
        let fault = self.0.faults.borrow_mut().pop_front().unwrap_or(Fault::None);
        let signal = request.signal.clone();
        let cancelled = signal.cancelled();
        Box::pin(Broken {
            inner: Some(self.0.adapter.stream(request)),
            fault,
            passed: 0,
            crumbs: VecDeque::new(),
            signal,
            cancelled: Box::pin(async move {
                cancelled.await;
            }),
        })
    }
}

struct Broken {
    inner: Option<ChunkStream>,
    fault: Fault,
    passed: usize,
    crumbs: VecDeque<Chunk>,
    signal: Signal,
    cancelled: LocalBoxFuture<()>,
}

impl futures_core::Stream for Broken {
    type Item = Result<Chunk>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(crumb) = self.crumbs.pop_front() {
            return Poll::Ready(Some(Ok(crumb)));
        }
        let passed = self.passed;
        match &self.fault {
            Fault::Stall(after) if passed >= *after => {
                // A stalled connection is closed by a cancellation, and by nothing else.
                if self.inner.is_some() && self.cancelled.as_mut().poll(context).is_ready() {
                    self.inner = None;
                    let failure = Failure::new("ABORTED", self.signal.error().message());
                    let reason = FinishReason::aborted(failure);
                    return Poll::Ready(Some(Ok(Chunk::Finish { reason, replay_state: None })));
                }
                return if self.inner.is_none() { Poll::Ready(None) } else { Poll::Pending };
            }
            Fault::Cut(after) | Fault::Fail(after, _) if passed >= *after => {
                if self.inner.take().is_none() {
                    return Poll::Ready(None);
                }
                let failure = match &self.fault {
                    Fault::Fail(_, failure) => failure.clone(),
                    _ => Failure::new("STREAM_CLOSED", "the stream was cut by a test; the answer is incomplete"),
                };
                return Poll::Ready(Some(Err(Error::model(failure))));
            }
            Fault::None | Fault::Stall(_) | Fault::Cut(_) | Fault::Fail(..) | Fault::Crumble => {}
        }
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let item = inner.as_mut().poll_next(context);
        let Poll::Ready(Some(Ok(chunk))) = item else { return item };
        self.passed += 1;
        if self.fault == Fault::Crumble {
            self.crumbs.extend(crumble(chunk));
            return Poll::Ready(self.crumbs.pop_front().map(Ok));
        }
        Poll::Ready(Some(Ok(chunk)))
    }
}

/// A delta as one of each character; any other chunk, and an empty delta, as it is.
fn crumble(chunk: Chunk) -> Vec<Chunk> {
    let letters = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
    match chunk {
        Chunk::TextDelta { index, text } if !text.is_empty() => {
            letters(&text).into_iter().map(|text| Chunk::TextDelta { index, text }).collect()
        }
        Chunk::ReasoningDelta { index, text } if !text.is_empty() => {
            letters(&text).into_iter().map(|text| Chunk::ReasoningDelta { index, text }).collect()
        }
        Chunk::ToolCallDelta { index, id, name, arguments_delta } if !arguments_delta.is_empty() => {
            let delta =
                |arguments_delta| Chunk::ToolCallDelta { index, id: id.clone(), name: name.clone(), arguments_delta };
            letters(&arguments_delta).into_iter().map(delta).collect()
        }
        chunk => vec![chunk],
    }
}
