//! Compares an expected with a got result (SCENARIO.md section 9).
//!
//! Key order never matters, list order always does, absent and `null` differ. Free text and texts with a key follow
//! sections 1 and 9. An error that the reference threw without a code and in words of its own (`message` is `$message`,
//! no `code`) is compared as "there is an error": ours is coded on purpose, and its code and cause are no difference.

use serde_json::{Map, Value as Json};

/// One difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Where in the expected result.
    pub path: String,
    /// What was expected; `None` for nothing.
    pub expected: Option<Json>,
    /// What came; `None` for nothing.
    pub got: Option<Json>,
}

const FREE: &str = "$message";
const KEYED: &str = "$text:";

/// All differences, in document order.
pub fn differences(expected: &Json, got: &Json) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(String::new(), expected, got, &mut found);
    found
}

fn compare(path: String, expected: &Json, got: &Json, found: &mut Vec<Difference>) {
    match (expected, got) {
        (Json::Object(expected), Json::Object(got)) => compare_objects(&path, expected, got, found),
        (Json::Array(wanted), Json::Array(given)) => {
            for (index, expected) in wanted.iter().enumerate() {
                let path = format!("{path}[{index}]");
                match given.get(index) {
                    Some(got) => compare(path, expected, got, found),
                    None => found.push(Difference { path, expected: Some(expected.clone()), got: None }),
                }
            }
            for (index, got) in given.iter().enumerate().skip(wanted.len()) {
                found.push(Difference { path: format!("{path}[{index}]"), expected: None, got: Some(got.clone()) });
            }
        }
        (Json::String(expected), Json::String(got)) if matches_text(expected, got) => {}
        (Json::Number(wanted), Json::Number(given)) if wanted.as_f64() == given.as_f64() => {}
        _ if expected == got => {}
        _ => found.push(Difference { path, expected: Some(expected.clone()), got: Some(got.clone()) }),
    }
}

fn compare_objects(path: &str, expected: &Map<String, Json>, got: &Map<String, Json>, found: &mut Vec<Difference>) {
    let at = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    for (key, wanted) in expected {
        match got.get(key) {
            Some(given) => compare(at(key), wanted, given, found),
            None => found.push(Difference { path: at(key), expected: Some(wanted.clone()), got: None }),
        }
    }
    let uncoded = expected.get("message").and_then(Json::as_str) == Some(FREE) && !expected.contains_key("code");
    for (key, given) in got {
        let of_ours = uncoded && matches!(key.as_str(), "code" | "cause");
        if !expected.contains_key(key) && !of_ours {
            found.push(Difference { path: at(key), expected: None, got: Some(given.clone()) });
        }
    }
}

fn matches_text(expected: &str, got: &str) -> bool {
    if let Some((before, "")) = expected.split_once(FREE) {
        return got.strip_prefix(before).is_some_and(|text| !text.is_empty());
    }
    if let Some(key) = expected.strip_prefix(KEYED) {
        // A bare key also stands for more text behind it.
        let bare = key.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_');
        let rest = got.strip_prefix(expected);
        return if bare { rest.is_some_and(|rest| !rest.starts_with('_')) } else { rest == Some("") };
    }
    expected == got
}

impl Difference {
    /// One line, cut to a readable length.
    pub fn render(&self) -> String {
        let show = |value: &Option<Json>| match value {
            None => "nothing".to_owned(),
            Some(value) => {
                let text = value.to_string();
                let cut: String = text.chars().take(220).collect();
                if cut.len() < text.len() { format!("{cut}…") } else { cut }
            }
        };
        format!("  {}: expected {}, got {}", self.path, show(&self.expected), show(&self.got))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn same(expected: Json, got: Json) -> bool {
        differences(&expected, &got).is_empty()
    }

    #[test]
    fn key_order_and_number_form_do_not_matter_but_list_order_does() {
        assert!(same(json!({ "a": 1, "b": 2.0 }), json!({ "b": 2, "a": 1.0 })));
        assert!(!same(json!([1, 2]), json!([2, 1])));
        assert!(!same(json!([1]), json!([1, 2])));
        assert!(!same(json!({ "a": null }), json!({})));
    }

    #[test]
    fn free_text_must_be_there_and_may_say_anything() {
        assert!(same(json!("$message"), json!("it broke")));
        assert!(!same(json!("$message"), json!("")));
        assert!(!same(json!("$message"), json!(7)));
        assert!(same(json!("failed: $message"), json!("failed: no disk")));
        assert!(!same(json!("failed: $message"), json!("ok")));
    }

    #[test]
    fn a_bare_key_stands_for_more_text_and_no_other_key() {
        assert!(same(json!("$text:TOOL_ABORTED"), json!("$text:TOOL_ABORTED; sorry")));
        assert!(!same(json!("$text:TOOL_ABORTED"), json!("$text:TOOL_ABORTED_BEFORE_DISPATCH")));
        assert!(!same(
            json!("$text:CONTEXT_SNAPSHOT\n\nIt is noon."),
            json!("$text:CONTEXT_SNAPSHOT\n\nIt is noon. Or not.")
        ));
    }

    #[test]
    fn codes_are_compared_where_the_reference_had_one_or_the_text_is_the_scenarios() {
        let coded = json!({ "where": "step 1", "message": "m", "code": "BUSY", "cause": "c" });
        assert!(same(json!({ "where": "step 1", "message": "$message" }), coded.clone()));
        assert!(!same(json!({ "where": "step 1", "message": "m" }), coded.clone()));
        assert!(!same(json!({ "where": "step 1", "message": "$message", "code": "OTHER", "cause": "c" }), coded));
        assert!(!same(json!({ "message": "$message", "code": "BUSY" }), json!({ "message": "m" })));
    }
}
