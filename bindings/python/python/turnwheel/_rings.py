"""Rings of owned runs among tools (D-18). asyncio resumes a tool's body outside the core, which cannot tell that the
turn waits for what the body awaits; here that is known, as long as the body awaits it in its own task."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ._errors import StateError

_body: contextvars.ContextVar[tuple[asyncio.Task[Any] | None, Any] | None] = contextvars.ContextVar(
    "turnwheel_tool_body", default=None
)
"""The task of the tool's body around the running code, and the agent whose turn waits for it. Tasks that the body
starts inherit it, and are told by their being other tasks."""
_waits: list[tuple[Any, Any]] = []
"""Agents whose turns wait, and the agents they wait for."""


def enter_body(agent: Any) -> None:
    """Notes that the running task is the body of a tool of this agent."""
    _body.set((asyncio.current_task(), agent))


@contextmanager
def waiting_for(agent: Any) -> Iterator[None]:
    """Around a wait for an agent's turn. Raises ``SELF_WAIT`` where it would close a ring of turns that wait for each
    other."""
    body = _body.get()
    if body is None or body[0] is not asyncio.current_task():
        # Nobody's turn waits, or it does not wait for this: a task of its own may go on when the turn has ended.
        yield
        return
    waiter = body[1]
    reached, found = [agent], [agent]
    while found:
        node = found.pop()
        for behind, ahead in tuple(_waits):
            if behind is node and not any(ahead is known for known in reached):
                reached.append(ahead)
                found.append(ahead)
    if any(node is waiter for node in reached):
        message = (
            f"agent {agent.id!r} is waiting for the turn of {waiter.id!r} in which this is; send without waiting, or "
            "wait from outside"
        )
        raise StateError(message, code="SELF_WAIT", context={"agentId": agent.id})
    edge = (waiter, agent)
    _waits.append(edge)
    try:
        yield
    finally:
        # By identity: agents may be compared otherwise, and one pair may wait twice.
        del _waits[next(at for at, known in enumerate(_waits) if known is edge)]
