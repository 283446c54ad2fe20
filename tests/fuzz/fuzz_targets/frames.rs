//! Any bytes behind the frame of a header, and the same bytes as the content of a frame of their own, cut anywhere.
#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwheel::storage::jsonl::Compression;

fuzz_target!(|data: &[u8]| {
    let header = zstd::bulk::compress(turnwheel_fuzz::HEADER.as_bytes(), 0).expect("compressed");
    if let Some(log) = turnwheel_fuzz::read([header.as_slice(), data].concat(), Compression::Zstd) {
        turnwheel_fuzz::check(&log);
    }
    let Some((cut, text)) = data.split_first() else { return };
    let mut frame = zstd::bulk::compress(text, 0).expect("compressed");
    frame.truncate(frame.len() * usize::from(*cut) / 250);
    if let Some(log) = turnwheel_fuzz::read([header, frame].concat(), Compression::Zstd) {
        turnwheel_fuzz::check(&log);
    }
});
