//! Event types of plug-ins, each with a version (D-21).
//!
//! A registered type is required: a program that does not know it must not read past it. The log says once in which
//! version its events are written from there on, with a log-only event that other readers skip.

use super::event::{Event, KNOWN_TYPES};
use super::event_log::EventLog;
use super::legacy::unknown_type;
use crate::context::Context;
use crate::error::{Code, Error, Result};
use crate::json::{Object, Value};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Says which versions are in force from here on: `{types: {<type>: <version>}}`, `ignorable`.
pub(crate) const VERSIONS: &str = "session/event-types";

/// The registered types of a root.
#[derive(Default)]
pub(crate) struct EventTypes(RefCell<BTreeMap<String, u32>>);

impl EventTypes {
    pub(crate) fn version(&self, kind: &str) -> Option<u32> {
        self.0.borrow().get(kind).copied()
    }

    /// Refuses a log at hand as a store refuses one of its own: an event of a type that is neither known nor registered
    /// nor marked `ignorable` cannot be interpreted (VER-04).
    pub(crate) fn check_log(&self, events: &EventLog) -> Result<()> {
        let is_unknown = |event: &Event| {
            let kind = event.kind();
            !event.ignorable && KNOWN_TYPES.binary_search(&kind).is_err() && self.version(kind).is_none()
        };
        match events.marks_from(0).find(|event| is_unknown(event)) {
            Some(event) => Err(unknown_type(event.kind(), Value::from(event.seq))),
            None => Ok(()),
        }
    }

    fn register(&self, kind: &str, version: u32) -> Result<()> {
        if KNOWN_TYPES.contains(&kind) || kind == VERSIONS {
            let message = format!("{kind} is a type of the runtime; a plug-in's types start with its own name");
            return Err(Error::new(Code::ReservedEvent, message).with("type", kind));
        }
        if kind.is_empty() || version == 0 {
            let message = format!("event type {kind:?}: a type needs a name, and versions count from 1");
            return Err(Error::new(Code::InvalidArgument, message).with("type", kind));
        }
        if let Some(old) = self.version(kind).filter(|old| *old != version) {
            let message = format!("event type {kind:?} is registered with version {old} already");
            return Err(Error::new(Code::DuplicateName, message).with("type", kind));
        }
        self.0.borrow_mut().insert(kind.to_owned(), version);
        Ok(())
    }
}

/// The versions that one log has announced, as a fold over it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Announced(BTreeMap<String, u64>);

impl Announced {
    pub(super) fn apply(&mut self, data: &Value) {
        let types = data.get("types").and_then(Value::as_object);
        for (kind, version) in types.into_iter().flat_map(Object::iter) {
            if let Some(version) = version.as_u64() {
                self.0.insert(kind.to_owned(), version);
            }
        }
    }

    pub(super) fn version(&self, kind: &str) -> Option<u64> {
        self.0.get(kind).copied()
    }

    /// Fails for a log that a newer version of a registered plug-in wrote.
    pub(super) fn check(&self, known: &EventTypes) -> Result<()> {
        for (kind, version) in &self.0 {
            if let Some(ours) = known.version(kind).filter(|ours| u64::from(*ours) < *version) {
                let message = format!(
                    "the log has events `{kind}` of version {version}, and the plug-in here knows {ours}; open it with \
                     the newer plug-in"
                );
                return Err(Error::new(Code::UnsupportedFormat, message).with("type", kind.as_str()));
            }
        }
        Ok(())
    }

    /// What to log before an event of this type in this version; nothing when the log says so already.
    pub(super) fn announcement(&self, kind: &str, version: u32) -> Option<Value> {
        if self.version(kind) == Some(u64::from(version)) {
            return None;
        }
        let (mut types, mut data) = (Object::new(), Object::new());
        types.insert(kind, u64::from(version));
        data.insert("types", types);
        Some(data.into())
    }
}

impl Context {
    /// Registers an event type of a plug-in with the version of its data, before sessions are opened that hold it (D-21).
    /// Its events are required from then on: [`crate::Session::append`] does not mark them `ignorable`, the store of this
    /// context reads them, and a program without the plug-in refuses the log instead of misreading it. A log that a newer
    /// version wrote is refused with `UNSUPPORTED_FORMAT`; older ones open, and
    /// [`crate::Session::event_type_version`] tells which one wrote them. Holds as long as the root: a log that was
    /// written does not forget.
    ///
    /// Fails with `RESERVED_EVENT` for a type of the runtime, and with `DUPLICATE_NAME` for another version.
    pub fn register_event_type(&self, kind: &str, version: u32) -> Result<()> {
        self.fiber().check()?;
        self.root().event_types.register(kind, version)?;
        if let Some(storage) = &self.root().storage {
            storage.store().register_event_type(kind);
        }
        Ok(())
    }
}
