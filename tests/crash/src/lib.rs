//! Crash tests: a child process runs turns whose effects it writes into a side file; the parent kills it at some moment
//! and checks the log that is left against the side file.
//!
//! The side file is written with one call a line and never read by the child: what it says happened, did happen before
//! the kill. The log has to agree: whatever was acknowledged as durable is there, and whatever had an effect was there
//! before it.

pub mod check;
pub mod child;
mod dice;
pub mod effects;
mod files;
pub mod parent;
pub mod stores;

pub use dice::Dice;
