//! Panics of a run: each fails its own scenario, also one that the runtime contained.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// The panics of the run under way on this thread; none outside a run.
    static SEEN: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Runs `run`; the error is the first panic inside it.
pub fn watch<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let outside = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let ours = SEEN.with(|seen| match &mut *seen.borrow_mut() {
                Some(seen) => {
                    seen.push(panic.to_string());
                    true
                }
                None => false,
            });
            if !ours {
                outside(panic);
            }
        }));
    });
    SEEN.with(|seen| *seen.borrow_mut() = Some(Vec::new()));
    let ran = catch_unwind(AssertUnwindSafe(run));
    let seen = SEEN.with(|seen| seen.borrow_mut().take()).unwrap_or_default();
    match (ran, seen.into_iter().next()) {
        (Ok(value), None) => Ok(value),
        (_, Some(panic)) => Err(panic.replace('\n', " ")),
        (Err(_), None) => Err("panicked without a message".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_fails_its_run_and_no_other() {
        assert!(watch(|| panic!("on purpose")).is_err_and(|panic: String| panic.contains("on purpose")));
        assert_eq!(watch(|| 7), Ok(7));
    }

    #[test]
    fn a_panic_that_the_runtime_contains_fails_the_run_too() {
        let run = || turnwheel::runtime::Runtime::default().spawn(async { panic!("inside a task") });
        assert!(watch(run).is_err_and(|panic| panic.contains("inside a task")));
    }
}
