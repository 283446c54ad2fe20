//! Another loop in the place of the default one, from the public building blocks: publication, inbox, assembly, dispatch,
//! model routes, tool scheduler (REG, FAC-2, FAC-3). It waits for each turn where the default loop yields, knows no
//! recovery, no budgets and no maintenance; what surrounds a loop works with it all the same.

#[path = "support/agents.rs"]
#[allow(dead_code, reason = "shared by several test files")]
mod agents;

use agents::{Log, kinds, noop, prompt, record, settle};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use turnwheel::agent::{
    AgentOptions, AgentState, CreateOptions, Driver, MaintenanceTask, Notice, PreStep, PreStepDecision, Publication,
};
use turnwheel::llm::adapters::Scripted;
use turnwheel::llm::{Assembler, CallConfig, ModelRequest, RequestHeader};
use turnwheel::message::{Block, Role, Source};
use turnwheel::runtime::{LocalBoxFuture, Signal, WakerSet, yield_now};
use turnwheel::session::{InboxTarget, SurfaceOp, TurnEndReason};
use turnwheel::{Agent, AgentStatus, CancelCause, Code, Context, Error, Message, Result, json};

/// Another loop. What it does is in `drain` and `turn`, 60 lines together.
struct Tiny {
    this: Weak<Tiny>,
    agent: Agent,
    signal: RefCell<Signal>,
    running: Cell<bool>,
    waiting: WakerSet,
}

impl Tiny {
    fn make(agent: &Agent) -> Rc<dyn Driver> {
        Rc::new_cyclic(|this: &Weak<Tiny>| Tiny {
            this: this.clone(),
            agent: agent.clone(),
            signal: RefCell::default(),
            running: Cell::new(false),
            waiting: WakerSet::default(),
        })
    }

    fn status_is(&self, running: bool) {
        self.running.set(running);
        if let Ok(ctx) = self.agent.ctx() {
            ctx.emit(Notice::Status { agent: self.agent.clone(), status: self.status() });
        }
    }

    async fn drain(self: Rc<Self>) {
        let mut turn = 0;
        while self.agent.inbox().has_pending() && !self.agent.is_disposed() {
            turn += 1;
            *self.signal.borrow_mut() = Signal::new();
            let signal = self.signal.borrow().clone();
            let ended = self.turn(turn, &signal).await;
            let reason = match (signal.cause(), ended) {
                (Some(cause), _) => TurnEndReason::Aborted(cause),
                (None, Ok(())) => TurnEndReason::Completed,
                (None, Err(error)) => TurnEndReason::Error(turnwheel::llm::Failure::new("UNKNOWN", error.message())),
            };
            self.log("turn/end", json!({"turn": turn, "reason": (reason.to_value())}), false).expect("logged");
        }
        self.status_is(false);
        self.waiting.wake_all();
    }

    fn log(&self, kind: &str, data: turnwheel::json::Value, shown: bool) -> Result<()> {
        let place = shown.then_some(SurfaceOp::Append);
        self.agent.session().append_raw(kind, data, place, None, false).map(drop)
    }

    async fn turn(&self, turn: u64, signal: &Signal) -> Result<()> {
        let (agent, ctx, root) = (&self.agent, self.agent.ctx()?, self.agent.ctx()?.root().clone());
        self.log("turn/start", json!({"turn": turn}), false)?;
        let mut claimed = agent.inbox().claim(InboxTarget::NextTurn, turn)?;
        for step in 1.. {
            yield_now().await;
            let assembly = turnwheel::system_prompt::assemble(&root, agent, signal).await?;
            let messages = RefCell::new(claimed);
            let offered = Rc::new(PreStep { agent: agent.clone(), messages, turn, step, signal: signal.clone() });
            let enter = |offered: Rc<PreStep>| async move { Ok(PreStepDecision::Enter(offered.messages.take())) };
            let decided = root.hub.waterfall(&root.scopes, ctx.scope(), offered, enter).await?;
            signal.check()?;
            let PreStepDecision::Enter(messages) = decided else { return Err(Error::host("blocked")) };
            self.log("step/start", json!({"turn": turn, "step": step}), false)?;
            messages.iter().try_for_each(|message| self.log("user/message", message.to_value(), true))?;
            let system = turnwheel::system_prompt::render_system(&assembly)?;
            let call = ctx.llm().prepare(CallConfig::new("fake", "m"), signal).await?;
            let (config, adapter_defaults) = (call.config.clone(), call.defaults);
            let header = Arc::new(RequestHeader { config, adapter_defaults, system, tools: assembly.tools });
            let (messages, session_id) = (agent.session().history(), Some(agent.id().clone()));
            let mut stream = call.adapter.stream(ModelRequest { header, messages, session_id, signal: signal.clone() });
            let mut assembler = Assembler::new();
            while let Some(chunk) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
                assembler.push(&chunk?);
            }
            let source = Source::Model { provider: "fake".into(), model: "m".into(), replay_state: None };
            let id = ctx.runtime().next_id();
            let message = Message::new(id, Role::Assistant, assembler.assemble()?.content, source);
            let data = json!({"turn": turn, "step": step, "message": (message.to_value()), "interrupted": false});
            self.log("assistant/message", data, true)?;
            let calls = message.content().iter().any(|block| matches!(block, Block::ToolCall { .. }));
            turnwheel::tools::answer_tool_calls(agent, turn, step, signal, &message).await?;
            self.log("step/end", json!({"turn": turn, "step": step}), false)?;
            if !calls {
                break;
            }
            claimed = agent.inbox().claim(InboxTarget::NextStep, turn)?;
        }
        Ok(())
    }
}

impl Driver for Tiny {
    fn deliver(&self, message: Arc<Message>, target: InboxTarget, wakeup: bool, _after_cancel: bool) -> Result<()> {
        self.agent.inbox().append(target, vec![message])?;
        if wakeup {
            self.wake(false);
        }
        Ok(())
    }

    fn wake(&self, _after_cancel: bool) {
        let Some(this) = self.this.upgrade().filter(|this| !this.running.get()) else { return };
        this.status_is(true);
        let ctx = self.agent.ctx().expect("a live agent has a context");
        let drain = ctx.initiate(Some(&self.agent), this.drain()).expect("the context is open");
        ctx.runtime().spawn(drain);
    }

    fn abort(&self, cause: CancelCause, _keep_inbox: bool) {
        self.signal.borrow().cancel(cause);
    }

    fn reset_latch(&self) {}

    fn status(&self) -> AgentStatus {
        if self.running.get() { AgentStatus::Running } else { AgentStatus::Idle }
    }

    fn state(&self) -> AgentState {
        let (running_tools, latch, parked) = Default::default();
        AgentState { phase: "idle", turn: 0, step: 0, running_tools, latch, parked, next_step: 0, next_turn: 0 }
    }

    fn when_idle(&self) -> LocalBoxFuture<()> {
        let this = self.this.clone();
        Box::pin(poll_fn(move |context| match this.upgrade().filter(|this| this.running.get()) {
            Some(this) => {
                this.waiting.register(context);
                Poll::Pending
            }
            None => Poll::Ready(()),
        }))
    }

    fn run_maintenance(&self, _task: MaintenanceTask) -> Result<()> {
        Err(Error::new(Code::Busy, "this loop knows no maintenance"))
    }

    fn published(&self) {}
}

fn create(ctx: &Context, id: &str) -> Agent {
    let mut options = CreateOptions::new(id.into());
    options.agent = AgentOptions { provider: Some("fake".into()), model: Some("m".into()), max_tokens: None };
    ctx.runtime().block_on(ctx.registry().create(options)).expect("created").agent().clone()
}

fn context(script: Scripted) -> Context {
    let ctx = Context::builder().without_loop().build();
    ctx.registry().set_factory(Rc::new(Publication::new(Tiny::make))).expect("the slot is free");
    ctx.llm().register("fake", script).expect("a new route");
    ctx
}

#[test]
fn a_loop_of_sixty_lines_takes_the_place_of_the_default_one() {
    let script = Scripted::new().calls([("c1", "look", "{}")]).text("seen").text("again");
    let ctx = context(script.clone());
    let heard: Log = record(&ctx);
    ctx.prompt().section("house", 10.0, "You are {{model}}.").expect("registered");
    let initiator: Rc<RefCell<Option<Agent>>> = Rc::default();
    let (seen, looking) = (initiator.clone(), ctx.clone());
    let look = noop("look").parallel_when(move |_| {
        *seen.borrow_mut() = looking.root().current_initiator();
        true
    });
    ctx.tools().register(look).expect("registered");
    let agent = create(&ctx, "a");
    let offered: Log = Log::default();
    let own = agent.ctx().expect("live");
    let elsewhere = ctx.new_scope().expect("a scope");
    for (name, listening) in [("all", &ctx), ("own", &own), ("elsewhere", elsewhere.ctx())] {
        let offered = offered.clone();
        let listener = move |step: Rc<PreStep>, next: turnwheel::events::Next<PreStepDecision>| {
            offered.borrow_mut().push(format!("{name} {}/{}", step.turn, step.step));
            async move { next.call().await }
        };
        listening.waterfall::<PreStep, _>(listener).expect("registered");
    }
    assert_eq!(ctx.registry().get("a").as_ref(), Some(&agent));
    agent.followup(prompt("q1")).expect("accepted");
    assert_eq!(agent.status(), AgentStatus::Running);
    agent.followup(prompt("q2")).expect("accepted");
    settle(&ctx);
    let expected = [
        "agent/inbox/spliced",
        "turn/start",
        "agent/inbox/spliced",
        "agent/inbox/spliced",
        "step/start",
        "user/message",
        "assistant/message",
        "tool/call",
        "tool/result",
        "step/end",
        "step/start",
        "assistant/message",
        "step/end",
        "turn/end",
    ];
    assert_eq!(agents::ends(&agent), ["completed", "completed"], "{:?}", agents::turn_ends(&agent));
    assert_eq!(kinds(&agent)[..expected.len()], expected);
    assert_eq!(initiator.borrow().as_ref(), Some(&agent), "its turns run in the agent's own boundary");
    let request = script.last_request().expect("asked");
    assert_eq!(request.header.system.as_deref(), Some("You are m."));
    assert_eq!(request.messages.len(), 5, "prompt, call, result, answer, prompt");
    assert_eq!(agents::lines(&heard, &["status"]), ["status running", "status idle"]);
    let carried = ["all 1/1", "own 1/1", "all 1/2", "own 1/2", "all 2/1", "own 2/1"];
    assert_eq!(*offered.borrow(), carried, "dispatched with the agent as its carrier");
    let receipt = agent.receipt("q2");
    assert!(
        ctx.runtime().block_on(receipt.settled()).is_ok(),
        "receipts are folds over the log and need no loop of ours"
    );
}

#[test]
fn the_loop_has_sixty_lines() {
    let text = include_str!("own_loop.rs");
    let lines = |begin: &str| {
        let from = text.find(begin).expect("the function is here");
        text[from..].find("\n    }\n").map(|length| text[from..from + length].lines().count() + 1)
    };
    let both = lines("async fn drain(self").zip(lines("async fn turn(&self"));
    assert!(both.is_some_and(|(drain, turn)| drain + turn <= 60), "{both:?}");
}

#[test]
fn another_loop_is_cancelled_disposed_and_unloaded_like_the_default_one() {
    let ctx = context(Scripted::new().calls([("c1", "wait", "{}")]));
    let heard = record(&ctx);
    let (tool, _, gate) = agents::gated("wait");
    ctx.tools().register(tool).expect("registered");
    let agent = create(&ctx, "a");
    agent.followup(prompt("q1")).expect("accepted");
    settle(&ctx);
    let closing = ctx.clone();
    let closed = Rc::new(Cell::new(false));
    let flag = closed.clone();
    ctx.runtime().spawn(async move {
        closing.close().await.expect("closed");
        flag.set(true);
    });
    settle(&ctx);
    assert!(!closed.get(), "a started body is awaited");
    agents::release(&gate);
    settle(&ctx);
    assert!(closed.get() && agent.is_disposed());
    assert_eq!(agents::ends(&agent), ["aborted"]);
    assert_eq!(agents::results(&agent), [("c1".to_owned(), "ABORTED".to_owned())]);
    let told = agents::lines(&heard, &["status", "agent/disposed", "session/disposed"]);
    assert_eq!(told, ["status running", "status idle", "agent/disposed", "session/disposed"]);
}
