"""Tools: schemas from annotations, sync and async bodies, errors, and outputs that are not JSON."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import threading
import typing
from typing import Annotated, Literal, Optional, TypedDict, Union

import pytest
from support import call, context, open_agent, run, tool_results

import turnwheel as tw
from turnwheel._schema import Signature


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


class Options(TypedDict, total=False):
    deep: typing.Required[bool]
    names: list[str]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def properties(function):
    return Signature(function).parameters["properties"]


def test_schemas_come_from_annotations():
    def f(
        a: int,
        b: float,
        c: str,
        d: bool,
        e: list[int],
        f: dict[str, int],
        g: Optional[str],  # noqa: UP045
        h: Union[int, str, None],  # noqa: UP007
        i: Literal["x", "y"],
        j: Annotated[int, "how many"],
        k: Point,
        l: Options,  # noqa: E741
        m: Colour,
        n: int | float,
        o: int = 3,
    ): ...

    parameters = Signature(f).parameters
    assert parameters["properties"] == {
        "a": {"type": "integer"},
        "b": {"type": "number"},
        "c": {"type": "string"},
        "d": {"type": "boolean"},
        "e": {"type": "array", "items": {"type": "integer"}},
        "f": {"type": "object"},
        "g": {"oneOf": [{"type": "string"}, {"type": "null"}]},
        "h": {"oneOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
        "i": {"type": "string", "enum": ["x", "y"]},
        "j": {"type": "integer", "description": "how many"},
        "k": {
            "type": "object",
            "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
            "required": ["x"],
            "additionalProperties": False,
        },
        "l": {
            "type": "object",
            "properties": {"deep": {"type": "boolean"}, "names": {"type": "array", "items": {"type": "string"}}},
            "required": ["deep"],
            "additionalProperties": False,
        },
        "m": {"type": "string", "enum": ["red", "blue"]},
        "n": {"type": "number"},
        "o": {"type": "integer", "default": 3},
    }
    assert parameters["required"] == list("abcdefghijklmn")
    tw.Context().tool(f)  # the core takes it


@pytest.mark.parametrize("hint", [set, datetime.datetime, bytes, dict[int, str], complex])
def test_an_annotation_without_a_schema_is_refused_where_it_stands(hint):
    def tool(a): ...

    tool.__annotations__["a"] = hint
    with pytest.raises(tw.UsageError, match="parameter 'a'"):
        tw.Context().tool(tool)


def test_a_parameter_without_annotation_and_a_bad_schema_are_refused():
    with pytest.raises(tw.UsageError, match="annotate it"):
        tw.Context().tool(lambda a: a)
    with pytest.raises(tw.UsageError) as caught:
        tw.Context().tool(name="t", parameters={"anyOf": []})(lambda: 1)
    assert caught.value.code == "UNSUPPORTED_SCHEMA"


def answers(ctx, *calls):
    """The tool results of a turn whose first reply makes these calls."""

    async def main():
        async with open_agent(ctx) as agent:
            result = await agent.run("go")
            assert result.reason == {"kind": "completed"}, result.reason
            return tool_results(agent)

    for reply in calls:
        ctx.script.add(reply)
    return run(main())


def test_arguments_become_what_the_annotations_say_and_defaults_apply():
    ctx, seen = context(), []

    @ctx.tool
    async def plot(at: Point, colour: Colour, path: list[Point], scale: float, times: int = 2) -> Point:
        "Plot."
        seen.append((at, colour, path, scale, times))
        return Point(at.x * times, 1.0)

    arguments = {"at": {"x": 1}, "colour": "red", "path": [{"x": 2, "y": 3}], "scale": 4}
    assert answers(ctx, call("plot", arguments)) == [('{"x":2,"y":1}', False, None)]
    assert seen == [(Point(1.0), Colour.RED, [Point(2.0, 3.0)], 4.0, 2)]
    assert type(seen[0][0].x) is float and type(seen[0][3]) is float
    tools = ctx.script.requests[0]["tools"]
    assert (tools[0]["name"], tools[0]["description"]) == ("plot", "Plot.")


def test_bad_arguments_never_reach_the_body():
    ctx, ran = context(), []

    @ctx.tool
    def f(a: int):
        ran.append(a)

    [(text, is_error, code)] = answers(ctx, call("f", {"a": "x"}))
    assert is_error and code == "INVALID_ARGS" and '"a"' in text and ran == []


def test_sync_tools_run_in_a_thread_unless_told_otherwise():
    ctx, threads = context(), {}

    @ctx.tool
    def away() -> str:
        threads["away"] = threading.current_thread()
        return "away"

    @ctx.tool(name="here", thread=False, parallel=True, timeout=5.0, description="Stays.")
    def stays() -> str:
        threads["here"] = threading.current_thread()
        return "here"

    assert answers(ctx, call("away"), call("here")) == [("away", False, None), ("here", False, None)]
    assert threads["here"] is threading.main_thread() and threads["away"] is not threading.main_thread()


def test_what_a_tool_raises_is_the_models_answer():
    ctx = context()

    @ctx.tool
    async def plain():
        raise ValueError("no such row")

    @ctx.tool
    def missing():
        return {}["key"]

    @ctx.tool
    async def coded():
        raise tw.ToolError("try later", code="RATE")

    assert answers(ctx, call("plain"), call("missing"), call("coded"), call("nobody")) == [
        ("Error: no such row", True, None),
        ("Error: KeyError: 'key'", True, None),
        ("Error: try later", True, "RATE"),
        ('Error: there is no tool named "nobody"', True, "UNKNOWN_TOOL"),
    ]


BAD = {
    "datetime": (datetime.datetime(2024, 1, 1), "datetime.datetime"),
    "set": ({1}, "set"),
    "bytes": (b"x", "bytes"),
    "nan": (float("nan"), "NaN"),
    "big": (2**60 + 1, "exactly"),
    "key": ({1: 2}, "int"),
    "nested": ({"rows": [1, object()]}, ".rows[1]"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_output_that_is_not_json_is_named_to_the_model(name):
    value, told = BAD[name]
    ctx = context()
    ctx.tool(name="t")(lambda: value)
    [(text, is_error, code)] = answers(ctx, call("t"))
    assert is_error and code == "INVALID_TOOL_OUTPUT" and told in text, text


def test_an_output_that_holds_itself_is_refused():
    ctx, loop = context(), []
    loop.append(loop)
    ctx.tool(name="t")(lambda: loop)
    [(text, _, code)] = answers(ctx, call("t"))
    assert code == "INVALID_TOOL_OUTPUT" and "nested" in text


def test_outputs_that_json_carries():
    ctx = context()
    good = [None, 2**60, -0.0, "\ud83d\ude00 \ud800", (1, 2), {"p": Point(1.0)}, 1.5]
    for index, value in enumerate(good):

        def body(value=value):
            return value

        ctx.tool(name=f"t{index}", parameters={"type": "object"})(body)
    texts = [text for text, _, _ in answers(ctx, *(call(f"t{i}", call_id=f"c{i}") for i in range(len(good))))]
    assert texts == ["null", "1152921504606847000", "0", "😀 \ufffd", "[1,2]", '{"p":{"x":1,"y":0}}', "1.5"]


def test_a_tool_may_ask_for_its_call_and_return_content_and_meta():
    ctx, seen = context(), {}

    @ctx.tool
    async def note(call: tw.ToolCall, text: str):
        seen.update(id=call.call_id, agent=call.agent, args=call.arguments, fired=call.signal.cancelled)
        call.conclude_turn()
        return tw.ToolOutput(content=[{"type": "text", "text": text}], meta={"k": 1})

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("go")
            [result] = [event for event in agent.session.events() if event.type == "tool/result"]
            return agent, result.data["meta"], tool_results(agent)

    ctx.script.add(call("note", {"text": "hi"}, "id-7"))
    agent, meta, results = run(main())
    assert seen == {"id": "id-7", "agent": agent, "args": {"text": "hi"}, "fired": False}
    assert meta == {"k": 1} and results == [("hi", False, None)] and ctx.script.request_count == 1


def test_a_tool_may_add_context_for_the_next_step():
    ctx = context(call("note"))

    @ctx.tool
    async def note(call: tw.ToolCall):
        call.defer_context("remember this")

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("go")

    run(main())
    assert ctx.script.requests[1]["messages"][-1]["content"] == [{"type": "text", "text": "remember this"}]


def test_a_tool_timeout_ends_an_async_body():
    ctx = context()

    @ctx.tool(timeout=0.05)
    async def slow():
        import asyncio

        await asyncio.sleep(60)

    [(_, is_error, code)] = answers(ctx, call("slow"))
    assert is_error and code == "TOOL_TIMEOUT"


def test_an_agents_own_tool_ends_with_it():
    ctx = context()

    async def main():
        async with open_agent(ctx) as agent:

            @agent.tool
            def mine() -> int:
                return 1

            registration = agent.section("s", "own section")
            await agent.run("x")
            registration.dispose()
            await agent.run("y")
        async with open_agent(ctx, "b") as other:
            await other.run("z")
        return ctx.script.requests

    first, second, third = run(main())
    assert [tool["name"] for tool in first["tools"]] == ["mine"] and "tools" not in third
    assert "own section" in first["system"] and "own section" not in (second.get("system") or "")


def test_parallel_tools_overlap_and_answer_in_the_models_order():
    import asyncio

    ctx, log = context(tw.Reply(calls=[("1", "slow", {}), ("2", "fast", {})])), []

    @ctx.tool(parallel=True)
    async def slow():
        log.append("slow starts")
        await asyncio.sleep(0.02)
        log.append("slow ends")
        return "slow"

    @ctx.tool(parallel=lambda arguments: arguments == {})
    async def fast():
        log.append("fast")
        return "fast"

    assert answers(ctx) == [("slow", False, None), ("fast", False, None)]
    assert log == ["slow starts", "fast", "slow ends"]
