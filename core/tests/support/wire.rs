//! Decoding recorded streams, whatever the wire.
#![allow(dead_code, clippy::unwrap_used)]

use turnwheel::llm::adapters::http::{Decoder, Progress};
use turnwheel::llm::sse::{Sse, SseFramer};
use turnwheel::llm::{Chunk, Failure, FinishReason};
use turnwheel::message::{Block, Usage};

/// An answer as a consumer sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub chunks: Vec<Chunk>,
    pub failure: Option<Failure>,
    /// The answer was finished by the sentinel, before the body ended.
    pub is_done_early: bool,
    pub keep_alives: usize,
    pub skipped: u64,
}

/// Decodes a body that arrives in these reads. Nothing is asked of a decoder after it failed or was done.
pub fn decode_with(decoder: &mut impl Decoder, reads: &[&[u8]]) -> Answer {
    let mut framer = SseFramer::default();
    let (mut chunks, mut outcome, mut keep_alives) = (Vec::new(), Ok(Progress::More), 0);
    for read in reads {
        let fed = framer.feed(read, |found| {
            if let (Sse::Event { name, data }, Ok(Progress::More | Progress::KeepAlive)) = (found, &outcome) {
                outcome = decoder.payload(name, &data, &mut chunks);
                keep_alives += usize::from(outcome == Ok(Progress::KeepAlive));
            }
        });
        assert_eq!(fed, Ok(()));
    }
    let is_done_early = outcome == Ok(Progress::Done);
    let failure = match outcome {
        Ok(Progress::More | Progress::KeepAlive) => decoder.end(&mut chunks).err(),
        Ok(Progress::Done) => None,
        Err(failure) => Some(failure),
    };
    Answer { chunks, failure, is_done_early, keep_alives, skipped: decoder.skipped() }
}

/// Every cut in two of a body, and a byte at a time, under these line endings, gives what the whole gives.
pub fn assert_cuts_do_not_matter<D: Decoder>(body: &str, endings: &[&str], decoder: impl Fn() -> D) {
    let whole = decode_with(&mut decoder(), &[body.as_bytes()]);
    for ending in endings {
        let body = body.replace('\n', ending);
        for cut in 0..=body.len() {
            let (a, b) = body.as_bytes().split_at(cut);
            assert_eq!(decode_with(&mut decoder(), &[a, b]), whole, "{ending:?} cut at {cut}");
        }
        let bytes = body.as_bytes().chunks(1).collect::<Vec<_>>();
        assert_eq!(decode_with(&mut decoder(), &bytes), whole, "{ending:?} a byte at a time");
    }
}

impl Answer {
    pub fn blocks(&self) -> Vec<Block> {
        let ends = self.chunks.iter().filter_map(|chunk| match chunk {
            Chunk::BlockEnd { block, .. } => Some(block.clone()),
            _ => None,
        });
        ends.collect()
    }

    pub fn text(&self) -> String {
        self.blocks().iter().filter_map(Block::text).collect()
    }

    /// Id, name and arguments of the calls.
    pub fn calls(&self) -> Vec<(String, String, String)> {
        let calls = self.blocks().into_iter().filter_map(|block| match block {
            Block::ToolCall { id, name, arguments } => Some((id.as_str().to_owned(), name, arguments)),
            _ => None,
        });
        calls.collect()
    }

    pub fn finish(&self) -> Option<&FinishReason> {
        match self.chunks.last() {
            Some(Chunk::Finish { reason, .. }) => Some(reason),
            _ => None,
        }
    }

    pub fn code(&self) -> String {
        match (&self.failure, self.finish()) {
            (Some(failure), None) => failure.code.clone(),
            (None, Some(FinishReason::Error(failure) | FinishReason::Aborted(failure))) => failure.code.clone(),
            (None, Some(reason)) => reason.kind().to_owned(),
            (failure, finish) => panic!("an answer ends once: {failure:?}, {finish:?}"),
        }
    }

    pub fn usage(&self) -> Option<Usage> {
        self.chunks.iter().find_map(|chunk| if let Chunk::Usage(usage) = chunk { Some(*usage) } else { None })
    }
}

/// A body of these payloads.
pub fn body(payloads: &[&str]) -> String {
    payloads.iter().map(|payload| format!("data: {payload}\n\n")).collect()
}
