//! What a request's prompt is made of, collected at a step boundary.

use super::UNLISTED_TOOLS;
use crate::agent::Agent;
use crate::context::Root;
use crate::error::{Code, Error, Result};
use crate::llm::ToolSchema;
use crate::runtime::Signal;
use std::rc::Rc;
use std::sync::Arc;

/// A section with its text, before variables are replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The name.
    pub name: String,
    /// Its place.
    pub order: f64,
    /// The text.
    pub text: Arc<str>,
}

/// A runtime context with its text, before variables are replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextText {
    /// The name.
    pub name: String,
    /// The text.
    pub text: Arc<str>,
}

/// `system-prompt/assemble`: a prompt is being put together.
#[derive(Debug)]
pub struct AssemblyRequest {
    /// The agent.
    pub agent: Agent,
    /// Fires when the turn is cancelled.
    pub signal: Signal,
}

/// The prompt of one step. Listeners may change what they return (SYS-10).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assembly {
    /// The sections, in order.
    pub sections: Vec<Section>,
    /// The tools, in the order sent.
    pub tools: Vec<Arc<ToolSchema>>,
    /// The variables; `None` is registered without a value.
    pub variables: Vec<(String, Option<Arc<str>>)>,
    /// The runtime contexts, in order.
    pub contexts: Vec<ContextText>,
    /// The text that is used alone, whatever the sections are (SYS-04).
    complete: Option<Arc<str>>,
}

impl Assembly {
    /// Sets a variable.
    pub fn set_variable(&mut self, name: &str, value: Option<Arc<str>>) {
        match self.variables.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.variables.push((name.to_owned(), value)),
        }
    }

    pub(super) fn complete(&self) -> Option<&str> {
        self.complete.as_deref()
    }
}

/// Assembles the prompt of an agent's next step, for loops of your own too.
pub async fn assemble(root: &Rc<Root>, agent: &Agent, signal: &Signal) -> Result<Assembly> {
    let scope = Some(agent.scope());
    let suppressed = root.prompt.suppressors.find(&root.scopes, scope, "suppressed").is_some();
    let payload = Rc::new(AssemblyRequest { agent: agent.clone(), signal: signal.clone() });
    let inner = root.clone();
    let complete = Rc::new(std::cell::RefCell::new(None));
    let kept = complete.clone();
    let default = move |request: Rc<AssemblyRequest>| async move {
        let assembly = collect(&inner, &request.agent, suppressed).await?;
        *kept.borrow_mut() = assembly.complete.clone();
        Ok(assembly)
    };
    let mut assembly = root.hub.waterfall(&root.scopes, scope, payload, default).await?;
    // A complete text stands as it was before the listeners; contexts they add to a suppressed set are discarded.
    let complete = complete.borrow_mut().take();
    if complete.is_some() {
        assembly.complete = complete;
    }
    if suppressed {
        assembly.contexts.clear();
    }
    Ok(assembly)
}

async fn collect(root: &Rc<Root>, agent: &Agent, suppressed: bool) -> Result<Assembly> {
    let scope = Some(agent.scope());
    let mut assembly = Assembly { variables: variables(root, agent).await?, ..Assembly::default() };
    let mut sections = root.prompt.sections.merged(&root.scopes, scope);
    sections.sort_by(|a, b| a.value.order.total_cmp(&b.value.order));
    let mut complete = None;
    for section in sections {
        let text = section.value.text.get(agent).await?.unwrap_or_default();
        if section.value.complete && complete.replace(text.clone()).is_some() {
            let message = "two complete prompt sections are active; remove one";
            return Err(Error::new(Code::InvalidPrompt, message).with("section", section.name));
        }
        assembly.sections.push(Section { name: section.name, order: section.value.order, text });
    }
    let guidance = crate::tools::guidance(root, scope);
    for section in guidance {
        if !assembly.sections.iter().any(|registered| registered.name == section.name) {
            let at = assembly.sections.partition_point(|other| other.order < section.order);
            assembly.sections.insert(at, section);
        }
    }
    assembly.complete = complete;
    if !suppressed {
        let mut contexts = root.prompt.contexts.merged(&root.scopes, scope);
        contexts.sort_by(|a, b| a.value.order.total_cmp(&b.value.order));
        for context in contexts {
            let text = context.value.text.get(agent).await?.unwrap_or_default();
            assembly.contexts.push(ContextText { name: context.name, text });
        }
    }
    assembly.tools = ordered(root, agent, root.tools.presented(root, scope)?)?;
    Ok(assembly)
}

/// The agent's own variables, shadowed by registered ones; all are evaluated, used or not (SYS-06).
async fn variables(root: &Rc<Root>, agent: &Agent) -> Result<Vec<(String, Option<Arc<str>>)>> {
    let options = agent.options();
    let text = |value: Option<&String>| value.map(|text| Arc::from(text.as_str()));
    let mut variables = vec![
        ("provider".to_owned(), text(options.provider.as_ref())),
        ("model".to_owned(), text(options.model.as_ref())),
        ("cwd".to_owned(), text(agent.session().header().cwd.as_ref())),
    ];
    for variable in root.prompt.variables.merged(&root.scopes, Some(agent.scope())) {
        let value = variable.value.get(agent).await?;
        match variables.iter_mut().find(|(name, _)| *name == variable.name) {
            Some((_, old)) => *old = value,
            None => variables.push((variable.name, value)),
        }
    }
    Ok(variables)
}

fn ordered(root: &Rc<Root>, agent: &Agent, mut tools: Vec<Arc<ToolSchema>>) -> Result<Vec<Arc<ToolSchema>>> {
    tools.sort_by(|a, b| a.name().encode_utf16().cmp(b.name().encode_utf16()));
    let order = root.prompt.tool_order.borrow().0.clone();
    let Some(order) = order else { return Ok(tools) };
    let known = root.tools.known_names(root, Some(agent.scope()));
    if let Some(unknown) = order.iter().find(|name| *name != UNLISTED_TOOLS && !known.contains(name)) {
        let message = format!("the tool order names {unknown:?}; known tools: {}", known.join(", "));
        return Err(Error::new(Code::InvalidPrompt, message));
    }
    let place = |tool: &Arc<ToolSchema>| {
        let listed = order.iter().position(|name| name == tool.name());
        listed.or_else(|| order.iter().position(|name| name == UNLISTED_TOOLS)).unwrap_or(order.len())
    };
    // The sort is stable, so unlisted tools keep their alphabetical order.
    tools.sort_by_key(place);
    Ok(tools)
}
