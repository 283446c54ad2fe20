//! Building contexts and opening agents.

use super::{Context, LoopOptions, Root};
use crate::agent::{Agent, AgentHandle, AgentOptions, CreateOptions, ResumeOptions};
use crate::error::{Code, Error, Result};
use crate::id::SessionId;
use crate::runtime::{LocalBoxFuture, Ports, Runtime, Signal};
use crate::session::{Event, EventLog, SessionHeader};
use crate::storage::{Coordinator, Durability, Store};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

/// Options of a root context.
#[derive(Default)]
pub struct ContextBuilder {
    ports: Option<Ports>,
    store: Option<Rc<dyn Store>>,
    durability: Durability,
    loop_options: LoopOptions,
    without_loop: bool,
}

impl ContextBuilder {
    /// Where sessions are kept.
    pub fn store(mut self, store: impl Store + 'static) -> Self {
        self.store = Some(Rc::new(store));
        self
    }

    /// When the log is made durable.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Clock and ids.
    pub fn ports(mut self, ports: Ports) -> Self {
        self.ports = Some(ports);
        self
    }

    /// Options of the default loop.
    pub fn loop_options(mut self, options: LoopOptions) -> Self {
        self.loop_options = options;
        self
    }

    /// Leaves the agent factory's slot empty, for a loop of your own (FAC-1).
    pub fn without_loop(mut self) -> Self {
        self.without_loop = true;
        self
    }

    /// The context. Fails for options that cannot be right (CFG-14).
    pub fn try_build(self) -> Result<Context> {
        self.loop_options.check()?;
        Ok(self.build())
    }

    /// The context. No overlap of tool bodies at all counts as one at a time.
    pub fn build(self) -> Context {
        let runtime = Runtime::new(self.ports.unwrap_or_default());
        let storage = self.store.map(|store| Rc::new(Coordinator::new(runtime.clone(), store, self.durability)));
        let root = Root::new(runtime, storage, self.loop_options, !self.without_loop);
        Context::on_root(root).expect("a new root has no factory")
    }
}

impl Context {
    /// A context on a root whose contexts are all closed, with the default loop in the factory's slot unless the root was
    /// built without it.
    fn on_root(root: Rc<Root>) -> Result<Self> {
        let ctx = Context::from_root(root);
        if ctx.root().has_loop {
            ctx.root().agents.set_factory(&ctx, Rc::new(crate::agent_loop::factory()))?;
        }
        Ok(ctx)
    }

    /// A context on the same root after [`Context::close`], with nothing registered on it (CTX-22).
    pub fn reopen(&self) -> Result<Context> {
        if self.fiber().check().is_ok() {
            return Err(Error::new(Code::Busy, "the context is open; close it first"));
        }
        self.runtime().check_open()?;
        self.root().boundaries.reopen();
        Self::on_root(self.root().clone())
    }
}

/// What an agent is opened with.
pub struct AgentBuilder {
    ctx: Context,
    options: CreateOptions,
}

impl AgentBuilder {
    pub(super) fn new(ctx: Context, id: SessionId) -> Self {
        Self { ctx, options: CreateOptions::new(id) }
    }

    /// The provider route.
    pub fn provider(mut self, provider: impl Into<String>) -> Self {
        self.options.agent.provider = Some(provider.into());
        self
    }

    /// The model.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.options.agent.model = Some(model.into());
        self
    }

    /// Output ceiling in tokens.
    pub fn max_tokens(mut self, limit: u64) -> Self {
        self.options.agent.max_tokens = Some(limit);
        self
    }

    /// All of the agent's options.
    pub fn options(mut self, options: AgentOptions) -> Self {
        self.options.agent = options;
        self
    }

    /// The session's working directory; absolute.
    pub fn cwd(mut self, cwd: impl Into<String>) -> Self {
        self.options.header.cwd = Some(cwd.into());
        self
    }

    /// Fields of the session header; id and time are set by the runtime.
    pub fn header(mut self, edit: impl FnOnce(&mut SessionHeader)) -> Self {
        edit(&mut self.options.header);
        self
    }

    /// History to start from (ID-9).
    pub fn seed(mut self, events: Vec<Arc<Event>>) -> Self {
        self.options.seed = Some(events);
        self
    }

    /// Composes the agent before anybody can see it (FAC-5).
    pub fn setup<F: Future<Output = Result<()>> + 'static>(
        mut self,
        setup: impl FnOnce(Context) -> F + 'static,
    ) -> Self {
        self.options.setup = Some(Box::new(move |ctx| {
            let composed = setup(ctx);
            Box::pin(async move { composed.await.map(|()| None) })
        }));
        self
    }

    /// Cancels the creation, and nothing after it (FAC-16).
    pub fn signal(mut self, signal: Signal) -> Self {
        self.options.signal = Some(signal);
        self
    }

    /// Creates the agent; fails when the store has a session of this id.
    pub async fn create(self) -> Result<AgentHandle> {
        self.ctx.root().agents.factory()?.create(self.ctx.clone(), self.options).await
    }

    /// Resumes the agent from the store (FAC-32).
    pub async fn resume(self) -> Result<AgentHandle> {
        let options = resume_options(self.options, None);
        self.ctx.root().agents.factory()?.resume(self.ctx.clone(), options).await
    }

    /// Resumes the agent from a log at hand.
    pub async fn resume_from(self, header: SessionHeader, events: impl Into<EventLog>) -> Result<AgentHandle> {
        let options = resume_options(self.options, Some((header, events.into())));
        self.ctx.root().agents.factory()?.resume(self.ctx.clone(), options).await
    }

    /// Resumes what the store has under this id, or creates it.
    pub async fn open(self) -> Result<Agent> {
        let stored = match &self.ctx.root().storage {
            Some(storage) => storage.store().exists(&self.options.header.id).await?,
            None => false,
        };
        let handle = if stored { self.resume().await } else { self.create().await };
        handle.map(|handle| handle.agent().clone())
    }
}

fn resume_options(options: CreateOptions, log: Option<(SessionHeader, EventLog)>) -> ResumeOptions {
    ResumeOptions { id: options.header.id, agent: options.agent, setup: options.setup, signal: options.signal, log }
}

impl Agent {
    /// Stops the agent, removes it and frees its id. All callers share one completion. From inside the agent's own turn
    /// this is a request: the future resolves at once and the disposal completes when the turn has unwound (D-18).
    pub fn dispose(&self) -> LocalBoxFuture<()> {
        let dispose = self.0.disposal.borrow().clone();
        match dispose {
            Some(dispose) => dispose(),
            None => Box::pin(std::future::ready(())),
        }
    }
}

/// The error of an operation that needs a store.
pub(crate) fn no_store() -> Error {
    Error::new(Code::NoStore, "this context has no store; build it with one, for example .store(JsonlStore::new(dir))")
}
