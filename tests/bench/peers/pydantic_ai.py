"""Pydantic AI: an agent over a FunctionModel; the caller keeps the messages, as its documentation advises."""

from __future__ import annotations

import sys
from pathlib import Path

# This folder has a file of the package's own name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]
import pydantic_ai  # noqa: E402
from pydantic_ai.messages import ToolReturnPart  # noqa: E402
from pydantic_ai.models.function import DeltaToolCall, FunctionModel  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
import common  # noqa: E402


def session(workload: str) -> common.Turn:
    async def answer(messages, info):
        if workload == "w2" and not isinstance(messages[-1].parts[0], ToolReturnPart):
            yield {0: DeltaToolCall("lookup", '{"city":"Paris","units":"metric"}')}
            return
        for _ in range(common.DELTAS[workload]):
            yield common.DELTA

    agent = pydantic_ai.Agent(FunctionModel(stream_function=answer))

    @agent.tool_plain
    async def lookup(city: str, units: str) -> str:
        """Looks the weather up."""
        return "sunny, 21C"

    history = None

    async def turn() -> None:
        nonlocal history
        async with agent.run_stream_events(common.PROMPT, message_history=history) as events:
            async for event in events:
                last = event
        history = last.result.all_messages()

    return turn


common.main(session)
