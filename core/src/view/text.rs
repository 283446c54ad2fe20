//! The timeline as text for a terminal.

use super::entry::{Entry, Part, PartKind, Place, Reader, Tone};
use super::format::{clock, count, date_time};
use super::totals::{Prices, Totals, money, tokens};
use super::visible::{one_line, visible};
use crate::session::{Event, SessionHeader};
use std::io::{self, Write};
use std::sync::Arc;

/// How much of it is shown, and how.
#[derive(Clone, Debug, Default)]
pub struct TextOptions {
    /// Colours of the terminal.
    pub color: bool,
    /// Every text whole, with prompts, arguments and settings; else the first lines of what was said.
    pub full: bool,
    /// What models cost.
    pub prices: Prices,
}

/// How many lines of a text are shown unless all are asked for.
const LINES: usize = 12;
/// How many characters of a line are shown unless all are asked for.
const LINE_LENGTH: usize = 400;

/// A timeline that grows: feed it each event once, in order, and write what it gives.
pub struct TextView {
    options: TextOptions,
    reader: Reader,
    totals: Totals,
    is_in_turn: bool,
}

impl TextView {
    /// A timeline of nothing so far.
    pub fn new(options: TextOptions) -> Self {
        Self { options, reader: Reader::default(), totals: Totals::default(), is_in_turn: false }
    }

    /// The lines above the timeline.
    pub fn header(&self, header: &SessionHeader) -> String {
        let created = date_time(i64::try_from(header.created_at).unwrap_or(i64::MAX));
        let mut out = format!("session {}  {created}\n", one_line(&header.id, LINE_LENGTH));
        let mut line = |name: &str, value: Option<&str>| {
            if let Some(value) = value {
                out.push_str(&format!("  {name} {}\n", one_line(value, LINE_LENGTH)));
            }
        };
        line("in", header.cwd.as_deref());
        line("forked from", header.parent_session.as_deref());
        line("preset", header.agent_preset.as_deref());
        out
    }

    /// The lines of the next event; often none.
    pub fn event(&mut self, event: &Event) -> String {
        self.totals.apply(event, &self.options.prices);
        let mut out = String::new();
        for entry in self.reader.read(event) {
            self.entry(&entry, &mut out);
        }
        out
    }

    /// The lines below the timeline, after `last`: what was cut off, and the sums.
    pub fn end(&mut self, last: Option<&Event>) -> String {
        let mut out = String::new();
        if let Some(entry) = last.and_then(|last| self.reader.rest(last)) {
            self.entry(&entry, &mut out);
        }
        if self.is_in_turn {
            self.line(
                Tone::Failure,
                0,
                "the log ends inside a turn: it is running, or its process died in it",
                &mut out,
            );
        }
        out.push_str(&format!("{}, {}", count(self.totals.turns.len() as u64, "turn"), self.totals.sentence()));
        out.push_str(&format!("; {}", tokens(&self.totals.usage)));
        if let Some(cost) = self.totals.cost {
            out.push_str(&format!("; cost {}", money(cost)));
        }
        out.push('\n');
        out
    }

    fn entry(&mut self, entry: &Entry, out: &mut String) {
        match entry.place {
            Place::TurnStart => {
                out.push('\n');
                self.line(entry.tone, 0, &format!("{}  {}", entry.title, date_time(entry.time)), out);
                self.is_in_turn = true;
                return;
            }
            Place::TurnEnd => {
                self.is_in_turn = false;
                let sums = self.totals.turns.last().map(|turn| format!("  ({})", turn.sums.sentence()));
                self.line(entry.tone, 0, &format!("{}{}", entry.title, sums.unwrap_or_default()), out);
                return;
            }
            Place::Step => self.line(entry.tone, 2, &entry.title, out),
            Place::Inside => {
                let usage = entry.usage.as_ref().map(|usage| format!("  {}", tokens(usage)));
                let title = one_line(&entry.title, LINE_LENGTH);
                let title = format!("{}  {title}{}", clock(entry.time), usage.unwrap_or_default());
                self.line(entry.tone, if self.is_in_turn { 4 } else { 0 }, &title, out);
            }
        }
        for part in &entry.parts {
            self.part(part, out);
        }
    }

    fn line(&self, tone: Tone, indent: usize, text: &str, out: &mut String) {
        let color = match tone {
            Tone::User => "1;36",
            Tone::Model => "32",
            Tone::Tool => "33",
            Tone::Request => "34",
            Tone::Failure => "31",
            Tone::Note => "2",
        };
        out.extend(std::iter::repeat_n(' ', indent));
        let text = one_line(text, usize::MAX);
        match self.options.color {
            true => out.push_str(&format!("\u{1b}[{color}m{text}\u{1b}[0m\n")),
            false => out.push_str(&format!("{text}\n")),
        }
    }

    fn part(&self, part: &Part, out: &mut String) {
        let indent = if self.is_in_turn { "      " } else { "  " };
        let mut name = one_line(&part.label, LINE_LENGTH);
        if !name.is_empty() {
            name.push_str(": ");
        }
        if self.options.full {
            for (index, line) in visible(&part.text).lines().enumerate() {
                let gutter = if part.kind == PartKind::Reasoning { "~ " } else { "" };
                out.push_str(&format!("{indent}{}{gutter}{line}\n", if index == 0 { name.as_str() } else { "" }));
            }
            return;
        }
        match part.kind {
            PartKind::Prose | PartKind::Result => {
                if part.kind == PartKind::Result {
                    name.clear();
                }
                let mut lines = part.text.lines();
                for line in lines.by_ref().take(LINES) {
                    out.push_str(&format!("{indent}{name}{}\n", one_line(line, LINE_LENGTH)));
                    name.clear();
                }
                match lines.count() as u64 {
                    0 => {}
                    more => out.push_str(&format!("{indent}… {}\n", count(more, "more line"))),
                }
            }
            PartKind::Reasoning | PartKind::Folded => {
                // JSON over several lines reads as well on one.
                let words: Vec<&str> = part.text.split_whitespace().take(100).collect();
                out.push_str(&format!("{indent}{name}{}\n", one_line(&words.join(" "), 100)));
            }
        }
    }
}

/// Writes the whole timeline of a session. `progress` hears after every batch how many events of how many are done.
pub fn render_text(
    header: &SessionHeader,
    events: &[Arc<Event>],
    options: TextOptions,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(usize, usize),
) -> io::Result<()> {
    let mut view = TextView::new(options);
    out.write_all(view.header(header).as_bytes())?;
    for (index, event) in events.iter().enumerate() {
        out.write_all(view.event(event).as_bytes())?;
        if index % super::BATCH == 0 {
            progress(index, events.len());
        }
    }
    out.write_all(b"\n")?;
    out.write_all(view.end(events.last().map(|event| &**event)).as_bytes())?;
    progress(events.len(), events.len());
    Ok(())
}
