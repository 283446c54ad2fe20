//! The seeded simulator: one seed is one deterministic run of several agents under a seeded scheduler, with a virtual
//! clock, a store that crashes, and host code that calls back into every public method. What has to hold is checked
//! after every event and whenever nothing moves.
//!
//! `dice` and `script` turn a seed into stimuli and decisions, `world` holds the run, `acts` and `open` perform stimuli,
//! `host` is the application double, `store` the store double; `fold` reads logs independently of the core, `watch`
//! keeps the account of one session, `run` has the checks at rest and the end of a run, `shrink` reduces a failure.

mod acts;
mod dice;
mod fold;
mod host;
mod open;
mod panics;
pub mod run;
mod script;
pub mod shrink;
mod store;
mod watch;
mod world;
