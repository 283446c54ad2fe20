"""The workloads in Python: `workloads.py w1` prints one JSON line (tests/bench/README.md)."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import turnwheel as tw

WARM = float(os.environ.get("WARM_S", "0.5"))
SPAN = float(os.environ.get("MEASURE_S", "1.5"))
heard = 0


def model(name: str) -> tw.Scripted:
    deltas = {"w1": 64, "w4": 64, "w1h": 8}.get(name, 16)
    text = tw.Reply("abcdefg " * deltas, chunk_size=8)
    if name not in ("w2", "w3"):
        return tw.Scripted(otherwise=text)
    tool, count = ("lookup", 1) if name == "w2" else ("sleep5", 10)
    arguments = {"city": "Paris", "units": "metric"}

    calls = tw.Reply(calls=[(f"call-{at}", tool, arguments) for at in range(count)])
    # More turns than a run has time for.
    return tw.Scripted(*([calls, text] * 50_000))


def open_context(name: str) -> tw.Context:
    ctx = tw.Context()
    ctx.llm.register("m", model(name))

    @ctx.tool
    async def lookup(city: str, units: str) -> str:
        """Looks the weather up."""
        return "sunny, 21C"

    @ctx.tool(parallel=True)
    async def sleep5(city: str, units: str) -> str:
        """Takes five milliseconds."""
        await asyncio.sleep(0.005)
        return "ok"

    def listen(event: tw.Event) -> None:
        global heard
        heard += 1

    async def pass_on(proposal: object, next_: Callable[[], Awaitable[object]]) -> object:
        return await next_()

    if name == "w4":
        for _ in range(10):
            ctx.on("session/event", listen)
        for _ in range(5):
            ctx.on("agent/pre-step", pass_on)
    return ctx


async def rate(name: str) -> dict[str, float]:
    times: list[float] = []
    async with open_context(name) as ctx:
        agent, turns = None, 0

        async def run(span: float) -> tuple[int, float]:
            nonlocal agent, turns
            start, first = time.perf_counter(), turns
            while time.perf_counter() - start < span:
                if turns % 50 == 0:
                    if agent is not None:
                        await agent.dispose()
                    agent = await ctx.agent(f"s-{turns}", provider="m", model="x")
                before = time.perf_counter()
                await agent.run("What is the weather?")
                times.append(time.perf_counter() - before)
                turns += 1
            return turns - first, time.perf_counter() - start

        await run(WARM)
        times.clear()
        spent = time.process_time()
        count, wall = await run(SPAN)
        spent = time.process_time() - spent
    figures = {"us_per_turn": 1e6 * wall / count, "cpu_us_per_turn": 1e6 * spent / count}
    return figures | {"ms_per_turn": 1e3 * statistics.median(times)}


async def growth() -> dict[str, float]:
    async with open_context("w1h") as ctx:
        early, late = [], []
        for session in range(int(os.environ.get("GROWTH_ROUNDS", "3"))):
            agent, times = await ctx.agent(f"s-{session}", provider="m", model="x"), []
            for _ in range(2_000):
                before = time.perf_counter()
                await agent.run("What is the weather?")
                times.append(1e6 * (time.perf_counter() - before))
            early.append(statistics.median(times[50:100]))
            late.append(statistics.median(times[1950:]))
        at_100, at_2000 = statistics.median(early), statistics.median(late)
        return {"us_at_100": at_100, "us_at_2000": at_2000, "growth": at_2000 / at_100}


print(json.dumps(asyncio.run(growth() if sys.argv[1] == "w1h" else rate(sys.argv[1]))))
