"""What hung, leaked or passed unnoticed when the package was attacked."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from support import call, context, open_agent, run, tool_results

import turnwheel as tw


def stop(*_: object) -> str:
    raise StopIteration


def test_a_threaded_tool_that_raises_stop_iteration_does_not_hang():
    async def main():
        ctx = context(call("stop"))
        ctx.tool(lambda: stop(), name="stop")
        async with open_agent(ctx) as agent:
            result = await agent.run("go")
            return result.reason, tool_results(agent)

    assert run(main()) == ({"kind": "completed"}, [("Error: the tool raised StopIteration", True, None)])


@pytest.mark.parametrize("where", ["setup", "created"])
def test_stop_iteration_from_whoever_vetoes_an_agent_comes_out(where: str):
    async def main():
        ctx = context()
        if where == "created":
            ctx.on("agent/created", stop)
        with pytest.raises(RuntimeError) as raised:
            await open_agent(ctx, setup=stop if where == "setup" else None)
        assert isinstance(raised.value.__cause__, StopIteration)

    run(main())


@pytest.mark.parametrize("error", [asyncio.CancelledError(), BaseException("odd"), ValueError("no")])
def test_an_async_listener_outlives_what_it_raises(error: BaseException):
    async def main():
        reports: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report["exception"]))
        ctx, heard = context(), []

        @ctx.on("session/event")
        async def listen(event):
            heard.append(event.seq)
            if len(heard) == 1:
                raise error

        async with ctx, open_agent(ctx) as agent:
            await agent.run("x")
            await asyncio.sleep(0.01)
            count = len(agent.session)
        assert heard[:count] == list(range(count)) and reports == [error]

    run(main())


def test_the_worker_of_an_async_listener_ends_with_its_registration_and_its_agent():
    async def main():
        async def listen(_: object) -> None: ...

        ctx = context()
        async with open_agent(ctx, "first") as agent:
            await agent.run("x")
            before = len(asyncio.all_tasks())
            for _ in range(20):
                ctx.on("agent/status", listen).dispose()
            for _ in range(20):
                async with open_agent(ctx, "other") as other:
                    other.on("agent/status", listen)
            await asyncio.sleep(0.01)
            assert len(asyncio.all_tasks()) == before

    run(main())


def test_closing_a_context_from_a_foreign_thread_is_refused_and_harms_nothing():
    async def main():
        ctx, raised = context(), []

        def close() -> None:
            try:
                asyncio.run(ctx.close())
            except tw.WrongThreadError as error:
                raised.append(error.code)

        async with open_agent(ctx) as agent:
            thread = threading.Thread(target=close)
            thread.start()
            await asyncio.to_thread(thread.join)
            assert raised == ["WRONG_THREAD"] and ctx.agents.get("a") is agent
            assert (await agent.run("x")).text == "done"

    run(main())


def test_d_18_closing_the_context_inside_a_turn_fails_at_once():
    async def main():
        ctx, codes = context(call("leave")), []

        async def close(*_: object) -> str:
            with pytest.raises(tw.StateError) as raised:
                await ctx.close()
            codes.append(raised.value.code)
            return "closed"

        ctx.on("agent/turn-stopping", close)

        @ctx.on("agent/pre-step")
        async def step(_: tw.PreStep, next: tw.Next):
            await close()
            return await next()

        @ctx.tool
        async def leave() -> str:
            return await close()

        agent = await open_agent(ctx)
        assert (await agent.run("x")).text == "done"
        await ctx.close()
        return codes

    assert run(main()) == ["SELF_WAIT"] * 4


def asking(ctx: tw.Context, agents: dict[str, tw.Agent], wait: Any) -> None:
    """Tools `ask_x` that wait, in a given way, for something of agent `x`."""
    for other in "abc":

        async def ask(other: str = other) -> str:
            await wait(agents[other])
            return "answered"

        ctx.tool(ask, name=f"ask_{other}", parameters={"type": "object"})


@pytest.mark.parametrize(
    "wait",
    [
        lambda agent: agent.run("q"),
        lambda agent: agent.when_idle(),
        lambda agent: agent.followup("q").settled(),
    ],
)
def test_d_18_tools_that_run_each_others_agents_are_told_instead_of_waiting_for_ever(wait: Any):
    ctx = context(call("ask_b"), call("ask_c"), call("ask_a"))

    async def main():
        agents: dict[str, tw.Agent] = {}
        # Only the last of the ring waits in its own way: the others have to start the next turn.
        asking(ctx, agents, lambda agent: wait(agent) if agent.id == "a" else agent.run("q"))
        async with open_agent(ctx, "a") as a, open_agent(ctx, "b") as b, open_agent(ctx, "c") as c:
            agents.update(a=a, b=b, c=c)
            result = await a.run("go")
            again = await a.run("nothing was left behind")
            return result.reason, again.reason, [tool_results(agent) for agent in (a, b, c)]

    first, second, (of_a, of_b, of_c) = run(main(), 5)
    assert first == second == {"kind": "completed"}
    assert of_a == of_b == [("answered", False, None)]
    assert [(is_error, code) for _, is_error, code in of_c] == [(True, "SELF_WAIT")] and "waiting" in of_c[0][0]


async def gathered(agent: tw.Agent) -> None:
    await asyncio.gather(agent.run("q"), asyncio.sleep(0))


async def in_a_task(agent: tw.Agent) -> None:
    await asyncio.create_task(agent.run("q"))


async def in_a_task_of_a_task(agent: tw.Agent) -> None:
    await asyncio.gather(in_a_task(agent))


async def waited_for(agent: tw.Agent) -> None:
    await asyncio.wait([asyncio.create_task(agent.run("q"))])


async def in_a_group(agent: tw.Agent) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(agent.run("q"))


async def shielded(agent: tw.Agent) -> None:
    await asyncio.shield(agent.run("q"))


async def awaited_later(agent: tw.Agent) -> None:
    task = asyncio.create_task(agent.run("q"))
    await asyncio.sleep(0.1)
    await task


WAYS = [gathered, in_a_task, in_a_task_of_a_task, waited_for, in_a_group, shielded, awaited_later]


@pytest.mark.parametrize("last", [lambda agent: agent.run("q"), gathered, in_a_task])
@pytest.mark.parametrize("way", WAYS)
def test_d_18_a_ring_through_tasks_that_are_awaited_is_told(way: Any, last: Any):
    ctx = context(call("ask_b"), call("ask_c"), call("ask_a"))

    async def main():
        agents: dict[str, tw.Agent] = {}
        asking(ctx, agents, lambda agent: last(agent) if agent.id == "a" else way(agent))
        async with open_agent(ctx, "a") as a, open_agent(ctx, "b") as b, open_agent(ctx, "c") as c:
            agents.update(a=a, b=b, c=c)
            return (await a.run("go")).reason, [tool_results(agent) for agent in (a, b, c)]

    reason, (of_a, of_b, of_c) = run(main(), 5)
    assert reason == {"kind": "completed"}
    assert of_a == of_b == [("answered", False, None)]
    assert [(is_error, code) for _, is_error, code in of_c] == [(True, "SELF_WAIT")]


@pytest.mark.parametrize(
    "event", ["agent/pre-step", "agent/request", "agent/turn-stopping", "tools/pre-execute", "adapter"]
)
def test_d_18_a_ring_through_a_listener_or_an_adapter_is_told(event: str):
    # What the agent's own request brings before the other one is asked.
    before: dict[str, Any] = {"tools/pre-execute": [call("look")], "agent/turn-stopping": ["said"]}
    ctx = context(*before.get(event, []), call("ask_a"))

    async def main():
        agents: dict[str, tw.Agent] = {}
        asking(ctx, agents, lambda agent: agent.run("q"))

        async def decide(_: object, next: tw.Next | None = None) -> Any:
            await gathered(agents["b"])
            return None if next is None else await next()

        async def adapter(_: tw.ModelRequest):
            await gathered(agents["b"])
            yield {"type": "finish", "reason": {"kind": "stop"}}

        ctx.llm.register("asks", adapter)
        async with open_agent(ctx, "b") as b:
            a = await ctx.agent("a", provider="asks" if event == "adapter" else "m", model="m")
            agents.update(a=a, b=b)
            if event != "adapter":
                a.on(event, decide)  # type: ignore[call-overload]
            if event == "tools/pre-execute":
                a.add_tool(lambda: "looked", name="look", parameters={"type": "object"})
            result = await a.run("go")
            await a.dispose()
            return result.reason, tool_results(b)

    reason, of_b = run(main(), 5)
    assert reason == {"kind": "completed"}
    assert [(is_error, code) for _, is_error, code in of_b][:1] == [(True, "SELF_WAIT")]


def test_d_18_a_run_left_behind_by_a_body_that_goes_on_is_no_reason_to_refuse_one_back():
    ctx = context(call("leave"), call("ask_a"))

    async def main():
        agents: dict[str, tw.Agent] = {}
        asking(ctx, agents, lambda agent: agent.run("q"))
        left: list[asyncio.Future[Any]] = []

        @ctx.tool
        async def leave() -> str:
            left.append(asyncio.gather(agents["b"].run("q")))
            # Long enough for the one back to be looked at again; the first of two, and a limit, wait for neither.
            await asyncio.wait([left[0], asyncio.create_task(asyncio.sleep(0.1))], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([left[0]], timeout=0.1)
            return "left"

        async with open_agent(ctx, "a") as a, open_agent(ctx, "b") as b:
            agents.update(a=a, b=b)
            await a.run("go")
            return (await left[0])[0].reason, tool_results(b)

    assert run(main(), 5) == ({"kind": "completed"}, [("answered", False, None)])


def test_d_18_a_run_that_a_tool_leaves_behind_is_no_reason_to_refuse_one_back():
    ctx = context(call("leave"), call("ask_a"))

    async def main():
        agents: dict[str, tw.Agent] = {}
        asking(ctx, agents, lambda agent: agent.run("q"))
        left: list[asyncio.Task[tw.RunResult]] = []

        @ctx.tool
        async def leave() -> str:
            left.append(asyncio.create_task(agents["b"].run("q")))
            await asyncio.sleep(0)
            return "left"

        async with open_agent(ctx, "a") as a, open_agent(ctx, "b") as b:
            agents.update(a=a, b=b)
            await a.run("go")
            return (await left[0]).reason, tool_results(b)

    assert run(main(), 5) == ({"kind": "completed"}, [("answered", False, None)])


def test_d_18_waiting_for_oneself_in_maintenance_fails_at_once():
    async def main():
        ctx = context()
        async with open_agent(ctx) as agent, open_agent(ctx, "b") as other:

            async def task(_: tw.Signal) -> list[str]:
                assert (await other.run("x")).text == "done", "another agent may be waited for"
                receipt, codes = agent.followup("later"), []
                for wait in (agent.when_idle, lambda: agent.run("x"), receipt.settled):
                    with pytest.raises(tw.StateError) as raised:
                        await asyncio.create_task(wait())
                    codes.append(raised.value.code)
                with pytest.raises(tw.StateError):
                    agent.stream("x")
                return codes

            assert await agent.run_maintenance(task) == ["SELF_WAIT"] * 3
            await agent.when_idle()

    run(main())


@pytest.mark.parametrize(
    "wrong",
    [
        {"headers": {"x-a": 5}},
        {"idle_timeout": "5"},
        {"idle_timeout": -1},
        {"api_key": 5},
        {"allow_insecure_http": "no"},
        {"max_tokens_member": 5},
        {"models": {"m": {"context_windw": 1}}},
        {"models": {"m": {"context_window": "big"}}},
        {"models": {"m": {"efforts": [1]}}},
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_and_not_ignored(wrong: dict[str, Any]):
    with pytest.raises(tw.UsageError, match="`"):
        tw.OpenAIChat("https://example.com/v1", **wrong)


def test_a_listener_that_cannot_be_called_is_refused_where_it_is_registered():
    with pytest.raises(tw.UsageError, match="session/event"):
        tw.Context().on("session/event", 5)  # type: ignore[call-overload]


@pytest.mark.parametrize("chunk", [None, 5, b"bytes", [1]])
def test_an_adapter_that_yields_no_chunk_is_told(chunk: object):
    async def main():
        async def adapter(_: tw.ModelRequest):
            yield chunk

        ctx = tw.Context()
        ctx.llm.register("m", adapter)  # type: ignore[arg-type]
        async with open_agent(ctx) as agent:
            return (await agent.run("x")).reason

    assert run(main())["error"]["code"] == "MALFORMED_CHUNK"
