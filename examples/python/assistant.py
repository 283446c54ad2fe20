"""An assistant with two tools that survives being killed. Offline by default; with TURNWHEEL_BASE_URL (and
TURNWHEEL_API_KEY, TURNWHEEL_MODEL) on any OpenAI-compatible server. Usage: assistant.py [store]"""

import asyncio
import os
import sys

import turnwheel as tw

ctx = tw.Context(store=(STORE := sys.argv[1] if len(sys.argv) > 1 else "sessions"))
ctx.section("role", "You are a careful assistant. Use the tools to calculate, then answer in one sentence.")


@ctx.tool
async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@ctx.tool
async def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


def model() -> tw.OpenAIChat | tw.Scripted:
    if url := os.environ.get("TURNWHEEL_BASE_URL"):
        return tw.OpenAIChat(url, api_key=os.environ.get("TURNWHEEL_API_KEY"))
    tools = [tw.Reply(calls=[("1", "add", {"a": 2, "b": 3})]), tw.Reply(calls=[("2", "multiply", {"a": 5, "b": 7})])]
    answer = tw.Reply("Two and three make five, and five times seven is thirty-five.", chunk_size=6, delay=0.05)
    later = tw.Reply("It is sixty-five away from one hundred.", chunk_size=4, delay=0.02)
    return tw.Scripted(*([] if os.path.isdir(STORE) else [*tools, answer]), otherwise=later)


async def main() -> None:
    ctx.llm.register("llm", model())
    async with ctx.agent("assistant", provider="llm", model=os.environ.get("TURNWHEEL_MODEL", "default")) as agent:
        events = agent.session.follow(len(agent.session))
        if ended := [event.data["reason"]["kind"] for event in agent.session.events() if event.type == "turn/end"]:
            texts = [message["content"][0]["text"] for message in agent.inbox.next_turn]
            print(f"recovered {len(agent.session)} events; the last turn ended: {ended[-1]}; waiting: {texts}")
        if agent.inbox.next_turn:
            last = agent.receipt(agent.inbox.next_turn[-1]["id"])
            agent.wake()
        else:
            agent.followup("What is (2 + 3) * 7?")
            last = agent.followup("And how far is that from 100?")
        async for event in events:
            if event.type == "tool/call":
                print(f"[{event.data['name']} {event.data['arguments']}]")
            elif event.type in ("user/message", "assistant/chunk"):
                print(f"> {event.text}\n" if event.type == "user/message" else event.text, end="", flush=True)
            elif event.type == "turn/end":
                print(f"failed: {failed['message']}" if (failed := event.data["reason"].get("error")) else "")
                if failed or last.state == {"kind": "ended", **event.data}:
                    break


asyncio.run(main())
