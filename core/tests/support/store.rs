//! A JSONL store in a directory of its own, and events to put into it.

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use tempfile::TempDir;
use turnwheel::id::SessionId;
use turnwheel::json::Value;
use turnwheel::session::{Event, SessionHeader};
use turnwheel::storage::jsonl::{Compression, FileLayer, JsonlOptions, JsonlStore};
use turnwheel::storage::{SessionWriter, Store, StoredLog};
use turnwheel::{Code, Result, json};

/// Both encodings.
pub const BOTH: [Compression; 2] = [Compression::None, Compression::Zstd];

/// Runs a future of the store to its end.
pub fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// A store and its directory.
pub struct Fixture {
    _directory: TempDir,
    pub root: PathBuf,
    pub store: JsonlStore,
    pub header: SessionHeader,
}

impl Fixture {
    /// An empty store.
    pub fn new(compression: Compression) -> Self {
        Self::with(|options| options.compression(compression))
    }

    /// An empty store with options.
    pub fn with(options: impl FnOnce(JsonlOptions) -> JsonlOptions) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("sessions");
        let store = JsonlStore::new(options(JsonlOptions::new(&root)));
        let mut header = SessionHeader::new("demo", 1_700_000_000_000);
        header.cwd = Some("/home/demo".into());
        Self { _directory: directory, root, store, header }
    }

    /// The same files through another layer.
    pub fn through(&mut self, files: Arc<dyn FileLayer>) {
        self.store = JsonlStore::with_files(self.store.options().clone(), files);
    }

    pub fn path(&self) -> PathBuf {
        self.store.path_of(&self.header).expect("the header has a path")
    }

    pub fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).expect("the session's file")
    }

    /// Puts a file where the session belongs.
    pub fn put(&self, bytes: &[u8]) {
        put(&self.path(), bytes);
    }

    pub fn read(&self) -> Result<Option<StoredLog>> {
        block_on(self.store.read(&self.header.id))
    }

    pub fn log(&self) -> StoredLog {
        self.read().expect("readable").expect("stored")
    }

    pub fn create(&self) -> Result<Rc<dyn SessionWriter>> {
        block_on(self.store.create(&self.header))
    }

    pub fn open(&self) -> Result<Option<(StoredLog, Rc<dyn SessionWriter>)>> {
        block_on(self.store.open(&self.header.id))
    }

    /// Writes a new session in batches of the given sizes; the last one takes the rest.
    pub fn write(&self, events: &[Arc<Event>], sizes: &[usize]) {
        let writer = self.create().expect("a writer");
        let mut rest = events;
        for size in sizes {
            let (batch, others) = rest.split_at((*size).min(rest.len()));
            append(&writer, batch).expect("a batch");
            rest = others;
        }
        append(&writer, rest).expect("the last batch");
        block_on(writer.close());
    }
}

/// Writes a file and the directories it needs.
pub fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
    fs::write(path, bytes).expect("a file");
}

/// Appends a batch.
pub fn append(writer: &Rc<dyn SessionWriter>, events: &[Arc<Event>]) -> Result<()> {
    block_on(writer.append(events.to_vec()))
}

/// The code of a result that has to be an error.
pub fn code<T>(result: Result<T>) -> Code {
    result.map(drop).expect_err("an error").code().clone()
}

/// The events of a sample, packed rows included.
pub fn sample(name: &str) -> Vec<Arc<Event>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/samples").join(name);
    let value = json::parse(&fs::read_to_string(path).expect("a sample")).expect("JSON");
    let events = value.get("events").and_then(Value::as_array).expect("events");
    events.iter().map(|event| Arc::new(Event::from_value(event).expect("an event"))).collect()
}

/// Whole turns without content, from `seq` 0 on: three events a turn.
pub fn turns(count: u64) -> Vec<Arc<Event>> {
    let turn = |turn: u64| {
        let seq = (turn - 1) * 3;
        [
            format!(r#"{{"type":"turn/start","seq":{seq},"time":1,"data":{{"turn":{turn}}}}}"#),
            format!(r#"{{"type":"plan/mode","seq":{},"time":2,"data":{{"active":true}}}}"#, seq + 1),
            format!(
                r#"{{"type":"turn/end","seq":{},"time":3,"data":{{"turn":{turn},"reason":{{"kind":"completed"}}}}}}"#,
                seq + 2
            ),
        ]
    };
    (1..=count).flat_map(turn).map(|text| event(&text)).collect()
}

/// An event by its text.
pub fn event(text: &str) -> Arc<Event> {
    Arc::new(Event::from_value(&json::parse(text).expect("JSON")).expect("an event"))
}

/// An id.
pub fn id(text: &str) -> SessionId {
    SessionId::from(text)
}
