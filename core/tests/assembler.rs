//! Chunks and their assembly, by the ids of `data.md` (STR, BLK).
#![allow(clippy::unwrap_used)]

use turnwheel::json;
use turnwheel::json::Value;
use turnwheel::llm::{Assembler, Chunk, Failure, FinishReason};
use turnwheel::message::{Block, Usage};

fn assembled(chunks: &[Chunk]) -> Assembler {
    let mut assembler = Assembler::new();
    chunks.iter().for_each(|chunk| assembler.push(chunk));
    assembler
}

fn content(chunks: &[Chunk]) -> Vec<Block> {
    assembled(chunks).assemble().unwrap().content
}

fn start(index: u64, kind: &str) -> Chunk {
    Chunk::BlockStart { index, block_type: kind.into() }
}

fn text(index: u64, text: &str) -> Chunk {
    Chunk::TextDelta { index, text: text.into() }
}

fn end(index: u64, block: Block) -> Chunk {
    Chunk::BlockEnd { index, block }
}

fn call_delta(index: u64, id: Option<&str>, name: Option<&str>, fragment: &str) -> Chunk {
    Chunk::ToolCallDelta { index, id: id.map(Into::into), name: name.map(Into::into), arguments_delta: fragment.into() }
}

fn call(id: &str, name: &str, arguments: &str) -> Block {
    Block::ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }
}

fn finish(reason: FinishReason, replay_state: Option<Value>) -> Chunk {
    Chunk::Finish { reason, replay_state: replay_state.map(Box::new) }
}

fn said(text: &str) -> Block {
    Block::Text(text.into())
}

#[test]
fn str_01_and_02_every_shape_is_read_and_written_as_it_is() {
    let failure = json!({"message": "m", "code": "c"});
    let shapes = [
        json!({"type": "block-start", "index": 0, "blockType": "text"}),
        json!({"type": "text-delta", "index": 0, "text": "t"}),
        json!({"type": "reasoning-delta", "index": 0, "text": "t"}),
        json!({"type": "tool-call-delta", "index": 0, "argumentsDelta": ""}),
        json!({"type": "tool-call-delta", "index": 0, "id": "i", "name": "n", "argumentsDelta": "{"}),
        json!({"type": "block-end", "index": 0, "block": {"type": "text", "text": ""}}),
        json!({"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 2}}),
        json!({"type": "finish", "reason": {"kind": "stop"}}),
        json!({"type": "finish", "reason": {"kind": "tool-calls"}, "replayState": {"response": {}, "blocks": [null]}}),
        json!({"type": "finish", "reason": {"kind": "max-tokens"}}),
        json!({"type": "finish", "reason": {"kind": "error", "failure": (failure.clone())}}),
        json!({"type": "finish", "reason": {"kind": "aborted", "failure": (failure)}}),
    ];
    for shape in shapes {
        let chunk = Chunk::from_value(&shape).unwrap_or_else(|| panic!("{}", shape.to_text()));
        let mut text = String::new();
        chunk.write(&mut text);
        assert_eq!(text, shape.to_text());
    }
    assert_eq!(Chunk::from_value(&json!({"type": "finish", "reason": {"kind": "error"}})), None, "no bare form");
}

#[test]
fn str_04_and_blk_01_blocks_interleave_and_stand_in_the_order_of_first_sight() {
    let chunks = [text(7, "a"), text(3, "b"), text(7, "c"), end(9, said("d"))];
    assert_eq!(content(&chunks), [said("ac"), said("b"), said("d")]);
}

#[test]
fn str_05_and_blk_03_the_first_end_is_the_authority_and_nothing_follows_it() {
    let chunks = [text(0, "said"), end(0, said("meant")), text(0, " more"), end(0, said("late"))];
    assert_eq!(content(&chunks), [said("meant")]);
}

#[test]
fn blk_02_a_missing_start_is_tolerated_and_a_second_one_changes_nothing() {
    assert_eq!(content(&[start(0, "text"), text(0, "a"), start(0, "reasoning"), text(0, "b")]), [said("ab")]);
}

#[test]
fn blk_04_the_last_id_wins_and_an_empty_name_never_overwrites() {
    let chunks = [
        call_delta(0, Some("a"), Some("f"), "{"),
        call_delta(0, Some("b"), Some(""), "}"),
        call_delta(1, None, Some("g"), ""),
        call_delta(1, None, Some("h"), "x"),
    ];
    assert_eq!(content(&chunks), [call("b", "f", "{}"), call("call-1", "h", "x")]);
}

#[test]
fn blk_05_open_blocks_are_made_of_their_deltas_and_an_unknown_one_cannot_be() {
    let reasoning = Chunk::ReasoningDelta { index: 1, text: "r".into() };
    let chunks = [text(0, "t"), reasoning, call_delta(4, None, None, "{\"half")];
    assert_eq!(content(&chunks), [said("t"), Block::Reasoning("r".into()), call("call-4", "", "{\"half")]);
    let error = assembled(&[start(0, "hologram")]).assemble().unwrap_err();
    assert_eq!(error.code().as_str(), "MALFORMED_CHUNK");
}

#[test]
fn blk_06_without_finish_the_answer_is_a_stop_and_the_last_usage_and_finish_win() {
    let usage = |output_tokens| Chunk::Usage(Usage { output_tokens, ..Usage::default() });
    let open = assembled(&[text(0, "a"), usage(1), usage(2)]);
    assert!(open.failure().is_none() && !open.assemble().unwrap().hit_ceiling);
    assert_eq!(open.usage().unwrap().output_tokens, 2);
    let failure = FinishReason::error(Failure::new("A", "m"));
    let twice = assembled(&[finish(failure, None), finish(FinishReason::Stop, None)]);
    assert!(twice.failure().is_none());
}

#[test]
fn blk_07_and_08_under_the_ceiling_calls_go_with_their_replay_entries() {
    let blocks = [text(0, "a"), end(1, call("c", "f", "{}"))];
    let state = json!({"response": {}, "blocks": [{"s": 1}, {"s": 2}]});
    let whole = |reason, state: &Value| {
        let chunks = [blocks.as_slice(), &[finish(reason, Some(state.clone()))]].concat();
        assembled(&chunks).assemble().unwrap()
    };
    let cut = whole(FinishReason::MaxTokens, &state);
    assert_eq!(cut.content, [said("a")]);
    assert_eq!(cut.replay_state.unwrap().to_text(), r#"{"response":{},"blocks":[{"s":1}]}"#);
    assert_eq!(whole(FinishReason::ToolCalls, &state).replay_state, Some(state));
    let short = json!({"response": {}, "blocks": [{"s": 1}]});
    assert_eq!(whole(FinishReason::MaxTokens, &short).replay_state, None, "counted before the removal");
    let plain = json!({"response": {"id": "x"}});
    assert_eq!(whole(FinishReason::MaxTokens, &plain).replay_state, Some(plain));
}

#[test]
fn blk_09_after_a_cancellation_only_what_can_be_seen_stays_untrimmed() {
    let chunks = [
        text(0, " a "),
        text(1, " \u{feff}\n"),
        end(2, Block::Reasoning("r".into())),
        end(3, call("c", "f", "{}")),
        text(4, "\u{85}"),
    ];
    let expected = [said(" a "), Block::Reasoning("r".into()), said("\u{85}")];
    assert_eq!(assembled(&chunks).visible_prefix(), expected);
    assert_eq!(assembled(&chunks[1..2]).visible_prefix(), []);
}

#[test]
fn blk_10_an_unknown_chunk_is_none() {
    assert_eq!(Chunk::from_value(&json!({"type": "hologram", "index": 0})), None);
    assert_eq!(Chunk::from_value(&json!({"type": "text-delta", "index": (-1), "text": ""})), None, "STR-03");
    assert_eq!(Chunk::from_value(&json!({"type": "text-delta", "index": 0, "text": "", "more": 1})), None);
}
