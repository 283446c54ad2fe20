"""What a turn costs through Python, with a model that costs nothing: `make bench`.

A text turn of 64 deltas (the peers' workload W1) without a listener, with one async listener on chunks, and read through
`agent.stream`. Each figure is the median of rounds of 200 turns in fresh sessions of 50.
"""

import asyncio
import statistics
import time

import turnwheel as tw

ROUNDS = 15
TURNS = 200
ANSWER = tw.Reply("abcdefgh" * 64, chunk_size=8, usage={"inputTokens": 10, "outputTokens": 64})


async def drive(ctx: tw.Context, name: str, stream: bool) -> float:
    spent = 0.0
    for session in range(TURNS // 50):
        async with ctx.agent(f"{name}-{session}", provider="fake", model="m") as agent:
            start = time.perf_counter()
            for _ in range(50):
                if stream:
                    async for _event in agent.stream("hello"):
                        pass
                else:
                    agent.followup("hello")
                    await agent.when_idle()
            spent += time.perf_counter() - start
    return spent / TURNS * 1e6


async def measure(title: str, listen: bool, stream: bool) -> None:
    ctx = tw.Context()
    ctx.llm.register("fake", tw.Scripted(otherwise=ANSWER))
    heard = 0
    if listen:

        @ctx.on("session/event", types=["assistant/chunk"])
        async def hear(event: tw.Event) -> None:
            nonlocal heard
            heard += 1

    await drive(ctx, "warm-up", stream)
    times = [await drive(ctx, f"round-{round}", stream) for round in range(ROUNDS)]
    await ctx.close()
    if listen:
        assert heard > 64 * TURNS * ROUNDS, heard
    low, high = min(times), max(times)
    print(f"{title:<45} {statistics.median(times):7.1f} us a turn  [{low:.1f} .. {high:.1f}]")


async def main() -> None:
    await measure("text turn, 64 deltas", listen=False, stream=False)
    await measure("text turn, 64 deltas, async listener on chunks", listen=True, stream=False)
    await measure("text turn, 64 deltas, read through stream()", listen=False, stream=True)


asyncio.run(main())
