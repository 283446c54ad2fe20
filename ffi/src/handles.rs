//! Handles. What C holds is no address but a number: slot, generation, type, and how often the process had forked when it
//! was made. Nothing is ever read through it, so a handle that was released, is of another type or was never one is found
//! out instead of being undefined behaviour.

use crate::runtime::Shared;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use turnwheel::error::{Code, Error, Result};

/// The types of handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Error = 1,
    Buf,
    Runtime,
    Context,
    Agent,
    Session,
    Registration,
    Plugin,
    Selection,
    Stream,
    Future,
    Signal,
    Next,
    Call,
    Answer,
    Reply,
    Notice,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Error => "tw_error",
            Kind::Buf => "tw_buf",
            Kind::Runtime => "tw_runtime",
            Kind::Context => "tw_context",
            Kind::Agent => "tw_agent",
            Kind::Session => "tw_session",
            Kind::Registration => "tw_registration",
            Kind::Plugin => "tw_plugin",
            Kind::Selection => "tw_selection",
            Kind::Stream => "tw_stream",
            Kind::Future => "tw_future",
            Kind::Signal => "tw_signal",
            Kind::Next => "tw_next",
            Kind::Call => "tw_call",
            Kind::Answer => "tw_answer",
            Kind::Reply => "tw_reply",
            Kind::Notice => "tw_notice",
        }
    }
}

/// What a handle stands for.
#[derive(Clone)]
pub enum Object {
    /// A value that lives on the runtime's thread, by its key there.
    Local(Arc<Shared>, u64),
    /// A value that any thread may touch.
    Shared(Arc<dyn Any + Send + Sync>),
}

struct Slot {
    generation: u32,
    kind: Kind,
    refs: u32,
    object: Option<Object>,
}

struct Table {
    slots: Vec<Slot>,
    /// Oldest first: a slot rests as long as possible before its number is used again.
    free: VecDeque<u32>,
}

/// How often this process is the child of a fork since the library was loaded.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// One table a fork generation, because a lock that was held in the parent is never released in the child.
static TABLES: [Mutex<Table>; 16] = [const { Mutex::new(Table { slots: Vec::new(), free: VecDeque::new() }) }; 16];

/// Says how many forks lie behind this process, and from now on counts them.
pub fn forks() -> u64 {
    static WATCH: std::sync::Once = std::sync::Once::new();
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    WATCH.call_once(|| {
        // SAFETY: the handler only adds to an atomic number, which is allowed in the child of a fork.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

const INDEX: u32 = 24;
const GENERATION: u32 = 24;
const MAGIC: u64 = 0x6;

fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

fn encode(kind: Kind, index: u32, generation: u32) -> usize {
    let forks = forks() & mask(4);
    let number = MAGIC << 60 | forks << 56 | (kind as u64) << 48 | u64::from(generation) << INDEX | u64::from(index);
    number as usize
}

fn invalid(kind: Kind, why: &str) -> Error {
    let message = format!("this is no live {} handle: {why}", kind.name());
    Error::new(Code::InvalidHandle, message).with("type", kind.name())
}

/// Reads slot and generation, or says what is wrong with the number itself.
pub fn decode(kind: Kind, handle: usize) -> Result<(u32, u32)> {
    let number = handle as u64;
    if number == 0 {
        return Err(invalid(kind, "it is NULL"));
    }
    if number >> 60 != MAGIC {
        return Err(invalid(kind, "the library never gave it out"));
    }
    if number >> 56 & mask(4) != forks() & mask(4) {
        let message = "the handle was made before this process forked; make a runtime of its own in the child";
        return Err(Error::new(Code::Forked, message).with("type", kind.name()));
    }
    if number >> 48 & mask(8) != kind as u64 {
        return Err(invalid(kind, "it is a handle of another type"));
    }
    Ok(((number & mask(INDEX)) as u32, (number >> INDEX & mask(GENERATION)) as u32))
}

/// A number for something that is kept elsewhere, for example on a thread's stack of notices.
pub fn number(kind: Kind, index: u32, generation: u32) -> usize {
    encode(kind, index & mask(INDEX) as u32, generation & mask(GENERATION) as u32)
}

fn table() -> MutexGuard<'static, Table> {
    TABLES[(forks() & mask(4)) as usize].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives out a handle with one reference.
pub fn insert(kind: Kind, object: Object) -> usize {
    let mut table = table();
    // At least this many slots are kept out of use, so that a stale handle is told from a live one for long.
    const RESTING: usize = 64;
    let index = if table.free.len() > RESTING { table.free.pop_front() } else { None };
    let index = index.unwrap_or_else(|| {
        table.slots.push(Slot { generation: 0, kind, refs: 0, object: None });
        u32::try_from(table.slots.len() - 1).expect("fewer than 2^32 handles")
    });
    let slot = &mut table.slots[index as usize];
    slot.kind = kind;
    slot.refs = 1;
    slot.object = Some(object);
    encode(kind, index, slot.generation)
}

fn live(table: &mut Table, kind: Kind, handle: usize) -> Result<&mut Slot> {
    let (index, generation) = decode(kind, handle)?;
    let slot = table.slots.get_mut(index as usize).ok_or_else(|| invalid(kind, "the library never gave it out"))?;
    if slot.generation != generation || slot.kind != kind || slot.object.is_none() {
        return Err(invalid(kind, "it was released"));
    }
    Ok(slot)
}

/// What a handle stands for.
pub fn get(kind: Kind, handle: usize) -> Result<Object> {
    decode(kind, handle)?;
    let mut table = table();
    let slot = live(&mut table, kind, handle)?;
    Ok(slot.object.clone().expect("a live slot has an object"))
}

/// The shared value of a handle.
pub fn shared<T: Send + Sync + 'static>(kind: Kind, handle: usize) -> Result<Arc<T>> {
    let Object::Shared(object) = get(kind, handle)? else {
        return Err(invalid(kind, "it is a handle of another type"));
    };
    object.downcast().map_err(|_| invalid(kind, "it is a handle of another type"))
}

/// Adds a reference.
pub fn retain(kind: Kind, handle: usize) -> Result<()> {
    decode(kind, handle)?;
    let mut table = table();
    let slot = live(&mut table, kind, handle)?;
    slot.refs = slot.refs.checked_add(1).ok_or_else(|| invalid(kind, "it has 2^32 references"))?;
    Ok(())
}

/// Takes a reference away; with the last one the handle ends. What is no live handle is left alone.
pub fn release(kind: Kind, handle: usize) {
    if decode(kind, handle).is_err() {
        return;
    }
    let ended = {
        let mut table = table();
        let Ok(slot) = live(&mut table, kind, handle) else { return };
        slot.refs -= 1;
        if slot.refs > 0 {
            return;
        }
        slot.generation = (slot.generation + 1) & mask(GENERATION) as u32;
        let ended = slot.object.take();
        table.free.push_back((handle as u64 & mask(INDEX)) as u32);
        ended
    };
    // Dropped outside the lock: an object may own callbacks of the host.
    if let Some(Object::Local(shared, key)) = ended {
        shared.bury(key);
    }
}

/// How many handles are live: for tests that look for leaks.
pub fn count() -> u64 {
    table().slots.iter().filter(|slot| slot.object.is_some()).count() as u64
}
