//! Retry, fallback routes and rate limits, on a clock that moves only when told to. Tests are named after the ids of
//! `data.md` where there is one.
#![allow(clippy::unwrap_used)]

#[path = "support/agents.rs"]
#[allow(dead_code)]
mod agents;

use agents::*;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use turnwheel::invariants::Invariants;
use turnwheel::json;
use turnwheel::json::{Value, parse};
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::llm::{
    Adapter, Backoff, CallConfig, ChunkStream, Failure, ModelInfo, ModelRequest, RateLimits, RetryMode, RetryPolicy,
    RouteOptions, fallback, retry,
};
use turnwheel::message::{Block, Role, Source, Usage};
use turnwheel::runtime::{ManualClock, Ports, Signal};
use turnwheel::session::{History, TurnEndReason};
use turnwheel::{Agent, CancelCause, Context, EventData, Message};

fn failing(code: &str) -> ScriptedReply {
    let mut reply = ScriptedReply::error(Failure::new(code, format!("{code} happened")));
    reply.text = Some("half".into());
    reply
}

fn with_retry_after(ms: f64) -> ScriptedReply {
    ScriptedReply::error(Failure { provider_retry_after_ms: Some(ms), ..Failure::new("RATE_LIMIT", "slow down") })
}

struct Bench {
    ctx: Context,
    clock: ManualClock,
}

impl Bench {
    fn new() -> Self {
        let clock = ManualClock::new(0);
        let ports = Ports { clock: Rc::new(clock.clone()), ..Ports::default() };
        let ctx = Context::builder().ports(ports).build();
        Invariants::load(&Default::default()).unwrap().register_core(&ctx).unwrap();
        Self { ctx, clock }
    }

    fn route(&self, name: &str, adapter: impl Adapter + 'static, options: RouteOptions) {
        self.ctx.llm().register_with(&[name], Rc::new(adapter), options).unwrap();
    }

    /// Lets time pass until nothing waits.
    fn run_for(&self, seconds: u64) {
        for _ in 0..seconds * 10 {
            settle(&self.ctx);
            self.clock.advance(Duration::from_millis(100));
        }
        settle(&self.ctx);
    }
}

fn policy(max_retries: u64, jitter_ratio: f64) -> RetryPolicy {
    let RetryPolicy { mode: RetryMode::Normal { retryable_codes, .. }, backoff } = RetryPolicy::default() else {
        panic!("normal by default")
    };
    let mode = RetryMode::Normal { max_retries, retryable_codes };
    RetryPolicy { mode, backoff: Backoff { jitter_ratio, ..backoff } }
}

fn exactly(max_retries: u64) -> RouteOptions {
    RouteOptions { retry: policy(max_retries, 0.0), limits: None }
}

fn data_of(agent: &Agent, kind: &str) -> Vec<Value> {
    let found = events(agent).into_iter().filter(|event| event.kind() == kind);
    found.map(|event| parse(event.json()).unwrap().get("data").unwrap().clone()).collect()
}

fn numbers(values: &[Value], key: &str) -> Vec<f64> {
    values.iter().map(|value| value.get(key).and_then(Value::as_f64).unwrap()).collect()
}

fn last_reason(agent: &Agent) -> TurnEndReason {
    let ends = events(agent).into_iter().rev();
    let end = ends.filter_map(|event| match &event.data {
        EventData::TurnEnd { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    let found = end.into_iter().next();
    found.expect("the turn has ended")
}

fn error_code(agent: &Agent) -> String {
    match last_reason(agent) {
        TurnEndReason::Error(failure) => failure.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn rty_02_the_defaults() {
    let policy = RetryPolicy::default();
    assert_eq!(
        policy.key(),
        r#"["normal",5,["EMPTY_RESPONSE","RATE_LIMIT","SERVER","TIMEOUT","TRANSPORT"],500,10000,0.1]"#
    );
}

#[test]
fn rty_03_policies_are_checked() {
    let read = |value: Value| RetryPolicy::from_value(&value);
    assert!(read(json!({"maxRetries": 0})).is_ok(), "0 is never");
    assert_eq!(read(json!({"mode": "always", "maxRetries": 3})).unwrap().mode, RetryMode::Always);
    let refused = [
        json!({"retries": 1}),
        json!({"maxRetries": (-1)}),
        json!({"maxRetries": 1.5}),
        json!({"retryableCodes": []}),
        json!({"retryableCodes": ["A", "A"]}),
        json!({"retryableCodes": [""]}),
        json!({"backoff": {"initialDelayMs": 0}}),
        json!({"backoff": {"initialDelayMs": 20, "maxDelayMs": 10}}),
        json!({"backoff": {"maxDelayMs": 2147483648u64}}),
        json!({"backoff": {"jitterRatio": 1.1}}),
        json!({"backoff": {"delay": 1}}),
        json!({"mode": "sometimes"}),
    ];
    for value in refused {
        assert!(read(value.clone()).is_err(), "{}", value.to_text());
    }
}

#[test]
fn rty_04_delays_double_up_to_the_cap_and_jitter_stays_below_it() {
    let policy = policy(5, 0.1);
    let at = |retry, random| policy.local_delay_ms(retry, random);
    assert_eq!([at(1, 0.5), at(2, 0.5), at(3, 0.5), at(6, 0.5)], [500.0, 1000.0, 2000.0, 10_000.0]);
    assert_eq!((at(1, 0.0), at(1, 1.0)), (450.0, 550.0));
    assert_eq!((at(9, 0.0), at(9, 1.0)), (9000.0, 10_000.0), "at the cap jitter only shortens");
    assert_eq!(at(5000, 0.5), 10_000.0, "no overflow");
}

#[test]
fn rty_05_06_a_provider_delay_is_used_exactly_or_ends_the_retries() {
    let asked = |ms| Failure { provider_retry_after_ms: Some(ms), ..Failure::new("RATE_LIMIT", "m") };
    let normal = policy(2, 0.1);
    assert_eq!(normal.delay_ms(1, &asked(10_000.0), 1.0), Some(10_000.0));
    assert_eq!(normal.delay_ms(1, &asked(10_001.0), 1.0), None);
    assert_eq!(normal.delay_ms(3, &asked(1.0), 1.0), None, "the budget is used up");
    assert_eq!(normal.delay_ms(1, &Failure::new("AUTH", "m"), 1.0), None, "a code that is not listed");
    let always = RetryPolicy { mode: RetryMode::Always, ..policy(0, 0.0) };
    assert_eq!(always.delay_ms(1, &asked(10_001.0), 1.0), Some(500.0));
    assert_eq!(always.delay_ms(900, &Failure::new("AUTH", "m"), 1.0), Some(10_000.0));
}

#[test]
fn rty_09_codes_are_sorted_in_the_key_and_always_has_its_own() {
    let read = |value: Value| RetryPolicy::from_value(&value).unwrap().key();
    let backoff = json!({"initialDelayMs": 1, "maxDelayMs": 2.5, "jitterRatio": 0});
    let key = read(json!({"maxRetries": 1, "retryableCodes": ["B", "A"], "backoff": (backoff.clone())}));
    assert_eq!(key, r#"["normal",1,["A","B"],1,2.5,0]"#);
    assert_eq!(read(json!({"mode": "always", "backoff": (backoff)})), r#"["always",1,2.5,0]"#);
}

#[test]
fn rty_08_10_11_a_retry_is_logged_waits_and_stays_in_its_step() {
    let bench = Bench::new();
    let model = Scripted::new().reply(failing("SERVER")).reply(failing("TIMEOUT")).reply(ScriptedReply::text("whole"));
    bench.route("fake", model, exactly(5));
    retry::install(&bench.ctx).unwrap();
    let agent = open(&bench.ctx, "a");
    agent.followup("q").unwrap();
    settle(&bench.ctx);
    assert_eq!(count(&agent, "llm/retry"), 1, "written before the wait");
    assert_eq!(count(&agent, "llm/retry-started"), 0, "and this after it");
    bench.run_for(3);
    let scheduled = data_of(&agent, "llm/retry");
    assert_eq!(numbers(&scheduled, "delayMs"), [500.0, 1000.0]);
    assert_eq!(numbers(&scheduled, "retry"), [1.0, 2.0]);
    assert_eq!(scheduled[0].get("retryId"), scheduled[1].get("retryId"), "one chain has one id");
    let keys: Vec<_> = scheduled[0].as_object().unwrap().keys().map(str::to_owned).collect();
    assert_eq!(keys.join(" "), "retryId turn step provider mode policyKey retry maxRetries delayMs failure");
    assert_eq!(numbers(&data_of(&agent, "llm/retry-started"), "retry"), [1.0, 2.0]);
    assert_eq!((count(&agent, "step/start"), count(&agent, "turn/start")), (1, 1));
    assert_eq!(last_reason(&agent), TurnEndReason::Completed);
    let message = agent.session().history().iter().last().unwrap();
    assert_eq!(message.text(), "whole", "nothing of the failed attempts is in the message");
}

#[test]
fn rty_06_when_the_budget_is_used_up_the_turn_fails_and_the_next_step_counts_anew() {
    let bench = Bench::new();
    let model = Scripted::new().reply(failing("SERVER")).reply(failing("SERVER")).reply(failing("SERVER"));
    bench.route("fake", model.reply(ScriptedReply::text("fine")), exactly(1));
    retry::install(&bench.ctx).unwrap();
    let agent = open(&bench.ctx, "a");
    agent.followup("q").unwrap();
    bench.run_for(2);
    assert_eq!(error_code(&agent), "SERVER");
    agent.followup("r").unwrap();
    bench.run_for(2);
    assert_eq!(last_reason(&agent), TurnEndReason::Completed);
    let scheduled = data_of(&agent, "llm/retry");
    assert_eq!(numbers(&scheduled, "retry"), [1.0, 1.0]);
    assert_ne!(scheduled[0].get("retryId"), scheduled[1].get("retryId"));
}

#[test]
fn case_022_a_huge_retry_after_is_not_slept_and_a_cancelled_wait_ends_at_once() {
    let bench = Bench::new();
    bench.route(
        "fake",
        Scripted::new().reply(with_retry_after(3_600_000.0)).reply(with_retry_after(9_000.0)),
        exactly(5),
    );
    retry::install(&bench.ctx).unwrap();
    let agent = open(&bench.ctx, "a");
    agent.followup("q").unwrap();
    settle(&bench.ctx);
    assert_eq!(error_code(&agent), "RATE_LIMIT", "longer than the policy's longest wait: no retry (RTY-05)");
    agent.followup("r").unwrap();
    settle(&bench.ctx);
    assert_eq!(numbers(&data_of(&agent, "llm/retry"), "delayMs"), [9_000.0], "used exactly, without jitter");
    agent.cancel(CancelCause::User);
    settle(&bench.ctx);
    assert!(matches!(last_reason(&agent), TurnEndReason::Aborted(_)), "no time had to pass");
    assert_eq!(count(&agent, "llm/retry-started"), 0, "a cancelled wait grants no retry (RTY-10)");
}

#[test]
fn case_020_an_overload_before_and_after_output_doubles_no_text() {
    let bench = Bench::new();
    let before = ScriptedReply::error(Failure::new("SERVER", "Overloaded"));
    bench.route(
        "fake",
        Scripted::new().reply(before).reply(failing("SERVER")).reply(ScriptedReply::text("half and whole")),
        exactly(5),
    );
    retry::install(&bench.ctx).unwrap();
    let agent = open(&bench.ctx, "a");
    agent.followup("q").unwrap();
    bench.run_for(3);
    let said: Vec<_> =
        agent.session().history().iter().filter(|m| m.role() == Role::Assistant).map(|m| m.text()).collect();
    assert_eq!(said, ["half and whole"]);
}

#[test]
fn rty_07_always_retries_what_nothing_else_would() {
    let bench = Bench::new();
    let options = RouteOptions { retry: RetryPolicy { mode: RetryMode::Always, ..policy(0, 0.0) }, limits: None };
    bench.route(
        "fake",
        Scripted::new().reply(failing("AUTH")).reply(with_retry_after(1e9)).reply(ScriptedReply::text("ok")),
        options,
    );
    retry::install(&bench.ctx).unwrap();
    let agent = open(&bench.ctx, "a");
    agent.followup("q").unwrap();
    bench.run_for(3);
    assert_eq!(last_reason(&agent), TurnEndReason::Completed);
    let scheduled = data_of(&agent, "llm/retry");
    assert_eq!(scheduled[0].get("mode").and_then(Value::as_str), Some("always"));
    assert!(scheduled[0].get("maxRetries").is_none());
}

#[test]
fn rty_13_unloading_cancels_waits_and_grants_nothing() {
    let bench = Bench::new();
    bench.route("fake", Scripted::new().reply(failing("SERVER")).reply(ScriptedReply::text("never")), exactly(5));
    let plugin = retry::install(&bench.ctx).unwrap();
    let agent = open(&bench.ctx, "a");
    agent.followup("q").unwrap();
    settle(&bench.ctx);
    drop(plugin.dispose());
    settle(&bench.ctx);
    assert_eq!(error_code(&agent), "SERVER");
    bench.run_for(2);
    assert_eq!(count(&agent, "llm/retry-started"), 0);
}

#[test]
fn adp_08_the_policy_captured_at_preparation_serves_the_call() {
    let bench = Bench::new();
    let registration = {
        let model = Scripted::new().reply(failing("SERVER")).reply(ScriptedReply::text("late"));
        bench.ctx.llm().register_with(&["fake"], Rc::new(model), exactly(3)).unwrap()
    };
    retry::install(&bench.ctx).unwrap();
    let agent = open(&bench.ctx, "a");
    agent.followup("q").unwrap();
    settle(&bench.ctx);
    drop(registration.dispose());
    bench.route(
        "fake",
        Scripted::new().reply(ScriptedReply::text("other")),
        RouteOptions { retry: RetryPolicy::never(), limits: None },
    );
    bench.run_for(2);
    assert_eq!(
        last_reason(&agent),
        TurnEndReason::Completed,
        "the retry was granted by the old policy, on the new route"
    );
    assert_eq!(agent.session().history().iter().last().unwrap().text(), "other");
}

#[test]
fn adp_01_a_clash_on_one_route_leaves_all_of_them_unregistered() {
    let bench = Bench::new();
    bench.route("taken", Scripted::new(), RouteOptions::default());
    let error = bench.ctx.llm().register_shared(&["free", "taken"], Rc::new(Scripted::new())).err().unwrap();
    assert_eq!(error.code().as_str(), "DUPLICATE_ADAPTER");
    assert_eq!(bench.ctx.llm().providers(), ["taken"]);
    assert!(bench.ctx.llm().register_shared(&[], Rc::new(Scripted::new())).is_err());
}

#[test]
fn adp_07_a_prepared_call_is_streamed_once_with_its_config() {
    let bench = Bench::new();
    bench.route("fake", Scripted::new().reply(ScriptedReply::text("a")), RouteOptions::default());
    let prepare = || {
        let config = CallConfig::new("fake", "m");
        bench.ctx.runtime().block_on(bench.ctx.llm().prepare(config, &Signal::new())).unwrap()
    };
    let call = prepare();
    let request = |model: &str| {
        let header = turnwheel::llm::RequestHeader {
            config: CallConfig::new("fake", model),
            adapter_defaults: Default::default(),
            system: None,
            tools: Vec::new(),
        };
        let messages = History::from_messages(Vec::new());
        ModelRequest { header: Arc::new(header), messages, session_id: None, signal: Signal::new() }
    };
    let code = |result: turnwheel::Result<ChunkStream>| result.err().map(|error| error.code().as_str().to_owned());
    assert_eq!(code(prepare().stream(request("other"))).as_deref(), Some("INVALID_PREPARED_CALL"));
    assert_eq!(code(call.stream(request("m"))), None);
    assert_eq!(code(call.stream(request("m"))).as_deref(), Some("INVALID_PREPARED_CALL"));
}

/// Remembers the requests it gets.
#[derive(Clone, Default)]
struct Spy(Rc<RefCell<Vec<ModelRequest>>>);

impl Adapter for Spy {
    fn stream(&self, request: ModelRequest) -> ChunkStream {
        self.0.borrow_mut().push(request.clone());
        Scripted::new().reply(ScriptedReply::text("seen")).stream(request)
    }
}

#[test]
fn adp_22_replay_state_goes_only_to_the_adapter_that_wrote_it() {
    let bench = Bench::new();
    let (own, other) = (Spy::default(), Spy::default());
    bench.ctx.llm().register_shared(&["one", "two"], Rc::new(own.clone())).unwrap();
    bench.route("three", other.clone(), RouteOptions::default());
    let said = |provider: &str| {
        let replay_state = Some(json!({"response": {"kind": "x"}}));
        let source = Source::Model { provider: provider.into(), model: "m".into(), replay_state };
        Arc::new(Message::new("a", Role::Assistant, vec![Block::Text("t".into())], source))
    };
    let ask = |provider: &str, history: Vec<Arc<Message>>| {
        let config = CallConfig::new(provider, "m");
        let call = bench.ctx.runtime().block_on(bench.ctx.llm().prepare(config, &Signal::new())).unwrap();
        let header = turnwheel::llm::RequestHeader {
            config: call.config.clone(),
            adapter_defaults: Default::default(),
            system: None,
            tools: Vec::new(),
        };
        let messages = History::from_messages(history);
        drop(
            call.stream(ModelRequest { header: Arc::new(header), messages, session_id: None, signal: Signal::new() })
                .unwrap(),
        );
    };
    let kept = |spy: &Spy| {
        let request = spy.0.borrow_mut().pop().unwrap();
        let kept = request.messages.iter().map(|m| matches!(m.source(), Source::Model { replay_state: Some(_), .. }));
        kept.collect::<Vec<_>>()
    };
    let history = vec![said("one"), said("three")];
    ask("two", history.clone());
    assert_eq!(kept(&own), [true, false], "a sibling route of the same adapter");
    ask("three", history.clone());
    assert_eq!(kept(&other), [false, true]);
    assert!(matches!(history[0].source(), Source::Model { replay_state: Some(_), .. }), "the log keeps it");
}

fn route_in_log(agent: &Agent) -> Vec<String> {
    let headers = data_of(agent, "request/header");
    let name = |header: &Value| {
        let config = header.get("header").unwrap_or(header).get("config").unwrap();
        config.get("provider").and_then(Value::as_str).unwrap().to_owned()
    };
    headers.iter().map(name).collect()
}

#[test]
fn fallback_routes_are_asked_in_order_after_retries_and_seen_in_the_log() {
    let bench = Bench::new();
    let main =
        Scripted::new().reply(failing("SERVER")).reply(failing("SERVER")).reply(ScriptedReply::text("recovered"));
    bench.route("fake", main, exactly(1));
    bench.route("second", Scripted::new().reply(failing("AUTH")), exactly(1));
    bench.route("third", Scripted::new().reply(ScriptedReply::text("whole")), exactly(1));
    retry::install(&bench.ctx).unwrap();
    fallback::install(&bench.ctx, vec![CallConfig::new("second", "s"), CallConfig::new("third", "t")]).unwrap();
    let agent = open(&bench.ctx, "a");
    agent.followup("q").unwrap();
    bench.run_for(3);
    assert_eq!(last_reason(&agent), TurnEndReason::Completed);
    assert_eq!(route_in_log(&agent), ["fake", "second", "third"]);
    let falls = data_of(&agent, "llm/fallback");
    assert_eq!(falls.len(), 2);
    assert_eq!(falls[0].get("from").unwrap().to_text(), r#"{"provider":"fake","model":"m"}"#);
    assert_eq!(falls[1].get("to").unwrap().to_text(), r#"{"provider":"third","model":"t"}"#);
    let answers: Vec<_> = agent.session().history().iter().filter(|m| m.role() == Role::Assistant).cloned_texts();
    assert_eq!(answers, ["whole"], "nothing is said twice");
    agent.followup("r").unwrap();
    bench.run_for(1);
    assert_eq!(route_in_log(&agent).last().unwrap(), "fake", "the next turn begins with the first route again");
    assert_eq!(agent.session().history().iter().last().unwrap().text(), "recovered");
}

#[test]
fn fallback_leaves_bad_requests_and_used_up_lists_alone() {
    let bench = Bench::new();
    bench.route("fake", Scripted::new().reply(failing("INVALID_REQUEST")).reply(failing("AUTH")), exactly(0));
    bench.route("second", Scripted::new().reply(failing("QUOTA")), exactly(0));
    fallback::install(&bench.ctx, vec![CallConfig::new("second", "s")]).unwrap();
    let agent = open(&bench.ctx, "a");
    agent.followup("q").unwrap();
    settle(&bench.ctx);
    assert_eq!((error_code(&agent).as_str(), count(&agent, "llm/fallback")), ("INVALID_REQUEST", 0));
    agent.followup("r").unwrap();
    settle(&bench.ctx);
    assert_eq!((error_code(&agent).as_str(), count(&agent, "llm/fallback")), ("QUOTA", 1));
    assert!(fallback::install(&bench.ctx, Vec::new()).is_err());
}

#[test]
fn fallback_takes_over_from_a_route_that_nobody_serves() {
    let bench = Bench::new();
    bench.route("second", Scripted::new().reply(ScriptedReply::text("here")), exactly(0));
    fallback::install(&bench.ctx, vec![CallConfig::new("second", "s")]).unwrap();
    let agent = open(&bench.ctx, "a");
    agent.followup("q").unwrap();
    settle(&bench.ctx);
    assert_eq!(last_reason(&agent), TurnEndReason::Completed);
}

trait Texts {
    fn cloned_texts(self) -> Vec<String>;
}

impl<I: Iterator<Item = Arc<Message>>> Texts for I {
    fn cloned_texts(self) -> Vec<String> {
        self.map(|message| message.text()).collect()
    }
}

/// A model that counts when each request started.
#[derive(Clone)]
struct Timed {
    starts: Rc<RefCell<Vec<(String, i64)>>>,
    clock: ManualClock,
    tokens: u64,
}

impl Adapter for Timed {
    fn stream(&self, request: ModelRequest) -> ChunkStream {
        use turnwheel::runtime::Clock;
        let id = request.session_id.as_ref().map(ToString::to_string).unwrap_or_default();
        self.starts.borrow_mut().push((id, self.clock.now_ms()));
        let mut reply = ScriptedReply::text("ok");
        reply.usage = Some(Usage { input_tokens: self.tokens, ..Usage::default() });
        Scripted::new().reply(reply).stream(request)
    }
}

#[test]
fn limits_are_shared_by_the_agents_of_a_route_and_fair() {
    let bench = Bench::new();
    let timed = Timed { starts: Rc::default(), clock: bench.clock.clone(), tokens: 1 };
    let limits = RateLimits { requests_per_minute: Some(2), tokens_per_minute: None };
    bench.route("fake", timed.clone(), RouteOptions { limits: Some(limits), ..exactly(0) });
    let agents = ["a", "b", "c"].map(|id| open(&bench.ctx, id));
    // The first agent has a queue of its own; the others ask once.
    for id in ["1", "2", "3"] {
        agents[0].followup(prompt(id)).unwrap();
    }
    agents[1].followup("q").unwrap();
    agents[2].followup("q").unwrap();
    bench.run_for(130);
    let starts = timed.starts.borrow();
    let order: Vec<_> = starts.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(order.len(), 5);
    assert_eq!(order[..2], ["a", "b"], "the first two start at once");
    assert_eq!(order[2], "c", "before the first agent's second request");
    for window in starts.windows(3) {
        assert!(window[2].1 - window[0].1 >= 60_000, "never three within a minute: {starts:?}");
    }
}

#[test]
fn limits_count_the_tokens_that_the_provider_reports() {
    let bench = Bench::new();
    let timed = Timed { starts: Rc::default(), clock: bench.clock.clone(), tokens: 900 };
    let limits = RateLimits { requests_per_minute: None, tokens_per_minute: Some(1000) };
    bench.route("fake", timed.clone(), RouteOptions { limits: Some(limits), ..exactly(0) });
    let agent = open(&bench.ctx, "a");
    agent.followup(prompt("1")).unwrap();
    agent.followup(Message::user_text("2", "x".repeat(800))).unwrap();
    bench.run_for(70);
    let starts: Vec<_> = timed.starts.borrow().iter().map(|(_, at)| *at).collect();
    assert_eq!(starts.len(), 2);
    assert!(starts[1] - starts[0] >= 60_000, "200 more tokens than 900 do not fit: {starts:?}");
    let zero = RouteOptions {
        limits: Some(RateLimits { requests_per_minute: Some(0), tokens_per_minute: None }),
        ..exactly(0)
    };
    assert!(bench.ctx.llm().register_with(&["z"], Rc::new(Scripted::new()), zero).is_err());
}

#[test]
fn a_request_that_waits_for_its_place_can_be_cancelled_and_frees_it() {
    let bench = Bench::new();
    let timed = Timed { starts: Rc::default(), clock: bench.clock.clone(), tokens: 1 };
    let limits = RateLimits { requests_per_minute: Some(1), tokens_per_minute: None };
    bench.route("fake", timed.clone(), RouteOptions { limits: Some(limits), ..exactly(0) });
    let agents = ["a", "b", "c"].map(|id| open(&bench.ctx, id));
    for agent in &agents {
        agent.followup("q").unwrap();
    }
    settle(&bench.ctx);
    agents[1].cancel(CancelCause::User);
    settle(&bench.ctx);
    assert!(matches!(last_reason(&agents[1]), TurnEndReason::Aborted(_)), "at once");
    bench.run_for(61);
    assert_eq!(timed.starts.borrow().iter().map(|(id, _)| id.clone()).collect::<Vec<_>>(), ["a", "c"]);
}

#[test]
fn adp_06_the_models_defaults_are_filled_in_and_marked() {
    struct Known;
    impl Adapter for Known {
        fn model_info(
            &self,
            _: &str,
            _: &str,
            _: &Signal,
        ) -> turnwheel::runtime::LocalBoxFuture<turnwheel::Result<ModelInfo>> {
            let info = ModelInfo {
                default_max_tokens: Some(7),
                efforts: vec!["low".into()],
                default_effort: Some("low".into()),
                ..ModelInfo::default()
            };
            Box::pin(std::future::ready(Ok(info)))
        }
        fn stream(&self, request: ModelRequest) -> ChunkStream {
            Scripted::new().reply(ScriptedReply::text("x")).stream(request)
        }
    }
    let bench = Bench::new();
    bench.route("known", Known, RouteOptions::default());
    let prepare = |config| bench.ctx.runtime().block_on(bench.ctx.llm().prepare(config, &Signal::new()));
    let call = prepare(CallConfig::new("known", "m")).unwrap();
    assert_eq!((call.config.max_tokens, call.config.reasoning_effort.as_deref()), (Some(7), Some("low")));
    assert!(call.defaults.max_tokens && call.defaults.reasoning_effort);
    let own = CallConfig { max_tokens: Some(3), ..CallConfig::new("known", "m") };
    assert!(!prepare(own).unwrap().defaults.max_tokens);
    let wrong = CallConfig { reasoning_effort: Some("huge".into()), ..CallConfig::new("known", "m") };
    assert_eq!(prepare(wrong).err().unwrap().code().as_str(), "UNSUPPORTED_REASONING_EFFORT");
}

#[test]
fn fail_01_facts_that_cannot_be_are_left_out() {
    let read = |value: Value| Failure::from_value(&value);
    let odd = json!({"message": "m", "code": "c", "status": 700, "providerRetryAfterMs": (-1), "requestId": ""});
    assert_eq!(read(odd), Some(Failure::new("c", "m")));
    let all = json!({"message": "m", "code": "c", "status": 429, "providerRetryAfterMs": 1.5, "requestId": "r"});
    assert_eq!(read(all.clone()).unwrap().to_value(), all);
    assert_eq!(read(json!({"message": "m"})), None);
}
