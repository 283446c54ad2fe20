//! For tests: doubles for models, and what the authors of stores run.
//!
//! None of the doubles opens a socket. [`Scripted`] answers from a script, [`Faulty`] breaks the answers of another
//! adapter, [`Cassette`] records real exchanges and replays them.
//!
//! [`store_suite`] is the conformance suite of the [`Store`] port.
//!
//! Each case says one thing that the runtime relies on. The suite needs a function that opens the store under test anew
//! over the same sessions, as another process would; it uses ids of its own, so the store may hold other sessions.

mod cassette;
mod faulty;
mod store_cases;

pub use crate::llm::adapters::{Scripted, ScriptedCall, ScriptedReply};
pub use cassette::Cassette;
pub use faulty::{Fault, Faulty};

use crate::error::{Code, Error, Result};
use crate::storage::Store;
use std::rc::Rc;
use store_cases::{Bench, CASES, OpenStore};

/// What became of one case.
#[derive(Clone, Debug)]
pub struct CaseReport {
    /// The case's name, a statement.
    pub name: &'static str,
    /// What was found instead; `None` if the case holds.
    pub failure: Option<String>,
}

/// What became of all cases.
#[derive(Clone, Debug)]
pub struct Report {
    /// One for each case, in the order of [`store_cases`].
    pub cases: Vec<CaseReport>,
}

impl Report {
    /// Whether every case holds.
    pub fn is_passed(&self) -> bool {
        self.cases.iter().all(|case| case.failure.is_none())
    }

    /// Fails with the whole report unless every case holds.
    pub fn check(&self) -> Result<()> {
        match self.is_passed() {
            true => Ok(()),
            false => Err(Error::new(Code::Invariant, format!("the store does not conform:\n{self}"))),
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for case in &self.cases {
            match &case.failure {
                None => writeln!(f, "ok      {}", case.name)?,
                Some(found) => writeln!(f, "FAILED  {}: {found}", case.name)?,
            }
        }
        let failed = self.cases.iter().filter(|case| case.failure.is_some()).count();
        write!(f, "{} passed, {failed} failed", self.cases.len() - failed)
    }
}

/// The names of all cases.
pub fn store_cases() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|(name, _)| *name)
}

/// Runs one case by its name. `open` gives the store under test, a new object over the same sessions each time. Fails with
/// `INVARIANT` and what was found, and with `INVALID_ARGUMENT` for a name that is none.
pub async fn check_store(name: &str, open: impl Fn() -> Result<Rc<dyn Store>> + 'static) -> Result<()> {
    let Some((name, case)) = CASES.iter().find(|(known, _)| *known == name) else {
        return Err(Error::new(Code::InvalidArgument, format!("there is no store case {name:?}; see store_cases()")));
    };
    let found = case(Bench::new(Rc::new(open))).await;
    found.map_err(|found| Error::new(Code::Invariant, format!("{name}: {found}")).with("case", *name))
}

/// Runs every case on the store that `open` gives, a new object over the same sessions each time.
pub async fn store_suite(open: impl Fn() -> Result<Rc<dyn Store>> + 'static) -> Report {
    let open: OpenStore = Rc::new(open);
    let mut cases = Vec::new();
    for (name, case) in CASES {
        cases.push(CaseReport { name, failure: case(Bench::new(open.clone())).await.err() });
    }
    Report { cases }
}
