//! One agent from the first private resource to the end of its teardown (FAC-3 to FAC-30, D-15 to D-18).

use super::events::{Notice, NoticeKind, StartSource};
use super::publication::PublicationInner;
use super::registry::{AgentHandle, Setup};
use super::{Agent, AgentOptions, Driver, Stage};
use crate::context::{Cleanup, Context, Registration, Root};
use crate::error::{Code, Error, Result};
use crate::runtime::{LocalBoxFuture, Signal, WakerSet, yield_now};
use crate::session::{CancelCause, Session};
use crate::storage::{SessionSink, SessionWriter};
use once_cell::unsync::OnceCell;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::Poll;

pub(super) struct Lifecycle {
    root: Rc<Root>,
    publication: Weak<PublicationInner>,
    key: u64,
    id: String,
    agent: OnceCell<Agent>,
    sink: RefCell<Option<Rc<SessionSink>>>,
    owned: RefCell<Option<Registration>>,
    /// Why it ended; the first reason wins (FAC-24).
    ended: RefCell<Option<Error>>,
    /// What may cancel the creation, until its handle is returned (FAC-16).
    signal: RefCell<Option<Signal>>,
    session_entered: Cell<bool>,
    session_announced: Cell<bool>,
    entry: Cell<Option<u64>>,
    publishing: Cell<bool>,
    finished: Cell<bool>,
    changed: WakerSet,
}

impl Lifecycle {
    /// Attaches a lifecycle to its owner, before any private resource exists (FAC-4).
    pub(super) fn attach(
        publication: &Rc<PublicationInner>,
        owner: &Context,
        id: &str,
        signal: Option<&Signal>,
    ) -> Rc<Self> {
        let lifecycle = Rc::new(Self {
            root: owner.root().clone(),
            publication: Rc::downgrade(publication),
            key: publication.next_key(),
            id: id.to_owned(),
            agent: OnceCell::new(),
            sink: RefCell::new(None),
            owned: RefCell::new(None),
            ended: RefCell::new(None),
            signal: RefCell::new(signal.cloned()),
            session_entered: Cell::new(false),
            session_announced: Cell::new(false),
            entry: Cell::new(None),
            publishing: Cell::new(false),
            finished: Cell::new(false),
            changed: WakerSet::default(),
        });
        publication.live.borrow_mut().insert(lifecycle.key, lifecycle.clone());
        let owned = lifecycle.clone();
        let cleanup = Cleanup::Async(Box::new(move || {
            let message = format!("the context that owns agent {:?} went away", owned.id);
            owned.end(Error::new(Code::InactiveEffect, message))
        }));
        *lifecycle.owned.borrow_mut() = Some(owner.fiber().own(cleanup));
        lifecycle
    }

    /// Waits for something of a store. When the operation is cancelled meanwhile, what arrives late is released and can
    /// never publish (FAC-32, FAC-33).
    pub(super) async fn acquire<T: 'static>(
        &self,
        preparation: LocalBoxFuture<Result<T>>,
        signal: Option<&Signal>,
        release: impl FnOnce(T) -> LocalBoxFuture<()> + 'static,
    ) -> Result<T> {
        let mut preparation = Some(preparation);
        let prepared = std::future::poll_fn(|context| {
            let pending = preparation.as_mut().expect("the preparation is waited for once");
            pending.as_mut().poll(context).map(|prepared| {
                preparation = None;
                prepared
            })
        });
        let raced = self.race(prepared, signal).await;
        if let Some(late) = preparation {
            self.root.runtime.without_ambient(async move {
                if let Ok(prepared) = late.await {
                    release(prepared).await;
                }
            });
        }
        raced
    }

    /// Constructs the agent. Events past `stored` are the store's to learn.
    pub(super) fn make(
        self: &Rc<Self>,
        owner: &Context,
        session: Session,
        options: AgentOptions,
        writer: Option<Rc<dyn SessionWriter>>,
        stored: u64,
        make_driver: &dyn Fn(&Agent) -> Rc<dyn Driver>,
    ) -> Result<()> {
        if let (Some(storage), Some(writer)) = (&self.root.storage, writer) {
            let sink = storage.attach(writer, stored);
            sink.preload(session.events_from(stored));
            session.set_sink(sink.clone());
            *self.sink.borrow_mut() = Some(sink);
        }
        let agent = Agent::assemble(owner, session, options, make_driver)?;
        if let Some(sink) = &*self.sink.borrow() {
            let weak = Rc::downgrade(&agent.0);
            sink.on_failure(Rc::new(move |error| {
                let live = weak.upgrade().map(Agent).filter(|agent| agent.0.stage.get() == Stage::Live);
                let Some((agent, state)) = live.and_then(|agent| agent.state().ok().map(|state| (agent, state))) else {
                    return;
                };
                let (turn, step, error) = (state.turn, state.step, error.clone());
                agent.emit(NoticeKind::Error, |agent| Notice::Error { agent, turn, step, error });
            }));
        }
        // The publication keeps the lifecycle until it has finished; where that is given up, nobody waits for it.
        let lifecycle = Rc::downgrade(self);
        *agent.0.disposal.borrow_mut() = Some(Rc::new(move || {
            let Some(lifecycle) = lifecycle.upgrade() else { return Box::pin(std::future::ready(())) };
            let message = format!("agent {:?} was disposed while it was being created", lifecycle.id);
            lifecycle.end(Error::new(Code::Disposed, message))
        }));
        self.agent.set(agent).map_err(|_| Error::new(Code::Unknown, "the agent was constructed already"))
    }

    fn agent(&self) -> Result<&Agent> {
        self.agent.get().ok_or_else(|| self.reason())
    }

    /// Setup, commit, publication.
    pub(super) async fn compose_and_publish(
        &self,
        setup: Option<Setup>,
        signal: Option<&Signal>,
        source: StartSource,
    ) -> Result<()> {
        if let Some(setup) = setup {
            let ctx = self.agent()?.ctx()?;
            let composed: LocalBoxFuture<Result<_>> = Box::pin(crate::events::guarded_future(move || setup(ctx)));
            // A setup that never settles cannot pin the creation (FAC-7).
            let commit = self.race(composed, signal).await?;
            self.check()?;
            if let Some(commit) = commit {
                crate::events::guarded(commit)?;
            }
        }
        self.check()?;
        signal.map_or(Ok(()), Signal::check)?;
        self.publishing.set(true);
        let published = self.publish(source);
        self.publishing.set(false);
        published
    }

    /// Polls `future` for as long as neither `signal` nor the end of this lifecycle says no.
    async fn race<T>(&self, mut future: impl Future<Output = Result<T>> + Unpin, signal: Option<&Signal>) -> Result<T> {
        let mut cancelled = signal.map(|signal| Box::pin(signal.cancelled()));
        std::future::poll_fn(|context| {
            // Its end knows whether the signal fired before it.
            if let Err(reason) = self.check() {
                return Poll::Ready(Err(reason));
            }
            if cancelled.as_mut().is_some_and(|cancelled| cancelled.as_mut().poll(context).is_ready()) {
                return Poll::Ready(Err(signal.map_or_else(|| self.reason(), Signal::error)));
            }
            self.changed.register(context);
            Pin::new(&mut future).poll(context)
        })
        .await
    }

    /// From the first commit to the end there is no suspension (SYN-5).
    fn publish(&self, source: StartSource) -> Result<()> {
        let (root, agent) = (&self.root, self.agent()?);
        root.enter_session(agent.session(), Some(agent.scope()), Rc::downgrade(&agent.0))?;
        self.session_entered.set(true);
        self.entry.set(Some(root.agents.enter(agent)?));
        agent.0.stage.set(Stage::Announcing);
        self.session_announced.set(true);
        let created = Notice::SessionCreated { session: agent.session().clone() };
        root.hub.emit_or_veto(&root.scopes, Some(agent.scope()), &created)?;
        self.check()?;
        root.agents.announce(root, agent)?;
        self.check()?;
        self.restore_lost_claims(agent)?;
        agent.0.stage.set(Stage::Live);
        agent.emit(NoticeKind::SessionStart, |agent| Notice::SessionStart { agent, source });
        self.check()?;
        agent.driver()?.published();
        Ok(())
    }

    /// Puts back what a crash took from the inbox without letting it enter a step: the first live events, parked (D-10).
    fn restore_lost_claims(&self, agent: &Agent) -> Result<()> {
        let lost = agent.session().inbox().lost().to_vec();
        agent.inbox().unclaim(&lost)
    }

    fn reason(&self) -> Error {
        let gone = || Error::new(Code::Disposed, format!("agent {:?} is disposed", self.id));
        self.ended.borrow().clone().unwrap_or_else(gone)
    }

    /// Fails once it ended, with the first reason.
    pub(super) fn check(&self) -> Result<()> {
        self.ended.borrow().as_ref().map_or(Ok(()), |reason| Err(reason.clone()))
    }

    /// The operation is over: its handle, or its error once everything is undone (FAC-12).
    pub(super) async fn settle(self: Rc<Self>, opened: Result<()>) -> Result<AgentHandle> {
        let opened = opened.and_then(|()| self.agent().cloned());
        match opened {
            Ok(agent) => {
                self.signal.borrow_mut().take();
                Ok(AgentHandle::new(agent))
            }
            Err(error) => {
                self.end(error.clone()).await;
                Err(error)
            }
        }
    }

    /// Ends the agent: stop, detach the agent, dispose its scope, detach the session (D-16). All callers share one
    /// completion (FAC-21); from inside the agent's own turn it is a request (D-18).
    pub(super) fn end(self: &Rc<Self>, reason: Error) -> LocalBoxFuture<()> {
        let agent = self.agent.get().cloned();
        let inside = agent.as_ref().is_some_and(|agent| agent.check_no_self_wait().is_err());
        if self.ended.borrow().is_none() {
            let fired = self.signal.borrow().as_ref().filter(|signal| signal.is_cancelled()).map(Signal::error);
            *self.ended.borrow_mut() = Some(fired.unwrap_or(reason));
            if let Some(agent) = agent {
                // What a stored session has pending stays pending when opening it failed: nobody was asked (P3).
                let was_live = agent.0.stage.replace(Stage::Disposing) == Stage::Live;
                self.root.agents.begin_drain(agent.id());
                agent.cancel_with(CancelCause::Disposed, !was_live);
            }
            let lifecycle = self.clone();
            self.root.runtime.without_ambient(async move { lifecycle.tear_down().await });
            self.changed.wake_all();
        }
        if inside {
            return Box::pin(std::future::ready(()));
        }
        let lifecycle = self.clone();
        Box::pin(std::future::poll_fn(move |context| {
            if lifecycle.finished.get() {
                return Poll::Ready(());
            }
            lifecycle.changed.register(context);
            Poll::Pending
        }))
    }

    async fn tear_down(self: Rc<Self>) {
        // A disposal asked for by a creation listener waits until the publishing call has unwound (FAC-26); one asked
        // for by a log observer until the append has, and what it deferred is logged (LOG-13).
        let is_appending = || self.agent.get().is_some_and(|agent| agent.session().is_publishing());
        while self.publishing.get() || is_appending() {
            yield_now().await;
        }
        if let Some(agent) = self.agent.get() {
            self.tear_down_agent(agent).await;
            self.root.agents.end_drain(agent.id());
        }
        if let Some(owned) = self.owned.borrow_mut().take() {
            owned.forget();
        }
        if let Some(publication) = self.publication.upgrade() {
            let removed = publication.live.borrow_mut().remove(&self.key);
            drop(removed);
        }
        self.finished.set(true);
        if let Some(agent) = self.agent.get() {
            agent.0.ctx.borrow_mut().take();
            agent.0.disposal.borrow_mut().take();
            agent.session().wake_watchers();
        }
        self.changed.wake_all();
    }

    async fn tear_down_agent(&self, agent: &Agent) {
        let root = &self.root;
        if let Ok(driver) = agent.driver() {
            let stopped = crate::events::guarded_future(move || {
                Box::pin(async move {
                    driver.when_idle().await;
                    Ok(())
                })
            });
            // The agent is detached even if stopping it failed (FAC-18).
            if let Err(error) = stopped.await {
                tracing::error!(target: "turnwheel", agent = %agent.id(), "an agent could not be stopped: {error:?}");
            }
        }
        if let Some(entry) = self.entry.take() {
            root.agents.detach(root, agent, entry);
        }
        if let Ok(ctx) = agent.ctx() {
            ctx.fiber().clone().dispose().await;
        }
        // From here on nothing is accepted: what would be logged now had no store behind it (D-05).
        let ctx = agent.0.ctx.borrow_mut().take();
        drop(ctx);
        let sink = self.sink.borrow_mut().take();
        if let Some(sink) = sink {
            sink.close().await;
            agent.session().close();
        }
        if self.session_entered.get() {
            root.detach_session(agent.session(), Some(agent.scope()), self.session_announced.get());
        }
        root.scopes.forget_leaf(agent.scope());
    }
}

/// Ends a lifecycle whose operation is given up: its future was dropped before it was done.
pub(super) struct Operation(Option<Rc<Lifecycle>>);

impl Operation {
    pub(super) fn new(lifecycle: &Rc<Lifecycle>) -> Self {
        Self(Some(lifecycle.clone()))
    }

    pub(super) fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if let Some(lifecycle) = self.0.take() {
            let message = format!("the operation that was to open agent {:?} was given up", lifecycle.id);
            drop(lifecycle.end(Error::new(Code::Aborted, message)));
        }
    }
}
