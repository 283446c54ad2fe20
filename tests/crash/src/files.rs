//! A file layer that asks to be killed in the middle of a certain change to the disk.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use turnwheel::storage::jsonl::{DiskFiles, FileLayer};

/// What a child prints to be killed at once.
pub(crate) const KILL_ME: &str = "kill me";

/// The disk up to a certain change.
pub(crate) struct KillSwitch {
    left: AtomicU64,
}

impl KillSwitch {
    pub(crate) fn new(at: u64) -> Self {
        Self { left: AtomicU64::new(at) }
    }

    /// At the chosen change does `half` of it and waits for the end.
    fn change<T>(&self, half: impl FnOnce() -> io::Result<()>, whole: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.left.fetch_sub(1, Ordering::SeqCst) != 1 {
            return whole();
        }
        half()?;
        let mut output = io::stdout().lock();
        writeln!(output, "{KILL_ME}")?;
        output.flush()?;
        loop {
            std::thread::park();
        }
    }
}

impl FileLayer for KillSwitch {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        DiskFiles.read(path)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        DiskFiles.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        self.change(|| DiskFiles.create(path).map(drop), || DiskFiles.create(path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.change(|| Ok(()), || DiskFiles.create_dir(path))
    }

    fn append(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        // Where the write is torn depends on what is written: over many lives that is anywhere.
        let torn = bytes.iter().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
        let torn = torn % (bytes.len() + 1);
        self.change(|| DiskFiles.append(file, &bytes[..torn]), || DiskFiles.append(file, bytes))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.change(|| Ok(()), || DiskFiles.sync(file))
    }

    fn sync_all(&self, file: &File) -> io::Result<()> {
        self.change(|| Ok(()), || DiskFiles.sync_all(file))
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        self.change(|| DiskFiles.truncate(file, len), || DiskFiles.truncate(file, len))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.change(|| Ok(()), || DiskFiles.sync_dir(path))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|| DiskFiles.link(from, to), || DiskFiles.link(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(|| Ok(()), || DiskFiles.remove(path))
    }
}
