//! What is stored: listing it, and copying sessions from store to store.

use crate::context::{on_context, promised};
use crate::future::start;
use crate::guard::{enter, json, name, out, text};
use crate::types::*;
use std::rc::Rc;
use turnwheel::error::Result;
use turnwheel::host::{self, Options};
use turnwheel::id::SessionId;
use turnwheel::json as value;
use turnwheel::json::Value;
use turnwheel::storage::{Copied, Store, copy_session};

fn store_of(options: &Value, what: &str) -> Result<Rc<dyn Store>> {
    host::store(Options::new(options, what)?)
}

fn copied_text(copied: &Copied) -> String {
    value!({
        "header": copied.header.to_value(),
        "events": copied.events,
        "replacedCharacters": copied.replaced_characters as u64,
        "tornBytes": copied.torn_bytes,
    })
    .to_text()
}

/// Lists the headers of up to `limit` stored sessions whose ids follow `after`, in the order of the ids' bytes.
///
/// An empty `after` starts at the first. Only headers are read. Statuses of the future: `NO_STORE`, and the store's errors.
///
/// The caller owns `*future`; its result is a JSON list of headers.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_stored(
    context: *mut tw_context,
    after: tw_str,
    limit: u64,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (after, target) = (text(after, "after")?, out(future, "future")?);
        let after = (!after.is_empty()).then(|| SessionId::from(after));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let future = on_context(context, move |core, ctx| {
            let listed = ctx.clone();
            Ok(start(
                core,
                ctx.runtime(),
                Box::pin(async move {
                    let headers = listed.list_sessions(after.as_ref(), limit).await?;
                    Ok(Value::Array(headers.iter().map(|header| header.to_value()).collect()).to_text())
                }),
            ))
        })?;
        Ok(promised(target, future))
    })
}

/// Copies a session from another store into the context's: id, header, lineage and the text of every event as they are.
///
/// `from` is a store as in `tw_context_new`, or `{"kind": "reference", "path"}`, a database of the reference's. The copy appears whole or not at all.
///
/// Statuses: `INVALID_JSON`, `INVALID_ARGUMENT`, `UNKNOWN_OPTION`; of the future `NO_STORE`, `SESSION_NOT_FOUND`,
/// `SESSION_ALREADY_EXISTS` when one of this id is stored or live here, and the stores' errors.
///
/// The caller owns `*future`; its result is `{"header", "events", "replacedCharacters", "tornBytes"}`: the counts are of
/// events, of characters that U+FFFD replaced, and of bytes of a torn tail that were left out.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_import_session(
    context: *mut tw_context,
    from: tw_str,
    id: tw_str,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    transfer(context, from, id, future, error, true)
}

/// Copies a session from the context's store into another one. What a live session has logged is made durable first.
///
/// `to` is a store as in `tw_context_new`. Statuses, result and ownership as for `tw_context_import_session`;
/// `SESSION_ALREADY_EXISTS` when `to` has the session.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_export_session(
    context: *mut tw_context,
    to: tw_str,
    id: tw_str,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    transfer(context, to, id, future, error, false)
}

fn transfer(
    context: *mut tw_context,
    other: tw_str,
    id: tw_str,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
    import: bool,
) -> tw_status {
    enter(error, || {
        let (other, id, target) = (json(other, "store")?, SessionId::from(name(id, "id")?), out(future, "future")?);
        let future = on_context(context, move |core, ctx| {
            let (ctx, other) = (ctx.clone(), store_of(&other, "a store")?);
            let runtime = ctx.runtime().clone();
            let copying = Box::pin(async move {
                let copied = match import {
                    true => ctx.import_session(&*other, id).await?,
                    false => ctx.export_session(&*other, id).await?,
                };
                Ok(copied_text(&copied))
            });
            Ok(start(core, &runtime, copying))
        })?;
        Ok(promised(target, future))
    })
}

/// Copies a session between two stores that are not the context's own; see `tw_context_import_session`.
///
/// Statuses, result and ownership as there. An interrupted turn stays open in the copy.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_copy_session(
    context: *mut tw_context,
    from: tw_str,
    to: tw_str,
    id: tw_str,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (from, to) = (json(from, "from")?, json(to, "to")?);
        let (id, target) = (SessionId::from(name(id, "id")?), out(future, "future")?);
        let future = on_context(context, move |core, ctx| {
            let (from, to) = (store_of(&from, "the store copied from")?, store_of(&to, "the store copied to")?);
            let copying = Box::pin(async move { Ok(copied_text(&copy_session(&*from, &*to, &id).await?)) });
            Ok(start(core, ctx.runtime(), copying))
        })?;
        Ok(promised(target, future))
    })
}
