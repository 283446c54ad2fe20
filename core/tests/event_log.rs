//! A log in memory keeps runs of deltas packed; nobody can see it (issue: size).

use proptest::prelude::*;
use std::sync::Arc;
use turnwheel::llm::Chunk;
use turnwheel::session::{Event, EventData, EventLog, Session, SessionHeader};
use turnwheel::{Context, json};

fn chunk(kind: u8, index: u64, text: &str) -> Chunk {
    let text = text.to_owned();
    match kind {
        0 => Chunk::TextDelta { index, text },
        1 => Chunk::ReasoningDelta { index, text },
        2 => Chunk::ToolCallDelta { index, id: Some("c".into()), name: None, arguments_delta: text },
        3 => Chunk::ToolCallDelta { index, id: None, name: Some("n".into()), arguments_delta: text },
        _ => Chunk::BlockStart { index, block_type: text },
    }
}

/// Events of a log; long stretches are of one run, and some are no deltas.
fn events() -> impl Strategy<Value = Vec<Arc<Event>>> {
    let stretch = (0..5_u8, 0..2_u64, prop::collection::vec((any::<i32>(), ".{0,6}"), 1..150), any::<bool>());
    prop::collection::vec(stretch, 0..6).prop_map(|stretches| {
        let mut events = Vec::new();
        for (kind, index, members, ignorable) in stretches {
            for (at, (time, text)) in members.iter().enumerate() {
                let data = EventData::AssistantChunk { turn: 1, step: 1, chunk: chunk(kind, index, text) };
                let event = Event::new(events.len() as u64, i64::from(*time) << 20, data);
                // An ignorable delta is not written in a row and must keep its mark.
                events.push(Arc::new(if ignorable && at == 0 { event.ignorable() } else { event }));
            }
        }
        events
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_goes_in_comes_out_at_every_position(events in events(), from in 0..400_usize) {
        let mut log = EventLog::default();
        for (at, event) in events.iter().enumerate() {
            log.push(event.clone());
            prop_assert_eq!(log.len(), at + 1);
            prop_assert_eq!(log.last(), Some(event.clone()));
        }
        prop_assert_eq!(log.to_vec(), events.clone());
        let (rest, expected): (Vec<_>, Vec<_>) = (log.iter_from(from).collect(), events.iter().skip(from).cloned().collect());
        prop_assert_eq!(rest, expected);
        for (at, event) in events.iter().enumerate() {
            prop_assert_eq!(log.get(at), Some(event.clone()));
        }
        prop_assert!(log.get(events.len()).is_none());
    }

    #[test]
    fn marks_are_all_but_deltas(events in events(), from in 0..400_usize) {
        let log: EventLog = events.iter().cloned().collect();
        let is_delta = |event: &Arc<Event>| match &event.data {
            EventData::AssistantChunk { chunk, .. } => chunk.kind().ends_with("-delta") && !event.ignorable,
            _ => false,
        };
        let marks: Vec<_> = log.marks_from(from).filter(|event| !is_delta(event)).cloned().collect();
        let expected: Vec<_> = events.iter().skip(from).filter(|event| !is_delta(event)).cloned().collect();
        prop_assert_eq!(marks, expected);
    }
}

#[test]
fn a_seed_whose_seqs_have_a_gap_is_refused_also_inside_a_run() {
    let ctx = Context::builder().build();
    let event = |seq: u64| {
        let data = EventData::AssistantChunk { turn: 1, step: 1, chunk: chunk(0, 0, "x") };
        Arc::new(Event::new(seq, 1, data))
    };
    for seqs in [&[0, 1, 3][..], &[1, 2], &[0, 0], &[0, 2, 1]] {
        let seed: Vec<_> = seqs.iter().map(|seq| event(*seq)).collect();
        let refused = Session::seeded(ctx.runtime(), SessionHeader::new("s", 1), seed).expect_err("a gap");
        assert_eq!(refused.code().as_str(), "INVALID_EVENT", "{seqs:?}");
    }
    let seed: Vec<_> = (0..200).map(event).collect();
    let session = Session::seeded(ctx.runtime(), SessionHeader::new("s", 1), seed.clone()).expect("a log");
    assert_eq!(session.len(), 201);
    assert_eq!(session.events_from(0)[..200], seed[..]);
    assert_eq!(session.event(150), Some(seed[150].clone()));
    assert_eq!(session.marks_from(0).len(), 1, "only the mark of the end of the seed");
}

#[test]
fn an_event_that_somebody_holds_stays_as_it_was_when_its_room_could_serve_another() {
    let ctx = Context::builder().build();
    let session = Session::new(ctx.runtime(), SessionHeader::new("held", 1)).expect("a session");
    let log = |text: &str| {
        let value = json!({"turn": 1, "step": 1, "chunk": {"type": "text-delta", "index": 0, "text": text}});
        session.append_raw("assistant/chunk", value, None, None, false).expect("logged")
    };
    let text = |event: &Event| match &event.data {
        EventData::AssistantChunk { chunk: Chunk::TextDelta { text, .. }, .. } => text.clone(),
        other => panic!("not a delta: {other:?}"),
    };
    let held: Vec<_> = (0..5).map(|at| log(&format!("first-{at}"))).collect();
    // Sixty-four deltas are packed at a time; the rooms of those that nobody holds serve again.
    (0..300).for_each(|at| drop(log(&format!("later-{at}"))));
    for (event, at) in held.iter().zip(0..) {
        assert_eq!((event.seq, text(event)), (at, format!("first-{at}")));
        assert_eq!(session.event(at).as_ref(), Some(event));
    }
    let later: Vec<_> = session.events_from(5).iter().map(|event| text(event)).collect();
    assert_eq!(later, (0..300).map(|at| format!("later-{at}")).collect::<Vec<_>>());
}
