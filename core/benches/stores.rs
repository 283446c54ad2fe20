//! How fast the stores are on the disk of TMPDIR: durable batches of one and of many sessions, and opening a long session.
//!
//!     TMPDIR=<a directory on the disk> cargo bench -p turnwheel --bench stores

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use turnwheel::json;
use turnwheel::runtime::Runtime;
use turnwheel::session::{Event, SessionHeader};
use turnwheel::storage::Store;
use turnwheel::storage::jsonl::{Compression, JsonlOptions, JsonlStore};
use turnwheel::storage::sqlite::SqliteStore;

/// How long each throughput is measured.
const SPAN: Duration = Duration::from_secs(4);

/// Events a batch: what a step logs around a tool call.
const BATCH: u64 = 4;

const LONG: u64 = 100_000;

fn event(seq: u64) -> Arc<Event> {
    let turn = seq / BATCH + 1;
    let text = match seq % BATCH {
        0 => format!(r#"{{"type":"step/start","seq":{seq},"time":{seq},"data":{{"turn":{turn},"step":1}}}}"#),
        1 => format!(
            r#"{{"type":"tool/call","seq":{seq},"time":{seq},"data":{{"turn":{turn},"step":1,"callId":"call-{seq}","name":"lookup","arguments":"{{\"row\":{seq}}}"}}}}"#
        ),
        2 => format!(
            r#"{{"type":"feedback/record","seq":{seq},"time":{seq},"data":{{"text":"what the tool found in row {seq}: {}"}}}}"#,
            seq.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ),
        _ => format!(r#"{{"type":"step/end","seq":{seq},"time":{seq},"data":{{"turn":{turn},"step":1}}}}"#),
    };
    Arc::new(Event::from_value(&json::parse(&text).expect("JSON")).expect("an event"))
}

fn stores(root: &Path) -> Vec<(&'static str, Rc<dyn Store>)> {
    let jsonl =
        |name: &str, compression| Rc::new(JsonlStore::new(JsonlOptions::new(root.join(name)).compression(compression)));
    vec![
        ("JSONL plain", jsonl("plain", Compression::None)),
        ("JSONL zstd", jsonl("zstd", Compression::Zstd)),
        ("SQLite", Rc::new(SqliteStore::new(root.join("sessions.db")))),
    ]
}

/// Durable batches a second of `agents` sessions that are written at once.
fn throughput(store: &Rc<dyn Store>, agents: usize) -> f64 {
    let runtime = Runtime::default();
    let (stored, left) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(agents)));
    let (done, is_done) = turnwheel::runtime::oneshot::<()>();
    let done = Rc::new(Cell::new(Some(done)));
    let start = Instant::now();
    for agent in 0..agents {
        let (store, stored, left, done) = (store.clone(), stored.clone(), left.clone(), done.clone());
        runtime.spawn(async move {
            let header = SessionHeader::new(format!("{agents}-{agent}"), 1);
            let writer = store.create(&header).await.expect("a writer");
            let mut seq = 0;
            while start.elapsed() < SPAN {
                let batch = (seq..seq + BATCH).map(event).collect();
                writer.append(batch).await.expect("a batch");
                seq += BATCH;
                stored.set(stored.get() + 1);
            }
            writer.close().await;
            left.set(left.get() - 1);
            if left.get() == 0 {
                done.take();
            }
        });
    }
    runtime.block_on(is_done);
    stored.get() as f64 / start.elapsed().as_secs_f64()
}

fn opening(store: &Rc<dyn Store>) -> Duration {
    let runtime = Runtime::default();
    runtime.block_on(async {
        let header = SessionHeader::new("long", 1);
        let writer = store.create(&header).await.expect("a writer");
        for first in (0..LONG).step_by(100) {
            writer.append((first..first + 100).map(event).collect()).await.expect("a batch");
        }
        writer.close().await;
        let start = Instant::now();
        let (log, writer) = store.open(&header.id).await.expect("readable").expect("stored");
        let taken = start.elapsed();
        assert_eq!(log.events.len() as u64, LONG);
        writer.close().await;
        taken
    })
}

fn main() {
    let directory = tempfile::tempdir().expect("a directory");
    println!("{:<12} {:>14} {:>14} {:>18}", "store", "1 agent", "64 agents", "open 100,000");
    for (name, store) in stores(directory.path()) {
        let (one, many) = (throughput(&store, 1), throughput(&store, 64));
        let open = opening(&store);
        println!("{name:<12} {one:>8.0} b/s {many:>10.0} b/s {:>15.0} ms", open.as_secs_f64() * 1000.0);
    }
    println!("b/s: durable batches of {BATCH} events a second, in {}", directory.path().display());
}
