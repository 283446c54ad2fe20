//! A short cut for the lines that make up most of a log: stream chunks and the brackets of turns and steps, exactly as
//! live writers write them.
//!
//! What is read here is what the general reader would have read, at a fraction of the cost; whatever differs in a single
//! byte, is of another type, or is not the event that has to come next, is left to the general reader, which also knows
//! what to say about it.

use crate::json::MAX_SAFE;
use crate::llm::Chunk;
use crate::session::{Delta, DeltaKind, Event, EventData, EventLog, TurnEndReason};
use std::borrow::Cow;
use std::sync::Arc;

/// Appends what a line holds to `events`, if it is one of those lines and begins with `seq`. Returns how many events.
pub(super) fn read(line: &[u8], seq: u64, events: &mut EventLog) -> Option<u64> {
    let mut line = Line(line);
    line.skip(b"{\"type\":\"")?;
    if line.skip(b"assistant/chunk\",").is_some() {
        let (time, turn, step) = line.envelope(seq)?;
        line.skip(b",\"chunk\":{\"type\":\"")?;
        let chunk = line.chunk()?;
        line.end(b"}}}")?;
        match chunk {
            Short::Delta { kind, index, id, name, fragment } => {
                let (id, name, fragment) = (id.as_deref(), name.as_deref(), &fragment);
                events.push_delta(seq, time, &Delta { kind, turn, step, index, id, name, fragment });
            }
            Short::Start { index, block_type } => {
                let chunk = Chunk::BlockStart { index, block_type };
                events.push(Arc::new(Event::new(seq, time, EventData::AssistantChunk { turn, step, chunk })));
            }
        }
        return Some(1);
    }
    if line.skip(b"text-chunks\",").is_some() {
        return line.row(seq, events, DeltaKind::Text);
    }
    if line.skip(b"reasoning-chunks\",").is_some() {
        return line.row(seq, events, DeltaKind::Reasoning);
    }
    let (time, data) = line.bracket(seq)?;
    events.push(Arc::new(Event::new(seq, time, data)));
    Some(1)
}

/// A chunk as it stands in a line.
enum Short<'a> {
    Delta { kind: DeltaKind, index: u64, id: Option<Cow<'a, str>>, name: Option<Cow<'a, str>>, fragment: Cow<'a, str> },
    Start { index: u64, block_type: String },
}

/// The rest of a line.
struct Line<'a>(&'a [u8]);

impl<'a> Line<'a> {
    fn skip(&mut self, expected: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(())
    }

    fn end(&mut self, expected: &[u8]) -> Option<()> {
        (self.0 == expected).then_some(())
    }

    /// A safe number without sign, leading zeros, point or exponent.
    fn count(&mut self) -> Option<u64> {
        let length = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(length);
        if length == 0 || length > 16 || (length > 1 && digits[0] == b'0') {
            return None;
        }
        self.0 = rest;
        let number = digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        (number as f64 <= MAX_SAFE).then_some(number)
    }

    fn integer(&mut self) -> Option<i64> {
        let is_negative = self.skip(b"-").is_some();
        let number = i64::try_from(self.count()?).ok()?;
        match is_negative {
            // Negative zero is a number of its own.
            true if number == 0 => None,
            true => Some(-number),
            false => Some(number),
        }
    }

    /// What follows an opening quote, up to the closing one.
    fn text(&mut self) -> Option<Cow<'a, str>> {
        let length = memchr::memchr2(b'"', b'\\', self.0)?;
        let (plain, rest) = self.0.split_at(length);
        if rest[0] == b'\\' {
            return self.escaped().map(Cow::Owned);
        }
        self.0 = &rest[1..];
        is_plain(plain).then_some(())?;
        std::str::from_utf8(plain).ok().map(Cow::Borrowed)
    }

    /// A text with escapes of the shortest form (HOST-06); any other form was written by somebody else.
    fn escaped(&mut self) -> Option<String> {
        let mut bytes = Vec::with_capacity(self.0.len().min(64));
        loop {
            let length = memchr::memchr2(b'"', b'\\', self.0)?;
            let (plain, rest) = self.0.split_at(length);
            is_plain(plain).then_some(())?;
            bytes.extend_from_slice(plain);
            if rest[0] == b'"' {
                self.0 = &rest[1..];
                return String::from_utf8(bytes).ok();
            }
            bytes.push(match rest.get(1)? {
                mark @ (b'"' | b'\\') => *mark,
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                _ => return None,
            });
            self.0 = &rest[2..];
        }
    }

    /// `"seq":…,"time":…,"data":{"turn":…,"step":…`, as time, turn and step.
    fn envelope(&mut self, seq: u64) -> Option<(i64, u64, u64)> {
        let time = self.seq_and_time(seq)?;
        self.skip(b",\"data\":{\"turn\":")?;
        let turn = self.count()?;
        self.skip(b",\"step\":")?;
        Some((time, turn, self.count()?))
    }

    fn seq_and_time(&mut self, seq: u64) -> Option<i64> {
        self.skip(b"\"seq\":")?;
        (self.count()? == seq).then_some(())?;
        self.skip(b",\"time\":")?;
        self.integer()
    }

    /// A delta or the beginning of a block, without the closing brace. Other chunks are few.
    fn chunk(&mut self) -> Option<Short<'a>> {
        let plain = |kind| {
            move |line: &mut Self| {
                let index = line.count()?;
                line.skip(b",\"text\":\"")?;
                Some(Short::Delta { kind, index, id: None, name: None, fragment: line.text()? })
            }
        };
        if self.skip(b"text-delta\",\"index\":").is_some() {
            return plain(DeltaKind::Text)(self);
        }
        if self.skip(b"reasoning-delta\",\"index\":").is_some() {
            return plain(DeltaKind::Reasoning)(self);
        }
        if self.skip(b"tool-call-delta\",\"index\":").is_some() {
            let index = self.count()?;
            let id = self.optional(b",\"id\":\"")?;
            let name = self.optional(b",\"name\":\"")?;
            self.skip(b",\"argumentsDelta\":\"")?;
            return Some(Short::Delta { kind: DeltaKind::ToolCall, index, id, name, fragment: self.text()? });
        }
        self.skip(b"block-start\",\"index\":")?;
        let index = self.count()?;
        self.skip(b",\"blockType\":\"")?;
        Some(Short::Start { index, block_type: self.text()?.into_owned() })
    }

    /// A member that may be absent. `None` if it is there and cannot be read.
    fn optional(&mut self, name: &[u8]) -> Option<Option<Cow<'a, str>>> {
        match self.skip(name) {
            Some(()) => Some(Some(self.text()?)),
            None => Some(None),
        }
    }

    /// The packed row of a run (ROW-01), behind its type. Adds all of its events, or none.
    fn row(&mut self, seq: u64, events: &mut EventLog, kind: DeltaKind) -> Option<u64> {
        self.skip(b"\"seq0\":")?;
        (self.count()? == seq).then_some(())?;
        self.skip(b",\"time0\":")?;
        let time = self.integer()?;
        self.skip(b",\"data\":{\"turn\":")?;
        let turn = self.count()?;
        self.skip(b",\"step\":")?;
        let step = self.count()?;
        self.skip(b",\"index\":")?;
        let index = self.count()?;
        self.skip(b",\"dt\":[")?;
        let mut gaps = Vec::new();
        while self.skip(b"]").is_none() {
            if !gaps.is_empty() {
                self.skip(b",")?;
            }
            gaps.push(self.integer()?);
        }
        self.skip(b",\"texts\":[\"")?;
        // Nothing is added before the whole row is known to be one.
        let mut fragments = Vec::with_capacity(gaps.len() + 1);
        let mut last = time;
        fragments.push(self.text()?);
        for gap in &gaps {
            last = last.checked_add(*gap).filter(|time| time.unsigned_abs() as f64 <= MAX_SAFE)?;
            self.skip(b",\"")?;
            fragments.push(self.text()?);
        }
        self.end(b"]}}")?;
        (seq.checked_add(gaps.len() as u64)? as f64 <= MAX_SAFE).then_some(())?;
        let (id, name) = (None, None);
        let (mut seq, mut time) = (seq, time);
        for (fragment, gap) in fragments.iter().zip(std::iter::once(&0).chain(&gaps)) {
            time += gap;
            events.push_delta(seq, time, &Delta { kind, turn, step, index, id, name, fragment });
            seq += 1;
        }
        Some(fragments.len() as u64)
    }

    /// The beginning or end of a turn or a step, behind `{"type":"`.
    fn bracket(&mut self, seq: u64) -> Option<(i64, EventData)> {
        if self.skip(b"step/start\",").is_some() {
            let (time, turn, step) = self.envelope(seq)?;
            self.end(b"}}")?;
            return Some((time, EventData::StepStart { turn, step }));
        }
        if self.skip(b"step/end\",").is_some() {
            let (time, turn, step) = self.envelope(seq)?;
            self.end(b"}}")?;
            return Some((time, EventData::StepEnd { turn, step }));
        }
        let starts = self.skip(b"turn/start\",").is_some();
        if !starts {
            self.skip(b"turn/end\",")?;
        }
        let time = self.seq_and_time(seq)?;
        self.skip(b",\"data\":{\"turn\":")?;
        let turn = self.count()?;
        if starts {
            self.end(b"}}")?;
            return Some((time, EventData::TurnStart { turn }));
        }
        self.end(b",\"reason\":{\"kind\":\"completed\"}}}")?;
        Some((time, EventData::TurnEnd { turn, reason: TurnEndReason::Completed }))
    }
}

/// Control characters are escaped in every JSON text.
fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte >= 0x20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{self, Value};

    /// What the general reader makes of a line that is one event.
    fn general(line: &str) -> Option<Event> {
        Event::from_value(&json::parse(line).ok()?).ok()
    }

    fn short(line: &str) -> Option<Vec<Arc<Event>>> {
        let mut events = EventLog::default();
        let count = read(line.as_bytes(), 7, &mut events);
        assert_eq!(count.unwrap_or(0), events.len() as u64, "nothing is added unless it is counted");
        count.map(|_| events.to_vec())
    }

    const LINES: [&str; 9] = [
        r#"{"type":"turn/start","seq":7,"time":-5,"data":{"turn":1}}"#,
        r#"{"type":"turn/end","seq":7,"time":5,"data":{"turn":1,"reason":{"kind":"completed"}}}"#,
        r#"{"type":"step/start","seq":7,"time":5,"data":{"turn":1,"step":2}}"#,
        r#"{"type":"step/end","seq":7,"time":5,"data":{"turn":1,"step":2}}"#,
        r#"{"type":"assistant/chunk","seq":7,"time":5,"data":{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a \"b\"\n\\ é😀"}}}"#,
        r#"{"type":"assistant/chunk","seq":7,"time":5,"data":{"turn":1,"step":2,"chunk":{"type":"reasoning-delta","index":0,"text":""}}}"#,
        r#"{"type":"assistant/chunk","seq":7,"time":5,"data":{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":3,"id":"c","name":"n","argumentsDelta":"{\"x\":"}}}"#,
        r#"{"type":"assistant/chunk","seq":7,"time":5,"data":{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":3,"argumentsDelta":"1}"}}}"#,
        r#"{"type":"assistant/chunk","seq":7,"time":5,"data":{"turn":1,"step":2,"chunk":{"type":"block-start","index":0,"blockType":"text"}}}"#,
    ];

    #[test]
    fn a_line_as_written_is_the_event_that_the_general_reader_reads() {
        for line in LINES {
            let events = short(line).unwrap_or_else(|| panic!("not taken: {line}"));
            let general = general(line).expect("an event");
            assert_eq!(*events[0], general, "{line}");
            assert_eq!(events[0].json(), line);
        }
    }

    /// Whatever the short cut takes, it takes as the general reader does: for every changed, missing and doubled byte.
    #[test]
    fn a_changed_line_is_read_alike_or_left_to_the_general_reader() {
        let mut taken = 0;
        for line in LINES {
            for at in 0..line.len() {
                for byte in [b' ', b'"', b'\\', b'0', b'9', b'-', b'.', b'e', b',', b'}', b'x', 0x01, 0x80] {
                    let changed = [&line.as_bytes()[..at], &[byte], &line.as_bytes()[at + 1..]].concat();
                    let doubled = [&line.as_bytes()[..at], &[byte], &line.as_bytes()[at..]].concat();
                    let missing = [&line.as_bytes()[..at], &line.as_bytes()[at + 1..]].concat();
                    for bytes in [changed, doubled, missing] {
                        let mut events = EventLog::default();
                        if read(&bytes, 7, &mut events).is_none() {
                            continue;
                        }
                        let text = String::from_utf8(bytes).expect("only UTF-8 is taken");
                        let general = general(&text).unwrap_or_else(|| panic!("no event: {text}"));
                        let event = events.get(0).expect("counted");
                        assert!(*event == general && event.json() == general.json(), "{text}");
                        taken += 1;
                    }
                }
            }
        }
        assert!(taken > 1_000, "{taken}");
    }

    #[test]
    fn an_event_out_of_order_is_left_to_the_general_reader() {
        for line in LINES {
            assert!(read(line.as_bytes(), 8, &mut EventLog::default()).is_none());
        }
    }

    #[test]
    fn a_row_is_its_members_or_nothing() {
        let row = r#"{"type":"text-chunks","seq0":7,"time0":1000,"data":{"turn":2,"step":1,"index":3,"dt":[4,-6],"texts":["a","","\"b"]}}"#;
        let events = short(row).expect("taken");
        let texts: Vec<&str> = events.iter().map(|event| event.json()).collect();
        assert_eq!(
            texts[2],
            r#"{"type":"assistant/chunk","seq":9,"time":998,"data":{"turn":2,"step":1,"chunk":{"type":"text-delta","index":3,"text":"\"b"}}}"#
        );
        assert_eq!(texts.len(), 3);
        for wrong in [
            row.replace("[4,-6]", "[4]"),
            row.replace("[4,-6]", "[4,-6,1]"),
            row.replace("[4,-6]", "[4,-6.5]"),
            row.replace("[4,-6]", "[9007199254740991,0]"),
            row.replace("\"seq0\":7", "\"seq0\":9007199254740991"),
            row.replace("}}", ",\"more\":1}}"),
        ] {
            assert!(wrong != row && short(&wrong).is_none(), "{wrong}");
        }
        assert!(matches!(json::parse(row), Ok(Value::Object(_))));
    }
}
