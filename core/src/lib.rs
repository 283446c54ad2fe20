//! turnwheel: an embeddable, durable agent runtime.
//!
//! An application composes a [`Context`] with model routes, tools and listeners, opens agents on it, and drives each
//! through one handle. Everything an agent does is an append-only session log; the inbox, the model's history and the
//! request header are projections of it, so an agent survives crashes, can be audited, and continues where it was.
//!
//! # Words
//!
//! - *session*: one append-only log of *events*, each with a *seq*. An agent and its session share one id.
//! - *surface*: the ordered part of the log that the model sees; *history* is the messages on it.
//! - *inbox*: pending input, in two lists. *Claiming* takes a batch of it; a *splice* is any change of it.
//! - *turn*: what one prompt sets going; *step*: one model request and the tool calls it asks for; *boundary*: the
//!   moment before a step, where the inbox is read.
//! - *wake*: a delivery that may start the *driver*, which drains turns; *parked*: pending, and nothing is going to read
//!   it before the next wake; *latch*: a wake remembered until the activity under way has ended.
//! - *listener*: hears a notification or takes part in a *waterfall*, whose innermost continuation is the built-in
//!   behaviour.
//! - *context*, *fiber*, *scope*: through which, for how long and for whom something is registered.
//! - *barrier*: what holds an effect back until the log is durable. *Receipt*: tells what became of one message.
//!
//! # Invariants
//!
//! An event is in the log before anybody can observe its consequence. Every tool call of a committed message has exactly
//! one result. Nothing accepted is lost in silence. No borrow is held while host code runs.
#![forbid(unsafe_code)]

pub mod agent;
mod agent_loop;
mod background;
pub mod context;
mod timer;
pub use agent_loop::config;
pub mod error;
pub mod events;
pub mod host;
pub mod id;
pub mod invariants;
pub mod json;
pub mod llm;
pub mod message;
pub mod runtime;
pub mod scope;
pub mod session;
pub mod storage;
pub mod system_prompt;
pub mod testing;
pub mod texts;
pub mod tools;
pub mod view;

#[doc(hidden)]
pub mod __private {
    pub use serde_json;
}

pub use agent::{Agent, AgentOptions, AgentStatus, Notice, NoticeKind};
pub use context::Context;
pub use error::{Code, Error, Result};
pub use message::{Block, Message};
pub use session::{CancelCause, EventData, Session};
pub use storage::Durability;
pub use tools::{Tool, ToolCall, ToolOutput};

/// The programs of README and docs, run as documentation tests.
#[cfg(all(doctest, feature = "http", feature = "jsonl"))]
mod documented {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/rust.md")]
    struct Rust;
    #[doc = include_str!("../../docs/models.md")]
    struct Models;
}
