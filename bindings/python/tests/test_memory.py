"""What is not used is freed, and what nobody reads is bounded."""

from __future__ import annotations

import asyncio
import gc
import weakref

from support import context, open_agent, run

import turnwheel as tw


def resident() -> int:
    """Resident bytes of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def test_10000_agents_come_and_go_and_the_memory_stays():
    ctx = tw.Context()
    # Without a memory for requests, unlike that of the other tests.
    ctx.llm.register("m", tw.Scripted(otherwise="done"))

    async def main():
        async def rounds(count):
            for number in range(count):
                async with open_agent(ctx, f"a{number}") as agent:
                    await agent.run("x")

        await rounds(1000)
        gc.collect()
        before = resident()
        await rounds(10_000)
        gc.collect()
        return resident() - before

    assert run(main(), timeout=120) < 4_000_000


def test_idle_agents_are_small():
    ctx = context(otherwise="done")

    async def main():
        await open_agent(ctx, "warm")
        gc.collect()
        before = resident()
        agents = [await open_agent(ctx, f"a{number}") for number in range(10_000)]
        taken = resident() - before
        await ctx.close()
        return taken / len(agents)

    # An idle agent with its Python object is a few kilobytes.
    assert run(main(), timeout=120) < 16_384


class Marker:
    """Something whose end can be seen."""


def test_a_cycle_through_listeners_and_tools_is_collected_with_its_context():
    gone = []

    async def use():
        ctx = context(otherwise="done")
        marker = Marker()
        gone.append(weakref.ref(marker))

        @ctx.on("agent/status")
        def listener(notice, kept=marker):
            # The listener holds the context that holds the listener.
            ctx.agents.get("a")

        @ctx.tool
        def tool(kept_in_closure: int = 0) -> str:
            return str((ctx, marker))

        async with open_agent(ctx) as agent:
            await agent.run("x")
        await ctx.close()

    async def main():
        await use()
        await asyncio.sleep(0)
        gc.collect()
        return gone[0]()

    assert run(main()) is None


def test_a_cycle_in_a_context_that_was_never_closed_is_collected_when_its_loop_has_ended():
    gone = []

    async def main():
        ctx = context(otherwise="done")
        marker = Marker()
        gone.append(weakref.ref(marker))

        @ctx.on("agent/status")
        def listener(notice, kept=marker):
            ctx.agents.get("a")

        agent = await open_agent(ctx)
        agent.on("session/event", lambda event, kept=agent: None)
        await agent.run("x")

    run(main())
    gc.collect()
    assert gone[0]() is None


def test_a_big_stream_that_nobody_reads_or_someone_reads_slowly_is_bounded():
    text = "0123456789abcdef" * 65_536  # A megabyte, in 16,384 chunks of 64 characters.
    ctx = context(tw.Reply(text, chunk_size=64), tw.Reply(text, chunk_size=64), otherwise="done")

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("warm up")
            length, before = len(agent.session), resident()
            unread = agent.stream("nobody reads this")
            slow, kept = agent.session.follow(length), 0
            await agent.when_idle()
            # What a reader has not taken yet is in the log and nowhere else.
            grown = resident() - before
            async for event in slow:
                kept = max(kept, len(slow._ready))
                if event.type == "turn/end":
                    break
            events = [event async for event in unread]
            return grown, kept, len(events), len(agent.session) - length

    grown, kept, read, logged = run(main(), timeout=60)
    # A chunk's event is a few hundred bytes in the log, whoever reads it or not.
    assert grown < 16_384 * 1_500
    assert kept <= 256
    assert 16_384 < read <= logged
