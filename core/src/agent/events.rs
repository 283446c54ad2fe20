//! The events of agents: names, payloads, and the dispatcher that routes each by its own agent (EVT-11, EVT-13).

use super::{Agent, AgentStatus};
use crate::error::{Code, Error, Result};
use crate::events::{Channel, Dispatch, DispatchCheck, DispatchMode, Snapshot, WaterfallListener, guarded, waterfall};
use crate::id::SessionId;
use crate::llm::{CallConfig, Failure, ModelRequest, RetryPolicy};
use crate::message::Message;
use crate::runtime::{LocalBoxFuture, Signal};
use crate::scope::{ScopeKey, Scopes};
use crate::session::{Event, Session};
use crate::system_prompt::{Assembly, AssemblyRequest};
use crate::tools::{ExecuteRequest, PostDecision, PostExecute, PreDecision, PreExecute, ToolOutcome, ToolResultNotice};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// How an agent came to life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartSource {
    /// Created, seeded or not.
    Startup,
    /// Restored from storage.
    Resume,
}

impl StartSource {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            StartSource::Startup => "startup",
            StartSource::Resume => "resume",
        }
    }
}

/// Something happened. Notifications cannot veto, but for [`Notice::Created`] (EVT-9, EVT-10) and the two that follow a
/// registration, which a failing listener rolls back (SYS-11).
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the members are those of agent.md EVT-13 under the same names")]
pub enum Notice {
    SessionCreated { session: Session },
    SessionDisposed { session: Session },
    Created { agent: Agent },
    Disposed { agent: Agent },
    Status { agent: Agent, status: AgentStatus },
    Inserted { agent: Agent, message: Arc<Message> },
    Claimed { agent: Agent, message: Arc<Message>, turn: u64 },
    Discarded { agent: Agent, message: Arc<Message> },
    SessionStart { agent: Agent, source: StartSource },
    Error { agent: Agent, turn: u64, step: u64, error: Error },
    SessionEvent { session: Session, agent: Option<Agent>, event: Arc<Event> },
    ToolResult { agent: Option<Agent>, result: Rc<ToolResultNotice> },
    ToolsChanged { scope: Option<ScopeKey> },
    PromptChanged { scope: Option<ScopeKey> },
    ModelsChanged,
    ConfigStartFailed { session_id: SessionId, error: Error },
}

/// The kinds of notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "one for each variant of Notice")]
pub enum NoticeKind {
    SessionCreated,
    SessionDisposed,
    Created,
    Disposed,
    Status,
    Inserted,
    Claimed,
    Discarded,
    SessionStart,
    Error,
    SessionEvent,
    ToolResult,
    ToolsChanged,
    PromptChanged,
    ModelsChanged,
    ConfigStartFailed,
}

impl NoticeKind {
    /// Every kind.
    pub const ALL: [NoticeKind; 16] = [
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
        NoticeKind::ToolsChanged,
        NoticeKind::PromptChanged,
        NoticeKind::ModelsChanged,
        NoticeKind::ConfigStartFailed,
    ];

    /// The event's name.
    pub fn as_str(self) -> &'static str {
        match self {
            NoticeKind::SessionCreated => "session/created",
            NoticeKind::SessionDisposed => "session/disposed",
            NoticeKind::Created => "agent/created",
            NoticeKind::Disposed => "agent/disposed",
            NoticeKind::Status => "agent/status",
            NoticeKind::Inserted => "agent/inbox/inserted",
            NoticeKind::Claimed => "agent/inbox/claimed",
            NoticeKind::Discarded => "agent/inbox/discarded",
            NoticeKind::SessionStart => "agent/session-start",
            NoticeKind::Error => "agent/error",
            NoticeKind::SessionEvent => "session/event",
            NoticeKind::ToolResult => "tools/result",
            NoticeKind::ToolsChanged => "tools/changed",
            NoticeKind::PromptChanged => "system-prompt/changed",
            NoticeKind::ModelsChanged => "models/changed",
            NoticeKind::ConfigStartFailed => "agent-loop/config-start-failed",
        }
    }

    /// Reads a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl Notice {
    /// The kind.
    pub fn kind(&self) -> NoticeKind {
        match self {
            Notice::SessionCreated { .. } => NoticeKind::SessionCreated,
            Notice::SessionDisposed { .. } => NoticeKind::SessionDisposed,
            Notice::Created { .. } => NoticeKind::Created,
            Notice::Disposed { .. } => NoticeKind::Disposed,
            Notice::Status { .. } => NoticeKind::Status,
            Notice::Inserted { .. } => NoticeKind::Inserted,
            Notice::Claimed { .. } => NoticeKind::Claimed,
            Notice::Discarded { .. } => NoticeKind::Discarded,
            Notice::SessionStart { .. } => NoticeKind::SessionStart,
            Notice::Error { .. } => NoticeKind::Error,
            Notice::SessionEvent { .. } => NoticeKind::SessionEvent,
            Notice::ToolResult { .. } => NoticeKind::ToolResult,
            Notice::ToolsChanged { .. } => NoticeKind::ToolsChanged,
            Notice::PromptChanged { .. } => NoticeKind::PromptChanged,
            Notice::ModelsChanged => NoticeKind::ModelsChanged,
            Notice::ConfigStartFailed { .. } => NoticeKind::ConfigStartFailed,
        }
    }

    /// The scope whose listeners hear it.
    pub(crate) fn scope(&self) -> Option<ScopeKey> {
        if let Notice::ToolsChanged { scope } | Notice::PromptChanged { scope } = self {
            return *scope;
        }
        self.agent().map(|agent| agent.scope())
    }

    /// The agent it is about.
    pub fn agent(&self) -> Option<&Agent> {
        match self {
            Notice::SessionCreated { .. }
            | Notice::SessionDisposed { .. }
            | Notice::ToolsChanged { .. }
            | Notice::PromptChanged { .. }
            | Notice::ModelsChanged
            | Notice::ConfigStartFailed { .. } => None,
            Notice::Created { agent }
            | Notice::Disposed { agent }
            | Notice::Status { agent, .. }
            | Notice::Inserted { agent, .. }
            | Notice::Claimed { agent, .. }
            | Notice::Discarded { agent, .. }
            | Notice::SessionStart { agent, .. }
            | Notice::Error { agent, .. } => Some(agent),
            Notice::SessionEvent { agent, .. } | Notice::ToolResult { agent, .. } => agent.as_ref(),
        }
    }
}

/// A listener of notifications.
pub type NoticeListener = dyn Fn(&Notice) -> Result<()>;

/// A listener of `agent/turn-stopping`.
pub type StoppingListener = dyn Fn(Rc<TurnStopping>) -> LocalBoxFuture<Result<()>>;

/// A check that may refuse an event before it is committed (APP-10).
pub type EventCheck = dyn Fn(&Session, &Event) -> Result<()>;

/// A check that may refuse a model request of the loop before it is sent.
pub type RequestCheck = dyn Fn(&Session, &ModelRequest) -> Result<()>;

/// `agent/pre-step`: a step is proposed. The innermost continuation enters with `messages` as they are then (TURN-7).
#[derive(Debug)]
pub struct PreStep {
    /// The agent.
    pub agent: Agent,
    /// The claimed batch, to edit in place before delegating.
    pub messages: RefCell<Vec<Arc<Message>>>,
    /// The turn.
    pub turn: u64,
    /// The proposed step.
    pub step: u64,
    /// Fires when the turn is cancelled.
    pub signal: Signal,
}

/// What a pre-step listener decides.
#[derive(Clone, Debug)]
pub enum PreStepDecision {
    /// Enter the step with exactly these messages (TURN-8).
    Enter(Vec<Arc<Message>>),
    /// Close the turn as `blocked`.
    Reject,
}

/// `agent/request`: a model request is about to be built. The continuation returns the config it starts from.
#[derive(Debug)]
pub struct RequestEvent {
    /// The agent.
    pub agent: Agent,
    /// The turn.
    pub turn: u64,
    /// The step.
    pub step: u64,
    /// Fires when the turn is cancelled.
    pub signal: Signal,
}

/// `agent/request-error`: a model request failed.
#[derive(Debug)]
pub struct RequestErrorEvent {
    /// The agent.
    pub agent: Agent,
    /// The turn.
    pub turn: u64,
    /// The step.
    pub step: u64,
    /// The route that failed.
    pub provider: String,
    /// What it reported.
    pub failure: Failure,
    /// The retry policy of the route, captured when the call was prepared; none for a route that nobody serves.
    pub retry_policy: Option<Rc<RetryPolicy>>,
    /// Fires when the turn is cancelled.
    pub signal: Signal,
}

/// What to do about a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Ask again, in the same step (STEP-8).
    Retry,
    /// Fail the turn.
    Terminal,
}

/// `agent/turn-stopping`: the turn is about to close. Adding next-step input keeps it going (STOP-2).
#[derive(Debug)]
pub struct TurnStopping {
    /// The agent.
    pub agent: Agent,
    /// The turn.
    pub turn: u64,
    /// Fires when the turn is cancelled.
    pub signal: Signal,
}

/// A payload of a waterfall event and the type of its decision.
pub trait Waterfall: Sized + 'static {
    /// What the waterfall decides.
    type Output: 'static;
    /// The event's name.
    const NAME: &'static str;
    /// Its listener table.
    fn channel(hub: &Hub) -> &Rc<Channel<WaterfallListener<Self, Self::Output>>>;
    /// The agent it is about; it is routed by that agent's scope (EVT-11).
    fn agent(&self) -> Option<&Agent>;
}

macro_rules! waterfalls {
    ($($field:ident: $payload:ty => $output:ty, $name:literal, $agent:expr;)*) => {
        /// The listener tables of one root context.
        #[derive(Default)]
        pub struct Hub {
            notifying: Rc<Cell<u32>>,
            notices: [Channel<NoticeListener>; NoticeKind::ALL.len()],
            stopping: Channel<StoppingListener>,
            event_checks: Channel<EventCheck>,
            request_checks: Channel<RequestCheck>,
            dispatch_checks: Channel<DispatchCheck>,
            $($field: Rc<Channel<WaterfallListener<$payload, $output>>>,)*
        }

        $(impl Waterfall for $payload {
            type Output = $output;
            const NAME: &'static str = $name;
            fn channel(hub: &Hub) -> &Rc<Channel<WaterfallListener<Self, Self::Output>>> {
                &hub.$field
            }
            fn agent(&self) -> Option<&Agent> {
                let agent: fn(&Self) -> Option<&Agent> = $agent;
                agent(self)
            }
        })*
    };
}

waterfalls! {
    pre_step: PreStep => PreStepDecision, "agent/pre-step", |event| Some(&event.agent);
    request: RequestEvent => CallConfig, "agent/request", |event| Some(&event.agent);
    request_error: RequestErrorEvent => Recovery, "agent/request-error", |event| Some(&event.agent);
    assemble: AssemblyRequest => Assembly, "system-prompt/assemble", |event| Some(&event.agent);
    pre_execute: PreExecute => PreDecision, "tools/pre-execute", |event| event.call.agent.as_ref();
    execute: ExecuteRequest => ToolOutcome, "tools/execute", |event| event.call.agent.as_ref();
    post_execute: PostExecute => PostDecision, "tools/post-execute", |event| event.call.agent.as_ref();
}

/// Counts a notification under way.
struct Notifying<'a>(&'a Cell<u32>);

impl<'a> Notifying<'a> {
    fn new(count: &'a Cell<u32>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Notifying<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Hub {
    /// Tables whose dispatches are counted in `notifying`.
    pub(crate) fn new(notifying: Rc<Cell<u32>>) -> Self {
        Self { notifying, ..Self::default() }
    }

    /// The listener table of a notification.
    pub fn notices(&self, kind: NoticeKind) -> &Channel<NoticeListener> {
        &self.notices[kind as usize]
    }

    /// The listener table of `agent/turn-stopping`.
    pub fn stopping(&self) -> &Channel<StoppingListener> {
        &self.stopping
    }

    /// The checks of events.
    pub fn event_checks(&self) -> &Channel<EventCheck> {
        &self.event_checks
    }

    /// The checks of requests.
    pub fn request_checks(&self) -> &Channel<RequestCheck> {
        &self.request_checks
    }

    /// The checks of dispatches.
    pub fn dispatch_checks(&self) -> &Channel<DispatchCheck> {
        &self.dispatch_checks
    }

    /// Asks every dispatch check; the first failure prevents the dispatch (EVT-12).
    pub(crate) fn check_dispatch(
        &self,
        scopes: &Scopes,
        receiver: Option<ScopeKey>,
        mode: DispatchMode,
        name: &'static str,
        payload: &dyn Any,
    ) -> Result<()> {
        if self.dispatch_checks.is_empty() {
            return Ok(());
        }
        let checks = self.dispatch_checks.snapshot(scopes, receiver);
        let dispatch = Dispatch::new(mode, name, receiver, payload);
        let _notifying = Notifying::new(&self.notifying);
        let mut at = 0;
        while let Some((check, after)) = checks.next(at, &self.dispatch_checks) {
            at = after;
            guarded(|| check(&dispatch))?;
        }
        Ok(())
    }

    /// Asks every event check; the first failure refuses the event.
    pub(crate) fn check_event(
        &self,
        scopes: &Scopes,
        scope: Option<ScopeKey>,
        session: &Session,
        event: &Event,
    ) -> Result<()> {
        let checks = self.event_checks.snapshot(scopes, scope);
        let _notifying = Notifying::new(&self.notifying);
        let mut at = 0;
        while let Some((check, after)) = checks.next(at, &self.event_checks) {
            at = after;
            guarded(|| check(session, event))?;
        }
        Ok(())
    }

    /// Asks every request check; the first failure fails the turn.
    pub(crate) fn check_request(
        &self,
        scopes: &Scopes,
        scope: Option<ScopeKey>,
        session: &Session,
        request: &ModelRequest,
    ) -> Result<()> {
        let checks = self.request_checks.snapshot(scopes, scope);
        let mut at = 0;
        while let Some((check, after)) = checks.next(at, &self.request_checks) {
            at = after;
            guarded(|| check(session, request))?;
        }
        Ok(())
    }

    /// Delivers a notification: every listener runs, and failures are reported only (EVT-9).
    pub fn emit(&self, scopes: &Scopes, scope: Option<ScopeKey>, kind: NoticeKind, make: impl FnOnce() -> Notice) {
        let channel = self.notices(kind);
        if channel.is_empty() && self.dispatch_checks.is_empty() {
            return;
        }
        let (notice, listeners) = if self.dispatch_checks.is_empty() {
            let listeners = channel.snapshot(scopes, scope);
            if listeners.is_empty() {
                return;
            }
            (make(), listeners)
        } else {
            let notice = make();
            if let Err(error) = self.check_dispatch(scopes, scope, DispatchMode::Emit, kind.as_str(), &notice) {
                // What is notified of has happened, and whoever notifies has no way to fail.
                tracing::error!(target: "turnwheel", event = kind.as_str(), "a check keeps it from being heard: {error:?}");
                return;
            }
            (notice, channel.snapshot(scopes, scope))
        };
        let _notifying = Notifying::new(&self.notifying);
        let mut at = 0;
        while let Some((listener, after)) = listeners.next(at, channel) {
            at = after;
            if let Err(error) = guarded(|| listener(&notice)) {
                tracing::warn!(target: "turnwheel", event = kind.as_str(), "a listener failed: {error:?}");
            }
        }
    }

    /// Delivers a notification whose listeners may veto: the first failure ends it (REG-4).
    pub fn emit_or_veto(&self, scopes: &Scopes, scope: Option<ScopeKey>, notice: &Notice) -> Result<()> {
        self.check_dispatch(scopes, scope, DispatchMode::Emit, notice.kind().as_str(), notice)?;
        let channel = self.notices(notice.kind());
        let listeners = channel.snapshot(scopes, scope);
        let _notifying = Notifying::new(&self.notifying);
        let mut at = 0;
        while let Some((listener, after)) = listeners.next(at, channel) {
            at = after;
            guarded(|| listener(notice))?;
        }
        Ok(())
    }

    /// Runs a waterfall. Without listeners the default runs directly.
    pub async fn waterfall<P: Waterfall, F: Future<Output = Result<P::Output>> + 'static>(
        &self,
        scopes: &Scopes,
        scope: Option<ScopeKey>,
        payload: Rc<P>,
        default: impl FnOnce(Rc<P>) -> F + 'static,
    ) -> Result<P::Output> {
        self.check_dispatch(scopes, scope, DispatchMode::Waterfall, P::NAME, &*payload)?;
        let channel = P::channel(self);
        let listeners = channel.snapshot(scopes, scope);
        if listeners.is_empty() {
            return default(payload).await;
        }
        waterfall(channel.clone(), listeners, payload, move |payload| Box::pin(default(payload))).await
    }

    /// Runs `agent/turn-stopping`: every listener is awaited in order, whatever it returns (D-12).
    pub async fn run_stopping(
        &self,
        scopes: &Scopes,
        scope: Option<ScopeKey>,
        payload: Rc<TurnStopping>,
    ) -> Result<()> {
        self.check_dispatch(scopes, scope, DispatchMode::Serial, "agent/turn-stopping", &*payload)?;
        let listeners: Snapshot<StoppingListener> = self.stopping.snapshot(scopes, scope);
        let mut at = 0;
        while let Some((listener, after)) = listeners.next(at, &self.stopping) {
            at = after;
            let payload = payload.clone();
            crate::events::guarded_future(move || listener(payload)).await?;
        }
        Ok(())
    }
}

/// Names of the waterfall and serial events, for hosts that register by name.
pub const WATERFALL_NAMES: [&str; 7] = [
    PreStep::NAME,
    RequestEvent::NAME,
    RequestErrorEvent::NAME,
    AssemblyRequest::NAME,
    PreExecute::NAME,
    ExecuteRequest::NAME,
    PostExecute::NAME,
];

/// The error for a name that is no event.
pub fn unknown_event(name: &str) -> Error {
    let mut names: Vec<&str> = NoticeKind::ALL.iter().map(|kind| kind.as_str()).collect();
    names.extend(WATERFALL_NAMES);
    names.push("agent/turn-stopping");
    let message = format!("there is no event {name:?}; there are: {}", names.join(", "));
    Error::new(Code::UnknownOption, message).with("event", name)
}
