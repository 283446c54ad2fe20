//! What a provider or adapter reported when a model call failed (FAIL-01).

use crate::json::{Object, Value};

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

    /// Reads failure facts; `None` unless `message` and `code` are strings.
    pub fn from_value(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            message: text("message")?,
            code: text("code")?,
            status: value.get("status").and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok()),
            provider_retry_after_ms: value.get("providerRetryAfterMs").and_then(Value::as_f64),
            request_id: text("requestId"),
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
