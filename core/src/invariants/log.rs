//! The order of events in a log (INV-7, ORD-01 to ORD-09), as a fold that can judge the next event.

use crate::json::Value;
use crate::session::{Event, EventData, SurfaceOp};
use std::collections::{HashMap, HashSet};

/// Judges events by what the log holds so far.
#[derive(Clone, Debug, Default)]
pub struct LogOrder {
    last_turn: u64,
    turn: Option<u64>,
    last_step: u64,
    step: Option<u64>,
    calls: HashSet<String>,
    provider: Option<String>,
    /// The retry chain of each policy in the open step, by its key.
    chains: HashMap<String, Chain>,
    /// Every chain id so far: a new chain takes a fresh one (ORD-08).
    retry_ids: HashSet<String>,
    compaction: Option<(String, Option<u64>)>,
}

#[derive(Clone, Debug)]
struct Chain {
    id: String,
    retry: u64,
    started: bool,
}

impl LogOrder {
    /// Fails with the rule that `event` would break.
    pub fn check(&self, event: &Event) -> Result<(), String> {
        match &event.data {
            EventData::TurnStart { turn } => match self.turn {
                Some(open) => Err(format!("turn {turn} starts inside turn {open}")),
                None if *turn != self.last_turn + 1 => {
                    Err(format!("turn {turn} starts where turn {} is expected", self.last_turn + 1))
                }
                None => Ok(()),
            },
            EventData::TurnEnd { turn, .. } => match self.step {
                Some(step) => Err(format!("turn {turn} ends while step {step} is open")),
                None => self.in_turn(*turn, "turn/end"),
            },
            EventData::StepStart { turn, step } => match self.step {
                Some(open) => Err(format!("step {step} starts inside step {open}")),
                None if *step != self.last_step + 1 => {
                    Err(format!("step {step} starts where step {} is expected", self.last_step + 1))
                }
                None => self.in_turn(*turn, "step/start"),
            },
            EventData::StepEnd { turn, step } => self.in_step(*turn, *step, "step/end"),
            EventData::AssistantChunk { turn, step, .. } => self.in_step(*turn, *step, "assistant/chunk"),
            EventData::AssistantMessage { turn, step, .. } if event.surface_op == Some(SurfaceOp::Append) => {
                self.in_step(*turn, *step, "assistant/message")
            }
            EventData::ToolCall { turn, step, .. } => self.in_step(*turn, *step, "tool/call"),
            EventData::ToolResult { turn, step, message, error, .. } => {
                if event.surface_op != Some(SurfaceOp::Append) {
                    return self.turn.map(|_| ()).ok_or_else(|| "a tool/result is replaced outside a turn".into());
                }
                self.in_step(*turn, *step, "tool/result")?;
                let not_started = error.as_ref().is_some_and(|error| error.code == "TOOL_NOT_STARTED");
                let call_id = match message.source() {
                    crate::message::Source::Tool { call_id } => call_id.as_str(),
                    _ => "",
                };
                if not_started || self.calls.contains(call_id) {
                    return Ok(());
                }
                Err(format!("tool/result for {call_id:?} has no tool/call in its step"))
            }
            EventData::RequestHeader { .. } | EventData::RequestContext(_) => self.any_turn(event.kind()),
            EventData::Other { kind, data } => self.check_other(kind, data),
            EventData::UserMessage(_)
            | EventData::AssistantMessage { .. }
            | EventData::EndSeed
            | EventData::InboxSpliced(_) => Ok(()),
        }
    }

    fn any_turn(&self, kind: &str) -> Result<(), String> {
        self.turn.map(|_| ()).ok_or_else(|| format!("{kind} outside a turn"))
    }

    fn in_turn(&self, turn: u64, kind: &str) -> Result<(), String> {
        match self.turn {
            Some(open) if open == turn => Ok(()),
            Some(open) => Err(format!("{kind} names turn {turn} while turn {open} is open")),
            None => Err(format!("{kind} names turn {turn} while none is open")),
        }
    }

    fn in_step(&self, turn: u64, step: u64, kind: &str) -> Result<(), String> {
        self.in_turn(turn, kind)?;
        match self.step {
            Some(open) if open == step => Ok(()),
            Some(open) => Err(format!("{kind} names step {step} while step {open} is open")),
            None => Err(format!("{kind} names step {step} while none is open")),
        }
    }

    /// Inside the turn that is named, or between turns when none is (ORD-09).
    fn in_bracket(&self, turn: Option<u64>, kind: &str) -> Result<(), String> {
        match turn {
            Some(turn) => self.in_turn(turn, kind),
            None if self.turn.is_some() => Err(format!("{kind} of a compaction between turns lies inside one")),
            None => Ok(()),
        }
    }

    fn check_other(&self, kind: &str, data: &Value) -> Result<(), String> {
        let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
        let number = |key: &str| data.get(key).and_then(Value::as_u64);
        match kind {
            "todo/write" => self.any_turn(kind),
            "llm/retry" => {
                self.in_step(number("turn").unwrap_or(0), number("step").unwrap_or(0), kind)?;
                if self.provider.as_deref() != Some(text("provider")) {
                    return Err("llm/retry names another provider than the request header".into());
                }
                let chain = self.chains.get(text("policyKey"));
                let expected = chain.map_or(1, |chain| chain.retry + 1);
                if number("retry") != Some(expected) {
                    return Err(format!("llm/retry counts {:?} where {expected} is expected", number("retry")));
                }
                match chain {
                    Some(chain) if chain.id != text("retryId") => Err("llm/retry leaves its chain's retryId".into()),
                    None if self.retry_ids.contains(text("retryId")) => {
                        Err("a new chain of llm/retry takes a retryId of an earlier one".into())
                    }
                    _ => Ok(()),
                }
            }
            "llm/retry-started" => match self.chains.values().find(|chain| chain.id == text("retryId")) {
                Some(chain) if Some(chain.retry) == number("retry") && !chain.started => Ok(()),
                _ => Err("llm/retry-started follows no schedule".into()),
            },
            "compaction/start" => {
                if self.compaction.is_some() {
                    return Err("a compaction starts inside another".into());
                }
                self.in_bracket(number("turn"), kind)
            }
            "compaction/end" => match &self.compaction {
                Some((id, turn)) if id == text("compactionId") && *turn == number("turn") => {
                    self.in_bracket(*turn, kind)
                }
                _ => Err("compaction/end matches no open compaction".into()),
            },
            _ => Ok(()),
        }
    }

    /// Folds a committed event.
    pub fn apply(&mut self, event: &Event) {
        match &event.data {
            EventData::TurnStart { turn } => {
                self.last_turn = *turn;
                self.turn = Some(*turn);
                self.last_step = 0;
            }
            EventData::TurnEnd { .. } => self.turn = None,
            EventData::StepStart { step, .. } => {
                self.step = Some(*step);
                self.last_step = *step;
                self.calls.clear();
                self.chains.clear();
            }
            EventData::StepEnd { .. } => self.step = None,
            EventData::ToolCall { call_id, .. } => {
                self.calls.insert(call_id.to_string());
            }
            EventData::RequestHeader { header, .. } => self.provider = Some(header.config.provider.clone()),
            // What an earlier life left open does not block this one (ORD-09, SEED-05).
            EventData::EndSeed => self.compaction = None,
            EventData::Other { kind, data } => self.apply_other(kind, data),
            _ => {}
        }
    }

    fn apply_other(&mut self, kind: &str, data: &Value) {
        let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let number = |key: &str| data.get(key).and_then(Value::as_u64);
        match kind {
            "llm/retry" => {
                let id = text("retryId");
                let chain = Chain { id: id.clone(), retry: number("retry").unwrap_or(0), started: false };
                self.retry_ids.insert(id);
                self.chains.insert(text("policyKey"), chain);
            }
            "llm/retry-started" => {
                let id = text("retryId");
                if let Some(chain) = self.chains.values_mut().find(|chain| chain.id == id) {
                    chain.started = true;
                }
            }
            "compaction/start" => self.compaction = Some((text("compactionId"), number("turn"))),
            "compaction/end" => self.compaction = None,
            _ => {}
        }
    }
}
