//! Runs a scenario and describes what happened in the layout of `expect` (SCENARIO.md section 8).

use crate::actions::{Done, perform, resume};
use crate::doubles::ToolSpec;
use crate::record::{AgentRecord, RequestRecord, pending, plain};
use crate::scenario::Scenario;
use crate::world::{GENERATED, Slot, World};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::rc::Rc;
use turnwheel::{EventData, Message, Session, texts};

/// Runs a scenario to its end. Beside what happened stands what was wrong with the scenario itself, for example a response
/// that nobody asked for; an error means that it could not be run at all.
pub fn run(scenario: &Scenario) -> Result<(Json, Vec<String>), String> {
    let world = World::new(scenario.clone()).map_err(|error| format!("the composition failed: {error}"))?;
    for spec in scenario.agents.iter().filter(|spec| spec.create != Some(false)) {
        let opened = world.open_declared(spec);
        world.settle();
        if let Err(error) = opened.and_then(|slot| outcome(&slot)) {
            world.failed(&format!("create {}", spec.id), &error);
        }
    }
    let mut marks = vec![mark(&world, None, false)];
    for (index, action) in scenario.steps.iter().enumerate() {
        let place = format!("step {index}");
        let done = match action.act.as_str() {
            "resume" => resume(&world, action).map(Done::Awaited).unwrap_or_else(|error| {
                world.failed(&place, &error);
                Done::Failed
            }),
            _ => perform(&world, action, &place),
        };
        world.settle();
        marks.push(match done {
            Done::Returned(returned) => mark(&world, returned, false),
            Done::Failed => mark(&world, None, true),
            Done::Awaited(slot) => match outcome(&slot) {
                Ok(()) => mark(&world, None, false),
                Err(error) => {
                    world.failed(&place, &error);
                    mark(&world, None, true)
                }
            },
        });
    }
    let result = describe(&world, marks);
    world.ctx().runtime().close();
    Ok((result, world.problems()))
}

fn outcome(slot: &Slot) -> turnwheel::Result<()> {
    let settled = slot.borrow_mut().take();
    settled.unwrap_or_else(|| Err(turnwheel::Error::host("the operation did not settle within its step")))
}

fn mark(world: &World, returned: Option<Json>, failed: bool) -> Json {
    let mut agents = json!({});
    for record in world.recorder.agents.borrow().iter() {
        agents[record.id.as_str()] = json!({
            "log": record.agent.session().len(),
            "notices": record.notices.len(),
            "requests": record.requests.len(),
            "status": record.agent.status().as_str(),
        });
    }
    let mut mark = json!({ "agents": agents });
    let held = world.gates.held();
    if !held.is_empty() {
        mark["blocked"] = json!(held);
    }
    let settled = std::mem::take(&mut *world.settled.borrow_mut());
    for (name, outcome) in settled {
        mark["settled"][name] = outcome;
    }
    if let Some(returned) = returned {
        mark["returned"] = returned;
    }
    if failed {
        mark["failed"] = json!(true);
    }
    mark
}

fn describe(world: &Rc<World>, marks: Vec<Json>) -> Json {
    let live: Vec<_> = world.ctx().agents().iter().map(|agent| agent.id().as_str().to_owned()).collect();
    let mut agents = json!({});
    for record in world.recorder.agents.borrow().iter() {
        agents[record.id.as_str()] = describe_agent(world, record);
    }
    json!({ "live": live, "agents": agents, "errors": *world.errors.borrow(), "steps": marks })
}

fn describe_agent(world: &World, record: &AgentRecord) -> Json {
    let names = Names::of(record);
    let session = record.agent.session();
    let mut header = plain(&session.header().to_value());
    if let Some(members) = header.as_object_mut() {
        members.shift_remove("createdAt");
    }
    let events = session.events_from(0);
    let work = turnwheel::session::fold_consumed_work(&events);
    let log: Vec<_> = events.iter().map(|event| names.clean(log_entry(plain(&event.to_value())))).collect();
    let notices: Vec<_> = record.notices.iter().map(|notice| names.clean(notice.borrow().clone())).collect();
    let carriers = Carriers::of(&names, session);
    let history: Vec<_> = session.history().iter().map(|message| carriers.reference(&names, &message)).collect();
    let requests: Vec<_> = record.requests.iter().map(|request| describe_request(world, &names, request)).collect();
    let mut agent = json!({
        "status": record.agent.status().as_str(),
        "header": header,
        "pending": names.clean(pending(&record.agent)),
        "work": { "end": work.end, "droppedUnrun": work.dropped_unrun },
        "history": history,
        "log": log,
        "notices": notices,
        "requests": requests,
    });
    if !record.runs.is_empty() {
        agent["tools"] = json!(record.runs);
    }
    agent
}

fn log_entry(mut event: Json) -> Json {
    if let Some(members) = event.as_object_mut() {
        members.shift_remove("seq");
        members.shift_remove("time");
    }
    event
}

fn describe_request(world: &World, names: &Names, request: &RequestRecord) -> Json {
    let mut json = json!({});
    if let Some(initiator) = request.initiator.as_ref().filter(|_| world.scenario.records("initiator")) {
        json["initiator"] = json!(initiator);
    }
    json["config"] = plain(&request.header.config.to_value());
    if let Some(system) = &request.header.system {
        json["system"] = json!(&**system);
    }
    if !request.header.tools.is_empty() {
        let tool = |text: &str| {
            let sent: Json = serde_json::from_str(text).expect("a tool's text is JSON");
            let declared = world.tools.borrow().iter().any(|spec| declaration(spec) == sent);
            if declared { sent["name"].clone() } else { sent }
        };
        json["tools"] = request.header.tools.iter().map(|schema| tool(schema.json())).collect();
    }
    let mut json = names.clean(json);
    if let Some(session) = &request.session {
        let carriers = Carriers::of(names, session);
        json["messages"] = request.messages.iter().map(|message| carriers.reference(names, message)).collect();
    }
    json
}

fn declaration(spec: &ToolSpec) -> Json {
    let parameters = spec.parameters.clone().unwrap_or_else(|| json!({ "type": "object", "properties": {} }));
    json!({ "name": spec.name, "description": spec.description, "parameters": parameters })
}

/// What generated message ids are called.
struct Names(HashMap<String, String>);

impl Names {
    fn of(record: &AgentRecord) -> Self {
        let mut names = HashMap::new();
        for session in record.sessions.iter().rev() {
            for event in session.events_from(0) {
                for message in carried(&event.data) {
                    let id = message.id().as_str();
                    if id.starts_with(GENERATED) && !names.contains_key(id) {
                        names.insert(id.to_owned(), format!("@{}", event.seq));
                    }
                }
            }
        }
        Self(names)
    }

    fn name(&self, id: &str) -> String {
        if !id.starts_with(GENERATED) {
            return id.to_owned();
        }
        self.0.get(id).cloned().unwrap_or_else(|| "@?".into())
    }

    /// Replaces generated ids and the implementation's own texts.
    fn clean(&self, json: Json) -> Json {
        match json {
            Json::String(text) if text.starts_with(GENERATED) => Json::String(self.name(&text)),
            Json::String(text) => Json::String(resolve_text(text)),
            Json::Array(items) => items.into_iter().map(|item| self.clean(item)).collect(),
            Json::Object(members) => {
                Json::Object(members.into_iter().map(|(key, value)| (key, self.clean(value))).collect())
            }
            other => other,
        }
    }
}

/// The texts of our own that reach the model, by key.
const TEXTS: [(&str, &str); 9] = [
    ("TOOL_ABORTED_BEFORE_DISPATCH", texts::TOOL_ABORTED_BEFORE_DISPATCH),
    ("TOOL_ABORTED", texts::TOOL_ABORTED),
    ("TOOL_NOT_STARTED", texts::TOOL_NOT_STARTED),
    ("TOOL_OUTCOME_UNKNOWN", texts::TOOL_OUTCOME_UNKNOWN),
    ("UNKNOWN_TOOL", texts::UNKNOWN_TOOL),
    ("INVALID_ARGS", texts::INVALID_ARGS),
    ("CONTEXT_SNAPSHOT", texts::CONTEXT_SNAPSHOT),
    ("CONTEXT_CLEARED", texts::CONTEXT_CLEARED),
    ("HARNESS_IDENTITY", texts::HARNESS_IDENTITY),
];

fn resolve_text(text: String) -> String {
    let found = TEXTS.iter().find_map(|(key, own)| Some((key, text.strip_prefix(own)?)));
    match found {
        Some((key, rest)) => format!("$text:{key}{rest}"),
        None => text,
    }
}

/// The first message of each id in a log, as JSON.
struct Carriers(HashMap<String, Json>);

impl Carriers {
    fn of(names: &Names, session: &Session) -> Self {
        let mut carriers = HashMap::new();
        for event in session.events_from(0) {
            for message in carried(&event.data) {
                let known = carriers.contains_key(message.id().as_str());
                if !known {
                    carriers.insert(message.id().as_str().to_owned(), names.clean(plain(&message.to_value())));
                }
            }
        }
        Self(carriers)
    }

    /// The id of a message that the log carries unchanged, or the message.
    fn reference(&self, names: &Names, message: &Message) -> Json {
        let full = names.clean(plain(&message.to_value()));
        match self.0.get(message.id().as_str()) {
            Some(carrier) if *carrier == full => json!(names.name(message.id())),
            _ => full,
        }
    }
}

fn carried(data: &EventData) -> Vec<&Message> {
    match data {
        EventData::InboxSpliced(splice) => splice.inserted.iter().map(|message| &**message).collect(),
        _ => data.message().map(|message| &**message).into_iter().collect(),
    }
}
