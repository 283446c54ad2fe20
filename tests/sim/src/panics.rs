//! Panics that nobody planned, and errors that the core could only write to its log.

use std::cell::RefCell;
use std::fmt::Write;
use std::sync::Once;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

thread_local! {
    static FOUND: RefCell<Vec<(&'static str, String)>> = const { RefCell::new(Vec::new()) };
}

/// Takes what was found on this thread.
pub fn take() -> Vec<(&'static str, String)> {
    FOUND.with(|found| std::mem::take(&mut *found.borrow_mut()))
}

/// Listens, once per process.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let text = turnwheel::runtime::panic_text(info.payload());
            if text.starts_with("planned") {
                return;
            }
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            if place.contains("core/src") || place.contains("tests/sim/src") {
                FOUND.with(|found| found.borrow_mut().push(("PANIC", format!("{text} at {place}"))));
            } else {
                before(info);
            }
        }));
        // Somebody else's subscriber is fine too: then only panics are seen.
        let _ = tracing::subscriber::set_global_default(Errors);
    });
}

struct Errors;

/// What the core logs when a store fails for good is planned.
const PLANNED: [&str; 2] = ["could not be stored", "planned"];

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR && metadata.target() == "turnwheel"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        if !PLANNED.iter().any(|planned| text.0.contains(planned)) {
            FOUND.with(|found| found.borrow_mut().push(("LOGGED-ERROR", text.0)));
        }
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}
