//! The entries of what a context rules: how tools are presented, types of events, invariants, and whose doing something is.

use crate::entries::{call, json, json_at, registered};
use crate::raw::{Arguments, Js};
use crate::realm;
use turnwheel::Context;
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::Options;
use turnwheel::invariants::{Invariants, InvariantsConfig};
use turnwheel::json::Value;
use turnwheel::tools::{Presentation, schema_of_shorthand};

/// `present(core, ctx, mode) -> registration`
pub fn present(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let (ctx, mode) = (host.get::<Context>(arguments.key(1))?, arguments.text(2));
        let unknown =
            || Error::new(Code::InvalidArgument, format!("a presentation is native, code or both, not {mode:?}"));
        let mode = Presentation::parse(&mode).ok_or_else(unknown)?;
        Ok(registered(host, arguments, ctx.tools().present(mode)?))
    })
}

/// `registerEventType(core, ctx, type, version)`
pub fn register_event_type(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let ctx = host.get::<Context>(arguments.key(1))?;
        let version = arguments.number(3);
        if version.fract() != 0.0 || !(0.0..=f64::from(u32::MAX)).contains(&version) {
            let message = format!("the version of an event type is a whole number, not {version}");
            return Err(Error::new(Code::InvalidArgument, message));
        }
        ctx.register_event_type(&arguments.text(2), version as u32)?;
        Ok(None)
    })
}

/// `invariants(core, ctx, {allow?, block?}) -> registration`
pub fn invariants(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let (ctx, value) = (host.get::<Context>(arguments.key(1))?, json_at(arguments, 2)?);
        let options = Options::new(&value, "invariants")?;
        let config = InvariantsConfig {
            enabled: true,
            package_allowlist: options.texts("allow")?.unwrap_or_default(),
            package_blocklist: options.texts("block")?.unwrap_or_default(),
        };
        options.finish()?;
        let installed = Invariants::load(&config)?.register_core(&ctx)?;
        let end = move || {
            for registration in installed.iter().rev() {
                registration.dispose();
            }
        };
        Ok(registered(host, arguments, ctx.effect(end)?))
    })
}

/// `requireInitiator(core, callerSeat, callerContext) -> seat`
pub fn require_initiator(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let (seat, context) = (arguments.key(1), arguments.key(2));
        let agent = host.as_caller(seat, context, || host.ctx.require_initiator())?;
        Ok(Some(arguments.env.number(host.seat_of(&agent) as f64)))
    })
}

/// `schemaOfShorthand(json) -> json`
pub fn shorthand(arguments: &Arguments) -> Option<Js> {
    let schema = || -> Result<Value> { schema_of_shorthand(&json(&arguments.text(0))?) };
    match schema() {
        Ok(schema) => Some(arguments.env.text(&schema.to_text())),
        Err(error) => realm::throw(arguments.env, None, &error),
    }
}
