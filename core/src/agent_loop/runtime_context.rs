//! The runtime context snapshot: text that changes while an agent lives, sent as a message when it does (RCX, SNAP).

use crate::context::Root;
use crate::error::Result;
use crate::json::{Object, Value};
use crate::message::{Block, Message, Role, Source};
use crate::session::{Event, EventData, Session};
use crate::system_prompt::{Assembly, render_contexts};
use crate::texts;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// The plug-in that snapshots are logged under; the same in every program that shares logs (SNAP-03).
const PLUGIN: &str = "@deepseek-ai/dsh-system-prompt";

/// What was shown last, as a fold over committed messages (RCX-4).
#[derive(Default)]
pub(super) struct RuntimeContext {
    /// The newest snapshot on the surface; known for `generation`.
    shown: RefCell<Option<Arc<Event>>>,
    generation: Cell<Option<u64>>,
    existed: Cell<bool>,
}

impl RuntimeContext {
    /// The message that is due at this boundary, if any.
    pub(super) fn due(&self, root: &Root, session: &Session, assembly: &Assembly) -> Result<Option<Arc<Message>>> {
        self.refresh(session);
        let contexts = render_contexts(assembly)?;
        if contexts.is_empty() && !self.existed.get() {
            return Ok(None);
        }
        let (text, source) = if contexts.is_empty() {
            (texts::CONTEXT_CLEARED.to_owned(), Source::plugin(PLUGIN, None))
        } else {
            snapshot(&contexts)
        };
        // A retained message of another shape than one text block never matches (RCX-6).
        let shown = self.shown.borrow();
        let current = shown.as_ref().and_then(|event| match event.data.message()?.content() {
            [Block::Text(text)] => Some(text.as_str()),
            _ => None,
        });
        if current == Some(text.as_str()) {
            return Ok(None);
        }
        let content = vec![Block::Text(text)];
        Ok(Some(Arc::new(Message::new(root.runtime.next_id(), Role::User, content, source))))
    }

    /// Looks for the newest snapshot still on the surface, at the start and after every replacement (RCX-5, RCX-7).
    fn refresh(&self, session: &Session) {
        let generation = session.surface_generation();
        if self.generation.get() == Some(generation) {
            return;
        }
        if self.generation.get().is_none() {
            let owned = session.marks_from(0).iter().any(|event| is_owned(event));
            self.existed.set(owned);
        }
        self.generation.set(Some(generation));
        let nodes = session.surface_nodes();
        let events = nodes.iter().rev().filter_map(|seq| session.event(*seq));
        *self.shown.borrow_mut() =
            if self.existed.get() { events.into_iter().find(|event| is_owned(event)) } else { None };
    }

    /// Follows a committed message.
    pub(super) fn committed(&self, session: &Session, event: &Arc<Event>) {
        if is_owned(event) && session.is_on_surface(event.seq) {
            self.existed.set(true);
            *self.shown.borrow_mut() = Some(event.clone());
        }
    }
}

fn is_owned(event: &Event) -> bool {
    let EventData::UserMessage(message) = &event.data else { return false };
    match message.source() {
        Source::Other(source) => {
            let is = |key: &str, text: &str| source.get(key).and_then(Value::as_str) == Some(text);
            is("kind", "plugin") && is("plugin", PLUGIN)
        }
        _ => false,
    }
}

fn snapshot(contexts: &[(String, String)]) -> (String, Source) {
    let mut text = texts::CONTEXT_SNAPSHOT.to_owned();
    let mut sections = Vec::new();
    for (name, body) in contexts {
        text.push_str("\n\n");
        text.push_str(body);
        let mut section = Object::new();
        section.insert("name", name.as_str());
        section.insert("text", body.as_str());
        sections.push(Value::Object(section));
    }
    let Source::Other(mut source) = Source::plugin(PLUGIN, Some("snapshot")) else {
        return (text, Source::User);
    };
    source.insert("sections", sections);
    (text, Source::Other(source))
}
