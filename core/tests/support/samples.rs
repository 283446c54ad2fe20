//! Reads, repairs and writes again every sample log of a directory laid out as `tests/samples`, and compares with what
//! the samples' JSON files say. Shared by the `jsonl_samples` test and the `check_samples` example.

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use turnwheel::id::SessionId;
use turnwheel::json::{self, Object, Value};
use turnwheel::session::{Event, Surface, closers};
use turnwheel::storage::jsonl::{Compression, JsonlOptions, JsonlStore};
use turnwheel::storage::{Store, StoredLog};
use turnwheel::{Code, Error};

/// The result of one check.
pub type Outcome = Result<(), String>;

/// Runs a future of the store to its end.
pub fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// Runs all checks. Returns name and outcome of each.
pub fn check_directory(directory: &Path) -> Vec<(String, Outcome)> {
    let mut outcomes = Vec::new();
    for file in json_files(directory).into_iter().chain(json_files(&directory.join("torn"))) {
        let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        match load(&file) {
            Ok(sample) => check_sample(&name, &file, &sample, &mut outcomes),
            Err(error) => outcomes.push((name, Err(error))),
        }
    }
    outcomes
}

fn json_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|ext| ext == "json")).collect();
    files.sort();
    files
}

fn load(path: &Path) -> Result<Value, String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    json::parse_lossy(&bytes).map(|parsed| parsed.value).map_err(|error| format!("{}: {error}", path.display()))
}

fn check_sample(name: &str, file: &Path, sample: &Value, outcomes: &mut Vec<(String, Outcome)>) {
    if let Some(cases) = sample.get("cases").and_then(Value::as_array) {
        for case in cases {
            let case_name = case.get("name").and_then(Value::as_str).unwrap_or_default();
            outcomes.push((format!("{name} {case_name}"), check_verdict(case)));
        }
        return;
    }
    if let Some(rows) = sample.get("rows").and_then(Value::as_array) {
        for (i, row) in rows.iter().enumerate() {
            outcomes.push((format!("{name} row {i}"), check_layout(row)));
        }
        return;
    }
    let Some(files) = sample.get("files").and_then(Value::as_object) else {
        return;
    };
    let directory = file.parent().unwrap_or(Path::new("."));
    for (key, compression) in [("raw", Compression::None), ("zstd", Compression::Zstd)] {
        let Some(log) = files.get(key).and_then(Value::as_str) else {
            continue;
        };
        let context = Sample { sample, directory, log: directory.join(log), compression, key };
        outcomes.push((format!("{name} {key} is read"), context.check_read()));
        if sample.get("appendBatches").is_some() {
            outcomes.push((format!("{name} {key} is written"), context.check_written()));
        }
        if let Some(repaired) = files.get("repaired").and_then(Value::as_str) {
            outcomes.push((format!("{name} {key} is repaired"), context.check_repaired(&directory.join(repaired))));
        }
    }
}

/// A store in a new directory with one file in it.
struct Placed {
    _directory: tempfile::TempDir,
    root: PathBuf,
    store: JsonlStore,
}

impl Placed {
    fn empty(compression: Compression) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let root = directory.path().join("sessions");
        let store = JsonlStore::new(JsonlOptions::new(&root).compression(compression));
        Ok(Self { _directory: directory, root, store })
    }

    fn with(compression: Compression, path: &str, bytes: &[u8]) -> Result<Self, String> {
        let placed = Self::empty(compression)?;
        let path = placed.root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&placed.root)).map_err(|error| error.to_string())?;
        fs::write(&path, bytes).map_err(|error| error.to_string())?;
        Ok(placed)
    }

    fn read(&self, id: &str) -> Result<StoredLog, Error> {
        let read = block_on(self.store.read(&SessionId::from(id)))?;
        read.ok_or_else(|| Error::new(Code::SessionNotFound, "the session is not found"))
    }
}

struct Sample<'a> {
    sample: &'a Value,
    directory: &'a Path,
    log: PathBuf,
    compression: Compression,
    key: &'a str,
}

impl Sample<'_> {
    fn bytes(&self) -> Result<Vec<u8>, String> {
        fs::read(&self.log).map_err(|error| format!("{}: {error}", self.log.display()))
    }

    /// The member of the sample, or of the sample that it refers to.
    fn member(&self, key: &str) -> Result<Option<Value>, String> {
        match (self.sample.get(key), self.sample.get("sameEventsAs").and_then(Value::as_str)) {
            (Some(value), _) => Ok(Some(value.clone())),
            (None, Some(other)) => Ok(load(&self.directory.join(other))?.get(key).cloned()),
            (None, None) => Ok(None),
        }
    }

    fn place(&self, bytes: &[u8]) -> Result<(Placed, String), String> {
        let header = self.member("header")?;
        let header = match &header {
            Some(header) => header.as_object(),
            None => None,
        };
        let text = |key: &str| header.and_then(|header| header.get(key)).and_then(Value::as_str);
        let id = text("id").unwrap_or("demo-torn").to_owned();
        let mut fields = turnwheel::session::SessionHeader::new(id.as_str(), 0);
        fields.cwd = match header {
            Some(_) => text("cwd").map(str::to_owned),
            None => Some("/home/demo/project".into()),
        };
        let path = Placed::empty(self.compression)?;
        let relative = path.store.path_of(&fields).map_err(|error| error.to_string())?;
        let relative = relative.strip_prefix(&path.root).map_err(|error| error.to_string())?;
        let relative = relative.to_string_lossy().into_owned();
        if let Some(expected) = self.sample.get("storedAt").and_then(|at| at.get(self.key)).and_then(Value::as_str) {
            same("path", &relative, expected)?;
        }
        Ok((Placed::with(self.compression, &relative, bytes)?, id))
    }

    fn check_read(&self) -> Outcome {
        let (placed, id) = self.place(&self.bytes()?)?;
        let read = placed.read(&id);
        if let Some(error) = self.sample.get("error") {
            return expect_error(read.map(drop), error);
        }
        let log = read.map_err(|error| format!("{error:?}"))?;
        if let Some(header) = self.member("header")? {
            same("header", &log.header.to_value().to_text(), &header.to_text())?;
        }
        if let Some(stored) = self.member("storedEvents")? {
            same_events("storedEvents", &log.events.to_vec(), &stored)?;
        }
        let events = with_closers(&log);
        same_events("events", &events, &self.member("events")?.unwrap_or(Value::Null))?;
        if let Some(raw) = self.sample.get("raw").and_then(Value::as_str) {
            let exported = block_on(placed.store.read_raw(&SessionId::from(id.as_str())));
            let exported = exported.map_err(|error| format!("{error:?}"))?.ok_or("nothing is exported")?;
            same("raw", &String::from_utf8_lossy(&exported.text), raw)?;
        }
        self.check_derived(&events)
    }

    /// Surface, replacements, messages and the folded request state.
    fn check_derived(&self, events: &[Arc<Event>]) -> Outcome {
        let mut surface = Surface::default();
        let mut replacements = Vec::new();
        for event in events {
            if let Some(shadowed) = surface.apply(event) {
                let value = event.to_value();
                let bound = |key: &str| value.get("surfaceOp").and_then(|op| op.get(key)).cloned();
                let mut replacement = Object::new();
                replacement.insert("seq", event.seq);
                replacement.insert_some("start", bound("start"));
                replacement.insert_some("end", bound("end"));
                replacement.insert("shadowedSeqs", shadowed.into_iter().map(Value::from).collect::<Vec<_>>());
                replacements.push(Value::Object(replacement));
            }
        }
        let nodes = surface.nodes().iter().map(|seq| Value::from(*seq)).collect::<Vec<_>>();
        let messages = surface.nodes().iter().filter_map(|seq| {
            let message = events[*seq as usize].data.message()?;
            let is_empty = message.content().is_empty() && events[*seq as usize].kind() == "assistant/message";
            (!is_empty).then(|| message.to_value())
        });
        let last = |kind: &str| events.iter().rfind(|event| event.kind() == kind).map(|event| event.data_value());
        let header = last("request/header").and_then(|data| data.get("header").cloned()).unwrap_or(Value::Null);
        let derived = [
            ("surface", Value::Array(nodes)),
            ("replacements", Value::Array(replacements)),
            ("messages", Value::Array(messages.collect())),
            ("requestHeader", header),
            ("requestContext", last("request/context").unwrap_or(Value::Null)),
        ];
        for (key, value) in derived {
            if let Some(expected) = self.member(key)? {
                same(key, &neutral(value).to_text(), &neutral(expected).to_text())?;
            }
        }
        Ok(())
    }

    /// Writes the same batches and compares with the sample's file: raw by the byte, zstd by the text of each frame.
    fn check_written(&self) -> Outcome {
        let bytes = self.bytes()?;
        let (placed, id) = self.place(&bytes)?;
        let log = placed.read(&id).map_err(|error| format!("{error:?}"))?;
        let fresh = Placed::empty(self.compression)?;
        let batches = self.sample.get("appendBatches").and_then(Value::as_array).unwrap_or_default();
        let bound =
            |batch: &Value, i: usize| batch.as_array()?.get(i)?.as_u64().and_then(|seq| usize::try_from(seq).ok());
        let batches = batches.iter().map(|batch| {
            let events = bound(batch, 0)
                .zip(bound(batch, 1))
                .and_then(|(first, last)| log.events.to_vec().get(first..=last).map(<[_]>::to_vec));
            events.ok_or_else(|| format!("the log has no batch {}", batch.to_text()))
        });
        let batches = batches.collect::<Result<Vec<_>, _>>()?;
        let written = block_on(async {
            let writer = fresh.store.create(&log.header).await?;
            for batch in batches {
                writer.append(batch).await?;
            }
            writer.close().await;
            fresh.store.path_of(&log.header)
        });
        let path = written.map_err(|error| format!("{error:?}"))?;
        let written = fs::read(path).map_err(|error| error.to_string())?;
        let (ours, theirs) = match self.compression {
            Compression::None => (vec![written], vec![bytes]),
            Compression::Zstd => (frames(&written)?, frames(&bytes)?),
        };
        same("number of frames", &ours.len().to_string(), &theirs.len().to_string())?;
        for (ours, theirs) in ours.iter().zip(&theirs) {
            same("text", &String::from_utf8_lossy(ours), &String::from_utf8_lossy(theirs))?;
        }
        Ok(())
    }

    /// Opens, appends the closers, and compares with the file that the reference's repair leaves.
    fn check_repaired(&self, repaired: &Path) -> Outcome {
        let theirs = fs::read(repaired).map_err(|error| error.to_string())?;
        let bytes = self.bytes()?;
        let (placed, id) = self.place(&bytes)?;
        let path = block_on(async {
            let opened = placed.store.open(&SessionId::from(id.as_str())).await?;
            let (log, writer) = opened.ok_or_else(|| Error::new(Code::SessionNotFound, "not found"))?;
            writer.append(closers(&log.events).into_iter().map(Arc::new).collect()).await?;
            writer.close().await;
            placed.store.path_of(&log.header)
        });
        let path = path.map_err(|error| format!("{error:?}"))?;
        let ours = fs::read(path).map_err(|error| error.to_string())?;
        if self.compression == Compression::Zstd {
            let (ours, theirs) = (frames(&ours)?, frames(&theirs)?);
            same("number of frames", &ours.len().to_string(), &theirs.len().to_string())?;
        }
        let (expected, _) = self.place(&theirs)?;
        let expected = expected.read(&id).map_err(|error| format!("theirs: {error:?}"))?;
        let repaired = placed.read(&id).map_err(|error| format!("ours: {error:?}"))?;
        same("torn bytes", &repaired.torn_bytes.to_string(), "0")?;
        let expected = expected.events.iter().map(|event| event.to_value()).collect::<Vec<_>>();
        same_events("events after repair", &repaired.events.to_vec(), &Value::Array(expected))
    }
}

/// The text of each frame, found with zstd's own means.
fn frames(mut bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut texts = Vec::new();
    while !bytes.is_empty() {
        let size = zstd::zstd_safe::find_frame_compressed_size(bytes).map_err(|code| format!("zstd error {code}"))?;
        texts.push(zstd::stream::decode_all(&bytes[..size]).map_err(|error| error.to_string())?);
        bytes = &bytes[size..];
    }
    Ok(texts)
}

/// The stored events and the closers of an open turn, as an inspection shows them (REP-09).
fn with_closers(log: &StoredLog) -> Vec<Arc<Event>> {
    let closers = closers(&log.events).into_iter().map(Arc::new);
    log.events.iter().chain(closers).collect()
}

fn check_verdict(case: &Value) -> Outcome {
    let text = |key: &str| case.get(key).and_then(Value::as_str);
    let bytes = match (text("text"), text("base64")) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(text)) => base64(text),
        (None, None) => return Err("the case has no text".into()),
    };
    let path = "--home-demo-project--/demo-bad/session.jsonl";
    let placed = Placed::with(Compression::None, path, &bytes)?;
    check_listing(case, block_on(placed.store.list()))?;
    let read = placed.read("demo-bad");
    if text("outcome") == Some("error") {
        return expect_error(read.map(drop), case.get("error").unwrap_or(&Value::Null));
    }
    let log = read.map_err(|error| format!("{error:?}"))?;
    let header = case.get("header").map(Value::to_text).unwrap_or_default();
    same("header", &log.header.to_value().to_text(), &header)?;
    let events = match text("eventsAsJsonText") {
        Some(text) => json::parse(text).map_err(|error| error.to_string())?,
        None => case.get("events").cloned().unwrap_or(Value::Null),
    };
    same_events("events", &with_closers(&log), &events)
}

fn check_listing(case: &Value, listed: Result<Vec<turnwheel::session::SessionHeader>, Error>) -> Outcome {
    match (case.get("list").and_then(Value::as_array), listed) {
        (Some(expected), Ok(listed)) => {
            let listed = listed.iter().map(|header| Value::from(header.id.as_str())).collect();
            same("list", &Value::Array(listed).to_text(), &Value::Array(expected.to_vec()).to_text())
        }
        (None, Err(error)) if *error.code() == Code::CorruptLog => Ok(()),
        (_, listed) => Err(format!("list is {listed:?}, expected {:?}", case.get("list"))),
    }
}

/// The reference's error classes as our codes (JL-13, VER-03).
fn expect_error(result: Result<(), Error>, expected: &Value) -> Outcome {
    let text = |key: &str| expected.get(key).and_then(Value::as_str).unwrap_or_default();
    let Err(error) = result else {
        return Err(format!("it was read; expected: {}", text("message")));
    };
    let code = match text("name") {
        "SessionFormatUnsupportedError" => Code::UnsupportedFormat,
        _ => Code::CorruptLog,
    };
    let is_logical = text("name") == "SessionPersistenceCorruptionError";
    if *error.code() != code || error.message().contains("failed validation") != is_logical {
        return Err(format!("{error:?}; expected: {}", text("message")));
    }
    let line = text("message").split_once(" line ").map(|(_, rest)| rest);
    let line = line.map(|rest| rest.split(' ').next().unwrap_or_default());
    let Some(line) = line.and_then(|line| line.parse::<u64>().ok()) else {
        return Ok(());
    };
    same("line", &format!("{:?}", error.context().get("line").and_then(Value::as_u64)), &format!("{:?}", Some(line)))
}

fn check_layout(row: &Value) -> Outcome {
    let text = |key: &str| row.get(key).and_then(Value::as_str);
    let mut header = turnwheel::session::SessionHeader::new(text("id").unwrap_or_default(), 0);
    header.cwd = text("cwd").map(str::to_owned);
    for (compression, suffix) in [(Compression::None, ""), (Compression::Zstd, ".zstd")] {
        let store = JsonlStore::new(JsonlOptions::new("/root").compression(compression));
        let path = store.path_of(&header).map_err(|error| error.to_string())?;
        let expected = Path::new("/root").join(format!("{}{suffix}", text("path").unwrap_or_default()));
        same("path", &path.to_string_lossy(), &expected.to_string_lossy())?;
    }
    Ok(())
}

fn same(what: &str, found: &str, expected: &str) -> Outcome {
    if found == expected {
        return Ok(());
    }
    // Texts can be whole files: show them from shortly before the first difference on.
    let start = found.chars().zip(expected.chars()).take_while(|(a, b)| a == b).count().saturating_sub(40);
    let shown = |text: &str| text.chars().skip(start).take(240).collect::<String>();
    Err(format!(
        "{what} differs from character {start} on\n      found: {}\n   expected: {}",
        shown(found),
        shown(expected)
    ))
}

fn same_events(what: &str, found: &[Arc<Event>], expected: &Value) -> Outcome {
    let expected = expected.as_array().ok_or_else(|| format!("the sample has no {what}"))?;
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let found = neutral(found.to_value()).to_text();
        same(&format!("{what}[{i}]"), &found, &neutral(expected.clone()).to_text())?;
    }
    same(&format!("number of {what}"), &found.len().to_string(), &expected.len().to_string())
}

/// Blanks the fixed sentences of repair: each program has its own words.
fn neutral(mut value: Value) -> Value {
    blank(&mut value, false);
    value
}

fn blank(value: &mut Value, inside: bool) {
    match value {
        Value::Array(_) => {
            let mut items = value.take_array().unwrap_or_default();
            items.iter_mut().for_each(|item| blank(item, inside));
            *value = Value::Array(items);
        }
        Value::Object(object) => {
            let id = object.get("id").and_then(Value::as_str);
            let inside = inside || id.is_some_and(|id| id.starts_with("interrupted-tool-result-"));
            if inside && object.get("type").and_then(Value::as_str) == Some("text") {
                object.insert("text", "fixed text");
            }
            let keys: Vec<String> = object.keys().map(str::to_owned).collect();
            for key in keys {
                if let Some(member) = object.get_mut(&key) {
                    blank(member, inside);
                }
            }
        }
        _ => {}
    }
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut out) = (0_u32, 0, Vec::new());
    for digit in text.bytes().filter_map(|byte| ALPHABET.iter().position(|known| *known == byte)) {
        bits = bits << 6 | digit as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}
