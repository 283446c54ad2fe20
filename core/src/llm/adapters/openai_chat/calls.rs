//! Which call a tool-call fragment belongs to.
//!
//! A fragment names its call by `index`, by `id`, by both or by neither, and servers repeat, empty or leave out each of
//! them. The rules, first match wins:
//!
//! 1. An id that is known names its call; at another index than before it is an error.
//! 2. A new id opens a call, whatever the index says; only an unfinished call that has no id yet and stands at that very
//!    index takes the id, if the fragment does not name a tool again.
//! 3. Without id an index names the latest call there, or opens one.
//! 4. With neither, a name opens a call if the last one cannot be meant, and a bare fragment continues the last call.
//!
//! Where two calls could be meant the answer is an error and never a merge: wrong arguments are worse than none. Arguments
//! for a call whose JSON object is already closed are a repeat of the whole, which is ignored, or an error.

use crate::json::{Value, parse};
use crate::llm::Failure;

/// One call in the making.
#[derive(Debug)]
pub(super) struct Call {
    /// The harness block index.
    pub(super) block: u64,
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) arguments: String,
    choice: u64,
    index: Option<u64>,
    scan: ObjectScan,
    /// The number of the payload that touched it last.
    payload: u64,
}

/// One fragment as it came.
#[derive(Debug, Default)]
pub(super) struct Fragment {
    pub(super) choice: u64,
    pub(super) index: Option<u64>,
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) arguments: String,
    /// The arguments came as a JSON value, hence as a whole.
    pub(super) is_whole: bool,
}

/// All calls of one answer, in order of opening.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) calls: Vec<Call>,
    payload: u64,
}

/// What a fragment did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It opened the call at this position.
    Opened(usize),
    /// It added to the call at this position.
    Added(usize),
    /// It repeated what is known.
    Repeat,
}

enum Target {
    Existing(usize),
    Fresh,
}

fn ambiguous(what: &str) -> Failure {
    Failure::new("MALFORMED_RESPONSE", format!("a tool-call fragment of the stream is ambiguous: {what}"))
}

impl Call {
    /// Arguments have begun and their JSON object is not closed.
    fn is_partial(&self) -> bool {
        !self.is_closed() && !self.arguments.trim().is_empty()
    }

    /// The arguments are a closed JSON object, so that nothing can follow.
    fn is_closed(&self) -> bool {
        self.scan.closed
    }

    /// Whether arguments that began never became JSON.
    pub(super) fn is_half(&self) -> bool {
        !self.arguments.trim().is_empty() && parse(&self.arguments).is_err()
    }

    /// Whether `text` says something that is not this call's arguments, whole as they are.
    fn is_contradicted_by(&self, text: &str) -> bool {
        !text.trim().is_empty() && !self.is_repeated_by(text)
    }

    /// Whether `text` is this call's whole arguments again, perhaps encoded once or twice more.
    fn is_repeated_by(&self, text: &str) -> bool {
        let Ok(known) = parse(&self.arguments) else { return false };
        let mut next = parse(text).ok();
        for _ in 0..3 {
            match next {
                Some(value) if value == known => return true,
                Some(Value::String(ref inner)) => next = parse(inner).ok(),
                _ => return false,
            }
        }
        false
    }
}

impl Calls {
    /// Marks the start of the next payload. Two fragments of one payload are two calls unless they say otherwise.
    pub(super) fn next_payload(&mut self) {
        self.payload += 1;
    }

    /// Files a fragment; `block` is the index for a call that it opens.
    pub(super) fn take(&mut self, fragment: Fragment, block: u64) -> Result<Taken, Failure> {
        let target = self.target(&fragment)?;
        let (position, opened) = match target {
            Target::Existing(position) => (position, false),
            Target::Fresh => {
                self.calls.push(Call {
                    block,
                    id: None,
                    name: String::new(),
                    arguments: String::new(),
                    choice: fragment.choice,
                    index: fragment.index,
                    scan: ObjectScan::default(),
                    payload: self.payload,
                });
                (self.calls.len() - 1, true)
            }
        };
        let call = &mut self.calls[position];
        call.payload = self.payload;
        call.index = call.index.or(fragment.index);
        if let Some(id) = fragment.id {
            call.id = Some(id);
        }
        if let Some(name) = fragment.name {
            // The first name that says something stays; a repeat or an empty one changes nothing.
            if call.name.is_empty() {
                call.name = name;
            } else if call.name != name {
                return Err(ambiguous("one call names two tools"));
            }
        }
        let text = fragment.arguments;
        if !text.trim().is_empty() {
            let replaces = fragment.is_whole && call.is_partial();
            if (call.is_closed() || replaces) && !opened {
                return match call.is_repeated_by(&text) {
                    true => Ok(Taken::Repeat),
                    false => Err(ambiguous("more arguments for a call whose arguments are complete")),
                };
            }
        }
        call.scan.feed(&text);
        call.arguments.push_str(&text);
        Ok(if opened { Taken::Opened(position) } else { Taken::Added(position) })
    }

    fn target(&self, fragment: &Fragment) -> Result<Target, Failure> {
        match (&fragment.id, fragment.index) {
            (Some(id), index) => self.by_id(fragment, id, index),
            (None, Some(index)) => self.by_index(fragment, index),
            (None, None) => self.by_order(fragment),
        }
    }

    /// The latest call of the fragment's choice that `test` accepts.
    fn latest(&self, fragment: &Fragment, test: impl Fn(&Call) -> bool) -> Option<usize> {
        self.calls.iter().rposition(|call| call.choice == fragment.choice && test(call))
    }

    fn by_id(&self, fragment: &Fragment, id: &str, index: Option<u64>) -> Result<Target, Failure> {
        if let Some(position) = self.latest(fragment, |call| call.id.as_deref() == Some(id)) {
            let known = self.calls[position].index;
            return match (known, index) {
                (Some(known), Some(index)) if known != index => Err(ambiguous("one id at two indexes")),
                _ => Ok(Target::Existing(position)),
            };
        }
        let Some(position) = self.without_id(fragment, index) else { return Ok(Target::Fresh) };
        let call = &self.calls[position];
        let is_named = fragment.name.is_some() && !call.name.is_empty();
        let is_renamed = is_named && fragment.name.as_ref() != Some(&call.name);
        if is_renamed || (call.is_closed() && call.is_contradicted_by(&fragment.arguments)) {
            return Ok(Target::Fresh);
        }
        match index {
            Some(_) if !is_named && !call.is_closed() && call.index == index => Ok(Target::Existing(position)),
            _ => Err(ambiguous("an id that may be a late one or a new one")),
        }
    }

    /// The call that might be waiting for its id: the latest at this index or at none, or without an index the last of all.
    fn without_id(&self, fragment: &Fragment, index: Option<u64>) -> Option<usize> {
        let position = self.latest(fragment, |call| index.is_none() || call.index.is_none() || call.index == index)?;
        self.calls[position].id.is_none().then_some(position)
    }

    fn by_index(&self, fragment: &Fragment, index: u64) -> Result<Target, Failure> {
        if let Some(position) = self.latest(fragment, |call| call.index == Some(index)) {
            return self.continued(fragment, position, |call| call.index == Some(index));
        }
        // The opening fragment may have come without its index, or this is another call.
        let Some(position) = self.latest(fragment, |call| call.index.is_none()) else { return Ok(Target::Fresh) };
        let call = &self.calls[position];
        let is_alone = self.calls.iter().filter(|call| call.index.is_none()).count() == 1;
        match &fragment.name {
            Some(_) if call.is_closed() && call.is_contradicted_by(&fragment.arguments) => Ok(Target::Fresh),
            Some(name) if *name != call.name && !call.is_partial() => Ok(Target::Fresh),
            None if is_alone && position as u64 == index && !call.is_closed() => Ok(Target::Existing(position)),
            _ => Err(ambiguous("an index that no call was opened with")),
        }
    }

    fn by_order(&self, fragment: &Fragment) -> Result<Target, Failure> {
        let Some(position) = self.latest(fragment, |_| true) else { return Ok(Target::Fresh) };
        self.continued(fragment, position, |_| true)
    }

    /// Decides for a fragment without id whether it goes on with the call at `position`, the latest of those that
    /// `rival` accepts, or opens another.
    fn continued(
        &self,
        fragment: &Fragment,
        position: usize,
        rival: impl Fn(&Call) -> bool,
    ) -> Result<Target, Failure> {
        let call = &self.calls[position];
        let has_text = !fragment.arguments.trim().is_empty();
        let same_payload = call.payload == self.payload;
        let rivals = || self.calls.iter().filter(|call| call.choice == fragment.choice && rival(call));
        if !has_text && fragment.name.is_none() {
            return Ok(Target::Existing(position));
        }
        if rivals().any(|other| other.is_partial() && other.block != call.block) {
            return Err(ambiguous("several calls are unfinished and it names none of them"));
        }
        let has_index = fragment.index.is_some();
        if let Some(name) = fragment.name.as_deref().filter(|_| !call.name.is_empty()) {
            let renamed = name != call.name;
            if renamed && call.is_partial() {
                return Err(ambiguous("a new tool name before the arguments of the last call are complete"));
            }
            // A name again after a complete call announces the next one, unless it brings the same arguments again.
            let again =
                call.is_closed() && (call.is_contradicted_by(&fragment.arguments) || (has_text && same_payload));
            if renamed || again {
                return Ok(Target::Fresh);
            }
            if same_payload || (!has_index && !call.is_partial()) {
                return Err(ambiguous("a repeated tool name that may mean another call"));
            }
            return Ok(Target::Existing(position));
        }
        if !has_index {
            let opened_together = rivals().filter(|other| other.payload == call.payload && !other.is_closed()).count();
            if same_payload || opened_together > 1 {
                return Err(ambiguous("several calls came together and it names none of them"));
            }
        }
        Ok(Target::Existing(position))
    }
}

/// Watches argument text go by and knows when its outermost object is closed, at a constant cost per byte.
#[derive(Debug, Default)]
struct ObjectScan {
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// The text began with something else than an object and is not watched.
    other: bool,
    closed: bool,
}

impl ObjectScan {
    fn feed(&mut self, text: &str) {
        for byte in text.bytes() {
            if self.other || self.closed {
                return;
            }
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'{' | b'[' if self.depth > 0 || byte == b'{' => self.depth += 1,
                b' ' | b'\n' | b'\r' | b'\t' => {}
                _ if self.depth == 0 => self.other = true,
                b'"' => self.in_string = true,
                b'}' | b']' => {
                    self.depth -= 1;
                    self.closed = self.depth == 0;
                }
                _ => {}
            }
        }
    }
}
