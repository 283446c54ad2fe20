//! The C interface of turnwheel: `libturnwheel`. Everything that behaves lives in the core; here are handles, text,
//! callbacks, and the threads that a runtime lives on. `include/turnwheel.h` is generated from this crate.
//!
//! What keeps it sound: a handle is a number and never read through ([`handles`]); every function runs inside a guard that
//! catches panics and checks what comes in ([`guard`]); values of the core stay on their runtime's thread ([`runtime`]);
//! answers of host code travel without waiting ([`question`]).
#![allow(clippy::not_unsafe_ptr_arg_deref, reason = "the header states what each pointer must be")]
#![allow(missing_docs, reason = "Rust programs use the core; this crate's documentation is its header")]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod agent;
pub mod basics;
pub mod context;
pub mod future;
pub mod guard;
pub mod handles;
pub mod inbox;
pub mod listen;
pub mod logs;
pub mod model;
pub mod notice;
pub mod plugin;
pub mod question;
pub mod routes;
pub mod runtime;
pub mod session;
pub mod signal;
pub mod stored;
pub mod tool;
pub mod types;
pub mod view;
