//! The file operations that durability hangs on, behind a trait, so that a test can make a disk full, let a sync fail,
//! or cut the power: whatever changes the disk goes through here.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Reads, writes and syncs. [`DiskFiles`] is the real one.
pub trait FileLayer: Send + Sync {
    /// The whole content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Opens an existing file to read it and to append to it.
    fn open(&self, path: &Path) -> io::Result<File>;

    /// Creates a file that nobody else can read, to append to it; fails when it exists (JL-17).
    fn create(&self, path: &Path) -> io::Result<File>;

    /// Creates a directory that nobody else can read; fails when it exists (JL-17).
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Appends all of `bytes` to a file that was opened for appending. May fail after a part was written.
    fn append(&self, file: &File, bytes: &[u8]) -> io::Result<()>;

    /// Makes a file's content and length durable. After a failure nothing written since the last success may be trusted:
    /// a later success does not cover it (what the system could not write it may have forgotten).
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Makes everything about a file durable, as a new one needs.
    fn sync_all(&self, file: &File) -> io::Result<()>;

    /// Cuts a file.
    fn truncate(&self, file: &File, len: u64) -> io::Result<()>;

    /// Makes the entries of a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Gives a file a second name; fails when that name is taken.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Takes a name away.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The operating system's files.
#[derive(Debug, Default)]
pub struct DiskFiles;

impl FileLayer for DiskFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).append(true).open(path)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path)
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

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

/// Directories that were met before, and whether their names are durable.
pub(in crate::storage) type KnownDirs = Mutex<HashMap<PathBuf, bool>>;

/// Creates a directory and its missing parents, private to the user, and makes their names durable (JL-17). One below
/// `root` that is there already may be another writer's, or left by an attempt that failed before its name was durable;
/// so it is synced once as well.
pub(in crate::storage) fn create_private_dirs(
    layer: &dyn FileLayer,
    path: &Path,
    root: &Path,
    dirs: &KnownDirs,
) -> io::Result<()> {
    let known = || dirs.lock().unwrap_or_else(PoisonError::into_inner);
    let is_durable = known().get(path).copied();
    if is_durable == Some(true) {
        return Ok(());
    }
    let is_there = path.is_dir();
    if is_there && is_durable.is_none() && !path.starts_with(root) {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        create_private_dirs(layer, parent, root, dirs)?;
    }
    if !is_there {
        match layer.create_dir(path) {
            Ok(()) => drop(known().insert(path.to_owned(), false)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
    layer.sync_dir(parent.unwrap_or(Path::new(".")))?;
    // The folders of single sessions are too many to remember, and each is made once.
    match parent.and_then(Path::parent) == Some(root) {
        true => known().remove(path),
        false => known().insert(path.to_owned(), true),
    };
    Ok(())
}

/// Whether two files are one.
#[cfg(unix)]
pub(super) fn is_same(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
pub(super) fn is_same(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    false
}

/// Whether the file still has a name: what is written to one without is gone when it is closed.
#[cfg(unix)]
pub(super) fn is_named(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    Ok(file.metadata()?.nlink() > 0)
}

#[cfg(not(unix))]
pub(super) fn is_named(_: &File) -> io::Result<bool> {
    Ok(true)
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
