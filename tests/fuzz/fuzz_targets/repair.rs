//! Logs of real event types in any order, with any numbers: what repair adds, and whether it adds it once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwheel::storage::jsonl::Compression;

/// One event of a type that repair looks at; `a` and `b` choose turn, step and call.
fn event(kind: u8, a: u8, b: u8, seq: usize) -> String {
    let (turn, step, call) = (a % 3, b % 3, b % 4);
    let (kind, data, rest) = match kind % 8 {
        0 => ("turn/start", format!("{{\"turn\":{turn}}}"), ""),
        1 => ("turn/end", format!("{{\"turn\":{turn},\"reason\":{{\"kind\":\"completed\"}}}}"), ""),
        2 => ("step/start", format!("{{\"turn\":{turn},\"step\":{step}}}"), ""),
        3 => ("step/end", format!("{{\"turn\":{turn},\"step\":{step}}}"), ""),
        4 => (
            "assistant/message",
            format!(
                "{{\"turn\":{turn},\"step\":{step},\"message\":{{\"role\":\"assistant\",\"content\":[{{\"type\":\
                 \"tool-call\",\"id\":\"c{call}\",\"name\":\"t\",\"arguments\":\"{{}}\"}},{{\"type\":\"tool-call\",\"id\":\
                 \"d{call}\",\"name\":\"t\",\"arguments\":\"\"}}],\"source\":{{\"kind\":\"model\",\"provider\":\"p\",\
                 \"model\":\"m\"}},\"id\":\"a{seq}\"}}}}"
            ),
            ",\"surfaceOp\":\"append\"",
        ),
        5 => (
            "tool/call",
            format!("{{\"turn\":{turn},\"step\":{step},\"callId\":\"c{call}\",\"name\":\"t\",\"arguments\":\"\"}}"),
            "",
        ),
        6 => (
            "tool/result",
            format!(
                "{{\"turn\":{turn},\"step\":{step},\"message\":{{\"source\":{{\"kind\":\"tool\",\"callId\":\"c{call}\"}},\
                 \"content\":[{{\"type\":\"tool-result\",\"toolCallId\":\"c{call}\",\"content\":[],\"isError\":false}}],\
                 \"role\":\"user\",\"id\":\"r{seq}\"}}}}"
            ),
            ",\"surfaceOp\":\"append\"",
        ),
        _ => (
            "user/message",
            format!(
                "{{\"content\":[{{\"type\":\"text\",\"text\":\"x\"}}],\"source\":{{\"kind\":\"user\"}},\"role\":\"user\",\
                 \"id\":\"u{seq}\"}}"
            ),
            ",\"surfaceOp\":\"append\"",
        ),
    };
    format!("{{\"type\":\"{kind}\",\"seq\":{seq},\"time\":{seq},\"data\":{data}{rest}}}\n")
}

fuzz_target!(|data: &[u8]| {
    let mut text = turnwheel_fuzz::HEADER.to_owned();
    for (seq, bytes) in data.chunks_exact(3).enumerate() {
        text.push_str(&event(bytes[0], bytes[1], bytes[2], seq));
    }
    let log = turnwheel_fuzz::read(text.into_bytes(), Compression::None).expect("every event is well formed");
    turnwheel_fuzz::check(&log);
});
