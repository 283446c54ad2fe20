//! What belongs to a context besides its models and tools: policies of routes, presentation, event types, initiators.

use crate::context::{on, on_context, registered};
use crate::guard::{enter, function, json, name, out};
use crate::types::*;
use std::ffi::c_void;
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::{self, Options};
use turnwheel::tools::{Presentation, schema_of_shorthand};
use turnwheel::{Agent, llm};

/// As `tw_context_model`, with what belongs to the route besides its adapter.
///
/// `options`: `{"retry"?, "requestsPerMinute"?, "tokensPerMinute"?}`; `retry` is `{"mode"?: "normal" | "always",
/// "maxRetries"?, "retryableCodes"?, "initialDelayMs"?, "maxDelayMs"?, "jitterRatio"?}`, carried out where
/// `tw_context_retry` is in force (RTY).
///
/// Statuses and ownership as for `tw_context_model`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_route(
    context: *mut tw_context,
    provider: tw_str,
    adapter: tw_str,
    options: tw_str,
    registration: *mut *mut tw_registration,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (provider, adapter) = (name(provider, "provider")?, json(adapter, "adapter")?);
        let options = host::route_options(Options::new(&json(options, "options")?, "a route")?)?;
        registered(context, registration, move |_, ctx| {
            let adapter = host::adapter(Options::new(&adapter, "an adapter")?)?;
            ctx.llm().register_with(&[&provider], adapter, options).map(Some)
        })
    })
}

/// Carries out the retry policies of routes for the agents of this context (RTY).
///
/// Statuses: `INACTIVE_EFFECT`. The caller owns `*registration`, which may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_retry(
    context: *mut tw_context,
    registration: *mut *mut tw_registration,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || registered(context, registration, |_, ctx| llm::retry::install(ctx).map(Some)))
}

/// Lets requests that failed fall back to other routes, in their order.
///
/// `routes`: a list of `{"provider", "model", "reasoningEffort"?, "temperature"?, "maxTokens"?, "stop"?}`.
///
/// Statuses: `INVALID_JSON`, `INVALID_ARGUMENT`, `UNKNOWN_OPTION`, `INACTIVE_EFFECT`. The caller owns `*registration`,
/// which may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_fallback(
    context: *mut tw_context,
    routes: tw_str,
    registration: *mut *mut tw_registration,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let routes = json(routes, "routes")?;
        let list =
            routes.as_array().ok_or_else(|| Error::new(Code::InvalidArgument, "`routes` is a list of routes"))?;
        let read = |value| host::fallback_route(Options::new(value, "a fallback route")?);
        let routes = list.iter().map(read).collect::<Result<Vec<_>>>()?;
        registered(context, registration, move |_, ctx| llm::fallback::install(ctx, routes).map(Some))
    })
}

/// Sets how the tools of this context's scope are presented to the model: `native`, `code` or `both` (DEF-09).
///
/// What runs the programs is a tool named `run_code`, made with `tw_context_tool`; it calls others by `tw_call_tool`.
///
/// Statuses: `INVALID_ARGUMENT`, `DUPLICATE_NAME` when the scope has declared one, `INACTIVE_EFFECT`. The caller owns
/// `*registration`, which may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_present(
    context: *mut tw_context,
    mode: tw_str,
    registration: *mut *mut tw_registration,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let mode = name(mode, "mode")?;
        let known = Presentation::parse(&mode).ok_or_else(|| {
            let message = format!("a presentation is native, code or both, not {mode:?}");
            Error::new(Code::InvalidArgument, message)
        })?;
        registered(context, registration, move |_, ctx| ctx.tools().present(known).map(Some))
    })
}

/// Announces a type of plug-in events and the version that this program writes (D-21). It stays for the context's life.
///
/// Statuses: `INVALID_ARGUMENT`, `RESERVED_EVENT`, `DUPLICATE_NAME`, `INACTIVE_EFFECT`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_event_type(
    context: *mut tw_context,
    kind: tw_str,
    version: u32,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let kind = name(kind, "kind")?;
        on_context(context, |_, ctx| ctx.register_event_type(&kind, version))?;
        Ok(TW_OK)
    })
}

/// Runs `operation` on the runtime's thread with `agent` as the initiator of what it calls (INI); NULL for nobody.
///
/// It returns when `operation` has. `user_data` is passed on and not kept.
///
/// Statuses: `INVALID_ARGUMENT`, `INVALID_HANDLE`, `DISPOSED` of a context that is closed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_with_initiator(
    context: *mut tw_context,
    agent: *mut tw_agent,
    operation: tw_drop_fn,
    user_data: *mut c_void,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (operation, data) = (function(operation)?, user_data as usize);
        let run = move || {
            // SAFETY: the interface asks for a function that takes `user_data`; it runs once, before this call returns.
            unsafe { operation(data as *mut c_void) }
        };
        match agent.is_null() {
            true => on_context(context, move |_, ctx| ctx.without_initiator(run))?,
            false => {
                let ctx = crate::context::local(<tw_context as Handle>::KIND, context as usize)?.1;
                on::<tw_agent, Agent, ()>(agent, move |core, agent| {
                    core.value::<turnwheel::Context>(ctx)?.with_initiator(agent, run)
                })?;
            }
        }
        Ok(TW_OK)
    })
}

/// The JSON schema that a shorthand stands for, checked: a property says `required: true` itself, an object states
/// `additionalProperties`, and `type: "json"` is any JSON.
///
/// Statuses: `INVALID_JSON`, `UNSUPPORTED_SCHEMA`. The caller owns `*schema`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_schema_of_shorthand(
    shorthand: tw_str,
    schema: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (shorthand, target) = (json(shorthand, "shorthand")?, out(schema, "schema")?);
        Ok(target.text(schema_of_shorthand(&shorthand)?.to_text()))
    })
}
