"""Agents for plain scripts, without ``async``:

    import turnwheel.sync as tw

    with tw.Context(store="sessions/") as ctx:
        ctx.llm.register("local", tw.Scripted("Hello!"))
        with ctx.agent("greeter", provider="local", model="any") as agent:
            print(agent.run("Hi").text)

Everything happens on the calling thread, while one of these calls waits: between two calls agents stand still. Tools
and listeners, plain or ``async``, are registered as on :class:`turnwheel.Context`. Where a loop runs already, as it
does in notebooks, use ``turnwheel`` and ``await``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, Literal, Self, TypeVar, Unpack

from . import _agent, _context
from ._agent import Inbox, Message, Receipt, RunResult, Session, Target
from ._context import AgentOptions
from ._errors import UsageError
from ._models import AnthropicMessages, OpenAIChat, OpenAIResponses, Reply, Scripted
from ._registrar import Apply, Models, Registrar, Registration, ToolOutput
from ._stores import Copied, Header, JsonlStore, SqliteStore
from ._turnwheel import Event, ToolCall

__all__ = [
    "Agent",
    "AnthropicMessages",
    "Context",
    "Event",
    "JsonlStore",
    "OpenAIChat",
    "OpenAIResponses",
    "Reply",
    "RunResult",
    "Scripted",
    "SqliteStore",
    "ToolCall",
    "ToolOutput",
]

T = TypeVar("T")


class Agent(Registrar):
    """A live agent. :attr:`inner` is the same agent for ``async`` code, such as tools."""

    def __init__(self, context: Context, inner: _agent.Agent) -> None:
        self._context, self.inner = context, inner

    @property
    def id(self) -> str:
        """The id, which is also the session's."""
        return self.inner.id

    @property
    def status(self) -> Literal["idle", "running"]:
        """What the agent is doing."""
        return self.inner.status

    @property
    def session(self) -> Session:
        """The log."""
        return self.inner.session

    @property
    def inbox(self) -> Inbox:
        """The pending input."""
        return self.inner.inbox

    def run(self, message: Message) -> RunResult:
        """Sends a prompt and waits for the turn that takes it. Ctrl-C cancels the turn, with cause ``user``."""
        return self._context._wait(self.inner.run(message))

    def stream(self, message: Message) -> Iterator[Event]:
        """Sends a prompt and gives the events of the turn that takes it, to its ``turn/end``."""
        stream = self._context._call(lambda: self.inner.stream(message))
        while (event := self._context._wait(_next(stream))) is not None:
            yield event

    def send(self, message: Message, target: Target = "next-turn", wakeup: bool = True) -> Receipt:
        """Delivers a message; the agent goes on while one of the waiting calls does."""
        return self.inner.send(message, target, wakeup)

    def followup(self, message: Message) -> Receipt:
        """Queues a prompt for a turn of its own."""
        return self.inner.followup(message)

    def when_idle(self) -> None:
        """Waits until nothing is active."""
        self._context._wait(self.inner.when_idle())

    def flush(self) -> None:
        """Waits until everything logged so far is on stable storage."""
        self._context._wait(self.inner.flush())

    def dispose(self) -> None:
        """Stops the agent and frees its id. Its log stays."""
        self._context._wait(self.inner.dispose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dispose()

    def _register(self, apply: Apply) -> Registration:
        return self.inner._register(apply)

    def __repr__(self) -> str:
        return f"<Agent {self.id!r}>"


async def _next(stream: _agent.EventStream) -> Event | None:
    return await anext(stream, None)


class Context(Registrar):
    """Composes agents; the options are those of :class:`turnwheel.Context`, which :attr:`inner` is."""

    def __init__(self, **options: Any) -> None:
        self.inner = _context.Context(**options)
        self.llm = Models(self)
        self._runner: asyncio.Runner | None = None

    def agent(self, id: str, **options: Unpack[AgentOptions]) -> Agent:
        """Opens an agent: resumes what the store has under this id, or creates it."""

        async def open() -> _agent.Agent:
            return await self.inner.agent(id, **options)

        return Agent(self, self._wait(open()))

    def list_sessions(self, *, after: str | None = None, limit: int = 100) -> list[Header]:
        """The headers of stored sessions, a page."""
        return self._wait(self.inner.list_sessions(after=after, limit=limit))

    def import_session(self, source: Any, id: str) -> Copied:
        """Copies a session from another store into this context's."""
        return self._wait(self.inner.import_session(source, id))

    def export_session(self, target: Any, id: str) -> Copied:
        """Copies a session from this context's store into another."""
        return self._wait(self.inner.export_session(target, id))

    def close(self) -> None:
        """Disposes every agent and makes everything durable. A second call does nothing."""
        if self._runner is None:
            return
        try:
            self._wait(self.inner.close())
        finally:
            runner, self._runner = self._runner, None
            runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            coroutine.close()
            raise UsageError("an event loop runs here already (a notebook, or async code): use `turnwheel` and `await`")
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(coroutine)

    def _call(self, function: Any) -> Any:
        async def call() -> Any:
            return function()

        return self._wait(call())

    def _register(self, apply: Apply) -> Registration:
        return self.inner._register(apply)
