//! Characters that a reader could not see, or that would change what stands around them, as text.

use std::borrow::Cow;

/// `text` with every control, direction and zero-width character spelled out, line ends and tabs left as they are.
///
/// A terminal then obeys no escape sequence of a model, a line cannot be made to read backwards, and two names that
/// differ only in what is invisible look different. ASCII controls become their pictures (`␛`), others `⟨U+202E⟩`. A
/// carriage return is spelled out as well: it would overwrite the line.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        push(character, &mut out);
    }
    Cow::Owned(out)
}

/// `text` on one line: line ends and tabs are spelled out, too, and what is longer than `limit` characters is cut.
pub(super) fn one_line(text: &str, limit: usize) -> String {
    let mut out = String::new();
    let mut characters = text.trim().chars();
    for character in characters.by_ref().take(limit) {
        match character {
            '\n' => out.push('⏎'),
            '\t' => out.push(' '),
            other => push(other, &mut out),
        }
    }
    if characters.next().is_some() {
        out.push('…');
    }
    out
}

/// Whether the character is spelled out.
pub(super) fn is_hidden(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}' => true,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => true,
        other => other.is_control(),
    }
}

/// Appends a character as [`visible`] shows it.
pub(super) fn push(character: char, out: &mut String) {
    match character {
        '\u{7f}' => out.push('␡'),
        control if control < ' ' && is_hidden(control) => {
            out.push(char::from_u32(0x2400 + control as u32).expect("every ASCII control has a picture"));
        }
        hidden if is_hidden(hidden) => out.push_str(&format!("⟨U+{:04X}⟩", hidden as u32)),
        other => out.push(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_spelled_out_and_the_rest_is_left() {
        assert_eq!(visible("plain\ttext\nתודה 👍🏽"), "plain\ttext\nתודה 👍🏽");
        assert_eq!(visible("\u{1b}[2J\u{7}\r\u{0}\u{7f}"), "␛[2J␇␍␀␡");
        assert_eq!(visible("\u{9b}31m"), "⟨U+009B⟩31m");
        assert_eq!(
            visible("a\u{202e}b\u{2066}c\u{200b}\u{feff}\u{e0041}"),
            "a⟨U+202E⟩b⟨U+2066⟩c⟨U+200B⟩⟨U+FEFF⟩⟨U+E0041⟩"
        );
    }

    #[test]
    fn nothing_that_is_hidden_is_left_in_any_text() {
        for character in (0..=0x0010_ffff).filter_map(char::from_u32) {
            let text = character.to_string();
            assert!(!visible(&text).chars().any(is_hidden), "U+{:04X}", character as u32);
        }
    }

    #[test]
    fn a_line_is_one_line_of_the_length_asked_for() {
        assert_eq!(one_line("  two\nlines \u{1b}", 20), "two⏎lines ␛");
        assert_eq!(one_line("abcdef", 3), "abc…");
    }
}
