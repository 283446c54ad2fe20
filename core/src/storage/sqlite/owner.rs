//! Who writes a session. The database names the owner; whether that owner still lives, the operating system knows: each
//! store object holds a lock on a file of its own beside the database, and the lock ends with its process.

use super::queue::Claim;
use super::{database, locked};
use crate::error::{Code, Error, Result};
use crate::json::{self, Value};
use crate::storage::jsonl::files::{DiskFiles, FileLayer};
use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// One store object as an owner of sessions.
pub(super) struct Instance {
    /// The beginning of the names of all lock files of this database.
    prefix: PathBuf,
    name: String,
    process: u32,
    lock: Mutex<Option<File>>,
    /// The sessions that writers of this object hold.
    held: Mutex<HashSet<i64>>,
}

impl Instance {
    pub(super) fn new(database: &Path) -> Self {
        let mut prefix = database.as_os_str().to_owned();
        prefix.push("-owner-");
        let name = uuid::Uuid::new_v4().simple().to_string();
        let (lock, held) = (Mutex::default(), Mutex::default());
        Self { prefix: prefix.into(), name, process: std::process::id(), lock, held }
    }

    fn path_of(&self, instance: &str) -> PathBuf {
        let mut path = self.prefix.as_os_str().to_owned();
        path.push(instance);
        path.into()
    }

    /// The name of this object and the record of its process, once its lock is held.
    pub(super) fn identify(&self) -> Result<(&str, String)> {
        let mut lock = locked(&self.lock);
        if lock.is_none() {
            *lock = Some(self.take_lock()?);
        }
        Ok((&self.name, record()))
    }

    /// The file gets its name when it is locked already, so whoever sees it unlocked sees a dead owner's.
    fn take_lock(&self) -> Result<File> {
        let path = self.path_of(&self.name);
        let temporary = path.with_extension("tmp");
        let taken = DiskFiles.create(&temporary).and_then(|file| {
            file.lock()?;
            fs::rename(&temporary, &path)?;
            Ok(file)
        });
        self.remove_dead();
        taken.map_err(|error| database::file_failed("lock", &path, &error))
    }

    /// Removes the files that dead owners left behind.
    fn remove_dead(&self) {
        let (Some(directory), Some(prefix)) = (self.prefix.parent(), self.prefix.file_name()) else { return };
        let Ok(entries) = fs::read_dir(directory) else { return };
        let prefix = prefix.to_string_lossy();
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.strip_prefix(&*prefix).is_some_and(|instance| !instance.ends_with(".tmp") && instance != self.name)
            {
                let _ = is_alive(&entry.path());
            }
        }
    }

    /// Whether the instance that the database names as the owner of a session still holds it.
    pub(super) fn is_held(&self, instance: &str, session: i64) -> bool {
        match instance == self.name {
            true => locked(&self.held).contains(&session),
            false => is_alive(&self.path_of(instance)),
        }
    }

    pub(super) fn hold(&self, claim: Claim) {
        locked(&self.held).insert(claim.session);
    }

    pub(super) fn release(&self, claim: Claim) {
        locked(&self.held).remove(&claim.session);
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if locked(&self.lock).is_some() && self.process == std::process::id() {
            let _ = fs::remove_file(self.path_of(&self.name));
        }
    }
}

/// Whether somebody holds the lock. The file of a dead owner is removed.
fn is_alive(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    match file.try_lock() {
        Ok(()) => {
            let _ = fs::remove_file(path);
            false
        }
        Err(TryLockError::WouldBlock) => true,
        // Not knowing, it is safer to stay away.
        Err(TryLockError::Error(_)) => true,
    }
}

/// What people need to find the process.
fn record() -> String {
    let program = std::env::current_exe().ok().map(|path| path.to_string_lossy().into_owned());
    let host = fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
    let mut record = json::Object::new();
    record.insert("pid", u64::from(std::process::id()));
    record.insert_some("program", program);
    record.insert_some("host", host.or_else(|| std::env::var("COMPUTERNAME").ok()));
    Value::Object(record).to_text()
}

/// The error for a session that somebody else holds, with who that is.
pub(super) fn session_locked(id: &str, database: &Path, instance: &str, record: &str) -> Error {
    let record = json::parse(record).unwrap_or(Value::Null);
    let text = |key: &str| record.get(key).and_then(Value::as_str);
    let pid = record.get("pid").and_then(Value::as_u64);
    let mut holder = match pid {
        Some(pid) if pid == u64::from(std::process::id()) => format!("this process ({pid})"),
        Some(pid) => format!("process {pid}"),
        None => format!("the owner {instance}"),
    };
    if let Some(program) = text("program") {
        holder.push_str(&format!(", {program}"));
    }
    if let Some(host) = text("host") {
        holder.push_str(&format!(", on {host}"));
    }
    let message = format!("session {id:?} in {} is held by {holder}; close it there first", database.display());
    let error = Error::new(Code::SessionLocked, message).with("id", id).with("holder", record.clone());
    error.with("path", database.to_string_lossy().as_ref())
}
