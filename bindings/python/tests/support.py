"""What the tests share: contexts on scripted models, and children that are killed."""

from __future__ import annotations

import asyncio
import functools
import signal
import subprocess
import sys
import textwrap
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import turnwheel as tw

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], timeout: float = 20) -> T:
    """Runs a test's coroutine; a hang is a failure."""

    async def bounded() -> T:
        return await asyncio.wait_for(main, timeout)

    return asyncio.run(bounded())


def context(*replies: str | tw.Reply, otherwise: str | tw.Reply | None = "done", **options: Any) -> tw.Context:
    """A context whose provider `m` answers from a script, which is `ctx.script`."""
    ctx = tw.Context(**options)
    ctx.script = tw.Scripted(*replies, otherwise=otherwise, keep_requests=True)  # type: ignore[attr-defined]
    ctx.llm.register("m", ctx.script)  # type: ignore[attr-defined]
    return ctx


def open_agent(ctx: tw.Context, agent_id: str = "a", **options: Any) -> Any:
    return ctx.agent(agent_id, provider="m", model="x", **options)


def call(name: str, arguments: Any = None, call_id: str = "c1") -> tw.Reply:
    """A reply that calls one tool."""
    return tw.Reply(calls=[(call_id, name, {} if arguments is None else arguments)])


def tool_results(agent: tw.Agent) -> list[tuple[str, bool, Any]]:
    """Text, whether it is an error, and the code of every tool result in the log."""
    results = []
    for event in agent.session.events():
        if event.type == "tool/result":
            block = event.data["message"]["content"][0]
            text = "".join(part["text"] for part in block["content"])
            results.append((text, block.get("isError", False), (event.data.get("error") or {}).get("code")))
    return results


def reasons(agent: tw.Agent) -> list[dict[str, Any]]:
    """Why the turns ended."""
    return [event.data["reason"] for event in agent.session.events() if event.type == "turn/end"]


def is_balanced(events: list[tw.Event]) -> bool:
    """Every turn, step and call that began has ended."""
    count = {kind: sum(event.type == kind for event in events) for kind in {event.type for event in events}}
    pairs = (("turn/start", "turn/end"), ("step/start", "step/end"), ("tool/call", "tool/result"))
    return all(count.get(start, 0) == count.get(end, 0) for start, end in pairs)


def child(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Python in a process of its own, which can import this module."""
    path = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    command = [sys.executable, "-u", "-c", path + textwrap.dedent(code), *arguments]
    # A shell's background job ignores Ctrl-C, and its children inherit that.
    listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=listen)
