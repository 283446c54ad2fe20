//! Everything that this process traces or logs, at every level.
#![allow(dead_code, clippy::unwrap_used)]

use std::fmt::{Debug, Write};
use std::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static TRACED: Mutex<String> = Mutex::new(String::new());

struct Keep;

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

fn keep(metadata: &Metadata<'_>, record: impl FnOnce(&mut Text<'_>)) {
    let mut text = format!("{} {}", metadata.level(), metadata.target());
    record(&mut Text(&mut text));
    TRACED.lock().unwrap().push_str(&text);
    TRACED.lock().unwrap().push('\n');
}

impl Subscriber for Keep {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        keep(span.metadata(), |text| span.record(text));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut text = String::new();
        values.record(&mut Text(&mut text));
        TRACED.lock().unwrap().push_str(&text);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        keep(event.metadata(), |text| event.record(text));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl log::Log for Keep {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = format!("{} {} {}\n", record.level(), record.target(), record.args());
        TRACED.lock().unwrap().push_str(&text);
    }

    fn flush(&self) {}
}

/// Keeps everything from now on.
pub fn start() {
    tracing::subscriber::set_global_default(Keep).unwrap();
    log::set_logger(&Keep).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
}

/// What was kept.
pub fn text() -> String {
    TRACED.lock().unwrap().clone()
}
