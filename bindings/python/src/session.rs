//! The native half of `turnwheel.Session`: the log, to read and to append to.

use crate::convert;
use crate::errors::IntoPyResult;
use crate::event::Event;
use crate::gate::Handle;
use crate::host::HostState;
use crate::stream::StreamRef;
use crate::view::LogRef;
use pyo3::prelude::*;
use pyo3::types::PyList;
use turnwheel::Session;
use turnwheel::session::fold_consumed_work;

/// A session of the core.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
pub struct SessionRef(Handle<Session>);

impl SessionRef {
    /// A handle to a session.
    pub fn new(host: &HostState, session: Session) -> Self {
        Self(host.handle(session))
    }
}

#[pymethods]
impl SessionRef {
    #[getter]
    fn id(&self) -> PyResult<String> {
        self.0.with(|_, session| Ok(session.id().to_string()))
    }

    /// The header as a dict.
    fn header(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.with(|_, session| convert::to_py(py, &session.header().to_value()).map(Bound::unbind))
    }

    fn __len__(&self) -> PyResult<usize> {
        self.0.with(|_, session| Ok(usize::try_from(session.len()).unwrap_or(usize::MAX)))
    }

    /// The events from a seq on.
    fn events<'py>(&self, py: Python<'py>, from_seq: u64) -> PyResult<Bound<'py, PyList>> {
        self.0.with(|_, session| {
            let list = PyList::empty(py);
            for event in session.events_from(from_seq) {
                list.append(Event::new(event, session.id().clone()).into_pyobject(py)?)?;
            }
            Ok(list)
        })
    }

    /// The events from a seq on, as they are committed.
    fn follow(&self, from_seq: u64) -> PyResult<StreamRef> {
        self.0.with(|host, session| Ok(StreamRef::log(host, session.clone(), from_seq)))
    }

    /// The messages the model sees.
    fn history<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.0.with(|_, session| {
            let list = PyList::empty(py);
            for message in session.history().iter() {
                list.append(convert::to_py(py, &message.to_value())?)?;
            }
            Ok(list)
        })
    }

    /// The log as it is now, to look at.
    fn log(&self) -> PyResult<LogRef> {
        self.0.with(|_, session| Ok(LogRef::live(session)))
    }

    /// What came of accepted work: the seq of the `turn/end` that accounts for it, and whether input was dropped unrun.
    fn consumed_work(&self) -> PyResult<(Option<u64>, bool)> {
        self.0.with(|_, session| {
            let work = fold_consumed_work(&session.marks_from(0));
            Ok((work.end, work.dropped_unrun))
        })
    }

    /// The version in which the latest events of a registered type are written.
    fn event_type_version(&self, kind: &str) -> PyResult<Option<u64>> {
        self.0.with(|_, session| Ok(session.event_type_version(kind)))
    }

    /// Appends an event as a log has it, without seq and time; gives its seq.
    fn append_raw(&self, event: &Bound<'_, PyAny>) -> PyResult<u64> {
        let event = convert::argument(event, "event")?;
        self.0.with(|_, session| turnwheel::host::append_raw(session, &event).or_raise())
    }

    /// The whole log as `{"header", "events"}`, to resume from elsewhere.
    fn value(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.with(|_, session| convert::to_py(py, &turnwheel::host::session_value(session)).map(Bound::unbind))
    }

    /// Appends an event of a plug-in.
    fn append(&self, kind: &str, data: &Bound<'_, PyAny>) -> PyResult<Event> {
        let data = convert::argument(data, "event data")?;
        self.0.with(|_, session| {
            let event = session.append(kind, data).or_raise()?;
            Ok(Event::new(event, session.id().clone()))
        })
    }
}
