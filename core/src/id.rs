//! Identities, and where new ones come from.

use std::fmt;
use std::sync::Arc;

macro_rules! id {
    ($name:ident, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text of the id.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl<T: Into<Arc<str>>> From<T> for $name {
            fn from(text: T) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::ops::Deref for $name {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

id!(SessionId, "Names a session and the agent that drives it (ID-1). Any non-empty text.");
id!(MessageId, "Names a message; it never changes, also not when the message is logged, forked or derived (MSG-02).");
id!(CallId, "Names a tool call, as the model gave it.");

/// Where new ids come from (P6).
pub trait IdSource {
    /// A new random id text, a UUID in the default source.
    fn next_id(&self) -> String;
}

/// Random version 4 UUIDs.
#[derive(Debug, Default)]
pub struct RandomIds;

impl IdSource for RandomIds {
    fn next_id(&self) -> String {
        uuid::Uuid::new_v4().to_string()
    }
}

/// `prefix-1`, `prefix-2`, …: for tests and reproducible runs.
#[derive(Debug)]
pub struct CountingIds {
    prefix: String,
    next: std::cell::Cell<u64>,
}

impl CountingIds {
    /// Ids that start with `prefix`.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), next: std::cell::Cell::new(1) }
    }
}

impl IdSource for CountingIds {
    fn next_id(&self) -> String {
        let next = self.next.get();
        self.next.set(next + 1);
        format!("{}-{next}", self.prefix)
    }
}
