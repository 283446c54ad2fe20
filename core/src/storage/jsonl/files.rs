//! The few file operations that durability hangs on, behind a trait, so that a test can make a disk full or a sync fail.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Reads, writes and syncs. [`DiskFiles`] is the real one.
pub trait FileLayer: Send + Sync {
    /// The whole content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Appends all of `bytes` to a file that was opened for appending. May fail after a part was written.
    fn append(&self, file: &File, bytes: &[u8]) -> io::Result<()>;

    /// Makes a file's content and length durable.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Makes everything about a file durable, as a new one needs.
    fn sync_all(&self, file: &File) -> io::Result<()>;

    /// Cuts a file.
    fn truncate(&self, file: &File, len: u64) -> io::Result<()>;

    /// Makes the entries of a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Gives a file a second name; fails when that name is taken.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
}

/// The operating system's files.
#[derive(Debug, Default)]
pub struct DiskFiles;

impl FileLayer for DiskFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn append(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        // The length is part of what fdatasync makes durable; times are not, and nobody needs them.
        file.sync_data()
    }

    fn sync_all(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    #[cfg(unix)]
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    #[cfg(not(unix))]
    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }
}

/// Opens an existing session file to append to it.
pub(super) fn open_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).open(path)
}

/// Creates a file that nobody else can read, to append to it; fails when it exists (JL-17).
pub(in crate::storage) fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Creates a directory and its missing parents, private to the user, and syncs each new one's parent (JL-17).
pub(in crate::storage) fn create_private_dirs(layer: &dyn FileLayer, path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        create_private_dirs(layer, parent)?;
    }
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Ok(()) => layer.sync_dir(parent.unwrap_or(Path::new("."))),
        // Another writer was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Tells one content of a session's file from another (JL-21): device, inode, size, modification and change time.
/// Compare for equality only; a listing or an index that kept one knows by it whether it must read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Revision([i128; 5]);

impl fmt::Display for Revision {
    /// A text that is equal exactly when the revision is, to keep in an index.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [device, inode, size, modified, changed] = self.0;
        write!(f, "{device:x}-{inode:x}-{size:x}-{modified:x}-{changed:x}")
    }
}

impl Revision {
    /// Whether `later` is the same file with at least as many bytes.
    pub(super) fn may_have_grown_to(&self, later: &Self) -> bool {
        self.0[..2] == later.0[..2] && self.0[2] <= later.0[2]
    }

    /// The size in bytes.
    pub(super) fn size(&self) -> usize {
        usize::try_from(self.0[2]).unwrap_or(usize::MAX)
    }

    /// The revision of the file at `path` now.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let data = fs::metadata(path)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
            let modified = nanos(data.mtime(), data.mtime_nsec());
            let changed = nanos(data.ctime(), data.ctime_nsec());
            Ok(Self([data.dev().into(), data.ino().into(), data.size().into(), modified, changed]))
        }
        #[cfg(not(unix))]
        {
            let since = data.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            Ok(Self([0, 0, data.len().into(), since.as_nanos() as i128, 0]))
        }
    }
}
