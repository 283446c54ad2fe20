"""Cancellation, both ways: a cancelled task cancels its turn, a cancelled turn cancels the tasks it started."""

from __future__ import annotations

import asyncio
import signal

import pytest
from support import call, child, context, is_balanced, open_agent, reasons, run

import turnwheel as tw

ABORTED = {"kind": "aborted", "reason": {"kind": "user"}}
SLOW = tw.Reply("slow answer", chunk_size=1, delay=0.02)


def test_cancelling_run_cancels_its_turn():
    ctx = context(SLOW, "next")

    async def main():
        async with open_agent(ctx) as agent:
            task = asyncio.create_task(agent.run("x"))
            await asyncio.sleep(0.06)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await agent.when_idle()
            after = await agent.run("y")
            return reasons(agent), after.text, is_balanced(agent.session.events())

    assert run(main()) == ([ABORTED, {"kind": "completed"}], "next", True)


def test_a_timeout_around_run_cancels_its_turn():
    ctx = context(SLOW)

    async def main():
        async with open_agent(ctx) as agent:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(agent.run("x"), 0.05)
            await agent.when_idle()
            return reasons(agent)

    assert run(main()) == [ABORTED]


def test_cancelling_a_run_that_waits_takes_the_prompt_back():
    ctx = context(SLOW, "never")

    async def main():
        async with open_agent(ctx) as agent:
            first = asyncio.create_task(agent.run("x"))
            await asyncio.sleep(0)
            second = asyncio.create_task(agent.run("y"))
            await asyncio.sleep(0.01)
            second.cancel()
            result = await first
            await agent.when_idle()
            return result.reason, len(reasons(agent)), len(agent.inbox)

    assert run(main()) == ({"kind": "completed"}, 1, 0)


def test_cancelling_the_task_that_waits_in_a_stream_cancels_the_turn():
    ctx = context(SLOW)

    async def main():
        async with open_agent(ctx) as agent:

            async def consume():
                async for _ in agent.stream("x"):
                    pass

            task = asyncio.create_task(consume())
            await asyncio.sleep(0.06)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await agent.when_idle()
            kinds = [event.type for event in agent.session.events()]
            return reasons(agent), "assistant/message" in kinds

    assert run(main()) == ([ABORTED], True)


def test_cancelling_the_turn_cancels_an_async_tool_and_lets_it_clean_up():
    ctx, log = context(call("t"), "never"), []

    @ctx.tool
    async def t():
        try:
            log.append("started")
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            log.append("cancelled")
            await asyncio.sleep(0)
            log.append("cleaned up")
            raise

    async def main():
        async with open_agent(ctx) as agent:
            running = asyncio.create_task(agent.run("x"))
            while not log:
                await asyncio.sleep(0)
            agent.cancel({"kind": "hook", "reason": "enough"})
            result = await running
            return result.reason, is_balanced(agent.session.events())

    reason, balanced = run(main())
    assert reason == {"kind": "aborted", "reason": {"kind": "hook", "reason": "enough"}} and balanced
    assert log == ["started", "cancelled", "cleaned up"]


def test_cancelling_the_turn_cancels_a_listener_and_what_it_waits_for():
    ctx, log = context("never"), []

    @ctx.on("agent/pre-step")
    async def gate(payload, next):
        log.append("waits")
        cause = await payload.signal.wait()
        log.append(cause["kind"])
        return {"kind": "reject"}

    async def main():
        async with open_agent(ctx) as agent:
            agent.followup("x")
            while not log:
                await asyncio.sleep(0)
            agent.cancel()
            await agent.when_idle()
            return reasons(agent)

    assert run(main()) == [ABORTED] and log == ["waits", "user"]


def test_a_callback_that_cancels_itself_is_an_ordinary_error():
    ctx = context(call("t"), "went on")

    @ctx.tool
    async def t():
        asyncio.current_task().cancel()
        await asyncio.sleep(1)

    async def main():
        async with open_agent(ctx) as agent:
            return (await agent.run("x")).text

    assert run(main()) == "went on"


def test_cancel_discards_or_keeps_what_is_pending():
    ctx = context(SLOW, "kept")

    async def main():
        async with open_agent(ctx) as agent:
            agent.followup("x")
            kept = agent.followup("y")
            agent.cancel(keep_inbox=True)
            await agent.when_idle()
            why = {"kind": "turn-ended", "turn": 1, "reason": {"kind": "aborted", "reason": {"kind": "user"}}}
            assert kept.state == {"kind": "pending", "target": "next-turn", "parked": True, "why": why}
            agent.wake()
            assert (await kept.settled())["reason"] == {"kind": "completed"}
            dropped = agent.inject("z")
            agent.cancel()
            assert dropped.state["kind"] == "discarded"

    run(main())


def test_ctrl_c_leaves_a_balanced_log(tmp_path):
    process = child(
        """
        import asyncio, sys, turnwheel as tw
        from support import context, open_agent
        ctx = context(tw.Reply("word " * 400, chunk_size=5, delay=0.01), store=sys.argv[1])
        async def main():
            async with open_agent(ctx) as agent:
                async for event in agent.stream("go"):
                    if event.text and event.type == "assistant/chunk":
                        print("streaming")
        asyncio.run(main())
        """,
        str(tmp_path),
    )
    assert process.stdout.readline() == b"streaming\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert b"KeyboardInterrupt" in errors and process.returncode != 0

    async def main():
        async with open_agent(context(store=tmp_path)) as agent:
            return reasons(agent), is_balanced(agent.session.events())

    assert run(main()) == ([ABORTED], True)


def test_kill_9_loses_nothing_and_the_session_goes_on(tmp_path):
    process = child(
        """
        import asyncio, sys, turnwheel as tw
        from support import context, open_agent
        ctx = context(tw.Reply("word " * 400, chunk_size=5, delay=0.01), store=sys.argv[1])
        async def main():
            async with open_agent(ctx) as agent:
                stream = agent.stream("go")
                await agent.followup({"id": "queued", "content": "and then?"}).durable()
                async for event in stream:
                    if event.text and event.type == "assistant/chunk":
                        print("streaming")
        asyncio.run(main())
        """,
        str(tmp_path),
    )
    assert process.stdout.readline() == b"streaming\n"
    process.kill()
    process.communicate(timeout=10)
    ctx = context("then this", store=tmp_path)

    async def main():
        async with open_agent(ctx) as agent:
            before = reasons(agent)
            waiting = agent.receipt("queued").state
            agent.wake()
            ended = await agent.receipt("queued").settled()
            return before, waiting, ended["reason"], is_balanced(agent.session.events())

    before, waiting, reason, balanced = run(main())
    assert before == [{"kind": "interrupted"}] and waiting["kind"] == "pending"
    assert reason == {"kind": "completed"} and balanced
