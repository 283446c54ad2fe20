//! What is in the log: every event type, its payload and its JSON (data.md section 2).
//!
//! Core payloads are typed; every other type keeps its payload as JSON. An event read from a store whose text differs
//! from what this module would write (other key order, members unknown here) keeps its own text, so nothing is lost
//! and two programs agree on it (PCO-17).

use super::reason::TurnEndReason;
use super::spares;
use crate::error::{Code, Error, Result};
use crate::id::CallId;
use crate::json::{Value, write_number, write_str};
use crate::llm::{Chunk, RequestHeader};
use crate::message::{Block, Message, Usage};
use std::sync::{Arc, OnceLock};

/// One committed event. `seq` equals its index in the log; `time` is epoch milliseconds and may go backwards (REC-01).
pub struct Event {
    /// Position in the log, from 0.
    pub seq: u64,
    /// Epoch milliseconds.
    pub time: i64,
    /// Type and payload.
    pub data: EventData,
    /// Placement on the surface; on surface events only (REC-03).
    pub surface_op: Option<SurfaceOp>,
    /// The events this one was made from. Empty and absent differ (SURF-07).
    pub source_event_seqs: Option<Vec<u64>>,
    /// Readers that do not know the type may skip the event (VER-04).
    pub ignorable: bool,
    text: OnceLock<Arc<str>>,
    /// Whether `text` is what was read and not what this module would write.
    own_text: bool,
}

/// Placement on the surface, the ordered list of what the model sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SurfaceOp {
    /// At the end.
    Append,
    /// In place of the span of surface nodes from `start` to `end`, inclusive, by position (SURF-03).
    Replace {
        /// Seq of the first node replaced.
        start: u64,
        /// Seq of the last node replaced.
        end: u64,
    },
}

/// Which pending list of the inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InboxTarget {
    /// Taken whole at the next step boundary.
    NextStep,
    /// One taken at each turn boundary.
    NextTurn,
}

impl InboxTarget {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            InboxTarget::NextStep => "next-step",
            InboxTarget::NextTurn => "next-turn",
        }
    }

    /// Reads a name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "next-step" => Some(InboxTarget::NextStep),
            "next-turn" => Some(InboxTarget::NextTurn),
            _ => None,
        }
    }
}

/// A normalised change of one pending list (REC-15).
#[derive(Clone, Debug, PartialEq)]
pub struct Splice {
    /// The list.
    pub target: InboxTarget,
    /// Where.
    pub start: usize,
    /// How many messages leave.
    pub removed_count: usize,
    /// What comes in their place.
    pub inserted: Vec<Arc<Message>>,
    /// Whether the removed were discarded rather than claimed.
    pub canceled: bool,
}

/// Why a request header was logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderReason {
    /// The log's first.
    Initial,
    /// A loop instance's first on a log that has one.
    Resume,
    /// It differs from the last.
    Change,
}

/// Name and code of a structured failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorInfo {
    /// The error's class.
    pub name: String,
    /// Its stable code.
    pub code: String,
}

/// The route and capacity a request was made for (HDR-06).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestContext {
    /// The provider route.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The model's window in tokens, when known.
    pub context_window: Option<u64>,
}

/// Type and payload of an event.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the members are those of data.md section 2, under the same names")]
pub enum EventData {
    TurnStart {
        turn: u64,
    },
    TurnEnd {
        turn: u64,
        reason: TurnEndReason,
    },
    StepStart {
        turn: u64,
        step: u64,
    },
    StepEnd {
        turn: u64,
        step: u64,
    },
    UserMessage(Arc<Message>),
    AssistantChunk {
        turn: u64,
        step: u64,
        chunk: Chunk,
    },
    AssistantMessage {
        turn: u64,
        step: u64,
        message: Arc<Message>,
        usage: Option<Usage>,
        interrupted: bool,
    },
    ToolCall {
        turn: u64,
        step: u64,
        call_id: CallId,
        name: String,
        arguments: String,
    },
    ToolResult {
        turn: u64,
        step: u64,
        message: Arc<Message>,
        error: Option<ErrorInfo>,
        meta: Option<Box<Value>>,
    },
    RequestHeader {
        header: Arc<RequestHeader>,
        reason: HeaderReason,
    },
    RequestContext(RequestContext),
    EndSeed,
    InboxSpliced(Splice),
    /// Any other type, or a core type whose payload has members this version does not know.
    Other {
        kind: Arc<str>,
        data: Value,
    },
}

/// The types that every reader knows (REC-30).
pub const KNOWN_TYPES: [&str; 48] = [
    "agent-preset/selected",
    "agent/inbox/spliced",
    "approval/asked",
    "approval/decided",
    "approval/policy",
    "assistant/chunk",
    "assistant/message",
    "command/done",
    "command/run",
    "compaction/end",
    "compaction/prune",
    "compaction/start",
    "compaction/summary",
    "feedback/record",
    "goal/change",
    "hook/invoked",
    "hook/result",
    "llm/retry",
    "llm/retry-started",
    "permission/preset",
    "plan/mode",
    "request/context",
    "request/header",
    "sandbox/mode",
    "schedule/change",
    "session/end-seed",
    "session/title",
    "session/title-llm-request",
    "step/end",
    "step/start",
    "subagent/descriptor",
    "team/member",
    "team/message/delivered",
    "team/message/queued",
    "team/task",
    "todo/write",
    "tool-workflow/agent-end",
    "tool-workflow/agent-start",
    "tool-workflow/run-end",
    "tool-workflow/run-start",
    "tool/call",
    "tool/code-dispatch",
    "tool/code-dispatch-start",
    "tool/result",
    "turn/end",
    "turn/start",
    "user/message",
    "web/deepseek-search-llm-request",
];

/// The types that neither a log nor an append may have (APP-08).
pub(super) const RETIRED_TYPES: [&str; 2] = ["mode/set", "request/header-delta"];

/// The types that only the runtime itself may append (D-09).
pub const CORE_TYPES: [&str; 13] = [
    "agent/inbox/spliced",
    "assistant/chunk",
    "assistant/message",
    "request/context",
    "request/header",
    "session/end-seed",
    "step/end",
    "step/start",
    "tool/call",
    "tool/result",
    "turn/end",
    "turn/start",
    "user/message",
];

impl EventData {
    /// The event's type.
    pub fn kind(&self) -> &str {
        match self {
            EventData::TurnStart { .. } => "turn/start",
            EventData::TurnEnd { .. } => "turn/end",
            EventData::StepStart { .. } => "step/start",
            EventData::StepEnd { .. } => "step/end",
            EventData::UserMessage(_) => "user/message",
            EventData::AssistantChunk { .. } => "assistant/chunk",
            EventData::AssistantMessage { .. } => "assistant/message",
            EventData::ToolCall { .. } => "tool/call",
            EventData::ToolResult { .. } => "tool/result",
            EventData::RequestHeader { .. } => "request/header",
            EventData::RequestContext(_) => "request/context",
            EventData::EndSeed => "session/end-seed",
            EventData::InboxSpliced(_) => "agent/inbox/spliced",
            EventData::Other { kind, .. } => kind,
        }
    }

    /// About how many bytes of memory it takes.
    pub(crate) fn weight(&self) -> usize {
        let of_message = |message: &Message| message.content().iter().map(Block::weight).sum::<usize>();
        let own = match self {
            EventData::AssistantChunk { chunk, .. } => chunk.weight(),
            EventData::ToolCall { arguments, .. } => arguments.len(),
            EventData::InboxSpliced(splice) => splice.inserted.iter().map(|message| of_message(message)).sum(),
            EventData::Other { data, .. } => data.weight(),
            EventData::ToolResult { message, meta, .. } => {
                of_message(message) + meta.as_ref().map_or(0, |meta| meta.weight())
            }
            _ => self.message().map_or(0, |message| of_message(message)),
        };
        size_of::<Event>() + own
    }

    /// Whether events of this type stand on the surface (REC-03).
    pub fn is_surface(&self) -> bool {
        match self {
            EventData::UserMessage(_) | EventData::AssistantMessage { .. } | EventData::ToolResult { .. } => true,
            EventData::Other { kind, .. } => matches!(&**kind, "user/message" | "assistant/message" | "tool/result"),
            EventData::TurnStart { .. }
            | EventData::TurnEnd { .. }
            | EventData::StepStart { .. }
            | EventData::StepEnd { .. }
            | EventData::AssistantChunk { .. }
            | EventData::ToolCall { .. }
            | EventData::RequestHeader { .. }
            | EventData::RequestContext(_)
            | EventData::EndSeed
            | EventData::InboxSpliced(_) => false,
        }
    }

    /// The message that a surface event puts before the model.
    pub fn message(&self) -> Option<&Arc<Message>> {
        match self {
            EventData::UserMessage(message)
            | EventData::AssistantMessage { message, .. }
            | EventData::ToolResult { message, .. } => Some(message),
            _ => None,
        }
    }
}

impl SurfaceOp {
    /// Reads `"append"` or `{op:"replace", start, end}`; nothing more, nothing less (SURF-02).
    pub fn from_value(value: &Value) -> Option<Self> {
        if value.as_str() == Some("append") {
            return Some(SurfaceOp::Append);
        }
        let object = value.as_object().filter(|object| object.len() == 3)?;
        if object.get("op")?.as_str()? != "replace" {
            return None;
        }
        Some(SurfaceOp::Replace { start: object.get("start")?.as_u64()?, end: object.get("end")?.as_u64()? })
    }

    fn write(&self, out: &mut String) {
        match self {
            SurfaceOp::Append => out.push_str("\"append\""),
            SurfaceOp::Replace { start, end } => {
                out.push_str("{\"op\":\"replace\",\"start\":");
                write_number(*start as f64, out);
                out.push_str(",\"end\":");
                write_number(*end as f64, out);
                out.push('}');
            }
        }
    }
}

impl Event {
    /// An event with a payload only.
    pub fn new(seq: u64, time: i64, data: EventData) -> Self {
        Self {
            seq,
            time,
            data,
            surface_op: None,
            source_event_seqs: None,
            ignorable: false,
            text: OnceLock::new(),
            own_text: false,
        }
    }

    /// An event as a live session commits it, on the heap.
    #[inline]
    pub(super) fn committed(
        seq: u64,
        time: i64,
        data: EventData,
        surface_op: Option<SurfaceOp>,
        source_event_seqs: Option<Vec<u64>>,
        ignorable: bool,
    ) -> Arc<Self> {
        let text = OnceLock::new();
        spares::place(Self { seq, time, data, surface_op, source_event_seqs, ignorable, text, own_text: false })
    }

    /// Drops what the event holds; it means nothing afterwards.
    pub(super) fn clear(&mut self) {
        self.data = EventData::EndSeed;
        self.surface_op = None;
        self.source_event_seqs = None;
        self.text = OnceLock::new();
    }

    /// Adds surface placement and cited sources.
    pub fn placed(mut self, surface_op: Option<SurfaceOp>, source_event_seqs: Option<Vec<u64>>) -> Self {
        self.surface_op = surface_op;
        self.source_event_seqs = source_event_seqs;
        self
    }

    /// Marks the event as one that readers may skip.
    pub fn ignorable(mut self) -> Self {
        self.ignorable = true;
        self
    }

    /// Reads and checks an event envelope and its payload (APP-13 to APP-15). Surface rules need the log and are
    /// checked where the event is added to one.
    pub fn from_value(value: &Value) -> Result<Self> {
        let bad = |what: String| Error::new(Code::InvalidEvent, what);
        let object = value.as_object().ok_or_else(|| bad("an event is an object".into()))?;
        let seq = object.get("seq").and_then(Value::as_u64).ok_or_else(|| bad("`seq` must be an index".into()))?;
        let at = |what: &str| bad(format!("event {seq}: {what}")).with("seq", seq);
        for key in object.keys() {
            const KEYS: [&str; 7] = ["type", "seq", "time", "data", "surfaceOp", "sourceEventSeqs", "ignorable"];
            if !KEYS.contains(&key) {
                return Err(at(&format!("unknown member `{key}`")));
            }
        }
        let kind = object.get("type").and_then(Value::as_str).ok_or_else(|| at("`type` must be a string"))?;
        let time = object.get("time").and_then(Value::as_i64).ok_or_else(|| at("`time` must be a safe integer"))?;
        let data = object.get("data").ok_or_else(|| at("`data` is missing"))?;
        let ignorable = match object.get("ignorable") {
            Some(Value::Bool(true)) => true,
            None => false,
            Some(_) => return Err(at("`ignorable` may only be true")),
        };
        let surface_op = match object.get("surfaceOp") {
            Some(op) => Some(SurfaceOp::from_value(op).ok_or_else(|| at("malformed `surfaceOp`"))?),
            None => None,
        };
        let sources = match object.get("sourceEventSeqs") {
            Some(list) => {
                let seqs = list.as_array().and_then(|list| list.iter().map(Value::as_u64).collect::<Option<_>>());
                Some(seqs.ok_or_else(|| at("`sourceEventSeqs` must be a list of seqs"))?)
            }
            None => None,
        };
        let data = EventData::from_value(kind, data).map_err(|error| at(error.message()).caused_by(error.clone()))?;
        let mut event = Event::new(seq, time, data).placed(surface_op, sources);
        event.ignorable = ignorable;
        let original = value.to_text();
        if event.render() != original {
            let _ = event.text.set(original.into());
            event.own_text = true;
        }
        Ok(event)
    }

    /// The event's type.
    pub fn kind(&self) -> &str {
        self.data.kind()
    }

    /// The canonical JSON text, rendered once and then shared.
    pub fn json(&self) -> &str {
        self.text.get_or_init(|| self.render().into())
    }

    /// Whether the text differs from what would be written for these fields, as in logs of another program.
    pub(crate) fn has_own_text(&self) -> bool {
        self.own_text
    }

    /// Appends the JSON text without keeping it.
    pub fn write(&self, out: &mut String) {
        match self.text.get() {
            Some(text) => out.push_str(text),
            None => self.render_into(out),
        }
    }

    /// The event as a JSON value.
    pub fn to_value(&self) -> Value {
        let mut text = String::new();
        self.write(&mut text);
        crate::json::parse(&text).expect("an event's own text is JSON")
    }

    /// The payload as a JSON value, with members unknown here.
    pub fn data_value(&self) -> Value {
        if let EventData::Other { data, .. } = &self.data {
            // Text cannot carry all of it: a stored 1e400 is an infinity here and would come back as null (APP-16).
            return data.clone();
        }
        match self.text.get() {
            Some(_) => self.to_value().get("data").cloned().unwrap_or(Value::Null),
            None => self.data.to_value(),
        }
    }

    fn render(&self) -> String {
        let mut out = String::new();
        self.render_into(&mut out);
        out
    }

    /// Key order of live writers (REC-02).
    fn render_into(&self, out: &mut String) {
        out.push_str("{\"type\":");
        write_str(self.data.kind(), out);
        out.push_str(",\"seq\":");
        write_number(self.seq as f64, out);
        out.push_str(",\"time\":");
        write_number(self.time as f64, out);
        out.push_str(",\"data\":");
        self.data.write(out);
        if let Some(sources) = &self.source_event_seqs {
            out.push_str(",\"sourceEventSeqs\":[");
            for (i, seq) in sources.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_number(*seq as f64, out);
            }
            out.push(']');
        }
        if let Some(op) = &self.surface_op {
            out.push_str(",\"surfaceOp\":");
            op.write(out);
        }
        if self.ignorable {
            out.push_str(",\"ignorable\":true");
        }
        out.push('}');
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.render())
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.json() == other.json()
    }
}
