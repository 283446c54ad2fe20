"""Guards, restrictions and presentation of tools; checks and versions of events; selection, forks, initiators."""

from __future__ import annotations

import asyncio

import pytest
from support import call, context, open_agent, reasons, run, tool_results

import turnwheel as tw


def sent_tools(ctx, request=-1):
    return [tool["name"] for tool in ctx.script.requests[request].get("tools", [])]


def test_a_guard_denies_what_policy_allowed_and_gets_the_call():
    ctx = context(call("pay", {"amount": 9}), "ok")
    ran, seen = [], []

    @ctx.tool
    def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    @ctx.guard
    def no_money(call: tw.PreExecute) -> str | None:
        seen.append((call.agent.id, call.call_id, call.name, call.arguments))
        return "not today" if call.name == "pay" else None

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("go")
            assert tool_results(agent) == [("Error: not today", True, None)]

    run(main())
    assert (ran, seen) == ([], [("a", "c1", "pay", {"amount": 9})])


def test_a_guard_that_raises_or_answers_nonsense_fails_the_call():
    ctx = context(call("look"), call("look", call_id="c2"), "ok")
    answers = [7]

    @ctx.tool
    def look() -> str:
        return "seen"

    @ctx.guard
    def odd(_):
        if answers:
            return answers.pop()
        raise ValueError("no idea")

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("go")
            first, second = tool_results(agent)
            assert first[1:] == (True, "INVALID_ARGUMENT")
            assert second[0] == "Error: no idea"

    run(main())
    with pytest.raises(tw.UsageError, match="at once"):

        @ctx.guard
        async def late(_): ...


def test_an_agent_can_be_kept_from_inherited_tools_and_the_order_of_tools_is_the_programs():
    ctx = context()
    for name in ("read", "write", "list"):
        ctx.tool(name=name)(lambda: "x")

    def compose(scope):
        scope.tool(name="own")(lambda: "x")
        scope.restrict_tools(deny=["write"])
        with pytest.raises(tw.UsageError, match="not an inherited tool"):
            scope.restrict_tools(allow=["own"])

    async def main():
        async with open_agent(ctx, setup=compose) as agent:
            order = ctx.set_tool_order(["read", "<unlisted-tools>"])
            await agent.run("go")
            assert sent_tools(ctx) == ["read", "list", "own"]
            order.dispose()
            await agent.run("again")
            assert sent_tools(ctx) == ["list", "own", "read"]
        async with open_agent(ctx, "b") as other:
            await other.run("go")
            assert sent_tools(ctx) == ["list", "read", "write"]

    run(main())
    with pytest.raises(tw.UsageError):
        ctx.set_tool_order(["read"])
        run(asyncio.wait_for(open_agent(ctx, "c")._open(), 5))


def test_programs_of_the_model_call_tools_where_tools_are_presented_as_code():
    program = call("run_code", {"program": "add 2 3"}, "k1")
    ctx = context(call("add", {"a": 1, "b": 1}, "k0"), program, "ok")

    @ctx.tool
    def add(a: int, b: int) -> int:
        "Adds."
        return a + b

    @ctx.code_runner
    async def run_program(call: tw.ToolCall, program: str) -> str:
        "Runs a program."
        name, *numbers = program.split()
        answer = await call.call(name, dict(zip("ab", map(int, numbers), strict=True)))
        assert (answer["is_error"], answer["error"], answer["value"]) == (False, None, 5)
        failed = await call.call("nobody")
        assert (failed["is_error"], failed["error"][1]) == (True, "UNKNOWN_TOOL")
        return "".join(part["text"] for part in answer["content"])

    async def main():
        async with open_agent(ctx, setup=lambda scope: scope.present_tools("code")) as agent:
            await agent.run("go")
            refused, answered = tool_results(agent)
            assert refused[2] == "UNKNOWN_TOOL" and "run_code" in refused[0]
            assert answered == ("5", False, None)
            assert sent_tools(ctx) == ["run_code"]
            assert '"name":"add"' in ctx.script.requests[-1]["system"]
        async with open_agent(ctx, "native") as agent:
            await agent.run("go")
            assert sent_tools(ctx) == ["add"]
            with pytest.raises(tw.UsageError, match="native, code or both"):
                agent.present_tools("python")  # type: ignore[arg-type]

    run(main())


def test_an_event_check_refuses_before_the_commit_and_whoever_appends_gets_what_it_raised():
    ctx = context()
    seen = []

    class TooMuch(Exception):
        pass

    @ctx.check_events
    def small_notes(event: tw.Event) -> None:
        seen.append(event.type)
        if event.type == "acme/note" and len(event.data["text"]) > 3:
            raise TooMuch(event.data["text"])

    async def main():
        async with open_agent(ctx) as agent:
            agent.session.append("acme/note", {"text": "abc"})
            with pytest.raises(TooMuch, match="long"):
                agent.session.append("acme/note", {"text": "long"})
            assert [event.data["text"] for event in agent.session.events()] == ["abc"]
            await agent.run("go")

    run(main())
    assert seen[:2] == ["acme/note", "acme/note"] and "turn/end" in seen


def test_a_registered_event_type_has_a_version_that_older_programs_refuse(tmp_path):
    async def live(version, act=lambda session: None):
        ctx = context(store=tmp_path)
        if version is not None:
            ctx.register_event_type("acme/score", version)
        async with ctx, open_agent(ctx) as agent:
            act(agent.session)

    run(live(2, lambda session: session.append("acme/score", {"points": 1})))
    for version in (None, 1):
        with pytest.raises(tw.LogError) as refused:
            run(live(version))
        assert refused.value.code == "UNSUPPORTED_FORMAT"

    def newer(session):
        assert session.event_type_version("acme/score") == 2
        assert session.event_type_version("acme/other") is None

    run(live(3, newer))
    with pytest.raises(tw.UsageError, match="whole number"):
        context().register_event_type("acme/score", 0)


def test_the_runtimes_invariants_are_opt_in_and_hold():
    ctx = context(call("look"), "ok")
    ctx.tool(name="look")(lambda: "seen")
    ctx.check_invariants()

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("go")
            assert reasons(agent) == [{"kind": "completed"}]

    run(main())
    broken = context()
    broken.check_invariants(allow=["("])
    with pytest.raises(tw.UsageError, match="malformed"):
        run(asyncio.wait_for(open_agent(broken)._open(), 5))


def test_a_model_selection_switches_between_steps_and_ends_with_its_registration():
    ctx = context()
    ctx.llm.register("n", ctx.script)
    selection = tw.ModelSelection("n", "big", reasoning_effort=None)

    async def main():
        async with open_agent(ctx, setup=selection.install) as agent:
            await agent.run("one")
            selection.select("m", "small")
            assert selection.current == {"provider": "m", "model": "small", "reasoning_effort": None}
            await agent.run("two")
            selection.select()
            assert selection.current is None
        async with open_agent(ctx, "b") as other:
            registration = tw.ModelSelection("n", "big").install(other)
            await other.run("one")
            registration.dispose()
            await other.run("two")

    run(main())
    routes = [(request["config"]["provider"], request["config"]["model"]) for request in ctx.script.requests]
    assert routes[:3] == [("n", "big"), ("m", "small"), ("n", "big")]
    with pytest.raises(tw.UsageError, match="or neither"):
        tw.ModelSelection("n")


def test_a_session_is_forked_at_a_boundary_and_asking_again_gives_the_same():
    ctx = context()

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("one")
            end = len(agent.session) - 1
            child = ctx.fork_session("a", end, id="child")
            assert child.header["parentSession"] == "a" and child.header["seedLength"] == end + 1
            await agent.run("two")
            assert len(ctx.fork_session("a", end, id="child")) == len(child) < len(agent.session)
            for arguments, code in [
                (("a", 1), "OPEN_TURN"),
                (("a", 999), "INVALID_BOUNDARY"),
                (("x",), "SESSION_NOT_FOUND"),
            ]:
                with pytest.raises(tw.TurnwheelError) as refused:
                    ctx.fork_session(*arguments)
                assert refused.value.code == code
            work = agent.session.consumed_work
            assert (work.end, work.dropped_unrun) == (len(agent.session) - 1, False)

    run(main())


def test_work_that_was_dropped_unrun_is_told():
    ctx = context()

    async def main():
        async with open_agent(ctx) as agent:
            assert agent.session.consumed_work == tw.ConsumedWork(None, False)
            agent.send("never read", wakeup=False)
            agent.cancel()
            assert agent.session.consumed_work == tw.ConsumedWork(None, True)

    run(main())


def test_the_initiator_is_the_agent_whose_turn_it_is_and_can_be_set_and_left():
    ctx = context(call("who"), "ok")
    seen = []

    @ctx.tool
    async def who() -> str:
        seen.append(ctx.require_initiator().id)
        await asyncio.sleep(0)
        seen.append(ctx.require_initiator().id)
        with ctx.without_initiator():
            assert ctx.current_initiator() is None
            await asyncio.sleep(0)
            assert await asyncio.create_task(found()) is None
        with ctx.with_initiator(ctx.agents.get("b")):
            assert (await asyncio.create_task(found())).id == "b"
        return ctx.current_initiator().id

    async def found():
        return ctx.current_initiator()

    async def main():
        async with open_agent(ctx) as agent, open_agent(ctx, "b") as other:
            assert ctx.current_initiator() is None
            with pytest.raises(tw.StateError) as none:
                ctx.require_initiator()
            assert none.value.code == "NO_INITIATOR"
            await agent.run("go")
            assert tool_results(agent) == [("a", False, None)]
            with ctx.with_initiator(other):
                assert ctx.require_initiator() is other
            assert ctx.current_initiator() is None
        with pytest.raises(tw.StateError):
            await ctx.close()
            with ctx.with_initiator(other):
                pass

    run(main())
    assert seen == ["a", "a"]


def test_errors_say_whether_the_same_call_may_be_repeated():
    ctx = context()

    async def main():
        async with open_agent(ctx) as agent:
            agent.send({"id": "m1", "content": "x"}, wakeup=False)
            with pytest.raises(tw.TurnwheelError) as known:
                agent.send({"id": "m1", "content": "x"})
            assert known.value.retry is None
            release = asyncio.Event()
            upkeep = asyncio.ensure_future(agent.run_maintenance(lambda _: release.wait()))
            await asyncio.sleep(0)
            with pytest.raises(tw.StateError) as busy:
                await agent.run_maintenance(lambda _: release.wait())
            assert (busy.value.code, busy.value.retry) == ("BUSY", 0.0)
            release.set()
            await upkeep

    run(main())


def test_the_shorthand_of_schemas_becomes_json_schema():
    shorthand = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"path": {"type": "string", "required": True}, "extra": {"type": "json"}},
    }
    schema = tw.schema_of_shorthand(shorthand)
    assert schema["required"] == ["path"] and schema["properties"] == {"path": {"type": "string"}, "extra": {}}
    with pytest.raises(tw.UsageError, match=r"schema\.properties\.a: `required`"):
        tw.schema_of_shorthand({**shorthand, "properties": {"a": {"type": "null", "required": False}}})
