//! Our own stores pass the suite that we give to the authors of others.
#![cfg(feature = "sqlite")]

use std::rc::Rc;
use turnwheel::Code;
use turnwheel::storage::Store;
use turnwheel::storage::jsonl::{Compression, JsonlOptions, JsonlStore};
use turnwheel::storage::sqlite::SqliteStore;
use turnwheel::testing::{check_store, store_cases, store_suite};

#[path = "../../examples/rust/memory_store.rs"]
mod memory_store;
use memory_store::MemoryStore;

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

fn passes(open: impl Fn() -> turnwheel::Result<Rc<dyn Store>> + 'static) {
    let report = block_on(store_suite(open));
    assert_eq!(report.cases.len(), store_cases().count());
    println!("{report}");
    report.check().expect("conforming");
}

#[test]
fn jsonl_stores_conform() {
    for compression in [Compression::None, Compression::Zstd] {
        let directory = tempfile::tempdir().expect("a directory");
        let options = JsonlOptions::new(directory.path().join("sessions")).compression(compression);
        passes(move || Ok(Rc::new(JsonlStore::new(options.clone()))));
    }
}

#[test]
fn sqlite_stores_conform() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("new/sessions.db");
    passes(move || Ok(Rc::new(SqliteStore::new(&path))));
}

#[test]
fn the_example_of_a_store_in_memory_conforms() {
    let store = MemoryStore::default();
    passes(move || Ok(Rc::new(store.clone())));
}

/// A store without a lock that takes any batch, for what the suite finds.
mod careless {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use turnwheel::Result;
    use turnwheel::id::SessionId;
    use turnwheel::runtime::LocalBoxFuture;
    use turnwheel::session::{Event, SessionHeader};
    use turnwheel::storage::{Opened, SessionWriter, StoredLog};

    type Logs = Rc<RefCell<BTreeMap<SessionId, StoredLog>>>;

    #[derive(Clone, Default)]
    pub struct Careless(Logs);

    struct Writer(Logs, SessionHeader);

    fn ready<T: 'static>(value: T) -> LocalBoxFuture<T> {
        Box::pin(std::future::ready(value))
    }

    impl Store for Careless {
        fn list(&self) -> LocalBoxFuture<Result<Vec<SessionHeader>>> {
            ready(Ok(self.0.borrow().values().map(|log| log.header.clone()).collect()))
        }

        fn read(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<StoredLog>>> {
            ready(Ok(self.0.borrow().get(id).cloned()))
        }

        fn open(&self, id: &SessionId) -> LocalBoxFuture<Result<Option<Opened>>> {
            let log = self.0.borrow().get(id).cloned();
            let writer = |header| Rc::new(Writer(self.0.clone(), header)) as Rc<dyn SessionWriter>;
            ready(Ok(log.map(|log| (log.clone(), writer(log.header)))))
        }

        fn create(&self, header: &SessionHeader) -> LocalBoxFuture<Result<Rc<dyn SessionWriter>>> {
            ready(Ok(Rc::new(Writer(self.0.clone(), header.clone()))))
        }
    }

    impl SessionWriter for Writer {
        fn append(&self, events: Vec<Arc<Event>>) -> LocalBoxFuture<Result<()>> {
            let mut logs = self.0.borrow_mut();
            let log =
                StoredLog { header: self.1.clone(), events: Default::default(), replaced_characters: 0, torn_bytes: 0 };
            logs.entry(self.1.id.clone()).or_insert(log).events.extend(events);
            ready(Ok(()))
        }

        fn close(&self) -> LocalBoxFuture<()> {
            ready(())
        }
    }
}

#[test]
fn a_careless_store_fails_and_the_report_says_where() {
    let store = careless::Careless::default();
    let shared = store.clone();
    let report = block_on(store_suite(move || Ok(Rc::new(shared.clone()))));
    let failed: Vec<_> = report.cases.iter().filter(|case| case.failure.is_some()).map(|case| case.name).collect();
    assert_eq!(
        failed,
        [
            "a_batch_must_follow_the_log",
            "a_refused_batch_leaves_nothing_behind",
            "an_empty_batch_does_nothing",
            "an_id_is_created_once",
            "a_session_has_one_writer",
            "a_closed_writer_takes_nothing",
            "a_session_is_copied_whole_and_never_over_another",
        ]
    );
    let text = report.to_string();
    assert!(text.contains("FAILED  a_session_has_one_writer: opening what its creator writes succeeded"), "{text}");
    assert_eq!(report.check().expect_err("not conforming").code(), &Code::Invariant);
    let one = block_on(check_store("a_session_has_one_writer", move || Ok(Rc::new(store.clone()))));
    assert_eq!(one.expect_err("not conforming").code(), &Code::Invariant);
    let none = block_on(check_store("no such case", || Ok(Rc::new(careless::Careless::default()))));
    assert_eq!(none.expect_err("unknown").code(), &Code::InvalidArgument);
}
