//! What the core reports and nobody can be told by a result: the `tracing` events of the target `turnwheel`, for hosts
//! that have a place of their own for warnings.

use crate::error::{Code, Error, Result};
use std::fmt::{self, Write};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// How serious a report is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something went wrong that nobody waited for.
    Error,
    /// Something that may be wrong.
    Warning,
}

/// Sends the core's warnings and errors to `sink`, which may be called on any thread. The text is the message, then each
/// field as ` name=value`. Fails with `BUSY` when somebody of this process took them already.
pub fn forward_reports(sink: impl Fn(Severity, &str) + Send + Sync + 'static) -> Result<()> {
    let taken = |_| Error::new(Code::Busy, "somebody hears this process's reports already");
    tracing::subscriber::set_global_default(Reports(sink)).map_err(taken)
}

struct Reports<F>(F);

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

impl<F: Fn(Severity, &str) + Send + Sync + 'static> Subscriber for Reports<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "turnwheel" && *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let severity = if *event.metadata().level() == Level::ERROR { Severity::Error } else { Severity::Warning };
        (self.0)(severity, &(text.message + &text.fields));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
