//! Notifications. A `tw_notice` names a place on this thread's stack of notices under way; it costs no lock, and its JSON
//! is made when somebody asks.

use crate::guard::{EMPTY, Text, enter, json, out};
use crate::handles::{self, Kind};
use crate::types::*;
use std::cell::{Cell, OnceCell, RefCell};
use std::ptr::NonNull;
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::{error_from_value, notice_text};
use turnwheel::llm::Chunk;
use turnwheel::{EventData, Notice};

struct Frame {
    generation: u32,
    notice: NonNull<Notice>,
    texts: Texts,
    failed: RefCell<Option<Error>>,
}

#[derive(Default)]
struct Texts {
    json: OnceCell<Text>,
    session: OnceCell<Text>,
    data: OnceCell<Text>,
}

thread_local! {
    static FRAMES: RefCell<Vec<std::rc::Rc<Frame>>> = const { RefCell::new(Vec::new()) };
    static GENERATION: Cell<u32> = const { Cell::new(1) };
}

/// Calls `ask` with a handle to a notice; gives the error that the host set.
pub fn deliver(notice: &Notice, ask: impl FnOnce(*const tw_notice)) -> Result<()> {
    struct Pop;
    impl Drop for Pop {
        fn drop(&mut self) {
            let top = FRAMES.with(|frames| frames.borrow_mut().pop());
            drop(top);
        }
    }
    let generation = GENERATION.with(|next| {
        let generation = next.get();
        next.set(generation.wrapping_add(1) & 0xff_ffff);
        generation
    });
    let frame = std::rc::Rc::new(Frame {
        generation,
        notice: NonNull::from(notice),
        texts: Texts::default(),
        failed: RefCell::new(None),
    });
    let index = FRAMES.with(|frames| {
        let mut frames = frames.borrow_mut();
        frames.push(frame.clone());
        frames.len() - 1
    });
    let pop = Pop;
    ask(handles::number(Kind::Notice, index as u32, generation) as *const tw_notice);
    drop(pop);
    let failed = frame.failed.borrow_mut().take();
    failed.map_or(Ok(()), Err)
}

fn frame(handle: *const tw_notice) -> Result<std::rc::Rc<Frame>> {
    let (index, generation) = handles::decode(Kind::Notice, handle as usize)?;
    let found = FRAMES.with(|frames| frames.borrow().get(index as usize).cloned());
    found.filter(|frame| frame.generation == generation).ok_or_else(|| {
        let message = "this is no live tw_notice handle: its callback has returned, or it is another thread's";
        Error::new(Code::InvalidHandle, message).with("type", "tw_notice")
    })
}

impl Frame {
    fn notice(&self) -> &Notice {
        // SAFETY: a frame is found only while `deliver` is on this thread's stack, which borrows the notice.
        unsafe { self.notice.as_ref() }
    }
}

/// The texts of a frame live as long as the frame, which outlives the host's callback.
fn kept(cell: &OnceCell<Text>, make: impl FnOnce() -> String) -> tw_str {
    cell.get_or_init(|| Text::new(make())).view()
}

/// The whole notification as JSON: `{"event", "agentId"?, "sessionId"?, …}`. Made on the first call.
///
/// Statuses: `INVALID_HANDLE` behind the callback or on another thread.
///
/// `*json` is borrowed until the callback returns.
#[unsafe(no_mangle)]
pub extern "C" fn tw_notice_json(notice: *const tw_notice, json: *mut tw_str, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let (frame, json) = (frame(notice)?, out(json, "json")?);
        Ok(json.set(kept(&frame.texts.json, || notice_text(frame.notice()))))
    })
}

/// The id of the session it is about, which is its agent's too.
///
/// Statuses: `TW_NONE` when it is about none, and `*id` is empty; `INVALID_HANDLE`.
///
/// `*id` is borrowed until the callback returns.
#[unsafe(no_mangle)]
pub extern "C" fn tw_notice_session_id(
    notice: *const tw_notice,
    id: *mut tw_str,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let (frame, id) = (frame(notice)?, out(id, "id")?);
        let session = match frame.notice() {
            Notice::SessionCreated { session }
            | Notice::SessionDisposed { session }
            | Notice::SessionEvent { session, .. } => Some(session.id().as_str().to_owned()),
            Notice::ConfigStartFailed { session_id, .. } => Some(session_id.as_str().to_owned()),
            other => other.agent().map(|agent| agent.id().as_str().to_owned()),
        };
        match session {
            Some(session) => Ok(id.set(kept(&frame.texts.session, || session))),
            None => {
                id.set(EMPTY);
                Ok(TW_NONE)
            }
        }
    })
}

/// For `session/event`: the event's place in the log, its type and its text (the fragment of a text delta, the text of a
/// message, else empty), without any JSON. Outputs may be NULL.
///
/// Statuses: `TW_NONE` for every other notification, and nothing is written; `INVALID_HANDLE`.
///
/// Texts are borrowed until the callback returns; they have no NUL behind them.
#[unsafe(no_mangle)]
pub extern "C" fn tw_notice_log_event(
    notice: *const tw_notice,
    seq: *mut u64,
    kind: *mut tw_str,
    text: *mut tw_str,
    error: *mut *mut tw_error,
) -> tw_status {
    enter(error, || {
        let frame = frame(notice)?;
        let Notice::SessionEvent { event, .. } = frame.notice() else { return Ok(TW_NONE) };
        let view = |text: &str| tw_str { ptr: text.as_ptr().cast(), len: text.len() };
        if let Some(seq) = crate::guard::maybe(seq) {
            seq.set(event.seq);
        }
        if let Some(kind) = crate::guard::maybe(kind) {
            kind.set(view(event.kind()));
        }
        if let Some(target) = crate::guard::maybe(text) {
            let view = match &event.data {
                EventData::AssistantChunk { chunk: Chunk::TextDelta { text, .. }, .. } => view(text),
                data => match data.message() {
                    Some(message) => kept(&frame.texts.data, || message.text()),
                    None => EMPTY,
                },
            };
            target.set(view);
        }
        Ok(TW_OK)
    })
}

/// Makes this listener fail with an error, a text or `{"message", "code"?, "name"?}`. It is reported, and on
/// `agent/created` it vetoes the creation (REG-4).
///
/// Statuses: `INVALID_HANDLE`, `INVALID_JSON`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_notice_fail(notice: *const tw_notice, why: tw_str, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let frame = frame(notice)?;
        let why = error_from_value(&json(why, "why")?);
        *frame.failed.borrow_mut() = Some(why);
        Ok(TW_OK)
    })
}
