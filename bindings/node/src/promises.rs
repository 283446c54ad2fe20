//! Promises, both ways. A core future settles a promise of JavaScript, by number; forgetting the number drops the
//! future. A callback of JavaScript that takes its time is a number, too, which its promise settles.

use crate::host::Host;
use crate::raw::{Env, Js};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use turnwheel::error::{Code, Error, Result};
use turnwheel::json::Value;
use turnwheel::runtime::LocalBoxFuture;

/// What a promise resolves with.
pub enum Answer {
    /// `undefined`.
    Nothing,
    /// JSON text.
    Json(String),
    /// A number, for example a key.
    Number(u64),
}

impl From<()> for Answer {
    fn from((): ()) -> Self {
        Answer::Nothing
    }
}

impl From<Value> for Answer {
    fn from(value: Value) -> Self {
        Answer::Json(value.to_text())
    }
}

impl Answer {
    fn to_js(&self, env: Env) -> Js {
        match self {
            Answer::Nothing => env.undefined(),
            Answer::Json(text) => env.text(text),
            Answer::Number(number) => env.number(*number as f64),
        }
    }
}

/// A core future that a promise waits for.
pub struct Exported {
    future: RefCell<Option<LocalBoxFuture<()>>>,
    is_dropped: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Exported {
    fn poll(&self, context: &mut TaskContext<'_>) -> Poll<()> {
        let taken = self.future.borrow_mut().take();
        let Some(mut future) = taken else { return Poll::Ready(()) };
        if future.as_mut().poll(context).is_ready() || self.is_dropped.get() {
            return Poll::Ready(());
        }
        *self.waker.borrow_mut() = Some(context.waker().clone());
        *self.future.borrow_mut() = Some(future);
        Poll::Pending
    }

    /// Drops the future.
    pub fn give_up(&self) {
        self.is_dropped.set(true);
        let future = self.future.borrow_mut().take();
        drop(future);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A promise of JavaScript, to be settled once; dropped unsettled it fails, so that nobody waits for a core that is
/// closed or has panicked.
struct Promise {
    host: Rc<Host>,
    id: u64,
    is_settled: bool,
}

impl Promise {
    fn settle(&mut self, result: &Result<Answer>) {
        if std::mem::replace(&mut self.is_settled, true) {
            return;
        }
        let (env, host) = (self.host.realm.env, &self.host);
        env.scoped(|| {
            let (is_ok, value) = match result {
                Ok(answer) => (true, answer.to_js(env)),
                Err(error) => (false, host.error(error)),
            };
            let arguments = [env.number(host.id as f64), env.number(self.id as f64), env.bool(is_ok), value];
            env.call(&host.realm.js.settled, &arguments);
        });
        self.host.drop_exported(self.id);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let error = if std::thread::panicking() {
            Error::new(Code::Panic, "the runtime panicked while this was awaited; this is a bug of turnwheel")
        } else {
            Error::new(Code::RuntimeClosed, "the context was closed while this was awaited")
        };
        self.settle(&Err(error));
    }
}

impl Host {
    /// Settles the promise `id` with `future`, which is polled once before this returns.
    pub fn export<T: Into<Answer>>(self: &Rc<Self>, id: u64, future: impl Future<Output = Result<T>> + 'static) {
        let mut promise = Promise { host: self.clone(), id, is_settled: false };
        let run: LocalBoxFuture<()> = Box::pin(async move {
            let result = future.await.map(Into::into);
            promise.settle(&result);
        });
        let exported = Rc::new(Exported {
            future: RefCell::new(Some(run)),
            is_dropped: Cell::new(false),
            waker: RefCell::default(),
        });
        self.exported.borrow_mut().insert(id, exported.clone());
        self.runtime.spawn(std::future::poll_fn(move |context| exported.poll(context)));
    }

    fn drop_exported(&self, id: u64) {
        let exported = self.exported.borrow_mut().remove(&id);
        drop(exported);
    }

    /// The future behind a promise, to be dropped: nobody waits for it any more.
    pub fn take_exported(&self, id: u64) -> Option<Rc<Exported>> {
        self.exported.borrow_mut().remove(&id)
    }
}

/// Where the answer of a callback is put.
#[derive(Default)]
pub struct Slot {
    result: RefCell<Option<Result<Option<String>>>>,
    waker: RefCell<Option<Waker>>,
}

/// A callback that JavaScript has not answered yet.
pub struct Pending {
    host: Rc<Host>,
    slot: Rc<Slot>,
    id: u64,
}

impl Future for Pending {
    type Output = Result<Option<String>>;

    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.slot.result.borrow_mut().take() {
            return Poll::Ready(result);
        }
        *self.slot.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let slot = self.host.pending.borrow_mut().remove(&self.id);
        drop(slot);
    }
}

/// What a callback is called with.
pub struct Call<'a> {
    /// The number of the function that JavaScript keeps.
    pub callback: u64,
    /// The number of the asynchronous context to call it in; 0 for the one it was registered in.
    pub context: u64,
    /// The seat it is about; 0 for none.
    pub seat: u64,
    /// What kind of callback it is; see `core.ts`.
    pub shape: Shape,
    /// The key of what it is about.
    pub key: u64,
    /// JSON to begin with.
    pub json: Option<&'a str>,
}

/// The kinds of callbacks.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Shape {
    /// A waterfall or serial listener: `(payload, next)`.
    Decide = 0,
    /// A tool's body: `(args, call)`.
    Tool = 1,
    /// An adapter: `(request, {signal})`.
    Adapter = 2,
    /// An agent's setup: `(scope)`.
    Setup = 3,
    /// A maintenance task: `({signal})`.
    Maintenance = 4,
    /// A computed text: `(agent)`. Answers at once.
    Text = 5,
    /// A question about arguments: `(args)`. Answers at once.
    Classify = 6,
    /// A finalizer: `(result)`. Answers at once.
    Finalize = 7,
    /// A signal fired: `(cause)`. Answers nothing.
    Aborted = 8,
    /// A check before something is committed or run: `(about)`. Refuses by throwing, or by a reason; answers at once.
    Check = 9,
    /// A method of a store: `(method, writer, argument…)`.
    Store = 10,
}

impl Host {
    /// Calls JavaScript. What it answers at once is there at once.
    pub fn invoke(self: &Rc<Self>, call: &Call<'_>) -> Pending {
        let id = crate::realm::next_id();
        let slot = Rc::new(Slot::default());
        self.pending.borrow_mut().insert(id, slot.clone());
        let env = self.realm.env;
        env.scoped(|| {
            let number = |number: u64| env.number(number as f64);
            let arguments = [
                number(self.id),
                number(id),
                number(call.callback),
                number(call.context),
                number(call.seat),
                env.index(call.shape as u32),
                number(call.key),
                env.text_or_undefined(call.json),
            ];
            let answer = env.call(&self.realm.js.invoke, &arguments);
            if let Some(text) = answer.and_then(|answer| env.get_text(answer)) {
                *slot.result.borrow_mut() = Some(Ok(Some(text)));
            }
        });
        Pending { host: self.clone(), slot, id }
    }

    /// Calls JavaScript for an answer at once; none when it gave none.
    pub fn ask(self: &Rc<Self>, call: &Call<'_>) -> Result<Option<String>> {
        let pending = self.invoke(call);
        let result = pending.slot.result.borrow_mut().take();
        result.unwrap_or(Ok(None))
    }

    /// A callback was answered.
    pub fn answer(&self, id: u64, result: Result<Option<String>>) {
        let slot = self.pending.borrow_mut().remove(&id);
        let Some(slot) = slot else { return };
        *slot.result.borrow_mut() = Some(result);
        let waker = slot.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
