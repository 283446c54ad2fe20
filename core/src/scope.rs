//! Scopes: who hears an event and who sees a registration (SCP).
//!
//! A scope is a key; keys form chains through parent links. Events flow up a chain (a listener of an ancestor hears its
//! descendants), registrations flow down it (the nearest wins). A scope decides visibility among trusted code and
//! confines nothing.

use crate::error::{Code, Error, Result};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// The identity of one scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScopeKey(u64);

/// The right to move a key under another parent: what binding it gave (SCP-9).
#[derive(Debug)]
pub struct Binding {
    child: ScopeKey,
}

/// The parent links between scopes. They outlive the scopes: a link is a relation between keys (SCP-18).
#[derive(Default)]
pub struct Scopes {
    next: Cell<u64>,
    parents: RefCell<HashMap<ScopeKey, ScopeKey>>,
}

impl Scopes {
    /// A new key.
    pub fn mint(&self) -> ScopeKey {
        self.next.set(self.next.get() + 1);
        ScopeKey(self.next.get())
    }

    /// Binds a key to its parent, once (SCP-9); cycles are refused (SCP-10). Only the binding can move the key.
    pub fn bind(&self, child: ScopeKey, parent: ScopeKey) -> Result<Binding> {
        if self.parents.borrow().contains_key(&child) {
            let message = "the scope has a parent already; whoever bound it can rebind it";
            return Err(Error::new(Code::ScopeConflict, message));
        }
        self.link(child, parent)?;
        Ok(Binding { child })
    }

    /// Moves a bound key under another parent. Later events follow the new links (SCP-13). Also when its link is gone, as
    /// behind the end of its scope.
    pub fn rebind(&self, binding: &Binding, parent: ScopeKey) -> Result<()> {
        self.link(binding.child, parent)
    }

    fn link(&self, child: ScopeKey, parent: ScopeKey) -> Result<()> {
        if self.chain(parent).contains(&child) {
            return Err(Error::new(Code::ScopeConflict, "a scope cannot be its own ancestor"));
        }
        self.parents.borrow_mut().insert(child, parent);
        Ok(())
    }

    /// Removes the link of a key that ended, unless other keys stand under it: their chain goes on through it (SCP-18).
    pub(crate) fn forget_leaf(&self, key: ScopeKey) {
        let mut parents = self.parents.borrow_mut();
        if !parents.values().any(|parent| *parent == key) {
            parents.remove(&key);
        }
    }

    /// The key and its ancestors, nearest first (SCP-11).
    pub fn chain(&self, key: ScopeKey) -> Vec<ScopeKey> {
        let parents = self.parents.borrow();
        std::iter::successors(Some(key), |key| parents.get(key).copied()).collect()
    }

    /// Calls `visit` for the key and its ancestors, nearest first, without allocating.
    pub(crate) fn each(&self, key: Option<ScopeKey>, mut visit: impl FnMut(ScopeKey)) {
        let mut next = key;
        while let Some(key) = next {
            visit(key);
            next = self.parents.borrow().get(&key).copied();
        }
    }
}

/// A registry with a global layer and a layer per scope (LAY).
pub struct Layers<T> {
    global: RefCell<Vec<Entry<T>>>,
    scoped: RefCell<HashMap<ScopeKey, Vec<Entry<T>>>>,
    next: Cell<u64>,
}

struct Entry<T> {
    id: u64,
    name: String,
    value: T,
}

impl<T> Default for Layers<T> {
    fn default() -> Self {
        Self { global: RefCell::default(), scoped: RefCell::default(), next: Cell::new(0) }
    }
}

impl<T: Clone> Layers<T> {
    /// Adds an entry to the layer of `scope`, the global one for none. A name may stand once in a layer (LAY-8).
    pub fn add(&self, scope: Option<ScopeKey>, name: &str, value: T) -> Result<u64> {
        let holds = |entries: &[Entry<T>]| entries.iter().any(|entry| entry.name == name);
        let (is_taken, layer) = match scope {
            None => (holds(&self.global.borrow()), "globally"),
            Some(key) => (self.scoped.borrow().get(&key).is_some_and(|entries| holds(entries)), "in this scope"),
        };
        if is_taken {
            // What is refused may own host objects, whose end may come back here: nothing is borrowed while it is dropped.
            let message = format!("{name:?} is registered {layer} already; remove that one first");
            return Err(Error::new(Code::DuplicateName, message).with("name", name));
        }
        let id = self.next.get();
        self.next.set(id + 1);
        let entry = Entry { id, name: name.to_owned(), value };
        match scope {
            None => self.global.borrow_mut().push(entry),
            Some(key) => self.scoped.borrow_mut().entry(key).or_default().push(entry),
        }
        Ok(id)
    }

    /// Removes exactly the entry that `add` made; a second removal does nothing.
    pub fn remove(&self, scope: Option<ScopeKey>, id: u64) {
        let take = |entries: &mut Vec<Entry<T>>| {
            entries.iter().position(|entry| entry.id == id).map(|index| entries.remove(index))
        };
        // What is removed may own host objects: drop it outside the borrow.
        let removed = match scope {
            None => take(&mut self.global.borrow_mut()),
            Some(key) => {
                let mut scoped = self.scoped.borrow_mut();
                let removed = scoped.get_mut(&key).and_then(take);
                if scoped.get(&key).is_some_and(Vec::is_empty) {
                    scoped.remove(&key);
                }
                removed
            }
        };
        drop(removed);
    }

    /// What `scope` sees: global entries, then its chain from the farthest; a nearer entry of the same name takes the
    /// earlier one's place (LAY-3). The flag says whether the scope itself registered it.
    pub fn merged(&self, scopes: &Scopes, scope: Option<ScopeKey>) -> Vec<Seen<T>> {
        let mut seen: Vec<Seen<T>> = Vec::new();
        let mut put = |entries: &[Entry<T>], layer: Option<ScopeKey>| {
            for entry in entries {
                let new = Seen { name: entry.name.clone(), value: entry.value.clone(), layer };
                match seen.iter_mut().find(|old| old.name == entry.name) {
                    Some(old) => *old = new,
                    None => seen.push(new),
                }
            }
        };
        put(&self.global.borrow(), None);
        let scoped = self.scoped.borrow();
        if let Some(key) = scope.filter(|_| !scoped.is_empty()) {
            for key in scopes.chain(key).into_iter().rev() {
                if let Some(entries) = scoped.get(&key) {
                    put(entries, Some(key));
                }
            }
        }
        seen
    }

    /// The entry of that name that `scope` sees.
    pub fn find(&self, scopes: &Scopes, scope: Option<ScopeKey>, name: &str) -> Option<Seen<T>> {
        let look = |entries: &[Entry<T>], layer| {
            let entry = entries.iter().find(|entry| entry.name == name)?;
            Some(Seen { name: entry.name.clone(), value: entry.value.clone(), layer })
        };
        let scoped = self.scoped.borrow();
        let mut found = None;
        if !scoped.is_empty() {
            scopes.each(scope, |key| {
                if found.is_none() {
                    found = scoped.get(&key).and_then(|entries| look(entries, Some(key)));
                }
            });
        }
        found.or_else(|| look(&self.global.borrow(), None))
    }
}

/// An entry as a scope sees it.
#[derive(Clone)]
pub struct Seen<T> {
    /// The name it is registered under.
    pub name: String,
    /// What is registered.
    pub value: T,
    /// The scope that registered it; none for the global layer.
    pub layer: Option<ScopeKey>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lay_6_a_layer_that_is_wholly_empty_is_reclaimed_and_one_that_is_not_stays() {
        let (scopes, layers) = (Scopes::default(), Layers::<&str>::default());
        let (one, other) = (scopes.mint(), scopes.mint());
        let first = layers.add(Some(one), "a", "first").expect("free");
        let second = layers.add(Some(one), "b", "second").expect("free");
        layers.add(Some(one), "a", "third").expect_err("taken");
        let refused = layers.add(Some(other), "a", "of the other").expect("free");
        layers.remove(Some(one), first);
        assert!(layers.scoped.borrow().contains_key(&one), "an entry is left");
        layers.remove(Some(one), second);
        assert_eq!(layers.scoped.borrow().keys().collect::<Vec<_>>(), [&other]);
        layers.remove(Some(one), second);
        layers.remove(Some(other), refused);
        assert!(layers.scoped.borrow().is_empty(), "nothing is kept for a scope that has nothing");
        layers.merged(&scopes, Some(one));
        layers.find(&scopes, Some(other), "a");
        assert!(layers.scoped.borrow().is_empty(), "looking makes no layer");
        layers.add(Some(one), "a", "again").expect("free");
    }
}
