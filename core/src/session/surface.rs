//! The surface: the ordered seqs of what the model sees (SURF-01 to SURF-12).

use super::event::{Event, EventData, SurfaceOp};
use super::event_log::EventLog;
use crate::error::{Code, Error, Result};

/// A fold over a log. A replaced span is a span of positions, so after a replacement seqs need not ascend.
#[derive(Clone, Debug, Default)]
pub struct Surface {
    nodes: Vec<u64>,
    generation: u64,
}

impl Surface {
    /// The seqs on the surface, in order.
    pub fn nodes(&self) -> &[u64] {
        &self.nodes
    }

    /// Rises with every replacement; what is built on the surface rebuilds when it changes (SURF-10).
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether `seq` is on the surface.
    pub fn contains(&self, seq: u64) -> bool {
        self.nodes.iter().rev().any(|node| *node == seq)
    }

    fn span(&self, start: u64, end: u64) -> Result<std::ops::RangeInclusive<usize>> {
        let position = |seq: u64, which: &str| {
            self.nodes.iter().position(|node| *node == seq).ok_or_else(|| {
                let message = format!("replace {which} {seq} is not on the surface");
                Error::new(Code::InvalidSurface, message).with("seq", seq)
            })
        };
        let (first, last) = (position(start, "start")?, position(end, "end")?);
        if first > last {
            return Err(Error::new(Code::InvalidSurface, format!("replace start {start} comes after its end {end}")));
        }
        Ok(first..=last)
    }

    /// Checks an event that is about to follow `log` (REC-03, SURF-02 to SURF-08).
    pub fn check(&self, event: &Event, log: &EventLog) -> Result<()> {
        let bad = |what: String| Error::new(Code::InvalidSurface, format!("event {}: {what}", event.seq));
        if !event.data.is_surface() {
            if event.surface_op.is_some() || event.source_event_seqs.is_some() {
                return Err(bad(format!("{} takes no surfaceOp and no sourceEventSeqs", event.kind())));
            }
            return Ok(());
        }
        let Some(op) = &event.surface_op else {
            return Err(bad(format!("{} needs a surfaceOp", event.kind())));
        };
        if let Some(sources) = &event.source_event_seqs {
            self.check_sources(event, sources).map_err(bad)?;
        }
        let SurfaceOp::Replace { start, end } = op else {
            return Ok(());
        };
        let span = self.span(*start, *end)?;
        let shadowed = &self.nodes[span];
        let sources = event.source_event_seqs.as_deref().unwrap_or_default();
        if let Some(missing) = shadowed.iter().find(|seq| !sources.contains(seq)) {
            return Err(bad(format!("sourceEventSeqs must name every replaced event; {missing} is missing")));
        }
        if let EventData::ToolResult { .. } = event.data {
            let same = match shadowed {
                [only] => log.get(*only as usize).is_some_and(|old| same_but_content(&old, event)),
                _ => false,
            };
            if !same {
                return Err(bad(
                    "a tool/result may replace only one tool/result that equals it but for its content".into()
                ));
            }
        }
        Ok(())
    }

    fn check_sources(&self, event: &Event, sources: &[u64]) -> Result<(), String> {
        // Chunk lists are ascending, which rules out duplicates without a set.
        let ascending = sources.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending {
            let mut sorted = sources.to_vec();
            sorted.sort_unstable();
            if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err("sourceEventSeqs has duplicates".into());
            }
        }
        if let Some(late) = sources.iter().find(|seq| **seq >= event.seq) {
            return Err(format!("sourceEventSeqs may only name earlier events, not {late}"));
        }
        if sources.is_empty() && event.kind() != "assistant/message" {
            return Err("sourceEventSeqs may be empty on an assistant/message only".into());
        }
        Ok(())
    }

    /// Adds a checked event. Returns the seqs that a replacement shadowed, in surface order (SURF-12).
    pub fn apply(&mut self, event: &Event) -> Option<Vec<u64>> {
        match event.surface_op.as_ref()? {
            SurfaceOp::Append => {
                self.nodes.push(event.seq);
                None
            }
            SurfaceOp::Replace { start, end } => {
                let span = self.span(*start, *end).ok()?;
                self.generation += 1;
                Some(self.nodes.splice(span, [event.seq]).collect())
            }
        }
    }
}

/// SURF-08: all but the content inside the block is equal.
fn same_but_content(old: &Event, new: &Event) -> bool {
    let strip = |event: &Event| {
        let mut data = event.data_value();
        if let crate::json::Value::Object(object) = &mut data
            && let Some(crate::json::Value::Object(message)) = object.get_mut("message")
            && let Some(crate::json::Value::Array(blocks)) = message.get_mut("content")
            && let Some(crate::json::Value::Object(block)) = blocks.first_mut()
        {
            block.remove("content");
        }
        data
    };
    old.kind() == "tool/result" && strip(old) == strip(new)
}
