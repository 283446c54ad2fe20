//! Recorded exchanges with a model, and their replay.
//!
//! A cassette is a file with one JSON object a line: a request, and the chunks of its answer. Requests are compared by
//! what a model sees: config, system prompt, tools, and each message's role and content; ids and times differ between runs
//! and are left out. Keys and headers are no part of a request here, so that none can be on a cassette.

use crate::error::{Code, Error, Result};
use crate::json::{Object, Value, parse};
use crate::llm::{Adapter, Chunk, ChunkStream, Failure, ModelInfo, ModelRequest};
use crate::runtime::{LocalBoxFuture, Signal};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The first line of every cassette.
const FORMAT: &str = "{\"cassette\":\"turnwheel\",\"version\":1}";

/// Records the exchanges of another adapter, or replays recorded ones. Clones share the cassette.
#[derive(Clone)]
pub struct Cassette(Rc<Inner>);

struct Inner {
    path: PathBuf,
    mode: Mode,
}

enum Mode {
    Record(Rc<dyn Adapter>),
    Replay(RefCell<Vec<Exchange>>),
}

struct Exchange {
    request: Value,
    answer: Vec<Result<Chunk, Failure>>,
}

fn broken(path: &Path, what: &str) -> Error {
    Error::new(Code::InvalidArgument, format!("cassette {}: {what}", path.display()))
}

impl Cassette {
    /// Asks `adapter`, and writes what it answers to a new file. Exchanges are written when their answer has ended; one
    /// that is dropped before is not. Fails when the file cannot be made.
    pub fn record(path: impl Into<PathBuf>, adapter: impl Adapter + 'static) -> Result<Self> {
        Self::record_shared(path, Rc::new(adapter))
    }

    /// As [`Cassette::record`], with an adapter that others hold, too.
    pub fn record_shared(path: impl Into<PathBuf>, adapter: Rc<dyn Adapter>) -> Result<Self> {
        let path = path.into();
        std::fs::write(&path, format!("{FORMAT}\n")).map_err(|error| broken(&path, &error.to_string()))?;
        Ok(Self(Rc::new(Inner { path, mode: Mode::Record(adapter) })))
    }

    /// Answers from a file. Each recorded exchange answers once, equal requests in the order of recording. A request
    /// that was not recorded fails with `CASSETTE_MISS`. Fails for a file that is no cassette.
    pub fn replay(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let text = std::fs::read_to_string(&path).map_err(|error| broken(&path, &error.to_string()))?;
        let mut lines = text.lines();
        if lines.next() != Some(FORMAT) {
            return Err(broken(&path, "the first line is not that of a cassette"));
        }
        let read = |(number, line): (usize, &str)| {
            exchange(line).ok_or_else(|| broken(&path, &format!("line {} is no exchange", number + 2)))
        };
        let exchanges = lines.enumerate().map(read).collect::<Result<Vec<_>>>()?;
        Ok(Self(Rc::new(Inner { path, mode: Mode::Replay(RefCell::new(exchanges)) })))
    }

    /// How many recorded exchanges have not been replayed; 0 while recording.
    pub fn remaining(&self) -> usize {
        match &self.0.mode {
            Mode::Record(_) => 0,
            Mode::Replay(exchanges) => exchanges.borrow().len(),
        }
    }
}

impl Adapter for Cassette {
    fn model_info(&self, provider: &str, model: &str, signal: &Signal) -> LocalBoxFuture<Result<ModelInfo>> {
        match &self.0.mode {
            Mode::Record(adapter) => adapter.model_info(provider, model, signal),
            Mode::Replay(_) => Box::pin(std::future::ready(Ok(ModelInfo::default()))),
        }
    }

    fn stream(&self, request: ModelRequest) -> ChunkStream {
        let seen = seen_by_model(&request);
        match &self.0.mode {
            Mode::Record(adapter) => Box::pin(Recording {
                inner: adapter.stream(request),
                cassette: self.0.clone(),
                request: Some(seen),
                answer: Vec::new(),
            }),
            Mode::Replay(exchanges) => {
                let mut exchanges = exchanges.borrow_mut();
                let found = exchanges.iter().position(|exchange| exchange.request == seen);
                let answer = match found {
                    Some(at) => exchanges.remove(at).answer,
                    None => vec![Err(miss(&self.0.path, &exchanges, &seen))],
                };
                Box::pin(Replaying(answer.into()))
            }
        }
    }
}

/// What decides whether two requests are the same.
fn seen_by_model(request: &ModelRequest) -> Value {
    let mut seen = request.header.to_value().as_object().cloned().unwrap_or_default();
    let messages = request.messages.iter().map(|message| {
        let mut object = Object::new();
        object.insert("role", message.role().as_str());
        object.insert("content", message.content().iter().map(crate::message::Block::to_value).collect::<Vec<_>>());
        Value::Object(object)
    });
    seen.insert("messages", messages.collect::<Vec<_>>());
    Value::Object(seen)
}

/// Says what differs from the recorded request that is most alike.
fn miss(path: &Path, exchanges: &[Exchange], seen: &Value) -> Failure {
    let differs = |exchange: &Exchange| {
        let keys = ["config", "adapterDefaults", "system", "tools", "messages"];
        keys.into_iter().filter(|key| exchange.request.get(key) != seen.get(key)).collect::<Vec<_>>()
    };
    let closest = exchanges.iter().map(differs).min_by_key(Vec::len);
    let why = match closest {
        None => "every recorded exchange has been replayed".to_owned(),
        Some(parts) => format!("the recorded request most like it differs in: {}", parts.join(", ")),
    };
    let message = format!("no exchange on cassette {} answers this request; {why}. Record it again", path.display());
    Failure::new("CASSETTE_MISS", message)
}

fn exchange(line: &str) -> Option<Exchange> {
    let value = parse(line).ok()?;
    let read = |item: &Value| match item.get("error") {
        Some(failure) => Failure::from_value(failure).map(Err),
        None => Chunk::from_value(item).map(Ok),
    };
    let answer = value.get("answer")?.as_array()?.iter().map(read).collect::<Option<Vec<_>>>()?;
    Some(Exchange { request: value.get("request")?.clone(), answer })
}

struct Recording {
    inner: ChunkStream,
    cassette: Rc<Inner>,
    request: Option<Value>,
    answer: Vec<Value>,
}

impl Recording {
    /// Writes the exchange when its answer has ended.
    fn finish(&mut self) -> Result<()> {
        let Some(request) = self.request.take() else { return Ok(()) };
        let mut line = Object::new();
        line.insert("request", request);
        line.insert("answer", std::mem::take(&mut self.answer));
        let path = &self.cassette.path;
        let file = std::fs::OpenOptions::new().append(true).open(path);
        let written = file.and_then(|mut file| writeln!(file, "{}", Value::Object(line).to_text()));
        written.map_err(|error| broken(path, &error.to_string()))
    }
}

impl futures_core::Stream for Recording {
    type Item = Result<Chunk>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = self.inner.as_mut().poll_next(context);
        let ended = match &item {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(chunk))) => {
                let mut text = String::new();
                chunk.write(&mut text);
                self.answer.push(parse(&text).expect("a chunk's own text is JSON"));
                matches!(chunk, Chunk::Finish { .. })
            }
            Poll::Ready(Some(Err(error))) => {
                let failure = error.failure().cloned();
                let failure = failure.unwrap_or_else(|| Failure::new(error.code().as_str(), error.message()));
                let mut object = Object::new();
                object.insert("error", failure.to_value());
                self.answer.push(Value::Object(object));
                true
            }
        };
        if ended && let Err(error) = self.finish() {
            return Poll::Ready(Some(Err(error)));
        }
        item
    }
}

struct Replaying(VecDeque<Result<Chunk, Failure>>);

impl futures_core::Stream for Replaying {
    type Item = Result<Chunk>;

    fn poll_next(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.pop_front().map(|item| item.map_err(Error::model)))
    }
}
