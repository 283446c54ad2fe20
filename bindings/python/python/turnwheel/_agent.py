"""Agents, receipts and streams: the handle that everything programs against."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from . import _turnwheel
from ._errors import StateError
from ._registrar import Apply, ListenerHost, Registrar, Registration
from ._rings import wait_for
from ._turnwheel import Event
from .view import SessionLog

if TYPE_CHECKING:
    from ._context import AgentOptions, Context, Opening

T = TypeVar("T")
Message = str | Mapping[str, Any]
"""A text, or a message ``{"content": [...] | str, "id"?, "role"?, "source"?}``."""
Target = Literal["next-turn", "next-step"]
_BATCH = 256
_maintenances: contextvars.ContextVar[tuple[object, ...]] = contextvars.ContextVar("turnwheel_maintenance", default=())
"""The maintenance tasks that the running code is part of: asyncio resumes it outside the core, which cannot tell."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run brought: the turn, why it ended (``{"kind": "completed"}``, ...), the last text, every message the
    turn put before the model, and the tokens of all its requests."""

    turn: int
    reason: dict[str, Any]
    text: str
    messages: list[dict[str, Any]]
    usage: dict[str, int]


@dataclass(frozen=True, slots=True)
class ConsumedWork:
    """``end`` is the seq of the last ``turn/end`` that accounts for input, ``None`` before any; ``dropped_unrun`` says
    whether input was discarded after it without a replacement."""

    end: int | None
    dropped_unrun: bool


class Receipt:
    """Tells, from the log, what became of one message; also after a restart, through ``agent.receipt(id)``."""

    def __init__(self, agent: Agent, message_id: str) -> None:
        self._agent, self.message_id = agent, message_id

    @property
    def state(self) -> dict[str, Any] | None:
        """``{"kind": "pending", "target", "parked", "why"?}``, ``"claimed"`` (``turn``, ``step`` once it has started),
        ``"discarded"`` (``seq`` of the event that removed it, ``replacedBy``), or ``"ended"`` (``turn``, ``reason``);
        ``None`` if the session never accepted the message. ``why`` a message is parked is ``{"kind": "not-woken"}``,
        ``"resumed"``, ``"turn-ending"`` or ``"turn-ended"`` (``turn``, ``reason``)."""
        return self._agent._ref.receipt_state(self.message_id)

    async def settled(self) -> dict[str, Any]:
        """Waits until the message was discarded or the turn that took it ended; gives that state."""
        self._agent._check_no_self_wait()
        return await wait_for(self._agent, lambda: self._agent._ref.settled(self.message_id))

    async def durable(self) -> None:
        """Waits until the message is on stable storage; at once without a store.

        Raises ``NOT_REGISTERED`` for a message that the session never accepted."""
        await self._agent._ref.durable(self.message_id)

    def __repr__(self) -> str:
        return f"<Receipt {self.message_id}: {(self.state or {}).get('kind', 'unknown')}>"


class EventStream(AsyncIterator[Event]):
    """Events as they are committed. It reads the log: a slow reader costs nothing and loses nothing.

    Cancelling the task that waits in it cancels the turn, with cause ``user``; leaving the loop does not.
    """

    def __init__(self, native: _turnwheel.StreamRef) -> None:
        self._native = native
        self._ready: deque[Event] = deque()

    @property
    def message_id(self) -> str | None:
        """The id of the message whose turn this is."""
        return self._native.message_id

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        if not self._ready:
            await self._fill()
        return self._ready.popleft()

    async def _fill(self) -> None:
        batch = self._native.take(_BATCH)
        if batch is None:
            raise StopAsyncIteration
        if batch:
            self._ready.extend(batch)
            return
        try:
            event = await self._native.next()
        except asyncio.CancelledError:
            self._native.withdraw()
            raise
        if event is None:
            raise StopAsyncIteration
        self._ready.append(event)


class Session:
    """The append-only log that an agent drives, and what is derived from it."""

    def __init__(self, native: _turnwheel.SessionRef) -> None:
        self._native = native

    @property
    def id(self) -> str:
        """The id, which is also the agent's."""
        return self._native.id

    @property
    def header(self) -> dict[str, Any]:
        """``id``, ``createdAt``, ``cwd`` and what else was fixed at creation."""
        return self._native.header()

    @property
    def history(self) -> list[dict[str, Any]]:
        """The messages the model sees, in order."""
        return self._native.history()

    def __len__(self) -> int:
        return len(self._native)

    def events(self, from_seq: int = 0) -> list[Event]:
        """The committed events from a seq on."""
        return self._native.events(from_seq)

    def follow(self, from_seq: int = 0) -> EventStream:
        """The events from a seq on, and those to come, without an end."""
        return EventStream(self._native.follow(from_seq))

    def log(self) -> SessionLog:
        """The log as it is now, to look at: ``print(*agent.session.log().text())``, ``.save_html(path)``. In a notebook
        it shows itself as the page."""
        return SessionLog(self._native.log())

    @property
    def consumed_work(self) -> ConsumedWork:
        """What came of accepted input, as a fold over the log."""
        return ConsumedWork(*self._native.consumed_work())

    def event_type_version(self, kind: str) -> int | None:
        """The version in which the log's latest events of a registered type are written."""
        return self._native.event_type_version(kind)

    def append_raw(self, event: Mapping[str, Any]) -> int:
        """Appends any event that is not one of the inbox's, as a log has it without ``seq`` and ``time``: ``type``,
        ``data``, ``surfaceOp``, ``sourceEventSeqs``, ``ignorable``. Gives its seq. For tools that repair or migrate."""
        return self._native.append_raw(dict(event))

    def to_dict(self) -> dict[str, Any]:
        """The whole log, ``{"header", "events"}``: keep it anywhere, and resume from it with ``log=``."""
        return self._native.value()

    def append(self, kind: str, data: Any) -> Event:
        """Appends an event of your own. Core types are ``RESERVED_EVENT``, and data that is not JSON is refused."""
        return self._native.append(kind, data)

    def __repr__(self) -> str:
        return f"<Session {self.id!r}, {len(self)} events>"


class Inbox:
    """Pending input, in two lists: ``next_step`` is taken whole at the next step, ``next_turn`` one a turn."""

    def __init__(self, native: _turnwheel.AgentRef) -> None:
        self._native = native

    @property
    def next_turn(self) -> list[dict[str, Any]]:
        """Prompts that wait for a turn of their own."""
        return self._native.pending("next-turn")

    @property
    def next_step(self) -> list[dict[str, Any]]:
        """Input that waits for the next step."""
        return self._native.pending("next-step")

    def __len__(self) -> int:
        return len(self.next_turn) + len(self.next_step)

    def append(self, target: Target, *messages: Message) -> None:
        """Adds messages at the tail of a list. Never wakes the agent."""
        self._native.insert(target, list(messages), False)

    def prepend(self, target: Target, *messages: Message) -> None:
        """Adds messages at the head of a list. Never wakes the agent."""
        self._native.insert(target, list(messages), True)

    def splice(
        self, target: Target, start: float = 0, delete_count: float = 0, *messages: Message
    ) -> list[dict[str, Any]]:
        """Removes ``delete_count`` messages from a place in a list and inserts others there; gives what was removed. A
        negative ``start`` counts from the tail."""
        return self._native.splice(target, start, delete_count, list(messages))

    def replace(self, message_id: str, message: Message) -> bool:
        """Replaces a pending message in place; says whether it was pending."""
        return self._native.replace(message_id, message)

    def remove(self, message_id: str) -> bool:
        """Removes a pending message; says whether it was pending."""
        return self._native.remove(message_id)

    def clear(self) -> None:
        """Empties both lists."""
        self._native.clear_inbox()


class AgentScope(Registrar):
    """An agent's own registrations: they concern that agent only and end with it. What ``setup`` gets."""

    def __init__(self, ctx: _turnwheel.CtxRef, listeners: ListenerHost) -> None:
        self._ctx, self._listeners = ctx, listeners

    def _register(self, apply: Apply) -> Registration:
        registration = Registration(apply, lambda _: None)
        registration._bind(self._ctx, self._listeners)
        return registration


class Agent(Registrar):
    """A live agent. Everything it does is in ``session``; every method must be called on the loop's thread."""

    def __init__(self, context: Context, ref: _turnwheel.AgentRef, listeners: ListenerHost) -> None:
        self._context, self._ref, self._listeners = context, ref, listeners
        self._id = ref.id
        self._scope: AgentScope | None = None
        self._maintenance: object = None

    @property
    def id(self) -> str:
        """The id, which is also the session's."""
        return self._id

    @property
    def status(self) -> Literal["idle", "running"]:
        """What the agent is doing."""
        return self._ref.status

    @property
    def session(self) -> Session:
        """The log."""
        return Session(self._ref.session())

    @property
    def inbox(self) -> Inbox:
        """The pending input."""
        return Inbox(self._ref)

    def send(self, message: Message, target: Target = "next-turn", wakeup: bool = True) -> Receipt:
        """Delivers a message. With ``wakeup`` an idle agent has opened its turn when this returns.

        Raises ``DUPLICATE_MESSAGE`` for an id that was accepted before, ``DISPOSED``, ``INVALID_MESSAGE``.
        """
        return Receipt(self, self._ref.send(message, target, wakeup))

    def followup(self, message: Message) -> Receipt:
        """Queues a prompt for a turn of its own, and wakes."""
        return self.send(message, "next-turn", True)

    def steer(self, message: Message) -> Receipt:
        """Adds input to the turn under way at its next step, and wakes."""
        return self.send(message, "next-step", True)

    def inject(self, message: Message) -> Receipt:
        """Adds context for the next step, without waking."""
        return self.send(message, "next-step", False)

    def send_threadsafe(
        self, message: Message, target: Target = "next-turn", wakeup: bool = True
    ) -> concurrent.futures.Future[str]:
        """As :meth:`send`, from any thread: a future of the message's id."""
        done: concurrent.futures.Future[str] = concurrent.futures.Future()

        def deliver() -> None:
            try:
                done.set_result(self.send(message, target, wakeup).message_id)
            except Exception as error:
                done.set_exception(error)

        loop = self._context._loop
        assert loop is not None, "an agent's context is bound"
        loop.call_soon_threadsafe(deliver)
        return done

    def wake(self) -> None:
        """Drains what is parked without sending a message."""
        self._ref.wake()

    def cancel(self, cause: str | Mapping[str, Any] = "user", *, keep_inbox: bool = False) -> None:
        """Cancels the activity under way; pending input is discarded unless ``keep_inbox``.

        ``cause`` is ``"user"``, ``"parent"``, or ``{"kind": "hook", "reason": ...}``.
        """
        self._ref.cancel(cause, keep_inbox)

    async def when_idle(self) -> None:
        """Waits until nothing is active. Raises ``SELF_WAIT`` inside the agent's own turn."""
        self._check_no_self_wait()
        await wait_for(self, self._ref.when_idle)

    async def run(self, message: Message) -> RunResult:
        """Sends a prompt and waits for the turn that takes it. Cancelling this cancels that turn, with cause ``user``.

        Raises ``MESSAGE_DISCARDED`` when the prompt is discarded first, and ``SELF_WAIT`` inside the agent's own turn
        and in a tool whose turn this agent waits for. A turn that fails or is cancelled is no exception: see
        ``reason``.
        """
        self._check_no_self_wait()
        return RunResult(**await wait_for(self, lambda: self._ref.run(message)))

    def stream(self, message: Message) -> EventStream:
        """Sends a prompt and gives the events of the turn that takes it, to its ``turn/end``."""
        self._check_no_self_wait()
        return EventStream(self._ref.stream(message))

    async def run_maintenance(self, task: Callable[[_turnwheel.Signal], Awaitable[T]]) -> T:
        """Runs ``task(signal)`` while the agent is idle; wakes wait for its end. Raises ``BUSY`` if it is not idle."""

        def inside(signal: _turnwheel.Signal) -> Awaitable[T]:
            self._maintenance = mark = object()
            _maintenances.set((*_maintenances.get(), mark))
            return task(signal)

        result: T = await self._ref.run_maintenance(inside)
        return result

    def _check_no_self_wait(self) -> None:
        """The core sees to turns; maintenance is seen to here."""
        if self._maintenance in _maintenances.get() and self._ref.state()["phase"] == "maintenance":
            message = "an agent cannot wait for itself inside its own maintenance; wait from outside"
            raise StateError(message, code="SELF_WAIT", context={"agentId": self._id})

    def state(self) -> dict[str, Any]:
        """``phase, turn, step, runningTools, latch, parked, nextStep, nextTurn`` as they are now."""
        return self._ref.state()

    def emit(self, event: str, **members: Any) -> None:
        """Delivers a notification about this agent from outside, with the event's members (``message``, ``turn``,
        ``step``, ``status``, ``error``). For relaying, and for tests of listeners."""
        self._ref.emit(event, members)

    def agent(self, id: str, **options: Unpack[AgentOptions]) -> Opening:
        """Opens an agent that this one owns: it ends with it. As :meth:`Context.agent`."""
        return self._context._open(id, options, self._ref.ctx())

    def receipt(self, message_id: str) -> Receipt:
        """What became of a message of this session."""
        return Receipt(self, message_id)

    async def flush(self) -> None:
        """Waits until everything logged so far is on stable storage."""
        await self._ref.flush()

    async def dispose(self) -> None:
        """Stops the agent and frees its id. Its log stays; opening the id again resumes it."""
        await self._ref.dispose()

    async def __aenter__(self) -> Agent:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.dispose()

    def _register(self, apply: Apply) -> Registration:
        if self._scope is None:
            self._scope = AgentScope(self._ref.ctx(), self._listeners)
        return self._scope._register(apply)

    def __repr__(self) -> str:
        return f"<Agent {self._id!r}>"
