//! What is below a root: finding sessions, listing them, and the rules about the whole tree (JL-14 to JL-16).

use super::files::Revision;
use super::header::{HeaderLine, NotHeader};
use super::{Compression, Inner, frames, io_error, layout, reader};
use crate::error::{Code, Error, Result};
use crate::id::SessionId;
use crate::session::SessionHeader;
use std::collections::HashMap;
use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// How much of a file a listing reads at a time (JL-16).
const HEAD_CHUNK: usize = 8192;

/// The file of a session, if there is one.
pub(super) fn find(inner: &Inner, id: &SessionId) -> Result<Option<PathBuf>> {
    let name = layout::segment(id)?;
    let mut found: Option<PathBuf> = None;
    for file in session_files(inner)? {
        if file.parent().and_then(Path::file_name).is_some_and(|directory| directory == name.as_str()) {
            if let Some(first) = &found {
                return Err(twice(id, first, &file));
            }
            found = Some(file);
        }
    }
    Ok(found)
}

/// The headers of all sessions (JL-16).
pub(super) fn list(inner: &Inner) -> Result<Vec<SessionHeader>> {
    Ok(list_files(inner)?.into_iter().map(|(header, _)| header).collect())
}

/// The headers of all sessions with what tells their contents apart. One that goes in the meantime is left out.
pub(super) fn list_revisions(inner: &Inner) -> Result<Vec<(SessionHeader, Revision)>> {
    let mut listed = Vec::new();
    for (header, path) in list_files(inner)? {
        match Revision::of(&path) {
            Ok(revision) => listed.push((header, revision)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(io_error("examine", &path, &error)),
        }
    }
    Ok(listed)
}

/// The headers of up to `limit` sessions whose ids follow `after`. Only their files are read: the names of the folders
/// say which they are.
pub(super) fn list_page(inner: &Inner, after: Option<&SessionId>, limit: usize) -> Result<Vec<SessionHeader>> {
    let id_of = |path: PathBuf| Some((layout::id_of_segment(path.parent()?.file_name()?.to_str()?)?, path));
    let mut files: Vec<(String, PathBuf)> = session_files(inner)?.into_iter().filter_map(id_of).collect();
    files.retain(|(id, _)| after.is_none_or(|after| id.as_str() > after.as_str()));
    files.sort_unstable();
    if let Some(pair) = files.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(twice(&pair[0].0.as_str().into(), &pair[0].1, &pair[1].1));
    }
    let mut headers = Vec::new();
    for (_, path) in files {
        if headers.len() == limit {
            break;
        }
        headers.extend(listed(inner, &path)?);
    }
    Ok(headers)
}

fn list_files(inner: &Inner) -> Result<Vec<(SessionHeader, PathBuf)>> {
    let mut seen: HashMap<SessionId, PathBuf> = HashMap::new();
    let mut headers = Vec::new();
    for path in session_files(inner)? {
        let Some(header) = listed(inner, &path)? else { continue };
        if let Some(first) = seen.insert(header.id.clone(), path.clone()) {
            return Err(twice(&header.id, &first, &path));
        }
        headers.push((header, path));
    }
    Ok(headers)
}

/// The header of a file as a listing shows it; `None` for one that it skips.
fn listed(inner: &Inner, path: &Path) -> Result<Option<SessionHeader>> {
    let head = read_head(path, inner.options.compression).map_err(|error| io_error("read", path, &error))?;
    let line = match head.as_deref().map(HeaderLine::parse) {
        Some(Ok(line)) if line.is_listable() => line,
        Some(Err(reason @ NotHeader::Retired)) => return Err(reader::not_header(reason, path)),
        Some(Ok(_) | Err(NotHeader::Foreign(_))) | None => return Ok(None),
    };
    check_place(inner, path, &line, None)?;
    // A bad field that is no part of JL-05 is reported when the session is opened.
    Ok(line.header().ok())
}

/// JL-14: the header's id is the requested one, and id and working directory name this very path.
pub(super) fn check_place(inner: &Inner, path: &Path, line: &HeaderLine, wanted: Option<&SessionId>) -> Result<()> {
    if let Some(wanted) = wanted.filter(|wanted| wanted.as_str() != line.id()) {
        let what = format!("session {wanted:?} was asked for, and the header names {:?}", line.id());
        return Err(reader::corrupt(path, &what));
    }
    let options = &inner.options;
    let expected = layout::session_path(&options.root, line.cwd(), line.id(), options.compression)?;
    let same_directory = || {
        let real = |path: &Path| fs::canonicalize(path.parent()?).ok();
        real(&expected).is_some_and(|expected| real(path) == Some(expected))
    };
    if expected == path || same_directory() {
        return Ok(());
    }
    let what = format!("its header's id {:?} and cwd belong at {}", line.id(), expected.display());
    Err(reader::corrupt(path, &what))
}

fn twice(id: &SessionId, first: &Path, second: &Path) -> Error {
    let (first, second) = (first.display(), second.display());
    let message = format!("session {id:?} is stored twice: {first} and {second}; move one of them away");
    Error::new(Code::CorruptLog, message).with("id", id.as_str())
}

/// All session files below the root. Fails on files of the other encoding and of a flat old layout (JL-15); an absent
/// root has none.
fn session_files(inner: &Inner) -> Result<Vec<PathBuf>> {
    let options = &inner.options;
    let (ours, other) = (options.compression.file_name(), options.compression.other().file_name());
    let mut files = Vec::new();
    for project in entries(&options.root)? {
        let name = project.file_name();
        let is_project = name == "_no-cwd" || name.to_string_lossy().starts_with("--");
        if !is_project || !is_directory(&project) {
            continue;
        }
        for entry in entries(&project.path())? {
            let path = entry.path();
            if !is_directory(&entry) {
                check_flat(&path)?;
                continue;
            }
            if path.join(other).is_file() {
                return Err(other_encoding(inner, &path.join(other)));
            }
            let file = path.join(ours);
            if file.is_file() {
                files.push(file);
            }
        }
    }
    Ok(files)
}

fn other_encoding(inner: &Inner, path: &Path) -> Error {
    let compression = inner.options.compression;
    let message = format!(
        "{} is of the encoding {:?}, and the store is set to {compression:?}; all files below one root have one encoding",
        path.display(),
        compression.other(),
    );
    Error::new(Code::UnsupportedFormat, message).with("path", path.to_string_lossy().as_ref())
}

fn check_flat(path: &Path) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if !name.ends_with(".jsonl") && !name.ends_with(".jsonl.zstd") {
        return Ok(());
    }
    let message = format!("{} is of an old layout with one file a session; move it out of the store", path.display());
    Err(Error::new(Code::UnsupportedFormat, message).with("path", path.to_string_lossy().as_ref()))
}

/// Whether the entry is a directory or a symbolic link to one.
fn is_directory(entry: &DirEntry) -> bool {
    match entry.file_type() {
        Ok(kind) if !kind.is_symlink() => kind.is_dir(),
        Ok(_) | Err(_) => entry.path().is_dir(),
    }
}

/// A directory's entries; none if it is absent, also because it was removed a moment ago.
fn entries(path: &Path) -> Result<Vec<DirEntry>> {
    let failed = |error: io::Error| io_error("list", path, &error);
    match fs::read_dir(path) {
        Ok(entries) => entries.collect::<io::Result<_>>().map_err(failed),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
    }
}

/// The first line of a file without its newline, read no further than needed; `None` if there is no whole one.
fn read_head(path: &Path, compression: Compression) -> io::Result<Option<Vec<u8>>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    loop {
        let seen = bytes.len();
        if Read::by_ref(&mut file).take(HEAD_CHUNK as u64).read_to_end(&mut bytes)? == 0 {
            return Ok(None);
        }
        match compression {
            Compression::None => {
                if let Some(end) = bytes[seen..].iter().position(|byte| *byte == b'\n') {
                    bytes.truncate(seen + end);
                    return Ok(Some(bytes));
                }
            }
            Compression::Zstd => match frames::scan(&bytes, 0) {
                frames::Frame::Whole { end } => return Ok(decode_head(&bytes[..end])),
                frames::Frame::Invalid { .. } => return Ok(None),
                frames::Frame::Torn => {}
            },
        }
    }
}

fn decode_head(frame: &[u8]) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    frames::decompress(frame, &mut line).ok()?;
    (line.pop() == Some(b'\n') && !line.contains(&b'\n')).then_some(line)
}
