//! The entries of model routes: adapters, doubles around them, and what is done when a request fails.

use crate::callbacks::Callback;
use crate::entries::{call, json_at, registered};
use crate::host::Host;
use crate::raw::{Arguments, Js};
use std::rc::Rc;
use turnwheel::Context;
use turnwheel::error::Result;
use turnwheel::host::{self, Options};
use turnwheel::json::Value;
use turnwheel::llm::{Adapter, fallback, retry};

/// The adapter of `{"kind", …}` (a built-in one), `{"own": callback, "models"?}` (one that JavaScript writes) or
/// `{"double": {"kind", …}, "inner"?: adapter}`.
fn adapter(host: &Rc<Host>, value: &Value) -> Result<Rc<dyn Adapter>> {
    if let Some(double) = value.get("double") {
        let inner = value.get("inner").map(|inner| adapter(host, inner)).transpose()?;
        return host::model_double(Options::new(double, "a double for a model")?, inner);
    }
    let options = Options::new(value, "a model adapter")?;
    let Some(id) = options.count("own")? else { return host::adapter(options) };
    let mut own = Callback::new(host, id).adapter();
    for (name, info) in options.members("models")?.iter() {
        let known = host::model_info(Options::new(info, &format!("model `{name}`"))?)?;
        own = own.model(name, known);
    }
    options.finish()?;
    Ok(Rc::new(own))
}

/// `model(core, ctx, provider, adapter, route) -> registration`
pub fn model(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let ctx = host.get::<Context>(arguments.key(1))?;
        let adapter = adapter(host, &json_at(arguments, 3)?)?;
        let route = json_at(arguments, 4)?;
        let route = host::route_options(Options::new(&route, "a model route")?)?;
        let registration = ctx.llm().register_with(&[&arguments.text(2)], adapter, route)?;
        Ok(registered(host, arguments, registration))
    })
}

/// `retry(core, ctx) -> registration`
pub fn retry(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let ctx = host.get::<Context>(arguments.key(1))?;
        Ok(registered(host, arguments, retry::install(&ctx)?))
    })
}

/// `fallback(core, ctx, routes) -> registration`
pub fn fallback(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let (ctx, routes) = (host.get::<Context>(arguments.key(1))?, json_at(arguments, 2)?);
        let read = |value| Options::new(value, "a fallback route").and_then(host::fallback_route);
        let routes = routes.as_array().unwrap_or_default().iter().map(read).collect::<Result<Vec<_>>>()?;
        Ok(registered(host, arguments, fallback::install(&ctx, routes)?))
    })
}
