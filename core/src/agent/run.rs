//! Receipts and owned runs: what became of one message.

use super::{Agent, AgentInner, AgentState, IntoMessage, Stage};
use crate::error::{Code, Error, Result};
use crate::id::MessageId;
use crate::message::{Message, Role, Usage};
use crate::runtime::LocalBoxFuture;
use crate::session::{CancelCause, Delivery, Event, EventData, InboxTarget, Session, TurnEndReason, text_of};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

/// What became of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum ReceiptState {
    /// It waits in this list.
    Pending {
        /// The list.
        target: InboxTarget,
        /// Why nothing is going to read it before the next wake; none while something is.
        parked: Option<Parked>,
    },
    /// This turn took it and is under way.
    Claimed {
        /// The turn.
        turn: u64,
        /// The step it was taken for, once that has started.
        step: Option<u64>,
    },
    /// It was removed before any turn took it.
    Discarded {
        /// The event that removed it.
        seq: u64,
        /// The message that came in its place, if it was replaced.
        replaced_by: Option<MessageId>,
    },
    /// The turn that took it ended.
    Ended {
        /// The turn.
        turn: u64,
        /// Why it ended.
        reason: TurnEndReason,
    },
}

/// Why nothing is going to read a pending message before the next wake.
#[derive(Clone, Debug, PartialEq)]
pub enum Parked {
    /// No turn was asked for since it came, as with `inject`, or the one asked for was cancelled before it opened.
    NotWoken,
    /// An earlier life of the session accepted it; resuming wakes nobody.
    Resumed,
    /// The turn under way is ending and takes nothing more.
    TurnEnding,
    /// It waited when this turn ended, and the turn was not followed by another.
    TurnEnded {
        /// The turn.
        turn: u64,
        /// Why it ended.
        reason: TurnEndReason,
    },
}

/// Answers, from the log, what became of a delivered message. Survives restarts: ask `agent.receipt(id)` again.
#[derive(Clone, Debug)]
pub struct Receipt {
    agent: Agent,
    id: MessageId,
}

impl Receipt {
    pub(super) fn new(agent: Agent, id: MessageId) -> Self {
        Self { agent, id }
    }

    /// The message.
    pub fn message_id(&self) -> &MessageId {
        &self.id
    }

    /// What became of it so far; `None` if the session never accepted it.
    pub fn state(&self) -> Option<ReceiptState> {
        let session = self.agent.session();
        match session.delivery(&self.id)? {
            Delivery::Pending { target, seq } => {
                let state = self.agent.state().ok().filter(|state| state.parked.contains(&self.id));
                Some(ReceiptState::Pending { target, parked: state.map(|state| self.why_parked(&state, seq)) })
            }
            Delivery::Discarded { seq } => {
                Some(ReceiptState::Discarded { seq, replaced_by: replacement(session, seq) })
            }
            Delivery::Claimed { turn, step } => Some(match session.turn_end(turn) {
                Some(reason) => ReceiptState::Ended { turn, reason },
                None => ReceiptState::Claimed { turn, step },
            }),
        }
    }

    fn why_parked(&self, state: &AgentState, inserted: u64) -> Parked {
        if state.phase == "running" {
            return Parked::TurnEnding;
        }
        let (session, turn) = (self.agent.session(), state.turn);
        let (span, ended) = (session.turn(turn), session.turn_end(turn));
        if span.is_none_or(|span| span.start < session.first_live_seq()) {
            // No turn of this life.
            let is_earlier = inserted < session.first_live_seq();
            return if is_earlier { Parked::Resumed } else { Parked::NotWoken };
        }
        let waited = span.and_then(|span| span.end).is_some_and(|end| end > inserted);
        match ended.filter(|_| waited) {
            Some(reason) => Parked::TurnEnded { turn, reason },
            None => Parked::NotWoken,
        }
    }

    /// Resolves when the message was discarded or the turn that took it ended. Fails when the agent is disposed first,
    /// for a message that the session never accepted (`NOT_REGISTERED`), and inside the agent's own turn, which it
    /// would keep from ending (`SELF_WAIT`).
    pub fn settled(&self) -> impl Future<Output = Result<ReceiptState>> + use<> {
        let receipt = self.clone();
        std::future::poll_fn(move |context| match receipt.state() {
            Some(state @ (ReceiptState::Discarded { .. } | ReceiptState::Ended { .. })) => Poll::Ready(Ok(state)),
            state => match receipt.check_waitable(state.is_some()) {
                Err(error) => Poll::Ready(Err(error)),
                Ok(()) => {
                    receipt.agent.session().watch(context);
                    Poll::Pending
                }
            },
        })
    }

    fn check_waitable(&self, is_accepted: bool) -> Result<()> {
        self.check_known(is_accepted)?;
        self.agent.check_no_self_wait()
    }

    /// Fails when nothing will ever become of the message: its agent is gone, or the session did not and will not accept
    /// it, as when a check refused a delivery from inside an observer (D-02).
    fn check_known(&self, is_accepted: bool) -> Result<()> {
        if self.agent.0.ctx.borrow().is_none() {
            return Err(self.agent.disposed());
        }
        if !is_accepted && !self.agent.0.promised.borrow().contains(&self.id) {
            let message = format!("session {:?} never accepted a message {:?}", self.agent.id(), self.id);
            return Err(Error::new(Code::NotRegistered, message).with("id", self.id.as_str()));
        }
        Ok(())
    }

    /// The error of whoever owns this prompt and waits for it, once it is parked: nothing is going to read it.
    fn parked(&self) -> Option<Error> {
        let state = self.agent.state().ok()?;
        let waits = state.phase == "idle" && self.agent.0.stage.get() == Stage::Live && state.parked.contains(&self.id);
        waits.then(|| {
            let message = "nothing is going to take this prompt: the turn before it failed, was blocked, was cancelled, \
                spent its budget or entered nothing, and the queue is parked; the prompt is withdrawn, so send it again";
            Error::new(Code::Parked, message).with("id", self.id.as_str())
        })
    }

    /// Resolves when the insertion is on stable storage; at once without a store. Fails with `NOT_REGISTERED` for
    /// a message that the session never accepted.
    pub async fn durable(&self) -> Result<()> {
        std::future::poll_fn(|context| {
            if self.agent.session().delivery(&self.id).is_some() {
                return Poll::Ready(Ok(()));
            }
            self.agent.session().watch(context);
            self.check_known(false).map_or_else(|error| Poll::Ready(Err(error)), |()| Poll::Pending)
        })
        .await?;
        self.agent.flush().await
    }
}

/// What an owned run brought.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The turn.
    pub turn: u64,
    /// Why it ended.
    pub reason: TurnEndReason,
    /// The text of the last assistant message.
    pub text: String,
    /// The messages the turn put before the model, in order.
    pub messages: Vec<Arc<Message>>,
    /// The tokens of all its requests.
    pub usage: Usage,
}

impl Agent {
    /// What became of a message of this session.
    pub fn receipt(&self, id: impl Into<MessageId>) -> Receipt {
        Receipt::new(self.clone(), id.into())
    }

    /// Sends a prompt and waits until the turn that took it ended. Dropping the future withdraws the prompt, or cancels
    /// the turn that took it with cause `user`. Fails with `MESSAGE_DISCARDED` when the prompt is discarded first, and
    /// with `PARKED` when an earlier turn left the queue parked: the prompt is withdrawn then, instead of waiting for
    /// somebody's next wake.
    pub fn run(&self, message: impl IntoMessage) -> Result<LocalBoxFuture<Result<RunResult>>> {
        self.check_no_self_wait()?;
        let receipt = self.followup(message)?;
        let guard = CancelOnDrop { receipt: receipt.clone(), armed: true };
        let agent = self.clone();
        Ok(Box::pin(async move {
            let mut guard = guard;
            let mut awaiting = None;
            let mut settled = Box::pin(receipt.settled());
            let state = std::future::poll_fn(|context| match receipt.parked() {
                Some(parked) => Poll::Ready(Err(parked)),
                None => {
                    awaiting = awaiting.take().or_else(|| Awaiting::begin(&agent));
                    settled.as_mut().poll(context)
                }
            })
            .await;
            drop(awaiting);
            // A parked prompt is withdrawn by the guard.
            guard.armed = matches!(&state, Err(error) if *error.code() == Code::Parked);
            match state? {
                ReceiptState::Ended { turn, reason } => agent.run_result(turn, reason),
                ReceiptState::Discarded { .. } => Err(discarded(&receipt.id)),
                // `settled` resolves with neither.
                ReceiptState::Pending { .. } | ReceiptState::Claimed { .. } => {
                    Err(Error::new(Code::Unknown, "a prompt was settled before its turn ended"))
                }
            }
        }))
    }

    /// Sends a prompt and yields the events of the turn that takes it, from its `turn/start` to its `turn/end`. The
    /// stream reads the log, so a slow reader costs nothing and loses nothing. Dropping the stream does not cancel.
    pub fn stream(&self, message: impl IntoMessage) -> Result<EventStream> {
        self.check_no_self_wait()?;
        let receipt = self.followup(message)?;
        Ok(EventStream { receipt, next: None, done: false })
    }

    fn run_result(&self, turn: u64, reason: TurnEndReason) -> Result<RunResult> {
        let span = self.session().turn(turn).ok_or_else(|| Error::new(Code::Unknown, "the turn is not in the log"))?;
        let mut result = RunResult { turn, reason, text: String::new(), messages: Vec::new(), usage: Usage::default() };
        for event in self.session().marks_from(span.start) {
            if span.end.is_some_and(|end| event.seq > end) {
                break;
            }
            if let EventData::AssistantMessage { usage: Some(usage), .. } = &event.data {
                result.usage = result.usage.plus(*usage);
            }
            if let Some(message) = event.data.message() {
                if message.role() == Role::Assistant {
                    result.text = text_of(message.content());
                }
                result.messages.push(message.clone());
            }
        }
        Ok(result)
    }
}

/// What an inbox event put in the place of the message it removed.
fn replacement(session: &Session, seq: u64) -> Option<MessageId> {
    match &session.event(seq)?.data {
        EventData::InboxSpliced(splice) => splice.inserted.first().map(|message| message.id().clone()),
        _ => None,
    }
}

fn discarded(id: &MessageId) -> Error {
    let message = format!("message {id:?} was discarded before any turn took it");
    Error::new(Code::MessageDiscarded, message).with("id", id.as_str())
}

/// An owned run that another agent's turn itself polls, for as long as it lives: the one waits for the other (D-18).
struct Awaiting {
    waiter: Agent,
    awaited: Weak<AgentInner>,
}

impl Awaiting {
    fn begin(awaited: &Agent) -> Option<Self> {
        let waiter = awaited.root().ok()?.current_initiator().filter(Agent::is_in_turn)?;
        let awaited = Rc::downgrade(&awaited.0);
        waiter.0.awaits.borrow_mut().push(awaited.clone());
        Some(Self { waiter, awaited })
    }
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        let mut awaits = self.waiter.0.awaits.borrow_mut();
        let at = awaits.iter().position(|awaited| awaited.ptr_eq(&self.awaited));
        let removed = at.map(|at| awaits.swap_remove(at));
        drop(awaits);
        drop(removed);
    }
}

struct CancelOnDrop {
    receipt: Receipt,
    armed: bool,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if self.armed {
            self.receipt.withdraw();
        }
    }
}

impl Receipt {
    /// Takes the message back if it is pending, or cancels the turn that took it with cause `user`, keeping the rest
    /// of the inbox.
    pub fn withdraw(&self) {
        match self.state() {
            Some(ReceiptState::Pending { .. }) => {
                let (agent, id) = (self.agent.clone(), self.id.clone());
                self.agent.session().when_appendable(move || {
                    let removed = agent.inbox().remove(&id);
                    if let Err(error) = removed {
                        tracing::warn!(target: "turnwheel", agent = %agent.id(), "could not withdraw {id}: {error:?}");
                    }
                });
            }
            Some(ReceiptState::Claimed { turn, .. }) if self.agent.state().is_ok_and(|state| state.turn == turn) => {
                self.agent.cancel_keep_inbox(CancelCause::User);
            }
            Some(ReceiptState::Claimed { .. } | ReceiptState::Discarded { .. } | ReceiptState::Ended { .. }) | None => {
            }
        }
    }
}

/// The events of one turn, as they are committed.
#[derive(Debug)]
pub struct EventStream {
    receipt: Receipt,
    next: Option<u64>,
    done: bool,
}

impl EventStream {
    /// The receipt of the prompt.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// The session it reads.
    pub fn session(&self) -> &Session {
        self.receipt.agent.session()
    }

    /// The next event; `None` behind the turn's end. An error ends the stream.
    pub async fn next(&mut self) -> Option<Result<Arc<Event>>> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// As [`EventStream::next`], for hand-written futures.
    pub fn poll(&mut self, context: &mut TaskContext<'_>) -> Poll<Option<Result<Arc<Event>>>> {
        if self.done {
            return Poll::Ready(None);
        }
        let session = self.receipt.agent.session();
        let (turn, seq) = match session.delivery(&self.receipt.id) {
            Some(Delivery::Claimed { turn, .. }) => {
                let start = session.turn(turn).map_or(0, |span| span.start);
                (turn, *self.next.get_or_insert(start))
            }
            Some(Delivery::Discarded { .. }) => {
                self.done = true;
                return Poll::Ready(Some(Err(discarded(&self.receipt.id))));
            }
            None if let Err(error) = self.receipt.check_known(false) => {
                self.done = true;
                return Poll::Ready(Some(Err(error)));
            }
            Some(Delivery::Pending { .. }) | None => {
                // A claim that was undone is pending again: begin anew with the turn that takes it next.
                self.next = None;
                return self.wait(context);
            }
        };
        let Some(event) = session.event(seq) else {
            return self.wait(context);
        };
        self.next = Some(seq + 1);
        self.done = matches!(&event.data, EventData::TurnEnd { turn: ended, .. } if *ended == turn);
        Poll::Ready(Some(Ok(event)))
    }

    fn wait(&mut self, context: &mut TaskContext<'_>) -> Poll<Option<Result<Arc<Event>>>> {
        let agent = &self.receipt.agent;
        if let Some(parked) = self.receipt.parked() {
            self.done = true;
            self.receipt.withdraw();
            return Poll::Ready(Some(Err(parked)));
        }
        if agent.0.ctx.borrow().is_none() {
            self.done = true;
            return Poll::Ready(Some(Err(agent.disposed())));
        }
        agent.session().watch(context);
        Poll::Pending
    }
}

impl futures_core::Stream for EventStream {
    type Item = Result<Arc<Event>>;

    fn poll_next(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll(context)
    }
}
