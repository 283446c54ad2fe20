"""Contexts: what an application composes its agents with."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypedDict, Unpack
from weakref import WeakValueDictionary

from . import _turnwheel
from ._agent import Agent, AgentScope, Session
from ._errors import StateError, UsageError, WrongThreadError
from ._models import feed
from ._payloads import PAYLOADS, Notice
from ._registrar import Apply, ListenerHost, Models, Registrar, Registration
from ._stores import AnyStore, Copied, Header, JsonlStore, SqliteStore, Store, native

Setup = Callable[[AgentScope], Awaitable[None] | None]


class Budget(TypedDict, total=False):
    """Limits on what may be spent; ``None`` is no limit. ``tokens`` counts input, cached input and output."""

    steps: int | None
    tool_calls: int | None
    tokens: int | None
    wall_ms: int | None


class AgentOptions(TypedDict, total=False):
    """What an agent is opened with.

    ``provider``, ``model`` and ``max_tokens`` say who answers. ``cwd``, ``parent_session``, ``seed_length``,
    ``origin``, ``delegation_depth`` and ``agent_preset`` go into the header of a new session. ``mode`` is ``"open"``
    (resume what the store has, or create: the default), ``"create"`` or ``"resume"``. A new session may begin with a
    past: ``fork`` is ``{"from": id, "at": seq}`` of a live session, ``seed`` a list of events; ``log`` is a whole log
    to resume, as :meth:`Session.to_dict` gives it. ``setup(scope)`` composes the agent before anybody can see it.
    """

    provider: str | None
    model: str | None
    max_tokens: int | None
    cwd: str | os.PathLike[str] | None
    parent_session: str | None
    seed_length: int | None
    origin: str | None
    delegation_depth: int | None
    agent_preset: str | None
    mode: Literal["open", "create", "resume"] | None
    fork: Mapping[str, Any] | None
    seed: Sequence[Mapping[str, Any]] | None
    log: Mapping[str, Any] | None
    setup: Setup | None


def _limits(name: str, budget: Budget | None) -> dict[str, int | None]:
    limits: dict[str, Any] = dict(budget or {})
    for key, limit in limits.items():
        if key not in Budget.__annotations__:
            known = ", ".join(Budget.__annotations__)
            raise UsageError(f"{name} has no limit {key!r}; there are: {known}", code="UNKNOWN_OPTION")
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            raise UsageError(f"{name}[{key!r}] is a whole number or None, not {limit!r}")
    return limits


_contexts: WeakValueDictionary[int, Context] = WeakValueDictionary()
"""The contexts by the numbers of their hosts."""


def current_agent() -> Agent | None:
    """The agent whose doing the calling code is, whatever context it belongs to; ``None`` outside any turn.

    Works in listeners, tools, adapters and the tasks they start, and in the thread of a plain tool, where
    ``send_threadsafe`` and ``id`` may be used.
    """
    facts = _turnwheel.doing()
    context = _contexts.get(facts[0]) if facts is not None else None
    if facts is None or context is None or context._loop is None:
        return None
    try:
        here = asyncio.get_running_loop() is context._loop
    except RuntimeError:
        here = False
    return context.current_initiator() if here else context._wrapped.get(facts[1])


class Agents:
    """The live agents of a context: ``ctx.agents``."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def get(self, agent_id: str) -> Agent | None:
        """The live agent of an id."""
        host = self._context._host
        ref = host.find_agent(agent_id) if host is not None else None
        return self._context._wrap(ref) if ref is not None else None

    def __iter__(self) -> Iterator[Agent]:
        host = self._context._host
        agents = (self.get(agent_id) for agent_id in (host.agent_ids() if host is not None else []))
        return (agent for agent in agents if agent is not None)

    def __len__(self) -> int:
        host = self._context._host
        return len(host.agent_ids()) if host is not None else 0


class Opening:
    """An agent being opened: ``await`` it, or enter it with ``async with``, which disposes the agent at the end."""

    def __init__(self, open: Callable[[], Awaitable[Agent]]) -> None:
        self._open = open
        self._agent: Agent | None = None

    def __await__(self) -> Generator[Any, None, Agent]:
        return self._open().__await__()

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"the agent is not open yet, so it has no {name!r}: `await` it, or use `async with`")

    def __enter__(self) -> NoReturn:
        raise UsageError("opening an agent waits: write `async with`, not `with`")

    def __exit__(self, *_: object) -> None:
        raise UsageError("opening an agent waits: write `async with`, not `with`")

    async def __aenter__(self) -> Agent:
        self._agent = await self._open()
        return self._agent

    async def __aexit__(self, *_: object) -> None:
        if self._agent is not None:
            await self._agent.dispose()


class Context(Registrar):
    """Composes agents: model routes, tools, listeners, prompt, and where sessions are kept.

    It may be made and filled before an event loop runs; what was registered is kept and applied when the first agent
    is opened, and again on the next loop, if there is one. ``store`` is a directory, a :class:`JsonlStore`, a
    :class:`SqliteStore`, a :class:`Store` of your own, or ``None`` for sessions in memory. ``durability`` is
    ``"effects"`` (the log is on disk before each model request and tool), ``"every-event"``, ``"turn"`` or
    ``"relaxed"``.

    ``turn_budget`` limits what one turn may spend (200 steps unless you say otherwise), ``agent_budget`` what an agent
    may spend in its session's life: the running step finishes, then the turn ends as ``aborted`` and the queue is kept.
    ``turn_timeout`` cancels a turn after so many seconds. A tool's result of more than ``max_tool_result_bytes``
    (``None`` for no bound) becomes an error of its call, ``TOOL_RESULT_TOO_LARGE``.

    When the loop ends (``asyncio.run``), agents that are still there are disposed and their logs are written.
    """

    def __init__(
        self,
        *,
        store: str | os.PathLike[str] | JsonlStore | SqliteStore | Store | None = None,
        durability: Literal["effects", "every-event", "turn", "relaxed"] = "effects",
        max_parallel_tool_calls: int = 10,
        turn_budget: Budget | None = None,
        agent_budget: Budget | None = None,
        turn_timeout: float | None = None,
        max_tool_result_bytes: int | None = 16 * 2**20,
    ) -> None:
        if turn_timeout is not None and not 0 < turn_timeout < math.inf:
            raise UsageError(f"turn_timeout is a positive number of seconds, not {turn_timeout!r}")
        if durability not in ("effects", "every-event", "turn", "relaxed"):
            raise UsageError(f"durability is effects, every-event, turn or relaxed, not {durability!r}")
        self._options: dict[str, Any] = {
            "store": native(store) if store is not None else None,
            "durability": durability,
            "max_parallel_tool_calls": max_parallel_tool_calls,
            "turn_budget": {"steps": 200, **_limits("turn_budget", turn_budget)},
            "agent_budget": _limits("agent_budget", agent_budget),
            "turn_timeout": turn_timeout,
            "max_tool_result_bytes": max_tool_result_bytes,
        }
        self._kept: list[Registration] = []
        self._host: _turnwheel.Host | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: ListenerHost | None = None
        self._guardian: AsyncGenerator[None, None] | None = None
        self._wrapped: WeakValueDictionary[str, Agent] = WeakValueDictionary()
        self._closed = False
        self.llm = Models(self)
        self.agents = Agents(self)

    def agent(
        self,
        id: str,
        **options: Unpack[AgentOptions],
    ) -> Opening:
        """Opens an agent: resumes what the store has under this id, or creates it.

        ``async with ctx.agent(...) as agent`` disposes it at the end; ``agent = await ctx.agent(...)`` leaves that to
        you. ``setup(scope)``, plain or ``async``, composes the agent before anybody can see it; what it raises comes
        out here. Raises ``SESSION_ALREADY_EXISTS`` for an id that is live, ``SESSION_LOCKED`` for one that another
        process writes, ``CORRUPT_LOG`` for a log damaged in the middle. The options are those of
        :class:`AgentOptions`.
        """
        return self._open(id, options, None)

    def _open(self, id: str, options: AgentOptions, owner: _turnwheel.CtxRef | None) -> Opening:
        rest: dict[str, Any] = dict(options)
        setup = rest.pop("setup", None)
        if rest.get("cwd") is not None:
            rest["cwd"] = os.fspath(rest["cwd"])

        async def open() -> Agent:
            return self._wrap(await self._bind().open_agent(id, rest, setup, owner))

        return Opening(open)

    def start_agents(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Opens agents as an application's configuration lists them: ``id``, ``provider``, ``model``, ``maxTokens``,
        ``cwd``, ``sessionId``, ``resumeSessionId``. They open in the background; one that fails is told to listeners
        of ``agent-loop/config-start-failed`` and does not stop the others."""
        self._bind().start_agents([dict(entry) for entry in entries])

    async def list_sessions(self, *, after: str | None = None, limit: int = 100) -> list[Header]:
        """The headers of up to ``limit`` stored sessions whose ids follow ``after``, in order of ids.

        Reads headers only: for the next page pass the last ``id``. Raises ``NO_STORE`` without a store.
        """
        if limit < 0:
            raise UsageError(f"limit is a whole number, not {limit!r}")
        return await self._bind().list_sessions(after, limit)

    async def import_session(self, source: AnyStore, id: str) -> Copied:
        """Copies a session from another store into this context's, with its id, header, lineage and the text of every
        event as they are. The copy appears whole or not at all.

        Raises ``SESSION_ALREADY_EXISTS`` when one of this id is stored or live here (nothing is overwritten),
        ``SESSION_NOT_FOUND`` when ``source`` has none, ``NO_STORE`` without a store.
        """
        return Copied(**await self._bind().copy_session(native(source), id, True))

    async def export_session(self, target: AnyStore, id: str) -> Copied:
        """Copies a session from this context's store into another, as :meth:`import_session` does. What a live session
        has logged so far is made durable first, and copied too.
        """
        return Copied(**await self._bind().copy_session(native(target), id, False))

    def set_tool_order(self, names: list[str]) -> Registration:
        """Orders the tools of every request as listed; one entry is ``"<unlisted-tools>"``, where all others go by
        name. Taking it back orders them by name again. A name that no agent knows fails its turn."""
        return self._register(lambda ctx, _: ctx.tool_order(list(names)))

    def register_event_type(self, kind: str, version: int) -> None:
        """Registers a type of ``session.append`` with the version of its data, before sessions are opened that hold it.

        Its events are required from then on: a program without the registration refuses the log instead of misreading
        it, and so does one with a lower version (``UNSUPPORTED_FORMAT``). Raises ``RESERVED_EVENT`` for a type of the
        runtime, ``DUPLICATE_NAME`` for another version.
        """
        if not isinstance(version, int) or isinstance(version, bool) or not 0 < version < 2**32:
            raise UsageError(f"a version is a whole number from 1, not {version!r}")
        self._register(lambda ctx, _: ctx.register_event_type(kind, version))

    def check_invariants(self, *, allow: list[str] | None = None, block: list[str] | None = None) -> Registration:
        """Lets the runtime check itself: the order of logs, the alternation of status, that every request can be
        rebuilt from the log. A violation refuses what would break it, with code ``INVARIANT``. ``allow`` and ``block``
        are patterns of package names (``turnwheel-session``, ``turnwheel-agent``, ``turnwheel-request``)."""
        return self._register(lambda ctx, _: ctx.invariants(list(allow or []), list(block or [])))

    def fork_session(self, from_id: str, at: int | None = None, *, id: str | None = None) -> Session:
        """Forks a bare session (no agent) from a live one, up to and including the event ``at``, its last by default.

        Giving the child's ``id`` and ``at`` makes it safe to repeat: the same fork is returned. Raises
        ``SESSION_NOT_FOUND``, ``SESSION_ALREADY_EXISTS``, ``INVALID_BOUNDARY``, and ``OPEN_TURN`` for a boundary
        inside a turn.
        """
        return Session(self._bind().fork_session(from_id, at, id))

    def current_initiator(self) -> Agent | None:
        """The agent whose doing the calling code is: its turn runs this listener, tool or task."""
        if not self._is_here() or self._host is None:
            return None
        ref = self._host.initiator(False)
        return self._wrap(ref) if ref is not None else None

    def require_initiator(self) -> Agent:
        """As :meth:`current_initiator`; raises ``NO_INITIATOR`` where there is none."""
        ref = self._bind().initiator(True)
        assert ref is not None, "the core raises where there is none"
        return self._wrap(ref)

    @contextlib.contextmanager
    def with_initiator(self, agent: Agent) -> Iterator[None]:
        """Makes what a block does the doing of an agent, over every ``await`` in it and in the tasks it starts."""
        with self._initiating(agent._ref):
            yield

    @contextlib.contextmanager
    def without_initiator(self) -> Iterator[None]:
        """Makes what a block does nobody's doing: work that outlives the turn it was started in."""
        with self._initiating(None):
            yield

    @contextlib.contextmanager
    def _initiating(self, ref: _turnwheel.AgentRef | None) -> Iterator[None]:
        host = self._bind()
        token = host.enter_initiator(ref)
        try:
            yield
        finally:
            host.leave_initiator(token)

    async def close(self) -> None:
        """Disposes every agent, makes everything durable, and undoes what was registered. It cannot be used again.

        Raises ``SELF_WAIT`` inside a turn of one of its agents.
        """
        if self._is_here() and self._host is not None and self._host.is_in_turn():
            message = "a context cannot be closed inside a turn of its agents; close it from outside"
            raise StateError(message, code="SELF_WAIT")
        self._closed = True
        await self._close_host()
        self._kept.clear()

    def abandon(self) -> None:
        """Drops everything at once, as a crash would: nothing is stopped in order, stored or told. For tests of just
        that. The context cannot be used again."""
        self._closed = True
        self._guardian = None
        if self._host is not None and self._listeners is not None:
            self._drop_host(self._host, self._listeners)
        self._kept.clear()

    async def __aenter__(self) -> Context:
        self._bind()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _register(self, apply: Apply) -> Registration:
        self._check_open()
        registration = Registration(apply, self._forget)
        if self._host is not None and self._listeners is not None and self._is_here():
            registration._bind(self._host.root, self._listeners)
        self._kept.append(registration)
        return registration

    def _forget(self, registration: Registration) -> None:
        if registration in self._kept:
            self._kept.remove(registration)

    def _check_open(self) -> None:
        if self._closed:
            raise StateError("the context is closed; make a new one", code="RUNTIME_CLOSED")

    def _is_here(self) -> bool:
        """Whether the loop this context is bound to still runs. Raises on a foreign thread."""
        if self._loop is None or self._host is None or self._loop.is_closed():
            return False
        return self._host.check()

    def _bind(self) -> _turnwheel.Host:
        self._check_open()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError(
                "no asyncio loop runs here: call this inside `asyncio.run(...)`, or use `turnwheel.sync` in a plain "
                "script; trio is not supported, and anyio is on its asyncio backend"
            ) from None
        if self._host is not None:
            if self._loop is loop and self._host.is_alive():
                return self._host
            if self._loop is not None and not self._loop.is_closed() and self._loop is not loop:
                raise WrongThreadError(
                    "this context belongs to another event loop that is still open; make a context for each loop",
                    code="WRONG_THREAD",
                )
            self._host.kill()
        self._loop = loop
        self._wrapped.clear()
        self._host = host = _turnwheel.Host(loop, self, self._options)
        _contexts[host.number] = self
        self._listeners = listeners = ListenerHost(loop)
        try:
            for registration in self._kept:
                registration._bind(host.root, listeners)
        except BaseException:
            self._drop_host(host, listeners)
            raise
        self._guardian = self._guard(host, listeners)
        # One step by hand: the loop learns of the generator and closes it when it ends.
        try:
            self._guardian.asend(None).send(None)
        except StopIteration:
            pass
        return host

    async def _guard(self, host: _turnwheel.Host, listeners: ListenerHost) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._end(host, listeners)

    async def _close_host(self) -> None:
        guardian, self._guardian = self._guardian, None
        if guardian is not None:
            await guardian.aclose()

    async def _end(self, host: _turnwheel.Host, listeners: ListenerHost) -> None:
        try:
            if host.is_alive():
                await host.close()
                await listeners.drained()
        finally:
            self._drop_host(host, listeners)

    def _drop_host(self, host: _turnwheel.Host, listeners: ListenerHost) -> None:
        listeners.close()
        host.kill()
        if self._host is host:
            self._host = self._listeners = None

    # What follows is called by the native half.

    def _wrap(self, ref: _turnwheel.AgentRef) -> Agent:
        """The one ``Agent`` object of an agent."""
        agent = self._wrapped.get(ref.id)
        if agent is None or not agent._ref.is_same(ref):
            assert self._listeners is not None, "agents are shown while the context is bound"
            agent = self._wrapped[ref.id] = Agent(self, ref, self._listeners)
        return agent

    def _scope(self, ctx: _turnwheel.CtxRef) -> AgentScope:
        assert self._listeners is not None, "agents are set up while the context is bound"
        return AgentScope(ctx, self._listeners)

    def _notice(self, name: str, agent: Agent | None, session_id: str | None, data: dict[str, Any]) -> Notice:
        return Notice(name, agent, session_id, data)

    def _payload(self, name: str, data: dict[str, Any]) -> Any:
        return PAYLOADS[name](**data)

    _feed = staticmethod(feed)
