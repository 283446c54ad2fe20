//! From the bytes of a file to a validated log: lines, torn tails, damage (JL-06 to JL-13, ZST-02 to ZST-08).
//!
//! Physical damage is found by scanning the whole file before any verdict about its content is given, so that a log
//! with damage in its middle is never reported as something else.

use super::header::{HeaderLine, NotHeader};
use super::rows::{self, Row};
use super::{Compression, frames};
use crate::error::{Code, Error, Result};
use crate::json::{self, Value};
use crate::session::{Event, EventLog, SessionHeader, Surface, legacy};
use crate::storage::canonical;
use std::path::Path;
use std::sync::Arc;

const NO_HEADER_LINE: &str = "it is empty or ends before its header line does";

/// A file as read.
pub(super) struct Contents {
    pub(super) header: SessionHeader,
    pub(super) events: EventLog,
    pub(super) replaced: usize,
    /// Where the committed part ends: whole lines, or whole frames.
    pub(super) valid_len: u64,
    /// How many of the last events come from a torn frame and have to be written again (ZST-09).
    pub(super) recovered: usize,
}

/// What a reader needs to know besides the bytes.
pub(super) struct ReadContext<'a> {
    pub(super) path: &'a Path,
    pub(super) compression: Compression,
    pub(super) is_registered: &'a dyn Fn(&str) -> bool,
    /// Checks that id and path agree (JL-14); called before any line of the body is read.
    pub(super) check_place: &'a dyn Fn(&HeaderLine) -> Result<()>,
}

/// Corruption in the file at `path`.
pub(super) fn corrupt(path: &Path, what: &str) -> Error {
    let message = format!("corrupt session log {}: {what}", path.display());
    Error::new(Code::CorruptLog, message).with("path", path.to_string_lossy().as_ref())
}

/// Reads and validates a whole file.
pub(super) fn read(bytes: &[u8], context: &ReadContext<'_>) -> Result<Contents> {
    context.compression.check()?;
    match context.compression {
        Compression::None => read_raw(bytes, context),
        Compression::Zstd => read_zstd(bytes, context),
    }
}

/// The header and the exact text of a file: in zstd its whole frames, without a torn last one; else all of it (JL-22).
/// Nothing behind the header is looked at, so that also a log that cannot be read can be exported.
pub(super) fn text(bytes: &[u8], context: &ReadContext<'_>) -> Result<(SessionHeader, Vec<u8>)> {
    context.compression.check()?;
    let mut text = Vec::new();
    match context.compression {
        Compression::None => text.extend_from_slice(bytes),
        Compression::Zstd => {
            let damaged = |at: usize| corrupt(context.path, &format!("no valid zstd frame at byte {at}"));
            let mut at = 0;
            while at < bytes.len() {
                match frames::scan(bytes, at) {
                    frames::Frame::Whole { end } => {
                        frames::decompress(&bytes[at..end], &mut text).map_err(|_| damaged(at).with("offset", at))?;
                        at = end;
                    }
                    frames::Frame::Torn => break,
                    frames::Frame::Invalid { at } => return Err(damaged(at).with("offset", at)),
                }
            }
        }
    }
    let Some(end) = text.iter().position(|byte| *byte == b'\n') else {
        return Err(corrupt(context.path, NO_HEADER_LINE));
    };
    let (header, _) = read_header(&text[..end], context)?;
    Ok((header, text))
}

fn read_raw(bytes: &[u8], context: &ReadContext<'_>) -> Result<Contents> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return Err(corrupt(context.path, NO_HEADER_LINE));
    };
    let (header, replaced) = read_header(&bytes[..end], context)?;
    let mut scan = Scan::new(&header, context);
    let valid = scan.lines(&bytes[end + 1..])?;
    scan.replaced += replaced;
    let valid_len = (end + 1 + valid) as u64;
    let (events, replaced) = scan.finish()?;
    Ok(Contents { header, events, replaced, valid_len, recovered: 0 })
}

fn read_zstd(bytes: &[u8], context: &ReadContext<'_>) -> Result<Contents> {
    let path = context.path;
    let damaged = |what: &str, at: usize| corrupt(path, &format!("{what} at byte {at}")).with("offset", at);
    let mut text = Vec::new();
    let whole = |start: usize, end: usize, text: &mut Vec<u8>| {
        text.clear();
        frames::decompress(&bytes[start..end], text).map_err(|error| {
            let cause = Error::new(Code::CorruptLog, error.to_string());
            damaged("the frame does not decompress", start).caused_by(cause)
        })
    };
    let mut at = match frames::scan(bytes, 0) {
        frames::Frame::Whole { end } => end,
        frames::Frame::Torn => return Err(corrupt(path, NO_HEADER_LINE)),
        frames::Frame::Invalid { at } => return Err(damaged("not a valid zstd frame", at)),
    };
    whole(0, at, &mut text)?;
    // ZST-02: the first frame is the header line and nothing else.
    let line = match text.split_last() {
        Some((b'\n', line)) if !line.contains(&b'\n') => line,
        _ => return Err(damaged("the first frame is not exactly the header line", 0)),
    };
    let (header, replaced) = read_header(line, context)?;
    let mut scan = Scan::new(&header, context);
    scan.replaced += replaced;
    let mut recovered = 0;
    while at < bytes.len() {
        match frames::scan(bytes, at) {
            frames::Frame::Whole { end } => {
                whole(at, end, &mut text)?;
                // ZST-07: what a whole frame holds was committed, so a part of it cannot be a torn tail.
                if scan.lines(&text)? < text.len() {
                    return Err(damaged("a whole frame contains a torn record", at));
                }
                at = end;
            }
            frames::Frame::Torn => {
                text.clear();
                let before = scan.events.len();
                frames::decompress_torn(&bytes[at..], &mut text)
                    .map_err(|error| Error::new(Code::StoreFailed, format!("cannot set up zstd: {error}")))?;
                scan.lines(&text)?;
                recovered = scan.events.len() - before;
                break;
            }
            frames::Frame::Invalid { at } => return Err(damaged("not a valid zstd frame", at)),
        }
    }
    let (events, replaced) = scan.finish()?;
    Ok(Contents { header, events, replaced, valid_len: at as u64, recovered })
}

fn read_header(line: &[u8], context: &ReadContext<'_>) -> Result<(SessionHeader, usize)> {
    let path = context.path;
    let line = HeaderLine::parse(line).map_err(|reason| not_header(reason, path))?;
    line.check_version(path)?;
    (context.check_place)(&line)?;
    let header = line.header().map_err(|error| corrupt(path, "its header is not valid").caused_by(error))?;
    Ok((header, line.replaced))
}

/// The error for a first line that is no usable header.
pub(super) fn not_header(reason: NotHeader, path: &Path) -> Error {
    match reason {
        NotHeader::Foreign(what) => corrupt(path, what),
        NotHeader::Retired => corrupt(path, "its header has retired members (sandboxMode, approvalPolicy)"),
    }
}

/// The first line that does not continue the log (JL-08). Scanning goes on to see whether a turn ends behind it.
struct Issue {
    line: usize,
    what: String,
}

/// The state between lines, which outlives a frame.
struct Scan<'a> {
    context: &'a ReadContext<'a>,
    session: String,
    events: EventLog,
    surface: Surface,
    replaced: usize,
    /// Body lines so far; the header is none.
    line: usize,
    issue: Option<Issue>,
    /// Seqs of the valid prefix; equals `events.len()` unless validation has failed.
    next_seq: u64,
    /// The first failure of each kind of logical check; reported only if the file is physically sound.
    unsupported: Option<Error>,
    invalid: Option<Error>,
}

impl<'a> Scan<'a> {
    fn new(header: &SessionHeader, context: &'a ReadContext<'a>) -> Self {
        Self {
            context,
            session: header.id.to_string(),
            events: EventLog::default(),
            surface: Surface::default(),
            replaced: 0,
            line: 0,
            issue: None,
            next_seq: 0,
            unsupported: None,
            invalid: None,
        }
    }

    /// Takes in newline-terminated lines. Returns how many bytes of `text` belong to the valid prefix; the rest is a
    /// torn tail (JL-07, JL-08).
    fn lines(&mut self, text: &[u8]) -> Result<usize> {
        let (mut start, mut valid) = (0, 0);
        while let Some(length) = memchr::memchr(b'\n', &text[start..]) {
            self.line += 1;
            self.take_line(&text[start..start + length])?;
            start += length + 1;
            if self.issue.is_none() {
                valid = start;
            }
        }
        Ok(valid)
    }

    fn take_line(&mut self, line: &[u8]) -> Result<()> {
        if self.issue.is_none()
            && self.is_sound()
            && let Some(count) = canonical::read(line, self.next_seq, &mut self.events)
        {
            self.next_seq += count;
            return Ok(());
        }
        let Ok(parsed) = json::parse_lossy(line) else {
            self.note("cannot be parsed".into());
            return Ok(());
        };
        let value = parsed.value;
        if value.is_null() {
            return Err(self.damage(self.line, "is null"));
        }
        if rows::is_row(&value) {
            self.take_row(&value);
            if self.issue.is_none() {
                self.replaced += parsed.replaced;
            }
            return Ok(());
        }
        let seq = value.get("seq").and_then(Value::as_f64);
        if seq != Some(self.next_seq as f64) {
            self.note_gap(seq);
        }
        if let Some(issue) = &self.issue {
            // JL-09: the line with the gap is itself part of this test.
            if value.get("type").and_then(Value::as_str) == Some("turn/end") {
                return Err(self.damage(issue.line, &issue.what));
            }
            return Ok(());
        }
        self.replaced += parsed.replaced;
        self.next_seq += 1;
        self.take_event(value);
        Ok(())
    }

    fn take_row(&mut self, value: &Value) {
        let Some(row) = rows::unpack(value) else {
            return self.note("is a malformed packed row".into());
        };
        let first = value.get("seq0").and_then(Value::as_f64);
        if first != Some(self.next_seq as f64) {
            // JL-10: the row is dropped whole, even if later members would fit.
            return self.note_gap(first);
        }
        if self.issue.is_some() {
            return;
        }
        match row {
            Row::Events(events) => {
                self.next_seq += events.len() as u64;
                if self.is_sound() {
                    self.events.extend(events.into_iter().map(Arc::new));
                }
            }
            Row::Values(values) => {
                self.next_seq += values.len() as u64;
                values.into_iter().for_each(|value| self.take_event(value));
            }
        }
    }

    fn is_sound(&self) -> bool {
        self.invalid.is_none() && self.unsupported.is_none()
    }

    /// Logical checks of one event. After a failure only the check for unknown types goes on: a log of a newer program
    /// is reported as such and not as damaged (VER-03).
    fn take_event(&mut self, value: Value) {
        if self.unsupported.is_some() {
            return;
        }
        if self.invalid.is_some() {
            self.unsupported = legacy::check_known(&value, self.context.is_registered).err();
            return;
        }
        match self.validate(value) {
            Ok(event) => {
                self.surface.apply(&event);
                self.events.push(Arc::new(event));
            }
            Err(error) if *error.code() == Code::UnsupportedFormat => self.unsupported = Some(error),
            Err(error) => self.invalid = Some(error),
        }
    }

    fn validate(&self, value: Value) -> Result<Event> {
        let value = legacy::convert(value, &self.session, &self.events)?;
        legacy::check_known(&value, self.context.is_registered)?;
        let event = Event::from_value(&value)?;
        self.surface.check(&event, &self.events)?;
        Ok(event)
    }

    fn note(&mut self, what: String) {
        let line = self.line;
        self.issue.get_or_insert(Issue { line, what });
    }

    fn note_gap(&mut self, found: Option<f64>) {
        let found = found.map_or_else(|| "no seq".to_owned(), |seq| format!("seq {seq}"));
        self.note(format!("has {found} where {} is expected", self.next_seq));
    }

    fn damage(&self, line: usize, what: &str) -> Error {
        // Counted as the format has it, without the header; people count all lines (JL-13).
        let text = format!("event line {line} (line {} of the file) {what}", line + 1);
        corrupt(self.context.path, &text).with("line", line)
    }

    fn finish(self) -> Result<(EventLog, usize)> {
        let path = self.context.path;
        if let Some(error) = self.unsupported {
            let message = format!("session {:?} at {}: {}", self.session, path.display(), error.message());
            let error = Error::new(Code::UnsupportedFormat, message).caused_by(error);
            return Err(error.with("path", path.to_string_lossy().as_ref()));
        }
        if let Some(error) = self.invalid {
            let message = format!("stored session {:?} failed validation: {}", self.session, error.message());
            let wrapped = Error::new(Code::CorruptLog, message).with("path", path.to_string_lossy().as_ref());
            let seq = error.context().get("seq").cloned();
            let wrapped = wrapped.with("seq", seq.unwrap_or_else(|| self.events.len().into()));
            return Err(wrapped.caused_by(error));
        }
        Ok((self.events, self.replaced))
    }
}
