//! What the core reports and nobody can be told otherwise: a listener that failed, a cleanup that panicked.

use crate::guard::{Text, UserData, enter, function};
use crate::types::*;
use std::ffi::c_void;
use std::fmt::{self, Write};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use turnwheel::error::{Code, Error};

struct Logs {
    log: unsafe extern "C" fn(*mut c_void, i32, tw_str),
    user: UserData,
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}

impl Subscriber for Logs {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "turnwheel" && *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = if *event.metadata().level() == Level::ERROR { 1 } else { 2 };
        let text = Text::new(line.message + &line.fields);
        // SAFETY: the interface asks for a function that takes its own `user_data` and borrowed text, on any thread.
        unsafe { (self.log)(self.user.ptr, level, text.view()) };
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Sends what the library reports to `log`, for this whole process and its life. It may be called on any thread at once.
///
/// Statuses: `BUSY` when this was called before, or another library of the process took the reports; `drop` runs then.
#[unsafe(no_mangle)]
pub extern "C" fn tw_set_log(
    log: tw_log_fn,
    user_data: *mut c_void,
    drop: tw_drop_fn,
    error: *mut *mut tw_error,
) -> tw_status {
    let user = UserData::new(user_data, drop);
    enter(error, || {
        let logs = Logs { log: function(log)?, user };
        tracing::subscriber::set_global_default(logs)
            .map_err(|_| Error::new(Code::Busy, "somebody hears this process's reports already"))?;
        Ok(TW_OK)
    })
}
