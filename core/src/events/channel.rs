//! The listener table of one event.

use crate::scope::{ScopeKey, Scopes};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// Names one registration in one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId {
    scope: Option<ScopeKey>,
    id: u64,
}

/// Where and how often a listener runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Placement {
    /// Before the listeners that are there (EVT-2).
    pub prepend: bool,
    /// Removed before its first run (EVT-16).
    pub once: bool,
    /// Hears every scope's events, also when it is registered in one (EVT-14). Its lifetime is its context's all the
    /// same (EVT-15).
    pub global: bool,
}

/// The listeners of one event, global ones and those of scopes.
pub struct Channel<F: ?Sized> {
    global: RefCell<Rc<Vec<Listener<F>>>>,
    scoped: RefCell<HashMap<ScopeKey, Rc<Vec<Listener<F>>>>>,
    next: Cell<u64>,
    orders: Cell<(i64, i64)>,
}

struct Listener<F: ?Sized> {
    id: u64,
    scope: Option<ScopeKey>,
    order: i64,
    spent: Option<Rc<Cell<bool>>>,
    call: Rc<F>,
}

impl<F: ?Sized> Clone for Listener<F> {
    fn clone(&self) -> Self {
        Self { id: self.id, scope: self.scope, order: self.order, spent: self.spent.clone(), call: self.call.clone() }
    }
}

impl<F: ?Sized> Default for Channel<F> {
    fn default() -> Self {
        Self { global: RefCell::default(), scoped: RefCell::default(), next: Cell::new(0), orders: Cell::new((0, 0)) }
    }
}

impl<F: ?Sized> Channel<F> {
    /// Adds a listener to the global table or to a scope's.
    pub fn add(&self, scope: Option<ScopeKey>, placement: Placement, call: Rc<F>) -> ListenerId {
        let id = self.next.get();
        self.next.set(id + 1);
        let (first, last) = self.orders.get();
        let order = if placement.prepend { first - 1 } else { last + 1 };
        self.orders.set(if placement.prepend { (order, last) } else { (first, order) });
        let spent = placement.once.then(Rc::default);
        let scope = scope.filter(|_| !placement.global);
        let listener = Listener { id, scope, order, spent, call };
        self.edit(scope, |listeners| {
            let at = if placement.prepend { 0 } else { listeners.len() };
            listeners.insert(at, listener);
            None
        });
        ListenerId { scope, id }
    }

    /// Removes a registration; running dispatches still call it (EVT-3).
    pub fn remove(&self, listener: ListenerId) {
        self.edit(listener.scope, |listeners| {
            listeners.iter().position(|entry| entry.id == listener.id).map(|at| listeners.remove(at))
        });
    }

    fn edit(&self, scope: Option<ScopeKey>, edit: impl FnOnce(&mut Vec<Listener<F>>) -> Option<Listener<F>>) {
        // The old table and what was removed are dropped after the borrow: a closure may own anything.
        let dropped = match scope {
            None => {
                let mut table = self.global.borrow_mut();
                let mut listeners = (**table).clone();
                let removed = edit(&mut listeners);
                (std::mem::replace(&mut *table, Rc::new(listeners)), removed)
            }
            Some(key) => {
                let mut scoped = self.scoped.borrow_mut();
                let old = scoped.remove(&key).unwrap_or_default();
                let mut listeners = (*old).clone();
                let removed = edit(&mut listeners);
                if !listeners.is_empty() {
                    scoped.insert(key, Rc::new(listeners));
                }
                (old, removed)
            }
        };
        drop(dropped);
    }

    /// Whether nobody is registered, in any scope.
    pub fn is_empty(&self) -> bool {
        self.global.borrow().is_empty() && self.scoped.borrow().is_empty()
    }

    /// The listeners that hear an event of `scope`, in order: untagged ones, the scope's, its ancestors' (SCP-12).
    pub fn snapshot(&self, scopes: &Scopes, scope: Option<ScopeKey>) -> Snapshot<F> {
        let global = self.global.borrow().clone();
        let scoped = self.scoped.borrow();
        if scoped.is_empty() || scope.is_none() {
            return Snapshot { listeners: global };
        }
        let mut merged: Option<Vec<Listener<F>>> = None;
        scopes.each(scope, |key| {
            if let Some(listeners) = scoped.get(&key) {
                merged.get_or_insert_with(|| (*global).clone()).extend(listeners.iter().cloned());
            }
        });
        match merged {
            None => Snapshot { listeners: global },
            Some(mut listeners) => {
                listeners.sort_by_key(|listener| listener.order);
                Snapshot { listeners: Rc::new(listeners) }
            }
        }
    }
}

/// The listeners of one dispatch.
pub struct Snapshot<F: ?Sized> {
    listeners: Rc<Vec<Listener<F>>>,
}

impl<F: ?Sized> Clone for Snapshot<F> {
    fn clone(&self) -> Self {
        Self { listeners: self.listeners.clone() }
    }
}

impl<F: ?Sized> Snapshot<F> {
    /// Whether nobody listens.
    pub fn is_empty(&self) -> bool {
        self.listeners.is_empty()
    }

    /// The listener at a position that may still run; `None` at the end. Spent `once` listeners are passed over: the
    /// second member is the position after this one.
    pub fn next(&self, at: usize, channel: &Channel<F>) -> Option<(Rc<F>, usize)> {
        self.next_where(at, channel, |_| true)
    }

    /// As [`Snapshot::next`], passing over the listeners that do not `hear`; those are not spent.
    pub(crate) fn next_where(
        &self,
        mut at: usize,
        channel: &Channel<F>,
        hears: impl Fn(&F) -> bool,
    ) -> Option<(Rc<F>, usize)> {
        loop {
            let listener = self.listeners.get(at)?;
            at += 1;
            if !hears(&listener.call) {
                continue;
            }
            let Some(spent) = &listener.spent else {
                return Some((listener.call.clone(), at));
            };
            if !spent.replace(true) {
                channel.remove(ListenerId { scope: listener.scope, id: listener.id });
                return Some((listener.call.clone(), at));
            }
        }
    }
}
