//! How a scope's tools are presented to the model: as calls, as functions of programs it writes, or both (DEF-09, SYS-12).
//!
//! The runtime runs no programs. An application registers what does, as the one tool that holds the reserved name
//! [`RUN_CODE`]; its body calls the other tools with [`super::ToolCall::call`], so that policy sees each of them.

use super::definition::Tool;
use super::registry::{ToolTable, Tools};
use crate::context::{Registration, Root};
use crate::error::{Code, Error, Result};
use crate::json::Object;
use crate::llm::ToolSchema;
use crate::scope::ScopeKey;
use crate::system_prompt::Section;
use crate::texts;
use std::sync::Arc;

/// The name of the tool that runs programs. No other tool may take it, whatever the presentation (DEF-02).
pub const RUN_CODE: &str = "run_code";

/// The section that says how to use tools from a program; register one of this name to word it yourself.
pub const CODE_GUIDANCE_SECTION: &str = "tools:code";

/// The section that lists the tools a program may call.
pub const CODE_TOOLS_SECTION: &str = "tools:code-tools";

/// How tools are presented to the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presentation {
    /// The model calls each tool itself.
    #[default]
    Native,
    /// The model sees [`RUN_CODE`] alone and calls the other tools from its programs.
    Code,
    /// Both ways are open.
    Both,
}

impl Presentation {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Presentation::Native => "native",
            Presentation::Code => "code",
            Presentation::Both => "both",
        }
    }

    /// The presentation of a name.
    pub fn parse(name: &str) -> Option<Self> {
        [Presentation::Native, Presentation::Code, Presentation::Both].into_iter().find(|mode| mode.as_str() == name)
    }
}

impl Tools {
    /// Sets how the tools of this context's scope are presented; the nearest declaration along the scope chain is in
    /// force, native where there is none. Fails with `DUPLICATE_NAME` when the scope has declared one (DEF-09).
    pub fn present(&self, mode: Presentation) -> Result<Registration> {
        self.ctx.fiber().check()?;
        let scope = self.ctx.scope();
        let id = self.ctx.root().tools.presentations.add(scope, "presentation", mode)?;
        self.own_change(move |table| table.presentations.remove(scope, id))
    }

    /// How the tools visible here are presented.
    pub fn presentation(&self) -> Presentation {
        let root = self.ctx.root();
        root.tools.presentation(root, self.ctx.scope())
    }

    /// Registers what runs the model's programs in this context's scope: a tool named [`RUN_CODE`]. It is visible only
    /// where the presentation asks for it. Fails for any other name.
    pub fn register_runner(&self, runner: Tool) -> Result<Registration> {
        self.ctx.fiber().check()?;
        if runner.name() != RUN_CODE {
            let message = format!("what runs programs is named {RUN_CODE:?}, not {:?}", runner.name());
            return Err(Error::new(Code::InvalidArgument, message).with("tool", runner.name()));
        }
        runner.check()?;
        let scope = self.ctx.scope();
        let id = self.ctx.root().tools.runners.add(scope, RUN_CODE, runner)?;
        self.own_change(move |table| table.runners.remove(scope, id))
    }
}

impl ToolTable {
    pub(crate) fn presentation(&self, root: &Root, scope: Option<ScopeKey>) -> Presentation {
        let declared = self.presentations.find(&root.scopes, scope, "presentation");
        declared.map(|declared| declared.value).unwrap_or_default()
    }

    /// What runs programs, where the presentation asks for it.
    pub(super) fn runner(&self, root: &Root, scope: Option<ScopeKey>) -> Option<Tool> {
        match self.presentation(root, scope) {
            Presentation::Native => None,
            Presentation::Code | Presentation::Both => {
                self.runners.find(&root.scopes, scope, RUN_CODE).map(|found| found.value)
            }
        }
    }

    /// The tools that the model is sent, in order of registration. Fails where programs are the only way and nothing
    /// runs them: the model would have no tools at all.
    pub(crate) fn presented(&self, root: &Root, scope: Option<ScopeKey>) -> Result<Vec<Arc<ToolSchema>>> {
        let mode = self.presentation(root, scope);
        let mut shown = match mode {
            Presentation::Native | Presentation::Both => self.visible(root, scope),
            Presentation::Code => Vec::new(),
        };
        match (self.runner(root, scope), mode) {
            (Some(runner), _) => shown.push(runner),
            (None, Presentation::Native) => {}
            (None, Presentation::Code | Presentation::Both) => {
                let message = format!(
                    "tools are presented as {:?} here, and nothing runs programs; register a {RUN_CODE} runner",
                    mode.as_str()
                );
                return Err(Error::new(Code::NotRegistered, message).with("tool", RUN_CODE));
            }
        }
        Ok(shown.into_iter().map(|tool| tool.schema).collect())
    }

    /// Why the model may not call a tool directly, if it may not: where programs are the only way, a tool that exists is
    /// refused with a hint, so that the model does not take it for gone (DEF-09).
    pub(super) fn refuses_direct(&self, root: &Root, scope: Option<ScopeKey>, name: &str) -> Option<Error> {
        let refused = name != RUN_CODE
            && self.presentation(root, scope) == Presentation::Code
            && self.find(root, scope, name).is_some();
        refused.then(|| Error::new(Code::UnknownTool, format!("{name:?} {}", texts::CODE_ONLY_HINT)))
    }
}

/// The sections that a scope's presentation asks for: none in native scopes (SYS-12).
pub(crate) fn guidance(root: &Root, scope: Option<ScopeKey>) -> Vec<Section> {
    if root.tools.presentation(root, scope) == Presentation::Native {
        return Vec::new();
    }
    let section = |name: &str, order, text: Arc<str>| Section { name: name.into(), order, text };
    let mut guidance = vec![section(CODE_GUIDANCE_SECTION, 99.0, texts::CODE_GUIDANCE.into())];
    let lines: Vec<_> = root.tools.visible(root, scope).iter().map(describe).collect();
    if !lines.is_empty() {
        let text = format!("{}\n{}", texts::CODE_TOOLS, lines.join("\n"));
        guidance.push(section(CODE_TOOLS_SECTION, 100.0, text.into()));
    }
    guidance
}

/// One tool as a line of JSON. What a tool says of itself is no place for prompt variables: a doubled brace is escaped.
fn describe(tool: &Tool) -> String {
    let code = tool.code_schema();
    let mut line = Object::new();
    line.insert("name", code.schema.name());
    line.insert("description", code.schema.description());
    line.insert("parameters", code.schema.parameters().clone());
    line.insert_some("output", code.output);
    crate::json::Value::from(line).to_text().replace("{{", "{\\u007b")
}
