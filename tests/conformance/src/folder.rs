//! Runs the scenarios of a folder and judges each.

use crate::compare::{Difference, differences};
use crate::doubles::ModelScript;
use crate::result::run;
use crate::scenario::Scenario;
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// How many differences of one file are printed.
const SHOWN: usize = 14;

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The folder of scenarios.
    pub scenarios: PathBuf,
    /// The folder of results that differ on purpose.
    pub decisions: Option<PathBuf>,
    /// The list of scenarios that are known to fail.
    pub pending: Option<PathBuf>,
    /// Whether the folder is the whole set, so that a decision or a pending name without a scenario is a failure.
    pub is_whole_set: bool,
}

/// A result that differs from the recorded one on purpose.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// The id of the decision.
    pub decision: String,
    /// Why it changes this result.
    pub why: String,
    /// The model's script, where the decision makes the agent ask it more or less often than the reference did.
    #[serde(default)]
    model: Option<ModelScript>,
    /// The result.
    pub expect: Json,
}

/// How a scenario did.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// As expected.
    Passed,
    /// Not so: the differences, or why it could not be run.
    Failed(Vec<String>),
}

/// How a folder did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many passed.
    pub passed: usize,
    /// What failed, and why.
    pub failed: Vec<(String, Vec<String>)>,
    /// What failed and is listed as pending.
    pub pending: Vec<String>,
}

/// Runs every scenario of a folder, in order of name. An error means that something could not be read.
pub fn run_folder(options: &Options) -> Result<Report, String> {
    let pending = read_pending(options.pending.as_deref())?;
    let mut names = names_in(&options.scenarios)?;
    if names.is_empty() {
        return Err(format!("{} holds no scenario", options.scenarios.display()));
    }
    names.sort();
    let mut report = Report::default();
    for name in pending.iter().filter(|name| options.is_whole_set && !names.contains(name)) {
        report.failed.push((name.clone(), vec!["  listed as pending but there is no such scenario".into()]));
    }
    if let Some(folder) = options.decisions.as_ref().filter(|_| options.is_whole_set) {
        for name in names_in(folder)?.into_iter().filter(|name| !names.contains(name)) {
            report.failed.push((name, vec!["  there is a decision about it but no such scenario".into()]));
        }
    }
    for name in names {
        let verdict = judge(options, &name);
        match (verdict, pending.contains(&name)) {
            (Verdict::Passed, false) => report.passed += 1,
            (Verdict::Passed, true) => report.failed.push((name, vec!["  listed as pending but passes".into()])),
            (Verdict::Failed(_), true) => report.pending.push(name),
            (Verdict::Failed(lines), false) => report.failed.push((name, lines)),
        }
    }
    Ok(report)
}

/// The result of one scenario, in the layout of `expect`.
pub fn show(options: &Options, name: &str) -> Result<Json, String> {
    let (text, decision) = read(options, name)?;
    guarded_run(&prepare(name, &text, decision.as_ref())?).map(|(result, _)| result)
}

/// Judges one scenario given as text.
pub fn check(name: &str, text: &str, decision: Option<&Decision>) -> Verdict {
    let compared = prepare(name, text, decision).and_then(|scenario| {
        let expected = decision.map(|decision| &decision.expect).or(scenario.expect.as_ref());
        let expected = expected.ok_or("there is no `expect`")?;
        let (got, problems) = guarded_run(&scenario)?;
        let problems = problems.into_iter().map(|problem| format!("  {problem}"));
        Ok(problems.chain(differences(expected, &got).iter().map(Difference::render)).collect::<Vec<_>>())
    });
    match compared {
        Ok(lines) if lines.is_empty() => Verdict::Passed,
        Ok(mut lines) => {
            let more = lines.len().saturating_sub(SHOWN);
            lines.truncate(SHOWN);
            if more > 0 {
                lines.push(format!("  and {more} more"));
            }
            Verdict::Failed(lines)
        }
        Err(problem) => Verdict::Failed(vec![format!("  {problem}")]),
    }
}

fn judge(options: &Options, name: &str) -> Verdict {
    match read(options, name) {
        Ok((text, decision)) => check(name, &text, decision.as_ref()),
        Err(problem) => Verdict::Failed(vec![format!("  {problem}")]),
    }
}

fn prepare(name: &str, text: &str, decision: Option<&Decision>) -> Result<Scenario, String> {
    let mut scenario = Scenario::parse(text)?;
    if scenario.name != name {
        return Err(format!("the scenario is called {:?}", scenario.name));
    }
    if let Some(model) = decision.and_then(|decision| decision.model.clone()) {
        scenario.model = model;
    }
    Ok(scenario)
}

/// A panic fails its own scenario only.
fn guarded_run(scenario: &Scenario) -> Result<(Json, Vec<String>), String> {
    crate::panics::watch(|| run(scenario))?
}

fn read(options: &Options, name: &str) -> Result<(String, Option<Decision>), String> {
    let text = read_file(&options.scenarios.join(format!("{name}.json")))?;
    let decision = options.decisions.as_ref().map(|folder| folder.join(format!("{name}.json")));
    let decision = match decision.filter(|path| path.exists()) {
        Some(path) => {
            let read = serde_json::from_str(&read_file(&path)?);
            Some(read.map_err(|error| format!("{}: {error}", path.display()))?)
        }
        None => None,
    };
    Ok((text, decision))
}

fn read_file(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn names_in(folder: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    Ok(names)
}

fn read_pending(path: Option<&Path>) -> Result<BTreeSet<String>, String> {
    let Some(path) = path else { return Ok(BTreeSet::new()) };
    let text = read_file(path)?;
    let names = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    Ok(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
}
