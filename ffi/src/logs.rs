//! What the core reports and nobody can be told otherwise: a listener that failed, a cleanup that panicked.

use crate::guard::{Text, UserData, enter, function};
use crate::types::*;
use std::ffi::c_void;
use turnwheel::host::{Severity, forward_reports};

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
        let log = function(log)?;
        forward_reports(move |severity, report| {
            // The whole of it is captured: its drop runs with this closure's.
            let user = &user;
            let level = if severity == Severity::Error { 1 } else { 2 };
            let text = Text::new(report.to_owned());
            // SAFETY: the interface asks for a function that takes its own `user_data` and borrowed text, on any thread.
            unsafe { log(user.ptr, level, text.view()) };
        })?;
        Ok(TW_OK)
    })
}
