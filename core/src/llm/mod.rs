//! Model calls.
mod adapter;
pub mod adapters;
mod chunk;
mod config;
mod failure;
pub use adapter::{Adapter, ChunkStream, ModelInfo, ModelRequest};
pub use chunk::{Chunk, FinishReason};
pub use config::{AdapterDefaults, CallConfig, RequestHeader, ToolSchema};
pub use failure::Failure;
