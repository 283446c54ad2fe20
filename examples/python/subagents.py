"""A lead agent that hands parts of its task to agents of their own, each with its own log. Usage: subagents.py [store]

A sub-agent's id is made from its call's, so the lead's log names it and `python -m turnwheel show` finds it. It has
the lead's tools but `delegate`, so the work ends; cancelling the lead's turn cancels the calls, and with them the
sub-agents."""

from __future__ import annotations

import asyncio
import os
import sys

import turnwheel as tw

STORE = sys.argv[1] if len(sys.argv) > 1 else "sessions"
MODEL = os.environ.get("TURNWHEEL_MODEL", "default")
ctx = tw.Context(store=STORE, turn_timeout=600)


@ctx.tool
async def population(city: str) -> int:
    """How many people live in a city."""
    return {"Oslo": 717_710, "Bergen": 291_940}.get(city, 0)


@ctx.tool(parallel=True)
async def delegate(task: str, call: tw.ToolCall) -> str:
    """Let an agent of its own do a task and report. Several may work at once."""
    name = f"{call.agent.id}.{call.call_id}"

    async def compose(scope: tw.AgentScope) -> None:
        scope.restrict_tools(deny=["delegate"])
        scope.section("role", "You do one task for another agent. Answer with the result only.")

    call.agent.session.append("example/delegated", {"agent": name, "task": task})
    async with ctx.agent(name, provider="worker", model=MODEL, setup=compose) as worker:
        result = await worker.run(task)
    if result.reason != {"kind": "completed"}:
        raise tw.ToolError(f"{name} did not finish: {result.reason}", code="DELEGATE_FAILED")
    return result.text


def models() -> tuple[tw.OpenAIChat | tw.Scripted, tw.OpenAIChat | tw.Scripted]:
    if url := os.environ.get("TURNWHEEL_BASE_URL"):
        model = tw.OpenAIChat(url, api_key=os.environ.get("TURNWHEEL_API_KEY"))
        return model, model
    parts = [(city, "delegate", {"task": f"How many people live in {city}?"}) for city in ("Oslo", "Bergen")]
    lead = tw.Scripted(tw.Reply(calls=parts), "Oslo has more people than Bergen.")
    # Both workers ask before either is answered, so the script is two calls and two answers.
    asks = [tw.Reply(calls=[("p", "population", {"city": city})], delay=0.05) for city in ("Oslo", "Bergen")]
    return lead, tw.Scripted(*asks, otherwise="I looked it up.")


async def main() -> None:
    lead_model, worker_model = models()
    ctx.llm.register("lead", lead_model)
    ctx.llm.register("worker", worker_model)

    @ctx.on("agent/status")
    def tell(notice: tw.Notice) -> None:
        if notice.agent is not None:
            print(f"{notice.agent.id} is {notice.status}")

    async with ctx.agent("lead", provider="lead", model=MODEL) as lead:
        print((await lead.run("Which of Oslo and Bergen has more people?")).text)
    for header in await ctx.list_sessions():
        print("log:", header["id"])


asyncio.run(main())
