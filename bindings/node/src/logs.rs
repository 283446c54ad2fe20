//! What the core reports and nobody can be told by a promise: warnings of the process. Errors and warnings only.

use crate::realm;
use turnwheel::host::forward_reports;

/// Sends the core's reports to JavaScript, unless another library of this process took them already.
pub fn install() {
    let _ = forward_reports(|_, report| {
        // A background thread has no JavaScript to tell.
        if !realm::warn(report) {
            eprintln!("turnwheel: {report}");
        }
    });
}
