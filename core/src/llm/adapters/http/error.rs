//! From an HTTP status or an error object to a [`Failure`] (DSK-18 to DSK-21, FAIL-07). Pure: no clock, no I/O.

use crate::json::{Value, parse};
use crate::llm::Failure;
use std::time::SystemTime;

/// What an HTTP answer said besides its body.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) retry_after: Option<String>,
    pub(super) request_id: Option<String>,
    pub(super) is_json: bool,
    pub(super) encoding: Option<String>,
}

/// What an error object said, in whichever of the usual shapes.
#[derive(Debug, Default)]
struct Facts {
    message: String,
    code: String,
    kind: String,
    status: Option<u16>,
}

impl Facts {
    /// Reads `{error:{…}}`, `{error:"…"}`, `{error_type, error_message}`, `{message, type?, code?}` or `{detail}`, bare
    /// or as the first item of a list.
    fn read(body: &Value) -> Self {
        let body = body.as_array().and_then(|items| items.first()).unwrap_or(body);
        let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
        if let Some(message) = error.as_str() {
            return Self { message: message.to_owned(), status: status_of(body), ..Self::default() };
        }
        // A code or type is sometimes a number.
        let text = |keys: &[&str]| {
            let found = keys.iter().find_map(|key| error.get(key).filter(|value| !value.is_null()));
            found.map_or(String::new(), |value| value.as_str().map_or_else(|| value.to_text(), str::to_owned))
        };
        Self {
            message: text(&["message", "error_message", "msg", "detail"]),
            code: text(&["code", "error_code"]),
            kind: text(&["type", "error_type"]),
            status: status_of(error).or_else(|| status_of(body)),
        }
    }

    fn words(&self) -> Words {
        Words::new(&format!("{} / {} / {}", self.code, self.kind, self.message))
    }
}

fn status_of(error: &Value) -> Option<u16> {
    let keys = ["status_code", "status", "http_status", "http_code", "code"];
    let number = keys.iter().find_map(|key| {
        let value = error.get(key)?;
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    });
    number.and_then(|number| u16::try_from(number).ok()).filter(|status| (400..600).contains(status))
}

/// Classifies an HTTP answer that is not a success.
pub(super) fn http_failure(head: &Head, body: &str, now: SystemTime) -> Failure {
    let facts = parse(body).map(|body| Facts::read(&body)).unwrap_or_default();
    let message = match (facts.message.as_str(), head.status) {
        ("", 300..400) => format!(
            "the provider redirects (HTTP status {}); a request with a key is not sent elsewhere, so set the final base URL",
            head.status
        ),
        ("", status) => format!("the provider answered with HTTP status {status}"),
        (message, _) => message.to_owned(),
    };
    Failure {
        code: code_for(Some(head.status), &facts),
        message,
        status: Some(head.status).filter(|status| (100..600).contains(status)),
        provider_retry_after_ms: head.retry_after.as_deref().and_then(|text| retry_after_ms(text, now)),
        request_id: head.request_id.clone(),
    }
}

/// Classifies an error object that came inside a stream of status 200. Only a status that the object states itself
/// becomes the failure's.
pub(in super::super) fn stream_failure(payload: &Value) -> Failure {
    let facts = Facts::read(payload);
    let mut failure = Failure::new(code_for(facts.status, &facts), facts.message);
    if failure.message.is_empty() {
        failure.message = format!("the provider reported an error in its stream: {}", quote(&payload.to_text()));
    }
    failure.status = facts.status;
    failure
}

/// The table of DSK-18; without a status the error's own words decide.
fn code_for(status: Option<u16>, facts: &Facts) -> String {
    let words = facts.words();
    let bad_request = |words: &Words| match words.is_context_overflow() {
        true => "CONTEXT_WINDOW_EXCEEDED",
        false => "INVALID_REQUEST",
    };
    let code = match status {
        Some(401 | 403) => "AUTH",
        Some(413) => "INVALID_REQUEST",
        _ if words.is_quota() => "QUOTA",
        Some(429) => "RATE_LIMIT",
        Some(400) => bad_request(&words),
        Some(500..) => "SERVER",
        Some(status) => return format!("HTTP_{status}"),
        None if words.is_context_overflow() => "CONTEXT_WINDOW_EXCEEDED",
        None if words.has_any(&["rate limit", "ratelimit", "too many requests"]) => "RATE_LIMIT",
        None if words.has_any(&["authentication error", "permission error", "invalid api key", "unauthorized"]) => {
            "AUTH"
        }
        None if words.has_any(&["billing error"]) => "QUOTA",
        None if words.has_any(&["timeout error"]) => "TIMEOUT",
        None if words.has_any(&["api error"]) => "SERVER",
        None if words.has_any(&["server error", "overloaded", "overloaded error", "service unavailable"]) => "SERVER",
        None if words.has_any(&["internal error", "internalservererror"]) => "SERVER",
        None if words.has_any(&["invalid request", "invalid request error", "badrequest", "bad request"]) => {
            "INVALID_REQUEST"
        }
        None if words.has_any(&["badrequesterror"]) => "INVALID_REQUEST",
        None => "UNKNOWN",
    };
    code.to_owned()
}

/// A text as lower-case words between single spaces, without words that carry no meaning here, so that a phrase is
/// found on word borders whether it came as a sentence or as a snake-case code.
struct Words {
    text: String,
}

const FILLERS: [&str; 9] = ["the", "is", "are", "was", "were", "has", "have", "been", "s"];

impl Words {
    fn new(text: &str) -> Self {
        let lower = text.to_lowercase();
        let mut words = String::from(" ");
        // A slash stands between the parts and must not be read across.
        for word in lower.split_inclusive('/').flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '/')) {
            if !word.is_empty() && !FILLERS.contains(&word) {
                words.push_str(word);
                words.push(' ');
            }
        }
        Self { text: words }
    }

    fn has(&self, phrase: &str) -> bool {
        self.text.match_indices(phrase).any(|(at, _)| {
            let bytes = self.text.as_bytes();
            bytes[at - 1] == b' ' && bytes[at + phrase.len()] == b' '
        })
    }

    fn has_any(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.has(phrase))
    }

    /// Whether one of `starts` is followed by one of `ends` with at most `gap` words in between.
    fn has_near(&self, starts: &[&str], ends: &[&str], gap: usize) -> bool {
        starts.iter().any(|start| {
            let padded = format!(" {start} ");
            self.text.match_indices(&padded).any(|(at, _)| {
                let mut after = self.text[at + padded.len()..].split(' ').take(gap + 1);
                after.any(|word| ends.contains(&word))
            })
        })
    }

    /// The wording that ties a size to the model's context (FAIL-07). A plain "too many tokens per minute" is none.
    fn is_context_overflow(&self) -> bool {
        const PHRASES: [&str; 6] = [
            "context length exceeded",
            "context window exceeded",
            "context window overflow",
            "context length overflow",
            "maximum context length",
            "maximum context window",
        ];
        const EXCEEDS: [&str; 4] = ["exceed", "exceeds", "exceeded", "exceeding"];
        // Some gateways cut the sentence down to its subject.
        let bare = self.text.rsplit('/').next().map(str::trim);
        self.has_any(&PHRASES)
            || self.has_near(&["too long for", "too large for"], &["context", "model"], 2)
            || self.has_near(&EXCEEDS, &["context"], 3)
            // Anthropic gives both numbers: "prompt is too long: 205547 tokens > 200000 maximum".
            || self.has_near(&["prompt too long"], &["maximum"], 4)
            || matches!(bare, Some("context length" | "context window"))
    }

    /// The wording of a used-up quota, balance or budget (FAIL-07).
    fn is_quota(&self) -> bool {
        const THINGS: [&str; 5] = ["quota", "usage limit", "balance", "credits", "credit"];
        const ENDS: [&str; 4] = ["exceeded", "exhausted", "reached", "depleted"];
        let used_up = |thing: &str| ENDS.iter().any(|end| self.has(&format!("{thing} {end}")));
        self.has_any(&["insufficient quota", "insufficient balance", "insufficient credits", "insufficient credit"])
            || THINGS.iter().any(|thing| used_up(thing))
            || self.has_near(&["exceeds your", "exceeded your"], &["quota"], 1)
            || self.has_any(&["out of credits", "out of credit", "out of budget"])
    }
}

/// Reads `retry-after`: digits are seconds, anything else is an HTTP date. What is not in the future is no hint.
fn retry_after_ms(text: &str, now: SystemTime) -> Option<f64> {
    let text = text.trim();
    let wait_ms = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse::<f64>().ok()? * 1000.0
    } else {
        let date = httpdate::parse_http_date(text).ok()?;
        date.duration_since(now).ok()?.as_millis() as f64
    };
    (wait_ms.is_finite() && wait_ms > 0.0).then_some(wait_ms)
}

/// At most 120 characters of a text from outside (SSE-03).
pub(in super::super) fn quote(text: &str) -> String {
    text.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn code(status: u16, body: &str) -> String {
        http_failure(&Head { status, ..Head::default() }, body, UNIX_EPOCH).code
    }

    #[test]
    fn the_first_matching_row_of_the_status_table_decides() {
        let quota = r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#;
        let overflow = r#"{"error":{"message":"This model's maximum context length is 8192 tokens."}}"#;
        let cases = [
            (401, quota, "AUTH"),
            (403, "", "AUTH"),
            (413, quota, "INVALID_REQUEST"),
            (429, quota, "QUOTA"),
            (402, r#"{"error":{"message":"Insufficient Balance"}}"#, "QUOTA"),
            (429, "slow down", "RATE_LIMIT"),
            (400, overflow, "CONTEXT_WINDOW_EXCEEDED"),
            (400, r#"{"error":{"message":"bad temperature"}}"#, "INVALID_REQUEST"),
            (500, overflow, "SERVER"),
            (404, "<html>", "HTTP_404"),
        ];
        for (status, body, expected) in cases {
            assert_eq!(code(status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn overflow_needs_wording_about_the_context() {
        let overflow = [
            "context_length_exceeded",
            "the request exceeds the available context size, try increasing it",
            "Prompt is too long for this model",
            "input is too large for the model's context window",
            "Input exceeds the model context",
            "prompt is too long: 205547 tokens > 200000 maximum",
        ];
        let other = ["too many tokens per minute", "prompt is too long", "rate limit reached", "contexts differ"];
        for text in overflow {
            assert!(Words::new(text).is_context_overflow(), "{text}");
        }
        for text in other {
            assert!(!Words::new(text).is_context_overflow(), "{text}");
        }
    }

    #[test]
    fn quota_needs_wording_about_a_used_up_amount() {
        for text in ["Your quota has been exhausted", "usage limit reached", "out of credits", "credits depleted"] {
            assert!(Words::new(text).is_quota(), "{text}");
        }
        for text in ["Rate limit reached for requests", "quotas are documented at", "too many requests"] {
            assert!(!Words::new(text).is_quota(), "{text}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_in_the_future() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(retry_after_ms("2", now), Some(2000.0));
        assert_eq!(retry_after_ms("Sun, 06 Nov 1994 08:49:40 GMT", now), Some(3000.0));
        for text in ["0", "-1", "1.5", "", "soon", "Sun, 06 Nov 1994 08:49:36 GMT"] {
            assert_eq!(retry_after_ms(text, now), None, "{text}");
        }
    }

    #[test]
    fn the_message_is_the_providers_or_a_generic_one() {
        let failure = |body: &str| http_failure(&Head { status: 502, ..Head::default() }, body, UNIX_EPOCH).message;
        assert_eq!(failure(r#"{"error":{"message":"m"}}"#), "m");
        assert_eq!(failure(r#"{"error":{"message":""}}"#), "the provider answered with HTTP status 502");
        assert_eq!(failure("<html>"), "the provider answered with HTTP status 502");
    }
}
