//! What a turn costs with a model that costs nothing: `make bench`.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::{Duration, Instant};
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::llm::{Chunk, FinishReason};
use turnwheel::message::Usage;
use turnwheel::{Agent, Context, NoticeKind, Tool, ToolOutput};

/// 64 text deltas of 8 bytes, usage and a finish, as in the peers' workload W1.
fn text_answer(deltas: usize) -> Vec<Chunk> {
    let mut chunks = vec![Chunk::BlockStart { index: 0, block_type: "text".into() }];
    chunks.extend((0..deltas).map(|_| Chunk::TextDelta { index: 0, text: "abcdefgh".into() }));
    let block = turnwheel::Block::Text("abcdefgh".repeat(deltas));
    chunks.push(Chunk::BlockEnd { index: 0, block });
    chunks.push(Chunk::Usage(Usage { input_tokens: 10, output_tokens: 64, ..Usage::default() }));
    chunks.push(Chunk::Finish { reason: FinishReason::Stop, replay_state: None });
    chunks
}

fn open(ctx: &Context, id: &str) -> Agent {
    let agent = ctx.runtime().block_on(ctx.agent(id.to_owned()).provider("fake").model("m").open());
    agent.expect("the agent opens")
}

fn turn(ctx: &Context, agent: &Agent) {
    agent.followup("hello").expect("accepted");
    ctx.runtime().block_on(agent.when_idle()).expect("idle");
}

fn context(deltas: usize) -> Context {
    let ctx = Context::new();
    ctx.llm().register("fake", Scripted::repeat(text_answer(deltas))).expect("a new route");
    ctx
}

/// One turn, in sessions that start anew every 50 turns.
fn sessions_of_fifty(c: &mut Criterion, name: &str, ctx: Context) {
    let mut agent = open(&ctx, "s-0");
    let mut turns = 0u64;
    c.bench_function(name, |b| {
        b.iter(|| {
            if turns % 50 == 49 {
                ctx.runtime().block_on(agent.dispose());
                agent = open(&ctx, &format!("s-{turns}"));
            }
            turns += 1;
            turn(&ctx, black_box(&agent));
        });
    });
}

fn text_turns(c: &mut Criterion) {
    sessions_of_fifty(c, "text turn, 64 deltas", context(64));
    let ctx = context(64);
    for _ in 0..10 {
        ctx.on(NoticeKind::SessionEvent, |notice| {
            black_box(notice);
            Ok(())
        })
        .expect("registered");
    }
    for _ in 0..5 {
        ctx.waterfall::<turnwheel::agent::PreStep, _>(|_, next| async move { next.call().await }).expect("registered");
    }
    sessions_of_fifty(c, "text turn, 64 deltas, 10 log listeners, 5 pre-step listeners", ctx);
}

fn tool_turn(c: &mut Criterion) {
    let ctx = Context::new();
    let script = Scripted::new().respond(|request| {
        let last = request.messages.get(request.messages.len() - 1);
        match last.is_some_and(|message| message.source().kind() == "tool") {
            true => {
                ScriptedReply { text: Some("abcdefgh".repeat(16)), chunk_size: Some(8), ..ScriptedReply::default() }
            }
            false => ScriptedReply::calls([("c1", "weather", r#"{"city":"Oslo","units":"metric"}"#)]),
        }
    });
    ctx.llm().register("fake", script).expect("a new route");
    ctx.tools().register(Tool::new("weather", |_| async { Ok(ToolOutput::value("sunny")) }).unchecked()).expect("new");
    sessions_of_fifty(c, "tool turn, 16 deltas", ctx);
}

fn crowd(c: &mut Criterion) {
    let ctx = context(8);
    let crowd: Vec<Agent> = (0..10_000).map(|i| open(&ctx, &format!("idle-{i}"))).collect();
    sessions_of_fifty(c, "text turn, 8 deltas, beside 10,000 idle agents", ctx);
    drop(crowd);
    sessions_of_fifty(c, "text turn, 8 deltas, alone", context(8));
}

/// How a turn's cost grows with the session's length, as in the peers' workload W1h: the median of the 50 turns before
/// turn 100 and before turn 2,000, over fresh sessions.
fn growth(_: &mut Criterion) {
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let (mut early, mut late) = (Vec::new(), Vec::new());
    for round in 0..20 {
        let ctx = context(8);
        let agent = open(&ctx, &format!("long-{round}"));
        let times: Vec<_> = (0..2_000)
            .map(|_| {
                let start = Instant::now();
                turn(&ctx, &agent);
                start.elapsed()
            })
            .collect();
        early.push(median(times[50..100].to_vec()));
        late.push(median(times[1_950..].to_vec()));
    }
    let (early, late) = (median(early), median(late));
    let ratio = late.as_secs_f64() / early.as_secs_f64();
    println!("growth: {early:?} a turn at turn 100, {late:?} at turn 2,000, ratio {ratio:.2}");
}

fn lifecycle(c: &mut Criterion) {
    let ctx = context(1);
    let mut made = 0u64;
    c.bench_function("create and dispose an agent", |b| {
        b.iter_batched(
            || {
                made += 1;
                format!("a-{made}")
            },
            |id| ctx.runtime().block_on(open(&ctx, &id).dispose()),
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, text_turns, tool_turn, crowd, growth, lifecycle);
criterion_main!(benches);
