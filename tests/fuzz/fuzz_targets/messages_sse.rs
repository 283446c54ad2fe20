//! Any bytes as the stream of an answer, cut anywhere.
#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwheel::llm::adapters::anthropic_messages::AnthropicDecoder;

fuzz_target!(|data: &[u8]| turnwheel_fuzz::wire::check(data, || AnthropicDecoder::new("made")));
