"""Listeners: plain and asynchronous notifications, waterfalls, their contexts and their failures."""

from __future__ import annotations

import asyncio
import contextvars

import pytest
from support import call, context, open_agent, reasons, run, tool_results

import turnwheel as tw

who = contextvars.ContextVar("who", default="nobody")


def test_a_plain_listener_is_called_at_the_point_of_delivery():
    ctx, seen = context("hi"), []

    @ctx.on("session/event")
    def heard(event):
        seen.append((event.type, len(ctx.agents.get(event.session_id).session)))

    async def main():
        async with open_agent(ctx) as agent:
            agent.followup("x")
            prefix = list(seen)
            await agent.when_idle()
            return prefix, len(agent.session)

    prefix, length = run(main())
    assert prefix[:2] == [("agent/inbox/spliced", 1), ("turn/start", 2)]
    assert len(seen) == length


def test_an_async_listener_hears_everything_in_order_in_a_task_of_its_own():
    ctx, seen, tasks = context(tw.Reply("abc", chunk_size=1)), [], set()

    @ctx.on("session/event", types=["assistant/chunk"])
    async def heard(event):
        tasks.add(asyncio.current_task())
        await asyncio.sleep(0.001)
        seen.append(event.seq)

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("x")
            chunks = [event.seq for event in agent.session.events() if event.type == "assistant/chunk"]
            while len(seen) < len(chunks):
                await asyncio.sleep(0)
            return chunks

    assert run(main()) == seen and len(tasks) == 1


def test_notices_have_their_members_and_the_same_agent_object():
    ctx, seen = context(call("t"), "done"), []
    ctx.tool(name="t")(lambda: 1)
    for name in ("agent/created", "agent/disposed", "agent/status", "agent/inbox/inserted", "agent/inbox/claimed",
                 "agent/session-start", "tools/result", "session/created", "session/disposed"):  # fmt: skip
        ctx.on(name, seen.append)

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("x")
            return agent

    agent = run(main())
    assert [notice.type for notice in seen][:3] == ["session/created", "agent/created", "agent/session-start"]
    by_type = {notice.type: notice for notice in seen}
    assert all(notice.agent is agent for notice in seen if notice.agent is not None)
    assert by_type["agent/status"].status == "idle" and by_type["agent/session-start"].source == "startup"
    assert by_type["agent/inbox/claimed"].turn == 1
    assert by_type["tools/result"].value == 1 and by_type["tools/result"].is_error is False
    assert by_type["session/disposed"].session_id == "a"
    with pytest.raises(AttributeError, match="its members: status"):
        _ = by_type["agent/status"].nothing


def test_a_failing_listener_is_reported_and_changes_nothing():
    ctx, reported = context("hi"), []
    boom, bang = ValueError("boom"), ValueError("bang")

    @ctx.on("agent/status")
    def plain(notice):
        raise boom

    @ctx.on("agent/status")
    async def asynchronous(notice):
        raise bang

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, info: reported.append(info["exception"]))
        async with open_agent(ctx) as agent:
            result = await agent.run("x")
            await asyncio.sleep(0.01)
            return result.reason

    assert run(main()) == {"kind": "completed"}
    assert boom in reported and bang in reported


def test_a_plain_listener_of_agent_created_vetoes_with_its_own_exception():
    ctx, veto = context(), PermissionError("not this one")

    @ctx.on("agent/created")
    def check(notice):
        raise veto

    async def main():
        with pytest.raises(PermissionError) as caught:
            await open_agent(ctx)
        assert caught.value is veto
        return len(ctx.agents)

    assert run(main()) == 0


def test_setup_composes_before_anybody_sees_the_agent_and_its_exception_comes_back():
    ctx, seen, failure = context("hi"), [], LookupError("no")

    async def setup(scope):
        scope.section("own", "of this agent")
        scope.on("agent/created", seen.append)

    async def failing(scope):
        raise failure

    async def main():
        with pytest.raises(LookupError) as caught:
            await open_agent(ctx, "b", setup=failing)
        assert caught.value is failure
        async with open_agent(ctx, setup=setup) as agent:
            await agent.run("x")

    run(main())
    assert len(seen) == 1 and "of this agent" in ctx.script.requests[0]["system"]


def test_pre_step_edits_enters_and_rejects():
    ctx = context("one", "two")

    @ctx.on("agent/pre-step")
    async def gate(payload, next):
        assert isinstance(payload, tw.PreStep) and payload.step == 1 and not payload.signal.cancelled
        if "secret" in payload.messages[0]["content"][0]["text"]:
            return {"kind": "reject"}
        payload.messages[0]["content"][0]["text"] += "!"
        decision = await next()
        assert decision["kind"] == "enter"
        return decision

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("hello")
            await agent.run("secret")
            return reasons(agent), agent.session.history[0]["content"][0]["text"]

    assert run(main()) == ([{"kind": "completed"}, {"kind": "blocked"}], "hello!")


def test_request_and_request_error():
    ctx = context(tw.Reply(error={"code": "SERVER", "message": "down"}), "up")
    failures = []

    @ctx.on("agent/request")
    async def hotter(payload, next):
        return {**(await next()), "temperature": 0.5, "stop": None}

    @ctx.on("agent/request-error")
    def again(payload, next):
        failures.append(payload.failure["code"])
        return "retry"

    async def main():
        async with open_agent(ctx) as agent:
            return await agent.run("x")

    assert run(main()).text == "up" and failures == ["SERVER"]
    assert [request["config"]["temperature"] for request in ctx.script.requests] == [0.5, 0.5]


def test_tool_policies():
    ctx = context(call("t", {"n": 1}), call("t", {"n": 2}), call("t", {"n": 3}))

    @ctx.tool
    def t(n: int) -> int:
        return n * 10

    @ctx.on("tools/pre-execute")
    async def allow(payload, next):
        return {"kind": "deny", "reason": "not one"} if payload.arguments["n"] == 1 else await next()

    @ctx.on("tools/post-execute")
    async def check(payload, next):
        if payload.value == 20:
            return {"kind": "block", "feedback": "no twenty"}
        await next()

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("x")
            return [(text, is_error) for text, is_error, _ in tool_results(agent)]

    assert run(main()) == [("Error: not one", True), ("no twenty", True), ("30", False)]


def test_assemble_turn_stopping_and_prompt_texts():
    ctx = context("one", "two")
    ctx.section("greeting", "Hello {{name}}.", order=1)
    ctx.variable("name", lambda agent: agent.id.upper())

    async def later(agent):
        return "second section"

    ctx.section("second", later, order=2)
    stopped = []

    @ctx.on("system-prompt/assemble")
    async def assemble(payload, next):
        assembly = await next()
        assembly["sections"].append({"name": "third", "order": 3, "text": "third section"})
        return assembly

    @ctx.on("agent/turn-stopping")
    async def stopping(payload):
        if not stopped:
            payload.agent.inject("one more thing")
        stopped.append(payload.turn)

    async def main():
        async with open_agent(ctx) as agent:
            return await agent.run("x")

    assert run(main()).text == "two" and stopped == [1, 1]
    system = ctx.script.requests[0]["system"]
    assert all(text in system for text in ("Hello A.", "second section", "third section"))


def test_a_listener_that_decides_nothing_or_nonsense_fails_the_turn_and_says_so():
    for decision, told in ((None, "must return a decision"), ("later", "retry")):
        ctx = context(tw.Reply(error={"code": "SERVER", "message": "down"}))
        ctx.on("agent/request-error", lambda payload, next, decision=decision: decision)

        async def main(ctx=ctx):
            async with open_agent(ctx) as agent:
                return (await agent.run("x")).reason

        reason = run(main())
        assert reason["kind"] == "error" and told in reason["error"]["message"], reason


def test_callbacks_run_in_the_context_of_whoever_sent_the_message():
    ctx, seen = context(call("t"), "one", call("t"), "two"), []

    @ctx.tool
    async def t():
        await asyncio.sleep(0)
        seen.append(("tool", who.get()))

    @ctx.tool
    def in_thread():
        seen.append(("thread", who.get()))

    ctx.on("agent/status", lambda notice: seen.append((notice.status, who.get())))

    @ctx.on("agent/request")
    async def request(payload, next):
        seen.append(("request", who.get()))
        return await next()

    async def as_user(agent, name):
        who.set(name)
        await agent.run("go")

    async def main():
        async with open_agent(ctx) as agent:
            await asyncio.create_task(as_user(agent, "ann"))
            await asyncio.create_task(as_user(agent, "bob"))

    run(main())
    assert {name for kind, name in seen if kind in ("tool", "request")} == {"ann", "bob"}
    assert [name for kind, name in seen if kind == "tool"] == ["ann", "bob"]


def test_waiting_for_oneself_fails_at_once():
    ctx, codes = context(call("t"), "done"), []

    @ctx.tool
    async def t(call: tw.ToolCall):
        for wait in (call.agent.when_idle, lambda: call.agent.run("x")):
            try:
                await wait()
            except tw.StateError as error:
                codes.append(error.code)

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("x")

    run(main())
    assert codes == ["SELF_WAIT", "SELF_WAIT"]


def test_unknown_names_are_refused_with_what_there_is():
    ctx = context()
    with pytest.raises(tw.UsageError, match="session/event") as caught:
        ctx.on("session/evnt", print)
    assert caught.value.code == "UNKNOWN_OPTION" and caught.value.context == {"event": "session/evnt"}
    assert caught.value.number == 102
    with pytest.raises(tw.UsageError, match="types="):
        ctx.on("agent/status", print, types=["x"])
    with pytest.raises(tw.UsageError):
        tw.Context(durability="sometimes")
    with pytest.raises(tw.UsageError):
        tw.Context(store=tw.JsonlStore("x", compression="lz4"))
    with pytest.raises(TypeError):
        tw.Context(stroe="x")
    with pytest.raises(tw.UsageError):
        tw.OpenAIChat("ftp://x")
    with pytest.raises(tw.UsageError):
        ctx.llm.register("x", 5)


def test_errors_have_codes_and_classes():
    ctx = context()

    async def main():
        async with open_agent(ctx) as agent:
            agent.inject({"id": "m", "content": "x"})
            with pytest.raises(tw.RegistryError) as caught:
                agent.inject({"id": "m", "content": "x"})
            assert (caught.value.code, caught.value.context) == ("DUPLICATE_MESSAGE", {"id": "m"})
            with pytest.raises(tw.LogError) as caught:
                agent.session.append("turn/start", {"turn": 9})
            assert caught.value.code == "RESERVED_EVENT"
            with pytest.raises(tw.UsageError):
                agent.session.append("mine/x", {1, 2})
            with pytest.raises(tw.UsageError):
                agent.send("x", "next-week")
            with pytest.raises(tw.UsageError):
                agent.cancel({"why": "?"})
            with pytest.raises(tw.RegistryError):
                await open_agent(ctx)
        with pytest.raises(tw.StateError) as caught:
            agent.followup("x")
        assert caught.value.code == "DISPOSED"

    run(main())
    assert tw.CODES["DUPLICATE_MESSAGE"] == 401


def test_an_adapter_in_python_streams_text_and_fails_with_its_exception():
    ctx, heard, failure = tw.Context(), [], ConnectionError("gone")

    async def echo(request):
        for word in request.messages[-1]["content"][0]["text"].split():
            await asyncio.sleep(0)
            yield word + " "

    async def broken(request):
        yield "a"
        raise failure

    ctx.llm.register("echo", echo)
    ctx.llm.register("broken", broken)
    ctx.on("agent/error", lambda notice: heard.append(notice.error))

    async def main():
        async with ctx.agent("a", provider="echo", model="x") as agent:
            good = await agent.run("hello there")
        async with ctx.agent("b", provider="broken", model="x") as agent:
            bad = await agent.run("hello there")
        return good, bad

    good, bad = run(main())
    assert good.text == "hello there " and good.reason == {"kind": "completed"}
    assert bad.reason["kind"] == "error" and bad.reason["error"]["message"] == "gone"
    assert heard and heard[0] is failure


def test_a_keyboard_interrupt_in_a_callback_ends_the_program_and_not_only_the_callback():
    ctx = context("one")

    @ctx.on("session/event")
    def interrupt(event):
        if event.type == "assistant/message":
            raise KeyboardInterrupt

    async def main():
        async with open_agent(ctx) as agent:
            await agent.run("x")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())


def test_what_the_core_reports_goes_to_the_logger(tmp_path, caplog):
    ctx = context("one", store=tmp_path / "file" / "below")
    (tmp_path / "file").write_text("a file, and no directory")

    async def main():
        async with open_agent(ctx) as agent:
            return await agent.run("x")

    try:
        reason = run(main()).reason
        assert reason["kind"] == "error" and reason["error"]["code"] == "STORE_FAILED"
    except tw.StoreError as error:
        assert error.code == "STORE_FAILED"
    else:
        assert any(record.name == "turnwheel" for record in caplog.records)
