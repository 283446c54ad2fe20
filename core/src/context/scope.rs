//! Scopes minted by hand, and dispatch that is routed by its subject (SCP, EVT-11).

use super::Context;
use super::fiber::{Cleanup, Fiber, Registration};
use crate::agent::{Notice, Waterfall};
use crate::error::Result;
use crate::runtime::LocalBoxFuture;
use crate::scope::ScopeKey;
use std::future::Future;
use std::rc::Rc;

/// A scope of your own: a context that is tagged with a new key and has a fiber of its own (SCP-2).
#[derive(Clone)]
pub struct Scope {
    ctx: Context,
    key: ScopeKey,
    registration: Registration,
}

impl Scope {
    /// The tagged context, usable at once.
    pub fn ctx(&self) -> &Context {
        &self.ctx
    }

    /// The key.
    pub fn key(&self) -> ScopeKey {
        self.key
    }

    /// The minter's own disposer, to be adopted by a composite effect (SCP-6).
    pub fn registration(&self) -> &Registration {
        &self.registration
    }

    /// Undoes what was registered through it. All callers share one completion (SCP-5).
    pub fn dispose(&self) -> LocalBoxFuture<()> {
        Box::pin(self.ctx.fiber().clone().dispose())
    }
}

impl Context {
    /// Mints a scope. It ends with this context at the latest; binding its key to a parent is up to
    /// [`Scopes::bind`](crate::scope::Scopes::bind).
    pub fn new_scope(&self) -> Result<Scope> {
        self.fiber().check()?;
        let key = self.root().scopes.mint();
        let fiber = Fiber::new();
        let ctx = Context { scope: Some(key), ..self.with_fiber(fiber.clone()) };
        let owned = fiber.clone();
        let registration = self.fiber().own(Cleanup::Async(Box::new(move || Box::pin(owned.dispose()))));
        let entry = registration.clone();
        // The first effect is undone last: the minter forgets a scope that has ended.
        fiber.own(Cleanup::Sync(Box::new(move || entry.forget())));
        Ok(Scope { ctx, key, registration })
    }

    /// Delivers a notification, contained, to whoever hears its subject: the routing follows from the notice, so that the
    /// two cannot diverge (EVT-11).
    pub fn emit(&self, notice: Notice) {
        let root = self.root();
        root.hub.emit(&root.scopes, notice.scope(), notice.kind(), || notice);
    }

    /// Runs a waterfall about the agent that the payload names.
    pub async fn run_waterfall<P: Waterfall, F: Future<Output = Result<P::Output>> + 'static>(
        &self,
        payload: Rc<P>,
        default: impl FnOnce(Rc<P>) -> F + 'static,
    ) -> Result<P::Output> {
        let root = self.root();
        let scope = payload.agent().map(|agent| agent.scope());
        root.hub.waterfall(&root.scopes, scope, payload, default).await
    }
}
