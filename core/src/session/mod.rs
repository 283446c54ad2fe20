//! The session.
mod event;
mod header;
mod history;
mod reason;
mod surface;
pub use event::*;
pub use header::{FORMAT_VERSION, SessionHeader};
pub use history::History;
pub use reason::{CancelCause, TurnEndReason};
pub use surface::Surface;
