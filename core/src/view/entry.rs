//! What one event means to a person.

use super::format::{count, span};
use super::totals::is_error;
use crate::json::Value;
use crate::llm::{CallConfig, Chunk, RequestHeader};
use crate::message::{Block, Message, Source, Usage};
use crate::session::{Event, EventData, HeaderReason, InboxTarget, Splice, Surface, TurnEndReason};
use std::collections::HashMap;
use std::sync::Arc;

/// Where an entry stands in the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It opens a turn.
    TurnStart,
    /// It closes the open turn.
    TurnEnd,
    /// It opens a step.
    Step,
    /// It belongs to what is open, or to the session.
    Inside,
}

/// Whose entry it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Input of a person.
    User,
    /// An answer of a model.
    Model,
    /// A tool call or its result.
    Tool,
    /// The request made of a model.
    Request,
    /// Something went wrong, or was stopped.
    Failure,
    /// Anything else.
    Note,
}

/// How a text is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// What was said.
    Prose,
    /// What a tool returned: it may be long, so it can be folded.
    Result,
    /// What a model thought.
    Reasoning,
    /// JSON, schemas, long prompts: folded until asked for.
    Folded,
}

/// One text of an entry. As it is in the log: renderers make it harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// How it is shown.
    pub kind: PartKind,
    /// What it is, such as `arguments`; empty for what needs no name.
    pub label: String,
    /// The text.
    pub text: String,
}

/// What a reader sees of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The event's seq.
    pub seq: u64,
    /// When, epoch milliseconds.
    pub time: i64,
    /// Where it stands.
    pub place: Place,
    /// Whose it is.
    pub tone: Tone,
    /// One line; may hold text of the log.
    pub title: String,
    /// Texts below the title.
    pub parts: Vec<Part>,
    /// Tokens of an answer.
    pub usage: Option<Usage>,
}

/// Turns events, in order from the first, into entries.
#[derive(Default)]
pub struct Reader {
    surface: Surface,
    header: Option<Arc<RequestHeader>>,
    /// Name and start of every call without a result.
    calls: HashMap<String, (String, i64)>,
    turn_started: i64,
    step_started: i64,
    /// What the model has streamed since the step or the last retry began, while no message has it.
    partial: String,
    /// When the first token of the step's answer came.
    first_token: Option<i64>,
    /// The surface's generation and length at the last request.
    sent: (u64, usize),
}

impl Reader {
    /// The entries of the next event; none for what only machines need.
    pub fn read(&mut self, event: &Event) -> Vec<Entry> {
        let mut entries = Vec::new();
        if matches!(event.kind(), "step/end" | "turn/end" | "llm/retry") {
            entries.extend(self.take_partial(event));
            self.first_token = None;
        }
        entries.extend(self.entry(event));
        if event.surface_op.is_some() {
            self.surface.apply(event);
        }
        entries
    }

    /// What was streamed last and is in no message: the log ends, or goes on later.
    pub fn rest(&mut self, last: &Event) -> Option<Entry> {
        self.take_partial(last)
    }

    fn take_partial(&mut self, event: &Event) -> Option<Entry> {
        let text = std::mem::take(&mut self.partial);
        let title = "answer cut off before it became a message";
        (!text.is_empty()).then(|| Entry::new(event, Tone::Failure, title).prose(text))
    }

    fn entry(&mut self, event: &Event) -> Option<Entry> {
        Some(match &event.data {
            EventData::TurnStart { turn } => {
                self.turn_started = event.time;
                Entry::new(event, Tone::Note, format!("turn {turn}")).at(Place::TurnStart)
            }
            EventData::TurnEnd { turn, reason } => self.turn_end(event, *turn, reason),
            EventData::StepStart { step, .. } => {
                self.step_started = event.time;
                Entry::new(event, Tone::Note, format!("step {step}")).at(Place::Step)
            }
            EventData::StepEnd { .. } => return None,
            EventData::EndSeed => Entry::new(event, Tone::Note, "what was inherited ends here"),
            EventData::UserMessage(message) => said(event, message),
            EventData::AssistantChunk { chunk, .. } => {
                if let Chunk::TextDelta { text, .. } = chunk {
                    self.partial.push_str(text);
                }
                if chunk.is_token() {
                    self.first_token.get_or_insert(event.time);
                }
                return None;
            }
            EventData::AssistantMessage { message, usage, interrupted, .. } => {
                self.partial.clear();
                self.answer(event, message, *usage, *interrupted)
            }
            EventData::ToolCall { call_id, name, arguments, .. } => {
                self.calls.insert(call_id.to_string(), (name.clone(), event.time));
                let entry = Entry::new(event, Tone::Tool, format!("call {name}"));
                entry.part(PartKind::Folded, "arguments", arguments.clone())
            }
            EventData::ToolResult { message, error, meta, .. } => {
                let code = error.as_ref().map(|error| error.code.as_str());
                self.result(event, message, code, meta.as_deref())
            }
            EventData::RequestHeader { header, reason } => self.request_header(event, header, *reason),
            EventData::RequestContext(context) => {
                let window = context.context_window.map(|tokens| format!(", window of {}", count(tokens, "token")));
                let title = format!("request to {}/{}", context.provider, context.model);
                let title = format!("{title}{}, {}", window.unwrap_or_default(), self.seen());
                Entry::new(event, Tone::Request, title)
            }
            EventData::InboxSpliced(splice) => return splice_entry(event, splice),
            EventData::Other { kind, data } => other(event, kind, data),
        })
    }

    /// How many messages the model sees now.
    fn seen(&self) -> String {
        count(self.surface.nodes().len() as u64, "message")
    }

    fn turn_end(&mut self, event: &Event, turn: u64, reason: &TurnEndReason) -> Entry {
        self.calls.clear();
        let after = span(event.time - self.turn_started);
        let (tone, how) = ending(reason);
        Entry::new(event, tone, format!("turn {turn} {how} after {after}")).at(Place::TurnEnd)
    }

    fn answer(&mut self, event: &Event, message: &Message, usage: Option<Usage>, interrupted: bool) -> Entry {
        let who = match message.source() {
            Source::Model { provider, model, .. } => format!("{provider}/{model}"),
            other => other.kind().to_owned(),
        };
        let after = span(event.time - self.step_started);
        let (tone, how) = if interrupted { (Tone::Failure, "was interrupted") } else { (Tone::Model, "answered") };
        let first = self.first_token.map(|time| format!(", first token after {}", span(time - self.step_started)));
        let mut entry = Entry::new(event, tone, format!("{who} {how} after {after}{}", first.unwrap_or_default()));
        entry.usage = usage;
        entry.blocks(message.content(), "").part(PartKind::Folded, "request", self.request())
    }

    /// What the model was sent for the answer that is read now: messages by the seqs of their events, and of those only
    /// what the last request did not have, because histories are long and requests many.
    fn request(&mut self) -> String {
        let Some(header) = &self.header else { return String::new() };
        let nodes = self.surface.nodes();
        let known = match self.sent {
            (generation, known) if generation == self.surface.generation() => known.min(nodes.len()),
            _ => 0,
        };
        let news: Vec<String> = nodes[known..].iter().map(u64::to_string).collect();
        self.sent = (self.surface.generation(), nodes.len());
        let system = header.system.as_ref().map_or(0, |system| system.chars().count());
        let tools: Vec<&str> = header.tools.iter().map(|tool| tool.name()).collect();
        format!(
            "{}/{}\n{}; since the last request those of events {}\nsystem prompt: {}\ntools: {}\nsettings: {}",
            header.config.provider,
            header.config.model,
            self.seen(),
            if news.is_empty() { "none".to_owned() } else { news.join(", ") },
            count(system as u64, "character"),
            if tools.is_empty() { "none".to_owned() } else { tools.join(", ") },
            header.config.to_value().to_text(),
        )
    }

    fn result(&mut self, event: &Event, message: &Message, code: Option<&str>, meta: Option<&Value>) -> Entry {
        let call_id = match message.source() {
            Source::Tool { call_id } => call_id.as_str(),
            _ => "",
        };
        let failed = code.is_some() || is_error(message.content());
        let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
        let (tone, how) = if failed { (Tone::Failure, "failed") } else { (Tone::Tool, "returned") };
        let title = match self.calls.remove(call_id) {
            Some((name, started)) => format!("{name} {how} after {}{code}", span(event.time - started)),
            None => format!("call {call_id} {how}{code}"),
        };
        let entry = Entry::new(event, tone, title).blocks(message.content(), RESULT);
        match meta {
            Some(meta) => entry.part(PartKind::Folded, "meta", pretty(meta)),
            None => entry,
        }
    }

    fn request_header(&mut self, event: &Event, header: &Arc<RequestHeader>, reason: HeaderReason) -> Entry {
        let CallConfig { provider, model, .. } = &header.config;
        let what = match reason {
            HeaderReason::Initial => "request",
            HeaderReason::Resume => "request, resumed",
            HeaderReason::Change => "request, changed",
        };
        let tools = count(header.tools.len() as u64, "tool");
        let title = format!("{what}: {provider}/{model}, {}, {tools}", self.seen());
        let mut entry = Entry::new(event, Tone::Request, title);
        let before = self.header.replace(header.clone());
        if let Some(system) = header.system.as_ref().filter(|system| {
            // A prompt is long and rarely changes: it is shown where it does.
            before.as_ref().is_none_or(|before| before.system.as_deref() != Some(&***system))
        }) {
            entry = entry.part(PartKind::Folded, "system prompt", system.to_string());
        }
        entry = entry.part(PartKind::Folded, "settings", pretty(&header.config.to_value()));
        for tool in &header.tools {
            if before.as_ref().is_some_and(|before| before.tools.contains(tool)) {
                continue;
            }
            let text = format!("{}\n\n{}", tool.description(), pretty(tool.parameters()));
            entry = entry.part(PartKind::Folded, &format!("tool {}", tool.name()), text);
        }
        entry
    }
}

impl Entry {
    fn new(event: &Event, tone: Tone, title: impl Into<String>) -> Self {
        let title = title.into();
        Self { seq: event.seq, time: event.time, place: Place::Inside, tone, title, parts: Vec::new(), usage: None }
    }

    fn at(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    fn part(mut self, kind: PartKind, label: &str, text: String) -> Self {
        if !text.is_empty() {
            self.parts.push(Part { kind, label: label.to_owned(), text });
        }
        self
    }

    fn prose(self, text: String) -> Self {
        self.part(PartKind::Prose, "", text)
    }

    fn blocks(mut self, blocks: &[Block], label: &str) -> Self {
        for block in blocks {
            self = match block {
                Block::Text(text) if label == RESULT => self.part(PartKind::Result, label, text.clone()),
                Block::Text(text) => self.part(PartKind::Prose, label, text.clone()),
                Block::Reasoning(text) => self.part(PartKind::Reasoning, "reasoning", text.clone()),
                // The call has an entry of its own when it begins; one that never does is told by its result.
                Block::ToolCall { name, arguments, .. } => {
                    self.part(PartKind::Folded, &format!("asks for {name}"), arguments.clone())
                }
                Block::ToolResult { content, .. } => self.blocks(content, label),
                Block::Other(value) => self.part(PartKind::Folded, block.kind(), pretty(value)),
            };
        }
        self
    }
}

/// The label of what a tool returned.
const RESULT: &str = "result";

/// Who a message is from, and what it says.
fn said(event: &Event, message: &Message) -> Entry {
    let (tone, who) = match message.source() {
        Source::User => (Tone::User, "user".to_owned()),
        Source::Other(object) => match object.get("plugin").and_then(Value::as_str) {
            Some(plugin) => (Tone::Note, format!("context from {plugin}")),
            None => (Tone::Note, format!("message from {}", message.source().kind())),
        },
        source => (Tone::Note, format!("message from {}", source.kind())),
    };
    Entry::new(event, tone, who).blocks(message.content(), "")
}

fn splice_entry(event: &Event, splice: &Splice) -> Option<Entry> {
    let list = match splice.target {
        InboxTarget::NextStep => "for the next step",
        InboxTarget::NextTurn => "for the next turn",
    };
    if splice.canceled && splice.removed_count > 0 {
        let title = format!("discarded {} that waited {list}", count(splice.removed_count as u64, "message"));
        return Some(Entry::new(event, Tone::Failure, title));
    }
    if splice.inserted.is_empty() {
        return None;
    }
    let title = format!("queued {} {list}", count(splice.inserted.len() as u64, "message"));
    let mut entry = Entry::new(event, Tone::Note, title);
    for message in &splice.inserted {
        let mut text = String::new();
        for block in message.content() {
            text.push_str(block.text().unwrap_or_default());
        }
        entry = entry.part(PartKind::Folded, "message", text);
    }
    Some(entry)
}

/// Events of plug-ins, and those of the reference that are plain data here.
fn other(event: &Event, kind: &str, data: &Value) -> Entry {
    let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
    let number = |key: &str| data.get(key).and_then(Value::as_f64);
    let entry = |tone, title: String| Entry::new(event, tone, title);
    match kind {
        "llm/retry" => {
            let failure = data.get("failure");
            let why = |key: &str| failure.and_then(|failure| failure.get(key)).and_then(Value::as_str).unwrap_or("");
            let of = number("maxRetries").map(|max| format!(" of {max}")).unwrap_or_default();
            let delay = span(number("delayMs").unwrap_or(0.0) as i64);
            let retry = number("retry").unwrap_or(0.0);
            entry(Tone::Failure, format!("{} failed ({}): retry {retry}{of} in {delay}", text("provider"), why("code")))
                .prose(why("message").to_owned())
        }
        "llm/retry-started" => entry(Tone::Note, format!("retry {} begins", number("retry").unwrap_or(0.0))),
        "approval/asked" => entry(Tone::Note, format!("approval asked for {}", text("toolName"))),
        "approval/decided" => entry(Tone::Note, format!("approval decided: {}", text("outcome"))),
        "session/title" => entry(Tone::Note, format!("title: {}", text("title"))),
        _ => entry(Tone::Note, kind.to_owned()).part(PartKind::Folded, "data", pretty(data)),
    }
}

/// How a turn ended, and whether that is a failure.
fn ending(reason: &TurnEndReason) -> (Tone, String) {
    match reason {
        TurnEndReason::Completed => (Tone::Note, "completed".to_owned()),
        TurnEndReason::Blocked => (Tone::Failure, "was blocked".to_owned()),
        TurnEndReason::MaxTokens => (Tone::Failure, "hit the output limit".to_owned()),
        TurnEndReason::Interrupted => (Tone::Failure, "was cut by a crash and closed by repair,".to_owned()),
        TurnEndReason::Aborted(cause) => (Tone::Failure, format!("was cancelled ({})", cause.kind())),
        TurnEndReason::Error(failure) => (Tone::Failure, format!("failed: {} ({})", failure.message, failure.code)),
        TurnEndReason::Other(value) => {
            (Tone::Note, format!("ended: {}", value.get("kind").and_then(Value::as_str).unwrap_or("other")))
        }
    }
}

/// JSON over several lines.
fn pretty(value: &Value) -> String {
    let mut out = String::new();
    indent(value, 0, &mut out);
    out
}

/// What is nested deeper is written on one line: the page stays readable and the stack small.
const DEEPEST: usize = 12;

fn indent(value: &Value, depth: usize, out: &mut String) {
    let line = |depth: usize, out: &mut String| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    match value {
        Value::Object(object) if !object.is_empty() && depth < DEEPEST => {
            out.push('{');
            for (index, (key, member)) in object.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                line(depth + 1, out);
                crate::json::write_str(key, out);
                out.push_str(": ");
                indent(member, depth + 1, out);
            }
            line(depth, out);
            out.push('}');
        }
        Value::Array(items) if !items.is_empty() && depth < DEEPEST => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                line(depth + 1, out);
                indent(item, depth + 1, out);
            }
            line(depth, out);
            out.push(']');
        }
        flat => flat.write(out),
    }
}
