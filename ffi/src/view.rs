//! Sessions to look at: as text for a terminal, and as one page.

use crate::context::on;
use crate::guard::{enter, json, out};
use crate::types::*;
use turnwheel::{Session, host};

/// The session as it is now as one HTML page, which works offline, has no script and shows what a model or tool said as
/// text. Options may be empty: `{"prices": {"provider/model": {"input", "output", "cacheRead"?, "cacheWrite"?}}?}`, each
/// the cost of a million tokens.
///
/// Statuses: `INVALID_ARGUMENT`, `UNKNOWN_OPTION`. The caller owns `*page`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_html(
    session: *mut tw_session,
    options: tw_str,
    page: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (target, options) = (out(page, "page")?, json(options, "options")?);
        let page = on::<tw_session, Session, _>(session, move |_, session| host::session_html(session, &options))?;
        Ok(target.text(page))
    })
}

/// The session as it is now as a timeline of turns, steps and calls for a terminal; control and direction characters of
/// the log are spelled out. Options may be empty: `{"prices"?, "full"?, "color"?}`, prices as for `tw_session_html`.
///
/// Statuses: `INVALID_ARGUMENT`, `UNKNOWN_OPTION`. The caller owns `*text`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_text(
    session: *mut tw_session,
    options: tw_str,
    text: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (target, options) = (out(text, "text")?, json(options, "options")?);
        let text = on::<tw_session, Session, _>(session, move |_, session| host::session_text(session, &options))?;
        Ok(target.text(text))
    })
}
