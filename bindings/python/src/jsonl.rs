//! What `turnwheel.JsonlStore` tells about its files without opening a session. Blocking: the Python half calls it on a
//! thread of its own.

use crate::convert;
use crate::errors::IntoPyResult;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use turnwheel::id::SessionId;
use turnwheel::runtime::LocalBoxFuture;
use turnwheel::storage::jsonl::{Compression, JsonlOptions, JsonlStore, RawLog};
use turnwheel::{Context, Result};

/// Header, file name and text of an export.
type Raw = (Py<PyAny>, &'static str, Py<PyBytes>);

/// The files below one root.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
pub struct JsonlFiles {
    root: PathBuf,
    compression: Compression,
}

impl JsonlFiles {
    /// Runs work of a store to its end, without the interpreter.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&JsonlStore) -> LocalBoxFuture<Result<T>> + Send,
    ) -> PyResult<T> {
        let options = JsonlOptions::new(&self.root).compression(self.compression);
        py.detach(|| Context::new().runtime().block_on(work(&JsonlStore::new(options)))).or_raise()
    }
}

#[pymethods]
impl JsonlFiles {
    #[new]
    fn new(root: PathBuf, compressed: bool) -> Self {
        let compression = if compressed { Compression::Zstd } else { Compression::None };
        Self { root, compression }
    }

    /// Header and revision of every session.
    fn list_revisions(&self, py: Python<'_>) -> PyResult<Vec<(Py<PyAny>, String)>> {
        let listed = self.run(py, JsonlStore::list_revisions)?;
        let rows = listed.into_iter().map(|(header, revision)| {
            let header = convert::to_py(py, &header.to_value())?.unbind();
            Ok((header, revision.to_string()))
        });
        rows.collect()
    }

    fn locate(&self, py: Python<'_>, id: String) -> PyResult<Option<PathBuf>> {
        self.run(py, move |store| store.locate(&SessionId::from(id)))
    }

    fn revision(&self, py: Python<'_>, id: String) -> PyResult<Option<String>> {
        let revision = self.run(py, move |store| store.revision(&SessionId::from(id)))?;
        Ok(revision.map(|revision| revision.to_string()))
    }

    fn read_raw(&self, py: Python<'_>, id: String) -> PyResult<Option<Raw>> {
        let raw = self.run(py, move |store| store.read_raw(&SessionId::from(id)))?;
        let Some(RawLog { header, file_name, text }) = raw else { return Ok(None) };
        let header = convert::to_py(py, &header.to_value())?.unbind();
        Ok(Some((header, file_name, PyBytes::new(py, &text).unbind())))
    }
}
