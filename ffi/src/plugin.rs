//! Plug-ins and services: parts of an application that load when what they require is there.

use crate::context::{ask_setup, empty, on, on_context, promised, registered};
use crate::future::start;
use crate::guard::{UserData, enter, function, json, name, out, release, retain};
use crate::handles::Kind;
use crate::types::*;
use std::ffi::c_void;
use std::rc::Rc;
use turnwheel::context::{Plugin, PluginState};
use turnwheel::error::{Code, Error, Result};
use turnwheel::json as value;
use turnwheel::json::Value;
use turnwheel::runtime::Runtime;

struct Mounted(Rc<Plugin>, Runtime);

/// Mounts a plug-in. `body` runs soon, through a context of its own, while every required service is there, and again
/// when a provider changes; what it registers is undone with it.
///
/// `required`: a JSON list of service names, or empty.
///
/// Statuses: `INVALID_ARGUMENT`, `INACTIVE_EFFECT`. `drop` frees `user_data` when the plug-in is gone. The caller owns
/// `*plugin`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_plugin(
    context: *mut tw_context,
    required: tw_str,
    body: tw_setup_fn,
    user_data: *mut c_void,
    drop: tw_drop_fn,
    plugin: *mut *mut tw_plugin,
    error: *mut *mut tw_error,
) -> tw_status {
    let user = UserData::new(user_data, drop);
    enter(error, || {
        let (required, body, target) =
            (services(&json(required, "required")?)?, function(body)?, out(plugin, "plugin")?);
        let handle = on_context(context, move |core, ctx| {
            let (weak, user) = (Rc::downgrade(core), Rc::new(user));
            let names: Vec<_> = required.iter().map(String::as_str).collect();
            let plugin = ctx.inject(&names, move |ctx| {
                let (weak, user) = (weak.clone(), user.clone());
                async move {
                    let core = weak.upgrade().ok_or_else(crate::runtime::closed)?;
                    let asked = ask_setup(&core, body, &user, "a plug-in's body", value!({}), ctx);
                    std::mem::drop(core);
                    asked.await.map(std::mem::drop)
                }
            })?;
            Ok(core.handle(Kind::Plugin, Mounted(plugin, ctx.runtime().clone())))
        })?;
        Ok(target.set(handle as *mut tw_plugin))
    })
}

fn services(given: &Value) -> Result<Vec<String>> {
    let bad = || Error::new(Code::InvalidArgument, "`required` is a list of service names");
    match given {
        Value::Null => Ok(Vec::new()),
        _ => given
            .as_array()
            .and_then(|items| items.iter().map(|item| item.as_str().map(str::to_owned)).collect())
            .ok_or_else(bad),
    }
}

/// Adds a reference.
#[unsafe(no_mangle)]
pub extern "C" fn tw_plugin_retain(plugin: *mut tw_plugin) {
    retain(plugin);
}

/// Takes a reference away; the plug-in stays mounted. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_plugin_release(plugin: *mut tw_plugin) {
    release(plugin);
}

/// Where the plug-in is: `pending`, `loading`, `active`, `failed`, `unloading` or `disposed`. Static text.
#[unsafe(no_mangle)]
pub extern "C" fn tw_plugin_state(plugin: *mut tw_plugin, state: *mut tw_str, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let target = out(state, "state")?;
        let state = on::<tw_plugin, Mounted, _>(plugin, |_, plugin| Ok(plugin.0.state()))?;
        let name = match state {
            PluginState::Pending => c"pending",
            PluginState::Loading => c"loading",
            PluginState::Active => c"active",
            PluginState::Failed => c"failed",
            PluginState::Unloading => c"unloading",
            PluginState::Disposed => c"disposed",
        };
        Ok(target.set(tw_str { ptr: name.as_ptr(), len: name.to_bytes().len() }))
    })
}

/// Waits until the plug-in is active; the future fails with what its body failed with, or `INACTIVE_EFFECT`.
///
/// The caller owns `*future`; its result is `null`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_plugin_ready(
    plugin: *mut tw_plugin,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(future, "future")?;
        let future = on::<tw_plugin, Mounted, _>(plugin, |core, plugin| {
            let ready = plugin.0.ready();
            Ok(start(core, &plugin.1, Box::pin(async move { ready.await.map(|()| empty()) })))
        })?;
        Ok(promised(target, future))
    })
}

/// Undoes what the plug-in registered and forgets it. The caller owns `*future`; its result is `null`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_plugin_dispose(
    plugin: *mut tw_plugin,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(future, "future")?;
        let future = on::<tw_plugin, Mounted, _>(plugin, |core, plugin| {
            let disposed = plugin.0.dispose();
            Ok(start(
                core,
                &plugin.1,
                Box::pin(async move {
                    disposed.await;
                    Ok(empty())
                }),
            ))
        })?;
        Ok(promised(target, future))
    })
}

/// Provides a service under a name that is free: `service` is handed out by `tw_context_get` and freed by `drop`.
///
/// Statuses: `DUPLICATE_NAME`, `INACTIVE_EFFECT`. Ownership as for `tw_context_on`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_provide(
    context: *mut tw_context,
    service_name: tw_str,
    service: *mut c_void,
    drop: tw_drop_fn,
    registration: *mut *mut tw_registration,
    error: *mut *mut tw_error,
) -> tw_status {
    let user = UserData::new(service, drop);
    enter(error, || {
        let service_name = name(service_name, "service_name")?;
        registered(context, registration, move |_, ctx| ctx.provide(&service_name, Rc::new(user)).map(Some))
    })
}

/// The service of a name, while its provider is active.
///
/// Statuses: `TW_NONE` when there is none, and `*service` is NULL. It belongs to its provider: use it on the runtime's
/// thread, or know that the provider lives.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_get(
    context: *mut tw_context,
    service_name: tw_str,
    service: *mut *mut c_void,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (service_name, target) = (name(service_name, "service_name")?, out(service, "service")?);
        let found = on_context(context, |_, ctx| Ok(ctx.get::<UserData>(&service_name).map(|user| user.ptr as usize)))?;
        target.set(found.unwrap_or(0) as *mut c_void);
        Ok(if found.is_some() { TW_OK } else { TW_NONE })
    })
}
