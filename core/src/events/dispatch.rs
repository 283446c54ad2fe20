//! What is about to be dispatched, for checks that look at every event before it goes out (EVT-12).

use crate::scope::ScopeKey;
use std::any::Any;
use std::fmt;

/// How an event is delivered (EVT-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchMode {
    /// All listeners, in order; what they answer is ignored.
    Emit,
    /// All listeners beside each other.
    Parallel,
    /// In order, at once, until one answers.
    Bail,
    /// In order, each awaited.
    Serial,
    /// Nested: each decides whether the inner ones run.
    Waterfall,
}

/// A dispatch that is about to begin.
#[derive(Clone, Copy)]
pub struct Dispatch<'a> {
    /// How it is delivered.
    pub mode: DispatchMode,
    /// The event's name.
    pub name: &'static str,
    /// The scope whose listeners hear it; none for the global layer.
    pub receiver: Option<ScopeKey>,
    payload: &'a dyn Any,
}

/// A check of dispatches: its failure prevents the dispatch.
pub type DispatchCheck = dyn Fn(&Dispatch<'_>) -> crate::error::Result<()>;

impl<'a> Dispatch<'a> {
    pub(crate) fn new(
        mode: DispatchMode,
        name: &'static str,
        receiver: Option<ScopeKey>,
        payload: &'a dyn Any,
    ) -> Self {
        Self { mode, name, receiver, payload }
    }

    /// What the listeners will be given, if it is of this type: a [`Notice`](crate::Notice), the payload of a waterfall,
    /// [`TurnStopping`](crate::agent::TurnStopping), or a plug-in's event.
    pub fn payload<T: 'static>(&self) -> Option<&'a T> {
        self.payload.downcast_ref()
    }
}

impl fmt::Debug for Dispatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dispatch({:?} of {}, {:?})", self.mode, self.name, self.receiver)
    }
}
