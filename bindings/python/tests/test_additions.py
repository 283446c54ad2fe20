"""The additions A-01 to A-08 from Python, one by one; `core/tests` has the depth."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support import call, context, is_balanced, open_agent, reasons, run, tool_results

import turnwheel as tw

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "python" / "stores"))
from memory_store import MemoryStore

COMPLETED = {"kind": "completed"}
SLOW = tw.Reply("slow answer", chunk_size=1, delay=0.02)
BY_USER = {"kind": "aborted", "reason": {"kind": "user"}}
SPENT = [
    ({"tool_calls": 1}, "tool-calls", 1, 1),
    ({"tokens": 5}, "tokens", 5, 7),
]


class Held(MemoryStore):
    """A store whose batches wait until they are let through."""

    def __init__(self) -> None:
        super().__init__({}, set())
        self.gate, self.batches = asyncio.Event(), 0

    async def create(self, header: dict[str, Any], /) -> Any:
        writer = await super().create(header)
        append, store = writer.append, self

        async def held(seq: int, events: list[str], /) -> None:
            store.batches += 1
            await store.gate.wait()
            await append(seq, events)

        writer.append = held
        return writer


def turn_ended(turn: int, reason: dict[str, Any]) -> dict[str, Any]:
    """Why a message waits that was there when a turn ended."""
    return {"kind": "turn-ended", "turn": turn, "reason": reason}


async def until(condition: Any) -> None:
    """Gives the loop its turns until something is so; `run` bounds it."""
    while not condition():
        await asyncio.sleep(0)


def gated(ctx: tw.Context, name: str = "wait") -> tuple[asyncio.Event, asyncio.Event]:
    """A tool that says when it runs and ends when it is told."""
    started, gate = asyncio.Event(), asyncio.Event()

    async def body() -> str:
        started.set()
        await gate.wait()
        return "waited"

    ctx.tool(body, name=name)
    return started, gate


def test_a_01_a_receipt_follows_a_message_through_all_its_states():
    ctx = context(call("wait"), "after", "second")

    async def main():
        started, gate = gated(ctx)
        async with open_agent(ctx) as agent:
            first = agent.followup("one")
            second, third = agent.followup("two"), agent.followup("three")
            await started.wait()
            assert first.state == {"kind": "claimed", "turn": 1, "step": 1}
            assert second.state == {"kind": "pending", "target": "next-turn", "parked": False}
            assert agent.inbox.replace(third.message_id, {"content": "better", "id": "other"})
            discarded = await third.settled()
            assert (discarded["kind"], discarded["replacedBy"]) == ("discarded", "other")
            event = agent.session.events(discarded["seq"])[0]
            assert event.type == "agent/inbox/spliced"
            agent.inbox.remove("other")
            gate.set()
            assert await second.settled() == {"kind": "ended", "turn": 2, "reason": COMPLETED}
            assert first.state == {"kind": "ended", "turn": 1, "reason": COMPLETED}
            assert agent.receipt("never sent").state is None

    run(main())


def test_a_01_receipts_survive_a_restart(tmp_path):
    async def first() -> tuple[str, str, dict[str, Any]]:
        ctx = context("answer")
        async with ctx, open_agent(ctx) as agent:
            ran = agent.followup("go")
            await ran.settled()
            return ran.message_id, agent.inject("later").message_id, agent.session.to_dict()

    ran, parked, log = run(first())

    async def second() -> tuple[Any, Any, Any]:
        ctx = context("answer", store=tmp_path)
        async with ctx, open_agent(ctx, log=log) as agent:
            states = agent.receipt(ran).state, agent.receipt(parked).state
            agent.wake()
            return (*states, await agent.receipt(parked).settled())

    ended, waiting, settled = run(second())
    assert ended == {"kind": "ended", "turn": 1, "reason": COMPLETED}
    assert waiting == {"kind": "pending", "target": "next-step", "parked": True, "why": {"kind": "resumed"}}
    assert settled == {"kind": "ended", "turn": 2, "reason": COMPLETED}


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


def test_a_02_acceptance_is_durable_when_the_store_has_the_insertion_and_not_before():
    async def main():
        store = Held()
        ctx = context("answer", store=store)
        async with ctx, open_agent(ctx) as agent:
            receipt = agent.inject("kept")
            durable = asyncio.create_task(receipt.durable())
            await until(lambda: store.batches == 1)
            assert not durable.done() and store.logs.get("a", (None, []))[1] == []
            store.gate.set()
            await durable
            stored = [json.loads(text) for text in store.logs["a"][1]]
            assert [event["type"] for event in stored] == ["agent/inbox/spliced"]
            assert stored[0]["data"]["inserted"][0]["id"] == receipt.message_id

    run(main())


def test_a_02_acceptance_that_cannot_be_stored_is_told():
    class Full(MemoryStore):
        full = True

        async def create(self, header: dict[str, Any], /) -> Any:
            writer = await super().create(header)
            append, store = writer.append, self

            async def full(seq: int, events: list[str], /) -> None:
                if store.full:
                    raise OSError("no space left")
                await append(seq, events)

            writer.append = full
            return writer

    async def main():
        store = Full({}, set())
        ctx = context(store=store)
        async with ctx, open_agent(ctx) as agent:
            receipt = agent.inject("kept")
            with pytest.raises(tw.StoreError, match="no space left"):
                await receipt.durable()
            assert receipt.state is not None and receipt.state["kind"] == "pending"
            store.full = False
            await receipt.durable()

    run(main())


def test_a_02_an_accepted_message_is_on_the_disk_when_its_receipt_says_so(tmp_path):
    async def main():
        ctx = context("one", store=tw.JsonlStore(tmp_path, compression="none"), durability="relaxed")
        async with open_agent(ctx) as agent:
            receipt = agent.inject({"content": "precious words", "id": "i1"})
            await receipt.durable()
            return [path for path in tmp_path.rglob("*.jsonl") if "precious words" in path.read_text()]

    assert len(run(main())) == 1


def test_a_03_a_run_waits_for_the_continuations_of_its_turn_and_a_stream_ends_with_it():
    ctx = context(call("add", {"a": 1}), "first", "extended", "streamed")

    @ctx.tool
    def add(a: int) -> int:
        return a + 1

    async def main():
        async with open_agent(ctx) as agent:
            extended = False

            @agent.on("agent/turn-stopping")
            def stopping(event: Any) -> None:
                nonlocal extended
                if not extended:
                    extended = True
                    agent.steer("and more")

            result = await agent.run("go")
            assert (result.turn, result.reason, result.text) == (1, COMPLETED, "extended")
            roles = [message["role"] for message in result.messages]
            assert roles == ["user", "assistant", "user", "assistant", "user", "assistant"]
            kinds = [event.type async for event in agent.stream("next")]
            assert (kinds[0], kinds[-1]) == ("turn/start", "turn/end") and kinds.count("turn/end") == 1

    run(main())


def test_a_03_what_is_cancelled_from_either_side_ends_as_the_other_expects():
    ctx = context(call("wait"), call("wait", call_id="c2"), "detached")

    async def main():
        started, gate = gated(ctx)
        async with open_agent(ctx) as agent:
            task = asyncio.create_task(agent.run("go"))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.set()
            await agent.when_idle()
            assert reasons(agent) == [BY_USER]
            started.clear()
            gate.clear()
            # The other way: a turn cancelled by its agent is a result. A detached prompt outlives who waits.
            task = asyncio.create_task(agent.run("again"))
            await started.wait()
            detached = agent.followup("detached")
            agent.cancel(keep_inbox=True)
            gate.set()
            assert (await task).reason == BY_USER
            waiting = asyncio.create_task(detached.settled())
            await asyncio.sleep(0)
            waiting.cancel()
            agent.wake()
            await agent.when_idle()
            assert detached.state == {"kind": "ended", "turn": 3, "reason": COMPLETED}
            assert is_balanced(agent.session.events())

    run(main())


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


@pytest.mark.parametrize(("durability", "waits"), [("effects", True), ("every-event", True), ("turn", False)])
def test_a_04_the_policy_says_what_waits_for_the_store(durability: Any, waits: bool):
    async def main():
        store = Held()
        ctx = context("answer", store=store, durability=durability)
        async with ctx, open_agent(ctx) as agent:
            running = asyncio.create_task(agent.run("go"))
            # With a policy that waits, the store holds the batch; else the request is there before the store answers.
            await until(lambda: store.batches > 0 if waits else ctx.script.request_count == 1)
            for _ in range(20):
                await asyncio.sleep(0)
            assert ctx.script.request_count == (0 if waits else 1)
            store.gate.set()
            assert (await running).reason == COMPLETED and ctx.script.request_count == 1

    run(main())


def test_a_04_relaxed_waits_for_nothing_and_closing_stores_everything():
    async def main():
        store = Held()
        ctx = context("answer", store=store, durability="relaxed")
        async with ctx:
            agent = await open_agent(ctx)
            assert (await agent.run("go")).reason == COMPLETED
            store.gate.set()
            events = [event.type for event in agent.session.events()]
        assert [json.loads(text)["type"] for text in store.logs["a"][1]] == events

    run(main())


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


@pytest.mark.parametrize(("budget", "name", "limit", "used"), SPENT)
def test_a_05_a_spent_budget_ends_the_turn_with_its_reason_and_keeps_the_queue(budget, name, limit, used):
    usage = {"inputTokens": 4, "outputTokens": 3}
    ctx = context(otherwise=tw.Reply(calls=[("c", "noop", {}), ("d", "noop", {})], usage=usage), turn_budget=budget)
    ctx.tool(lambda: "ok", name="noop")

    async def main():
        async with ctx, open_agent(ctx) as agent:
            running = asyncio.create_task(agent.run("go"))
            await asyncio.sleep(0)
            agent.inject("kept")
            result = await running
            reason = {"kind": "hook", "reason": f"budget: {name} {used}/{limit}"}
            assert result.reason == {"kind": "aborted", "reason": reason}
            spent = [event.data for event in agent.session.events() if event.type == "turn/budget"]
            assert spent == [{"turn": 1, "budget": name, "limit": limit, "used": used}]
            assert is_balanced(agent.session.events())
            return tool_results(agent), len(agent.inbox)

    results, queued = run(main())
    assert queued == 1
    if name == "tool-calls":
        assert [result[1] for result in results] == [False, True], "the call that had not started is answered"


def test_a_05_a_prompt_that_an_agents_budget_leaves_waiting_says_why():
    usage = {"inputTokens": 4, "outputTokens": 3}
    ctx = context(otherwise=tw.Reply("hi", usage=usage), agent_budget={"tokens": 10})

    async def main():
        async with ctx, open_agent(ctx) as agent:
            for text in ("one", "two", "three"):
                receipt = agent.followup(text)
                await agent.when_idle()
            return reasons(agent), receipt.state, ctx.script.request_count

    ended, waiting, asked = run(main())
    spent = {"kind": "aborted", "reason": {"kind": "hook", "reason": "budget: tokens 14/10"}}
    assert ended == [COMPLETED, COMPLETED, spent] and asked == 2
    assert waiting == {"kind": "pending", "target": "next-turn", "parked": True, "why": turn_ended(3, spent)}


def test_a_05_time_is_a_budget_too():
    ctx = context(otherwise=call("slow"), turn_budget={"wall_ms": 5})

    @ctx.tool
    async def slow() -> str:
        await asyncio.sleep(0.02)
        return "at last"

    async def main():
        async with ctx, open_agent(ctx) as agent:
            reason = (await agent.run("go")).reason
            assert re.fullmatch(r"budget: wall-ms \d+/5", reason["reason"]["reason"])
            return tool_results(agent), ctx.script.request_count

    assert run(main()) == ([("at last", False, None)], 1)


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


def test_a_06_a_request_that_stays_silent_is_ended_by_the_limit_of_its_route():
    async def main():
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            await reader.read(1)
            await reader.read(-1)
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            ctx = tw.Context()
            ctx.llm.register("m", tw.OpenAIChat(f"http://127.0.0.1:{port}/v1", first_byte_timeout=0.05))
            async with ctx, ctx.agent("a", provider="m", model="x") as agent:
                return (await agent.run("go")).reason

    reason = run(main())
    assert reason["kind"] == "error" and "first byte" in json.dumps(reason)


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


def test_a_07_state_is_a_plain_record_of_what_the_agent_does():
    ctx = context(call("wait"), "after", "second")

    async def main():
        started, gate = gated(ctx)
        async with open_agent(ctx) as agent:
            idle = {"phase": "idle", "turn": 0, "step": 0, "runningTools": [], "latch": [], "parked": []}
            assert agent.state() == {**idle, "nextStep": 0, "nextTurn": 0}
            agent.followup("go")
            await started.wait()
            agent.inject({"content": "context", "id": "i1"})
            agent.followup({"content": "next", "id": "f1"})
            state = agent.state()
            assert (state["phase"], state["turn"], state["step"]) == ("running", 1, 1)
            assert (state["runningTools"], state["nextStep"], state["nextTurn"]) == (["c1"], 1, 1)
            agent.cancel(keep_inbox=True)
            agent.followup({"content": "latched", "id": "l1"})
            state = agent.state()
            assert "l1" in state["latch"] and json.loads(json.dumps(state)) == state
            gate.set()
            await agent.when_idle()
            assert agent.state()["phase"] == "idle"

    run(main())


def test_a_08_an_agent_is_found_by_the_id_that_events_carry():
    ctx = context("answer")
    heard: list[Any] = []

    async def main():
        async with ctx, open_agent(ctx, "b") as agent:
            ctx.on("agent/status", lambda event: heard.append(event.agent))
            await agent.run("go")
            session_ids = {event.session_id for event in agent.session.events()}
            found = ctx.agents.get(session_ids.pop())
            assert found is agent and not session_ids and all(other is agent for other in heard) and heard
        return ctx.agents.get("b"), ctx.agents.get("nobody")

    assert run(main()) == (None, None)
