//! The registry as a context uses it, and the building blocks of hand-written agents (REG).

use super::registry::{AgentFactory, AgentHandle, CreateOptions, ResumeOptions};
use super::{Agent, AgentInner, AgentOptions, Driver, Stage};
use crate::context::{Cleanup, Context, Registration, Root};
use crate::error::{Code, Error, Result};
use crate::session::Session;
use once_cell::unsync::OnceCell;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// The live agents, as a context registers and sees them.
#[derive(Clone)]
pub struct Agents {
    ctx: Context,
}

impl Context {
    /// The registry of live agents.
    pub fn registry(&self) -> Agents {
        Agents { ctx: self.clone() }
    }

    /// Makes an agent's session findable and its events heard, for hand-written agents. It ends with this context, or
    /// through the registration.
    pub fn enter_session(&self, agent: &Agent) -> Result<Registration> {
        self.fiber().check()?;
        self.root().enter_session(agent.session(), Some(agent.scope()), Rc::downgrade(&agent.0))?;
        let (root, agent) = (Rc::downgrade(self.root()), agent.clone());
        self.effect(move || {
            if let Some(root) = root.upgrade() {
                root.detach_session(agent.session(), Some(agent.scope()), false);
            }
        })
    }
}

impl Agents {
    /// The live agent of an id.
    pub fn get(&self, id: &str) -> Option<Agent> {
        self.ctx.root().agents.get(id)
    }

    /// The live agents, in order of registration (REG-9).
    pub fn list(&self) -> Vec<Agent> {
        self.ctx.root().agents.list()
    }

    /// The live agents that no agent owns (REG-10).
    pub fn roots(&self) -> Vec<Agent> {
        self.ctx.root().agents.roots()
    }

    /// Whether the live agent `id` was created through `owner`'s own context (REG-11).
    pub fn is_owned_by(&self, id: &str, owner: &Agent) -> bool {
        self.ctx.root().agents.is_owned_by(id, owner)
    }

    /// Takes the factory's slot until this context ends; a second factory is refused (FAC-1).
    pub fn set_factory(&self, factory: Rc<dyn AgentFactory>) -> Result<Registration> {
        self.ctx.root().agents.set_factory(&self.ctx, factory)
    }

    /// Creates an agent that this context owns.
    pub async fn create(&self, options: CreateOptions) -> Result<AgentHandle> {
        self.ctx.root().agents.factory()?.create(self.ctx.clone(), options).await
    }

    /// Restores an agent that this context owns.
    pub async fn resume(&self, options: ResumeOptions) -> Result<AgentHandle> {
        self.ctx.root().agents.factory()?.resume(self.ctx.clone(), options).await
    }

    /// Makes a hand-written agent findable without announcing it (REG-2).
    pub fn enter(&self, agent: &Agent) -> Result<Entered> {
        let entry = self.ctx.root().agents.enter(agent)?;
        agent.0.stage.set(Stage::Announcing);
        Ok(Entered { root: Rc::downgrade(self.ctx.root()), agent: agent.clone(), entry })
    }

    /// Emits `agent/created`, once, and lets the agent be driven; the first failing listener vetoes (REG-3, REG-4).
    pub fn announce(&self, agent: &Agent) -> Result<()> {
        let root = self.ctx.root();
        root.agents.announce(root, agent)?;
        if agent.0.stage.get() == Stage::Announcing {
            agent.0.stage.set(Stage::Live);
            agent.driver()?.published();
        }
        Ok(())
    }

    /// Enters and announces a hand-written agent in one effect of this context. Ending that effect unregisters it; its
    /// driver and its teardown are its own business (REG-1, REG-14).
    pub fn register(&self, agent: &Agent) -> Result<Registration> {
        self.ctx.fiber().check()?;
        let entered = self.enter(agent)?;
        let registration = self.ctx.fiber().own(Cleanup::Sync(Box::new(move || entered.detach())));
        let announced = self.announce(agent).and_then(|()| {
            let live = self.get(agent.id()).is_some_and(|live| live == *agent);
            let gone = || Error::new(Code::Disposed, format!("agent {:?} was detached by a listener", agent.id()));
            if live { Ok(()) } else { Err(gone()) }
        });
        if let Err(error) = announced {
            registration.dispose();
            return Err(error);
        }
        Ok(registration)
    }
}

/// Removes the entry it was handed out for, and nothing else.
#[derive(Clone)]
pub struct Entered {
    root: Weak<Root>,
    agent: Agent,
    entry: u64,
}

impl Entered {
    /// Removes the entry and, if it was announced, emits `agent/disposed`; again it does nothing (REG-7, REG-8). During
    /// the announcement it waits for its end (REG-6).
    pub fn detach(&self) {
        if let Some(root) = self.root.upgrade()
            && root.agents.detach(&root, &self.agent, self.entry)
        {
            self.agent.0.stage.set(Stage::Disposing);
        }
    }
}

impl Agent {
    /// An agent of your own, with what `make_driver` gives it as its driver: private until it is entered into the
    /// registry. Its context is tagged with its scope; disposing that context's fiber is the maker's business.
    pub fn assemble(
        owner: &Context,
        session: Session,
        options: AgentOptions,
        make_driver: impl FnOnce(&Agent) -> Rc<dyn Driver>,
    ) -> Result<Agent> {
        let root = owner.root();
        let agent = Agent(Rc::new(AgentInner {
            session,
            options,
            scope: root.scopes.mint(),
            root: Rc::downgrade(root),
            ctx: RefCell::new(None),
            driver: OnceCell::new(),
            stage: Cell::new(Stage::Private),
            promised: RefCell::default(),
            owner: owner.own_agent().map(|agent| Rc::downgrade(&agent.0)),
            awaits: RefCell::default(),
            disposal: RefCell::new(None),
        }));
        let ctx = owner.scoped(agent.scope(), Rc::downgrade(&agent.0));
        *agent.0.ctx.borrow_mut() = Some(ctx);
        let driver = make_driver(&agent);
        agent.0.driver.set(driver).map_err(|_| Error::new(Code::Unknown, "the agent has a driver already"))?;
        Ok(agent)
    }
}
