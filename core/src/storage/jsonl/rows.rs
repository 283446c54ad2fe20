//! Packed rows: a run of delta chunks as one line (ROW-01 to ROW-13).
//!
//! A row is a matter of storage and no event. Packing looks at one append batch at a time; reading takes rows and plain
//! lines in any mixture, whatever the options say (ROW-09, ROW-13).

use crate::json::{MAX_SAFE, Object, Value, write_number, write_str};
use crate::llm::Chunk;
use crate::session::{Event, EventData};
use std::sync::Arc;

/// Shorter runs are written as plain lines (ROW-07).
const MIN_RUN: usize = 3;

/// The members of a line that is not a plain event.
pub(in crate::storage) enum Row {
    /// The chunks as typed events.
    Events(Vec<Event>),
    /// The chunks as JSON: turn, step or index is a number that no event of ours would have (ROW-10).
    Values(Vec<Value>),
}

/// The three kinds of row.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Reasoning,
    ToolCall,
}

impl Kind {
    fn of_row(tag: &str) -> Option<Self> {
        match tag {
            "text-chunks" => Some(Kind::Text),
            "reasoning-chunks" => Some(Kind::Reasoning),
            "tool-call-chunks" => Some(Kind::ToolCall),
            _ => None,
        }
    }

    fn row(self) -> &'static str {
        match self {
            Kind::Text => "text-chunks",
            Kind::Reasoning => "reasoning-chunks",
            Kind::ToolCall => "tool-call-chunks",
        }
    }

    fn payload(self) -> &'static str {
        match self {
            Kind::Text | Kind::Reasoning => "texts",
            Kind::ToolCall => "args",
        }
    }
}

/// A delta chunk that may stand in a row: what all members of its run share, and its own fragment.
#[derive(Clone, Copy)]
struct Delta<'a> {
    kind: Kind,
    turn: u64,
    step: u64,
    index: u64,
    id: &'a str,
    name: Option<&'a str>,
    fragment: &'a str,
}

impl<'a> Delta<'a> {
    /// ROW-08. The typed payload holds exactly the known members; an event with others is not typed.
    fn of(event: &'a Event) -> Option<Self> {
        // A text of its own (another key order) would not come back from a row.
        if event.has_own_text() || event.ignorable || event.surface_op.is_some() || event.source_event_seqs.is_some() {
            return None;
        }
        let EventData::AssistantChunk { turn, step, chunk } = &event.data else {
            return None;
        };
        let (kind, index, id, name, fragment) = match chunk {
            Chunk::TextDelta { index, text } => (Kind::Text, *index, "", None, text),
            Chunk::ReasoningDelta { index, text } => (Kind::Reasoning, *index, "", None, text),
            Chunk::ToolCallDelta { index, id, name, arguments_delta } => {
                (Kind::ToolCall, *index, id.as_deref()?, name.as_deref(), arguments_delta)
            }
            Chunk::BlockStart { .. } | Chunk::BlockEnd { .. } | Chunk::Usage(_) | Chunk::Finish { .. } => return None,
        };
        Some(Self { kind, turn: *turn, step: *step, index, id, name, fragment })
    }

    fn continues(&self, other: &Delta<'_>) -> bool {
        self.kind == other.kind
            && (self.turn, self.step, self.index) == (other.turn, other.step, other.index)
            && self.id == other.id
            && self.name == other.name
    }
}

/// Appends the lines of one batch, each with its newline.
pub(super) fn write_lines(events: &[Arc<Event>], pack: bool, out: &mut String) {
    for members in split(events, pack) {
        write_row(members, out);
        out.push('\n');
    }
}

/// Cuts a batch into what shares a row: runs of chunks, and single events.
pub(in crate::storage) fn split(events: &[Arc<Event>], pack: bool) -> impl Iterator<Item = &[Arc<Event>]> {
    let mut rest = events;
    // Members of a run that is too short: no later start makes it longer.
    let mut singles = 0;
    std::iter::from_fn(move || {
        rest.first()?;
        let mut length = 1;
        if pack && singles == 0 {
            match run_length(rest) {
                run @ MIN_RUN.. => length = run,
                run => singles = run,
            }
        }
        singles = singles.saturating_sub(1);
        let (members, others) = rest.split_at(length);
        rest = others;
        Some(members)
    })
}

/// Appends the JSON text of one row: an event, or a run of three and more.
pub(in crate::storage) fn write_row(members: &[Arc<Event>], out: &mut String) {
    match members {
        [event] => event.write(out),
        run => write_run(run, out),
    }
}

/// The row's `type`.
#[cfg(feature = "sqlite")]
pub(in crate::storage) fn row_kind(members: &[Arc<Event>]) -> &str {
    match members {
        [first, _, ..] => Delta::of(first).map_or("", |delta| delta.kind.row()),
        [event] => event.kind(),
        [] => "",
    }
}

/// How many events from the first on form one run; 0 if the first is no delta.
fn run_length(events: &[Arc<Event>]) -> usize {
    let Some(first) = Delta::of(&events[0]) else {
        return 0;
    };
    let follows = |pair: &[Arc<Event>]| {
        let gap = i128::from(pair[1].time) - i128::from(pair[0].time);
        pair[1].seq == pair[0].seq + 1
            && gap.unsigned_abs() <= MAX_SAFE as u128
            && Delta::of(&pair[1]).is_some_and(|delta| first.continues(&delta))
    };
    1 + events.windows(2).take_while(|pair| follows(pair)).count()
}

/// Writes one run in the key order of ROW-01 and ROW-02.
fn write_run(run: &[Arc<Event>], out: &mut String) {
    let Some(first) = Delta::of(&run[0]) else {
        return;
    };
    let number = |name: &str, number: f64, out: &mut String| {
        out.push_str(name);
        write_number(number, out);
    };
    out.push_str("{\"type\":\"");
    out.push_str(first.kind.row());
    number("\",\"seq0\":", run[0].seq as f64, out);
    number(",\"time0\":", run[0].time as f64, out);
    number(",\"data\":{\"turn\":", first.turn as f64, out);
    number(",\"step\":", first.step as f64, out);
    number(",\"index\":", first.index as f64, out);
    out.push_str(",\"dt\":[");
    for (i, pair) in run.windows(2).enumerate() {
        number(if i > 0 { "," } else { "" }, (pair[1].time - pair[0].time) as f64, out);
    }
    out.push(']');
    if first.kind == Kind::ToolCall {
        out.push_str(",\"id\":");
        write_str(first.id, out);
        if let Some(name) = first.name {
            out.push_str(",\"name\":");
            write_str(name, out);
        }
    }
    out.push_str(",\"");
    out.push_str(first.kind.payload());
    out.push_str("\":[");
    for (i, delta) in run.iter().filter_map(|event| Delta::of(event)).enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_str(delta.fragment, out);
    }
    out.push_str("]}}");
}

/// Whether the value is tagged as a row (ROW-12). It may still be malformed.
pub(in crate::storage) fn is_row(value: &Value) -> bool {
    value.get("type").and_then(Value::as_str).and_then(Kind::of_row).is_some()
}

/// Expands a row; `None` if it is malformed in any way (ROW-10).
pub(in crate::storage) fn unpack(value: &Value) -> Option<Row> {
    let object = value.as_object()?;
    let kind = Kind::of_row(object.get("type")?.as_str()?)?;
    let (seq0, time0) = (object.get("seq0")?.as_u64()?, object.get("time0")?.as_i64()?);
    let data = object.get("data")?.as_object()?;
    let name = match (kind, data.get("name")) {
        (Kind::ToolCall, Some(name)) => Some(name.as_str()?),
        _ => None,
    };
    let members = match kind {
        Kind::Text | Kind::Reasoning => 5,
        Kind::ToolCall => 6 + usize::from(name.is_some()),
    };
    (object.len() == 4 && data.len() == members).then_some(())?;
    let id = if kind == Kind::ToolCall { data.get("id")?.as_str()? } else { "" };
    let gaps = data.get("dt")?.as_array()?;
    let fragments = data.get(kind.payload())?.as_array()?;
    (gaps.len() + 1 == fragments.len()).then_some(())?;
    let last = seq0.checked_add(gaps.len() as u64)?;
    (last as f64 <= MAX_SAFE).then_some(())?;
    let numbers = [data.get("turn")?, data.get("step")?, data.get("index")?];
    numbers.iter().all(|number| number.as_f64().is_some()).then_some(())?;
    let mut times = Vec::with_capacity(fragments.len());
    times.push(time0);
    for gap in gaps {
        let time = times.last()?.checked_add(gap.as_i64()?)?;
        (time.unsigned_abs() as f64 <= MAX_SAFE).then_some(())?;
        times.push(time);
    }
    let fragments = fragments.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?;
    let places = (seq0..).zip(times).zip(fragments);
    let [Some(turn), Some(step), Some(index)] = numbers.map(Value::as_u64) else {
        let event = |((seq, time), fragment)| value_event(kind, numbers, seq, time, (id, name), fragment);
        return Some(Row::Values(places.map(event).collect()));
    };
    let events = places.map(|((seq, time), fragment)| {
        let text = fragment.to_owned();
        let chunk = match kind {
            Kind::Text => Chunk::TextDelta { index, text },
            Kind::Reasoning => Chunk::ReasoningDelta { index, text },
            Kind::ToolCall => Chunk::ToolCallDelta {
                index,
                id: Some(id.to_owned()),
                name: name.map(str::to_owned),
                arguments_delta: text,
            },
        };
        Event::new(seq, time, EventData::AssistantChunk { turn, step, chunk })
    });
    Some(Row::Events(events.collect()))
}

/// One member as the JSON of a plain event (ROW-03).
fn value_event(
    kind: Kind,
    [turn, step, index]: [&Value; 3],
    seq: u64,
    time: i64,
    (id, name): (&str, Option<&str>),
    fragment: &str,
) -> Value {
    let mut chunk = Object::new();
    chunk.insert(
        "type",
        match kind {
            Kind::Text => "text-delta",
            Kind::Reasoning => "reasoning-delta",
            Kind::ToolCall => "tool-call-delta",
        },
    );
    chunk.insert("index", index);
    if kind == Kind::ToolCall {
        chunk.insert("id", id);
        chunk.insert_some("name", name);
        chunk.insert("argumentsDelta", fragment);
    } else {
        chunk.insert("text", fragment);
    }
    let mut data = Object::new();
    data.insert("turn", turn);
    data.insert("step", step);
    data.insert("chunk", chunk);
    let mut event = Object::new();
    event.insert("type", "assistant/chunk");
    event.insert("seq", seq);
    event.insert("time", time);
    event.insert("data", data);
    Value::Object(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    const TOOL_ROW: &str = r#"{"type":"tool-call-chunks","seq0":7,"time0":1000,"data":{"turn":2,"step":1,"index":3,"dt":[4,-6],"id":"c9","args":["{\"q\"","",":1}"]}}"#;

    fn expand(text: &str) -> Option<Vec<String>> {
        match unpack(&json::parse(text).expect("JSON"))? {
            Row::Events(events) => Some(events.iter().map(|event| event.json().to_owned()).collect()),
            Row::Values(values) => Some(values.iter().map(Value::to_text).collect()),
        }
    }

    fn text(seq: u64, time: i64, index: u64, text: &str) -> Arc<Event> {
        let chunk = Chunk::TextDelta { index, text: text.into() };
        Arc::new(Event::new(seq, time, EventData::AssistantChunk { turn: 1, step: 1, chunk }))
    }

    fn lines(events: &[Arc<Event>]) -> Vec<String> {
        let mut out = String::new();
        write_lines(events, true, &mut out);
        out.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_row_expands_to_its_members_and_packs_to_the_same_text() {
        let expanded = expand(TOOL_ROW).expect("a row");
        assert_eq!(
            expanded[2],
            r#"{"type":"assistant/chunk","seq":9,"time":998,"data":{"turn":2,"step":1,"chunk":{"type":"tool-call-delta","index":3,"id":"c9","argumentsDelta":":1}"}}}"#
        );
        let events: Vec<_> = expanded
            .iter()
            .map(|text| Arc::new(Event::from_value(&json::parse(text).expect("JSON")).expect("an event")))
            .collect();
        assert_eq!(lines(&events), [TOOL_ROW]);
    }

    #[test]
    fn runs_of_fewer_than_three_are_plain_lines() {
        let events =
            [text(0, 1, 0, "a"), text(1, 1, 0, "b"), text(2, 1, 1, "c"), text(3, 1, 1, ""), text(4, 0, 1, "e")];
        let lines = lines(&events);
        assert_eq!(lines.len(), 3);
        assert!(lines[2].starts_with(
            r#"{"type":"text-chunks","seq0":2,"time0":1,"data":{"turn":1,"step":1,"index":1,"dt":[0,-1]"#
        ));
    }

    #[test]
    fn a_gap_of_time_beyond_the_safe_integers_ends_a_run() {
        let safe = MAX_SAFE as i64;
        let events = [text(0, -safe, 0, "a"), text(1, 1, 0, "b"), text(2, safe, 0, "c")];
        assert_eq!(lines(&events).len(), 3);
    }

    #[test]
    fn a_violation_makes_the_whole_row_malformed() {
        let good = TOOL_ROW;
        assert!(expand(good).is_some());
        let cases = [
            good.replace("\"seq0\":7", "\"seq0\":-1"),
            good.replace("\"seq0\":7", "\"seq0\":9007199254740990"),
            good.replace("\"time0\":1000", "\"time0\":1000.5"),
            good.replace("[4,-6]", "[4]"),
            good.replace("[4,-6]", "[4,0.5]"),
            good.replace("[4,-6]", "[9007199254740991,-9007199254740991]"),
            good.replace("\"turn\":2", "\"turn\":\"2\""),
            good.replace("\"id\":\"c9\"", "\"id\":null"),
            good.replace("\"id\":\"c9\"", "\"id\":\"c9\",\"name\":null"),
            good.replace("\"id\":\"c9\"", "\"id\":\"c9\",\"more\":1"),
            good.replace(",\"\",", ",1,"),
            good.replace("\"seq0\"", "\"x\":1,\"seq0\""),
        ];
        for case in cases {
            assert!(case != good && expand(&case).is_none(), "{case}");
        }
    }

    #[test]
    fn turn_step_and_index_may_be_any_number() {
        let odd = TOOL_ROW.replace("\"index\":3", "\"index\":-1.5");
        assert!(expand(&odd).expect("a row")[0].contains("\"index\":-1.5,\"id\":\"c9\""));
    }
}
