//! The scheduler of a message's tool calls (TOOL): exclusive calls are barriers, parallel ones share a pool, results
//! commit in model order, and every call of a committed message gets exactly one result, whatever happens (P2, D-11).

use super::driver::LoopDriver;
use crate::agent::{Agent, Notice, NoticeKind};
use crate::context::Root;
use crate::error::{Error, Result};
use crate::id::CallId;
use crate::json::{self, Object, Value};
use crate::message::{Block, Message};
use crate::runtime::Signal;
use crate::session::{EventData, InboxTarget, SurfaceOp};
use crate::tools::{Admitted, Answer, Execution, Pool, ToolCallInfo, ToolOutcome};
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// A call as the model made it.
pub(super) struct Call {
    id: CallId,
    name: String,
    raw: String,
    arguments: Value,
}

impl Call {
    pub(super) fn from_block(block: &Block) -> Option<Self> {
        let Block::ToolCall { id, name, arguments } = block else { return None };
        Some(Self { id: id.clone(), name: name.clone(), raw: arguments.clone(), arguments: parse(arguments) })
    }
}

/// No arguments, in any of the ways models say so, are an empty object; text that is not JSON stays text (TOOL-2).
fn parse(raw: &str) -> Value {
    match raw.trim() {
        "" | "null" => Value::Object(Object::new()),
        text => json::parse(text).unwrap_or_else(|_| Value::from(raw)),
    }
}

/// Where a call is on its way.
#[derive(Default)]
struct Progress {
    execution: Option<Rc<Execution>>,
    call_seq: Option<u64>,
    answer: Option<Answer>,
    committed: bool,
}

struct Scheduler<'a> {
    root: Rc<Root>,
    agent: Agent,
    /// Ids of the calls whose bodies run.
    running: &'a RefCell<Vec<String>>,
    /// Whether the loop lets another call start.
    admits: &'a dyn Fn() -> Result<bool>,
    turn: u64,
    step: u64,
    signal: &'a Signal,
    calls: Vec<Call>,
    progress: Vec<Progress>,
    pool: Pool<Result<Answer>>,
    /// The first call without a committed result.
    next_commit: usize,
    concluded: bool,
}

impl LoopDriver {
    /// Answers every call. True when some result ends the turn.
    pub(super) async fn run_tool_calls(&self, turn: u64, step: u64, signal: &Signal, calls: Vec<Call>) -> Result<bool> {
        let admits = || Ok(!self.tool_calls_are_spent()?);
        let scheduler = Scheduler::new(self.agent()?, turn, step, signal, calls, &self.running_tools, &admits)?;
        scheduler.answer_all().await
    }
}

/// Answers every tool call of a committed assistant message of the agent, in its open step: the scheduler of the default
/// loop, for loops of your own (TOOL). True when some result ends the turn (TOOL-14).
pub async fn answer_tool_calls(
    agent: &Agent,
    turn: u64,
    step: u64,
    signal: &Signal,
    message: &Message,
) -> Result<bool> {
    let calls = message.content().iter().filter_map(Call::from_block).collect();
    let running = RefCell::default();
    Scheduler::new(agent.clone(), turn, step, signal, calls, &running, &|| Ok(true))?.answer_all().await
}

impl<'a> Scheduler<'a> {
    fn new(
        agent: Agent,
        turn: u64,
        step: u64,
        signal: &'a Signal,
        calls: Vec<Call>,
        running: &'a RefCell<Vec<String>>,
        admits: &'a dyn Fn() -> Result<bool>,
    ) -> Result<Self> {
        let progress = calls.iter().map(|_| Progress::default()).collect();
        let (root, pool) = (agent.root()?, Pool::new());
        Ok(Self {
            root,
            agent,
            running,
            admits,
            turn,
            step,
            signal,
            calls,
            progress,
            pool,
            next_commit: 0,
            concluded: false,
        })
    }

    async fn answer_all(mut self) -> Result<bool> {
        let ran = self.run().await;
        self.running.borrow_mut().clear();
        match ran {
            Ok(()) => Ok(self.concluded),
            Err(error) => {
                self.answer_the_rest().await;
                Err(error)
            }
        }
    }

    async fn run(&mut self) -> Result<()> {
        let mut next = 0;
        while next < self.calls.len() && self.may_start()? {
            next = if self.is_parallel(next) {
                self.run_pool(next).await?
            } else {
                self.start(next).await?;
                self.drain().await?;
                next + 1
            };
        }
        self.skip_from(next)
    }

    /// Whether another call may start: not after a cancellation, nor when the budget of calls is used up.
    fn may_start(&self) -> Result<bool> {
        Ok(!self.signal.is_cancelled() && (self.admits)()?)
    }

    fn is_parallel(&self, at: usize) -> bool {
        let call = &self.calls[at];
        self.root.tools.is_parallel(&self.root, Some(self.agent.scope()), &call.name, &call.arguments)
    }

    /// Runs parallel calls up to the cap, refilling as they settle. Returns the first call that is not of this pool.
    async fn run_pool(&mut self, first: usize) -> Result<usize> {
        let cap = self.root.max_parallel_tool_calls();
        let mut next = first;
        loop {
            let mut full = false;
            while next < self.calls.len() && self.may_start()? {
                full = self.pool.len() >= cap;
                // The mode is read again before each start: a registry change makes the call the next barrier (TOOL-7).
                if full || (next > first && !self.is_parallel(next)) {
                    break;
                }
                self.start(next).await?;
                next += 1;
            }
            if self.pool.len() == 0 {
                return Ok(next);
            }
            self.settle_one().await?;
            if !full && next < self.calls.len() {
                // The next call is a barrier, or may not start: let the pool run empty.
                self.drain().await?;
                return Ok(next);
            }
        }
    }

    /// Logs the call, runs its ordered stage, and dispatches it or notes its answer (TOOL-8, TOOL-9).
    async fn start(&mut self, at: usize) -> Result<()> {
        self.log_call(at)?;
        let call = &self.calls[at];
        let info = ToolCallInfo {
            call_id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            agent: Some(self.agent.clone()),
            signal: self.signal.clone(),
            parent: None,
            root_call_id: call.id.clone(),
        };
        let execution = Rc::new(Execution::new(self.root.clone(), Some(self.agent.scope()), info));
        self.progress[at].execution = Some(execution.clone());
        let admitting = execution.clone();
        match self.beside_bodies(async move { admitting.admit().await }).await? {
            Admitted::Answered(outcome) => self.progress[at].answer = Some(Answer { outcome, post: true }),
            Admitted::Final(outcome) => self.progress[at].answer = Some(Answer { outcome, post: false }),
            Admitted::Dispatch => {
                self.running.borrow_mut().push(self.calls[at].id.to_string());
                self.pool.push(at, execution.dispatch());
                self.poll_bodies().await?;
            }
        }
        self.commit_ready().await
    }

    fn log_call(&mut self, at: usize) -> Result<()> {
        let call = &self.calls[at];
        let event = self.agent.session().log(EventData::ToolCall {
            turn: self.turn,
            step: self.step,
            call_id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.raw.clone(),
        })?;
        self.progress[at].call_seq = Some(event.seq);
        Ok(())
    }

    /// Awaits an ordered stage while the bodies that have started go on (TOOL-8). What settles meanwhile is noted and
    /// not committed (TOOL-12). A failure of the scheduler waits for the stage.
    async fn beside_bodies<T>(&mut self, stage: impl Future<Output = T>) -> Result<T> {
        let mut stage = Box::pin(stage);
        let mut failed = None;
        let value = poll_fn(|context| {
            while let Poll::Ready((at, answer)) = self.pool.poll(context) {
                if let Err(error) = self.settled(at, answer) {
                    failed.get_or_insert(error);
                }
            }
            stage.as_mut().poll(context)
        })
        .await;
        failed.map_or(Ok(value), Err)
    }

    /// Lets bodies run as far as they come without waiting.
    async fn poll_bodies(&mut self) -> Result<()> {
        let pool = &mut self.pool;
        let settled = poll_fn(|context| {
            Poll::Ready(match pool.poll(context) {
                Poll::Ready(settled) => Some(settled),
                Poll::Pending => None,
            })
        });
        match settled.await {
            Some((at, answer)) => self.settled(at, answer),
            None => Ok(()),
        }
    }

    async fn settle_one(&mut self) -> Result<()> {
        let pool = &mut self.pool;
        let (at, answer) = poll_fn(|context| pool.poll(context)).await;
        self.settled(at, answer)?;
        self.commit_ready().await
    }

    fn settled(&mut self, at: usize, answer: Result<Answer>) -> Result<()> {
        let id = self.calls[at].id.as_str();
        self.running.borrow_mut().retain(|running| running != id);
        self.progress[at].answer = Some(answer?);
        Ok(())
    }

    async fn drain(&mut self) -> Result<()> {
        while self.pool.len() > 0 {
            self.settle_one().await?;
        }
        Ok(())
    }

    /// Commits the answers that are next in model order (TOOL-10).
    async fn commit_ready(&mut self) -> Result<()> {
        while self.next_commit < self.progress.len() {
            let at = self.next_commit;
            let Some(answer) = self.progress[at].answer.take() else { return Ok(()) };
            let outcome = match self.progress[at].execution.clone() {
                Some(execution) => self.beside_bodies(async move { execution.finish(answer).await }).await?,
                None => answer.outcome,
            };
            self.commit(at, outcome)?;
            self.next_commit += 1;
        }
        Ok(())
    }

    fn commit(&mut self, at: usize, outcome: ToolOutcome) -> Result<()> {
        let id = self.root.runtime.next_id();
        let call_id = self.calls[at].id.clone();
        let message = Arc::new(Message::tool_result(id, call_id, outcome.content, outcome.is_error));
        let data = EventData::ToolResult {
            turn: self.turn,
            step: self.step,
            message,
            error: outcome.error,
            meta: outcome.meta.map(Box::new),
        };
        let sources = self.progress[at].call_seq.map(|seq| vec![seq]);
        self.agent.session().commit(data, Some(SurfaceOp::Append), sources)?;
        self.progress[at].committed = true;
        self.concluded |= outcome.concludes_turn && !outcome.is_error;
        for context in outcome.contexts {
            // A context that the inbox refuses is a failed context, not a failed turn (D-11).
            if let Err(error) = self.agent.inbox().append(InboxTarget::NextStep, vec![context]) {
                let (turn, step) = (self.turn, self.step);
                self.agent.emit(NoticeKind::Error, |agent| Notice::Error { agent, turn, step, error });
            }
        }
        Ok(())
    }

    /// Gives every call that never started its pair of events (TOOL-16).
    fn skip_from(&mut self, first: usize) -> Result<()> {
        for at in first..self.calls.len() {
            self.log_call(at)?;
            self.commit(at, ToolOutcome::aborted_before_dispatch())?;
        }
        Ok(())
    }

    /// After a failure of the scheduler itself: running bodies are awaited, and every call is answered (D-11).
    async fn answer_the_rest(&mut self) {
        while self.pool.len() > 0 {
            let pool = &mut self.pool;
            let (at, answer) = poll_fn(|context| pool.poll(context)).await;
            self.progress[at].answer = answer.ok();
        }
        for at in 0..self.calls.len() {
            if self.progress[at].committed {
                continue;
            }
            // What a body really answered is kept; only what the failure hit is marked as such.
            let outcome = match self.progress[at].answer.take() {
                Some(answer) => answer.outcome,
                None => ToolOutcome::scheduler_failed(),
            };
            let logged: Result<(), Error> = match self.progress[at].call_seq {
                Some(_) => Ok(()),
                None => self.log_call(at),
            };
            if let Err(error) = logged.and_then(|()| self.commit(at, outcome)) {
                let id = self.calls[at].id.as_str();
                tracing::error!(target: "turnwheel", "tool call {id:?} is left without a result: {error:?}");
            }
        }
    }
}
