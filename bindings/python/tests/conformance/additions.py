"""Actions and doubles of our own (SCENARIO.md section 13)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from doubles import message

import turnwheel as tw

if TYPE_CHECKING:
    from world import World

# How long real time may take to bring an event.
_PATIENCE = 10.0


def ask(world: World, action: dict[str, Any], agent: tw.Agent) -> None:
    """Notes what the agent says of itself, as a notice."""
    answer: Any = None
    match action["what"]:
        case "state":
            answer = agent.state()
        case "receipt":
            answer = agent.receipt(action["id"]).state
        case "agent":
            found = world.ctx.agents.get(action["id"])
            answer = found and {"id": found.id, "status": found.status}
        case "stored":
            answer = len(world.store.sessions.get(agent.id, []))
        case other:
            raise ValueError(f"nobody knows {other!r}")
    notice = {"event": "ask", "what": action["what"], "answer": answer}
    world.recorder.push(agent, notice | ({"id": action["id"]} if "id" in action else {}))


def wait(world: World, action: dict[str, Any], agent: tw.Agent, begun: Callable[[Any], asyncio.Future[Any]]) -> None:
    """Starts waiting: `settled`, `durable` or `run`."""
    match action["act"]:
        case "settled":
            operation = begun(agent.receipt(action["id"]).settled())
        case "durable":
            operation = begun(_ok(agent.receipt(action["id"]).durable()))
        case _:
            operation = begun(_run(agent, action))
    name, is_detached = action["name"], action.get("detached", False)

    async def report() -> None:
        try:
            world.settled[name] = await (asyncio.shield(operation) if is_detached else operation)
        except tw.TurnwheelError as error:
            world.settled[name] = {"failed": error.code}

    waiting = asyncio.ensure_future(report())
    world.tasks += [waiting, operation] if is_detached else [waiting]
    world.operations[name] = waiting


async def _ok(operation: Awaitable[None]) -> str:
    await operation
    return "ok"


async def _run(agent: tw.Agent, action: dict[str, Any]) -> dict[str, Any]:
    result = await agent.run(message(action))
    roles = [each["role"] for each in result.messages]
    brought = {"turn": result.turn, "reason": result.reason, "text": result.text}
    return brought | {"messages": roles, "usage": result.usage}


def withdraw(world: World, action: dict[str, Any]) -> None:
    """Gives up waiting for an operation."""
    world.operations.pop(action["name"]).cancel()
    world.settled[action["name"]] = "withdrawn"


async def elapse(world: World, action: dict[str, Any]) -> None:
    """The clock is the machine's: waits until the event has come. A step only."""
    agent = world.agent(action.get("agent", world.default_agent))
    deadline = asyncio.get_running_loop().time() + _PATIENCE
    while sum(event.type == action["event"] for event in agent.session.events()) < action.get("count", 1):
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError(f"no {action['event']} came")
        await asyncio.sleep(0.005)


class StoreDouble:
    """A store in memory. It outlives lifetimes, and refuses batches when told to."""

    def __init__(self) -> None:
        self.sessions: dict[str, list[str]] = {}
        self.refuses = False

    async def list_page(self, after: str | None, limit: int, /) -> list[dict[str, Any]]:
        return []

    async def exists(self, id: str, /) -> bool:
        return False

    async def read(self, id: str, /) -> tuple[dict[str, Any], Iterable[str]] | None:
        return None

    async def open(self, id: str, /) -> None:
        return None

    async def create(self, header: dict[str, Any], /) -> _Writer:
        return _Writer(self, header["id"])


class _Writer:
    def __init__(self, store: StoreDouble, id: str) -> None:
        self._store, self._id = store, id

    async def append(self, seq: int, events: list[str], /) -> None:
        if self._store.refuses:
            raise tw.StoreError("the store refuses", code="STORE_FAILED")
        self._store.sessions.setdefault(self._id, []).extend(events)

    async def close(self) -> None:
        pass
