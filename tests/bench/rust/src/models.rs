//! The models of the workloads: they answer at once, with chunks that were made before.

use futures_core::Stream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use turnwheel::Block;
use turnwheel::llm::{Adapter, Chunk, ChunkStream, FinishReason, ModelRequest};
use turnwheel::message::Usage;
use turnwheel::runtime::LocalBoxFuture;

const DELTA: &str = "abcdefg ";
const ARGUMENTS: &str = r#"{"city":"Paris","units":"metric"}"#;

/// An answer of so many deltas of 8 bytes.
pub fn text(deltas: usize) -> Arc<[Chunk]> {
    let mut chunks = vec![Chunk::BlockStart { index: 0, block_type: "text".into() }];
    chunks.extend((0..deltas).map(|_| Chunk::TextDelta { index: 0, text: DELTA.into() }));
    chunks.push(Chunk::BlockEnd { index: 0, block: Block::Text(DELTA.repeat(deltas)) });
    chunks.push(Chunk::Usage(Usage { input_tokens: 10, output_tokens: 64, ..Usage::default() }));
    chunks.push(Chunk::Finish { reason: FinishReason::Stop, replay_state: None });
    chunks.into()
}

/// An answer of so many calls of one tool.
fn calls(tool: &str, count: u64) -> Arc<[Chunk]> {
    let mut chunks = Vec::new();
    for index in 0..count {
        let id = format!("call-{index}");
        chunks.push(Chunk::BlockStart { index, block_type: "tool-call".into() });
        chunks.push(Chunk::ToolCallDelta {
            index,
            id: Some(id.clone()),
            name: Some(tool.into()),
            arguments_delta: ARGUMENTS.into(),
        });
        let block = Block::ToolCall { id: id.as_str().into(), name: tool.into(), arguments: ARGUMENTS.into() };
        chunks.push(Chunk::BlockEnd { index, block });
    }
    chunks.push(Chunk::Usage(Usage { input_tokens: 10, output_tokens: 64, ..Usage::default() }));
    chunks.push(Chunk::Finish { reason: FinishReason::ToolCalls, replay_state: None });
    chunks.into()
}

/// Answers with text, or with calls until they are answered, or hangs after four deltas.
pub struct Model {
    text: Arc<[Chunk]>,
    calls: Option<Arc<[Chunk]>>,
    hangs_after: Option<usize>,
}

impl Model {
    /// Text only.
    pub fn text(deltas: usize) -> Self {
        Self { text: text(deltas), calls: None, hangs_after: None }
    }

    /// So many calls of a tool, then 16 deltas.
    pub fn tool(name: &str, count: u64) -> Self {
        Self { calls: Some(calls(name, count)), ..Self::text(16) }
    }

    /// Four deltas, then nothing until the request is cancelled.
    pub fn hanging() -> Self {
        Self { hangs_after: Some(5), ..Self::text(8) }
    }
}

impl Adapter for Model {
    fn stream(&self, request: ModelRequest) -> ChunkStream {
        let last = request.messages.get(request.messages.len() - 1);
        let is_answered = last.is_some_and(|message| message.source().kind() == "tool");
        let chunks = self.calls.as_ref().filter(|_| !is_answered).unwrap_or(&self.text).clone();
        let end = self.hangs_after.unwrap_or(chunks.len());
        let signal = request.signal.clone();
        let cancelled = self.hangs_after.map(|_| -> LocalBoxFuture<()> {
            let cancelled = signal.cancelled();
            Box::pin(async move { drop(cancelled.await) })
        });
        Box::pin(Answer { chunks, next: 0, end, cancelled })
    }
}

struct Answer {
    chunks: Arc<[Chunk]>,
    next: usize,
    end: usize,
    cancelled: Option<LocalBoxFuture<()>>,
}

impl Stream for Answer {
    type Item = turnwheel::Result<Chunk>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.next < this.end {
            this.next += 1;
            return Poll::Ready(this.chunks.get(this.next - 1).cloned().map(Ok));
        }
        match &mut this.cancelled {
            Some(cancelled) => cancelled.as_mut().poll(context).map(|()| None),
            None => Poll::Ready(None),
        }
    }
}
