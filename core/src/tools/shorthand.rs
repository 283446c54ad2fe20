//! The authors' shorthand for schemas (VAL-08): what is tedious in JSON Schema, said where one thinks of it.

use crate::error::{Code, Error, Result};
use crate::json::{Object, Value};

/// The JSON Schema that a shorthand stands for.
///
/// A property says `required: true` itself; an optional one leaves it out, and `required: false` is refused, because it
/// reads as if it said something. An object states `additionalProperties`. `type: "json"` means any JSON. Everything
/// else is JSON Schema in the subset of VAL-01. Fails with `UNSUPPORTED_SCHEMA`, naming the place.
pub fn schema_of_shorthand(shorthand: &Value) -> Result<Value> {
    let schema = expand(shorthand, "schema")?;
    super::check_schema(&schema)?;
    Ok(schema)
}

fn expand(node: &Value, path: &str) -> Result<Value> {
    stacker::maybe_grow(64 * 1024, 1024 * 1024, || expand_node(node, path))
}

fn expand_node(node: &Value, path: &str) -> Result<Value> {
    let bad = |what: &str| Error::new(Code::UnsupportedSchema, format!("{path}: {what}")).with("path", path);
    let object = node.as_object().ok_or_else(|| bad("a schema is an object"))?;
    let kind = object.get("type").and_then(Value::as_str);
    if kind == Some("object") && !object.contains_key("additionalProperties") {
        return Err(bad("an object says whether it takes more: `additionalProperties: true` or `false`"));
    }
    let mut schema = Object::new();
    for (key, value) in object.iter() {
        match key {
            "type" if kind == Some("json") => {}
            "properties" => {
                let properties = value.as_object().ok_or_else(|| bad("`properties` is an object of schemas"))?;
                let (properties, required) = expand_properties(properties, path)?;
                schema.insert(key, properties);
                if !required.is_empty() {
                    schema.insert("required", required);
                }
            }
            "required" => {
                return Err(bad("`required` stands on a property, as `required: true`, and never on the whole"));
            }
            "items" => {
                schema.insert(key, expand(value, &format!("{path}.items"))?);
            }
            "oneOf" => {
                let branches = value.as_array().unwrap_or_default().iter().enumerate();
                let branches = branches.map(|(i, branch)| expand(branch, &format!("{path}.oneOf[{i}]")));
                schema.insert(key, branches.collect::<Result<Vec<_>>>()?);
            }
            _ => {
                schema.insert(key, value.clone());
            }
        }
    }
    Ok(schema.into())
}

/// The properties without their marks, and the names of the marked ones.
fn expand_properties(properties: &Object, path: &str) -> Result<(Object, Vec<Value>)> {
    let (mut expanded, mut required) = (Object::new(), Vec::new());
    for (name, property) in properties.iter() {
        let path = format!("{path}.properties.{name}");
        let mut own = property.clone();
        if let Value::Object(members) = &mut own
            && let Some(mark) = members.remove("required")
        {
            if mark.as_bool() != Some(true) {
                let what = "`required` is true or left out; leave it out for an optional property";
                return Err(Error::new(Code::UnsupportedSchema, format!("{path}: {what}")).with("path", path));
            }
            required.push(Value::from(name));
        }
        expanded.insert(name, expand(&own, &path)?);
    }
    Ok((expanded, required))
}
