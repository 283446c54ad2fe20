//! Adapters that come with the runtime.
#[cfg(feature = "http")]
pub mod openai_chat;
mod scripted;
#[cfg(feature = "http")]
pub use openai_chat::OpenAiChat;
pub use scripted::{Scripted, ScriptedCall, ScriptedReply};
