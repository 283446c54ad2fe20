//! The system prompt: sections, variables, runtime contexts and the tools of a request (SYS, SNAP).

mod assembly;
mod render;

pub use assembly::assemble;
pub use assembly::{Assembly, AssemblyRequest, ContextText, Section};
pub use render::{render_contexts, render_system};

use crate::agent::{Agent, Notice};
use crate::context::{Context, Registration};
use crate::error::{Code, Error, Result};
use crate::runtime::LocalBoxFuture;
use crate::scope::Layers;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Computes a text anew at every assembly. For a variable, `None` means that it is registered and has no value.
pub type TextSource = dyn Fn(&Agent) -> LocalBoxFuture<Result<Option<Arc<str>>>>;

/// A text: fixed, or computed at every assembly.
#[derive(Clone)]
pub enum PromptText {
    /// Always this.
    Fixed(Arc<str>),
    /// What the function gives.
    Dynamic(Rc<TextSource>),
}

impl PromptText {
    /// A text that `compute` gives anew at every assembly.
    pub fn dynamic(compute: impl Fn(&Agent) -> Result<Option<String>> + 'static) -> Self {
        PromptText::Dynamic(Rc::new(move |agent| {
            let text = compute(agent).map(|text| text.map(Arc::from));
            Box::pin(std::future::ready(text))
        }))
    }

    pub(crate) async fn get(&self, agent: &Agent) -> Result<Option<Arc<str>>> {
        match self {
            PromptText::Fixed(text) => Ok(Some(text.clone())),
            PromptText::Dynamic(compute) => {
                let (compute, agent) = (compute.clone(), agent.clone());
                crate::events::guarded_future(move || compute(&agent)).await
            }
        }
    }
}

impl From<&str> for PromptText {
    fn from(text: &str) -> Self {
        PromptText::Fixed(text.into())
    }
}

impl From<String> for PromptText {
    fn from(text: String) -> Self {
        PromptText::Fixed(text.into())
    }
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) order: f64,
    pub(crate) text: PromptText,
    pub(crate) complete: bool,
}

/// How tools are ordered in requests (SYS-08).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOrder(pub(crate) Option<Vec<String>>);

/// The marker for the tools that an order does not name.
pub const UNLISTED_TOOLS: &str = "<unlisted-tools>";

impl ToolOrder {
    /// By UTF-16 code units of the name.
    pub fn by_name() -> Self {
        Self(None)
    }

    /// As listed; exactly one entry is [`UNLISTED_TOOLS`] (SYS-09).
    pub fn listed(names: Vec<String>) -> Result<Self> {
        let bad = |what: &str| Err(Error::new(Code::InvalidPrompt, format!("tool order: {what}")));
        if names.iter().filter(|name| *name == UNLISTED_TOOLS).count() != 1 {
            return bad("exactly one entry must be <unlisted-tools>");
        }
        let repeated = names.iter().enumerate().any(|(i, name)| names[..i].contains(name));
        if repeated { bad("a name is listed twice") } else { Ok(Self(Some(names))) }
    }
}

/// The prompt inputs of a root.
#[derive(Default)]
pub struct PromptTable {
    pub(crate) sections: Layers<Entry>,
    pub(crate) contexts: Layers<Entry>,
    pub(crate) variables: Layers<PromptText>,
    pub(crate) tool_order: RefCell<ToolOrder>,
    pub(crate) suppressors: Layers<()>,
}

/// The system prompt, as a context registers it.
#[derive(Clone)]
pub struct Prompt {
    ctx: Context,
}

impl Prompt {
    pub(crate) fn new(ctx: Context) -> Self {
        Self { ctx }
    }

    /// Owns a registration, and tells of it: a listener that fails rolls it back (SYS-11).
    fn own(&self, remove: impl FnOnce(&PromptTable) + 'static) -> Result<Registration> {
        self.ctx.own_change(|scope| Notice::PromptChanged { scope }, move |root| remove(&root.prompt))
    }

    fn add(&self, table: fn(&PromptTable) -> &Layers<Entry>, name: &str, entry: Entry) -> Result<Registration> {
        self.ctx.fiber().check()?;
        if !entry.order.is_finite() {
            return Err(Error::new(Code::InvalidPrompt, format!("{name:?}: the order must be a finite number")));
        }
        let scope = self.ctx.scope();
        let id = table(&self.ctx.root().prompt).add(scope, name, entry)?;
        self.own(move |prompt| table(prompt).remove(scope, id))
    }

    /// Adds a section. Sections sort by `order`; a nearer scope's section of the same name takes its place (SYS-01,
    /// SYS-03).
    pub fn section(&self, name: &str, order: f64, text: impl Into<PromptText>) -> Result<Registration> {
        self.add(|prompt| &prompt.sections, name, Entry { order, text: text.into(), complete: false })
    }

    /// Adds a section that is used alone (SYS-04).
    pub fn complete_section(&self, name: &str, order: f64, text: impl Into<PromptText>) -> Result<Registration> {
        self.add(|prompt| &prompt.sections, name, Entry { order, text: text.into(), complete: true })
    }

    /// Adds a runtime context: text that changes while an agent lives, sent as a message when it does (SNAP-01).
    pub fn context(&self, name: &str, order: f64, text: impl Into<PromptText>) -> Result<Registration> {
        self.add(|prompt| &prompt.contexts, name, Entry { order, text: text.into(), complete: false })
    }

    /// Adds a variable; `{{name}}` in sections and contexts is replaced by its value (SYS-05).
    pub fn variable(&self, name: &str, text: impl Into<PromptText>) -> Result<Registration> {
        self.ctx.fiber().check()?;
        if !render::is_variable_name(name) {
            let message = format!("a variable name matches [a-z][a-z0-9_]*, and {name:?} does not");
            return Err(Error::new(Code::InvalidPrompt, message));
        }
        let scope = self.ctx.scope();
        let id = self.ctx.root().prompt.variables.add(scope, name, text.into())?;
        self.own(move |prompt| prompt.variables.remove(scope, id))
    }

    /// Sends no runtime contexts from this scope (SNAP-02).
    pub fn suppress_contexts(&self) -> Result<Registration> {
        self.ctx.fiber().check()?;
        let scope = self.ctx.scope();
        let id = self.ctx.root().prompt.suppressors.add(scope, "suppressed", ())?;
        self.own(move |prompt| prompt.suppressors.remove(scope, id))
    }

    /// Opens every system prompt with the runtime's identity sentence; off unless called (D-24).
    pub fn identity(&self) -> Result<Registration> {
        self.section("harness:identity", -100.0, crate::texts::HARNESS_IDENTITY)
    }

    /// Sets the persona: the section at order 0. An agent's own takes the place of the global one (SYS-03).
    pub fn persona(&self, text: impl Into<PromptText>) -> Result<Registration> {
        self.section("deployment:persona", 0.0, text)
    }

    /// Sets how tools are ordered.
    pub fn set_tool_order(&self, order: ToolOrder) {
        *self.ctx.root().prompt.tool_order.borrow_mut() = order;
    }
}
