//! Where a session's file is (JL-01 to JL-03). Names are made of UTF-16 units, as the reference makes them (HOST-01).

use super::Compression;
use crate::error::{Code, Error, Result};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The longest project name before it is wrapped, in UTF-16 units.
const PROJECT_UNITS: usize = 251;

/// The path of a session's file below `root`.
pub(super) fn session_path(root: &Path, cwd: Option<&str>, id: &str, compression: Compression) -> Result<PathBuf> {
    let mut path = root.join(project_name(cwd));
    path.push(segment(id)?);
    path.push(compression.file_name());
    Ok(path)
}

/// A session id as the name of a directory (JL-02).
pub(super) fn segment(id: &str) -> Result<String> {
    match id {
        "" => Err(Error::new(Code::InvalidHeader, "a session id must not be empty")),
        "." => Ok("~002E".into()),
        ".." => Ok("~002E~002E".into()),
        _ => {
            let mut name = String::with_capacity(id.len());
            id.encode_utf16().for_each(|unit| escape(unit, &mut name));
            Ok(name)
        }
    }
}

/// The session id that a directory's name stands for; `None` if [`segment`] makes no such name.
pub(super) fn id_of_segment(name: &str) -> Option<String> {
    let mut units = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let (unit, length) = match first {
            '~' => (u16::from_str_radix(rest.get(1..5)?, 16).ok()?, 5),
            _ => (u16::try_from(u32::from(first)).ok()?, first.len_utf8()),
        };
        units.push(unit);
        rest = &rest[length..];
    }
    let id = String::from_utf16(&units).ok()?;
    (segment(&id).ok()? == name).then_some(id)
}

/// The directory of all sessions of one working directory (JL-03). Two directories may share one name.
pub(super) fn project_name(cwd: Option<&str>) -> String {
    let Some(cwd) = cwd else {
        return "_no-cwd".into();
    };
    let mut name = String::with_capacity(cwd.len());
    let mut in_separator = false;
    for unit in cwd.encode_utf16() {
        let separator = [b'/', b'\\', b':'].into_iter().any(|separator| unit == u16::from(separator));
        match separator {
            true if in_separator => {}
            true => name.push('-'),
            false => escape(unit, &mut name),
        }
        in_separator = separator;
    }
    let name = name.trim_start_matches('-');
    let name = if name.is_empty() { "root" } else { name };
    // Everything is ASCII by now, so bytes are UTF-16 units.
    format!("--{}--", &name[..name.len().min(PROJECT_UNITS)])
}

fn escape(unit: u16, out: &mut String) {
    match u8::try_from(unit) {
        Ok(byte @ (b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-')) => out.push(char::from(byte)),
        _ => write!(out, "~{unit:04X}").expect("writing to a String cannot fail"),
    }
}

/// The longest name of a file or folder on the file systems that matter, in bytes.
const LONGEST_NAME: usize = 255;

/// Refuses an id whose folder no file system takes, before anything is promised to the session.
pub(super) fn check_names(path: &Path, id: &str) -> Result<()> {
    let too_long = path.components().any(|part| part.as_os_str().len() > LONGEST_NAME);
    if too_long {
        let start: String = id.chars().take(40).collect();
        let message = format!("session id {start:?}… is too long for a folder's name ({LONGEST_NAME} bytes, escaped)");
        return Err(Error::new(Code::InvalidArgument, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emoji_is_two_escapes() {
        assert_eq!(segment("é😀").expect("a name"), "~00E9~D83D~DE00");
    }

    #[test]
    fn a_directory_names_its_session() {
        for id in ["demo", "é😀", ".", "..", "a/b~c", "a.b-c_D9"] {
            assert_eq!(id_of_segment(&segment(id).expect("a name")).as_deref(), Some(id));
        }
        for name in ["a b", "~00e9", "~12", "~D83D", "é"] {
            assert_eq!(id_of_segment(name), None, "{name}");
        }
    }

    #[test]
    fn only_leading_separators_are_stripped() {
        assert_eq!(project_name(Some("/a//b/")), "--a-b---");
        assert_eq!(project_name(Some("/")), "--root--");
        assert_eq!(project_name(None), "_no-cwd");
    }

    #[test]
    fn an_empty_id_has_no_path() {
        assert!(segment("").is_err());
    }
}
