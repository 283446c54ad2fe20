//! Reasoning that has to go back as it came: `reasoning_details` of OpenRouter and `thinking_blocks` of LiteLLM. Fragments
//! are put together as they stream; the whole is kept in the message's replay state, opaque to everybody else (MSG-21).

use crate::json::{Object, Value};
use crate::llm::adapters::http::comma_member;

/// The lists by their member's name.
const LISTS: [&str; 2] = ["reasoning_details", "thinking_blocks"];

/// Members whose fragments follow one another. All others replace what came before.
const TEXTS: [&str; 4] = ["text", "thinking", "summary", "data"];

const KIND: &str = "openai-chat";

#[derive(Debug, Default)]
pub(super) struct Details {
    lists: [Vec<Object>; 2],
}

impl Details {
    /// Takes what a delta brings. Returns whether it brought a signature: such a delta may repeat the whole text.
    pub(super) fn take(&mut self, delta: &Value) -> bool {
        let mut is_signed = false;
        for (name, list) in LISTS.iter().zip(&mut self.lists) {
            for entry in delta.get(name).and_then(Value::as_array).unwrap_or_default() {
                let Some(entry) = entry.as_object() else { continue };
                is_signed |= entry.get("signature").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
                add(list, entry);
            }
        }
        is_signed
    }

    /// The replay state, if there is anything to keep.
    pub(super) fn into_state(self) -> Option<Value> {
        let mut response = Object::new();
        response.insert("kind", KIND);
        response.insert("version", 1_u64);
        for (name, list) in LISTS.iter().zip(self.lists) {
            if !list.is_empty() {
                response.insert(*name, list.into_iter().map(Value::Object).collect::<Vec<_>>());
            }
        }
        let mut state = Object::new();
        (response.len() > 2).then(|| {
            state.insert("response", response);
            Value::Object(state)
        })
    }
}

/// Merges a fragment into the last entry of its kind and index, or begins another.
fn add(list: &mut Vec<Object>, fragment: &Object) {
    let same = |entry: &&mut Object| {
        let is_signed = entry.get("signature").is_some_and(|value| !value.is_null());
        let equal = |key: &str| entry.get(key) == fragment.get(key);
        // Without an index a signature is what ends an entry.
        equal("type") && equal("index") && (fragment.get("index").is_some() || !is_signed)
    };
    let Some(entry) = list.last_mut().filter(same) else {
        list.push(fragment.clone());
        return;
    };
    for (key, value) in fragment.iter().filter(|(_, value)| !value.is_null()) {
        match (TEXTS.contains(&key), entry.get(key).and_then(Value::as_str), value.as_str()) {
            // The whole again, beside its signature.
            (true, Some(known), Some(text)) if known == text && fragment.get("signature").is_some() => {}
            (true, Some(known), Some(text)) => {
                let whole = format!("{known}{text}");
                entry.insert(key, whole);
            }
            _ => {
                entry.insert(key, value.clone());
            }
        }
    }
}

/// Writes the kept lists into an assistant message, if the state is of this wire.
pub(super) fn write(state: &Value, out: &mut String) {
    let Some(response) = state.get("response") else { return };
    if response.get("kind").and_then(Value::as_str) != Some(KIND) {
        return;
    }
    for name in LISTS {
        if let Some(list) = response.get(name).filter(|list| list.as_array().is_some()) {
            comma_member(name, out);
            list.write(out);
        }
    }
}
