//! One scenario in the making: its doubles, its recorder, and the composition of the current lifetime.

use crate::action::Action;
use crate::additions::{Operation, StoreDouble};
use crate::compose::empty_context;
use crate::doubles::{ModelScript, ResponseSpec, ToolSpec};
use crate::gates::Gates;
use crate::record::Recorder;
use crate::scenario::Scenario;
use serde_json::{Value as Json, json};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use turnwheel::agent::ModelSelection;
use turnwheel::context::Registration;
use turnwheel::runtime::{ManualClock, PumpState};
use turnwheel::{Agent, Context, Error, Result};

/// Ids that the runtime makes start with this; no scenario uses it.
pub const GENERATED: &str = "~generated~";

/// The result of an operation that is spawned; there when it has settled.
pub type Slot = Rc<RefCell<Option<Result<()>>>>;

type TextKey = (&'static str, String, Option<String>);

/// The state of one scenario, across its lifetimes.
pub struct World {
    /// The scenario.
    pub scenario: Scenario,
    /// The gates.
    pub gates: Gates,
    /// What was observed.
    pub recorder: Recorder,
    /// Failed actions.
    pub errors: RefCell<Vec<Json>>,
    /// Named operations that settled since the last mark.
    pub settled: RefCell<Vec<(String, Json)>>,
    /// Operations that are waited for, by name.
    pub operations: RefCell<HashMap<String, Rc<Operation>>>,
    /// The clock, which moves only when told to.
    pub clock: ManualClock,
    /// The store of scenarios that have one.
    pub store: StoreDouble,
    /// The tools declared so far.
    pub tools: RefCell<Vec<ToolSpec>>,
    /// The model selections in force.
    pub selections: RefCell<HashMap<String, ModelSelection>>,
    /// How many more events of a type are refused before they are committed.
    pub refusals: RefCell<HashMap<String, u64>>,
    problems: RefCell<Vec<String>>,
    scripts: RefCell<HashMap<String, VecDeque<ResponseSpec>>>,
    texts: RefCell<HashMap<TextKey, Rc<RefCell<Option<String>>>>>,
    counters: Vec<Cell<u64>>,
    lifetime: Cell<u64>,
    ctx: RefCell<Context>,
    /// The registrations of tools, by name.
    pub tool_registrations: RefCell<HashMap<String, Registration>>,
}

impl World {
    /// A world whose first composition stands; no agent exists yet.
    pub fn new(scenario: Scenario) -> Result<Rc<Self>> {
        let scripts = match scenario.model.clone() {
            ModelScript::One(responses) => HashMap::from([(scenario.default_agent().to_owned(), responses.into())]),
            ModelScript::ByAgent(scripts) => scripts.into_iter().map(|(id, script)| (id, script.into())).collect(),
        };
        let (clock, store) = (ManualClock::new(1_000), StoreDouble::default());
        let first = empty_context(&scenario, 1, &clock, &store);
        let world = Rc::new(Self {
            gates: Gates::default(),
            recorder: Recorder::new(scenario.records("inbox")),
            errors: RefCell::default(),
            settled: RefCell::default(),
            operations: RefCell::default(),
            tools: RefCell::new(scenario.tools.clone()),
            selections: RefCell::default(),
            refusals: RefCell::default(),
            problems: RefCell::default(),
            scripts: RefCell::new(scripts),
            texts: RefCell::default(),
            counters: scenario.on.iter().map(|_| Cell::new(0)).collect(),
            lifetime: Cell::new(0),
            ctx: RefCell::new(first),
            clock,
            store,
            tool_registrations: RefCell::default(),
            scenario,
        });
        world.declare_texts();
        world.begin_lifetime()?;
        Ok(world)
    }

    fn declare_texts(&self) {
        let mut texts = self.texts.borrow_mut();
        let mut declare = |kind, name: &str, agent: &Option<String>, text: Option<&String>| {
            texts.insert((kind, name.to_owned(), agent.clone()), Rc::new(RefCell::new(text.cloned())));
        };
        for spec in &self.scenario.sections {
            declare("section", &spec.name, &spec.agent, Some(&spec.text));
        }
        for spec in &self.scenario.contexts {
            declare("context", &spec.name, &spec.agent, Some(&spec.text));
        }
        for spec in &self.scenario.variables {
            declare("variable", &spec.name, &spec.agent, spec.text.as_ref());
        }
    }

    /// The context of the current lifetime.
    pub fn ctx(&self) -> Context {
        self.ctx.borrow().clone()
    }

    /// The number of the current lifetime, from 1.
    pub fn lifetime(&self) -> u64 {
        self.lifetime.get()
    }

    /// The scenario itself is wrong, or the runner cannot run it.
    pub fn problem(&self, problem: String) {
        self.problems.borrow_mut().push(problem);
    }

    /// What was wrong, and what the scripts have left.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.problems.borrow().clone();
        let left: usize = self.scripts.borrow().values().map(VecDeque::len).sum();
        if left > 0 {
            problems.push(format!("{left} scripted responses were not asked for"));
        }
        problems
    }

    /// The next scripted response of an agent.
    pub fn next_response(&self, agent: &str) -> Option<ResponseSpec> {
        self.scripts.borrow_mut().get_mut(agent)?.pop_front()
    }

    /// Counts a matching dispatch of a listener; the first is 1.
    pub fn count(&self, listener: usize) -> u64 {
        let counter = &self.counters[listener];
        counter.set(counter.get() + 1);
        counter.get()
    }

    /// The name of a listener in `errors`.
    pub fn listener_name(&self, index: usize) -> String {
        self.scenario.on[index].name.clone().unwrap_or_else(|| format!("on[{index}]"))
    }

    /// The ambient initiating agent.
    pub fn initiator(&self) -> Option<String> {
        self.ctx().root().current_initiator().map(|agent| agent.id().as_str().to_owned())
    }

    /// An agent of this lifetime, live or disposed.
    pub fn agent(&self, id: &str) -> Result<Agent> {
        let known = self.ctx().find_agent(id).or_else(|| self.recorder.agent_of(id, self.lifetime()));
        known.ok_or_else(|| Error::host(format!("there is no agent {id}")))
    }

    /// The text cell that `set` changes.
    pub fn text_cell(
        &self,
        kind: &'static str,
        name: &str,
        agent: Option<&str>,
    ) -> Option<Rc<RefCell<Option<String>>>> {
        self.texts.borrow().get(&(kind, name.to_owned(), agent.map(str::to_owned))).cloned()
    }

    /// Pumps until nothing can proceed without another stimulus.
    pub fn settle(&self) {
        let runtime = self.ctx().runtime().clone();
        for _ in 0..1_000_000 {
            match runtime.pump() {
                PumpState::Idle | PumpState::Reentrant => return,
                PumpState::More => {}
            }
        }
        self.problem("the runtime does not settle".into());
    }

    fn begin_lifetime(self: &Rc<Self>) -> Result<()> {
        self.lifetime.set(self.lifetime.get() + 1);
        self.recorder.begin_lifetime(self.lifetime.get());
        self.compose()
    }

    /// Abandons the current lifetime and composes the next one.
    pub fn next_lifetime(self: &Rc<Self>) -> Result<()> {
        let old = self.ctx.replace(empty_context(&self.scenario, self.lifetime.get() + 1, &self.clock, &self.store));
        old.runtime().close();
        self.gates.forget_holders();
        self.operations.borrow_mut().clear();
        self.tool_registrations.borrow_mut().clear();
        self.begin_lifetime()
    }

    /// Unregisters a tool by name.
    pub fn remove_tool(&self, name: &str) -> Result<()> {
        let registration = self.tool_registrations.borrow_mut().remove(name);
        let registration = registration.ok_or_else(|| Error::host(format!("there is no tool {name}")))?;
        registration.dispose();
        Ok(())
    }

    /// Records a failed action.
    pub fn failed(&self, place: &str, error: &Error) {
        let mut json = crate::record::error_json(error);
        json["where"] = json!(place);
        if let Some(cause) = error.cause() {
            json["cause"] = json!(cause.message());
        }
        self.errors.borrow_mut().push(json);
    }

    /// Performs actions in one breath.
    pub fn perform_batch(self: &Rc<Self>, actions: &[Action], place: &str) {
        for (index, action) in actions.iter().enumerate() {
            crate::actions::perform(self, action, &format!("{place}[{index}]"));
        }
    }
}
