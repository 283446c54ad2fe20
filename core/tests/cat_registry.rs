//! The registry of live agents, with hand-written ones: agent.md section 13. Named after the ids.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;
#[path = "support/still.rs"]
mod still;

use agents::{hello, lines, open, record};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use still::still;
use turnwheel::agent::Entered;
use turnwheel::{Agent, Code, Context, Error, Message, NoticeKind};

fn ids(agents: &[Agent]) -> Vec<&str> {
    agents.iter().map(|agent| agent.id().as_str()).collect()
}

#[test]
fn reg_1_registering_enters_and_announces_in_one_effect_of_the_callers_context() {
    let ctx = Context::new();
    let heard = record(&ctx);
    let owner = ctx.new_scope().expect("a scope");
    let agent = still(&ctx, "a");
    let registration = owner.ctx().registry().register(&agent).expect("registered");
    assert_eq!(ctx.registry().get("a").as_ref(), Some(&agent));
    assert!(registration.dispose().is_none(), "the effect's own disposer is synchronous");
    assert!(ctx.registry().get("a").is_none());
    let again = still(&ctx, "a");
    owner.ctx().registry().register(&again).expect("the id is free again");
    ctx.runtime().block_on(owner.dispose());
    assert!(ctx.registry().list().is_empty(), "the owner's end unregisters");
    assert_eq!(lines(&heard, &["agent/"]), ["agent/created", "agent/disposed", "agent/created", "agent/disposed"]);
}

#[test]
fn reg_2_and_13_entering_reserves_the_id_without_announcing() {
    let ctx = Context::new();
    let heard = record(&ctx);
    let (first, second) = (still(&ctx, "a"), still(&ctx, "a"));
    let entered = ctx.registry().enter(&first).expect("the id is free");
    let error = ctx.registry().enter(&second).map(|_| ()).expect_err("taken");
    assert_eq!(error.code(), &Code::SessionAlreadyExists);
    assert_eq!(ctx.registry().get("a").as_ref(), Some(&first), "the registry is unchanged");
    entered.detach();
    entered.detach();
    assert!(ctx.registry().get("a").is_none());
    assert!(heard.borrow().is_empty(), "what was never announced goes in silence");
}

#[test]
fn reg_3_an_agent_is_announced_once_and_only_while_it_is_entered() {
    let ctx = Context::new();
    let heard = record(&ctx);
    let agent = still(&ctx, "a");
    let registry = ctx.registry();
    assert_eq!(registry.announce(&agent).expect_err("unknown").code(), &Code::NotRegistered);
    let entered = registry.enter(&agent).expect("entered");
    let stranger = still(&ctx, "a");
    assert_eq!(registry.announce(&stranger).expect_err("another of the same id").code(), &Code::NotRegistered);
    registry.announce(&agent).expect("announced");
    assert_eq!(registry.announce(&agent).expect_err("again").code(), &Code::NotRegistered);
    entered.detach();
    assert_eq!(registry.announce(&agent).expect_err("gone").code(), &Code::NotRegistered);
    assert_eq!(lines(&heard, &["agent/created"]).len(), 1);
}

#[test]
fn reg_4_and_5_a_failing_listener_vetoes_with_its_own_error_and_the_pair_is_complete() {
    let ctx = Context::new();
    let heard = record(&ctx);
    ctx.on(NoticeKind::Created, |_| Err(Error::coded("MyError", "MINE", "not here"))).expect("registered");
    let later = Rc::new(Cell::new(false));
    let ran = later.clone();
    ctx.on(NoticeKind::Created, move |_| {
        ran.set(true);
        Ok(())
    })
    .expect("registered");
    let error = ctx.registry().register(&still(&ctx, "a")).map(|_| ()).expect_err("vetoed");
    assert_eq!((error.code().as_str(), error.name(), error.message()), ("MINE", Some("MyError"), "not here"));
    assert!(!later.get(), "later listeners do not run");
    assert!(ctx.registry().list().is_empty());
    assert_eq!(lines(&heard, &["agent/"]), ["agent/created", "agent/disposed"]);
}

#[test]
fn reg_6_a_detach_during_the_announcement_waits_until_everybody_saw_the_entry() {
    let ctx = Context::new();
    let heard = record(&ctx);
    let agent = still(&ctx, "a");
    let entered: Rc<RefCell<Option<Entered>>> = Rc::default();
    let (detaching, looking) = (entered.clone(), ctx.clone());
    ctx.on(NoticeKind::Created, move |_| {
        detaching.borrow().as_ref().expect("entered").detach();
        Ok(())
    })
    .expect("registered");
    let seen = Rc::new(Cell::new(false));
    let saw = seen.clone();
    ctx.on(NoticeKind::Created, move |_| {
        saw.set(looking.registry().get("a").is_some());
        Ok(())
    })
    .expect("registered");
    *entered.borrow_mut() = Some(ctx.registry().enter(&agent).expect("entered"));
    ctx.registry().announce(&agent).expect("announced");
    assert!(seen.get(), "the later listener found the entry");
    assert!(ctx.registry().get("a").is_none(), "and then it was removed");
    assert_eq!(lines(&heard, &["agent/"]), ["agent/created", "agent/disposed"]);
}

#[test]
fn reg_7_a_stale_detach_removes_nobody_else() {
    let ctx = Context::new();
    let (first, second) = (still(&ctx, "a"), still(&ctx, "a"));
    let stale = ctx.registry().enter(&first).expect("entered");
    stale.detach();
    let fresh = ctx.registry().enter(&second).expect("the id is free");
    stale.detach();
    assert_eq!(ctx.registry().get("a").as_ref(), Some(&second));
    fresh.detach();
    let again = ctx.registry().enter(&second).expect("the same agent may enter again");
    fresh.detach();
    assert!(ctx.registry().get("a").is_some(), "a token removes its own entry only");
    again.detach();
    assert!(ctx.registry().get("a").is_none());
}

#[test]
fn reg_8_a_disposal_is_told_after_the_removal_contained_and_routed_as_the_creation() {
    let ctx = Context::new();
    let agent = still(&ctx, "a");
    let (own, stranger) = (agent.ctx().expect("its context"), still(&ctx, "b"));
    let heard: Rc<RefCell<Vec<String>>> = Rc::default();
    let listen = |who: &'static str, ctx: &Context, kind: NoticeKind| {
        let (heard, looking) = (heard.clone(), ctx.clone());
        ctx.on(kind, move |notice| {
            let found = looking.registry().get("a").is_some();
            heard.borrow_mut().push(format!("{who} {} {found}", notice.kind().as_str()));
            if kind == NoticeKind::Disposed { Err(Error::host("contained")) } else { Ok(()) }
        })
        .expect("registered");
    };
    for kind in [NoticeKind::Created, NoticeKind::Disposed] {
        listen("own", &own, kind);
        listen("stranger", &stranger.ctx().expect("its context"), kind);
        listen("all", &ctx, kind);
    }
    ctx.registry().register(&agent).expect("registered").dispose();
    let expected =
        ["own agent/created true", "all agent/created true", "own agent/disposed false", "all agent/disposed false"];
    assert_eq!(*heard.borrow(), expected);
}

#[test]
fn reg_9_lists_are_fresh_copies_in_order_of_registration() {
    let ctx = Context::new();
    let registry = ctx.registry();
    let entries: Vec<_> = ["b", "a", "c"].iter().map(|id| registry.enter(&still(&ctx, id)).expect("entered")).collect();
    let before = registry.list();
    assert_eq!(ids(&before), ["b", "a", "c"]);
    entries[0].detach();
    registry.enter(&still(&ctx, "b")).expect("entered");
    assert_eq!(ids(&registry.list()), ["a", "c", "b"]);
    assert_eq!(ids(&before), ["b", "a", "c"], "a copy does not change");
}

#[test]
fn reg_10_to_12_owners_come_from_the_calling_context_and_only_direct_ones_count() {
    let ctx = agents::context(hello());
    let parent = open(&ctx, "parent");
    let child = open(&parent.ctx().expect("live"), "child");
    let through = child.ctx().expect("live").new_scope().expect("a scope");
    open(through.ctx(), "grandchild");
    let registry = ctx.registry();
    assert_eq!(ids(&registry.roots()), ["parent"]);
    assert!(registry.is_owned_by("child", &parent));
    assert!(registry.is_owned_by("grandchild", &child), "a context derived from an agent's counts as that agent's");
    assert!(!registry.is_owned_by("grandchild", &parent), "a grandparent is no owner");
    assert!(!registry.is_owned_by("parent", &child));
    ctx.runtime().block_on(child.dispose());
    assert!(!registry.is_owned_by("child", &parent), "only while the entry is live");
    ctx.runtime().block_on(parent.dispose());
    let successor = open(&ctx, "parent");
    let orphan = open(&successor.ctx().expect("live"), "child");
    assert!(!registry.is_owned_by("child", &parent), "a later agent of the same id is another owner");
    assert!(registry.is_owned_by(orphan.id(), &successor));
}

#[test]
fn reg_14_a_hand_written_agent_is_kept_as_it_is_and_tears_itself_down() {
    let ctx = Context::new();
    let agent = still(&ctx, "a");
    assert_eq!(agent.followup("early").expect_err("private").code(), &Code::NotPublished);
    let session = ctx.enter_session(&agent).expect("its session is findable");
    let registration = ctx.registry().register(&agent).expect("registered");
    let heard = record(&ctx);
    agent.followup(Message::user_text("q1", "one")).expect("its driver takes messages");
    assert_eq!(lines(&heard, &["log", "inserted"]), ["log agent/inbox/spliced", "inserted q1"]);
    registration.dispose();
    assert_eq!(agent.followup("late").expect_err("detached").code(), &Code::Disposed);
    assert!(ctx.root().session("a").is_some(), "its session is its maker's business");
    session.dispose();
    assert!(ctx.root().session("a").is_none());
}
