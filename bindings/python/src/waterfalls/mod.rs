//! Waterfalls for Python: `listener(payload, next)`, plain or `async`. A decision is plain JSON; `await next()` gives
//! the inner one, and returning `None` after it keeps that.

mod decisions;

use crate::captured::Captured;
use crate::convert;
use crate::ctx::alive;
use crate::errors::to_py;
use crate::gate::Handle;
use crate::host::HostState;
use crate::notices::{self, SignalRef};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::RefCell;
use std::rc::Rc;
use turnwheel::agent::{PreStep, RequestErrorEvent, RequestEvent, TurnStopping, Waterfall};
use turnwheel::context::Registration;
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::Decided;
use turnwheel::json::Value;
use turnwheel::runtime::Signal;
use turnwheel::system_prompt::AssemblyRequest;
use turnwheel::tools::{PostExecute, PreExecute};
use turnwheel::{Agent, Context};

/// Registers a listener of a waterfall or of `agent/turn-stopping`.
pub fn register(
    host: &Rc<HostState>,
    ctx: &Context,
    name: &str,
    listener: Py<PyAny>,
    captured: Rc<Captured>,
) -> Result<Registration> {
    match name {
        PreStep::NAME => bridge::<PreStep>(host, ctx, listener, captured),
        RequestEvent::NAME => bridge::<RequestEvent>(host, ctx, listener, captured),
        RequestErrorEvent::NAME => bridge::<RequestErrorEvent>(host, ctx, listener, captured),
        AssemblyRequest::NAME => bridge::<AssemblyRequest>(host, ctx, listener, captured),
        PreExecute::NAME => bridge::<PreExecute>(host, ctx, listener, captured),
        PostExecute::NAME => bridge::<PostExecute>(host, ctx, listener, captured),
        "agent/turn-stopping" => stopping(host, ctx, listener, captured),
        _ => Err(turnwheel::agent::unknown_event(name)),
    }
}

/// How a waterfall crosses the border.
trait Bridge: Decided {
    fn signal(&self) -> &Signal;
    /// The payload's own members.
    fn describe(&self, py: Python<'_>, data: &Bound<'_, PyDict>) -> PyResult<()>;
    /// What a listener changed in its payload.
    fn take_back(&self, _payload: &Bound<'_, PyAny>) -> PyResult<()> {
        Ok(())
    }
    /// Reads a decision; `inner` is what the continuation decided, if it ran.
    fn decision(value: &Value, inner: Option<Self::Output>) -> Result<Self::Output>;
}

/// The continuation of one listener.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
struct NextRef(Handle<Continue>);

type Continue = Box<dyn Fn(Python<'_>) -> PyResult<Py<PyAny>>>;

#[pymethods]
impl NextRef {
    /// Runs the rest of the waterfall: a future of its decision.
    fn __call__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.with(|_, proceed| proceed(py))
    }
}

fn bridge<P: Bridge>(
    host: &Rc<HostState>,
    ctx: &Context,
    listener: Py<PyAny>,
    captured: Rc<Captured>,
) -> Result<Registration>
where
    P::Output: Clone,
{
    let host = Rc::downgrade(host);
    let listener = Rc::new(listener);
    ctx.waterfall::<P, _>(move |payload, next| {
        let (host, captured, listener) = (host.clone(), captured.clone(), listener.clone());
        async move {
            let host = alive(&host)?;
            let inner: Rc<RefCell<Option<P::Output>>> = Rc::default();
            let (kept, shown, frontend) = (inner.clone(), payload.clone(), host.clone());
            let arguments = move |py: Python<'_>| {
                let object = payload_object(py, &frontend, P::NAME, shown.agent(), shown.signal(), |data| {
                    shown.describe(py, data)
                })?;
                let given = object.clone().unbind();
                let weak = Rc::downgrade(&frontend);
                let proceed: Continue = Box::new(move |py| {
                    shown.take_back(given.bind(py))?;
                    let host = alive(&weak).map_err(|error| to_py(py, &error))?;
                    let (rest, kept) = (next.call(), kept.clone());
                    let rest = host.ctx.root().future_with_initiator(shown.agent(), rest);
                    host.export(py, async move {
                        let decision = rest.await;
                        Python::attach(|py| {
                            let decision = decision.map_err(|error| to_py(py, &error))?;
                            let shown = convert::to_py(py, &P::decided(&decision))?.unbind();
                            *kept.borrow_mut() = Some(decision);
                            Ok(shown)
                        })
                    })
                });
                let next = Py::new(py, NextRef(frontend.handle(proceed)))?.into_any();
                Ok(vec![listener.clone_ref(py), object.unbind(), next])
            };
            let captured = host.context_of(payload.agent(), &captured);
            let returned = host.call(captured, arguments, None).await?;
            let inner = inner.borrow_mut().take();
            Python::attach(|py| {
                let returned = returned.bind(py);
                match inner {
                    Some(inner) if returned.is_none() => Ok(inner),
                    None if returned.is_none() => {
                        let message = format!("a listener of {} must return a decision or `await next()`", P::NAME);
                        Err(Error::host(message))
                    }
                    inner => {
                        let what = format!("the decision of a listener of {}", P::NAME);
                        let value = convert::from_py_or(returned, Code::InvalidArgument, &what)?;
                        P::decision(&value, inner)
                    }
                }
            })
        }
    })
}

/// The Python payload of an event about a step or a call.
pub fn payload_object<'py>(
    py: Python<'py>,
    host: &Rc<HostState>,
    name: &str,
    agent: Option<&Agent>,
    signal: &Signal,
    describe: impl FnOnce(&Bound<'py, PyDict>) -> PyResult<()>,
) -> PyResult<Bound<'py, PyAny>> {
    let data = PyDict::new(py);
    data.set_item("agent", notices::agent(py, host, agent)?)?;
    data.set_item("signal", SignalRef::new(host, signal.clone()))?;
    describe(&data)?;
    host.frontend.bind(py).call_method1("_payload", (name, data))
}

fn stopping(host: &Rc<HostState>, ctx: &Context, listener: Py<PyAny>, captured: Rc<Captured>) -> Result<Registration> {
    let host = Rc::downgrade(host);
    let listener = Rc::new(listener);
    ctx.on_turn_stopping(move |payload: Rc<TurnStopping>| {
        let (host, captured, listener) = (host.clone(), captured.clone(), listener.clone());
        async move {
            let host = alive(&host)?;
            let captured = host.context_of(Some(&payload.agent), &captured);
            let frontend = host.clone();
            let arguments = move |py: Python<'_>| {
                let (agent, signal) = (Some(&payload.agent), &payload.signal);
                let object = payload_object(py, &frontend, "agent/turn-stopping", agent, signal, |data| {
                    data.set_item("turn", payload.turn)
                })?;
                Ok(vec![listener.clone_ref(py), object.unbind()])
            };
            host.call(captured, arguments, None).await.map(drop)
        }
    })
}
