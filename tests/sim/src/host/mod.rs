//! The double of an application: a model, tools and listeners whose every move the seed decides.

mod listeners;
mod model;
mod tools;

use crate::world::{Life, World};
use std::cell::Cell;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::task::Poll;
use turnwheel::runtime::{LocalBoxFuture, Signal, SignalGuard};
use turnwheel::{Context, Error, Result};

/// Registers the whole application on a life's context.
pub fn install(world: &Rc<World>, life: &Rc<Life>) {
    let host = Host { world: Rc::downgrade(world), life: Rc::downgrade(life), number: life.number };
    listeners::install(&host, &life.ctx);
    tools::install(&host, &life.ctx);
    crate::vetoed::install(world, life);
    let adapter = model::Model { host: host.clone() };
    if let Err(error) = life.ctx.llm().register("sim", adapter) {
        world.violate("SETUP", format!("the model was refused: {error:?}"));
    }
    let context = host.clone();
    let text = turnwheel::system_prompt::PromptText::dynamic(move |agent| {
        let Some((world, _)) = context.live() else { return Ok(None) };
        let mut dice = world.decisions.dice("runtime-context", agent.id());
        if dice.chance(2) {
            return Err(Error::host("planned failure of a runtime context"));
        }
        Ok(dice.chance(50).then(|| format!("weather {}", dice.below(2))))
    });
    if let Err(error) = life.ctx.prompt().context("weather", 1.0, text) {
        world.violate("SETUP", format!("the context was refused: {error:?}"));
    }
}

/// What callbacks hold: nothing that keeps the world alive.
#[derive(Clone)]
pub struct Host {
    world: Weak<World>,
    life: Weak<Life>,
    /// The number of the life.
    pub number: usize,
}

impl Host {
    /// World and life, unless the process is dead.
    pub fn live(&self) -> Option<(Rc<World>, Rc<Life>)> {
        let (world, life) = (self.world.upgrade()?, self.life.upgrade()?);
        life.alive.get().then_some((world, life))
    }

    /// The usual mischief at an await: a call back, a wait at a gate, a failure, a panic.
    pub async fn trouble(&self, site: &'static str, subject: &str) -> Result<()> {
        let Some((world, _)) = self.live() else { return Ok(()) };
        world.meddle(site, subject, 10);
        let (waits, fails) = {
            let mut dice = world.decisions.dice(site, subject);
            (dice.chance(12), dice.chance(3))
        };
        if waits {
            world.gate(self.number, subject, site).await;
            world.meddle(site, subject, 15);
        }
        if fails {
            return Err(Error::host(format!("planned failure at {site}")));
        }
        if may_panic(&world, subject) {
            panic!("planned panic at {site}");
        }
        Ok(())
    }
}

/// Whether host code panics here: rarely.
pub fn may_panic(world: &World, subject: &str) -> bool {
    let mut dice = world.decisions.dice("panic", subject);
    dice.chance(1)
}

/// Composes an agent: waits, fails, and tries what is forbidden.
pub fn setup(world: &Rc<World>, life: &Rc<Life>) -> impl FnOnce(Context) -> LocalBoxFuture<Result<()>> + 'static {
    let host = Host { world: Rc::downgrade(world), life: Rc::downgrade(life), number: life.number };
    move |ctx| {
        Box::pin(async move {
            let (Some((world, _)), Some(agent)) = (host.live(), ctx.own_agent()) else { return Ok(()) };
            let id = agent.id().to_string();
            let (waits, fails) = {
                let mut dice = world.decisions.dice("setup", &id);
                (dice.chance(10), dice.chance(4))
            };
            if waits {
                world.gate(host.number, &id, "setup").await;
            }
            let refused = agent.followup("too early").is_err() && agent.wake().is_err();
            world.expect("D-15", refused, || format!("{id:?} was driven from its setup"));
            if fails { Err(Error::host("planned failure of setup")) } else { Ok(()) }
        })
    }
}

/// An observer of a turn's signal that calls back when it fires (CAN-3).
pub fn on_signal(world: &Rc<World>, life: usize, id: &str, signal: &Signal) -> Option<SignalGuard> {
    if signal.is_cancelled() {
        return None;
    }
    let (world, id) = (Rc::downgrade(world), id.to_owned());
    Some(signal.on_cancel(move |_| {
        let Some(world) = world.upgrade().filter(|world| world.is_alive(life)) else { return };
        world.meddle("signal", &id, 25);
    }))
}

/// Gives the executor one turn.
pub async fn yield_now() {
    let yielded = Cell::new(false);
    std::future::poll_fn(|context| {
        if yielded.replace(true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The first of two that is ready.
pub async fn either<A: Future, B: Future>(a: A, b: B) -> Option<A::Output> {
    let (mut a, mut b) = (Box::pin(a), Box::pin(b));
    std::future::poll_fn(move |context| match a.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => b.as_mut().poll(context).map(|_| None),
    })
    .await
}
