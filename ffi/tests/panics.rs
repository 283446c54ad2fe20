//! A panic of the library behind the interface: an error code, a handle that is broken but can be freed, and nothing else.

use std::ptr::null_mut;
use turnwheel_c::basics::*;
use turnwheel_c::context::*;
use turnwheel_c::guard::{EMPTY, buf_handle, enter, quietly};
use turnwheel_c::types::*;

fn text(text: &'static str) -> tw_str {
    tw_str { ptr: text.as_ptr().cast(), len: text.len() }
}

fn runtime(options: &'static str) -> *mut tw_runtime {
    let mut runtime = null_mut();
    assert_eq!(tw_runtime_new(text(options), &mut runtime, null_mut()), TW_OK);
    runtime
}

fn status(name: &str) -> tw_status {
    let pinned = include_str!("../../tests/abi/codes.txt");
    let line = pinned.lines().find(|line| line.ends_with(&format!(" {name}"))).expect("a pinned code");
    line.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

fn opens(runtime: *mut tw_runtime) -> tw_status {
    let mut context = null_mut();
    let opened = tw_context_new(runtime, EMPTY, &mut context, null_mut());
    tw_context_release(context);
    opened
}

#[test]
fn case_163_a_panic_breaks_the_runtime_of_its_thread_and_no_other() {
    let (broken, other) = (runtime(r#"{"mode": "hosted"}"#), runtime(""));
    let mut error = null_mut();
    assert_eq!(opens(broken), TW_OK);
    assert_eq!(enter(&mut error, || panic!("injected")), status("PANIC"));
    assert_eq!(tw_error_status(error), status("PANIC"));
    tw_error_free(error);
    assert_eq!(opens(broken), status("PANIC"));
    assert_eq!(opens(other), TW_OK);
    tw_runtime_free(broken);
    tw_runtime_free(other);
    let next = runtime(r#"{"mode": "hosted"}"#);
    assert_eq!(opens(next), TW_OK);
    tw_runtime_free(next);
}

#[test]
fn case_163_a_panic_of_what_cannot_fail_is_caught_and_breaks_too() {
    let broken = runtime(r#"{"mode": "hosted"}"#);
    quietly(|| panic!("injected"));
    assert_eq!(opens(broken), status("PANIC"));
    tw_runtime_free(broken);
}

extern "C" fn panics(_: *mut std::ffi::c_void) {
    // What the library does on the thread of a runtime while host code runs there.
    let mut error = null_mut();
    assert_eq!(enter(&mut error, || panic!("injected")), status("PANIC"));
    tw_error_free(error);
}

#[test]
fn case_163_a_panic_on_the_thread_of_the_library_breaks_that_runtime() {
    let broken = runtime("");
    let mut context = null_mut();
    assert_eq!(tw_context_new(broken, EMPTY, &mut context, null_mut()), TW_OK);
    let run = turnwheel_c::routes::tw_context_with_initiator;
    assert_eq!(run(context, null_mut(), Some(panics), null_mut(), null_mut()), TW_OK);
    assert_eq!(opens(broken), status("PANIC"));
    tw_context_release(context);
    tw_runtime_free(broken);
    tw_buf_free(buf_handle("still at work"));
}

/// What each function does is inside a guard: the panics above stand for one behind each of them.
#[test]
fn case_163_every_function_runs_inside_a_guard() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let (mut functions, mut bare) = (0, Vec::new());
    for file in std::fs::read_dir(folder).expect("the sources") {
        let source = std::fs::read_to_string(file.expect("a file").path()).expect("UTF-8");
        for function in source.split("pub extern \"C\" fn ").skip(1) {
            let name = function.split('(').next().unwrap_or_default().to_owned();
            let body = function.split("\n}\n").next().unwrap_or_default();
            functions += 1;
            let inside = body.split_once(" {\n").map_or("", |(_, inside)| inside);
            if !GUARDS.iter().any(|guard| inside.contains(guard)) && !CONSTANT.contains(&name.as_str()) {
                bare.push(name);
            }
        }
    }
    assert!(functions > 150, "the functions are found: {functions}");
    assert_eq!(bare, Vec::<String>::new());
}

/// Guards, and functions of the crate whose body is a guard.
const GUARDS: [&str; 12] = [
    "enter(",
    "quietly(",
    "retain(",
    "release(",
    "self::payload(",
    "self::signal(",
    "fail(",
    "of_error(",
    "transfer(",
    "text(session",
    "tw_agent_send(",
    "tw_inbox_splice(",
];

/// Give what is fixed at compile time.
const CONSTANT: [&str; 3] = ["tw_abi_version", "tw_version", "tw_status_name"];
