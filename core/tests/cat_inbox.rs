//! The inbox: agent.md section 5. Tests are named after the ids they show.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{context, events, hello, kinds, lines, on_first, open, pending, prompt, record, refuse, settle, shared};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::message::{Role, Source};
use turnwheel::session::{Event, InboxTarget};
use turnwheel::{Agent, CancelCause, Code, Context, EventData, Message, Notice, NoticeKind, json};

const TURN: InboxTarget = InboxTarget::NextTurn;
const STEP: InboxTarget = InboxTarget::NextStep;

/// An idle agent with messages `m0`, `m1`, … in its next-turn list.
fn queued(ctx: &Context, count: usize) -> Agent {
    let agent = open(ctx, "a");
    let messages = (0..count).map(|n| shared(&format!("m{n}"))).collect();
    agent.inbox().append(TURN, messages).expect("inserted");
    agent
}

/// The coordinates of the last splice in the log: start, removed, canceled.
fn last_splice(agent: &Agent) -> (usize, usize, bool) {
    let splice = events(agent).iter().rev().find_map(|event| match &event.data {
        EventData::InboxSpliced(splice) => Some((splice.start, splice.removed_count, splice.canceled)),
        _ => None,
    });
    splice.expect("a splice is logged")
}

#[test]
fn inb_1_2_and_28_two_lists_with_one_id_each_and_mutations_never_wake() {
    let ctx = context(hello());
    let agent = open(&ctx, "a");
    assert!(agent.inbox().is_empty() && !agent.inbox().has_pending());
    agent.inbox().append(STEP, vec![shared("m1")]).expect("inserted");
    assert!(agent.inbox().has_pending());
    let error = agent.inbox().append(TURN, vec![shared("m1")]).expect_err("pending in the other list");
    assert_eq!(error.code(), &Code::DuplicateMessage);
    assert!(error.message().contains("m1"));
    let inbox = agent.inbox();
    agent.inbox().prepend(TURN, vec![shared("m2")]).expect("inserted");
    assert_eq!((inbox.len(STEP), inbox.len(TURN)), (1, 1), "a handle is live");
    settle(&ctx);
    assert_eq!(kinds(&agent), ["agent/inbox/spliced", "agent/inbox/spliced"]);
}

#[test]
fn inb_3_4_6_and_d_07_the_start_is_normalised_as_javascript_does_and_never_to_negative_zero() {
    let cases = [
        (1.9, 1),
        (-1.9, 3),
        (-1.0, 3),
        (-9.0, 0),
        (f64::NEG_INFINITY, 0),
        (-0.5, 0),
        (-0.0, 0),
        (f64::NAN, 0),
        (9.0, 4),
        (f64::INFINITY, 4),
    ];
    for (start, expected) in cases {
        let ctx = context(hello());
        let agent = queued(&ctx, 4);
        agent.inbox().splice(TURN, start, 0.0, vec![shared("new")]).expect("spliced");
        assert_eq!(last_splice(&agent), (expected, 0, false), "start {start}");
        assert_eq!(pending(&agent, TURN)[expected], "new");
        let text = events(&agent).last().expect("logged").json().to_owned();
        assert!(text.contains(&format!("\"start\":{expected},")), "{text}");
    }
}

#[test]
fn inb_5_the_count_is_truncated_and_clamped_to_what_remains() {
    let cases = [(1.9, 1), (-3.0, 0), (f64::NAN, 0), (9.0, 3), (f64::INFINITY, 3), (0.9, 0)];
    for (count, expected) in cases {
        let ctx = context(hello());
        let agent = queued(&ctx, 4);
        let removed = agent.inbox().splice(TURN, 1.0, count, vec![]).expect("spliced");
        assert_eq!(removed.len(), expected, "count {count}");
        assert_eq!(agent.inbox().len(TURN), 4 - expected);
    }
}

#[test]
fn inb_7_and_8_a_splice_that_changes_nothing_logs_nothing_and_members_appear_only_when_they_say_something() {
    let ctx = context(hello());
    let agent = queued(&ctx, 2);
    assert!(agent.inbox().splice(TURN, 0.0, 0.0, vec![]).expect("nothing to do").is_empty());
    assert_eq!(agent.session().len(), 1);
    agent.inbox().splice(TURN, 0.0, 1.0, vec![]).expect("spliced");
    agent.inbox().claim(TURN, 1).expect("claimed");
    let payload = |seq: usize| events(&agent)[seq].data_value();
    let members = |seq: usize| {
        let value = payload(seq);
        let mut keys: Vec<_> = value.as_object().expect("an object").iter().map(|(key, _)| key.to_owned()).collect();
        keys.sort();
        keys
    };
    assert_eq!(members(0), ["inserted", "start", "target"]);
    assert_eq!(members(1), ["inserted", "outcome", "removedCount", "start", "target"]);
    assert_eq!(payload(1).get("outcome"), Some(&json!("canceled")));
    assert_eq!(members(2), ["inserted", "removedCount", "start", "target"], "a claim has no outcome");
}

#[test]
fn inb_9_duplicates_are_looked_for_in_the_result_and_inside_the_batch() {
    let ctx = context(hello());
    let agent = queued(&ctx, 2);
    let length = agent.session().len();
    for (start, count, ids) in [(0.0, 0.0, vec!["m1"]), (0.0, 1.0, vec!["m1"]), (0.0, 0.0, vec!["x", "x"])] {
        let batch = ids.iter().map(|id| shared(id)).collect();
        let error = agent.inbox().splice(TURN, start, count, batch).expect_err("refused");
        assert_eq!(error.code(), &Code::DuplicateMessage);
    }
    assert_eq!((agent.session().len(), pending(&agent, TURN)), (length, vec!["m0".to_owned(), "m1".into()]));
    agent.inbox().splice(TURN, 0.0, 2.0, vec![shared("m1"), shared("m0")]).expect("both leave and come back");
    assert_eq!(pending(&agent, TURN), ["m1", "m0"]);
}

#[test]
fn inb_11_12_and_30_observers_see_the_lists_before_the_splice_then_discarded_and_inserted_follow_in_order() {
    let ctx = context(hello());
    let agent = queued(&ctx, 3);
    let recovered = Rc::new(RefCell::new(Vec::new()));
    let seen = recovered.clone();
    ctx.on(NoticeKind::SessionEvent, move |notice| {
        let Notice::SessionEvent { event, agent: Some(agent), .. } = notice else { return Ok(()) };
        let EventData::InboxSpliced(splice) = &event.data else { return Ok(()) };
        let removed = pending(agent, splice.target).into_iter().skip(splice.start).take(splice.removed_count);
        seen.borrow_mut().extend(removed);
        Ok(())
    })
    .expect("registered");
    let heard = record(&ctx);
    let returned = agent.inbox().splice(TURN, 0.0, 2.0, vec![shared("x"), shared("y")]).expect("spliced");
    assert_eq!(*recovered.borrow(), ["m0", "m1"], "from the event's coordinates");
    let expected = ["log agent/inbox/spliced", "discarded m0", "discarded m1", "inserted x", "inserted y"];
    assert_eq!(*heard.borrow(), expected);
    assert_eq!(returned.iter().map(|message| message.id().as_str()).collect::<Vec<_>>(), ["m0", "m1"]);
}

#[test]
fn inb_13_lists_notices_and_results_share_the_one_immutable_message() {
    let ctx = context(hello());
    let heard = Rc::new(RefCell::new(Vec::new()));
    let seen = heard.clone();
    ctx.on(NoticeKind::Inserted, move |notice| {
        let Notice::Inserted { message, .. } = notice else { return Ok(()) };
        seen.borrow_mut().push(message.clone());
        Ok(())
    })
    .expect("registered");
    let agent = open(&ctx, "a");
    agent.inject(prompt("m")).expect("accepted");
    let EventData::InboxSpliced(splice) = &events(&agent)[0].data else { panic!("a splice") };
    let listed = agent.inbox().pending(STEP)[0].clone();
    assert!(Arc::ptr_eq(&listed, &splice.inserted[0]));
    assert!(Arc::ptr_eq(&listed, &heard.borrow()[0]));
    let removed = agent.inbox().splice(STEP, 0.0, 1.0, vec![]).expect("spliced");
    assert!(Arc::ptr_eq(&listed, &removed[0]));
}

#[test]
fn inb_14_a_refused_append_leaves_lists_log_and_status_as_they_were() {
    let ctx = context(hello());
    let agent = queued(&ctx, 2);
    refuse(&ctx, "agent/inbox/spliced");
    let heard = record(&ctx);
    let inbox = agent.inbox();
    let failures = [
        inbox.append(STEP, vec![shared("x")]),
        inbox.remove("m0").map(|_| ()),
        inbox.replace("m0", shared("x")).map(|_| ()),
        inbox.clear(),
        inbox.claim(TURN, 1).map(|_| ()),
    ];
    for failure in failures {
        assert_eq!(failure.expect_err("refused").message(), "agent/inbox/spliced is refused");
    }
    assert_eq!((agent.session().len(), pending(&agent, TURN).len()), (1, 2));
    assert!(heard.borrow().is_empty());
}

#[test]
fn inb_16_and_17_replace_and_remove_work_in_place_and_a_miss_is_no_failure() {
    let ctx = context(hello());
    let agent = queued(&ctx, 3);
    agent.inbox().append(STEP, vec![shared("s0")]).expect("inserted");
    let heard = record(&ctx);
    assert!(agent.inbox().replace("m1", shared("other")).expect("replaced"));
    assert_eq!(last_splice(&agent), (1, 1, true));
    assert!(agent.inbox().replace("s0", Arc::new(Message::user_text("s0", "same id"))).expect("replaced"));
    assert!(agent.inbox().remove("m2").expect("removed"));
    assert_eq!(
        (pending(&agent, TURN), pending(&agent, STEP)),
        (vec!["m0".to_owned(), "other".into()], vec!["s0".into()])
    );
    let expected = ["discarded m1", "inserted other", "discarded s0", "inserted s0", "discarded m2"];
    assert_eq!(lines(&heard, &["discarded", "inserted"]), expected);
    let length = agent.session().len();
    let bad = Message::new("m0", Role::Assistant, vec![], Source::User);
    assert!(!agent.inbox().replace("nobody", Arc::new(bad)).expect("a miss does not look at the message"));
    assert!(!agent.inbox().remove("nobody").expect("a miss"));
    assert_eq!(agent.session().len(), length);
}

#[test]
fn inb_18_19_and_31_clear_reads_each_list_when_its_turn_comes() {
    let ctx = context(hello());
    let agent = queued(&ctx, 1);
    agent.inbox().append(STEP, vec![shared("s0"), shared("s1")]).expect("inserted");
    on_first(&ctx, NoticeKind::Discarded, |agent| {
        agent.inbox().append(TURN, vec![shared("late prompt")]).expect("inserted");
        agent.inbox().append(STEP, vec![shared("late step")]).expect("inserted");
    });
    let heard = record(&ctx);
    agent.cancel(CancelCause::User);
    assert_eq!((pending(&agent, STEP), pending(&agent, TURN)), (vec!["late step".to_owned()], Vec::<String>::new()));
    let expected = ["discarded s0", "discarded s1", "discarded m0", "discarded late prompt"];
    assert_eq!(lines(&heard, &["discarded"]), expected);
    let length = agent.session().len();
    agent.inbox().clear().expect("cleared");
    agent.inbox().clear().expect("nothing is left");
    assert_eq!(agent.session().len(), length + 1);
}

#[test]
fn inb_20_21_and_23_a_claim_takes_all_of_next_step_and_one_prompt_and_notifies_when_both_lists_are_changed() {
    let ctx = context(hello());
    let agent = queued(&ctx, 2);
    agent.inbox().append(STEP, vec![shared("s0"), shared("s1")]).expect("inserted");
    let left = Rc::new(RefCell::new(Vec::new()));
    let seen = left.clone();
    on_first(&ctx, NoticeKind::Claimed, move |agent| {
        seen.borrow_mut().extend([pending(agent, STEP), pending(agent, TURN)]);
    });
    let heard = record(&ctx);
    let batch = agent.inbox().claim(TURN, 1).expect("claimed");
    let ids: Vec<_> = batch.iter().map(|message| message.id().as_str()).collect();
    assert_eq!(ids, ["s0", "s1", "m0"]);
    assert_eq!(*left.borrow(), [vec![], vec!["m1".to_owned()]]);
    let splice = "log agent/inbox/spliced";
    assert_eq!(*heard.borrow(), [splice, splice, "claimed s0 by 1", "claimed s1 by 1", "claimed m0 by 1"]);
    let length = agent.session().len();
    assert!(agent.inbox().claim(STEP, 1).expect("nothing is there").is_empty());
    assert_eq!(agent.session().len(), length);
}

#[test]
fn inb_24_to_26_a_replayed_inbox_counts_from_the_seed_length_and_names_the_event_that_is_impossible() {
    let ctx = context(hello());
    let parent = queued(&ctx, 2);
    let log = events(&parent);
    let create = |id: &str, seed: Vec<Arc<Event>>, own: Option<u64>| {
        let builder = ctx.agent(id).seed(seed).header(|header| header.seed_length = own);
        ctx.runtime().block_on(builder.create())
    };
    let heard = record(&ctx);
    let heir = create("heir", log.clone(), None).expect("created").agent().clone();
    assert_eq!(pending(&heir, TURN), ["m0", "m1"], "without a seed length the input is the agent's own");
    let fork = create("fork", log.clone(), Some(1)).expect("created").agent().clone();
    assert!(pending(&fork, TURN).is_empty(), "a fork does not inherit it");
    assert!(lines(&heard, &["inserted", "log"]).is_empty());
    let again = |data: EventData| Arc::new(Event::new(1, 1, data));
    let impossible = [
        turnwheel::session::Splice { target: TURN, start: 1, removed_count: 2, inserted: vec![], canceled: true },
        turnwheel::session::Splice {
            target: STEP,
            start: 0,
            removed_count: 0,
            inserted: vec![shared("m1")],
            canceled: false,
        },
    ];
    for splice in impossible {
        let seed = vec![log[0].clone(), again(EventData::InboxSpliced(splice))];
        let error = create("bad", seed, None).map(|_| ()).expect_err("refused");
        assert_eq!(error.code(), &Code::CorruptLog);
        assert_eq!(error.context().get("seq"), Some(&json!(1)));
        assert!(error.cause().is_some());
    }
}

#[test]
fn inb_29_a_listener_may_mutate_the_inbox_and_the_remaining_notices_still_follow() {
    let ctx = context(hello());
    let agent = queued(&ctx, 2);
    on_first(&ctx, NoticeKind::Discarded, |agent| drop(agent.inject(prompt("nested")).expect("accepted")));
    let heard = record(&ctx);
    agent.inbox().splice(TURN, 0.0, 2.0, vec![shared("x")]).expect("spliced");
    let order = lines(&heard, &["discarded", "inserted"]);
    assert_eq!(order, ["inserted nested", "discarded m0", "discarded m1", "inserted x"]);
    settle(&ctx);
}
