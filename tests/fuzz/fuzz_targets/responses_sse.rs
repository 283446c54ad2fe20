//! Any bytes as the stream of an answer, cut anywhere.
#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwheel::llm::adapters::openai_responses::ResponsesDecoder;

fuzz_target!(|data: &[u8]| turnwheel_fuzz::wire::check(data, || ResponsesDecoder::new("made")));
