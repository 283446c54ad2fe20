//! From stored texts to a validated log, for stores that keep events one by one.
//!
//! Every store reads through the same checks: seqs without gaps, older shapes converted in memory (LEG), types that
//! somebody knows (VER-04), and a surface that holds together. A store only says where its texts come from.

use super::StoredLog;
use crate::background::run_blocking;
use crate::error::{Code, Error, Result};
use crate::json::{self, Value};
use crate::session::{Event, EventLog, SessionHeader, Surface, legacy};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The event types of plug-ins that a store's logs may hold besides the known ones (D-21). Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct EventTypes {
    list: Arc<RwLock<HashSet<String>>>,
    any: Arc<AtomicBool>,
}

impl EventTypes {
    /// Adds a type.
    pub fn register(&self, kind: impl Into<String>) {
        self.list.write().unwrap_or_else(PoisonError::into_inner).insert(kind.into());
    }

    /// Takes every type from now on: for who only looks at a log and cannot have the plug-ins that wrote it.
    pub fn register_any(&self) {
        self.any.store(true, Ordering::Relaxed);
    }

    /// Whether the type was added.
    pub fn contains(&self, kind: &str) -> bool {
        self.any.load(Ordering::Relaxed) || self.list.read().unwrap_or_else(PoisonError::into_inner).contains(kind)
    }
}

/// Takes a session's events in order and gives the log, or the reason why there is none.
pub struct LogReader {
    header: SessionHeader,
    place: String,
    event_types: EventTypes,
    events: EventLog,
    surface: Surface,
    replaced: usize,
    next: u64,
    /// The first failure of each kind; a log of a newer program is reported as such and not as damaged (VER-03).
    unsupported: Option<Error>,
    invalid: Option<Error>,
}

impl LogReader {
    /// A reader of the session with this header. `place` says where it is stored, for people.
    pub fn new(header: SessionHeader, place: impl Into<String>, event_types: &EventTypes) -> Self {
        Self {
            header,
            place: place.into(),
            event_types: event_types.clone(),
            events: EventLog::default(),
            surface: Surface::default(),
            replaced: 0,
            next: 0,
            unsupported: None,
            invalid: None,
        }
    }

    /// Reads a header's JSON text. Fails with `UNSUPPORTED_FORMAT` for another version of the format (VER-01) and with
    /// `CORRUPT_LOG` for anything else that is no header.
    pub fn header(text: &[u8], place: &str) -> Result<SessionHeader> {
        let corrupt = |cause| corrupt(place, "its header is not valid").caused_by(cause);
        let parsed = json::parse_lossy(text).map_err(|error| corrupt(Error::from(error)))?;
        SessionHeader::from_value(&parsed.value).map_err(|error| match error.code() {
            Code::UnsupportedFormat => error,
            _ => corrupt(error),
        })
    }

    /// The seq that the next event has to have.
    pub fn next_seq(&self) -> u64 {
        self.next
    }

    /// Takes the JSON text of one event. Fails with `CORRUPT_LOG` if it is no JSON or not the next one.
    pub fn take_text(&mut self, text: &[u8]) -> Result<()> {
        let parsed = json::parse_lossy(text).map_err(|error| {
            let what = format!("event {} cannot be parsed", self.next);
            self.damage(&what).caused_by(error.into())
        })?;
        self.replaced += parsed.replaced;
        self.take_value(parsed.value)
    }

    /// Takes one event as JSON.
    pub fn take_value(&mut self, value: Value) -> Result<()> {
        let found = value.get("seq").and_then(Value::as_f64);
        self.check_seq(found)?;
        self.next += 1;
        if self.unsupported.is_some() {
            return Ok(());
        }
        if self.invalid.is_some() {
            self.unsupported = legacy::check_known(&value, &|kind| self.event_types.contains(kind)).err();
            return Ok(());
        }
        match self.validate(value) {
            Ok(event) => {
                self.surface.apply(&event);
                self.events.push(Arc::new(event));
            }
            Err(error) if *error.code() == Code::UnsupportedFormat => self.unsupported = Some(error),
            Err(error) => self.invalid = Some(error),
        }
        Ok(())
    }

    /// Takes a run of stream chunks that a store kept packed; they are on no surface and need no further checks.
    #[cfg(feature = "sqlite")]
    pub(super) fn take_chunks(&mut self, chunks: Vec<Event>) -> Result<()> {
        self.check_seq(chunks.first().map(|event| event.seq as f64))?;
        self.next += chunks.len() as u64;
        if self.invalid.is_none() && self.unsupported.is_none() {
            self.events.extend(chunks.into_iter().map(Arc::new));
        }
        Ok(())
    }

    #[cfg(feature = "sqlite")]
    pub(super) fn note_replaced(&mut self, characters: usize) {
        self.replaced += characters;
    }

    /// Corruption of this log.
    pub fn damage(&self, what: &str) -> Error {
        corrupt(&format!("{:?} in {}", self.header.id, self.place), what).with("seq", self.next)
    }

    /// The log. Fails with `UNSUPPORTED_FORMAT` when an event's type is not known, and with `CORRUPT_LOG` when an event
    /// breaks the log's rules.
    pub fn finish(self) -> Result<StoredLog> {
        if let Some(error) = self.unsupported {
            let message = format!("session {:?} in {}: {}", self.header.id, self.place, error.message());
            return Err(Error::new(Code::UnsupportedFormat, message).caused_by(error));
        }
        if let Some(error) = self.invalid {
            let message =
                format!("stored session {:?} in {} failed validation: {}", self.header.id, self.place, error.message());
            let seq = error.context().get("seq").cloned().unwrap_or_else(|| self.events.len().into());
            return Err(Error::new(Code::CorruptLog, message).with("seq", seq).caused_by(error));
        }
        Ok(StoredLog { header: self.header, events: self.events, replaced_characters: self.replaced, torn_bytes: 0 })
    }

    fn check_seq(&self, found: Option<f64>) -> Result<()> {
        if found == Some(self.next as f64) {
            return Ok(());
        }
        let found = found.map_or_else(|| "no seq".to_owned(), |seq| format!("seq {seq}"));
        Err(self.damage(&format!("there is {found} where seq {} is expected", self.next)))
    }

    fn validate(&self, value: Value) -> Result<Event> {
        let value = legacy::convert(value, &self.header.id, &self.events)?;
        legacy::check_known(&value, &|kind| self.event_types.contains(kind))?;
        let event = Event::from_value(&value)?;
        self.surface.check(&event, &self.events)?;
        Ok(event)
    }
}

impl StoredLog {
    /// The log of a header and the JSON texts of its events, read and checked in the background: a long log must not
    /// stop the runtime's thread. `place` says where it is stored, for people.
    pub async fn from_texts(
        header: SessionHeader,
        events: Vec<String>,
        place: impl Into<String>,
        event_types: &EventTypes,
    ) -> Result<Self> {
        let mut log = LogReader::new(header, place, event_types);
        run_blocking(move || {
            events.iter().try_for_each(|text| log.take_text(text.as_bytes()))?;
            log.finish()
        })
        .await?
    }
}

fn corrupt(place: &str, what: &str) -> Error {
    Error::new(Code::CorruptLog, format!("corrupt session log {place}: {what}"))
}
