//! The supported subset of JSON Schema, and the texts of its violations (VAL).
//!
//! A general validator would word violations in its own way, and the model sees them; a small subset that every
//! provider accepts, with texts that are part of the contract, is worth more here.

use crate::error::{Code, Error, Result};
use crate::json::{Object, Value};

const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];

/// Fails with `UNSUPPORTED_SCHEMA` for anything outside the subset of VAL-01, naming the place.
pub fn check_schema(schema: &Value) -> Result<()> {
    check(schema, "schema")
}

/// Schemas nest as deep as their authors like.
fn check(schema: &Value, path: &str) -> Result<()> {
    stacker::maybe_grow(64 * 1024, 1024 * 1024, || check_node(schema, path))
}

fn check_node(schema: &Value, path: &str) -> Result<()> {
    let bad = |what: String| Err(Error::new(Code::UnsupportedSchema, format!("{path}: {what}")).with("path", path));
    let Some(object) = schema.as_object() else {
        return bad("a schema is an object".into());
    };
    let kind = match object.get("type") {
        None => None,
        Some(value) => match value.as_str().filter(|kind| TYPES.contains(kind)) {
            Some(kind) => Some(kind),
            None => return bad(format!("`type` must be one of {}", TYPES.join(", "))),
        },
    };
    for (key, value) in object.iter() {
        match key {
            "type" | "description" | "title" | "default" | "examples" => {}
            "oneOf" => {
                let branches = value.as_array().unwrap_or_default();
                if branches.len() < 2 {
                    return bad("`oneOf` needs two or more branches".into());
                }
                for (i, branch) in branches.iter().enumerate() {
                    check(branch, &format!("{path}.oneOf[{i}]"))?;
                }
            }
            "properties" => {
                let Some(properties) = value.as_object().filter(|_| kind == Some("object")) else {
                    return bad("`properties` needs type object and an object of schemas".into());
                };
                for (name, property) in properties.iter() {
                    check(property, &format!("{path}.properties.{name}"))?;
                }
            }
            "required" => {
                let declared = |name: &Value| {
                    let properties = object.get("properties").and_then(Value::as_object);
                    name.as_str().is_some_and(|name| properties.is_some_and(|properties| properties.contains_key(name)))
                };
                if !value.as_array().is_some_and(|names| names.iter().all(declared)) {
                    return bad("`required` must list declared properties".into());
                }
            }
            "additionalProperties" => {
                if value.as_bool().is_none() {
                    return bad("`additionalProperties` must be true or false".into());
                }
            }
            "items" => check(value, &format!("{path}.items"))?,
            "enum" => {
                let values = value.as_array().unwrap_or_default();
                if values.is_empty() || !values.iter().all(|value| is_scalar_of(value, kind)) {
                    return bad("`enum` must list scalars of the node's type".into());
                }
            }
            "const" => {
                let listed = object.get("enum").and_then(Value::as_array).is_none_or(|values| values.contains(value));
                if !is_scalar_of(value, kind) || !listed {
                    return bad("`const` must be a scalar of the node's type, and in `enum` when that is given".into());
                }
            }
            _ => return bad(format!("keyword `{key}` is not supported")),
        }
    }
    Ok(())
}

fn is_scalar_of(value: &Value, kind: Option<&str>) -> bool {
    match kind {
        Some("string") => value.as_str().is_some(),
        Some("number") => value.as_f64().is_some(),
        Some("integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        Some("boolean") => value.as_bool().is_some(),
        Some("null") => value.is_null(),
        Some(_) => false,
        None => !matches!(value, Value::Array(_) | Value::Object(_)),
    }
}

/// How `value` violates `schema`, in the order of VAL-03 and the words of VAL-04. `root` starts every path; when it is
/// empty the root is called `arguments` and members have no prefix.
pub fn violations(schema: &Value, value: &Value, root: &str) -> Vec<String> {
    let mut found = Vec::new();
    visit(schema, value, Path::Root(root), &mut found);
    found
}

/// Where a value stands. Written out for a violation only, so that deep values cost no more than their size.
#[derive(Clone, Copy)]
enum Path<'a> {
    Root(&'a str),
    Member(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl Path<'_> {
    fn write(&self) -> String {
        let (mut parts, mut at) = (Vec::new(), self);
        let root = loop {
            match at {
                Path::Root(root) => break *root,
                Path::Member(parent, _) | Path::Item(parent, _) => {
                    parts.push(at);
                    at = parent;
                }
            }
        };
        let mut path = root.to_owned();
        for part in parts.into_iter().rev() {
            match part {
                Path::Member(_, name) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(name);
                }
                Path::Item(_, index) => path.push_str(&format!("[{index}]")),
                Path::Root(_) => {}
            }
        }
        path
    }

    /// As a violation names it.
    fn name(&self) -> String {
        let path = self.write();
        if path.is_empty() { "arguments".into() } else { path }
    }
}

fn deeper(schema: &Value, value: &Value, path: Path<'_>, found: &mut Vec<String>) {
    stacker::maybe_grow(64 * 1024, 1024 * 1024, || visit(schema, value, path, found));
}

fn visit(schema: &Value, value: &Value, path: Path<'_>, found: &mut Vec<String>) {
    let Some(schema) = schema.as_object() else { return };
    let mut violated = |what: String| found.push(format!("\"{}\" {what}", path.name()));
    if value.as_f64().is_some_and(|number| !number.is_finite() || (number == 0.0 && number.is_sign_negative())) {
        return violated("must be a finite JSON number".into());
    }
    if let Some(kind) = schema.get("type").and_then(Value::as_str)
        && let Some(expected) = mismatch(kind, value)
    {
        return violated(format!("must be {expected}"));
    }
    if let Some(branches) = schema.get("oneOf").and_then(Value::as_array) {
        let matches = |branch: &&Value| {
            let mut found = Vec::new();
            deeper(branch, value, path, &mut found);
            found.is_empty()
        };
        let matched = branches.iter().filter(matches).count();
        if matched != 1 {
            return violated(format!("must match exactly one oneOf branch (matched {matched})"));
        }
    }
    if let Some(values) = schema.get("enum").filter(|values| !values.as_array().unwrap_or_default().contains(value)) {
        return violated(format!("must be one of {}", values.to_text()));
    }
    if let Some(constant) = schema.get("const").filter(|constant| *constant != value) {
        return violated(format!("must be {}", constant.to_text()));
    }
    match value {
        Value::Object(object) => visit_members(schema, object, path, found),
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for (i, item) in items.iter().enumerate() {
                    deeper(schema, item, Path::Item(&path, i), found);
                }
            }
        }
        _ => {}
    }
}

fn visit_members(schema: &Object, object: &Object, path: Path<'_>, found: &mut Vec<String>) {
    let join = |name: &str| Path::Member(&path, name).write();
    for name in schema.get("required").and_then(Value::as_array).unwrap_or_default() {
        if let Some(name) = name.as_str().filter(|name| !object.contains_key(name)) {
            found.push(format!("missing required property \"{}\"", join(name)));
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flat_map(Object::iter) {
        if let Some(value) = object.get(name) {
            deeper(property, value, Path::Member(&path, name), found);
        }
    }
    if schema.get("additionalProperties").and_then(Value::as_bool) == Some(false) {
        for name in object.keys().filter(|name| !properties.is_some_and(|declared| declared.contains_key(name))) {
            found.push(format!("\"{}\" is not a declared property (additionalProperties: false)", join(name)));
        }
    }
}

fn mismatch(kind: &str, value: &Value) -> Option<&'static str> {
    let (matches, expected) = match kind {
        "object" => (value.as_object().is_some(), "an object"),
        "array" => (value.as_array().is_some(), "an array"),
        "string" => (value.as_str().is_some(), "a string"),
        "number" => (value.as_f64().is_some(), "a number"),
        "integer" => (value.as_f64().is_some_and(|number| number.fract() == 0.0), "an integer"),
        "boolean" => (value.as_bool().is_some(), "a boolean"),
        "null" => (value.is_null(), "null"),
        _ => (true, ""),
    };
    (!matches).then_some(expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn violations_come_in_the_order_and_words_of_the_contract() {
        let schema = json!({
            "type": "object",
            "properties": {
                "n": {"type": "integer"},
                "mode": {"type": "string", "enum": ["a", "b"]},
                "items": {"type": "array", "items": {"type": "string"}},
                "inner": {"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["b"]}
            },
            "required": ["n", "mode"],
            "additionalProperties": false
        });
        assert!(check_schema(&schema).is_ok());
        let value = json!({"n": 1.5, "extra": 1, "items": ["x", 2], "inner": {}});
        let expected = [
            "missing required property \"mode\"",
            "\"n\" must be an integer",
            "\"items[1]\" must be a string",
            "missing required property \"inner.b\"",
            "\"extra\" is not a declared property (additionalProperties: false)",
        ];
        assert_eq!(violations(&schema, &value, ""), expected);
        assert_eq!(violations(&schema, &json!("text"), ""), ["\"arguments\" must be an object"]);
    }

    #[test]
    fn one_of_wants_exactly_one_match() {
        let schema = json!({"oneOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]});
        assert_eq!(
            violations(&schema, &json!(1), "value"),
            ["\"value\" must match exactly one oneOf branch (matched 2)"]
        );
        assert!(violations(&schema, &json!(null), "value").is_empty());
    }

    #[test]
    fn keywords_outside_the_subset_are_refused_by_name() {
        let error = check_schema(&json!({"type": "object", "properties": {"a": {"anyOf": []}}})).expect_err("refused");
        assert_eq!(error.code(), &Code::UnsupportedSchema);
        assert_eq!(error.message(), "schema.properties.a: keyword `anyOf` is not supported");
    }
}
