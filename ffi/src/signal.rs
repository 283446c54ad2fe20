//! Cancellation signals as every thread sees them: a mirror of the core's signal.

use crate::guard::{EMPTY, Text, UserData, enter, function, out, release, retain, shared};
use crate::handles::{self, Kind, Object};
use crate::runtime::lock;
use crate::types::*;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};
use turnwheel::runtime::{Signal, SignalGuard};

type Callback = (unsafe extern "C" fn(*mut c_void, tw_str), UserData);

#[derive(Default)]
struct State {
    cause: Option<Arc<Text>>,
    callbacks: Vec<Callback>,
}

/// A signal for any thread.
pub struct Mirror(Mutex<State>);

impl Mirror {
    /// A mirror of a signal; it follows while the guard lives.
    pub fn of(signal: &Signal) -> (Arc<Self>, SignalGuard) {
        let mirror = Arc::new(Self(Mutex::default()));
        let following = mirror.clone();
        let guard = signal.on_cancel(move |cause| following.fire(&cause.to_value().to_text()));
        (mirror, guard)
    }

    fn fire(&self, cause: &str) {
        let cause = Arc::new(Text::new(cause));
        let callbacks = {
            let mut state = lock(&self.0);
            state.cause = Some(cause.clone());
            std::mem::take(&mut state.callbacks)
        };
        for (heard, user) in callbacks {
            // SAFETY: the interface asks for a function that takes its own `user_data` and borrowed text.
            unsafe { heard(user.ptr, cause.view()) };
        }
    }
}

/// A handle to a mirror.
pub fn handle(mirror: &Arc<Mirror>) -> *mut tw_signal {
    handles::insert(Kind::Signal, Object::Shared(mirror.clone())) as *mut tw_signal
}

/// Adds a reference.
#[unsafe(no_mangle)]
pub extern "C" fn tw_signal_retain(signal: *mut tw_signal) {
    retain(signal);
}

/// Takes a reference away. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_signal_release(signal: *mut tw_signal) {
    release(signal);
}

/// Why the signal fired, as JSON, for example `{"kind":"user"}`.
///
/// Statuses: `TW_OK`; `TW_NONE` while it has not fired, and `*cause` is empty.
///
/// `*cause` is borrowed from the signal, until its last reference is released. It may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tw_signal_cause(signal: *mut tw_signal, cause: *mut tw_str, error: *mut *mut tw_error) -> tw_status {
    enter(error, || {
        let mirror: Arc<Mirror> = shared(signal)?;
        let fired = lock(&mirror.0).cause.clone();
        let view = fired.as_ref().map_or(EMPTY, |cause| cause.view());
        if let Some(cause) = crate::guard::maybe(cause) {
            cause.set(view);
        }
        Ok(if fired.is_some() { TW_OK } else { TW_NONE })
    })
}

/// Calls `fired` when the signal fires: on the runtime's thread; or here and now, if it has fired.
///
/// `drop` frees `user_data` behind the call, or when the signal can never fire any more.
#[unsafe(no_mangle)]
pub extern "C" fn tw_signal_on_fired(
    signal: *mut tw_signal,
    fired: tw_signal_fn,
    user_data: *mut c_void,
    drop: tw_drop_fn,
    error: *mut *mut tw_error,
) -> tw_status {
    let user = UserData::new(user_data, drop);
    enter(error, || {
        let (mirror, fired): (Arc<Mirror>, _) = (shared(signal)?, function(fired)?);
        let cause = {
            let mut state = lock(&mirror.0);
            match state.cause.clone() {
                Some(cause) => cause,
                None => {
                    state.callbacks.push((fired, user));
                    return Ok(TW_OK);
                }
            }
        };
        // SAFETY: as in `fire`.
        unsafe { fired(user.ptr, cause.view()) };
        Ok(TW_OK)
    })
}

/// Writes a handle to a mirror; the owner is the caller.
pub fn write(mirror: &Arc<Mirror>, target: *mut *mut tw_signal) -> turnwheel::Result<tw_status> {
    Ok(out(target, "signal")?.set(handle(mirror)))
}
