//! Payloads as JSON: how each event type's is read and written. The types themselves are in `event`.

use super::event::*;
use super::reason::TurnEndReason;
use crate::error::{Code, Error, Result};
use crate::json::{Object, Value, write_number, write_str};
use crate::llm::{Chunk, RequestHeader};
use crate::message::{Message, Usage};
use std::sync::Arc;

impl EventData {
    /// Reads a payload. Messages and request headers are checked (APP-14, APP-15); any other payload of a core type
    /// that is not of the known shape is kept as JSON. Retired types are refused (APP-08).
    pub fn from_value(kind: &str, data: &Value) -> Result<Self> {
        if RETIRED_TYPES.contains(&kind) {
            let message = format!("{kind} was retired before format 0 was fixed; it is neither written nor read");
            return Err(Error::new(Code::InvalidEvent, message).with("type", kind));
        }
        let members = data.as_object().map_or(0, Object::len);
        let exactly = |count: usize| (members == count).then_some(());
        let number = |key: &str| data.get(key).and_then(Value::as_u64);
        let text = |key: &str| data.get(key).and_then(Value::as_str);
        let message = || {
            let value = data.get("message").ok_or_else(|| Error::new(Code::InvalidMessage, "`message` is missing"))?;
            Message::from_value(value).map(Arc::new)
        };
        let typed = match kind {
            "turn/start" => exactly(1).and_then(|()| Some(EventData::TurnStart { turn: number("turn")? })),
            "turn/end" => exactly(2).and_then(|()| {
                Some(EventData::TurnEnd {
                    turn: number("turn")?,
                    reason: TurnEndReason::from_value(data.get("reason")?),
                })
            }),
            "step/start" | "step/end" => exactly(2).and_then(|()| {
                let (turn, step) = (number("turn")?, number("step")?);
                Some(match kind {
                    "step/start" => EventData::StepStart { turn, step },
                    _ => EventData::StepEnd { turn, step },
                })
            }),
            "user/message" => Some(EventData::UserMessage(Arc::new(Message::from_value(data)?))),
            "assistant/chunk" => exactly(3).and_then(|()| {
                let chunk = Chunk::from_value(data.get("chunk")?)?;
                Some(EventData::AssistantChunk { turn: number("turn")?, step: number("step")?, chunk })
            }),
            "assistant/message" => {
                let message = message()?;
                if message.role() != crate::message::Role::Assistant {
                    return Err(Error::new(Code::InvalidMessage, "`message.role` must be assistant"));
                }
                let usage = data.get("usage").and_then(Usage::from_value);
                let interrupted = data.get("interrupted").and_then(Value::as_bool) == Some(true);
                number("turn").zip(number("step")).map(|(turn, step)| EventData::AssistantMessage {
                    turn,
                    step,
                    message,
                    usage,
                    interrupted,
                })
            }
            "tool/call" => exactly(5).and_then(|()| {
                Some(EventData::ToolCall {
                    turn: number("turn")?,
                    step: number("step")?,
                    call_id: text("callId")?.into(),
                    name: text("name")?.to_owned(),
                    arguments: text("arguments")?.to_owned(),
                })
            }),
            "tool/result" => {
                let message = message()?;
                if message.source().kind() != "tool" {
                    return Err(Error::new(Code::InvalidMessage, "`message.source.kind` must be tool"));
                }
                let error = data.get("error").and_then(|error| {
                    let text = |key: &str| error.get(key).and_then(Value::as_str).map(str::to_owned);
                    Some(ErrorInfo { name: text("name")?, code: text("code")? })
                });
                let meta = data.get("meta").cloned().map(Box::new);
                let numbers = number("turn").zip(number("step"));
                numbers.map(|(turn, step)| EventData::ToolResult { turn, step, message, error, meta })
            }
            "request/header" => {
                let header = data.get("header").ok_or_else(|| Error::new(Code::InvalidEvent, "`header` is missing"))?;
                let header = Arc::new(RequestHeader::from_value(header)?);
                let reason = match text("reason") {
                    Some("initial") => HeaderReason::Initial,
                    Some("resume") => HeaderReason::Resume,
                    Some("change") => HeaderReason::Change,
                    _ => return Err(Error::new(Code::InvalidEvent, "request/header: unknown reason")),
                };
                Some(EventData::RequestHeader { header, reason })
            }
            "request/context" => exactly(2 + usize::from(data.get("contextWindow").is_some())).and_then(|()| {
                let context_window = match data.get("contextWindow") {
                    Some(window) => Some(window.as_u64()?),
                    None => None,
                };
                let (provider, model) = (text("provider")?.to_owned(), text("model")?.to_owned());
                Some(EventData::RequestContext(RequestContext { provider, model, context_window }))
            }),
            "session/end-seed" => (data.as_object().is_some_and(Object::is_empty)).then_some(EventData::EndSeed),
            "agent/inbox/spliced" => Splice::from_value(data).map(EventData::InboxSpliced),
            _ => None,
        };
        Ok(typed.unwrap_or_else(|| EventData::Other { kind: kind.into(), data: data.clone() }))
    }

    /// Appends the payload's JSON text.
    pub fn write(&self, out: &mut String) {
        let member = |name: &str, out: &mut String| {
            if !out.ends_with('{') {
                out.push(',');
            }
            out.push('"');
            out.push_str(name);
            out.push_str("\":");
        };
        let number = |name: &str, value: u64, out: &mut String| {
            member(name, out);
            write_number(value as f64, out);
        };
        let text = |name: &str, value: &str, out: &mut String| {
            member(name, out);
            write_str(value, out);
        };
        match self {
            EventData::UserMessage(message) => return message.write(out),
            EventData::Other { data, .. } => return data.write(out),
            _ => out.push('{'),
        }
        match self {
            EventData::TurnStart { turn } => number("turn", *turn, out),
            EventData::TurnEnd { turn, reason } => {
                number("turn", *turn, out);
                member("reason", out);
                reason.to_value().write(out);
            }
            EventData::StepStart { turn, step } | EventData::StepEnd { turn, step } => {
                number("turn", *turn, out);
                number("step", *step, out);
            }
            EventData::AssistantChunk { turn, step, chunk } => {
                number("turn", *turn, out);
                number("step", *step, out);
                member("chunk", out);
                chunk.write(out);
            }
            EventData::AssistantMessage { turn, step, message, usage, interrupted } => {
                number("turn", *turn, out);
                number("step", *step, out);
                member("message", out);
                message.write(out);
                if let Some(usage) = usage {
                    member("usage", out);
                    usage.to_value().write(out);
                }
                if *interrupted {
                    member("interrupted", out);
                    out.push_str("true");
                }
            }
            EventData::ToolCall { turn, step, call_id, name, arguments } => {
                number("turn", *turn, out);
                number("step", *step, out);
                text("callId", call_id, out);
                text("name", name, out);
                text("arguments", arguments, out);
            }
            EventData::ToolResult { turn, step, message, error, meta } => {
                number("turn", *turn, out);
                number("step", *step, out);
                member("message", out);
                message.write(out);
                if let Some(error) = error {
                    member("error", out);
                    out.push('{');
                    text("name", &error.name, out);
                    text("code", &error.code, out);
                    out.push('}');
                }
                if let Some(meta) = meta {
                    member("meta", out);
                    meta.write(out);
                }
            }
            EventData::RequestHeader { header, reason } => {
                member("header", out);
                header.to_value().write(out);
                let reason = match reason {
                    HeaderReason::Initial => "initial",
                    HeaderReason::Resume => "resume",
                    HeaderReason::Change => "change",
                };
                text("reason", reason, out);
            }
            EventData::RequestContext(context) => {
                text("provider", &context.provider, out);
                text("model", &context.model, out);
                if let Some(window) = context.context_window {
                    number("contextWindow", window, out);
                }
            }
            EventData::InboxSpliced(splice) => {
                text("target", splice.target.as_str(), out);
                number("start", splice.start as u64, out);
                if splice.removed_count > 0 {
                    number("removedCount", splice.removed_count as u64, out);
                }
                member("inserted", out);
                out.push('[');
                for (i, message) in splice.inserted.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    message.write(out);
                }
                out.push(']');
                if splice.canceled {
                    text("outcome", "canceled", out);
                }
            }
            EventData::EndSeed | EventData::UserMessage(_) | EventData::Other { .. } => {}
        }
        out.push('}');
    }

    /// The payload as a JSON value.
    pub fn to_value(&self) -> Value {
        let mut text = String::new();
        self.write(&mut text);
        crate::json::parse(&text).expect("a payload's own text is JSON")
    }
}

impl Splice {
    fn from_value(data: &Value) -> Option<Self> {
        let object = data.as_object()?;
        let removed_count = match object.get("removedCount") {
            Some(count) => count.as_u64().filter(|count| *count > 0)?,
            None => 0,
        };
        let canceled = match object.get("outcome") {
            Some(outcome) => outcome.as_str() == Some("canceled"),
            None => false,
        };
        let inserted = object.get("inserted")?.as_array()?;
        let inserted = inserted.iter().map(|value| Message::from_value(value).ok().map(Arc::new));
        Some(Self {
            target: InboxTarget::parse(object.get("target")?.as_str()?)?,
            start: usize::try_from(object.get("start")?.as_u64()?).ok()?,
            removed_count: usize::try_from(removed_count).ok()?,
            inserted: inserted.collect::<Option<_>>()?,
            canceled,
        })
    }
}
