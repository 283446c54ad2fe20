//! Model calls.
mod adapter;
pub mod adapters;
mod assembler;
mod chunk;
mod config;
mod failure;
mod registry;
pub mod sse;
pub use adapter::{Adapter, ChunkStream, ModelInfo, ModelRequest};
pub use assembler::{Assembled, Assembler};
pub use chunk::{Chunk, FinishReason};
pub use config::{AdapterDefaults, CallConfig, RequestHeader, ToolSchema};
pub use failure::Failure;
pub(crate) use registry::PreparedCall;
pub use registry::{ModelTable, Models};
