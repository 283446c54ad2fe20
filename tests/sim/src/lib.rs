//! The seeded simulator: one seed is one deterministic run of several agents under a seeded scheduler, with a virtual
//! clock, a store that crashes, and host code that calls back into every public method. What has to hold is checked
//! after every event and whenever nothing moves.
//!
//! `dice` and `script` turn a seed into stimuli and decisions, `world` holds the run, `acts`, `owned`, `host_acts` and `open`
//! perform stimuli, `gates` is where things wait; `host` is the application double, `store` the store double; `fold` reads logs independently of the core, `watch`
//! keeps the account of one session, `run` has the checks at rest and the end of a run, `shrink` reduces a failure.

mod acts;
mod dice;
mod fold;
mod gates;
mod host;
mod host_acts;
mod open;
mod owned;
mod panics;
pub mod run;
mod script;
pub mod shrink;
mod store;
mod vetoed;
mod watch;
mod world;
