//! Members: values that a view of a context carries for whoever works through it, and what is decided by them.

use super::fiber::Fiber;
use super::{Context, Root};
use crate::agent::AgentInner;
use crate::scope::ScopeKey;
use std::any::Any;
use std::rc::{Rc, Weak};

/// A chain of values, the newest first.
pub(super) struct Members {
    value: Rc<dyn Any>,
    outer: Option<Rc<Members>>,
}

/// Whether the listeners of a context hear what another one dispatches.
pub(super) type Receives = dyn Fn(&Context) -> bool;

impl Context {
    /// A view of this context that carries one more value, found by its type. Owner, scope and services are the same, and
    /// the view that was extended is not changed (CTX-1).
    pub fn extend<T: 'static>(&self, value: T) -> Context {
        let members = Members { value: Rc::new(value), outer: self.members.clone() };
        Context { members: Some(Rc::new(members)), ..self.clone() }
    }

    /// The value of this type that this view, or the one it was derived from, carries. The newest wins.
    pub fn member<T: 'static>(&self) -> Option<Rc<T>> {
        let mut members = self.members.as_ref();
        while let Some(member) = members {
            if let Ok(value) = member.value.clone().downcast() {
                return Some(value);
            }
            members = member.outer.as_ref();
        }
        None
    }

    /// A view whose plug-in events are heard only by those listeners for whose context `receives` says so, and by global
    /// ones (EVT-14). It does not touch who owns a listener (EVT-15). Events of the runtime itself are routed by the scope
    /// of the agent they are about.
    pub fn received_by(&self, receives: impl Fn(&Context) -> bool + 'static) -> Context {
        Context { receives: Some(Rc::new(receives)), ..self.clone() }
    }

    /// A view whose registrations of tools, restrictions, prompt parts and routes are not announced: `tools/changed` and
    /// `system-prompt/changed` stay away when they come and when they go (LAY-6), and `models/changed` for routes.
    pub fn quiet(&self) -> Context {
        Context { quiet: true, ..self.clone() }
    }

    /// Whether the listeners of `other` hear what this view dispatches.
    pub(crate) fn is_received_by(&self, other: &Listening) -> bool {
        let Some(receives) = &self.receives else { return true };
        let Some(listening) = other.context(self.root()) else { return false };
        crate::events::guarded(|| Ok(receives(&listening))).unwrap_or_else(|error| {
            tracing::warn!(target: "turnwheel", "a receiver's predicate failed: {error:?}");
            false
        })
    }

    /// What is kept of this context beside a listener: nothing that keeps the root or the owner alive.
    pub(crate) fn listening(&self) -> Listening {
        let fiber = Rc::downgrade(self.fiber());
        Listening { fiber, scope: self.scope, agent: self.agent.clone(), members: self.members.clone() }
    }
}

/// The context of a listener.
pub(crate) struct Listening {
    fiber: Weak<Fiber>,
    scope: Option<ScopeKey>,
    agent: Weak<AgentInner>,
    members: Option<Rc<Members>>,
}

impl Listening {
    fn context(&self, root: &Rc<Root>) -> Option<Context> {
        let (fiber, members) = (self.fiber.upgrade()?, self.members.clone());
        Some(Context { scope: self.scope, agent: self.agent.clone(), members, ..Context::over(root.clone(), fiber) })
    }
}
