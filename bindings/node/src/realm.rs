//! One realm for each loaded JavaScript half: its functions, its waker, and the cores that its thread pumps.
//!
//! A synchronous call of the user's is never followed by a pump on its way out: what it woke runs in a microtask, so
//! that a batch of calls in one breath is the same in every host (SYN-1). A completion (a promise that settled, a chunk
//! that was pushed) pumps at once, because nothing of the user's is on the stack below it. Once a slice of time is spent,
//! both leave the rest to `setImmediate`, so that timers and sockets get their turn.

use crate::host::Host;
use crate::raw::{Arguments, Env, Function, Js, Waker};
use rustc_hash::FxHashMap as HashMap;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::error_value;
use turnwheel::runtime::{PumpState, background_operations};

/// How long completions may pump before the event loop gets its turn.
const SLICE: Duration = Duration::from_millis(2);

thread_local! {
    static REALMS: RefCell<HashMap<u64, Rc<Realm>>> = RefCell::default();
    static HOSTS: RefCell<HashMap<u64, Rc<Host>>> = RefCell::default();
    static NEXT: Cell<u64> = const { Cell::new(1) };
}

/// Locks; a poisoned lock of plain data is as good as any.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The functions of the JavaScript half, in the order in which `attach` takes them.
pub struct Handlers {
    /// `(core, callback, context, seat, kind, seqOrPayload) -> error?`: delivers a notification.
    pub notify: Function,
    /// `(core, pending, callback, context, seat, shape, key, json) -> json?`: calls what may take its time.
    pub invoke: Function,
    /// `(core, promise, isOk, value)`: settles a promise.
    pub settled: Function,
    /// `(core, ids…)`: forgets what was kept.
    pub released: Function,
    /// `(core, kept, json) -> Error`: makes an error.
    pub error: Function,
    /// `(when)`: pumps in a microtask (0), in the next turn of the event loop (1).
    pub schedule: Function,
    /// `(index, name)`: names an event type.
    pub named: Function,
    /// `(text)`: tells of a failure that nobody waits for.
    pub warned: Function,
    /// `(core, isBusy)`: while a core is busy its JavaScript half stays, whoever else lets go of it.
    pub hold: Function,
}

/// The part that other threads may touch.
struct Shared {
    waker: Mutex<Option<Waker>>,
    /// Cores that were woken from other threads.
    woken: Mutex<Vec<u64>>,
}

/// See the module.
pub struct Realm {
    /// Where its functions live.
    pub env: Env,
    /// The JavaScript half.
    pub js: Handlers,
    shared: Arc<Shared>,
    /// Cores to be pumped in the microtask or the turn that is scheduled.
    ready: RefCell<Vec<Rc<Host>>>,
    is_soon: Cell<bool>,
    is_later: Cell<bool>,
    slice: Cell<Instant>,
    is_kept_alive: Cell<bool>,
    types: RefCell<HashMap<String, u32>>,
}

impl Realm {
    /// A realm of the functions in `arguments`.
    pub fn attach(arguments: &Arguments) -> Option<u64> {
        let env = arguments.env;
        let js = Handlers {
            notify: arguments.function(0)?,
            invoke: arguments.function(1)?,
            settled: arguments.function(2)?,
            released: arguments.function(3)?,
            error: arguments.function(4)?,
            schedule: arguments.function(5)?,
            named: arguments.function(6)?,
            warned: arguments.function(7)?,
            hold: arguments.function(8)?,
        };
        let waker = Waker::new(env, woken)?;
        let id = next_id();
        let realm = Rc::new(Realm {
            env,
            js,
            shared: Arc::new(Shared { waker: Mutex::new(Some(waker)), woken: Mutex::default() }),
            ready: RefCell::default(),
            is_soon: Cell::new(false),
            is_later: Cell::new(false),
            slice: Cell::new(Instant::now()),
            is_kept_alive: Cell::new(false),
            types: RefCell::default(),
        });
        if REALMS.with(|realms| realms.borrow().is_empty()) {
            env.on_cleanup(end_of_environment);
        }
        REALMS.with(|realms| realms.borrow_mut().insert(id, realm));
        Some(id)
    }

    /// The number of an event type; the JavaScript half learns its name when it first comes up.
    pub fn type_index(&self, name: &str) -> u32 {
        if let Some(index) = self.types.borrow().get(name) {
            return *index;
        }
        let index = u32::try_from(self.types.borrow().len()).unwrap_or(u32::MAX);
        self.types.borrow_mut().insert(name.to_owned(), index);
        self.env.scoped(|| self.env.call(&self.js.named, &[self.env.index(index), self.env.text(name)]));
        index
    }

    /// The JavaScript error of an error of the core: the very object that host code threw, if it was that.
    pub fn error(&self, host: Option<&Host>, error: &Error) -> Js {
        let kept = host.and_then(|host| host.thrown(error)).unwrap_or_default();
        let json = if kept == 0 { error_value(error).to_text() } else { String::new() };
        let core = host.map_or(0, |host| host.id);
        let arguments = [self.env.number(core as f64), self.env.number(kept as f64), self.env.text(&json)];
        self.env.call(&self.js.error, &arguments).unwrap_or_else(|| self.env.undefined())
    }

    /// What wakes a core from wherever it is woken.
    pub fn notify_hook(&self, core: u64, is_dirty: Arc<AtomicBool>) -> Arc<dyn Fn(bool) + Send + Sync> {
        let shared = self.shared.clone();
        Arc::new(move |on_owner_thread| {
            if on_owner_thread {
                is_dirty.store(true, Ordering::Relaxed);
                return;
            }
            lock(&shared.woken).push(core);
            if let Some(waker) = &*lock(&shared.waker) {
                waker.wake();
            }
        })
    }

    /// Lets a core run behind the user's code: in a microtask.
    fn soon(&self, host: &Rc<Host>) {
        self.put(host);
        if !self.is_soon.replace(true) {
            self.schedule(0);
        }
    }

    /// Lets a core run when timers and sockets had their turn.
    fn later(&self, host: &Rc<Host>) {
        self.put(host);
        if !self.is_later.replace(true) {
            self.schedule(1);
        }
    }

    fn put(&self, host: &Rc<Host>) {
        let mut ready = self.ready.borrow_mut();
        if !ready.iter().any(|other| Rc::ptr_eq(other, host)) {
            ready.push(host.clone());
        }
    }

    fn schedule(&self, when: u32) {
        self.env.scoped(|| self.env.call(&self.js.schedule, &[self.env.index(when)]));
    }

    /// Behind a synchronous call.
    pub fn after_call(&self, host: &Rc<Host>) {
        if host.is_dirty.swap(false, Ordering::Relaxed) {
            self.soon(host);
        }
        self.settle_down(host);
    }

    /// Behind a completion. Says whether the core could go on at once.
    pub fn after_completion(&self, host: &Rc<Host>) -> bool {
        let mut at_once = true;
        if host.is_dirty.load(Ordering::Relaxed) {
            at_once = !self.is_later.get() && self.slice.get().elapsed() < SLICE;
            match at_once {
                true => self.pump(host),
                false => self.later(host),
            }
        }
        self.settle_down(host);
        at_once
    }

    /// Pumps what was scheduled; `is_new_slice` when the event loop just had its turn.
    pub fn run_scheduled(&self, is_new_slice: bool) {
        match is_new_slice {
            true => {
                self.is_later.set(false);
                self.slice.set(Instant::now());
            }
            false => self.is_soon.set(false),
        }
        if self.is_later.get() {
            return;
        }
        let ready = std::mem::take(&mut *self.ready.borrow_mut());
        for host in ready {
            match self.slice.get().elapsed() < SLICE {
                true => self.pump(&host),
                false => self.later(&host),
            }
            self.settle_down(&host);
        }
    }

    fn pump(&self, host: &Rc<Host>) {
        host.is_dirty.store(false, Ordering::Relaxed);
        if host.runtime.pump() == PumpState::More {
            self.later(host);
        }
    }

    /// Forgets what nobody names any more, and keeps the process alive exactly while something is under way elsewhere.
    fn settle_down(&self, host: &Host) {
        host.forget_released();
        if let Some(is_busy) = host.busy_change() {
            self.env.scoped(|| {
                self.env.call(&self.js.hold, &[self.env.number(host.id as f64), self.env.bool(is_busy)]);
            });
        }
        let alive = background_operations() > 0;
        if self.is_kept_alive.replace(alive) != alive
            && let Some(waker) = &*lock(&self.shared.waker)
        {
            waker.keep_alive(self.env, alive);
        }
    }
}

/// A number that no core, realm or key of this thread has.
pub fn next_id() -> u64 {
    NEXT.with(|next| next.replace(next.get() + 1))
}

/// The realm of that number.
pub fn realm(id: u64) -> Option<Rc<Realm>> {
    REALMS.with(|realms| realms.borrow().get(&id).cloned())
}

/// The core of that number.
pub fn host(id: u64) -> Result<Rc<Host>> {
    let host = HOSTS.with(|hosts| hosts.borrow().get(&id).cloned());
    host.ok_or_else(|| Error::new(Code::RuntimeClosed, "the context is closed; make a new one"))
}

/// Makes a core findable.
pub fn enter(host: Rc<Host>) {
    HOSTS.with(|hosts| hosts.borrow_mut().insert(host.id, host));
}

/// Takes a core away. What it held is dropped by the caller.
pub fn leave(id: u64) -> Option<Rc<Host>> {
    HOSTS.with(|hosts| hosts.borrow_mut().remove(&id))
}

/// Throws `error` out of the native function under way.
pub fn throw(env: Env, host: Option<&Host>, error: &Error) -> Option<Js> {
    let any = || REALMS.with(|realms| realms.borrow().values().next().cloned());
    let realm = host.map(|host| host.realm.clone()).or_else(any);
    if let Some(realm) = realm {
        let error = realm.error(host, error);
        env.throw(error);
    }
    None
}

/// Throws what is left of a panic.
pub fn panicked(env: Env, panic: &(dyn std::any::Any + Send)) {
    let text = turnwheel::runtime::panic_text(panic);
    let message = format!("turnwheel panicked, which is a bug of it: {text}");
    throw(env, None, &Error::new(Code::Panic, message));
}

/// Tells the JavaScript of this thread, if there is some.
pub fn warn(text: &str) -> bool {
    let realm = REALMS.try_with(|realms| realms.borrow().values().next().cloned()).ok().flatten();
    let Some(realm) = realm else { return false };
    realm.env.scoped(|| realm.env.call(&realm.js.warned, &[realm.env.text(text)]));
    true
}

/// A wake from another thread arrived.
fn woken(_: Env) {
    let realms: Vec<_> = REALMS.with(|realms| realms.borrow().values().cloned().collect());
    for realm in realms {
        let woken = std::mem::take(&mut *lock(&realm.shared.woken));
        realm.slice.set(Instant::now());
        for core in woken {
            if let Ok(host) = host(core) {
                realm.pump(&host);
                realm.settle_down(&host);
            }
        }
    }
}

/// The environment ends: first nobody may wake it any more, then everything is dropped, in silence.
extern "C" fn end_of_environment(_: *mut c_void) {
    let realms = REALMS.with(|realms| std::mem::take(&mut *realms.borrow_mut()));
    for realm in realms.values() {
        // The handle belongs to the environment, which frees it.
        *lock(&realm.shared.waker) = None;
    }
    let hosts = HOSTS.with(|hosts| std::mem::take(&mut *hosts.borrow_mut()));
    for host in hosts.values() {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| host.close()));
    }
    // What they still hold refers to JavaScript that is gone: it is left to the end of the process.
    std::mem::forget(hosts);
    std::mem::forget(realms);
}
