"""All three wires against a real language model behind llama.cpp's server; started by tests/real/serve.py."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest

import turnwheel as tw

BASE = os.environ["TURNWHEEL_BASE_URL"]
MODEL = os.environ["TURNWHEEL_MODEL"]

Make = Callable[[], object]
WIRES: dict[str, Make] = {
    "chat": lambda: tw.OpenAIChat(BASE, dialect="llama.cpp"),
    "messages": lambda: tw.AnthropicMessages(BASE, default_max_tokens=64),
    "responses": lambda: tw.OpenAIResponses(BASE),
}


def context(wire: str) -> tw.Context:
    ctx = tw.Context()
    ctx.llm.register("local", WIRES[wire]())  # type: ignore[arg-type]
    return ctx


@pytest.mark.parametrize("wire", WIRES)
def test_text_streams_and_usage_is_counted(wire: str) -> None:
    async def main() -> None:
        async with context(wire) as ctx, ctx.agent("a", provider="local", model=MODEL, max_tokens=24) as agent:
            pieces = [e.text async for e in agent.stream("Say hello.") if e.type == "assistant/chunk" and e.text]
            assert len(pieces) > 1, "the answer came in pieces"
            message = next(e for e in agent.session.events() if e.type == "assistant/message")
            assert message.text == "".join(pieces)
            usage = message.data["usage"]
            assert usage["outputTokens"] > 0
            # On the messages wire this server sometimes leaves `message_start` out, which has the input's count.
            assert wire == "messages" or usage["inputTokens"] + usage.get("cacheReadTokens", 0) > 0

    asyncio.run(main())


@pytest.mark.parametrize("wire", WIRES)
def test_a_cancel_in_mid_stream_keeps_what_was_said_and_frees_the_server(wire: str) -> None:
    async def main() -> None:
        async with context(wire) as ctx, ctx.agent("a", provider="local", model=MODEL, max_tokens=32) as agent:
            async for event in agent.stream("Write a long story about a lighthouse."):
                if event.type == "assistant/chunk" and event.text:
                    agent.cancel()
            message = next(e for e in agent.session.events() if e.type == "assistant/message")
            assert message.data["interrupted"] is True and message.text
            answer = await agent.run("Say yes.")
            assert answer.reason["kind"] in ("completed", "max-tokens"), answer.reason

    asyncio.run(main())


@pytest.mark.parametrize("wire", WIRES)
def test_an_overflow_and_a_bad_request_are_named(wire: str) -> None:
    async def main() -> None:
        async with context(wire) as ctx, ctx.agent("a", provider="local", model=MODEL, max_tokens=8) as agent:
            result = await agent.run("word " * 6000)
            assert result.reason["error"]["code"] == "CONTEXT_WINDOW_EXCEEDED", result.reason
        async with tw.Context() as ctx:
            bad = {
                "chat": lambda: tw.OpenAIChat(BASE, extra={"top_k": "hot"}),
                "messages": lambda: tw.AnthropicMessages(BASE, extra={"top_k": "hot"}),
                "responses": lambda: tw.OpenAIResponses(BASE, extra={"previous_response_id": "resp_1"}),
            }
            ctx.llm.register("local", bad[wire]())
            async with ctx.agent("b", provider="local", model=MODEL, max_tokens=8) as agent:
                result = await agent.run("hi")
                assert result.reason["kind"] == "error", result.reason
                assert result.reason["error"]["code"] in ("INVALID_REQUEST", "SERVER"), result.reason
                assert result.reason["error"]["message"]

    asyncio.run(main())


@pytest.mark.parametrize("wire", WIRES)
def test_two_at_once(wire: str) -> None:
    async def main() -> None:
        async with context(wire) as ctx:
            async with (
                ctx.agent("a", provider="local", model=MODEL, max_tokens=16) as one,
                ctx.agent("b", provider="local", model=MODEL, max_tokens=16) as two,
            ):
                answers = await asyncio.gather(one.run("Say yes."), two.run("Say no."))
                assert all(answer.text for answer in answers), answers

    asyncio.run(main())
