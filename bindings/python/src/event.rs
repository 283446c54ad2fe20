//! Events as Python sees them, and the queues of asynchronous listeners. An event object is a pointer to the core's
//! event: its fields are read, and its payload decoded, when somebody asks.

use crate::convert;
use crate::errors::{IntoPyResult, invalid};
use crate::gate::lock;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyString};
use std::sync::{Arc, Mutex};
use turnwheel::id::SessionId;
use turnwheel::json;
use turnwheel::llm::Chunk;
use turnwheel::message::Block;
use turnwheel::session::{Event as CoreEvent, EventData};

/// One committed event of a session's log. Immutable; may be kept and read on any thread.
#[pyclass(frozen, module = "turnwheel")]
pub struct Event {
    event: Arc<CoreEvent>,
    session: SessionId,
    data: PyOnceLock<Py<PyAny>>,
}

impl Event {
    /// Shows an event of a session.
    pub fn new(event: Arc<CoreEvent>, session: SessionId) -> Self {
        Self { event, session, data: PyOnceLock::new() }
    }
}

#[pymethods]
impl Event {
    /// The event's type, for example `"assistant/chunk"`.
    #[getter]
    fn r#type<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        PyString::intern(py, self.event.kind())
    }

    /// Position in the log, from 0.
    #[getter]
    fn seq(&self) -> u64 {
        self.event.seq
    }

    /// Epoch milliseconds.
    #[getter]
    fn time(&self) -> i64 {
        self.event.time
    }

    /// The payload as plain Python objects; the same object every time.
    #[getter]
    fn data(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let decode = || convert::to_py(py, &self.event.data_value()).map(Bound::unbind);
        Ok(self.data.get_or_try_init(py, decode)?.clone_ref(py))
    }

    /// The text of a text delta or of a message; `""` for every other event.
    #[getter]
    fn text<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        match &self.event.data {
            EventData::AssistantChunk { chunk: Chunk::TextDelta { text, .. }, .. } => PyString::new(py, text),
            data => match data.message() {
                Some(message) => PyString::new(py, &message_text(message.content())),
                None => PyString::intern(py, ""),
            },
        }
    }

    /// The event as canonical JSON text.
    #[getter]
    fn json(&self) -> &str {
        self.event.json()
    }

    /// The session's id, which is also its agent's.
    #[getter]
    fn session_id(&self) -> &str {
        &self.session
    }

    fn __repr__(&self) -> String {
        const SHOWN: usize = 120;
        let json = self.event.json();
        let cut = json.char_indices().nth(SHOWN).map_or(json.len(), |(at, _)| at);
        let more = if cut < json.len() { "…" } else { "" };
        format!("<Event {} #{} of {:?}: {}{more}>", self.event.kind(), self.event.seq, &*self.session, &json[..cut])
    }

    /// Pickles as plain data: the text of the log.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (&str, &str))> {
        Ok((py.get_type::<Event>().getattr("from_json")?, (self.event.json(), &*self.session)))
    }

    /// The event of a text that `json` gave.
    #[staticmethod]
    fn from_json(text: &str, session_id: &str) -> PyResult<Self> {
        let event = json::parse(text).map_err(|error| invalid(format!("not an event: {error}")))?;
        let event = CoreEvent::from_value(&event).or_raise()?;
        Ok(Self::new(Arc::new(event), session_id.into()))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Event>().is_ok_and(|other| {
            let other = other.get();
            self.session == other.session && (Arc::ptr_eq(&self.event, &other.event) || self.event == other.event)
        })
    }

    fn __hash__(&self) -> u64 {
        self.event.seq
    }
}

fn message_text(blocks: &[Block]) -> String {
    let text = |block: &Block| match block {
        Block::ToolResult { content, .. } => content.iter().filter_map(Block::text).collect(),
        other => other.text().unwrap_or_default().to_owned(),
    };
    blocks.iter().map(text).collect()
}

/// What waits for an asynchronous listener.
pub enum Queued {
    /// An event, not yet a Python object.
    Event(Arc<CoreEvent>, SessionId),
    /// Any other notification.
    Object(Py<PyAny>),
}

#[derive(Default)]
struct QueueState {
    items: Vec<Queued>,
    waiter: Option<Py<PyAny>>,
    closed: bool,
}

/// The notifications that an asynchronous listener has not heard yet, in order.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
pub struct Queue {
    state: Arc<Mutex<QueueState>>,
    create_future: Py<PyAny>,
}

/// The end of a queue that the core writes to. With it the queue ends.
pub struct QueueWriter(Arc<Mutex<QueueState>>);

impl QueueWriter {
    /// Adds an item, and wakes the listener if it waits.
    pub fn push(&self, item: Queued) {
        self.change(|state| state.items.push(item));
    }

    fn change(&self, change: impl FnOnce(&mut QueueState)) {
        let waiter = {
            let mut state = lock(&self.0);
            change(&mut state);
            state.waiter.take()
        };
        if let Some(waiter) = waiter {
            Python::try_attach(|py| {
                let waiter = waiter.bind(py);
                if !waiter.call_method0("done").is_ok_and(|done| done.is_truthy().unwrap_or(true)) {
                    let _ = waiter.call_method1("set_result", (py.None(),));
                }
            });
        }
    }
}

impl Drop for QueueWriter {
    fn drop(&mut self) {
        self.change(|state| state.closed = true);
    }
}

impl Queue {
    /// The writing end.
    pub fn writer(&self) -> QueueWriter {
        QueueWriter(self.state.clone())
    }
}

#[pymethods]
impl Queue {
    #[new]
    fn new(event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self { state: Arc::default(), create_future: event_loop.getattr("create_future")?.unbind() })
    }

    /// Takes everything that waits.
    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let items = std::mem::take(&mut lock(&self.state).items);
        let list = PyList::empty(py);
        for item in items {
            match item {
                Queued::Event(event, session) => list.append(Event::new(event, session).into_pyobject(py)?)?,
                Queued::Object(object) => list.append(object)?,
            }
        }
        Ok(list)
    }

    /// Whether nothing will come any more.
    #[getter]
    fn closed(&self) -> bool {
        lock(&self.state).closed
    }

    /// A future that is done when something waits, or nothing will come any more.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let future = self.create_future.call0(py)?;
        let mut state = lock(&self.state);
        if state.items.is_empty() && !state.closed {
            state.waiter = Some(future.clone_ref(py));
        } else {
            drop(state);
            future.call_method1(py, "set_result", (py.None(),))?;
        }
        Ok(future)
    }

    fn __len__(&self) -> usize {
        lock(&self.state).items.len()
    }
}
