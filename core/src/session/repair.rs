//! Crash repair: the events that close the turn in which a process died (REP-01 to REP-09).
//!
//! Closers depend on nothing but the log, so that two programs, or an inspection and a repair of the same log, agree on
//! them to the letter. Other brackets, such as a compaction's, are left to their owners.

use super::event::{Event, EventData};
use super::event_log::EventLog;
use crate::error::Code;
use crate::json::{Object, Value};
use crate::message::{Block, Message};
use crate::texts;
use std::collections::HashMap;
use std::sync::Arc;

/// A tool call that a model asked for and nobody answered.
struct Pending {
    call_id: String,
    step: Value,
}

/// The open part of a log whose last turn has no end.
struct OpenTurn {
    turn: Value,
    step: Option<Value>,
    pending: Vec<Pending>,
    /// Seqs of the `tool/call` events of the open step, by call id.
    started: HashMap<String, u64>,
}

/// The closers of an interrupted tail turn, in order; none for a balanced log (REP-01).
pub fn closers(events: &EventLog) -> Vec<Event> {
    // Deltas close nothing and are closed by nothing, so the marks are enough.
    let mut boundary = None;
    let is_edge = |event: &&Arc<Event>| matches!(event.kind(), "turn/start" | "turn/end");
    let behind = events.marks().rev().take_while(|event| {
        boundary = Some(*event).filter(is_edge);
        boundary.is_none()
    });
    let behind: Vec<_> = behind.collect();
    let (Some(start), Some(last)) = (boundary.filter(|edge| edge.kind() == "turn/start"), events.last()) else {
        return Vec::new();
    };
    let turn = member(start, "turn");
    let mut open = OpenTurn { turn, step: None, pending: Vec::new(), started: HashMap::new() };
    behind.into_iter().rev().for_each(|event| open.follow(event));
    open.close(last.seq + 1, last.time)
}

impl OpenTurn {
    fn follow(&mut self, event: &Event) {
        match event.kind() {
            "step/start" => self.step = Some(member(event, "step")),
            "step/end" => {
                self.step = None;
                self.pending.clear();
                self.started.clear();
            }
            "assistant/message" => {
                let step = member(event, "step");
                for call_id in message(event).iter().flat_map(|message| message.content()).filter_map(call_id) {
                    self.pending.retain(|pending| pending.call_id != call_id);
                    self.pending.push(Pending { call_id, step: step.clone() });
                }
            }
            "tool/call" => {
                if let Some(call_id) = member(event, "callId").as_str() {
                    self.started.insert(call_id.to_owned(), event.seq);
                }
            }
            "tool/result" => {
                let answered = message(event);
                let source = answered.as_ref().map(|message| message.source());
                if let Some(crate::message::Source::Tool { call_id }) = source {
                    self.pending.retain(|pending| pending.call_id != call_id.as_str());
                }
            }
            _ => {}
        }
    }

    fn close(self, first_seq: u64, time: i64) -> Vec<Event> {
        let mut closers: Vec<Event> = Vec::with_capacity(self.pending.len() + 2);
        for pending in &self.pending {
            let seq = first_seq + closers.len() as u64;
            let value = result(pending, self.started.get(&pending.call_id).copied(), &self.turn, seq, time);
            // A call whose id no message can carry cannot be answered; it then stays without a result.
            closers.extend(Event::from_value(&value).ok());
        }
        if let Some(step) = self.step {
            let seq = first_seq + closers.len() as u64;
            let data = Object::from_iter([("turn", self.turn.clone()), ("step", step)]);
            closers.extend(Event::from_value(&envelope("step/end", seq, time, data)).ok());
        }
        let seq = first_seq + closers.len() as u64;
        let reason = Object::from_iter([("kind", "interrupted")]);
        let data = Object::from_iter([("turn", self.turn), ("reason", Value::Object(reason))]);
        closers.extend(Event::from_value(&envelope("turn/end", seq, time, data)).ok());
        closers
    }
}

fn envelope(kind: &str, seq: u64, time: i64, data: Object) -> Value {
    let mut event = Object::with_capacity(6);
    event.insert("type", kind);
    event.insert("seq", seq);
    event.insert("time", time);
    event.insert("data", data);
    Value::Object(event)
}

/// The answer to a pending call. The member order differs from that of live results (REC-02, REP-06).
fn result(pending: &Pending, started: Option<u64>, turn: &Value, seq: u64, time: i64) -> Value {
    let (text, name, code) = match started {
        Some(_) => (texts::TOOL_OUTCOME_UNKNOWN, "ToolOutcomeUnknownError", Code::ToolOutcomeUnknown),
        None => (texts::TOOL_NOT_STARTED, "ToolNotStartedError", Code::ToolNotStarted),
    };
    let mut block = Object::new();
    block.insert("type", "tool-result");
    block.insert("toolCallId", pending.call_id.as_str());
    block.insert("isError", true);
    block.insert("content", vec![Value::Object(Object::from_iter([("type", "text"), ("text", text)]))]);
    let mut message = Object::new();
    message.insert("id", format!("interrupted-tool-result-{}-{seq}", pending.call_id));
    message.insert("role", "user");
    message.insert("source", Object::from_iter([("kind", "tool"), ("callId", pending.call_id.as_str())]));
    message.insert("content", vec![Value::Object(block)]);
    let mut data = Object::new();
    data.insert("turn", turn.clone());
    data.insert("step", pending.step.clone());
    data.insert("message", message);
    data.insert("error", Object::from_iter([("name", name), ("code", code.as_str())]));
    let mut event = envelope("tool/result", seq, time, data);
    if let Value::Object(event) = &mut event {
        event.insert("surfaceOp", "append");
        event.insert_some("sourceEventSeqs", started.map(|seq| vec![Value::from(seq)]));
    }
    event
}

/// A member of the payload, also of one that is kept as JSON; null when absent.
fn member(event: &Event, key: &str) -> Value {
    let number = match (&event.data, key) {
        (EventData::TurnStart { turn }, "turn") => *turn,
        (EventData::StepStart { step, .. } | EventData::AssistantMessage { step, .. }, "step") => *step,
        (EventData::ToolCall { call_id, .. }, "callId") => return Value::from(call_id.as_str()),
        _ => return event.data_value().get(key).cloned().unwrap_or(Value::Null),
    };
    Value::from(number)
}

/// The message of a surface event, also of one whose payload is kept as JSON.
fn message(event: &Event) -> Option<Arc<Message>> {
    match event.data.message() {
        Some(message) => Some(message.clone()),
        None => Message::from_value(event.data_value().get("message")?).ok().map(Arc::new),
    }
}

/// The id of a tool-call block, also of one with members unknown here.
pub(super) fn call_id(block: &Block) -> Option<String> {
    match block {
        Block::ToolCall { id, .. } => Some(id.to_string()),
        Block::Other(value) if block.kind() == "tool-call" => value.get("id")?.as_str().map(str::to_owned),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn log(items: &[Value]) -> EventLog {
        let events = items.iter().enumerate().map(|(seq, item)| {
            let mut value = item.clone();
            if let Value::Object(object) = &mut value {
                object.insert("seq", seq);
                object.insert("time", 100 + seq);
            }
            Arc::new(Event::from_value(&value).expect("a valid event"))
        });
        events.collect()
    }

    fn asks(step: u64, calls: &[&str]) -> Value {
        let mut blocks = Vec::new();
        for id in calls {
            blocks.push(json!({"type": "tool-call", "id": id, "name": "t", "arguments": "{}"}));
        }
        let mut event = json!({"type": "assistant/message", "surfaceOp": "append", "data": {"turn": 1, "step": step,
            "message": {"id": format!("a{step}"), "role": "assistant", "content": [],
                "source": {"kind": "model", "provider": "p", "model": "m"}}}});
        if let Value::Object(event) = &mut event
            && let Some(Value::Object(data)) = event.get_mut("data")
            && let Some(Value::Object(message)) = data.get_mut("message")
        {
            message.insert("content", blocks);
        }
        event
    }

    fn kinds(closers: &[Event]) -> Vec<&str> {
        closers.iter().map(Event::kind).collect()
    }

    #[test]
    fn a_balanced_log_needs_no_closers() {
        assert!(closers(&EventLog::default()).is_empty());
        let balanced = log(&[
            json!({"type": "turn/start", "data": {"turn": 1}}),
            json!({"type": "turn/end", "data": {"turn": 1, "reason": {"kind": "completed"}}}),
            json!({"type": "plan/mode", "data": {"active": true}}),
        ]);
        assert!(closers(&balanced).is_empty());
    }

    #[test]
    fn calls_left_open_at_a_recorded_step_end_are_not_answered() {
        let log = log(&[
            json!({"type": "turn/start", "data": {"turn": 1}}),
            json!({"type": "step/start", "data": {"turn": 1, "step": 1}}),
            asks(1, &["a", "b"]),
            json!({"type": "step/end", "data": {"turn": 1, "step": 1}}),
        ]);
        let closers = closers(&log);
        assert_eq!(kinds(&closers), ["turn/end"]);
        assert_eq!((closers[0].seq, closers[0].time), (4, 103));
    }

    #[test]
    fn every_pending_call_is_answered_in_block_order_and_judged_by_its_own_start() {
        let log = log(&[
            json!({"type": "turn/start", "data": {"turn": 1}}),
            json!({"type": "step/start", "data": {"turn": 1, "step": 1}}),
            asks(1, &["a", "b", "c"]),
            json!({"type": "tool/call", "data": {"turn": 1, "step": 1, "callId": "b", "name": "t", "arguments": "{}"}}),
            json!({"type": "tool/call", "data": {"turn": 1, "step": 1, "callId": "x", "name": "t", "arguments": "{}"}}),
        ]);
        let closers = closers(&log);
        assert_eq!(kinds(&closers), ["tool/result", "tool/result", "tool/result", "step/end", "turn/end"]);
        assert_eq!(closers[0].source_event_seqs, None);
        assert_eq!(closers[1].source_event_seqs, Some(vec![3]));
        let message = closers[2].data.message().expect("a result has a message");
        assert_eq!(message.id().as_str(), "interrupted-tool-result-c-7");
        assert!(closers[1].json().contains("\"surfaceOp\":\"append\",\"sourceEventSeqs\":[3]"));
    }
}
