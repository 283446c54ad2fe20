//! The process that kills.

use crate::files::KILL_ME;
use crate::stores::Kind;
use crate::{Dice, check};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// So many lives share a directory before it is drained and left.
const LIVES: u64 = 12;

/// A child that is not done by then hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to do.
pub struct Plan {
    /// The program that lives when called with `--child`.
    pub program: PathBuf,
    /// The store.
    pub kind: Kind,
    /// How many kills.
    pub kills: u64,
    /// The first seed.
    pub seed: u64,
}

/// Kills so often, and checks after each. Returns how many lives were killed at a change to the disk, and by the clock.
pub fn run(plan: &Plan) -> Result<(u64, u64), String> {
    let (mut in_change, mut by_clock) = (0, 0);
    let mut directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (mut lives, mut all_lives) = (0, 0);
    while in_change + by_clock < plan.kills {
        let seed = plan.seed + all_lives;
        all_lives += 1;
        let failed = |what: String, directory: tempfile::TempDir| {
            let kept = directory.keep();
            format!(
                "{what}\n{} --seed {seed} --kills 1 --store {}; kept in {}",
                "life",
                plan.kind.name(),
                kept.display()
            )
        };
        let killed = match life(plan, directory.path(), seed, lives) {
            Ok(killed) => killed,
            Err(what) => return Err(failed(what, directory)),
        };
        match killed {
            Killed::InChange => in_change += 1,
            Killed::ByClock => by_clock += 1,
            // It was faster than its killer: that is a life as well, but none of those asked for.
            Killed::No => {}
        }
        lives += 1;
        if let Err(what) = check::directory(plan.kind, directory.path(), matches!(killed, Killed::No)) {
            return Err(failed(what, directory));
        }
        if lives == LIVES {
            // The last life ends by itself: whatever was accepted and stored has run by then.
            if let Err(what) = drain(plan, directory.path(), seed) {
                return Err(failed(what, directory));
            }
            directory = tempfile::tempdir().map_err(|error| error.to_string())?;
            lives = 0;
        }
    }
    Ok((in_change, by_clock))
}

enum Killed {
    InChange,
    ByClock,
    No,
}

/// One life that ends with a kill, if it does not end before.
fn life(plan: &Plan, directory: &Path, seed: u64, lives: u64) -> Result<Killed, String> {
    let mut dice = Dice::new(seed ^ 0x00C0_FFEE);
    // First lives are short now and then, to die while the sessions' first batches are published.
    let reach = if lives == 0 && dice.below(2) == 0 { 16 } else { 90 };
    let at_change = dice.below(2) == 0 && plan.kind.has_switch();
    let kill_at = at_change.then(|| 1 + dice.below(reach));
    // Moments after the sessions are open, and for a tenth of the lives after the process has begun.
    let (after_open, moment) = (dice.below(10) > 0, Duration::from_micros(dice.below(25_000)));
    let mut child = spawn(plan, directory, seed, kill_at, 14)?;
    let lines = lines(&mut child)?;
    let killed = match kill_at {
        Some(_) => wait_for(&lines, KILL_ME).map(|found| if found { Killed::InChange } else { Killed::No }),
        None => {
            let opened = !after_open || wait_for(&lines, "open").unwrap_or(true);
            if opened {
                std::thread::sleep(moment);
            }
            Ok(if opened { Killed::ByClock } else { Killed::No })
        }
    };
    // On Unix this is SIGKILL: nothing of the child runs any more.
    let _ = child.kill();
    let status = child.wait().map_err(|error| error.to_string())?;
    match killed? {
        Killed::No if !status.success() => Err(format!("the child failed by itself: {status}")),
        Killed::ByClock if status.success() => Ok(Killed::No),
        Killed::ByClock if status.code().is_some() => Err(format!("the child failed by itself: {status}")),
        killed => Ok(killed),
    }
}

/// A life without a kill.
fn drain(plan: &Plan, directory: &Path, seed: u64) -> Result<(), String> {
    let mut child = spawn(plan, directory, seed ^ (1 << 40), None, 2)?;
    let lines = lines(&mut child)?;
    let ended = wait_for(&lines, KILL_ME);
    if ended.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    ended?;
    if !status.success() {
        return Err(format!("the draining life failed: {status}"));
    }
    check::directory(plan.kind, directory, true)
}

fn spawn(plan: &Plan, directory: &Path, seed: u64, kill_at: Option<u64>, messages: u64) -> Result<Child, String> {
    let mut command = Command::new(&plan.program);
    command.args(["--child", plan.kind.name()]).arg(directory);
    command.args([seed.to_string(), kill_at.unwrap_or(0).to_string(), messages.to_string()]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    child.map_err(|error| format!("cannot start {}: {error}", plan.program.display()))
}

/// The child's lines as they come.
fn lines(child: &mut Child) -> Result<mpsc::Receiver<String>, String> {
    let output = child.stdout.take().ok_or("the child has no output")?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

/// Whether the line came before the output ended.
fn wait_for(lines: &mpsc::Receiver<String>, wanted: &str) -> Result<bool, String> {
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) if line == wanted => return Ok(true),
            Ok(_) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(false),
            Err(mpsc::RecvTimeoutError::Timeout) => return Err("the child hangs".into()),
        }
    }
}
