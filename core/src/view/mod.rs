//! A session to look at: a timeline of turns, steps, requests, tool calls, retries, cancellations and repairs, as text for
//! a terminal and as one HTML page that works offline.
//!
//! Everything here is a pure function of a header and events; reading logs is the business of [`crate::storage`]. What a
//! log holds came from models, tools and strangers, so nothing of it reaches a terminal or a page as it is: see
//! [`visible`](visible()). [`Reader`] alone knows what an event means to a person; the renderers only lay it out.

mod entry;
mod format;
mod html;
mod text;
mod totals;
mod visible;

pub use entry::{Entry, Part, PartKind, Place, Reader, Tone};
pub use html::{HtmlOptions, render_html};
pub use text::{TextOptions, TextView, render_text};
pub use totals::{Price, Prices, Totals, TurnTotals};
pub use visible::visible;

/// How many events are rendered between two reports of progress.
const BATCH: usize = 256;
