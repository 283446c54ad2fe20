//! Puts the chunks of an answer together (BLK, ASM).

use super::{Chunk, Failure, FinishReason};
use crate::error::{Code, Error, Result};
use crate::json::{Object, Value};
use crate::message::{Block, Usage};

struct Slot {
    index: u64,
    kind: Kind,
    text: String,
    id: Option<String>,
    name: String,
    closed: Option<Block>,
}

#[derive(Clone, PartialEq)]
enum Kind {
    Text,
    Reasoning,
    ToolCall,
    Unknown(String),
}

/// An answer as far as it has come.
#[derive(Default)]
pub struct Assembler {
    slots: Vec<Slot>,
    usage: Option<Usage>,
    finish: Option<(FinishReason, Option<Value>)>,
}

/// A whole answer.
#[derive(Debug, PartialEq)]
pub struct Assembled {
    /// The blocks, in order of first appearance.
    pub content: Vec<Block>,
    /// Provider-private continuation data, when it fits the blocks.
    pub replay_state: Option<Value>,
    /// Whether the output ceiling was hit.
    pub hit_ceiling: bool,
}

impl Assembler {
    /// An answer without chunks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a chunk.
    pub fn push(&mut self, chunk: &Chunk) {
        match chunk {
            Chunk::BlockStart { index, block_type } => {
                let kind = match block_type.as_str() {
                    "text" => Kind::Text,
                    "reasoning" => Kind::Reasoning,
                    "tool-call" => Kind::ToolCall,
                    other => Kind::Unknown(other.to_owned()),
                };
                self.slot(*index, kind);
            }
            Chunk::TextDelta { index, text } => self.slot(*index, Kind::Text).add(text),
            Chunk::ReasoningDelta { index, text } => self.slot(*index, Kind::Reasoning).add(text),
            Chunk::ToolCallDelta { index, id, name, arguments_delta } => {
                let slot = self.slot(*index, Kind::ToolCall);
                if slot.closed.is_none() {
                    // The last id wins; an empty name never overwrites (BLK-04).
                    if let Some(id) = id {
                        slot.id = Some(id.clone());
                    }
                    if let Some(name) = name.as_ref().filter(|name| !name.is_empty()) {
                        slot.name.clone_from(name);
                    }
                    slot.text.push_str(arguments_delta);
                }
            }
            Chunk::BlockEnd { index, block } => {
                let kind = match block.kind() {
                    "text" => Kind::Text,
                    "reasoning" => Kind::Reasoning,
                    "tool-call" => Kind::ToolCall,
                    other => Kind::Unknown(other.to_owned()),
                };
                // The first end is the authority (BLK-03, STR-05).
                self.slot(*index, kind).closed.get_or_insert_with(|| block.clone());
            }
            Chunk::Usage(usage) => self.usage = Some(*usage),
            Chunk::Finish { reason, replay_state } => {
                self.finish = Some((reason.clone(), replay_state.as_deref().cloned()))
            }
        }
    }

    /// The slot of an index; the kind of its first sighting stays (BLK-02).
    fn slot(&mut self, index: u64, kind: Kind) -> &mut Slot {
        let found = self.slots.iter().rposition(|slot| slot.index == index);
        let at = found.unwrap_or_else(|| {
            self.slots.push(Slot { index, kind, text: String::new(), id: None, name: String::new(), closed: None });
            self.slots.len() - 1
        });
        &mut self.slots[at]
    }

    /// The last usage reported.
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// The failure of a failing finish.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.finish {
            Some((FinishReason::Error(failure) | FinishReason::Aborted(failure), _)) => Some(failure),
            _ => None,
        }
    }

    /// The whole answer. No finish reads as a stop (BLK-06); under the ceiling all tool calls go (BLK-07, BLK-08).
    pub fn assemble(&self) -> Result<Assembled> {
        let blocks = self.slots.iter().map(Slot::block).collect::<Result<Vec<_>>>()?;
        let (reason, state) = match &self.finish {
            Some((reason, state)) => (Some(reason), state.clone()),
            None => (None, None),
        };
        let hit_ceiling = reason == Some(&FinishReason::MaxTokens);
        let kept: Vec<bool> = blocks.iter().map(|block| !(hit_ceiling && block.kind() == "tool-call")).collect();
        let replay_state = state.and_then(|state| prune(state, &kept));
        let content = blocks.into_iter().zip(&kept).filter_map(|(block, keep)| keep.then_some(block)).collect();
        Ok(Assembled { content, replay_state, hit_ceiling })
    }

    /// The text and reasoning streamed so far, for an answer that was cut by a cancellation (BLK-09).
    pub fn visible_prefix(&self) -> Vec<Block> {
        let blocks = self.slots.iter().filter_map(|slot| slot.block().ok());
        blocks
            .filter(|block| {
                let text = block.text().or_else(|| block.reasoning());
                text.is_some_and(|text| text.chars().any(|c| !is_space(c)))
            })
            .collect()
    }
}

/// JavaScript's white space: with U+FEFF and without U+0085 (HOST-10).
fn is_space(c: char) -> bool {
    c == '\u{feff}' || (c.is_whitespace() && c != '\u{85}')
}

impl Slot {
    fn add(&mut self, text: &str) {
        if self.closed.is_none() {
            // Deltas are small and many: room for a few dozen saves growing by doubles from the first.
            if self.text.capacity() == 0 {
                self.text.reserve(256);
            }
            self.text.push_str(text);
        }
    }

    fn block(&self) -> Result<Block> {
        if let Some(block) = &self.closed {
            return Ok(block.clone());
        }
        match &self.kind {
            Kind::Text => Ok(Block::Text(self.text.clone())),
            Kind::Reasoning => Ok(Block::Reasoning(self.text.clone())),
            Kind::ToolCall => Ok(Block::ToolCall {
                id: self.id.clone().unwrap_or_else(|| format!("call-{}", self.index)).into(),
                name: self.name.clone(),
                arguments: self.text.clone(),
            }),
            Kind::Unknown(kind) => {
                let message = format!("block {} of type {kind:?} was left open and cannot be assembled", self.index);
                Err(Error::new(Code::MalformedChunk, message))
            }
        }
    }
}

/// Keeps the per-block entries of blocks that stay; an envelope whose entries do not match the blocks is dropped.
fn prune(mut state: Value, kept: &[bool]) -> Option<Value> {
    let Value::Object(object) = &mut state else {
        return Some(state);
    };
    prune_blocks(object, kept)?;
    Some(state)
}

fn prune_blocks(object: &mut Object, kept: &[bool]) -> Option<()> {
    if let Some(Value::Array(entries)) = object.get_mut("blocks") {
        if entries.len() != kept.len() {
            return None;
        }
        let mut keep = kept.iter();
        entries.retain(|_| *keep.next().unwrap_or(&true));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::is_space;

    #[test]
    fn white_space_is_that_of_javascript() {
        for space in "\t\n\u{b}\u{c}\r \u{a0}\u{1680}\u{2003}\u{2028}\u{2029}\u{202f}\u{3000}\u{feff}".chars() {
            assert!(is_space(space), "{space:?}");
        }
        for other in "x\u{85}\u{200b}\u{180e}\u{0}".chars() {
            assert!(!is_space(other), "{other:?}");
        }
    }
}
