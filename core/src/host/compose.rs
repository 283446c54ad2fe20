//! Composing from JSON: contexts, agents, tools and prompt inputs.

use super::notices::call_members;
use super::options::Options;
use super::results::blocks;
use crate::agent::{Agent, AgentOptions, ModelChoice};
use crate::context::{AgentBuilder, Budget, Context, ContextBuilder, LoopOptions, Registration};
use crate::error::{Code, Error, Result};
use crate::json::{Object, Value};
use crate::message::{Block, Message};
use crate::runtime::{LocalBoxFuture, Signal};
use crate::session::{CancelCause, Event, EventData, InboxTarget, Session, SessionHeader};
use crate::storage::{Durability, Store};
use crate::system_prompt::{PromptText, ToolOrder};
use crate::tools::{Tool, ToolCall, ToolOutput};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidArgument, message)
}

/// A context from `{"store"?, "durability"?, "maxParallelToolCalls"?, "maxToolResultBytes"?, "turnBudget"?,
/// "agentBudget"?, "turnTimeoutMs"?, "loop"?}`.
///
/// `store` is `{"kind": "jsonl", "root", "compression"?: "zstd" | "none", "packChunks"?}` or `{"kind": "sqlite", "path"}`.
/// A budget is `{"steps"?,
/// "toolCalls"?, "tokens"?, "wallMs"?}`: a member that is left out keeps its default and null switches it off. `loop:
/// false` leaves the agent factory's slot empty.
pub fn context_builder(options: Options<'_>) -> Result<ContextBuilder> {
    let defaults = LoopOptions::default();
    let nested = |name: &str, of: &str, default: Budget| match options.value(name) {
        None => Ok(default),
        Some(value) => budget(options.nested(value, of)?, default),
    };
    let parallel = options.count("maxParallelToolCalls")?.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let loop_options = LoopOptions {
        max_parallel_tool_calls: parallel.unwrap_or(defaults.max_parallel_tool_calls),
        turn_budget: nested("turnBudget", "a turn budget", defaults.turn_budget)?,
        agent_budget: nested("agentBudget", "an agent budget", defaults.agent_budget)?,
        turn_timeout: options.duration("turnTimeout")?,
        max_tool_result_bytes: match options.count("maxToolResultBytes")? {
            None if !options.has("maxToolResultBytes") => defaults.max_tool_result_bytes,
            limit => limit,
        },
    };
    loop_options.check()?;
    let mut builder = Context::builder().loop_options(loop_options);
    if let Some(name) = options.text("durability")? {
        let durability = Durability::parse(&name).ok_or_else(|| {
            options.bad(&format!("durability is effects, every-event, turn or relaxed, not {name:?}"))
        })?;
        builder = builder.durability(durability);
    }
    if let Some(value) = options.value("store") {
        builder = builder.store(store(options.nested(value, "a store")?)?);
    }
    if !options.flag("loop", true)? {
        builder = builder.without_loop();
    }
    options.finish()?;
    Ok(builder)
}

/// A budget; members that are left out are those of `default`, and null ones are off.
pub fn budget(options: Options<'_>, default: Budget) -> Result<Budget> {
    let limit = |name: &str, default| match options.count(name)? {
        None if options.has(name) => Ok(None),
        None => Ok(default),
        limit => Ok::<_, Error>(limit),
    };
    let budget = Budget {
        steps: limit("steps", default.steps)?,
        tool_calls: limit("toolCalls", default.tool_calls)?,
        tokens: limit("tokens", default.tokens)?,
        wall_ms: limit("wallMs", default.wall_ms)?,
    };
    options.finish()?;
    Ok(budget)
}

#[cfg(feature = "jsonl")]
fn jsonl(options: &Options<'_>) -> Result<Rc<dyn Store>> {
    use crate::storage::jsonl::{Compression, JsonlOptions, JsonlStore};
    let mut jsonl = JsonlOptions::new(options.required_text("root")?);
    match options.text("compression")?.as_deref() {
        None => {}
        Some("zstd") => jsonl.compression = Compression::Zstd,
        Some("none") => jsonl.compression = Compression::None,
        Some(other) => return Err(options.bad(&format!("compression is zstd or none, not {other:?}"))),
    }
    jsonl.pack_chunks = options.flag("packChunks", jsonl.pack_chunks)?;
    Ok(Rc::new(JsonlStore::new(jsonl)))
}

#[cfg(not(feature = "jsonl"))]
fn jsonl(options: &Options<'_>) -> Result<Rc<dyn Store>> {
    Err(options.bad("this build has no jsonl store; build turnwheel with its feature `jsonl`"))
}

#[cfg(feature = "sqlite")]
fn sqlite(options: &Options<'_>, is_reference: bool) -> Result<Rc<dyn Store>> {
    use crate::storage::sqlite::{ReferenceDatabase, SqliteStore};
    let path = options.required_text("path")?;
    Ok(if is_reference { Rc::new(ReferenceDatabase::new(path)) } else { Rc::new(SqliteStore::new(path)) })
}

#[cfg(not(feature = "sqlite"))]
fn sqlite(options: &Options<'_>, _is_reference: bool) -> Result<Rc<dyn Store>> {
    Err(options.bad("this build has no sqlite store; build turnwheel with its feature `sqlite`"))
}

/// A store that comes with the runtime: `{"kind": "jsonl", "root", "compression"?, "packChunks"?}`, `{"kind": "sqlite",
/// "path"}`, or `{"kind": "reference", "path"}`, a database of the reference's, which is only read.
pub fn store(options: Options<'_>) -> Result<Rc<dyn Store>> {
    let store = match options.required_text("kind")?.as_str() {
        "jsonl" => jsonl(&options)?,
        "sqlite" => sqlite(&options, false)?,
        "reference" => sqlite(&options, true)?,
        other => {
            let message = format!("there is no store of kind {other:?}; there are: jsonl, sqlite, reference");
            return Err(options.bad(&message));
        }
    };
    options.finish()?;
    Ok(store)
}

/// Composes an agent before anybody can see it (FAC-5).
pub type AgentSetup = Box<dyn FnOnce(Context) -> LocalBoxFuture<Result<()>>>;

/// What an agent is opened with beside its JSON options.
#[derive(Default)]
pub struct Setup {
    /// Composes it.
    pub compose: Option<AgentSetup>,
    /// Cancels the opening, and nothing after it (FAC-16).
    pub signal: Option<Signal>,
}

/// Opens an agent from `{"provider"?, "model"?, "maxTokens"?, "mode"?, "fork"?, "seed"?, "log"?, …header members}`.
///
/// The header's members are `cwd`, `parentSession`, `seedLength`, `origin`, `delegationDepth` and `agentPreset`. `mode`
/// is `open` (resume what the store has under this id, or create; the default), `create` or `resume`. `fork`, `seed` and
/// `log` exclude each other: `{"from", "at"?}` starts from a live session's events up to `at` (by default its last
/// `turn/end`), with its working directory; a list of events is history to start from; `{"header", "events"}` is a whole
/// log to resume from, as [`session_value`](super::session_value) gives it.
pub fn open_agent(
    ctx: &Context,
    id: &str,
    options: Options<'_>,
    setup: Setup,
) -> Result<LocalBoxFuture<Result<Agent>>> {
    let agent = AgentOptions {
        provider: options.text("provider")?,
        model: options.text("model")?,
        max_tokens: options.count("maxTokens")?,
    };
    agent.check()?;
    let mut header = SessionHeader::new(id, 0);
    header.cwd = options.text("cwd")?;
    header.parent_session = options.text("parentSession")?.map(Into::into);
    header.seed_length = options.count("seedLength")?;
    header.origin = options.text("origin")?;
    header.delegation_depth = options.count("delegationDepth")?;
    header.agent_preset = options.text("agentPreset")?;
    let mode = options.text("mode")?;
    let fork =
        options.value("fork").map(|fork| forked(ctx, options.nested(fork, "a fork")?, &mut header)).transpose()?;
    let seed = options.value("seed").map(|seed| events(seed, "`seed`")).transpose()?;
    let log = options.value("log").map(|log| stored(options.nested(log, "a log")?)).transpose()?;
    let begins = usize::from(fork.is_some()) + usize::from(seed.is_some()) + usize::from(log.is_some());
    if begins > 1 {
        return Err(options.bad("give one of fork, seed and log"));
    }
    header.check()?;
    let mut builder = ctx.agent(id).options(agent).header(move |own| {
        let (id, created_at) = (own.id.clone(), own.created_at);
        *own = SessionHeader { id, created_at, ..header };
    });
    if let Some(compose) = setup.compose {
        builder = builder.setup(compose);
    }
    if let Some(signal) = setup.signal {
        builder = builder.signal(signal);
    }
    if let Some(seed) = fork.flatten().or(seed) {
        builder = builder.seed(seed);
    }
    let opened = start(builder, mode.as_deref(), log, &options)?;
    options.finish()?;
    Ok(opened)
}

fn start(
    builder: AgentBuilder,
    mode: Option<&str>,
    log: Option<(SessionHeader, Vec<Arc<Event>>)>,
    options: &Options<'_>,
) -> Result<LocalBoxFuture<Result<Agent>>> {
    Ok(match (mode, log) {
        (None | Some("resume"), Some((header, events))) => {
            Box::pin(async move { builder.resume_from(header, events).await.map(|handle| handle.agent().clone()) })
        }
        (None | Some("open"), None) => Box::pin(builder.open()),
        (Some("create"), None) => Box::pin(async move { builder.create().await.map(|handle| handle.agent().clone()) }),
        (Some("resume"), None) => Box::pin(async move { builder.resume().await.map(|handle| handle.agent().clone()) }),
        (Some("open" | "create"), Some(_)) => return Err(options.bad("a log is resumed; leave `mode` out")),
        (Some(other), _) => return Err(options.bad(&format!("mode is open, create or resume, not {other:?}"))),
    })
}

type Seed = Option<Vec<Arc<Event>>>;

/// The seed of a fork, none when there is nothing to take over (FORK-03).
fn forked(ctx: &Context, options: Options<'_>, header: &mut SessionHeader) -> Result<Seed> {
    let (from, at) = (options.required_text("from")?, options.count("at")?);
    options.finish()?;
    let gone = || Error::new(Code::SessionNotFound, format!("no live session {from:?}")).with("id", from.as_str());
    let source: Session = ctx.root().session(&from).ok_or_else(gone)?;
    let last_end = || {
        let events = source.marks_from(0);
        events.iter().rev().find(|event| matches!(event.data, EventData::TurnEnd { .. })).map(|event| event.seq)
    };
    let seed = match at.or_else(last_end) {
        Some(at) => ctx.fork_seed(&source, Some(at))?,
        None => Vec::new(),
    };
    if header.cwd.is_none() {
        header.cwd.clone_from(&source.header().cwd);
    }
    header.parent_session = Some(source.id().clone());
    header.seed_length = Some(seed.len() as u64);
    Ok((!seed.is_empty()).then_some(seed))
}

fn events(value: &Value, what: &str) -> Result<Vec<Arc<Event>>> {
    let items = value.as_array().ok_or_else(|| invalid(format!("{what} is a list of events")))?;
    items.iter().map(|event| Event::from_value(event).map(Arc::new)).collect()
}

fn stored(options: Options<'_>) -> Result<(SessionHeader, Vec<Arc<Event>>)> {
    let header = options.value("header").ok_or_else(|| options.bad("`header` is missing"))?;
    let events = events(options.value("events").ok_or_else(|| options.bad("`events` are missing"))?, "`events`")?;
    let log = (SessionHeader::from_value(header)?, events);
    options.finish()?;
    Ok(log)
}

/// A message from a text, or from an object in which `id`, `role` and `source` may be missing and `content` may be a
/// text.
pub fn message(value: &Value, new_id: impl FnOnce() -> String) -> Result<Message> {
    let mut object = match value {
        Value::String(text) => return Ok(Message::user_text(new_id(), text)),
        Value::Object(object) => object.clone(),
        _ => return Err(Error::new(Code::InvalidMessage, "a message is a text or an object")),
    };
    if let Some(text) = object.get("content").and_then(Value::as_str).map(str::to_owned) {
        object.insert("content", vec![Block::Text(text).to_value()]);
    }
    if !object.contains_key("source") {
        object.insert("source", crate::json!({"kind": "user"}));
    }
    if !object.contains_key("role") {
        object.insert("role", "user");
    }
    if !object.contains_key("id") {
        object.insert("id", new_id());
    }
    Message::from_value(&object.into())
}

/// A pending list: `next-turn` or `next-step`.
pub fn target(name: &str) -> Result<InboxTarget> {
    InboxTarget::parse(name).ok_or_else(|| invalid(format!("a target is next-turn or next-step, not {name:?}")))
}

/// A cause: its kind as a text, or `{"kind", …}`, for example `{"kind": "hook", "reason": "…"}` (CAN-1).
pub fn cancel_cause(value: &Value) -> Result<CancelCause> {
    match value {
        Value::String(kind) => Ok(CancelCause::from_value(&crate::json!({"kind": kind}))),
        _ if value.get("kind").and_then(Value::as_str).is_some() => Ok(CancelCause::from_value(value)),
        _ => Err(invalid("a cause is a kind, for example \"user\", or an object with a `kind`")),
    }
}

/// A choice of route: `{"provider", "model", "reasoningEffort"?}`; null is none (MOD).
pub fn model_choice(value: &Value) -> Result<Option<ModelChoice>> {
    if value.is_null() {
        return Ok(None);
    }
    let options = Options::new(value, "a model choice")?;
    let choice = ModelChoice {
        provider: options.required_text("provider")?,
        model: options.required_text("model")?,
        reasoning_effort: options.text("reasoningEffort")?,
    };
    options.finish()?;
    Ok(Some(choice))
}

/// A tool from `{"name", "description"?, "parameters"?, "output"?, "parallel"?, "timeoutMs"?, "checked"?}`. `checked:
/// false` hands arguments to the body as they come.
pub fn tool<F>(options: Options<'_>, body: impl Fn(ToolCall) -> F + 'static) -> Result<Tool>
where
    F: Future<Output = Result<ToolOutput>> + 'static,
{
    let mut tool = Tool::new(options.required_text("name")?, body);
    if let Some(description) = options.text("description")? {
        tool = tool.description(description);
    }
    if let Some(parameters) = options.value("parameters") {
        tool = tool.parameters(parameters);
    }
    if let Some(output) = options.value("output") {
        tool = tool.output(output);
    }
    if options.flag("parallel", false)? {
        tool = tool.parallel();
    }
    if let Some(timeout) = options.duration("timeout")? {
        tool = tool.timeout(timeout);
    }
    if !options.flag("checked", true)? {
        tool = tool.unchecked();
    }
    options.finish()?;
    Ok(tool)
}

/// A call as a tool's body sees it: `{"callId", "name", "arguments", "agentId"?, "parentCallId"?, "rootCallId"?}`.
pub fn tool_call_value(call: &ToolCall) -> Value {
    let mut object = Object::new();
    object.insert_some("agentId", call.agent().map(|agent| agent.id().as_str()));
    call_members(call.info(), &mut object);
    object.into()
}

/// What a body returned: `{"value"}` or `{"content"}`, each with `"meta"?`. A value is checked and rendered for the model,
/// content is used as it is: a text or a list of blocks.
pub fn tool_output(value: &Value) -> Result<ToolOutput> {
    let bad = |error: Error| Error::new(Code::InvalidToolOutput, error.message());
    let read = || {
        let options = Options::new(value, "a tool's output")?;
        // A value may be null.
        let returned = options.has("value").then(|| options.value("value").cloned().unwrap_or(Value::Null));
        options.value("value");
        let output = match (returned, options.value("content")) {
            (Some(value), None) => ToolOutput::value(value),
            (None, Some(content)) => ToolOutput::content(blocks(content, "`content`")?),
            _ => return Err(options.bad("give `value` or `content`")),
        };
        let output = match options.value("meta") {
            Some(meta) => output.with_meta(meta),
            None => output,
        };
        options.finish()?;
        Ok(output)
    };
    read().map_err(bad)
}

/// Registers an input of the prompt from `{"kind", "name"?, "order"?, "text"?, "names"?}`. The kinds: `section`,
/// `complete` (a section used alone), `context`, `variable`, `persona`, `identity`, `suppress-contexts`, and `tool-order`
/// with the `names`, which lasts as long as the root and gives no registration. `computed` stands in for `text`.
pub fn prompt_input(ctx: &Context, options: Options<'_>, computed: Option<PromptText>) -> Result<Option<Registration>> {
    let kind = options.required_text("kind")?;
    let fixed = options.text("text")?.map(PromptText::from);
    let name = || options.required_text("name");
    let order = || options.number("order").map(Option::unwrap_or_default);
    let text = |options: &Options<'_>| match (fixed.clone(), computed.clone()) {
        (Some(_), Some(_)) => Err(options.bad("give a text or a function, not both")),
        (fixed, computed) => fixed.or(computed).ok_or_else(|| options.bad("`text` is missing")),
    };
    let prompt = ctx.prompt();
    let registration = match kind.as_str() {
        "section" => prompt.section(&name()?, order()?, text(&options)?)?,
        "complete" => prompt.complete_section(&name()?, order()?, text(&options)?)?,
        "context" => prompt.context(&name()?, order()?, text(&options)?)?,
        // A variable without a text is registered and has no value.
        "variable" => match (&fixed, &computed) {
            (None, None) => prompt.variable(&name()?, PromptText::dynamic(|_| Ok(None)))?,
            _ => prompt.variable(&name()?, text(&options)?)?,
        },
        "persona" => prompt.persona(text(&options)?)?,
        "identity" => prompt.identity()?,
        "suppress-contexts" => prompt.suppress_contexts()?,
        "tool-order" => {
            let order = match options.texts("names")? {
                Some(names) => ToolOrder::listed(names)?,
                None => ToolOrder::by_name(),
            };
            options.finish()?;
            prompt.set_tool_order(order);
            return Ok(None);
        }
        other => return Err(options.bad(&format!("there is no prompt input of kind {other:?}"))),
    };
    match options.finish() {
        Ok(()) => Ok(Some(registration)),
        Err(error) => {
            registration.dispose();
            Err(error)
        }
    }
}
