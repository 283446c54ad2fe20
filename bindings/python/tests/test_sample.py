"""The program of the README, and what a run and a stream give."""

from __future__ import annotations

import asyncio

from support import call, context, is_balanced, open_agent, reasons, run

import turnwheel as tw


def test_the_sample_program_runs(tmp_path, capsys):
    ctx = tw.Context(store=tmp_path / "sessions")
    script = tw.Scripted(call("add", {"a": 2, "b": 3}), tw.Reply("It is 5.", chunk_size=2), "It is 9.")
    ctx.llm.register("local", script)

    @ctx.tool
    async def add(a: int, b: int) -> int:
        "Add two integers."
        return a + b

    async def main():
        async with ctx.agent("demo", provider="local", model="smollm2") as agent:
            async for event in agent.stream("What is 2 + 3?"):
                if event.type == "assistant/chunk":
                    print(event.text, end="")
            agent.followup("And 4 + 5?")
            await agent.when_idle()
            return [message["role"] for message in agent.session.history]

    roles = run(main())
    assert capsys.readouterr().out == "It is 5."
    assert roles == ["user", "assistant", "user", "assistant", "user", "assistant"]


def test_a_stored_session_is_resumed(tmp_path):
    async def turn(ctx):
        async with open_agent(ctx) as agent:
            result = await agent.run("hello")
            return result.turn, len(agent.session.history)

    assert run(turn(context("one", store=tmp_path))) == (1, 2)
    assert run(turn(context("two", store=tw.JsonlStore(tmp_path)))) == (2, 4)


def test_run_gives_turn_reason_text_messages_and_usage():
    ctx = context(tw.Reply("hi", usage={"inputTokens": 3, "outputTokens": 2}))

    async def main():
        async with open_agent(ctx) as agent:
            return await agent.run({"content": "hello", "id": "my-id"})

    result = run(main())
    assert (result.turn, result.reason, result.text) == (1, {"kind": "completed"}, "hi")
    assert [message["role"] for message in result.messages] == ["user", "assistant"]
    assert result.messages[0]["id"] == "my-id"
    assert result.usage == {"inputTokens": 3, "outputTokens": 2}


def test_events_are_light_frozen_objects():
    ctx = context(tw.Reply("héllo", chunk_size=1))

    async def main():
        async with open_agent(ctx) as agent:
            streamed = [event async for event in agent.stream("x")]
            return streamed, agent.session.events(streamed[0].seq)

    streamed, logged = run(main())
    assert streamed == logged[: len(streamed)]
    assert (streamed[0].type, streamed[-1].type) == ("turn/start", "turn/end")
    assert "".join(event.text for event in streamed if event.type == "assistant/chunk") == "héllo"
    first = streamed[0]
    assert first.data is first.data and first.data == {"turn": 1}
    assert '"type":"turn/start"' in first.json and "turn/start" in repr(first)
    assert first.session_id == "a" and first.time > 0 and hash(first) == hash(logged[0])


def test_a_stream_may_be_left_and_the_turn_goes_on():
    ctx = context(tw.Reply("a long answer", chunk_size=1))

    async def main():
        async with open_agent(ctx) as agent:
            async for event in agent.stream("x"):
                if event.type == "step/start":
                    break
            await agent.when_idle()
            return reasons(agent)

    assert run(main()) == [{"kind": "completed"}]


def test_a_delivery_on_an_idle_agent_opens_its_turn_at_once_and_ends_it_on_the_loop():
    ctx = context("hi")

    async def main():
        async with open_agent(ctx) as agent:
            receipt = agent.followup("x")
            opened = [event.type for event in agent.session.events()]
            state = receipt.state
            settled = await receipt.settled()
            return opened, state, settled, agent.status

    opened, state, settled, status = run(main())
    assert opened[:3] == ["agent/inbox/spliced", "turn/start", "agent/inbox/spliced"] and "turn/end" not in opened
    assert state == {"kind": "claimed", "turn": 1}
    assert settled == {"kind": "ended", "turn": 1, "reason": {"kind": "completed"}} and status == "idle"


def test_steer_inject_inbox_state_and_wake():
    ctx = context("one", "two")

    async def main():
        async with open_agent(ctx) as agent:
            receipt = agent.inject("note")
            why = {"kind": "not-woken"}
            assert receipt.state == {"kind": "pending", "target": "next-step", "parked": True, "why": why}
            assert len(agent.inbox) == 1 and agent.inbox.next_step[0]["content"][0]["text"] == "note"
            assert agent.state()["phase"] == "idle" and agent.state()["nextStep"] == 1
            assert agent.inbox.remove(receipt.message_id) and not agent.inbox.remove(receipt.message_id)
            assert receipt.state["kind"] == "discarded"
            agent.inbox.append("next-turn", "parked one")
            agent.wake()
            await agent.when_idle()
            agent.steer("steered")
            await agent.when_idle()
            return [m["content"][0]["text"] for m in agent.session.history if m["role"] == "user"]

    assert run(main()) == ["parked one", "steered"]


def test_follow_gives_what_was_and_what_comes():
    ctx = context("one")

    async def main():
        async with open_agent(ctx) as agent:
            seen = []

            async def follow():
                async for event in agent.session.follow():
                    seen.append(event.type)
                    if event.type == "my/mark":
                        return

            task = asyncio.create_task(follow())
            await agent.run("x")
            event = agent.session.append("my/mark", {"n": 1})
            await task
            return seen, event.data, is_balanced(agent.session.events())

    seen, data, balanced = run(main())
    assert seen[-1] == "my/mark" and seen.count("turn/end") == 1 and data == {"n": 1} and balanced


def test_maintenance_runs_while_idle_and_wakes_wait():
    ctx = context("one")

    async def main():
        async with open_agent(ctx) as agent:
            gate = asyncio.Event()

            async def tidy(signal):
                assert not signal.cancelled
                await gate.wait()
                return "tidied"

            task = asyncio.create_task(agent.run_maintenance(tidy))
            await asyncio.sleep(0)
            agent.followup("x")
            await asyncio.sleep(0)
            waiting = not any(event.type == "turn/start" for event in agent.session.events())
            gate.set()
            result = await task
            await agent.when_idle()
            return waiting, result, reasons(agent)

    assert run(main()) == (True, "tidied", [{"kind": "completed"}])
