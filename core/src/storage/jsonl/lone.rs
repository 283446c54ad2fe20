//! Single log files, wherever they lie: for looking at one that was sent by mail or cut out of a backup.
//!
//! Their place need not be that of their session in a store (JL-14), and every event type passes (D-21): who looks at a
//! log cannot have the plug-ins that wrote it. Nothing is locked and nothing is written. Blocking.

use super::reader::ReadContext;
use super::{Compression, header, io_error, reader};
use crate::error::Result;
use crate::session::SessionHeader;
use crate::storage::StoredLog;
use std::path::Path;

/// The first bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Reads and checks the log in a file, of either encoding. Fails with `CORRUPT_LOG` for damage, and for a file that is no
/// session log; a torn tail is no damage.
pub fn read_log(path: &Path) -> Result<StoredLog> {
    let bytes = bytes(path)?;
    let len = bytes.len() as u64;
    with_context(path, &bytes, |context| reader::read(&bytes, context)).map(|contents| contents.into_log(len))
}

/// The header and the exact text of a file, decompressed, also of one whose events cannot be read (JL-22).
pub fn read_text(path: &Path) -> Result<(SessionHeader, Vec<u8>)> {
    let bytes = bytes(path)?;
    with_context(path, &bytes, |context| reader::text(&bytes, context))
}

/// A log as the text of a plain file: what a store of another kind exports.
pub fn log_text(log: &StoredLog) -> String {
    let mut text = header::render(&log.header);
    for event in log.events.iter() {
        event.write(&mut text);
        text.push('\n');
    }
    text
}

fn bytes(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| io_error("read", path, &error))
}

fn with_context<T>(path: &Path, bytes: &[u8], read: impl FnOnce(&ReadContext<'_>) -> Result<T>) -> Result<T> {
    let compression = if bytes.starts_with(&ZSTD_MAGIC) { Compression::Zstd } else { Compression::None };
    read(&ReadContext { path, compression, is_registered: &|_| true, check_place: &|_| Ok(()) })
}
