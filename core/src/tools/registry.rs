//! Which tools a scope sees: layers, restrictions and guards (DEF-03 to DEF-08).

use super::approval::Approver;
use super::definition::{CodeSchema, Tool};
use super::events::{ToolCallInfo, ToolOutcome};
use super::presentation::{Presentation, RUN_CODE};
use crate::agent::Notice;
use crate::context::{Cleanup, Context, Registration, Root};
use crate::error::{Code, Error, Result};
use crate::json::Value;
use crate::llm::ToolSchema;
use crate::scope::{Layers, ScopeKey};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Gives a denial reason, or nothing. Guards can only tighten (DEF-08).
pub type Guard = dyn Fn(&ToolCallInfo) -> Result<Option<String>>;

#[derive(Clone)]
struct Restriction {
    allow: Option<Vec<String>>,
    deny: Vec<String>,
}

/// The tools of a root.
#[derive(Default)]
pub struct ToolTable {
    tools: Layers<Tool>,
    guards: Layers<Rc<Guard>>,
    restrictions: Layers<Restriction>,
    approvers: Layers<Rc<Approver>>,
    pub(super) presentations: Layers<Presentation>,
    pub(super) runners: Layers<Tool>,
    next_name: RefCell<u64>,
}

impl ToolTable {
    fn unique(&self) -> String {
        let mut next = self.next_name.borrow_mut();
        *next += 1;
        next.to_string()
    }

    /// Who answers the questions of a scope's calls.
    pub(super) fn approver(&self, root: &Root, scope: Option<ScopeKey>) -> Option<Rc<Approver>> {
        self.approvers.find(&root.scopes, scope, "approver").map(|found| found.value)
    }

    /// The tools a scope sees, in order of registration.
    pub(crate) fn visible(&self, root: &Root, scope: Option<ScopeKey>) -> Vec<Tool> {
        let restrictions = self.restrictions.merged(&root.scopes, scope);
        let seen = self.tools.merged(&root.scopes, scope);
        let seen =
            seen.into_iter().filter(|tool| tool.layer == scope || admits(&restrictions, tool.layer, &tool.name, root));
        seen.map(|tool| tool.value).collect()
    }

    /// The tool of that name a scope sees.
    pub(crate) fn find(&self, root: &Root, scope: Option<ScopeKey>, name: &str) -> Option<Tool> {
        if name == RUN_CODE {
            return self.runner(root, scope);
        }
        let tool = self.tools.find(&root.scopes, scope, name)?;
        let restrictions = self.restrictions.merged(&root.scopes, scope);
        (tool.layer == scope || admits(&restrictions, tool.layer, name, root)).then_some(tool.value)
    }

    /// The names a scope would see without restrictions, sorted by UTF-16 code units.
    pub(crate) fn known_names(&self, root: &Root, scope: Option<ScopeKey>) -> Vec<String> {
        let mut names: Vec<_> = self.tools.merged(&root.scopes, scope).into_iter().map(|tool| tool.name).collect();
        names.extend(self.runner(root, scope).map(|_| RUN_CODE.to_owned()));
        names.sort_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
        names
    }

    /// The first denial of the guards: global ones, then the farthest ancestor's, the scope's own last.
    pub(crate) fn guard(&self, root: &Root, scope: Option<ScopeKey>, call: &ToolCallInfo) -> Result<Option<String>> {
        for guard in self.guards.merged(&root.scopes, scope) {
            let reason = crate::events::guarded(|| (guard.value)(call))?;
            if reason.is_some() {
                return Ok(reason);
            }
        }
        Ok(None)
    }

    /// Whether a call may overlap its siblings now: only an explicit yes of a visible tool's classifier on valid
    /// arguments (EXE-28).
    pub(crate) fn is_parallel(&self, root: &Root, scope: Option<ScopeKey>, name: &str, arguments: &Value) -> bool {
        let Some(tool) = self.find(root, scope, name) else { return false };
        let Some(classify) = &tool.is_parallel else { return false };
        if tool.checks_arguments && !super::violations(tool.schema.parameters(), arguments, "").is_empty() {
            return false;
        }
        crate::events::guarded(|| Ok(classify(arguments))).unwrap_or(false)
    }
}

/// Whether every restriction that applies to an inherited tool admits it: those of the scopes below its own layer.
fn admits(restrictions: &[crate::scope::Seen<Restriction>], layer: Option<ScopeKey>, name: &str, root: &Root) -> bool {
    restrictions.iter().all(|restriction| {
        // A scope's own registrations are exempt from its own filters and from those of scopes above it.
        let exempt = match (layer, restriction.layer) {
            (Some(layer), Some(restricting)) => root.scopes.chain(layer).contains(&restricting),
            _ => false,
        };
        let rule = &restriction.value;
        let allowed = rule.allow.as_ref().is_none_or(|allow| allow.iter().any(|allowed| allowed == name));
        exempt || (allowed && !rule.deny.iter().any(|denied| denied == name))
    })
}

/// The tools, as a context registers and sees them.
#[derive(Clone)]
pub struct Tools {
    pub(super) ctx: Context,
}

impl Tools {
    pub(crate) fn new(ctx: Context) -> Self {
        Self { ctx }
    }

    fn own(&self, remove: impl FnOnce(&ToolTable) + 'static) -> Registration {
        let root = Rc::downgrade(self.ctx.root());
        self.ctx.fiber().own(Cleanup::Sync(Box::new(move || {
            if let Some(root) = root.upgrade() {
                remove(&root.tools);
            }
        })))
    }

    /// Owns a change of what is visible, and tells of it: a listener that fails rolls it back (LAY-5).
    pub(super) fn own_change(&self, remove: impl FnOnce(&ToolTable) + 'static) -> Result<Registration> {
        self.ctx.own_change(|scope| Notice::ToolsChanged { scope }, move |root| remove(&root.tools))
    }

    /// Registers a tool in this context's scope.
    pub fn register(&self, tool: Tool) -> Result<Registration> {
        self.ctx.fiber().check()?;
        if tool.name() == RUN_CODE {
            let message = format!("the tool name {RUN_CODE:?} is reserved; see Tools::register_runner");
            return Err(Error::new(Code::InvalidArgument, message).with("tool", RUN_CODE));
        }
        tool.check()?;
        let scope = self.ctx.scope();
        let name = tool.name().to_owned();
        let id = self.ctx.root().tools.tools.add(scope, &name, tool)?;
        self.own_change(move |table| table.tools.remove(scope, id))
    }

    /// Registers a guard in this context's scope.
    pub fn guard(&self, guard: impl Fn(&ToolCallInfo) -> Result<Option<String>> + 'static) -> Result<Registration> {
        self.ctx.fiber().check()?;
        let (scope, table) = (self.ctx.scope(), &self.ctx.root().tools);
        let id = table.guards.add(scope, &table.unique(), Rc::new(guard))?;
        Ok(self.own(move |table| table.guards.remove(scope, id)))
    }

    /// Restricts what this context's scope inherits (DEF-06). Fails from an unscoped context, for an empty filter, and
    /// for a name that is not an inherited tool.
    pub fn restrict(&self, allow: Option<Vec<String>>, deny: Option<Vec<String>>) -> Result<Registration> {
        self.ctx.fiber().check()?;
        let bad = |message: String| Error::new(Code::InvalidArgument, message);
        let scope = self.ctx.scope().ok_or_else(|| bad("tools can be restricted in an agent's scope only".into()))?;
        if allow.is_none() && deny.is_none() {
            return Err(bad("a restriction needs `allow` or `deny`".into()));
        }
        let root = self.ctx.root();
        let inherited: Vec<_> = root
            .tools
            .tools
            .merged(&root.scopes, Some(scope))
            .into_iter()
            .filter(|tool| tool.layer != Some(scope))
            .map(|tool| tool.name)
            .collect();
        let named = allow.iter().flatten().chain(deny.iter().flatten());
        for name in named {
            if !inherited.contains(name) {
                return Err(bad(format!("{name:?} is not an inherited tool; there are: {}", inherited.join(", "))));
            }
        }
        let restriction = Restriction { allow, deny: deny.unwrap_or_default() };
        let table = &root.tools;
        let id = table.restrictions.add(Some(scope), &table.unique(), restriction)?;
        self.own_change(move |table| table.restrictions.remove(Some(scope), id))
    }

    pub(super) fn add_approver(&self, approver: Rc<Approver>) -> Result<Registration> {
        self.ctx.fiber().check()?;
        let scope = self.ctx.scope();
        let id = self.ctx.root().tools.approvers.add(scope, "approver", approver)?;
        Ok(self.own(move |table| table.approvers.remove(scope, id)))
    }

    /// What a user interface shows of a call, if its tool is visible here and says so (DEF-01). Fails when the tool's view
    /// does.
    pub fn present_call(&self, name: &str, arguments: &Value) -> Result<Option<Value>> {
        let view = self.find(name).and_then(|tool| tool.call_view);
        view.map(|view| crate::events::guarded(|| view(arguments))).transpose()
    }

    /// As [`Tools::present_call`], for the answer to a call.
    pub fn present_result(&self, name: &str, arguments: &Value, outcome: &ToolOutcome) -> Result<Option<Value>> {
        let view = self.find(name).and_then(|tool| tool.result_view);
        view.map(|view| crate::events::guarded(|| view(arguments, outcome))).transpose()
    }

    fn find(&self, name: &str) -> Option<Tool> {
        let root = self.ctx.root();
        root.tools.find(root, self.ctx.scope(), name)
    }

    /// What a program needs to know of the tools visible here (DEF-10).
    pub fn code_schemas(&self) -> Vec<CodeSchema> {
        let root = self.ctx.root();
        root.tools.visible(root, self.ctx.scope()).iter().map(Tool::code_schema).collect()
    }

    /// What the model sees of the tools visible here, in order of registration; how they are presented is another
    /// question, see [`Tools::present`].
    pub fn schemas(&self) -> Vec<Arc<ToolSchema>> {
        let root = self.ctx.root();
        root.tools.visible(root, self.ctx.scope()).into_iter().map(|tool| tool.schema).collect()
    }
}
