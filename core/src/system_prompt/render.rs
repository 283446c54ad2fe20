//! Rendering: strict variables, joined sections (SYS-05, SYS-07).

use super::assembly::Assembly;
use crate::error::{Code, Error, Result};
use std::sync::Arc;

pub(super) fn is_variable_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_lowercase())
        && characters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The system text; `None` when it is empty.
pub fn render_system(assembly: &Assembly) -> Result<Option<Arc<str>>> {
    if let Some(text) = assembly.complete() {
        let text = substitute(text, assembly)?;
        return Ok((!text.is_empty()).then(|| text.into()));
    }
    let mut out = String::new();
    for section in &assembly.sections {
        let text = substitute(&section.text, assembly)?;
        if !text.is_empty() {
            if !out.is_empty() {
                out.push_str("\n\n");
            }
            out.push_str(&text);
        }
    }
    Ok((!out.is_empty()).then(|| out.into()))
}

/// The non-empty runtime contexts with their variables replaced.
pub fn render_contexts(assembly: &Assembly) -> Result<Vec<(String, String)>> {
    let mut rendered = Vec::new();
    for context in &assembly.contexts {
        let text = substitute(&context.text, assembly)?;
        if !text.is_empty() {
            rendered.push((context.name.clone(), text));
        }
    }
    Ok(rendered)
}

/// Replaces `{{name}}`. Inserted text is not scanned again; a `{{` without a `}}` behind it is literal.
fn substitute(text: &str, assembly: &Assembly) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find("{{") {
        let Some(length) = rest[open + 2..].find("}}") else { break };
        let name = &rest[open + 2..open + 2 + length];
        if !is_variable_name(name) {
            let message = format!("malformed prompt variable {{{{{name}}}}}; write {{{{name}}}} with [a-z][a-z0-9_]*");
            return Err(Error::new(Code::InvalidPrompt, message));
        }
        let known = assembly.variables.iter().find(|(known, _)| known == name);
        let value = match known {
            Some((_, Some(value))) => value,
            Some((_, None)) => {
                let message = format!("prompt variable {name:?} has no value; set it or drop the reference");
                return Err(Error::new(Code::InvalidPrompt, message).with("variable", name));
            }
            None => {
                let message = format!("unknown prompt variable {name:?}; register it or drop the reference");
                return Err(Error::new(Code::InvalidPrompt, message).with("variable", name));
            }
        };
        out.push_str(&rest[..open]);
        out.push_str(value);
        rest = &rest[open + 4 + length..];
    }
    out.push_str(rest);
    Ok(out)
}
