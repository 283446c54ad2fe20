//! What one turn is in each workload, and what is measured.

use crate::measure::{self, Figures, memory_kib, quantile, rate, samples};
use crate::models::Model;
use std::cell::RefCell;
use std::hint::black_box;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use turnwheel::agent::PreStep;
use turnwheel::id::CountingIds;
use turnwheel::runtime::{ManualClock, Ports};
use turnwheel::session::CancelCause;
use turnwheel::storage::jsonl::{JsonlOptions, JsonlStore};
use turnwheel::{Agent, Context, NoticeKind, Tool, ToolOutput};

/// The workloads.
pub const NAMES: [&str; 10] = ["w1", "w1h", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "cores"];

/// Turns of a session before a new one begins.
const SESSION: usize = 50;

/// Measures a workload; none of that name if absent.
pub fn run(name: &str) -> Option<Figures> {
    let mut figures = match name {
        "w1" => sessions(Context::new(), Model::text(64)),
        "w1h" => growth(),
        "w2" => sessions(Context::new(), Model::tool("lookup", 1)),
        "w3" => parallel_tools(),
        "w4" => sessions(with_listeners(Context::new()), Model::text(64)),
        "w5" => open_stored(),
        "w6" => idle_agents(),
        "w7" => durable(),
        "w8" => cancel(),
        "cores" => runtimes(),
        _ => return None,
    };
    figures.push(("peak_rss_mib", memory_kib().1 / 1024.0));
    Some(figures)
}

/// Runs so many turns and nothing else, the same way each time.
pub fn turns(name: &str, count: usize) {
    let model = if name == "w2" { Model::tool("lookup", 1) } else { Model::text(64) };
    let ports = Ports { clock: Rc::new(ManualClock::new(0)), ids: Rc::new(CountingIds::new("id")) };
    let mut bench = Bench::new(Context::builder().ports(ports).build(), model);
    for at in 0..count {
        bench.turn_in_sessions(at);
    }
}

/// A context with a model and tools, and the session under way.
struct Bench {
    ctx: Context,
    agent: Option<Agent>,
}

impl Bench {
    fn new(ctx: Context, model: Model) -> Self {
        ctx.llm().register("mock", model).expect("a new route");
        let lookup = Tool::new("lookup", |_| async { Ok(ToolOutput::value("sunny, 21C")) });
        ctx.tools().register(lookup.unchecked()).expect("a new tool");
        let runtime = ctx.runtime().clone();
        let sleep = Tool::new("sleep5", move |_| {
            let sleep = runtime.sleep(Duration::from_millis(5));
            async move {
                sleep.await;
                Ok(ToolOutput::value("ok"))
            }
        });
        ctx.tools().register(sleep.unchecked().parallel()).expect("a new tool");
        Self { ctx, agent: None }
    }

    fn open(&self, id: String) -> Agent {
        let opened = self.ctx.agent(id).provider("mock").model("mock").open();
        self.ctx.runtime().block_on(opened).expect("the agent opens")
    }

    fn turn(&self, agent: &Agent) {
        agent.followup("What is the weather?").expect("accepted");
        self.ctx.runtime().block_on(agent.when_idle()).expect("idle");
    }

    fn turn_in_sessions(&mut self, at: usize) {
        if at.is_multiple_of(SESSION) {
            if let Some(before) = self.agent.take() {
                self.ctx.runtime().block_on(before.dispose());
            }
            self.agent = Some(self.open(format!("s-{at}")));
        }
        if let Some(agent) = &self.agent {
            self.turn(black_box(agent));
        }
    }
}

fn sessions(ctx: Context, model: Model) -> Figures {
    let mut bench = Bench::new(ctx, model);
    rate(|at| bench.turn_in_sessions(at))
}

fn with_listeners(ctx: Context) -> Context {
    for _ in 0..10 {
        let listener = |notice: &turnwheel::Notice| {
            black_box(notice);
            Ok(())
        };
        ctx.on(NoticeKind::SessionEvent, listener).expect("registered");
    }
    for _ in 0..5 {
        ctx.waterfall::<PreStep, _>(|_, next| async move { next.call().await }).expect("registered");
    }
    ctx
}

/// W1h: the median of the 50 turns before each mark, in one session.
fn growth() -> Figures {
    let bench = Bench::new(Context::new(), Model::text(8));
    let warm = bench.open("warm".into());
    for _ in 0..2_000 {
        bench.turn(&warm);
    }
    let mut at: [Vec<f64>; 3] = Default::default();
    for round in 0..measure::count("GROWTH_ROUNDS", 10) {
        let agent = bench.open(format!("long-{round}"));
        let times: Vec<f64> = (0..2_000).map(|_| timed(|| bench.turn(&agent)).as_secs_f64() * 1e6).collect();
        for (marks, end) in at.iter_mut().zip([100, 500, 2_000]) {
            let mut window = times[end - 50..end].to_vec();
            window.sort_by(f64::total_cmp);
            marks.push(quantile(&window, 0.5));
        }
        bench.ctx.runtime().block_on(agent.dispose());
    }
    let [early, middle, late] = at.map(|mut marks| {
        marks.sort_by(f64::total_cmp);
        quantile(&marks, 0.5)
    });
    vec![("us_at_100", early), ("us_at_500", middle), ("us_at_2000", late), ("growth", late / early)]
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn parallel_tools() -> Figures {
    let mut bench = Bench::new(Context::new(), Model::tool("sleep5", 10));
    let mut at = 0;
    let times = samples(100, || {
        at += 1;
        timed(|| bench.turn_in_sessions(at - 1))
    });
    vec![("ms_per_turn", quantile(&times, 0.5) / 1e3), ("p90_ms", quantile(&times, 0.9) / 1e3)]
}

/// W5: a session of about 100,000 events, opened from its store until a turn could start. The first process writes it.
fn open_stored() -> Figures {
    let directory = std::env::var("W5_DIR").map(std::path::PathBuf::from);
    let own = tempfile::tempdir().expect("a temporary folder");
    let directory = directory.unwrap_or_else(|_| own.path().to_owned());
    let events = measure::count("W5_EVENTS", 100_000);
    let ctx = || Context::builder().store(JsonlStore::new(JsonlOptions::new(&directory))).build();
    if !Path::new(&directory).join("written").exists() {
        let bench = Bench::new(ctx(), Model::text(88));
        let agent = bench.open("big".into());
        while agent.session().len() < events as u64 {
            bench.turn(&agent);
        }
        bench.ctx.runtime().block_on(agent.dispose());
        bench.ctx.runtime().block_on(bench.ctx.close()).expect("everything is stored");
        std::fs::write(directory.join("written"), "").expect("the folder takes a file");
    }
    let base = memory_kib().0;
    let bench = Bench::new(ctx(), Model::text(8));
    let start = Instant::now();
    let agent = bench.open("big".into());
    let ready = start.elapsed();
    let (_, peak) = memory_kib();
    bench.turn(&agent);
    let read = agent.session().first_live_seq() as f64;
    vec![
        ("open_ms", ready.as_secs_f64() * 1e3),
        ("events", read),
        ("peak_mib", (peak - base) / 1024.0),
        ("with_turn_ms", start.elapsed().as_secs_f64() * 1e3),
    ]
}

fn idle_agents() -> Figures {
    let many = measure::count("IDLE_N", 10_000);
    let bench = Bench::new(Context::new(), Model::text(8));
    let probe = |name: &str| {
        let agent = bench.open(name.to_owned());
        let mut times: Vec<f64> = (0..400).map(|_| timed(|| bench.turn(&agent)).as_secs_f64() * 1e6).collect();
        bench.ctx.runtime().block_on(agent.dispose());
        times.sort_by(f64::total_cmp);
        quantile(&times, 0.5)
    };
    for at in 0..8 {
        probe(&format!("warm-{at}"));
    }
    let alone = probe("alone");
    let (before, _) = memory_kib();
    let start = Instant::now();
    let agents: Vec<Agent> = (0..many)
        .map(|at| {
            let agent = bench.open(format!("idle-{at}"));
            bench.turn(&agent);
            agent
        })
        .collect();
    let made = start.elapsed().as_secs_f64() * 1e6 / many as f64;
    let (after, _) = memory_kib();
    let beside = probe("beside");
    let each = (after - before) / agents.len() as f64;
    let mut figures = vec![("kib_per_agent", each), ("create_and_turn_us", made)];
    figures.extend([("turn_us_alone", alone), ("turn_us_beside", beside), ("agents", many as f64)]);
    figures
}

/// W7: durable turns, by one agent and by 64 at once.
fn durable() -> Figures {
    let many = measure::count("W7_AGENTS", 64);
    let one = durable_turns(1);
    let all = durable_turns(many);
    vec![("turns_per_s_1", one), ("turns_per_s_64", all), ("gain", all / one)]
}

fn durable_turns(agents: usize) -> f64 {
    let own = tempfile::tempdir().expect("a temporary folder");
    let root = std::env::var("W7_DIR").map(std::path::PathBuf::from).unwrap_or_else(|_| own.path().to_owned());
    let root = root.join(format!("w7-{agents}-{}", std::process::id()));
    let ctx = Context::builder().store(JsonlStore::new(JsonlOptions::new(&root))).build();
    let bench = Rc::new(Bench::new(ctx, Model::text(8)));
    let done = Rc::new(RefCell::new((0usize, Instant::now() + measure::warm() + measure::span())));
    let counting_from = Instant::now() + measure::warm();
    let workers: Vec<_> = (0..agents).map(|at| bench.open(format!("a-{at}"))).collect();
    for agent in &workers {
        let (agent, done) = (agent.clone(), done.clone());
        bench.ctx.runtime().spawn(async move {
            while Instant::now() < done.borrow().1 {
                agent.followup("What is the weather?").expect("accepted");
                agent.when_idle().await.expect("idle");
                agent.session().flush().await.expect("stored");
                let now = Instant::now();
                if now >= counting_from && now < done.borrow().1 {
                    done.borrow_mut().0 += 1;
                }
            }
        });
    }
    bench.ctx.runtime().block_on(async {
        for agent in workers {
            while Instant::now() < done.borrow().1 {
                agent.session().flush().await.expect("stored");
                turnwheel::runtime::yield_now().await;
                bench.ctx.runtime().sleep(Duration::from_millis(5)).await;
            }
            agent.when_idle().await.expect("idle");
        }
    });
    let turns = done.borrow().0;
    bench.ctx.runtime().block_on(bench.ctx.close()).expect("everything is stored");
    let _ = std::fs::remove_dir_all(root);
    turns as f64 / measure::span().as_secs_f64()
}

/// W8: from `cancel()` while the model hangs until the agent is idle.
fn cancel() -> Figures {
    let bench = Bench::new(Context::new(), Model::hanging());
    let mut at = 0;
    let times = samples(200, || {
        at += 1;
        let agent = bench.open(format!("c-{at}"));
        agent.followup("go").expect("accepted");
        // Pumps until nothing can proceed: the model hangs.
        while bench.ctx.runtime().pump() == turnwheel::runtime::PumpState::More {}
        let took = timed(|| {
            agent.cancel(CancelCause::User);
            bench.ctx.runtime().block_on(agent.when_idle()).expect("idle");
        });
        bench.ctx.runtime().block_on(agent.dispose());
        took
    });
    vec![("cancel_us", quantile(&times, 0.5)), ("p90_us", quantile(&times, 0.9))]
}

/// Four runtimes, each on a thread of its own, beside one.
fn runtimes() -> Figures {
    let run = |threads: usize| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                std::thread::spawn(|| {
                    let figures = sessions(Context::new(), Model::text(64));
                    figures.iter().find(|(name, _)| *name == "us_per_turn").map_or(f64::NAN, |(_, us)| 1e6 / us)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or(f64::NAN)).sum::<f64>()
    };
    let (one, four) = (run(1), run(4));
    vec![("turns_per_s_1", one), ("turns_per_s_4", four), ("gain", four / one)]
}
