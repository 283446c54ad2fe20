//! Which adapter serves which provider route, and how a call is bound to one (ADP).

use super::limits::Limiter;
use super::{Adapter, AdapterDefaults, CallConfig, ChunkStream, ModelInfo, ModelRequest, RateLimits, RetryPolicy};
use crate::agent::{Notice, NoticeKind};
use crate::context::{Cleanup, Context, Registration};
use crate::error::{Code, Error, Result};
use crate::message::{Message, Source};
use crate::runtime::Signal;
use crate::session::History;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// The routes of a root.
#[derive(Default)]
pub struct ModelTable {
    routes: RefCell<HashMap<String, Route>>,
}

/// What serves a route, and how.
#[derive(Clone)]
struct Route {
    adapter: Rc<dyn Adapter>,
    retry: Rc<RetryPolicy>,
    limiter: Option<Rc<Limiter>>,
}

/// What belongs to a route besides its adapter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteOptions {
    /// When failed requests are made again, if the retry plug-in is there.
    pub retry: RetryPolicy,
    /// Limits that all agents of the route share; each route of a registration has its own.
    pub limits: Option<RateLimits>,
}

/// A call bound to one adapter (ADP-06): the config with the model's defaults filled in. It is streamed once (ADP-07).
pub struct PreparedCall {
    /// The config, defaults included.
    pub config: CallConfig,
    /// Which members are the model's defaults.
    pub defaults: AdapterDefaults,
    /// What is known of the model.
    pub info: ModelInfo,
    /// What serves it.
    pub adapter: Rc<dyn Adapter>,
    /// The route's retry policy as it was when the call was prepared (ADP-08).
    pub retry: Rc<RetryPolicy>,
    limiter: Option<Rc<Limiter>>,
    /// The routes of the same adapter: messages of these keep their replay state.
    siblings: Vec<String>,
    /// The config as it was bound; none once it was streamed.
    bound: Cell<Option<CallConfig>>,
}

impl PreparedCall {
    /// Sends the request. Fails at once with `INVALID_PREPARED_CALL` when the call was streamed before, or when the
    /// request's config is not the one that was prepared (ADP-07, REQ-8). Where the route has limits the stream waits for
    /// its place first. Replay state that another adapter wrote is left out of the copy sent (ADP-22).
    pub fn stream(&self, mut request: ModelRequest) -> Result<ChunkStream> {
        let wrong = |what: &str| {
            let message = format!("{what}; prepare the call again");
            Err(Error::new(Code::InvalidPreparedCall, message).with("provider", self.config.provider.as_str()))
        };
        let Some(bound) = self.bound.take() else {
            return wrong("a prepared call is streamed once");
        };
        if request.header.config != bound {
            return wrong("the request has another config than the prepared call");
        }
        request.messages = self.with_own_replay_state(request.messages);
        let adapter = self.adapter.clone();
        match &self.limiter {
            Some(limiter) => Ok(limiter.stream(request, Box::new(move |request| adapter.stream(request)))),
            None => crate::events::guarded(move || Ok(adapter.stream(request))),
        }
    }

    fn with_own_replay_state(&self, messages: History) -> History {
        if !messages.has_foreign_replay_state(&self.siblings) {
            return messages;
        }
        let is_foreign = |message: &Message| match message.source() {
            Source::Model { provider, replay_state: Some(_), .. } => {
                !self.siblings.iter().any(|own| **own == **provider)
            }
            _ => false,
        };
        let bare = messages.iter().map(|message| match message.source() {
            Source::Model { provider, model, .. } if is_foreign(&message) => {
                let source = Source::Model { provider: provider.clone(), model: model.clone(), replay_state: None };
                Arc::new(Message::new(message.id().clone(), message.role(), message.content().to_vec(), source))
            }
            _ => message,
        });
        History::from_messages(bare.collect())
    }
}

impl ModelTable {
    fn route(&self, provider: &str) -> Result<Route> {
        self.routes.borrow().get(provider).cloned().ok_or_else(|| {
            let mut known: Vec<_> = self.routes.borrow().keys().cloned().collect();
            known.sort_unstable();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            let message = format!("no adapter serves provider {provider:?}; registered routes: {known}");
            Error::new(Code::NoAdapter, message).with("provider", provider)
        })
    }

    fn siblings(&self, adapter: &Rc<dyn Adapter>) -> Vec<String> {
        let routes = self.routes.borrow();
        let own = routes.iter().filter(|(_, route)| Rc::ptr_eq(&route.adapter, adapter));
        own.map(|(name, _)| name.clone()).collect()
    }

    /// Binds a config to the adapter of its route. The binding stays whatever happens to the registry.
    pub(crate) async fn prepare(&self, mut config: CallConfig, signal: &Signal) -> Result<PreparedCall> {
        let Route { adapter, retry, limiter } = self.route(&config.provider)?;
        let siblings = self.siblings(&adapter);
        let info = {
            let (adapter, provider, model) = (adapter.clone(), config.provider.clone(), config.model.clone());
            let signal = signal.clone();
            crate::events::guarded_future(move || adapter.model_info(&provider, &model, &signal)).await?
        };
        let mut defaults = AdapterDefaults::default();
        match &config.reasoning_effort {
            Some(effort) if !info.efforts.contains(effort) => {
                let message = format!("{}/{} offers no reasoning effort {effort:?}", config.provider, config.model);
                return Err(Error::new(Code::UnsupportedReasoningEffort, message));
            }
            None if info.default_effort.is_some() => {
                config.reasoning_effort.clone_from(&info.default_effort);
                defaults.reasoning_effort = true;
            }
            _ => {}
        }
        if config.max_tokens.is_none() && info.default_max_tokens.is_some() {
            config.max_tokens = info.default_max_tokens;
            defaults.max_tokens = true;
        }
        let bound = Cell::new(Some(config.clone()));
        Ok(PreparedCall { config, defaults, info, adapter, retry, limiter, siblings, bound })
    }
}

/// The model routes, as a context registers them.
#[derive(Clone)]
pub struct Models {
    ctx: Context,
}

impl Models {
    pub(crate) fn new(ctx: Context) -> Self {
        Self { ctx }
    }

    /// Lets `adapter` serve a provider route. Each route has one adapter (ADP-01).
    pub fn register(&self, provider: &str, adapter: impl Adapter + 'static) -> Result<Registration> {
        self.register_shared(&[provider], Rc::new(adapter))
    }

    /// Lets one adapter serve several routes, all or none.
    pub fn register_shared(&self, providers: &[&str], adapter: Rc<dyn Adapter>) -> Result<Registration> {
        self.register_with(providers, adapter, RouteOptions::default())
    }

    /// As [`Models::register_shared`], with what else belongs to the routes. `models/changed` is told once when they come
    /// and once when they go; routes belong to everybody, so listeners of no scope hear it (ADP-02).
    pub fn register_with(
        &self,
        providers: &[&str],
        adapter: Rc<dyn Adapter>,
        options: RouteOptions,
    ) -> Result<Registration> {
        options.retry.check()?;
        options.limits.as_ref().map_or(Ok(()), RateLimits::check)?;
        self.ctx.fiber().check()?;
        if providers.is_empty() || providers.iter().any(|provider| provider.is_empty()) {
            return Err(Error::new(Code::InvalidArgument, "an adapter needs at least one non-empty provider name"));
        }
        let table = &self.ctx.root().models;
        {
            let mut routes = table.routes.borrow_mut();
            if let Some(taken) = providers.iter().find(|provider| routes.contains_key(**provider)) {
                let message = format!("provider {taken:?} has an adapter already; dispose that registration first");
                return Err(Error::new(Code::DuplicateAdapter, message).with("provider", *taken));
            }
            let retry = Rc::new(options.retry);
            for provider in providers {
                let runtime = self.ctx.runtime().clone();
                let limiter = options.limits.map(|limits| Rc::new(Limiter::new(limits, runtime)));
                let route = Route { adapter: adapter.clone(), retry: retry.clone(), limiter };
                routes.insert((*provider).to_owned(), route);
            }
        }
        let (root, providers) = (Rc::downgrade(self.ctx.root()), providers.iter().map(|p| (*p).to_owned()).collect());
        let providers: Vec<String> = providers;
        let quiet = self.ctx.quiet;
        let registration = self.ctx.fiber().own(Cleanup::Sync(Box::new(move || {
            let Some(root) = root.upgrade() else { return };
            for provider in &providers {
                let removed = {
                    let mut routes = root.models.routes.borrow_mut();
                    let own = routes.get(provider).is_some_and(|live| Rc::ptr_eq(&live.adapter, &adapter));
                    if own { routes.remove(provider) } else { None }
                };
                drop(removed);
            }
            if !quiet {
                root.hub.emit(&root.scopes, None, NoticeKind::ModelsChanged, || Notice::ModelsChanged);
            }
        })));
        if !quiet {
            let root = self.ctx.root();
            root.hub.emit(&root.scopes, None, NoticeKind::ModelsChanged, || Notice::ModelsChanged);
        }
        Ok(registration)
    }

    /// Binds a config to the adapter of its route, for loops of your own.
    pub async fn prepare(&self, config: CallConfig, signal: &Signal) -> Result<PreparedCall> {
        self.ctx.root().models.prepare(config, signal).await
    }

    /// The registered routes, sorted.
    pub fn providers(&self) -> Vec<String> {
        let mut providers: Vec<_> = self.ctx.root().models.routes.borrow().keys().cloned().collect();
        providers.sort_unstable();
        providers
    }
}
