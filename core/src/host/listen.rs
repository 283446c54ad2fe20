//! Listeners by name. A binding implements [`HostListener`] once and registers every event through [`listen`].

use super::decisions::Bridge;
use super::options::Options;
use crate::agent::{
    Agent, Notice, NoticeKind, PreStep, RequestErrorEvent, RequestEvent, TurnStopping, Waterfall, unknown_event,
};
use crate::context::{Context, Registration};
use crate::error::{Code, Error, Result};
use crate::events::{Next, Placement};
use crate::json::{Object, Value};
use crate::runtime::{LocalBoxFuture, Signal};
use crate::system_prompt::AssemblyRequest;
use crate::tools::{ExecuteRequest, PostExecute, PreExecute};
use std::cell::RefCell;
use std::rc::Rc;

/// How an event is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listening {
    /// Called at the point of delivery; it answers nothing.
    Notice(NoticeKind),
    /// Decides, or delegates to its continuation.
    Waterfall,
    /// Awaited, one listener after the other; it decides nothing (`agent/turn-stopping`).
    Serial,
}

/// How the event of that name is heard; fails with `UNKNOWN_OPTION` for a name that is no event.
pub fn check_event_name(name: &str) -> Result<Listening> {
    if let Some(kind) = NoticeKind::parse(name) {
        return Ok(Listening::Notice(kind));
    }
    match name {
        STOPPING => Ok(Listening::Serial),
        _ if crate::agent::WATERFALL_NAMES.contains(&name) => Ok(Listening::Waterfall),
        _ => Err(unknown_event(name)),
    }
}

const STOPPING: &str = "agent/turn-stopping";

/// Where, how often and for what a listener runs.
#[derive(Clone, Debug, Default)]
pub struct ListenOptions {
    /// Its place.
    pub placement: Placement,
    /// For `session/event`: the event types it hears; all of them when absent.
    pub types: Option<Vec<String>>,
}

impl ListenOptions {
    /// Reads `{"prepend"?, "once"?, "global"?, "types"?}`.
    pub fn from_value(value: &Value) -> Result<Self> {
        let options = Options::new(value, "a listener")?;
        let placement = Placement {
            prepend: options.flag("prepend", false)?,
            once: options.flag("once", false)?,
            global: options.flag("global", false)?,
        };
        let types = options.texts("types")?;
        options.finish()?;
        Ok(Self { placement, types })
    }
}

/// The payload of a waterfall or of `agent/turn-stopping`. Its JSON is made when asked for.
pub struct WaterfallEvent {
    /// The event's name.
    pub name: &'static str,
    /// The agent it is about.
    pub agent: Option<Agent>,
    /// Fires when the turn is cancelled.
    pub signal: Signal,
    describe: Box<dyn Fn(&mut Object)>,
}

impl WaterfallEvent {
    /// The payload as `{"event", "agentId"?, …}`.
    pub fn value(&self) -> Value {
        let mut object = Object::new();
        object.insert("event", self.name);
        object.insert_some("agentId", self.agent.as_ref().map(|agent| agent.id().as_str()));
        (self.describe)(&mut object);
        object.into()
    }
}

type Continue = dyn Fn(Option<&Value>) -> LocalBoxFuture<Result<Value>>;

/// The continuation of a waterfall listener. Clones are the same continuation.
#[derive(Clone)]
pub struct HostNext(Rc<Continue>);

impl HostNext {
    /// Runs everything inside and gives its decision as JSON. `edited` replaces what may be edited of the payload first:
    /// `{"messages"}` of `agent/pre-step` (TURN-7); every other event refuses it. A second call fails with
    /// `NEXT_CALLED_TWICE` (D-13). The rest of the waterfall runs as the agent's doing, whoever calls.
    pub fn call(&self, edited: Option<&Value>) -> LocalBoxFuture<Result<Value>> {
        (self.0)(edited)
    }
}

/// A listener of the host, of any event.
pub trait HostListener {
    /// Hears a notification. An error is reported, and vetoes `agent/created` (REG-4).
    fn notice(&self, notice: &Notice) -> Result<()>;

    /// Decides: a decision as JSON; or `None`, which keeps what the continuation decided and is an error if it was not
    /// called. For `agent/turn-stopping` there is no continuation and the answer is ignored (D-12).
    fn decide(&self, event: WaterfallEvent, next: Option<HostNext>) -> LocalBoxFuture<Result<Option<Value>>>;
}

/// Registers a listener for the event of that name. Fails with `UNKNOWN_OPTION` for a name that is no event.
pub fn listen(
    ctx: &Context,
    name: &str,
    options: ListenOptions,
    listener: Rc<dyn HostListener>,
) -> Result<Registration> {
    let kind = check_event_name(name)?;
    if options.types.is_some() && kind != Listening::Notice(NoticeKind::SessionEvent) {
        return Err(Error::new(Code::InvalidArgument, format!("`types` is for session/event, not for {name}")));
    }
    let placement = options.placement;
    if let Listening::Notice(kind) = kind {
        return ctx.on_placed(kind, placement, move |notice| match (&options.types, notice) {
            (Some(types), Notice::SessionEvent { event, .. }) if !types.iter().any(|kind| kind == event.kind()) => {
                Ok(())
            }
            _ => listener.notice(notice),
        });
    }
    match name {
        PreStep::NAME => waterfall::<PreStep>(ctx, placement, listener),
        RequestEvent::NAME => waterfall::<RequestEvent>(ctx, placement, listener),
        RequestErrorEvent::NAME => waterfall::<RequestErrorEvent>(ctx, placement, listener),
        AssemblyRequest::NAME => waterfall::<AssemblyRequest>(ctx, placement, listener),
        PreExecute::NAME => waterfall::<PreExecute>(ctx, placement, listener),
        ExecuteRequest::NAME => waterfall::<ExecuteRequest>(ctx, placement, listener),
        PostExecute::NAME => waterfall::<PostExecute>(ctx, placement, listener),
        STOPPING => stopping(ctx, placement, listener),
        _ => Err(unknown_event(name)),
    }
}

fn waterfall<P: Bridge>(ctx: &Context, placement: Placement, listener: Rc<dyn HostListener>) -> Result<Registration>
where
    P::Output: Clone,
{
    let root = Rc::downgrade(ctx.root());
    ctx.waterfall_placed::<P, _>(placement, move |payload, next: Next<P::Output>| {
        let inner: Rc<RefCell<Option<P::Output>>> = Rc::default();
        let shown = payload.clone();
        let event = WaterfallEvent {
            name: P::NAME,
            agent: payload.agent().cloned(),
            signal: payload.signal(),
            describe: Box::new(move |object| shown.describe(object)),
        };
        let (kept, root) = (inner.clone(), root.clone());
        let proceed = HostNext(Rc::new(move |edited| {
            if let Some(edited) = edited
                && let Err(error) = payload.edit(edited)
            {
                return Box::pin(std::future::ready(Err(error)));
            }
            let Some(root) = root.upgrade() else {
                let gone = Error::new(Code::RuntimeClosed, "the context is closed");
                return Box::pin(std::future::ready(Err(gone)));
            };
            let (rest, kept) = (root.future_with_initiator(payload.agent(), next.call()), kept.clone());
            Box::pin(async move {
                let decision = rest.await?;
                let shown = P::decided(&decision);
                *kept.borrow_mut() = Some(decision);
                Ok(shown)
            })
        }));
        let decided = listener.decide(event, Some(proceed));
        async move {
            let decided = decided.await?;
            let inner = inner.borrow_mut().take();
            match (decided, inner) {
                (Some(value), inner) => P::decision(&value, inner),
                (None, Some(inner)) => Ok(inner),
                (None, None) => {
                    let message = format!("a listener of {} must decide or call its continuation", P::NAME);
                    Err(Error::host(message))
                }
            }
        }
    })
}

fn stopping(ctx: &Context, placement: Placement, listener: Rc<dyn HostListener>) -> Result<Registration> {
    ctx.on_turn_stopping_placed(placement, move |payload: Rc<TurnStopping>| {
        let turn = payload.turn;
        let event = WaterfallEvent {
            name: STOPPING,
            agent: Some(payload.agent.clone()),
            signal: payload.signal.clone(),
            describe: Box::new(move |object| {
                object.insert("turn", turn);
            }),
        };
        let heard = listener.decide(event, None);
        async move { heard.await.map(drop) }
    })
}
