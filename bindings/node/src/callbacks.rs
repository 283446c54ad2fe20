//! Callbacks of JavaScript as the core's listeners, tools, adapters, setups and computed texts.

use crate::host::{Host, Kept};
use crate::promises::{Call, Pending, Shape};
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use turnwheel::agent::{Notice, NoticeKind};
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::{
    ChunkSink, HostAdapter, HostListener, HostNext, WaterfallEvent, notice_value, request_value, tool_call_value,
    tool_output,
};
use turnwheel::json::Value;
use turnwheel::llm::ModelRequest;
use turnwheel::runtime::{LocalBoxFuture, Signal, SignalGuard};
use turnwheel::session::{Event, History};
use turnwheel::system_prompt::PromptText;
use turnwheel::tools::{ToolCallInfo, ToolOutcome};
use turnwheel::{Agent, Block, Session, Tool, ToolCall, ToolOutput};

/// A function that JavaScript keeps, and the core to call it through.
#[derive(Clone)]
pub struct Callback {
    host: Weak<Host>,
    kept: Rc<Kept>,
}

/// What a callback under way is about. Its key lives as long as the call.
pub struct Subject {
    /// Fires when it is cancelled.
    pub signal: Signal,
    /// The rest.
    pub kind: SubjectKind,
}

/// See [`Subject`].
pub enum SubjectKind {
    /// A waterfall or serial event.
    Event(WaterfallEvent, Option<HostNext>),
    /// A tool call.
    Tool(ToolCall),
    /// A model request and where its chunks go.
    Model(ModelRequest, ChunkSink),
    /// Nothing more.
    Plain,
}

/// Frees its key when it is dropped.
struct KeyGuard {
    host: Rc<Host>,
    key: u64,
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        self.host.remove(self.key);
    }
}

impl Subject {
    /// Its JSON, made when asked for.
    pub fn to_text(&self) -> String {
        let value = match &self.kind {
            SubjectKind::Event(event, _) => event.value(),
            SubjectKind::Tool(call) => tool_call_value(call),
            SubjectKind::Model(request, _) => request_head(request),
            SubjectKind::Plain => Value::Null,
        };
        value.to_text()
    }
}

/// A request without its messages, which are read by themselves.
fn request_head(request: &ModelRequest) -> Value {
    let empty = History::from_messages(Vec::new());
    request_value(&ModelRequest { messages: empty, ..request.clone() })
}

fn closed() -> Error {
    Error::new(Code::RuntimeClosed, "the context is closed")
}

fn parsed(text: &str) -> Result<Value> {
    Ok(turnwheel::json::parse_lossy(text.as_bytes())?.value)
}

impl Callback {
    /// The function of a number.
    pub fn new(host: &Rc<Host>, id: u64) -> Self {
        Self { host: Rc::downgrade(host), kept: Rc::new(host.kept(id)) }
    }

    fn host(&self) -> Result<Rc<Host>> {
        self.host.upgrade().ok_or_else(closed)
    }

    /// Calls it about something that may be cancelled; the answer may take its time.
    fn start(&self, agent: Option<&Agent>, shape: Shape, subject: Subject) -> Result<(KeyGuard, Pending)> {
        let host = self.host()?;
        let key = host.put(subject);
        let guard = KeyGuard { host: host.clone(), key };
        let context = host.context_of(agent);
        let seat = agent.map_or(0, |agent| host.seat_of(agent));
        let pending = host.invoke(&Call { callback: self.kept.id(), context, seat, shape, key, json: None });
        Ok((guard, pending))
    }

    async fn run(&self, agent: Option<Agent>, shape: Shape, subject: Subject) -> Result<Option<String>> {
        let (_guard, pending) = self.start(agent.as_ref(), shape, subject)?;
        pending.await
    }

    /// Asks for an answer at once.
    fn ask(&self, agent: Option<&Agent>, shape: Shape, json: Option<&str>) -> Result<Option<String>> {
        let host = self.host()?;
        let context = host.context_of(agent);
        let seat = agent.map_or(0, |agent| host.seat_of(agent));
        host.ask(&Call { callback: self.kept.id(), context, seat, shape, key: 0, json })
    }

    /// A text that is computed for each assembly; no answer means no text.
    pub fn text(self) -> PromptText {
        PromptText::dynamic(move |agent| match self.ask(Some(agent), Shape::Text, None)? {
            Some(json) => Ok(parsed(&json)?.as_str().map(str::to_owned)),
            None => Ok(None),
        })
    }

    /// What it answers at once, as JSON; null when it gives nothing.
    pub fn value(&self) -> Result<Value> {
        self.ask(None, Shape::Text, None)?.map_or(Ok(Value::Null), |json| parsed(&json))
    }

    /// Calls a method of a store: `[method, writer, argument…]`.
    pub async fn store_call(self, request: &str) -> Result<Value> {
        let host = self.host()?;
        let callback = self.kept.id();
        let pending =
            host.invoke(&Call { callback, context: 0, seat: 0, shape: Shape::Store, key: 0, json: Some(request) });
        drop(host);
        pending.await?.map_or(Ok(Value::Null), |json| parsed(&json))
    }

    /// Composes an agent.
    pub async fn setup(self, ctx: turnwheel::Context) -> Result<()> {
        let host = self.host()?;
        // The scope lives as long as JavaScript's object for it.
        let key = host.put(ctx);
        let call = Call { callback: self.kept.id(), context: 0, seat: 0, shape: Shape::Setup, key, json: None };
        let pending = host.invoke(&call);
        pending.await.map(drop)
    }

    /// Runs a maintenance task; gives what it returned, as JSON.
    pub async fn maintain(self, agent: Agent, signal: Signal) -> Result<Value> {
        let subject = Subject { signal, kind: SubjectKind::Plain };
        match self.run(Some(agent), Shape::Maintenance, subject).await? {
            Some(json) => parsed(&json),
            None => Ok(Value::Null),
        }
    }

    /// A tool's body: what it returned is `{value}` or `{content}`, with `meta` (`turnwheel::host::tool_output`).
    pub async fn tool_body(self, call: ToolCall) -> Result<ToolOutput> {
        let subject = Subject { signal: call.signal().clone(), kind: SubjectKind::Tool(call.clone()) };
        let json = self.run(call.agent().cloned(), Shape::Tool, subject).await?;
        tool_output(&parsed(&json.unwrap_or_else(|| "{\"value\":null}".into()))?)
    }

    /// Lets the calls overlap for whose arguments the function says so.
    pub fn classifies(self, tool: Tool) -> Tool {
        tool.parallel_when(move |arguments| {
            let answer = self.ask(None, Shape::Classify, Some(&arguments.to_text()));
            matches!(answer, Ok(Some(json)) if json == "true")
        })
    }

    /// Lets the function replace what the model sees of each result.
    pub fn finalizes(self, tool: Tool) -> Tool {
        tool.finalize_content(move |call: &ToolCallInfo, outcome: &ToolOutcome| {
            let json = turnwheel::host::outcome_value(outcome).to_text();
            let Some(answer) = self.ask(call.agent.as_ref(), Shape::Finalize, Some(&json))? else { return Ok(None) };
            Ok(match &parsed(&answer)? {
                Value::String(text) => Some(vec![Block::Text(text.clone())]),
                Value::Array(items) => Some(items.iter().map(Block::from_value).collect()),
                _ => None,
            })
        })
    }

    /// Refuses an event before it is committed, by throwing.
    pub fn checks(&self, session: &Session, event: &Event) -> Result<()> {
        let host = self.host()?;
        let seat = host.seat(session, None);
        let json = Some(event.json());
        host.ask(&Call { callback: self.kept.id(), context: 0, seat, shape: Shape::Check, key: 0, json }).map(drop)
    }

    /// Refuses a tool call before it runs: the answer is the reason.
    pub fn guards(&self, call: &ToolCallInfo) -> Result<Option<String>> {
        let json = turnwheel::json!({
            "callId": call.call_id.as_str(), "name": call.name.as_str(), "arguments": call.arguments.clone(),
        });
        match self.ask(call.agent.as_ref(), Shape::Check, Some(&json.to_text()))? {
            Some(reason) => Ok(parsed(&reason)?.as_str().map(str::to_owned)),
            None => Ok(None),
        }
    }

    /// An adapter whose chunks JavaScript pushes.
    pub fn adapter(self) -> HostAdapter {
        HostAdapter::new(move |request, sink| {
            let callback = self.clone();
            let agent = request.session_id.as_deref().and_then(|id| self.host().ok()?.ctx.find_agent(id));
            // The subject, and with it its sink, is gone when the callback is answered.
            let answer = sink.clone();
            let subject = Subject { signal: request.signal.clone(), kind: SubjectKind::Model(request, sink) };
            Some(Box::pin(async move {
                let produced = callback.run(agent, Shape::Adapter, subject).await;
                answer.finish(produced.map(drop));
                Ok(())
            }))
        })
    }
}

impl HostListener for Callback {
    fn notice(&self, notice: &Notice) -> Result<()> {
        let host = self.host()?;
        let env = host.realm.env;
        let agent = notice.agent();
        let context = host.context_of(agent);
        let seat = match notice {
            Notice::SessionEvent { session, agent, .. } => host.seat(session, agent.as_ref()),
            Notice::SessionCreated { session } | Notice::SessionDisposed { session } => host.seat(session, None),
            _ => agent.map_or(0, |agent| host.seat_of(agent)),
        };
        let kind = NoticeKind::ALL.iter().position(|kind| *kind == notice.kind()).unwrap_or_default();
        let answer = env.scoped(|| {
            let number = |number: u64| env.number(number as f64);
            let (about, detail) = match notice {
                Notice::SessionEvent { event, .. } => {
                    (number(event.seq), env.index(host.realm.type_index(event.kind())))
                }
                Notice::Status { status, .. } => (env.text(status.as_str()), env.undefined()),
                Notice::Error { error, .. } => {
                    (env.text(&notice_value(notice).to_text()), host.realm.error(Some(&host), error))
                }
                _ => (env.text(&notice_value(notice).to_text()), env.undefined()),
            };
            let arguments = [
                number(host.id),
                number(self.kept.id()),
                number(context),
                number(seat),
                env.index(u32::try_from(kind).unwrap_or_default()),
                about,
                detail,
            ];
            let answer = env.call(&host.realm.js.notify, &arguments);
            answer.and_then(|answer| env.get_text(answer))
        });
        answer.map_or(Ok(()), |json| Err(host.error_from(&json)))
    }

    fn decide(&self, event: WaterfallEvent, next: Option<HostNext>) -> LocalBoxFuture<Result<Option<Value>>> {
        let callback = self.clone();
        Box::pin(async move {
            let (agent, signal) = (event.agent.clone(), event.signal.clone());
            let subject = Subject { signal, kind: SubjectKind::Event(event, next) };
            let answer = callback.run(agent, Shape::Decide, subject).await?;
            answer.map(|json| parsed(&json)).transpose()
        })
    }
}

/// Tells JavaScript when `signal` fires; gives the cause if it has. JavaScript's function lives as long as the signal.
pub fn watch(host: &Rc<Host>, signal: &Signal, callback: u64) -> Option<String> {
    if let Some(cause) = signal.cause() {
        return Some(cause.to_value().to_text());
    }
    let callback = Callback::new(host, callback);
    // The guard lives in the closure that it guards: both go with the signal.
    let guard: Rc<RefCell<Option<SignalGuard>>> = Rc::default();
    let own = guard.clone();
    let watching = signal.on_cancel(move |cause| {
        let _own = own;
        let _ = callback.ask(None, Shape::Aborted, Some(&cause.to_value().to_text()));
    });
    *guard.borrow_mut() = Some(watching);
    None
}
