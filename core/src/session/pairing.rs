//! A history that any provider takes, from one that perhaps none does (P2).
//!
//! What the runtime logs has one result for every call, directly behind the message that asked. A log from elsewhere may
//! lack results in its middle (ORD-07), and a compaction may replace half of a pair (SURF-09). The log keeps what it
//! has; only what is sent is made whole.

use super::history::History;
use super::repair::call_id;
use crate::message::{Block, Message, Role, Source};
use crate::texts;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How far a history is whole, when it is so up to `from`: as far as each message that asks is followed by the results of
/// its calls and by nothing else before them. Costs what is new.
pub(super) fn whole_to(history: &History, from: usize) -> usize {
    let (mut whole, mut open) = (from, HashSet::new());
    for at in from..history.len() {
        let Some(message) = history.get(at) else { break };
        match message.source() {
            Source::Tool { call_id } if !open.remove(call_id.as_str()) => return whole,
            Source::Tool { .. } => {}
            _ if !open.is_empty() => return whole,
            _ => open.extend(calls(&message)),
        }
        if open.is_empty() {
            whole = at + 1;
        }
    }
    whole
}

/// The messages of a history with exactly one result for every call, directly behind the message that asked for it. A
/// result that is missing is made up and says so; one that nobody asked for, or a second one, is left out. A history
/// that is whole comes out as it is.
pub(super) fn paired(history: &History) -> Vec<Arc<Message>> {
    let messages: Vec<_> = history.iter().collect();
    // By call: where its results stand and, to end a search, where it is asked for.
    let (mut answers, mut asked) = (HashMap::<&str, Vec<usize>>::new(), HashMap::<String, Vec<usize>>::new());
    for (at, message) in messages.iter().enumerate() {
        if let Source::Tool { call_id } = message.source() {
            answers.entry(call_id.as_str()).or_default().push(at);
        }
        for id in calls(message) {
            asked.entry(id).or_default().push(at);
        }
    }
    let mut sent = Vec::with_capacity(messages.len());
    for (at, message) in messages.iter().enumerate() {
        if matches!(message.source(), Source::Tool { .. }) {
            continue;
        }
        sent.push(message.clone());
        let mut seen = HashSet::new();
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for id in calls(message).filter(|id| seen.insert(id.clone())) {
            let again = asked[&id].iter().find(|later| **later > at).copied().unwrap_or(usize::MAX);
            let answer = answers.get(id.as_str()).and_then(|places| places.iter().find(|place| **place > at));
            match answer.filter(|place| **place < again) {
                Some(place) => found.push(*place),
                None => missing.push(id),
            }
        }
        found.sort_unstable();
        sent.extend(found.into_iter().map(|place| messages[place].clone()));
        sent.extend(missing.iter().map(|id| no_result(message, id)));
    }
    sent
}

fn calls(message: &Message) -> impl Iterator<Item = String> + '_ {
    let is_assistant = message.role() == Role::Assistant;
    message.content().iter().filter(move |_| is_assistant).filter_map(call_id)
}

fn no_result(asking: &Message, call_id: &str) -> Arc<Message> {
    let id = format!("no-result-{}-{call_id}", asking.id());
    let text = Block::Text(texts::TOOL_RESULT_MISSING.to_owned());
    Arc::new(Message::tool_result(id, call_id.into(), vec![text], true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    /// `u` a prompt, `a:x,y` an answer with these calls, `r:x` a result.
    fn history(words: &[&str]) -> History {
        let message = |(at, word): (usize, &&str)| {
            let (kind, ids) = word.split_once(':').unwrap_or((word, ""));
            let id = format!("{word}@{at}");
            Arc::new(match kind {
                "u" => Message::user_text(id, "text"),
                "r" => Message::tool_result(id, ids.into(), vec![], false),
                _ => {
                    let mut blocks = Vec::new();
                    for call in ids.split(',').filter(|call| !call.is_empty()) {
                        blocks.push(json!({"type": "tool-call", "id": call, "name": "n", "arguments": ""}));
                    }
                    let content = blocks.iter().map(Block::from_value).collect();
                    let source = Source::Model { provider: "p".into(), model: "m".into(), replay_state: None };
                    Message::new(id, Role::Assistant, content, source)
                }
            })
        };
        History::from_messages(words.iter().enumerate().map(message).collect())
    }

    fn ids(words: &[&str]) -> Vec<String> {
        paired(&history(words)).iter().map(|message| message.id().to_string()).collect()
    }

    #[test]
    fn a_whole_history_comes_out_as_it_is() {
        let words = ["u", "a:x,y", "r:y", "r:x", "u", "a:x", "r:x", "a", "u"];
        let expected: Vec<_> = words.iter().enumerate().map(|(at, word)| format!("{word}@{at}")).collect();
        assert_eq!(ids(&words), expected);
        assert!(ids(&[]).is_empty());
        for from in [0, 1, 4, 5, 9] {
            assert_eq!(whole_to(&history(&words), from), words.len());
        }
    }

    #[test]
    fn case_110_a_call_without_a_result_in_the_middle_gets_one_and_a_stray_result_goes() {
        assert_eq!(
            ids(&["u", "a:x,y", "r:y", "u", "a:x", "r:x"]),
            ["u@0", "a:x,y@1", "r:y@2", "no-result-a:x,y@1-x", "u@3", "a:x@4", "r:x@5"]
        );
        let answer = paired(&history(&["a:x"])).pop().expect("made up");
        assert!(answer.json().contains("\"isError\":true") && answer.json().contains("\"toolCallId\":\"x\""));
        assert_eq!(ids(&["r:x", "u", "a:y", "r:y", "r:y", "r:z"]), ["u@1", "a:y@2", "r:y@3"], "nobody asked, or twice");
    }

    #[test]
    fn a_late_result_moves_behind_its_call() {
        assert_eq!(ids(&["a:x,y", "u", "r:y", "u", "r:x"]), ["a:x,y@0", "r:y@2", "r:x@4", "u@1", "u@3"]);
    }

    #[test]
    fn a_history_is_whole_as_far_as_its_calls_are_answered() {
        for (words, whole) in [
            (&["u", "a:x,y", "r:y"][..], 1),
            (&["u", "a:x,y", "r:y", "u", "r:x"], 1),
            (&["u", "a", "r:x", "u"], 2),
            (&["u", "a:x", "r:x", "r:x"], 3),
            (&["a:x", "a:x", "r:x"], 0),
        ] {
            assert_eq!(whole_to(&history(words), 0), whole, "{words:?}");
            assert_eq!(whole_to(&History::from_messages(paired(&history(words))), 0), ids(words).len(), "{words:?}");
        }
    }
}
