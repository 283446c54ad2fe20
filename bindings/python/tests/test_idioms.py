"""The package feels like Python: typed tools, contexts, loops of every kind, plain scripts."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import pickle
import threading
from typing import Annotated, TypedDict

import pydantic
import pytest
import uvloop
from support import call, child, context, open_agent, reasons, run, tool_results

import turnwheel as tw
import turnwheel.sync


class Place(pydantic.BaseModel):
    """Where something is."""

    city: str = pydantic.Field(description="A city.")
    floor: int = pydantic.Field(default=0, ge=-3, le=90)


class Options(TypedDict, total=False):
    unit: Annotated[str, "C or F"]


def parameters_of(ctx: tw.Context) -> dict:
    """The schema that the model was shown of the only tool."""
    return ctx.script.requests[-1]["tools"][0]["parameters"]


def test_pydantic_models_fields_and_typed_dicts_are_schemas_and_arrive_as_what_they_say():
    ctx, got = context(call("visit", {"place": {"city": "Oslo"}, "days": 2, "options": {"unit": "C"}})), []

    @ctx.tool
    async def visit(
        place: Place, days: Annotated[int, pydantic.Field(description="How many.", gt=0)], options: Options
    ):
        got.append((place, days, options))
        return place

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("x")
            return tool_results(agent)

    results = run(main())
    shown = parameters_of(ctx)["properties"]
    assert got == [(Place(city="Oslo"), 2, {"unit": "C"})]
    assert results == [('{"city":"Oslo","floor":0}', False, None)]
    assert shown["place"]["properties"]["city"] == {"type": "string", "description": "A city."}
    assert shown["place"]["properties"]["floor"] == {"type": "integer", "default": 0, "description": "(ge -3, le 90)"}
    assert shown["place"]["required"] == ["city"]
    assert shown["days"] == {"type": "integer", "description": "How many. (gt 0)"}
    assert shown["options"]["properties"]["unit"]["description"] == "C or F"


@pytest.mark.parametrize("given", [{"place": {"city": "Oslo", "floor": 91}}, {"place": {"city": "Oslo"}, "days": 0}])
def test_what_pydantic_refuses_is_the_models_answer_and_never_reaches_the_body(given):
    ctx, reached = context(call("visit", {"days": 1, **given})), []

    @ctx.tool
    def visit(place: Place, days: Annotated[int, pydantic.Field(gt=0)]) -> str:
        reached.append(place)
        return "ok"

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("x")
            return tool_results(agent)

    [(text, is_error, code)] = run(main())
    assert (is_error, code, reached) == (True, "INVALID_ARGS", [])
    assert text.startswith(tw.TEXTS["INVALID_ARGS"])


def test_current_agent_is_known_in_tools_their_threads_listeners_and_tasks_and_nowhere_else():
    ctx, seen = context(tw.Reply(calls=[("c1", "here", {}), ("c2", "there", {})])), {}
    request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="none")

    @ctx.tool
    async def here() -> str:
        seen["task"] = await asyncio.create_task(name())
        return "x"

    @ctx.tool
    def there() -> str:
        seen["thread"] = (
            tw.current_agent().id,
            request_id.get(),
            threading.current_thread() is threading.main_thread(),
        )
        return "x"

    @ctx.on("agent/pre-step")
    async def listen(payload, next):
        seen["listener"] = (tw.current_agent().id, request_id.get())
        return await next()

    async def name():
        return tw.current_agent().id, request_id.get()

    async def main():
        async with open_agent(ctx, "one") as agent:
            request_id.set("r-7")
            await agent.run("x")
            seen["outside"] = tw.current_agent()

    run(main())
    assert seen == {
        "task": ("one", "r-7"),
        "thread": ("one", "r-7", False),
        "listener": ("one", "r-7"),
        "outside": None,
    }


def test_results_and_events_are_frozen_shown_and_pickled():
    ctx = context("hello")

    async def main():
        async with open_agent(ctx) as agent:
            return await agent.run("x"), agent.session.events(), agent.session.consumed_work

    result, events, work = run(main())
    for value in (result, events, work):
        assert pickle.loads(pickle.dumps(value)) == value
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.text = "other"
    with pytest.raises(AttributeError):
        events[0].seq = 7
    assert "text='hello'" in repr(result) and repr(events[0]).startswith("<Event ")
    assert events[3].data is events[3].data, "decoded once"
    assert pickle.loads(pickle.dumps(events[3])).json == events[3].json
    with pytest.raises(tw.UsageError, match="not an event"):
        tw.Event.from_json("{", "a")


def test_a_session_moves_to_another_context_as_plain_data():
    first, second = context("one"), context("two")

    async def main():
        async with open_agent(first) as agent:
            await agent.run("x")
            log = pickle.loads(pickle.dumps(agent.session.to_dict()))
        async with open_agent(second, log=log) as again:
            await again.run("y")
            return [message["content"][0]["text"] for message in again.session.history]

    assert run(main()) == ["x", "one", "y", "two"]


def test_an_agent_forks_from_another_and_owns_its_children():
    ctx = context(otherwise="done")

    async def main():
        async with open_agent(ctx, "parent") as parent:
            await parent.run("x")
            child = await parent.agent("child", provider="m", model="x", fork={"from": "parent"})
            header = child.session.header
            assert (header["parentSession"], header["seedLength"]) == ("parent", len(parent.session))
            assert [event.type for event in child.session.events()][: len(parent.session)] == [
                event.type for event in parent.session.events()
            ]
        # What an agent owns ends with it.
        return len(ctx.agents)

    assert run(main()) == 0


def test_a_tool_is_taken_back():
    ctx = context(otherwise="done")

    def probe() -> str:
        "Probes."
        return "x"

    registration = ctx.add_tool(probe, thread=False)

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("x")
            shown = [tool["name"] for tool in ctx.script.requests[-1].get("tools", [])]
            registration.dispose()
            await agent.run("y")
            return shown, ctx.script.requests[-1].get("tools", [])

    assert run(main()) == (["probe"], [])


def test_an_adapters_failure_reaches_policies_with_its_facts():
    ctx, seen = tw.Context(), []

    async def adapter(request: tw.ModelRequest):
        if not seen:
            raise tw.ModelError("slow down", failure={"code": "RATE_LIMIT", "status": 429, "providerRetryAfterMs": 5})
        yield "fine"

    ctx.llm.register("m", adapter, models={"x": {"context_window": 1000, "default_max_tokens": 77}})

    @ctx.on("agent/request-error")
    def again(payload, next):
        seen.append(payload.failure)
        return "retry"

    async def main():
        async with open_agent(ctx) as agent:
            return (await agent.run("x")).text, agent.session.events()

    text, events = run(main())
    facts = {"message": "slow down", "code": "RATE_LIMIT", "status": 429, "providerRetryAfterMs": 5}
    assert (text, seen) == ("fine", [facts])
    header = next(event.data["header"] for event in events if event.type == "request/header")
    assert header["config"]["maxTokens"] == 77


def test_asyncio_timeout_and_task_groups_cancel_turns():
    ctx = context(tw.Reply("slow " * 50, chunk_size=1, delay=0.01), otherwise="done")

    async def main():
        async with open_agent(ctx) as agent:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await agent.run("x")
            await agent.when_idle()
            async with asyncio.TaskGroup() as group:
                after = group.create_task(agent.run("y"))
            return reasons(agent), after.result().text

    ended, text = run(main())
    assert [reason["kind"] for reason in ended] == ["aborted", "completed"] and text == "done"


def test_uvloop_runs_everything():
    ctx = context(call("both"), "done", store=None)
    heard = []

    @ctx.tool
    def both() -> str:
        return threading.current_thread().name

    @ctx.on("session/event", types=["turn/end"])
    async def ended(event):
        heard.append(event.data["reason"]["kind"])

    async def main():
        async with open_agent(ctx) as agent:
            stream = [event.type async for event in agent.stream("x")]
            await asyncio.sleep(0)
            return type(asyncio.get_running_loop()).__module__, stream[-1], tool_results(agent)[0][1]

    assert uvloop.run(main()) == ("uvloop", "turn/end", False)
    assert heard == ["completed"]


def test_asyncio_runs_several_times_in_one_process():
    ctx = context(otherwise="done")

    async def main(name):
        async with open_agent(ctx, name) as agent:
            return (await agent.run("x")).text

    assert [asyncio.run(main(f"a{n}")) for n in range(5)] == ["done"] * 5


def test_cells_of_a_notebook_share_a_running_loop():
    """A notebook runs each cell as a task of a loop that never ends between them."""
    ctx = context(otherwise="done")
    cells = {}
    loop = asyncio.new_event_loop()

    async def first():
        cells["agent"] = await open_agent(ctx)

    async def second():
        return (await cells["agent"].run("x")).text

    async def third():
        with pytest.raises(tw.UsageError, match="await"):
            with turnwheel.sync.Context() as plain:
                plain.agent("a")
        await ctx.close()

    loop.run_until_complete(first())
    assert loop.run_until_complete(second()) == "done"
    loop.run_until_complete(third())
    loop.close()


def test_a_plain_script_needs_no_async(tmp_path):
    heard = []
    with turnwheel.sync.Context(store=tmp_path) as ctx:
        ctx.llm.register("m", tw.Scripted(call("add", {"a": 2, "b": 3}), "It is 5.", otherwise="more"))

        @ctx.tool
        def add(a: int, b: int) -> int:
            return a + b

        @ctx.on("agent/status")
        def status(notice):
            heard.append(notice.status)

        with ctx.agent("calc", provider="m", model="x") as agent:
            assert agent.run("2 + 3?").text == "It is 5."
            kinds = [event.type for event in agent.stream("again")]
            receipt = agent.followup("queued")
            agent.when_idle()
            assert (kinds[-1], receipt.state["kind"], agent.status) == ("turn/end", "ended", "idle")
            agent.flush()
        assert [header["id"] for header in ctx.list_sessions()] == ["calc"]
    assert heard == ["running", "idle"] * 3
    ctx.close()


def test_a_script_that_forgets_to_close_ends_quietly(tmp_path):
    code = """
    import turnwheel.sync as tw
    ctx = tw.Context(store=sys.argv[1])
    ctx.llm.register("m", tw.Scripted(otherwise="done"))
    agent = ctx.agent("a", provider="m", model="x")
    print(agent.run("x").text)
    """
    process = child(code, str(tmp_path))
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out.decode().strip(), err.decode()) == (0, "done", "")


def test_trio_is_refused_with_what_to_do():
    code = """
    import trio, turnwheel as tw
    ctx = tw.Context()
    async def main():
        try:
            await ctx.agent("a")
        except tw.UsageError as error:
            print(error)
    trio.run(main)
    """
    process = child(code)
    out, err = process.communicate(timeout=30)
    assert "asyncio" in out.decode() and process.returncode == 0, err.decode()
