//! The entries of `turnwheel/view`: logs to look at, without a core. Blocking.

use crate::entries::json_at;
use crate::raw::{Arguments, Js};
use crate::realm::{self, next_id};
use rustc_hash::FxHashMap as HashMap;
use std::cell::RefCell;
use std::rc::Rc;
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::{log_html, log_text};
use turnwheel::json::Value;
use turnwheel::storage::{LogSource, StoredLog, Verdict};

thread_local! {
    /// The logs that JavaScript has objects for.
    static LOGS: RefCell<HashMap<u64, Rc<StoredLog>>> = RefCell::default();
}

fn answer(arguments: &Arguments, answer: impl FnOnce() -> Result<Js>) -> Option<Js> {
    match answer() {
        Ok(value) => Some(value),
        Err(error) => realm::throw(arguments.env, None, &error),
    }
}

fn source(arguments: &Arguments) -> Result<LogSource> {
    LogSource::at(arguments.text(0))
}

fn log(arguments: &Arguments) -> Result<Rc<StoredLog>> {
    let log = LOGS.with(|logs| logs.borrow().get(&arguments.key(0)).cloned());
    log.ok_or_else(|| Error::new(Code::InvalidArgument, "this log was let go of"))
}

/// `viewList(path, after?, limit) -> json`: a page of headers.
pub fn list(arguments: &Arguments) -> Option<Js> {
    answer(arguments, || {
        let limit = usize::try_from(arguments.key(2)).unwrap_or(usize::MAX);
        let headers = source(arguments)?.list(arguments.optional_text(1).as_deref(), limit)?;
        let headers = headers.iter().map(|header| header.to_value()).collect();
        Ok(arguments.env.text(&Value::Array(headers).to_text()))
    })
}

/// `viewRead(path, id?) -> log`
pub fn read(arguments: &Arguments) -> Option<Js> {
    answer(arguments, || {
        let log = source(arguments)?.read(arguments.optional_text(1).as_deref())?;
        let key = next_id();
        LOGS.with(|logs| logs.borrow_mut().insert(key, Rc::new(log)));
        Ok(arguments.env.number(key as f64))
    })
}

/// `viewRelease(log)`
pub fn release(arguments: &Arguments) -> Option<Js> {
    let log = LOGS.with(|logs| logs.borrow_mut().remove(&arguments.key(0)));
    drop(log);
    None
}

/// `viewSource(path, question, id?) -> text`: `text`, `revision` or `repair`.
pub fn ask(arguments: &Arguments) -> Option<Js> {
    answer(arguments, || {
        let (source, id) = (source(arguments)?, arguments.optional_text(2));
        let text = match arguments.text(1).as_str() {
            "text" => String::from_utf8_lossy(&source.text(id.as_deref())?).into_owned(),
            "revision" => source.revision(id.as_deref())?,
            _ => source.repair(id.as_deref())?.to_string(),
        };
        Ok(arguments.env.text(&text))
    })
}

/// `viewFacts(log) -> json`: `{"header", "length", "verdict"}`.
pub fn facts(arguments: &Arguments) -> Option<Js> {
    answer(arguments, || {
        let log = log(arguments)?;
        let facts = turnwheel::json!({
            "header": log.header.to_value(),
            "length": log.events.len() as u64,
            "verdict": Verdict::of(&log).to_value(),
        });
        Ok(arguments.env.text(&facts.to_text()))
    })
}

/// `viewRender(log, asPage, {color?, full?, prices?}) -> text`: the timeline, as text or as a page.
pub fn render(arguments: &Arguments) -> Option<Js> {
    answer(arguments, || {
        let (log, options) = (log(arguments)?, json_at(arguments, 2)?);
        let text = match arguments.flag(1) {
            true => log_html(&log.header, &log.events.to_vec(), &options)?,
            false => log_text(&log.header, &log.events.to_vec(), &options)?,
        };
        Ok(arguments.env.text(&text))
    })
}
