//! A file layer whose operations fail on demand.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use turnwheel::storage::jsonl::{DiskFiles, FileLayer};

/// Which operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writing: half of the bytes are written before it fails.
    Append,
    /// Syncing content.
    Sync,
    /// Syncing a whole file, as for a new one and after a roll-back.
    SyncAll,
    /// Cutting.
    Truncate,
    /// Syncing a directory.
    SyncDir,
}

/// The disk, with failures to come.
#[derive(Default)]
pub struct FaultyFiles {
    plan: Mutex<Vec<(Op, ErrorKind)>>,
}

impl FaultyFiles {
    /// A disk that works.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Lets the next `op` fail; several calls let several fail.
    pub fn fail_next(&self, op: Op, kind: ErrorKind) {
        self.plan.lock().expect("no test panics while it holds the plan").push((op, kind));
    }

    fn fault(&self, op: Op) -> io::Result<()> {
        let mut plan = self.plan.lock().expect("no test panics while it holds the plan");
        match plan.iter().position(|(planned, _)| *planned == op) {
            Some(index) => Err(plan.remove(index).1.into()),
            None => Ok(()),
        }
    }
}

impl FileLayer for FaultyFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        DiskFiles.read(path)
    }

    fn append(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.fault(Op::Append) {
            DiskFiles.append(file, &bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        DiskFiles.append(file, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.fault(Op::Sync)?;
        DiskFiles.sync(file)
    }

    fn sync_all(&self, file: &File) -> io::Result<()> {
        self.fault(Op::SyncAll)?;
        DiskFiles.sync_all(file)
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        self.fault(Op::Truncate)?;
        DiskFiles.truncate(file, len)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.fault(Op::SyncDir)?;
        DiskFiles.sync_dir(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        DiskFiles.link(from, to)
    }
}
