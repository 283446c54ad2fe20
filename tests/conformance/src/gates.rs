//! Gates: named places where callbacks hold until the scenario opens them (SCENARIO.md section 2).

use crate::value::OnAbort;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::Rc;
use std::task::Poll;
use turnwheel::Error;
use turnwheel::runtime::{Signal, WakerSet};

/// The gates of one scenario. An open gate stays open, also for later lifetimes.
#[derive(Clone, Default)]
pub struct Gates(Rc<Inner>);

#[derive(Default)]
struct Inner {
    open: RefCell<BTreeSet<String>>,
    held: RefCell<BTreeMap<u64, String>>,
    next: Cell<u64>,
    wakers: WakerSet,
}

struct Holder {
    gates: Gates,
    id: u64,
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.gates.0.held.borrow_mut().remove(&self.id);
    }
}

impl Gates {
    /// Opens a gate for good.
    pub fn open(&self, gate: &str) {
        self.0.open.borrow_mut().insert(gate.to_owned());
        self.0.wakers.wake_all();
    }

    /// The gates being held, sorted.
    pub fn held(&self) -> Vec<String> {
        let names: BTreeSet<String> = self.0.held.borrow().values().cloned().collect();
        names.into_iter().collect()
    }

    /// Forgets the holders of an abandoned lifetime.
    pub fn forget_holders(&self) {
        self.0.held.borrow_mut().clear();
    }

    fn is_open(&self, gate: &str) -> bool {
        self.0.open.borrow().contains(gate)
    }

    /// Holds at a gate until it opens, or until `signal` fires when that ends the hold.
    pub fn hold(
        &self,
        gate: &str,
        signal: Option<&Signal>,
        on_abort: OnAbort,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        let (gates, gate) = (self.clone(), gate.to_owned());
        let mut cancelled = match (signal, on_abort) {
            (Some(signal), OnAbort::Fail | OnAbort::Continue) => Some(Box::pin(signal.cancelled())),
            (_, OnAbort::Ignore) | (None, _) => None,
        };
        let mut holder = None;
        std::future::poll_fn(move |context| {
            if gates.is_open(&gate) {
                holder = None;
                return Poll::Ready(Ok(()));
            }
            if let Some(cancelled) = &mut cancelled
                && cancelled.as_mut().poll(context).is_ready()
            {
                holder = None;
                return Poll::Ready(match on_abort {
                    OnAbort::Fail => Err(Error::host(format!("aborted at gate {gate}"))),
                    OnAbort::Continue | OnAbort::Ignore => Ok(()),
                });
            }
            if holder.is_none() {
                let id = gates.0.next.get();
                gates.0.next.set(id + 1);
                gates.0.held.borrow_mut().insert(id, gate.clone());
                holder = Some(Holder { gates: gates.clone(), id });
            }
            gates.0.wakers.register(context);
            Poll::Pending
        })
    }
}
