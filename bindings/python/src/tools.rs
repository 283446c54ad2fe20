//! Tools whose bodies are Python. Schemas and argument conversion are Python's own (`turnwheel._schema`); here a body
//! is called in its turn's context and what it returns is checked to be JSON.

use crate::captured::Captured;
use crate::convert;
use crate::ctx::alive;
use crate::errors::{IntoPyResult, IntoResult, invalid, to_py};
use crate::gate::Handle;
use crate::host::HostState;
use crate::notices::{self, SignalRef};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use turnwheel::error::{Code, Error, Result};
use turnwheel::json::Value;
use turnwheel::{Block, Tool, ToolCall, ToolOutput};

/// What the model sees of a tool, and how its calls run.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Definition {
    name: String,
    description: String,
    parameters: Py<PyAny>,
    timeout: Option<f64>,
    /// Whether a cancellation of the turn cancels the body's task.
    cancels: bool,
    checked: bool,
}

impl Definition {
    /// The tool.
    pub fn tool(
        self,
        host: &Rc<HostState>,
        body: Py<PyAny>,
        parallel: Option<Py<PyAny>>,
        captured: Rc<Captured>,
    ) -> PyResult<Tool> {
        let parameters = Python::attach(|py| convert::argument(self.parameters.bind(py), "parameters"))?;
        let (weak, body, cancels) = (Rc::downgrade(host), Rc::new(body), self.cancels);
        let tool = Tool::new(self.name, move |call| {
            let (host, body, captured) = (weak.clone(), body.clone(), captured.clone());
            async move { run(alive(&host)?, body, captured, call, cancels).await }
        });
        let mut tool = tool.description(self.description).parameters(parameters);
        if !self.checked {
            tool = tool.unchecked();
        }
        if let Some(seconds) = self.timeout {
            let timeout = Duration::try_from_secs_f64(seconds);
            tool = tool.timeout(timeout.map_err(|_| invalid(format!("a timeout of {seconds} seconds")))?);
        }
        if let Some(classify) = parallel {
            tool = tool.parallel_when(move |arguments| {
                let classified =
                    Python::attach(|py| classify.bind(py).call1((convert::to_py(py, arguments)?,))?.is_truthy());
                // A classifier that fails says nothing, and so the call runs alone.
                classified.unwrap_or(false)
            });
        }
        Ok(tool)
    }
}

async fn run(
    host: Rc<HostState>,
    body: Rc<Py<PyAny>>,
    captured: Rc<Captured>,
    call: ToolCall,
    cancels: bool,
) -> Result<ToolOutput> {
    let captured = host.context_of(call.agent(), &captured);
    let signal = cancels.then(|| call.signal().clone());
    let fires = signal.clone();
    let frontend = host.clone();
    let arguments = move |py: Python<'_>| {
        let given = convert::to_py(py, call.arguments())?.unbind();
        let call = Py::new(py, ToolCallRef(frontend.handle(call)))?;
        Ok(vec![body.clone_ref(py), call.into_any(), given])
    };
    let returned = match host.call(captured, arguments, signal).await {
        // The body's task ended as the cancellation asked it to: the core says so to the model, in its own words.
        Err(error) if error.code() == &Code::Aborted && fires.is_some_and(|signal| signal.is_cancelled()) => {
            return Ok(ToolOutput::content(Vec::new()));
        }
        returned => returned?,
    };
    Python::attach(|py| output(returned.bind(py)))
}

/// What a body returned: `(value, content, meta)`.
fn output(returned: &Bound<'_, PyAny>) -> Result<ToolOutput> {
    let json = |item: &Bound<'_, PyAny>, what: &str| convert::from_py_or(item, Code::InvalidToolOutput, what);
    let (value, content, meta) =
        returned.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>)>().or_error()?;
    let output = if content.is_none() {
        ToolOutput::value(json(&value, "the tool returned something that is not JSON")?)
    } else {
        let content = json(&content, "content blocks")?;
        let blocks = content.as_array().ok_or_else(|| {
            Error::new(
                Code::InvalidToolOutput,
                "content must be a list of blocks, for example {\"type\": \"text\", ...}",
            )
        })?;
        ToolOutput::content(blocks.iter().map(Block::from_value).collect())
    };
    Ok(if meta.is_none() { output } else { output.with_meta(json(&meta, "meta")?) })
}

/// One call of a tool, for bodies that ask for it with a parameter annotated `ToolCall`.
#[pyclass(frozen, name = "ToolCall", module = "turnwheel")]
pub struct ToolCallRef(Handle<ToolCall>);

#[pymethods]
impl ToolCallRef {
    /// The id the model gave the call.
    #[getter]
    fn call_id(&self) -> PyResult<String> {
        self.0.with(|_, call| Ok(call.call_id().to_string()))
    }

    /// The tool called.
    #[getter]
    fn name(&self) -> PyResult<String> {
        self.0.with(|_, call| Ok(call.name().to_owned()))
    }

    /// The arguments as the model gave them.
    #[getter]
    fn arguments(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.with(|_, call| convert::to_py(py, call.arguments()).map(Bound::unbind))
    }

    /// The agent whose call it is.
    #[getter]
    fn agent(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.with(|host, call| notices::agent(py, host, call.agent()).map(Bound::unbind))
    }

    /// Fires when the turn is cancelled or the call's time is over.
    #[getter]
    fn signal(&self) -> PyResult<SignalRef> {
        self.0.with(|host, call| Ok(SignalRef::new(host, call.signal().clone())))
    }

    /// Calls another tool on this call's account: a future of `{content, is_error, error, value}`.
    #[pyo3(signature = (name, arguments=None))]
    fn call(&self, py: Python<'_>, name: String, arguments: Option<Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let arguments = match arguments {
            Some(arguments) => convert::argument(&arguments, "arguments")?,
            None => turnwheel::json::Object::new().into(),
        };
        self.0.with(|host, call| {
            let call = call.clone();
            host.as_caller(py, || {
                host.export(py, async move {
                    let answered = call.call(&name, arguments).await;
                    Python::attach(|py| {
                        let outcome = answered.map_err(|error| to_py(py, &error))?;
                        let members = PyDict::new(py);
                        notices::outcome_members(py, &members, &outcome)?;
                        Ok(members.into_any().unbind())
                    })
                })
            })
        })
    }

    /// Adds a message for the next step.
    fn defer_context(&self, message: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.with(|host, call| {
            call.defer_context(Arc::new(convert::message(message, || host.runtime.next_id())?));
            Ok(())
        })
    }

    /// Ends the turn with this step if the call succeeds.
    fn conclude_turn(&self) -> PyResult<()> {
        self.0.with(|_, call| {
            call.conclude_turn();
            Ok(())
        })
    }
}

/// Raises `UNSUPPORTED_SCHEMA` for a schema outside the supported subset, naming the place.
#[pyfunction]
pub fn check_schema(schema: &Bound<'_, PyAny>) -> PyResult<()> {
    let schema: Value = convert::argument(schema, "schema")?;
    turnwheel::tools::check_schema(&schema).or_raise()
}

/// The JSON Schema that a shorthand stands for; raises `UNSUPPORTED_SCHEMA`, naming the place.
#[pyfunction]
pub fn schema_of_shorthand(py: Python<'_>, shorthand: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let shorthand: Value = convert::argument(shorthand, "shorthand")?;
    convert::to_py(py, &turnwheel::tools::schema_of_shorthand(&shorthand).or_raise()?).map(Bound::unbind)
}
