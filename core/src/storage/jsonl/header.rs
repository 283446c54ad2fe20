//! The header line (JL-04, JL-05).

use crate::error::{Code, Error, Result};
use crate::json::{self, Value};
use crate::session::{FORMAT_VERSION, SessionHeader};
use std::path::Path;

/// A line that is a session header of some version.
pub(super) struct HeaderLine {
    value: Value,
    /// Characters that had to be replaced to read it.
    pub(super) replaced: usize,
}

/// Why a first line cannot be used.
pub(super) enum NotHeader {
    /// It is not JSON, or JSON of another shape. A listing skips such files.
    Foreign(&'static str),
    /// It has members that were retired. A listing fails on it (JL-16).
    Retired,
}

/// The header line with its newline. `delegationDepth` is always written (JL-04).
pub(super) fn render(header: &SessionHeader) -> String {
    let mut header = header.clone();
    header.delegation_depth.get_or_insert(0);
    let body = header.to_value().to_text();
    format!("{{\"type\":\"session\",{}\n", &body[1..])
}

impl HeaderLine {
    /// Reads a line, without its newline. A version of another number passes (VER-02, VER-07).
    pub(super) fn parse(line: &[u8]) -> Result<Self, NotHeader> {
        let parsed = json::parse_lossy(line).map_err(|_| NotHeader::Foreign("the header line is not JSON"))?;
        let line = Self { value: parsed.value, replaced: parsed.replaced };
        let value = &line.value;
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let version = value.get("version").and_then(Value::as_f64);
        let foreign = NotHeader::Foreign("the first line is no session header");
        if text("type") != Some("session") || version.is_none() {
            return Err(foreign);
        }
        // The shape of another version's header is unknown here; its version is checked by `check_version`.
        if !line.is_current() && !line.is_listable() {
            return Ok(line);
        }
        if value.get("sandboxMode").is_some() || value.get("approvalPolicy").is_some() {
            return Err(NotHeader::Retired);
        }
        if line.is_listable() { Ok(line) } else { Err(foreign) }
    }

    fn is_current(&self) -> bool {
        self.value.get("version").and_then(Value::as_f64) == Some(FORMAT_VERSION as f64)
    }

    /// Whether the members that are known are of the right shape, whatever the version.
    pub(super) fn is_listable(&self) -> bool {
        let value = &self.value;
        let is_count = |key: &str| value.get(key).and_then(Value::as_u64).is_some();
        let origin = value.get("origin").is_none_or(|origin| origin.as_str() == Some("subagent"));
        let preset = value.get("agentPreset").is_none_or(|preset| preset.as_str().is_some());
        !self.id().is_empty() && is_count("createdAt") && is_count("delegationDepth") && origin && preset
    }

    pub(super) fn id(&self) -> &str {
        self.value.get("id").and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn cwd(&self) -> Option<&str> {
        self.value.get("cwd").and_then(Value::as_str)
    }

    /// Refuses every version but ours, before anything else of the log is looked at (VER-01 to VER-03).
    pub(super) fn check_version(&self, path: &Path) -> Result<()> {
        let version = self.value.get("version").and_then(Value::as_f64).unwrap_or(f64::NAN);
        if self.is_current() {
            return Ok(());
        }
        let what = match version > FORMAT_VERSION as f64 {
            true => "was written by a newer version: upgrade to open it",
            false => "is of a format older than any that can be read: there is no upgrade path",
        };
        let message = format!(
            "session {:?} at {} uses log format {version} and {what} (this version reads {FORMAT_VERSION})",
            self.id(),
            path.display()
        );
        let error = Error::new(Code::UnsupportedFormat, message).with("version", version);
        Err(error.with("path", path.to_string_lossy().as_ref()))
    }

    /// The header; its fields have their own errors (APP-17). The version is not looked at.
    pub(super) fn header(&self) -> Result<SessionHeader> {
        let mut value = self.value.clone();
        if let Value::Object(object) = &mut value {
            object.insert("version", FORMAT_VERSION);
        }
        SessionHeader::from_value(&value)
    }
}
