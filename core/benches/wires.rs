//! What reading a model's stream costs beside `serde_json` and `simd-json` over the same payloads, and what a turn over HTTP adds on
//! loopback to the server's own time: `make bench-wires` (MEGABYTES=1024 for the whole of it).
//!
//! The streams are those that real servers sent (`tests/fixtures/wires`), repeated.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use turnwheel::Context;
use turnwheel::llm::adapters::OpenAiChat;
use turnwheel::llm::adapters::anthropic_messages::AnthropicDecoder;
use turnwheel::llm::adapters::http::Decoder;
use turnwheel::llm::adapters::openai_chat::ChatDecoder;
use turnwheel::llm::adapters::openai_responses::ResponsesDecoder;
use turnwheel::llm::sse::{Sse, SseFramer};

/// Reads as they come from a socket.
const READ: usize = 16 * 1024;

fn stream(name: &str) -> Vec<u8> {
    let path = format!("{}/../tests/fixtures/wires/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).expect("a fixture");
    let end = bytes.iter().position(|byte| *byte == b'\n').expect("a head");
    bytes[end + 1..].to_vec()
}

fn decode(mut decoder: impl Decoder, body: &[u8]) -> usize {
    let (mut framer, mut chunks) = (SseFramer::default(), Vec::new());
    for read in body.chunks(READ) {
        let fed = framer.feed(read, |found| {
            if let Sse::Event { name, data } = found {
                decoder.payload(name, &data, &mut chunks).expect("a good stream");
            }
        });
        fed.expect("a good stream");
    }
    decoder.end(&mut chunks).expect("a whole stream");
    chunks.len()
}

fn payloads(body: &[u8]) -> Vec<String> {
    let mut payloads = Vec::new();
    let fed = SseFramer::default().feed(body, |found| {
        if let Sse::Event { data, .. } = found
            && data != "[DONE]"
        {
            payloads.push(data.into_owned());
        }
    });
    fed.expect("a good stream");
    payloads
}

/// How long this thread has had a processor; on a machine that others use as well, wall time tells of them.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux says how long a thread ran");
    let nanoseconds = stat.split(' ').next().and_then(|text| text.parse::<f64>().ok());
    nanoseconds.expect("nanoseconds come first") / 1e9
}

fn seconds(mut work: impl FnMut()) -> f64 {
    let start = processor_seconds();
    work();
    processor_seconds() - start
}

fn decoding(megabytes: usize) {
    for name in ["llamacpp-chat-text", "llamacpp-messages-text", "litellm-responses-text"] {
        let body = stream(name);
        let payloads = payloads(&body);
        // The three take turns, so that whatever else the machine does meets all of them.
        const TURNS: usize = 32;
        let rounds = (megabytes << 20) / body.len() / TURNS;
        let total = (rounds * TURNS * body.len()) as f64 / f64::from(1 << 20);
        let (mut ours, mut theirs, mut fastest, mut copied) = (0.0, 0.0, 0.0, Vec::new());
        for _ in 0..TURNS {
            ours += seconds(|| {
                for _ in 0..rounds {
                    black_box(match name {
                        "llamacpp-messages-text" => decode(AnthropicDecoder::new("made"), black_box(&body)),
                        "litellm-responses-text" => decode(ResponsesDecoder::new("made"), black_box(&body)),
                        _ => decode(ChatDecoder::new("made"), black_box(&body)),
                    });
                }
            });
            theirs += seconds(|| {
                for payload in payloads.iter().cycle().take(rounds * payloads.len()) {
                    black_box(serde_json::from_str::<serde_json::Value>(black_box(payload)).expect("JSON"));
                }
            });
            // It parses in place, so that every payload has to be copied first.
            fastest += seconds(|| {
                for payload in payloads.iter().cycle().take(rounds * payloads.len()) {
                    copied.clear();
                    copied.extend_from_slice(payload.as_bytes());
                    black_box(simd_json::to_owned_value(black_box(&mut copied)).expect("JSON"));
                }
            });
        }
        let (ours, theirs, fastest) = (total / ours, total / theirs, total / fastest);
        println!(
            "{name}: {ours:.0} MB/s to chunks; {:.2} of serde_json's {theirs:.0}, {:.2} of simd-json's {fastest:.0}",
            ours / theirs,
            ours / fastest
        );
    }
}

/// A server that answers at once and keeps its connection, so that its own time is next to nothing.
fn serve(body: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        while let Ok((mut socket, _)) = listener.accept() {
            let body = body.clone();
            std::thread::spawn(move || {
                let _ = socket.set_nodelay(true);
                let mut seen = Vec::new();
                let mut buffer = [0; 65536];
                while let Ok(read) = socket.read(&mut buffer) {
                    if read == 0 {
                        return;
                    }
                    seen.extend_from_slice(&buffer[..read]);
                    let Some(end) = seen.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
                    let head = String::from_utf8_lossy(&seen[..end]).to_lowercase();
                    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                    if seen.len() < end + 4 + length.unwrap_or(0) {
                        continue;
                    }
                    seen.clear();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
                        body.len()
                    );
                    let _ = socket.write_all(&[head.as_bytes(), &body].concat());
                }
            });
        }
    });
    url
}

fn turns() {
    let url = serve(stream("litellm-chat-text"));
    let ctx = Context::new();
    ctx.llm().register("local", OpenAiChat::builder(&url).build().expect("an adapter")).expect("a route");
    let mut times: Vec<Duration> = Vec::new();
    for session in 0..20 {
        let id = format!("s-{session}");
        let agent = ctx.runtime().block_on(ctx.agent(id).provider("local").model("m").open()).expect("opened");
        for _ in 0..25 {
            let start = Instant::now();
            let run = agent.run("hello").expect("accepted");
            ctx.runtime().block_on(run).expect("ran");
            times.push(start.elapsed());
        }
    }
    times.sort_unstable();
    let at = |part: usize| times[times.len() * part / 100].as_micros();
    println!("a turn over HTTP on loopback: median {} µs, p90 {} µs, {} turns", at(50), at(90), times.len());
}

fn main() {
    let megabytes = std::env::var("MEGABYTES").ok().and_then(|text| text.parse().ok()).unwrap_or(64);
    decoding(megabytes);
    turns();
}
