//! Adapters that come with the runtime.
#[cfg(feature = "http")]
pub mod anthropic_messages;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "http")]
pub mod openai_chat;
#[cfg(feature = "http")]
pub mod openai_responses;
mod scripted;
#[cfg(feature = "http")]
pub use anthropic_messages::AnthropicMessages;
#[cfg(feature = "http")]
pub use openai_chat::OpenAiChat;
#[cfg(feature = "http")]
pub use openai_responses::OpenAiResponses;
pub use scripted::{Scripted, ScriptedCall, ScriptedReply};
