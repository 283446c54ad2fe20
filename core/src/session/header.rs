//! The session header: what is fixed when a session is created (APP-17, JL-04).

use crate::error::{Code, Error, Result};
use crate::id::SessionId;
use crate::json::{Object, Value};

/// Format version of logs written and read here.
pub const FORMAT_VERSION: u64 = 0;

/// Immutable metadata of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHeader {
    /// The session's id, and its agent's.
    pub id: SessionId,
    /// Epoch milliseconds.
    pub created_at: u64,
    /// Absolute working directory.
    pub cwd: Option<String>,
    /// The session this one was forked from.
    pub parent_session: Option<SessionId>,
    /// How many events were inherited at creation; not the end of inherited history after a resume (FORK-06).
    pub seed_length: Option<u64>,
    /// `subagent` or absent.
    pub origin: Option<String>,
    /// How many agents stand between this one and a person.
    pub delegation_depth: Option<u64>,
    /// The composition the agent was created under.
    pub agent_preset: Option<String>,
}

impl SessionHeader {
    /// A header with id and time only.
    pub fn new(id: impl Into<SessionId>, created_at: u64) -> Self {
        Self {
            id: id.into(),
            created_at,
            cwd: None,
            parent_session: None,
            seed_length: None,
            origin: None,
            delegation_depth: None,
            agent_preset: None,
        }
    }

    /// Checks the fields that types do not.
    pub fn check(&self) -> Result<()> {
        let bad = |what: String| Err(Error::new(Code::InvalidHeader, what).with("id", self.id.as_str()));
        if self.id.is_empty() {
            return bad("a session id must not be empty".into());
        }
        if let Some(cwd) = self.cwd.as_ref().filter(|cwd| !is_absolute(cwd)) {
            return bad(format!("cwd must be an absolute path, not {cwd:?}"));
        }
        if let Some(origin) = self.origin.as_ref().filter(|origin| *origin != "subagent") {
            return bad(format!("origin may only be \"subagent\", not {origin:?}"));
        }
        Ok(())
    }

    /// Reads a header; unknown members are dropped (APP-17). The version is checked before anything else (VER-01).
    pub fn from_value(value: &Value) -> Result<Self> {
        let bad = |what: &str| Error::new(Code::InvalidHeader, format!("session header: {what}"));
        let object = value.as_object().ok_or_else(|| bad("not an object"))?;
        let version = object.get("version").and_then(Value::as_f64).ok_or_else(|| bad("`version` is not a number"))?;
        if version != FORMAT_VERSION as f64 {
            let what = if version > FORMAT_VERSION as f64 { "was written by a newer version" } else { "is too old" };
            let message = format!("session format {version} {what}; this version reads format {FORMAT_VERSION}");
            return Err(Error::new(Code::UnsupportedFormat, message).with("version", version));
        }
        let text = |key: &str| match object.get(key) {
            Some(value) => value.as_str().map(|text| Some(text.to_owned())).ok_or_else(|| bad(&format!("bad `{key}`"))),
            None => Ok(None),
        };
        let count = |key: &str| match object.get(key) {
            Some(value) => value.as_u64().map(Some).ok_or_else(|| bad(&format!("bad `{key}`"))),
            None => Ok(None),
        };
        let header = Self {
            id: text("id")?.ok_or_else(|| bad("`id` is missing"))?.into(),
            created_at: count("createdAt")?.ok_or_else(|| bad("`createdAt` is missing"))?,
            cwd: text("cwd")?,
            parent_session: text("parentSession")?.map(SessionId::from),
            seed_length: count("seedLength")?,
            origin: text("origin")?,
            delegation_depth: count("delegationDepth")?,
            agent_preset: text("agentPreset")?,
        };
        header.check()?;
        Ok(header)
    }

    /// The header as JSON, in the order of JL-04 but for `type`.
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.insert("version", FORMAT_VERSION);
        object.insert("id", self.id.as_str());
        object.insert("createdAt", self.created_at);
        object.insert_some("cwd", self.cwd.as_deref());
        object.insert_some("parentSession", self.parent_session.as_deref());
        object.insert_some("seedLength", self.seed_length);
        object.insert_some("origin", self.origin.as_deref());
        object.insert_some("delegationDepth", self.delegation_depth);
        object.insert_some("agentPreset", self.agent_preset.as_deref());
        Value::Object(object)
    }
}

fn is_absolute(path: &str) -> bool {
    let bytes = path.as_bytes();
    let drive =
        bytes.len() > 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':' && matches!(bytes[2], b'/' | b'\\');
    path.starts_with('/') || path.starts_with("\\\\") || drive
}
