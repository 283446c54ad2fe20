//! The stores under test.

use crate::files::KillSwitch;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::Context;
use turnwheel::storage::Store;
use turnwheel::storage::jsonl::{Compression, JsonlOptions, JsonlStore};
use turnwheel::storage::sqlite::SqliteStore;

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// JSONL files as plain text.
    Raw,
    /// JSONL files of zstd frames.
    Zstd,
    /// One SQLite database.
    Sqlite,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Raw, Kind::Zstd, Kind::Sqlite];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Raw => "raw",
            Kind::Zstd => "zstd",
            Kind::Sqlite => "sqlite",
        }
    }

    /// The kind of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The store below `directory`.
    pub fn open(self, directory: &Path) -> Rc<dyn Store> {
        match self {
            Kind::Raw | Kind::Zstd => Rc::new(JsonlStore::new(self.jsonl(directory))),
            Kind::Sqlite => Rc::new(sqlite(directory)),
        }
    }

    /// A context with the store below `directory`. With a number a store of files asks to be killed in the middle of that
    /// change to the disk.
    pub fn context(self, directory: &Path, kill_at: Option<u64>) -> Context {
        let builder = Context::builder();
        match (self, kill_at) {
            (Kind::Raw | Kind::Zstd, Some(at)) => {
                builder.store(JsonlStore::with_files(self.jsonl(directory), Arc::new(KillSwitch::new(at))))
            }
            (Kind::Raw | Kind::Zstd, None) => builder.store(JsonlStore::new(self.jsonl(directory))),
            (Kind::Sqlite, _) => builder.store(sqlite(directory)),
        }
        .build()
    }

    /// Whether its changes to the disk go through a file layer that can stop in the middle of one.
    pub fn has_switch(self) -> bool {
        self != Kind::Sqlite
    }

    fn jsonl(self, directory: &Path) -> JsonlOptions {
        let compression = if self == Kind::Raw { Compression::None } else { Compression::Zstd };
        JsonlOptions::new(directory.join("sessions")).compression(compression)
    }
}

fn sqlite(directory: &Path) -> SqliteStore {
    SqliteStore::new(directory.join("sessions.db"))
}
