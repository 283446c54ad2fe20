//! Registrations: what a Python program gives to a context, and the handle that takes it back.

use crate::captured::Captured;
use crate::errors::{IntoPyResult, IntoResult, invalid};
use crate::event::{Event, Queue, Queued};
use crate::gate::Handle;
use crate::host::HostState;
use crate::{convert, models, notices, rules, tools, waterfalls};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use turnwheel::Context;
use turnwheel::agent::{Notice, NoticeKind, WATERFALL_NAMES, unknown_event};
use turnwheel::context::Registration;
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::{Options, Spelling, fallback_route, model_info, prompt_input, route_options};
use turnwheel::invariants::{Invariants, InvariantsConfig};
use turnwheel::system_prompt::{PromptText, ToolOrder};
use turnwheel::tools::Presentation;

/// A context of the core: the root's, or an agent's own.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
pub struct CtxRef(Handle<Context>);

/// One registration. Dropping it changes nothing.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
pub struct RegistrationRef(Handle<Registration>);

#[pymethods]
impl RegistrationRef {
    /// Undoes the registration; a second call does nothing.
    fn dispose(&self, py: Python<'_>) -> PyResult<()> {
        self.0.with(|host, registration| {
            if let Some(cleanup) = registration.dispose() {
                host.export_done(py, async move {
                    cleanup.await;
                    Ok(())
                })?;
            }
            Ok(())
        })
    }
}

/// `"notice"`, `"waterfall"` or `"stopping"`; raises `UNKNOWN_OPTION` for a name that is no event.
#[pyfunction]
pub fn event_kind(name: &str) -> PyResult<&'static str> {
    if NoticeKind::parse(name).is_some() {
        return Ok("notice");
    }
    if WATERFALL_NAMES.contains(&name) && name != "tools/execute" {
        return Ok("waterfall");
    }
    if name == "agent/turn-stopping" {
        return Ok("stopping");
    }
    Err(unknown_event(name)).or_raise()
}

/// Runs inside a listener: the host, if it still is.
pub fn alive(host: &Weak<HostState>) -> turnwheel::Result<Rc<HostState>> {
    host.upgrade().ok_or_else(|| Error::new(Code::RuntimeClosed, "the context is closed"))
}

impl CtxRef {
    /// A handle to a context.
    pub fn new(host: &HostState, ctx: Context) -> Self {
        Self(host.handle(ctx))
    }

    /// The context it names.
    pub fn context(&self) -> PyResult<Context> {
        self.0.get().map(|(_, ctx)| (*ctx).clone())
    }

    fn register(
        &self,
        register: impl FnOnce(&Rc<HostState>, &Context) -> PyResult<Registration>,
    ) -> PyResult<RegistrationRef> {
        self.0.with(|host, ctx| Ok(RegistrationRef(host.handle(register(host, ctx)?))))
    }
}

fn notice_kind(name: &str) -> PyResult<NoticeKind> {
    NoticeKind::parse(name).ok_or_else(|| unknown_event(name)).or_raise()
}

/// Whether a listener of `session/event` asked for this type.
fn is_wanted(types: Option<&Vec<String>>, notice: &Notice) -> bool {
    match (types, notice) {
        (Some(types), Notice::SessionEvent { event, .. }) => types.iter().any(|kind| kind == event.kind()),
        _ => true,
    }
}

#[pymethods]
impl CtxRef {
    /// Calls `listener(event)` at the point of delivery.
    #[pyo3(signature = (name, listener, types=None))]
    fn on(
        &self,
        py: Python<'_>,
        name: &str,
        listener: Py<PyAny>,
        types: Option<Vec<String>>,
    ) -> PyResult<RegistrationRef> {
        let kind = notice_kind(name)?;
        let captured = Rc::new(Captured::current(py)?);
        self.register(|host, ctx| {
            let host = Rc::downgrade(host);
            let listen = move |notice: &Notice| {
                if !is_wanted(types.as_ref(), notice) {
                    return Ok(());
                }
                let host = alive(&host)?;
                Python::attach(|py| {
                    let heard = (|| {
                        let object = match notice {
                            Notice::SessionEvent { session, event, .. } => {
                                Event::new(event.clone(), session.id().clone()).into_pyobject(py)?.into_any()
                            }
                            _ => notices::object(py, &host, notice)?,
                        };
                        let call = PyTuple::new(py, [listener.bind(py), &object])?;
                        host.context_of(notice.agent(), &captured).run(&call)
                    })();
                    let Err(raised) = heard else { return Ok(()) };
                    host.note_fatal(py, &raised);
                    if kind == NoticeKind::Created {
                        return Err(crate::errors::from_py(py, raised));
                    }
                    // Reported here and not by the core, so that Python sees the traceback, and once.
                    host.event_loop.report(py, &format!("a listener of {} failed", kind.as_str()), &raised);
                    Ok(())
                })
            };
            ctx.on(kind, listen).or_raise()
        })
    }

    /// Puts notifications into the queue of an asynchronous listener.
    #[pyo3(signature = (name, queue, types=None))]
    fn on_queue(&self, name: &str, queue: &Bound<'_, Queue>, types: Option<Vec<String>>) -> PyResult<RegistrationRef> {
        let (kind, writer) = (notice_kind(name)?, queue.get().writer());
        self.register(|host, ctx| {
            let host = Rc::downgrade(host);
            let listen = move |notice: &Notice| {
                if !is_wanted(types.as_ref(), notice) {
                    return Ok(());
                }
                writer.push(match notice {
                    Notice::SessionEvent { session, event, .. } => Queued::Event(event.clone(), session.id().clone()),
                    _ => {
                        let host = alive(&host)?;
                        Queued::Object(
                            Python::attach(|py| Ok(notices::object(py, &host, notice)?.unbind())).or_error()?,
                        )
                    }
                });
                Ok(())
            };
            ctx.on(kind, listen).or_raise()
        })
    }

    /// Takes part in a waterfall, or in `agent/turn-stopping`.
    fn waterfall(&self, py: Python<'_>, name: &str, listener: Py<PyAny>) -> PyResult<RegistrationRef> {
        let captured = Rc::new(Captured::current(py)?);
        self.register(|host, ctx| waterfalls::register(host, ctx, name, listener, captured).or_raise())
    }

    /// Registers a tool; `body(call, arguments)` gives `(value, content, meta)` or an awaitable of it.
    #[pyo3(signature = (definition, body, parallel=None))]
    fn tool(
        &self,
        py: Python<'_>,
        definition: tools::Definition,
        body: Py<PyAny>,
        parallel: Option<Py<PyAny>>,
    ) -> PyResult<RegistrationRef> {
        let captured = Rc::new(Captured::current(py)?);
        self.register(|host, ctx| {
            let tool = definition.tool(host, body, parallel, captured)?;
            ctx.tools().register(tool).or_raise()
        })
    }

    /// Registers a prompt section, a section used alone, a runtime context or a variable.
    fn prompt(&self, py: Python<'_>, kind: &str, name: &str, order: f64, text: Py<PyAny>) -> PyResult<RegistrationRef> {
        let captured = Rc::new(Captured::current(py)?);
        self.register(|host, ctx| {
            let text = if text.is_none(py) { None } else { Some(prompt_text(py, host, text, captured)?) };
            let input = match kind {
                "section" | "complete" | "context" => turnwheel::json!({"kind": kind, "name": name, "order": order}),
                "variable" => turnwheel::json!({"kind": kind, "name": name}),
                _ => turnwheel::json!({"kind": kind}),
            };
            let registered = prompt_input(ctx, Options::new(&input, "a prompt input").or_raise()?, text).or_raise()?;
            registered.ok_or_else(|| invalid(format!("no prompt input of kind {kind:?}")))
        })
    }

    /// Lets an adapter serve a provider route.
    fn adapter(
        &self,
        py: Python<'_>,
        provider: &str,
        adapter: &Bound<'_, PyAny>,
        options: &Bound<'_, PyAny>,
        known: &Bound<'_, PyAny>,
    ) -> PyResult<RegistrationRef> {
        let captured = Rc::new(Captured::current(py)?);
        let known = convert::argument(known, "models")?;
        let mut infos = HashMap::new();
        for (name, info) in known.as_object().into_iter().flat_map(turnwheel::json::Object::iter) {
            let of = format!("model {name:?}");
            let info = Options::spelled(info, &of, Spelling::Snake).and_then(model_info).or_raise()?;
            infos.insert(name.to_owned(), info);
        }
        let options = convert::argument(options, "options")?;
        let options = Options::spelled(&options, "a route", Spelling::Snake).and_then(route_options).or_raise()?;
        self.register(|host, ctx| {
            let adapter = models::adapter(host, adapter, captured, infos)?;
            ctx.llm().register_with(&[provider], adapter, options).or_raise()
        })
    }

    /// Registers what runs programs: a tool under the reserved name.
    fn runner(&self, py: Python<'_>, definition: tools::Definition, body: Py<PyAny>) -> PyResult<RegistrationRef> {
        let captured = Rc::new(Captured::current(py)?);
        self.register(|host, ctx| {
            let tool = definition.tool(host, body, None, captured)?;
            ctx.tools().register_runner(tool).or_raise()
        })
    }

    /// Sets how the tools of this scope are presented.
    fn present(&self, mode: &str) -> PyResult<RegistrationRef> {
        let known = Presentation::parse(mode);
        let mode = known.ok_or_else(|| invalid(format!("a presentation is native, code or both, not {mode:?}")))?;
        self.register(|_, ctx| ctx.tools().present(mode).or_raise())
    }

    /// Lets `guard(call)` deny calls.
    fn guard(&self, py: Python<'_>, guard: Py<PyAny>) -> PyResult<RegistrationRef> {
        let captured = Rc::new(Captured::current(py)?);
        self.register(|host, ctx| rules::guard(host, ctx, guard, captured).or_raise())
    }

    /// Restricts the inherited tools.
    fn restrict(&self, allow: Option<Vec<String>>, deny: Option<Vec<String>>) -> PyResult<RegistrationRef> {
        self.register(|_, ctx| ctx.tools().restrict(allow, deny).or_raise())
    }

    /// Sets how tools are ordered in requests; taking it back orders them by name again.
    fn tool_order(&self, names: Vec<String>) -> PyResult<RegistrationRef> {
        self.register(|_, ctx| {
            ctx.prompt().set_tool_order(ToolOrder::listed(names).or_raise()?);
            let prompt = ctx.prompt();
            ctx.effect(move || prompt.set_tool_order(ToolOrder::by_name())).or_raise()
        })
    }

    /// Lets `check(event)` refuse events by raising.
    fn check_events(&self, py: Python<'_>, check: Py<PyAny>) -> PyResult<RegistrationRef> {
        let captured = Rc::new(Captured::current(py)?);
        self.register(|host, ctx| rules::check_events(host, ctx, check, captured).or_raise())
    }

    /// Registers an event type with its version. It holds as long as the context.
    fn register_event_type(&self, kind: &str, version: u32) -> PyResult<RegistrationRef> {
        self.register(|_, ctx| {
            ctx.register_event_type(kind, version).or_raise()?;
            ctx.effect(|| ()).or_raise()
        })
    }

    /// Installs the runtime's own invariants of the packages that the patterns select.
    fn invariants(&self, allow: Vec<String>, block: Vec<String>) -> PyResult<RegistrationRef> {
        let config = InvariantsConfig { enabled: true, package_allowlist: allow, package_blocklist: block };
        self.register(|_, ctx| {
            let installed =
                Invariants::load(&config).and_then(|invariants| invariants.register_core(ctx)).or_raise()?;
            let end = move || {
                for registration in installed.iter().rev() {
                    registration.dispose();
                }
            };
            ctx.effect(end).or_raise()
        })
    }

    /// Installs a model selection.
    fn select_model(&self, choice: Option<rules::Choice>) -> PyResult<rules::SelectionRef> {
        self.0.with(|host, ctx| rules::SelectionRef::install(host, ctx, choice))
    }

    /// Carries out the retry policies of routes.
    fn retry(&self) -> PyResult<RegistrationRef> {
        self.register(|_, ctx| turnwheel::llm::retry::install(ctx).or_raise())
    }

    /// Lets failed requests fall back to other routes.
    fn fallback(&self, routes: &Bound<'_, PyAny>) -> PyResult<RegistrationRef> {
        let routes = convert::argument(routes, "routes")?;
        let read = |value| Options::spelled(value, "a fallback route", Spelling::Snake).and_then(fallback_route);
        let routes = routes.as_array().unwrap_or_default().iter().map(read).collect::<Result<Vec<_>>>().or_raise()?;
        self.register(|_, ctx| turnwheel::llm::fallback::install(ctx, routes).or_raise())
    }

    /// The registered provider routes, sorted.
    fn providers(&self) -> PyResult<Vec<String>> {
        self.0.with(|_, ctx| Ok(ctx.llm().providers()))
    }
}

fn prompt_text(py: Python<'_>, host: &Rc<HostState>, text: Py<PyAny>, captured: Rc<Captured>) -> PyResult<PromptText> {
    if let Ok(fixed) = text.bind(py).cast::<PyString>() {
        return Ok(PromptText::Fixed(crate::convert::repaired(fixed)?.into()));
    }
    if !text.bind(py).is_callable() {
        return Err(invalid("a prompt text is a str or a function of the agent"));
    }
    let host = Rc::downgrade(host);
    Ok(PromptText::Dynamic(Rc::new(move |agent| {
        let (host, agent) = (host.clone(), agent.clone());
        let (captured, compute) = (captured.clone(), Python::attach(|py| text.clone_ref(py)));
        Box::pin(async move {
            let host = alive(&host)?;
            let captured = host.context_of(Some(&agent), &captured);
            let frontend = host.clone();
            let arguments = move |py: Python<'_>| {
                let agent = notices::agent(py, &frontend, Some(&agent))?;
                Ok(vec![compute, agent.unbind()])
            };
            let text = host.call(captured, arguments, None).await?;
            Python::attach(|py| {
                let text = text.bind(py);
                if text.is_none() {
                    return Ok(None);
                }
                match text.cast::<PyString>() {
                    Ok(text) => Ok(Some(crate::convert::repaired(text).or_error()?.into())),
                    Err(_) => Err(Error::new(Code::InvalidPrompt, "a prompt function returns a str or None")),
                }
            })
        })
    })))
}
