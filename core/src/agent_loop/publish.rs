//! The publication transaction, and the end of an agent (FAC, D-15 to D-18).
//!
//! An agent is built, composed by its setup, and only then made visible: first its session, then itself, each
//! announcement with a veto. Whatever fails before the handle is returned is rolled back, and the original error is
//! what the caller gets.

use super::driver::LoopDriver;
use crate::agent::{
    Agent, AgentHandle, AgentInner, AgentOptions, CreateOptions, Notice, NoticeKind, ResumeOptions, Setup, Stage,
    StartSource,
};
use crate::context::{Cleanup, Context, Registration, Root};
use crate::error::{Code, Error, Result};
use crate::runtime::{LocalBoxFuture, Signal, WakerSet, yield_now};
use crate::session::{CancelCause, Event, EventData, EventSink, Session, SessionHeader};
use crate::storage::{SessionSink, SessionWriter};
use once_cell::unsync::OnceCell;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// Creates an agent (FAC-3).
pub(super) async fn create(owner: Context, options: CreateOptions) -> Result<AgentHandle> {
    let root = owner.root().clone();
    let mut header = options.header;
    header.created_at = root.runtime.now_ms().max(0) as u64;
    root.check_free(&header.id)?;
    header.check()?;
    let session = match options.seed {
        Some(seed) => {
            check_balanced(&seed)?;
            Session::seeded(&root.runtime, header, seed)?
        }
        None => Session::new(&root.runtime, header)?,
    };
    options.agent.check()?;
    check_start(&owner, options.signal.as_ref())?;
    let writer = match &root.storage {
        Some(storage) => Some(storage.store().create(session.header()).await?),
        None => None,
    };
    let sink = attach(&root, &session, writer, 0);
    let lifecycle = Lifecycle::new(&owner, session, options.agent, sink)?;
    lifecycle.bring_up(options.setup, options.signal, StartSource::Startup).await
}

/// Restores an agent from the store, or from a log at hand (FAC-32).
pub(super) async fn resume(owner: Context, options: ResumeOptions) -> Result<AgentHandle> {
    let root = owner.root().clone();
    root.check_free(&options.id)?;
    options.agent.check()?;
    check_start(&owner, options.signal.as_ref())?;
    let (header, events, writer) = match options.log {
        Some((header, events)) => (header, events, None),
        None => {
            let storage = root.storage.as_ref().ok_or_else(crate::context::no_store)?;
            let opened = storage.store().open(&options.id).await?;
            let (log, writer) = opened.ok_or_else(|| {
                let message = format!("no session {:?} is stored; create it instead", options.id);
                Error::new(Code::SessionNotFound, message).with("id", options.id.as_str())
            })?;
            if log.replaced_characters > 0 {
                let count = log.replaced_characters;
                tracing::warn!(target: "turnwheel", session = %options.id, "{count} broken characters were read as U+FFFD");
            }
            (log.header, log.events, Some(writer))
        }
    };
    let stored = events.len() as u64;
    let restored = restore(&root, header, events);
    let session = match (restored, &writer) {
        (Ok(session), _) => session,
        (Err(error), Some(writer)) => {
            writer.close().await;
            return Err(error);
        }
        (Err(error), None) => return Err(error),
    };
    let sink = attach(&root, &session, writer, stored);
    let lifecycle = Lifecycle::new(&owner, session, options.agent, sink)?;
    lifecycle.bring_up(options.setup, options.signal, StartSource::Resume).await
}

/// The stored events, the closers of an interrupted turn, and the mark of a new life.
fn restore(root: &Rc<Root>, header: SessionHeader, mut events: Vec<Arc<Event>>) -> Result<Session> {
    let closers = crate::session::closers(&events);
    events.extend(closers.into_iter().map(Arc::new));
    Session::seeded(&root.runtime, header, events)
}

/// Puts the session's writer behind it. Events past `stored` are the store's to learn.
fn attach(
    root: &Rc<Root>,
    session: &Session,
    writer: Option<Rc<dyn SessionWriter>>,
    stored: u64,
) -> Option<Rc<SessionSink>> {
    let sink = root.storage.as_ref()?.attach(writer?, stored);
    for event in session.events_from(stored) {
        sink.push(&event);
    }
    session.set_sink(Some(sink.clone()));
    Some(sink)
}

fn check_start(owner: &Context, signal: Option<&Signal>) -> Result<()> {
    owner.fiber().check()?;
    owner.root().runtime.check_open()?;
    signal.map_or(Ok(()), Signal::check)
}

/// A seed must not end inside a turn (D-23).
fn check_balanced(seed: &[Arc<Event>]) -> Result<()> {
    let last = seed.iter().rev().find_map(|event| match event.data {
        EventData::TurnStart { turn } => Some(Some(turn)),
        EventData::TurnEnd { .. } => Some(None),
        _ => None,
    });
    match last.flatten() {
        Some(turn) => {
            let message = format!("the seed ends inside turn {turn}; cut it after that turn's turn/end");
            Err(Error::new(Code::UnbalancedSeed, message).with("turn", turn))
        }
        None => Ok(()),
    }
}

/// One agent from construction to disposal.
struct Lifecycle {
    root: Rc<Root>,
    agent: Agent,
    ctx: Context,
    sink: Option<Rc<SessionSink>>,
    owned: RefCell<Option<Registration>>,
    session_entered: Cell<bool>,
    session_announced: Cell<bool>,
    publishing: Cell<bool>,
    started: Cell<bool>,
    finished: Cell<bool>,
    done: WakerSet,
}

impl Lifecycle {
    fn new(
        owner: &Context,
        session: Session,
        options: AgentOptions,
        sink: Option<Rc<SessionSink>>,
    ) -> Result<Rc<Self>> {
        let root = owner.root().clone();
        let agent = Agent(Rc::new(AgentInner {
            session,
            options,
            scope: root.scopes.mint(),
            root: Rc::downgrade(&root),
            ctx: RefCell::new(None),
            driver: OnceCell::new(),
            stage: Cell::new(Stage::Private),
            promised: RefCell::default(),
            owner: owner.own_agent().map(|agent| agent.id().clone()),
            disposal: RefCell::new(None),
        }));
        let ctx = owner.scoped(agent.scope(), Rc::downgrade(&agent.0));
        *agent.0.ctx.borrow_mut() = Some(ctx.clone());
        let driver = LoopDriver::new(&agent, &root);
        agent.0.driver.set(driver).map_err(|_| Error::new(Code::Unknown, "the agent has a driver already"))?;
        let lifecycle = Rc::new(Self {
            root,
            agent: agent.clone(),
            ctx,
            sink,
            owned: RefCell::new(None),
            session_entered: Cell::new(false),
            session_announced: Cell::new(false),
            publishing: Cell::new(false),
            started: Cell::new(false),
            finished: Cell::new(false),
            done: WakerSet::default(),
        });
        let disposing = lifecycle.clone();
        *agent.0.disposal.borrow_mut() = Some(Rc::new(move || disposing.clone().dispose()));
        let owned = lifecycle.clone();
        let cleanup = Cleanup::Async(Box::new(move || owned.dispose()));
        *lifecycle.owned.borrow_mut() = Some(owner.fiber().own(cleanup));
        Ok(lifecycle)
    }

    /// Setup, commit, publication. Rolls back on any failure (FAC-12).
    async fn bring_up(
        self: Rc<Self>,
        setup: Option<Setup>,
        signal: Option<Signal>,
        source: StartSource,
    ) -> Result<AgentHandle> {
        let brought = self.compose_and_publish(setup, signal, source).await;
        match brought {
            Ok(()) => Ok(AgentHandle::new(self.agent.clone())),
            Err(error) => {
                self.dispose().await;
                Err(error)
            }
        }
    }

    async fn compose_and_publish(
        &self,
        setup: Option<Setup>,
        signal: Option<Signal>,
        source: StartSource,
    ) -> Result<()> {
        if let Some(setup) = setup {
            let ctx = self.ctx.clone();
            let composed = crate::events::guarded_future(move || setup(ctx));
            let commit = race(composed, signal.clone()).await?;
            self.check()?;
            if let Some(commit) = commit {
                crate::events::guarded(commit)?;
            }
        }
        signal.map_or(Ok(()), |signal| signal.check())?;
        self.check()?;
        self.publishing.set(true);
        let published = self.publish(source);
        self.publishing.set(false);
        published
    }

    /// From the first commit to the end there is no suspension (SYN-5).
    fn publish(&self, source: StartSource) -> Result<()> {
        let (root, agent) = (&self.root, &self.agent);
        root.enter_session(agent.session(), Some(agent.scope()), Rc::downgrade(&agent.0))?;
        self.session_entered.set(true);
        root.agents.enter(agent)?;
        agent.0.stage.set(Stage::Announcing);
        self.session_announced.set(true);
        let created = Notice::SessionCreated { session: agent.session().clone() };
        root.hub.emit_or_veto(&root.scopes, Some(agent.scope()), &created)?;
        self.check()?;
        root.agents.announce(root, agent)?;
        self.check()?;
        self.restore_lost_claims()?;
        agent.0.stage.set(Stage::Live);
        agent.emit(NoticeKind::SessionStart, |agent| Notice::SessionStart { agent, source });
        self.check()?;
        agent.driver()?.published();
        Ok(())
    }

    /// Puts back what a crash took from the inbox without letting it enter a step: the first live events, parked (D-10).
    fn restore_lost_claims(&self) -> Result<()> {
        let lost = self.agent.session().inbox().lost().to_vec();
        self.agent.inbox().unclaim(&lost)
    }

    /// Fails once disposal began.
    fn check(&self) -> Result<()> {
        if self.started.get() {
            let message = format!("agent {:?} was disposed while it was being created", self.agent.id());
            return Err(Error::new(Code::Disposed, message));
        }
        Ok(())
    }

    /// Ends the agent: stop, detach the agent, dispose its scope, detach the session (D-16). Memoised; from inside the
    /// agent's own turn it is a request (D-18).
    fn dispose(self: Rc<Self>) -> LocalBoxFuture<()> {
        let inside = self.agent.check_no_self_wait().is_err();
        if !self.started.replace(true) {
            self.agent.0.stage.set(Stage::Disposing);
            self.agent.cancel_with(CancelCause::Disposed, false);
            let lifecycle = self.clone();
            self.root.runtime.without_ambient(async move { lifecycle.tear_down().await });
        }
        if inside {
            return Box::pin(std::future::ready(()));
        }
        Box::pin(std::future::poll_fn(move |context| {
            if self.finished.get() {
                return Poll::Ready(());
            }
            self.done.register(context);
            Poll::Pending
        }))
    }

    async fn tear_down(self: Rc<Self>) {
        // A disposal asked for by a creation listener waits until the publishing call has unwound (FAC-26).
        while self.publishing.get() {
            yield_now().await;
        }
        let (root, agent) = (&self.root, &self.agent);
        if let Ok(driver) = agent.driver() {
            driver.when_idle().await;
        }
        root.agents.detach(root, agent);
        self.ctx.fiber().clone().dispose().await;
        if let Some(sink) = &self.sink {
            sink.close().await;
            agent.session().set_sink(None);
        }
        if self.session_entered.get() {
            root.detach_session(agent.session(), Some(agent.scope()), self.session_announced.get());
        }
        root.scopes.unbind(agent.scope());
        if let Some(owned) = self.owned.borrow_mut().take() {
            owned.forget();
        }
        self.finished.set(true);
        agent.0.ctx.borrow_mut().take();
        agent.0.disposal.borrow_mut().take();
        self.done.wake_all();
        agent.session().wake_watchers();
    }
}

/// A setup that never settles cannot pin the creation (FAC-7).
async fn race<T>(future: impl Future<Output = Result<T>>, signal: Option<Signal>) -> Result<T> {
    let Some(signal) = signal else { return future.await };
    let mut future = Box::pin(future);
    let mut cancelled = Box::pin(signal.cancelled());
    std::future::poll_fn(move |context| {
        if cancelled.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(signal.error()));
        }
        future.as_mut().poll(context)
    })
    .await
}
