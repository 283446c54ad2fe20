//! turnwheel
#![forbid(unsafe_code)]
mod background;
pub mod error;
pub mod id;
pub mod json;
pub mod llm;
pub mod message;
pub mod runtime;
pub mod session;
pub mod storage;
#[doc(hidden)]
pub mod __private {
    pub use serde_json;
}
pub use error::{Code, Error, Result};
