//! Plug-ins: parts of an application that load when what they require is there, and unload with it (CTX-2 to CTX-5).
//!
//! Each has a supervisor task, so its transitions are serialised: a requirement that is lost while the body loads takes
//! effect when the body has loaded, and not at all if the same provider is back by then.

use super::fiber::{Cleanup, Fiber};
use super::{Context, Root};
use crate::error::{Code, Error, Result};
use crate::runtime::{LocalBoxFuture, WakerSet, yield_now};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::{Rc, Weak};
use std::task::Poll;

/// Where a plug-in is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PluginState {
    /// Some requirement is missing.
    Pending,
    /// The body runs.
    Loading,
    /// The body has run; what it registered is in force.
    Active,
    /// The body failed; it runs again when a requirement changes.
    Failed,
    /// What it registered is being undone.
    Unloading,
    /// Gone for good.
    Disposed,
}

type Body = dyn Fn(Context) -> LocalBoxFuture<Result<()>>;

/// One mounted plug-in.
pub struct Plugin {
    root: Weak<Root>,
    requires: Vec<String>,
    state: Cell<PluginState>,
    error: RefCell<Option<Error>>,
    /// The providers that the body was run with.
    using: RefCell<Vec<u64>>,
    disposing: Cell<bool>,
    changed: WakerSet,
}

impl Context {
    /// Mounts a plug-in. The body runs soon, never before this returns (CTX-3); what it registers through the context
    /// it is given is undone when the plug-in, or this context, is disposed.
    pub fn plugin<F: Future<Output = Result<()>> + 'static>(
        &self,
        body: impl Fn(Context) -> F + 'static,
    ) -> Result<Rc<Plugin>> {
        self.inject(&[], body)
    }

    /// Mounts a plug-in that requires services: the body runs while all of them are there, and again whenever a
    /// provider changes (CTX-4).
    pub fn inject<F: Future<Output = Result<()>> + 'static>(
        &self,
        services: &[&str],
        body: impl Fn(Context) -> F + 'static,
    ) -> Result<Rc<Plugin>> {
        self.fiber().check()?;
        let plugin = Rc::new(Plugin {
            root: Rc::downgrade(self.root()),
            requires: services.iter().map(|name| (*name).to_owned()).collect(),
            state: Cell::new(PluginState::Pending),
            error: RefCell::new(None),
            using: RefCell::default(),
            disposing: Cell::new(false),
            changed: WakerSet::default(),
        });
        self.root().services.watch(&plugin);
        let owned = plugin.clone();
        self.fiber().own(Cleanup::Async(Box::new(move || Box::pin(owned.dispose()))));
        let body: Rc<Body> = Rc::new(move |ctx| Box::pin(body(ctx)));
        let (supervised, parent) = (plugin.clone(), self.clone());
        self.root().runtime.without_ambient(async move { supervised.supervise(parent, body).await });
        Ok(plugin)
    }
}

impl Plugin {
    /// Where it is.
    pub fn state(&self) -> PluginState {
        self.state.get()
    }

    /// Resolves when it is active; fails when its body failed or it was disposed.
    pub fn ready(self: &Rc<Self>) -> impl Future<Output = Result<()>> + use<> {
        let plugin = self.clone();
        std::future::poll_fn(move |context| {
            let gone = || Error::new(Code::InactiveEffect, "the plug-in was disposed before it became active");
            match plugin.state.get() {
                PluginState::Active => Poll::Ready(Ok(())),
                PluginState::Failed => Poll::Ready(Err(plugin.error.borrow().clone().unwrap_or_else(gone))),
                PluginState::Disposed => Poll::Ready(Err(gone())),
                PluginState::Pending | PluginState::Loading | PluginState::Unloading => {
                    plugin.changed.register(context);
                    Poll::Pending
                }
            }
        })
    }

    /// Undoes what it registered and forgets it; all callers share one completion.
    pub fn dispose(self: &Rc<Self>) -> impl Future<Output = ()> + use<> {
        self.disposing.set(true);
        self.changed.wake_all();
        let plugin = self.clone();
        std::future::poll_fn(move |context| {
            if plugin.state.get() == PluginState::Disposed {
                return Poll::Ready(());
            }
            plugin.changed.register(context);
            Poll::Pending
        })
    }

    pub(super) fn requirements_changed(&self) {
        self.changed.wake_all();
    }

    /// Resolves when the plug-in does not use this provider any more.
    pub(super) async fn released(&self, provider: u64) {
        std::future::poll_fn(|context| {
            if !self.using.borrow().contains(&provider) {
                return Poll::Ready(());
            }
            self.changed.register(context);
            Poll::Pending
        })
        .await;
    }

    /// The providers in force; `None` while some requirement is missing.
    fn providers(&self) -> Option<Vec<u64>> {
        let root = self.root.upgrade()?;
        self.requires.iter().map(|name| root.services.provider(name)).collect()
    }

    fn enter(&self, state: PluginState) {
        self.state.set(state);
        self.changed.wake_all();
    }

    /// Resolves when `done` says so, looking again after every change.
    async fn until<T>(&self, done: impl Fn() -> Option<T>) -> T {
        std::future::poll_fn(|context| match done() {
            Some(value) => Poll::Ready(value),
            None => {
                self.changed.register(context);
                Poll::Pending
            }
        })
        .await
    }

    async fn supervise(self: Rc<Self>, parent: Context, body: Rc<Body>) {
        yield_now().await;
        loop {
            let providers =
                self.until(|| if self.disposing.get() { Some(None) } else { self.providers().map(Some) }).await;
            let Some(providers) = providers else { break };
            *self.using.borrow_mut() = providers.clone();
            self.enter(PluginState::Loading);
            let ctx = parent.with_fiber(Fiber::loading());
            let (loading, run) = (ctx.clone(), body.clone());
            let loaded = crate::events::guarded_future(move || run(loading)).await;
            match loaded {
                Ok(()) => {
                    ctx.fiber().activate();
                    self.enter(PluginState::Active);
                    ctx.root().services.changed();
                }
                Err(error) => {
                    ctx.fiber().clone().dispose().await;
                    *self.error.borrow_mut() = Some(error);
                    self.enter(PluginState::Failed);
                }
            }
            let lost = || (self.disposing.get() || self.providers().as_ref() != Some(&providers)).then_some(());
            self.until(lost).await;
            self.enter(PluginState::Unloading);
            ctx.root().services.withdraw_all(ctx.fiber()).await;
            ctx.fiber().clone().dispose().await;
            self.using.borrow_mut().clear();
            self.enter(PluginState::Pending);
        }
        self.enter(PluginState::Disposed);
    }
}
