//! The native half of `turnwheel.view`: logs to look at, as text and as a page. Blocking, and without the interpreter
//! while the core reads or renders.

use crate::convert;
use crate::errors::{IntoPyResult, invalid};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use turnwheel::Session;
use turnwheel::storage::{LogSource as Source, StoredLog, Verdict};
use turnwheel::view::{HtmlOptions, Price, Prices, TextOptions, TextView, render_html};

/// Prices as Python passes them: `provider/model` to input, output, cache reads, cache writes.
type PriceTable = HashMap<String, (f64, f64, f64, f64)>;

fn prices(table: PriceTable) -> Prices {
    let price = |(input, output, cache_read, cache_write)| Price { input, output, cache_read, cache_write };
    table.into_iter().map(|(model, figures)| (model, price(figures))).collect()
}

/// Where logs are read from.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
pub struct LogSource(Source);

#[pymethods]
impl LogSource {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| Source::at(path)).or_raise().map(Self)
    }

    fn list(&self, py: Python<'_>, after: Option<String>, limit: usize) -> PyResult<Vec<Py<PyAny>>> {
        let headers = py.detach(|| self.0.list(after.as_deref(), limit)).or_raise()?;
        headers.iter().map(|header| convert::to_py(py, &header.to_value()).map(Bound::unbind)).collect()
    }

    fn read(&self, py: Python<'_>, id: Option<String>) -> PyResult<LogRef> {
        py.detach(|| self.0.read(id.as_deref())).or_raise().map(LogRef)
    }

    fn text(&self, py: Python<'_>, id: Option<String>) -> PyResult<Py<PyBytes>> {
        let text = py.detach(|| self.0.text(id.as_deref())).or_raise()?;
        Ok(PyBytes::new(py, &text).unbind())
    }

    fn revision(&self, py: Python<'_>, id: Option<String>) -> PyResult<String> {
        py.detach(|| self.0.revision(id.as_deref())).or_raise()
    }

    fn repair(&self, py: Python<'_>, id: Option<String>) -> PyResult<usize> {
        py.detach(|| self.0.repair(id.as_deref())).or_raise()
    }
}

/// One log as it was read.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
pub struct LogRef(StoredLog);

impl LogRef {
    /// The log of a live session as it is now.
    pub fn live(session: &Session) -> Self {
        let (header, events) = (session.header().clone(), session.events_from(0));
        Self(StoredLog { header, events: events.into(), replaced_characters: 0, torn_bytes: 0 })
    }
}

#[pymethods]
impl LogRef {
    fn header(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        convert::to_py(py, &self.0.header.to_value()).map(Bound::unbind)
    }

    fn __len__(&self) -> usize {
        self.0.events.len()
    }

    fn verdict(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let verdict = py.detach(|| Verdict::of(&self.0).to_value());
        convert::to_py(py, &verdict).map(Bound::unbind)
    }

    /// Renders the page piece by piece into `write(bytes)`; `progress(done, of)` hears how far it is.
    fn html(
        &self,
        py: Python<'_>,
        write: Py<PyAny>,
        progress: Option<Py<PyAny>>,
        price_table: PriceTable,
    ) -> PyResult<()> {
        let options = HtmlOptions { prices: prices(price_table) };
        let raised = Mutex::new(None);
        let keep = |error: PyErr| *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        let rendered = py.detach(|| {
            let mut out = io::BufWriter::with_capacity(1 << 16, PythonWriter { write: &write, keep: &keep });
            let mut failed = false;
            let mut report = |done: usize, of: usize| {
                let Some(progress) = progress.as_ref().filter(|_| !failed) else { return };
                failed = Python::attach(|py| progress.call1(py, (done, of)).map(drop).map_err(keep)).is_err();
            };
            render_html(&self.0.header, &self.0.events.to_vec(), &options, &mut out, &mut report)?;
            out.flush()
        });
        match (raised.into_inner().unwrap_or_else(PoisonError::into_inner), rendered) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(PyOSError::new_err(error.to_string())),
            (None, Ok(())) => Ok(()),
        }
    }
}

/// Writes into a Python callable; what it raises is kept as it is.
struct PythonWriter<'a> {
    write: &'a Py<PyAny>,
    keep: &'a dyn Fn(PyErr),
}

impl Write for PythonWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let called = Python::attach(|py| self.write.call1(py, (PyBytes::new(py, bytes),)).map(drop));
        called.map(|()| bytes.len()).map_err(|error| {
            (self.keep)(error);
            io::Error::other("`write` raised")
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A timeline as text that grows with its log.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
pub struct Timeline {
    /// The view, and how many events it has shown.
    state: Mutex<(TextView, usize)>,
}

#[pymethods]
impl Timeline {
    #[new]
    fn new(color: bool, full: bool, price_table: PriceTable) -> Self {
        let view = TextView::new(TextOptions { color, full, prices: prices(price_table) });
        Self { state: Mutex::new((view, 0)) }
    }

    /// The lines above the timeline.
    fn header(&self, py: Python<'_>, log: &LogRef) -> String {
        py.detach(|| self.with(|(view, _)| view.header(&log.0.header)))
    }

    /// The lines of up to `limit` events that were not shown yet; `None` when all were.
    fn more(&self, py: Python<'_>, log: &LogRef, limit: usize) -> PyResult<Option<String>> {
        if limit == 0 {
            return Err(invalid("`limit` must be at least 1"));
        }
        Ok(py.detach(|| {
            self.with(|(view, shown)| {
                let events: Vec<_> = log.0.events.iter_from(*shown).take(limit).collect();
                let part = &events[..events.len().min(limit)];
                *shown += part.len();
                (!part.is_empty()).then(|| part.iter().map(|event| view.event(event)).collect())
            })
        }))
    }

    /// The lines below the timeline.
    fn end(&self, py: Python<'_>, log: &LogRef) -> String {
        py.detach(|| self.with(|(view, _)| view.end(log.0.events.last().as_deref())))
    }

    fn __repr__(&self) -> String {
        self.with(|(_, shown)| format!("Timeline({shown} events shown)"))
    }
}

impl Timeline {
    fn with<T>(&self, work: impl FnOnce(&mut (TextView, usize)) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
