//! The local executor and the ports of one runtime.
//!
//! A runtime is single-threaded: whoever owns the thread pumps it (`docs/concepts.md`, "Pumps"). Tasks are plain local
//! futures. A task is polled once when it is spawned, re-entrantly if need be, because starting a turn is synchronous
//! (ARCHITECTURE §3). Nothing of the executor is borrowed while a task is polled.

mod clock;
mod local;
mod signal;

pub use crate::background::outstanding as background_operations;
pub use clock::{Clock, ManualClock, SystemClock};
pub use local::{LocalBoxFuture, Oneshot, WakerSet, oneshot, yield_now};
pub use signal::{Signal, SignalGuard};

use crate::error::{Code, Error, Result};
use crate::id::{IdSource, RandomIds};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Called when work appears while nobody pumps. The argument says whether the caller is on the owner's thread. It must
/// not block, and is called with no lock held.
pub type NotifyHook = Arc<dyn Fn(bool) + Send + Sync>;

/// How much a pump does before it hands the thread back: 1,024 polls or 2 ms, whichever comes first.
const POLL_BUDGET: usize = 1024;
const TIME_BUDGET: Duration = Duration::from_millis(2);

/// What a pump left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PumpState {
    /// Nothing can proceed until somebody wakes a task.
    Idle,
    /// The budget is spent and there is more to do: pump again soon.
    More,
    /// An outer pump is running and will do the work, or a notification is being delivered: pump when it has returned.
    Reentrant,
}

/// What the runtime asks of the world (P6).
pub struct Ports {
    /// Time and timers.
    pub clock: Rc<dyn Clock>,
    /// New ids.
    pub ids: Rc<dyn IdSource>,
}

impl Default for Ports {
    fn default() -> Self {
        Self { clock: Rc::new(SystemClock::default()), ids: Rc::new(RandomIds) }
    }
}

/// A handle to one single-threaded runtime. Clones are the same runtime.
#[derive(Clone)]
pub struct Runtime(Rc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    tasks: RefCell<HashMap<u64, Rc<Task>>>,
    next_task: Cell<u64>,
    pumping: Cell<bool>,
    /// Notifications under way: nothing else may proceed in the middle of an operation that notifies.
    notifying: Rc<Cell<u32>>,
    closed: Cell<bool>,
    /// The task that is being polled, the innermost one.
    current: Cell<Option<u64>>,
    ambient: RefCell<Option<Rc<dyn Any>>>,
    ports: Ports,
}

/// The part that other threads may touch.
struct Shared {
    owner: ThreadId,
    queue: Mutex<VecDeque<u64>>,
    /// Set while somebody is known to be going to pump; makes the hook fire once per idle-to-busy edge.
    scheduled: AtomicBool,
    hook: Mutex<Option<NotifyHook>>,
}

struct Task {
    future: RefCell<Option<LocalBoxFuture<()>>>,
    handle: Arc<TaskHandle>,
    waker: Waker,
    ambient: Option<Rc<dyn Any>>,
    woken_while_polled: Cell<bool>,
}

struct TaskHandle {
    id: u64,
    queued: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for TaskHandle {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.shared.push(self.id);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn push(&self, id: u64) {
        lock(&self.queue).push_back(id);
        self.notify();
    }

    fn notify(&self) {
        if !self.scheduled.swap(true, Ordering::AcqRel) {
            let hook = lock(&self.hook).clone();
            if let Some(hook) = hook {
                hook(std::thread::current().id() == self.owner);
            }
        }
    }
}

impl Default for Runtime {
    fn default() -> Self {
        Self::new(Ports::default())
    }
}

impl Runtime {
    /// A runtime owned by this thread.
    pub fn new(ports: Ports) -> Self {
        let shared = Shared {
            owner: std::thread::current().id(),
            queue: Mutex::new(VecDeque::new()),
            scheduled: AtomicBool::new(false),
            hook: Mutex::new(None),
        };
        Self(Rc::new(Inner {
            shared: Arc::new(shared),
            tasks: RefCell::default(),
            next_task: Cell::new(0),
            pumping: Cell::new(false),
            notifying: Rc::default(),
            closed: Cell::new(false),
            current: Cell::new(None),
            ambient: RefCell::new(None),
            ports,
        }))
    }

    /// Installs what is called when work appears while nobody pumps.
    pub fn set_notify_hook(&self, hook: Option<NotifyHook>) {
        let old = std::mem::replace(&mut *lock(&self.0.shared.hook), hook);
        drop(old);
        // Work that appeared before the hook existed must not be forgotten.
        self.0.shared.scheduled.store(false, Ordering::Release);
        if !lock(&self.0.shared.queue).is_empty() {
            self.0.shared.notify();
        }
    }

    /// The clock port.
    pub fn clock(&self) -> &Rc<dyn Clock> {
        &self.0.ports.clock
    }

    /// Now, in epoch milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.0.ports.clock.now_ms()
    }

    /// Waits on the clock port.
    pub fn sleep(&self, duration: Duration) -> LocalBoxFuture<()> {
        self.0.ports.clock.sleep(duration)
    }

    /// A new id text from the id port.
    pub fn next_id(&self) -> String {
        self.0.ports.ids.next_id()
    }

    /// The count of notifications under way; while it is not zero, pumping waits.
    pub(crate) fn notifying(&self) -> Rc<Cell<u32>> {
        self.0.notifying.clone()
    }

    /// How many tasks are alive.
    pub fn task_count(&self) -> usize {
        self.0.tasks.borrow().len()
    }

    /// Starts a task and polls it once before returning. It runs under the current ambient value.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.spawn_with(self.ambient(), future);
    }

    /// Starts a task under an ambient value of its own.
    pub(crate) fn spawn_with(&self, ambient: Option<Rc<dyn Any>>, future: impl Future<Output = ()> + 'static) {
        if self.0.closed.get() {
            return;
        }
        let id = self.0.next_task.get();
        self.0.next_task.set(id + 1);
        let handle = Arc::new(TaskHandle { id, queued: AtomicBool::new(false), shared: self.0.shared.clone() });
        let task = Rc::new(Task {
            future: RefCell::new(Some(Box::pin(future))),
            waker: Waker::from(handle.clone()),
            handle,
            ambient,
            woken_while_polled: Cell::new(false),
        });
        self.0.tasks.borrow_mut().insert(id, task.clone());
        self.poll_task(&task);
    }

    /// Starts a task that is nobody's doing.
    pub(crate) fn without_ambient(&self, future: impl Future<Output = ()> + 'static) {
        self.spawn_with(None, future);
    }

    fn poll_task(&self, task: &Rc<Task>) {
        task.handle.queued.store(false, Ordering::Release);
        let taken = task.future.borrow_mut().take();
        let Some(mut future) = taken else {
            // An outer frame is polling this very task; it will look again.
            task.woken_while_polled.set(true);
            return;
        };
        let before = self.0.ambient.replace(task.ambient.clone());
        let outer = self.0.current.replace(Some(task.handle.id));
        let mut context = TaskContext::from_waker(&task.waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        self.0.current.set(outer);
        drop(self.0.ambient.replace(before));
        match polled {
            Ok(Poll::Pending) if !self.0.closed.get() => {
                *task.future.borrow_mut() = Some(future);
                if task.woken_while_polled.take() {
                    task.waker.wake_by_ref();
                }
            }
            Ok(_) => {
                self.0.tasks.borrow_mut().remove(&task.handle.id);
            }
            Err(panic) => {
                self.0.tasks.borrow_mut().remove(&task.handle.id);
                tracing::error!(target: "turnwheel", "a task panicked: {}", panic_text(&*panic));
            }
        }
    }

    /// Polls what was woken, until nothing is or the budget is spent.
    pub fn pump(&self) -> PumpState {
        if self.0.notifying.get() > 0 || self.0.pumping.replace(true) {
            return PumpState::Reentrant;
        }
        // While pumping, wakes only queue.
        self.0.shared.scheduled.store(true, Ordering::Release);
        let deadline = Instant::now() + TIME_BUDGET;
        let mut polls = 0;
        let state = loop {
            let next = lock(&self.0.shared.queue).pop_front();
            let Some(id) = next else {
                self.0.shared.scheduled.store(false, Ordering::Release);
                // A wake between the look and the store was not announced: look again.
                if lock(&self.0.shared.queue).is_empty() {
                    break PumpState::Idle;
                }
                self.0.shared.scheduled.store(true, Ordering::Release);
                continue;
            };
            let task = self.0.tasks.borrow().get(&id).cloned();
            if let Some(task) = task {
                self.poll_task(&task);
            }
            polls += 1;
            if polls >= POLL_BUDGET || (polls % 32 == 0 && Instant::now() >= deadline) {
                break PumpState::More;
            }
        };
        self.0.pumping.set(false);
        if state == PumpState::More && lock(&self.0.shared.queue).is_empty() {
            self.0.shared.scheduled.store(false, Ordering::Release);
            if lock(&self.0.shared.queue).is_empty() {
                return PumpState::Idle;
            }
            self.0.shared.scheduled.store(true, Ordering::Release);
        }
        state
    }

    /// A future that drives this runtime beside `future` under any executor of this thread, for example tokio's
    /// `LocalSet`, and resolves with its output.
    pub fn run_until<F: Future>(&self, future: F) -> impl Future<Output = F::Output> {
        let runtime = self.clone();
        let mut future = Box::pin(future);
        let outer: Arc<Mutex<Option<Waker>>> = Arc::default();
        let hook_waker = outer.clone();
        runtime.set_notify_hook(Some(Arc::new(move |_| {
            let waker = lock(&hook_waker).clone();
            if let Some(waker) = waker {
                waker.wake();
            }
        })));
        std::future::poll_fn(move |context| {
            *lock(&outer) = Some(context.waker().clone());
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(output);
            }
            match runtime.pump() {
                PumpState::More => context.waker().wake_by_ref(),
                PumpState::Idle | PumpState::Reentrant => {}
            }
            future.as_mut().poll(context)
        })
    }

    /// Blocks this thread until `future` is done, pumping meanwhile.
    ///
    /// # Panics
    ///
    /// Inside a listener, tool or other task of this runtime: there it would wait for itself. Await instead.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let inside = self.0.pumping.get() || self.0.notifying.get() > 0;
        assert!(!inside, "block_on() inside a task or listener of the same runtime would never end; await instead");
        struct Thread(std::thread::Thread);
        impl Wake for Thread {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Thread(std::thread::current())));
        let mut context = TaskContext::from_waker(&waker);
        let mut driven = Box::pin(self.run_until(future));
        loop {
            match driven.as_mut().poll(&mut context) {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    /// The task that is being polled; none outside of tasks.
    pub(crate) fn current_task(&self) -> Option<u64> {
        self.0.current.get()
    }

    /// The ambient value of the running task: the initiating agent.
    pub(crate) fn ambient(&self) -> Option<Rc<dyn Any>> {
        self.0.ambient.borrow().clone()
    }

    /// Runs `f` under another ambient value.
    pub(crate) fn with_ambient<T>(&self, ambient: Option<Rc<dyn Any>>, f: impl FnOnce() -> T) -> T {
        struct Restore<'a>(&'a Inner, Option<Rc<dyn Any>>);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                // What is replaced may own anything: it is dropped outside the borrow.
                drop(self.0.ambient.replace(self.1.take()));
            }
        }
        let before = self.0.ambient.replace(ambient);
        let _restore = Restore(&self.0, before);
        f()
    }

    /// Drops every task and refuses new ones.
    pub fn close(&self) {
        self.0.closed.set(true);
        self.set_notify_hook(None);
        let tasks = std::mem::take(&mut *self.0.tasks.borrow_mut());
        // In the order of their start: what a dropped future does may be seen (P6).
        let mut tasks: Vec<_> = tasks.into_values().collect();
        tasks.sort_unstable_by_key(|task| task.handle.id);
        for task in tasks {
            // A task may be closing its own runtime: its future is out of its slot and is dropped when it returns.
            let future = task.future.borrow_mut().take();
            drop(future);
        }
    }

    /// Fails when the runtime is closed.
    pub fn check_open(&self) -> Result<()> {
        if self.0.closed.get() {
            return Err(Error::new(Code::RuntimeClosed, "the runtime is closed"));
        }
        Ok(())
    }

    /// A handle that does not keep the runtime alive.
    pub fn downgrade(&self) -> WeakRuntime {
        WeakRuntime(Rc::downgrade(&self.0))
    }
}

/// See [`Runtime::downgrade`].
#[derive(Clone)]
pub struct WeakRuntime(Weak<Inner>);

impl WeakRuntime {
    /// The runtime, if it still exists.
    pub fn upgrade(&self) -> Option<Runtime> {
        self.0.upgrade().map(Runtime)
    }
}

/// A future under an ambient value of its own: every poll of it sees that value.
pub(crate) struct WithAmbient<F> {
    pub(crate) runtime: Runtime,
    pub(crate) ambient: Option<Rc<dyn Any>>,
    pub(crate) future: Pin<Box<F>>,
}

impl<F: Future> Future for WithAmbient<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let (ambient, future) = (this.ambient.clone(), &mut this.future);
        this.runtime.with_ambient(ambient, || future.as_mut().poll(context))
    }
}

/// The message of a caught panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spawned_task_is_polled_before_spawn_returns_also_from_inside_a_task() {
        let runtime = Runtime::default();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let (inner, log) = (runtime.clone(), seen.clone());
        runtime.spawn(async move {
            log.borrow_mut().push("outer starts");
            let log_inner = log.clone();
            inner.spawn(async move { log_inner.borrow_mut().push("inner ran") });
            log.borrow_mut().push("outer ends");
        });
        assert_eq!(*seen.borrow(), ["outer starts", "inner ran", "outer ends"]);
        assert_eq!(runtime.task_count(), 0);
    }

    #[test]
    fn wakes_from_other_threads_end_a_blocking_wait() {
        let runtime = Runtime::default();
        let (sender, receiver) = oneshot::<u32>();
        let (go, wait) = std::sync::mpsc::channel::<Waker>();
        let thread = std::thread::spawn(move || wait.recv().map(Waker::wake));
        let woken = Rc::new(Cell::new(false));
        let flag = woken.clone();
        runtime.spawn(async move {
            std::future::poll_fn(|context| {
                if flag.replace(true) {
                    return Poll::Ready(());
                }
                let _ = go.send(context.waker().clone());
                Poll::Pending
            })
            .await;
            sender.send(7);
        });
        assert_eq!(runtime.block_on(receiver), Some(7));
        assert!(woken.get());
        assert!(thread.join().is_ok());
    }

    #[test]
    fn a_panicking_task_is_retired_and_the_others_go_on() {
        let runtime = Runtime::default();
        runtime.spawn(async { panic!("planned") });
        let (sender, receiver) = oneshot();
        runtime.spawn(async move { sender.send(1) });
        assert_eq!(runtime.block_on(receiver), Some(1));
        assert_eq!(runtime.task_count(), 0);
    }

    #[test]
    fn a_pump_stops_at_its_budget_and_says_so() {
        let runtime = Runtime::default();
        runtime.spawn(std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        assert_eq!(runtime.pump(), PumpState::More);
        runtime.close();
        assert_eq!(runtime.pump(), PumpState::Idle);
    }
}
