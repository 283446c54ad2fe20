//! Timers of the machine's clock: one thread per process, made on first use, that waits for the earliest deadline. The
//! general background runtime has ticks of a millisecond and rounds up, which is a fifth of a tool that takes five.

use crate::background::Outstanding;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// A longer wait is one of this length: about thirty years, which no clock overflows at.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

/// What the thread of a process waits for; its threads do not survive a fork, so a child makes one of its own.
struct Timers {
    process: u32,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<BinaryHeap<Reverse<Entry>>>,
    earlier: Condvar,
}

struct Entry {
    deadline: Instant,
    order: u64,
    alarm: Arc<Alarm>,
}

/// Between a sleeper and the thread.
#[derive(Default)]
struct Alarm {
    state: Mutex<AlarmState>,
}

#[derive(Default)]
struct AlarmState {
    rung: bool,
    waker: Option<Waker>,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.deadline, self.order) == (other.deadline, other.order)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.deadline, self.order).cmp(&(other.deadline, other.order))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

static TIMERS: Mutex<Option<Timers>> = Mutex::new(None);

/// The timers of this process; none where no thread can be started.
fn shared() -> Option<Arc<Shared>> {
    let process = std::process::id();
    let mut timers = lock(&TIMERS);
    if let Some(live) = timers.as_ref().filter(|live| live.process == process) {
        return Some(live.shared.clone());
    }
    let shared = Arc::<Shared>::default();
    let of_thread = shared.clone();
    std::thread::Builder::new().name("turnwheel-timer".into()).spawn(move || of_thread.run()).ok()?;
    *timers = Some(Timers { process, shared: shared.clone() });
    Some(shared)
}

impl Shared {
    fn run(&self) {
        let mut waiting = lock(&self.waiting);
        loop {
            let now = Instant::now();
            let mut due = Vec::new();
            while waiting.peek().is_some_and(|Reverse(entry)| entry.deadline <= now) {
                due.extend(waiting.pop());
            }
            if !due.is_empty() {
                drop(waiting);
                // A waker runs code of others: with no lock held.
                for Reverse(entry) in due {
                    entry.alarm.ring();
                }
                waiting = lock(&self.waiting);
                continue;
            }
            let next = waiting.peek().map(|Reverse(entry)| entry.deadline.saturating_duration_since(now));
            waiting = match next {
                Some(wait) => self.earlier.wait_timeout(waiting, wait).unwrap_or_else(PoisonError::into_inner).0,
                None => self.earlier.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn add(&self, deadline: Instant, alarm: Arc<Alarm>) {
        let mut waiting = lock(&self.waiting);
        // What was cancelled long before its time does not stay: a turn's time limit is set with every turn.
        if waiting.len() >= 64 && waiting.len().is_power_of_two() {
            waiting.retain(|Reverse(entry)| Arc::strong_count(&entry.alarm) > 1);
        }
        let order = waiting.len() as u64;
        let is_first = waiting.peek().is_none_or(|Reverse(entry)| deadline < entry.deadline);
        waiting.push(Reverse(Entry { deadline, order, alarm }));
        drop(waiting);
        if is_first {
            self.earlier.notify_one();
        }
    }
}

impl Alarm {
    fn ring(&self) {
        let waker = {
            let mut state = lock(&self.state);
            state.rung = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Waits that long from now on. Dropping the future forgets it.
pub(crate) async fn sleep(duration: Duration) {
    let _outstanding = Outstanding::new();
    // Without a thread there is no timer to wait on; going on at once beats waiting for ever.
    let Some(timers) = shared() else { return };
    let alarm = Arc::<Alarm>::default();
    timers.add(Instant::now() + duration.min(LONGEST), alarm.clone());
    std::future::poll_fn(|context| {
        let mut state = lock(&alarm.state);
        if state.rung {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Runtime;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn sleepers_wake_in_the_order_of_their_time_and_never_early() {
        let runtime = Runtime::default();
        let woken = Rc::new(RefCell::new(Vec::new()));
        let start = Instant::now();
        for milliseconds in [30, 10, 20] {
            let woken = woken.clone();
            runtime.spawn(async move {
                sleep(Duration::from_millis(milliseconds)).await;
                assert!(start.elapsed() >= Duration::from_millis(milliseconds));
                woken.borrow_mut().push(milliseconds);
            });
        }
        runtime.block_on(sleep(Duration::from_millis(60)));
        assert_eq!(*woken.borrow(), [10, 20, 30]);
    }

    #[test]
    fn the_forgotten_do_not_stay() {
        let runtime = Runtime::default();
        let far = Duration::MAX;
        for _ in 0..1_000 {
            let mut sleeping = Box::pin(sleep(far));
            let mut context = std::task::Context::from_waker(Waker::noop());
            assert!(sleeping.as_mut().poll(&mut context).is_pending());
        }
        let waiting = shared().map(|timers| lock(&timers.waiting).len());
        assert!(waiting.is_some_and(|count| count <= 129), "{waiting:?}");
        runtime.block_on(sleep(Duration::ZERO));
    }
}
