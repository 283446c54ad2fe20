//! Fallback routes: an ordered list of where to ask when a route fails for good.
//!
//! The plug-in answers `agent/request-error` with another attempt in the same step, and `agent/request` with the next
//! route of the list. Both are in the log: `llm/fallback` says why, the new request header says where. What a failed
//! attempt had said is cited by no message, so nothing is said twice. The rest of the turn stays with the route that
//! worked; the next turn begins with the first again.

use super::CallConfig;
use crate::agent::{Recovery, RequestErrorEvent, RequestEvent};
use crate::context::{Context, Registration};
use crate::error::{Code, Error, Result};
use crate::events::Next;
use crate::id::SessionId;
use crate::json::{Object, Value};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Failures after which another route would be asked the same for nothing.
const FINAL: [&str; 2] = ["ABORTED", "INVALID_REQUEST"];

/// Where a session's turn has come to.
struct Place {
    turn: u64,
    /// What was asked for before the first fallback.
    first: CallConfig,
    /// How many routes of the list have been taken.
    taken: usize,
}

struct Fallback {
    routes: Vec<CallConfig>,
    places: RefCell<HashMap<SessionId, Place>>,
}

/// Lets failed requests of this context's agents fall back to these routes, in order. A route is a config of provider and
/// model; what else it holds overrides the request's, and a reasoning effort is not carried over to another model.
/// Failures that concern the request itself (`INVALID_REQUEST`) and cancellations do not fall back. Retries of a
/// route come first if the retry plug-in is there.
pub fn install(ctx: &Context, routes: Vec<CallConfig>) -> Result<Registration> {
    if routes.is_empty() || routes.iter().any(|route| route.provider.is_empty() || route.model.is_empty()) {
        return Err(Error::new(Code::InvalidArgument, "fallback routes are a non-empty list of provider and model"));
    }
    let fallback = Rc::new(Fallback { routes, places: RefCell::default() });
    let asked = fallback.clone();
    let requests = ctx.waterfall::<RequestEvent, _>(move |event, next| choose(asked.clone(), event, next))?;
    let failures = ctx.waterfall::<RequestErrorEvent, _>(move |event, next| recover(fallback.clone(), event, next))?;
    ctx.effect(move || {
        drop(requests.dispose());
        drop(failures.dispose());
    })
}

async fn choose(fallback: Rc<Fallback>, event: Rc<RequestEvent>, next: Next<CallConfig>) -> Result<CallConfig> {
    let config = next.call().await?;
    let id = event.agent.session().id().clone();
    let mut places = fallback.places.borrow_mut();
    let Some(place) = places.get(&id) else { return Ok(config) };
    if place.turn == event.turn {
        return Ok(match place.taken.checked_sub(1).and_then(|at| fallback.routes.get(at)) {
            Some(route) => over(&place.first, route),
            None => config,
        });
    }
    // The log's header still holds the route that the last turn fell back to.
    let Some(place) = places.remove(&id) else { return Ok(config) };
    let last = place.taken.checked_sub(1).and_then(|at| fallback.routes.get(at));
    let is_ours = last.is_some_and(|last| last.provider == config.provider && last.model == config.model);
    Ok(if is_ours { place.first } else { config })
}

/// A request's config on another route.
fn over(first: &CallConfig, route: &CallConfig) -> CallConfig {
    CallConfig {
        provider: route.provider.clone(),
        model: route.model.clone(),
        reasoning_effort: route.reasoning_effort.clone(),
        temperature: route.temperature.or(first.temperature),
        max_tokens: route.max_tokens.or(first.max_tokens),
        stop: route.stop.clone().or_else(|| first.stop.clone()),
    }
}

async fn recover(fallback: Rc<Fallback>, event: Rc<RequestErrorEvent>, next: Next<Recovery>) -> Result<Recovery> {
    if next.call().await? == Recovery::Retry {
        return Ok(Recovery::Retry);
    }
    if FINAL.contains(&event.failure.code.as_str()) || event.signal.is_cancelled() {
        return Ok(Recovery::Terminal);
    }
    let session = event.agent.session();
    let Some(header) = session.request_header() else { return Ok(Recovery::Terminal) };
    let mut asked = header.config.clone();
    if header.adapter_defaults.max_tokens {
        asked.max_tokens = None;
    }
    if header.adapter_defaults.reasoning_effort {
        asked.reasoning_effort = None;
    }
    let to = {
        let mut places = fallback.places.borrow_mut();
        let fresh = || Place { turn: event.turn, first: asked.clone(), taken: 0 };
        let place = places.entry(session.id().clone()).or_insert_with(fresh);
        if place.turn != event.turn {
            *place = fresh();
        }
        // A route that was just asked is not worth asking again.
        let rest = fallback.routes.iter().enumerate().skip(place.taken);
        let mut others = rest.filter(|(_, route)| route.provider != asked.provider || route.model != asked.model);
        let Some((at, route)) = others.next() else { return Ok(Recovery::Terminal) };
        place.taken = at + 1;
        route.clone()
    };
    let route = |provider: &str, model: &str| {
        let mut object = Object::new();
        object.insert("provider", provider);
        object.insert("model", model);
        Value::Object(object)
    };
    let mut data = Object::new();
    data.insert("turn", event.turn);
    data.insert("step", event.step);
    data.insert("from", route(&asked.provider, &asked.model));
    data.insert("to", route(&to.provider, &to.model));
    data.insert("failure", event.failure.to_value());
    session.append("llm/fallback", Value::Object(data))?;
    Ok(Recovery::Retry)
}
