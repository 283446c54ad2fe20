//! One step: build the request, stream the answer, recover or commit, answer the tool calls (REQ, STEP).

use super::driver::LoopDriver;
use super::tool_calls::Call;
use super::{barrier, make_room};
use crate::agent::{Recovery, RequestErrorEvent, RequestEvent};
use crate::error::{Code, Error, Result};
use crate::llm::{
    AdapterDefaults, Assembler, CallConfig, Chunk, ChunkStream, Failure, FinishReason, ModelRequest, PreparedCall,
    RequestHeader,
};
use crate::message::{Block, Message, Role, Source};
use crate::runtime::{Signal, yield_now};
use crate::session::{EventData, HeaderReason, History, RequestContext, SurfaceOp};
use crate::system_prompt::{Assembly, render_system};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

/// How a step ended.
pub(super) enum StepEnd {
    /// The model owes nothing.
    Completed,
    /// The output ceiling was hit.
    HitCeiling,
    /// Tool calls were answered: another request is owed (TURN-14).
    Answered,
}

/// Ready chunks that are taken in one go before the thread is given back.
const CHUNKS_PER_POLL: usize = 256;

/// A request bound to what serves it.
struct Prepared {
    header: Arc<RequestHeader>,
    /// What serves it, or why nobody does.
    call: std::result::Result<PreparedCall, Failure>,
}

impl LoopDriver {
    /// Runs the body of a step, with as many attempts as recovery grants.
    pub(super) async fn run_step(&self, turn: u64, step: u64, signal: &Signal, assembly: &Assembly) -> Result<StepEnd> {
        signal.check()?;
        let system = render_system(assembly)?;
        loop {
            // History is taken before the request waterfall: what is injected meanwhile joins the next step (REQ-13).
            let history = self.session()?.sendable_history();
            let prepared = self.prepare(turn, step, signal, assembly, system.clone()).await?;
            signal.check()?;
            self.log_request(&prepared)?;
            signal.check()?;
            barrier(&*self.root()?, &self.session()?).await?;
            signal.check()?;
            let mut answer = Answer::default();
            if let Err(error) = self.consume(turn, step, signal, &prepared, history, &mut answer).await {
                if signal.is_cancelled() {
                    self.commit_prefix(turn, step, &prepared.header.config, answer)?;
                }
                return Err(error);
            }
            let Some(failure) = answer.assembler.failure().cloned() else {
                return self.commit(turn, step, signal, &prepared.header.config, answer).await;
            };
            match self.recover(turn, step, signal, &prepared, failure.clone()).await? {
                Recovery::Retry => {}
                Recovery::Terminal => return Err(answer.error(failure)),
            }
        }
    }

    /// The config: a seed, what listeners make of it, and the adapter's defaults (REQ-3 to REQ-8).
    async fn prepare(
        &self,
        turn: u64,
        step: u64,
        signal: &Signal,
        assembly: &Assembly,
        system: Option<Arc<str>>,
    ) -> Result<Prepared> {
        let (agent, root) = (self.agent()?, self.root()?);
        let seed = self.seed_config()?;
        let payload = RequestEvent { agent: agent.clone(), turn, step, signal: signal.clone() };
        let default = |_: Rc<RequestEvent>| async move { Ok(seed) };
        let config = root.hub.waterfall(&root.scopes, Some(agent.scope()), Rc::new(payload), default).await?;
        signal.check()?;
        if config.provider.is_empty() || config.model.is_empty() {
            let what = if config.provider.is_empty() { "provider" } else { "model" };
            let message = format!("the request names no {what}; set it in the agent's options or in agent/request");
            return Err(Error::new(Code::NoRoute, message));
        }
        let tools = assembly.tools.clone();
        let header = |config, adapter_defaults| Arc::new(RequestHeader { config, adapter_defaults, system, tools });
        match root.models.prepare(config.clone(), signal).await {
            Ok(call) => Ok(Prepared { header: header(call.config.clone(), call.defaults), call: Ok(call) }),
            // Nobody serves the route: the stream says so, where recovery can hear it (REQ-7).
            Err(error) if *error.code() == Code::NoAdapter => Ok(Prepared {
                header: header(config, AdapterDefaults::default()),
                call: Err(Failure::new("NO_ADAPTER", error.message())),
            }),
            Err(error) => Err(error),
        }
    }

    fn seed_config(&self) -> Result<CallConfig> {
        let agent = self.agent()?;
        let stored = agent.session().request_header();
        if self.has_requested.get()
            && let Some(stored) = stored
        {
            // Adapter defaults come anew for each route; explicit settings persist.
            let mut config = stored.config.clone();
            if stored.adapter_defaults.reasoning_effort {
                config.reasoning_effort = None;
            }
            if stored.adapter_defaults.max_tokens {
                config.max_tokens = None;
            }
            return Ok(config);
        }
        let options = agent.options();
        let mut config = CallConfig {
            provider: options.provider.clone().unwrap_or_default(),
            model: options.model.clone().unwrap_or_default(),
            max_tokens: options.max_tokens,
            ..CallConfig::default()
        };
        if let Some(stored) = stored {
            let same_route = stored.config.provider == config.provider && stored.config.model == config.model;
            if same_route && !stored.adapter_defaults.reasoning_effort {
                config.reasoning_effort.clone_from(&stored.config.reasoning_effort);
            }
        }
        Ok(config)
    }

    /// Logs header and context when they are due (REQ-10 to REQ-12).
    fn log_request(&self, prepared: &Prepared) -> Result<()> {
        let session = self.session()?;
        let stored = session.request_header();
        let reason = match &stored {
            None => Some(HeaderReason::Initial),
            Some(_) if !self.has_requested.get() => Some(HeaderReason::Resume),
            Some(stored) if **stored != *prepared.header => Some(HeaderReason::Change),
            Some(_) => None,
        };
        if let Some(reason) = reason {
            session.log(EventData::RequestHeader { header: prepared.header.clone(), reason })?;
            self.has_requested.set(true);
        }
        let config = &prepared.header.config;
        let context_window = prepared.call.as_ref().ok().and_then(|call| call.info.context_window);
        let same = |old: &RequestContext| {
            old.provider == config.provider && old.model == config.model && old.context_window == context_window
        };
        if !session.request_context().as_ref().is_some_and(same) {
            let (provider, model) = (config.provider.clone(), config.model.clone());
            session.log(EventData::RequestContext(RequestContext { provider, model, context_window }))?;
        }
        Ok(())
    }

    /// Streams the answer: every chunk is logged, then assembled (STEP-1, STEP-2). Fails when the turn is cancelled.
    async fn consume(
        &self,
        turn: u64,
        step: u64,
        signal: &Signal,
        prepared: &Prepared,
        messages: History,
        answer: &mut Answer,
    ) -> Result<()> {
        let session = self.session()?;
        let take = |chunk: Chunk, answer: &mut Answer| -> Result<()> {
            signal.check()?;
            let event = session.log(EventData::AssistantChunk { turn, step, chunk })?;
            if answer.seqs.capacity() == 0 {
                answer.seqs.reserve(32);
            }
            answer.seqs.push(event.seq);
            if let EventData::AssistantChunk { chunk, .. } = &event.data {
                answer.assembler.push(chunk);
            }
            Ok(())
        };
        let call = match &prepared.call {
            Ok(call) => call,
            Err(failure) => return take(failing(&Error::model(failure.clone()), signal), answer),
        };
        let session_id = Some(session.id().clone());
        let request = ModelRequest { header: prepared.header.clone(), messages, session_id, signal: signal.clone() };
        let root = self.root()?;
        if !root.hub.request_checks().is_empty() {
            root.hub.check_request(&root.scopes, Some(self.agent()?.scope()), &session, &request)?;
        }
        let started = call.stream(request);
        signal.check()?;
        let mut stream = match started {
            Ok(stream) => stream,
            Err(error) => {
                take(failing(&error, signal), answer)?;
                answer.thrown = Some(error);
                return Ok(());
            }
        };
        loop {
            // Ready chunks are taken where they arrive, without a suspension between them.
            let mut ready = 0;
            let pause = poll_fn(|context| -> Poll<Result<Pause>> {
                while ready < CHUNKS_PER_POLL {
                    match poll_guarded(&mut stream, context) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(None) => return Poll::Ready(Ok(Pause::Ended)),
                        Poll::Ready(Some(Ok(chunk))) => take(chunk, answer)?,
                        Poll::Ready(Some(Err(error))) => {
                            take(failing(&error, signal), answer)?;
                            answer.thrown = Some(error);
                            return Poll::Ready(Ok(Pause::Ended));
                        }
                    }
                    ready += 1;
                    if session.is_full() {
                        return Poll::Ready(Ok(Pause::Full));
                    }
                }
                Poll::Ready(Ok(Pause::Breath))
            });
            match pause.await? {
                Pause::Ended => break,
                // A store that cannot keep up slows the stream down; what has come is in the log (case 145).
                Pause::Full => make_room(&session, signal).await?,
                Pause::Breath => yield_now().await,
            }
        }
        // Noticed before the message is committed: a cancel by an observer of the last chunk cuts the answer (STEP-16).
        signal.check()
    }

    async fn recover(
        &self,
        turn: u64,
        step: u64,
        signal: &Signal,
        prepared: &Prepared,
        failure: Failure,
    ) -> Result<Recovery> {
        let (agent, root) = (self.agent()?, self.root()?);
        let payload = RequestErrorEvent {
            agent: agent.clone(),
            turn,
            step,
            provider: prepared.header.config.provider.clone(),
            failure,
            retry_policy: prepared.call.as_ref().ok().map(|call| call.retry.clone()),
            signal: signal.clone(),
        };
        let default = |_: Rc<RequestErrorEvent>| async { Ok(Recovery::Terminal) };
        let recovery = root.hub.waterfall(&root.scopes, Some(agent.scope()), Rc::new(payload), default).await;
        // Cancellation beats a granted retry (STEP-10).
        signal.check()?;
        recovery
    }

    /// Commits the answer and has its calls answered (STEP-4, STEP-5).
    async fn commit(
        &self,
        turn: u64,
        step: u64,
        signal: &Signal,
        config: &CallConfig,
        answer: Answer,
    ) -> Result<StepEnd> {
        let usage = answer.assembler.usage();
        let assembled = answer.assembler.assemble()?;
        let calls: Vec<Call> = assembled.content.iter().filter_map(Call::from_block).collect();
        let source = Source::Model {
            provider: config.provider.as_str().into(),
            model: config.model.as_str().into(),
            replay_state: assembled.replay_state,
        };
        let id = self.root()?.runtime.next_id();
        let message = Arc::new(Message::new(id, Role::Assistant, assembled.content, source));
        let data = EventData::AssistantMessage { turn, step, message, usage, interrupted: false };
        self.session()?.commit(data, Some(SurfaceOp::Append), Some(answer.sources()))?;
        if assembled.hit_ceiling {
            return Ok(StepEnd::HitCeiling);
        }
        if calls.is_empty() {
            return Ok(StepEnd::Completed);
        }
        let concluded = self.run_tool_calls(turn, step, signal, calls).await?;
        Ok(if concluded { StepEnd::Completed } else { StepEnd::Answered })
    }

    /// Commits what was visible of an answer that a cancellation cut (STEP-14, STEP-15).
    fn commit_prefix(&self, turn: u64, step: u64, config: &CallConfig, answer: Answer) -> Result<()> {
        let content: Vec<Block> = answer.assembler.visible_prefix();
        if content.is_empty() {
            return Ok(());
        }
        let usage = answer.assembler.usage();
        let source = Source::Model {
            provider: config.provider.as_str().into(),
            model: config.model.as_str().into(),
            replay_state: None,
        };
        let message = Arc::new(Message::new(self.root()?.runtime.next_id(), Role::Assistant, content, source));
        let data = EventData::AssistantMessage { turn, step, message, usage, interrupted: true };
        self.session()?.commit(data, Some(SurfaceOp::Append), Some(answer.sources())).map(|_| ())
    }
}

/// Why the taking of chunks paused.
enum Pause {
    /// The stream ended.
    Ended,
    /// The store cannot keep up.
    Full,
    /// Others may run.
    Breath,
}

/// Polls an adapter's stream; a panic is what it threw.
fn poll_guarded(stream: &mut ChunkStream, context: &mut TaskContext<'_>) -> Poll<Option<Result<Chunk>>> {
    let mut next = Poll::Pending;
    let polled = crate::events::guarded(|| {
        next = stream.as_mut().poll_next(context);
        Ok(())
    });
    match polled {
        Ok(()) => next,
        Err(error) => Poll::Ready(Some(Err(error))),
    }
}

/// An attempt's answer as far as it has come.
#[derive(Default)]
struct Answer {
    assembler: Assembler,
    seqs: Vec<u64>,
    /// What the adapter threw, if that is how the answer ended.
    thrown: Option<Error>,
}

impl Answer {
    /// The seqs of its chunks, in no more room than they take: the log keeps them.
    fn sources(mut self) -> Vec<u64> {
        self.seqs.shrink_to_fit();
        self.seqs
    }

    /// The error of a failed answer; a host's own error object comes out as it went in.
    fn error(&self, failure: Failure) -> Error {
        let error = Error::model(failure);
        match self.thrown.as_ref().and_then(Error::host_object) {
            Some(object) => error.with_host(object.clone()),
            None => error,
        }
    }
}

/// What an adapter threw, as the chunk that ends its stream (FAIL-04, FAIL-05).
fn failing(error: &Error, signal: &Signal) -> Chunk {
    let failure = error.failure().cloned().unwrap_or_else(|| {
        let code = match error.code() {
            Code::HostError | Code::Unknown => "UNKNOWN",
            code => code.as_str(),
        };
        Failure::new(code, error.message())
    });
    let aborted = signal.is_cancelled() || failure.code == "ABORTED";
    let reason = if aborted { FinishReason::aborted(failure) } else { FinishReason::error(failure) };
    Chunk::Finish { reason, replay_state: None }
}
