//! What a provider or adapter reported when a model call failed (FAIL-01).

use crate::json::{Object, Value};
use std::time::Duration;

/// Failure facts. Whether to retry is a policy's decision, not a member.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// What happened, for people.
    pub message: String,
    /// A stable code, for example `RATE_LIMIT` (FAIL-02); `UNKNOWN` is the only catch-all.
    pub code: String,
    /// The HTTP status, 100 to 599.
    pub status: Option<u16>,
    /// How long the provider asks to wait, in milliseconds.
    pub provider_retry_after_ms: Option<f64>,
    /// The provider's id of the request.
    pub request_id: Option<String>,
}

impl Failure {
    /// A failure with a code and a message only.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: code.into(),
            status: None,
            provider_retry_after_ms: None,
            request_id: None,
        }
    }

    /// Advice on asking again with the same request: after the time the provider named, at once for what passes by itself
    /// (rate limits, timeouts, transport, a server's own failures), nothing otherwise. A policy may know better.
    pub fn retry(&self) -> Option<Duration> {
        let passes = matches!(self.code.as_str(), "RATE_LIMIT" | "SERVER" | "STREAM_CLOSED" | "TIMEOUT" | "TRANSPORT")
            || self.status.is_some_and(|status| matches!(status, 408 | 425 | 429 | 500..=599));
        let asked = self.provider_retry_after_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1_000.0).ok());
        match asked {
            // A spent quota does not come back by waiting, whatever a header says.
            Some(wait) if self.code != "QUOTA" => Some(wait),
            _ if self.code == "QUOTA" => None,
            _ => passes.then_some(Duration::ZERO),
        }
    }

    /// Reads failure facts; `None` unless `message` and `code` are strings. Other members that cannot be are left out.
    pub fn from_value(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let status = value.get("status").and_then(Value::as_u64);
        let delay = value.get("providerRetryAfterMs").and_then(Value::as_f64);
        Some(Self {
            message: text("message")?,
            code: text("code")?,
            status: status.and_then(|status| u16::try_from(status).ok()).filter(|status| (100..600).contains(status)),
            provider_retry_after_ms: delay.filter(|delay| delay.is_finite() && *delay > 0.0),
            request_id: text("requestId").filter(|id| !id.is_empty()),
        })
    }

    /// The facts as JSON.
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.insert("message", self.message.as_str());
        object.insert("code", self.code.as_str());
        object.insert_some("status", self.status.map(u32::from));
        object.insert_some("providerRetryAfterMs", self.provider_retry_after_ms);
        object.insert_some("requestId", self.request_id.as_deref());
        Value::Object(object)
    }
}
