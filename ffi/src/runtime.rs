//! Runtimes: the thread that contexts live on, and how calls from other threads get there.
//!
//! A *threaded* runtime owns its thread. A *hosted* one lives on the thread that made it, which polls it; a file
//! descriptor says when. Calls on that thread run inline, calls from others are posted and waited for.

use crate::handles::{self, Kind, Object};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsRawFd, OwnedFd};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, ThreadId};
use std::time::{Duration, Instant};
use turnwheel::Context;
use turnwheel::error::{Code, Error, Result};
use turnwheel::runtime::{PumpState, panic_text};

type Borrowing<'a> = Box<dyn FnOnce(&Rc<Core>) + Send + 'a>;
type Command = Borrowing<'static>;

/// Locks, whatever a panic left behind.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Inbox {
    commands: VecDeque<Command>,
    /// Keys of values that C released.
    buried: Vec<u64>,
    woken: bool,
}

enum Wake {
    /// The library's own thread waits on a condition.
    Thread(Condvar),
    /// The host's thread watches a descriptor.
    Descriptor(OwnedFd),
}

/// The part of a runtime that every thread may touch.
pub struct Shared {
    id: u64,
    owner: OnceLock<ThreadId>,
    inbox: Mutex<Inbox>,
    wake: Wake,
    stopping: AtomicBool,
    closed: AtomicBool,
    poisoned: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The part of a runtime that only its own thread sees.
pub struct Core {
    pub shared: Arc<Shared>,
    contexts: RefCell<Vec<Context>>,
    arena: RefCell<HashMap<u64, Rc<dyn Any>>>,
    next_key: Cell<u64>,
    busy: Cell<bool>,
}

thread_local! {
    static CORES: RefCell<Vec<Rc<Core>>> = const { RefCell::new(Vec::new()) };
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

fn io(what: &str, error: impl std::fmt::Display) -> Error {
    Error::new(Code::StoreFailed, format!("{what}: {error}"))
}

/// Marks the runtimes of this thread as broken: a panic passed through them.
pub fn poison_current() {
    CORES.with(|cores| {
        if let Ok(cores) = cores.try_borrow() {
            for core in cores.iter() {
                core.shared.poisoned.store(true, Ordering::Release);
            }
        }
    });
}

fn core_of(id: u64) -> Option<Rc<Core>> {
    CORES.with(|cores| cores.borrow().iter().find(|core| core.shared.id == id).cloned())
}

impl Shared {
    fn new(wake: Wake) -> Arc<Self> {
        Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            owner: OnceLock::new(),
            inbox: Mutex::default(),
            wake,
            stopping: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            thread: Mutex::new(None),
        })
    }

    /// Whether the caller is the runtime's thread.
    pub fn is_here(&self) -> bool {
        self.owner.get() == Some(&std::thread::current().id())
    }

    /// Whether it waits for its host to poll it.
    pub fn is_hosted(&self) -> bool {
        matches!(self.wake, Wake::Descriptor(_))
    }

    /// Fails once the runtime is closed or broken.
    pub fn check(&self) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) {
            let message = "this runtime is broken by an earlier panic of the library; only free works on it";
            return Err(Error::new(Code::Panic, message));
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        Ok(())
    }

    /// Says that there is something to do.
    pub fn notify(&self) {
        let mut inbox = lock(&self.inbox);
        if std::mem::replace(&mut inbox.woken, true) {
            return;
        }
        match &self.wake {
            Wake::Thread(condition) => condition.notify_one(),
            Wake::Descriptor(descriptor) => {
                drop(inbox);
                // A full counter is readable all the same.
                let _ = rustix::io::write(descriptor, &1u64.to_ne_bytes());
            }
        }
    }

    fn post(&self, command: Command) -> Result<()> {
        {
            let mut inbox = lock(&self.inbox);
            if self.closed.load(Ordering::Acquire) {
                return Err(closed());
            }
            inbox.commands.push_back(command);
        }
        self.notify();
        Ok(())
    }

    /// Runs `task` on the runtime's thread soon, behind what was posted before.
    pub fn later(&self, task: impl FnOnce(&Rc<Core>) + Send + 'static) -> Result<()> {
        self.post(Box::new(task))
    }

    /// Lets go of a value of the runtime's thread. Never blocks.
    pub fn bury(&self, key: u64) {
        lock(&self.inbox).buried.push(key);
        if !self.is_here() {
            self.notify();
        }
    }

    /// Runs `call` on the runtime's thread and waits for it; inline if this is that thread.
    pub fn call<T: Send>(self: &Arc<Self>, call: impl FnOnce(&Rc<Core>) -> Result<T> + Send) -> Result<T> {
        self.check()?;
        if self.is_here() {
            let core = core_of(self.id).ok_or_else(closed)?;
            core.dig();
            // Callbacks that run below this call must not wait, exactly as below a poll.
            let outer = core.busy.replace(true);
            let result = catch_unwind(AssertUnwindSafe(|| call(&core)));
            core.busy.set(outer);
            if !outer && self.is_hosted() && self.stopping.load(Ordering::Acquire) {
                core.end();
            }
            return result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        self.call_across(call)
    }

    fn call_across<T: Send>(&self, call: impl FnOnce(&Rc<Core>) -> Result<T> + Send) -> Result<T> {
        let answer: Arc<Answer<T>> = Arc::default();
        let answers = Answering(answer.clone());
        let command = move |core: &Rc<Core>| {
            let result = catch_unwind(AssertUnwindSafe(|| call(core))).unwrap_or_else(|panic| {
                core.shared.poisoned.store(true, Ordering::Release);
                let message = format!("the library panicked: {}; please report it", panic_text(&*panic));
                Err(Error::new(Code::Panic, message))
            });
            *lock(&answers.0.result) = Some(result);
            drop(answers);
        };
        let command: Borrowing<'_> = Box::new(command);
        // SAFETY: the command borrows from this frame at most. This function returns only when the command has run or was
        // dropped: `Answering` says so when it goes away, and nothing else owns what is borrowed.
        let command: Command = unsafe { std::mem::transmute(command) };
        self.post(command)?;
        let mut result = lock(&answer.result);
        while !answer.over.load(Ordering::Acquire) {
            result = answer.changed.wait(result).unwrap_or_else(PoisonError::into_inner);
        }
        result.take().unwrap_or_else(|| Err(closed()))
    }
}

struct Answer<T> {
    result: Mutex<Option<Result<T>>>,
    over: AtomicBool,
    changed: Condvar,
}

impl<T> Default for Answer<T> {
    fn default() -> Self {
        Self { result: Mutex::new(None), over: AtomicBool::new(false), changed: Condvar::new() }
    }
}

/// The duty to answer: whoever waits is told when it ends, with a result or without.
struct Answering<T>(Arc<Answer<T>>);

impl<T> Drop for Answering<T> {
    fn drop(&mut self) {
        let _result = lock(&self.0.result);
        self.0.over.store(true, Ordering::Release);
        self.0.changed.notify_all();
    }
}

/// The error of a runtime that is gone.
pub fn closed() -> Error {
    Error::new(Code::RuntimeClosed, "the runtime is closed")
}

/// The error of a wait that would never end.
pub fn self_wait() -> Error {
    let message = "the runtime's own thread cannot wait here: what it waits for runs on this thread; use a callback";
    Error::new(Code::SelfWait, message)
}

impl Core {
    /// Enters the runtime of this thread.
    fn install(shared: &Arc<Shared>) -> Rc<Core> {
        let _ = shared.owner.set(std::thread::current().id());
        let core = Rc::new(Core {
            shared: shared.clone(),
            contexts: RefCell::default(),
            arena: RefCell::default(),
            next_key: Cell::new(1),
            busy: Cell::new(false),
        });
        CORES.with(|cores| cores.borrow_mut().push(core.clone()));
        core
    }

    /// Takes a root context in: it is pumped from now on.
    pub fn adopt(&self, context: Context) {
        let shared = Arc::downgrade(&self.shared);
        context.runtime().set_notify_hook(Some(Arc::new(move |_| {
            if let Some(shared) = shared.upgrade() {
                shared.notify();
            }
        })));
        self.contexts.borrow_mut().push(context);
    }

    /// Keeps a value on this thread and gives out its handle.
    pub fn handle<T: 'static>(&self, kind: Kind, value: T) -> usize {
        let key = self.keep(value);
        handles::insert(kind, Object::Local(self.shared.clone(), key))
    }

    /// Keeps a value on this thread.
    pub fn keep<T: 'static>(&self, value: T) -> u64 {
        let key = self.next_key.get();
        self.next_key.set(key + 1);
        self.arena.borrow_mut().insert(key, Rc::new(value));
        key
    }

    /// A value that is kept here.
    pub fn value<T: 'static>(&self, key: u64) -> Result<Rc<T>> {
        let value = self.arena.borrow().get(&key).cloned();
        value.and_then(|value| value.downcast().ok()).ok_or_else(closed)
    }

    /// Lets go of a value.
    pub fn forget(&self, key: u64) {
        let value = self.arena.borrow_mut().remove(&key);
        drop(value);
    }

    fn dig(&self) {
        let buried = std::mem::take(&mut lock(&self.shared.inbox).buried);
        for key in buried {
            self.forget(key);
        }
    }

    /// Carries out what was posted and pumps once. Says whether there is more to do.
    fn turn(self: &Rc<Self>) -> bool {
        self.busy.set(true);
        lock(&self.shared.inbox).woken = false;
        self.dig();
        loop {
            let command = lock(&self.shared.inbox).commands.pop_front();
            let Some(command) = command else { break };
            command(self);
        }
        let contexts = self.contexts.borrow().clone();
        let mut more = false;
        for context in contexts {
            more |= context.runtime().pump() == PumpState::More;
        }
        self.dig();
        self.busy.set(false);
        more || !lock(&self.shared.inbox).commands.is_empty()
    }

    /// Whether the thread is inside the library: it must not wait.
    pub fn is_busy(&self) -> bool {
        self.busy.get()
    }

    /// Ends everything: tasks, values, callbacks.
    fn end(self: &Rc<Self>) {
        self.shared.closed.store(true, Ordering::Release);
        let contexts = std::mem::take(&mut *self.contexts.borrow_mut());
        for context in &contexts {
            // Agents are disposed as far as that needs nobody; the rest is let go of.
            let closing = context.clone();
            context.runtime().spawn(async move { drop(closing.close().await) });
            for _ in 0..8 {
                if context.runtime().pump() != PumpState::More {
                    break;
                }
            }
            context.runtime().close();
            context.abandon();
        }
        let commands = std::mem::take(&mut lock(&self.shared.inbox).commands);
        drop(commands);
        let values = std::mem::take(&mut *self.arena.borrow_mut());
        drop(values);
        drop(contexts);
        CORES.with(|cores| cores.borrow_mut().retain(|core| core.shared.id != self.shared.id));
    }

    /// Closes every context; resolves when all is durable.
    fn close(&self) -> impl Future<Output = Result<()>> + use<> {
        let contexts = self.contexts.borrow().clone();
        async move {
            let mut first = Ok(());
            for context in contexts {
                let closed = context.close().await;
                first = first.and(closed);
            }
            first
        }
    }
}

/// What a `tw_runtime` handle stands for. The last one that goes away stops the runtime.
pub struct RuntimeHandle(pub Arc<Shared>);

impl Drop for RuntimeHandle {
    fn drop(&mut self) {
        stop(&self.0);
    }
}

fn stop(shared: &Arc<Shared>) {
    shared.stopping.store(true, Ordering::Release);
    if shared.is_hosted() && shared.is_here() {
        if let Some(core) = core_of(shared.id)
            && !core.is_busy()
        {
            core.end();
        }
        return;
    }
    shared.notify();
}

/// Starts a runtime with a thread of its own.
pub fn threaded() -> Result<Arc<Shared>> {
    let shared = Shared::new(Wake::Thread(Condvar::new()));
    let (on_thread, ready) = (shared.clone(), Arc::new((Mutex::new(false), Condvar::new())));
    let started = ready.clone();
    let thread = std::thread::Builder::new().name("turnwheel".into()).spawn(move || {
        let core = Core::install(&on_thread);
        *lock(&started.0) = true;
        started.1.notify_one();
        drop(started);
        drop(on_thread);
        run(&core);
    });
    *lock(&shared.thread) = Some(thread.map_err(|error| io("the runtime's thread cannot start", error))?);
    let mut is_ready = lock(&ready.0);
    while !*is_ready {
        is_ready = ready.1.wait(is_ready).unwrap_or_else(PoisonError::into_inner);
    }
    Ok(shared)
}

fn run(core: &Rc<Core>) {
    let shared = core.shared.clone();
    let Wake::Thread(condition) = &shared.wake else { return };
    while !shared.stopping.load(Ordering::Acquire) {
        let more = catch_unwind(AssertUnwindSafe(|| core.turn()));
        let more = more.unwrap_or_else(|_| {
            shared.poisoned.store(true, Ordering::Release);
            false
        });
        let mut inbox = lock(&shared.inbox);
        while !more && !inbox.woken && !shared.stopping.load(Ordering::Acquire) {
            inbox = condition.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
    }
    // What a destructor of the host does may panic too; the thread ends anyway.
    let _ = catch_unwind(AssertUnwindSafe(|| core.end()));
}

/// Makes a runtime that lives on this thread and is polled.
pub fn hosted() -> Result<Arc<Shared>> {
    let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
    let descriptor = eventfd(0, flags).map_err(|error| io("no descriptor for wakes", error))?;
    let shared = Shared::new(Wake::Descriptor(descriptor));
    Core::install(&shared);
    Ok(shared)
}

fn here(shared: &Arc<Shared>) -> Result<(Rc<Core>, &OwnedFd)> {
    let Wake::Descriptor(descriptor) = &shared.wake else {
        let message = "this runtime has a thread of its own; only a hosted one is polled";
        return Err(Error::new(Code::InvalidArgument, message));
    };
    if !shared.is_here() {
        return Err(Error::new(Code::WrongThread, "a hosted runtime is polled on the thread that made it"));
    }
    shared.check()?;
    Ok((core_of(shared.id).ok_or_else(closed)?, descriptor))
}

/// The descriptor of a hosted runtime.
pub fn descriptor(shared: &Arc<Shared>) -> Result<i32> {
    match &shared.wake {
        Wake::Descriptor(descriptor) => Ok(descriptor.as_raw_fd()),
        Wake::Thread(_) => {
            let message = "this runtime has a thread of its own and no descriptor; make it with {\"mode\": \"hosted\"}";
            Err(Error::new(Code::InvalidArgument, message))
        }
    }
}

/// Does what there is to do; waits up to `timeout_ms` for something if there is nothing (0: not at all, negative: for
/// ever). Says whether there is more.
pub fn poll_once(shared: &Arc<Shared>, timeout_ms: i32) -> Result<bool> {
    let (core, descriptor) = here(shared)?;
    if core.is_busy() {
        return Err(self_wait());
    }
    let is_idle = !lock(&shared.inbox).woken;
    if is_idle && timeout_ms != 0 {
        let timeout = u32::try_from(timeout_ms).ok().map(|ms| Duration::from_millis(u64::from(ms)));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // An interrupted wait is over early, as a host that handles signals expects.
        let _ = poll(&mut [PollFd::new(descriptor, PollFlags::IN)], timeout.as_ref());
    }
    if lock(&shared.inbox).woken {
        let mut count = [0; 8];
        // Read before the mark is cleared: a wake in between has left its command, which is found below.
        let _ = rustix::io::read(descriptor, &mut count);
    }
    let more = core.turn();
    if shared.stopping.load(Ordering::Acquire) {
        core.end();
        return Ok(false);
    }
    if more {
        shared.notify();
    }
    Ok(more)
}

/// Pumps or waits until `is_done` says so, or the time is over. Fails where the wait would never end.
pub fn wait_until(shared: &Arc<Shared>, deadline: Option<Instant>, is_done: &dyn Fn() -> bool) -> Result<bool> {
    debug_assert!(shared.is_here(), "other threads wait on the future itself");
    let core = core_of(shared.id).ok_or_else(closed)?;
    if !shared.is_hosted() || core.is_busy() {
        return Err(self_wait());
    }
    while !is_done() {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Ok(false);
        }
        let ms = left.map_or(-1, |left| i32::try_from(left.as_millis().max(1)).unwrap_or(i32::MAX));
        poll_once(shared, ms)?;
    }
    Ok(true)
}

/// Whether the caller is on the runtime's thread and inside the library.
pub fn is_inside(shared: &Arc<Shared>) -> bool {
    shared.is_here() && (!shared.is_hosted() || core_of(shared.id).is_some_and(|core| core.is_busy()))
}

/// Closes every context, makes all durable, ends the runtime and waits for its thread.
pub fn close(shared: &Arc<Shared>) -> Result<()> {
    if is_inside(shared) {
        return Err(self_wait());
    }
    shared.check()?;
    let finished = crate::future::Shared::new(shared);
    let done = finished.clone();
    shared.call(move |core| {
        let closing = core.close();
        // A task of any context would be ended by that context's own close.
        let first = core.contexts.borrow().first().cloned();
        match first {
            Some(first) => {
                let root = first.root().clone();
                first.runtime().spawn(async move {
                    let closed = closing.await;
                    drop(root);
                    done.finish(closed.map(|()| "null".to_owned()));
                });
            }
            None => done.finish(Ok("null".to_owned())),
        }
        Ok(())
    })?;
    let closed = finished.wait(None).and_then(|_| finished.result().unwrap_or_else(|| Ok("null".into())));
    stop(shared);
    let thread = lock(&shared.thread).take();
    if let Some(thread) = thread {
        let _ = thread.join();
    }
    closed.map(drop)
}
