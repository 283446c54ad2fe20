//! Deliveries that a check of events refuses: whoever waits for one has to be told, whenever the refusal comes.

use crate::owned::spawn;
use crate::world::{Life, World};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use turnwheel::{Agent, Code, Error, EventData, Message};

/// Ids that begin so are refused by the check of every context.
const VETOED: &str = "vetoed-";

/// A wait for something that is refused.
pub struct Wait {
    life: usize,
    what: String,
    ended: Cell<bool>,
}

/// Registers the check.
pub fn install(world: &Rc<World>, life: &Life) {
    let registered = life.ctx.check_events(|_, event| match &event.data {
        EventData::InboxSpliced(splice) if splice.inserted.iter().any(|message| message.id().starts_with(VETOED)) => {
            Err(Error::host("planned refusal"))
        }
        _ => Ok(()),
    });
    if let Err(error) = registered {
        world.violate("SETUP", format!("a check was refused: {error:?}"));
    }
}

impl World {
    /// Sends what will be refused, and waits for it to be stored, for its turn, or for the events of that.
    pub(crate) fn vetoed(self: &Rc<Self>, life: &Rc<Life>, agent: &Agent, how: u64) {
        let id = format!("{VETOED}{}", self.fresh_id());
        let message = Arc::new(Message::user_text(id.clone(), "never"));
        let (before, publishing) = (agent.session().len(), agent.session().is_publishing());
        let wait = Rc::new(Wait { life: life.number, what: format!("{id} ({how})"), ended: Cell::new(false) });
        let (world, done) = (Rc::downgrade(self), wait.clone());
        let told = move |is_error: bool| {
            done.ended.set(true);
            if let Some(world) = world.upgrade().filter(|world| world.is_alive(done.life)) {
                world.expect("REFUSED", is_error, || format!("{} was refused, and its wait ended well", done.what));
            }
        };
        let sent = match how % 4 {
            0 => agent.run(message).map(|run| spawn(life, async move { told(run.await.is_err()) })),
            1 => agent.stream(message).map(|mut events| {
                spawn(life, async move {
                    let next = std::future::poll_fn(|context| events.poll(context)).await;
                    told(!matches!(next, Some(Ok(_))));
                });
            }),
            2 => agent
                .followup(message)
                .map(|receipt| spawn(life, async move { told(receipt.durable().await.is_err()) })),
            _ => agent.steer(message).map(|receipt| spawn(life, async move { told(receipt.settled().await.is_err()) })),
        };
        match sent {
            Ok(()) => self.waits.borrow_mut().push(wait),
            Err(error) => {
                let codes = [Code::HostError, Code::Disposed, Code::NotPublished, Code::SelfWait, Code::RuntimeClosed];
                self.expect("REFUSED", codes.contains(error.code()), || format!("{id} was refused with {error:?}"));
            }
        }
        // Inside an observer it is decided when the publication has unwound (D-02).
        let logged = agent.session().len() != before;
        self.expect("REFUSED", publishing || !logged, || format!("the refusal of {id} was logged"));
    }

    /// Nothing moves: whoever waited for a refused delivery knows it.
    pub(crate) fn check_waits(&self) {
        let waits = std::mem::take(&mut *self.waits.borrow_mut());
        for wait in waits.into_iter().filter(|wait| self.is_alive(wait.life)) {
            self.expect("REFUSED", wait.ended.get(), || format!("{} was refused, and nobody is told", wait.what));
        }
    }
}
