//! Where an API key comes from. It is read once per request (DSK-17), and no message shows it.

use crate::error::{Error, Result};
use crate::llm::Failure;
use std::rc::Rc;

#[derive(Clone, Default)]
pub(super) enum Key {
    #[default]
    None,
    Fixed(String),
    Env(String),
    Callback(Rc<dyn Fn() -> Result<String>>),
}

impl Key {
    /// The key to send, checked (ADP-20).
    pub(super) fn read(&self) -> Result<Option<String>> {
        let text = match self {
            Key::None => return Ok(None),
            Key::Fixed(text) => text.clone(),
            Key::Env(name) => std::env::var(name).map_err(|_| {
                let message = format!("no API key: the environment variable {name} is not set to text");
                Error::model(Failure::new("MISSING_CREDENTIAL", message))
            })?,
            Key::Callback(read) => read()?,
        };
        let key = text.trim();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = "the API key must be non-empty printable ASCII without spaces";
            return Err(Error::model(Failure::new("INVALID_CREDENTIAL", message)));
        }
        Ok(Some(key.to_owned()))
    }
}
