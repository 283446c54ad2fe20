//! Retry: a policy for each route, and the plug-in that carries it out (RTY).
//!
//! The count is read from the log, so that it survives a resume and two plug-ins cannot disagree about it. A retry stays in
//! the same turn and step; what the failed attempt said remains in the log and is cited by no message.

use super::Failure;
use crate::agent::{Recovery, RequestErrorEvent};
use crate::context::{Context, Registration};
use crate::error::{Code, Error, Result};
use crate::events::Next;
use crate::json::{Object, Value};
use crate::runtime::Signal;
use crate::session::{CancelCause, EventData, Session};
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

/// The longest delay that timers of every host take.
const LONGEST_MS: f64 = 2_147_483_647.0;

/// When a failed request of a route is made again (RTY-01).
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// How often, and after what.
    pub mode: RetryMode,
    /// How long to wait.
    pub backoff: Backoff,
}

/// How often, and after what, a request is made again.
#[derive(Clone, Debug, PartialEq)]
pub enum RetryMode {
    /// Up to a number of times in a step, after failures of certain codes.
    Normal {
        /// Retries besides the first request; 0 is never.
        max_retries: u64,
        /// The codes of failures that pass; not empty, no duplicates.
        retryable_codes: Vec<String>,
    },
    /// After every failure, until it works or the turn is cancelled.
    Always,
}

/// Waiting times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Before the first retry; each further one waits twice as long.
    pub initial_delay_ms: f64,
    /// The longest wait, and the longest that a provider may ask for.
    pub max_delay_ms: f64,
    /// How far a wait may deviate, from 0 to 1.
    pub jitter_ratio: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial_delay_ms: 500.0, max_delay_ms: 10_000.0, jitter_ratio: 0.1 }
    }
}

impl Default for RetryPolicy {
    /// Five retries after failures that pass by themselves (RTY-02).
    fn default() -> Self {
        let codes = ["EMPTY_RESPONSE", "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT"];
        let retryable_codes = codes.map(str::to_owned).to_vec();
        Self { mode: RetryMode::Normal { max_retries: 5, retryable_codes }, backoff: Backoff::default() }
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidArgument, message)
}

impl RetryPolicy {
    /// A policy that never retries.
    pub fn never() -> Self {
        let Self { mode, backoff } = Self::default();
        let mode = match mode {
            RetryMode::Normal { retryable_codes, .. } => RetryMode::Normal { max_retries: 0, retryable_codes },
            RetryMode::Always => RetryMode::Always,
        };
        Self { mode, backoff }
    }

    /// Reads `{"mode"?, "maxRetries"?, "retryableCodes"?, "backoff"?: {"initialDelayMs"?, "maxDelayMs"?, "jitterRatio"?}}`
    /// over the defaults. Unknown members are refused; `always` ignores those of `normal` (RTY-03).
    pub fn from_value(value: &Value) -> Result<Self> {
        let object = value.as_object().ok_or_else(|| invalid("a retry policy is an object"))?;
        check_members(object, "a retry policy", &["mode", "maxRetries", "retryableCodes", "backoff"])?;
        let mut policy = Self::default();
        if let RetryMode::Normal { max_retries, retryable_codes } = &mut policy.mode {
            if let Some(given) = object.get("maxRetries") {
                *max_retries = given.as_u64().ok_or_else(|| invalid("`maxRetries` is a whole number, 0 or more"))?;
            }
            if let Some(given) = object.get("retryableCodes") {
                let texts = given.as_array().map(|items| items.iter().map(|item| item.as_str().map(str::to_owned)));
                let texts = texts.and_then(Iterator::collect::<Option<Vec<_>>>);
                *retryable_codes = texts.ok_or_else(|| invalid("`retryableCodes` is a list of texts"))?;
            }
        }
        match object.get("mode").map(Value::as_str) {
            None | Some(Some("normal")) => {}
            Some(Some("always")) => policy.mode = RetryMode::Always,
            Some(_) => return Err(invalid("the mode of a retry policy is \"normal\" or \"always\"")),
        }
        if let Some(given) = object.get("backoff") {
            let given = given.as_object().ok_or_else(|| invalid("`backoff` is an object"))?;
            check_members(given, "a backoff", &["initialDelayMs", "maxDelayMs", "jitterRatio"])?;
            let number = |key: &str, otherwise: f64| match given.get(key) {
                None => Ok(otherwise),
                Some(value) => value.as_f64().ok_or_else(|| invalid(format!("`{key}` is a number"))),
            };
            policy.backoff = Backoff {
                initial_delay_ms: number("initialDelayMs", policy.backoff.initial_delay_ms)?,
                max_delay_ms: number("maxDelayMs", policy.backoff.max_delay_ms)?,
                jitter_ratio: number("jitterRatio", policy.backoff.jitter_ratio)?,
            };
        }
        policy.check()?;
        Ok(policy)
    }

    /// Fails for values that no policy can have (RTY-03).
    pub fn check(&self) -> Result<()> {
        let Backoff { initial_delay_ms, max_delay_ms, jitter_ratio } = self.backoff;
        let is_delay = |delay: f64| delay > 0.0 && delay <= LONGEST_MS;
        if !is_delay(initial_delay_ms) || !is_delay(max_delay_ms) || initial_delay_ms > max_delay_ms {
            return Err(invalid(
                "delays are positive, at most 2147483647 ms, and the initial one is not above the maximum",
            ));
        }
        if !(0.0..=1.0).contains(&jitter_ratio) {
            return Err(invalid("the jitter ratio is between 0 and 1"));
        }
        let RetryMode::Normal { retryable_codes, .. } = &self.mode else { return Ok(()) };
        let distinct: HashSet<_> = retryable_codes.iter().collect();
        if distinct.len() != retryable_codes.len()
            || retryable_codes.is_empty()
            || distinct.iter().any(|c| c.is_empty())
        {
            return Err(invalid("retryable codes are non-empty texts, at least one, without duplicates"));
        }
        Ok(())
    }

    /// What makes two policies count as one chain (RTY-09).
    pub fn key(&self) -> String {
        let Backoff { initial_delay_ms, max_delay_ms, jitter_ratio } = self.backoff;
        let mut parts: Vec<Value> = Vec::new();
        match &self.mode {
            RetryMode::Normal { max_retries, retryable_codes } => {
                let mut codes = retryable_codes.clone();
                codes.sort_unstable();
                let codes = codes.iter().map(|code| Value::from(code.as_str())).collect::<Vec<_>>();
                parts.extend([Value::from("normal"), Value::from(*max_retries), Value::from(codes)]);
            }
            RetryMode::Always => parts.push(Value::from("always")),
        }
        parts.extend([initial_delay_ms, max_delay_ms, jitter_ratio].map(Value::from));
        Value::from(parts).to_text()
    }

    /// The local delay before retry `retry` (from 1), with `random` in [0, 1] (RTY-04).
    pub fn local_delay_ms(&self, retry: u64, random: f64) -> f64 {
        let Backoff { initial_delay_ms, max_delay_ms, jitter_ratio } = self.backoff;
        let doublings = i32::try_from(retry.saturating_sub(1).min(1024)).unwrap_or(1024);
        let base = (initial_delay_ms * 2f64.powi(doublings)).min(max_delay_ms);
        (base * (1.0 - jitter_ratio + 2.0 * jitter_ratio * random)).min(max_delay_ms)
    }

    /// The delay before retry `retry` after `failure`; `None` if the policy gives up (RTY-05, RTY-06).
    pub fn delay_ms(&self, retry: u64, failure: &Failure, random: f64) -> Option<f64> {
        let asked = failure.provider_retry_after_ms.filter(|asked| *asked > 0.0);
        let fits = asked.filter(|asked| *asked <= self.backoff.max_delay_ms);
        match &self.mode {
            RetryMode::Normal { max_retries, retryable_codes } => {
                let is_listed = retryable_codes.contains(&failure.code);
                let is_refused = !is_listed || retry > *max_retries || (asked.is_some() && fits.is_none());
                (!is_refused).then(|| fits.unwrap_or_else(|| self.local_delay_ms(retry, random)))
            }
            RetryMode::Always => Some(fits.unwrap_or_else(|| self.local_delay_ms(retry, random))),
        }
    }
}

fn check_members(object: &Object, of: &str, known: &[&str]) -> Result<()> {
    match object.keys().find(|key| !known.contains(key)) {
        None => Ok(()),
        Some(unknown) => {
            let message = format!("{of} has no option `{unknown}`; there are: {}", known.join(", "));
            Err(Error::new(Code::UnknownOption, message).with("option", unknown))
        }
    }
}

/// Lets failed requests of this context's agents be made again, by the policy of their route. Ending the registration
/// cancels waits; a recovery that is under way then neither retries nor delegates (RTY-13).
pub fn install(ctx: &Context) -> Result<Registration> {
    let stopped = Signal::new();
    let seen = stopped.clone();
    let listener = ctx.waterfall::<RequestErrorEvent, _>(move |event, next| recover(event, next, seen.clone()))?;
    ctx.effect(move || {
        stopped.cancel(CancelCause::Disposed);
        drop(listener.dispose());
    })
}

async fn recover(event: Rc<RequestErrorEvent>, next: Next<Recovery>, stopped: Signal) -> Result<Recovery> {
    if stopped.is_cancelled() {
        return Ok(Recovery::Terminal);
    }
    let Some(policy) = event.retry_policy.clone() else { return next.call().await };
    if policy.mode == RetryMode::Always {
        match next.call().await {
            Ok(Recovery::Retry) => return Ok(Recovery::Retry),
            Ok(Recovery::Terminal) => {}
            Err(error) => tracing::warn!(target: "turnwheel", "a recovery below an always-retry failed: {error}"),
        }
        if event.signal.is_cancelled() || stopped.is_cancelled() {
            return Ok(Recovery::Terminal);
        }
        return retry(&event, &policy, &stopped).await.map(|granted| granted.unwrap_or(Recovery::Terminal));
    }
    match retry(&event, &policy, &stopped).await? {
        Some(recovery) => Ok(recovery),
        None => next.call().await,
    }
}

/// Schedules, waits and grants; `None` if the policy gives up.
async fn retry(event: &RequestErrorEvent, policy: &RetryPolicy, stopped: &Signal) -> Result<Option<Recovery>> {
    let session = event.agent.session();
    let runtime = session.runtime().clone();
    let key = policy.key();
    let (chain_id, done) = chain(session, event, &key);
    let retry = done + 1;
    let retry_id = chain_id.unwrap_or_else(|| runtime.next_id());
    let Some(delay_ms) = policy.delay_ms(retry, &event.failure, random(&retry_id, retry)) else { return Ok(None) };
    let mut scheduled = Object::new();
    scheduled.insert("retryId", retry_id.as_str());
    scheduled.insert("turn", event.turn);
    scheduled.insert("step", event.step);
    scheduled.insert("provider", event.provider.as_str());
    match &policy.mode {
        RetryMode::Normal { max_retries, .. } => {
            scheduled.insert("mode", "normal");
            scheduled.insert("policyKey", key);
            scheduled.insert("retry", retry);
            scheduled.insert("maxRetries", *max_retries);
        }
        RetryMode::Always => {
            scheduled.insert("mode", "always");
            scheduled.insert("policyKey", key);
            scheduled.insert("retry", retry);
        }
    }
    scheduled.insert("delayMs", delay_ms);
    scheduled.insert("failure", event.failure.to_value());
    session.append("llm/retry", Value::Object(scheduled))?;
    let waited = wait(&runtime, delay_ms, [&event.signal, stopped]).await;
    if !waited {
        return Ok(Some(Recovery::Terminal));
    }
    let mut started = Object::new();
    started.insert("retryId", retry_id);
    started.insert("turn", event.turn);
    started.insert("step", event.step);
    started.insert("retry", retry);
    session.append("llm/retry-started", Value::Object(started))?;
    Ok(Some(Recovery::Retry))
}

/// Id and count of the latest retry with this turn, step, provider and policy (RTY-08).
fn chain(session: &Session, event: &RequestErrorEvent, key: &str) -> (Option<String>, u64) {
    for seq in (session.first_live_seq()..session.len()).rev() {
        let Some(found) = session.event(seq) else { continue };
        let (kind, data) = match &found.data {
            EventData::StepStart { .. } => break,
            EventData::Other { kind, data } => (kind, data),
            _ => continue,
        };
        let text = |name: &str| data.get(name).and_then(Value::as_str);
        let number = |name: &str| data.get(name).and_then(Value::as_u64);
        let is_same = **kind == *"llm/retry"
            && number("turn") == Some(event.turn)
            && number("step") == Some(event.step)
            && text("provider") == Some(&event.provider)
            && text("policyKey") == Some(key);
        if is_same {
            return (text("retryId").map(str::to_owned), number("retry").unwrap_or(0));
        }
    }
    (None, 0)
}

/// Waits; `false` if a signal fired first.
async fn wait(runtime: &crate::runtime::Runtime, delay_ms: f64, signals: [&Signal; 2]) -> bool {
    use std::future::Future;
    use std::task::Poll;
    // A timer of whole milliseconds must not fire early.
    let mut timer = runtime.sleep(Duration::from_secs_f64(delay_ms.ceil() / 1000.0));
    let mut fired = signals.map(|signal| Box::pin(signal.cancelled()));
    std::future::poll_fn(|context| {
        if fired.iter_mut().any(|fired| fired.as_mut().poll(context).is_ready()) {
            return Poll::Ready(false);
        }
        timer.as_mut().poll(context).map(|()| true)
    })
    .await
}

/// A number in [0, 1] from the chain's id, so that equal ids give equal runs (P6) and distinct ones spread.
fn random(retry_id: &str, retry: u64) -> f64 {
    let seed = retry_id.bytes().chain(retry.to_le_bytes());
    let hash =
        seed.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    // The high bits of this hash are poorly mixed without a last round.
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 11) as f64 / ((1_u64 << 53) - 1) as f64
}
