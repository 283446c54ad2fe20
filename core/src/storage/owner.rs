//! Who holds a session: the record beside a lock. The lock itself ends with its process; the record only names it.

use crate::json::{self, Object, Value};
use std::time::{SystemTime, UNIX_EPOCH};

/// The process that writes a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pid: u64,
    host: String,
    program: String,
    /// Since when, in epoch milliseconds.
    since: u64,
}

impl Owner {
    /// This process, from now on.
    pub(crate) fn current() -> Self {
        let program = std::env::current_exe().ok();
        let program = program.as_deref().and_then(|path| path.file_name()).unwrap_or_default();
        Self {
            pid: std::process::id().into(),
            host: gethostname::gethostname().to_string_lossy().into_owned(),
            program: program.to_string_lossy().into_owned(),
            since: now_ms(),
        }
    }

    /// Reads a record; `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let value = json::parse(text).ok()?;
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let number = |key: &str| value.get(key).and_then(Value::as_u64);
        Some(Self { pid: number("pid")?, host: text("host")?, program: text("program")?, since: number("since")? })
    }

    /// `{pid, host, program, since}`.
    pub(crate) fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.insert("pid", self.pid);
        object.insert("host", self.host.as_str());
        object.insert("program", self.program.as_str());
        object.insert("since", self.since);
        Value::Object(object)
    }

    /// Whether the process is known to have ended. Of another host nothing is known.
    pub(crate) fn is_gone(&self) -> bool {
        let here = gethostname::gethostname().to_string_lossy() == self.host.as_str();
        cfg!(target_os = "linux") && here && !std::path::Path::new(&format!("/proc/{}", self.pid)).exists()
    }

    /// The record in words, as the object of "is held by".
    pub(crate) fn describe(&self) -> String {
        let Self { pid, host, program, since } = self;
        let seconds = now_ms().saturating_sub(*since) / 1000;
        if *pid == u64::from(std::process::id()) {
            return format!("this very process (for {seconds} s)");
        }
        if self.is_gone() {
            return format!("a process that inherited it from {program:?} (pid {pid} on {host}), which has ended");
        }
        format!("{program:?} (pid {pid} on {host}, for {seconds} s)")
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_text() {
        let owner = Owner::current();
        assert_eq!(Owner::parse(&owner.to_value().to_text()), Some(owner.clone()));
        assert!(owner.describe().contains("this very process"));
        assert!(Owner::parse("{\"pid\":1}").is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_that_ended_is_known_to_have_ended() {
        let mut child = std::process::Command::new("true").spawn().expect("a child");
        let owner = Owner { pid: child.id().into(), ..Owner::current() };
        child.wait().expect("ended");
        assert!(owner.is_gone());
        assert!(owner.describe().contains("has ended"));
        assert!(!Owner { host: "elsewhere".into(), ..owner }.is_gone());
    }
}
