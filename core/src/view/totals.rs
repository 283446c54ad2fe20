//! What a session and each of its turns took: requests, calls, retries, tokens, money.

use super::format::{count, grouped};
use crate::message::{Source, Usage};
use crate::session::{Event, EventData, TurnEndReason};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a provider charges for a model, in any currency, for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    /// For input that no cache had.
    pub input: f64,
    /// For output, reasoning included.
    pub output: f64,
    /// For input read from a cache.
    pub cache_read: f64,
    /// For input written to a cache.
    pub cache_write: f64,
}

impl Price {
    /// What a call of this usage costs.
    pub fn of(&self, usage: &Usage) -> f64 {
        let cached = usage.cache_read_tokens.unwrap_or(0) as f64 * self.cache_read
            + usage.cache_write_tokens.unwrap_or(0) as f64 * self.cache_write;
        (usage.input_tokens as f64 * self.input + usage.output_tokens as f64 * self.output + cached) / 1e6
    }
}

/// Prices by `provider/model`. A session of models without a price has no cost.
pub type Prices = BTreeMap<String, Price>;

/// What happened in one turn.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnTotals {
    /// The turn's number.
    pub turn: u64,
    /// Seq of its `turn/start`.
    pub seq: u64,
    /// When it began, epoch milliseconds.
    pub started_at: i64,
    /// When and why it ended; `None` while it runs, and when the process died in it.
    pub end: Option<(i64, TurnEndReason)>,
    /// Its sums.
    pub sums: Totals,
}

/// Sums over events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// The turns, in order; empty in the sums of one turn.
    pub turns: Vec<TurnTotals>,
    /// Steps, each one request and its calls.
    pub steps: u64,
    /// Tool calls begun.
    pub calls: u64,
    /// Tool results that are errors.
    pub failed_calls: u64,
    /// Retries scheduled.
    pub retries: u64,
    /// Tokens of all answers that told them.
    pub usage: Usage,
    /// What those tokens cost, of the models that have a price.
    pub cost: Option<f64>,
}

impl Totals {
    /// The sums of a log.
    pub fn of(events: &[Arc<Event>], prices: &Prices) -> Self {
        let mut totals = Self::default();
        for event in events {
            totals.apply(event, prices);
        }
        totals
    }

    /// Adds the next event.
    pub fn apply(&mut self, event: &Event, prices: &Prices) {
        if let EventData::TurnStart { turn } = event.data {
            let sums = Totals::default();
            self.turns.push(TurnTotals { turn, seq: event.seq, started_at: event.time, end: None, sums });
        }
        self.add(event, prices);
        let Some(turn) = self.turns.last_mut().filter(|turn| turn.end.is_none()) else { return };
        turn.sums.add(event, prices);
        if let EventData::TurnEnd { reason, .. } = &event.data {
            turn.end = Some((event.time, reason.clone()));
        }
    }

    fn add(&mut self, event: &Event, prices: &Prices) {
        match &event.data {
            EventData::StepStart { .. } => self.steps += 1,
            EventData::ToolCall { .. } => self.calls += 1,
            EventData::ToolResult { message, error, .. } => {
                self.failed_calls += u64::from(error.is_some() || is_error(message.content()));
            }
            EventData::AssistantMessage { message, usage: Some(usage), .. } => {
                self.usage = self.usage.plus(*usage);
                if let Source::Model { provider, model, .. } = message.source()
                    && let Some(price) = prices.get(&format!("{provider}/{model}"))
                {
                    *self.cost.get_or_insert(0.0) += price.of(usage);
                }
            }
            EventData::Other { kind, .. } if **kind == *"llm/retry" => self.retries += 1,
            _ => {}
        }
    }

    /// `2 steps, 3 calls (1 failed), 1 retry`, without what there is none of.
    pub fn sentence(&self) -> String {
        let mut parts = vec![count(self.steps, "step")];
        if self.calls > 0 {
            let failed = format!(" ({} failed)", self.failed_calls);
            parts.push(count(self.calls, "call") + if self.failed_calls > 0 { &failed } else { "" });
        }
        match self.retries {
            0 => {}
            1 => parts.push("1 retry".to_owned()),
            many => parts.push(format!("{many} retries")),
        }
        parts.join(", ")
    }
}

/// Whether a tool's answer says that it failed.
pub(super) fn is_error(content: &[crate::message::Block]) -> bool {
    content.iter().any(|block| matches!(block, crate::message::Block::ToolResult { is_error: Some(true), .. }))
}

/// `1,200 tokens in (800 cached), 60 out (20 reasoning)`.
pub(super) fn tokens(usage: &Usage) -> String {
    let (read, written) = (usage.cache_read_tokens.unwrap_or(0), usage.cache_write_tokens.unwrap_or(0));
    let mut text = format!("{} tokens in", grouped(usage.input_tokens + read + written));
    if read > 0 {
        text.push_str(&format!(" ({} cached)", grouped(read)));
    }
    text.push_str(&format!(", {} out", grouped(usage.output_tokens)));
    if let Some(reasoning) = usage.reasoning_tokens.filter(|tokens| *tokens > 0) {
        text.push_str(&format!(" ({} reasoning)", grouped(reasoning)));
    }
    text
}

/// A sum of money, with as many digits as tell it from nothing.
pub(super) fn money(cost: f64) -> String {
    if cost > 0.0 && cost < 0.01 { format!("{cost:.6}") } else { format!("{cost:.2}") }
}
