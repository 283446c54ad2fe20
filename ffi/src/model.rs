//! Model routes: the adapters of the library, and adapters written in C.

use crate::context::{on_context, registered};
use crate::guard::Text;
use crate::guard::{UserData, enter, function, json, name, out, release, retain, shared};
use crate::handles::{self, Kind, Object};
use crate::signal::Mirror;
use crate::types::*;
use std::ffi::c_void;
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::error::Result;
use turnwheel::host::{self, ChunkSink, HostAdapter, Options, error_from_value, model_info};
use turnwheel::json::Value;
use turnwheel::llm::ModelRequest;
use turnwheel::runtime::SignalGuard;

/// One request to an adapter of C.
struct Answer {
    request: Text,
    signal: Arc<Mirror>,
    sink: ChunkSink,
}

/// Lets an adapter of the library serve a provider route.
///
/// `adapter` names a `kind`. Over HTTP: `openai-chat`, `openai-responses`, `anthropic-messages`, with `{"baseUrl",
/// "apiKey"?, "apiKeyEnv"?, "headers"?, "firstByteTimeoutMs"?, "idleTimeoutMs"?, "eventIdleTimeoutMs"?, "totalTimeoutMs"?,
/// "connectTimeoutMs"?, "allowInsecureHttp"?, "caFile"?, "proxy"?, "http2"?, "imagesFolder"?, "extra"?, "models"?}`.
/// `scripted` answers from `{"replies"?: [{"text"?, "calls"?, …}], "otherwise"?}`. For tests: `{"kind": "faulty", "faults",
/// "inner"}` and `{"kind": "record", "path", "inner"}` stand around the adapter `inner`; `{"kind": "replay", "path"}` plays
/// a recording. A fault is `{"kind": "none" | "stall" | "cut" | "fail" | "crumble", "after"?, "failure"?}`.
///
/// Statuses: `DUPLICATE_ADAPTER`, `UNKNOWN_OPTION`, `INVALID_ARGUMENT`. Ownership as for `tw_context_on`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_model(
    context: *mut tw_context,
    provider: tw_str,
    adapter: tw_str,
    registration: *mut *mut tw_registration,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (provider, adapter) = (name(provider, "provider")?, json(adapter, "adapter")?);
        registered(context, registration, move |_, ctx| {
            let adapter = host::adapter(Options::new(&adapter, "an adapter")?)?;
            ctx.llm().register_shared(&[&provider], adapter).map(Some)
        })
    })
}

/// Lets an adapter written in C serve a provider route.
///
/// `serve` gets a `tw_answer` for each request: push chunks, then finish or fail, now or later, on any thread.
/// `models` says what is known of models, by name: `{"<model>": {"contextWindow"?, "defaultMaxTokens"?, "efforts"?,
/// "defaultEffort"?, "inputModalities"?}}`; it may be empty.
///
/// Statuses and ownership as for `tw_context_model`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_adapter(
    context: *mut tw_context,
    provider: tw_str,
    models: tw_str,
    serve: tw_answer_fn,
    user_data: *mut c_void,
    drop: tw_drop_fn,
    registration: *mut *mut tw_registration,
    error: *mut *mut tw_error,
) -> tw_status {
    let user = UserData::new(user_data, drop);
    enter(error, || {
        let (provider, models, serve) = (name(provider, "provider")?, json(models, "models")?, function(serve)?);
        registered(context, registration, move |_, ctx| {
            let mut adapter = HostAdapter::new(move |request, sink| Some(Box::pin(ask(serve, &user, &request, sink))));
            for (name, info) in models.as_object().into_iter().flat_map(turnwheel::json::Object::iter) {
                adapter = adapter.model(name, model_info(Options::new(info, &format!("model `{name}`"))?)?);
            }
            ctx.llm().register_shared(&[&provider], Rc::new(adapter)).map(Some)
        })
    })
}

/// Calls the adapter, and keeps the signal's mirror alive as long as the answer is read.
fn ask(
    serve: unsafe extern "C" fn(*mut c_void, *mut tw_answer),
    user: &UserData,
    request: &ModelRequest,
    sink: ChunkSink,
) -> impl Future<Output = Result<()>> + use<> {
    let (signal, guard) = Mirror::of(&request.signal);
    let request = Text::new(host::request_value(request).to_text());
    let answer = Arc::new(Answer { request, signal, sink });
    let handle = handles::insert(Kind::Answer, Object::Shared(answer));
    // SAFETY: the interface asks for a function that takes its own `user_data` and a borrowed answer.
    unsafe { serve(user.ptr, handle as *mut tw_answer) };
    handles::release(Kind::Answer, handle);
    hold(guard)
}

/// Never ends by itself: the sink's end is the answer's.
async fn hold(guard: SignalGuard) -> Result<()> {
    let _guard = guard;
    std::future::pending().await
}

/// Keeps the answer open behind the callback. Each retain needs a release; the last release of an answer that is not
/// finished fails it.
#[unsafe(no_mangle)]
pub extern "C" fn tw_answer_retain(answer: *mut tw_answer) {
    retain(answer);
}

/// Takes a reference away. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_answer_release(answer: *mut tw_answer) {
    release(answer);
}

/// The request: `{"config", "system"?, "tools"?, "messages", "sessionId"?}`.
///
/// `*request` is borrowed until the last reference to `answer` is released.
#[unsafe(no_mangle)]
pub extern "C" fn tw_answer_request(
    answer: *mut tw_answer,
    request: *mut tw_str,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let answer: Arc<Answer> = shared(answer)?;
        Ok(out(request, "request")?.set(answer.request.view()))
    })
}

/// The signal that fires when the turn is cancelled: stop then, and finish or fail. The caller owns `*signal`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_answer_signal(
    answer: *mut tw_answer,
    signal: *mut *mut tw_signal,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let answer: Arc<Answer> = shared(answer)?;
        crate::signal::write(&answer.signal, signal)
    })
}

/// Adds a chunk, on any thread. Never waits.
///
/// `chunk`: `{"type": "block-start", "index", "blockType"}`, `{"type": "text-delta", "index", "text"}`, `reasoning-delta`,
/// `tool-call-delta`, `block-end`, `usage` or `{"type": "finish", "reason": {"kind": "stop"}}`.
///
/// Statuses: `MALFORMED_CHUNK`; `ABORTED` when nobody reads any more: stop.
#[unsafe(no_mangle)]
pub extern "C" fn tw_answer_push(answer: *mut tw_answer, chunk: tw_str, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let answer: Arc<Answer> = shared(answer)?;
        answer.sink.push(&json(chunk, "chunk")?)?;
        Ok(TW_OK)
    })
}

/// Ends the answer, behind the chunks pushed so far. Only the first end counts.
#[unsafe(no_mangle)]
pub extern "C" fn tw_answer_finish(answer: *mut tw_answer, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let answer: Arc<Answer> = shared(answer)?;
        answer.sink.finish(Ok(()));
        Ok(TW_OK)
    })
}

/// Ends the answer with a failure: `why` is a text, `{"message", "code"?, "name"?}`, or with a member `failure` of
/// `{"message", "code", "status"?, "providerRetryAfterMs"?}` what a provider reported.
#[unsafe(no_mangle)]
pub extern "C" fn tw_answer_fail(answer: *mut tw_answer, why: tw_str, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let answer: Arc<Answer> = shared(answer)?;
        answer.sink.finish(Err(error_from_value(&json(why, "why")?)));
        Ok(TW_OK)
    })
}

/// The registered provider routes as a JSON list, sorted. The caller owns `*providers`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_context_providers(
    context: *mut tw_context,
    providers: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(providers, "providers")?;
        let providers = on_context(context, |_, ctx| {
            let providers = ctx.llm().providers().iter().map(Value::from).collect::<Vec<_>>();
            Ok(Value::from(providers).to_text())
        })?;
        Ok(target.text(providers))
    })
}
