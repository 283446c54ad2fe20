//! Sessions: the log, to read, to follow and to append to.

use crate::agent::on_agent;
use crate::context::{on, promised};
use crate::future::start;
use crate::guard::{enter, json, name, out, release, retain};
use crate::handles::Kind;
use crate::runtime::Core;
use crate::types::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use turnwheel::agent::EventStream;
use turnwheel::error::Result;
use turnwheel::session::Event;
use turnwheel::{Session, host};

fn on_session<T: Send>(
    session: *mut tw_session,
    operation: impl FnOnce(&Rc<Core>, &Session) -> Result<T> + Send,
) -> Result<T> {
    on::<tw_session, Session, T>(session, operation)
}

fn text(
    session: *mut tw_session,
    target: *mut *mut tw_buf,
    error: *mut *mut tw_error,
    read: impl FnOnce(&Session) -> Result<String> + Send,
) -> tw_status {
    enter(error, || {
        let target = out(target, "result")?;
        Ok(target.text(on_session(session, |_, session| read(session))?))
    })
}

/// Adds a reference.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_retain(session: *mut tw_session) {
    retain(session);
}

/// Takes a reference away. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_release(session: *mut tw_session) {
    release(session);
}

/// The header as JSON. The caller owns `*header`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_header(
    session: *mut tw_session,
    header: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    text(session, header, error, |session| Ok(session.header().to_value().to_text()))
}

/// How many events the log has: the seq of the next one.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_length(
    session: *mut tw_session,
    length: *mut u64,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(length, "length")?;
        Ok(target.set(on_session(session, |_, session| Ok(session.len()))?))
    })
}

/// The events from a seq on, as a JSON list of at most `limit`. A seq behind the end gives an empty list.
///
/// The caller owns `*events`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_events(
    session: *mut tw_session,
    from: u64,
    limit: u64,
    events: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    text(session, events, error, move |session| {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let events = session.events_from(from);
        let texts: Vec<_> = events.iter().take(limit).map(|event| event.json()).collect();
        Ok(format!("[{}]", texts.join(",")))
    })
}

/// The messages that the model sees, as a JSON list. The caller owns `*messages`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_history(
    session: *mut tw_session,
    messages: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    text(session, messages, error, |session| {
        let history = session.history();
        let texts: Vec<_> = history.iter().map(|message| message.json().to_owned()).collect();
        Ok(format!("[{}]", texts.join(",")))
    })
}

/// The messages as they are sent: the history with an answer for every tool call, as a JSON list.
///
/// The caller owns `*messages`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_sendable_history(
    session: *mut tw_session,
    messages: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    text(session, messages, error, |session| {
        let history = session.sendable_history();
        let texts: Vec<_> = history.iter().map(|message| message.json().to_owned()).collect();
        Ok(format!("[{}]", texts.join(",")))
    })
}

/// The version of a registered event type that the log was written with; see `tw_context_event_type`.
///
/// Statuses: `TW_NONE` for a type that the log knows no version of; `*version` is then 0.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_event_type_version(
    session: *mut tw_session,
    kind: tw_str,
    version: *mut u64,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (kind, target) = (name(kind, "kind")?, out(version, "version")?);
        let found = on_session(session, |_, session| Ok(session.event_type_version(&kind)))?;
        let known = target.set(found.unwrap_or(0));
        Ok(if found.is_some() { known } else { TW_NONE })
    })
}

/// The whole session as `{"header", "events"}`: to keep elsewhere, and to open an agent from with the option `log`.
///
/// The caller owns `*log`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_export(
    session: *mut tw_session,
    log: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    text(session, log, error, |session| Ok(host::session_value(session).to_text()))
}

/// Which turn the log's consumed work accounts to: `{"end": seq or null, "droppedUnrun"}`. The caller owns `*work`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_work(
    session: *mut tw_session,
    work: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    text(session, work, error, |session| Ok(host::work_value(session).to_text()))
}

/// Appends an event of a plug-in.
///
/// Statuses: `RESERVED_EVENT` for a type of the runtime's own, `INVALID_EVENT`, `REENTRANT` inside a log observer,
/// `DISPOSED`. `*seq` is where it stands; `seq` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_append(
    session: *mut tw_session,
    kind: tw_str,
    data: tw_str,
    seq: *mut u64,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (kind, data) = (name(kind, "kind")?, json(data, "data")?);
        let at = on_session(session, |_, session| Ok(session.append(&kind, data)?.seq))?;
        if let Some(seq) = crate::guard::maybe(seq) {
            seq.set(at);
        }
        Ok(TW_OK)
    })
}

/// Appends any event that is not one of the inbox's, for importers and tests of the log's own rules:
/// `{"type", "data", "surfaceOp"?, "sourceEventSeqs"?, "ignorable"?}`.
///
/// Statuses and outputs as for `tw_session_append`, and `INVALID_SURFACE`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_append_raw(
    session: *mut tw_session,
    event: tw_str,
    seq: *mut u64,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let event = json(event, "event")?;
        let at = on_session(session, |_, session| host::append_raw(session, &event))?;
        if let Some(seq) = crate::guard::maybe(seq) {
            seq.set(at);
        }
        Ok(TW_OK)
    })
}

enum Source {
    Turn(Box<EventStream>),
    Log(Session, u64),
}

/// A stream on the runtime's thread.
struct Stream {
    source: RefCell<Source>,
    done: Cell<bool>,
}

impl Stream {
    fn new(source: Source) -> Self {
        Self { source: RefCell::new(source), done: Cell::new(false) }
    }

    fn poll(&self, context: &mut TaskContext<'_>) -> Poll<Option<Result<Arc<Event>>>> {
        if self.done.get() {
            return Poll::Ready(None);
        }
        let polled = match &mut *self.source.borrow_mut() {
            Source::Turn(stream) => stream.poll(context),
            Source::Log(session, next) => match session.poll_event(*next, context) {
                Poll::Ready(event) => {
                    *next += 1;
                    Poll::Ready(Some(Ok(event)))
                }
                Poll::Pending if !session.is_live() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            },
        };
        if !matches!(polled, Poll::Pending | Poll::Ready(Some(Ok(_)))) {
            self.done.set(true);
        }
        polled
    }
}

/// Sends a prompt and reads the events of the turn that takes it, from its `turn/start` to its `turn/end`. The
/// stream reads the log, so a slow reader loses nothing. Releasing it does not cancel.
///
/// Statuses as for `tw_agent_run`. The caller owns `*stream`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_agent_stream(
    agent: *mut tw_agent,
    message: tw_str,
    stream: *mut *mut tw_stream,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (given, target) = (json(message, "message")?, out(stream, "stream")?);
        let handle = on_agent(agent, |core, agent| {
            let events = agent.stream(crate::agent::message(agent, &given)?)?;
            Ok(core.handle(Kind::Stream, Rc::new(Stream::new(Source::Turn(Box::new(events))))))
        })?;
        Ok(target.set(handle as *mut tw_stream))
    })
}

/// Reads the events of a log from a seq on, as they are committed, until the session ends. The caller owns `*stream`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_session_follow(
    session: *mut tw_session,
    from: u64,
    stream: *mut *mut tw_stream,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(stream, "stream")?;
        let handle = on_session(session, |core, session| {
            Ok(core.handle(Kind::Stream, Rc::new(Stream::new(Source::Log(session.clone(), from)))))
        })?;
        Ok(target.set(handle as *mut tw_stream))
    })
}

/// Adds a reference.
#[unsafe(no_mangle)]
pub extern "C" fn tw_stream_retain(stream: *mut tw_stream) {
    retain(stream);
}

/// Takes a reference away. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_stream_release(stream: *mut tw_stream) {
    release(stream);
}

/// The next event, to wait for: the future's result is the event as JSON, or `null` behind the last.
///
/// Statuses of the future: `MESSAGE_DISCARDED`, `PARKED`, `DISPOSED`. The caller owns `*future`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_stream_next(
    stream: *mut tw_stream,
    future: *mut *mut tw_future,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(future, "future")?;
        let future = on::<tw_stream, Rc<Stream>, usize>(stream, |core, stream| {
            let (stream, runtime) = (stream.clone(), stream.runtime());
            Ok(start(
                core,
                &runtime,
                Box::pin(async move {
                    let next = std::future::poll_fn(|context| stream.poll(context)).await.transpose()?;
                    Ok(next.map_or_else(crate::context::empty, |event| event.json().to_owned()))
                }),
            ))
        })?;
        Ok(promised(target, future))
    })
}

impl Stream {
    fn runtime(&self) -> turnwheel::runtime::Runtime {
        match &*self.source.borrow() {
            Source::Turn(stream) => stream.session().runtime().clone(),
            Source::Log(session, _) => session.runtime().clone(),
        }
    }
}

/// What is there now, without waiting: a JSON list of at most `limit` events.
///
/// Statuses: `TW_PENDING` when more may come, `TW_NONE` behind the last event, with what was left; `MESSAGE_DISCARDED`,
/// `PARKED`, `DISPOSED`. The caller owns `*events`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_stream_take(
    stream: *mut tw_stream,
    limit: u64,
    events: *mut *mut tw_buf,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let target = out(events, "events")?;
        let (list, status) = on::<tw_stream, Rc<Stream>, _>(stream, |_, stream| {
            let mut context = TaskContext::from_waker(Waker::noop());
            let mut texts = Vec::new();
            while (texts.len() as u64) < limit {
                match stream.poll(&mut context) {
                    Poll::Ready(Some(Ok(event))) => texts.push(event.json().to_owned()),
                    Poll::Ready(Some(Err(error))) => return Err(error),
                    Poll::Ready(None) => return Ok((texts, TW_NONE)),
                    Poll::Pending => return Ok((texts, TW_PENDING)),
                }
            }
            Ok((texts, TW_OK))
        })?;
        target.text(format!("[{}]", list.join(",")));
        Ok(status)
    })
}
