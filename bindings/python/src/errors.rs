//! Errors across the border, both ways. A Python exception that went in comes out as the same object; an error of the
//! core that Python code lets pass keeps all it carried.

use crate::convert;
use pyo3::exceptions::{PyBaseException, PyKeyError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use std::any::Any;
use std::sync::Arc;
use turnwheel::error::{Code, Error};
use turnwheel::json::Value;
use turnwheel::llm::Failure;

/// A Python exception on its way through the core.
struct Raised(Py<PyBaseException>);

/// An error of the core, kept by the exception that shows it.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
pub struct NativeError(Error);

static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static BASE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn errors_member<'py>(py: Python<'py>, cell: &PyOnceLock<Py<PyAny>>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let load = || Ok::<_, PyErr>(py.import("turnwheel._errors")?.getattr(name)?.unbind());
    Ok(cell.get_or_try_init(py, load)?.bind(py).clone())
}

/// The exception of an error.
pub fn to_py(py: Python<'_>, error: &Error) -> PyErr {
    if let Some(raised) = error.host_object().and_then(|object| object.downcast_ref::<Raised>()) {
        return PyErr::from_value(raised.0.bind(py).clone().into_any());
    }
    make(py, error).unwrap_or_else(|failure| failure)
}

fn make(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let context = convert::to_py(py, &Value::Object(error.context().clone()))?;
    let failure = match error.failure() {
        Some(failure) => convert::to_py(py, &failure.to_value())?,
        None => py.None().into_bound(py),
    };
    let native = NativeError(error.clone());
    let retry = error.retry().map(|wait| wait.as_secs_f64());
    let arguments = (error.code().as_str(), error.code().number(), error.message(), context, failure, retry, native);
    let exception = PyErr::from_value(errors_member(py, &MAKE, "make")?.call1(arguments)?);
    exception.set_cause(py, error.cause().map(|cause| to_py(py, cause)));
    Ok(exception)
}

/// The error of an exception.
pub fn from_py(py: Python<'_>, raised: PyErr) -> Error {
    let value = raised.value(py);
    let is_ours = errors_member(py, &BASE, "TurnwheelError").and_then(|base| value.is_instance(&base)).unwrap_or(false);
    let name = value.get_type().name().map_or_else(|_| "Exception".to_owned(), |name| name.to_string());
    let text = value.str().map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned());
    let keep: Arc<dyn Any + Send + Sync> = Arc::new(Raised(value.clone().unbind()));
    if is_ours {
        if let Ok(native) = value.getattr("_native")
            && let Ok(native) = native.cast_into::<NativeError>()
        {
            return native.get().0.clone().with_host(keep);
        }
        // What an adapter says of a failure, for a listener of `agent/request-error` to see.
        if let Ok(failure) = value.getattr("failure")
            && let Some(failure) = convert::from_py(&failure).ok().as_ref().and_then(Failure::from_value)
        {
            return Error::model(failure).with_host(keep);
        }
        let code = value.getattr("code").and_then(|code| code.extract::<String>());
        return Error::coded(name, code.unwrap_or_else(|_| "HOST_ERROR".into()), text).with_host(keep);
    }
    // `str(KeyError("x"))` is a bare repr that says nothing by itself.
    let message = if text.is_empty() {
        name.clone()
    } else if value.is_instance_of::<PyKeyError>() {
        format!("{name}: {text}")
    } else {
        text
    };
    Error::host(message).named(name).with_host(keep)
}

/// Converts a result of the core.
pub trait IntoPyResult<T> {
    /// The value, or the exception of the error.
    fn or_raise(self) -> PyResult<T>;
}

impl<T> IntoPyResult<T> for turnwheel::Result<T> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| Python::attach(|py| to_py(py, &error)))
    }
}

/// Converts a result of Python.
pub trait IntoResult<T> {
    /// The value, or the error of the exception.
    fn or_error(self) -> turnwheel::Result<T>;
}

impl<T> IntoResult<T> for PyResult<T> {
    fn or_error(self) -> turnwheel::Result<T> {
        self.map_err(|raised| Python::attach(|py| from_py(py, raised)))
    }
}

/// A usage error.
pub fn invalid(message: impl Into<String>) -> PyErr {
    let error = Error::new(Code::InvalidArgument, message);
    Python::attach(|py| to_py(py, &error))
}

/// Every code with its number, for `turnwheel.CODES`.
pub fn codes(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let codes = PyDict::new(py);
    for (name, number) in Code::ALL {
        codes.set_item(name, number)?;
    }
    Ok(codes)
}
