//! JSON values across the border. Into Python they are plain objects; out of Python only what JSON can carry exactly is
//! taken, and everything else is named by its place and type.

use crate::errors;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use turnwheel::error::{Code, Error, Result};
use turnwheel::json::{MAX_SAFE, Object, Value};
use turnwheel::message::Message;

/// Deeper values are refused rather than trusted to the stack.
const MAX_DEPTH: usize = 400;

/// A JSON value as Python sees it: whole numbers are `int`.
pub fn to_py<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    to_py_at(py, value, 0)
}

fn to_py_at<'py>(py: Python<'py>, value: &Value, depth: usize) -> PyResult<Bound<'py, PyAny>> {
    if depth > MAX_DEPTH {
        let message = format!("JSON nested deeper than {MAX_DEPTH} levels; read the text instead");
        return Err(errors::to_py(py, &Error::new(Code::InvalidJson, message)));
    }
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Value::Number(number) => match value.as_i64() {
            Some(whole) => whole.into_pyobject(py)?.into_any(),
            None => PyFloat::new(py, *number).into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(to_py_at(py, item, depth + 1)?)?;
            }
            list.into_any()
        }
        Value::Object(members) => {
            let dict = PyDict::new(py);
            for (key, member) in members.iter() {
                dict.set_item(key, to_py_at(py, member, depth + 1)?)?;
            }
            dict.into_any()
        }
    })
}

/// A Python value as JSON; the error is a sentence without a code.
pub fn from_py(value: &Bound<'_, PyAny>) -> Result<Value, String> {
    from_py_at(value, "", 0)
}

/// As [`from_py`], with a code for the error.
pub fn from_py_or(value: &Bound<'_, PyAny>, code: Code, what: &str) -> Result<Value> {
    from_py(value).map_err(|message| Error::new(code, format!("{what}: {message}")))
}

/// An argument as JSON; raises `INVALID_JSON`.
pub fn argument(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Value> {
    from_py_or(value, Code::InvalidJson, what).map_err(|error| errors::to_py(value.py(), &error))
}

fn from_py_at(value: &Bound<'_, PyAny>, path: &str, depth: usize) -> Result<Value, String> {
    let at = |what: String| if path.is_empty() { what } else { format!("{what} at {path}") };
    let raised = |error: PyErr| at(error.to_string());
    if depth > MAX_DEPTH {
        return Err(format!("a value nested deeper than {MAX_DEPTH} levels, or one that holds itself"));
    }
    if value.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(Value::Bool(flag.is_true()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Value::String(repaired(text).map_err(raised)?));
    }
    if value.is_instance_of::<PyInt>() {
        return whole_number(value).map(Value::Number).map_err(at);
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        let number = number.value();
        if !number.is_finite() {
            return Err(at(format!("{number} is not a JSON number")));
        }
        // JSON has one zero.
        return Ok(Value::Number(if number == 0.0 { 0.0 } else { number }));
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        let mut object = Object::with_capacity(dict.len());
        for (key, member) in dict.iter() {
            let Ok(name) = key.cast::<PyString>() else {
                return Err(at(format!("a key of type {} (JSON keys are strings)", type_name(&key))));
            };
            let name = repaired(name).map_err(raised)?;
            let member = from_py_at(&member, &format!("{path}.{name}"), depth + 1)?;
            object.insert(name, member);
        }
        return Ok(Value::Object(object));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let mut items = Vec::new();
        for (index, item) in value.try_iter().map_err(raised)?.enumerate() {
            items.push(from_py_at(&item.map_err(raised)?, &format!("{path}[{index}]"), depth + 1)?);
        }
        return Ok(Value::Array(items));
    }
    if let Ok(fields) = value.get_type().getattr("__dataclass_fields__")
        && let Ok(fields) = fields.cast_into::<PyDict>()
    {
        let mut object = Object::new();
        for name in fields.keys() {
            let name: String = name.extract().map_err(raised)?;
            let member = value.getattr(name.as_str()).map_err(raised)?;
            let member = from_py_at(&member, &format!("{path}.{name}"), depth + 1)?;
            object.insert(name, member);
        }
        return Ok(Value::Object(object));
    }
    if value.hasattr("__await__").unwrap_or(false) {
        return Err(at("this has to be awaited first, as in `await next()`".into()));
    }
    Err(at(format!("a value of type {} is not JSON", type_name(value))))
}

fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().fully_qualified_name().map_or_else(|_| "?".into(), |name| name.to_string())
}

/// An int as a JSON number, where that loses nothing.
fn whole_number(value: &Bound<'_, PyAny>) -> Result<f64, String> {
    if let Ok(small) = value.extract::<i64>()
        && (small as f64).abs() <= MAX_SAFE
    {
        return Ok(small as f64);
    }
    let exact = value.call_method0("__float__").ok().filter(|float| float.eq(value).unwrap_or(false));
    exact
        .and_then(|float| float.extract::<f64>().ok())
        .ok_or_else(|| "an int that no JSON number carries exactly (send it as a string)".to_owned())
}

/// The text of a string; lone surrogates become U+FFFD (D-22).
pub fn repaired(text: &Bound<'_, PyString>) -> PyResult<String> {
    if let Ok(text) = text.extract::<String>() {
        return Ok(text);
    }
    let encoded = text.call_method1("encode", ("utf-16-le", "surrogatepass"))?;
    encoded.call_method1("decode", ("utf-16-le", "replace"))?.extract()
}

/// A message from a text, or from a mapping in which id, role, source may be missing and content may be a text.
pub fn message(value: &Bound<'_, PyAny>, new_id: impl FnOnce() -> String) -> PyResult<Message> {
    let py = value.py();
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Message::user_text(new_id(), repaired(text)?));
    }
    let mut json = argument(value, "message")?;
    let Value::Object(object) = &mut json else {
        return Err(errors::invalid(format!("a message is a str or a dict, not {}", type_name(value))));
    };
    if let Some(text) = object.get("content").and_then(Value::as_str).map(str::to_owned) {
        object.insert("content", vec![turnwheel::Block::Text(text).to_value()]);
    }
    if !object.contains_key("source") {
        object.insert("source", turnwheel::json!({"kind": "user"}));
    }
    if !object.contains_key("role") {
        object.insert("role", "user");
    }
    if !object.contains_key("id") {
        object.insert("id", new_id());
    }
    Message::from_value(&json).map_err(|error| errors::to_py(py, &error))
}

/// A list of messages as Python sees them.
pub fn messages<'a>(
    py: Python<'_>,
    messages: impl IntoIterator<Item = &'a std::sync::Arc<Message>>,
) -> PyResult<Py<PyList>> {
    let list = PyList::empty(py);
    for message in messages {
        list.append(to_py(py, &message.to_value())?)?;
    }
    Ok(list.unbind())
}
