//! The model's history: the messages on the surface, in order (DER-01).

use crate::message::{Message, Source};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// A snapshot of the derived history. Taking one costs nothing: snapshots share one list that only ever grows, and a
/// replacement on the surface starts a new list.
#[derive(Clone, Default)]
pub struct History {
    list: Rc<RefCell<List>>,
    len: usize,
}

#[derive(Default)]
struct List {
    messages: Vec<Arc<Message>>,
    /// Each provider whose replay state is in some message, and the first such message. Whoever asks before every request
    /// would otherwise have to look at the whole history.
    replayable: Vec<(Arc<str>, usize)>,
}

impl List {
    fn push(&mut self, message: Arc<Message>) {
        if let Source::Model { provider, replay_state: Some(_), .. } = message.source()
            && !self.replayable.iter().any(|(known, _)| known == provider)
        {
            self.replayable.push((provider.clone(), self.messages.len()));
        }
        self.messages.push(message);
    }
}

impl History {
    /// A history of its own.
    pub fn from_messages(messages: Vec<Arc<Message>>) -> Self {
        let len = messages.len();
        let mut list = List { messages: Vec::with_capacity(len), replayable: Vec::new() };
        messages.into_iter().for_each(|message| list.push(message));
        Self { list: Rc::new(RefCell::new(list)), len }
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether this is `earlier` with nothing but messages added behind it: who has seen that needs to see only those.
    pub fn extends(&self, earlier: &History) -> bool {
        Rc::ptr_eq(&self.list, &earlier.list) && self.len >= earlier.len
    }

    /// The message at a position.
    pub fn get(&self, index: usize) -> Option<Arc<Message>> {
        (index < self.len).then(|| self.list.borrow().messages[index].clone())
    }

    /// The messages in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Arc<Message>> + '_ {
        (0..self.len).map(|index| self.list.borrow().messages[index].clone())
    }

    /// Whether a message holds replay state of a provider that is not one of `own`. Costs nothing that grows with the history.
    pub(crate) fn has_foreign_replay_state(&self, own: &[String]) -> bool {
        let list = self.list.borrow();
        list.replayable.iter().any(|(provider, first)| *first < self.len && !own.iter().any(|own| **own == **provider))
    }

    /// Adds a message to the list that later snapshots see.
    pub(super) fn push(&mut self, message: Arc<Message>) {
        debug_assert_eq!(self.len, self.list.borrow().messages.len(), "only the newest snapshot grows");
        self.list.borrow_mut().push(message);
        self.len += 1;
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
