//! The entries of agents and of callbacks under way.

use crate::callbacks::{Callback, Subject, SubjectKind, watch};
use crate::entries::{add, call, json, json_at};
use crate::host::Host;
use crate::promises::Answer;
use crate::raw::{Arguments, Js};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use turnwheel::agent::EventStream;
use turnwheel::error::{Code, Error, Result};
use turnwheel::host;
use turnwheel::json::Value;
use turnwheel::llm::Chunk;
use turnwheel::{Agent, Message};

fn message(host: &Host, json: &Value) -> Result<Arc<Message>> {
    Ok(Arc::new(host::message(json, || host.runtime.next_id())?))
}

fn messages(host: &Host, json: &Value) -> Result<Vec<Arc<Message>>> {
    json.as_array().unwrap_or_default().iter().map(|json| message(host, json)).collect()
}

fn message_list(messages: &[Arc<Message>]) -> String {
    Value::Array(messages.iter().map(|message| message.to_value()).collect()).to_text()
}

/// Delivers the message at `at`, with its sender's asynchronous context behind it, then the caller's seat and turn.
fn deliver<T>(
    host: &Rc<Host>,
    arguments: &Arguments,
    at: usize,
    deliver: impl FnOnce(Arc<Message>) -> Result<T>,
) -> Result<T> {
    let text = arguments.text(at);
    let message = message(host, &json(&text)?)?;
    let context = arguments.key(at + 1);
    let context = (context != 0).then(|| Rc::new(host.kept(context)));
    let id = message.id().clone();
    let before = host.remember_sender(&id, context);
    let delivered = host.as_caller(arguments.key(at + 2), arguments.key(at + 3), || deliver(message));
    if delivered.is_err() {
        // A known id is refused; the context of its first sender must stay.
        host.restore_sender(&id, before);
    }
    delivered
}

/// `send(core, seat, target, wakeup, message, context, callerSeat, callerContext) -> id`
pub fn send(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let agent = host.agent(arguments.key(1))?;
        let (target, wakeup) = (host::target(&arguments.text(2))?, arguments.flag(3));
        let receipt = deliver(host, arguments, 4, |message| agent.send(message, target, wakeup))?;
        Ok(Some(arguments.env.text(receipt.message_id())))
    })
}

/// `run(core, promise, seat, message, context, callerSeat, callerContext)`: resolves with `{turn, reason, …}`.
pub fn run(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let agent = host.agent(arguments.key(2))?;
        let running = deliver(host, arguments, 3, |message| agent.run(message))?;
        host.export(arguments.key(1), async move { running.await.map(|result| host::run_value(&result)) });
        Ok(None)
    })
}

/// `stream(core, seat, message, context, callerSeat, callerContext) -> stream`
pub fn stream(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let agent = host.agent(arguments.key(1))?;
        let stream = deliver(host, arguments, 2, |message| agent.stream(message))?;
        Ok(Some(arguments.env.number(host.put(std::cell::RefCell::new(stream)) as f64)))
    })
}

/// `streamMessage(core, stream) -> id`
pub fn stream_message(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let stream = host.get::<std::cell::RefCell<EventStream>>(arguments.key(1))?;
        let id = stream.borrow().receipt().message_id().clone();
        Ok(Some(arguments.env.text(&id)))
    })
}

/// `streamNext(core, promise, stream)`: resolves with `[from, to, isDone]`, the seqs that are there, or with nothing
/// behind the turn's end.
pub fn stream_next(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let stream = host.get::<std::cell::RefCell<EventStream>>(arguments.key(2))?;
        host.export(arguments.key(1), async move {
            let mut span: Option<(u64, u64)> = None;
            std::future::poll_fn(move |context| {
                loop {
                    let polled = stream.borrow_mut().poll(context);
                    let answer = |done: bool| match span {
                        Some((from, to)) => Answer::Json(format!("[{from},{to},{done}]")),
                        None => Answer::Nothing,
                    };
                    match polled {
                        Poll::Ready(Some(Ok(event))) => {
                            span = Some((span.map_or(event.seq, |span| span.0), event.seq + 1));
                        }
                        // A claim that was undone starts the span anew; what was read of it is not the turn's.
                        Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                        Poll::Ready(None) => return Poll::Ready(Ok(answer(true))),
                        Poll::Pending if span.is_some() => return Poll::Ready(Ok(answer(false))),
                        Poll::Pending => return Poll::Pending,
                    }
                }
            })
            .await
        });
        Ok(None)
    })
}

/// `streamDrop(core, stream, isCancelled)`: forgets a stream, and withdraws its prompt or cancels its turn if asked to.
pub fn stream_drop(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let stream = host.get::<std::cell::RefCell<EventStream>>(arguments.key(1))?;
        host.remove(arguments.key(1));
        if arguments.flag(2) {
            let receipt = stream.borrow().receipt().clone();
            receipt.withdraw();
        }
        Ok(None)
    })
}

/// `wake(core, seat, callerSeat, callerContext)`
pub fn wake(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let agent = host.agent(arguments.key(1))?;
        host.as_caller(arguments.key(2), arguments.key(3), || agent.wake()).map(|()| None)
    })
}

/// `cancel(core, seat, cause, keepInbox)`
pub fn cancel(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let (agent, cause) = (host.agent(arguments.key(1))?, host::cancel_cause(&json_at(arguments, 2)?)?);
        match arguments.flag(3) {
            true => agent.cancel_keep_inbox(cause),
            false => agent.cancel(cause),
        }
        Ok(None)
    })
}

/// `state(core, seat) -> json`
pub fn state(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let state = host.agent(arguments.key(1))?.state()?;
        Ok(Some(arguments.env.text(&state.to_value().to_text())))
    })
}

/// `status(core, seat) -> text`
pub fn status(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| Ok(Some(arguments.env.text(host.agent(arguments.key(1))?.status().as_str()))))
}

/// `isDisposed(core, seat) -> bool`
pub fn is_disposed(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| Ok(Some(arguments.env.bool(host.agent(arguments.key(1))?.is_disposed()))))
}

/// `whenIdle(core, promise, seat, callerSeat, callerContext)`
pub fn when_idle(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let agent = host.agent(arguments.key(2))?;
        let idle = host.as_caller(arguments.key(3), arguments.key(4), || agent.when_idle());
        host.export(arguments.key(1), idle);
        Ok(None)
    })
}

/// `maintain(core, promise, seat, task, callerSeat, callerContext)`
pub fn maintain(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let agent = host.agent(arguments.key(2))?;
        let (task, own) = (Callback::new(host, arguments.key(3)), agent.clone());
        let run = move |signal| task.maintain(own, signal);
        let done = host.as_caller(arguments.key(4), arguments.key(5), || agent.run_maintenance(run))?;
        host.export(arguments.key(1), done);
        Ok(None)
    })
}

/// `receiptState(core, seat, id) -> json?`
pub fn receipt_state(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let state = host.agent(arguments.key(1))?.receipt(arguments.text(2)).state();
        Ok(state.map(|state| arguments.env.text(&host::receipt_value(&state).to_text())))
    })
}

/// `receiptSettled(core, promise, seat, id, callerSeat, callerContext)`
pub fn receipt_settled(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let settled = host.agent(arguments.key(2))?.receipt(arguments.text(3)).settled();
        host.as_caller(arguments.key(4), arguments.key(5), || {
            host.export(arguments.key(1), async move { settled.await.map(|state| host::receipt_value(&state)) });
        });
        Ok(None)
    })
}

/// `receiptDurable(core, promise, seat, id)`
pub fn receipt_durable(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let receipt = host.agent(arguments.key(2))?.receipt(arguments.text(3));
        host.export(arguments.key(1), async move { receipt.durable().await });
        Ok(None)
    })
}

/// `durable(core, promise, seat)`
pub fn durable(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let seat = host.get::<crate::host::Seat>(arguments.key(2))?;
        host.export(arguments.key(1), async move { seat.session.flush().await });
        Ok(None)
    })
}

/// `dispose(core, promise, seat, callerSeat, callerContext)`
pub fn dispose(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let agent = host.agent(arguments.key(2))?;
        let disposed = host.as_caller(arguments.key(3), arguments.key(4), || agent.dispose());
        host.export(arguments.key(1), async move {
            disposed.await;
            Ok(())
        });
        Ok(None)
    })
}

/// `agentCtx(core, seat) -> ctx`
pub fn agent_ctx(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let ctx = host.agent(arguments.key(1))?.ctx()?;
        Ok(Some(arguments.env.number(host.put(ctx) as f64)))
    })
}

/// `turnContext(core, seat) -> context`: the number of the asynchronous context of an agent's turn.
pub fn turn_context(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let agent = host.agent(arguments.key(1))?;
        Ok(Some(arguments.env.number(host.context_of(Some(&agent)) as f64)))
    })
}

fn inbox(host: &Rc<Host>, arguments: &Arguments) -> Result<Agent> {
    host.agent(arguments.key(1))
}

/// `pending(core, seat, target) -> json`
pub fn pending(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let pending = inbox(host, arguments)?.inbox().pending(host::target(&arguments.text(2))?);
        Ok(Some(arguments.env.text(&message_list(&pending))))
    })
}

/// `splice(core, seat, target, start, deleteCount, messages) -> json`: what was removed.
pub fn splice(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let target = host::target(&arguments.text(2))?;
        let inserted = messages(host, &json_at(arguments, 5)?)?;
        let (start, count) = (arguments.number(3), arguments.number(4));
        let removed = inbox(host, arguments)?.inbox().splice(target, start, count, inserted)?;
        Ok(Some(arguments.env.text(&message_list(&removed))))
    })
}

/// `insert(core, seat, target, messages, atHead)`
pub fn insert(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let target = host::target(&arguments.text(2))?;
        let inserted = messages(host, &json_at(arguments, 3)?)?;
        let inbox = inbox(host, arguments)?.inbox();
        match arguments.flag(4) {
            true => inbox.prepend(target, inserted)?,
            false => inbox.append(target, inserted)?,
        }
        Ok(None)
    })
}

/// `replace(core, seat, id, message) -> bool`
pub fn replace(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let message = message(host, &json_at(arguments, 3)?)?;
        let replaced = inbox(host, arguments)?.inbox().replace(&arguments.text(2), message)?;
        Ok(Some(arguments.env.bool(replaced)))
    })
}

/// `remove(core, seat, id) -> bool`
pub fn remove(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| Ok(Some(arguments.env.bool(inbox(host, arguments)?.inbox().remove(&arguments.text(2))?))))
}

/// `clearInbox(core, seat)`
pub fn clear_inbox(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| inbox(host, arguments)?.inbox().clear().map(|()| None))
}

/// `subject(core, key) -> json`: what a callback is about.
pub fn subject(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| Ok(Some(arguments.env.text(&host.get::<Subject>(arguments.key(1))?.to_text()))))
}

/// `requestMessages(core, key, have) -> json`: `[from, messages]`, the messages of a model request behind the first `from`,
/// of which JavaScript has `have` from the request before.
pub fn request_messages(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let subject = host.get::<Subject>(arguments.key(1))?;
        let SubjectKind::Model(request, _) = &subject.kind else { return Err(over()) };
        let have = usize::try_from(arguments.key(2)).unwrap_or_default();
        let from = match &request.session_id {
            Some(session) => host.read_history(session, &request.messages, have),
            None => 0,
        };
        let mut text = format!("[{from},[");
        for (at, message) in request.messages.iter().skip(from).enumerate() {
            if at > 0 {
                text.push(',');
            }
            message.to_value().write(&mut text);
        }
        text.push_str("]]");
        Ok(Some(arguments.env.text(&text)))
    })
}

/// `watch(core, key, callback) -> json?`: calls back when the signal of a subject fires; gives the cause if it has.
pub fn watch_signal(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let subject = host.get::<Subject>(arguments.key(1))?;
        let cause = watch(host, &subject.signal, arguments.key(2));
        Ok(cause.map(|cause| arguments.env.text(&cause)))
    })
}

fn over() -> Error {
    Error::new(Code::InvalidArgument, "this callback is about something else")
}

/// `next(core, promise, key, edited?)`: runs the rest of a waterfall; resolves with its decision.
pub fn next(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let subject = host.get::<Subject>(arguments.key(2))?;
        let SubjectKind::Event(_, Some(next)) = &subject.kind else { return Err(over()) };
        let edited = arguments.optional_text(3).map(|text| json(&text)).transpose()?;
        let rest = next.call(edited.as_ref());
        host.export(arguments.key(1), rest);
        Ok(None)
    })
}

fn push_chunks<I: IntoIterator<Item = Chunk>>(arguments: &Arguments, chunks: impl FnOnce() -> Result<I>) -> Option<Js> {
    add(arguments, |host| {
        let subject = host.get::<Subject>(arguments.key(1))?;
        let SubjectKind::Model(_, sink) = &subject.kind else { return Err(over()) };
        sink.push_chunks(chunks()?)
    })
}

/// `push(core, key, chunk)`: adds a chunk of an answer. The core goes on when it is flushed or the answer ends.
pub fn push(arguments: &Arguments) -> Option<Js> {
    push_chunks(arguments, || {
        let value = json_at(arguments, 2)?;
        let bad = || Error::new(Code::MalformedChunk, format!("{} is not a stream chunk", value.to_text()));
        Chunk::from_value(&value).map(Some).ok_or_else(bad)
    })
}

/// `pushTexts(core, key, index, texts, isReasoning)`: as `push`, for a run of the chunks that there are most of: their
/// texts with a NUL between any two.
pub fn push_texts(arguments: &Arguments) -> Option<Js> {
    let (texts, index, is_reasoning) = (arguments.text(3), arguments.key(2), arguments.flag(4));
    let chunk = |text: &str| match is_reasoning {
        true => Chunk::ReasoningDelta { index, text: text.to_owned() },
        false => Chunk::TextDelta { index, text: text.to_owned() },
    };
    push_chunks(arguments, || Ok(texts.split('\0').map(chunk)))
}

/// `callTool(core, promise, key, name, arguments, callerSeat, callerContext)`: a nested call; resolves with its outcome.
pub fn call_tool(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let subject = host.get::<Subject>(arguments.key(2))?;
        let SubjectKind::Tool(call) = &subject.kind else { return Err(over()) };
        let (call, name, given) = (call.clone(), arguments.text(3), json_at(arguments, 4)?);
        host.as_caller(arguments.key(5), arguments.key(6), || {
            host.export(arguments.key(1), async move {
                call.call(&name, given).await.map(|outcome| host::outcome_value(&outcome))
            });
        });
        Ok(None)
    })
}

/// `deferContext(core, key, message)`
pub fn defer_context(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let subject = host.get::<Subject>(arguments.key(1))?;
        let SubjectKind::Tool(call) = &subject.kind else { return Err(over()) };
        call.defer_context(message(host, &json_at(arguments, 2)?)?);
        Ok(None)
    })
}

/// `concludeTurn(core, key)`
pub fn conclude_turn(arguments: &Arguments) -> Option<Js> {
    call(arguments, |host| {
        let subject = host.get::<Subject>(arguments.key(1))?;
        let SubjectKind::Tool(call) = &subject.kind else { return Err(over()) };
        call.conclude_turn();
        Ok(None)
    })
}
