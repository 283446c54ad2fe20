//! What the core reports and nobody can be raised at, as records of Python's logger `turnwheel`. Warnings and errors
//! only; configure or silence them like any logger.

use pyo3::prelude::*;
use turnwheel::host::{Severity, forward_reports};

/// Sends the core's reports to Python, unless another library of this process took them already.
pub fn install() {
    let _ = forward_reports(|severity, report| {
        let level = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        // None at the end of the interpreter, when nobody reads logs any more.
        Python::try_attach(|py| {
            let logger = py.import("logging").and_then(|logging| logging.call_method1("getLogger", ("turnwheel",)));
            let _ = logger.and_then(|logger| logger.call_method1(level, ("%s", report)));
        });
    });
}
