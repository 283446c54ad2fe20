//! The gate between Python objects, which any thread may hold and drop, and the core, which lives on one thread.
//!
//! A handle is a key and never a pointer: what it names is kept in its host, and a host is found only through a
//! thread-local table of its own thread. So a handle is `Send` without any `unsafe`, a use on a foreign thread is an
//! ordinary error, and a drop there posts the key to the owner instead of dropping the contents.

use crate::errors;
use crate::host::HostState;
use pyo3::prelude::*;
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use turnwheel::error::{Code, Error};

/// Incremented in the child of every fork: handles of an older generation belong to the parent.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static NEXT_HOST: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Never dropped with its thread: by then the interpreter may be gone, and what hosts hold are Python objects.
    static HOSTS: ManuallyDrop<RefCell<HashMap<u64, Rc<HostState>>>> = ManuallyDrop::default();
}

/// Called in the child after a fork.
pub fn bump_generation() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Locks; a poisoned lock of plain data is as good as any.
pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which host, on which thread, in which process. Valid to hold anywhere.
#[derive(Clone)]
pub struct Owner {
    host: u64,
    thread: ThreadId,
    generation: u64,
    graveyard: Arc<Mutex<Vec<u64>>>,
}

impl Owner {
    /// The owner of a new host on this thread.
    pub fn new() -> Self {
        Self {
            host: NEXT_HOST.fetch_add(1, Ordering::Relaxed),
            thread: std::thread::current().id(),
            generation: GENERATION.load(Ordering::Relaxed),
            graveyard: Arc::default(),
        }
    }

    /// The host's number.
    pub fn id(&self) -> u64 {
        self.host
    }

    /// Makes the host findable on this thread.
    pub fn enter(&self, host: Rc<HostState>) {
        HOSTS.with(|hosts| hosts.borrow_mut().insert(self.host, host));
    }

    /// Removes the host. What it held is dropped by the caller.
    pub fn leave(&self) -> Option<Rc<HostState>> {
        self.find_here().and_then(|_| HOSTS.with(|hosts| hosts.borrow_mut().remove(&self.host)))
    }

    /// Whether this is the thread and the process of the host.
    pub fn is_here(&self) -> bool {
        self.generation == GENERATION.load(Ordering::Relaxed) && self.thread == std::thread::current().id()
    }

    fn find_here(&self) -> Option<Rc<HostState>> {
        if !self.is_here() {
            return None;
        }
        HOSTS.try_with(|hosts| hosts.borrow().get(&self.host).cloned()).ok().flatten()
    }

    /// The host; the error says why it cannot be used here.
    pub fn host(&self) -> PyResult<Rc<HostState>> {
        if let Some(host) = self.find_here() {
            return Ok(host);
        }
        let (code, message) = if self.generation != GENERATION.load(Ordering::Relaxed) {
            (Code::Forked, "this object was made before the process forked; make a new context in the child")
        } else if self.thread != std::thread::current().id() {
            let message = "this object belongs to the thread of its event loop; use agent.send_threadsafe(...), or \
                           loop.call_soon_threadsafe(...) for anything else";
            (Code::WrongThread, message)
        } else {
            (Code::RuntimeClosed, "the context is closed, or its event loop has ended; open the agent again")
        };
        Err(Python::attach(|py| errors::to_py(py, &Error::new(code, message))))
    }

    /// Keys whose handles were dropped on foreign threads.
    pub fn take_buried(&self) -> Vec<u64> {
        std::mem::take(&mut lock(&self.graveyard))
    }
}

/// Every host of this thread, for the end of the interpreter. In the child of a fork the parent's are not ours to end:
/// the two share what the loop watches.
pub fn hosts_here() -> Vec<Rc<HostState>> {
    let all: Vec<Rc<HostState>> = HOSTS.with(|hosts| hosts.borrow().values().cloned().collect());
    all.into_iter().filter(|host| host.owner.is_here()).collect()
}

/// A name for a value that lives in a host.
pub struct Handle<T> {
    owner: Owner,
    key: u64,
    kind: PhantomData<fn() -> T>,
}

impl<T: 'static> Handle<T> {
    /// Gives a value to a host.
    pub fn new(host: &HostState, value: T) -> Self {
        let key = host.arena.put(Rc::new(value));
        Self { owner: host.owner.clone(), key, kind: PhantomData }
    }

    /// The owner.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The host and the value.
    pub fn get(&self) -> PyResult<(Rc<HostState>, Rc<T>)> {
        let host = self.owner.host()?;
        let value = host.arena.get(self.key).and_then(|value| value.downcast::<T>().ok());
        match value {
            Some(value) => Ok((host, value)),
            None => {
                let error = Error::new(Code::RuntimeClosed, "the context is closed");
                Err(Python::attach(|py| errors::to_py(py, &error)))
            }
        }
    }

    /// Runs `operation` on the value. A panic becomes a `BugError`.
    pub fn with<R>(&self, operation: impl FnOnce(&Rc<HostState>, &T) -> PyResult<R>) -> PyResult<R> {
        let (host, value) = self.get()?;
        guarded(|| operation(&host, &value))
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        match self.owner.find_here() {
            Some(host) => host.arena.remove(self.key),
            None => lock(&self.owner.graveyard).push(self.key),
        }
    }
}

/// Runs an entry; a panic becomes a `BugError` and unwinds no Python frame.
pub fn guarded<R>(operation: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    catch_unwind(AssertUnwindSafe(operation)).unwrap_or_else(|panic| {
        let error = Error::new(Code::Panic, turnwheel::runtime::panic_text(&*panic));
        Err(Python::attach(|py| errors::to_py(py, &error)))
    })
}

/// The values that handles name.
#[derive(Default)]
pub struct Arena {
    values: RefCell<HashMap<u64, Rc<dyn Any>>>,
    next: std::cell::Cell<u64>,
}

impl Arena {
    fn put(&self, value: Rc<dyn Any>) -> u64 {
        let key = self.next.get();
        self.next.set(key + 1);
        self.values.borrow_mut().insert(key, value);
        key
    }

    fn get(&self, key: u64) -> Option<Rc<dyn Any>> {
        self.values.borrow().get(&key).cloned()
    }

    /// Drops a value, outside the borrow: it may own anything.
    pub fn remove(&self, key: u64) {
        let removed = self.values.borrow_mut().remove(&key);
        drop(removed);
    }

    /// Drops every value.
    pub fn clear(&self) {
        let values = std::mem::take(&mut *self.values.borrow_mut());
        drop(values);
    }
}
