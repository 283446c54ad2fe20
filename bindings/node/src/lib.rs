//! The native half of the Node package: text and numbers across the border, and the pump on the JavaScript thread. What
//! anything means is the core's business; what it looks like in TypeScript is the TypeScript half's (`ts/`).
//!
//! JavaScript names native things by keys and native code names JavaScript's by numbers, so that neither holds a
//! reference into the other's heap, and a garbage collector sees all there is to see.

mod agent_entries;
mod callbacks;
mod entries;
mod host;
mod log_entries;
mod logs;
mod promises;
mod raw;
mod realm;
mod route_entries;
mod rule_entries;
mod session_entries;
mod stores;
mod view_entries;

use napi::JsValue;
use napi::bindgen_prelude::Object;
use napi_derive::napi;
use raw::Entry;

/// Sessions are many small pieces that come and go together, at which this is twice as fast as glibc's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

macro_rules! exported {
    ($($name:literal: $entry:path,)*) => {
        /// Every function of the module.
        static ENTRIES: &[(&str, Entry)] = &[$(($name, $entry),)*];
    };
}

exported! {
    "attach": entries::attach,
    "pump": entries::pump,
    "codes": entries::codes,
    "texts": entries::texts,
    "open": entries::open,
    "root": entries::root,
    "kill": entries::kill,
    "collected": entries::collected,
    "release": entries::release,
    "hold": entries::hold,
    "answer": entries::answer,
    "flush": entries::flush,
    "giveUp": entries::give_up,
    "close": entries::close,
    "on": entries::on,
    "undo": entries::undo,
    "tool": entries::tool,
    "restrict": entries::restrict,
    "checkEvents": entries::check_events,
    "guard": entries::guard,
    "startAgents": entries::start_agents,
    "toolSchemas": entries::tool_schemas,
    "prompt": entries::prompt,
    "model": route_entries::model,
    "retry": route_entries::retry,
    "fallback": route_entries::fallback,
    "selection": entries::selection,
    "select": entries::select,
    "openAgent": entries::open_agent,
    "listSessions": entries::list_sessions,
    "newSignal": entries::new_signal,
    "fireSignal": entries::fire_signal,
    "findAgent": entries::find_agent,
    "agentIds": entries::agent_ids,
    "forkSession": entries::fork_session,
    "send": agent_entries::send,
    "run": agent_entries::run,
    "stream": agent_entries::stream,
    "streamMessage": agent_entries::stream_message,
    "streamNext": agent_entries::stream_next,
    "streamDrop": agent_entries::stream_drop,
    "wake": agent_entries::wake,
    "cancel": agent_entries::cancel,
    "state": agent_entries::state,
    "status": agent_entries::status,
    "isDisposed": agent_entries::is_disposed,
    "whenIdle": agent_entries::when_idle,
    "maintain": agent_entries::maintain,
    "receiptState": agent_entries::receipt_state,
    "receiptSettled": agent_entries::receipt_settled,
    "receiptDurable": agent_entries::receipt_durable,
    "durable": agent_entries::durable,
    "dispose": agent_entries::dispose,
    "agentCtx": agent_entries::agent_ctx,
    "pending": agent_entries::pending,
    "splice": agent_entries::splice,
    "insert": agent_entries::insert,
    "replace": agent_entries::replace,
    "remove": agent_entries::remove,
    "clearInbox": agent_entries::clear_inbox,
    "subject": agent_entries::subject,
    "requestMessages": agent_entries::request_messages,
    "watch": agent_entries::watch_signal,
    "next": agent_entries::next,
    "push": agent_entries::push,
    "pushTexts": agent_entries::push_texts,
    "deferContext": agent_entries::defer_context,
    "concludeTurn": agent_entries::conclude_turn,
    "sessionHtml": view_entries::session_html,
    "sessionId": session_entries::session_id,
    "sessionTimeline": view_entries::session_timeline,
    "header": session_entries::header,
    "length": session_entries::length,
    "eventJson": session_entries::event_json,
    "eventType": session_entries::event_type,
    "eventTime": session_entries::event_time,
    "eventText": session_entries::event_text,
    "follow": session_entries::follow,
    "history": session_entries::history,
    "append": session_entries::append,
    "appendRaw": session_entries::append_raw,
    "turnContext": agent_entries::turn_context,
    "consumedWork": session_entries::consumed_work,
    "emit": session_entries::emit,
    "sendableHistory": session_entries::sendable_history,
    "eventTypeVersion": session_entries::event_type_version,
    "callTool": agent_entries::call_tool,
    "present": rule_entries::present,
    "registerEventType": rule_entries::register_event_type,
    "invariants": rule_entries::invariants,
    "requireInitiator": rule_entries::require_initiator,
    "schemaOfShorthand": rule_entries::shorthand,
    "copySession": stores::copy_session,
    "storeCases": stores::store_cases,
    "checkStore": stores::check_store,
    "jsonl": stores::jsonl,
    "viewList": log_entries::list,
    "viewRead": log_entries::read,
    "viewRelease": log_entries::release,
    "viewSource": log_entries::ask,
    "viewFacts": log_entries::facts,
    "viewRender": log_entries::render,
}

/// Called when Node loads the module, once in each environment.
#[napi(module_exports)]
pub fn exports(exports: Object, env: napi::Env) -> napi::Result<()> {
    logs::install();
    let env = raw::Env::from_raw(env.raw());
    for (name, entry) in ENTRIES {
        env.export(exports.raw(), name, entry);
    }
    Ok(())
}
