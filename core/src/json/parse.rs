//! The reader. It accepts what `JSON.parse` accepts, and degrades broken text escapes and bytes to U+FFFD (D-22).

use super::{Object, Value, deeper};
use std::borrow::Cow;

/// Why a text is not JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at byte {offset}")]
pub struct ParseError {
    /// What was wrong.
    pub reason: &'static str,
    /// Where, in bytes from the start.
    pub offset: usize,
}

/// A value and how many characters had to be replaced to read it.
#[derive(Debug)]
pub struct Parsed {
    /// The value.
    pub value: Value,
    /// Lone surrogates and invalid UTF-8 sequences that became U+FFFD.
    pub replaced: usize,
}

/// Reads one JSON value; white space around it is allowed.
pub fn parse(text: &str) -> Result<Value, ParseError> {
    parse_lossy(text.as_bytes()).map(|parsed| parsed.value)
}

/// Reads one JSON value from bytes that may not be UTF-8.
pub fn parse_lossy(bytes: &[u8]) -> Result<Parsed, ParseError> {
    let mut replaced = 0;
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => {
            let text = String::from_utf8_lossy(bytes);
            replaced = text.matches('\u{fffd}').count() - count_replacement_bytes(bytes);
            text
        }
    };
    let mut reader = Reader { text: &text, bytes: text.as_bytes(), at: 0, replaced };
    reader.space();
    let value = reader.value()?;
    reader.space();
    if reader.at < reader.bytes.len() {
        return Err(reader.fail("unexpected text after the value"));
    }
    Ok(Parsed { value, replaced: reader.replaced })
}

/// How many U+FFFD the input held itself.
fn count_replacement_bytes(bytes: &[u8]) -> usize {
    bytes.windows(3).filter(|window| *window == "\u{fffd}".as_bytes()).count()
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    replaced: usize,
}

impl Reader<'_> {
    fn fail(&self, reason: &'static str) -> ParseError {
        ParseError { reason, offset: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Result<Value, ParseError> {
        match self.peek() {
            Some(b'{') => deeper(|| self.object()),
            Some(b'[') => deeper(|| self.array()),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => Err(self.fail("unexpected character")),
            None => Err(self.fail("unexpected end of text")),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, ParseError> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(value);
        }
        Err(self.fail("unexpected character"))
    }

    fn object(&mut self) -> Result<Value, ParseError> {
        let mut object = Object::new();
        self.at += 1;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(object));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.fail("expected a member name"));
            }
            let key = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.fail("expected ':'"));
            }
            self.at += 1;
            self.space();
            let value = self.value()?;
            object.insert(key, value);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.fail("expected ',' or '}'")),
            }
            self.space();
        }
        self.at += 1;
        Ok(Value::Object(object))
    }

    fn array(&mut self) -> Result<Value, ParseError> {
        let mut items = Vec::new();
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value()?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.fail("expected ',' or ']'")),
            }
            self.space();
        }
        self.at += 1;
        Ok(Value::Array(items))
    }

    fn digits(&mut self) -> bool {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at > start
    }

    fn number(&mut self) -> Result<Value, ParseError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else if !self.digits() {
            return Err(self.fail("expected a digit"));
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !self.digits() {
                return Err(self.fail("expected a digit"));
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !self.digits() {
                return Err(self.fail("expected a digit"));
            }
        }
        let text = &self.text[start..self.at];
        // Short runs of digits are the common case (seqs, times, indexes) and are exact in a double.
        if text.len() <= 15
            && let Ok(integer) = text.parse::<i64>()
            && !(integer == 0 && text.starts_with('-'))
        {
            return Ok(Value::Number(integer as f64));
        }
        text.parse().map(Value::Number).map_err(|_| self.fail("malformed number"))
    }

    fn string(&mut self) -> Result<String, ParseError> {
        self.at += 1;
        let start = self.at;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    let text = self.text[start..self.at].to_owned();
                    self.at += 1;
                    return Ok(text);
                }
                b'\\' => return self.escaped(start),
                0..=0x1f => return Err(self.fail("unescaped control character")),
                _ => self.at += 1,
            }
        }
        Err(self.fail("unterminated string"))
    }

    fn escaped(&mut self, start: usize) -> Result<String, ParseError> {
        let mut out = self.text[start..self.at].to_owned();
        loop {
            let run = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | 0..=0x1f)) {
                self.at += 1;
            }
            out.push_str(&self.text[run..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => self.escape(&mut out)?,
                Some(_) => return Err(self.fail("unescaped control character")),
                None => return Err(self.fail("unterminated string")),
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), ParseError> {
        self.at += 1;
        let plain = match self.peek() {
            Some(b'u') => return self.unicode(out),
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.fail("unknown escape")),
        };
        self.at += 1;
        out.push(plain);
        Ok(())
    }

    fn hex4(&mut self) -> Result<u32, ParseError> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            unit = unit * 16 + digit.ok_or_else(|| self.fail("expected a hexadecimal digit"))?;
            self.at += 1;
        }
        Ok(unit)
    }

    fn unicode(&mut self, out: &mut String) -> Result<(), ParseError> {
        self.at += 1;
        let unit = self.hex4()?;
        if (0xd800..0xdc00).contains(&unit) && self.bytes[self.at..].starts_with(b"\\u") {
            let back = self.at;
            self.at += 2;
            let low = self.hex4()?;
            if (0xdc00..0xe000).contains(&low) {
                let point = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                out.push(char::from_u32(point).unwrap_or('\u{fffd}'));
                return Ok(());
            }
            self.at = back;
        }
        let character = char::from_u32(unit);
        self.replaced += usize::from(character.is_none());
        out.push(character.unwrap_or('\u{fffd}'));
        Ok(())
    }
}
