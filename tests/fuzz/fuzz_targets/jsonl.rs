//! Any bytes behind a header line, as a plain file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwheel::storage::jsonl::Compression;

fuzz_target!(|data: &[u8]| {
    let bytes = [turnwheel_fuzz::HEADER.as_bytes(), data].concat();
    if let Some(log) = turnwheel_fuzz::read(bytes, Compression::None) {
        turnwheel_fuzz::check(&log);
    }
});
