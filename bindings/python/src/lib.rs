//! The native half of the Python package: argument conversion, callback conversion and the asyncio pump. What anything
//! means is the core's business; what it looks like in Python is the Python half's (`python/turnwheel`).
#![forbid(unsafe_code)]

mod agent;
mod captured;
mod convert;
mod ctx;
mod errors;
mod event;
mod gate;
mod host;
mod jsonl;
mod logs;
mod models;
mod notices;
mod rules;
mod session;
mod stores;
mod stream;
mod tasks;
mod tools;
mod view;
mod waterfalls;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// Called in the child after a fork: handles of the parent are refused from then on.
#[pyfunction]
fn after_fork_in_child() {
    gate::bump_generation();
}

/// Called at exit: drops every core of this thread while the interpreter still is.
#[pyfunction]
fn shutdown(py: Python<'_>) {
    host::shutdown(py);
}

/// The runtime's own texts that reach a model, by key.
#[pyfunction]
fn texts(py: Python<'_>) -> PyResult<Py<PyAny>> {
    convert::to_py(py, &turnwheel::host::texts_value()).map(Bound::unbind)
}

/// Every error code with its number.
#[pyfunction]
fn codes(py: Python<'_>) -> PyResult<Bound<'_, pyo3::types::PyDict>> {
    errors::codes(py)
}

/// The names of the cases of the store suite.
#[pyfunction]
fn store_cases() -> Vec<&'static str> {
    turnwheel::testing::store_cases().collect()
}

/// Python 3.11 lets a second interpreter import a module that does not support it, so it is refused here.
fn check_interpreter(py: Python<'_>) -> PyResult<()> {
    let interpreters = py.import("_xxsubinterpreters").or_else(|_| py.import("_interpreters"));
    let Ok(interpreters) = interpreters else { return Ok(()) };
    let (current, main) = (interpreters.call_method0("get_current")?, interpreters.call_method0("get_main")?);
    if current.eq(main)? {
        return Ok(());
    }
    Err(PyImportError::new_err("turnwheel does not support sub-interpreters; use threads or processes"))
}

#[pymodule]
mod _turnwheel {
    #[pymodule_export]
    use super::agent::AgentRef;
    #[pymodule_export]
    use super::captured::doing;
    #[pymodule_export]
    use super::ctx::{CtxRef, RegistrationRef, event_kind};
    #[pymodule_export]
    use super::event::{Event, Queue};
    #[pymodule_export]
    use super::host::Host;
    #[pymodule_export]
    use super::jsonl::JsonlFiles;
    #[pymodule_export]
    use super::models::{HttpAdapterOptions, ModelDouble, ScriptedModel};
    #[pymodule_export]
    use super::notices::SignalRef;
    #[pymodule_export]
    use super::rules::SelectionRef;
    #[pymodule_export]
    use super::session::SessionRef;
    #[pymodule_export]
    use super::stream::StreamRef;
    #[pymodule_export]
    use super::tasks::awaited_tasks;
    #[pymodule_export]
    use super::tools::{ToolCallRef, check_schema, schema_of_shorthand};
    #[pymodule_export]
    use super::view::{LogRef, LogSource, Timeline};
    #[pymodule_export]
    use super::{after_fork_in_child, codes, shutdown, store_cases, texts};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::check_interpreter(module.py())?;
        super::logs::install();
        Ok(())
    }
}
