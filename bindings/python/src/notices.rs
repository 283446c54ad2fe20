//! Notifications as Python objects. The classes are Python's own (`turnwheel._payloads`); here are the members.

use crate::convert;
use crate::errors;
use crate::gate::Handle;
use crate::host::HostState;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::rc::Rc;
use turnwheel::Agent;
use turnwheel::agent::Notice;
use turnwheel::message::Block;
use turnwheel::runtime::Signal;
use turnwheel::tools::{ToolCallInfo, ToolOutcome};

/// The Python `Agent` of an agent.
pub fn agent<'py>(py: Python<'py>, host: &Rc<HostState>, agent: Option<&Agent>) -> PyResult<Bound<'py, PyAny>> {
    match agent {
        Some(agent) => {
            let native = crate::agent::AgentRef::new(host, agent.clone());
            host.frontend.bind(py).call_method1("_wrap", (native,))
        }
        None => Ok(py.None().into_bound(py)),
    }
}

/// The object that listeners of a notification get; not for `session/event`.
pub fn object<'py>(py: Python<'py>, host: &Rc<HostState>, notice: &Notice) -> PyResult<Bound<'py, PyAny>> {
    let data = PyDict::new(py);
    let mut session_id = notice.agent().map(|agent| agent.id().to_string());
    match notice {
        Notice::SessionCreated { session } | Notice::SessionDisposed { session } => {
            session_id = Some(session.id().to_string());
        }
        Notice::SessionEvent { session, event, .. } => {
            session_id = Some(session.id().to_string());
            data.set_item("seq", event.seq)?;
        }
        Notice::Created { .. } | Notice::Disposed { .. } => {}
        Notice::Status { status, .. } => data.set_item("status", status.as_str())?,
        Notice::Inserted { message, .. } | Notice::Discarded { message, .. } => {
            data.set_item("message", convert::to_py(py, &message.to_value())?)?;
        }
        Notice::Claimed { message, turn, .. } => {
            data.set_item("message", convert::to_py(py, &message.to_value())?)?;
            data.set_item("turn", turn)?;
        }
        Notice::SessionStart { source, .. } => data.set_item("source", source.as_str())?,
        Notice::Error { turn, step, error, .. } => {
            data.set_item("turn", turn)?;
            data.set_item("step", step)?;
            data.set_item("error", errors::to_py(py, error).into_value(py))?;
        }
        // The scope of a registration has no face in Python.
        Notice::ToolsChanged { .. } | Notice::PromptChanged { .. } | Notice::ModelsChanged => {}
        Notice::ConfigStartFailed { session_id: id, error } => {
            session_id = Some(id.to_string());
            data.set_item("error", errors::to_py(py, error).into_value(py))?;
        }
        Notice::ToolResult { result, .. } => {
            call_members(py, &data, &result.call)?;
            outcome_members(py, &data, &result.outcome)?;
        }
    }
    let agent = agent(py, host, notice.agent())?;
    host.frontend.bind(py).call_method1("_notice", (notice.kind().as_str(), agent, session_id, data))
}

/// The members of a tool call.
pub fn call_members(py: Python<'_>, data: &Bound<'_, PyDict>, call: &ToolCallInfo) -> PyResult<()> {
    data.set_item("call_id", &*call.call_id)?;
    data.set_item("name", &call.name)?;
    data.set_item("arguments", convert::to_py(py, &call.arguments)?)
}

/// The members of a tool's answer.
pub fn outcome_members(py: Python<'_>, data: &Bound<'_, PyDict>, outcome: &ToolOutcome) -> PyResult<()> {
    let content = outcome.content.iter().map(Block::to_value).collect::<Vec<_>>();
    data.set_item("content", convert::to_py(py, &content.into_iter().collect::<Vec<_>>().into())?)?;
    data.set_item("is_error", outcome.is_error)?;
    let error = outcome.error.as_ref().map(|error| (error.name.as_str(), error.code.as_str()));
    data.set_item("error", error)?;
    let value = outcome.value.as_ref().map(|value| convert::to_py(py, value)).transpose()?;
    data.set_item("value", value)
}

/// A cancellation signal.
#[pyclass(frozen, name = "Signal", module = "turnwheel")]
pub struct SignalRef(Handle<Signal>);

impl SignalRef {
    /// Shows a signal.
    pub fn new(host: &HostState, signal: Signal) -> Self {
        Self(host.handle(signal))
    }
}

#[pymethods]
impl SignalRef {
    /// Whether it has fired.
    #[getter]
    fn cancelled(&self) -> PyResult<bool> {
        self.0.with(|_, signal| Ok(signal.is_cancelled()))
    }

    /// Why it fired, as `{"kind": ...}`; `None` before.
    #[getter]
    fn cause(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.0.with(|_, signal| {
            let cause = signal.cause().map(|cause| convert::to_py(py, &cause.to_value()));
            Ok(cause.transpose()?.map(Bound::unbind))
        })
    }

    /// A future of the cause.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.with(|host, signal| {
            let signal = signal.clone();
            host.export(py, async move {
                let cause = signal.cancelled().await;
                Python::attach(|py| convert::to_py(py, &cause.to_value()).map(Bound::unbind))
            })
        })
    }

    fn __repr__(&self) -> PyResult<String> {
        self.0.with(|_, signal| Ok(format!("<{signal:?}>")))
    }
}
