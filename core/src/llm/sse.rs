//! Server-sent events: an incremental framer from bytes to events (SSE-01). It reads no socket and knows no provider.
//!
//! Why not a crate: `eventsource-stream` and `sseer` swallow comments, which an idle watchdog must see; both fail the
//! stream on invalid UTF-8 where one character is to be replaced (D-22); neither bounds an endless event. What is left
//! after that is this file.
//!
//! Lines are cut as bytes and decoded only when whole, so a character may be split over any number of reads. A CR ends
//! its line at once and swallows an LF that follows, perhaps in the next read: an event is delivered with the byte
//! that completes it, and never twice.

use std::borrow::Cow;
use std::fmt;

/// What the framer found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sse<'a> {
    /// A whole event that has at least one `data` field.
    Event {
        /// The `event` field; empty if there was none.
        name: &'a str,
        /// The `data` fields, joined by line feeds. Invalid UTF-8 is replaced by U+FFFD.
        data: Cow<'a, str>,
    },
    /// A comment line. It says that the connection lives, and nothing else.
    Comment,
}

/// An event is larger than the framer's limit. The stream cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTooLarge {
    /// The limit in bytes.
    pub limit: usize,
}

impl fmt::Display for EventTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an event of the stream is larger than {} bytes", self.limit)
    }
}

/// Cuts a byte stream into events.
#[derive(Debug)]
pub struct SseFramer {
    /// The line that is not finished yet.
    line: Vec<u8>,
    /// The `data` fields of the event that is not finished yet.
    data: Vec<u8>,
    name: String,
    has_data: bool,
    /// The last byte was a CR, so that an LF now belongs to it.
    after_cr: bool,
    /// No line was finished yet: a byte order mark may stand here.
    at_start: bool,
    limit: usize,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The size of one event in bytes that no provider reaches.
const DEFAULT_LIMIT: usize = 64 * 1024 * 1024;

impl Default for SseFramer {
    fn default() -> Self {
        Self::with_limit(DEFAULT_LIMIT)
    }
}

impl SseFramer {
    /// A framer that refuses events of more than `limit` bytes.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            data: Vec::new(),
            name: String::new(),
            has_data: false,
            after_cr: false,
            at_start: true,
            limit,
        }
    }

    /// Takes the next bytes, cut anywhere, and hands on what they complete.
    pub fn feed(&mut self, mut bytes: &[u8], mut sink: impl FnMut(Sse<'_>)) -> Result<(), EventTooLarge> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + self.data.len() + part.len() > self.limit {
                return Err(EventTooLarge { limit: self.limit });
            }
            let Some(end) = end else {
                self.line.extend_from_slice(part);
                return Ok(());
            };
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if self.line.is_empty() {
                self.take_line(part, &mut sink);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(part);
                self.take_line(&line, &mut sink);
                // Keep the allocation for the next cut line.
                line.clear();
                self.line = line;
            }
        }
        Ok(())
    }

    fn take_line(&mut self, mut line: &[u8], sink: &mut impl FnMut(Sse<'_>)) {
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            return self.take_event(sink);
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = match colon {
            Some(0) => return sink(Sse::Comment),
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => self.name = String::from_utf8_lossy(value).into_owned(),
            // `id` and `retry` are for reconnecting, which a model answer does not allow.
            _ => {}
        }
    }

    fn take_event(&mut self, sink: &mut impl FnMut(Sse<'_>)) {
        if std::mem::take(&mut self.has_data) {
            sink(Sse::Event { name: &self.name, data: String::from_utf8_lossy(&self.data) });
        }
        self.data.clear();
        self.name.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(reads: &[&[u8]]) -> Vec<String> {
        let (mut framer, mut seen) = (SseFramer::default(), Vec::new());
        for read in reads {
            let fed = framer.feed(read, |found| match found {
                Sse::Event { name, data } => seen.push(format!("{name}|{data}")),
                Sse::Comment => seen.push("comment".into()),
            });
            assert_eq!(fed, Ok(()));
        }
        seen
    }

    #[test]
    fn a_byte_order_mark_is_dropped_only_at_the_start_and_also_when_it_is_cut() {
        assert_eq!(events(&[b"\xef", b"\xbb", b"\xbfdata: a\n\n"]), ["|a"]);
        assert_eq!(events(&[b"data: a\n\n\xef\xbb\xbfdata: b\n\n"]), ["|a"]);
    }

    #[test]
    fn an_event_is_delivered_with_the_cr_that_completes_it() {
        assert_eq!(events(&[b"data: a\r\r"]), ["|a"]);
        assert_eq!(events(&[b"data: a\r\n\r", b"\ndata: b\n\n"]), ["|a", "|b"]);
    }

    #[test]
    fn one_space_after_the_colon_is_dropped_and_an_empty_data_field_counts_as_data() {
        assert_eq!(events(&[b"data:  a\ndata\nevent: e\n\n"]), ["e| a\n"]);
        assert_eq!(events(&[b"data:\n\n"]), ["|"]);
    }

    #[test]
    fn a_name_without_data_does_not_leak_into_the_next_event() {
        assert_eq!(events(&[b"event: e\n\ndata: a\n\n"]), ["|a"]);
    }

    #[test]
    fn invalid_bytes_are_replaced_and_an_event_without_end_is_refused() {
        assert_eq!(events(&[b"data: a\xffb\n\n"]), ["|a\u{fffd}b"]);
        let mut framer = SseFramer::with_limit(8);
        let endless = (0..4).map(|_| framer.feed(b"data", |_| ())).collect::<Result<Vec<_>, _>>();
        assert_eq!(endless, Err(EventTooLarge { limit: 8 }));
    }
}
