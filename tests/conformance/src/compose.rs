//! Compositions: what is registered before any agent exists, in an agent's setup, and how agents are opened.

use crate::additions::StoreDouble;
use crate::doubles::ToolSpec;
use crate::model::ModelDouble;
use crate::scenario::{AgentSpec, OptionsSpec, Scenario, TextSpec};
use crate::world::{GENERATED, Slot, World};
use serde_json::{Value as Json, json};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use turnwheel::agent::{ModelChoice, ModelSelection, Notice, NoticeKind};
use turnwheel::config::ConfiguredAgent;
use turnwheel::context::{Budget, LoopOptions};
use turnwheel::id::CountingIds;
use turnwheel::json::Value;
use turnwheel::runtime::{ManualClock, Ports};
use turnwheel::session::{Event, SessionHeader};
use turnwheel::system_prompt::{PromptText, ToolOrder};
use turnwheel::{Context, Error, Result};

impl World {
    /// Registers everything global in the fresh context (section 3).
    pub fn compose(self: &Rc<Self>) -> Result<()> {
        let ctx = self.ctx();
        for provider in &self.scenario.providers {
            ctx.llm().register(&provider.id, ModelDouble::new(self, provider))?;
        }
        crate::record::register(self, &ctx)?;
        let prompt = &self.scenario.prompt;
        if prompt.identity {
            ctx.prompt().identity()?;
        }
        if !prompt.persona.is_empty() {
            ctx.prompt().persona(prompt.persona.as_str())?;
        }
        if prompt.runtime_context == Some(false) {
            ctx.prompt().suppress_contexts()?;
        }
        if let Some(order) = &prompt.tool_order {
            ctx.prompt().set_tool_order(ToolOrder::listed(order.clone())?);
        }
        self.register_additions(&ctx)?;
        for spec in &self.scenario.event_types {
            ctx.register_event_type(spec.kind.as_str(), spec.version)?;
        }
        self.register_inputs(&ctx, None)?;
        for (index, listener) in self.scenario.on.iter().enumerate() {
            if listener.scope.as_deref() != Some("agent") {
                crate::listeners::register(self, &ctx, index)?;
            }
        }
        Ok(())
    }

    /// What the actions of section 13 need: the check behind `refuse`, and the record of starts that failed.
    fn register_additions(self: &Rc<Self>, ctx: &Context) -> Result<()> {
        if self.scenario.needs("event-checks") {
            let world = Rc::downgrade(self);
            ctx.check_events(move |_, event| match world.upgrade() {
                Some(world) if world.refuses(event.kind()) => Err(Error::host(format!("{} is refused", event.kind()))),
                _ => Ok(()),
            })?;
        }
        if self.scenario.needs("config") {
            let world = Rc::downgrade(self);
            ctx.on(NoticeKind::ConfigStartFailed, move |notice| {
                if let (Notice::ConfigStartFailed { session_id, error }, Some(world)) = (notice, world.upgrade()) {
                    world.failed(&format!("start {session_id}"), error);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Whether an event is to be refused; each refusal is used up.
    fn refuses(&self, kind: &str) -> bool {
        match self.refusals.borrow_mut().get_mut(kind) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    /// Starts agents as an application's configuration would (CFG), each under its exact id.
    pub fn start_configured(&self, ids: &[String]) -> Result<()> {
        let options = OptionsSpec::mock().to_core();
        let entry = |id: &String| ConfiguredAgent {
            agent: options.clone(),
            session_id: Some(id.clone()),
            ..ConfiguredAgent::new(id.as_str())
        };
        self.ctx().start_agents(&ids.iter().map(entry).collect::<Vec<_>>())
    }

    /// Sections, contexts, variables and tools of one layer.
    fn register_inputs(self: &Rc<Self>, ctx: &Context, agent: Option<&str>) -> Result<()> {
        let own = |owner: &Option<String>| owner.as_deref() == agent;
        for spec in self.scenario.sections.iter().filter(|spec| own(&spec.agent)) {
            let text = self.text("section", spec);
            match spec.complete {
                true => ctx.prompt().complete_section(&spec.name, spec.order, text)?,
                false => ctx.prompt().section(&spec.name, spec.order, text)?,
            };
        }
        for spec in self.scenario.contexts.iter().filter(|spec| own(&spec.agent)) {
            ctx.prompt().context(&spec.name, spec.order, self.text("context", spec))?;
        }
        for spec in self.scenario.variables.iter().filter(|spec| own(&spec.agent)) {
            let cell = self.text_cell("variable", &spec.name, agent).expect("variables were declared");
            ctx.prompt().variable(&spec.name, PromptText::dynamic(move |_| Ok(cell.borrow().clone())))?;
        }
        for spec in self.scenario.tools.iter().filter(|spec| own(&spec.agent)) {
            self.register_tool(ctx, spec)?;
        }
        Ok(())
    }

    fn text(&self, kind: &'static str, spec: &TextSpec) -> PromptText {
        let cell = self.text_cell(kind, &spec.name, spec.agent.as_deref()).expect("texts were declared");
        PromptText::dynamic(move |_| Ok(cell.borrow().clone()))
    }

    /// Registers a tool double.
    pub fn register_tool(self: &Rc<Self>, ctx: &Context, spec: &ToolSpec) -> Result<()> {
        let registration = ctx.tools().register(crate::tools::tool(self, spec))?;
        self.tool_registrations.borrow_mut().insert(spec.name.clone(), registration);
        Ok(())
    }

    /// An agent's own registrations, in the order of section 3.2.
    fn set_up(self: &Rc<Self>, ctx: &Context, spec: &AgentSpec) -> Result<()> {
        if let Some(declared) = &spec.select {
            let known = self.selections.borrow().get(&spec.id).map(ModelSelection::current);
            let selection = ModelSelection::new(known.unwrap_or_else(|| choice(declared)));
            selection.install(ctx)?;
            self.selections.borrow_mut().insert(spec.id.clone(), selection);
        }
        self.register_inputs(ctx, Some(&spec.id))?;
        for (index, listener) in self.scenario.on.iter().enumerate() {
            let owner = listener.agent.as_deref().unwrap_or(self.scenario.default_agent());
            if listener.scope.as_deref() == Some("agent") && owner == spec.id {
                crate::listeners::register(self, ctx, index)?;
            }
        }
        spec.setup.as_ref().map_or(Ok(()), |setup| Err(setup.throw.to_core()))
    }

    /// Creates an agent, or resumes it from `log`.
    pub fn open(
        self: &Rc<Self>,
        spec: &AgentSpec,
        options: Option<OptionsSpec>,
        seed: Option<Vec<Arc<Event>>>,
        log: Option<(SessionHeader, Vec<Arc<Event>>)>,
    ) -> Result<Slot> {
        let ctx = match &spec.owner {
            Some(owner) => self.agent(owner)?.ctx()?,
            None => self.ctx(),
        };
        let options = options.or_else(|| spec.options.clone()).unwrap_or_else(OptionsSpec::mock);
        let (world, own) = (self.clone(), spec.clone());
        let fields = spec.clone();
        let mut builder = ctx
            .agent(spec.id.as_str())
            .options(options.to_core())
            .header(move |header| {
                header.cwd = fields.cwd;
                header.parent_session = fields.parent_session.map(Into::into);
                header.seed_length = fields.seed_length;
                header.delegation_depth = fields.delegation_depth;
            })
            .setup(move |ctx| std::future::ready(world.set_up(&ctx, &own)));
        if let Some(seed) = seed {
            builder = builder.seed(seed);
        }
        let slot = Slot::default();
        let done = slot.clone();
        ctx.runtime().spawn(async move {
            let opened = match log {
                Some((header, events)) => builder.resume_from(header, events).await,
                None => builder.create().await,
            };
            *done.borrow_mut() = Some(opened.map(|_| ()));
        });
        Ok(slot)
    }

    /// Creates a declared agent, or resumes it from its declared log.
    pub fn open_declared(self: &Rc<Self>, spec: &AgentSpec) -> Result<Slot> {
        let seed = spec.seed.as_ref().map(|seed| events(seed)).transpose()?;
        let log = match &spec.stored {
            Some(stored) => {
                let mut header = json!({ "version": 0, "id": spec.id, "createdAt": 1 });
                for (key, value) in &stored.header {
                    header[key.as_str()] = value.clone();
                }
                Some((SessionHeader::from_value(&Value::from(header))?, events(&stored.events)?))
            }
            None => None,
        };
        self.open(spec, None, seed, log)
    }
}

/// The root context of a lifetime, on a clock that stands still and with ids that no scenario uses.
pub fn empty_context(scenario: &Scenario, lifetime: u64, clock: &ManualClock, store: &StoreDouble) -> Context {
    let ids = CountingIds::new(format!("{GENERATED}{lifetime}"));
    let ports = Ports { clock: Rc::new(clock.clone()), ids: Rc::new(ids) };
    let mut options = LoopOptions::default();
    if let Some(cap) = scenario.loop_spec.max_parallel_tool_calls {
        options.max_parallel_tool_calls = cap;
    }
    if let Some(budget) = scenario.loop_spec.turn_budget {
        options.turn_budget = Budget { steps: budget.steps, tool_calls: budget.tool_calls, ..Budget::default() };
    }
    options.max_tool_result_bytes = scenario.loop_spec.max_tool_result_bytes.or(options.max_tool_result_bytes);
    options.turn_timeout = scenario.loop_spec.turn_timeout_ms.map(Duration::from_millis);
    let builder = Context::builder().ports(ports).loop_options(options);
    match scenario.needs("store") {
        true => builder.store(store.clone()).durability(scenario.loop_spec.durability()).build(),
        false => builder.build(),
    }
}

/// A model choice; `None` without a provider.
pub fn choice(json: &Json) -> Option<ModelChoice> {
    let text = |key: &str| json.get(key).and_then(Json::as_str).map(str::to_owned);
    let model = text("model").unwrap_or_default();
    Some(ModelChoice { provider: text("provider")?, model, reasoning_effort: text("reasoningEffort") })
}

/// Events in the short form of section 3.2.
fn events(list: &[Json]) -> Result<Vec<Arc<Event>>> {
    let surface = ["user/message", "assistant/message", "tool/result"];
    let complete = |(seq, event): (usize, &Json)| {
        let mut event = event.clone();
        for (key, default) in [("seq", json!(seq)), ("time", json!(1))] {
            if event.get(key).is_none() {
                event[key] = default;
            }
        }
        let placed = event.get("surfaceOp").is_some();
        if !placed && event.get("type").and_then(Json::as_str).is_some_and(|kind| surface.contains(&kind)) {
            event["surfaceOp"] = json!("append");
        }
        Event::from_value(&Value::from(event)).map(Arc::new)
    };
    list.iter().enumerate().map(complete).collect()
}
