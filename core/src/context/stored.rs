//! What is stored: listing it, and copying sessions between a context's store and another one.

use super::Context;
use super::builder::no_store;
use crate::error::Result;
use crate::id::SessionId;
use crate::session::SessionHeader;
use crate::storage::{Copied, Store, copy_session};

impl Context {
    /// The headers of up to `limit` stored sessions whose ids follow `after`, in the order of the ids' bytes. Reads headers
    /// only. A session that nothing was logged of is not stored and not listed. Fails with `NO_STORE` without a store.
    pub async fn list_sessions(&self, after: Option<&SessionId>, limit: usize) -> Result<Vec<SessionHeader>> {
        let storage = self.root().storage.clone().ok_or_else(no_store)?;
        storage.store().list_page(after, limit).await
    }

    /// Copies a session from another store into this context's: id, header, lineage and the text of every event as they
    /// are. The copy appears whole or not at all, and an interrupted turn is closed when it is opened. Fails with
    /// `SESSION_ALREADY_EXISTS` when one of this id is stored or live here: nothing is overwritten; with
    /// `SESSION_NOT_FOUND` when the other store has none, and with `NO_STORE` without a store.
    pub async fn import_session(&self, from: &dyn Store, id: impl Into<SessionId>) -> Result<Copied> {
        let id = id.into();
        let storage = self.root().storage.clone().ok_or_else(no_store)?;
        self.root().check_free(&id)?;
        copy_session(from, &**storage.store(), &id).await
    }

    /// Copies a session from this context's store into another one, as [`Context::import_session`] does. What a live
    /// session has logged so far is made durable first, and copied too.
    pub async fn export_session(&self, to: &dyn Store, id: impl Into<SessionId>) -> Result<Copied> {
        let id = id.into();
        let storage = self.root().storage.clone().ok_or_else(no_store)?;
        if let Some(session) = self.root().session(&id) {
            session.flush().await?;
        }
        copy_session(&**storage.store(), to, &id).await
    }
}
