//! The process that is killed: two agents with tools, fed with messages until the end.

use crate::effects::{Effect, SideFile};
use crate::stores::Kind;
use crate::{Dice, check};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::path::Path;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use turnwheel::agent::Receipt;
use turnwheel::llm::ModelRequest;
use turnwheel::llm::adapters::{Scripted, ScriptedReply};
use turnwheel::runtime::yield_now;
use turnwheel::{Agent, Context, Message, Result, Session, Tool, ToolOutput};

/// The sessions of a directory.
pub const SESSIONS: [&str; 2] = ["left", "right"];

/// One life of a directory's sessions.
pub struct Life<'a> {
    /// The store.
    pub kind: Kind,
    /// The directory of sessions and side file.
    pub directory: &'a Path,
    /// What the life is like; message ids carry it, so it differs from life to life.
    pub seed: u64,
    /// In the middle of which change to the disk it asks to be killed.
    pub kill_at: Option<u64>,
    /// How many messages each session gets; the life ends when all are settled.
    pub messages: u64,
}

/// What adapter and tools share.
struct World {
    effects: SideFile,
    dice: RefCell<Dice>,
    sessions: RefCell<HashMap<String, Session>>,
}

impl World {
    fn roll(&self, limit: u64) -> u64 {
        self.dice.borrow_mut().below(limit)
    }

    /// How many events a log must have to hold the intent of the request that is being sent: up to its step's start, or
    /// to the header or context logged for it. What others log meanwhile is not part of it.
    fn intent(&self, session: &str) -> u64 {
        let session = self.sessions.borrow().get(session).cloned();
        let intents = ["step/start", "request/header", "request/context", "user/message"];
        let events = session.map(|session| session.events_from(0)).unwrap_or_default();
        events.iter().rev().find(|event| intents.contains(&event.kind())).map_or(0, |event| event.seq + 1)
    }
}

/// Lives to the end, unless it is killed before.
pub fn live(life: &Life<'_>) -> Result<()> {
    let world = Rc::new(World {
        effects: SideFile::open(life.directory).expect("the side file can be opened"),
        dice: RefCell::new(Dice::new(life.seed)),
        sessions: RefCell::default(),
    });
    let ctx = life.kind.context(life.directory, life.kill_at);
    ctx.llm().register("fake", model(world.clone()))?;
    ctx.tools().register(tool("slow", &ctx, &world))?;
    ctx.tools().register(tool("fast", &ctx, &world).parallel())?;
    ctx.runtime().block_on(async {
        let mut agents = Vec::new();
        for id in SESSIONS {
            let agent = ctx.agent(id).provider("fake").model("m").open().await?;
            world.sessions.borrow_mut().insert(id.to_owned(), agent.session().clone());
            agents.push(Agent::clone(&agent));
        }
        println!("open");
        let mut feeds: Vec<_> = agents.iter().map(|agent| Some(Box::pin(feed(&ctx, agent, &world, life)))).collect();
        poll_fn(|context| {
            for feed in &mut feeds {
                match feed.as_mut().map(|feed| feed.as_mut().poll(context)) {
                    Some(Poll::Ready(Err(error))) => return Poll::Ready(Err(error)),
                    Some(Poll::Ready(Ok(()))) => *feed = None,
                    Some(Poll::Pending) | None => {}
                }
            }
            if feeds.iter().all(Option::is_none) { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await?;
        ctx.close().await
    })
}

/// A model that asks for some calls and then answers; every request is checked and written down.
fn model(world: Rc<World>) -> Scripted {
    let turns = Cell::new(0_u64);
    Scripted::new().respond(move |request: &ModelRequest| {
        let session = request.session_id.as_deref().unwrap_or_default().to_owned();
        let len = world.intent(&session);
        let messages: Vec<_> = request.messages.iter().collect();
        match check::sendable(&messages) {
            Ok(()) => world.effects.write(&session, &Effect::Request(len)),
            Err(why) => world.effects.write(&session, &Effect::BadRequest(why)),
        }
        turns.set(turns.get() + 1);
        let mut reply = match world.roll(3) {
            0 => {
                let call = |n| (format!("c-{len}-{n}"), if world.roll(2) == 0 { "slow" } else { "fast" }, "{}");
                ScriptedReply::calls((0..=world.roll(3)).map(call))
            }
            _ => ScriptedReply::text(format!("answer {} {}", turns.get(), "words ".repeat(world.roll(40) as usize))),
        };
        reply.chunk_size = Some(1 + world.roll(12) as usize);
        reply
    })
}

fn tool(name: &str, ctx: &Context, world: &Rc<World>) -> Tool {
    let (ctx, world) = (ctx.clone(), world.clone());
    Tool::new(name, move |call| {
        let (ctx, world) = (ctx.clone(), world.clone());
        async move {
            let agent = call.agent().expect("an agent's call");
            let session = agent.id().to_string();
            world.effects.write(&session, &Effect::Tool(call.call_id().to_string()));
            match world.roll(3) {
                0 => ctx.runtime().sleep(Duration::from_micros(world.roll(1500))).await,
                1 => yield_now().await,
                _ => {}
            }
            Ok(ToolOutput::value("done ".repeat(world.roll(60) as usize)))
        }
    })
}

/// Sends messages in every way, and writes down what is promised about them.
async fn feed(ctx: &Context, agent: &Agent, world: &Rc<World>, life: &Life<'_>) -> Result<()> {
    // Whatever an earlier life left parked runs now.
    agent.wake()?;
    let mut receipts: Vec<Receipt> = Vec::new();
    for n in 0..life.messages {
        let id = format!("m-{:x}-{n}", life.seed);
        let message = Message::user_text(id.as_str(), format!("message {n}"));
        let receipt = match world.roll(4) {
            0 => agent.steer(message)?,
            1 => agent.inject(message)?,
            _ => agent.followup(message)?,
        };
        world.effects.write(agent.id(), &Effect::Accepted(id.clone()));
        let (effects, name, durable) = (world.clone(), agent.id().to_string(), receipt.clone());
        ctx.runtime().spawn(async move {
            if durable.durable().await.is_ok() {
                effects.effects.write(&name, &Effect::Durable(id));
            }
        });
        receipts.push(receipt);
        match world.roll(5) {
            0 => agent.when_idle().await?,
            1 => ctx.runtime().sleep(Duration::from_micros(world.roll(3000))).await,
            2 => {
                let len = agent.session().len();
                agent.flush().await?;
                world.effects.write(agent.id(), &Effect::Flushed(len));
            }
            _ => yield_now().await,
        }
    }
    // What was injected last waits for a turn of its own.
    agent.wake()?;
    for receipt in receipts {
        receipt.settled().await?;
        world.effects.write(agent.id(), &Effect::Settled(receipt.message_id().to_string()));
    }
    agent.when_idle().await?;
    Ok(())
}
