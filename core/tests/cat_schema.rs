//! Schemas and the checking of arguments: data.md section 21. Named after the ids.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{open, settle};
use std::cell::RefCell;
use std::rc::Rc;
use turnwheel::json::{Object, Value};
use turnwheel::llm::adapters::Scripted;
use turnwheel::tools::{check_schema, violations};
use turnwheel::{Code, Tool, ToolOutput, json};

fn refused(schema: &Value) -> String {
    let error = check_schema(schema).expect_err("refused");
    assert_eq!(error.code(), &Code::UnsupportedSchema);
    error.message().to_owned()
}

#[test]
fn val_1_the_supported_keywords_are_these_and_no_others() {
    for good in [
        json!({}),
        json!({"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": false}),
        json!({"type": "array", "items": {"type": "null"}, "description": "d", "title": "t", "default": 1, "examples": [1]}),
        json!({"oneOf": [{"type": "string"}, {"type": "null"}]}),
        json!({"type": "string", "enum": ["a", "b"], "const": "a"}),
        json!({"type": "integer", "enum": [1, 2.0]}),
    ] {
        check_schema(&good).expect("supported");
    }
    for bad in [
        json!({"type": ["string", "null"]}),
        json!({"type": "text"}),
        json!({"oneOf": [{"type": "string"}]}),
        json!({"type": "object", "properties": {}, "required": ["a"]}),
        json!({"type": "object", "additionalProperties": {}}),
        json!({"type": "string", "enum": [1]}),
        json!({"type": "string", "enum": []}),
        json!({"type": "string", "enum": ["a"], "const": "b"}),
        json!({"type": "string", "minLength": 1}),
        json!({"$ref": "#/a"}),
        json!(true),
    ] {
        refused(&bad);
    }
    assert!(refused(&json!({"type": "object", "properties": {"a": {"pattern": "x"}}})).contains("schema.properties.a"));
}

#[test]
fn val_2_and_6_null_is_present_defaults_are_not_applied_and_numbers_are_json_numbers() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "null", "default": null}}, "required": ["a"]});
    assert_eq!(violations(&schema, &json!({"a": null}), ""), [""; 0]);
    assert_eq!(violations(&schema, &json!({}), ""), ["missing required property \"a\""]);
    let integer = json!({"type": "integer"});
    for (value, is_integer) in [(1.0, true), (1.5, false), (1e300, true)] {
        assert_eq!(violations(&integer, &Value::from(value), "value").is_empty(), is_integer, "{value}");
    }
    for odd in [f64::NAN, f64::INFINITY, -0.0] {
        assert_eq!(violations(&integer, &Value::from(odd), "value"), ["\"value\" must be a finite JSON number"]);
    }
}

#[test]
fn val_3_and_4_violations_come_in_schema_order_in_the_words_of_the_contract() {
    let schema = json!({
        "type": "object",
        "properties": {
            "z": {"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["b"]},
            "a": {"type": "array", "items": {"type": "number"}},
            "e": {"type": "string", "enum": ["x", "y"]},
            "c": {"type": "integer", "const": 3}
        },
        "required": ["c", "a"],
        "additionalProperties": false
    });
    let value = json!({"q": 1, "z": {"b": "no"}, "a": [1, "2"], "e": "z"});
    let expected = [
        "missing required property \"c\"",
        "\"z.b\" must be a boolean",
        "\"a[1]\" must be a number",
        "\"e\" must be one of [\"x\",\"y\"]",
        "\"q\" is not a declared property (additionalProperties: false)",
    ];
    assert_eq!(violations(&schema, &value, ""), expected);
    assert_eq!(violations(&schema, &json!({"c": 4, "a": []}), "value"), ["\"value.c\" must be 3"]);
    for (kind, words) in [
        ("string", "a string"),
        ("number", "a number"),
        ("integer", "an integer"),
        ("boolean", "a boolean"),
        ("null", "null"),
        ("object", "an object"),
        ("array", "an array"),
    ] {
        let wrong = if kind == "boolean" { json!("x") } else { json!(true) };
        assert_eq!(violations(&json!({"type": kind}), &wrong, ""), [format!("\"arguments\" must be {words}")]);
    }
}

#[test]
fn val_5_one_of_wants_one_match_and_a_node_stops_at_its_first_failing_rule() {
    let schema = json!({"oneOf": [{"type": "integer"}, {"type": "number"}]});
    assert_eq!(violations(&schema, &json!(1), ""), ["\"arguments\" must match exactly one oneOf branch (matched 2)"]);
    assert_eq!(violations(&schema, &json!("x"), ""), ["\"arguments\" must match exactly one oneOf branch (matched 0)"]);
    assert!(violations(&schema, &json!(1.5), "").is_empty());
    let node = json!({"type": "string", "enum": ["a"], "const": "a"});
    assert_eq!(violations(&node, &json!("b"), "").len(), 1);
}

#[test]
fn val_7_empty_arguments_are_an_object_and_text_that_is_no_json_must_be_one() {
    let calls = [("c1", "t", ""), ("c2", "t", "  "), ("c3", "t", "{not json")];
    let ctx = agents::context(Scripted::new().calls(calls).text("done"));
    let seen: Rc<RefCell<Vec<Value>>> = Rc::default();
    let log = seen.clone();
    let tool = Tool::new("t", move |call| {
        log.borrow_mut().push(call.arguments().clone());
        async { Ok(ToolOutput::value("ok")) }
    });
    ctx.tools().register(tool).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!(*seen.borrow(), [json!({}), json!({})]);
    let texts: Vec<_> = agents::events(&agent).iter().map(|event| event.json().to_owned()).collect();
    assert!(texts.iter().any(|text| text.contains("\\\"arguments\\\" must be an object")), "{texts:?}");
}

#[test]
fn val_2_a_default_reaches_no_body_and_no_log() {
    let ctx = agents::context(Scripted::new().calls([("c1", "t", "{}"), ("c2", "t", "{\"n\":null}")]).text("done"));
    let seen: Rc<RefCell<Vec<Value>>> = Rc::default();
    let log = seen.clone();
    let tool = Tool::new("t", move |call| {
        log.borrow_mut().push(call.arguments().clone());
        async { Ok(ToolOutput::value("ok")) }
    });
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "default": 5}}});
    ctx.tools().register(tool.parameters(schema)).expect("registered");
    let agent = open(&ctx, "a");
    agent.followup("go").expect("accepted");
    settle(&ctx);
    assert_eq!(*seen.borrow(), [json!({})], "nothing is filled in, and null is present and no integer");
    assert_eq!(agents::results(&agent), [("c1".into(), "-".into()), ("c2".into(), "INVALID_ARGS".to_owned())]);
}

#[test]
fn val_9_depth_overflows_nothing() {
    let wrap = |inner: Value| {
        let (mut properties, mut node) = (Object::new(), Object::new());
        properties.insert("a", inner);
        node.insert("type", "object");
        node.insert("properties", properties);
        Value::Object(node)
    };
    let (mut schema, mut value) = (json!({"type": "string"}), json!(1));
    for _ in 0..3_000 {
        schema = wrap(schema);
        let mut object = Object::new();
        object.insert("a", value);
        value = Value::Object(object);
    }
    check_schema(&schema).expect("deep and right");
    assert_eq!(violations(&schema, &value, "").len(), 1);
}

#[test]
fn val_8_the_shorthand_marks_properties_and_states_additional_ones() {
    let shorthand = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "path": {"type": "string", "required": true},
            "extra": {"type": "json", "description": "anything"},
            "rows": {"type": "array", "required": true, "items": {
                "type": "object", "additionalProperties": true, "properties": {"n": {"type": "integer", "required": true}}
            }}
        }
    });
    let schema = turnwheel::tools::schema_of_shorthand(&shorthand).expect("right");
    let expected = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "path": {"type": "string"},
            "extra": {"description": "anything"},
            "rows": {"type": "array", "items": {
                "type": "object", "additionalProperties": true, "properties": {"n": {"type": "integer"}}, "required": ["n"]
            }}
        },
        "required": ["path", "rows"]
    });
    assert_eq!(schema, expected);
    let tool = Tool::new("t", |_| async { Ok(ToolOutput::value("x")) }).parameters_shorthand(shorthand).expect("right");
    assert_eq!(tool.schema().parameters(), &expected);
    assert!(violations(&schema, &json!({"path": "p", "rows": [], "extra": [null, {"a": 1}]}), "").is_empty());
}

#[test]
fn val_8_what_the_shorthand_must_not_say_is_an_authoring_error_that_names_the_place() {
    let object = |properties: Value| json!({"type": "object", "additionalProperties": false, "properties": properties});
    for (bad, place) in [
        (object(json!({"a": {"type": "string", "required": false}})), "schema.properties.a"),
        (object(json!({"a": {"type": "object", "properties": {}}})), "schema.properties.a"),
        (json!({"type": "object", "properties": {}}), "schema"),
        (json!({"type": "object", "additionalProperties": true, "required": ["a"]}), "schema"),
        (object(json!({"a": {"type": "array", "items": {"type": "object"}}})), "schema.properties.a.items"),
        (object(json!({"a": {"oneOf": [{"type": "null"}, {"type": "object"}]}})), "schema.properties.a.oneOf[1]"),
        (object(json!({"a": {"type": "text"}})), "schema.properties.a"),
        (json!("string"), "schema"),
    ] {
        let error = turnwheel::tools::schema_of_shorthand(&bad).expect_err("refused");
        assert_eq!(error.code(), &Code::UnsupportedSchema);
        assert!(error.message().starts_with(&format!("{place}: ")), "{}", error.message());
    }
}
