//! Listeners of every event.

use super::{Host, on_signal};
use std::sync::Arc;
use turnwheel::agent::{PreStep, PreStepDecision, Recovery, RequestErrorEvent, RequestEvent, TurnStopping, Waterfall};
use turnwheel::events::Next;
use turnwheel::system_prompt::AssemblyRequest;
use turnwheel::tools::{ExecuteRequest, PostDecision, PostExecute, PreDecision, PreExecute};
use turnwheel::{Code, Context, Error, Message, Notice, NoticeKind, Result};

/// Registers them: first those that only watch, then those that meddle.
pub fn install(host: &Host, ctx: &Context) {
    for kind in NoticeKind::ALL {
        let watching = host.clone();
        must(
            host,
            ctx.on(kind, move |notice| {
                if let Some((world, life)) = watching.live() {
                    world.hear(&life, notice);
                }
                Ok(())
            }),
        );
    }
    for kind in NoticeKind::ALL {
        let meddling = host.clone();
        must(host, ctx.on(kind, move |notice| heard(&meddling, notice)));
    }
    steps(host, ctx);
    calls(host, ctx);
}

fn must<T>(host: &Host, registered: Result<T>) {
    if let (Err(error), Some((world, _))) = (registered, host.live()) {
        world.violate("SETUP", format!("a registration was refused: {error:?}"));
    }
}

fn heard(host: &Host, notice: &Notice) -> Result<()> {
    let Some((world, _)) = host.live() else { return Ok(()) };
    let subject = match notice {
        Notice::SessionCreated { session } | Notice::SessionDisposed { session } => session.id().to_string(),
        Notice::SessionEvent { session, .. } => session.id().to_string(),
        other => other.agent().map_or_else(String::new, |agent| agent.id().to_string()),
    };
    let (site, percent) = match notice.kind() {
        NoticeKind::SessionEvent => ("session/event", 2),
        NoticeKind::Status => ("agent/status", 8),
        NoticeKind::Error => ("agent/error", 15),
        NoticeKind::Created | NoticeKind::SessionStart => ("agent/created", 8),
        NoticeKind::SessionCreated | NoticeKind::SessionDisposed | NoticeKind::Disposed => ("session", 4),
        NoticeKind::Inserted | NoticeKind::Claimed | NoticeKind::Discarded => ("agent/inbox", 5),
        NoticeKind::ToolResult => ("tools/result", 6),
        // They follow registrations, which setups of the double do by themselves.
        NoticeKind::ToolsChanged
        | NoticeKind::PromptChanged
        | NoticeKind::ModelsChanged
        | NoticeKind::ConfigStartFailed => return Ok(()),
    };
    world.meddle(site, &subject, percent);
    let mut dice = world.decisions.dice("notice", &subject);
    // On the announcements a failure is a veto, which ends the agent: rare.
    let announces = matches!(notice.kind(), NoticeKind::Created | NoticeKind::SessionCreated);
    if announces && dice.chance(2) || !announces && dice.chance(1) {
        return Err(Error::host("planned failure of a listener"));
    }
    Ok(())
}

/// Calls the continuation; perhaps twice, which has to fail (D-13).
async fn go_on<T: 'static>(host: &Host, site: &'static str, subject: &str, next: &Next<T>) -> Result<T> {
    let decided = next.call().await;
    if let Some((world, _)) = host.live() {
        let twice = world.decisions.dice(site, subject).chance(3);
        if twice {
            let second = next.call().await;
            let refused = second.err().is_some_and(|error| *error.code() == Code::NextCalledTwice);
            world.expect("D-13", refused, || format!("a second next() at {site}"));
        }
    }
    decided
}

fn steps(host: &Host, ctx: &Context) {
    let own = host.clone();
    must(
        host,
        ctx.waterfall::<PreStep, _>(move |step, next| {
            let host = own.clone();
            async move {
                let id = step.agent.id().to_string();
                let Some((world, life)) = host.live() else { return next.call().await };
                let _guard = on_signal(&world, life.number, &id, &step.signal);
                host.trouble(PreStep::NAME, &id).await?;
                let (edits, rejects, empties) = {
                    let mut dice = world.decisions.dice("pre-step.decision", &id);
                    (dice.chance(5), dice.chance(4), dice.chance(3))
                };
                if edits {
                    let mut messages = step.messages.borrow_mut();
                    messages.pop();
                    messages.insert(0, Arc::new(Message::user_text(world.fresh_id(), "from a listener")));
                }
                if rejects {
                    return Ok(PreStepDecision::Reject);
                }
                let decided = go_on(&host, "pre-step.next", &id, &next).await?;
                host.trouble("pre-step.after", &id).await?;
                Ok(if empties { PreStepDecision::Enter(Vec::new()) } else { decided })
            }
        }),
    );
    let own = host.clone();
    must(
        host,
        ctx.waterfall::<RequestEvent, _>(move |request, next| {
            let host = own.clone();
            async move {
                let id = request.agent.id().to_string();
                host.trouble(RequestEvent::NAME, &id).await?;
                let mut config = go_on(&host, "request.next", &id, &next).await?;
                if let Some((world, _)) = host.live() {
                    let mut dice = world.decisions.dice("request.decision", &id);
                    if dice.chance(4) {
                        config.temperature = Some(dice.below(3) as f64);
                    }
                    if dice.chance(2) {
                        config.provider = "nobody".into();
                    } else {
                        config.provider = "sim".into();
                    }
                }
                Ok(config)
            }
        }),
    );
    let own = host.clone();
    must(
        host,
        ctx.waterfall::<RequestErrorEvent, _>(move |failed, next| {
            let host = own.clone();
            async move {
                let id = failed.agent.id().to_string();
                host.trouble(RequestErrorEvent::NAME, &id).await?;
                let Some((world, _)) = host.live() else { return next.call().await };
                let retries = world.decisions.dice("request-error.decision", &id).steady(45);
                if retries { Ok(Recovery::Retry) } else { go_on(&host, "request-error.next", &id, &next).await }
            }
        }),
    );
    let own = host.clone();
    must(
        host,
        ctx.waterfall::<AssemblyRequest, _>(move |request, next| {
            let host = own.clone();
            async move {
                let id = request.agent.id().to_string();
                host.trouble(AssemblyRequest::NAME, &id).await?;
                go_on(&host, "assemble.next", &id, &next).await
            }
        }),
    );
    let own = host.clone();
    must(
        host,
        ctx.on_turn_stopping(move |stopping: std::rc::Rc<TurnStopping>| {
            let host = own.clone();
            async move {
                let id = stopping.agent.id().to_string();
                host.trouble("agent/turn-stopping", &id).await?;
                if let Some((world, _)) = host.live() {
                    world.meddle("stopping", &id, 5);
                }
                Ok(())
            }
        }),
    );
}

fn calls(host: &Host, ctx: &Context) {
    let subject = |call: &turnwheel::tools::ToolCallInfo| {
        call.agent.as_ref().map_or_else(String::new, |agent| agent.id().to_string())
    };
    let own = host.clone();
    must(
        host,
        ctx.waterfall::<PreExecute, _>(move |request, next| {
            let (host, id) = (own.clone(), subject(&request.call));
            async move {
                host.trouble(PreExecute::NAME, &id).await?;
                let Some((world, _)) = host.live() else { return next.call().await };
                let (denies, asks) = {
                    let mut dice = world.decisions.dice("pre-execute.decision", &id);
                    (dice.chance(3), dice.chance(2))
                };
                if denies {
                    return Ok(PreDecision::Deny("planned denial".into()));
                }
                if asks { Ok(PreDecision::Ask(None)) } else { go_on(&host, "pre-execute.next", &id, &next).await }
            }
        }),
    );
    let own = host.clone();
    must(
        host,
        ctx.waterfall::<ExecuteRequest, _>(move |request, next| {
            let (host, id) = (own.clone(), subject(&request.call));
            async move {
                host.trouble(ExecuteRequest::NAME, &id).await?;
                let outcome = go_on(&host, "execute.next", &id, &next).await?;
                host.trouble("execute.after", &id).await?;
                Ok(outcome)
            }
        }),
    );
    let own = host.clone();
    must(
        host,
        ctx.waterfall::<PostExecute, _>(move |request, next| {
            let (host, id) = (own.clone(), subject(&request.call));
            async move {
                host.trouble(PostExecute::NAME, &id).await?;
                let Some((world, _)) = host.live() else { return next.call().await };
                let (blocks, adds) = {
                    let mut dice = world.decisions.dice("post-execute.decision", &id);
                    (dice.chance(3), dice.chance(4))
                };
                if blocks {
                    return Ok(PostDecision::Block { feedback: Vec::new(), contexts: Vec::new() });
                }
                let decided = go_on(&host, "post-execute.next", &id, &next).await?;
                match decided {
                    PostDecision::Accept { content, value, mut contexts } if adds => {
                        contexts.push(Arc::new(Message::user_text(world.fresh_id(), "from policy")));
                        Ok(PostDecision::Accept { content, value, contexts })
                    }
                    decided => Ok(decided),
                }
            }
        }),
    );
}
