//! Adapters: the runtime's own, made from Python options, and adapters written in Python.

use crate::captured::Captured;
use crate::convert;
use crate::ctx::alive;
use crate::errors::{IntoPyResult, invalid};
use crate::gate::lock;
use crate::host::HostState;
use crate::notices::SignalRef;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::{KeyCallback, Options, Spelling, http_adapter, model_double, request_value};
use turnwheel::json::Value;
use turnwheel::llm::adapters::{Scripted, ScriptedCall, ScriptedReply};
use turnwheel::llm::{Adapter, Chunk, ChunkStream, Failure, ModelInfo, ModelRequest};
use turnwheel::message::Usage;
use turnwheel::runtime::LocalBoxFuture;

/// The adapter of a Python object: one over HTTP, a `Scripted`, or a function.
/// `known` says what is known of the models that a function serves.
pub fn adapter(
    host: &Rc<HostState>,
    value: &Bound<'_, PyAny>,
    captured: Rc<Captured>,
    known: HashMap<String, ModelInfo>,
) -> PyResult<Rc<dyn Adapter>> {
    if let Ok(options) = value.cast::<HttpAdapterOptions>() {
        return options.get().build();
    }
    if let Ok(script) = value.cast::<ScriptedModel>() {
        return Ok(Rc::new(Script(script.get().0.clone())));
    }
    if let Ok(double) = value.cast::<ModelDouble>() {
        let double = double.get();
        let inner =
            double.inner.as_ref().map(|inner| adapter(host, inner.bind(value.py()), captured, known)).transpose()?;
        return model_double(Options::spelled(&double.options, "a double", Spelling::Snake).or_raise()?, inner)
            .or_raise();
    }
    if value.is_callable() {
        let start = value.clone().unbind();
        return Ok(Rc::new(PythonAdapter { host: Rc::downgrade(host), captured, start, known }));
    }
    Err(invalid(
        "an adapter is an OpenAIChat, an OpenAIResponses, an AnthropicMessages, a Scripted or an async generator function of the request",
    ))
}

/// The options of an adapter over HTTP, in Python's spelling, and a function that is asked for the key.
#[pyclass(frozen, subclass, module = "turnwheel._turnwheel")]
pub struct HttpAdapterOptions {
    kind: String,
    options: Value,
    key: Option<Py<PyAny>>,
}

#[pymethods]
impl HttpAdapterOptions {
    #[new]
    #[pyo3(signature = (kind, options, key=None))]
    fn new(kind: String, options: &Bound<'_, PyAny>, key: Option<Py<PyAny>>) -> PyResult<Self> {
        let this = Self { kind, options: convert::argument(options, "options")?, key };
        this.build()?;
        Ok(this)
    }

    /// Neither keys nor the URL, which might hold one, are shown.
    fn __repr__(&self) -> String {
        format!("<turnwheel adapter {}>", self.kind)
    }
}

impl HttpAdapterOptions {
    fn build(&self) -> PyResult<Rc<dyn Adapter>> {
        let options = Options::spelled(&self.options, "an adapter", Spelling::Snake).or_raise()?;
        let key = self.key.as_ref().map(|read| -> KeyCallback {
            let read = Python::attach(|py| read.clone_ref(py));
            Rc::new(move || {
                Python::attach(|py| {
                    let key = read.call0(py).and_then(|key| key.extract::<String>(py));
                    // What a key function raises may quote the key.
                    key.map_err(|error| {
                        let kind = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
                        let message = format!("no API key: the function for it raised {kind} or gave no text");
                        Error::model(Failure::new("MISSING_CREDENTIAL", message))
                    })
                })
            })
        });
        let adapter = http_adapter(&self.kind, options, key).or_raise()?;
        adapter.ok_or_else(|| invalid(format!("there is no adapter of kind {}", self.kind)))
    }
}

/// A double around another adapter, or a cassette.
#[pyclass(frozen, subclass, module = "turnwheel._turnwheel")]
pub struct ModelDouble {
    options: Value,
    inner: Option<Py<PyAny>>,
}

#[pymethods]
impl ModelDouble {
    #[new]
    #[pyo3(signature = (options, inner=None))]
    fn new(options: &Bound<'_, PyAny>, inner: Option<Py<PyAny>>) -> PyResult<Self> {
        Ok(Self { options: convert::argument(options, "options")?, inner })
    }
}

#[derive(Default)]
struct ScriptState {
    replies: VecDeque<ScriptedReply>,
    repeated: Option<ScriptedReply>,
    requests: Vec<Value>,
    count: usize,
    keep_requests: bool,
}

/// A script that may be made before any event loop runs, and extended later.
#[pyclass(frozen, subclass, module = "turnwheel._turnwheel")]
pub struct ScriptedModel(Arc<Mutex<ScriptState>>);

fn reply(value: &Bound<'_, PyAny>) -> PyResult<ScriptedReply> {
    let value = convert::argument(value, "reply")?;
    let given = |key: &str| value.get(key).filter(|member| !member.is_null());
    let text = |key: &str| given(key).and_then(Value::as_str).map(str::to_owned);
    let mut calls = Vec::new();
    for call in given("calls").and_then(Value::as_array).unwrap_or_default() {
        let member = |key: &str| call.get(key).and_then(Value::as_str).map(str::to_owned);
        let arguments = match call.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_text(),
            None => "{}".to_owned(),
        };
        let (id, name) = (member("id"), member("name"));
        let (Some(id), Some(name)) = (id, name) else { return Err(invalid("a scripted call needs `id` and `name`")) };
        calls.push(ScriptedCall { id, name, arguments });
    }
    let delay = given("delay").and_then(Value::as_f64);
    let delay = delay.map(Duration::try_from_secs_f64).transpose().map_err(|_| invalid("`delay` is not a time"))?;
    Ok(ScriptedReply {
        reasoning: text("reasoning"),
        text: text("text"),
        calls,
        usage: given("usage").and_then(Usage::from_value),
        finish: None,
        error: given("error").and_then(Failure::from_value),
        chunk_size: given("chunk_size").and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok()),
        delay_between_chunks: delay,
        replay_state: None,
    })
}

#[pymethods]
impl ScriptedModel {
    #[new]
    fn new(keep_requests: bool) -> Self {
        Self(Arc::new(Mutex::new(ScriptState { keep_requests, ..ScriptState::default() })))
    }

    /// Adds a reply to the script.
    fn push(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let reply = reply(value)?;
        lock(&self.0).replies.push_back(reply);
        Ok(())
    }

    /// Answers with this whenever the script has no reply left.
    fn set_repeated(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let reply = reply(value)?;
        lock(&self.0).repeated = Some(reply);
        Ok(())
    }

    #[getter]
    fn request_count(&self) -> usize {
        lock(&self.0).count
    }

    #[getter]
    fn remaining(&self) -> usize {
        lock(&self.0).replies.len()
    }

    /// The requests so far, each as `{config, system?, tools?, messages}`.
    #[getter]
    fn requests(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let requests = lock(&self.0).requests.clone();
        convert::to_py(py, &requests.into()).map(Bound::unbind)
    }
}

struct Script(Arc<Mutex<ScriptState>>);

impl Adapter for Script {
    fn stream(&self, request: ModelRequest) -> ChunkStream {
        let reply = {
            let mut state = lock(&self.0);
            state.count += 1;
            if state.keep_requests {
                state.requests.push(request_value(&request));
            }
            state.replies.pop_front().or_else(|| state.repeated.clone())
        };
        let script = Scripted::new();
        match reply {
            Some(reply) => script.reply(reply).stream(request),
            None => script.stream(request),
        }
    }
}

#[derive(Default)]
struct SinkState {
    chunks: VecDeque<Chunk>,
    waker: Option<Waker>,
}

/// Where a Python adapter puts its chunks.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
struct ChunkSink(Arc<Mutex<SinkState>>);

#[pymethods]
impl ChunkSink {
    /// Adds a chunk; raises `MALFORMED_CHUNK` for what is none.
    fn push(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = convert::argument(value, "chunk")?;
        let chunk = Chunk::from_value(&value)
            .ok_or_else(|| Error::new(Code::MalformedChunk, format!("{} is not a stream chunk", value.to_text())));
        let waker = {
            let mut state = lock(&self.0);
            state.chunks.push_back(chunk.or_raise()?);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

struct PythonAdapter {
    host: Weak<HostState>,
    captured: Rc<Captured>,
    start: Py<PyAny>,
    known: HashMap<String, ModelInfo>,
}

impl Adapter for PythonAdapter {
    fn model_info(
        &self,
        _provider: &str,
        model: &str,
        _signal: &turnwheel::runtime::Signal,
    ) -> LocalBoxFuture<Result<ModelInfo>> {
        Box::pin(std::future::ready(Ok(self.known.get(model).cloned().unwrap_or_default())))
    }

    fn stream(&self, request: ModelRequest) -> ChunkStream {
        let sink: Arc<Mutex<SinkState>> = Arc::default();
        let (weak, chunks, registered) = (self.host.clone(), sink.clone(), self.captured.clone());
        let start = Python::attach(|py| self.start.clone_ref(py));
        let run: LocalBoxFuture<Result<()>> = Box::pin(async move {
            let host = alive(&weak)?;
            let agent = request.session_id.as_deref().and_then(|id| host.ctx.find_agent(id));
            let captured = host.context_of(agent.as_ref(), &registered);
            let (frontend, signal) = (host.clone(), request.signal.clone());
            let arguments = move |py: Python<'_>| {
                let members = PyDict::new(py);
                members.set_item("request", convert::to_py(py, &request_value(&request))?)?;
                members.set_item("signal", SignalRef::new(&frontend, request.signal.clone()))?;
                let feed = frontend.frontend.getattr(py, "_feed")?;
                let sink = Py::new(py, ChunkSink(chunks))?.into_any();
                Ok(vec![feed, start, members.into_any().unbind(), sink])
            };
            host.call(captured, arguments, Some(signal)).await.map(drop)
        });
        Box::pin(PythonStream { sink, run: Some(run) })
    }
}

/// The chunks of a Python adapter. Dropping it cancels the adapter's task.
struct PythonStream {
    sink: Arc<Mutex<SinkState>>,
    run: Option<LocalBoxFuture<Result<()>>>,
}

impl futures_core::Stream for PythonStream {
    type Item = Result<Chunk>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let ended = match &mut self.run {
            Some(run) => match run.as_mut().poll(context) {
                Poll::Ready(result) => {
                    self.run = None;
                    result.err()
                }
                Poll::Pending => None,
            },
            None => None,
        };
        let next = {
            let mut state = lock(&self.sink);
            state.waker = Some(context.waker().clone());
            state.chunks.pop_front()
        };
        match (next, ended) {
            (Some(chunk), None) => Poll::Ready(Some(Ok(chunk))),
            // What came before the failure is lost with it, as with a broken connection.
            (_, Some(error)) => Poll::Ready(Some(Err(error))),
            (None, None) if self.run.is_none() => Poll::Ready(None),
            (None, None) => Poll::Pending,
        }
    }
}
