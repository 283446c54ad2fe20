//! The few Node-API calls that everything here is made of. All `unsafe` code of the binding is in this file.
//!
//! Only text, numbers and truth values cross the border, and a handful of JavaScript functions that are called with
//! them. A call that fails because JavaScript cannot run any more (a worker being terminated) gives nothing back, and
//! nothing here ever asserts a status.

#![allow(unsafe_code)]

use napi::sys;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

/// A value of JavaScript, valid until the scope it was made in closes.
pub type Js = sys::napi_value;

/// The environment of one JavaScript thread. Only ever used on that thread.
#[derive(Clone, Copy)]
pub struct Env(sys::napi_env);

/// What a native function does with its arguments: a value, or nothing for `undefined`.
pub type Entry = fn(&Arguments) -> Option<Js>;

/// The most arguments an entry takes.
pub const MAX_ARGUMENTS: usize = 10;

/// The arguments of one call.
pub struct Arguments {
    /// Where it was called.
    pub env: Env,
    values: [Js; MAX_ARGUMENTS],
    count: usize,
}

/// A JavaScript function that native code keeps.
pub struct Function(sys::napi_ref);

impl Env {
    /// Takes an environment as Node-API gave it.
    pub fn from_raw(env: sys::napi_env) -> Self {
        Self(env)
    }

    /// Runs `f` in a handle scope: what it makes is freed when it returns.
    pub fn scoped<T>(self, f: impl FnOnce() -> T) -> T {
        let mut scope = null_mut();
        // SAFETY: the environment is live on this thread; the scope is closed below, once, if it was opened.
        let opened = unsafe { sys::napi_open_handle_scope(self.0, &mut scope) } == sys::Status::napi_ok;
        let result = f();
        if opened {
            // SAFETY: as above; `f` returned no handle.
            unsafe { sys::napi_close_handle_scope(self.0, scope) };
        }
        result
    }

    /// Makes a value with a function of Node-API.
    fn make(self, make: impl FnOnce(*mut Js) -> sys::napi_status) -> Js {
        let mut value = null_mut();
        if make(&mut value) == sys::Status::napi_ok { value } else { null_mut() }
    }

    /// `undefined`.
    pub fn undefined(self) -> Js {
        // SAFETY: the environment is live on this thread, and the result is a valid place.
        self.make(|value| unsafe { sys::napi_get_undefined(self.0, value) })
    }

    /// A number.
    pub fn number(self, number: f64) -> Js {
        // SAFETY: as in `undefined`.
        self.make(|value| unsafe { sys::napi_create_double(self.0, number, value) })
    }

    /// A small number.
    pub fn index(self, number: u32) -> Js {
        // SAFETY: as in `undefined`.
        self.make(|value| unsafe { sys::napi_create_uint32(self.0, number, value) })
    }

    /// A truth value.
    pub fn bool(self, truth: bool) -> Js {
        // SAFETY: as in `undefined`.
        self.make(|value| unsafe { sys::napi_get_boolean(self.0, truth, value) })
    }

    /// A text.
    pub fn text(self, text: &str) -> Js {
        // SAFETY: as in `undefined`; Node-API copies the bytes.
        self.make(|value| unsafe {
            sys::napi_create_string_utf8(self.0, text.as_ptr().cast(), text.len().cast_signed(), value)
        })
    }

    /// A text, or `undefined`.
    pub fn text_or_undefined(self, text: Option<&str>) -> Js {
        text.map_or_else(|| self.undefined(), |text| self.text(text))
    }

    /// The text of a string value; lone surrogates become U+FFFD (D-22).
    pub fn get_text(self, value: Js) -> Option<String> {
        let mut length = 0;
        // SAFETY: a null buffer asks for the length only.
        let status = unsafe { sys::napi_get_value_string_utf8(self.0, value, null_mut(), 0, &mut length) };
        if status != sys::Status::napi_ok {
            return None;
        }
        let mut bytes = vec![0u8; length + 1];
        // SAFETY: the buffer holds the text and the zero that Node-API writes behind it.
        let status = unsafe {
            sys::napi_get_value_string_utf8(self.0, value, bytes.as_mut_ptr().cast(), bytes.len(), &mut length)
        };
        if status != sys::Status::napi_ok {
            return None;
        }
        bytes.truncate(length);
        Some(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// The number of a number value.
    pub fn get_number(self, value: Js) -> Option<f64> {
        let mut number = 0.0;
        // SAFETY: as in `undefined`.
        let status = unsafe { sys::napi_get_value_double(self.0, value, &mut number) };
        (status == sys::Status::napi_ok).then_some(number)
    }

    /// The truth of a boolean value.
    pub fn get_bool(self, value: Js) -> Option<bool> {
        let mut truth = false;
        // SAFETY: as in `undefined`.
        let status = unsafe { sys::napi_get_value_bool(self.0, value, &mut truth) };
        (status == sys::Status::napi_ok).then_some(truth)
    }

    /// Keeps a function.
    pub fn keep(self, function: Js) -> Option<Function> {
        let mut reference = null_mut();
        // SAFETY: the value is live in the caller's scope.
        let status = unsafe { sys::napi_create_reference(self.0, function, 1, &mut reference) };
        (status == sys::Status::napi_ok).then_some(Function(reference))
    }

    /// Calls a kept function. `None` when it threw, which the functions of the JavaScript half do only when JavaScript
    /// cannot run any more; a pending exception is taken away, so that the next call does not trip over it.
    pub fn call(self, function: &Function, arguments: &[Js]) -> Option<Js> {
        let (mut callee, mut result) = (null_mut(), null_mut());
        // SAFETY: the reference belongs to this environment; a null receiver is not allowed, `undefined` is.
        let status = unsafe { sys::napi_get_reference_value(self.0, function.0, &mut callee) };
        if status != sys::Status::napi_ok || callee.is_null() {
            return None;
        }
        let receiver = self.undefined();
        // SAFETY: all values are live in the current scope.
        let status = unsafe {
            sys::napi_call_function(self.0, receiver, callee, arguments.len(), arguments.as_ptr(), &mut result)
        };
        if status == sys::Status::napi_ok {
            return Some(result);
        }
        let mut thrown = null_mut();
        // SAFETY: as above; fails harmlessly without an exception.
        unsafe { sys::napi_get_and_clear_last_exception(self.0, &mut thrown) };
        None
    }

    /// Makes `error` the exception of the native function under way.
    pub fn throw(self, error: Js) {
        // SAFETY: as in `undefined`.
        unsafe { sys::napi_throw(self.0, error) };
    }

    /// Makes `function` a member of `exports`.
    pub fn export(self, exports: Js, name: &str, entry: &'static Entry) {
        let (name_ptr, name_len) = (name.as_ptr().cast(), name.len().cast_signed());
        let data = std::ptr::from_ref(entry).cast_mut().cast::<c_void>();
        // SAFETY: `entry` lives for ever; `trampoline` reads it back as what it is.
        let function = self.make(|value| unsafe {
            sys::napi_create_function(self.0, name_ptr, name_len, Some(trampoline), data, value)
        });
        let key = self.text(name);
        // SAFETY: all values are live in the scope of the module's registration.
        unsafe { sys::napi_set_property(self.0, exports, key, function) };
    }

    /// Tells the garbage collector how much more (or less) memory its objects hold on to outside its heap.
    pub fn adjust_external(self, bytes: i64) {
        let mut total = 0;
        // SAFETY: the environment is live on this thread; the place is valid.
        unsafe { sys::napi_adjust_external_memory(self.0, bytes, &mut total) };
    }

    /// Calls `hook` when this environment ends, while its thread still is.
    pub fn on_cleanup(self, hook: unsafe extern "C" fn(*mut c_void)) {
        // SAFETY: the hook takes no argument.
        unsafe { sys::napi_add_env_cleanup_hook(self.0, Some(hook), null_mut()) };
    }
}

impl Arguments {
    fn get(&self, at: usize) -> Js {
        if at < self.count { self.values[at] } else { self.env.undefined() }
    }

    /// The number at a position; 0 for anything else.
    pub fn number(&self, at: usize) -> f64 {
        self.env.get_number(self.get(at)).unwrap_or_default()
    }

    /// The key at a position.
    pub fn key(&self, at: usize) -> u64 {
        self.number(at) as u64
    }

    /// The truth at a position; false for anything else.
    pub fn flag(&self, at: usize) -> bool {
        self.env.get_bool(self.get(at)).unwrap_or_default()
    }

    /// The text at a position, if it is one.
    pub fn optional_text(&self, at: usize) -> Option<String> {
        self.env.get_text(self.get(at))
    }

    /// The text at a position; empty for anything else.
    pub fn text(&self, at: usize) -> String {
        self.optional_text(at).unwrap_or_default()
    }

    /// Keeps the function at a position.
    pub fn function(&self, at: usize) -> Option<Function> {
        self.env.keep(self.get(at))
    }
}

/// Every native function comes in here. A panic becomes an exception with the code `PANIC`.
extern "C" fn trampoline(env: sys::napi_env, info: sys::napi_callback_info) -> Js {
    let mut values = [null_mut(); MAX_ARGUMENTS];
    let (mut count, mut data) = (MAX_ARGUMENTS, null_mut());
    // SAFETY: Node-API calls this with a live environment; the places are valid.
    let status = unsafe { sys::napi_get_cb_info(env, info, &mut count, values.as_mut_ptr(), null_mut(), &mut data) };
    if status != sys::Status::napi_ok || data.is_null() {
        return null_mut();
    }
    // SAFETY: `export` stored a `&'static Entry`.
    let entry = unsafe { *data.cast_const().cast::<Entry>() };
    let arguments = Arguments { env: Env(env), values, count: count.min(MAX_ARGUMENTS) };
    match catch_unwind(AssertUnwindSafe(|| entry(&arguments))) {
        Ok(answer) => answer.unwrap_or(null_mut()),
        Err(panic) => {
            let _ = catch_unwind(AssertUnwindSafe(|| crate::realm::panicked(arguments.env, &*panic)));
            null_mut()
        }
    }
}

/// Wakes one JavaScript thread from any other. Gone before its environment is.
pub struct Waker(sys::napi_threadsafe_function);

// SAFETY: `napi_call_threadsafe_function` may be called on any thread; the owner guards the handle's life with a lock.
unsafe impl Send for Waker {}

impl Waker {
    /// A waker that calls `woken` on this environment's thread. It does not keep the process alive until told to.
    pub fn new(env: Env, woken: fn(Env)) -> Option<Self> {
        let name = env.text("turnwheel");
        let mut handle = null_mut();
        // SAFETY: no JavaScript function is given, so the native callback is called with the context, a `fn(Env)`.
        let status = unsafe {
            sys::napi_create_threadsafe_function(
                env.0,
                null_mut(),
                null_mut(),
                name,
                0,
                1,
                null_mut(),
                None,
                woken as *mut c_void,
                Some(on_wake),
                &mut handle,
            )
        };
        if status != sys::Status::napi_ok {
            return None;
        }
        // SAFETY: the handle was just made, on this thread.
        unsafe { sys::napi_unref_threadsafe_function(env.0, handle) };
        Some(Self(handle))
    }

    /// Wakes. Any thread.
    pub fn wake(&self) {
        // SAFETY: the owner drops this under its lock before the environment ends.
        unsafe { sys::napi_call_threadsafe_function(self.0, null_mut(), sys::ThreadsafeFunctionCallMode::nonblocking) };
    }

    /// Whether the process stays alive for this. The environment's thread only.
    pub fn keep_alive(&self, env: Env, alive: bool) {
        // SAFETY: as in `wake`, and on the environment's thread.
        unsafe {
            match alive {
                true => sys::napi_ref_threadsafe_function(env.0, self.0),
                false => sys::napi_unref_threadsafe_function(env.0, self.0),
            }
        };
    }
}

extern "C" fn on_wake(env: sys::napi_env, _: Js, context: *mut c_void, _: *mut c_void) {
    if env.is_null() || context.is_null() {
        return;
    }
    // SAFETY: `Waker::new` gave a `fn(Env)` as the context.
    let woken = unsafe { std::mem::transmute::<*mut c_void, fn(Env)>(context) };
    let _ = catch_unwind(AssertUnwindSafe(|| woken(Env(env))));
}
