//! Any bytes as a whole file: what is a header and what is none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwheel::storage::jsonl::Compression;

fuzz_target!(|data: &[u8]| {
    let line = [data, b"\n"].concat();
    if let Some(log) = turnwheel_fuzz::read(line.clone(), Compression::None) {
        log.header.check().expect("a header that was read is one that may be written");
    }
    let frame = zstd::bulk::compress(&line, 0).expect("compressed");
    turnwheel_fuzz::read(frame, Compression::Zstd);
});
