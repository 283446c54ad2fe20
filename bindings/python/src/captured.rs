//! `contextvars` contexts in which callbacks run, and the variable that says whose turn a piece of Python code is part
//! of: asyncio resumes tasks outside the core, so the core's own ambient value does not reach them.

use crate::host::HostState;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use std::cell::Cell;
use turnwheel::Agent;

static COPY_CONTEXT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static INITIATOR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn initiator(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let make = || {
        let variable = py.import("contextvars")?.getattr("ContextVar")?;
        let default = pyo3::types::PyDict::new(py);
        default.set_item("default", py.None())?;
        Ok::<_, PyErr>(variable.call(("turnwheel_initiator",), Some(&default))?.unbind())
    };
    Ok(INITIATOR.get_or_try_init(py, make)?.bind(py).clone())
}

/// Takes back what [`HostState::set_initiator`] did.
pub fn reset_initiator(py: Python<'_>, token: Py<PyAny>) -> PyResult<()> {
    initiator(py)?.call_method1("reset", (token,)).map(drop)
}

/// Whose doing the calling Python code is, on any thread: the host's number and the agent's id.
#[pyfunction]
pub fn doing(py: Python<'_>) -> PyResult<Option<(u64, String)>> {
    let value = initiator(py)?.call_method0("get")?;
    let facts = value.extract::<Option<(u64, String, u64)>>()?;
    Ok(facts.map(|(host, agent, _)| (host, agent)))
}

/// In place of a turn: the program said whose doing it is, whatever turn runs.
const STATED: u64 = u64::MAX;

/// A context of our own: a copy of the one it was captured in.
pub struct Captured {
    context: Py<PyAny>,
    run: Py<PyAny>,
    entered: Cell<bool>,
    /// Whose turn it is a context of: the host's number and the agent's id.
    pub turn: Option<(u64, String)>,
}

impl Captured {
    /// A copy of the current context.
    pub fn current(py: Python<'_>) -> PyResult<Self> {
        let load = || Ok::<_, PyErr>(py.import("contextvars")?.getattr("copy_context")?.unbind());
        Self::new(COPY_CONTEXT.get_or_try_init(py, load)?.bind(py).call0()?)
    }

    fn new(context: Bound<'_, PyAny>) -> PyResult<Self> {
        let run = context.getattr("run")?.unbind();
        Ok(Self { context: context.unbind(), run, entered: Cell::new(false), turn: None })
    }

    /// A copy, marked as a turn of an agent.
    pub fn of_turn(&self, py: Python<'_>, host: u64, agent: &str, turn: u64) -> PyResult<Self> {
        let copy = Self { turn: Some((host, agent.to_owned())), ..Self::new(self.copy(py)?)? };
        copy.run.call1(py, (initiator(py)?.getattr("set")?, (host, agent, turn)))?;
        Ok(copy)
    }

    /// A copy for a task.
    pub fn copy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.context.bind(py).call_method0("copy")
    }

    /// Calls `call[0](*call[1:])` inside. A nested call runs in a copy: Python enters a context only once.
    pub fn run<'py>(&self, call: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let py = call.py();
        if self.entered.replace(true) {
            return self.copy(py)?.getattr("run")?.call1(call.clone());
        }
        let result = self.run.bind(py).call1(call.clone());
        self.entered.set(false);
        result
    }
}

impl HostState {
    /// The agent in whose turn the calling Python code runs.
    pub fn initiator(&self, py: Python<'_>) -> Option<Agent> {
        let value = initiator(py).ok()?.call_method0("get").ok()?;
        let (host, agent, turn) = value.extract::<(u64, String, u64)>().ok()?;
        let agent = self.ctx.find_agent(&agent).filter(|_| host == self.owner.id())?;
        // A task that outlived its turn is nobody's doing any more.
        (turn == STATED || agent.state().is_ok_and(|state| state.turn == turn)).then_some(agent)
    }

    /// Makes what the calling Python code does from here on an agent's doing, or nobody's: the token takes it back.
    pub fn set_initiator(&self, py: Python<'_>, agent: Option<&Agent>) -> PyResult<Py<PyAny>> {
        let value = agent.map(|agent| (self.owner.id(), agent.id().to_string(), STATED));
        Ok(initiator(py)?.call_method1("set", (value,))?.unbind())
    }

    /// Runs `operation` as part of the doing of the agent whose turn the calling Python code is part of.
    pub fn as_caller<T>(&self, py: Python<'_>, operation: impl FnOnce() -> T) -> T {
        match self.initiator(py) {
            Some(agent) => self.ctx.root().with_initiator(&agent, operation),
            None => operation(),
        }
    }
}
