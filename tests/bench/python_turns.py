"""Measures a 64-chunk scripted turn through Python. `make bench` runs it on a release build."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

import turnwheel as tw

CHUNKS = 64
TURNS = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
heard = 0


def count(event: tw.Event) -> None:
    global heard
    heard += 1


async def count_later(event: tw.Event) -> None:
    global heard
    heard += 1


async def read_later(event: tw.Event) -> None:
    global heard
    heard += len(event.text)


async def measure(name: str, listener: object, stream: bool = False) -> None:
    ctx = tw.Context()
    # One delta a character; block-start, block-end and finish make it 64 chunks.
    ctx.llm.register("m", tw.Scripted(otherwise=tw.Reply("x" * (CHUNKS - 3), chunk_size=1)))
    if listener is not None:
        ctx.on("session/event", listener, types=["assistant/chunk"])  # type: ignore[arg-type]
    times = []
    async with ctx, ctx.agent("a", provider="m", model="x") as agent:
        for _ in range(TURNS):
            start = time.perf_counter()
            if stream:
                async for event in agent.stream("go"):
                    event.type  # noqa: B018
            else:
                await agent.run("go")
            times.append(time.perf_counter() - start)
    times = [1e6 * one for one in times[TURNS // 10 :]]
    print(f"{name:34} best {min(times):7.1f} us   median {statistics.median(times):7.1f} us")


async def main() -> None:
    await measure("no listener", None)
    await measure("plain listener on chunks", count)
    await measure("async listener on chunks", count_later)
    await measure("async listener that reads .text", read_later)
    await measure("agent.stream", None, stream=True)
    expected = TURNS * CHUNKS * 2 + TURNS * (CHUNKS - 3)
    print(f"heard {heard} of {expected}")


asyncio.run(main())
