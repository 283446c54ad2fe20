//! Any members of a packed row, behind the events that it may follow.
#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwheel::storage::jsonl::Compression;

fuzz_target!(|data: &[u8]| {
    let (kind, members) = data.split_first().map_or((0, data), |(kind, members)| (*kind, members));
    let kind = ["text-chunks", "reasoning-chunks", "tool-call-chunks"][usize::from(kind) % 3];
    let before = "{\"type\":\"turn/start\",\"seq\":0,\"time\":1,\"data\":{\"turn\":1}}\n";
    let mut bytes = format!("{}{before}{{\"type\":\"{kind}\",", turnwheel_fuzz::HEADER).into_bytes();
    bytes.extend_from_slice(members);
    bytes.push(b'\n');
    if let Some(log) = turnwheel_fuzz::read(bytes, Compression::None) {
        turnwheel_fuzz::check(&log);
    }
});
