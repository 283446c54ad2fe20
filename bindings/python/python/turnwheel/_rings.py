"""Rings of turns that wait for each other through Python code (D-18).

asyncio resumes tasks outside the core, which cannot tell what a turn's tool, listener or adapter waits for. Here that
is known: the core names the tasks that a turn waits for, context variables say whose turn a task belongs to, and
asyncio says what a suspended task waits for. A wait closes a ring only where every turn in it waits, through whatever
tasks, for the next one. A task that was left behind is waited for by nobody and closes none."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from . import _turnwheel
from ._errors import StateError

if TYPE_CHECKING:
    from ._agent import Agent

T = TypeVar("T")
Key: TypeAlias = tuple[int, str]
_LOOKS = (0.02, 1.0)
"""After how many seconds a possible ring is looked at again: at first, and at most."""


@dataclass(eq=False, frozen=True, slots=True)
class _Wait:
    """A task of a turn of one agent waits for a turn of another."""

    behind: Key
    task: asyncio.Future[Any]
    ahead: Key

    @property
    def holds(self) -> bool:
        """Whether the turn behind waits for the task, now."""
        tasks = _turnwheel.awaited_tasks(*self.behind)
        return any(body is self.task or _waits(body, self.task) for body in tasks)


_known: list[_Wait] = []


async def wait_for(agent: Agent, start: Callable[[], Awaitable[T]]) -> T:
    """Awaits what ``start`` gives, a wait for a turn of ``agent``. Raises ``SELF_WAIT`` where that closes a ring, also
    when it closes only later, because a task that had been left alone is awaited after all."""
    behind, task = _turnwheel.doing(), asyncio.current_task()
    if behind is None or task is None:
        # Nobody's turn waits for this.
        return await start()
    wait = _Wait(behind, task, agent._ref.key())
    if _rings(wait, lambda each: each.holds):
        raise _refused(agent, behind)
    with _noted(wait):
        if not _rings(wait, lambda _: True):
            return await start()
        operation = asyncio.ensure_future(start())
        looking = _Look(wait, operation)
        try:
            return await operation
        except asyncio.CancelledError:
            if looking.has_found:
                raise _refused(agent, behind) from None
            raise
        finally:
            looking.stop()


class _Look:
    """Looks at a wait that may close a ring, again and again while it lasts; ends it when it does."""

    def __init__(self, wait: _Wait, operation: asyncio.Future[Any]) -> None:
        self._wait, self._operation, self._delay = wait, operation, _LOOKS[0]
        self.has_found = False
        self._timer = operation.get_loop().call_later(self._delay, self._look)

    def _look(self) -> None:
        self.has_found = _rings(self._wait, lambda each: each.holds)
        if self.has_found:
            self._operation.cancel()
            return
        self._delay = min(self._delay * 2, _LOOKS[1])
        self._timer = self._operation.get_loop().call_later(self._delay, self._look)

    def stop(self) -> None:
        self._timer.cancel()


@contextmanager
def _noted(wait: _Wait) -> Iterator[None]:
    _known.append(wait)
    try:
        yield
    finally:
        _known.remove(wait)


def _refused(agent: Agent, behind: Key) -> StateError:
    message = (
        f"agent {agent.id!r} is waiting for the turn of {behind[1]!r} in which this is; send without waiting, or wait "
        "from outside"
    )
    return StateError(message, code="SELF_WAIT", context={"agentId": agent.id})


def _rings(wait: _Wait, counts: Callable[[_Wait], bool]) -> bool:
    """Whether the agent ahead waits, over any number of others, for the one behind, and that one for this."""
    reached, found = {wait.ahead}, [wait.ahead]
    while found and wait.behind not in reached:
        node = found.pop()
        for each in tuple(_known):
            if each.behind == node and each.ahead not in reached and counts(each):
                reached.add(each.ahead)
                found.append(each.ahead)
    return wait.behind in reached and counts(wait)


def _waits(task: asyncio.Future[Any], awaited: asyncio.Future[Any]) -> bool:
    """Whether a suspended task goes on only when another one is done, as far as asyncio says. A wait for the first of
    several, and one that ends by the clock, do not count."""
    seen: set[int] = set()
    found: list[Any] = [task]
    while found:
        each = found.pop()
        if each is None or id(each) in seen or each.done():
            continue
        if each is awaited:
            return True
        seen.add(id(each))
        found.append(getattr(each, "_fut_waiter", None))
        # asyncio.gather
        found += getattr(each, "_children", ())
        if _is_woken(each, awaited):
            return True
    return False


def _is_woken(waiter: asyncio.Future[Any], awaited: asyncio.Future[Any]) -> bool:
    """Whether `waiter` is what a task group, `asyncio.wait` for all, or `asyncio.shield` waits with for `awaited`."""
    for entry in getattr(awaited, "_callbacks", None) or ():
        callback = entry[0] if isinstance(entry, tuple) else entry
        if isinstance(callback, functools.partial):
            continue
        group = getattr(callback, "__self__", None)
        if group is not None and getattr(group, "_on_completed_fut", None) is waiter:
            return True
        code, cells = getattr(callback, "__code__", None), getattr(callback, "__closure__", None) or ()
        if code is None:
            continue
        held = {name: cell.cell_contents for name, cell in zip(code.co_freevars, cells, strict=True) if _is_set(cell)}
        is_all = held.get("return_when") == asyncio.ALL_COMPLETED and held.get("timeout_handle") is None
        if (held.get("waiter") is waiter and is_all) or held.get("outer") is waiter:
            return True
    return False


def _is_set(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
