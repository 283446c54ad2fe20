//! Copying sessions from store to store.

use super::Store;
use crate::error::{Code, Error, Result};
use crate::id::SessionId;
use crate::session::SessionHeader;

/// What was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The session's header, lineage included.
    pub header: SessionHeader,
    /// How many events.
    pub events: u64,
    /// Characters that had to be replaced by U+FFFD to read the source (D-22).
    pub replaced_characters: usize,
    /// Bytes behind the source's committed prefix that were left out (a torn tail).
    pub torn_bytes: u64,
}

/// Copies a session with its id, header and every event's text as they are; the source is not changed and an
/// interrupted turn stays open. The copy appears whole or not at all. Fails with `SESSION_NOT_FOUND` when the source has
/// no session of this id, and with `SESSION_ALREADY_EXISTS` when the target has one: nothing is ever overwritten.
pub async fn copy_session(from: &dyn Store, to: &dyn Store, id: &SessionId) -> Result<Copied> {
    let Some(log) = from.read(id).await? else {
        let message = format!("the store that is copied from has no session {id:?}; list it to see what it has");
        return Err(Error::new(Code::SessionNotFound, message).with("id", id.as_str()));
    };
    let copied = Copied {
        header: log.header,
        events: log.events.len() as u64,
        replaced_characters: log.replaced_characters,
        torn_bytes: log.torn_bytes,
    };
    let writer = to.create(&copied.header).await?;
    // The first batch of a session is whole or absent, so a copy that is cut short leaves nothing behind.
    let written = writer.append(log.events.into()).await;
    writer.close().await;
    written.map(|()| copied)
}
