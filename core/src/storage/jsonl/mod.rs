//! The JSONL store.
