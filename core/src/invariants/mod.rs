//! Invariants: checks that really veto, as an opt-in plug-in (INV).
//!
//! Nothing here is loaded by itself: [`Invariants::load`] makes the registry, and each package of checks is registered
//! by name. A violation is an [`Error`] with code `INVARIANT`; a failing log check refuses the event before it is
//! committed, and the loop sees it as a failed append.

mod log;

pub use log::LogOrder;

use crate::agent::{AgentStatus, Notice, NoticeKind};
use crate::context::{Context, Registration};
use crate::error::{Code, Error, Result};
use crate::id::SessionId;
use crate::llm::ModelRequest;
use crate::session::{Event, Session};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Which packages' checks are installed (INV-2). Patterns are unanchored, case-sensitive regular expressions.
#[derive(Clone, Debug)]
pub struct InvariantsConfig {
    /// Whether any check is installed.
    pub enabled: bool,
    /// Packages to install; all when empty.
    pub package_allowlist: Vec<String>,
    /// Packages not to install, whatever the other list says.
    pub package_blocklist: Vec<String>,
}

impl Default for InvariantsConfig {
    fn default() -> Self {
        Self { enabled: true, package_allowlist: Vec::new(), package_blocklist: Vec::new() }
    }
}

/// The registry of checks. Clones are the same registry.
#[derive(Clone)]
pub struct Invariants(Rc<Inner>);

struct Inner {
    enabled: bool,
    allow: Vec<regex_lite::Regex>,
    block: Vec<regex_lite::Regex>,
    packages: RefCell<HashSet<String>>,
}

/// A violation, under its package's name (INV-6).
pub fn violation(package: &str, what: impl std::fmt::Display) -> Error {
    Error::new(Code::Invariant, format!("{package}: {what}")).with("package", package)
}

impl Invariants {
    /// A registry without checks. Fails for blank, padded, repeated or malformed patterns (INV-3).
    pub fn load(config: &InvariantsConfig) -> Result<Self> {
        let (allow, block) = (patterns(&config.package_allowlist)?, patterns(&config.package_blocklist)?);
        Ok(Self(Rc::new(Inner { enabled: config.enabled, allow, block, packages: RefCell::default() })))
    }

    /// Whether a package's checks would be installed.
    pub fn selects(&self, package: &str) -> bool {
        let matched = |patterns: &[regex_lite::Regex]| patterns.iter().any(|pattern| pattern.is_match(package));
        self.0.enabled && (self.0.allow.is_empty() || matched(&self.0.allow)) && !matched(&self.0.block)
    }

    /// Takes a package's name and, if it is selected, installs its checks through `install`. The name is free again when
    /// the registration is disposed, or at once when the installer fails (INV-4, INV-5).
    pub fn register(
        &self,
        ctx: &Context,
        package: &str,
        install: impl FnOnce(&Context) -> Result<Vec<Registration>>,
    ) -> Result<Registration> {
        if package.is_empty() || package.chars().any(char::is_whitespace) {
            return Err(Error::new(Code::InvalidArgument, format!("{package:?} is no package name")));
        }
        if !self.0.packages.borrow_mut().insert(package.to_owned()) {
            return Err(Error::new(Code::DuplicateName, format!("invariants of {package:?} are registered already")));
        }
        let installed = if self.selects(package) { install(ctx) } else { Ok(Vec::new()) };
        let installed = installed.inspect_err(|_| {
            self.0.packages.borrow_mut().remove(package);
        })?;
        let (inner, package) = (self.0.clone(), package.to_owned());
        ctx.effect(move || {
            for registration in installed.iter().rev() {
                registration.dispose();
            }
            inner.packages.borrow_mut().remove(&package);
        })
    }

    /// Registers the runtime's own checks: the order of logs, the alternation of status, the reconstruction of requests.
    pub fn register_core(&self, ctx: &Context) -> Result<Vec<Registration>> {
        Ok(vec![
            self.register(ctx, "turnwheel-session", |ctx| Ok(vec![check_logs(ctx)?]))?,
            self.register(ctx, "turnwheel-agent", |ctx| Ok(vec![check_status(ctx)?]))?,
            self.register(ctx, "turnwheel-request", |ctx| Ok(vec![check_requests(ctx)?]))?,
        ])
    }
}

fn patterns(sources: &[String]) -> Result<Vec<regex_lite::Regex>> {
    let bad =
        |source: &str, what: &str| Error::new(Code::InvalidArgument, format!("package pattern {source:?} {what}"));
    let mut compiled = Vec::new();
    for (i, source) in sources.iter().enumerate() {
        if source.is_empty() || source.trim() != source {
            return Err(bad(source, "is blank or padded"));
        }
        if sources[..i].contains(source) {
            return Err(bad(source, "is listed twice"));
        }
        compiled.push(regex_lite::Regex::new(source).map_err(|error| bad(source, &format!("is malformed: {error}")))?);
    }
    Ok(compiled)
}

/// Refuses events that break the order of a log (INV-7). Live sessions are replayed first (INV-8).
fn check_logs(ctx: &Context) -> Result<Registration> {
    const PACKAGE: &str = "turnwheel-session";
    type Folds = HashMap<SessionId, (u64, LogOrder)>;
    fn follow<'a>(folds: &'a mut Folds, session: &Session) -> Result<&'a LogOrder> {
        let (folded, order) = folds.entry(session.id().clone()).or_default();
        if *folded > session.len() {
            // Another session has taken the id.
            (*folded, *order) = (0, LogOrder::default());
        }
        for event in session.events_from(*folded) {
            order.check(&event).map_err(|what| violation(PACKAGE, format!("event {}: {what}", event.seq)))?;
            order.apply(&event);
        }
        *folded = session.len();
        Ok(order)
    }
    let folds: Rc<RefCell<Folds>> = Rc::default();
    for agent in ctx.agents() {
        follow(&mut folds.borrow_mut(), agent.session())?;
    }
    let ended = folds.clone();
    let forget = ctx.on(NoticeKind::SessionDisposed, move |notice| {
        if let Notice::SessionDisposed { session } = notice {
            ended.borrow_mut().remove(session.id());
        }
        Ok(())
    })?;
    let check = ctx.check_events(move |session: &Session, event: &Event| {
        let mut folds = folds.borrow_mut();
        let order = follow(&mut folds, session)?;
        order.check(event).map_err(|what| violation(PACKAGE, format!("event {}: {what}", event.seq)))
    })?;
    ctx.effect(move || {
        check.dispose();
        forget.dispose();
    })
}

/// Notices a status that repeats the one before it (INV-9). Status notifications are contained, so this only reports.
fn check_status(ctx: &Context) -> Result<Registration> {
    let last: RefCell<HashMap<SessionId, AgentStatus>> = RefCell::default();
    ctx.on(NoticeKind::Status, move |notice| match notice {
        Notice::Status { agent, status } => {
            let before = last.borrow_mut().insert(agent.id().clone(), *status);
            if before == Some(*status) {
                let what = format!("agent {:?} reports {} twice", agent.id(), status.as_str());
                return Err(violation("turnwheel-agent", what));
            }
            Ok(())
        }
        _ => Ok(()),
    })
}

/// Refuses requests that the log does not explain: messages are the derivation, the header is the folded one (INV-12).
fn check_requests(ctx: &Context) -> Result<Registration> {
    ctx.check_requests(|session: &Session, request: &ModelRequest| {
        let differs =
            |what: &str| Err(violation("turnwheel-request", format!("{what} cannot be rebuilt from the log")));
        if session.request_header().as_deref() != Some(&*request.header) {
            return differs("the request header");
        }
        let rebuilt =
            Session::seeded(session.runtime(), session.header().clone(), session.log_so_far())?.sendable_history();
        let same =
            rebuilt.len() == request.messages.len() && rebuilt.iter().zip(request.messages.iter()).all(|(a, b)| a == b);
        if same { Ok(()) } else { differs("the messages of a request") }
    })
}
