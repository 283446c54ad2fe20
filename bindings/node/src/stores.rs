//! Stores: those that JavaScript writes, copying between stores, the store suite, and what JSONL files tell by themselves.

use crate::callbacks::Callback;
use crate::entries::{call, json_at};
use crate::host::Host;
use crate::promises::Answer;
use crate::raw::{Arguments, Js};
use std::cell::OnceCell;
use std::rc::{Rc, Weak};
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::{self, HostStore, Options, StoreCall, StoreObject, copied_value};
use turnwheel::id::SessionId;
use turnwheel::json::{Object, Value};
use turnwheel::runtime::{LocalBoxFuture, Runtime};
use turnwheel::storage::Store;
use turnwheel::storage::jsonl::{Compression, JsonlOptions, JsonlStore};

/// The core that a store works for, and the function that calls its methods; filled once the core is there.
pub type StoreCell = Rc<OnceCell<(Weak<Host>, Callback)>>;

struct JsStore(StoreCell);

impl StoreObject for JsStore {
    fn call(&self, call: StoreCall) -> LocalBoxFuture<Result<Value>> {
        let known = self.0.get().map(|(_, callback)| callback.clone());
        Box::pin(async move {
            let callback = known.ok_or_else(closed)?;
            let mut request = vec![Value::from(call.method), call.writer];
            request.extend(call.arguments);
            callback.store_call(&Value::Array(request).to_text()).await
        })
    }

    fn runtime(&self) -> Result<Runtime> {
        let host = self.0.get().and_then(|(host, _)| host.upgrade()).ok_or_else(closed)?;
        Ok(host.runtime.clone())
    }
}

fn closed() -> Error {
    Error::new(Code::RuntimeClosed, "the context is closed")
}

/// A store that JavaScript writes, for a core that is still to be made.
pub fn js_store(cell: StoreCell) -> HostStore {
    HostStore::new(JsStore(cell))
}

/// The store of `{"object": callback}`, or of options.
fn store(host: &Rc<Host>, value: &Value) -> Result<Rc<dyn Store>> {
    match value.get("object").and_then(Value::as_u64) {
        Some(id) => {
            let cell = StoreCell::default();
            let _ = cell.set((Rc::downgrade(host), Callback::new(host, id)));
            Ok(Rc::new(js_store(cell)))
        }
        None => host::store(Options::new(value, "a store")?),
    }
}

/// `copySession(core, promise, store, id, imports)`: resolves with what was copied.
pub fn copy_session(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let (ctx, other) = (host.ctx.clone(), store(host, &json_at(arguments, 2)?)?);
        let (id, imports) = (arguments.text(3), arguments.flag(4));
        host.export(arguments.key(1), async move {
            let copied = match imports {
                true => ctx.import_session(&*other, id).await?,
                false => ctx.export_session(&*other, id).await?,
            };
            Ok(copied_value(&copied))
        });
        Ok(None)
    })
}

/// `storeCases() -> json`: the names of the cases of the store suite.
pub fn store_cases(arguments: &Arguments) -> Option<Js> {
    let cases: Vec<Value> = turnwheel::testing::store_cases().map(Value::from).collect();
    Some(arguments.env.text(&Value::Array(cases).to_text()))
}

/// `checkStore(core, promise, case, open)`: runs one case of the store suite.
pub fn check_store(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let (case, open) = (arguments.text(2), Callback::new(host, arguments.key(3)));
        let weak = Rc::downgrade(host);
        let open = move || {
            let host = weak.upgrade().ok_or_else(closed)?;
            store(&host, &open.value()?)
        };
        host.export(arguments.key(1), async move { turnwheel::testing::check_store(&case, open).await });
        Ok(None)
    })
}

/// `jsonl(core, promise, path, compressed, question, id)`: what files below a folder tell: `list`, `locate`, `revision`
/// or `read`.
pub fn jsonl(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let compression = if arguments.flag(3) { Compression::Zstd } else { Compression::None };
        let store = JsonlStore::new(JsonlOptions::new(arguments.text(2)).compression(compression));
        let (question, id) = (arguments.text(4), SessionId::from(arguments.text(5)));
        host.export(arguments.key(1), async move {
            let text = |text: String| Answer::Json(text);
            Ok::<_, Error>(match question.as_str() {
                "list" => {
                    let row = |(header, revision): (turnwheel::session::SessionHeader, _)| {
                        Value::Array(vec![header.to_value(), Value::from(format!("{revision}"))])
                    };
                    let fits = |rows: Vec<_>| Value::Array(rows.into_iter().map(row).collect());
                    fits(store.list_revisions().await?).into()
                }
                "locate" => match store.locate(&id).await? {
                    Some(path) => text(path.to_string_lossy().into_owned()),
                    None => Answer::Nothing,
                },
                "revision" => store.revision(&id).await?.map_or(Answer::Nothing, |revision| text(revision.to_string())),
                _ => match store.read_raw(&id).await? {
                    Some(raw) => {
                        let mut object = Object::new();
                        object.insert("header", raw.header.to_value());
                        object.insert("fileName", raw.file_name);
                        object.insert("text", String::from_utf8_lossy(&raw.text).into_owned());
                        Value::Object(object).into()
                    }
                    None => Answer::Nothing,
                },
            })
        });
        Ok(None)
    })
}
