"""Cases of the area bindings-py in tests/cases/bug-reports.md: bugs that others had and this package must not have."""

from __future__ import annotations

import ast
import asyncio
import datetime
import decimal
import importlib.util
import threading
import time
import uuid
from pathlib import Path

import pytest
from support import call, child, context, is_balanced, open_agent, reasons, run, tool_results

import turnwheel as tw
import turnwheel._turnwheel


def test_case_088_sends_of_two_threads_at_once_are_turns_of_one_valid_history():
    ctx, each = tw.Context(), 500
    ctx.llm.register("m", tw.Scripted(otherwise="done"))

    async def main():
        async with open_agent(ctx) as agent:
            both = threading.Barrier(2)

            def sender(name):
                both.wait()
                return [agent.send_threadsafe(f"{name}{n}").result(20) for n in range(each)]

            ids = await asyncio.gather(*(asyncio.to_thread(sender, name) for name in "ab"))
            await agent.when_idle()
            return ids, agent.session.events(), [message["role"] for message in agent.session.history]

    ids, events, roles = run(main(), timeout=60)
    assert len({each_id for sent in ids for each_id in sent}) == 2 * each
    assert roles == ["user", "assistant"] * (2 * each) and is_balanced(events)


def test_case_092_blocking_tools_overlap_and_the_loop_goes_on():
    ctx = context(tw.Reply(calls=[(f"c{n}", "block", {}) for n in range(3)]))
    together = threading.Barrier(4)

    @ctx.tool(parallel=True)
    def block() -> str:
        # Passes only when all three block at once, and the loop lets the fourth come.
        together.wait(10)
        return "ok"

    async def main():
        async with open_agent(ctx) as agent:
            await asyncio.gather(agent.run("x"), asyncio.to_thread(together.wait, 10))
            return tool_results(agent)

    assert run(main()) == [("ok", False, None)] * 3


def test_case_131_a_lone_surrogate_from_python_is_replaced_and_every_request_is_valid():
    ctx = context(call("cut"), "done")

    @ctx.tool
    async def cut() -> str:
        return "half \ud83d"

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("a \udc00 b")
            return tool_results(agent), [event.json for event in agent.session.events()]

    results, texts = run(main())
    assert results == [("half \ufffd", False, None)]
    assert all(text.encode() for text in texts), "every event is valid UTF-8"
    assert "a \ufffd b" in str(ctx.script.requests)


UNFIT = {
    "datetime": datetime.datetime(2026, 1, 1),
    "Decimal": decimal.Decimal("0.1"),
    "set": {1},
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "UUID": uuid.UUID(int=1),
    "bytes": b"x",
    "int keys": {1: 2},
    "2**70 + 1": 2**70 + 1,
}


@pytest.mark.parametrize("name", UNFIT)
def test_case_133_values_of_python_that_json_lacks_are_a_tool_error_and_no_broken_log(name):
    ctx = context(call("give"), "done")

    @ctx.tool(parameters={"type": "object"})
    async def give() -> object:
        return UNFIT[name]

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("x")
            with pytest.raises(tw.TurnwheelError):
                agent.followup({"content": [{"type": "text", "text": UNFIT[name]}]})
            with pytest.raises(tw.TurnwheelError) as refused:
                agent.session.append("mine", UNFIT[name])
            return tool_results(agent), refused.value.code, reasons(agent), is_balanced(agent.session.events())

    [(_, is_error, code)], refused, ended, balanced = run(main())
    assert (is_error, code, refused, balanced) == (True, "INVALID_TOOL_OUTPUT", "INVALID_JSON", True)
    assert ended == [{"kind": "completed"}]


def test_case_149_a_run_of_five_hundred_calls_ends_although_nobody_reads():
    ctx = context(*(call("probe", call_id=f"c{n}") for n in range(500)), turn_budget={"steps": None})

    @ctx.tool
    async def probe() -> str:
        return "x"

    async def main():
        async with open_agent(ctx) as agent:
            unread = agent.stream("x")
            await agent.when_idle()
            last = [event async for event in unread][-1]
            return last.type, len(tool_results(agent)), reasons(agent)

    assert run(main(), timeout=60) == ("turn/end", 500, [{"kind": "completed"}])


def test_case_151_a_stream_left_early_ends_silently_with_its_loop():
    process = child("""
    import asyncio
    from support import context, open_agent
    async def main():
        ctx = context("a long answer " * 20)
        agent = await open_agent(ctx)
        async for event in agent.stream("x"):
            break
        async for event in agent.session.follow(0):
            break
    asyncio.run(main(), debug=True)
    """)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, b"", b"")


def test_case_152_a_result_of_five_megabytes_crosses_the_border(tmp_path):
    ctx, big = context(call("big"), "done", store=tmp_path), "0123456789" * 500_000

    @ctx.tool
    async def give(name: str = "") -> str:
        return big

    @ctx.tool(name="big")
    async def give_big() -> str:
        return big

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("x")
        async with open_agent(ctx) as again:
            return tool_results(again)

    assert run(main()) == [(big, False, None)]


def test_case_154_eight_threads_with_python_tools_and_adapters_never_lock_up():
    ended = []

    def work(name):
        async def main():
            ctx = tw.Context()
            asked = 0

            async def adapter(request):
                nonlocal asked
                asked += 1
                if asked % 2:
                    yield {"type": "block-start", "index": 0, "blockType": "tool-call"}
                    made = {"id": f"c{asked}", "name": "probe"}
                    yield {"type": "tool-call-delta", "index": 0, **made, "argumentsDelta": "{}"}
                    yield {"type": "block-end", "index": 0, "block": {"type": "tool-call", **made, "arguments": "{}"}}
                    yield {"type": "finish", "reason": {"kind": "tool-calls"}}
                else:
                    yield "done"

            ctx.llm.register("m", adapter)

            @ctx.tool(thread=False)
            def probe() -> str:
                return "x"

            async with open_agent(ctx, name) as agent:
                for _ in range(125):
                    await agent.run("x")
                ended.append(len(reasons(agent)))

        asyncio.run(main())

    threads = [threading.Thread(target=work, args=(f"a{n}",), daemon=True) for n in range(8)]
    for thread in threads:
        thread.start()
    watchdog = time.monotonic() + 60
    for thread in threads:
        thread.join(max(0.0, watchdog - time.monotonic()))
    assert ended == [125] * 8


def test_case_155_a_busy_python_thread_does_not_stop_agents_of_the_core():
    ctx, stop = context(otherwise=tw.Reply("word " * 20, chunk_size=5)), threading.Event()

    def burn():
        count = 0
        while not stop.is_set():
            count += 1

    async def main():
        agents = [await open_agent(ctx, f"a{n}") for n in range(50)]
        busy = threading.Thread(target=burn)
        busy.start()
        try:
            await asyncio.wait_for(asyncio.gather(*(agent.run("x") for agent in agents)), 15)
        finally:
            stop.set()
            busy.join()
        return [reasons(agent) for agent in agents]

    assert run(main(), timeout=30) == [[{"kind": "completed"}]] * 50


def test_case_157_the_stubs_are_shipped_and_name_what_the_module_has():
    folder = Path(importlib.util.find_spec("turnwheel").submodule_search_locations[0])
    assert (folder / "py.typed").exists()
    stub = ast.parse((folder / "_turnwheel.pyi").read_text())
    named = {node.name for node in stub.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    native = {name for name in dir(turnwheel._turnwheel) if not name.startswith("__")}
    assert native - named == set() and named - native == set()
