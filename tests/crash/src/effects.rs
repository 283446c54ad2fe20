//! The side file: what happened outside of the log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// One thing that happened, with the session it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A model request was sent whose intent is in the first so many events.
    Request(u64),
    /// A model request that no provider would take, and why.
    BadRequest(String),
    /// A tool's body began for this call.
    Tool(String),
    /// A message was accepted.
    Accepted(String),
    /// A message was acknowledged as durable.
    Durable(String),
    /// So many events were acknowledged as durable.
    Flushed(u64),
    /// A message was settled.
    Settled(String),
}

impl Effect {
    fn words(&self) -> (&'static str, String) {
        match self {
            Effect::Request(len) => ("request", len.to_string()),
            Effect::BadRequest(why) => ("bad-request", why.clone()),
            Effect::Tool(call) => ("tool", call.clone()),
            Effect::Accepted(id) => ("accepted", id.clone()),
            Effect::Durable(id) => ("durable", id.clone()),
            Effect::Flushed(len) => ("flushed", len.to_string()),
            Effect::Settled(id) => ("settled", id.clone()),
        }
    }

    fn parse(kind: &str, rest: &str) -> Option<Self> {
        Some(match kind {
            "request" => Effect::Request(rest.parse().ok()?),
            "bad-request" => Effect::BadRequest(rest.to_owned()),
            "tool" => Effect::Tool(rest.to_owned()),
            "accepted" => Effect::Accepted(rest.to_owned()),
            "durable" => Effect::Durable(rest.to_owned()),
            "flushed" => Effect::Flushed(rest.parse().ok()?),
            "settled" => Effect::Settled(rest.to_owned()),
            _ => return None,
        })
    }
}

/// The side file, to write.
pub struct SideFile(File);

impl SideFile {
    /// Opens it to append.
    pub fn open(directory: &Path) -> io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path(directory)).map(Self)
    }

    /// Writes one line in one call. A process that dies in the middle of it leaves at most a part without an end.
    ///
    /// # Panics
    ///
    /// When it cannot: the test would say nothing.
    pub fn write(&self, session: &str, effect: &Effect) {
        let (kind, rest) = effect.words();
        let line = format!("{session} {kind} {}\n", rest.replace('\n', " "));
        let written = (&self.0).write(line.as_bytes()).expect("the side file is writable");
        assert_eq!(written, line.len(), "the side file takes whole lines");
    }
}

/// What happened in all lives so far, in order. A line that the last life did not finish is cut off: a kill may come
/// between two pages of one write.
pub fn read(directory: &Path) -> Result<Vec<(String, Effect)>, String> {
    let mut text = std::fs::read_to_string(path(directory)).unwrap_or_default();
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    if whole < text.len() {
        text.truncate(whole);
        std::fs::write(path(directory), &text).map_err(|error| error.to_string())?;
    }
    let parse = |line: &str| {
        let (session, rest) = line.split_once(' ')?;
        let (kind, rest) = rest.split_once(' ')?;
        Some((session.to_owned(), Effect::parse(kind, rest)?))
    };
    text.lines().map(|line| parse(line).ok_or_else(|| format!("side file: {line:?}"))).collect()
}

fn path(directory: &Path) -> PathBuf {
    directory.join("effects")
}
