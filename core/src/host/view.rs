//! A live session as a timeline, by options: `{"prices"?, "full"?, "color"?}`.

use super::Options;
use crate::error::{Code, Error, Result};
use crate::json::Value;
use crate::session::{Event, Session, SessionHeader};
use crate::view::{HtmlOptions, Price, Prices, TextOptions, render_html, render_text};
use std::sync::Arc;

/// The page of a session as it is now. `{"prices": {"provider/model": {"input", "output", "cacheRead"?, "cacheWrite"?}}?}`,
/// each the cost of a million tokens.
pub fn session_html(session: &Session, options: &Value) -> Result<String> {
    log_html(session.header(), &session.events_from(0), options)
}

/// As [`session_html`], of a log that was read.
pub fn log_html(header: &SessionHeader, events: &[Arc<Event>], options: &Value) -> Result<String> {
    let options = Options::new(options, "a page")?;
    let page = HtmlOptions { prices: prices(&options)? };
    options.finish()?;
    let mut out = Vec::new();
    render_html(header, events, &page, &mut out, &mut |_, _| {}).expect("memory takes what is written");
    Ok(String::from_utf8(out).expect("renderers write text"))
}

/// The timeline of a session as it is now, as text. `prices` as for a page; `full` shows every text whole, `color` uses the
/// colours of a terminal.
pub fn session_text(session: &Session, options: &Value) -> Result<String> {
    log_text(session.header(), &session.events_from(0), options)
}

/// As [`session_text`], of a log that was read.
pub fn log_text(header: &SessionHeader, events: &[Arc<Event>], options: &Value) -> Result<String> {
    let options = Options::new(options, "a timeline")?;
    let timeline = TextOptions {
        color: options.flag("color", false)?,
        full: options.flag("full", false)?,
        prices: prices(&options)?,
    };
    options.finish()?;
    let mut out = Vec::new();
    render_text(header, events, timeline, &mut out, &mut |_, _| {}).expect("memory takes what is written");
    Ok(String::from_utf8(out).expect("renderers write text"))
}

fn prices(options: &Options<'_>) -> Result<Prices> {
    let mut prices = Prices::new();
    for (model, value) in options.members("prices")?.iter() {
        let figures = Options::new(value, "a price")?;
        let figure = |name: &str| figures.number(name);
        let required = |name: &str| {
            let message = format!("the price of {model} needs `{name}`, the cost of a million tokens");
            figure(name)?.ok_or_else(|| Error::new(Code::InvalidArgument, message))
        };
        let price = Price {
            input: required("input")?,
            output: required("output")?,
            cache_read: figure("cacheRead")?.unwrap_or_default(),
            cache_write: figure("cacheWrite")?.unwrap_or_default(),
        };
        figures.finish()?;
        prices.insert(model.to_owned(), price);
    }
    Ok(prices)
}
