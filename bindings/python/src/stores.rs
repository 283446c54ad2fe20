//! Stores: the runtime's own, by their options, and stores written in Python.
//!
//! What a Python store is asked to change (`open`, `create`, `append`, `close`) runs to its end also when nobody waits
//! any more, one operation of a writer after the other, so that giving up waiting never leaves a writer behind. What
//! it reads is cancelled with its reader.

use crate::captured::Captured;
use crate::convert;
use crate::ctx::alive;
use crate::errors::{IntoResult, invalid};
use crate::host::HostState;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use std::cell::{Cell, OnceCell};
use std::future::Future;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use turnwheel::error::{Code, Error, Result};
use turnwheel::id::SessionId;
use turnwheel::json::Value;
use turnwheel::runtime::{LocalBoxFuture, WakerSet, oneshot};
use turnwheel::session::{Event, SessionHeader};
use turnwheel::storage::jsonl::{Compression, JsonlOptions, JsonlStore};
use turnwheel::storage::sqlite::{ReferenceDatabase, SqliteStore};
use turnwheel::storage::{EventTypes, LogReader, Opened, SessionWriter, Store, StoredLog};

/// How many headers are asked for at a time when all are wanted.
const PAGE: usize = 1000;

/// The host that a store's methods run on; filled once there is one.
pub type HostCell = Rc<OnceCell<Weak<HostState>>>;

/// The store of what the Python half passes: `(kind, path, compression)`, or an object with asynchronous methods.
pub fn store(host: &HostCell, value: &Bound<'_, PyAny>) -> PyResult<Rc<dyn Store>> {
    let Ok((kind, path, compression)) = value.extract::<(String, PathBuf, String)>() else {
        let py = value.py();
        let (host, captured) = (host.clone(), Rc::new(Captured::current(py)?));
        let store = PythonStore { host, captured, object: Rc::new(value.clone().unbind()), closing: Rc::default() };
        return Ok(Rc::new(store));
    };
    Ok(match kind.as_str() {
        "jsonl" => {
            let compression = match compression.as_str() {
                "none" => Compression::None,
                "zstd" => Compression::Zstd,
                other => return Err(invalid(format!("compression is zstd or none, not {other:?}"))),
            };
            Rc::new(JsonlStore::new(JsonlOptions::new(path).compression(compression)))
        }
        "sqlite" => Rc::new(SqliteStore::new(path)),
        "reference" => Rc::new(ReferenceDatabase::new(path)),
        other => return Err(invalid(format!("no store of kind {other:?}"))),
    })
}

/// A store written in Python.
#[derive(Clone)]
struct PythonStore {
    host: HostCell,
    captured: Rc<Captured>,
    object: Rc<Py<PyAny>>,
    /// Writers that were dropped and are being closed: openings wait for them.
    closing: Rc<Turn>,
}

/// Lets one at a time through, in no particular order.
#[derive(Default)]
struct Turn {
    taken: Cell<usize>,
    freed: WakerSet,
}

/// Ends a turn, also of a future that is dropped.
struct Taken(Rc<Turn>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.taken.set(self.0.taken.get() - 1);
        self.0.freed.wake_all();
    }
}

impl Turn {
    fn take(self: &Rc<Self>) -> Taken {
        self.taken.set(self.taken.get() + 1);
        Taken(self.clone())
    }

    async fn free(self: Rc<Self>) {
        std::future::poll_fn(|context| {
            if self.taken.get() == 0 {
                return Poll::Ready(());
            }
            self.freed.register(context);
            Poll::Pending
        })
        .await;
    }
}

/// An error of a store: an exception that is none of ours means that the store failed.
fn store_error(error: Error) -> Error {
    if error.is_aborted() {
        return error;
    }
    match error.code().clone() {
        Code::HostError => wrapped(error),
        Code::Other(name) => match Code::parse(&name) {
            Code::Other(_) => wrapped(error),
            known => error.with_code(known),
        },
        _ => error,
    }
}

fn wrapped(error: Error) -> Error {
    let name = error.name().unwrap_or("an exception").to_owned();
    let message = format!("the store raised {name}: {}", error.message());
    Error::new(Code::StoreFailed, message).caused_by(error)
}

fn bad_value(method: &str, what: &str) -> Error {
    Error::new(Code::StoreFailed, format!("`{method}` of the store returned {what}; see turnwheel.Store"))
}

impl PythonStore {
    fn host(&self) -> Result<Rc<HostState>> {
        let host = self.host.get().ok_or_else(|| Error::new(Code::RuntimeClosed, "the context is not bound yet"))?;
        alive(host)
    }

    /// Awaits `object.method(*arguments)`.
    async fn call(
        host: Rc<HostState>,
        captured: Rc<Captured>,
        object: Rc<Py<PyAny>>,
        method: &'static str,
        arguments: impl FnOnce(Python<'_>) -> PyResult<Vec<Py<PyAny>>>,
    ) -> Result<Py<PyAny>> {
        let call = |py: Python<'_>| {
            let mut call = vec![object.getattr(py, method)?];
            call.extend(arguments(py)?);
            Ok(call)
        };
        host.call(captured, call, None).await.map_err(store_error)
    }

    async fn ask(
        &self,
        method: &'static str,
        arguments: impl FnOnce(Python<'_>) -> PyResult<Vec<Py<PyAny>>>,
    ) -> Result<Py<PyAny>> {
        Self::call(self.host()?, self.captured.clone(), self.object.clone(), method, arguments).await
    }

    async fn page(&self, after: Option<&str>, limit: usize) -> Result<Vec<SessionHeader>> {
        let arguments = |py: Python<'_>| {
            let after = after.map_or_else(|| py.None(), |after| PyString::new(py, after).into_any().unbind());
            Ok(vec![after, limit.into_pyobject(py)?.into_any().unbind()])
        };
        let page = self.ask("list_page", arguments).await?;
        Python::attach(|py| {
            let mut headers = Vec::new();
            for header in page.bind(py).try_iter().or_error().map_err(store_error)? {
                headers.push(header_of(&header.or_error().map_err(store_error)?)?);
            }
            Ok(headers)
        })
    }

    fn writer(&self, object: Py<PyAny>) -> PythonWriter {
        let state = WriterState { store: self.clone(), object: Rc::new(object), busy: Rc::default() };
        PythonWriter { state: Rc::new(state), is_closed: Cell::new(false) }
    }
}

fn header_of(value: &Bound<'_, PyAny>) -> Result<SessionHeader> {
    let json = match value.cast::<PyString>() {
        Ok(text) => return LogReader::header(text.to_string_lossy().as_bytes(), "the store"),
        Err(_) => convert::from_py(value).map_err(|what| bad_value("header", &what))?,
    };
    LogReader::header(json.to_text().as_bytes(), "the store")
}

fn header_to_py(py: Python<'_>, header: &SessionHeader) -> PyResult<Py<PyAny>> {
    convert::to_py(py, &header.to_value()).map(Bound::unbind)
}

/// The header and the texts of `(header, events, …)`.
fn texts_of(value: &Bound<'_, PyAny>, parts: usize, method: &str) -> Result<(SessionHeader, Vec<String>)> {
    let shape = || bad_value(method, "something else than None or a tuple (header, events, …) of the right length");
    if value.len().ok() != Some(parts) {
        return Err(shape());
    }
    let part = |index: usize| value.get_item(index).map_err(|_| shape());
    let header = header_of(&part(0)?)?;
    let mut texts = Vec::new();
    for event in part(1)?.try_iter().or_error().map_err(store_error)? {
        let event = event.or_error().map_err(store_error)?;
        let Ok(text) = event.cast::<PyString>() else { return Err(bad_value(method, "an event that is no str")) };
        texts.push(convert::repaired(text).or_error()?);
    }
    Ok((header, texts))
}

async fn log_of((header, texts): (SessionHeader, Vec<String>)) -> Result<StoredLog> {
    StoredLog::from_texts(header, texts, "the store", &EventTypes::default()).await
}

/// Runs an operation to its end, whether or not anybody still waits for it.
async fn detached<T: 'static>(host: Rc<HostState>, operation: impl Future<Output = Result<T>> + 'static) -> Result<T> {
    let (sender, receiver) = oneshot();
    host.runtime.spawn(async move { sender.send(operation.await) });
    drop(host);
    receiver.await.unwrap_or_else(|| Err(Error::new(Code::RuntimeClosed, "the context is closed")))
}

fn id_argument(id: &SessionId) -> impl FnOnce(Python<'_>) -> PyResult<Vec<Py<PyAny>>> + use<> {
    let id = id.clone();
    move |py| Ok(vec![PyString::new(py, &id).into_any().unbind()])
}

impl Store for PythonStore {
    fn list(&self) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        let store = self.clone();
        Box::pin(async move {
            let mut all: Vec<SessionHeader> = Vec::new();
            loop {
                let after = all.last().map(|header| header.id.clone());
                let page = store.page(after.as_deref(), PAGE).await?;
                let is_last = page.len() < PAGE;
                // A store that ignores `after` would be asked for ever.
                if page.first().is_some_and(|first| after.is_some_and(|after| first.id <= after)) {
                    return Err(bad_value("list_page", "sessions that do not follow `after`"));
                }
                all.extend(page);
                if is_last {
                    return Ok(all);
                }
            }
        })
    }

    fn list_page(&self, after: Option<&SessionId>, limit: usize) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
        let (store, after) = (self.clone(), after.cloned());
        Box::pin(async move { store.page(after.as_deref(), limit).await })
    }

    fn read(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<StoredLog>>> {
        let (store, id) = (self.clone(), id.clone());
        Box::pin(async move {
            let found = store.ask("read", id_argument(&id)).await?;
            let texts = Python::attach(|py| {
                let found = found.bind(py);
                if found.is_none() { Ok(None) } else { texts_of(found, 2, "read").map(Some) }
            })?;
            match texts {
                Some(texts) => log_of(texts).await.map(Some),
                None => Ok(None),
            }
        })
    }

    fn exists(&self, id: &SessionId) -> LocalBoxFuture<Result<bool>> {
        let (store, id) = (self.clone(), id.clone());
        Box::pin(async move {
            let found = store.ask("exists", id_argument(&id)).await?;
            Python::attach(|py| found.is_truthy(py).or_error().map_err(store_error))
        })
    }

    fn open(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<Opened>>> {
        let (store, id) = (self.clone(), id.clone());
        Box::pin(async move {
            let host = store.host()?;
            let opening = async move {
                store.closing.clone().free().await;
                let found = store.ask("open", id_argument(&id)).await?;
                let opened = Python::attach(|py| {
                    let found = found.bind(py);
                    if found.is_none() {
                        return Ok(None);
                    }
                    // The writer first: it is closed again if the log cannot be read.
                    let object = found.get_item(2).map_err(|_| bad_value("open", "no (header, events, writer)"))?;
                    let writer = store.writer(object.unbind());
                    texts_of(found, 3, "open").map(|texts| Some((texts, writer)))
                })?;
                let Some((texts, writer)) = opened else { return Ok(None) };
                Ok(Some((log_of(texts).await?, Rc::new(writer) as Rc<dyn SessionWriter>)))
            };
            detached(host, opening).await
        })
    }

    fn create(&self, header: &SessionHeader) -> LocalBoxFuture<Result<Rc<dyn SessionWriter>>> {
        let (store, header) = (self.clone(), header.clone());
        Box::pin(async move {
            header.check()?;
            let host = store.host()?;
            let creating = async move {
                store.closing.clone().free().await;
                let argument = |py: Python<'_>| Ok(vec![header_to_py(py, &header)?]);
                let object = store.ask("create", argument).await?;
                Ok(Rc::new(store.writer(object)) as Rc<dyn SessionWriter>)
            };
            detached(host, creating).await
        })
    }
}

struct WriterState {
    store: PythonStore,
    object: Rc<Py<PyAny>>,
    /// Taken by the operation that is under way.
    busy: Rc<Turn>,
}

struct PythonWriter {
    state: Rc<WriterState>,
    is_closed: Cell<bool>,
}

impl WriterState {
    async fn run(
        self: Rc<Self>,
        method: &'static str,
        arguments: impl FnOnce(Python<'_>) -> PyResult<Vec<Py<PyAny>>>,
    ) -> Result<()> {
        self.busy.clone().free().await;
        let _taken = self.busy.take();
        let (host, captured) = (self.store.host()?, self.store.captured.clone());
        PythonStore::call(host, captured, self.object.clone(), method, arguments).await.map(drop)
    }
}

impl SessionWriter for PythonWriter {
    fn append(&self, events: Vec<Arc<Event>>) -> LocalBoxFuture<Result<()>> {
        let (state, is_closed) = (self.state.clone(), self.is_closed.get());
        Box::pin(async move {
            if is_closed {
                return Err(Error::new(Code::StoreFailed, "the writer is closed; open the session again"));
            }
            let Some(first) = events.first().map(|event| event.seq) else { return Ok(()) };
            // A gap inside is nobody's batch, so no store has to look for one.
            if let Some((expected, event)) = (first..).zip(&events).find(|(seq, event)| event.seq != *seq) {
                let message = format!("a batch goes on with seq {expected}, and has {}", event.seq);
                return Err(Error::new(Code::StoreConflict, message).with("expected", expected));
            }
            let arguments = move |py: Python<'_>| {
                let texts = PyList::empty(py);
                let mut text = String::new();
                for event in &events {
                    text.clear();
                    event.write(&mut text);
                    texts.append(PyString::new(py, &text))?;
                }
                Ok(vec![first.into_pyobject(py)?.into_any().unbind(), texts.into_any().unbind()])
            };
            let host = state.store.host()?;
            detached(host, state.run("append", arguments)).await
        })
    }

    fn close(&self) -> LocalBoxFuture<()> {
        let closing = self.close_now();
        Box::pin(async move {
            if let Some(closing) = closing {
                closing.await;
            }
        })
    }
}

impl PythonWriter {
    fn close_now(&self) -> Option<LocalBoxFuture<()>> {
        if self.is_closed.replace(true) {
            return None;
        }
        let (state, host) = (self.state.clone(), self.state.store.host().ok()?);
        let taken = state.store.closing.take();
        let closed = detached(host, async move {
            let closed = state.run("close", |_| Ok(Vec::new())).await;
            drop(taken);
            closed
        });
        Some(Box::pin(async move {
            if let Err(error) = closed.await {
                tracing::error!(target: "turnwheel", "a store failed to close a session: {error:?}");
            }
        }))
    }
}

impl Drop for PythonWriter {
    fn drop(&mut self) {
        if let Some(closing) = self.close_now()
            && let Ok(host) = self.state.store.host()
        {
            host.runtime.spawn(closing);
        }
    }
}

/// The outcome of a copy as a dict.
pub fn copied_to_py(py: Python<'_>, copied: &turnwheel::storage::Copied) -> PyResult<Py<PyAny>> {
    let members = PyDict::new(py);
    members.set_item("header", header_to_py(py, &copied.header)?)?;
    members.set_item("events", copied.events)?;
    members.set_item("replaced_characters", copied.replaced_characters)?;
    members.set_item("torn_bytes", copied.torn_bytes)?;
    Ok(members.into_any().unbind())
}

/// Headers as a list of dicts.
pub fn headers_to_py(py: Python<'_>, headers: &[SessionHeader]) -> PyResult<Py<PyAny>> {
    let headers: Value = headers.iter().map(SessionHeader::to_value).collect::<Vec<_>>().into();
    convert::to_py(py, &headers).map(Bound::unbind)
}
