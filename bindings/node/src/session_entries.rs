//! The entries of sessions. An event is named by its seat and seq: the log only grows, so nothing has to be kept alive
//! for an event but its session.

use crate::entries::{call, json_at};
use crate::host::{Host, Seat};
use crate::promises::Answer;
use crate::raw::{Arguments, Js};
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::error::{Code, Error, Result};
use turnwheel::host;
use turnwheel::json::{Object, Value};
use turnwheel::llm::Chunk;
use turnwheel::session::{Event, EventData, SurfaceOp, fold_consumed_work};
use turnwheel::{Block, Session};

fn seat(host: &Rc<Host>, arguments: &Arguments) -> Result<Rc<Seat>> {
    host.get::<Seat>(arguments.key(1))
}

fn event(session: &Session, seq: u64) -> Result<Arc<Event>> {
    let missing = || Error::new(Code::InvalidBoundary, format!("the log has no event {seq}")).with("seq", seq);
    session.event(seq).ok_or_else(missing)
}

/// `sessionId(core, seat) -> text`
pub fn session_id(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| Ok(Some(arguments.env.text(seat(host, arguments)?.session.id()))))
}

/// `header(core, seat) -> json`
pub fn header(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| Ok(Some(arguments.env.text(&seat(host, arguments)?.session.header().to_value().to_text()))))
}

/// `length(core, seat) -> number`
pub fn length(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| Ok(Some(arguments.env.number(seat(host, arguments)?.session.len() as f64))))
}

/// `event(core, seat, seq) -> json`
pub fn event_json(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let event = event(&seat(host, arguments)?.session, arguments.key(2))?;
        Ok(Some(arguments.env.text(event.json())))
    })
}

/// `eventType(core, seat, seq) -> number`
pub fn event_type(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let event = event(&seat(host, arguments)?.session, arguments.key(2))?;
        Ok(Some(arguments.env.index(host.realm.type_index(event.kind()))))
    })
}

/// `eventTime(core, seat, seq) -> number`
pub fn event_time(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let event = event(&seat(host, arguments)?.session, arguments.key(2))?;
        Ok(Some(arguments.env.number(event.time as f64)))
    })
}

/// `eventText(core, seat, seq) -> text`: of a text delta or of a message; empty for every other event.
pub fn event_text(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let event = event(&seat(host, arguments)?.session, arguments.key(2))?;
        let text = match &event.data {
            EventData::AssistantChunk { chunk: Chunk::TextDelta { text, .. }, .. } => arguments.env.text(text),
            data => {
                let blocks = data.message().map(|message| message.content()).unwrap_or_default();
                arguments.env.text(&blocks.iter().map(block_text).collect::<String>())
            }
        };
        Ok(Some(text))
    })
}

fn block_text(block: &Block) -> String {
    match block {
        Block::ToolResult { content, .. } => content.iter().filter_map(Block::text).collect(),
        other => other.text().unwrap_or_default().to_owned(),
    }
}

/// `follow(core, promise, seat, seq)`: resolves with the log's length when it has that event, or when no more will come.
pub fn follow(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let (seat, seq) = (host.get::<Seat>(arguments.key(2))?, arguments.key(3));
        host.export(arguments.key(1), async move {
            std::future::poll_fn(move |context| {
                let there = seat.session.poll_event(seq, context).is_ready();
                match there || !seat.session.is_live() {
                    true => std::task::Poll::Ready(Ok(Answer::Number(seat.session.len()))),
                    false => std::task::Poll::Pending,
                }
            })
            .await
        });
        Ok(None)
    })
}

/// `history(core, seat) -> json`
pub fn history(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let history = seat(host, arguments)?.session.history();
        let messages = history.iter().map(|message| message.to_value()).collect();
        Ok(Some(arguments.env.text(&Value::Array(messages).to_text())))
    })
}

/// `sendableHistory(core, seat) -> json`: the history as a request carries it, every call with its answer.
pub fn sendable_history(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let history = seat(host, arguments)?.session.sendable_history();
        let messages = history.iter().map(|message| message.to_value()).collect();
        Ok(Some(arguments.env.text(&Value::Array(messages).to_text())))
    })
}

/// `eventTypeVersion(core, seat, type) -> number?`
pub fn event_type_version(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let version = seat(host, arguments)?.session.event_type_version(&arguments.text(2));
        Ok(version.map(|version| arguments.env.number(version as f64)))
    })
}

/// `append(core, seat, type, data) -> seq`
pub fn append(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let event = seat(host, arguments)?.session.append(&arguments.text(2), json_at(arguments, 3)?)?;
        Ok(Some(arguments.env.number(event.seq as f64)))
    })
}

/// `appendRaw(core, seat, event) -> seq`: an event as the log has it, without seq and time.
pub fn append_raw(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let value = json_at(arguments, 2)?;
        let bad = |what: &str| Error::new(Code::InvalidEvent, format!("{what} of an event is not what it should be"));
        let kind = value.get("type").and_then(Value::as_str).ok_or_else(|| bad("the `type`"))?;
        let surface_op = match value.get("surfaceOp") {
            Some(op) => Some(SurfaceOp::from_value(op).ok_or_else(|| bad("the `surfaceOp`"))?),
            None => None,
        };
        let seqs = |list: &Value| list.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<_>>>();
        let sources = match value.get("sourceEventSeqs") {
            Some(list) => Some(seqs(list).ok_or_else(|| bad("the `sourceEventSeqs`"))?),
            None => None,
        };
        let data = value.get("data").cloned().unwrap_or(Value::Null);
        let ignorable = value.get("ignorable").and_then(Value::as_bool).unwrap_or(false);
        let event = seat(host, arguments)?.session.append_raw(kind, data, surface_op, sources, ignorable)?;
        Ok(Some(arguments.env.number(event.seq as f64)))
    })
}

/// `consumedWork(core, seat) -> json`: the turn end that accounts for what was consumed, and whether work was dropped.
pub fn consumed_work(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let work = fold_consumed_work(&seat(host, arguments)?.session.marks_from(0));
        let mut object = Object::new();
        object.insert("end", work.end.map_or(Value::Null, Value::from));
        object.insert("droppedUnrun", work.dropped_unrun);
        Ok(Some(arguments.env.text(&Value::Object(object).to_text())))
    })
}

/// `emit(core, seat, notice)`: delivers a notification about an agent from outside: `{event, …}` (EVT-13).
pub fn emit(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let (agent, value) = (host.agent(arguments.key(1))?, json_at(arguments, 2)?);
        let name = value.get("event").and_then(Value::as_str).unwrap_or_default();
        host::emit(&agent, name, &value)?;
        Ok(None)
    })
}
