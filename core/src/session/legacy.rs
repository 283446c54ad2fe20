//! Older shapes and unknown types (LEG-01 to LEG-08, VER-04, APP-08).
//!
//! Conversions happen on every read and in memory only; no file is rewritten. A value that only half looks like an old
//! shape is left alone, so that validation refuses it instead of this module guessing (LEG-08).

use super::event::KNOWN_TYPES;
use super::event_log::EventLog;
use crate::error::{Code, Error, Result};
use crate::json::{Object, Value};

/// Converts an event of an older shape into the current one. `log` holds the events before it. Fails with
/// `CORRUPT_LOG` for shapes that are refused rather than converted (APP-08, LEG-02 to LEG-04).
pub fn convert(mut value: Value, session: &str, log: &EventLog) -> Result<Value> {
    let Value::Object(event) = &mut value else {
        return Ok(value);
    };
    let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let seq = log.len();
    let refused = |what: &str| Error::new(Code::CorruptLog, format!("event {seq} is {what}")).with("seq", seq);
    match kind.as_str() {
        "request/header-delta" | "mode/set" => {
            return Err(refused(&format!("a retired {kind}, which is not supported")));
        }
        "request/header" => {
            let reason = event.get("data").and_then(|data| data.get("reason"));
            if reason.and_then(Value::as_str) == Some("fallback") {
                return Err(refused("a request/header with the retired reason `fallback`, which is not supported"));
            }
        }
        "turn/start" => {
            if let Some(Value::Object(data)) = event.get_mut("data") {
                turn_start(data).ok_or_else(|| refused("a malformed turn/start of an older shape"))?;
            }
        }
        "turn/end" => {
            let data = event.get_mut("data").ok_or_else(|| refused("a turn/end without data"))?;
            turn_end(data).ok_or_else(|| refused("a malformed turn/end"))?;
        }
        "steering/message" => {
            steering(event);
            user_message(event, session, seq);
        }
        "user/message" => user_message(event, session, seq),
        "assistant/message" => assistant_message(event, session, seq),
        "tool/result" => tool_result(event, session, log),
        _ => {}
    }
    Ok(value)
}

/// Refuses a log with an event that this version cannot interpret: a type outside REC-30 that is neither registered
/// (D-21) nor marked `ignorable` (VER-04).
pub fn check_known(value: &Value, is_registered: &dyn Fn(&str) -> bool) -> Result<()> {
    let Some(kind) = value.get("type").and_then(Value::as_str) else {
        return Ok(());
    };
    let ignorable = value.get("ignorable").and_then(Value::as_bool) == Some(true);
    if ignorable || KNOWN_TYPES.binary_search(&kind).is_ok() || is_registered(kind) {
        return Ok(());
    }
    Err(unknown_type(kind, value.get("seq").cloned().unwrap_or(Value::Null)))
}

pub(super) fn unknown_type(kind: &str, seq: Value) -> Error {
    let message = format!(
        "the log has an event of the unknown type `{kind}` that is not marked ignorable; open it with the version or \
         plug-in that wrote it, or register the type"
    );
    Error::new(Code::UnsupportedFormat, message).with("type", kind).with("seq", seq)
}

/// LEG-02: `trigger` is dropped, and its shape must be the old one exactly.
fn turn_start(data: &mut Object) -> Option<()> {
    let Some(trigger) = data.get("trigger") else {
        return Some(());
    };
    trigger.get("kind")?.as_str().filter(|kind| !kind.is_empty())?;
    data.get("turn")?.as_u64().filter(|turn| *turn >= 1)?;
    (data.len() == 2).then_some(())?;
    data.remove("trigger");
    Some(())
}

/// LEG-03 and LEG-04. `None` is malformed.
fn turn_end(data: &mut Value) -> Option<()> {
    let Value::Object(data) = data else {
        return None;
    };
    (data.len() == 2 && data.contains_key("turn")).then_some(())?;
    let Value::Object(reason) = data.get_mut("reason")? else {
        return None;
    };
    match reason.get("kind")?.as_str()? {
        "completed" | "blocked" | "max-tokens" | "interrupted" => (reason.len() == 1).then_some(()),
        "aborted" if reason.contains_key("reason") => Some(()),
        "aborted" => aborted(reason, "legacy"),
        "disposed" => aborted(reason, "disposed"),
        "error" if reason.contains_key("error") => Some(()),
        "error" => old_error(reason),
        _ => Some(()),
    }
}

fn aborted(reason: &mut Object, cause: &str) -> Option<()> {
    (reason.len() == 1).then_some(())?;
    reason.insert("kind", "aborted");
    reason.insert("reason", Object::from_iter([("kind", cause)]));
    Some(())
}

fn old_error(reason: &mut Object) -> Option<()> {
    reason.get("step")?.as_u64()?;
    let failure = match reason.get("failure") {
        Some(failure) => {
            (reason.len() == 3).then_some(())?;
            Value::Object(failure.as_object()?.clone())
        }
        None => {
            let message = reason.get("message")?.as_str()?;
            let code = match reason.get("code") {
                Some(code) => Some(code.as_str()?),
                None => None,
            };
            (reason.len() == 3 + usize::from(code.is_some())).then_some(())?;
            Value::Object(Object::from_iter([("message", message), ("code", code.unwrap_or("UNKNOWN"))]))
        }
    };
    *reason = Object::from_iter([("kind", Value::from("error")), ("error", failure)]);
    Some(())
}

/// LEG-05: the type changes in place; seq, time and surface data stay.
fn steering(event: &mut Object) {
    let Some(Value::Object(data)) = event.get_mut("data") else {
        return;
    };
    let has = |keys: &[&str]| data.len() == keys.len() && keys.iter().all(|key| data.contains_key(key));
    if has(&["turn", "message"]) {
        let message = data.remove("message").unwrap_or(Value::Null);
        event.insert("data", message);
    } else if has(&["turn", "content", "source"]) {
        data.remove("turn");
    } else {
        return;
    }
    event.insert("type", "user/message");
}

fn legacy_id(session: &str, seq: usize) -> String {
    format!("legacy-message:{session}:{seq}")
}

/// LEG-06: a user message gains identity and role.
fn user_message(event: &mut Object, session: &str, seq: usize) {
    if let Some(Value::Object(data)) = event.get_mut("data")
        && data.contains_key("content")
        && data.contains_key("source")
        && !data.contains_key("id")
        && !data.contains_key("role")
    {
        data.insert("id", legacy_id(session, seq));
        data.insert("role", "user");
    }
}

/// LEG-06: a flat assistant message is wrapped. What it has besides goes before `message`.
fn assistant_message(event: &mut Object, session: &str, seq: usize) {
    let Some(Value::Object(data)) = event.get_mut("data") else {
        return;
    };
    if data.contains_key("message")
        || !matches!((data.get("content"), data.get("provenance")), (Some(Value::Array(_)), Some(Value::Object(_))))
    {
        return;
    }
    let content = data.remove("content").unwrap_or(Value::Null);
    let mut source = match data.get_mut("provenance") {
        Some(Value::Object(provenance)) => std::mem::take(provenance),
        _ => Object::new(),
    };
    data.remove("provenance");
    source.insert("kind", "model");
    data.insert("message", message(legacy_id(session, seq), "assistant", content, source));
}

/// LEG-06 and LEG-07: a flat tool result is wrapped; one that replaces another takes over its message id (SURF-08).
fn tool_result(event: &mut Object, session: &str, log: &EventLog) {
    let replaced = event.get("surfaceOp").and_then(|op| op.get("start")).and_then(Value::as_u64);
    let replaced = replaced.and_then(|seq| log.get(usize::try_from(seq).ok()?));
    let replaced = replaced.as_ref().and_then(|event| event.data.message()).map(|message| message.id().to_string());
    let Some(Value::Object(data)) = event.get_mut("data") else {
        return;
    };
    if data.contains_key("message")
        || !matches!((data.get("callId"), data.get("content")), (Some(Value::String(_)), Some(Value::Array(_))))
    {
        return;
    }
    let call_id = data.remove("callId").unwrap_or(Value::Null);
    let content = data.remove("content").unwrap_or(Value::Null);
    let is_error = data.remove("isError");
    let mut block = Object::new();
    block.insert("type", "tool-result");
    block.insert("toolCallId", call_id.clone());
    block.insert("content", content);
    block.insert_some("isError", is_error);
    let source = Object::from_iter([("kind", Value::from("tool")), ("callId", call_id)]);
    let id = replaced.unwrap_or_else(|| legacy_id(session, log.len()));
    data.insert("message", message(id, "user", Value::Array(vec![Value::Object(block)]), source));
}

fn message(id: String, role: &str, content: Value, source: Object) -> Object {
    let mut message = Object::with_capacity(4);
    message.insert("id", id);
    message.insert("role", role);
    message.insert("content", content);
    message.insert("source", source);
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn refused(value: Value) -> bool {
        convert(value, "s", &EventLog::default()).is_err()
    }

    #[test]
    fn the_known_types_are_sorted_for_the_binary_search() {
        assert!(KNOWN_TYPES.is_sorted());
    }

    #[test]
    fn a_trigger_beside_a_further_member_is_refused() {
        assert!(refused(json!({"type": "turn/start", "data": {"turn": 1, "trigger": {"kind": "user"}, "x": 1}})));
        assert!(refused(json!({"type": "turn/start", "data": {"turn": 0, "trigger": {"kind": "user"}}})));
        assert!(refused(json!({"type": "turn/start", "data": {"turn": 1, "trigger": {"kind": ""}}})));
        assert!(!refused(json!({"type": "turn/start", "data": {"turn": 1, "x": 1}})));
    }

    #[test]
    fn turn_endings_are_converted_only_from_exactly_the_old_shapes() {
        let end = |reason: Value| {
            let mut value = json!({"type": "turn/end", "data": {"turn": 1}});
            if let Value::Object(event) = &mut value
                && let Some(Value::Object(data)) = event.get_mut("data")
            {
                data.insert("reason", reason);
            }
            value
        };
        assert!(refused(end(json!({"kind": "completed", "note": 1}))));
        assert!(refused(end(json!({"kind": "error"}))));
        assert!(refused(end(json!({"kind": "error", "step": -1, "message": "x"}))));
        assert!(refused(end(json!({"kind": "error", "step": 1, "message": "x", "more": 1}))));
        let current = end(json!({"kind": "aborted", "reason": {"kind": "whatever", "more": [1]}}));
        assert_eq!(convert(current.clone(), "s", &EventLog::default()).expect("current"), current);
        let extension = end(json!({"kind": "paused", "until": 3}));
        assert_eq!(convert(extension.clone(), "s", &EventLog::default()).expect("unknown kinds pass"), extension);
    }

    #[test]
    fn a_half_new_shape_is_left_for_validation_to_refuse() {
        let half = json!({"type": "user/message", "data": {"id": "m", "content": [], "source": {"kind": "user"}}});
        assert_eq!(convert(half.clone(), "s", &EventLog::default()).expect("left alone"), half);
        let half = json!({"type": "tool/result", "data": {"callId": "c", "content": [], "message": {}}});
        assert_eq!(convert(half.clone(), "s", &EventLog::default()).expect("left alone"), half);
    }

    #[test]
    fn an_unknown_type_needs_the_ignorable_mark_or_a_registration() {
        let event = json!({"type": "demo/x", "seq": 0});
        let error = check_known(&event, &|_| false).expect_err("unknown");
        assert_eq!(error.code(), &Code::UnsupportedFormat);
        assert!(check_known(&event, &|kind| kind == "demo/x").is_ok());
        assert!(check_known(&json!({"type": "demo/x", "ignorable": true}), &|_| false).is_ok());
    }
}
