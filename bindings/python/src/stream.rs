//! Events one after the other: of one turn, or of a log. Python takes what is there in batches and makes a future only
//! when nothing is, so a burst of events costs no task and no future each.

use crate::errors::to_py;
use crate::event::Event;
use crate::gate::Handle;
use crate::host::HostState;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use turnwheel::Session;
use turnwheel::agent::EventStream;
use turnwheel::error::{Error, Result};
use turnwheel::id::SessionId;
use turnwheel::session::Event as CoreEvent;

type Item = Option<Result<(Arc<CoreEvent>, SessionId)>>;

enum Source {
    Turn { stream: Box<EventStream>, session: SessionId },
    Log { session: Session, next: u64 },
}

struct State {
    source: RefCell<Source>,
    failed: RefCell<Option<Error>>,
    done: Cell<bool>,
}

impl State {
    fn poll(&self, context: &mut TaskContext<'_>) -> Poll<Item> {
        match &mut *self.source.borrow_mut() {
            Source::Turn { stream, session } => {
                stream.poll(context).map(|item| item.map(|item| item.map(|event| (event, session.clone()))))
            }
            Source::Log { session, next } => match session.poll_event(*next, context) {
                Poll::Ready(event) => {
                    *next += 1;
                    Poll::Ready(Some(Ok((event, session.id().clone()))))
                }
                // Nothing will come any more.
                Poll::Pending if !session.is_live() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

/// A stream of events.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
pub struct StreamRef(Handle<Rc<State>>);

impl StreamRef {
    /// The events of the turn that takes a message.
    pub fn turn(host: &HostState, stream: EventStream, session: SessionId) -> Self {
        Self::new(host, Source::Turn { stream: Box::new(stream), session })
    }

    /// The events of a log.
    pub fn log(host: &HostState, session: Session, next: u64) -> Self {
        Self::new(host, Source::Log { session, next })
    }

    fn new(host: &HostState, source: Source) -> Self {
        let (failed, done) = (RefCell::new(None), Cell::new(false));
        Self(host.handle(Rc::new(State { source: RefCell::new(source), failed, done })))
    }
}

#[pymethods]
impl StreamRef {
    /// What is there now: a list, empty when one must wait, or `None` behind the last event. At most `limit` events.
    fn take<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Option<Bound<'py, PyList>>> {
        self.0.with(|_, state| {
            let list = PyList::empty(py);
            if let Some(error) = state.failed.borrow_mut().take() {
                return Err(to_py(py, &error));
            }
            let mut context = TaskContext::from_waker(Waker::noop());
            while list.len() < limit && !state.done.get() {
                match state.poll(&mut context) {
                    Poll::Ready(Some(Ok((event, session)))) => {
                        list.append(Event::new(event, session).into_pyobject(py)?)?
                    }
                    Poll::Ready(Some(Err(error))) => {
                        state.done.set(true);
                        if list.is_empty() {
                            return Err(to_py(py, &error));
                        }
                        *state.failed.borrow_mut() = Some(error);
                    }
                    Poll::Ready(None) => state.done.set(true),
                    Poll::Pending => return Ok(Some(list)),
                }
            }
            Ok((!list.is_empty()).then_some(list))
        })
    }

    /// A future of the next event, `None` behind the last.
    fn next(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.with(|host, state| {
            let state = state.clone();
            host.export(py, async move {
                let next = std::future::poll_fn(|context| state.poll(context)).await;
                if !matches!(next, Some(Ok(_))) {
                    state.done.set(true);
                }
                Python::attach(|py| match next {
                    Some(Ok((event, session))) => Ok(Py::new(py, Event::new(event, session))?.into_any()),
                    Some(Err(error)) => Err(to_py(py, &error)),
                    None => Ok(py.None()),
                })
            })
        })
    }

    /// The id of the message whose turn this is.
    #[getter]
    fn message_id(&self) -> PyResult<Option<String>> {
        self.0.with(|_, state| {
            Ok(match &*state.source.borrow() {
                Source::Turn { stream, .. } => Some(stream.receipt().message_id().to_string()),
                Source::Log { .. } => None,
            })
        })
    }

    /// Takes the message back, or cancels the turn that took it with cause `user`.
    fn withdraw(&self) -> PyResult<()> {
        self.0.with(|_, state| {
            let receipt = match &*state.source.borrow() {
                Source::Turn { stream, .. } => Some(stream.receipt().clone()),
                Source::Log { .. } => None,
            };
            if let Some(receipt) = receipt {
                receipt.withdraw();
            }
            Ok(())
        })
    }
}
