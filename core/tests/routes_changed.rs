//! What is told of model routes that come and go (ADP-01 to ADP-03).

use std::cell::RefCell;
use std::rc::Rc;
use turnwheel::agent::NoticeKind;
use turnwheel::error::Error;
use turnwheel::llm::adapters::Scripted;
use turnwheel::{Context, Result};

/// A context, and the routes that stood whenever a change of them was told.
fn listening(answer: fn() -> Result<()>) -> (Context, Rc<RefCell<Vec<String>>>) {
    let ctx = Context::new();
    let told = Rc::new(RefCell::new(Vec::new()));
    let (log, looking) = (told.clone(), ctx.clone());
    ctx.on(NoticeKind::ModelsChanged, move |notice| {
        assert_eq!(notice.kind().as_str(), "models/changed");
        log.borrow_mut().push(looking.llm().providers().join("+"));
        answer()
    })
    .expect("registered");
    (ctx, told)
}

fn taken(told: &RefCell<Vec<String>>) -> Vec<String> {
    std::mem::take(&mut told.borrow_mut())
}

#[test]
fn adp_2_each_change_of_the_routes_is_told_once_and_after_it_happened() {
    let (ctx, told) = listening(|| Ok(()));
    let both = ctx.llm().register_shared(&["a", "b"], Rc::new(Scripted::new())).expect("registered");
    assert_eq!(taken(&told), ["a+b"], "one notice for two routes");
    let third = ctx.llm().register("c", Scripted::new()).expect("registered");
    both.dispose();
    third.dispose();
    third.dispose();
    assert_eq!(taken(&told), ["a+b+c", "c", ""], "a second disposal changes nothing");
}

#[test]
fn adp_2_what_is_refused_is_told_to_nobody() {
    let (ctx, told) = listening(|| Ok(()));
    ctx.llm().register("b", Scripted::new()).expect("registered");
    taken(&told);
    let clash = ctx.llm().register_shared(&["a", "b"], Rc::new(Scripted::new())).expect_err("taken");
    assert_eq!(clash.code().as_str(), "DUPLICATE_ADAPTER");
    ctx.llm().register("", Scripted::new()).expect_err("no name");
    assert!(told.borrow().is_empty());
    assert_eq!(ctx.llm().providers(), ["b"], "all or nothing (ADP-01)");
}

#[test]
fn adp_2_a_listener_that_fails_undoes_nothing() {
    let (ctx, told) = listening(|| Err(Error::host("no")));
    let route = ctx.llm().register("a", Scripted::new()).expect("stands all the same");
    assert_eq!(ctx.llm().providers(), ["a"]);
    route.dispose();
    assert_eq!(taken(&told), ["a", ""]);
}

#[test]
fn adp_2_routes_end_with_the_context_that_owns_them_and_that_is_told() {
    let (ctx, told) = listening(|| Ok(()));
    let plugin = ctx.plugin(|own| async move { own.llm().register("a", Scripted::new()).map(drop) }).expect("mounted");
    ctx.runtime().block_on(async {
        plugin.ready().await.expect("mounted");
        plugin.dispose().await;
    });
    ctx.quiet().llm().register("b", Scripted::new()).expect("registered");
    assert_eq!(taken(&told), ["a", ""], "a quiet context tells nothing");
}

#[test]
fn adp_3_an_old_registration_leaves_the_next_one_of_its_adapter_alone() {
    let (ctx, told) = listening(|| Ok(()));
    let adapter = Rc::new(Scripted::new());
    let old = ctx.llm().register_shared(&["a"], adapter.clone()).expect("registered");
    old.dispose();
    ctx.llm().register_shared(&["a"], adapter).expect("the route is free");
    taken(&told);
    old.dispose();
    assert_eq!(ctx.llm().providers(), ["a"]);
    assert!(told.borrow().is_empty());
}
