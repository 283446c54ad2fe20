//! Gates: where host code and the store wait until the scheduler lets them go on.

use crate::world::World;
use std::cell::Cell;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::task::Poll;
use turnwheel::runtime::WakerSet;

/// Something that waits until the scheduler lets it go on.
pub struct Gate {
    life: usize,
    subject: String,
    site: &'static str,
    open: Cell<bool>,
    wakers: WakerSet,
}

impl Gate {
    /// Lets go on whoever waits.
    pub fn open(&self) {
        self.open.set(true);
        self.wakers.wake_all();
    }

    /// Ready once it is open.
    pub fn poll(&self, context: &std::task::Context<'_>) -> Poll<()> {
        if self.open.get() {
            return Poll::Ready(());
        }
        self.wakers.register(context);
        Poll::Pending
    }
}

impl World {
    fn register(&self, life: usize, subject: &str, site: &'static str) -> Rc<Gate> {
        let (open, wakers) = (Cell::new(false), WakerSet::default());
        Rc::new(Gate { life, subject: subject.to_owned(), site, open, wakers })
    }

    /// A gate that only [`Gate::open`] opens: for dropping things midway.
    pub fn switch(&self, life: usize, subject: &str) -> Rc<Gate> {
        let gate = self.register(life, subject, "switch");
        self.switches.borrow_mut().push(Rc::downgrade(&gate));
        gate
    }

    /// Waits until the scheduler opens the gate, or the process is dead.
    pub fn gate(self: &Rc<Self>, life: usize, subject: &str, site: &'static str) -> impl Future<Output = ()> + use<> {
        let gate = self.register(life, subject, site);
        self.gates.borrow_mut().push(gate.clone());
        self.note(|| format!("gate {site} holds {subject} of life {life}"));
        struct Held(Weak<World>, Rc<Gate>);
        impl Drop for Held {
            fn drop(&mut self) {
                if let Some(world) = self.0.upgrade() {
                    world.gates.borrow_mut().retain(|gate| !Rc::ptr_eq(gate, &self.1));
                }
            }
        }
        let held = Held(Rc::downgrade(self), gate);
        std::future::poll_fn(move |context| {
            if held.1.open.get() || held.0.upgrade().is_none_or(|world| !world.is_alive(held.1.life)) {
                return Poll::Ready(());
            }
            held.1.wakers.register(context);
            Poll::Pending
        })
    }

    /// Opens the `nth` gate.
    pub fn open_gate(&self, nth: u64) {
        let gate = {
            let gates = self.gates.borrow();
            if gates.is_empty() {
                return;
            }
            gates[nth as usize % gates.len()].clone()
        };
        self.note(|| format!("open {} of {}", gate.site, gate.subject));
        gate.open();
    }

    /// Opens all gates; says whether there were any.
    pub fn open_gates(&self) -> bool {
        let gates = self.gates.borrow().clone();
        for gate in &gates {
            gate.open();
        }
        !gates.is_empty()
    }

    /// The gates of a life.
    pub fn gates_of(&self, life: usize) -> Vec<Rc<Gate>> {
        self.gates.borrow().iter().filter(|gate| gate.life == life).cloned().collect()
    }

    /// Where a subject is held.
    pub fn held(&self, life: usize, subject: &str) -> Option<&'static str> {
        let gates = self.gates.borrow();
        gates.iter().find(|gate| gate.life == life && gate.subject == subject && !gate.open.get()).map(|gate| gate.site)
    }
}
