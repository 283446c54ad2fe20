//! What JSON cannot carry exactly does not enter the log, so that a live session equals its reloaded self (LOG-2).

use super::event::EventData;
use super::reason::{CancelCause, TurnEndReason};
use crate::json::Value;
use crate::llm::{Chunk, RequestHeader};
use crate::message::{Block, Message, Source};

impl EventData {
    /// The path and reason of the first part that JSON cannot carry exactly.
    pub(crate) fn find_lossy(&self) -> Option<String> {
        match self {
            EventData::UserMessage(message) | EventData::AssistantMessage { message, .. } => message.find_lossy(),
            EventData::ToolResult { message, meta, .. } => {
                message.find_lossy().or_else(|| meta.as_ref().and_then(|meta| meta.find_lossy()))
            }
            EventData::InboxSpliced(splice) => splice.inserted.iter().find_map(|message| message.find_lossy()),
            EventData::AssistantChunk { chunk, .. } => chunk.find_lossy(),
            EventData::RequestHeader { header, .. } => header.find_lossy(),
            EventData::TurnEnd { reason: TurnEndReason::Aborted(CancelCause::Other(cause)), .. } => cause.find_lossy(),
            EventData::Other { data, .. } => data.find_lossy(),
            EventData::TurnStart { .. }
            | EventData::TurnEnd { .. }
            | EventData::StepStart { .. }
            | EventData::StepEnd { .. }
            | EventData::ToolCall { .. }
            | EventData::RequestContext(_)
            | EventData::EndSeed => None,
        }
    }
}

impl Message {
    fn find_lossy(&self) -> Option<String> {
        let source = match self.source() {
            Source::User | Source::Tool { .. } => None,
            Source::Model { replay_state, .. } => replay_state.as_ref().and_then(Value::find_lossy),
            Source::Other(source) => source.iter().find_map(|(_, value)| value.find_lossy()),
        };
        source.or_else(|| self.content().iter().find_map(Block::find_lossy))
    }
}

impl Block {
    /// As [`Value::find_lossy`], for a block.
    pub(crate) fn find_lossy(&self) -> Option<String> {
        match self {
            Block::Text(_) | Block::Reasoning(_) | Block::ToolCall { .. } => None,
            Block::ToolResult { content, .. } => content.iter().find_map(Block::find_lossy),
            Block::Other(value) => value.find_lossy(),
        }
    }
}

impl Chunk {
    fn find_lossy(&self) -> Option<String> {
        match self {
            Chunk::BlockEnd { block, .. } => block.find_lossy(),
            Chunk::Finish { replay_state, .. } => replay_state.as_ref().and_then(|state| state.find_lossy()),
            Chunk::BlockStart { .. }
            | Chunk::TextDelta { .. }
            | Chunk::ReasoningDelta { .. }
            | Chunk::ToolCallDelta { .. }
            | Chunk::Usage(_) => None,
        }
    }
}

impl RequestHeader {
    fn find_lossy(&self) -> Option<String> {
        let temperature = self.config.temperature.filter(|number| !number.is_finite());
        let temperature = temperature.map(|number| format!("temperature {number} is not a JSON number"));
        temperature.or_else(|| self.tools.iter().find_map(|tool| tool.parameters().find_lossy()))
    }
}
