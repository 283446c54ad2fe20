//! Plug-ins: parts of an application that load when what they require is there, and unload with it (CTX-2 to CTX-5).
//!
//! Each has a supervisor task, so its transitions are serialised: a requirement that is lost while the body loads takes
//! effect when the body has loaded, and not at all if the same provider is back by then.

use super::fiber::{Cleanup, Fiber};
use super::{Context, Registration, Root};
use crate::error::{Code, Error, Result};
use crate::events::Placement;
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

/// What happens to a plug-in, for observers (CTX-16).
#[derive(Clone)]
pub enum PluginChange {
    /// It was mounted: its parent owns it, and its body has not run.
    Mounted(Rc<Plugin>),
    /// It is gone for good, and all it registered with it.
    Disposed(Rc<Plugin>),
}

/// Hears of plug-ins. A failure at `Mounted` unmounts the plug-in; one at `Disposed` is reported only.
pub type PluginObserver = dyn Fn(&PluginChange) -> Result<()>;

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
    /// The task that runs the body.
    supervisor: Cell<Option<u64>>,
}

/// A plug-in to mount more than once. Clones are the same plug-in.
#[derive(Clone)]
pub struct PluginDefinition(Rc<Definition>);

struct Definition {
    requires: Vec<String>,
    body: Rc<Body>,
    mounts: RefCell<Vec<Weak<Plugin>>>,
}

impl PluginDefinition {
    /// A plug-in that requires these services; see [`Context::inject`].
    pub fn new<F: Future<Output = Result<()>> + 'static>(
        services: &[&str],
        body: impl Fn(Context) -> F + 'static,
    ) -> Self {
        let requires = services.iter().map(|name| (*name).to_owned()).collect();
        let body: Rc<Body> = Rc::new(move |ctx| Box::pin(body(ctx)));
        Self(Rc::new(Definition { requires, body, mounts: RefCell::default() }))
    }
}

impl Context {
    /// Mounts a plug-in once more: each mount has a life of its own (CTX-23).
    pub fn mount(&self, definition: &PluginDefinition) -> Result<Rc<Plugin>> {
        self.fiber().check()?;
        let plugin = Rc::new(Plugin {
            root: Rc::downgrade(self.root()),
            requires: definition.0.requires.clone(),
            state: Cell::new(PluginState::Pending),
            error: RefCell::new(None),
            using: RefCell::default(),
            disposing: Cell::new(false),
            changed: WakerSet::default(),
            supervisor: Cell::new(None),
        });
        {
            let mut mounts = definition.0.mounts.borrow_mut();
            mounts.retain(|mount| mount.upgrade().is_some_and(|mount| mount.state() != PluginState::Disposed));
            mounts.push(Rc::downgrade(&plugin));
        }
        self.root().services.watch(&plugin);
        let owned = plugin.clone();
        let registration = self.fiber().own(Cleanup::Async(Box::new(move || Box::pin(owned.dispose()))));
        let (supervised, parent, body) = (plugin.clone(), self.clone(), definition.0.body.clone());
        self.root().runtime.without_ambient(async move { supervised.supervise(parent, body).await });
        if let Err(error) = announce(self.root(), &PluginChange::Mounted(plugin.clone()), Contained::No) {
            if let Some(disposed) = registration.dispose() {
                self.root().runtime.without_ambient(disposed);
            }
            return Err(error);
        }
        Ok(plugin)
    }

    /// Disposes every mount of a plug-in under this root, wherever it was mounted (CTX-23). Resolves when all are gone.
    pub fn unmount(&self, definition: &PluginDefinition) -> impl Future<Output = ()> + use<> {
        let own = |plugin: &Rc<Plugin>| std::ptr::eq(plugin.root.as_ptr(), Rc::as_ptr(self.root()));
        let mounts: Vec<_> = definition.0.mounts.borrow().iter().filter_map(Weak::upgrade).filter(own).collect();
        let disposals: Vec<_> = mounts.iter().map(Plugin::dispose).collect();
        async move {
            for disposal in disposals {
                disposal.await;
            }
        }
    }

    /// Mounts a plug-in. The body runs soon, never before this returns (CTX-3); what it registers through the context
    /// it is given is undone when the plug-in, or this context, is disposed.
    pub fn plugin<F: Future<Output = Result<()>> + 'static>(
        &self,
        body: impl Fn(Context) -> F + 'static,
    ) -> Result<Rc<Plugin>> {
        self.inject(&[], body)
    }

    /// Hears of every plug-in that is mounted or disposed. An observer may dispose the plug-in, or the context that owns
    /// it, from inside (CTX-16).
    pub fn on_plugin(&self, observer: impl Fn(&PluginChange) -> Result<()> + 'static) -> Result<Registration> {
        self.fiber().check()?;
        let id = self.root().plugins.add(None, Placement::default(), Rc::new(observer));
        let root = Rc::downgrade(self.root());
        self.effect(move || {
            if let Some(root) = root.upgrade() {
                root.plugins.remove(id);
            }
        })
    }

    /// Mounts a plug-in that requires services: the body runs while all of them are there, and again whenever a
    /// provider changes (CTX-4).
    pub fn inject<F: Future<Output = Result<()>> + 'static>(
        &self,
        services: &[&str],
        body: impl Fn(Context) -> F + 'static,
    ) -> Result<Rc<Plugin>> {
        self.mount(&PluginDefinition::new(services, body))
    }
}

/// Whether an observer's failure stops at itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contained {
    Yes,
    No,
}

fn announce(root: &Root, change: &PluginChange, contained: Contained) -> Result<()> {
    let observers = root.plugins.snapshot(&root.scopes, None);
    let mut at = 0;
    while let Some((observer, after)) = observers.next(at, &root.plugins) {
        at = after;
        match crate::events::guarded(|| observer(change)) {
            Err(error) if contained == Contained::No => return Err(error),
            Err(error) => super::fiber::report(&error),
            Ok(()) => {}
        }
    }
    Ok(())
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

    /// Undoes what it registered and forgets it; all callers share one completion. Awaited inside its own body it is a
    /// request that is met when the body has returned: waiting would never end.
    pub fn dispose(self: &Rc<Self>) -> impl Future<Output = ()> + use<> {
        self.disposing.set(true);
        self.changed.wake_all();
        let plugin = self.clone();
        std::future::poll_fn(move |context| {
            if plugin.state.get() == PluginState::Disposed || plugin.runs_here() {
                return Poll::Ready(());
            }
            plugin.changed.register(context);
            Poll::Pending
        })
    }

    /// Whether the code under way is its own body.
    fn runs_here(&self) -> bool {
        let current = self.root.upgrade().and_then(|root| root.runtime.current_task());
        self.state.get() == PluginState::Loading && current.is_some() && current == self.supervisor.get()
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
        self.supervisor.set(parent.runtime().current_task());
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
        let root = parent.root().clone();
        self.enter(PluginState::Disposed);
        // A failure here is reported where it happens.
        let _ = announce(&root, &PluginChange::Disposed(self.clone()), Contained::Yes);
    }
}
