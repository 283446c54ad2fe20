//! Sessions to look at: as text for a terminal, and as one page.

use crate::entries::{call, json_at};
use crate::host::Seat;
use crate::raw::{Arguments, Js};
use turnwheel::host;

/// `sessionHtml(core, seat, options) -> text`
pub fn session_html(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let (seat, options) = (host.get::<Seat>(arguments.key(1))?, json_at(arguments, 2)?);
        Ok(Some(arguments.env.text(&host::session_html(&seat.session, &options)?)))
    })
}

/// `sessionTimeline(core, seat, options) -> text`
pub fn session_timeline(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let (seat, options) = (host.get::<Seat>(arguments.key(1))?, json_at(arguments, 2)?);
        Ok(Some(arguments.env.text(&host::session_text(&seat.session, &options)?)))
    })
}
