//! What any decoder of a model wire must do with any bytes: not panic, not depend on cuts, end at most once.

use turnwheel::llm::adapters::http::{Decoder, Progress};
use turnwheel::llm::sse::{Sse, SseFramer};
use turnwheel::llm::{Chunk, Failure};

type Answer = (Vec<Chunk>, Result<(), Failure>);

fn decode<D: Decoder>(mut decoder: D, reads: &[&[u8]]) -> Answer {
    let mut framer = SseFramer::with_limit(1 << 20);
    let (mut chunks, mut outcome) = (Vec::new(), Ok(Progress::More));
    for read in reads {
        let fed = framer.feed(read, |found| {
            if let (Sse::Event { name, data }, Ok(Progress::More | Progress::KeepAlive)) = (found, &outcome) {
                outcome = decoder.payload(name, &data, &mut chunks);
            }
        });
        if fed.is_err() {
            return (chunks, Err(Failure::new("MALFORMED_RESPONSE", "too large")));
        }
    }
    let ended = match outcome {
        Ok(Progress::Done) => Ok(()),
        Ok(Progress::More | Progress::KeepAlive) => decoder.end(&mut chunks),
        Err(failure) => Err(failure),
    };
    (chunks, ended)
}

/// Reads the bytes as a stream, whole, cut in two, and in equal pieces; the first byte says where.
pub fn check<D: Decoder>(data: &[u8], decoder: impl Fn() -> D) {
    let Some((cut, body)) = data.split_first() else { return };
    let (left, right) = body.split_at(body.len() * usize::from(*cut) / 255);
    let whole = decode(decoder(), &[body]);
    assert_eq!(decode(decoder(), &[left, right]), whole);
    let pieces: Vec<_> = body.chunks(usize::from(*cut) % 8 + 1).collect();
    assert_eq!(decode(decoder(), &pieces), whole);
    let finishes = whole.0.iter().filter(|chunk| matches!(chunk, Chunk::Finish { .. })).count();
    assert_eq!(finishes, usize::from(whole.1.is_ok()), "an answer ends once: with a finish or with a failure");
    assert!(finishes == 0 || matches!(whole.0.last(), Some(Chunk::Finish { .. })), "nothing follows the finish");
}
