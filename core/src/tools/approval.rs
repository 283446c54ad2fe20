//! Approvals: a call that policy wants to have asked for (EXE-06, REC-20).
//!
//! Every question is in the log before it is put, and so is its one answer, also when nobody could give it.

use super::events::ToolCallInfo;
use super::registry::Tools;
use crate::context::{Registration, Root};
use crate::error::Result;
use crate::json::Object;
use crate::runtime::LocalBoxFuture;
use crate::scope::ScopeKey;
use crate::texts;
use std::future::Future;
use std::rc::Rc;
use std::task::Poll;

/// The question: may this call run, once?
#[derive(Clone, Debug)]
pub struct ApprovalRequest {
    /// The question's own id; two questions never share one.
    pub id: String,
    /// The call. Its signal fires when the turn is cancelled.
    pub call: Rc<ToolCallInfo>,
    /// Why policy asks.
    pub reason: Option<String>,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalOutcome {
    /// This call may run.
    AllowedOnce,
    /// Somebody said no.
    Rejected,
    /// The question was withdrawn.
    Cancelled,
    /// Nobody could answer.
    Unavailable,
}

impl ApprovalOutcome {
    /// The name in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            ApprovalOutcome::AllowedOnce => "allowed-once",
            ApprovalOutcome::Rejected => "rejected",
            ApprovalOutcome::Cancelled => "cancelled",
            ApprovalOutcome::Unavailable => "unavailable",
        }
    }

    fn denial(self) -> Option<&'static str> {
        match self {
            ApprovalOutcome::AllowedOnce => None,
            ApprovalOutcome::Rejected => Some(texts::APPROVAL_REJECTED),
            ApprovalOutcome::Cancelled => Some(texts::APPROVAL_CANCELLED),
            ApprovalOutcome::Unavailable => Some(texts::APPROVAL_UNAVAILABLE),
        }
    }
}

/// Answers questions.
pub type Approver = dyn Fn(ApprovalRequest) -> LocalBoxFuture<Result<ApprovalOutcome>>;

impl Tools {
    /// Registers who answers when policy asks, for the calls of this context's scope; the nearest one is asked.
    pub fn approve_with<F>(&self, approver: impl Fn(ApprovalRequest) -> F + 'static) -> Result<Registration>
    where
        F: Future<Output = Result<ApprovalOutcome>> + 'static,
    {
        self.add_approver(Rc::new(move |request| Box::pin(approver(request))))
    }
}

/// Asks for a call. The denial reason is returned, or nothing when the call may go on to the guards.
pub(super) async fn ask(
    root: &Root,
    scope: Option<ScopeKey>,
    call: &Rc<ToolCallInfo>,
    reason: Option<String>,
) -> Result<Option<String>> {
    let approver = root.tools.approver(root, scope);
    let (Some(agent), Some(approver)) = (&call.agent, approver) else {
        return Ok(Some(reason.unwrap_or_else(|| texts::APPROVAL_NOBODY.into())));
    };
    let id = root.runtime.next_id();
    let mut asked = Object::new();
    asked.insert("id", id.as_str());
    asked.insert("toolName", call.name.as_str());
    asked.insert("callId", call.call_id.as_str());
    asked.insert_some("reason", reason.as_deref());
    agent.session().append("approval/asked", asked.into())?;
    let request = ApprovalRequest { id: id.clone(), call: call.clone(), reason };
    let mut answer: LocalBoxFuture<Result<ApprovalOutcome>> =
        Box::pin(crate::events::guarded_future(move || approver(request)));
    let mut cancelled = Box::pin(call.signal.cancelled());
    let outcome = std::future::poll_fn(|context| {
        if let Poll::Ready(answer) = answer.as_mut().poll(context) {
            return Poll::Ready(answer.unwrap_or_else(|error| {
                tracing::warn!(target: "turnwheel", "an approval could not be had: {error:?}");
                ApprovalOutcome::Unavailable
            }));
        }
        cancelled.as_mut().poll(context).map(|_| ApprovalOutcome::Cancelled)
    })
    .await;
    let mut decided = Object::new();
    decided.insert("id", id);
    decided.insert("outcome", outcome.as_str());
    agent.session().append("approval/decided", decided.into())?;
    Ok(outcome.denial().map(str::to_owned))
}
