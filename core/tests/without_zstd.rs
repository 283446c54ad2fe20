//! A build without the feature `zstd`: plain files as ever, and a clear refusal of compressed ones. `make test-rust` runs it.
#![cfg(all(feature = "sqlite", not(feature = "zstd")))]
#![allow(clippy::unwrap_used)]

use std::path::Path;
use turnwheel::llm::adapters::Scripted;
use turnwheel::storage::Store;
use turnwheel::storage::jsonl::{Compression, JsonlOptions, JsonlStore};
use turnwheel::storage::sqlite::SqliteStore;
use turnwheel::{Code, Context, Error};

fn answer(store: impl Store + 'static) -> Result<String, Error> {
    let ctx = Context::builder().store(store).build();
    ctx.llm().register("m", Scripted::new().text("hello ".repeat(2_000)).text("again"))?;
    ctx.runtime().block_on(async {
        let agent = ctx.agent("a").provider("m").model("m").open().await?;
        let text = agent.run("hi")?.await?.text;
        ctx.close().await?;
        Ok(text)
    })
}

#[test]
fn what_is_written_is_plain_and_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let options = JsonlOptions::new(folder.path());
    assert_eq!(options.compression, Compression::None, "the default is what the build can do");
    assert!(answer(JsonlStore::new(options.clone())).unwrap().starts_with("hello"));
    assert!(answer(JsonlStore::new(options)).unwrap().starts_with("hello"), "resumed");
    let database = folder.path().join("sessions.db");
    assert!(answer(SqliteStore::new(&database)).unwrap().starts_with("hello"));
    assert!(answer(SqliteStore::new(&database)).unwrap().starts_with("hello"), "resumed");
}

#[test]
fn compressed_files_are_refused_by_name_and_left_alone() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/samples/01-plain-text.jsonl.zstd");
    let bytes = std::fs::read(&sample).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.jsonl.zstd");
    std::fs::write(&path, &bytes).unwrap();
    let refused = turnwheel::storage::jsonl::read_log(&path).map(drop).unwrap_err();
    assert_eq!(*refused.code(), Code::UnsupportedFormat);
    assert!(refused.message().contains("feature `zstd`"), "{refused}");
    let mut options = JsonlOptions::new(folder.path());
    options.compression = Compression::Zstd;
    let refused = answer(JsonlStore::new(options)).unwrap_err();
    assert_eq!(*refused.code(), Code::UnsupportedFormat);
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}
