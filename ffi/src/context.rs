//! Contexts and registrations.

use crate::basics::runtime_of;
use crate::future::start;
use crate::guard::{UserData, enter, json, maybe, name, out, release, retain, text};
use crate::handles::{self, Kind, Object};
use crate::listen::ask_reply;
use crate::question::{Question, put};
use crate::runtime::{Core, Shared};
use crate::types::*;
use std::ffi::c_void;
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::context::Registration;
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::{self, Options, Setup};
use turnwheel::json::Value;
use turnwheel::runtime::{LocalBoxFuture, Signal};
use turnwheel::system_prompt::PromptText;
use turnwheel::{Context, json as value};

/// Runs `operation` on the thread of a handle's value.
pub fn on<H: Handle, V: 'static, T: Send>(
    handle: *const H,
    operation: impl FnOnce(&Rc<Core>, &V) -> Result<T> + Send,
) -> Result<T> {
    let (shared, key) = local(H::KIND, handle as usize)?;
    shared.call(move |core| operation(core, &*core.value::<V>(key)?))
}

/// The place of a handle's value.
pub fn local(kind: Kind, handle: usize) -> Result<(Arc<Shared>, u64)> {
    match handles::get(kind, handle)? {
        Object::Local(shared, key) => Ok((shared, key)),
        Object::Shared(_) => Err(Error::new(Code::InvalidHandle, "this handle is of another type")),
    }
}

/// Runs `operation` with a context on its thread.
pub fn on_context<T: Send>(
    context: *mut tw_context,
    operation: impl FnOnce(&Rc<Core>, &Context) -> Result<T> + Send,
) -> Result<T> {
    on::<tw_context, Context, T>(context, operation)
}

/// Registers something and writes the registration, if it is wanted.
pub fn registered(
    context: *mut tw_context,
    registration: *mut *mut tw_registration,
    register: impl FnOnce(&Rc<Core>, &Context) -> Result<Option<Registration>> + Send,
) -> Result<tw_status> {
    let target = maybe(registration);
    let wanted = target.is_some();
    let handle = on_context(context, |core, ctx| {
        let registration = register(core, ctx)?;
        Ok(registration.filter(|_| wanted).map(|made| core.handle(Kind::Registration, made)))
    })?;
    if let Some(target) = target {
        target.set(handle.unwrap_or(0) as *mut tw_registration);
    }
    Ok(TW_OK)
}

/// Writes a new future.
pub fn promised(target: crate::guard::Out<*mut tw_future>, future: usize) -> tw_status {
    target.set(future as *mut tw_future)
}

/// The result of what has none.
pub fn empty() -> String {
    "null".to_owned()
}

/// Makes a root context on a runtime.
///
/// `options`: `{"store"?, "durability"?, "maxParallelToolCalls"?, "maxToolResultBytes"?, "turnBudget"?, "agentBudget"?, "turnTimeoutMs"?,
/// "loop"?}`. `store` is `{"kind": "jsonl", "root", "compression"?, "packChunks"?}` or `{"kind": "sqlite", "path"}`;
/// `durability` is `effects`, `every-event`, `turn` or `relaxed`; a budget is `{"steps"?, "toolCalls"?, "tokens"?,
/// "wallMs"?}`.
///
/// Statuses: `INVALID_JSON`, `UNKNOWN_OPTION`, `INVALID_ARGUMENT`, `RUNTIME_CLOSED`.
///
/// The caller owns one reference of `*context`. The context lives until `tw_context_close` or its runtime's end.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_new(
    runtime: *mut tw_runtime,
    options: tw_str,
    context: *mut *mut tw_context,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (shared, options, target) = (runtime_of(runtime)?, json(options, "options")?, out(context, "context")?);
        let handle = shared.call(|core| {
            let ctx = host::context_builder(Options::new(&options, "a context")?)?.try_build()?;
            core.adopt(ctx.clone());
            Ok(core.handle(Kind::Context, ctx))
        })?;
        Ok(target.set(handle as *mut tw_context))
    })
}

/// Adds a reference.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_retain(context: *mut tw_context) {
    retain(context);
}

/// Takes a reference away. NULL is allowed. What was registered stays.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_release(context: *mut tw_context) {
    release(context);
}

/// Disposes every agent of a root context, makes everything durable and undoes what was registered.
///
/// Statuses of the future: `SELF_WAIT` inside a turn of its own agents; the store's error if events could not be stored.
///
/// The caller owns `*future`; its result is `null`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_close(
    context: *mut tw_context,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(future, "future")?;
        let future = on_context(context, |core, ctx| {
            let closing = ctx.clone();
            Ok(start(core, ctx.runtime(), Box::pin(async move { closing.close().await.map(|()| empty()) })))
        })?;
        Ok(promised(target, future))
    })
}

/// Mints a scope of one's own: a context whose registrations are seen in it only, and end with `tw_context_end`.
///
/// Statuses: `INACTIVE_EFFECT`. The caller owns `*scope`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_scope(
    context: *mut tw_context,
    scope: *mut *mut tw_context,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(scope, "scope")?;
        let handle = on_context(context, |core, ctx| Ok(core.handle(Kind::Context, ctx.new_scope()?.ctx().clone())))?;
        Ok(target.set(handle as *mut tw_context))
    })
}

/// Undoes everything that was registered through a context, newest first, for contexts that `tw_context_scope` made.
///
/// The caller owns `*future`; its result is `null`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_end(
    context: *mut tw_context,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(future, "future")?;
        let future = on_context(context, |core, ctx| {
            let fiber = ctx.fiber().clone();
            Ok(start(
                core,
                ctx.runtime(),
                Box::pin(async move {
                    fiber.dispose().await;
                    Ok(empty())
                }),
            ))
        })?;
        Ok(promised(target, future))
    })
}

/// Undoes a registration; a second call does nothing. What it waits for goes on in the background.
///
/// Statuses: `INVALID_HANDLE`, `RUNTIME_CLOSED`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_registration_dispose(registration: *mut tw_registration, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        on::<tw_registration, Registration, ()>(registration, |_, registration| {
            // Its owner finishes a cleanup that waits for something.
            drop(registration.dispose());
            Ok(())
        })?;
        Ok(TW_OK)
    })
}

/// Adds a reference.
#[unsafe(no_mangle)]
pub extern "C" fn tw_registration_retain(registration: *mut tw_registration) {
    retain(registration);
}

/// Takes a reference away; the registration stays in force. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_registration_release(registration: *mut tw_registration) {
    release(registration);
}

/// Opens an agent: resumes what the store has under `id`, or creates it.
///
/// `options`: `{"provider"?, "model"?, "maxTokens"?, "cwd"?, "mode"?, "fork"?, "seed"?, "log"?, "parentSession"?,
/// "seedLength"?, "origin"?, "delegationDepth"?, "agentPreset"?}`. `mode` is `open`, `create` or `resume`; `fork` is
/// `{"from", "at"?}`; `seed` a list of events; `log` what `tw_session_export` gives.
/// `setup` may be NULL. It composes the agent through its own context before anybody can see it, and answers its `reply`;
/// `drop` frees `user_data`.
///
/// Statuses: `INVALID_JSON`, `UNKNOWN_OPTION`, `INVALID_ARGUMENT`, `INVALID_HEADER`, and of the future
/// `SESSION_ALREADY_EXISTS`, `SESSION_NOT_FOUND`, `SESSION_LOCKED`, what the setup failed with.
///
/// The caller owns `*future`. Its result is `{"agentId"}`: get the handle with `tw_context_agent`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_open(
    context: *mut tw_context,
    id: tw_str,
    options: tw_str,
    setup: tw_setup_fn,
    user_data: *mut c_void,
    drop: tw_drop_fn,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    let user = UserData::new(user_data, drop);
    enter(error, || {
        let (id, options, target) = (name(id, "id")?, json(options, "options")?, out(future, "future")?);
        let future = on_context(context, |core, ctx| {
            let compose = setup.map(|setup| composing(core, setup, user, id.clone()));
            let opening =
                host::open_agent(ctx, &id, Options::new(&options, "an agent")?, Setup { compose, signal: None })?;
            Ok(start(
                core,
                ctx.runtime(),
                Box::pin(async move {
                    let agent = opening.await?;
                    Ok(value!({"agentId": agent.id().as_str()}).to_text())
                }),
            ))
        })?;
        Ok(promised(target, future))
    })
}

/// A setup of C as the core runs it.
fn composing(
    core: &Rc<Core>,
    setup: unsafe extern "C" fn(*mut c_void, *mut tw_context, *mut tw_reply),
    user: UserData,
    id: String,
) -> host::AgentSetup {
    let core = Rc::downgrade(core);
    Box::new(move |ctx| {
        Box::pin(async move {
            let core = core.upgrade().ok_or_else(crate::runtime::closed)?;
            let asked = ask_setup(&core, setup, &user, "an agent's setup", value!({"agentId": id}), ctx);
            // The runtime must not be kept alive by what it waits for.
            std::mem::drop(core);
            asked.await.map(std::mem::drop)
        })
    })
}

/// Puts a question to a `tw_setup_fn`: the context's handle is borrowed until it returns.
pub fn ask_setup(
    core: &Rc<Core>,
    setup: unsafe extern "C" fn(*mut c_void, *mut tw_context, *mut tw_reply),
    user: &UserData,
    what: &str,
    payload: Value,
    ctx: Context,
) -> LocalBoxFuture<Result<Option<Value>>> {
    let context = core.handle(Kind::Context, ctx);
    let (question, guard) = Question::new(Kind::Reply, what, payload.to_text(), None, &Signal::new());
    // SAFETY: the interface asks for a function that takes its own `user_data` and borrowed handles.
    let asked = put(question, guard, None, |handle| unsafe {
        setup(user.ptr, context as *mut tw_context, handle as *mut tw_reply);
    });
    handles::release(Kind::Context, context);
    asked
}

/// The live agent of an id.
///
/// Statuses: `TW_NONE` when there is none, and `*agent` is NULL. The caller owns one reference of `*agent`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_agent(
    context: *mut tw_context,
    id: tw_str,
    agent: *mut *mut tw_agent,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (id, target) = (text(id, "id")?, out(agent, "agent")?);
        let handle =
            on_context(context, |core, ctx| Ok(ctx.find_agent(&id).map(|agent| core.handle(Kind::Agent, agent))))?;
        target.set(handle.unwrap_or(0) as *mut tw_agent);
        Ok(if handle.is_some() { TW_OK } else { TW_NONE })
    })
}

/// The ids of the live agents as a JSON list, in order of registration. The caller owns `*ids`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_agents(
    context: *mut tw_context,
    ids: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(ids, "ids")?;
        let ids = on_context(context, |_, ctx| {
            let ids = ctx.agents().iter().map(|agent| Value::from(agent.id().as_str())).collect::<Vec<_>>();
            Ok(Value::from(ids).to_text())
        })?;
        Ok(target.text(ids))
    })
}

/// The agent whose turn the calling code is part of (INI), as its id.
///
/// Statuses: `TW_NONE` outside any turn and on foreign threads. The caller owns `*id`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_initiator(
    context: *mut tw_context,
    id: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(id, "id")?;
        let initiator = on_context(context, |_, ctx| {
            Ok(ctx.root().current_initiator().map(|agent| agent.id().as_str().to_owned()))
        })?;
        Ok(match initiator {
            Some(initiator) => target.text(initiator),
            None => {
                target.set(std::ptr::null_mut());
                TW_NONE
            }
        })
    })
}

/// Starts the agents of a list (CFG): `[{"id", "provider"?, "model"?, "maxTokens"?, "cwd"?, "sessionId"?,
/// "resumeSessionId"?}]`. They are owned by the context.
///
/// Statuses: `INVALID_JSON`, `INVALID_ARGUMENT` for a list that cannot be right, before any agent exists.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_start_agents(
    context: *mut tw_context,
    entries: tw_str,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let entries = json(entries, "entries")?;
        on_context(context, |_, ctx| {
            let items = entries.as_array();
            let items = items.ok_or_else(|| Error::new(Code::InvalidArgument, "`entries` is a list"))?;
            let entries =
                items.iter().map(turnwheel::config::ConfiguredAgent::from_value).collect::<Result<Vec<_>>>()?;
            ctx.start_agents(&entries)
        })?;
        Ok(TW_OK)
    })
}

/// Registers an input of the prompt.
///
/// `input`: `{"kind", "name"?, "order"?, "text"?, "names"?}`; the kinds are `section`, `complete`, `context`, `variable`,
/// `persona`, `identity`, `suppress-contexts` and `tool-order`.
/// `compute` may be NULL. Else it stands in for `text` and is asked anew at every assembly: its payload is `{"agentId"}`,
/// and it answers with a text or, for a variable without a value, with nothing.
///
/// Statuses: `INVALID_PROMPT`, `DUPLICATE_NAME`, `UNKNOWN_OPTION`, `INVALID_ARGUMENT`. Ownership as for `tw_context_on`;
/// `tool-order` has no registration.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_prompt(
    context: *mut tw_context,
    input: tw_str,
    compute: tw_reply_fn,
    user_data: *mut c_void,
    drop: tw_drop_fn,
    registration: *mut *mut tw_registration,
    error: *mut *mut tw_error,
) -> tw_status {
    let user = UserData::new(user_data, drop);
    enter(error, || {
        let input = json(input, "input")?;
        registered(context, registration, move |_, ctx| {
            let computed = compute.map(|compute| computed(compute, user));
            host::prompt_input(ctx, Options::new(&input, "a prompt input")?, computed)
        })
    })
}

fn computed(compute: unsafe extern "C" fn(*mut c_void, *mut tw_reply), user: UserData) -> PromptText {
    PromptText::Dynamic(Rc::new(move |agent| {
        let id = agent.id().as_str();
        let payload = value!({"agentId": id}).to_text();
        let asked = ask_reply(compute, &user, "a prompt function", payload, Some(id), &Signal::new());
        Box::pin(async move {
            match asked.await? {
                None => Ok(None),
                Some(Value::String(ref text)) => Ok(Some(text.as_str().into())),
                Some(_) => Err(Error::new(Code::InvalidPrompt, "a prompt function answers with a text or nothing")),
            }
        })
    }))
}

/// Lets a route selection rule the agent of this context (MOD): switch it with `tw_selection_select`.
///
/// `choice`: `{"provider", "model", "reasoningEffort"?}`, or empty for none yet.
///
/// Statuses: `INVALID_ARGUMENT`, `INACTIVE_EFFECT`. The caller owns `*selection`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_selection(
    context: *mut tw_context,
    choice: tw_str,
    selection: *mut *mut tw_selection,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (choice, target) = (host::model_choice(&json(choice, "choice")?)?, out(selection, "selection")?);
        let handle = on_context(context, |core, ctx| {
            let selection = turnwheel::agent::ModelSelection::new(choice);
            selection.install(ctx)?;
            Ok(core.handle(Kind::Selection, selection))
        })?;
        Ok(target.set(handle as *mut tw_selection))
    })
}

/// Switches the route; a step under way keeps what it was assembled with. An empty `choice` selects nothing.
///
/// Statuses: `INVALID_JSON`, `INVALID_ARGUMENT`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_selection_select(
    selection: *mut tw_selection,
    choice: tw_str,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let choice = host::model_choice(&json(choice, "choice")?)?;
        on::<tw_selection, turnwheel::agent::ModelSelection, ()>(selection, |_, selection| {
            selection.select(choice);
            Ok(())
        })?;
        Ok(TW_OK)
    })
}

/// Adds a reference.
#[unsafe(no_mangle)]
pub extern "C" fn tw_selection_retain(selection: *mut tw_selection) {
    retain(selection);
}

/// Takes a reference away; the selection stays in force. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_selection_release(selection: *mut tw_selection) {
    release(selection);
}

/// Forks a bare session, without an agent, from a live one (FORK).
///
/// `at`: the last event taken over; negative for all. `id` may be empty: one is made.
///
/// Statuses: `SESSION_NOT_FOUND`, `SESSION_ALREADY_EXISTS`, `OPEN_TURN`, `INVALID_BOUNDARY`. The caller owns `*session`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_fork_session(
    context: *mut tw_context,
    from: tw_str,
    at: i64,
    id: tw_str,
    session: *mut *mut tw_session,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (from, id, target) = (text(from, "from")?, text(id, "id")?, out(session, "session")?);
        let id = (!id.is_empty()).then(|| id.as_str().into());
        let handle = on_context(context, |core, ctx| {
            Ok(core.handle(Kind::Session, ctx.fork_session(&from, u64::try_from(at).ok(), id)?))
        })?;
        Ok(target.set(handle as *mut tw_session))
    })
}
