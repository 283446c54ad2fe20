//! A disk whose power can be cut: it records what was asked of it, and can show what is left after a cut at any moment.
//!
//! What was not synced may be there or not: of a file's content any prefix of what was appended, or as many zeros; of a
//! directory any of the names that came or went. What was synced is there.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use turnwheel::storage::jsonl::{DiskFiles, FileLayer};

#[derive(Clone, Debug)]
enum Change {
    CreateDir(PathBuf),
    Create(PathBuf, u64),
    Link(PathBuf, PathBuf),
    Remove(PathBuf),
    Append(u64, Vec<u8>),
    Truncate(u64, u64),
    Sync(u64),
    SyncDir(PathBuf),
    /// Something was acknowledged: this many events of the session.
    Acknowledged(usize),
}

/// Records every change to the disk.
#[derive(Default)]
pub struct PowerCut(Mutex<Vec<Change>>);

/// What is left after a cut.
pub struct Left {
    /// How many events had been acknowledged.
    pub acknowledged: usize,
    /// Where it is.
    pub root: tempfile::TempDir,
}

/// One content of a file: what is durable, and what was appended since.
#[derive(Clone, Default)]
struct Content {
    durable: Vec<u8>,
    now: Vec<u8>,
}

/// The names of a directory: those that are durable, and the changes since.
#[derive(Clone, Default)]
struct Names {
    durable: BTreeMap<PathBuf, Node>,
    pending: Vec<(PathBuf, Option<Node>)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Node {
    Directory,
    /// Which of the files.
    File(usize),
}

impl PowerCut {
    /// A disk without a past.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Writes down that the first `count` events were acknowledged as durable.
    pub fn acknowledge(&self, count: usize) {
        self.record(Change::Acknowledged(count));
    }

    /// How many changes there were: the power can be cut after any of them.
    pub fn changes(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }

    fn record(&self, change: Change) {
        self.0.lock().expect("no panic").push(change);
    }

    /// What a cut after the first `count` changes leaves of `root`; `chance(n)` decides what unsynced things survive.
    pub fn cut(&self, root: &Path, count: usize, mut chance: impl FnMut(usize) -> usize) -> Left {
        let changes = self.0.lock().expect("no panic")[..count].to_vec();
        let mut files: Vec<Content> = Vec::new();
        // A number may be given again after its file is gone.
        let mut by_number: HashMap<u64, usize> = HashMap::new();
        let mut directories: HashMap<PathBuf, Names> = HashMap::new();
        let mut acknowledged = 0;
        fn enter(directories: &mut HashMap<PathBuf, Names>, path: &Path, node: Option<Node>) {
            let parent = path.parent().expect("below the root").to_owned();
            directories.entry(parent).or_default().pending.push((path.to_owned(), node));
        }
        let parent = |path: &Path| path.parent().expect("below the root").to_owned();
        for change in changes {
            match change {
                Change::CreateDir(path) => enter(&mut directories, &path, Some(Node::Directory)),
                Change::Create(path, number) => {
                    by_number.insert(number, files.len());
                    enter(&mut directories, &path, Some(Node::File(files.len())));
                    files.push(Content::default());
                }
                Change::Link(from, to) => {
                    let names = &directories[&parent(&from)];
                    let found = names.pending.iter().rev().find(|(path, _)| *path == from).map(|(_, node)| *node);
                    let node = found.unwrap_or_else(|| names.durable.get(&from).copied());
                    enter(&mut directories, &to, node);
                }
                Change::Remove(path) => enter(&mut directories, &path, None),
                Change::Append(number, bytes) => files[by_number[&number]].now.extend(bytes),
                Change::Truncate(number, len) => files[by_number[&number]].now.truncate(len as usize),
                Change::Sync(number) => {
                    let content = &mut files[by_number[&number]];
                    content.durable.clone_from(&content.now);
                }
                Change::SyncDir(path) => {
                    let names = directories.entry(path).or_default();
                    for (path, node) in names.pending.drain(..) {
                        match node {
                            Some(node) => names.durable.insert(path, node),
                            None => names.durable.remove(&path),
                        };
                    }
                }
                Change::Acknowledged(count) => acknowledged = count,
            }
        }
        for names in directories.values_mut() {
            for (path, node) in names.pending.drain(..) {
                match node {
                    _ if chance(2) == 0 => None,
                    Some(node) => names.durable.insert(path, node),
                    None => names.durable.remove(&path),
                };
            }
        }
        let left: Vec<Vec<u8>> = files.iter().map(|content| content.survivor(&mut chance)).collect();
        let fresh = tempfile::tempdir().expect("a directory");
        let place = |path: &Path| fresh.path().join(path.strip_prefix(root).expect("below the root"));
        // Shortest first: a directory that did not survive takes what is in it along.
        let mut paths: Vec<_> = directories.values().flat_map(|names| &names.durable).collect();
        paths.sort_by_key(|(path, _)| *path);
        for (path, node) in paths.into_iter().filter(|(path, _)| path.starts_with(root)) {
            // The root itself, and what is above it, is there.
            let _ = match node {
                Node::Directory => fs::create_dir(place(path)),
                Node::File(index) => fs::write(place(path), &left[*index]),
            };
        }
        Left { acknowledged, root: fresh }
    }
}

impl Content {
    fn survivor(&self, chance: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
        let shared = self.durable.iter().zip(&self.now).take_while(|(a, b)| a == b).count();
        // A cut that was not synced either happened or did not.
        let base = match shared < self.durable.len() {
            true if chance(2) == 0 => return self.durable.clone(),
            _ => shared,
        };
        let more = chance(self.now.len() - base + 1);
        let mut left = self.now[..base + more].to_vec();
        if chance(8) == 0 {
            // The length was written and the content was not.
            left[base..].fill(0);
        }
        left
    }
}

fn number(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.ino())
}

impl FileLayer for PowerCut {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        DiskFiles.read(path)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        DiskFiles.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        let file = DiskFiles.create(path)?;
        self.record(Change::Create(path.to_owned(), number(&file)?));
        Ok(file)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        DiskFiles.create_dir(path)?;
        self.record(Change::CreateDir(path.to_owned()));
        Ok(())
    }

    fn append(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        DiskFiles.append(file, bytes)?;
        self.record(Change::Append(number(file)?, bytes.to_vec()));
        Ok(())
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.record(Change::Sync(number(file)?));
        Ok(())
    }

    fn sync_all(&self, file: &File) -> io::Result<()> {
        self.record(Change::Sync(number(file)?));
        Ok(())
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        DiskFiles.truncate(file, len)?;
        self.record(Change::Truncate(number(file)?, len));
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.record(Change::SyncDir(path.to_owned()));
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        DiskFiles.link(from, to)?;
        self.record(Change::Link(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        DiskFiles.remove(path)?;
        self.record(Change::Remove(path.to_owned()));
        Ok(())
    }
}
