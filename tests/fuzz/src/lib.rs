//! What the fuzz targets share: a store whose one file holds whatever bytes it is given, and what must be true of every
//! log that it reads.

pub mod wire;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use turnwheel::runtime::Runtime;
use turnwheel::session::{EventLog, SessionHeader, closers};
use turnwheel::storage::jsonl::{Compression, DiskFiles, FileLayer, JsonlOptions, JsonlStore};
use turnwheel::storage::{Store, StoredLog};
use turnwheel::{Block, Code, Error, Session};

/// The header line of the session that is read.
pub const HEADER: &str = "{\"type\":\"session\",\"version\":0,\"id\":\"demo\",\"createdAt\":1,\"delegationDepth\":0}\n";

/// Files that are on the disk, with a content that is not.
struct Given(Mutex<Vec<u8>>);

impl FileLayer for Given {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.lock().expect("no panic is caught here").clone())
    }
    fn open(&self, path: &Path) -> io::Result<File> {
        DiskFiles.open(path)
    }
    fn create(&self, path: &Path) -> io::Result<File> {
        DiskFiles.create(path)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        DiskFiles.create_dir(path)
    }
    fn append(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        DiskFiles.append(file, bytes)
    }
    fn sync(&self, file: &File) -> io::Result<()> {
        DiskFiles.sync(file)
    }
    fn sync_all(&self, file: &File) -> io::Result<()> {
        DiskFiles.sync_all(file)
    }
    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        DiskFiles.truncate(file, len)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        DiskFiles.sync_dir(path)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        DiskFiles.link(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        DiskFiles.remove(path)
    }
}

struct Reader {
    files: Arc<Given>,
    store: JsonlStore,
}

fn reader(compression: Compression) -> &'static Reader {
    static READERS: OnceLock<[Reader; 2]> = OnceLock::new();
    let readers = READERS.get_or_init(|| {
        [(Compression::None, "session.jsonl"), (Compression::Zstd, "session.jsonl.zstd")].map(|(compression, name)| {
            let root: PathBuf = tempfile::tempdir().expect("a directory").keep();
            std::fs::create_dir_all(root.join("_no-cwd/demo")).expect("directories");
            std::fs::write(root.join("_no-cwd/demo").join(name), "").expect("a file");
            let files = Arc::new(Given(Mutex::default()));
            let options = JsonlOptions::new(root).compression(compression);
            Reader { store: JsonlStore::with_files(options, files.clone()), files }
        })
    });
    &readers[usize::from(compression == Compression::Zstd)]
}

/// Reads bytes as the file of a session. A refusal has a name.
pub fn read(bytes: Vec<u8>, compression: Compression) -> Option<StoredLog> {
    let reader = reader(compression);
    *reader.files.0.lock().expect("no panic is caught here") = bytes;
    match Runtime::default().block_on(reader.store.read(&"demo".into())) {
        Ok(log) => Some(log.expect("the file is there")),
        Err(error) => {
            assert_named(&error);
            None
        }
    }
}

fn assert_named(error: &Error) {
    assert!(matches!(error.code(), Code::CorruptLog | Code::UnsupportedFormat), "{error:?}");
}

/// What was read once is read again, and can be lived with.
pub fn check(log: &StoredLog) {
    assert!(log.events.iter().enumerate().all(|(at, event)| event.seq == at as u64), "seqs are indexes");
    let mut text = HEADER.to_owned();
    for event in log.events.iter() {
        text.push_str(event.json());
        text.push('\n');
    }
    let again = read(text.into_bytes(), Compression::None).expect("what was read is written as a log");
    let texts = |log: &StoredLog| log.events.iter().map(|event| event.json().to_owned()).collect::<Vec<_>>();
    assert_eq!(texts(&again), texts(log), "written and read, it is the same");
    check_repair(&log.header, &log.events);
}

/// The closers of a log end its turn once and for all, and leave a history that can be sent.
pub fn check_repair(header: &SessionHeader, events: &EventLog) {
    let mut repaired = events.clone();
    repaired.extend(closers(events).into_iter().map(Arc::new));
    assert!(closers(&repaired).is_empty(), "a repaired log needs no repair");
    // A log may be sound line by line and still not be one of an inbox; that is refused by name.
    match Session::seeded(&Runtime::default(), header.clone(), repaired) {
        Ok(session) => {
            let messages: Vec<_> = session.history().iter().collect();
            let calls = messages.iter().flat_map(|message| message.content().iter());
            // Deriving the history and rendering it must not fail, whatever the blocks are.
            assert!(calls.filter(|block| matches!(block, Block::ToolCall { .. })).count() < usize::MAX);
            messages.iter().for_each(|message| assert!(!message.json().is_empty()));
        }
        Err(error) => assert!(!error.message().is_empty(), "{error:?}"),
    }
}
