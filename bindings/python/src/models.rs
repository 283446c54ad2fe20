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
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;
use turnwheel::error::{Code, Error, Result};
use turnwheel::json::Value;
use turnwheel::llm::adapters::{OpenAiChat, Scripted, ScriptedCall, ScriptedReply};
use turnwheel::llm::{Adapter, Chunk, ChunkStream, Failure, ModelInfo, ModelRequest};
use turnwheel::message::Usage;
use turnwheel::runtime::LocalBoxFuture;

/// The adapter of a Python object: an `OpenAIChat`, a `Scripted`, or a function.
pub fn adapter(host: &Rc<HostState>, value: &Bound<'_, PyAny>, captured: Rc<Captured>) -> PyResult<Rc<dyn Adapter>> {
    if let Ok(options) = value.cast::<OpenAIChatOptions>() {
        return Ok(Rc::new(options.get().build()?));
    }
    if let Ok(script) = value.cast::<ScriptedModel>() {
        return Ok(Rc::new(Script(script.get().0.clone())));
    }
    if value.is_callable() {
        return Ok(Rc::new(PythonAdapter { host: Rc::downgrade(host), captured, start: value.clone().unbind() }));
    }
    Err(invalid("an adapter is an OpenAIChat, a Scripted or an async generator function of the request"))
}

/// Options of the OpenAI-compatible adapter.
#[pyclass(frozen, subclass, module = "turnwheel._turnwheel")]
pub struct OpenAIChatOptions(Value);

#[pymethods]
impl OpenAIChatOptions {
    #[new]
    fn new(options: &Bound<'_, PyAny>) -> PyResult<Self> {
        let this = Self(convert::argument(options, "options")?);
        this.build()?;
        Ok(this)
    }
}

impl OpenAIChatOptions {
    fn build(&self) -> PyResult<OpenAiChat> {
        let options = &self.0;
        let text = |key: &str| member(options, key, "a text", |value| value.as_str().map(str::to_owned));
        let flag = |key: &str| member(options, key, "true or false", Value::as_bool).map(Option::unwrap_or_default);
        let seconds = |key: &str| member(options, key, "a number of seconds", duration);
        let members = |key: &str| member(options, key, "a dict", |value| value.as_object().cloned());
        let mut builder = OpenAiChat::builder(text("base_url")?.unwrap_or_default())
            .allow_insecure_http(flag("allow_insecure_http")?)
            .reasoning_in_history(flag("reasoning_in_history")?)
            .thinking_member(flag("thinking_member")?);
        if let Some(key) = text("api_key")? {
            builder = builder.api_key(&key);
        }
        if let Some(name) = text("api_key_env")? {
            builder = builder.api_key_from_env(&name);
        }
        if let Some(name) = text("max_tokens_member")? {
            builder = builder.max_tokens_member(&name);
        }
        if let Some(limit) = seconds("idle_timeout")? {
            builder = builder.idle_timeout(limit);
        }
        if let Some(limit) = seconds("event_idle_timeout")? {
            builder = builder.event_idle_timeout(limit);
        }
        if let Some(limit) = seconds("connect_timeout")? {
            builder = builder.connect_timeout(limit);
        }
        for (name, value) in members("headers")?.unwrap_or_default().iter() {
            let value = value.as_str().ok_or_else(|| invalid(format!("the value of header `{name}` is not a text")))?;
            builder = builder.header(name, value);
        }
        for (name, value) in members("extra")?.unwrap_or_default().iter() {
            builder = builder.extra_member(name, value.clone());
        }
        for (name, info) in members("models")?.unwrap_or_default().iter() {
            builder = builder.model(name, model_info(name, info)?);
        }
        builder.build().or_raise()
    }
}

/// A member that may be absent; one of another kind is refused and its value, which may be a key, not shown.
fn member<T>(of: &Value, key: &str, kind: &str, read: impl FnOnce(&Value) -> Option<T>) -> PyResult<Option<T>> {
    match of.get(key).filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(value) => read(value).map(Some).ok_or_else(|| invalid(format!("`{key}` is not {kind}"))),
    }
}

fn duration(value: &Value) -> Option<Duration> {
    Duration::try_from_secs_f64(value.as_f64()?).ok()
}

const MODEL_MEMBERS: [&str; 5] =
    ["context_window", "default_max_tokens", "efforts", "default_effort", "input_modalities"];

fn model_info(name: &str, value: &Value) -> PyResult<ModelInfo> {
    let members = value.as_object().ok_or_else(|| invalid(format!("what is known of model `{name}` is a dict")))?;
    if let Some((unknown, _)) = members.iter().find(|(key, _)| !MODEL_MEMBERS.contains(&&**key)) {
        let known = MODEL_MEMBERS.join(", ");
        return Err(invalid(format!("model `{name}` has no member `{unknown}`; there are: {known}")));
    }
    let texts = |key: &str| {
        member(value, key, "a list of texts", |value| {
            value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        })
    };
    Ok(ModelInfo {
        context_window: member(value, "context_window", "a whole number", Value::as_u64)?,
        default_max_tokens: member(value, "default_max_tokens", "a whole number", Value::as_u64)?,
        efforts: texts("efforts")?.unwrap_or_default(),
        default_effort: member(value, "default_effort", "a text", |value| value.as_str().map(str::to_owned))?,
        input_modalities: texts("input_modalities")?,
    })
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

fn request_value(request: &ModelRequest) -> Value {
    let mut value = request.header.to_value();
    if let Value::Object(object) = &mut value {
        object.insert("messages", request.messages.iter().map(|message| message.to_value()).collect::<Vec<_>>());
        object.insert_some("sessionId", request.session_id.as_deref());
    }
    value
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
}

impl Adapter for PythonAdapter {
    fn model_info(
        &self,
        _provider: &str,
        _model: &str,
        _signal: &turnwheel::runtime::Signal,
    ) -> LocalBoxFuture<Result<ModelInfo>> {
        Box::pin(std::future::ready(Ok(ModelInfo::default())))
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
