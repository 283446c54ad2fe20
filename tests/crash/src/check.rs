//! What has to be true of a log after a crash.

use crate::child::SESSIONS;
use crate::effects::{self, Effect};
use crate::stores::Kind;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use turnwheel::runtime::Runtime;
use turnwheel::session::{Event, closers};
use turnwheel::{Block, EventData, Message, Session};

/// Checks every session of a directory against its side file. `is_over` says that the last life ended by itself.
pub fn directory(kind: Kind, directory: &Path, is_over: bool) -> Result<(), String> {
    let runtime = Runtime::default();
    let effects = effects::read(directory)?;
    let store = kind.open(directory);
    runtime.block_on(store.list()).map_err(|error| format!("the listing fails: {error:?}"))?;
    for id in SESSIONS {
        let own: Vec<&Effect> = effects.iter().filter(|(session, _)| session == id).map(|(_, effect)| effect).collect();
        let read = runtime.block_on(store.read(&id.into()));
        let read = read.map_err(|error| format!("{id}: the log does not open: {error:?}"))?;
        let (header, events) = read.map(|log| (Some(log.header), log.events.to_vec())).unwrap_or_default();
        against(&own, &events).map_err(|what| format!("{id}: {what}"))?;
        let Some(header) = header else { continue };
        let mut repaired = events.clone();
        repaired.extend(closers(&events.clone().into()).into_iter().map(Arc::new));
        let session = Session::seeded(&runtime, header, repaired).map_err(|error| format!("{id}: {error:?}"))?;
        resumed(&own, &session, is_over).map_err(|what| format!("{id}: {what}"))?;
    }
    Ok(())
}

/// Everything that was acknowledged is stored, and so is the intent of everything that happened.
fn against(effects: &[&Effect], events: &[Arc<Event>]) -> Result<(), String> {
    let stored = events.len() as u64;
    let mut calls = HashSet::new();
    let mut inserted = HashSet::new();
    let mut entered: HashMap<&str, usize> = HashMap::new();
    for event in events {
        match &event.data {
            EventData::ToolCall { call_id, .. } => drop(calls.insert(call_id.as_str())),
            EventData::InboxSpliced(splice) => {
                inserted.extend(splice.inserted.iter().map(|message| message.id().as_str()))
            }
            EventData::UserMessage(message) => *entered.entry(message.id().as_str()).or_default() += 1,
            _ => {}
        }
    }
    let mut bodies: HashMap<&str, usize> = HashMap::new();
    for effect in effects {
        match effect {
            Effect::Flushed(len) | Effect::Request(len) if *len > stored => {
                return Err(format!("{effect:?}, and {stored} events are stored"));
            }
            Effect::BadRequest(why) => return Err(format!("a request that no provider takes: {why}")),
            Effect::Tool(call) => {
                if !calls.contains(call.as_str()) {
                    return Err(format!("the body of {call} began, and its call is not stored ({stored} events)"));
                }
                *bodies.entry(call).or_default() += 1;
            }
            Effect::Durable(id) | Effect::Settled(id) if !inserted.contains(id.as_str()) => {
                return Err(format!("{id} was durable and is not stored"));
            }
            Effect::Flushed(_) | Effect::Request(_) | Effect::Durable(_) | Effect::Settled(_) | Effect::Accepted(_) => {
            }
        }
    }
    match bodies.iter().chain(&entered).find(|(_, count)| **count > 1) {
        Some((id, count)) => Err(format!("{id} ran {count} times")),
        None => Ok(()),
    }
}

/// The next request can be sent, and every message is in exactly one state.
fn resumed(effects: &[&Effect], session: &Session, is_over: bool) -> Result<(), String> {
    let history: Vec<_> = session.history().iter().collect();
    sendable(&history)?;
    let entered: HashSet<_> = history.iter().map(|message| message.id().to_string()).collect();
    for effect in effects {
        let Effect::Durable(id) = effect else { continue };
        let Some(delivery) = session.delivery(id) else {
            return Err(format!("{id} was durable and the inbox does not know it"));
        };
        let pending = matches!(delivery, turnwheel::session::Delivery::Pending { .. });
        if pending && entered.contains(id) {
            return Err(format!("{id} has run and is pending: it would run twice"));
        }
        if is_over && (pending || !entered.contains(id)) {
            return Err(format!("{id} was never run ({delivery:?}), though a life came to its end"));
        }
    }
    Ok(())
}

/// P2: every call of an assistant message has exactly one result, directly behind it, and no result stands elsewhere.
pub fn sendable(history: &[Arc<Message>]) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    for message in history {
        let results: Vec<&str> = message.content().iter().filter_map(answered).collect();
        if results.is_empty() && !open.is_empty() {
            return Err(format!("{} stands where the results of {open:?} belong", message.id()));
        }
        for result in results {
            let Some(at) = open.iter().position(|call| *call == result) else {
                return Err(format!("a result for {result}, which nobody waits for"));
            };
            open.remove(at);
        }
        let calls = message.content().iter().filter_map(|block| match block {
            Block::ToolCall { id, .. } => Some(id.as_str()),
            _ => None,
        });
        open.extend(calls);
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} have no result")) }
}

fn answered(block: &Block) -> Option<&str> {
    match block {
        Block::ToolResult { tool_call_id, .. } => Some(tool_call_id.as_str()),
        _ => None,
    }
}
