//! Cost per turn does not grow with the number of turns: counted in allocations, not in time (scale; case 143).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use turnwheel::llm::ModelRequest;
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::{Agent, Context, Tool, ToolOutput};

/// Counts what this thread allocates.
struct Counting;

thread_local! {
    static BYTES: Cell<u64> = const { Cell::new(0) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn note(size: usize) {
    BYTES.with(|bytes| bytes.set(bytes.get() + size as u64));
    COUNT.with(|count| count.set(count.get() + 1));
}

// SAFETY: everything is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn turn(ctx: &Context, agent: &Agent) {
    agent.followup("hello").expect("accepted");
    ctx.runtime().block_on(agent.when_idle()).expect("idle");
}

/// The cost of the cheapest of ten turns, in allocations and bytes: the others pay for what grows now and then.
fn cheapest(ctx: &Context, agent: &Agent) -> (u64, u64) {
    let one = |_| {
        let before = (COUNT.get(), BYTES.get());
        turn(ctx, agent);
        (COUNT.get() - before.0, BYTES.get() - before.1)
    };
    (0..10).map(one).min().expect("ten turns")
}

#[test]
fn case_143_a_turn_with_a_tool_allocates_as_much_after_two_thousand_turns_as_after_twenty() {
    let ctx = Context::new();
    let sent = Rc::new(RefCell::new(Vec::new()));
    let requests = sent.clone();
    let model = Scripted::new().respond(move |request: &ModelRequest| {
        let last = request.messages.get(request.messages.len() - 1).expect("a message");
        requests.borrow_mut().push(request.messages.len());
        match last.source().kind() {
            "tool" => ScriptedReply::text("done"),
            _ => ScriptedReply::calls([("c", "t", "{}")]),
        }
    });
    ctx.llm().register("fake", model).expect("a new route");
    ctx.tools().register(Tool::new("t", |_| async { Ok(ToolOutput::value("result")) })).expect("registered");
    let agent = ctx.runtime().block_on(ctx.agent("a").provider("fake").model("m").open()).expect("opened");
    sent.borrow_mut().reserve(10_000);
    (0..20).for_each(|_| turn(&ctx, &agent));
    let (early, early_bytes) = cheapest(&ctx, &agent);
    (0..2_000).for_each(|_| turn(&ctx, &agent));
    let (late, late_bytes) = cheapest(&ctx, &agent);
    assert_eq!(sent.borrow().last(), Some(&(2_040 * 4 - 1)), "each request carries the whole history");
    assert!(late <= early + early / 50, "{early} allocations, then {late}");
    assert!(late_bytes <= early_bytes + early_bytes / 20, "{early_bytes} bytes, then {late_bytes}");
}
