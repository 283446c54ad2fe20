//! A live session: the append-only log and what is derived from it.
//!
//! Appending is synchronous and commits to memory; durability is the sink's business. An append from inside an
//! observer of the same session is refused, but observers may still deliver and cancel: what those must log is applied
//! in order as soon as the publication unwinds (D-02).

use super::event::{CORE_TYPES, Event, EventData, KNOWN_TYPES, RequestContext, SurfaceOp};
use super::event_log::{EventLog, PartRef};
use super::event_types::{Announced, EventTypes, VERSIONS};
use super::header::SessionHeader;
use super::history::History;
use super::inbox_fold::{Delivery, InboxFold, TurnSpan};
use super::pairing;
use super::reason::TurnEndReason;
use super::surface::Surface;
use crate::error::{Code, Error, Result};
use crate::id::SessionId;
use crate::json::Value;
use crate::llm::RequestHeader;
use crate::message::{Block, Message};
use crate::runtime::{LocalBoxFuture, Runtime, WakerSet};
use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

/// Where committed events go to become durable.
pub trait EventSink {
    /// Takes a committed event, in order.
    fn push(&self, event: &Arc<Event>);
    /// A turn has ended: a policy may want it written now.
    fn turn_ended(&self);
    /// Whether so much waits to become durable that whoever would add to it should flush first.
    fn is_full(&self) -> bool {
        false
    }
    /// Resolves when everything pushed so far is durable; fails with the store's error.
    fn flush(&self) -> LocalBoxFuture<Result<()>>;
}

type Publisher = Rc<dyn Fn(&Session, &Arc<Event>)>;
type Check = Rc<dyn Fn(&Session, &Event) -> Result<()>>;

/// A handle to a live session. Clones are the same session.
#[derive(Clone)]
pub struct Session(Rc<Inner>);

struct Inner {
    header: SessionHeader,
    runtime: Runtime,
    first_live: u64,
    events: RefCell<EventLog>,
    surface: RefCell<Surface>,
    history: RefCell<History>,
    /// How far the history is known to be sendable.
    whole_to: Cell<usize>,
    inbox: RefCell<InboxFold>,
    request_header: RefCell<Option<Arc<RequestHeader>>>,
    request_context: RefCell<Option<RequestContext>>,
    event_types: RefCell<Rc<EventTypes>>,
    announced: RefCell<Announced>,
    publishing: Cell<bool>,
    draining: Cell<bool>,
    deferred: RefCell<VecDeque<Box<dyn FnOnce()>>>,
    publisher: RefCell<Option<Publisher>>,
    check: RefCell<Option<Check>>,
    sink: RefCell<Option<Rc<dyn EventSink>>>,
    /// Its sink was given up: what was logged now would be lost in silence.
    closed: Cell<bool>,
    watchers: WakerSet,
}

impl Session {
    /// An empty session.
    pub fn new(runtime: &Runtime, header: SessionHeader) -> Result<Self> {
        header.check()?;
        Ok(Self(Rc::new(Inner {
            header,
            runtime: runtime.clone(),
            first_live: 0,
            events: RefCell::default(),
            surface: RefCell::default(),
            history: RefCell::default(),
            whole_to: Cell::new(0),
            inbox: RefCell::default(),
            request_header: RefCell::default(),
            request_context: RefCell::default(),
            event_types: RefCell::default(),
            announced: RefCell::default(),
            publishing: Cell::new(false),
            draining: Cell::new(false),
            deferred: RefCell::default(),
            publisher: RefCell::default(),
            check: RefCell::default(),
            sink: RefCell::default(),
            closed: Cell::new(false),
            watchers: WakerSet::default(),
        })))
    }

    /// A session that starts from events taken over as they are, followed by an end-seed mark unless they end with one
    /// (SEED-01, SEED-03). Seqs must be contiguous from 0.
    pub fn seeded(runtime: &Runtime, header: SessionHeader, events: impl Into<EventLog>) -> Result<Self> {
        let mut events = events.into();
        events.shrink();
        let inherited = header.seed_length.unwrap_or(0);
        if inherited > events.len() as u64 {
            let message = format!("{inherited} inherited events are announced and {} are there", events.len());
            return Err(Error::new(Code::CorruptLog, message).with("id", header.id.as_str()));
        }
        let mut session = Self::new(runtime, header)?;
        let first_live = events.len() as u64;
        Rc::get_mut(&mut session.0).expect("the session is new").first_live = first_live;
        let mut next = 0;
        for part in events.parts() {
            // Deltas are on no surface and mean nothing to the folds beyond that there are some.
            let (event, count) = match part {
                PartRef::One(event) => (event, 1),
                PartRef::Deltas(first, count) => (first, count),
            };
            if event.seq != next {
                let message = format!("event {} stands where {next} is expected", event.seq);
                return Err(Error::new(Code::InvalidEvent, message).with("seq", event.seq));
            }
            session.0.surface.borrow().check(&event, &events)?;
            session.fold(&event, &events, true)?;
            next += count;
        }
        *session.0.events.borrow_mut() = events;
        let marked = session.0.events.borrow().last().is_some_and(|last| matches!(last.data, EventData::EndSeed));
        if !marked {
            let mark = Event::new(session.len(), runtime.now_ms(), EventData::EndSeed);
            session.admit(Arc::new(mark), true)?;
        }
        Ok(session)
    }

    /// The id.
    pub fn id(&self) -> &SessionId {
        &self.0.header.id
    }

    /// The header.
    pub fn header(&self) -> &SessionHeader {
        &self.0.header
    }

    /// The runtime it belongs to.
    pub fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// How many events were taken over when this session began (SEED-02).
    pub fn first_live_seq(&self) -> u64 {
        self.0.first_live
    }

    /// How many events the log has.
    pub fn len(&self) -> u64 {
        self.0.events.borrow().len() as u64
    }

    /// Whether the log is empty.
    pub fn is_empty(&self) -> bool {
        self.0.events.borrow().is_empty()
    }

    /// The event of a seq.
    pub fn event(&self, seq: u64) -> Option<Arc<Event>> {
        self.0.events.borrow().get(usize::try_from(seq).ok()?)
    }

    /// The events from `seq` on.
    pub fn events_from(&self, seq: u64) -> Vec<Arc<Event>> {
        self.0.events.borrow().iter_from(usize::try_from(seq).unwrap_or(usize::MAX)).collect()
    }

    /// The events from `seq` on without the deltas of streams that have ended: every message, bracket and setting. Costs
    /// what these are, where [`Session::events_from`] makes each delta an event again.
    pub fn marks_from(&self, seq: u64) -> Vec<Arc<Event>> {
        self.0.events.borrow().marks_from(usize::try_from(seq).unwrap_or(usize::MAX)).cloned().collect()
    }

    /// The log as it is now. Deltas stay packed.
    pub fn log_so_far(&self) -> EventLog {
        self.0.events.borrow().clone()
    }

    /// The seqs on the surface.
    pub fn surface_nodes(&self) -> Vec<u64> {
        self.0.surface.borrow().nodes().to_vec()
    }

    pub(crate) fn is_on_surface(&self, seq: u64) -> bool {
        self.0.surface.borrow().contains(seq)
    }

    pub(crate) fn surface_generation(&self) -> u64 {
        self.0.surface.borrow().generation()
    }

    /// What the model sees: a snapshot that costs nothing to take (DER-01).
    pub fn history(&self) -> History {
        self.0.history.borrow().clone()
    }

    /// The history as a provider takes it: every call has exactly one result, directly behind the message that asked for it
    /// (P2). What the runtime logs is so already, and then this is [`Session::history`] and costs what is new. A log from
    /// elsewhere, or one whose compaction cut a pair, may lack results: they are made up here, and nowhere in the log.
    pub fn sendable_history(&self) -> History {
        let history = self.history();
        let whole = pairing::whole_to(&history, self.0.whole_to.get());
        self.0.whole_to.set(whole);
        if whole == history.len() { history } else { History::from_messages(pairing::paired(&history)) }
    }

    /// The request header in force (HDR-04).
    pub fn request_header(&self) -> Option<Arc<RequestHeader>> {
        self.0.request_header.borrow().clone()
    }

    /// The route and capacity in force (HDR-06).
    pub fn request_context(&self) -> Option<RequestContext> {
        self.0.request_context.borrow().clone()
    }

    /// What became of a message that this session's inbox accepted.
    pub fn delivery(&self, id: &str) -> Option<Delivery> {
        self.0.inbox.borrow().delivery(id)
    }

    /// Where a turn lies in the log.
    pub fn turn(&self, turn: u64) -> Option<TurnSpan> {
        self.0.inbox.borrow().turn(turn)
    }

    /// Why a turn ended, once it did.
    pub fn turn_end(&self, turn: u64) -> Option<TurnEndReason> {
        match &self.event(self.turn(turn)?.end?)?.data {
            EventData::TurnEnd { reason, .. } => Some(reason.clone()),
            _ => None,
        }
    }

    /// The version in which the log's latest events of a registered type are written (D-21).
    pub fn event_type_version(&self, kind: &str) -> Option<u64> {
        self.0.announced.borrow().version(kind)
    }

    /// Takes over the registered event types; fails for a log that knows a newer version of one.
    pub(crate) fn use_event_types(&self, types: &Rc<EventTypes>) -> Result<()> {
        self.0.announced.borrow().check(types)?;
        *self.0.event_types.borrow_mut() = types.clone();
        Ok(())
    }

    /// The inbox projection, to read.
    pub(crate) fn inbox(&self) -> Ref<'_, InboxFold> {
        self.0.inbox.borrow()
    }

    /// Appends an event of a plug-in. Core types are reserved (D-09). A type that not every reader knows is marked
    /// ignorable, so that the log opens without the plug-in too (VER-04); a registered one is required, and the log says
    /// its version before the first of them (D-21).
    pub fn append(&self, kind: &str, data: Value) -> Result<Arc<Event>> {
        if CORE_TYPES.contains(&kind) {
            let message = format!("{kind} is written by the runtime only; use the agent's methods");
            return Err(Error::new(Code::ReservedEvent, message).with("type", kind));
        }
        let version = self.0.event_types.borrow().version(kind);
        let Some(version) = version else {
            return self.append_raw(kind, data, None, None, !KNOWN_TYPES.contains(&kind));
        };
        let announcement = self.0.announced.borrow().announcement(kind, version);
        if let Some(announcement) = announcement {
            self.append_raw(VERSIONS, announcement, None, None, true)?;
        }
        self.append_raw(kind, data, None, None, false)
    }

    /// Puts a message on the surface in place of a span of it, as a compaction does (SURF-02 to SURF-09).
    pub fn replace_surface(
        &self,
        message: Arc<Message>,
        start: u64,
        end: u64,
        sources: Vec<u64>,
    ) -> Result<Arc<Event>> {
        self.commit(EventData::UserMessage(message), Some(SurfaceOp::Replace { start, end }), Some(sources))
    }

    /// Appends any event that is not one of the inbox's; for importers and tests of the log's own rules.
    pub fn append_raw(
        &self,
        kind: &str,
        data: Value,
        surface_op: Option<SurfaceOp>,
        sources: Option<Vec<u64>>,
        ignorable: bool,
    ) -> Result<Arc<Event>> {
        if matches!(kind, "agent/inbox/spliced" | "session/end-seed") {
            return Err(Error::new(Code::ReservedEvent, format!("{kind} is written by the runtime only")));
        }
        let data = EventData::from_value(kind, &data)?;
        self.commit_event(data, surface_op, sources, ignorable)
    }

    /// Commits an event of the runtime.
    pub(crate) fn commit(
        &self,
        data: EventData,
        surface_op: Option<SurfaceOp>,
        sources: Option<Vec<u64>>,
    ) -> Result<Arc<Event>> {
        self.commit_event(data, surface_op, sources, false)
    }

    /// Commits a log-only event of the runtime.
    pub(crate) fn log(&self, data: EventData) -> Result<Arc<Event>> {
        self.commit_event(data, None, None, false)
    }

    fn commit_event(
        &self,
        data: EventData,
        surface_op: Option<SurfaceOp>,
        sources: Option<Vec<u64>>,
        ignorable: bool,
    ) -> Result<Arc<Event>> {
        if let Some(reason) = data.find_lossy() {
            return Err(Error::new(Code::InvalidJson, format!("{}: {reason}", data.kind())));
        }
        if self.0.closed.get() {
            let message = format!("session {:?} is closed; open it again to append", self.id());
            return Err(Error::new(Code::Disposed, message).with("id", self.id().as_str()));
        }
        if self.0.publishing.get() {
            let message = format!("cannot append {} while an event of this session is being published", data.kind());
            return Err(Error::new(Code::Reentrant, message));
        }
        // Built where it stays: an event is big to move, and most of a log are small deltas.
        let event = Event::committed(self.len(), self.0.runtime.now_ms(), data, surface_op, sources, ignorable);
        self.validate(&event)?;
        let check = self.0.check.borrow().clone();
        if let Some(check) = check {
            // Pre-commit checks may veto; they may not append (APP-09, APP-10).
            self.0.publishing.set(true);
            let verdict = crate::events::guarded(|| check(self, &event));
            self.0.publishing.set(false);
            verdict?;
        }
        self.admit(event.clone(), false)?;
        let sink = self.0.sink.borrow().clone();
        if let Some(sink) = sink {
            sink.push(&event);
        }
        self.publish(&event);
        self.0.inbox.borrow_mut().apply(&event, true)?;
        self.0.watchers.wake_all();
        self.drain();
        Ok(event)
    }

    fn validate(&self, event: &Event) -> Result<()> {
        self.0.surface.borrow().check(event, &self.0.events.borrow())
    }

    /// Adds a valid event to the log and to what readers of the log see at once.
    fn admit(&self, event: Arc<Event>, replayed: bool) -> Result<()> {
        self.0.events.borrow_mut().push(event.clone());
        self.fold(&event, &self.0.events.borrow(), replayed)
    }

    /// Follows an event of `log` in what readers of the log see at once.
    fn fold(&self, event: &Arc<Event>, log: &EventLog, replayed: bool) -> Result<()> {
        if event.surface_op.is_some() {
            let replaced = self.0.surface.borrow_mut().apply(event).is_some();
            if replaced {
                self.rebuild_history(log);
            } else if let Some(message) = visible(event) {
                self.0.history.borrow_mut().push(message);
            }
        }
        match &event.data {
            EventData::RequestHeader { header, .. } => *self.0.request_header.borrow_mut() = Some(header.clone()),
            EventData::RequestContext(context) => *self.0.request_context.borrow_mut() = Some(context.clone()),
            EventData::Other { kind, data } if **kind == *VERSIONS => self.0.announced.borrow_mut().apply(data),
            _ => {}
        }
        if replayed {
            let own = event.seq >= self.0.header.seed_length.unwrap_or(0);
            let folded = self.0.inbox.borrow_mut().apply(event, own);
            folded.map_err(|error| {
                let message = format!("event {}: {}", event.seq, error.message());
                Error::new(Code::CorruptLog, message).with("seq", event.seq).caused_by(error)
            })?;
        }
        Ok(())
    }

    fn rebuild_history(&self, log: &EventLog) {
        let surface = self.0.surface.borrow();
        let messages = surface.nodes().iter().filter_map(|seq| visible(&log.get(*seq as usize)?)).collect();
        *self.0.history.borrow_mut() = History::from_messages(messages);
        self.0.whole_to.set(0);
    }

    fn publish(&self, event: &Arc<Event>) {
        let publisher = self.0.publisher.borrow().clone();
        if let Some(publish) = publisher {
            self.0.publishing.set(true);
            publish(self, event);
            self.0.publishing.set(false);
        }
    }

    /// Whether an event is being published right now.
    pub fn is_publishing(&self) -> bool {
        self.0.publishing.get()
    }

    /// Runs `operation` now, or after the publication under way, behind what was deferred before.
    pub(crate) fn when_appendable(&self, operation: impl FnOnce() + 'static) {
        self.0.deferred.borrow_mut().push_back(Box::new(operation));
        if !self.0.publishing.get() {
            self.drain();
        }
    }

    fn drain(&self) {
        if self.0.deferred.borrow().is_empty() || self.0.draining.replace(true) {
            return;
        }
        loop {
            let operation = self.0.deferred.borrow_mut().pop_front();
            let Some(operation) = operation else { break };
            operation();
        }
        self.0.draining.set(false);
    }

    /// Attaches what hears committed events; none detaches.
    pub(crate) fn set_publisher(&self, publisher: Option<Publisher>) {
        let old = self.0.publisher.replace(publisher);
        drop(old);
    }

    /// Attaches a pre-commit check that may veto (INV).
    pub(crate) fn set_check(&self, check: Option<Check>) {
        let old = self.0.check.replace(check);
        drop(old);
    }

    /// Attaches what makes committed events durable.
    pub(crate) fn set_sink(&self, sink: Rc<dyn EventSink>) {
        let old = self.0.sink.replace(Some(sink));
        drop(old);
    }

    /// Takes no more events: the sink was given up. It stays attached, because it knows what it could not store.
    pub(crate) fn close(&self) {
        self.0.closed.set(true);
    }

    /// What makes committed events durable; none without a store.
    pub(crate) fn sink(&self) -> Option<Rc<dyn EventSink>> {
        self.0.sink.borrow().clone()
    }

    /// Resolves when everything logged so far is durable. At once without a store. Fails when the session was closed with
    /// events that could not be stored.
    pub async fn flush(&self) -> Result<()> {
        match self.sink() {
            Some(sink) => sink.flush().await,
            None => Ok(()),
        }
    }

    /// Whether so much waits to become durable that whoever would add to it should flush first (case 145).
    pub(crate) fn is_full(&self) -> bool {
        self.0.sink.borrow().as_ref().is_some_and(|sink| sink.is_full())
    }

    /// Ready when the log has an event of this seq.
    pub fn poll_event(&self, seq: u64, context: &TaskContext<'_>) -> Poll<Arc<Event>> {
        match self.event(seq) {
            Some(event) => Poll::Ready(event),
            None => {
                self.0.watchers.register(context);
                Poll::Pending
            }
        }
    }

    /// Registers to be woken at the next append.
    pub(crate) fn watch(&self, context: &TaskContext<'_>) {
        self.0.watchers.register(context);
    }

    /// Whether its events are heard: from its announcement until it is detached. Who follows a log may stop then.
    pub fn is_live(&self) -> bool {
        self.0.publisher.borrow().is_some()
    }

    pub(crate) fn wake_watchers(&self) {
        self.0.watchers.wake_all();
    }

    /// Whether two handles are the same session (STORE-04).
    pub fn is_same(&self, other: &Session) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

/// The message an event shows the model; an assistant message without content shows none (DER-02).
fn visible(event: &Arc<Event>) -> Option<Arc<Message>> {
    let message = event.data.message()?;
    let empty = matches!(event.data, EventData::AssistantMessage { .. }) && message.content().is_empty();
    (!empty).then(|| message.clone())
}

/// The text blocks of messages, concatenated.
pub(crate) fn text_of(blocks: &[Block]) -> String {
    blocks.iter().filter_map(Block::text).collect()
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({}, {} events)", self.id(), self.len())
    }
}
