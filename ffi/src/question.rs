//! Questions: what the core asks host code and host code answers now, or later from any thread. Waterfalls, tool calls,
//! setups, maintenance tasks, prompt texts, plug-in bodies and approvals all wait for one of these.
//!
//! Answering touches no runtime: it leaves the answer under a lock and wakes the task, so that it never waits for anybody.

use crate::guard::{Text, UserData, error_handle};
use crate::handles::{self, Kind, Object};
use crate::runtime::lock;
use crate::signal::Mirror;
use crate::types::*;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use turnwheel::Message;
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::HostNext;
use turnwheel::json::Value;
use turnwheel::runtime::{LocalBoxFuture, Signal, SignalGuard};

type Then = (unsafe extern "C" fn(*mut c_void, *mut tw_next, tw_str, *const tw_error), UserData);

/// How a listener delegates.
enum Delegation {
    /// And keeps what the continuation decides.
    Pass,
    /// And is told what the continuation decided, to answer then.
    Then(Option<Value>, Then),
}

#[derive(Default)]
struct State {
    answer: Option<Result<Option<Value>>>,
    delegation: Option<Delegation>,
    has_delegated: bool,
    contexts: Vec<Message>,
    concludes: bool,
    /// How many handles the host may still answer through.
    handles: usize,
    over: bool,
    waker: Option<Waker>,
}

/// One question.
pub struct Question {
    kind: Kind,
    /// What it is about, in the words of an error.
    what: String,
    pub payload: Text,
    pub agent: Option<Text>,
    pub signal: Arc<Mirror>,
    /// A value on the runtime's thread that belongs to it: the tool call.
    pub local: Option<(Arc<crate::runtime::Shared>, u64)>,
    state: Mutex<State>,
}

/// What a handle of a question stands for: with the last one the question is given up.
pub struct Asked(pub Arc<Question>);

impl Drop for Asked {
    fn drop(&mut self) {
        let waker = {
            let mut state = lock(&self.0.state);
            state.handles -= 1;
            if state.handles == 0 { state.waker.take() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn over(what: &str) -> Error {
    Error::new(Code::InvalidArgument, format!("{what} is answered already, or nobody waits for the answer any more"))
}

impl Question {
    /// A question with its payload.
    pub fn new(kind: Kind, what: &str, payload: String, agent: Option<&str>, signal: &Signal) -> (Self, SignalGuard) {
        let (signal, guard) = Mirror::of(signal);
        let question = Self {
            kind,
            what: what.to_owned(),
            payload: Text::new(payload),
            agent: agent.map(Text::new),
            signal,
            local: None,
            state: Mutex::default(),
        };
        (question, guard)
    }

    fn change(&self, change: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
        let waker = {
            let mut state = lock(&self.state);
            if state.over || state.answer.is_some() {
                return Err(over(&self.what));
            }
            change(&mut state)?;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Answers.
    pub fn answer(&self, answer: Result<Option<Value>>) -> Result<()> {
        self.change(|state| {
            state.answer = Some(answer);
            Ok(())
        })
    }

    fn delegate(&self, delegation: Delegation) -> Result<()> {
        self.change(|state| {
            if state.has_delegated {
                return Err(Error::new(Code::NextCalledTwice, "a listener delegates once"));
            }
            state.has_delegated = true;
            state.delegation = Some(delegation);
            Ok(())
        })
    }

    /// Delegates and keeps what the continuation decides.
    pub fn pass(&self) -> Result<()> {
        self.delegate(Delegation::Pass)
    }

    /// Delegates and answers when the continuation has decided.
    pub fn proceed(&self, edited: Option<Value>, then: Then) -> Result<()> {
        self.delegate(Delegation::Then(edited, then))
    }

    /// Adds a message for the next step.
    pub fn defer(&self, message: Message) -> Result<()> {
        self.change(|state| {
            state.contexts.push(message);
            Ok(())
        })
    }

    /// Ends the turn with this step.
    pub fn conclude(&self) -> Result<()> {
        self.change(|state| {
            state.concludes = true;
            Ok(())
        })
    }

    /// Takes what a tool's body attached so far.
    pub fn attachments(&self) -> (Vec<Message>, bool) {
        let mut state = lock(&self.state);
        (std::mem::take(&mut state.contexts), std::mem::take(&mut state.concludes))
    }
}

/// Marks the end of a question, whatever ends it.
struct Over(Arc<Question>);

impl Drop for Over {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.over = true;
        let rest = (state.delegation.take(), state.answer.take());
        drop(state);
        drop(rest);
    }
}

/// Puts a question: `ask` calls the host with a handle that is borrowed until it returns. Resolves with the answer.
pub fn put(
    question: impl Into<Arc<Question>>,
    guard: SignalGuard,
    next: Option<HostNext>,
    ask: impl FnOnce(usize),
) -> LocalBoxFuture<Result<Option<Value>>> {
    let question = question.into();
    let ending = Over(question.clone());
    with_handle(&question, ask);
    Box::pin(async move {
        let (_guard, _ending) = (guard, ending);
        let mut inner: Option<(LocalBoxFuture<Result<Value>>, Option<Then>)> = None;
        let mut failed: Option<Error> = None;
        std::future::poll_fn(move |context| {
            loop {
                if let Some((deciding, _)) = &mut inner {
                    let Poll::Ready(decided) = deciding.as_mut().poll(context) else {
                        return Poll::Pending;
                    };
                    let then = inner.take().and_then(|(_, then)| then);
                    match then {
                        None => return Poll::Ready(decided.map(|_| None)),
                        Some((then, user)) => {
                            failed = decided.as_ref().err().cloned();
                            tell(&question, then, user, &decided);
                        }
                    }
                }
                let delegation = {
                    let mut state = lock(&question.state);
                    if let Some(answer) = state.answer.take() {
                        state.over = true;
                        return Poll::Ready(answer);
                    }
                    let delegation = state.delegation.take();
                    if delegation.is_none() {
                        if state.handles == 0 {
                            state.over = true;
                            let message = format!("{} was neither answered nor retained", question.what);
                            return Poll::Ready(Err(failed.take().unwrap_or_else(|| Error::host(message))));
                        }
                        state.waker = Some(context.waker().clone());
                    }
                    delegation
                };
                match (delegation, &next) {
                    (None, _) => return Poll::Pending,
                    (Some(Delegation::Pass), Some(next)) => inner = Some((next.call(None), None)),
                    (Some(Delegation::Then(edited, then)), Some(next)) => {
                        inner = Some((next.call(edited.as_ref()), Some(then)));
                    }
                    (Some(_), None) => {
                        let message = format!("{} has no continuation", question.what);
                        return Poll::Ready(Err(Error::new(Code::InvalidArgument, message)));
                    }
                }
            }
        })
        .await
    })
}

fn with_handle(question: &Arc<Question>, ask: impl FnOnce(usize)) {
    lock(&question.state).handles += 1;
    let handle = handles::insert(question.kind, Object::Shared(Arc::new(Asked(question.clone()))));
    ask(handle);
    handles::release(question.kind, handle);
}

fn tell(
    question: &Arc<Question>,
    then: unsafe extern "C" fn(*mut c_void, *mut tw_next, tw_str, *const tw_error),
    user: UserData,
    decided: &Result<Value>,
) {
    let text = Text::new(decided.as_ref().map(Value::to_text).unwrap_or_default());
    let failed = decided.as_ref().err().map(error_handle);
    with_handle(question, |handle| {
        let failed = failed.map_or(std::ptr::null(), <*mut tw_error>::cast_const);
        // SAFETY: the interface asks for a function that takes its own `user_data` and borrowed values.
        unsafe { then(user.ptr, handle as *mut tw_next, text.view(), failed) };
    });
    if let Some(failed) = failed {
        handles::release(Kind::Error, failed as usize);
    }
}
