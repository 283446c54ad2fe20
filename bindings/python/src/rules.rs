//! Guards, event checks and the model selection: functions of Python's that rule what the core does.

use crate::captured::Captured;
use crate::ctx::alive;
use crate::errors::{IntoPyResult, IntoResult, from_py};
use crate::event::Event;
use crate::gate::Handle;
use crate::host::HostState;
use crate::notices;
use crate::waterfalls::payload_object;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::Context;
use turnwheel::agent::{ModelChoice, ModelSelection};
use turnwheel::context::Registration;
use turnwheel::error::{Code, Error, Result};
use turnwheel::session::Event as CoreEvent;

/// Lets `guard(call)` give a reason why a call may not run, or `None`.
pub fn guard(host: &Rc<HostState>, ctx: &Context, guard: Py<PyAny>, captured: Rc<Captured>) -> Result<Registration> {
    let host = Rc::downgrade(host);
    ctx.tools().guard(move |call| {
        let host = alive(&host)?;
        Python::attach(|py| {
            let object = payload_object(py, &host, "tools/pre-execute", call.agent.as_ref(), &call.signal, |data| {
                notices::call_members(py, data, call)
            });
            let given = PyTuple::new(py, [guard.bind(py).clone(), object.or_error()?]).or_error()?;
            let reason = host.context_of(call.agent.as_ref(), &captured).run(&given).or_error()?;
            if reason.is_none() {
                return Ok(None);
            }
            match reason.cast::<PyString>() {
                Ok(reason) => Ok(Some(crate::convert::repaired(reason).or_error()?)),
                Err(_) => Err(Error::new(Code::InvalidArgument, "a guard returns a reason as a str, or None")),
            }
        })
    })
}

/// Lets `check(event)` refuse an event by raising, before it is committed.
pub fn check_events(
    host: &Rc<HostState>,
    ctx: &Context,
    check: Py<PyAny>,
    captured: Rc<Captured>,
) -> Result<Registration> {
    let host = Rc::downgrade(host);
    ctx.check_events(move |session, event| {
        let host = alive(&host)?;
        Python::attach(|py| {
            // The core's event is not committed yet: Python gets one of its own, which it may keep.
            let copy = CoreEvent::new(event.seq, event.time, event.data.clone());
            let mut copy = copy.placed(event.surface_op.clone(), event.source_event_seqs.clone());
            copy.ignorable = event.ignorable;
            let event = Event::new(Arc::new(copy), session.id().clone());
            let checked = (|| {
                let event = event.into_pyobject(py)?.into_any();
                let agent = host.ctx.find_agent(session.id());
                let call = PyTuple::new(py, [check.bind(py), &event])?;
                host.context_of(agent.as_ref(), &captured).run(&call).map(drop)
            })();
            checked.map_err(|raised| {
                host.note_fatal(py, &raised);
                from_py(py, raised)
            })
        })
    })
}

/// `(provider, model, reasoning_effort)`.
pub type Choice = (String, String, Option<String>);

fn choice(choice: Option<Choice>) -> Option<ModelChoice> {
    choice.map(|(provider, model, reasoning_effort)| ModelChoice { provider, model, reasoning_effort })
}

struct Installed {
    selection: ModelSelection,
    registrations: [Registration; 2],
    /// Its context has ended.
    ended: Rc<Cell<bool>>,
}

/// A model selection, installed in one context.
#[pyclass(frozen, module = "turnwheel._turnwheel")]
pub struct SelectionRef(Handle<Installed>);

impl SelectionRef {
    /// Installs a selection that starts with a choice.
    pub fn install(host: &HostState, ctx: &Context, first: Option<Choice>) -> PyResult<Self> {
        let selection = ModelSelection::new(choice(first));
        let registrations = selection.install(ctx).or_raise()?;
        let ended = Rc::new(Cell::new(false));
        let flag = ended.clone();
        ctx.effect(move || flag.set(true)).or_raise()?;
        Ok(Self(host.handle(Installed { selection, registrations, ended })))
    }
}

#[pymethods]
impl SelectionRef {
    /// Switches; a step under way keeps what it was assembled with.
    fn select(&self, next: Option<Choice>) -> PyResult<()> {
        self.0.with(|_, installed| {
            installed.selection.select(choice(next));
            Ok(())
        })
    }

    /// Whether what it was installed in, and so the host, still is.
    fn is_live(&self) -> bool {
        self.0.get().is_ok_and(|(_, installed)| !installed.ended.get())
    }

    /// Removes the selection.
    fn dispose(&self) -> PyResult<()> {
        self.0.with(|_, installed| {
            for registration in &installed.registrations {
                registration.dispose();
            }
            installed.ended.set(true);
            Ok(())
        })
    }
}
