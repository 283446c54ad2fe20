//! Model selection: a route that may be switched while an agent runs, without tearing a prompt from its request (MOD).

use super::events::RequestEvent;
use crate::context::{Context, Registration};
use crate::error::Result;
use crate::system_prompt::AssemblyRequest;
use std::cell::RefCell;
use std::rc::Rc;

/// One choice of route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelChoice {
    /// The provider route.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The effort; absent clears an inherited one (MOD-4).
    pub reasoning_effort: Option<String>,
}

/// The choice in force and the one captured at the last assembly. Clones are the same selection.
#[derive(Clone, Debug, Default)]
pub struct ModelSelection(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    current: RefCell<Option<ModelChoice>>,
    assembled: RefCell<Option<ModelChoice>>,
}

impl ModelSelection {
    /// A selection that starts with `choice`.
    pub fn new(choice: Option<ModelChoice>) -> Self {
        let selection = Self::default();
        selection.select(choice);
        selection
    }

    /// Switches; a step under way keeps what it was assembled with (MOD-3).
    pub fn select(&self, choice: Option<ModelChoice>) {
        *self.0.current.borrow_mut() = choice;
    }

    /// The choice in force.
    pub fn current(&self) -> Option<ModelChoice> {
        self.0.current.borrow().clone()
    }

    /// Lets the selection rule the agent of `ctx`. Both listeners are removed by the returned registrations (MOD-6).
    pub fn install(&self, ctx: &Context) -> Result<[Registration; 2]> {
        let (assembling, requesting) = (self.0.clone(), self.0.clone());
        let assemble = ctx.waterfall::<AssemblyRequest, _>(move |_, next| {
            let selection = assembling.clone();
            async move {
                let choice = selection.current.borrow().clone();
                *selection.assembled.borrow_mut() = choice.clone();
                let mut assembly = next.call().await?;
                if let Some(choice) = choice {
                    assembly.set_variable("provider", Some(choice.provider.into()));
                    assembly.set_variable("model", Some(choice.model.into()));
                }
                Ok(assembly)
            }
        })?;
        let request = ctx.waterfall::<RequestEvent, _>(move |_, next| {
            let selection = requesting.clone();
            async move {
                let mut config = next.call().await?;
                let assembled = selection.assembled.borrow().clone();
                if let Some(choice) = assembled {
                    config.provider = choice.provider;
                    config.model = choice.model;
                    config.reasoning_effort = choice.reasoning_effort;
                }
                Ok(config)
            }
        })?;
        Ok([assemble, request])
    }
}
