//! A model that answers from a script: for demonstrations, tests and measurements. It opens no socket; replies come in
//! the order of the script, each as the chunks that a real model would send.

use crate::json::Value;
use crate::llm::{Adapter, Chunk, ChunkStream, Failure, FinishReason, ModelRequest};
use crate::message::{Block, Usage};
use crate::runtime::{Clock, LocalBoxFuture, SystemClock};
use futures_core::Stream;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A tool call of a scripted reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptedCall {
    /// The call's id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The argument text.
    pub arguments: String,
}

impl<I: Into<String>, N: Into<String>, A: Into<String>> From<(I, N, A)> for ScriptedCall {
    fn from((id, name, arguments): (I, N, A)) -> Self {
        Self { id: id.into(), name: name.into(), arguments: arguments.into() }
    }
}

/// One answer. Blocks come in the order reasoning, text, calls.
#[derive(Clone, Debug, Default)]
pub struct ScriptedReply {
    /// A reasoning block.
    pub reasoning: Option<String>,
    /// A text block.
    pub text: Option<String>,
    /// Tool calls.
    pub calls: Vec<ScriptedCall>,
    /// Usage, sent before the finish.
    pub usage: Option<Usage>,
    /// Why the answer ends; by default `tool-calls` if there are calls, else `stop`.
    pub finish: Option<FinishReason>,
    /// Ends the answer with this failure, and leaves its last block open.
    pub error: Option<Failure>,
    /// Cuts texts and arguments into deltas of so many characters; one delta a block by default.
    pub chunk_size: Option<usize>,
    /// The time before each chunk.
    pub delay_between_chunks: Option<Duration>,
    /// Provider-private data for the finish chunk.
    pub replay_state: Option<Value>,
}

impl ScriptedReply {
    /// A reply of one text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// A reply of tool calls.
    pub fn calls<C: Into<ScriptedCall>>(calls: impl IntoIterator<Item = C>) -> Self {
        Self { calls: calls.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// A reply that fails.
    pub fn error(failure: Failure) -> Self {
        Self { error: Some(failure), ..Self::default() }
    }

    /// The reply as a stream of chunks.
    pub fn into_chunks(self) -> Vec<Chunk> {
        let has_calls = !self.calls.is_empty();
        let blocks = self.reasoning.map(Block::Reasoning).into_iter().chain(self.text.map(Block::Text));
        let calls = self.calls.into_iter().map(|call| Block::ToolCall {
            id: call.id.into(),
            name: call.name,
            arguments: call.arguments,
        });
        let mut chunks = Vec::new();
        for (index, block) in (0..).zip(blocks.chain(calls)) {
            chunks.push(Chunk::BlockStart { index, block_type: block.kind().to_owned() });
            push_deltas(index, &block, self.chunk_size, &mut chunks);
            chunks.push(Chunk::BlockEnd { index, block });
        }
        let is_failed =
            self.error.is_some() || matches!(self.finish, Some(FinishReason::Error(_) | FinishReason::Aborted(_)));
        if is_failed {
            chunks.pop();
        }
        chunks.extend(self.usage.map(Chunk::Usage));
        let default = if has_calls { FinishReason::ToolCalls } else { FinishReason::Stop };
        let reason = self.error.map(FinishReason::error).or(self.finish).unwrap_or(default);
        chunks.push(Chunk::Finish { reason, replay_state: self.replay_state.map(Box::new) });
        chunks
    }
}

/// Appends a block's deltas, one of `size` characters after the other.
fn push_deltas(index: u64, block: &Block, size: Option<usize>, chunks: &mut Vec<Chunk>) {
    let whole = match block {
        Block::Text(text) | Block::Reasoning(text) => text,
        Block::ToolCall { arguments, .. } => arguments,
        Block::ToolResult { .. } | Block::Other(_) => return,
    };
    let mut rest = whole.as_str();
    loop {
        let cut = size.and_then(|size| rest.char_indices().nth(size.max(1))).map_or(rest.len(), |(at, _)| at);
        let (delta, after) = rest.split_at(cut);
        let delta = delta.to_owned();
        chunks.push(match block {
            Block::Reasoning(_) => Chunk::ReasoningDelta { index, text: delta },
            Block::ToolCall { id, name, .. } => Chunk::ToolCallDelta {
                index,
                id: Some(id.as_str().to_owned()),
                name: Some(name.clone()),
                arguments_delta: delta,
            },
            Block::Text(_) | Block::ToolResult { .. } | Block::Other(_) => Chunk::TextDelta { index, text: delta },
        });
        if after.is_empty() {
            return;
        }
        rest = after;
    }
}

type Respond = Rc<dyn Fn(&ModelRequest) -> ScriptedReply>;

/// What answers when the queue of replies is empty.
#[derive(Clone, Default)]
enum Otherwise {
    #[default]
    Fail,
    Respond(Respond),
    Repeat(Arc<[Chunk]>),
}

/// The scripted adapter. Clones share the script.
#[derive(Clone)]
pub struct Scripted(Rc<Inner>);

struct Inner {
    replies: RefCell<VecDeque<ScriptedReply>>,
    otherwise: RefCell<Otherwise>,
    clock: RefCell<Rc<dyn Clock>>,
    requests: Cell<usize>,
    last: RefCell<Option<ModelRequest>>,
}

impl Default for Scripted {
    fn default() -> Self {
        Self(Rc::new(Inner {
            replies: RefCell::default(),
            otherwise: RefCell::default(),
            clock: RefCell::new(Rc::new(SystemClock::default())),
            requests: Cell::new(0),
            last: RefCell::new(None),
        }))
    }
}

impl Scripted {
    /// An empty script.
    pub fn new() -> Self {
        Self::default()
    }

    /// A model that answers every request with the same chunks, which are made once: for measurements.
    pub fn repeat(chunks: Vec<Chunk>) -> Self {
        let script = Self::new();
        *script.0.otherwise.borrow_mut() = Otherwise::Repeat(chunks.into());
        script
    }

    /// Adds a reply to the script.
    pub fn reply(self, reply: ScriptedReply) -> Self {
        self.0.replies.borrow_mut().push_back(reply);
        self
    }

    /// Adds a reply of one text block.
    pub fn text(self, text: impl Into<String>) -> Self {
        self.reply(ScriptedReply::text(text))
    }

    /// Adds a reply of tool calls, each `(id, name, arguments)`.
    pub fn calls<C: Into<ScriptedCall>>(self, calls: impl IntoIterator<Item = C>) -> Self {
        self.reply(ScriptedReply::calls(calls))
    }

    /// Adds a reply that fails.
    pub fn error(self, failure: Failure) -> Self {
        self.reply(ScriptedReply::error(failure))
    }

    /// Answers every request for which the script has no reply left.
    pub fn respond(self, respond: impl Fn(&ModelRequest) -> ScriptedReply + 'static) -> Self {
        *self.0.otherwise.borrow_mut() = Otherwise::Respond(Rc::new(respond));
        self
    }

    /// The clock of the delays; the machine's by default.
    pub fn clock(self, clock: Rc<dyn Clock>) -> Self {
        *self.0.clock.borrow_mut() = clock;
        self
    }

    /// How many requests have come.
    pub fn request_count(&self) -> usize {
        self.0.requests.get()
    }

    /// How many replies are left.
    pub fn remaining(&self) -> usize {
        self.0.replies.borrow().len()
    }

    /// The latest request.
    pub fn last_request(&self) -> Option<ModelRequest> {
        self.0.last.borrow().clone()
    }

    fn next_reply(&self, request: &ModelRequest) -> Source {
        let reply = self.0.replies.borrow_mut().pop_front();
        // The closure is host code: nothing of the script may be borrowed while it runs.
        let otherwise = self.0.otherwise.borrow().clone();
        let reply = match (reply, otherwise) {
            (Some(reply), _) => reply,
            (None, Otherwise::Respond(respond)) => respond(request),
            (None, Otherwise::Repeat(chunks)) => return Source::Shared { chunks, next: 0 },
            (None, Otherwise::Fail) => ScriptedReply::error(Failure::new("UNKNOWN", "the script has no reply left")),
        };
        let delay = reply.delay_between_chunks.map(|delay| (delay, self.0.clock.borrow().clone()));
        Source::Own { chunks: reply.into_chunks().into_iter(), delay }
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scripted({} replies left, {} requests so far)", self.remaining(), self.request_count())
    }
}

impl Adapter for Scripted {
    /// Takes the next reply at once, also if the stream is never polled.
    fn stream(&self, request: ModelRequest) -> ChunkStream {
        self.0.requests.set(self.0.requests.get() + 1);
        let source = self.next_reply(&request);
        let before = self.0.last.replace(Some(request.clone()));
        drop(before);
        Box::pin(ScriptedStream { request, source, wait: None })
    }
}

enum Source {
    Shared { chunks: Arc<[Chunk]>, next: usize },
    Own { chunks: std::vec::IntoIter<Chunk>, delay: Option<(Duration, Rc<dyn Clock>)> },
    Over,
}

struct ScriptedStream {
    request: ModelRequest,
    source: Source,
    /// The delay before the next chunk, and the cancellation that cuts it short.
    wait: Option<(LocalBoxFuture<()>, LocalBoxFuture<()>)>,
}

impl ScriptedStream {
    fn abort(&mut self) -> Chunk {
        self.source = Source::Over;
        self.wait = None;
        let failure = Failure::new("ABORTED", self.request.signal.error().message());
        Chunk::Finish { reason: FinishReason::aborted(failure), replay_state: None }
    }

    /// Waits out the delay; false if the request was cancelled meanwhile.
    fn poll_delay(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let Source::Own { chunks, delay: Some((delay, clock)) } = &self.source else { return Poll::Ready(true) };
        if chunks.as_slice().is_empty() {
            return Poll::Ready(true);
        }
        let (delay, clock, signal) = (*delay, clock.clone(), &self.request.signal);
        let (sleep, cancelled) = self.wait.get_or_insert_with(|| {
            let cancelled = signal.cancelled();
            (clock.sleep(delay), Box::pin(async move { drop(cancelled.await) }))
        });
        if cancelled.as_mut().poll(context).is_ready() {
            return Poll::Ready(false);
        }
        std::task::ready!(sleep.as_mut().poll(context));
        self.wait = None;
        Poll::Ready(true)
    }
}

impl Stream for ScriptedStream {
    type Item = crate::error::Result<Chunk>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if matches!(this.source, Source::Over) {
            return Poll::Ready(None);
        }
        if this.request.signal.is_cancelled() || !std::task::ready!(this.poll_delay(context)) {
            return Poll::Ready(Some(Ok(this.abort())));
        }
        let chunk = match &mut this.source {
            Source::Shared { chunks, next } => {
                *next += 1;
                chunks.get(*next - 1).cloned()
            }
            Source::Own { chunks, .. } => chunks.next(),
            Source::Over => None,
        };
        // Nothing follows a finish, also when the request is cancelled before the next poll.
        if matches!(chunk, None | Some(Chunk::Finish { .. })) {
            this.source = Source::Over;
        }
        Poll::Ready(chunk.map(Ok))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::{CallConfig, RequestHeader};
    use crate::runtime::{ManualClock, Runtime, Signal};
    use crate::session::{CancelCause, History};

    fn request() -> ModelRequest {
        let header = RequestHeader {
            config: CallConfig::new("p", "m"),
            adapter_defaults: Default::default(),
            system: None,
            tools: Vec::new(),
        };
        let (messages, signal) = (History::default(), Signal::new());
        ModelRequest { header: Arc::new(header), messages, session_id: None, signal }
    }

    fn collect(script: &Scripted) -> Vec<Chunk> {
        Runtime::default().block_on(async {
            let (mut stream, mut chunks) = (script.stream(request()), Vec::new());
            while let Some(item) = std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await {
                chunks.push(item.expect("a script throws nothing"));
            }
            chunks
        })
    }

    fn texts(chunks: &[Chunk]) -> String {
        let lines = chunks.iter().map(|chunk| {
            let mut line = String::new();
            chunk.write(&mut line);
            line
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn replies_expand_to_chunks_in_the_order_of_the_script() {
        let usage = Usage { input_tokens: 1, output_tokens: 2, ..Usage::default() };
        let reply = ScriptedReply { reasoning: Some("r".into()), usage: Some(usage), ..ScriptedReply::text("héy") };
        let script = Scripted::new().reply(ScriptedReply { chunk_size: Some(2), ..reply }).calls([("c", "f", "{}")]);
        let first = r#"{"type":"block-start","index":0,"blockType":"reasoning"}
{"type":"reasoning-delta","index":0,"text":"r"}
{"type":"block-end","index":0,"block":{"type":"reasoning","text":"r"}}
{"type":"block-start","index":1,"blockType":"text"}
{"type":"text-delta","index":1,"text":"hé"}
{"type":"text-delta","index":1,"text":"y"}
{"type":"block-end","index":1,"block":{"type":"text","text":"héy"}}
{"type":"usage","usage":{"inputTokens":1,"outputTokens":2}}
{"type":"finish","reason":{"kind":"stop"}}"#;
        assert_eq!(texts(&collect(&script)), first);
        let second = r#"{"type":"block-start","index":0,"blockType":"tool-call"}
{"type":"tool-call-delta","index":0,"id":"c","name":"f","argumentsDelta":"{}"}
{"type":"block-end","index":0,"block":{"type":"tool-call","id":"c","name":"f","arguments":"{}"}}
{"type":"finish","reason":{"kind":"tool-calls"}}"#;
        assert_eq!(texts(&collect(&script)), second);
        assert_eq!((script.request_count(), script.remaining()), (2, 0));
    }

    #[test]
    fn a_failing_reply_leaves_its_last_block_open() {
        let reply = ScriptedReply { error: Some(Failure::new("SERVER", "m")), ..ScriptedReply::text("a") };
        let chunks = collect(&Scripted::new().reply(reply));
        let kinds = chunks.iter().map(Chunk::kind).collect::<Vec<_>>();
        assert_eq!(kinds, ["block-start", "text-delta", "finish"]);
    }

    #[test]
    fn an_empty_script_fails_unless_something_answers_otherwise() {
        let expected = Failure::new("UNKNOWN", "the script has no reply left");
        let finish = Chunk::Finish { reason: FinishReason::error(expected), replay_state: None };
        assert_eq!(collect(&Scripted::new()), [finish]);
        let echo = Scripted::new().text("first").respond(|request| ScriptedReply::text(&*request.header.config.model));
        let texts = [collect(&echo), collect(&echo), collect(&echo)].map(|chunks| chunks[1].clone());
        let delta = |text: &str| Chunk::TextDelta { index: 0, text: text.into() };
        assert_eq!(texts, [delta("first"), delta("m"), delta("m")]);
        let chunks = ScriptedReply::text("same").into_chunks();
        let same = Scripted::repeat(chunks.clone());
        assert_eq!([collect(&same), collect(&same)], [chunks.clone(), chunks]);
    }

    #[test]
    fn a_cancellation_cuts_a_delay_short() {
        let clock = ManualClock::new(0);
        let delay_between_chunks = Some(Duration::from_secs(60));
        let reply = ScriptedReply { delay_between_chunks, ..ScriptedReply::text("a") };
        let script = Scripted::new().clock(Rc::new(clock.clone())).reply(reply);
        let request = request();
        let mut stream = script.stream(request.clone());
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(stream.as_mut().poll_next(&mut context).is_pending());
        clock.advance(Duration::from_secs(60));
        assert!(matches!(stream.as_mut().poll_next(&mut context), Poll::Ready(Some(Ok(Chunk::BlockStart { .. })))));
        assert!(stream.as_mut().poll_next(&mut context).is_pending());
        request.signal.cancel(CancelCause::User);
        match stream.as_mut().poll_next(&mut context) {
            Poll::Ready(Some(Ok(Chunk::Finish { reason: FinishReason::Aborted(failure), .. }))) => {
                assert_eq!(failure.code, "ABORTED");
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(stream.as_mut().poll_next(&mut context), Poll::Ready(None)));
    }
}
