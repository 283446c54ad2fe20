"""Loops, threads, forks, exits and memory."""

from __future__ import annotations

import asyncio
import gc
import os
import threading

import pytest
from support import call, child, context, open_agent, reasons, run

import turnwheel as tw


def test_one_context_serves_two_loops_one_after_the_other(tmp_path):
    ctx, heard = context("one", "two", store=tmp_path), []

    @ctx.on("session/event", types=["turn/end"])
    async def ended(event):
        heard.append(event.data["turn"])

    async def main():
        # Nothing is disposed: the end of the loop does that.
        agent = await open_agent(ctx)
        text = (await agent.run("x")).text
        await asyncio.sleep(0.01)
        return agent, text

    old, first = run(main())
    _, second = run(main())
    assert (first, second, heard) == ("one", "two", [1, 2])
    with pytest.raises(tw.StateError) as caught:
        old.followup("x")
    assert caught.value.code == "RUNTIME_CLOSED"


def test_two_loops_in_two_threads():
    texts, failures = {}, []

    def work(name):
        try:
            ctx = context(call("t"), name)
            ctx.tool(name="t")(lambda: 1)

            async def main():
                async with open_agent(ctx) as agent:
                    for _ in range(20):
                        result = await agent.run("x")
                    return result.text

            ctx.script.add(*[name] * 20)
            texts[name] = run(main())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and texts == {"a": "a", "b": "b", "c": "c"}


def test_a_foreign_thread_is_refused_and_send_threadsafe_is_the_way():
    ctx, caught = context("one"), []

    async def main():
        async with open_agent(ctx) as agent:

            def elsewhere():
                for use in (lambda: agent.followup("x"), lambda: agent.status, lambda: agent.session.events()):
                    try:
                        use()
                    except RuntimeError as error:
                        caught.append(error)
                return agent.send_threadsafe({"id": "m", "content": "hi"}).result(5)

            message_id = await asyncio.to_thread(elsewhere)
            await agent.receipt(message_id).settled()
            return message_id, reasons(agent)

    assert run(main()) == ("m", [{"kind": "completed"}])
    assert [type(error) for error in caught] == [tw.WrongThreadError] * 3
    assert caught[0].code == "WRONG_THREAD" and "send_threadsafe" in str(caught[0])


def test_events_may_be_read_and_handles_dropped_on_any_thread():
    ctx = context("one")

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("x")
            events, holder = agent.session.events(), [agent.session, agent.stream("y")]
            await asyncio.to_thread(holder.clear)
            return await asyncio.to_thread(lambda: [event.data for event in events])

    assert len(run(main())) > 5


def test_a_second_loop_that_runs_beside_is_refused():
    ctx = context("one")

    async def main():
        async with open_agent(ctx):

            async def other():
                async with open_agent(ctx, "b"):
                    pass

            with pytest.raises(tw.WrongThreadError):
                await asyncio.to_thread(asyncio.run, other())

    run(main())


def test_a_closed_context_says_so():
    ctx = context("one")

    async def main():
        async with ctx:
            agent = await open_agent(ctx)
            await agent.run("x")
        with pytest.raises(tw.StateError):
            await open_agent(ctx)
        with pytest.raises(tw.StateError):
            agent.followup("x")

    run(main())
    with pytest.raises(tw.StateError):
        ctx.on("agent/status", print)


def test_the_child_of_a_fork_is_refused():
    ctx = context("one")

    async def main():
        async with open_agent(ctx) as agent:
            read, write = os.pipe()
            if os.fork() == 0:
                try:
                    agent.followup("x")
                    os.write(write, b"delivered")
                except tw.TurnwheelError as error:
                    os.write(write, error.code.encode())
                finally:
                    os._exit(0)
            os.close(write)
            with os.fdopen(read, "rb") as pipe:
                code = pipe.read().decode()
            return code, (await agent.run("x")).text

    assert run(main()) == ("FORKED", "one")


@pytest.mark.parametrize("ending", ["return", "sys.exit(3)", "raise ValueError('x')"])
def test_an_exit_with_agents_still_alive_is_clean(ending, tmp_path):
    code = f"""
    import asyncio, sys, turnwheel as tw
    from support import context, open_agent
    ctx = context(tw.Reply("word " * 400, chunk_size=5, delay=0.01), store=sys.argv[1])
    async def main():
        agent = await open_agent(ctx)
        agent.followup("x")
        await asyncio.sleep(0.05)
        print("here")
        {ending}
    asyncio.run(main())
    """
    process = child(code, str(tmp_path))
    out, errors = process.communicate(timeout=20)
    expected = {"return": 0, "sys.exit(3)": 3}.get(ending, 1)
    assert (out, process.returncode) == (b"here\n", expected), errors
    assert b"panic" not in errors and b"never retrieved" not in errors, errors

    async def main():
        async with open_agent(context(store=tmp_path)) as agent:
            return [reason["kind"] for reason in reasons(agent)]

    assert run(main()) == ["aborted"]


def test_a_loop_closed_by_hand_and_a_collected_context_do_no_harm():
    process = child(
        """
        import asyncio, gc, turnwheel as tw
        from support import context, open_agent
        loop = asyncio.new_event_loop()
        ctx = context("one")
        agent = loop.run_until_complete(open_agent(ctx)._open())
        agent.followup("x")
        loop.close()
        try:
            agent.followup("y")
        except Exception as error:
            print(type(error).__name__)
        del agent, ctx
        gc.collect()
        print("end")
        """
    )
    out, errors = process.communicate(timeout=20)
    assert out.endswith(b"end\n") and process.returncode == 0 and b"panic" not in errors, (out, errors)


def resident_kib() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def test_2000_rounds_of_create_run_dispose_leave_the_memory_flat():
    ctx = context(otherwise=tw.Reply("some answer", chunk_size=2))
    ctx.script = tw.Scripted(otherwise=tw.Reply("some answer", chunk_size=2))
    ctx.llm.register("n", ctx.script)
    ctx.on("session/event", lambda event: None)

    async def round(number):
        async with ctx.agent(f"agent-{number}", provider="n", model="x") as agent:
            agent.on("agent/status", lambda notice: None)
            await agent.run("x")

    async def main():
        for number in range(500):
            await round(number)
        gc.collect()
        before = resident_kib()
        for number in range(2000):
            await round(number)
        gc.collect()
        return resident_kib() - before, len(ctx.agents)

    grown, alive = run(main(), timeout=120)
    assert alive == 0
    assert grown < 1024, f"{grown} KiB more after 2,000 rounds"


def test_a_sync_callback_that_calls_everything_back_finds_nothing_borrowed():
    ctx, codes = context("one", "two", "three"), set()

    @ctx.on("session/event")
    def everything(event):
        agent = ctx.agents.get(event.session_id)
        if agent is None or event.type != "step/start":
            return
        _ = agent.status, agent.state(), agent.session.history, agent.inbox.next_turn, len(agent.session)
        assert agent.receipt("none").state is None
        if event.data["step"] == 1:
            agent.inject("from inside")
        try:
            agent.session.append("mine/x", 1)
        except tw.TurnwheelError as error:
            codes.add(error.code)

    async def main():
        async with open_agent(ctx) as agent:
            task = asyncio.create_task(agent.run("x"))
            await asyncio.sleep(0.02)
            agent.cancel()
            await asyncio.wait([task])

    run(main())
    assert codes == {"REENTRANT"}


def test_following_a_log_ends_when_its_agent_is_disposed():
    ctx = context("one")

    async def main():
        async with open_agent(ctx) as agent:

            async def follow():
                return [event.type async for event in agent.session.follow()]

            follower = asyncio.create_task(follow())
            await agent.run("x")
        return await follower, [event.type async for event in agent.session.follow()]

    followed, again = run(main())
    assert followed == again and "turn/end" in followed


def test_closing_a_context_leaves_nobody_waiting():
    ctx = context(tw.Reply("slow", chunk_size=1, delay=1.0))

    async def main():
        agent = await open_agent(ctx)
        waits = [agent.run("x"), agent.when_idle(), agent.receipt("never sent").settled()]
        tasks = [asyncio.create_task(wait) for wait in waits]
        await asyncio.sleep(0.01)
        await ctx.close()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)

    ran, idle, never = run(main())
    assert ran.reason == {"kind": "aborted", "reason": {"kind": "disposed"}} and idle is None
    assert isinstance(never, tw.RegistryError) and never.code == "NOT_REGISTERED"


def test_a_05_budgets_end_a_turn_and_keep_the_queue() -> None:
    async def main() -> None:
        ctx = tw.Context(turn_budget={"steps": 2})
        ctx.llm.register("m", tw.Scripted(otherwise=tw.Reply(calls=[("c", "noop", {})])))
        ctx.tool(lambda: "ok", name="noop")
        async with ctx, ctx.agent("a", provider="m", model="x") as agent:
            result = await agent.run("go")
            assert result.reason == {"kind": "aborted", "reason": {"kind": "hook", "reason": "budget: steps 2/2"}}
            spent = [event.data for event in agent.session.events() if event.type == "turn/budget"]
            assert spent == [{"turn": 1, "budget": "steps", "limit": 2, "used": 2}]

    asyncio.run(main())


def test_a_06_a_turn_that_takes_too_long_is_cancelled() -> None:
    async def main() -> None:
        ctx = tw.Context(turn_timeout=0.05)
        ctx.llm.register("m", tw.Scripted(tw.Reply("slow", chunk_size=1, delay=10)))
        async with ctx, ctx.agent("a", provider="m", model="x") as agent:
            result = await agent.run("go")
            assert result.reason["reason"] == {"kind": "hook", "reason": "timeout: turn 50ms"}

    asyncio.run(main())


@pytest.mark.parametrize("wrong", [{"stepz": 1}, {"steps": -1}, {"tokens": 1.5}, {"steps": True}])
def test_a_budget_with_a_wrong_limit_is_named(wrong: dict[str, object]) -> None:
    with pytest.raises(tw.UsageError, match=next(iter(wrong))):
        tw.Context(turn_budget=wrong)  # type: ignore[arg-type]
