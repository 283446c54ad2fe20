//! Lossless JSON: a value that keeps key order and prints as JavaScript prints.
//!
//! Logs are exchanged between programs in several languages, and two of them must agree on the *text* of an event
//! (`data.md` HOST-02 to HOST-06, PCO-17). So numbers are doubles in JavaScript's shortest layout, objects keep
//! insertion order with array-index keys first, and only what JSON requires is escaped. Nesting depth is bounded by
//! memory, not by the thread's stack.

mod parse;
mod write;

pub use parse::{ParseError, Parsed, parse, parse_lossy};
pub use write::{write_number, write_str};

use indexmap::IndexMap;
use std::fmt;

/// A JSON value. Strings never hold lone surrogates: they are Rust strings (D-22).
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Any JSON number; a double, as in JavaScript.
    Number(f64),
    /// Text.
    String(String),
    /// An ordered list.
    Array(Vec<Value>),
    /// Members in order.
    Object(Object),
}

/// The members of a JSON object in the order JavaScript would enumerate them.
#[derive(Clone, Default, PartialEq)]
pub struct Object {
    members: IndexMap<String, Value>,
}

/// Runs `f` on a stack that is big enough for one more level of nesting.
fn deeper<T>(f: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(64 * 1024, 1024 * 1024, f)
}

impl Clone for Value {
    fn clone(&self) -> Self {
        match self {
            Value::Null => Value::Null,
            Value::Bool(value) => Value::Bool(*value),
            Value::Number(value) => Value::Number(*value),
            Value::String(value) => Value::String(value.clone()),
            Value::Array(items) => deeper(|| Value::Array(items.clone())),
            Value::Object(object) => deeper(|| Value::Object(object.clone())),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Number(a), Value::Number(b)) => a == b,
            (Value::String(a), Value::String(b)) => a == b,
            (Value::Array(a), Value::Array(b)) => deeper(|| a == b),
            (Value::Object(a), Value::Object(b)) => deeper(|| a == b),
            _ => false,
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        let mut queue = match self {
            Value::Array(items) if items.iter().any(Value::is_container) => std::mem::take(items),
            Value::Object(object) if object.members.values().any(Value::is_container) => {
                std::mem::take(&mut object.members).into_values().collect()
            }
            _ => return,
        };
        while let Some(mut value) = queue.pop() {
            match &mut value {
                Value::Array(items) => queue.append(items),
                Value::Object(object) => queue.extend(std::mem::take(&mut object.members).into_values()),
                _ => {}
            }
        }
    }
}

impl Value {
    /// `null`, to borrow.
    pub const NULL: &'static Value = &Value::Null;

    /// About how many bytes of memory it takes.
    pub(crate) fn weight(&self) -> usize {
        let (mut sum, mut stack) = (0, vec![self]);
        while let Some(value) = stack.pop() {
            sum += size_of::<Value>();
            match value {
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
                Value::String(text) => sum += text.len(),
                Value::Array(items) => stack.extend(items),
                Value::Object(object) => object.iter().for_each(|(key, value)| {
                    sum += key.len() + size_of::<String>();
                    stack.push(value);
                }),
            }
        }
        sum
    }

    fn is_container(&self) -> bool {
        matches!(self, Value::Array(_) | Value::Object(_))
    }

    /// The text, if this is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if this is one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The number as a non-negative safe integer (at most 2^53 − 1); `-0` is none.
    pub fn as_u64(&self) -> Option<u64> {
        let number = self.as_f64()?;
        let safe = (0.0..=MAX_SAFE).contains(&number) && number.fract() == 0.0;
        (safe && !(number == 0.0 && number.is_sign_negative())).then_some(number as u64)
    }

    /// The number as a safe integer of either sign; `-0` reads as 0.
    pub fn as_i64(&self) -> Option<i64> {
        let number = self.as_f64()?;
        (number.abs() <= MAX_SAFE && number.fract() == 0.0).then_some(number as i64)
    }

    /// The truth value, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The items, if this is an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The members, if this is an object.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The member `key`, if this is an object that has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_object()?.get(key)
    }

    /// Whether this is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Takes the items out, leaving an empty array; `None` for anything else.
    pub fn take_array(&mut self) -> Option<Vec<Value>> {
        match self {
            Value::Array(items) => Some(std::mem::take(items)),
            _ => None,
        }
    }

    /// Canonical text: no white space, JavaScript's number layout and escapes.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// Appends the canonical text to `out`.
    pub fn write(&self, out: &mut String) {
        write::write_value(self, out);
    }

    /// The path and reason of the first part that JSON cannot carry exactly: NaN, an infinity or `-0` (APP-02).
    pub fn find_lossy(&self) -> Option<String> {
        match self {
            Value::Number(number) if !number.is_finite() => Some(format!("{number} is not a JSON number")),
            Value::Number(number) if *number == 0.0 && number.is_sign_negative() => {
                Some("negative zero is not a lossless JSON number".into())
            }
            Value::Array(items) => deeper(|| {
                let found = items.iter().enumerate().find_map(|(i, item)| Some((i, item.find_lossy()?)));
                found.map(|(i, reason)| format!("[{i}] {reason}"))
            }),
            Value::Object(object) => deeper(|| {
                let found = object.iter().find_map(|(key, item)| Some((key, item.find_lossy()?)));
                found.map(|(key, reason)| format!(".{key} {reason}"))
            }),
            _ => None,
        }
    }
}

/// The largest integer that a double holds exactly: 2^53 − 1.
pub const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

/// Whether JavaScript would sort this key before the others: a canonical array index below 2^32 − 1.
fn array_index(key: &str) -> Option<u32> {
    let bytes = key.as_bytes();
    if bytes.is_empty() || bytes.len() > 10 || !bytes[0].is_ascii_digit() || (bytes[0] == b'0' && bytes.len() > 1) {
        return None;
    }
    key.parse::<u32>().ok().filter(|index| *index != u32::MAX)
}

impl Object {
    /// An object without members.
    pub fn new() -> Self {
        Self::default()
    }

    /// An object without members and with room for `capacity`.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { members: IndexMap::with_capacity(capacity) }
    }

    /// Sets a member; an existing one keeps its position (HOST-04). Returns the old value.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.into(), value.into());
        let Some(index) = array_index(&key) else {
            return self.members.insert(key, value);
        };
        if let Some(old) = self.members.get_mut(&key) {
            return Some(std::mem::replace(old, value));
        }
        let earlier = |other: &String| array_index(other).is_some_and(|other| other < index);
        let position = self.members.keys().take_while(|other| earlier(other)).count();
        self.members.shift_insert(position, key, value);
        None
    }

    /// Sets a member unless the value is absent.
    pub fn insert_some(&mut self, key: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.insert(key, value);
        }
    }

    /// Removes a member, keeping the order of the others.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.members.shift_remove(key)
    }

    /// The member `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.members.get(key)
    }

    /// The member `key`, to change in place.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.members.get_mut(key)
    }

    /// Whether there is a member `key`.
    pub fn contains_key(&self, key: &str) -> bool {
        self.members.contains_key(key)
    }

    /// The members in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.members.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The names in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

impl<K: Into<String>, V: Into<Value>> FromIterator<(K, V)> for Object {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(members: I) -> Self {
        let mut object = Self::new();
        for (key, value) in members {
            object.insert(key, value);
        }
        object
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Value::Object(self.clone()).to_text())
    }
}

macro_rules! from {
    ($($source:ty => |$value:ident| $make:expr;)*) => {
        $(impl From<$source> for Value {
            fn from($value: $source) -> Self { $make }
        })*
    };
}

from! {
    bool => |v| Value::Bool(v);
    f64 => |v| Value::Number(v);
    i32 => |v| Value::Number(f64::from(v));
    u32 => |v| Value::Number(f64::from(v));
    i64 => |v| Value::Number(v as f64);
    u64 => |v| Value::Number(v as f64);
    usize => |v| Value::Number(v as f64);
    &str => |v| Value::String(v.to_owned());
    String => |v| Value::String(v);
    &String => |v| Value::String(v.clone());
    Object => |v| Value::Object(v);
    Vec<Value> => |v| Value::Array(v);
    &Value => |v| v.clone();
}

impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Self {
        use serde_json::Value as Json;
        match value {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(value),
            Json::Number(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
            Json::String(text) => Value::String(text),
            Json::Array(items) => Value::Array(items.into_iter().map(Value::from).collect()),
            Json::Object(members) => Value::Object(members.into_iter().collect()),
        }
    }
}

/// Builds a [`Value`] from JSON-like syntax, as `serde_json::json!` does.
#[macro_export]
macro_rules! json {
    ($($tokens:tt)+) => { $crate::json::Value::from($crate::__private::serde_json::json!($($tokens)+)) };
}

impl serde::Serialize for Value {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Number(number) if self.as_i64().is_some() => serializer.serialize_i64(*number as i64),
            Value::Number(number) => serializer.serialize_f64(*number),
            Value::String(text) => serializer.serialize_str(text),
            Value::Array(items) => deeper(|| serializer.collect_seq(items)),
            Value::Object(object) => deeper(|| serializer.collect_map(object.iter())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(text: &str) -> String {
        parse(text).expect("valid JSON").to_text()
    }

    #[test]
    fn numbers_print_as_javascript_prints_them() {
        let cases =
            [("1.0", "1"), ("1e21", "1e+21"), ("1e-7", "1e-7"), ("123456789012345680000", "123456789012345680000")];
        for (input, expected) in cases {
            assert_eq!(round(input), expected);
        }
        assert_eq!(round("0.1"), "0.1");
        assert_eq!(round("-0"), "0", "JSON.stringify(-0) is 0");
        assert_eq!(parse("-0").expect("read").as_u64(), None);
    }

    #[test]
    fn array_index_keys_come_first_in_ascending_order() {
        assert_eq!(round(r#"{"b":1,"10":2,"a":3,"2":4,"01":5}"#), r#"{"2":4,"10":2,"b":1,"a":3,"01":5}"#);
    }

    #[test]
    fn a_duplicate_key_keeps_the_first_position_and_the_last_value() {
        assert_eq!(round(r#"{"a":1,"b":2,"a":3}"#), r#"{"a":3,"b":2}"#);
    }

    #[test]
    fn only_what_json_requires_is_escaped() {
        let value = Value::from("\"\\\u{8}\u{c}\n\r\t\u{1}\u{7f}\u{2028}/é");
        assert_eq!(value.to_text(), "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\u{7f}\u{2028}/é\"");
    }

    #[test]
    fn deep_nesting_is_bounded_by_memory_and_not_by_the_stack() {
        let depth = 20_000;
        let text = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let value = parse(&text).expect("deep JSON");
        let copy = value.clone();
        assert!(value == copy);
        assert_eq!(copy.to_text(), text);
    }

    #[test]
    fn lone_surrogates_become_replacement_characters_and_are_counted() {
        let parsed = parse_lossy(br#"["\ud83d","\ud83d\ude00","\ude00x"]"#).expect("read");
        assert_eq!(parsed.value.to_text(), "[\"\u{fffd}\",\"\u{1f600}\",\"\u{fffd}x\"]");
        assert_eq!(parsed.replaced, 2);
    }
}
