//! The native half of `turnwheel.Agent`: every verb, with arguments converted. The Python half adds the idioms.

use crate::captured::Captured;
use crate::convert;
use crate::ctx::{CtxRef, alive};
use crate::errors::{IntoPyResult, to_py};
use crate::gate::Handle;
use crate::host::HostState;
use crate::notices::SignalRef;
use crate::session::SessionRef;
use crate::stream::StreamRef;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::agent::RunResult;
use turnwheel::error::Result;
use turnwheel::host::{self, AgentSetup, Options, Setup, Spelling, open_agent};
use turnwheel::id::MessageId;
use turnwheel::json::Value;
use turnwheel::session::InboxTarget;
use turnwheel::{Agent, CancelCause, Context, Message};

/// Starts opening an agent with JSON options: resumes what is stored, or creates.
pub fn open(
    py: Python<'_>,
    host: &Rc<HostState>,
    ctx: &Context,
    id: &str,
    options: &Value,
    setup: Option<Py<PyAny>>,
) -> PyResult<impl Future<Output = Result<Agent>> + use<>> {
    let compose = match setup {
        None => None,
        Some(setup) => {
            let (weak, captured) = (Rc::downgrade(host), Rc::new(Captured::current(py)?));
            let compose: AgentSetup = Box::new(move |ctx| {
                Box::pin(async move {
                    let host = alive(&weak)?;
                    let frontend = host.clone();
                    let arguments = move |py: Python<'_>| {
                        let native = CtxRef::new(&frontend, ctx);
                        let scope = frontend.frontend.bind(py).call_method1("_scope", (native,))?;
                        Ok(vec![setup, scope.unbind()])
                    };
                    host.call(captured, arguments, None).await.map(drop)
                })
            });
            Some(compose)
        }
    };
    let setup = Setup { compose, signal: None };
    let options = Options::spelled(options, "an agent", Spelling::Snake).or_raise()?;
    open_agent(ctx, id, options, setup).or_raise()
}

/// An agent of the core.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
pub struct AgentRef(Handle<Agent>);

impl AgentRef {
    /// A handle to an agent.
    pub fn new(host: &HostState, agent: Agent) -> Self {
        Self(host.handle(agent))
    }

    /// The agent it names.
    pub fn agent(&self) -> PyResult<Rc<Agent>> {
        self.0.get().map(|(_, agent)| agent)
    }
}

fn target(name: &str) -> PyResult<InboxTarget> {
    host::target(name).or_raise()
}

fn cause(value: &Bound<'_, PyAny>) -> PyResult<CancelCause> {
    host::cancel_cause(&convert::argument(value, "cause")?).or_raise()
}

fn run_result(py: Python<'_>, result: &RunResult) -> PyResult<Py<PyAny>> {
    let members = PyDict::new(py);
    members.set_item("turn", result.turn)?;
    members.set_item("reason", convert::to_py(py, &result.reason.to_value())?)?;
    members.set_item("text", &result.text)?;
    members.set_item("messages", convert::messages(py, &result.messages)?)?;
    members.set_item("usage", convert::to_py(py, &result.usage.to_value())?)?;
    Ok(members.into_any().unbind())
}

impl AgentRef {
    fn message(&self, host: &HostState, message: &Bound<'_, PyAny>) -> PyResult<Arc<Message>> {
        Ok(Arc::new(convert::message(message, || host.runtime.next_id())?))
    }

    /// Delivers, with the caller's context kept for the turn that takes the message.
    fn deliver<T>(
        &self,
        message: &Bound<'_, PyAny>,
        deliver: impl FnOnce(&Rc<HostState>, &Agent, Arc<Message>) -> Result<T>,
    ) -> PyResult<(Rc<HostState>, T)> {
        let py = message.py();
        self.0.with(|host, agent| {
            let message = self.message(host, message)?;
            // A known id is refused; its sender's context must stay.
            let is_new = agent.session().delivery(message.id()).is_none();
            if is_new {
                host.remember_sender(py, message.id())?;
            }
            let id = message.id().clone();
            let delivered = host.as_caller(py, || deliver(host, agent, message));
            if delivered.is_err() && is_new {
                host.forget_sender(&id);
            }
            Ok((host.clone(), delivered.map_err(|error| to_py(py, &error))?))
        })
    }
}

#[pymethods]
impl AgentRef {
    #[getter]
    fn id(&self) -> PyResult<String> {
        self.0.with(|_, agent| Ok(agent.id().to_string()))
    }

    /// `"idle"` or `"running"`.
    #[getter]
    fn status(&self) -> PyResult<&'static str> {
        self.0.with(|_, agent| Ok(agent.status().as_str()))
    }

    #[getter]
    fn is_disposed(&self) -> PyResult<bool> {
        self.0.with(|_, agent| Ok(agent.is_disposed()))
    }

    fn is_same(&self, other: &AgentRef) -> bool {
        match (self.0.get(), other.0.get()) {
            (Ok((_, a)), Ok((_, b))) => *a == *b,
            _ => false,
        }
    }

    fn session(&self) -> PyResult<SessionRef> {
        self.0.with(|host, agent| Ok(SessionRef::new(host, agent.session().clone())))
    }

    /// The agent's own context.
    fn ctx(&self) -> PyResult<CtxRef> {
        self.0.with(|host, agent| Ok(CtxRef::new(host, agent.ctx().or_raise()?)))
    }

    /// Delivers a message; gives its id.
    fn send(&self, message: &Bound<'_, PyAny>, to: &str, wakeup: bool) -> PyResult<String> {
        let to = target(to)?;
        let (_, receipt) = self.deliver(message, |_, agent, message| agent.send(message, to, wakeup))?;
        Ok(receipt.message_id().to_string())
    }

    fn wake(&self, py: Python<'_>) -> PyResult<()> {
        self.0.with(|host, agent| host.as_caller(py, || agent.wake()).or_raise())
    }

    fn cancel(&self, why: &Bound<'_, PyAny>, keep_inbox: bool) -> PyResult<()> {
        let why = cause(why)?;
        self.0.with(|_, agent| {
            if keep_inbox {
                agent.cancel_keep_inbox(why);
            } else {
                agent.cancel(why);
            }
            Ok(())
        })
    }

    fn state(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.with(|_, agent| convert::to_py(py, &agent.state().or_raise()?.to_value()).map(Bound::unbind))
    }

    fn when_idle(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.with(|host, agent| {
            let idle = host.as_caller(py, || agent.when_idle());
            host.export_done(py, idle)
        })
    }

    /// A future of `{turn, reason, text, messages, usage}`.
    fn run(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let (host, running) = self.deliver(message, |_, agent, message| agent.run(message))?;
        host.export(py, async move {
            let result = running.await;
            Python::attach(|py| run_result(py, &result.map_err(|error| to_py(py, &error))?))
        })
    }

    fn stream(&self, message: &Bound<'_, PyAny>) -> PyResult<StreamRef> {
        let (host, stream) =
            self.deliver(message, |_, agent, message| Ok((agent.stream(message)?, agent.session().id().clone())))?;
        Ok(StreamRef::turn(&host, stream.0, stream.1))
    }

    /// Runs `task(signal)` in the idle phase: a future of what it returns.
    fn run_maintenance(&self, py: Python<'_>, task: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let captured = Rc::new(Captured::current(py)?);
        self.0.with(|host, agent| {
            let weak = Rc::downgrade(host);
            let run = move |signal: turnwheel::runtime::Signal| async move {
                let host = alive(&weak)?;
                let (frontend, fires) = (host.clone(), signal.clone());
                let arguments =
                    move |py: Python<'_>| Ok(vec![task, Py::new(py, SignalRef::new(&frontend, signal))?.into_any()]);
                host.call(captured, arguments, Some(fires)).await
            };
            let done = host.as_caller(py, || agent.run_maintenance(run)).or_raise()?;
            host.export(py, async move {
                let result = done.await;
                Python::attach(|py| result.map_err(|error| to_py(py, &error)))
            })
        })
    }

    /// What became of a message: a dict with `kind`, or `None` if the session never accepted it.
    fn receipt_state(&self, py: Python<'_>, id: &str) -> PyResult<Option<Py<PyAny>>> {
        self.0.with(|_, agent| {
            let state = agent.receipt(MessageId::from(id)).state();
            state.map(|state| convert::to_py(py, &host::receipt_value(&state)).map(Bound::unbind)).transpose()
        })
    }

    /// What `doing()` says inside this agent's turns.
    fn key(&self) -> PyResult<(u64, String)> {
        self.0.with(|host, agent| Ok((host.owner.id(), agent.id().to_string())))
    }

    /// A future of the insertion being on stable storage.
    fn durable(&self, py: Python<'_>, id: &str) -> PyResult<Py<PyAny>> {
        self.0.with(|host, agent| {
            let receipt = agent.receipt(MessageId::from(id));
            host.export_done(py, async move { receipt.durable().await })
        })
    }

    /// A future of the final state.
    fn settled(&self, py: Python<'_>, id: &str) -> PyResult<Py<PyAny>> {
        self.0.with(|host, agent| {
            let settled = agent.receipt(MessageId::from(id)).settled();
            host.as_caller(py, || {
                host.export(py, async move {
                    let state = settled.await;
                    Python::attach(|py| {
                        let state = state.map_err(|error| to_py(py, &error))?;
                        convert::to_py(py, &host::receipt_value(&state)).map(Bound::unbind)
                    })
                })
            })
        })
    }

    /// A future that is done when everything logged so far is on stable storage.
    fn flush(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.with(|host, agent| {
            let agent = agent.clone();
            host.export_done(py, async move { agent.flush().await })
        })
    }

    fn dispose(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.with(|host, agent| {
            let disposed = host.as_caller(py, || agent.dispose());
            host.export_done(py, async move {
                disposed.await;
                Ok(())
            })
        })
    }

    /// The messages pending in a list.
    fn pending(&self, py: Python<'_>, list: &str) -> PyResult<Py<pyo3::types::PyList>> {
        let list = target(list)?;
        self.0.with(|_, agent| convert::messages(py, &agent.inbox().pending(list)))
    }

    /// Adds messages to a pending list without waking.
    fn insert(&self, list: &str, messages: Vec<Bound<'_, PyAny>>, at_head: bool) -> PyResult<()> {
        let list = target(list)?;
        self.0.with(|host, agent| {
            let messages = messages.iter().map(|message| self.message(host, message)).collect::<PyResult<Vec<_>>>()?;
            let inbox = agent.inbox();
            if at_head { inbox.prepend(list, messages) } else { inbox.append(list, messages) }.or_raise()
        })
    }

    /// Removes and inserts at a place; gives what was removed.
    fn splice<'py>(
        &self,
        py: Python<'py>,
        list: &str,
        start: f64,
        delete_count: f64,
        messages: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Py<pyo3::types::PyList>> {
        let list = target(list)?;
        self.0.with(|host, agent| {
            let messages = messages.iter().map(|message| self.message(host, message)).collect::<PyResult<Vec<_>>>()?;
            let removed = agent.inbox().splice(list, start, delete_count, messages).or_raise()?;
            convert::messages(py, &removed)
        })
    }

    /// Delivers a notification about the agent from outside (EVT-13).
    fn emit(&self, event: &str, payload: &Bound<'_, PyAny>) -> PyResult<()> {
        let payload = convert::argument(payload, "payload")?;
        self.0.with(|_, agent| host::emit(agent, event, &payload).or_raise())
    }

    fn replace(&self, id: &str, message: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.0.with(|host, agent| agent.inbox().replace(id, self.message(host, message)?).or_raise())
    }

    fn remove(&self, id: &str) -> PyResult<bool> {
        self.0.with(|_, agent| agent.inbox().remove(id).or_raise())
    }

    fn clear_inbox(&self) -> PyResult<()> {
        self.0.with(|_, agent| agent.inbox().clear().or_raise())
    }
}
