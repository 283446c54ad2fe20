//! Live equals reloaded: whatever was done with an agent, what its log gives back after a restart is what it was, and the
//! next request is made of the same bytes (HOST, DER, PCO-17).
#![cfg(feature = "jsonl")]

use proptest::prelude::*;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use turnwheel::llm::ModelRequest;
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::storage::jsonl::{Compression, JsonlOptions, JsonlStore};
use turnwheel::{Agent, CancelCause, Context, Message, Tool, ToolOutput, json};

/// Something that a host does.
#[derive(Clone, Debug)]
enum Act {
    Followup(String),
    Steer(String),
    Inject(String),
    Idle,
    Cancel,
    CancelKeepingInbox,
    Wake,
    Note(f64),
    /// Puts a message in place of the first two on the surface, as a compaction does.
    Compact,
    Restart,
}

/// Text with everything that JSON and file formats stumble over.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z ]{0,12}", "[\\PC\u{0}-\u{1f}\"\\\\\u{2028}\u{feff}é😀]{0,12}"]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => text().prop_map(Act::Followup),
        1 => text().prop_map(Act::Steer),
        1 => text().prop_map(Act::Inject),
        3 => Just(Act::Idle),
        1 => Just(Act::Cancel),
        1 => Just(Act::CancelKeepingInbox),
        1 => Just(Act::Wake),
        1 => any::<f64>().prop_filter("JSON has no other", |n| n.is_finite() && (*n != 0.0 || n.is_sign_positive())).prop_map(Act::Note),
        1 => Just(Act::Compact),
        1 => Just(Act::Restart),
    ]
}

struct Life {
    ctx: Context,
    agent: Agent,
    /// The messages of each request, as bytes.
    requests: Rc<RefCell<Vec<String>>>,
}

impl Life {
    fn begin(root: &Path, compression: Compression, replies: &[u8]) -> Self {
        let store = JsonlStore::new(JsonlOptions::new(root).compression(compression));
        let ctx = Context::builder().store(store).build();
        let requests: Rc<RefCell<Vec<String>>> = Rc::default();
        let (seen, replies) = (requests.clone(), replies.to_vec());
        let model = Scripted::new().respond(move |request: &ModelRequest| {
            let number = request.messages.len();
            seen.borrow_mut().push(request.messages.iter().map(|message| message.json().to_owned()).collect());
            match replies[number % replies.len()] % 3 {
                0 => {
                    ScriptedReply::calls([(format!("c{number}"), "t", "{\"a\": 1}"), (format!("d{number}"), "t", "{")])
                }
                1 => ScriptedReply { reasoning: Some("hm\u{1}".into()), ..ScriptedReply::text("ok 😀") },
                _ => ScriptedReply { chunk_size: Some(1), ..ScriptedReply::text("in pieces") },
            }
        });
        ctx.llm().register("fake", model).expect("a new route");
        ctx.tools().register(Tool::new("t", |_| async { Ok(ToolOutput::value("r\u{0}")) })).expect("registered");
        let opened = ctx.runtime().block_on(ctx.agent("a").provider("fake").model("m").open()).expect("opened");
        Self { agent: Agent::clone(&opened), ctx, requests }
    }

    fn act(&self, act: &Act) {
        let agent = &self.agent;
        match act {
            Act::Followup(text) => drop(agent.followup(Message::user_text(next_id(agent), text)).expect("accepted")),
            Act::Steer(text) => drop(agent.steer(Message::user_text(next_id(agent), text)).expect("accepted")),
            Act::Inject(text) => drop(agent.inject(Message::user_text(next_id(agent), text)).expect("accepted")),
            Act::Idle => self.ctx.runtime().block_on(agent.when_idle()).expect("idle"),
            Act::Cancel => agent.cancel(CancelCause::User),
            Act::CancelKeepingInbox => agent.cancel_keep_inbox(CancelCause::User),
            Act::Wake => agent.wake().expect("awake"),
            Act::Note(number) => drop(agent.session().append("note", json!({"n": *number})).expect("appended")),
            Act::Compact => {
                let nodes = agent.session().surface_nodes();
                let is_user = |seq: u64| agent.session().event(seq).is_some_and(|event| event.kind() == "user/message");
                if let [first, ..] = nodes[..]
                    && is_user(first)
                {
                    let summary = Message::user_text(next_id(agent), "summary").into();
                    agent.session().replace_surface(summary, first, first, vec![first]).expect("replaced");
                }
            }
            Act::Restart => {}
        }
    }

    /// What a log gives: its events, what the model sees, what is pending.
    fn shown(&self) -> (Vec<String>, Vec<String>, Vec<u64>) {
        let session = self.agent.session();
        let events = session.events_from(0).iter().map(|event| event.json().to_owned()).collect();
        let history = session.history().iter().map(|message| message.json().to_owned()).collect();
        (events, history, session.surface_nodes())
    }

    fn end(self) -> (Vec<String>, Vec<String>, Vec<u64>) {
        self.ctx.runtime().block_on(self.agent.when_idle()).expect("idle");
        // Closing discards what is pending, and that is logged as well.
        self.ctx.runtime().block_on(self.ctx.close()).expect("stored");
        self.shown()
    }
}

fn next_id(agent: &Agent) -> String {
    format!("m{}", agent.session().len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_a_session_was_it_is_again_after_a_restart(
        acts in proptest::collection::vec(act(), 1..24),
        replies in proptest::collection::vec(any::<u8>(), 1..6),
        zstd: bool,
    ) {
        // A model that only calls tools would never be done.
        let replies = [&replies[..], &[1, 2]].concat();
        let directory = tempfile::tempdir().expect("a directory");
        let compression = if zstd { Compression::Zstd } else { Compression::None };
        let mut life = Life::begin(directory.path(), compression, &replies);
        for act in acts.iter().chain([&Act::Restart]) {
            if !matches!(act, Act::Restart) {
                life.act(act);
                continue;
            }
            let (events, history, nodes) = life.end();
            life = Life::begin(directory.path(), compression, &replies);
            let (again, history_again, nodes_again) = life.shown();
            // The mark that a life began is the only thing that was not there before (SEED-03).
            prop_assert_eq!(&again[..events.len()], &events[..]);
            prop_assert!(again.len() <= events.len() + 1);
            prop_assert_eq!(&history_again, &history);
            prop_assert_eq!(nodes_again, nodes);
            life.ctx.runtime().block_on(async {
                let id = next_id(&life.agent);
                life.agent.followup(Message::user_text(id, "next")).expect("accepted");
                life.agent.when_idle().await.expect("idle");
            });
            let requests = life.requests.borrow();
            prop_assert!(requests[0].starts_with(&history.concat()), "the next request begins with what was seen");
        }
    }
}
