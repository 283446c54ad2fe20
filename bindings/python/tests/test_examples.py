"""Samples and examples run as they are shown."""

from __future__ import annotations

import asyncio
import doctest
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import is_balanced, run

import turnwheel as tw

EXAMPLES = Path(__file__).parents[3] / "examples" / "python"


def test_the_sample_in_the_docstring_runs():
    assert doctest.testmod(tw).failed == 0


def test_the_demo_kills_and_recovers():
    offline = {name: value for name, value in os.environ.items() if not name.startswith("TURNWHEEL_")}
    command = [sys.executable, EXAMPLES / "demo.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=offline)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing was lost" in done.stdout and "interrupted" in done.stdout


@pytest.mark.parametrize("name", ["memory_store", "sqlite3_store"])
def test_an_example_of_a_store_runs_the_suite_on_itself(name):
    command = [sys.executable, EXAMPLES / "stores" / f"{name}.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 failed" in done.stdout


def test_the_assistant_stays_under_60_lines():
    assert len((EXAMPLES / "assistant.py").read_text().splitlines()) <= 60


class Server:
    """An OpenAI-compatible server of a few lines, on the test's own loop: answers each request from a list."""

    def __init__(self, *answers: list[dict]):
        self.answers, self.requests = list(answers), []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def serve(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        self.requests.append(json.loads(await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for piece in self.answers.pop(0):
            await asyncio.sleep(0.002)
            writer.write(b"data: " + json.dumps(piece).encode() + b"\n\n")
            await writer.drain()
        writer.write(b"data: [DONE]\n\n")
        writer.close()


def piece(delta, finish=None):
    return {"id": "r", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def test_an_openai_compatible_server_is_streamed_and_its_tool_calls_run():
    calling = {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": ""}}
    asked = [
        piece({"role": "assistant", "content": None, "tool_calls": [calling]}),
        piece({"tool_calls": [{"index": 0, "function": {"arguments": '{"a":2,"b":3}'}}]}),
        piece({}, "tool_calls"),
    ]
    told = [piece({"role": "assistant", "content": ""}), *(piece({"content": word}) for word in ("It ", "is ", "5."))]
    told += [piece({}, "stop"), {"id": "r", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}]
    ctx = tw.Context()

    @ctx.tool
    def add(a: int, b: int) -> int:
        "Add two integers."
        return a + b

    async def main():
        async with Server(asked, told) as server:
            ctx.llm.register("local", tw.OpenAIChat(server.url, api_key="k", extra={"top_p": 0.5}))
            async with ctx.agent("a", provider="local", model="m", max_tokens=50) as agent:
                words = [e.text async for e in agent.stream("2 + 3?") if e.type == "assistant/chunk" and e.text]
                return words, agent.session.events(), server.requests

    words, events, requests = run(main())
    assert words == ["It ", "is ", "5."] and is_balanced(events)
    assert requests[0]["top_p"] == 0.5 and requests[0]["max_tokens"] == 50
    assert requests[0]["tools"][0]["function"]["name"] == "add" and requests[1]["messages"][-1]["content"] == "5"
    usage = [event.data.get("usage") for event in events if event.type == "assistant/message"][-1]
    assert (usage["inputTokens"], usage["outputTokens"]) == (7, 3)


def test_cancelling_a_stream_closes_the_connection():
    async def main():
        async with Server([piece({"content": "word "})] * 2000) as server:
            ctx = tw.Context()
            ctx.llm.register("local", tw.OpenAIChat(server.url))
            async with ctx.agent("a", provider="local", model="m") as agent:
                seen = 0
                async for event in agent.stream("go"):
                    if event.type == "assistant/chunk" and event.text:
                        seen += 1
                        if seen == 3:
                            agent.cancel()
                    last = event
                return last.data["reason"]["kind"], [m["role"] for m in agent.session.history]

    assert run(main()) == ("aborted", ["user", "assistant"])
