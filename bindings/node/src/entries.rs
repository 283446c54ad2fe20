//! What entries have in common, and those of realms, cores and contexts. The first argument is always the core's number.

use crate::callbacks::Callback;
use crate::host::Host;
use crate::promises::Answer;
use crate::raw::{Arguments, Js};
use crate::realm::{self, Realm};
use crate::stores::{StoreCell, js_store};
use std::rc::Rc;
use turnwheel::agent::ModelSelection;
use turnwheel::config::ConfiguredAgent;
use turnwheel::context::Registration;
use turnwheel::error::{Code, Error, Result};
use turnwheel::host::{self, AgentSetup, ListenOptions, Options, Setup};
use turnwheel::id::SessionId;
use turnwheel::json::Value;
use turnwheel::runtime::Signal;
use turnwheel::{CancelCause, Context};

/// JSON text as JavaScript writes it.
pub fn json(text: &str) -> Result<Value> {
    let parsed = turnwheel::json::parse_lossy(text.as_bytes());
    Ok(parsed.map_err(|error| Error::new(Code::InvalidJson, error.to_string()))?.value)
}

/// The JSON at a position; null when it is not given.
pub fn json_at(arguments: &Arguments, at: usize) -> Result<Value> {
    arguments.optional_text(at).map_or(Ok(Value::Null), |text| json(&text))
}

/// A synchronous call of the user's.
pub fn call(arguments: &Arguments, operation: impl FnOnce(&Rc<Host>) -> Result<Option<Js>>) -> Option<Js> {
    let host = match realm::host(arguments.key(0)) {
        Ok(host) => host,
        Err(error) => return realm::throw(arguments.env, None, &error),
    };
    let result = operation(&host);
    host.realm.after_call(&host);
    result.unwrap_or_else(|error| realm::throw(arguments.env, Some(&host), &error))
}

/// A completion: something that JavaScript promised is there. Gives whether the core could go on at once.
pub fn complete(arguments: &Arguments, operation: impl FnOnce(&Rc<Host>) -> Result<()>) -> Option<Js> {
    let Ok(host) = realm::host(arguments.key(0)) else { return None };
    let result = operation(&host);
    let at_once = host.realm.after_completion(&host);
    match result {
        Ok(()) => Some(arguments.env.bool(at_once)),
        Err(error) => realm::throw(arguments.env, Some(&host), &error),
    }
}

/// Part of a completion: `flush` follows.
pub fn add(arguments: &Arguments, operation: impl FnOnce(&Rc<Host>) -> Result<()>) -> Option<Js> {
    let Ok(host) = realm::host(arguments.key(0)) else { return None };
    operation(&host).err().and_then(|error| realm::throw(arguments.env, Some(&host), &error))
}

/// `flush(core) -> bool`: lets the core go on with what was added; false asks to let the event loop have its turn.
pub fn flush(arguments: &Arguments) -> Option<Js> {
    complete(arguments, |_| Ok(()))
}

/// The callback at a position; 0 is none.
pub fn callback(host: &Rc<Host>, arguments: &Arguments, at: usize) -> Option<Callback> {
    let id = arguments.key(at);
    (id != 0).then(|| Callback::new(host, id))
}

/// The key of a registration.
pub fn registered(host: &Rc<Host>, arguments: &Arguments, registration: Registration) -> Option<Js> {
    Some(arguments.env.number(host.put(registration) as f64))
}

/// `attach(handlers…) -> realm`
pub fn attach(arguments: &Arguments) -> Option<Js> {
    Realm::attach(arguments).map(|id| arguments.env.number(id as f64))
}

/// `pump(realm, isNewSlice)`
pub fn pump(arguments: &Arguments) -> Option<Js> {
    realm::realm(arguments.key(0))?.run_scheduled(arguments.flag(1));
    None
}

/// `codes() -> json`: every error code with its number.
pub fn codes(arguments: &Arguments) -> Option<Js> {
    let codes: Vec<String> = Code::ALL.iter().map(|(name, number)| format!("\"{name}\":{number}")).collect();
    Some(arguments.env.text(&format!("{{{}}}", codes.join(","))))
}

/// `texts() -> json`: the runtime's own texts that reach a model, by key.
pub fn texts(arguments: &Arguments) -> Option<Js> {
    Some(arguments.env.text(&host::texts_value().to_text()))
}

/// `open(realm, options, store) -> core`; `store` calls the methods of a store that JavaScript writes.
pub fn open(arguments: &Arguments) -> Option<Js> {
    let realm = realm::realm(arguments.key(0))?;
    let open = || {
        let options = json_at(arguments, 1)?;
        let mut builder = host::context_builder(Options::new(&options, "a context")?)?;
        let (store, cell) = (arguments.key(2), StoreCell::default());
        if store != 0 {
            builder = builder.store(js_store(cell.clone()));
        }
        let host = Host::new(realm, builder.try_build()?)?;
        if store != 0 {
            let _ = cell.set((Rc::downgrade(&host), Callback::new(&host, store)));
        }
        Ok(host)
    };
    match open() {
        Ok(host) => Some(arguments.env.number(host.id as f64)),
        Err(error) => realm::throw(arguments.env, None, &error),
    }
}

/// `root(core) -> ctx`
pub fn root(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| Ok(Some(arguments.env.number(host.put(host.ctx.clone()) as f64))))
}

/// `kill(core)`: drops everything at once.
pub fn kill(arguments: &Arguments) -> Option<Js> {
    if let Ok(host) = realm::host(arguments.key(0)) {
        host.close();
        host.realm.after_call(&host);
    }
    None
}

/// `collected(core)`: JavaScript let go of a context without closing it.
pub fn collected(arguments: &Arguments) -> Option<Js> {
    if let Ok(host) = realm::host(arguments.key(0)) {
        host.end_unattended();
        host.realm.after_call(&host);
    }
    None
}

/// `release(core, key)`: JavaScript has no object of that key any more.
pub fn release(arguments: &Arguments) -> Option<Js> {
    if let Ok(host) = realm::host(arguments.key(0)) {
        host.remove(arguments.key(1));
        host.realm.after_call(&host);
    }
    None
}

/// `hold(core, seat)`: JavaScript has an object for a seat, and releases it later.
pub fn hold(arguments: &Arguments) -> Option<Js> {
    if let Ok(host) = realm::host(arguments.key(0)) {
        host.hold(arguments.key(1));
    }
    None
}

/// `answer(core, pending, isOk, json?)`: a callback's promise settled.
pub fn answer(arguments: &Arguments) -> Option<Js> {
    complete(arguments, |host| {
        let text = arguments.optional_text(3);
        let result = match arguments.flag(2) {
            true => Ok(text),
            false => Err(host.error_from(&text.unwrap_or_default())),
        };
        host.answer(arguments.key(1), result);
        Ok(())
    })
}

/// `giveUp(core, promise)`: nobody waits for a promise any more.
pub fn give_up(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        if let Some(exported) = host.take_exported(arguments.key(1)) {
            exported.give_up();
        }
        Ok(None)
    })
}

/// `close(core, promise, callerSeat, callerContext)`
pub fn close(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let ctx = host.ctx.clone();
        host.as_caller(arguments.key(2), arguments.key(3), || {
            host.export(arguments.key(1), async move { ctx.close().await });
        });
        Ok(None)
    })
}

/// `on(core, ctx, event, options, callback) -> registration`
pub fn on(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let ctx = host.get::<Context>(arguments.key(1))?;
        let options = ListenOptions::from_value(&json_at(arguments, 3)?)?;
        let listener = Callback::new(host, arguments.key(4));
        let registration = host::listen(&ctx, &arguments.text(2), options, Rc::new(listener))?;
        Ok(registered(host, arguments, registration))
    })
}

/// `undo(core, registration)`
pub fn undo(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        if let Ok(registration) = host.get::<Registration>(arguments.key(1)) {
            host.remove(arguments.key(1));
            if let Some(undone) = registration.dispose() {
                host.runtime.spawn(undone);
            }
        }
        Ok(None)
    })
}

/// `tool(core, ctx, options, body, classify, finalize, isRunner) -> registration`
pub fn tool(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let ctx = host.get::<Context>(arguments.key(1))?;
        let (options, body) = (json_at(arguments, 2)?, Callback::new(host, arguments.key(3)));
        let mut tool = host::tool(Options::new(&options, "a tool")?, move |call| body.clone().tool_body(call))?;
        if let Some(classify) = callback(host, arguments, 4) {
            tool = classify.classifies(tool);
        }
        if let Some(finalize) = callback(host, arguments, 5) {
            tool = finalize.finalizes(tool);
        }
        let registration = match arguments.flag(6) {
            true => ctx.tools().register_runner(tool)?,
            false => ctx.tools().register(tool)?,
        };
        Ok(registered(host, arguments, registration))
    })
}

/// `restrict(core, ctx, {allow?, deny?}) -> registration`
pub fn restrict(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let ctx = host.get::<Context>(arguments.key(1))?;
        let value = json_at(arguments, 2)?;
        let options = Options::new(&value, "a restriction")?;
        let (allow, deny) = (options.texts("allow")?, options.texts("deny")?);
        options.finish()?;
        Ok(registered(host, arguments, ctx.tools().restrict(allow, deny)?))
    })
}

/// `checkEvents(core, ctx, check) -> registration`
pub fn check_events(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let ctx = host.get::<Context>(arguments.key(1))?;
        let check = Callback::new(host, arguments.key(2));
        let registration = ctx.check_events(move |session, event| check.checks(session, event))?;
        Ok(registered(host, arguments, registration))
    })
}

/// `guard(core, ctx, guard) -> registration`
pub fn guard(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let ctx = host.get::<Context>(arguments.key(1))?;
        let guard = Callback::new(host, arguments.key(2));
        let registration = ctx.tools().guard(move |call| guard.guards(call))?;
        Ok(registered(host, arguments, registration))
    })
}

/// `startAgents(core, ctx, entries)`: as an application's configuration would (CFG).
pub fn start_agents(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let ctx = host.get::<Context>(arguments.key(1))?;
        let value = json_at(arguments, 2)?;
        let entries = value.as_array().unwrap_or_default().iter().map(ConfiguredAgent::from_value);
        host.starts_agents();
        ctx.start_agents(&entries.collect::<Result<Vec<_>>>()?)?;
        Ok(None)
    })
}

/// `toolSchemas(core, ctx) -> json`: what the model is shown of the tools visible in a context.
pub fn tool_schemas(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let ctx = host.get::<Context>(arguments.key(1))?;
        let schemas: Vec<String> = ctx.tools().schemas().iter().map(|tool| tool.json().to_owned()).collect();
        Ok(Some(arguments.env.text(&format!("[{}]", schemas.join(",")))))
    })
}

/// `prompt(core, ctx, input, compute) -> registration?`
pub fn prompt(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let ctx = host.get::<Context>(arguments.key(1))?;
        let input = json_at(arguments, 2)?;
        let computed = callback(host, arguments, 3).map(Callback::text);
        let registration = host::prompt_input(&ctx, Options::new(&input, "a prompt input")?, computed)?;
        Ok(registration.and_then(|registration| registered(host, arguments, registration)))
    })
}

/// `selection(core, ctx, choice?) -> selection`: lets a choice of route rule the agent of a context.
pub fn selection(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let ctx = host.get::<Context>(arguments.key(1))?;
        let selection = ModelSelection::new(host::model_choice(&json_at(arguments, 2)?)?);
        selection.install(&ctx)?;
        Ok(Some(arguments.env.number(host.put(selection) as f64)))
    })
}

/// `select(core, selection, choice?)`
pub fn select(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let choice = host::model_choice(&json_at(arguments, 2)?)?;
        host.get::<ModelSelection>(arguments.key(1))?.select(choice);
        Ok(None)
    })
}

/// `openAgent(core, promise, ctx, id, options, setup, signal, callerSeat, callerContext)`: resolves with its seat.
pub fn open_agent(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let ctx = host.get::<Context>(arguments.key(2))?;
        let options = json_at(arguments, 4)?;
        let compose =
            callback(host, arguments, 5).map(|setup| -> AgentSetup { Box::new(move |ctx| Box::pin(setup.setup(ctx))) });
        let signal = match arguments.key(6) {
            0 => None,
            key => Some((*host.get::<Signal>(key)?).clone()),
        };
        let setup = Setup { compose, signal };
        let opening = host::open_agent(&ctx, &arguments.text(3), Options::new(&options, "an agent")?, setup)?;
        let weak = Rc::downgrade(host);
        host.as_caller(arguments.key(7), arguments.key(8), || {
            host.export(arguments.key(1), async move {
                let agent = opening.await?;
                let closed = || Error::new(Code::RuntimeClosed, "the context is closed");
                let host = weak.upgrade().ok_or_else(closed)?;
                Ok(Answer::Number(host.seat_of(&agent)))
            });
        });
        Ok(None)
    })
}

/// `listSessions(core, promise, after?, limit)`: resolves with the stored headers, in order of their ids.
pub fn list_sessions(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let (ctx, after) = (host.ctx.clone(), arguments.optional_text(2).map(SessionId::from));
        let limit = usize::try_from(arguments.key(3)).unwrap_or(usize::MAX);
        host.export(arguments.key(1), async move {
            let headers = ctx.list_sessions(after.as_ref(), limit).await?;
            Ok(Value::Array(headers.iter().map(|header| header.to_value()).collect()))
        });
        Ok(None)
    })
}

/// `newSignal(core) -> signal`
pub fn new_signal(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| Ok(Some(arguments.env.number(host.put(Signal::new()) as f64))))
}

/// `fireSignal(core, signal)`
pub fn fire_signal(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        host.get::<Signal>(arguments.key(1))?.cancel(CancelCause::User);
        Ok(None)
    })
}

/// `findAgent(core, id) -> seat`, 0 for none.
pub fn find_agent(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let agent = host.ctx.find_agent(&arguments.text(1));
        Ok(Some(arguments.env.number(agent.map_or(0, |agent| host.seat_of(&agent)) as f64)))
    })
}

/// `agentIds(core) -> json`: the live agents, in order of registration.
pub fn agent_ids(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let ids: Vec<Value> = host.ctx.agents().iter().map(|agent| Value::from(agent.id().as_str())).collect();
        Ok(Some(arguments.env.text(&Value::Array(ids).to_text())))
    })
}

/// `forkSession(core, from, at?, id?) -> seat`
pub fn fork_session(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let value = json_at(arguments, 2)?;
        let at = value.as_f64().map(|at| if at < 0.0 { u64::MAX } else { at as u64 });
        let session = host.ctx.fork_session(&arguments.text(1), at, arguments.optional_text(3).map(Into::into))?;
        Ok(Some(arguments.env.number(host.seat(&session, None) as f64)))
    })
}
