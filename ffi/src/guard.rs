//! The border: every function of the interface runs inside [`enter`], which catches panics, turns results into statuses
//! and writes outputs; everything that comes in is checked here.

use crate::handles::{self, Kind, Object};
use crate::types::{Handle, TW_OK, tw_buf, tw_error, tw_status, tw_str};
use std::ffi::{CString, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::{Options, error_value};
use turnwheel::json::{Value, parse};
use turnwheel::runtime::panic_text;

/// Text that is given out, with its NUL.
pub struct Text(CString);

impl Text {
    /// Keeps a text. C strings cannot hold NUL bytes inside; the length does, so they are kept.
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        let mut bytes = text.into();
        bytes.push(0);
        // SAFETY: the last byte is the terminator; NUL bytes before it only shorten what C's own functions see.
        Self(unsafe { CString::from_vec_with_nul_unchecked(bytes) })
    }

    /// A copy.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.0.as_bytes()).into_owned()
    }

    /// A view of it.
    pub fn view(&self) -> tw_str {
        let bytes = self.0.as_bytes();
        tw_str { ptr: bytes.as_ptr().cast(), len: bytes.len() }
    }
}

/// A view of nothing.
pub const EMPTY: tw_str = tw_str { ptr: c"".as_ptr(), len: 0 };

/// What is behind a `tw_error`.
pub struct Failure {
    pub error: Error,
    pub code: Text,
    pub message: Text,
    pub json: Text,
}

/// A handle to an error.
pub fn error_handle(error: &Error) -> *mut tw_error {
    let failure = Failure {
        code: Text::new(error.code().as_str()),
        message: Text::new(error.message()),
        json: Text::new(error_value(error).to_text()),
        error: error.clone(),
    };
    handles::insert(Kind::Error, Object::Shared(Arc::new(failure))) as *mut tw_error
}

/// A handle to text.
pub fn buf_handle(text: impl Into<Vec<u8>>) -> *mut tw_buf {
    handles::insert(Kind::Buf, Object::Shared(Arc::new(Text::new(text)))) as *mut tw_buf
}

/// Runs the body of a function of the interface.
pub fn enter(error: *mut *mut tw_error, body: impl FnOnce() -> Result<tw_status>) -> tw_status {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        // The panic may have left the runtime of this thread in pieces.
        crate::runtime::poison_current();
        let message = format!("the library panicked: {}; please report it", panic_text(&*panic));
        Err(Error::new(Code::Panic, message))
    });
    match result {
        Ok(status) => status,
        Err(failed) => {
            let status = failed.code().number();
            if !error.is_null() {
                // SAFETY: the interface asks for a pointer to write an error handle to, or NULL.
                unsafe { error.write(error_handle(&failed)) };
            }
            status
        }
    }
}

/// As [`enter`], for functions that cannot fail.
pub fn quietly(body: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        crate::runtime::poison_current();
    }
}

/// Where an output goes; known to be writable.
pub struct Out<T>(*mut T);

/// Checks an output that must be given.
pub fn out<T>(target: *mut T, name: &str) -> Result<Out<T>> {
    if target.is_null() {
        return Err(Error::new(Code::InvalidArgument, format!("`{name}` is NULL, and the result has to go somewhere")));
    }
    Ok(Out(target))
}

/// An output that may be left out.
pub fn maybe<T>(target: *mut T) -> Option<Out<T>> {
    (!target.is_null()).then_some(Out(target))
}

impl<T> Out<T> {
    /// Writes the output.
    pub fn set(self, value: T) -> tw_status {
        // SAFETY: not NULL, and the interface asks for a pointer to a `T` that is valid during the call.
        unsafe { self.0.write(value) };
        TW_OK
    }
}

impl Out<*mut tw_buf> {
    /// Writes text.
    pub fn text(self, text: impl Into<Vec<u8>>) -> tw_status {
        self.set(buf_handle(text))
    }
}

/// Checks and copies a text.
pub fn text(view: tw_str, name: &str) -> Result<String> {
    let bad = |what: &str| Error::new(Code::InvalidArgument, format!("`{name}` {what}"));
    if view.len == 0 {
        return Ok(String::new());
    }
    if view.ptr.is_null() {
        return Err(bad("is NULL with a length that is not 0"));
    }
    if view.len > isize::MAX as usize {
        return Err(bad("has a length that no text can have"));
    }
    // SAFETY: not NULL; the interface asks for `len` readable bytes at `ptr` during the call, and `len` fits an isize.
    let bytes = unsafe { std::slice::from_raw_parts(view.ptr.cast::<u8>(), view.len) };
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|error| bad(&format!("is not UTF-8 (the first bad byte is at {})", error.valid_up_to())))
}

/// A text that must not be empty.
pub fn name(view: tw_str, what: &str) -> Result<String> {
    let text = text(view, what)?;
    if text.is_empty() {
        return Err(Error::new(Code::InvalidArgument, format!("`{what}` is empty")));
    }
    Ok(text)
}

/// Reads JSON; no text stands for null.
pub fn json(view: tw_str, name: &str) -> Result<Value> {
    let text = text(view, name)?;
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    parse(&text).map_err(|error| Error::new(Code::InvalidJson, format!("`{name}`: {error}")))
}

/// The shared value behind a handle.
pub fn shared<H: Handle, T: Send + Sync + 'static>(handle: *const H) -> Result<Arc<T>> {
    handles::shared(H::KIND, handle as usize)
}

/// Adds a reference for C.
pub fn retain<H: Handle>(handle: *const H) {
    quietly(|| {
        // What is no live handle has nothing to count.
        let _ = handles::retain(H::KIND, handle as usize);
    });
}

/// Takes a reference of C away.
pub fn release<H: Handle>(handle: *const H) {
    quietly(|| handles::release(H::KIND, handle as usize));
}

/// `user_data` and what frees it. The callback may be called on the runtime's thread only, and freed anywhere.
pub struct UserData {
    pub ptr: *mut c_void,
    drop: crate::types::tw_drop_fn,
}

// SAFETY: the interface says that `user_data` is handed to the runtime's thread, and that `drop` may run on any thread.
unsafe impl Send for UserData {}
// SAFETY: as above; the library itself never reads through the pointer.
unsafe impl Sync for UserData {}

impl UserData {
    /// Takes over what a registration was given. From here on `drop` runs exactly once.
    pub fn new(ptr: *mut c_void, drop: crate::types::tw_drop_fn) -> Self {
        Self { ptr, drop }
    }
}

impl Drop for UserData {
    fn drop(&mut self) {
        if let Some(free) = self.drop {
            // SAFETY: the interface asks for a function that frees `user_data`; this is the one call of it.
            unsafe { free(self.ptr) };
        }
    }
}

/// A function that must be given.
pub fn function<F>(function: Option<F>) -> Result<F> {
    function.ok_or_else(|| Error::new(Code::InvalidArgument, "the callback is NULL"))
}

/// Where a runtime lives.
pub enum RuntimeOptions {
    /// On a thread of the library.
    Threaded,
    /// On the thread that makes it.
    Hosted,
}

impl RuntimeOptions {
    /// Reads `{"mode"?}`.
    pub fn read(value: &Value) -> Result<Self> {
        let options = Options::new(value, "a runtime")?;
        let mode = options.text("mode")?;
        options.finish()?;
        match mode.as_deref() {
            None | Some("threaded") => Ok(Self::Threaded),
            Some("hosted") => Ok(Self::Hosted),
            Some(other) => {
                let message = format!("the mode of a runtime is threaded or hosted, not {other:?}");
                Err(Error::new(Code::InvalidArgument, message))
            }
        }
    }
}

/// Takes the text out of a buffer that the host gives back, and frees it.
pub fn take_buf(buf: *mut tw_buf) -> Option<String> {
    let text = shared::<tw_buf, Text>(buf).ok().map(|text| text.text());
    release(buf);
    text
}
