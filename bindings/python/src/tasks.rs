//! Futures across the border. A core future becomes a future of the event loop; cancelling that drops the core's. A
//! Python coroutine becomes a task of the loop that a core future waits for; dropping that cancels the task.

use crate::captured::Captured;
use crate::errors::{IntoResult, to_py};
use crate::gate::{Handle, Owner, guarded, lock};
use crate::host::HostState;
use pyo3::exceptions::PyRuntimeError;
use pyo3::exceptions::asyncio::CancelledError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Waker};
use turnwheel::error::{Code, Error, Result};
use turnwheel::runtime::{LocalBoxFuture, Signal};

/// A core future that a Python future waits for.
struct Exported {
    future: RefCell<Option<LocalBoxFuture<()>>>,
    dropped: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Drops the core future when the Python future is cancelled.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
struct Canceller(Handle<Rc<Exported>>);

#[pymethods]
impl Canceller {
    fn __call__(&self, py: Python<'_>, promise: &Bound<'_, PyAny>) -> PyResult<()> {
        if !promise.call_method0("cancelled")?.is_truthy()? {
            return Ok(());
        }
        let Ok((host, exported)) = self.0.get() else { return Ok(()) };
        host.complete(py, || {
            exported.dropped.set(true);
            let future = exported.future.borrow_mut().take();
            drop(future);
            let waker = exported.waker.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        })
    }
}

impl HostState {
    /// A future of the loop that settles with `future`. The future is polled once before this returns.
    pub fn export(
        self: &Rc<Self>,
        py: Python<'_>,
        future: impl Future<Output = PyResult<Py<PyAny>>> + 'static,
    ) -> PyResult<Py<PyAny>> {
        let promise = self.event_loop.create_future(py)?;
        let mut settles = Promise(Some(promise.clone_ref(py)));
        let run: LocalBoxFuture<()> = Box::pin(async move {
            let result = future.await;
            Python::attach(|py| settles.settle(py, result));
        });
        let exported =
            Rc::new(Exported { future: RefCell::new(Some(run)), dropped: Cell::new(false), waker: RefCell::new(None) });
        let polled = exported.clone();
        self.runtime.spawn(std::future::poll_fn(move |context| polled.poll(context)));
        if !promise.bind(py).call_method0("done")?.is_truthy()? {
            let canceller = Canceller(Handle::new(self, exported));
            promise.bind(py).call_method1("add_done_callback", (canceller,))?;
        }
        Ok(promise)
    }

    /// As [`HostState::export`], for a result of the core without a value.
    pub fn export_done(
        self: &Rc<Self>,
        py: Python<'_>,
        future: impl Future<Output = Result<()>> + 'static,
    ) -> PyResult<Py<PyAny>> {
        self.export(py, async move {
            let result = future.await;
            Python::attach(|py| result.map(|()| py.None()).map_err(|error| to_py(py, &error)))
        })
    }

    /// Calls a Python function, the first of `arguments`, inside `captured` and awaits what it returns, if that is awaitable. With a signal, the
    /// task is cancelled when the signal fires.
    pub async fn call(
        self: Rc<Self>,
        captured: Rc<Captured>,
        arguments: impl FnOnce(Python<'_>) -> PyResult<Vec<Py<PyAny>>>,
        signal: Option<Signal>,
    ) -> Result<Py<PyAny>> {
        let started = Python::attach(|py| {
            let arguments = PyTuple::new(py, arguments(py)?)?;
            let value = captured.run(&arguments).inspect_err(|raised| self.note_fatal(py, raised))?;
            self.start(py, &captured, value)
        });
        let task = match started.or_error()? {
            Started::Value(value) => return Ok(value),
            Started::Task(task) => task,
        };
        let _awaited = captured.turn.is_some().then(|| Awaited::begin(&captured, task.task()));
        let cancelled = task.task();
        let _guard = signal.as_ref().map(|signal| {
            signal.on_cancel(move |_| {
                let _ = Python::attach(|py| cancelled.call_method0(py, "cancel"));
            })
        });
        let result = task.await;
        result.map_err(|raised| {
            Python::attach(|py| {
                if !raised.is_instance_of::<CancelledError>(py) {
                    return crate::errors::from_py(py, raised);
                }
                match signal.filter(Signal::is_cancelled) {
                    Some(signal) => signal.error(),
                    // Its own doing; the run around it is not cancelled by that.
                    None => Error::host("the callback's task was cancelled").named("CancelledError"),
                }
            })
        })
    }

    fn start(&self, py: Python<'_>, captured: &Captured, value: Bound<'_, PyAny>) -> PyResult<Started> {
        if value.is_none() || !value.get_type().hasattr("__await__")? {
            return Ok(Started::Value(value.unbind()));
        }
        let task = self.event_loop.task_of(py, value, captured.copy(py)?)?;
        let shared = Arc::new(Shared::default());
        let settle = Settle { shared: shared.clone(), owner: self.owner.clone() };
        task.call_method1("add_done_callback", (settle,))?;
        Ok(Started::Task(PyTask { task: task.unbind(), shared, done: false }))
    }
}

thread_local! {
    /// The tasks that turns of this thread wait for.
    static AWAITED: RefCell<Vec<AwaitedTask>> = const { RefCell::new(Vec::new()) };
    static NEXT_AWAITED: Cell<u64> = const { Cell::new(0) };
}

struct AwaitedTask {
    id: u64,
    /// Says whose turn it is.
    captured: Rc<Captured>,
    task: Py<PyAny>,
}

/// A task that a turn waits for, for as long as it does.
struct Awaited(u64);

impl Awaited {
    fn begin(captured: &Rc<Captured>, task: Py<PyAny>) -> Self {
        let id = NEXT_AWAITED.get();
        NEXT_AWAITED.set(id + 1);
        AWAITED.with_borrow_mut(|awaited| awaited.push(AwaitedTask { id, captured: captured.clone(), task }));
        Self(id)
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        // What the task owns is dropped outside the borrow, and nothing is left of it when its thread ends.
        let removed = AWAITED.try_with(|awaited| {
            let mut awaited = awaited.borrow_mut();
            let at = awaited.iter().position(|awaited| awaited.id == self.0)?;
            Some(awaited.swap_remove(at))
        });
        drop(removed);
    }
}

/// The tasks of this thread that a turn of this agent waits for: bodies of tools, listeners that decide, adapters.
#[pyfunction]
pub fn awaited_tasks(py: Python<'_>, host: u64, agent: &str) -> Vec<Py<PyAny>> {
    let is_of = |captured: &Captured| captured.turn.as_ref().is_some_and(|(of, id)| *of == host && id == agent);
    AWAITED.with_borrow(|awaited| {
        let tasks = awaited.iter().filter(|awaited| is_of(&awaited.captured));
        tasks.map(|awaited| awaited.task.clone_ref(py)).collect()
    })
}

enum Started {
    Value(Py<PyAny>),
    Task(PyTask),
}

/// A future of the loop, to be settled once. Dropping it unsettled settles it with an error, so that nobody waits for a
/// core that is closed or has panicked.
struct Promise(Option<Py<PyAny>>);

impl Promise {
    fn settle(&mut self, py: Python<'_>, result: PyResult<Py<PyAny>>) {
        let Some(promise) = self.0.take() else { return };
        let promise = promise.bind(py);
        // Cancelled in the meantime, or the loop is closed: nobody waits any more.
        if promise.call_method0("done").is_ok_and(|done| done.is_truthy().unwrap_or(false)) {
            return;
        }
        let _ = match result {
            Ok(value) => promise.call_method1("set_result", (value,)),
            Err(raised) => {
                let raised = raised.into_value(py);
                promise.call_method1("set_exception", (raised.clone_ref(py),)).or_else(|_| {
                    // No future carries a StopIteration: whoever awaits it would wait for ever.
                    let carrier = PyRuntimeError::new_err("StopIteration was raised");
                    carrier.set_cause(py, Some(PyErr::from_value(raised.into_bound(py).into_any())));
                    promise.call_method1("set_exception", (carrier.into_value(py),))
                })
            }
        };
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if self.0.is_none() {
            return;
        }
        let error = if std::thread::panicking() {
            Error::new(Code::Panic, "the operation panicked; this is a bug in turnwheel")
        } else {
            Error::new(Code::RuntimeClosed, "the context was closed while this was awaited")
        };
        Python::try_attach(|py| self.settle(py, Err(to_py(py, &error))));
    }
}

impl Exported {
    fn poll(&self, context: &mut TaskContext<'_>) -> Poll<()> {
        let taken = self.future.borrow_mut().take();
        let Some(mut future) = taken else { return Poll::Ready(()) };
        if future.as_mut().poll(context).is_ready() || self.dropped.get() {
            return Poll::Ready(());
        }
        *self.waker.borrow_mut() = Some(context.waker().clone());
        *self.future.borrow_mut() = Some(future);
        Poll::Pending
    }
}

#[derive(Default)]
struct Shared {
    result: Mutex<Option<PyResult<Py<PyAny>>>>,
    waker: Mutex<Option<Waker>>,
}

/// The done callback of a task: hands the result over and pumps at once.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
struct Settle {
    shared: Arc<Shared>,
    owner: Owner,
}

#[pymethods]
impl Settle {
    fn __call__(&self, py: Python<'_>, task: &Bound<'_, PyAny>) -> PyResult<()> {
        *lock(&self.shared.result) = Some(task.call_method0("result").map(Bound::unbind));
        let waker = lock(&self.shared.waker).take();
        match (waker, self.owner.host()) {
            (Some(waker), Ok(host)) => guarded(|| host.complete(py, || waker.wake())),
            _ => Ok(()),
        }
    }
}

/// A core future over a task of the loop.
struct PyTask {
    task: Py<PyAny>,
    shared: Arc<Shared>,
    done: bool,
}

impl PyTask {
    fn task(&self) -> Py<PyAny> {
        Python::attach(|py| self.task.clone_ref(py))
    }
}

impl Future for PyTask {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let result = lock(&self.shared.result).take();
        if let Some(result) = result {
            self.done = true;
            return Poll::Ready(result);
        }
        *lock(&self.shared.waker) = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for PyTask {
    fn drop(&mut self) {
        if !self.done {
            Python::try_attach(|py| {
                // The loop may be closed; then the task cannot run on anyway.
                let _ = self.task.call_method0(py, "cancel");
            });
        }
    }
}

/// What is asked of the event loop, bound once.
pub struct EventLoop {
    event_loop: Py<PyAny>,
    create_future: Py<PyAny>,
    create_task: Py<PyAny>,
}

static ENSURE_FUTURE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static IS_COROUTINE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

impl EventLoop {
    /// Binds to a loop.
    pub fn new(event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            create_future: event_loop.getattr("create_future")?.unbind(),
            create_task: event_loop.getattr("create_task")?.unbind(),
            event_loop: event_loop.clone().unbind(),
        })
    }

    /// The loop.
    pub fn get<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.event_loop.bind(py)
    }

    /// A new future.
    pub fn create_future(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.create_future.call0(py)
    }

    fn task_of<'py>(
        &self,
        py: Python<'py>,
        awaitable: Bound<'py, PyAny>,
        context: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = PyDict::new(py);
        let load = |module: &str, name: &str| Ok::<_, PyErr>(py.import(module)?.getattr(name)?.unbind());
        let is_coroutine = IS_COROUTINE.get_or_try_init(py, || load("inspect", "iscoroutine"))?.bind(py);
        if is_coroutine.call1((&awaitable,))?.is_truthy()? {
            options.set_item("context", context)?;
            return self.create_task.bind(py).call((awaitable,), Some(&options));
        }
        options.set_item("loop", self.get(py))?;
        let ensure_future = ENSURE_FUTURE.get_or_try_init(py, || load("asyncio", "ensure_future"))?.bind(py);
        ensure_future.call((awaitable,), Some(&options))
    }

    /// Reports what nobody else can be told, as asyncio does.
    pub fn report(&self, py: Python<'_>, message: &str, raised: &PyErr) {
        let context = PyDict::new(py);
        let filled =
            context.set_item("message", message).and_then(|()| context.set_item("exception", raised.value(py)));
        if filled.is_ok() {
            let _ = self.get(py).call_method1("call_exception_handler", (context,));
        }
    }
}
