//! The one vocabulary by which dynamically typed hosts (C, Node, Python) talk to the core: every option, payload,
//! decision and result as a JSON [`Value`](crate::json::Value). A binding converts JSON and moves calls between
//! threads; what a member means, which are required and how they are refused is decided here, once (P5, A-08).
//!
//! Rust programs do not need this module. It adds no behaviour: each function ends in the typed interface. Agents are
//! named by their id, members are written as in the log (`agentId`, `maxTokens`), and unknown members are refused by name.

mod adapters;
mod compose;
mod decisions;
mod emit;
mod feed;
#[cfg(feature = "http")]
mod http_adapters;
mod listen;
mod notices;
mod options;
mod reports;
mod results;
mod routes;
mod stores;
mod view;

pub use adapters::{adapter, model_info, scripted, scripted_reply};
pub use compose::{
    AgentSetup, Setup, budget, cancel_cause, context_builder, message, model_choice, open_agent, prompt_input, store,
    target, tool, tool_call_value, tool_output,
};
pub use decisions::Decided;
pub use emit::{emit, texts_value};
pub use feed::{ChunkSink, HostAdapter, Producing, request_value};
#[cfg(feature = "http")]
pub use http_adapters::{HTTP_ADAPTERS, KeyCallback, http_adapter};
pub use listen::{HostListener, HostNext, ListenOptions, Listening, WaterfallEvent, check_event_name, listen};
pub use notices::{event_text, notice_text, notice_value};
pub use options::{Options, Spelling};
pub use reports::{Severity, forward_reports};
pub use results::{
    append_raw, approval_value, error_from_value, error_value, outcome_value, receipt_value, run_value, session_value,
    work_value,
};
pub use routes::{fallback_route, model_double, retry_policy, retry_policy_value, route_options};
pub use stores::{HostStore, StoreCall, StoreObject, copied_value};
pub use view::{log_html, log_text, session_html, session_text};
