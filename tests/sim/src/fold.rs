//! An independent reading of a log: its grammar, the inbox, the surface, the turns. It shares no code with the core's
//! own folds, so that the two can be compared.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use turnwheel::llm::RequestHeader;
use turnwheel::message::{Block, Message, Source};
use turnwheel::session::{Event, EventData, InboxTarget, RequestContext, SessionHeader, SurfaceOp, TurnEndReason};

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits in this list.
    Pending(usize),
    /// This turn took it.
    Claimed(u64),
    /// It was removed unread.
    Discarded,
}

/// A turn in the log.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Its number.
    pub number: u64,
    /// Seq of its `turn/start`.
    pub start: u64,
    /// Seq of its `turn/end`.
    pub end: Option<u64>,
    /// Steps that began.
    pub steps: u64,
    /// Why it ended.
    pub reason: Option<TurnEndReason>,
}

/// A call of the last assistant message that has no result.
struct Call {
    id: String,
    name: String,
    started: Option<u64>,
}

/// The fold. See [`Fold::feed`].
#[derive(Default)]
pub struct Fold {
    /// Events so far.
    pub count: u64,
    own_from: u64,
    /// The turn under way.
    pub turn: Option<u64>,
    /// The step under way.
    pub step: Option<u64>,
    /// Every turn.
    pub turns: Vec<Turn>,
    /// Next-step and next-turn, by message id.
    pub lists: [VecDeque<String>; 2],
    /// Every message that the inbox accepted.
    pub states: BTreeMap<String, State>,
    /// Since which event each message has waited: an undone claim or a replacement under its own id does not count.
    pub since: BTreeMap<String, u64>,
    /// Claims of the open turn that entered no step.
    pub unentered: Vec<(usize, String)>,
    /// Claims of the step that just began whose messages are still to come.
    entering: Vec<(usize, String)>,
    /// Claims of an interrupted turn that entered no step.
    pub lost: Vec<(usize, String)>,
    /// The surface: seqs and what they show.
    pub surface: Vec<(u64, Option<Arc<Message>>)>,
    entered: BTreeMap<String, u64>,
    calls: VecDeque<Call>,
    answered: bool,
    /// The request header in force.
    pub header: Option<Arc<RequestHeader>>,
    /// The request context in force.
    pub context: Option<RequestContext>,
}

/// The index of a list.
pub fn list(target: InboxTarget) -> usize {
    usize::from(target == InboxTarget::NextTurn)
}

impl Fold {
    /// An empty log.
    pub fn new(header: &SessionHeader) -> Self {
        Self { own_from: header.seed_length.unwrap_or(0), ..Self::default() }
    }

    /// Reads the next event. An error says which rule of the log it breaks.
    pub fn feed(&mut self, event: &Event) -> Result<(), String> {
        if event.seq != self.count {
            return Err(format!("seq {} follows {} events", event.seq, self.count));
        }
        self.count += 1;
        let fed = self.follow(event).and_then(|()| self.place(event));
        fed.map_err(|what| format!("event {} ({}): {what}", event.seq, event.kind()))
    }

    fn follow(&mut self, event: &Event) -> Result<(), String> {
        match &event.data {
            EventData::TurnStart { turn } => {
                ensure(self.turn.is_none(), || format!("turn {:?} is open", self.turn))?;
                let last = self.turns.last().map_or(0, |turn| turn.number);
                ensure(*turn == last + 1, || format!("turn {turn} follows turn {last}"))?;
                self.turn = Some(*turn);
                self.turns.push(Turn { number: *turn, start: event.seq, end: None, steps: 0, reason: None });
                self.unentered.clear();
                self.entering.clear();
                self.lost.clear();
            }
            EventData::TurnEnd { turn, reason } => {
                ensure(self.turn == Some(*turn), || format!("it ends turn {turn}, open is {:?}", self.turn))?;
                ensure(self.step.is_none(), || format!("step {:?} is open", self.step))?;
                self.turn = None;
                let entering = std::mem::take(&mut self.entering);
                let unentered = std::mem::take(&mut self.unentered);
                if *reason == TurnEndReason::Interrupted {
                    self.lost = entering.into_iter().chain(unentered).collect();
                }
                if let Some(last) = self.turns.last_mut() {
                    last.reason = Some(reason.clone());
                    last.end = Some(event.seq);
                }
            }
            EventData::StepStart { turn, step } => {
                ensure(self.turn == Some(*turn) && self.step.is_none(), || "no place for a step".into())?;
                let last = self.turns.last_mut().ok_or("no turn")?;
                ensure(*step == last.steps + 1, || format!("step {step} follows step {}", last.steps))?;
                last.steps = *step;
                self.step = Some(*step);
                self.answered = false;
                self.entering = std::mem::take(&mut self.unentered);
            }
            EventData::StepEnd { turn, step } => {
                self.inside(*turn, *step)?;
                ensure(self.calls.is_empty(), || format!("call {:?} has no result", self.calls[0].id))?;
                self.step = None;
            }
            EventData::AssistantChunk { turn, step, .. } => {
                self.inside(*turn, *step)?;
                self.entering.clear();
                ensure(!self.answered, || "a chunk behind the step's message".into())?;
            }
            EventData::AssistantMessage { turn, step, message, interrupted, .. } => {
                self.inside(*turn, *step)?;
                self.entering.clear();
                ensure(!self.answered, || "a second message in one step".into())?;
                self.answered = true;
                let calls = message.content().iter().filter_map(|block| match block {
                    Block::ToolCall { id, name, .. } => {
                        Some(Call { id: id.to_string(), name: name.clone(), started: None })
                    }
                    _ => None,
                });
                self.calls = calls.collect();
                ensure(!interrupted || self.calls.is_empty(), || "an interrupted message with calls".into())?;
            }
            EventData::ToolCall { turn, step, call_id, name, .. } => {
                self.inside(*turn, *step)?;
                let next = self.calls.iter_mut().find(|call| call.started.is_none());
                let next = next.ok_or("a tool/call that no message asks for")?;
                ensure(next.id == call_id.as_str() && next.name == *name, || {
                    format!("it is not call {:?}'s turn", call_id)
                })?;
                next.started = Some(event.seq);
            }
            EventData::ToolResult { turn, step, message, error, .. } => {
                self.inside(*turn, *step)?;
                let Source::Tool { call_id } = message.source() else { return Err("no tool source".into()) };
                let next = self.calls.pop_front().ok_or("a result that no call asks for")?;
                ensure(next.id == call_id.as_str(), || format!("result of {call_id:?} before {:?}", next.id))?;
                let not_started = error.as_ref().is_some_and(|error| error.code == "TOOL_NOT_STARTED");
                ensure(next.started.is_some() != not_started, || format!("started: {:?}", next.started))?;
                let cited = event.source_event_seqs.as_deref().unwrap_or_default();
                ensure(cited == next.started.as_slice(), || format!("it cites {cited:?}"))?;
            }
            EventData::UserMessage(message) if event.surface_op == Some(SurfaceOp::Append) => {
                ensure(self.step.is_some() && !self.answered, || "a message outside a step's beginning".into())?;
                self.entering.retain(|(_, claimed)| claimed != message.id().as_str());
                if event.seq >= self.own_from {
                    let id = message.id().to_string();
                    let before = self.entered.insert(id, event.seq);
                    ensure(before.is_none(), || format!("message {:?} entered at {before:?} too", message.id()))?;
                }
            }
            EventData::RequestHeader { header, .. } => {
                ensure(self.step.is_some(), || "outside a step".into())?;
                self.entering.clear();
                self.header = Some(header.clone());
            }
            EventData::RequestContext(context) => {
                ensure(self.step.is_some(), || "outside a step".into())?;
                self.entering.clear();
                self.context = Some(context.clone());
            }
            EventData::InboxSpliced(_) if event.seq >= self.own_from => self.splice(event)?,
            EventData::UserMessage(_) | EventData::EndSeed | EventData::InboxSpliced(_) | EventData::Other { .. } => {}
        }
        Ok(())
    }

    fn inside(&self, turn: u64, step: u64) -> Result<(), String> {
        let inside = self.turn == Some(turn) && self.step == Some(step);
        ensure(inside, || format!("of step {turn}/{step}, open is {:?}/{:?}", self.turn, self.step))
    }

    fn splice(&mut self, event: &Event) -> Result<(), String> {
        let EventData::InboxSpliced(splice) = &event.data else { return Ok(()) };
        let at = list(splice.target);
        let end = splice.start + splice.removed_count;
        ensure(end <= self.lists[at].len(), || format!("{end} reaches beyond {}", self.lists[at].len()))?;
        let removed: Vec<String> = self.lists[at].drain(splice.start..end).collect();
        for id in &removed {
            let state = match self.turn {
                Some(turn) if !splice.canceled => {
                    self.unentered.push((at, id.clone()));
                    State::Claimed(turn)
                }
                _ => State::Discarded,
            };
            self.states.insert(id.clone(), state);
        }
        for (offset, message) in splice.inserted.iter().enumerate() {
            let id = message.id().to_string();
            let known = self.states.get(&id);
            let undone = known.is_some_and(|state| matches!(state, State::Claimed(_)))
                && (self.unentered.iter().chain(&self.lost).any(|(from, claimed)| *from == at && *claimed == id));
            let fresh = known.is_none() || removed.contains(&id) || undone;
            ensure(fresh, || format!("message {id:?} is accepted a second time ({known:?})"))?;
            self.lists[at].insert(splice.start + offset, id.clone());
            self.states.insert(id.clone(), State::Pending(at));
            self.since.entry(id.clone()).or_insert(event.seq);
            self.unentered.retain(|(_, claimed)| *claimed != id);
            self.entering.retain(|(_, claimed)| *claimed != id);
            self.lost.retain(|(_, claimed)| *claimed != id);
        }
        Ok(())
    }

    fn place(&mut self, event: &Event) -> Result<(), String> {
        let shown = event.data.message().filter(|message| {
            !matches!(event.data, EventData::AssistantMessage { .. }) || !message.content().is_empty()
        });
        match &event.surface_op {
            None => {}
            Some(SurfaceOp::Append) => self.surface.push((event.seq, shown.cloned())),
            Some(SurfaceOp::Replace { start, end }) => {
                let position = |seq: u64| self.surface.iter().position(|node| node.0 == seq);
                let (first, last) = position(*start).zip(position(*end)).ok_or("it replaces what is not there")?;
                self.surface.splice(first..=last, [(event.seq, shown.cloned())]);
            }
        }
        Ok(())
    }

    /// The derived history.
    pub fn history(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.surface.iter().filter_map(|node| node.1.as_ref())
    }

    /// The seq of the running call of this id.
    pub fn started(&self, call_id: &str) -> Option<u64> {
        self.calls.iter().filter(|call| call.id == call_id).find_map(|call| call.started)
    }

    /// The lists as they have to be once lost claims are back (D-10).
    pub fn restored(&self) -> [Vec<String>; 2] {
        [0, 1].map(|at| {
            let lost = self.lost.iter().filter(|(from, _)| *from == at).map(|(_, id)| id.clone());
            lost.chain(self.lists[at].iter().cloned()).collect()
        })
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// What a provider would object to in a history, if anything: every call answered once, directly behind its message.
pub fn unsendable<'a>(messages: impl Iterator<Item = &'a Arc<Message>>) -> Option<String> {
    let mut owed: VecDeque<String> = VecDeque::new();
    for message in messages {
        if let Source::Tool { call_id } = message.source() {
            match owed.pop_front() {
                Some(next) if next == call_id.as_str() => continue,
                next => return Some(format!("result of {call_id:?} where {next:?} is owed")),
            }
        }
        if let Some(call) = owed.front() {
            return Some(format!("call {call:?} has no result"));
        }
        owed.extend(message.content().iter().filter_map(|block| match block {
            Block::ToolCall { id, .. } => Some(id.to_string()),
            _ => None,
        }));
    }
    owed.front().map(|call| format!("call {call:?} has no result at the end"))
}
