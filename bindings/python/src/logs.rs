//! What the core reports and nobody can be raised at, as records of Python's logger `turnwheel`. Warnings and errors
//! only; configure or silence them like any logger.

use pyo3::prelude::*;
use std::fmt::{self, Write};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Sends the core's reports to Python, unless another library of this process took them already.
pub fn install() {
    let _ = tracing::subscriber::set_global_default(PythonLogs);
}

struct PythonLogs;

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
    }
}

impl Subscriber for PythonLogs {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "turnwheel" && *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let level = if *event.metadata().level() == Level::ERROR { "error" } else { "warning" };
        // None at the end of the interpreter, when nobody reads logs any more.
        Python::try_attach(|py| {
            let logger = py.import("logging").and_then(|logging| logging.call_method1("getLogger", ("turnwheel",)));
            let _ = logger.and_then(|logger| logger.call_method1(level, ("%s%s", text.message, text.fields)));
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
