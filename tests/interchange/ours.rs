//! Our side of the interchange test: sessions that the runtime writes and resumes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use turnwheel::context::{Budget, LoopOptions};
use turnwheel::invariants::{Invariants, InvariantsConfig};
use turnwheel::json::{Object, Value};
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::session::{Event, EventData, SessionHeader, TurnEndReason};
use turnwheel::storage::jsonl::{Compression, JsonlOptions, JsonlStore};
use turnwheel::storage::{Store, StoredLog};
use turnwheel::{Agent, CancelCause, Context, Error, Message, Notice, NoticeKind, Result, Tool, ToolOutput, json};

/// The logs as they were in memory when their sessions ended, by id.
pub type Written = BTreeMap<String, (SessionHeader, Vec<Arc<Event>>)>;

/// A store of one encoding of the test: `zstd`, `none`, or `plain` (none without packed rows).
pub fn store(root: &Path, encoding: &str) -> JsonlStore {
    let compression = if encoding == "zstd" { Compression::Zstd } else { Compression::None };
    let mut options = JsonlOptions::new(root).compression(compression);
    options.pack_chunks = encoding != "plain";
    JsonlStore::new(options)
}

/// Writes the sessions.
pub fn write(root: &Path, encoding: &str) -> Result<Written> {
    let mut written = Written::new();
    let script = Scripted::new()
        .reply(packed("think", "one two three ü漢😀", 1))
        .text("")
        .error(turnwheel::llm::Failure::new("SERVER", "the model is gone"));
    let ctx = context(store(root, encoding), script);
    let plain = open(&ctx, "our-plain", Some("/home/ünï/a b"))?;
    for prompt in ["hello \"\u{2028}\" \\ 😀\u{1}", "again", "fail"] {
        turn(&ctx, &plain, prompt)?;
    }
    plain.session().append("plan/mode", json!({"active": true}))?;
    plain.session().append("my-plugin/note", json!({"10": null, "b": [1e21, 0.1, 5e-7], "__proto__": {"a": ""}}))?;
    plain.session().append("my-plugin/values", awkward_values())?;
    end(&ctx, &mut written)?;

    let calls =
        [("c1", "look", "{\"what\": \"a\"}"), ("c2", "fail", "{}"), ("c3", "nobody", ""), ("c4", "look", "{oops")];
    let ctx = context(store(root, encoding), Scripted::new().calls(calls).text("done"));
    let tools = open(&ctx, "our-tools", None)?;
    turn(&ctx, &tools, "look")?;
    let seed = ctx.fork_seed(tools.session(), None)?;
    let length = seed.len() as u64;
    let fork = ctx.agent("our-fork").provider("mock").model("mock").seed(seed).header(|header| {
        header.parent_session = Some("our-tools".into());
        header.seed_length = Some(length);
    });
    ctx.runtime().block_on(fork.create())?;
    let prefix = tools.session().events_from(0);
    end(&ctx, &mut written)?;

    let ctx = context(store(root, encoding), Scripted::new().reply(packed("", "half an answer", 3)));
    ctx.on(NoticeKind::SessionEvent, |notice| {
        let Notice::SessionEvent { event, agent: Some(agent), .. } = notice else { return Ok(()) };
        if matches!(&event.data, EventData::AssistantChunk { .. }) && event.seq > 10 {
            agent.steer("discarded")?;
            agent.cancel(CancelCause::User);
        }
        Ok(())
    })?;
    let cancelled = open(&ctx, "our-cancelled", Some("/tmp"))?;
    turn(&ctx, &cancelled, "never answered")?;
    end(&ctx, &mut written)?;

    let ctx = context(store(root, encoding), Scripted::new().text("first").text("second").text("third"));
    let replaced = open(&ctx, "our-replaced", None)?;
    turn(&ctx, &replaced, "one")?;
    turn(&ctx, &replaced, "two")?;
    let nodes = replaced.session().surface_nodes();
    let summary = Arc::new(Message::user_text("summary", "a summary"));
    replaced.session().replace_surface(summary, nodes[0], nodes[2], nodes[..3].to_vec())?;
    turn(&ctx, &replaced, "three")?;
    end(&ctx, &mut written)?;

    // Events of ours that no other program knows: a budget that is used up.
    let turn_budget = Budget { steps: Some(2), ..Budget::default() };
    let options = LoopOptions { turn_budget, ..LoopOptions::default() };
    let endless = Scripted::new().respond(|_| ScriptedReply::calls([("c", "look", "{\"what\":\"b\"}")]));
    let ctx = with(Context::builder().store(store(root, encoding)).loop_options(options).build(), endless);
    let budget = open(&ctx, "our-budget", None)?;
    turn(&ctx, &budget, "go")?;
    end(&ctx, &mut written)?;

    for length in 1..=prefix.len() {
        let id = format!("our-cut-{length:02}");
        let header = SessionHeader::new(id.as_str(), 1_700_000_000_000);
        let ctx = Context::new();
        ctx.runtime().block_on(async {
            let writer = store(root, encoding).create(&header).await?;
            writer.append(prefix[..length.div_ceil(2)].to_vec()).await?;
            writer.append(prefix[length.div_ceil(2)..length].to_vec()).await?;
            writer.close().await;
            Ok::<_, Error>(())
        })?;
        if length % 2 == 1 {
            written.insert(id, (header, prefix[..length].to_vec()));
            continue;
        }
        // Every second one is repaired here, and goes on.
        let ctx = context(store(root, encoding), Scripted::new().respond(|_| ScriptedReply::text("after")));
        let agent = open(&ctx, &id, None)?;
        turn(&ctx, &agent, "go on")?;
        end(&ctx, &mut written)?;
    }
    Ok(written)
}

/// Resumes every session of the store for one turn. Returns their logs.
pub fn resume(root: &Path, encoding: &str) -> Result<Written> {
    let mut written = Written::new();
    for header in Context::new().runtime().block_on(store(root, encoding).list())? {
        // A prompt that a crash kept from its step is pending again (D-10), so there may be two turns.
        let script = Scripted::new().respond(|_| packed("", "resumed here: ü 漢 😀", 2));
        let ctx = context(store(root, encoding), script);
        Invariants::load(&InvariantsConfig::default())?.register_core(&ctx)?;
        let agent = open(&ctx, &header.id, None)?;
        turn(&ctx, &agent, "from here")?;
        let session = agent.session().clone();
        let last = session.events_from(0).iter().rev().find_map(|event| match &event.data {
            EventData::TurnEnd { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        if last != Some(TurnEndReason::Completed) {
            return Err(Error::host(format!("{:?} resumed, and its turn ended as {last:?}", header.id)));
        }
        end(&ctx, &mut written)?;
    }
    Ok(written)
}

/// A stored session.
pub fn read(root: &Path, encoding: &str, id: &str) -> Result<Option<StoredLog>> {
    Context::new().runtime().block_on(store(root, encoding).read(&id.into()))
}

/// Numbers of every size, keys that look like indexes, and every character that some writer of JSON escapes (HOST-02 to
/// HOST-06).
fn awkward_values() -> Value {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let random = std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from_bits(state)
    });
    let powers = (-30..30).flat_map(|power| [10_f64.powi(power), 3.0 * 10_f64.powi(power), 2_f64.powi(power)]);
    let edges = [f64::MIN_POSITIVE, f64::MAX, f64::EPSILON, 5e-324, 123_456_789_012_345_680_000.0, 1.0 / 3.0];
    let numbers = random.filter(|number| number.is_finite()).take(2_000).chain(powers).chain(edges);
    let mut object = Object::new();
    object.insert("numbers", numbers.map(Value::from).collect::<Vec<_>>());
    for key in ["b", "10", "2", "a", "01", "4294967294", "4294967295", "-1", "", "__proto__", "constructor"] {
        object.insert(key, key);
    }
    let characters =
        (0..0x180).chain(0x2020..0x2030).chain([0xfeff, 0xfffd, 0xffff, 0x1_f600]).filter_map(char::from_u32);
    object.insert("characters", characters.collect::<String>());
    Value::Object(object)
}

/// Reasoning, then text in deltas of `size` characters.
fn packed(reasoning: &str, text: &str, size: usize) -> ScriptedReply {
    let reasoning = (!reasoning.is_empty()).then(|| reasoning.to_owned());
    ScriptedReply { reasoning, chunk_size: Some(size), ..ScriptedReply::text(text) }
}

fn context(store: JsonlStore, script: Scripted) -> Context {
    with(Context::builder().store(store).build(), script)
}

fn with(ctx: Context, script: Scripted) -> Context {
    ctx.llm().register("mock", script).expect("a new route");
    let look = Tool::new("look", |_| async { Ok(ToolOutput::value("found").with_meta(json!({"n": 1}))) });
    let fail = Tool::new("fail", |_| async { Err::<ToolOutput, _>(Error::host("it failed")) });
    for tool in [look, fail] {
        ctx.tools().register(tool).expect("a new tool");
    }
    ctx
}

fn open(ctx: &Context, id: &str, cwd: Option<&str>) -> Result<Agent> {
    let builder = ctx.agent(id).provider("mock").model("mock");
    ctx.runtime().block_on(
        match cwd {
            Some(cwd) => builder.cwd(cwd),
            None => builder,
        }
        .open(),
    )
}

fn turn(ctx: &Context, agent: &Agent, prompt: &str) -> Result<()> {
    agent.followup(prompt)?;
    ctx.runtime().block_on(agent.when_idle())
}

/// Closes the context and notes the logs of its agents.
fn end(ctx: &Context, written: &mut Written) -> Result<()> {
    let sessions: Vec<_> = ctx.agents().iter().map(|agent| agent.session().clone()).collect();
    ctx.runtime().block_on(ctx.close())?;
    for session in sessions {
        written.insert(session.id().to_string(), (session.header().clone(), session.events_from(0)));
    }
    Ok(())
}
