//! A file layer whose operations fail on demand.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use turnwheel::storage::jsonl::{DiskFiles, FileLayer};

/// Which operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reading a whole file.
    Read,
    /// Opening an existing file.
    Open,
    /// Creating a file.
    Create,
    /// Creating a directory.
    CreateDir,
    /// Writing: half of the bytes are written before it fails (a short write).
    Append,
    /// Syncing content.
    Sync,
    /// Syncing a whole file, as for a new one and after a roll-back.
    SyncAll,
    /// Cutting.
    Truncate,
    /// Syncing a directory.
    SyncDir,
    /// Giving a second name.
    Link,
    /// Taking a name away.
    Remove,
}

/// `EIO` by its number, since `ErrorKind` has no name for it.
pub const EIO: i32 = 5;

#[derive(Default)]
struct Plan {
    next: Vec<(Op, io::Error)>,
    /// Fails every time until the disk is mended.
    broken: Vec<(Op, ErrorKind)>,
}

/// The disk, with failures to come.
#[derive(Default)]
pub struct FaultyFiles {
    plan: Mutex<Plan>,
    syncs: AtomicU64,
    appended: AtomicU64,
}

impl FaultyFiles {
    /// A disk that works.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Lets the next `op` fail; several calls let several fail.
    pub fn fail_next(&self, op: Op, kind: ErrorKind) {
        self.plan().next.push((op, kind.into()));
    }

    /// As `fail_next`, with an error number of the system.
    pub fn fail_next_with(&self, op: Op, number: i32) {
        self.plan().next.push((op, io::Error::from_raw_os_error(number)));
    }

    /// Lets `op` fail until `mend`.
    pub fn break_down(&self, op: Op, kind: ErrorKind) {
        self.plan().broken.push((op, kind));
    }

    /// The disk works again.
    pub fn mend(&self) {
        *self.plan() = Plan::default();
    }

    /// How many times content was made durable.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// How many bytes were handed over for appending, failed ones included.
    pub fn appended(&self) -> u64 {
        self.appended.load(Ordering::Relaxed)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().expect("no test panics while it holds the plan")
    }

    fn fault(&self, op: Op) -> io::Result<()> {
        let mut plan = self.plan();
        if let Some((_, kind)) = plan.broken.iter().find(|(broken, _)| *broken == op) {
            return Err((*kind).into());
        }
        match plan.next.iter().position(|(planned, _)| *planned == op) {
            Some(index) => Err(plan.next.remove(index).1),
            None => Ok(()),
        }
    }
}

impl FileLayer for FaultyFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.fault(Op::Read)?;
        DiskFiles.read(path)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        self.fault(Op::Open)?;
        DiskFiles.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        self.fault(Op::Create)?;
        DiskFiles.create(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.fault(Op::CreateDir)?;
        DiskFiles.create_dir(path)
    }

    fn append(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        self.appended.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if let Err(error) = self.fault(Op::Append) {
            DiskFiles.append(file, &bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        DiskFiles.append(file, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
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
        self.fault(Op::Link)?;
        DiskFiles.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.fault(Op::Remove)?;
        DiskFiles.remove(path)
    }
}
