//! The way of one call: pre-execute, guards, execute, body, post-execute, result (EXE-02).
//!
//! Nothing a listener or body throws escapes: it becomes the call's failed result. Only a store that cannot make the
//! intent durable does, because then no effect may happen.

use super::approval;
use super::call::{Attachments, ToolCall, ToolOutput, render};
use super::definition::{Finalizer, Tool};
use super::events::{
    ExecuteRequest, PostDecision, PostExecute, PreDecision, PreExecute, ToolCallInfo, ToolOutcome, ToolResultNotice,
};
use super::schema::violations;
use crate::agent::{Notice, NoticeKind, Waterfall};
use crate::context::Root;
use crate::error::{Code, Error, Result};
use crate::events::guarded_future;
use crate::json::Value;
use crate::message::Block;
use crate::runtime::{LocalBoxFuture, Signal};
use crate::scope::ScopeKey;
use crate::session::{CancelCause, ErrorInfo};
use crate::texts;
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::task::Poll;

/// One call on its way.
pub(crate) struct Execution {
    root: Rc<Root>,
    scope: Option<ScopeKey>,
    info: Rc<ToolCallInfo>,
    attachments: Rc<Attachments>,
    /// Captured before the arguments are read (EXE-22).
    finalizer: Option<Rc<Finalizer>>,
}

/// What the stage before the body decided.
pub(crate) enum Admitted {
    /// Run the body.
    Dispatch,
    /// Answered; policy still sees the result.
    Answered(ToolOutcome),
    /// Answered, and nobody else is asked (TOOL-9).
    Final(ToolOutcome),
}

/// An answer, and whether policy still sees it.
pub(crate) struct Answer {
    pub(crate) outcome: ToolOutcome,
    pub(crate) post: bool,
}

impl ToolOutcome {
    /// A failed result with this text.
    pub(crate) fn failure(text: impl Into<String>, error: Option<(&str, &str)>) -> Self {
        let error = error.map(|(name, code)| ErrorInfo { name: name.into(), code: code.into() });
        Self { content: vec![Block::Text(text.into())], is_error: true, error, ..Self::default() }
    }

    /// A call that was cancelled before its body ran.
    pub(crate) fn aborted_before_dispatch() -> Self {
        Self::failure(texts::TOOL_ABORTED_BEFORE_DISPATCH, Some(("AbortError", Code::AbortedBeforeDispatch.as_str())))
    }

    /// A call that a failure of the scheduler hit (D-11).
    pub(crate) fn scheduler_failed() -> Self {
        Self::failure(texts::TOOL_SCHEDULER_FAILED, Some(("ToolSchedulerError", Code::ToolSchedulerFailed.as_str())))
    }

    /// What was thrown, as a result (EXE-21). A plain host error has no code.
    pub(crate) fn thrown(error: &Error) -> Self {
        let name = error.name();
        let info = match error.code() {
            Code::InvalidArgs => {
                let text = format!("{} {}", texts::INVALID_ARGS, error.message());
                return Self::failure(text, Some(("ToolArgsError", error.code().as_str())));
            }
            Code::UnknownTool => {
                let text = format!("{} {}", texts::UNKNOWN_TOOL, error.message());
                return Self::failure(text, Some(("ToolNotFoundError", error.code().as_str())));
            }
            Code::HostError | Code::ModelFailed => None,
            Code::InvalidToolOutput => Some(("ToolOutputError", error.code().as_str())),
            Code::ToolTimeout => Some(("ToolTimeoutError", error.code().as_str())),
            Code::ToolResultTooLarge => Some(("ToolResultError", error.code().as_str())),
            code => Some((name.unwrap_or("TurnwheelError"), code.as_str())),
        };
        Self::failure(format!("Error: {}", error.message()), info)
    }
}

impl Execution {
    pub(crate) fn new(root: Rc<Root>, scope: Option<ScopeKey>, info: ToolCallInfo) -> Self {
        let finalizer = root.tools.find(&root, scope, &info.name).and_then(|tool| tool.finalizer);
        Self { root, scope, info: Rc::new(info), attachments: Rc::default(), finalizer }
    }

    /// All stages of a call that no scheduler orders.
    pub(crate) async fn run(self) -> Result<ToolOutcome> {
        let this = Rc::new(self);
        let answer = match this.admit().await {
            Admitted::Dispatch => this.clone().dispatch().await?,
            Admitted::Answered(outcome) => Answer { outcome, post: true },
            Admitted::Final(outcome) => Answer { outcome, post: false },
        };
        Ok(this.finish(answer).await)
    }

    /// The stage before the body: ordered among the calls of a message (TOOL-8).
    pub(crate) async fn admit(&self) -> Admitted {
        if let Some(reason) = self.info.arguments.find_lossy() {
            return Admitted::Final(ToolOutcome::thrown(&Error::new(Code::InvalidArgs, reason)));
        }
        if self.info.signal.is_cancelled() {
            return Admitted::Final(ToolOutcome::aborted_before_dispatch());
        }
        if self.info.parent.is_none()
            && let Some(error) = self.root.tools.refuses_direct(&self.root, self.scope, &self.info.name)
        {
            return Admitted::Final(ToolOutcome::thrown(&error));
        }
        let payload = Rc::new(PreExecute { call: self.info.clone() });
        let allow = |_: Rc<PreExecute>| async { Ok(PreDecision::Allow) };
        let asked = match self.root.hub.waterfall(&self.root.scopes, self.scope, payload, allow).await {
            Err(error) => Err(error),
            Ok(PreDecision::Allow) => Ok(None),
            Ok(PreDecision::Deny(reason)) => Ok(Some(reason)),
            Ok(PreDecision::Ask(reason)) => approval::ask(&self.root, self.scope, &self.info, reason).await,
        };
        // A guard also sees what somebody approved (DEF-08).
        let denial = match asked {
            Ok(None) => self.root.tools.guard(&self.root, self.scope, &self.info),
            decided => decided,
        };
        match denial {
            Err(error) => return Admitted::Final(ToolOutcome::thrown(&error)),
            Ok(Some(reason)) => {
                return Admitted::Answered(ToolOutcome::failure(format!("Error: {reason}"), None));
            }
            Ok(None) => {}
        }
        if self.info.signal.is_cancelled() {
            return Admitted::Answered(ToolOutcome::aborted_before_dispatch());
        }
        Admitted::Dispatch
    }

    /// Runs the body, once the intent is durable. Fails only when that cannot be had.
    pub(crate) async fn dispatch(self: Rc<Self>) -> Result<Answer> {
        // A nested call is covered by its parent's barrier (EXE-27).
        if let Some(agent) = self.info.agent.as_ref().filter(|_| self.info.parent.is_none()) {
            crate::agent_loop::barrier(&self.root, agent.session()).await?;
        }
        if self.info.signal.is_cancelled() {
            return Ok(Answer { outcome: ToolOutcome::aborted_before_dispatch(), post: true });
        }
        let request = ExecuteRequest { call: self.info.clone(), signal: RefCell::new(self.info.signal.clone()) };
        let this = self.clone();
        // What the body answered is checked already; what a wrapper answers instead of it is not (EXE-11).
        let is_wrapped = !ExecuteRequest::channel(&self.root.hub).is_empty();
        let checked = Rc::new(RefCell::new(None));
        let noted = checked.clone();
        let body = move |request: Rc<ExecuteRequest>| async move {
            let outcome = this.run_body(request).await;
            if is_wrapped {
                *noted.borrow_mut() = Some((outcome.value.clone(), outcome.content.clone()));
            }
            Ok(outcome)
        };
        let ran = self.root.hub.waterfall(&self.root.scopes, self.scope, Rc::new(request), body).await;
        let ran = ran.map(|outcome| match is_wrapped {
            true => self.check_wrapped(outcome, checked.take()),
            false => outcome,
        });
        let mut answer = match ran {
            Ok(outcome) => Answer { outcome, post: true },
            Err(error) => Answer { outcome: ToolOutcome::thrown(&error), post: false },
        };
        // The body's contexts come first (EXE-20), and survive a failure or cancellation (EXE-17).
        let mut contexts = self.attachments.contexts.take();
        contexts.append(&mut answer.outcome.contexts);
        answer.outcome.contexts = contexts;
        answer.outcome.concludes_turn |= self.attachments.concludes_turn.get();
        // Only a success ends the turn (EXE-24).
        answer.outcome.concludes_turn &= !answer.outcome.is_error;
        self.mark_aborted(&mut answer.outcome);
        Ok(answer)
    }

    /// A successful answer of a wrapper goes by the tool's own output contract.
    fn check_wrapped(&self, outcome: ToolOutcome, body: Option<(Option<Value>, Vec<Block>)>) -> ToolOutcome {
        let is_the_bodys = body.is_some_and(|(value, content)| value == outcome.value && content == outcome.content);
        if outcome.is_error || is_the_bodys {
            return outcome;
        }
        let tool = self.root.tools.find(&self.root, self.scope, &self.info.name);
        let Some(tool) = tool else { return outcome };
        let output = match outcome.value.clone() {
            Some(value) => ToolOutput::value(value),
            None if tool.output.is_some() => ToolOutput::value(Value::Null),
            None => ToolOutput::content(outcome.content.clone()),
        };
        match checked(&tool, output) {
            Ok(checked) => ToolOutcome { content: checked.content, value: checked.value, ..outcome },
            Err(error) => ToolOutcome { contexts: outcome.contexts, ..ToolOutcome::thrown(&error) },
        }
    }

    async fn run_body(&self, request: Rc<ExecuteRequest>) -> ToolOutcome {
        let Some(tool) = self.root.tools.find(&self.root, self.scope, &self.info.name) else {
            return ToolOutcome::thrown(&Error::new(Code::UnknownTool, format!("{:?}", self.info.name)));
        };
        self.attachments.entered.set(true);
        if tool.checks_arguments {
            let found = violations(tool.schema.parameters(), &self.info.arguments, "");
            if !found.is_empty() {
                return ToolOutcome::thrown(&Error::new(Code::InvalidArgs, found.join("; ")));
            }
        }
        let wrapper = request.signal.borrow().clone();
        // The body's signal fires on the caller's or the wrapper's, whichever comes first (EXE-10).
        let (signal, _caller) = self.info.signal.child();
        let inner = signal.clone();
        let _wrapper =
            (!wrapper.is_same(&self.info.signal)).then(|| wrapper.on_cancel(move |cause| inner.cancel(cause.clone())));
        let call = ToolCall {
            info: self.info.clone(),
            signal: signal.clone(),
            attachments: self.attachments.clone(),
            root: Rc::downgrade(&self.root),
            scope: self.scope,
        };
        let body = tool.body.clone();
        let returned = self.timed(&tool, &signal, guarded_future(move || body(call))).await;
        match returned.and_then(|output| checked(&tool, output)) {
            // A nested call has no face of its own (EXE-27).
            Ok(outcome) if self.info.parent.is_some() => ToolOutcome { meta: None, ..outcome },
            Ok(outcome) => outcome,
            Err(error) => ToolOutcome::thrown(&error),
        }
    }

    /// Awaits the body; when its time is over its signal fires, and the result is a timeout whatever comes (EXE-25).
    async fn timed(
        &self,
        tool: &Tool,
        signal: &Signal,
        body: impl Future<Output = Result<ToolOutput>>,
    ) -> Result<ToolOutput> {
        let Some(timeout) = tool.timeout else { return body.await };
        let mut timer = Some(self.root.runtime.sleep(timeout));
        let mut body = Box::pin(body);
        let (returned, expired) = std::future::poll_fn(|context| {
            if timer.as_mut().is_some_and(|timer| timer.as_mut().poll(context).is_ready()) {
                timer = None;
                signal.cancel(CancelCause::Hook("tool timeout".into()));
            }
            body.as_mut().poll(context).map(|returned| (returned, timer.is_none()))
        })
        .await;
        if expired && !self.info.signal.is_cancelled() {
            let text = format!("tool call timed out after {}ms", timeout.as_millis());
            return Err(Error::new(Code::ToolTimeout, text));
        }
        returned
    }

    /// Cancellation replaces successes only (EXE-15).
    fn mark_aborted(&self, outcome: &mut ToolOutcome) {
        if outcome.is_error || !self.info.signal.is_cancelled() {
            return;
        }
        let contexts = std::mem::take(&mut outcome.contexts);
        *outcome = if self.attachments.entered.get() {
            ToolOutcome::failure(texts::TOOL_ABORTED, Some(("AbortError", Code::Aborted.as_str())))
        } else {
            ToolOutcome::aborted_before_dispatch()
        };
        outcome.contexts = contexts;
    }

    /// The stage behind the body: policy, cancellation, the result notice. In model order (TOOL-10).
    pub(crate) async fn finish(&self, answer: Answer) -> ToolOutcome {
        let outcome = if answer.post { self.post(answer.outcome).await } else { answer.outcome };
        let outcome = Rc::new(self.bounded(self.finalize(outcome)));
        let result = Rc::new(ToolResultNotice { call: self.info.clone(), outcome: outcome.clone() });
        self.root.hub.emit(&self.root.scopes, self.scope, NoticeKind::ToolResult, || Notice::ToolResult {
            agent: self.info.agent.clone(),
            result,
        });
        Rc::try_unwrap(outcome).unwrap_or_else(|shared| (*shared).clone())
    }

    /// Keeps a record of the log from growing without bound: the whole of a result stands in it, and is read with it.
    fn bounded(&self, outcome: ToolOutcome) -> ToolOutcome {
        // What a nested call gave is logged as far as its parent passes it on.
        let limit = self.root.loop_options.get().max_tool_result_bytes.filter(|_| self.info.parent.is_none());
        let Some(limit) = limit else { return outcome };
        let content: usize = outcome.content.iter().map(Block::weight).sum();
        let size = (content + outcome.meta.as_ref().map_or(0, Value::weight)) as u64;
        if size <= limit {
            return outcome;
        }
        let message = format!(
            "the tool ran, and its result of about {size} bytes is larger than the {limit} that are kept; ask for less of it"
        );
        let error = Error::new(Code::ToolResultTooLarge, message);
        ToolOutcome { contexts: outcome.contexts, ..ToolOutcome::thrown(&error) }
    }

    /// The tool's last word on what the model sees (EXE-22).
    fn finalize(&self, mut outcome: ToolOutcome) -> ToolOutcome {
        let Some(finalize) = &self.finalizer else { return outcome };
        let replaced = crate::events::guarded(|| finalize(&self.info, &outcome)).and_then(|content| match content {
            Some(content) => {
                let invalid = |what| Error::new(Code::InvalidToolOutput, format!("finalize_content gave {what}"));
                check_lossless(&content, None).map_err(invalid).map(|()| Some(content))
            }
            None => Ok(None),
        });
        match replaced {
            Ok(Some(content)) => outcome.content = content,
            Ok(None) => {}
            Err(error) => {
                let contexts = outcome.contexts;
                outcome = ToolOutcome { contexts, ..ToolOutcome::thrown(&error) };
            }
        }
        outcome
    }

    async fn post(&self, outcome: ToolOutcome) -> ToolOutcome {
        let outcome = Rc::new(outcome);
        let payload = Rc::new(PostExecute { call: self.info.clone(), outcome: outcome.clone() });
        let accept = |_: Rc<PostExecute>| async { Ok(PostDecision::accept()) };
        let decision = self.root.hub.waterfall(&self.root.scopes, self.scope, payload, accept).await;
        let old = Rc::try_unwrap(outcome).unwrap_or_else(|shared| (*shared).clone());
        let decided = decision.and_then(|decision| self.decide(old, decision));
        let mut outcome = decided.unwrap_or_else(|error| ToolOutcome::thrown(&error));
        self.mark_aborted(&mut outcome);
        outcome
    }

    fn decide(&self, mut outcome: ToolOutcome, decision: PostDecision) -> Result<ToolOutcome> {
        match decision {
            PostDecision::Block { mut feedback, contexts } => {
                if feedback.is_empty() {
                    feedback.push(Block::Text(texts::RESULT_BLOCKED.into()));
                }
                Ok(ToolOutcome { content: feedback, is_error: true, contexts, ..ToolOutcome::default() })
            }
            PostDecision::Accept { content: Some(_), value: Some(_), .. } => {
                Err(Error::new(Code::InvalidArgument, "a post-execute decision replaces content or value, not both"))
            }
            PostDecision::Accept { value: Some(_), .. } if outcome.is_error => {
                Err(Error::new(Code::InvalidArgument, "a failed result has no value to replace"))
            }
            PostDecision::Accept { content, value, contexts } => {
                if let Some(value) = value {
                    let tool = self.root.tools.find(&self.root, self.scope, &self.info.name);
                    outcome.content = match tool {
                        Some(tool) => checked(&tool, ToolOutput::value(value.clone()))?.content,
                        None => render(&value),
                    };
                    outcome.value = Some(value);
                }
                if let Some(content) = content {
                    let invalid = |what| Error::new(Code::InvalidToolOutput, format!("tools/post-execute gave {what}"));
                    check_lossless(&content, None).map_err(invalid)?;
                    outcome.content = content;
                }
                outcome.contexts.extend(contexts);
                Ok(outcome)
            }
        }
    }
}

/// The result of a successful body, once its value has been checked (EXE-12).
fn checked(tool: &Tool, output: ToolOutput) -> Result<ToolOutcome> {
    let invalid = |what: String| Error::new(Code::InvalidToolOutput, format!("tool {:?} returned {what}", tool.name()));
    if let Some(value) = &output.value {
        if let Some(reason) = value.find_lossy() {
            return Err(invalid(format!("a value that JSON cannot carry: {reason}")));
        }
        if let Some(schema) = &tool.output {
            let found = violations(schema, value, "value");
            if !found.is_empty() {
                return Err(invalid(format!("an invalid value: {}", found.join("; "))));
            }
        }
    }
    let content = output.blocks();
    check_lossless(&content, output.meta.as_ref()).map_err(invalid)?;
    Ok(ToolOutcome { content, value: output.value, meta: output.meta, ..ToolOutcome::default() })
}

/// What is logged of a result is what JSON can carry exactly (LOG-2).
fn check_lossless(content: &[Block], meta: Option<&Value>) -> std::result::Result<(), String> {
    let found = content.iter().find_map(Block::find_lossy).or_else(|| meta.and_then(Value::find_lossy));
    found.map_or(Ok(()), |reason| Err(format!("content or meta that JSON cannot carry: {reason}")))
}

/// Bodies that run beside each other; the earliest started that is ready wins (TOOL-26).
pub(crate) struct Pool<T> {
    running: Vec<(usize, LocalBoxFuture<T>)>,
}

impl<T> Pool<T> {
    pub(crate) fn new() -> Self {
        Self { running: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    /// Adds a body; it starts at the next poll.
    pub(crate) fn push(&mut self, key: usize, body: impl Future<Output = T> + 'static) {
        self.running.push((key, Box::pin(body)));
    }

    /// Lets the bodies go on, in the order of their start, up to the first that is done; takes that one.
    pub(crate) fn poll(&mut self, context: &mut std::task::Context<'_>) -> Poll<(usize, T)> {
        for at in 0..self.running.len() {
            if let Poll::Ready(value) = self.running[at].1.as_mut().poll(context) {
                let (key, _) = self.running.remove(at);
                return Poll::Ready((key, value));
            }
        }
        Poll::Pending
    }
}
