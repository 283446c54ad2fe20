//! The canonical writer (HOST-02, HOST-05, HOST-06).

use super::{MAX_SAFE, Value, deeper};

/// Appends a value's canonical text.
pub(super) fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(*number, out),
        Value::String(text) => write_str(text, out),
        Value::Array(items) => deeper(|| {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }),
        Value::Object(object) => deeper(|| {
            out.push('{');
            for (i, (key, item)) in object.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_str(key, out);
                out.push(':');
                write_value(item, out);
            }
            out.push('}');
        }),
    }
}

/// Appends a number in JavaScript's layout; what JSON cannot carry becomes `null`, as `JSON.stringify` has it.
pub fn write_number(number: f64, out: &mut String) {
    if !number.is_finite() {
        out.push_str("null");
    } else if number == 0.0 {
        out.push('0');
    } else {
        // Nearly all numbers of a log are whole, and digits alone are written much faster. Beyond what is exact the
        // layout is no matter of digits alone any more.
        let whole = number as i64;
        if number.abs() <= MAX_SAFE && whole as f64 == number {
            out.push_str(itoa::Buffer::new().format(whole));
        } else {
            out.push_str(ryu_js::Buffer::new().format_finite(number));
        }
    }
}

/// Appends a quoted string, escaping quotes, backslashes and control characters below 0x20 only.
pub fn write_str(text: &str, out: &mut String) {
    out.reserve(text.len() + 2);
    out.push('"');
    let mut start = 0;
    for (i, byte) in text.bytes().enumerate() {
        let short = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0c => "\\f",
            0..=0x1f => "",
            _ => continue,
        };
        out.push_str(&text[start..i]);
        start = i + 1;
        if short.is_empty() {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.push_str("\\u00");
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        } else {
            out.push_str(short);
        }
    }
    out.push_str(&text[start..]);
    out.push('"');
}
