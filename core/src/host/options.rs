//! Reading options: members by name, each of one kind, and no others.

use crate::error::{Code, Error, Result};
use crate::json::{Object, Value};
use std::borrow::Cow;
use std::cell::RefCell;
use std::time::Duration;

/// How a host spells the names of members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spelling {
    /// `maxTokens`, and durations as whole or fractional milliseconds with the unit in the name: `idleTimeoutMs`.
    #[default]
    Camel,
    /// `max_tokens`, and durations in seconds without a unit, as Python has them: `idle_timeout`.
    Snake,
}

/// The members of one options object. Null members count as absent (D-14). Reading ends with [`Options::finish`], which
/// refuses members that nobody asked for. Values are never shown in errors: they may be keys.
pub struct Options<'a> {
    members: Cow<'a, Object>,
    of: String,
    spelling: Spelling,
    asked: RefCell<Vec<String>>,
}

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}

impl<'a> Options<'a> {
    /// The members of `value`; null stands for none. `of` names the object in errors, for example `a tool`.
    pub fn new(value: &'a Value, of: &str) -> Result<Self> {
        Self::spelled(value, of, Spelling::Camel)
    }

    /// As [`Options::new`], in the spelling of another host.
    pub fn spelled(value: &'a Value, of: &str, spelling: Spelling) -> Result<Self> {
        let members = match value {
            Value::Object(object) => Cow::Borrowed(object),
            Value::Null => Cow::Owned(Object::new()),
            _ => return Err(invalid(format!("the options of {of} are an object"))),
        };
        Ok(Self { members, of: of.to_owned(), spelling, asked: RefCell::default() })
    }

    /// The options of a member that is an object itself.
    pub(super) fn nested<'v>(&self, value: &'v Value, of: &str) -> Result<Options<'v>> {
        Options::spelled(value, of, self.spelling)
    }

    fn spell(&self, name: &str) -> String {
        match self.spelling {
            Spelling::Camel => name.to_owned(),
            Spelling::Snake => name.chars().fold(String::new(), |mut spelled, letter| {
                if letter.is_ascii_uppercase() {
                    spelled.push('_');
                }
                spelled.push(letter.to_ascii_lowercase());
                spelled
            }),
        }
    }

    fn ask(&self, spelled: String) -> Option<&Value> {
        let member = self.members.get(&spelled).filter(|value| !value.is_null());
        self.asked.borrow_mut().push(spelled);
        member
    }

    /// A member as it is.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.ask(self.spell(name))
    }

    /// Whether the member is there, null included: a limit that is null is switched off.
    pub(super) fn has(&self, name: &str) -> bool {
        self.members.contains_key(&self.spell(name))
    }

    /// A member of one kind.
    pub fn read<T>(&self, name: &str, kind: &str, read: impl FnOnce(&Value) -> Option<T>) -> Result<Option<T>> {
        self.read_spelled(self.spell(name), kind, read)
    }

    fn read_spelled<T>(&self, name: String, kind: &str, read: impl FnOnce(&Value) -> Option<T>) -> Result<Option<T>> {
        let bad = format!("`{name}` of {} must be {kind}", self.of);
        match self.ask(name) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| invalid(bad)),
        }
    }

    /// A text.
    pub fn text(&self, name: &str) -> Result<Option<String>> {
        self.read(name, "a text", |value| value.as_str().map(str::to_owned))
    }

    /// A text that must be there.
    pub fn required_text(&self, name: &str) -> Result<String> {
        self.text(name)?.ok_or_else(|| invalid(format!("{} needs `{}`", self.of, self.spell(name))))
    }

    /// `true` or `false`; absent is `otherwise`.
    pub fn flag(&self, name: &str, otherwise: bool) -> Result<bool> {
        Ok(self.read(name, "true or false", Value::as_bool)?.unwrap_or(otherwise))
    }

    /// A whole number that is not negative.
    pub fn count(&self, name: &str) -> Result<Option<u64>> {
        self.read(name, "a whole number", Value::as_u64)
    }

    /// A finite number.
    pub fn number(&self, name: &str) -> Result<Option<f64>> {
        self.read(name, "a number", |value| value.as_f64().filter(|number| number.is_finite()))
    }

    /// A list of texts.
    pub fn texts(&self, name: &str) -> Result<Option<Vec<String>>> {
        self.read(name, "a list of texts", |value| {
            value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
        })
    }

    /// The members of an object.
    pub fn members(&self, name: &str) -> Result<Object> {
        Ok(self.read(name, "an object", |value| value.as_object().cloned())?.unwrap_or_default())
    }

    /// A duration: `nameMs` in milliseconds, or `name` in seconds where Python asks.
    pub fn duration(&self, name: &str) -> Result<Option<Duration>> {
        match self.spelling {
            Spelling::Camel => self.read_spelled(format!("{name}Ms"), "a number of milliseconds", |value| {
                Duration::try_from_secs_f64(value.as_f64()? / 1000.0).ok()
            }),
            Spelling::Snake => self.read_spelled(self.spell(name), "a number of seconds", |value| {
                Duration::try_from_secs_f64(value.as_f64()?).ok()
            }),
        }
    }

    /// Fails with `UNKNOWN_OPTION` for a member that nobody asked for.
    pub fn finish(self) -> Result<()> {
        let asked = self.asked.into_inner();
        match self.members.keys().find(|key| !asked.iter().any(|name| name == key)) {
            None => Ok(()),
            Some(unknown) => {
                let known = asked.join(", ");
                let message = format!("{} has no option `{unknown}`; there are: {known}", self.of);
                Err(Error::new(Code::UnknownOption, message).with("option", unknown))
            }
        }
    }

    /// An error about these options.
    pub(super) fn bad(&self, what: &str) -> Error {
        invalid(format!("{}: {what}", self.of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn unknown_members_are_refused_by_name_and_null_means_absent() {
        let value = json!({"maxTokens": null, "cwd": "/x", "modle": "m"});
        let options = Options::new(&value, "an agent").expect("an object");
        assert_eq!(options.count("maxTokens").expect("absent"), None);
        assert_eq!(options.text("cwd").expect("a text").as_deref(), Some("/x"));
        let error = options.finish().expect_err("an unknown member");
        assert_eq!(*error.code(), Code::UnknownOption);
        assert_eq!(error.message(), "an agent has no option `modle`; there are: maxTokens, cwd");
    }

    #[test]
    fn a_member_of_another_kind_is_refused_without_showing_its_value() {
        let value = json!({"apiKey": ["secret"]});
        let options = Options::new(&value, "a model").expect("an object");
        let error = options.text("apiKey").expect_err("not a text");
        assert_eq!(error.message(), "`apiKey` of a model must be a text");
    }

    #[test]
    fn python_spells_with_underscores_and_counts_seconds() {
        let (camel, snake) = (json!({"idleTimeoutMs": 1500}), json!({"idle_timeout": 1.5}));
        for (value, spelling) in [(&camel, Spelling::Camel), (&snake, Spelling::Snake)] {
            let options = Options::spelled(value, "a model", spelling).expect("an object");
            assert_eq!(options.duration("idleTimeout").expect("a time"), Some(Duration::from_millis(1500)));
            options.finish().expect("nothing else is there");
        }
    }
}
