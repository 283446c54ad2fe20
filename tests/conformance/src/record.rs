//! The runner's own recorder: the outermost listener of everything, and what the doubles were asked.

use crate::world::World;
use serde_json::{Value as Json, json};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use turnwheel::agent::{Notice, NoticeKind, PreStep, PreStepDecision, Recovery, RequestErrorEvent, RequestEvent};
use turnwheel::json::Value;
use turnwheel::llm::{ModelRequest, RequestHeader};
use turnwheel::session::InboxTarget;
use turnwheel::{Agent, Context, Error, Message, Result, Session, ToolCall};

/// A core value as plain JSON.
pub fn plain(value: &Value) -> Json {
    serde_json::to_value(value).expect("a core value is JSON")
}

/// One model request.
pub struct RequestRecord {
    /// The session it was made for.
    pub session: Option<Session>,
    /// Config, system prompt, tools.
    pub header: Arc<RequestHeader>,
    /// The history sent.
    pub messages: Vec<Arc<Message>>,
    /// The ambient initiating agent.
    pub initiator: Option<String>,
}

/// What happened to one agent over all lifetimes.
pub struct AgentRecord {
    /// The agent's id.
    pub id: String,
    /// The latest agent of this id.
    pub agent: Agent,
    /// The lifetime of that agent.
    pub lifetime: u64,
    /// Its sessions, the latest last.
    pub sessions: Vec<Session>,
    /// What was delivered.
    pub notices: Vec<Rc<RefCell<Json>>>,
    /// What reached the adapter.
    pub requests: Vec<RequestRecord>,
    /// The tool bodies that ran.
    pub runs: Vec<Json>,
}

/// The recorder of one scenario.
#[derive(Default)]
pub struct Recorder {
    /// The agents that a notification named, in order.
    pub agents: RefCell<Vec<AgentRecord>>,
    inbox: bool,
    lifetime: Cell<u64>,
}

/// A listener of one lifetime: silent once that is over.
#[derive(Clone)]
struct Ear {
    world: Weak<World>,
    lifetime: u64,
}

impl Ear {
    fn world(&self) -> Option<Rc<World>> {
        self.world.upgrade().filter(|world| world.lifetime() == self.lifetime)
    }

    fn push(&self, agent: &Agent, notice: Json) -> Rc<RefCell<Json>> {
        match self.world() {
            Some(world) => world.recorder.push(agent, notice),
            None => Rc::new(RefCell::new(notice)),
        }
    }
}

impl Recorder {
    /// A recorder; with `inbox` it also records the inbox as its observers see it.
    pub fn new(inbox: bool) -> Self {
        Self { inbox, ..Self::default() }
    }

    /// Agents named from now on belong to this lifetime.
    pub fn begin_lifetime(&self, lifetime: u64) {
        self.lifetime.set(lifetime);
    }

    fn with<T>(&self, agent: &Agent, visit: impl FnOnce(&mut AgentRecord) -> T) -> T {
        let mut agents = self.agents.borrow_mut();
        let id = agent.id().as_str();
        let at = agents.iter().position(|record| record.id == id).unwrap_or(agents.len());
        if at == agents.len() {
            let (id, agent) = (id.to_owned(), agent.clone());
            let (sessions, notices) = (vec![agent.session().clone()], Vec::new());
            let lifetime = self.lifetime.get();
            agents.push(AgentRecord { id, agent, lifetime, sessions, notices, requests: Vec::new(), runs: Vec::new() });
        }
        let record = &mut agents[at];
        if record.agent != *agent {
            record.agent = agent.clone();
            record.lifetime = self.lifetime.get();
            record.sessions.push(agent.session().clone());
        }
        visit(record)
    }

    /// The latest agent of an id.
    pub fn agent(&self, id: &str) -> Option<Agent> {
        let agents = self.agents.borrow();
        agents.iter().find(|record| record.id == id).map(|record| record.agent.clone())
    }

    /// The latest agent of an id, if it is of that lifetime.
    pub fn agent_of(&self, id: &str, lifetime: u64) -> Option<Agent> {
        let agents = self.agents.borrow();
        agents.iter().find(|record| record.id == id && record.lifetime == lifetime).map(|record| record.agent.clone())
    }

    fn push(&self, agent: &Agent, mut notice: Json) -> Rc<RefCell<Json>> {
        notice["at"] = json!(agent.session().len());
        if self.inbox && notice["event"].as_str().is_some_and(|event| event.starts_with("agent/inbox/")) {
            notice["pending"] = pending(agent);
        }
        let notice = Rc::new(RefCell::new(notice));
        self.with(agent, |record| record.notices.push(notice.clone()));
        notice
    }

    /// Notes what an agent was asked.
    pub fn note(&self, agent: &Agent, notice: Json) {
        self.push(agent, notice);
    }

    /// Marks the begin of a later lifetime.
    pub fn lifetime(&self, agent: &Agent, number: u64, at: u64) {
        let notice = json!({ "at": at, "event": "lifetime", "number": number });
        self.with(agent, |record| record.notices.push(Rc::new(RefCell::new(notice))));
    }

    /// A named listener fired.
    pub fn hit(&self, agent: &str, listener: &str, event: &str) {
        if let Some(agent) = self.agent(agent) {
            self.push(&agent, json!({ "listener": listener, "event": event }));
        }
    }

    /// A request reached the adapter.
    pub fn request(&self, world: &World, request: &ModelRequest) {
        let Some(agent) = request.session_id.as_ref().and_then(|id| self.agent(id)) else {
            return world.problem("a request of an unknown agent".into());
        };
        let record = RequestRecord {
            session: Some(agent.session().clone()),
            header: request.header.clone(),
            messages: request.messages.iter().collect(),
            initiator: world.initiator(),
        };
        self.with(&agent, |agent| agent.requests.push(record));
    }

    /// A tool body started.
    pub fn run(&self, world: &World, call: &ToolCall) {
        let Some(agent) = call.agent() else {
            return world.problem("a tool call without an agent".into());
        };
        let arguments = plain(call.arguments());
        let mut run = json!({ "callId": call.call_id().as_str(), "name": call.name(), "arguments": arguments });
        if let Some(initiator) = world.scenario.records("initiator").then(|| world.initiator()).flatten() {
            run["initiator"] = json!(initiator);
        }
        self.with(agent, |record| record.runs.push(run));
    }
}

/// The pending ids.
pub fn pending(agent: &Agent) -> Json {
    let ids = |target| -> Vec<String> {
        agent.inbox().pending(target).iter().map(|message| message.id().as_str().to_owned()).collect()
    };
    json!({ "nextTurn": ids(InboxTarget::NextTurn), "nextStep": ids(InboxTarget::NextStep) })
}

fn ids(messages: &[Arc<Message>]) -> Vec<&str> {
    messages.iter().map(|message| message.id().as_str()).collect()
}

/// Registers the recorder: first, so that it is outermost.
pub fn register(world: &Rc<World>, ctx: &Context) -> Result<()> {
    let ear = Ear { world: Rc::downgrade(world), lifetime: world.lifetime() };
    let kinds = [
        NoticeKind::Created,
        NoticeKind::Disposed,
        NoticeKind::SessionStart,
        NoticeKind::Status,
        NoticeKind::Inserted,
        NoticeKind::Claimed,
        NoticeKind::Discarded,
        NoticeKind::Error,
    ];
    for kind in kinds.into_iter().chain(world.scenario.records("inbox").then_some(NoticeKind::SessionEvent)) {
        let ear = ear.clone();
        ctx.on(kind, move |notice| {
            if let (Some(agent), Some(json)) = (notice.agent(), describe(notice)) {
                ear.push(agent, json);
            }
            Ok(())
        })?;
    }
    register_waterfalls(&ear, ctx)?;
    ctx.on_turn_stopping(move |event| {
        ear.push(&event.agent, json!({ "event": "agent/turn-stopping", "turn": event.turn }));
        std::future::ready(Ok(()))
    })?;
    Ok(())
}

fn describe(notice: &Notice) -> Option<Json> {
    let mut json = json!({ "event": notice.kind().as_str() });
    match notice {
        Notice::Created { .. } | Notice::Disposed { .. } => {}
        Notice::SessionStart { source, .. } => json["source"] = json!(source.as_str()),
        Notice::Status { status, .. } => json["status"] = json!(status.as_str()),
        Notice::Inserted { message, .. } | Notice::Discarded { message, .. } => {
            json["id"] = json!(message.id().as_str())
        }
        Notice::Claimed { message, turn, .. } => {
            json["id"] = json!(message.id().as_str());
            json["turn"] = json!(turn);
        }
        Notice::Error { turn, step, error, .. } => {
            json["turn"] = json!(turn);
            json["step"] = json!(step);
            json["error"] = error_json(error);
        }
        Notice::SessionEvent { agent, event, .. } => {
            if event.kind() != "agent/inbox/spliced" {
                return None;
            }
            json["type"] = json!(event.kind());
            json["pending"] = pending(agent.as_ref()?);
        }
        Notice::SessionCreated { .. }
        | Notice::SessionDisposed { .. }
        | Notice::ToolResult { .. }
        | Notice::ToolsChanged { .. }
        | Notice::PromptChanged { .. }
        | Notice::ModelsChanged
        | Notice::ConfigStartFailed { .. } => return None,
    }
    Some(json)
}

/// Message, and code where the error has one of its own: a plain error of host code has none.
pub fn error_json(error: &Error) -> Json {
    let mut json = json!({ "message": error.message() });
    let code = error.failure().map_or(error.code().as_str(), |failure| failure.code.as_str());
    if code != turnwheel::Code::HostError.as_str() {
        json["code"] = json!(code);
    }
    json
}

fn settle<T>(notice: &Rc<RefCell<Json>>, decision: &Result<T>, result: impl FnOnce(&T) -> Json) {
    let mut notice = notice.borrow_mut();
    match decision {
        Ok(decision) => notice["result"] = result(decision),
        Err(error) => notice["threw"] = json!(error.message()),
    }
}

fn register_waterfalls(ear: &Ear, ctx: &Context) -> Result<()> {
    let own = ear.clone();
    ctx.waterfall::<PreStep, _>(move |event, next| {
        let offered = event.messages.borrow().clone();
        let notice =
            json!({ "event": "agent/pre-step", "turn": event.turn, "step": event.step, "messages": ids(&offered) });
        let notice = own.push(&event.agent, notice);
        async move {
            let decision = next.call().await;
            settle(&notice, &decision, |decision| match decision {
                PreStepDecision::Enter(messages) => json!({ "kind": "enter", "messages": ids(messages) }),
                PreStepDecision::Reject => json!({ "kind": "reject" }),
            });
            decision
        }
    })?;
    let own = ear.clone();
    ctx.waterfall::<RequestEvent, _>(move |event, next| {
        let notice = json!({ "event": "agent/request", "turn": event.turn, "step": event.step });
        let notice = own.push(&event.agent, notice);
        async move {
            let decision = next.call().await;
            settle(&notice, &decision, |config| plain(&config.to_value()));
            decision
        }
    })?;
    let own = ear.clone();
    ctx.waterfall::<RequestErrorEvent, _>(move |event, next| {
        let mut notice = json!({ "event": "agent/request-error", "turn": event.turn, "step": event.step });
        notice["provider"] = json!(event.provider);
        notice["failure"] = plain(&event.failure.to_value());
        let notice = own.push(&event.agent, notice);
        async move {
            let decision = next.call().await;
            settle(&notice, &decision, |recovery| match recovery {
                Recovery::Retry => json!("retry"),
                Recovery::Terminal => json!("terminal"),
            });
            decision
        }
    })?;
    Ok(())
}
