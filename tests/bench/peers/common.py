"""What the Python peers' drivers share: `main(open, turn)` measures the workload that the command line names."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

DELTA = "abcdefg "
PROMPT = "What is the weather?"
DELTAS = {"w1": 64, "w1h": 8, "w2": 16}
Turn = Callable[[], Awaitable[object]]


async def measure(workload: str, session: Callable[[], Turn]) -> dict[str, float]:
    if workload == "w1h":
        return await growth(session)
    turn, turns = session(), 0

    async def run(span: float) -> tuple[int, float]:
        nonlocal turn, turns
        start, first = time.perf_counter(), turns
        while time.perf_counter() - start < span:
            if turns % 50 == 0:
                turn = session()
            await turn()
            turns += 1
        return turns - first, time.perf_counter() - start

    await run(float(os.environ.get("WARM_S", "0.5")))
    spent = time.process_time()
    count, wall = await run(float(os.environ.get("MEASURE_S", "1.5")))
    spent = time.process_time() - spent
    return {"us_per_turn": 1e6 * wall / count, "cpu_us_per_turn": 1e6 * spent / count}


async def growth(session: Callable[[], Turn]) -> dict[str, float]:
    """Some peers take minutes for 2,000 turns: the last mark they reach in the time given counts."""
    turn, times, begin = session(), [], time.perf_counter()
    limit = float(os.environ.get("GROWTH_CAP_S", "60"))
    while len(times) < 2_000 and time.perf_counter() - begin < limit:
        start = time.perf_counter()
        await turn()
        times.append(1e6 * (time.perf_counter() - start))
    early, late = statistics.median(times[50:100]), statistics.median(times[-50:])
    return {"us_at_100": early, "us_at_last": late, "turns": float(len(times)), "growth": late / early}


def main(session: Callable[[str], Turn]) -> None:
    workload = sys.argv[1]
    print(json.dumps(asyncio.run(measure(workload, lambda: session(workload)))))
