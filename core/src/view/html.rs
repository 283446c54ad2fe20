//! The timeline as one HTML page: no script, no request to anywhere, folding by `<details>`.
//!
//! The page's policy forbids everything but its one style sheet, named by its hash, and the page has no script to allow:
//! should an escape ever be forgotten, nothing would run and nothing would load.

use super::entry::{Entry, Part, PartKind, Place, Reader, Tone};
use super::format::{clock, count, date_time, span};
use super::totals::{Prices, Totals, TurnTotals, money, tokens};
use super::visible::{is_hidden, one_line, push};
use crate::message::Usage;
use crate::session::{Event, SessionHeader};
use std::io::{self, Write};
use std::sync::Arc;

const STYLE: &str = include_str!("page.css");
/// SHA-256 of `STYLE` in base64; a test computes it anew.
const STYLE_HASH: &str = "jSoOW9b47NM3Tu7oDwCIcxMQs/KHXxJgBP2Apje+3DU=";

/// How many bytes and lines of a result are unfolded.
const SHORT: usize = 2000;
const SHORT_LINES: usize = 20;

/// What a page needs to know besides the log.
#[derive(Clone, Debug, Default)]
pub struct HtmlOptions {
    /// What models cost.
    pub prices: Prices,
}

/// Writes a session as one page in UTF-8, event by event: the page is never in memory as a whole. `progress` hears after
/// every batch how many events of how many are done.
pub fn render_html(
    header: &SessionHeader,
    events: &[Arc<Event>],
    options: &HtmlOptions,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(usize, usize),
) -> io::Result<()> {
    let totals = Totals::of(events, &options.prices);
    let most = totals.turns.iter().map(|turn| all_tokens(&turn.sums.usage)).max().unwrap_or(0);
    let mut page = Page { out, totals: &totals, most, turn: 0, open: Open::Nothing };
    page.head(header, events)?;
    let mut reader = Reader::default();
    for (index, event) in events.iter().enumerate() {
        for entry in reader.read(event) {
            page.entry(&entry)?;
        }
        if index % super::BATCH == 0 {
            progress(index, events.len());
        }
    }
    if let Some(entry) = events.last().and_then(|last| reader.rest(last)) {
        page.entry(&entry)?;
    }
    page.close()?;
    page.out.write_all(b"</main></body></html>\n")?;
    progress(events.len(), events.len());
    Ok(())
}

/// Which section is open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Nothing,
    Turn,
    Between,
}

struct Page<'a> {
    out: &'a mut dyn Write,
    totals: &'a Totals,
    /// Tokens of the turn that took the most: the width of a whole bar.
    most: u64,
    /// How many turns have begun.
    turn: usize,
    open: Open,
}

impl Page<'_> {
    fn head(&mut self, header: &SessionHeader, events: &[Arc<Event>]) -> io::Result<()> {
        let id = escaped(&one_line(&header.id, 200));
        let totals = self.totals;
        write!(
            self.out,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; \
             base-uri 'none'; form-action 'none'\"><meta name=\"referrer\" content=\"no-referrer\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <title>Session {id}</title><style>{STYLE}</style></head>\n<body>\
             <a class=\"skip\" href=\"#turns\">Skip to the turns</a><header><h1>Session {id}</h1><dl>"
        )?;
        let created = date_time(i64::try_from(header.created_at).unwrap_or(i64::MAX));
        self.fact("created", &created)?;
        for (name, value) in [
            ("directory", header.cwd.as_deref()),
            ("forked from", header.parent_session.as_deref()),
            ("preset", header.agent_preset.as_deref()),
        ] {
            if let Some(value) = value {
                self.fact(name, value)?;
            }
        }
        self.fact("events", &count(events.len() as u64, "event"))?;
        self.fact("turns", &format!("{}, {}", count(totals.turns.len() as u64, "turn"), totals.sentence()))?;
        self.fact("tokens", &tokens(&totals.usage))?;
        if let Some(cost) = totals.cost {
            self.fact("cost", &money(cost))?;
        }
        write!(self.out, "</dl></header>\n<nav aria-label=\"Turns\"><ol>")?;
        for turn in &totals.turns {
            let sums = format!("{}, {}", ended(turn), turn.sums.sentence());
            write!(self.out, "<li><a href=\"#t{}\">Turn {}</a> ", turn.seq, turn.turn)?;
            write!(self.out, "<span class=\"sums\">{}</span></li>", escaped(&sums))?;
        }
        self.out.write_all(b"</ol></nav>\n<main id=\"turns\" tabindex=\"-1\">\n")
    }

    fn fact(&mut self, name: &str, value: &str) -> io::Result<()> {
        write!(self.out, "<dt>{name}</dt><dd>{}</dd>", escaped(value))
    }

    fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        match entry.place {
            Place::TurnStart => return self.turn_start(entry),
            Place::Step => {
                self.section()?;
                return writeln!(self.out, "<h3>{}</h3>", escaped(&entry.title));
            }
            Place::TurnEnd | Place::Inside => self.section()?,
        }
        let tone = match entry.tone {
            Tone::User => "user",
            Tone::Model => "model",
            Tone::Tool => "tool",
            Tone::Request => "request",
            Tone::Failure => "failure",
            Tone::Note => "note",
        };
        let title = escaped(&one_line(&entry.title, 1000));
        // Two entries may come of one event: an id names an element once.
        write!(self.out, "<article class=\"{tone}\" data-seq=\"{}\"><p dir=\"auto\">{title} ", entry.seq)?;
        write!(self.out, "<time>{}</time></p>", clock(entry.time))?;
        if let Some(usage) = &entry.usage {
            write!(self.out, "<div class=\"tokens\">{}</div>", escaped(&tokens(usage)))?;
            self.bar(usage)?;
        }
        for part in &entry.parts {
            self.part(part)?;
        }
        self.out.write_all(b"</article>\n")?;
        if entry.place == Place::TurnEnd {
            self.close()?;
        }
        Ok(())
    }

    fn turn_start(&mut self, entry: &Entry) -> io::Result<()> {
        self.close()?;
        let turns = &self.totals.turns;
        let turn = &turns[self.turn];
        self.turn += 1;
        self.open = Open::Turn;
        write!(self.out, "<section id=\"t{0}\" tabindex=\"-1\" aria-labelledby=\"h{0}\">", turn.seq)?;
        write!(self.out, "<h2 id=\"h{}\">Turn {} ", turn.seq, turn.turn)?;
        write!(self.out, "<time>{}</time></h2>", date_time(entry.time))?;
        let sums = format!("{}, {}; {}", ended(turn), turn.sums.sentence(), tokens(&turn.sums.usage));
        let cost = turn.sums.cost.map(|cost| format!("; cost {}", money(cost))).unwrap_or_default();
        write!(self.out, "<div class=\"sums\">{}{cost}", escaped(&sums))?;
        if let Some(before) = self.turn.checked_sub(2).and_then(|index| turns.get(index)) {
            write!(self.out, " <a href=\"#t{}\">previous</a>", before.seq)?;
        }
        if let Some(after) = turns.get(self.turn) {
            write!(self.out, " <a href=\"#t{}\">next</a>", after.seq)?;
        }
        self.out.write_all(b"</div>")?;
        self.bar(&turn.sums.usage)
    }

    /// A bar as long as the tokens are many, beside the turn that took the most. Sizes are attributes of shapes: the
    /// policy forbids styles of single elements.
    fn bar(&mut self, usage: &Usage) -> io::Result<()> {
        if self.most == 0 || all_tokens(usage) == 0 {
            return Ok(());
        }
        let cached = usage.cache_read_tokens.unwrap_or(0) + usage.cache_write_tokens.unwrap_or(0);
        write!(self.out, "<svg role=\"img\" viewBox=\"0 0 1000 8\" preserveAspectRatio=\"none\">")?;
        write!(self.out, "<title>{}</title>", escaped(&tokens(usage)))?;
        let mut x = 0.0;
        for (class, tokens) in [("cached", cached), ("in", usage.input_tokens), ("out", usage.output_tokens)] {
            let width = tokens as f64 * 1000.0 / self.most as f64;
            if tokens > 0 {
                write!(self.out, "<rect class=\"{class}\" x=\"{x:.2}\" y=\"0\" width=\"{width:.2}\" height=\"8\"/>")?;
            }
            x += width;
        }
        self.out.write_all(b"</svg>")
    }

    fn part(&mut self, part: &Part) -> io::Result<()> {
        let name = if part.label.is_empty() { "text" } else { &part.label };
        if part.kind == PartKind::Prose {
            self.out.write_all(b"<pre dir=\"auto\">")?;
            write_escaped(&part.text, self.out)?;
            return self.out.write_all(b"</pre>");
        }
        // Short results are there at once and can be put away; long ones are there for who asks.
        let is_short = part.text.len() <= SHORT && part.text.lines().count() <= SHORT_LINES;
        let open = if part.kind == PartKind::Result && is_short { " open" } else { "" };
        let size = count(part.text.chars().count() as u64, "character");
        write!(self.out, "<details{open}><summary>{} ({size})</summary><pre>", escaped(&one_line(name, 200)))?;
        write_escaped(&part.text, self.out)?;
        self.out.write_all(b"</pre></details>")
    }

    /// Opens a section for what stands between turns, if none is open.
    fn section(&mut self) -> io::Result<()> {
        if self.open == Open::Nothing {
            self.open = Open::Between;
            self.out.write_all(b"<section class=\"between\">\n")?;
        }
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.open, Open::Nothing) {
            Open::Nothing => Ok(()),
            Open::Turn | Open::Between => self.out.write_all(b"</section>\n"),
        }
    }
}

fn ended(turn: &TurnTotals) -> String {
    match &turn.end {
        Some((time, reason)) => format!("{} after {}", reason.kind(), span(time - turn.started_at)),
        None => "open: it is running, or its process died in it".to_owned(),
    }
}

fn all_tokens(usage: &Usage) -> u64 {
    let cached = usage.cache_read_tokens.unwrap_or(0).saturating_add(usage.cache_write_tokens.unwrap_or(0));
    cached.saturating_add(usage.input_tokens).saturating_add(usage.output_tokens)
}

fn escaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    write_escaped(text, &mut out).expect("memory takes what is written");
    String::from_utf8(out).expect("text stays text")
}

/// Text as text, also inside quotes; what cannot be seen is marked.
fn write_escaped(text: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut plain = 0;
    for (at, character) in text.char_indices() {
        let entity = match character {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            '"' => "&quot;",
            '\'' => "&#39;",
            other if is_hidden(other) => "",
            _ => continue,
        };
        out.write_all(&text.as_bytes()[plain..at])?;
        plain = at + character.len_utf8();
        if entity.is_empty() {
            let mut shown = String::new();
            push(character, &mut shown);
            write!(out, "<span class=\"hidden\">{shown}</span>")?;
        } else {
            out.write_all(entity.as_bytes())?;
        }
    }
    out.write_all(&text.as_bytes()[plain..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text_in_an_element_and_in_an_attribute() {
        assert_eq!(
            escaped("</pre><script>alert('1')</script>&\""),
            "&lt;/pre&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;"
        );
        assert_eq!(escaped("a\u{202e}b"), "a<span class=\"hidden\">⟨U+202E⟩</span>b");
    }
}
