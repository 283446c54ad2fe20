//! What opening a big session costs: `make bench-open`, or with EVENTS=1000000.
//!
//! The session is that of the peers' workload W5: turns of a prompt and an answer in 90 fragments. Each figure comes from
//! a process of its own, so that its peak of memory is its own. Beside them stand `serde_json` over the same bytes, a
//! line at a time, and the bare read. Rates are of processor time, which a busy machine disturbs less than time.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use turnwheel::llm::adapters::Scripted;
use turnwheel::llm::{Chunk, FinishReason};
use turnwheel::storage::Store;
use turnwheel::storage::jsonl::{Compression, JsonlOptions, JsonlStore};
use turnwheel::{Block, Context, Durability};

const WAYS: [&str; 5] = ["bytes", "serde_json Value", "serde_json RawValue", "store read", "agent open"];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, kind, way, root] = &arguments[..]
        && flag == "--measure"
    {
        return measure(kind, way, Path::new(root));
    }
    let events: u64 = std::env::var("EVENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let directory = tempfile::tempdir().expect("a directory");
    println!("{events} events; MB/s of the file's own bytes per second of processor time\n");
    println!("| file | MB | what | ms | CPU ms | MB/s | peak MB | peak / file | bytes an event |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for kind in ["plain", "packed", "zstd"] {
        let root = directory.path().join(kind);
        write(kind, &root, events);
        for way in WAYS {
            if kind == "zstd" && way.starts_with("serde_json") {
                continue;
            }
            let output = Command::new(std::env::current_exe().expect("this program"))
                .args(["--measure", kind, way])
                .arg(&root)
                .output()
                .expect("it runs again");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            print!("{}", String::from_utf8_lossy(&output.stdout));
        }
    }
}

fn options(kind: &str, root: &Path) -> JsonlOptions {
    let compression = if kind == "zstd" { Compression::Zstd } else { Compression::None };
    JsonlOptions { pack_chunks: kind != "plain", ..JsonlOptions::new(root).compression(compression) }
}

fn answer() -> Vec<Chunk> {
    let mut chunks = vec![Chunk::BlockStart { index: 0, block_type: "text".into() }];
    chunks.extend((0..88).map(|_| Chunk::TextDelta { index: 0, text: "abcdefgh".into() }));
    chunks.push(Chunk::BlockEnd { index: 0, block: Block::Text("abcdefgh".repeat(88)) });
    chunks.push(Chunk::Finish { reason: FinishReason::Stop, replay_state: None });
    chunks
}

fn write(kind: &str, root: &Path, events: u64) {
    let ctx = Context::builder().store(JsonlStore::new(options(kind, root))).durability(Durability::Relaxed).build();
    ctx.llm().register("fake", Scripted::repeat(answer())).expect("a new route");
    let runtime = ctx.runtime().clone();
    let agent = runtime.block_on(ctx.agent("big").provider("fake").model("m").open()).expect("opened");
    while agent.session().len() < events {
        agent.followup("hello").expect("accepted");
        runtime.block_on(agent.when_idle()).expect("idle");
    }
    runtime.block_on(ctx.close()).expect("stored");
}

fn measure(kind: &str, way: &str, root: &Path) {
    let path = root.join("_no-cwd/big").join(if kind == "zstd" { "session.jsonl.zstd" } else { "session.jsonl" });
    let store = JsonlStore::new(options(kind, root));
    let runtime = turnwheel::runtime::Runtime::default();
    let size = fs::metadata(&path).expect("the file").len() as f64;
    let before = peak();
    let start = Instant::now();
    let idle = processor_time();
    let mut count = 0;
    let took;
    match way {
        "bytes" => {
            let bytes = fs::read(&path).expect("the file");
            took = start.elapsed();
            assert!(!bytes.is_empty());
        }
        "store read" => {
            let log = runtime.block_on(store.read(&"big".into())).expect("readable").expect("stored");
            took = start.elapsed();
            count = log.events.len();
        }
        "agent open" => {
            let ctx = Context::builder().store(store).build();
            ctx.llm().register("fake", Scripted::repeat(answer())).expect("a new route");
            let agent = ctx.runtime().block_on(ctx.agent("big").provider("fake").model("m").open()).expect("opened");
            took = start.elapsed();
            count = agent.session().len() as usize;
        }
        _ => {
            let bytes = fs::read(&path).expect("the file");
            for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                match way {
                    "serde_json Value" => drop(serde_json::from_slice::<serde_json::Value>(line).expect("JSON")),
                    _ => drop(serde_json::from_slice::<&serde_json::value::RawValue>(line).expect("JSON")),
                }
            }
            took = start.elapsed();
        }
    }
    let busy = processor_time() - idle;
    let (mb, peak) = (size / 1e6, peak() - before);
    let per_event = if count > 0 { format!("{:.0}", peak / count as f64) } else { String::new() };
    println!(
        "| {kind} | {mb:.1} | {way} | {:.1} | {:.1} | {:.0} | {:.1} | {:.2} | {per_event} |",
        took.as_secs_f64() * 1e3,
        busy * 1e3,
        mb / busy,
        peak / 1e6,
        peak / size
    );
}

/// The most memory this process has had, in bytes. Linux only; 0 elsewhere.
fn peak() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) * 1024.0
}

/// How long the threads of this process have run, in seconds. Linux only; 0 elsewhere.
fn processor_time() -> f64 {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanoseconds = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    nanoseconds.sum::<f64>() / 1e9
}
