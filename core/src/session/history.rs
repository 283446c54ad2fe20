//! The model's history: the messages on the surface, in order (DER-01).

use crate::message::Message;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// A snapshot of the derived history. Taking one costs nothing: snapshots share one list that only ever grows, and a
/// replacement on the surface starts a new list.
#[derive(Clone, Default)]
pub struct History {
    messages: Rc<RefCell<Vec<Arc<Message>>>>,
    len: usize,
}

impl History {
    /// A history of its own.
    pub fn from_messages(messages: Vec<Arc<Message>>) -> Self {
        let len = messages.len();
        Self { messages: Rc::new(RefCell::new(messages)), len }
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
        Rc::ptr_eq(&self.messages, &earlier.messages) && self.len >= earlier.len
    }

    /// The message at a position.
    pub fn get(&self, index: usize) -> Option<Arc<Message>> {
        (index < self.len).then(|| self.messages.borrow()[index].clone())
    }

    /// The messages in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Arc<Message>> + '_ {
        (0..self.len).map(|index| self.messages.borrow()[index].clone())
    }

    /// Adds a message to the list that later snapshots see.
    pub(super) fn push(&mut self, message: Arc<Message>) {
        debug_assert_eq!(self.len, self.messages.borrow().len(), "only the newest snapshot grows");
        self.messages.borrow_mut().push(message);
        self.len += 1;
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
