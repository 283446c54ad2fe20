"""A tool whose answer comes days later: a person decides, and no process waits for it meanwhile.

    approval.py STORE ask "Refund order 7, please"    the agent asks for a refund; the process ends
    approval.py STORE list                             what waits for a person
    approval.py STORE approve ID                       a person decides; the agent goes on, in a new process
    approval.py STORE reject ID

The log is the only memory. A question and its decision are events of our own; what follows from a decision (the
payment, the message to the agent) is done by `settle`, which may be killed anywhere and run again: the payment is made
once for each question, and the agent takes a message id once."""

from __future__ import annotations

import asyncio
import os
import pathlib
import sys
from typing import Any

import turnwheel as tw

STORE = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "sessions")
COMMAND = sys.argv[2] if len(sys.argv) > 2 else "list"
ctx = tw.Context(store=STORE)


@ctx.tool
async def refund(order: int, euros: float, call: tw.ToolCall) -> str:
    """Refund an order. A person has to approve it; the answer comes later, as a message."""
    question = {"id": call.call_id, "order": order, "euros": euros}
    call.agent.session.append("shop/refund-asked", question)
    return "Asked a person. The answer comes as a message, perhaps in days. Say so, and do not ask again."


def payload(agent: tw.Agent, kind: str) -> dict[str, dict[str, Any]]:
    """The data of all events of a type, by the question's id."""
    return {event.data["id"]: event.data for event in agent.session.events() if event.type == kind}


def pay(question: dict[str, Any]) -> None:
    """Stands for a payment provider, which takes the question's id as idempotency key: one file a payment."""
    ledger = STORE / "ledger"
    ledger.mkdir(exist_ok=True)
    (ledger / f"{question['id']}.txt").write_text(f"{question['euros']} euros for order {question['order']}\n")


async def settle(agent: tw.Agent) -> None:
    """Does what follows from every decision, unless it was done before."""
    asked = payload(agent, "shop/refund-asked")
    for id, decision in payload(agent, "shop/refund-decided").items():
        if agent.receipt(f"decision-{id}").state is not None:
            continue  # the agent was told, so the money was paid before; `main` wakes it for what it has not read
        if decision["approved"]:
            pay(asked[id])
        if os.environ.get("DIE_AFTER_PAYING"):
            os._exit(9)  # for the test: the worst moment
        verdict = "approved and paid" if decision["approved"] else "rejected"
        result = await agent.run(
            {"id": f"decision-{id}", "content": f"The refund of order {asked[id]['order']} was {verdict}."}
        )
        print(result.text)


async def decide(agent: tw.Agent, id: str, approved: bool) -> None:
    if id not in payload(agent, "shop/refund-asked"):
        sys.exit(f"there is no question {id}; `list` shows them")
    if id not in payload(agent, "shop/refund-decided"):  # who decides first has decided
        agent.session.append("shop/refund-decided", {"id": id, "approved": approved})
        await agent.flush()


def model() -> tw.OpenAIChat | tw.Scripted:
    if url := os.environ.get("TURNWHEEL_BASE_URL"):
        return tw.OpenAIChat(url, api_key=os.environ.get("TURNWHEEL_API_KEY"))
    if COMMAND == "ask":
        call = ("q1", "refund", {"order": 7, "euros": 90})
        return tw.Scripted(tw.Reply(calls=[call]), "A person looks at it; you will hear from us.")
    return tw.Scripted(otherwise="Good news or bad, the decision about your refund is there.")


async def main() -> None:
    ctx.llm.register("llm", model())
    async with ctx.agent("clerk", provider="llm", model=os.environ.get("TURNWHEEL_MODEL", "default")) as agent:
        agent.wake()
        await agent.when_idle()
        if COMMAND == "ask":
            print((await agent.run(sys.argv[3])).text)
        elif COMMAND in ("approve", "reject"):
            await decide(agent, sys.argv[3], COMMAND == "approve")
        await settle(agent)
        decided = payload(agent, "shop/refund-decided")
        for id, question in payload(agent, "shop/refund-asked").items():
            if id not in decided:
                print(f"waiting: {id}: {question['euros']} euros for order {question['order']}")


asyncio.run(main())
