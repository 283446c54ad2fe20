//! Room of events that were packed, for events to come. Most events of a log are deltas, which are made one by one and
//! packed a run at a time: an allocator gets so many blocks back at once that it merges them, and cuts them apart again for
//! the next run.

use super::event::Event;
use std::cell::RefCell;
use std::sync::Arc;

/// A run's worth for each thread, about 14 KiB.
const MOST: usize = 64;

thread_local! {
    static SPARES: RefCell<Vec<Arc<Event>>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the room of an event that nobody else holds; what it says is dropped.
pub(super) fn keep(mut event: Arc<Event>) {
    let Some(own) = Arc::get_mut(&mut event) else { return };
    own.clear();
    // A thread that ends keeps nothing.
    let _ = SPARES.try_with(|spares| {
        let mut spares = spares.borrow_mut();
        if spares.len() < MOST {
            spares.push(event);
        }
    });
}

/// Puts an event on the heap.
#[inline]
pub(super) fn place(event: Event) -> Arc<Event> {
    let spare = SPARES.try_with(|spares| spares.borrow_mut().pop()).ok().flatten();
    if let Some(mut spare) = spare
        && let Some(room) = Arc::get_mut(&mut spare)
    {
        *room = event;
        return spare;
    }
    Arc::new(event)
}
