//! Session logs go both ways between this runtime and the reference's npm packages: each writes sessions, the other reads
//! them, and each resumes the other's. `make interchange` runs it; Node and the packages come from `package.json`.
//!
//! What the reference sees in a log is described by `reference.mjs` in the layout of `tests/samples`, and checked by the
//! code that checks those.

mod ours;
#[path = "../../core/tests/support/samples.rs"]
mod samples;

use ours::Written;
use samples::Outcome;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use turnwheel::json::{self, Value};

/// zstd, plain text with packed rows, plain text without.
const ENCODINGS: [&str; 3] = ["zstd", "none", "plain"];

fn main() -> ExitCode {
    let Some(packages) = std::env::args_os().nth(1).map(PathBuf::from).filter(|path| path.is_dir()) else {
        eprintln!("usage: interchange DIR (where the packages of tests/interchange/package.json are installed)");
        return ExitCode::from(2);
    };
    // Side by side: much of the time goes into syncs.
    let tables = std::thread::scope(|scope| {
        let exchanges = ENCODINGS.map(|encoding| scope.spawn(|| exchange(encoding, &packages)));
        exchanges.map(|exchange| exchange.join().expect("an exchange reports its failures"))
    });
    let mut table = Table::default();
    for exchanged in tables {
        table.rows.extend(exchanged.rows);
        table.failures.extend(exchanged.failures);
    }
    table.print()
}

fn exchange(encoding: &str, packages: &Path) -> Table {
    let mut table = Table::default();
    let directory = tempfile::tempdir().expect("a directory for the sessions");
    let reference = Reference { packages, encoding, directory: directory.path() };
    if let Err(error) = reference.exchange(&mut table) {
        table.add(&format!("{encoding}: the exchange"), vec![("runs to its end".to_owned(), Err(error))]);
    }
    table
}

/// One exchange in one encoding.
struct Reference<'a> {
    packages: &'a Path,
    encoding: &'a str,
    directory: &'a Path,
}

impl Reference<'_> {
    fn exchange(&self, table: &mut Table) -> Result<(), String> {
        let (theirs, mine) = (self.directory.join("theirs"), self.directory.join("ours"));
        self.run("write", &theirs, None)?;
        table.add(&self.title("theirs, read here"), self.checks("theirs", &theirs, None)?);
        // What is appended from here on is in batches that nobody chose.
        fs::remove_file(self.directory.join("batches.json")).map_err(|error| format!("batches.json: {error}"))?;
        let written = ours::write(&mine, self.encoding).map_err(|error| format!("{error:?}"))?;
        table.add(&self.title("ours, read there"), self.checks("ours", &mine, Some(&written))?);

        // The reports above repaired the logs that end inside a turn. What each resumes is what the other left.
        let before = self.logs(&mine)?;
        self.run("turn", &mine, None)?;
        table.add(&self.title("ours, resumed there"), self.resumed("ours-resumed", &mine, &before, None)?);
        let before = self.logs(&theirs)?;
        let written = ours::resume(&theirs, self.encoding).map_err(|error| format!("{error:?}"))?;
        table.add(
            &self.title("theirs, resumed here"),
            self.resumed("theirs-resumed", &theirs, &before, Some(&written))?,
        );

        let before = self.logs(&mine)?;
        let written = ours::resume(&mine, self.encoding).map_err(|error| format!("{error:?}"))?;
        table.add(&self.title("ours, back again"), self.resumed("ours-again", &mine, &before, Some(&written))?);
        let before = self.logs(&theirs)?;
        self.run("turn", &theirs, None)?;
        table.add(&self.title("theirs, back again"), self.resumed("theirs-again", &theirs, &before, None)?);
        Ok(())
    }

    fn title(&self, what: &str) -> String {
        format!("{:5} {what}", self.encoding)
    }

    fn run(&self, command: &str, root: &Path, out: Option<&Path>) -> Result<(), String> {
        let mut node = Command::new(self.packages.join("node_modules/.bin/node"));
        node.arg(self.packages.join("reference.mjs")).arg(command).arg(root).arg(self.encoding).args(out);
        let output = node.output().map_err(|error| format!("cannot start the packages' Node: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("`{command}` of the reference failed: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Lets the reference describe the sessions below `root`, and compares with what is read here and, when given, with
    /// what was logged in memory.
    fn checks(&self, name: &str, root: &Path, written: Option<&Written>) -> Result<Vec<(String, Outcome)>, String> {
        let out = self.directory.join(name.to_owned() + "-reports");
        self.run("report", root, Some(&out))?;
        let mut outcomes = samples::check_directory(&out);
        let Some(written) = written else { return Ok(outcomes) };
        for (id, (header, events)) in written {
            let path = out.join(format!("{id}.{}.json", self.encoding));
            outcomes.push((format!("{id} is stored there as logged here"), as_logged(&path, header, events)));
        }
        Ok(outcomes)
    }

    /// As `checks`; also, that the log only grew.
    fn resumed(
        &self,
        name: &str,
        root: &Path,
        before: &Written,
        written: Option<&Written>,
    ) -> Result<Vec<(String, Outcome)>, String> {
        let mut outcomes = self.checks(name, root, written)?;
        for (id, (header, after)) in self.logs(root)? {
            let Some((header_before, before)) = before.get(&id) else {
                return Err(format!("{id} was not there before"));
            };
            let grew = after.len() > before.len() && after[..before.len()] == before[..] && header == *header_before;
            let outcome = if grew { Ok(()) } else { Err("what was stored before has changed".to_owned()) };
            outcomes.push((format!("{id} only grew"), outcome));
        }
        Ok(outcomes)
    }

    /// The stored logs as read here.
    fn logs(&self, root: &Path) -> Result<Written, String> {
        let headers = samples::block_on(turnwheel::storage::Store::list(&ours::store(root, self.encoding)));
        let mut logs = Written::new();
        for header in headers.map_err(|error| format!("{error:?}"))? {
            let log = ours::read(root, self.encoding, &header.id).map_err(|error| format!("{error:?}"))?;
            let log = log.ok_or_else(|| format!("{:?} is listed and cannot be read", header.id))?;
            logs.insert(header.id.to_string(), (log.header, log.events.into()));
        }
        Ok(logs)
    }
}

/// Compares, by text, the events that the reference reads with those logged in memory.
fn as_logged(
    path: &Path,
    header: &turnwheel::session::SessionHeader,
    events: &[std::sync::Arc<turnwheel::session::Event>],
) -> Outcome {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let report = json::parse_lossy(&bytes).map_err(|error| error.to_string())?.value;
    // As texts that the reference made: its layout of numbers, keys and escapes is compared, not ours of its values.
    let stored = report.get("storedTexts").and_then(Value::as_array).unwrap_or_default();
    if stored.len() != events.len() {
        return Err(format!("{} events are stored and {} were logged", stored.len(), events.len()));
    }
    for (found, event) in stored.iter().zip(events) {
        let found = found.as_str().unwrap_or_default();
        if found != event.json() {
            return Err(format!("event {}\n      found: {found}\n   expected: {}", event.seq, event.json()));
        }
    }
    let mut header = header.clone();
    header.delegation_depth.get_or_insert(0);
    let found = report.get("header").map(Value::to_text).unwrap_or_default();
    if found == header.to_value().to_text() { Ok(()) } else { Err(format!("the header is {found}")) }
}

#[derive(Default)]
struct Table {
    rows: Vec<(String, usize, usize)>,
    failures: Vec<String>,
}

impl Table {
    fn add(&mut self, title: &str, outcomes: Vec<(String, Outcome)>) {
        let failed = outcomes.iter().filter(|(_, outcome)| outcome.is_err()).count();
        self.rows.push((title.to_owned(), outcomes.len() - failed, failed));
        for (name, outcome) in outcomes {
            if let Err(failure) = outcome {
                self.failures.push(format!("FAILED {title}: {name}: {failure}"));
            }
        }
    }

    fn print(&self) -> ExitCode {
        for failure in &self.failures {
            println!("{failure}");
        }
        for (title, passed, failed) in &self.rows {
            println!("{title:30} {passed:5} passed {failed:5} failed");
        }
        let sum = |of: fn(&(String, usize, usize)) -> usize| self.rows.iter().map(of).sum::<usize>();
        let (passed, failed) = (sum(|row| row.1), sum(|row| row.2));
        println!("{passed} passed, {failed} failed");
        // Sessions that were never written fail nothing: an exchange has hundreds of checks.
        if failed == 0 && passed > 1000 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
