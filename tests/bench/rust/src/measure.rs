//! Clocks, memory and the form of a result.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

/// Named figures of one workload.
pub type Figures = Vec<(&'static str, f64)>;

/// One JSON line.
pub fn json(figures: &Figures) -> String {
    let mut line = String::from("{");
    for (at, (name, value)) in figures.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(line, "{comma}\"{name}\":{value}");
    }
    line.push('}');
    line
}

/// A duration from the environment, in seconds.
fn seconds(name: &str, default: f64) -> Duration {
    let set = std::env::var(name).ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(set.unwrap_or(default))
}

/// How long to warm up.
pub fn warm() -> Duration {
    seconds("WARM_S", 0.5)
}

/// How long to measure.
pub fn span() -> Duration {
    seconds("MEASURE_S", 1.5)
}

/// A number from the environment.
pub fn count(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Processor time of all living threads of this process, in microseconds.
pub fn cpu_us() -> f64 {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let spent = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    spent.sum::<f64>() / 1e3
}

/// Resident memory in KiB: now, and at its highest.
pub fn memory_kib() -> (f64, f64) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let member = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    (member("VmRSS:").unwrap_or(f64::NAN), member("VmHWM:").unwrap_or(f64::NAN))
}

/// Runs `turn` for a while; the argument is how many ran before.
pub fn rate(mut turn: impl FnMut(usize)) -> Figures {
    let mut done = 0;
    let mut run = |span: Duration| {
        let (start, first) = (Instant::now(), done);
        while start.elapsed() < span {
            turn(done);
            done += 1;
        }
        (start.elapsed().as_secs_f64() * 1e6, (done - first) as f64)
    };
    run(warm());
    let before = cpu_us();
    let (wall, turns) = run(span());
    let cpu = cpu_us() - before;
    vec![("us_per_turn", wall / turns), ("cpu_us_per_turn", cpu / turns), ("turns", turns)]
}

/// The times of `one`, in microseconds, sorted: at least `least` of them, for at least the measuring time.
pub fn samples(least: usize, mut one: impl FnMut() -> Duration) -> Vec<f64> {
    for _ in 0..20 {
        one();
    }
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.len() < least || start.elapsed() < span() {
        times.push(one().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    times
}

/// The value below which this share of the sorted samples lies.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}
