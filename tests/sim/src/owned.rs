//! What outlives the call that starts it: owned runs, streams, maintenance, disposals.

use crate::host;
use crate::world::{Life, World};
use std::future::Future;
use std::rc::Rc;
use std::task::Poll;
use turnwheel::session::Delivery;
use turnwheel::{Agent, Code, Error};

impl World {
    /// Owned runs and streams live in a task, which a switch ends early.
    pub(crate) fn own(self: &Rc<Self>, life: &Rc<Life>, agent: &Agent, stream: bool) {
        let message = self.message(life, agent, None);
        let id = message.id().to_string();
        // Only code of the agent's own turn or maintenance can be inside it.
        let inside = agent.state().is_ok_and(|state| state.phase != "idle");
        let sent = self.before_delivery(life, agent, &id, true);
        let switch = self.switch(life.number, agent.id());
        let (world, life, agent) = (self.clone(), life.clone(), agent.clone());
        let refused = |error: Error| {
            if !(inside && *error.code() == Code::SelfWait) {
                world.after_delivery(&life, &agent, &id, sent, Some(error));
            }
            world.with_watch(life.number, agent.id(), |watch| watch.waking.remove(&id));
        };
        if stream {
            match agent.stream(message) {
                Err(error) => return refused(error),
                Ok(mut events) => spawn(&life, async move {
                    let mut last = None;
                    let ended = std::future::poll_fn(|context| {
                        loop {
                            if switch.poll(context).is_ready() {
                                return Poll::Ready(false);
                            }
                            match events.poll(context) {
                                Poll::Ready(Some(Ok(event))) => last = Some(event),
                                Poll::Ready(_) => return Poll::Ready(true),
                                Poll::Pending => return Poll::Pending,
                            }
                        }
                    });
                    let _ = ended.await;
                }),
            }
        } else {
            match agent.run(message) {
                Err(error) => return refused(error),
                Ok(mut run) => {
                    let (world, agent, id) = (Rc::downgrade(&world), agent.clone(), id.clone());
                    let number = life.number;
                    spawn(&life, async move {
                        let result = std::future::poll_fn(|context| match run.as_mut().poll(context) {
                            Poll::Ready(result) => Poll::Ready(Some(result)),
                            Poll::Pending => switch.poll(context).map(|()| None),
                        });
                        let result = result.await;
                        let Some(world) = world.upgrade().filter(|world| world.is_alive(number)) else { return };
                        let life = world.lives.borrow().iter().find(|life| life.number == number).cloned();
                        let Some(life) = life else { return };
                        match result {
                            None => world.drop_run(&life, &agent, &id, run),
                            Some(Ok(result)) => {
                                let ended = agent.session().turn_end(result.turn);
                                world.expect("A-03", ended.as_ref() == Some(&result.reason), || format!("{result:?}"));
                            }
                            Some(Err(error)) => {
                                // A parked prompt is withdrawn, so that it cannot run behind its caller's back.
                                let withdrawn = || match agent.session().delivery(&id) {
                                    Some(Delivery::Discarded { .. }) | None => true,
                                    Some(_) => false,
                                };
                                let expected = match error.code() {
                                    Code::MessageDiscarded | Code::Disposed => true,
                                    Code::Parked => withdrawn(),
                                    _ => false,
                                };
                                world.expect("A-03", expected, || format!("a run failed: {error:?}"));
                            }
                        }
                    });
                }
            }
        }
        world.after_delivery(&life, &agent, &id, sent, None);
    }

    fn drop_run<T>(&self, life: &Life, agent: &Agent, id: &str, run: T) {
        self.note(|| format!("drop the run of {id}"));
        let claimed = match agent.session().delivery(id) {
            Some(Delivery::Claimed { turn, .. }) => agent.session().turn_end(turn).is_none(),
            _ => false,
        };
        if claimed {
            self.note_cancel(life, agent, true);
        }
        drop(run);
    }

    pub(crate) fn maintain(self: &Rc<Self>, life: &Rc<Life>, agent: &Agent, task: u64) {
        let idle = agent.state().is_ok_and(|state| state.phase == "idle");
        let (world, number, id) = (Rc::downgrade(self), life.number, agent.id().to_string());
        let started = agent.run_maintenance(move |signal| async move {
            let Some(world) = world.upgrade() else { return Ok(()) };
            let guard = host::on_signal(&world, number, &id, &signal);
            world.meddle("maintenance", &id, 30);
            match task {
                1 => return Err(Error::host("planned failure of maintenance")),
                2 => world.gate(number, &id, "maintenance").await,
                3 if host::may_panic(&world, &id) => panic!("planned panic in maintenance"),
                _ => {}
            }
            world.meddle("maintenance.end", &id, 30);
            drop(guard);
            Ok(())
        });
        match started {
            Ok(result) => spawn(life, async move { drop(result.await) }),
            Err(error) => {
                let expected = match error.code() {
                    Code::Busy => !idle,
                    code => matches!(code, Code::Disposed | Code::NotPublished),
                };
                self.expect("MNT", expected, || format!("maintenance of {agent:?} refused: {error:?}"));
            }
        }
    }

    /// Asks for the disposal of an agent.
    pub fn dispose(&self, life: &Life, agent: &Agent) -> turnwheel::runtime::LocalBoxFuture<()> {
        self.with_watch(life.number, agent.id(), |watch| {
            watch.disposing = true;
            watch.kept = Some(false);
            watch.need.clear();
        });
        agent.dispose()
    }
}

/// Starts a task that is nobody's doing: what a turn started may outlive it, and is not inside the next one (INI-4).
pub(crate) fn spawn(life: &Life, task: impl Future<Output = ()> + 'static) {
    let root = life.ctx.root();
    root.without_initiator(|| root.runtime.spawn(task));
}
