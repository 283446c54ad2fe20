//! What belongs to a model route besides its adapter, and the doubles for models, from JSON options.

use super::options::Options;
use crate::error::{Error, Result};
use crate::json::{Object, Value};
use crate::llm::{Adapter, CallConfig, Failure, RateLimits, RetryMode, RetryPolicy, RouteOptions};
use crate::testing::{Cassette, Fault, Faulty};
use std::rc::Rc;

/// `{"retry"?, "requestsPerMinute"?, "tokensPerMinute"?}`; see [`retry_policy`].
pub fn route_options(options: Options<'_>) -> Result<RouteOptions> {
    let retry = match options.value("retry") {
        Some(value) => retry_policy(options.nested(value, "a retry policy")?)?,
        None => RetryPolicy::default(),
    };
    let limits = RateLimits {
        requests_per_minute: options.count("requestsPerMinute")?,
        tokens_per_minute: options.count("tokensPerMinute")?,
    };
    options.finish()?;
    Ok(RouteOptions { retry, limits: Some(limits).filter(|limits| *limits != RateLimits::default()) })
}

/// `{"mode"?, "maxRetries"?, "retryableCodes"?, "initialDelayMs"?, "maxDelayMs"?, "jitterRatio"?}` over the defaults
/// (RTY-02); the mode is `normal` or `always`.
pub fn retry_policy(options: Options<'_>) -> Result<RetryPolicy> {
    let mut policy = RetryPolicy::default();
    let (retries, codes) = (options.count("maxRetries")?, options.texts("retryableCodes")?);
    if let RetryMode::Normal { max_retries, retryable_codes } = &mut policy.mode {
        *max_retries = retries.unwrap_or(*max_retries);
        *retryable_codes = codes.unwrap_or_else(|| std::mem::take(retryable_codes));
    }
    match options.text("mode")?.as_deref() {
        None | Some("normal") => {}
        Some("always") => policy.mode = RetryMode::Always,
        Some(other) => return Err(options.bad(&format!("the mode is \"normal\" or \"always\", not {other:?}"))),
    }
    let ms = |limit: Option<std::time::Duration>, otherwise: f64| {
        limit.map_or(otherwise, |limit| limit.as_secs_f64() * 1000.0)
    };
    policy.backoff.initial_delay_ms = ms(options.duration("initialDelay")?, policy.backoff.initial_delay_ms);
    policy.backoff.max_delay_ms = ms(options.duration("maxDelay")?, policy.backoff.max_delay_ms);
    policy.backoff.jitter_ratio = options.number("jitterRatio")?.unwrap_or(policy.backoff.jitter_ratio);
    options.finish()?;
    policy.check()?;
    Ok(policy)
}

/// A policy as [`retry_policy`] reads it, with every member that its mode has, in camel case and milliseconds (STEP-7).
pub fn retry_policy_value(policy: &RetryPolicy) -> Value {
    let mut object = Object::new();
    match &policy.mode {
        RetryMode::Normal { max_retries, retryable_codes } => {
            object.insert("mode", "normal");
            object.insert("maxRetries", *max_retries);
            object.insert("retryableCodes", retryable_codes.iter().map(Value::from).collect::<Vec<_>>());
        }
        RetryMode::Always => {
            object.insert("mode", "always");
        }
    }
    object.insert("initialDelayMs", policy.backoff.initial_delay_ms);
    object.insert("maxDelayMs", policy.backoff.max_delay_ms);
    object.insert("jitterRatio", policy.backoff.jitter_ratio);
    object.into()
}

/// A fallback route: `{"provider", "model", "reasoningEffort"?, "temperature"?, "maxTokens"?, "stop"?}`.
pub fn fallback_route(options: Options<'_>) -> Result<CallConfig> {
    let config = CallConfig {
        provider: options.required_text("provider")?,
        model: options.required_text("model")?,
        reasoning_effort: options.text("reasoningEffort")?,
        temperature: options.number("temperature")?,
        max_tokens: options.count("maxTokens")?,
        stop: options.texts("stop")?,
    };
    options.finish()?;
    Ok(config)
}

/// A double for a model: `{"kind": "faulty", "faults"}` or `{"kind": "record", "path"}` around `inner`, or
/// `{"kind": "replay", "path"}`. A fault is `{"kind": "none" | "stall" | "cut" | "fail" | "crumble", "after"?, "failure"?}`.
pub fn model_double(options: Options<'_>, inner: Option<Rc<dyn Adapter>>) -> Result<Rc<dyn Adapter>> {
    let kind = options.required_text("kind")?;
    let needs_inner = || -> Error { options.bad("it stands around another adapter, which is missing") };
    let double: Rc<dyn Adapter> = match kind.as_str() {
        "faulty" => {
            let list = options.read("faults", "a list of faults", |value| value.as_array().map(<[Value]>::to_vec))?;
            let faults = list.unwrap_or_default();
            let faults =
                faults.iter().map(|value| fault(options.nested(value, "a fault")?)).collect::<Result<Vec<_>>>()?;
            Rc::new(Faulty::shared(inner.ok_or_else(needs_inner)?, faults))
        }
        "record" => Rc::new(Cassette::record_shared(options.required_text("path")?, inner.ok_or_else(needs_inner)?)?),
        "replay" => Rc::new(Cassette::replay(options.required_text("path")?)?),
        other => return Err(options.bad(&format!("there is no double of kind {other:?}"))),
    };
    options.finish()?;
    Ok(double)
}

fn fault(options: Options<'_>) -> Result<Fault> {
    let after = options.count("after")?.and_then(|after| usize::try_from(after).ok()).unwrap_or(0);
    let failure = options.read("failure", "failure facts: {\"code\", \"message\", …}", Failure::from_value)?;
    let fault = match (options.required_text("kind")?.as_str(), failure) {
        ("none", _) => Fault::None,
        ("stall", _) => Fault::Stall(after),
        ("cut", _) => Fault::Cut(after),
        ("crumble", _) => Fault::Crumble,
        ("fail", Some(failure)) => Fault::Fail(after, failure),
        ("fail", None) => return Err(options.bad("`failure` is missing")),
        (other, _) => return Err(options.bad(&format!("there is no fault {other:?}"))),
    };
    options.finish()?;
    Ok(fault)
}
