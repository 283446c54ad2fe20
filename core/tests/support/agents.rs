//! Agents for tests: a context with a model that plays chunk by chunk, gates, and a record of everything that is heard.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::llm::{Adapter, Chunk, ChunkStream, FinishReason, ModelRequest};
use turnwheel::runtime::{LocalBoxFuture, PumpState, Signal};
use turnwheel::session::{Event, InboxTarget, TurnEndReason};
use turnwheel::{Agent, CancelCause, Context, Error, EventData, Message, Notice, NoticeKind, Result, Tool, ToolOutput};

pub fn context(adapter: impl Adapter + 'static) -> Context {
    let ctx = Context::new();
    ctx.llm().register("fake", adapter).expect("a new route");
    ctx
}

pub fn open(ctx: &Context, id: &str) -> Agent {
    ctx.runtime().block_on(ctx.agent(id).provider("fake").model("m").open()).expect("the agent opens")
}

pub fn settle(ctx: &Context) {
    while ctx.runtime().pump() != PumpState::Idle {}
}

/// A model that answers every request with "hi".
pub fn hello() -> Scripted {
    Scripted::repeat(vec![text(0, "hi"), stop()])
}

/// A model whose first answer calls the tool of [`busy`], and every later one is "hi".
pub fn waiting() -> Scripted {
    Scripted::new().calls([("c1", "wait", "{}")]).respond(|_| ScriptedReply::text("hi"))
}

/// An agent whose first turn waits in a tool, and the gate that lets it go on.
pub fn busy(ctx: &Context) -> (Agent, Signal) {
    let (tool, _, gate) = gated("wait");
    ctx.tools().register(tool).expect("registered");
    let agent = open(ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(ctx);
    (agent, gate)
}

pub fn text(index: u64, text: &str) -> Chunk {
    Chunk::TextDelta { index, text: text.into() }
}

pub fn finish(reason: FinishReason) -> Chunk {
    Chunk::Finish { reason, replay_state: None }
}

pub fn stop() -> Chunk {
    finish(FinishReason::Stop)
}

pub fn prompt(id: &str) -> Message {
    Message::user_text(id, format!("text of {id}"))
}

pub fn shared(id: &str) -> Arc<Message> {
    Arc::new(prompt(id))
}

pub fn events(agent: &Agent) -> Vec<Arc<Event>> {
    agent.session().events_from(0)
}

pub fn kinds(agent: &Agent) -> Vec<String> {
    events(agent).iter().map(|event| event.kind().to_owned()).collect()
}

/// How many events of a type the log has.
pub fn count(agent: &Agent, kind: &str) -> usize {
    kinds(agent).iter().filter(|found| *found == kind).count()
}

pub fn turn_ends(agent: &Agent) -> Vec<TurnEndReason> {
    let reason = |event: &Arc<Event>| match &event.data {
        EventData::TurnEnd { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    events(agent).iter().filter_map(reason).collect()
}

/// The kinds of the turns' ends.
pub fn ends(agent: &Agent) -> Vec<String> {
    turn_ends(agent).iter().map(|reason| reason.kind().to_owned()).collect()
}

/// Ids of the user messages in the log, in order.
pub fn user_messages(agent: &Agent) -> Vec<String> {
    let id = |event: &Arc<Event>| match &event.data {
        EventData::UserMessage(message) => Some(message.id().to_string()),
        _ => None,
    };
    events(agent).iter().filter_map(id).collect()
}

pub fn pending(agent: &Agent, target: InboxTarget) -> Vec<String> {
    agent.inbox().pending(target).iter().map(|message| message.id().to_string()).collect()
}

/// Call id and error code (`""` without one, `-` for a success) of the results, in log order.
pub fn results(agent: &Agent) -> Vec<(String, String)> {
    let result = |event: &Arc<Event>| match &event.data {
        EventData::ToolResult { message, error, .. } => {
            let value = message.to_value();
            let block = value.get("content").and_then(|content| content.as_array()).and_then(|blocks| blocks.first());
            let id = block.and_then(|block| block.get("toolCallId")).and_then(|id| id.as_str());
            let failed = message.json().contains("\"isError\":true");
            let code = error.as_ref().map(|error| error.code.clone()).unwrap_or_default();
            Some((id.unwrap_or("?").to_owned(), if failed { code } else { "-".into() }))
        }
        _ => None,
    };
    events(agent).iter().filter_map(result).collect()
}

pub type Log = Rc<RefCell<Vec<String>>>;

/// What happens to agents and sessions.
const RECORDED: [NoticeKind; 12] = [
    NoticeKind::SessionCreated,
    NoticeKind::SessionDisposed,
    NoticeKind::Created,
    NoticeKind::Disposed,
    NoticeKind::Status,
    NoticeKind::Inserted,
    NoticeKind::Claimed,
    NoticeKind::Discarded,
    NoticeKind::SessionStart,
    NoticeKind::Error,
    NoticeKind::SessionEvent,
    NoticeKind::ToolResult,
];

/// Records notifications and log events, as short lines.
pub fn record(ctx: &Context) -> Log {
    let log = Log::default();
    for kind in RECORDED {
        let log = log.clone();
        ctx.on(kind, move |notice| {
            log.borrow_mut().push(line(notice));
            Ok(())
        })
        .expect("registered");
    }
    log
}

fn line(notice: &Notice) -> String {
    match notice {
        Notice::Status { status, .. } => format!("status {}", status.as_str()),
        Notice::Inserted { message, .. } => format!("inserted {}", message.id()),
        Notice::Claimed { message, turn, .. } => format!("claimed {} by {turn}", message.id()),
        Notice::Discarded { message, .. } => format!("discarded {}", message.id()),
        Notice::Error { turn, step, error, .. } => format!("error {turn}/{step} {}", error.message()),
        Notice::SessionEvent { event, .. } => format!("log {}", event.kind()),
        Notice::ToolResult { result, .. } => format!("result {}", result.call.call_id),
        _ => notice.kind().as_str().to_owned(),
    }
}

/// The recorded lines that begin with one of the words.
pub fn lines(log: &Log, words: &[&str]) -> Vec<String> {
    let log = log.borrow();
    log.iter().filter(|line| words.iter().any(|word| line.starts_with(word))).cloned().collect()
}

/// Runs `act` at the first log event of a type.
pub fn at_first(ctx: &Context, kind: &'static str, act: impl Fn(&Agent) + 'static) {
    let done = Cell::new(false);
    ctx.on(NoticeKind::SessionEvent, move |notice| {
        let Notice::SessionEvent { event, agent: Some(agent), .. } = notice else { return Ok(()) };
        if event.kind() == kind && !done.replace(true) {
            act(agent);
        }
        Ok(())
    })
    .expect("registered");
}

/// Runs `act` at the first notification of a kind.
pub fn on_first(ctx: &Context, kind: NoticeKind, act: impl Fn(&Agent) + 'static) {
    let done = Cell::new(false);
    ctx.on(kind, move |notice| {
        if !done.replace(true) {
            act(notice.agent().expect("it is about an agent"));
        }
        Ok(())
    })
    .expect("registered");
}

/// Refuses log events of a type while the flag is set.
pub fn refuse(ctx: &Context, kind: &'static str) -> Rc<Cell<bool>> {
    let refusing = Rc::new(Cell::new(true));
    let flag = refusing.clone();
    ctx.check_events(move |_, event| {
        if flag.get() && event.kind() == kind {
            return Err(Error::host(format!("{kind} is refused")));
        }
        Ok(())
    })
    .expect("registered");
    refusing
}

pub fn release(gate: &Signal) {
    gate.cancel(CancelCause::User);
}

/// A tool that answers at once.
pub fn noop(name: &str) -> Tool {
    Tool::new(name, |_| async { Ok(ToolOutput::value("ok")) })
}

/// A tool whose calls note their id and wait for the gate, whatever the signal says.
pub fn gated(name: &str) -> (Tool, Log, Signal) {
    let (gate, ran) = (Signal::new(), Log::default());
    let (opened, log) = (gate.clone(), ran.clone());
    let tool = Tool::new(name, move |call| {
        log.borrow_mut().push(call.call_id().to_string());
        let opened = opened.clone();
        async move {
            opened.cancelled().await;
            Ok(ToolOutput::value("done"))
        }
    });
    (tool, ran, gate)
}

/// One thing a played model does.
pub enum Piece {
    Say(Chunk),
    /// Waits for the gate and does not look at the request's signal.
    Hold(Signal),
    Do(Box<dyn FnOnce()>),
    Fail(Error),
}

/// A model that plays its replies piece by piece.
#[derive(Clone, Default)]
pub struct Played {
    replies: Rc<RefCell<VecDeque<Vec<Piece>>>>,
    pub requests: Rc<RefCell<Vec<ModelRequest>>>,
}

impl Played {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn reply(self, pieces: impl IntoIterator<Item = Piece>) -> Self {
        self.replies.borrow_mut().push_back(pieces.into_iter().collect());
        self
    }

    pub fn say(self, chunks: impl IntoIterator<Item = Chunk>) -> Self {
        self.reply(chunks.into_iter().map(Piece::Say))
    }

    pub fn request_count(&self) -> usize {
        self.requests.borrow().len()
    }
}

impl Adapter for Played {
    fn stream(&self, request: ModelRequest) -> ChunkStream {
        self.requests.borrow_mut().push(request);
        let pieces = self.replies.borrow_mut().pop_front().expect("the play has a reply for every request");
        Box::pin(Playing { pieces: pieces.into(), wait: None })
    }
}

struct Playing {
    pieces: VecDeque<Piece>,
    wait: Option<LocalBoxFuture<()>>,
}

impl futures_core::Stream for Playing {
    type Item = Result<Chunk>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(wait) = &mut self.wait {
                std::task::ready!(wait.as_mut().poll(context));
                self.wait = None;
            }
            match self.pieces.pop_front() {
                None => return Poll::Ready(None),
                Some(Piece::Say(chunk)) => return Poll::Ready(Some(Ok(chunk))),
                Some(Piece::Fail(error)) => return Poll::Ready(Some(Err(error))),
                Some(Piece::Do(act)) => act(),
                Some(Piece::Hold(gate)) => {
                    let opened = gate.cancelled();
                    self.wait = Some(Box::pin(async move { drop(opened.await) }));
                }
            }
        }
    }
}
