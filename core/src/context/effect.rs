//! Effects: what a context owns and undoes. A composite effect is several cleanups that are one, undone in reverse, each
//! awaited before the next (CTX-7).

use super::fiber::{Cleanup, Registration, report};
use super::{Context, Root};
use crate::agent::Notice;
use crate::error::Result;
use crate::events::guarded;
use crate::runtime::{LocalBoxFuture, WakerSet};
use crate::scope::ScopeKey;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Poll;

/// Collects the cleanups of one composite effect.
#[derive(Clone)]
pub struct Composite(Rc<Inner>);

struct Inner {
    parts: RefCell<Vec<Cleanup>>,
    built: Cell<bool>,
    changed: WakerSet,
}

impl Composite {
    /// Lets `undo` run before everything collected so far.
    pub fn defer(&self, undo: impl FnOnce() + 'static) {
        self.0.parts.borrow_mut().push(Cleanup::Sync(Box::new(undo)));
    }

    /// As [`Composite::defer`], with an `undo` that is awaited.
    pub fn defer_async(&self, undo: impl FnOnce() -> LocalBoxFuture<()> + 'static) {
        self.0.parts.borrow_mut().push(Cleanup::Async(Box::new(undo)));
    }

    /// Moves a registration into this effect: its owner does not undo it by itself any more (CTX-9).
    pub fn adopt(&self, registration: &Registration) {
        if let Some(cleanup) = registration.take() {
            self.0.parts.borrow_mut().push(cleanup);
        }
    }

    fn finish_building(&self) {
        self.0.built.set(true);
        self.0.changed.wake_all();
    }

    /// Undoes the parts: synchronous ones before this returns, up to the first that has to be awaited (CTX-13). A part
    /// that panics skips those registered before it (CTX-8): they may be what it depends on.
    fn undo(self) -> LocalBoxFuture<()> {
        if self.0.built.get() {
            let pending = self.undo_now();
            return Box::pin(async move {
                if let Some(pending) = pending {
                    pending.await;
                    self.undo_rest().await;
                }
            });
        }
        // An unload from inside the body: the body ends first (CTX-11).
        Box::pin(async move {
            std::future::poll_fn(|context| {
                if self.0.built.get() {
                    return Poll::Ready(());
                }
                self.0.changed.register(context);
                Poll::Pending
            })
            .await;
            self.undo_rest().await;
        })
    }

    async fn undo_rest(&self) {
        while let Some(pending) = self.undo_now() {
            pending.await;
        }
    }

    /// Runs parts until one has to be awaited.
    fn undo_now(&self) -> Option<LocalBoxFuture<()>> {
        loop {
            let last = self.0.parts.borrow_mut().pop();
            let started = guarded(|| match last {
                None => Ok(None),
                Some(Cleanup::Sync(undo)) => {
                    undo();
                    Ok(Some(None))
                }
                Some(Cleanup::Async(undo)) => Ok(Some(Some(undo()))),
            });
            match started {
                Ok(None) => return None,
                Ok(Some(None)) => {}
                Ok(Some(pending)) => return pending,
                Err(error) => {
                    report(&error);
                    let skipped = std::mem::take(&mut *self.0.parts.borrow_mut());
                    drop(skipped);
                    return None;
                }
            }
        }
    }
}

impl Context {
    /// Makes one effect of several cleanups: `body` collects them, and they run in reverse order, each awaited before the
    /// next. When `body` fails, what it collected is undone and its error returned (CTX-10).
    pub fn composite(&self, body: impl FnOnce(&Composite) -> Result<()>) -> Result<Registration> {
        self.fiber().check()?;
        let inner = Inner { parts: RefCell::default(), built: Cell::new(false), changed: WakerSet::default() };
        let composite = Composite(Rc::new(inner));
        let owned = composite.clone();
        // Owned before the body runs, so that an unload from inside it waits for it (CTX-11).
        let registration = self.fiber().own(Cleanup::Async(Box::new(move || owned.undo())));
        let built = guarded(|| body(&composite));
        composite.finish_building();
        match built {
            Ok(()) => Ok(registration),
            Err(error) => {
                if let Some(undoing) = registration.dispose() {
                    self.runtime().without_ambient(undoing);
                }
                Err(error)
            }
        }
    }

    /// Lets `undo` be awaited when this context ends, or earlier through the registration.
    pub fn effect_async(&self, undo: impl FnOnce() -> LocalBoxFuture<()> + 'static) -> Result<Registration> {
        self.fiber().check()?;
        Ok(self.fiber().own(Cleanup::Async(Box::new(undo))))
    }

    /// Owns what was just registered, and tells of it when it comes and when it goes. A listener that fails at its coming
    /// rolls it back (SYS-11, LAY-5).
    pub(crate) fn own_change(
        &self,
        changed: fn(Option<ScopeKey>) -> Notice,
        remove: impl FnOnce(&Root) + 'static,
    ) -> Result<Registration> {
        let (root, scope, quiet) = (Rc::downgrade(self.root()), self.scope(), self.quiet);
        let registration = self.fiber().own(Cleanup::Sync(Box::new(move || {
            if let Some(root) = root.upgrade() {
                remove(&root);
                if quiet {
                    return;
                }
                let notice = changed(scope);
                root.hub.emit(&root.scopes, scope, notice.kind(), || notice);
            }
        })));
        if quiet {
            return Ok(registration);
        }
        let root = self.root();
        match root.hub.emit_or_veto(&root.scopes, scope, &changed(scope)) {
            Ok(()) => Ok(registration),
            Err(error) => {
                registration.dispose();
                Err(error)
            }
        }
    }
}
