//! Writing request bodies as text: no tree is built, and the stored text of tools and arguments goes out as it is.

use crate::json::{Object, Value, write_str};

/// What stands for a tool that said nothing: an empty result is refused by some servers.
pub(in super::super) const NO_OUTPUT: &str = "(no output)";

/// What stands for an image that is not sent (ADP-11, MSG-25).
pub(in super::super) fn placeholder(image: &Value) -> String {
    let id = image.get("attachment").and_then(|attachment| attachment.get("attachmentId")).and_then(Value::as_str);
    match id.and_then(|id| id.get(..15)) {
        Some(short) => format!("[image {short} omitted: this model is sent text only]"),
        None => "[image omitted: this model is sent text only]".to_owned(),
    }
}

/// Puts commas between the items of a list.
pub(in super::super) struct List<'a> {
    out: &'a mut String,
    is_first: bool,
}

impl<'a> List<'a> {
    pub(in super::super) fn new(out: &'a mut String) -> Self {
        Self { out, is_first: true }
    }

    pub(in super::super) fn next(&mut self) -> &mut String {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(',');
        }
        self.out
    }
}

/// A member's name at the start of an object.
pub(in super::super) fn member(name: &str, out: &mut String) {
    write_str(name, out);
    out.push(':');
}

/// A member's name after another member.
pub(in super::super) fn comma_member(name: &str, out: &mut String) {
    out.push(',');
    member(name, out);
}

pub(in super::super) fn write_extra(extra: &Object, out: &mut String) {
    for (key, value) in extra.iter() {
        comma_member(key, out);
        value.write(out);
    }
}

/// Whether a text has nothing but white space, which some providers refuse.
pub(in super::super) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}
