"""The additions A-01 to A-08 from Python, one by one; `core/tests` has the depth."""

from __future__ import annotations

import asyncio

import pytest
from support import call, context, open_agent, reasons, run

import turnwheel as tw

SLOW = tw.Reply("slow answer", chunk_size=1, delay=0.02)


def test_a_01_a_receipt_says_what_became_of_a_message_also_after_a_restart(tmp_path):
    async def first():
        ctx = context("one", store=tmp_path)
        async with open_agent(ctx) as agent:
            prompt = agent.followup({"content": "x", "id": "q1"})
            note = agent.inject({"content": "later", "id": "i1"})
            assert (await prompt.settled())["kind"] == "ended"
            waiting = agent.inject({"content": "y", "id": "i2"})
            assert waiting.state == {
                "kind": "pending",
                "target": "next-step",
                "parked": True,
                "why": {"kind": "not-woken"},
            }
            agent.inbox.replace("i2", {"content": "z", "id": "i3"})
            assert waiting.state["kind"] == "discarded" and waiting.state["replacedBy"] == "i3"
            assert agent.receipt("never sent").state is None
            return note.state["kind"]

    async def second():
        ctx = context("two", store=tmp_path)
        async with open_agent(ctx) as agent:
            return [agent.receipt(id).state for id in ("q1", "i3")]

    assert run(first()) == "ended"
    ended, discarded = run(second())
    assert ended == {"kind": "ended", "turn": 1, "reason": {"kind": "completed"}}
    assert discarded["kind"] == "discarded", "leaving `async with` disposes the agent and discards what waits"


def test_a_02_an_accepted_message_is_on_the_disk_when_its_receipt_says_so(tmp_path):
    async def main():
        ctx = context("one", store=tw.JsonlStore(tmp_path, compression="none"), durability="relaxed")
        async with open_agent(ctx) as agent:
            receipt = agent.inject({"content": "precious words", "id": "i1"})
            await receipt.durable()
            return [path for path in tmp_path.rglob("*.jsonl") if "precious words" in path.read_text()]

    assert len(run(main())) == 1


def test_a_03_an_owned_run_returns_its_turn_and_leaving_it_cancels_that_turn():
    async def main():
        ctx = context("hi", SLOW)
        async with open_agent(ctx) as agent:
            result = await agent.run("x")
            assert (result.text, result.turn, result.reason) == ("hi", 1, {"kind": "completed"})
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await agent.run("y")
            await agent.when_idle()
            return reasons(agent)[1:]

    assert run(main()) == [{"kind": "aborted", "reason": {"kind": "user"}}]


@pytest.mark.parametrize("durability", ["effects", "every-event", "turn", "relaxed"])
def test_a_04_what_is_on_the_disk_when_a_tool_begins_is_the_policys_promise(tmp_path, durability):
    async def main():
        ctx = context(
            call("look", {}), "done", store=tw.JsonlStore(tmp_path, compression="none"), durability=durability
        )
        seen = []

        @ctx.tool
        def look() -> str:
            "Looks at the log."
            seen.extend(path.read_text() for path in tmp_path.rglob("*.jsonl"))
            return "seen"

        async with ctx, open_agent(ctx) as agent:
            await agent.run("x")
        return "".join(seen)

    before = run(main())
    if durability in ("effects", "every-event"):
        assert '"tool/call"' in before, "the intent is durable before the effect"
    else:
        assert '"tool/call"' not in before, "nobody waits for the disk before a tool"


def test_a_05_two_hundred_steps_are_a_turns_budget_unless_another_is_set():
    async def main():
        ctx = tw.Context()
        ctx.llm.register("m", tw.Scripted(otherwise=tw.Reply(calls=[("c", "noop", {})])))
        ctx.tool(lambda: "ok", name="noop")
        async with ctx, ctx.agent("a", provider="m", model="x") as agent:
            return (await agent.run("go")).reason["reason"]

    assert run(main()) == {"kind": "hook", "reason": "budget: steps 200/200"}


def test_a_05_an_agents_budget_holds_over_its_turns():
    async def main():
        ctx = tw.Context(agent_budget={"steps": 2})
        ctx.llm.register("m", tw.Scripted("one", "two", "three"))
        async with ctx, ctx.agent("a", provider="m", model="x") as agent:
            for prompt in ("x", "y"):
                await agent.run(prompt)
            with pytest.raises(tw.StateError) as parked:
                await agent.run("z")
            assert parked.value.code == "PARKED", "no turn takes the prompt any more, and it is given back"
            return reasons(agent)

    spent = {"kind": "aborted", "reason": {"kind": "hook", "reason": "budget: steps 2/2"}}
    assert run(main()) == [{"kind": "completed"}, {"kind": "completed"}, spent]


def test_a_06_a_tool_that_takes_too_long_is_told_and_answered():
    async def main():
        ctx = context(call("wait", {}), "done")

        @ctx.tool(timeout=0.05)
        async def wait() -> str:
            "Waits for ever."
            await asyncio.Event().wait()
            return "never"

        async with ctx, open_agent(ctx) as agent:
            await agent.run("x")
            return [event.data for event in agent.session.events() if event.type == "tool/result"]

    (answered,) = run(main())
    assert answered["message"]["content"][0]["isError"] is True and answered["error"]["code"] == "TOOL_TIMEOUT"


def test_a_07_the_state_is_a_plain_record():
    async def main():
        ctx = context(call("wait", {}), "done")
        started, gate = asyncio.Event(), asyncio.Event()

        @ctx.tool
        async def wait() -> str:
            "Waits."
            started.set()
            await gate.wait()
            return "done"

        async with ctx, open_agent(ctx) as agent:
            done = asyncio.create_task(agent.run("x"))
            await started.wait()
            agent.followup({"content": "y", "id": "q2"})
            state = agent.state()
            gate.set()
            await done
            return state

    state = run(main())
    assert (state["phase"], state["turn"], state["step"]) == ("running", 1, 1)
    assert (state["nextTurn"], state["nextStep"]) == (1, 0)
    assert state["runningTools"] == ["c1"] and state["parked"] == []


def test_a_08_agents_are_named_by_their_ids():
    async def main():
        ctx = context("one")
        ids = []
        ctx.on("agent/status", lambda notice: ids.append(notice.agent.id))
        async with ctx, open_agent(ctx) as agent:
            await agent.run("x")
            assert ctx.agents.get(agent.id).id == agent.id and ctx.agents.get("nobody") is None
            return ids, agent.id

    ids, id = run(main())
    assert ids == [id, id]
