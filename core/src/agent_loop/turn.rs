//! The state machine of a turn: open, claim, propose, step, stop, close (TURN).

use super::driver::LoopDriver;
use super::step::StepEnd;
use crate::agent::{Driver, PreStep, PreStepDecision, TurnStopping};
use crate::error::{Code, Error, Result};
use crate::llm::Failure;
use crate::message::Message;
use crate::runtime::{Signal, yield_now};
use crate::session::{CancelCause, EventData, InboxTarget, SurfaceOp, TurnEndReason};
use crate::system_prompt::{Assembly, assemble};
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

/// How a turn came to its end.
struct Outcome {
    reason: TurnEndReason,
    /// Whether the driver goes on to queued work (TURN-18 to TURN-31, last column).
    goes_on: bool,
}

/// What a boundary decided.
enum Boundary {
    Enter { messages: Vec<Arc<Message>>, assembly: Assembly, step: u64 },
    End(Outcome),
}

impl LoopDriver {
    /// Runs one turn. True when the next turn of this run is to be opened at once.
    pub(super) async fn turn(&self) -> bool {
        let signal = self.turn_signal();
        let Ok(session) = self.session() else { return false };
        if signal.is_cancelled() {
            return false;
        }
        let before = session.inbox().last_turn();
        let turn = before + 1;
        if let Err(error) = session.log(EventData::TurnStart { turn }) {
            self.begin_closing();
            self.report(before, &error);
            return false;
        }
        let outcome = match self.within_time(self.run_turn(turn, &signal)).await {
            Ok(outcome) => outcome,
            Err(error) => self.failed(turn, &signal, &error),
        };
        if !outcome.goes_on {
            self.begin_closing();
        }
        // A failed turn's end accounts for its claims, also when an error listener cancels (D-10).
        let is_aborted = matches!(outcome.reason, TurnEndReason::Aborted(_));
        if is_aborted && signal.is_cancelled() && self.kept_inbox() {
            self.return_claims(turn);
        }
        if let Err(error) = session.log(EventData::TurnEnd { turn, reason: outcome.reason }) {
            self.begin_closing();
            self.report(turn, &error);
            return false;
        }
        if let Some(sink) = session.sink() {
            sink.turn_ended();
        }
        // A cancel from an observer of the turn's end parks the queue instead of vanishing with the old signal.
        let goes_on = outcome.goes_on && !signal.is_cancelled() && self.may_continue();
        if goes_on {
            self.renew();
        }
        goes_on
    }

    /// Cancels the turn when its time is over, with the inbox kept; what has started is awaited all the same.
    async fn within_time<T>(&self, turn: impl Future<Output = Result<T>>) -> Result<T> {
        let root = self.root()?;
        let Some(limit) = root.loop_options.get().turn_timeout else { return turn.await };
        let mut turn = Box::pin(turn);
        let mut timer = Some(root.runtime.sleep(limit));
        poll_fn(|context| {
            if timer.as_mut().is_some_and(|timer| timer.as_mut().poll(context).is_ready()) {
                timer = None;
                self.abort(CancelCause::Hook(format!("timeout: turn {}ms", limit.as_millis())), true);
            }
            turn.as_mut().poll(context)
        })
        .await
    }

    /// Classifies a failure: under a cancelled signal it is an abort (TURN-34, TURN-35).
    fn failed(&self, turn: u64, signal: &Signal, error: &Error) -> Outcome {
        self.begin_closing();
        let reason = match signal.cause() {
            Some(cause) => TurnEndReason::Aborted(cause),
            None => {
                self.report(turn, error);
                TurnEndReason::Error(failure_of(error))
            }
        };
        Outcome { reason, goes_on: false }
    }

    /// Puts the claims that entered no step back, after a cancel that kept the inbox (D-10).
    fn return_claims(&self, turn: u64) {
        let Ok(agent) = self.agent() else { return };
        let claims = agent.session().inbox().unentered().to_vec();
        if let Err(error) = agent.inbox().unclaim(&claims) {
            self.report(turn, &error);
        }
    }

    async fn run_turn(&self, turn: u64, signal: &Signal) -> Result<Outcome> {
        let session = self.session()?;
        let mut target = InboxTarget::NextTurn;
        // "The ceiling was hit" is remembered apart from "the turn may close" (D-01).
        let mut hit_ceiling = false;
        let mut may_close = false;
        loop {
            signal.check()?;
            if let Some(reason) = self.over_budget(turn)? {
                return Ok(Outcome { reason, goes_on: false });
            }
            let boundary = self.boundary(target, turn, signal, may_close, hit_ceiling).await?;
            let (messages, assembly, step) = match boundary {
                Boundary::Enter { messages, assembly, step } => (messages, assembly, step),
                Boundary::End(outcome) => return Ok(outcome),
            };
            target = InboxTarget::NextStep;
            signal.check()?;
            session.log(EventData::StepStart { turn, step })?;
            self.enter_step(step);
            let ended = self.enter(turn, step, signal, messages, assembly).await;
            // The step is closed whatever happened in it (TURN-10).
            session.log(EventData::StepEnd { turn, step })?;
            self.leave_step();
            match ended? {
                StepEnd::Answered => may_close = false,
                StepEnd::Completed => may_close = true,
                StepEnd::HitCeiling => {
                    hit_ceiling = true;
                    may_close = true;
                }
            }
            signal.check()?;
            if may_close && self.stops(turn, signal).await? {
                return Ok(Outcome { reason: end_reason(hit_ceiling), goes_on: true });
            }
        }
    }

    /// The moment before a proposed step: claim, assemble, ask (TURN-4).
    async fn boundary(
        &self,
        target: InboxTarget,
        turn: u64,
        signal: &Signal,
        may_close: bool,
        hit_ceiling: bool,
    ) -> Result<Boundary> {
        let (agent, root) = (self.agent()?, self.root()?);
        let step = self.step() + 1;
        let claimed = agent.inbox().claim(target, turn)?;
        if step == 1 {
            // A waking call returns here: the turn is open and its batch claimed, and nothing more has happened (SYN-1).
            yield_now().await;
        }
        let claimed_nothing = claimed.is_empty();
        let assembly = assemble(&root, &agent, signal).await?;
        signal.check()?;
        let snapshot = self.contexts.due(&root, agent.session(), &assembly)?;
        let payload =
            PreStep { agent: agent.clone(), messages: RefCell::new(claimed), turn, step, signal: signal.clone() };
        let due = snapshot.clone();
        let default = |proposal: Rc<PreStep>| async move {
            let mut messages = proposal.messages.borrow().clone();
            messages.extend(due);
            Ok(PreStepDecision::Enter(messages))
        };
        let decision = root.hub.waterfall(&root.scopes, Some(agent.scope()), Rc::new(payload), default).await?;
        signal.check()?;
        let messages = match decision {
            PreStepDecision::Reject => {
                return Ok(Boundary::End(Outcome { reason: TurnEndReason::Blocked, goes_on: false }));
            }
            PreStepDecision::Enter(messages) => messages,
        };
        let only_snapshot = || messages.iter().all(|message| Some(message) == snapshot.as_ref());
        if step == 1 && (messages.is_empty() || (claimed_nothing && only_snapshot())) {
            // The snapshot alone is worth no request; it waits (D-20).
            return Ok(Boundary::End(Outcome { reason: TurnEndReason::Completed, goes_on: false }));
        }
        if may_close && messages.is_empty() {
            return Ok(Boundary::End(Outcome { reason: end_reason(hit_ceiling), goes_on: true }));
        }
        Ok(Boundary::Enter { messages, assembly, step })
    }

    async fn enter(
        &self,
        turn: u64,
        step: u64,
        signal: &Signal,
        messages: Vec<Arc<Message>>,
        assembly: Assembly,
    ) -> Result<StepEnd> {
        let session = self.session()?;
        for message in messages {
            let event = session.commit(EventData::UserMessage(message), Some(SurfaceOp::Append), None)?;
            self.contexts.committed(&session, &event);
        }
        self.run_step(turn, step, signal, &assembly).await
    }

    /// Whether the turn closes: nothing waits for its next step, also after everybody was asked (TURN-13, STOP-2).
    async fn stops(&self, turn: u64, signal: &Signal) -> Result<bool> {
        let (agent, root) = (self.agent()?, self.root()?);
        let nothing_waits = || agent.inbox().len(InboxTarget::NextStep) == 0;
        if !nothing_waits() {
            return Ok(false);
        }
        let payload = TurnStopping { agent: agent.clone(), turn, signal: signal.clone() };
        root.hub.run_stopping(&root.scopes, Some(agent.scope()), Rc::new(payload)).await?;
        signal.check()?;
        Ok(nothing_waits())
    }
}

fn end_reason(hit_ceiling: bool) -> TurnEndReason {
    if hit_ceiling { TurnEndReason::MaxTokens } else { TurnEndReason::Completed }
}

/// The facts of a failure: a model's as they are, a store's under its code, anything else as `UNKNOWN` (TURN-35).
fn failure_of(error: &Error) -> Failure {
    if let Some(failure) = error.failure() {
        return failure.clone();
    }
    let code = match error.code() {
        code @ (Code::StoreFailed | Code::StoreConflict | Code::SessionLocked) => code.as_str(),
        _ => "UNKNOWN",
    };
    Failure::new(code, error.chain())
}
