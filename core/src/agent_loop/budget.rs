//! Budgets: limits on what a turn or an agent may spend.
//!
//! Reaching a limit lets the running step finish; calls that had not started get results that say so, and the turn ends
//! as aborted with a logged `turn/budget` before it. The queue is kept. What an agent has spent is a fold over its log.

use super::driver::LoopDriver;
use crate::context::Budget;
use crate::error::{Code, Result};
use crate::json::Object;
use crate::session::{CancelCause, Event, EventData, Session, TurnEndReason};
use std::cell::Cell;

/// What was spent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    steps: u64,
    tool_calls: u64,
    tokens: u64,
    wall_ms: u64,
}

/// What an agent's log says was spent, by all turns and by the last one.
#[derive(Default)]
pub(super) struct Ledger {
    folded: Cell<u64>,
    agent: Cell<Spent>,
    turn: Cell<Spent>,
    turn_started: Cell<Option<i64>>,
}

/// A limit that was reached.
struct Reached {
    budget: &'static str,
    scope: &'static str,
    limit: u64,
    used: u64,
}

impl Ledger {
    /// Folds what was logged since the last look.
    fn follow(&self, session: &Session) {
        let own = session.header().seed_length.unwrap_or(0);
        let from = self.folded.get().max(own);
        for event in session.marks_from(from) {
            self.apply(&event);
        }
        self.folded.set(session.len().max(own));
    }

    fn apply(&self, event: &Event) {
        let spend = |add: &dyn Fn(&mut Spent)| {
            for spent in [&self.agent, &self.turn] {
                let mut value = spent.get();
                add(&mut value);
                spent.set(value);
            }
        };
        match &event.data {
            EventData::TurnStart { .. } => {
                self.turn.set(Spent::default());
                self.turn_started.set(Some(event.time));
            }
            EventData::TurnEnd { .. } => {
                if let Some(started) = self.turn_started.take() {
                    let mut agent = self.agent.get();
                    agent.wall_ms += u64::try_from(event.time - started).unwrap_or(0);
                    self.agent.set(agent);
                }
            }
            EventData::StepStart { .. } => spend(&|spent| spent.steps += 1),
            EventData::ToolCall { .. } => spend(&|spent| spent.tool_calls += 1),
            // A call that never started spent nothing.
            EventData::ToolResult { error: Some(error), .. } if error.code == Code::AbortedBeforeDispatch.as_str() => {
                spend(&|spent| spent.tool_calls = spent.tool_calls.saturating_sub(1));
            }
            EventData::AssistantMessage { usage: Some(usage), .. } => {
                let cached = usage.cache_read_tokens.unwrap_or(0) + usage.cache_write_tokens.unwrap_or(0);
                let tokens = usage.input_tokens + usage.output_tokens + cached;
                spend(&|spent| spent.tokens += tokens);
            }
            _ => {}
        }
    }

    /// The first limit that is used up at `now`.
    fn reached(&self, now: i64, turn: &Budget, agent: &Budget) -> Option<Reached> {
        let running = self.turn_started.get().map_or(0, |started| u64::try_from(now - started).unwrap_or(0));
        let mut spent = self.turn.get();
        spent.wall_ms = running;
        let in_turn = exceeded(&spent, turn, "turn");
        in_turn.or_else(|| {
            let mut spent = self.agent.get();
            spent.wall_ms += running;
            exceeded(&spent, agent, "agent")
        })
    }
}

fn exceeded(spent: &Spent, budget: &Budget, scope: &'static str) -> Option<Reached> {
    let limits = [
        ("steps", budget.steps, spent.steps),
        ("tool-calls", budget.tool_calls, spent.tool_calls),
        ("tokens", budget.tokens, spent.tokens),
        ("wall-ms", budget.wall_ms, spent.wall_ms),
    ];
    let mut limits = limits.into_iter();
    limits.find_map(|(budget, limit, used)| {
        let limit = limit.filter(|limit| used >= *limit)?;
        Some(Reached { budget, scope, limit, used })
    })
}

impl LoopDriver {
    fn reached_budget(&self) -> Result<Option<Reached>> {
        let root = self.root()?;
        let options = root.loop_options.get();
        if options.turn_budget.is_unlimited() && options.agent_budget.is_unlimited() {
            return Ok(None);
        }
        self.ledger.follow(&self.session()?);
        Ok(self.ledger.reached(root.runtime.now_ms(), &options.turn_budget, &options.agent_budget))
    }

    /// Whether no further tool call may start.
    pub(super) fn tool_calls_are_spent(&self) -> Result<bool> {
        Ok(self.reached_budget()?.is_some_and(|reached| reached.budget == "tool-calls"))
    }

    /// The end of a turn whose budget is used up, logged.
    pub(super) fn over_budget(&self, turn: u64) -> Result<Option<TurnEndReason>> {
        let Some(reached) = self.reached_budget()? else { return Ok(None) };
        let mut data = Object::new();
        data.insert("turn", turn);
        data.insert("budget", reached.budget);
        if reached.scope == "agent" {
            data.insert("scope", reached.scope);
        }
        data.insert("limit", reached.limit);
        data.insert("used", reached.used);
        self.session()?.append("turn/budget", data.into())?;
        let reason = format!("budget: {} {}/{}", reached.budget, reached.used, reached.limit);
        Ok(Some(TurnEndReason::Aborted(CancelCause::Hook(reason))))
    }
}
