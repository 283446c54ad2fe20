"""All three wires through LiteLLM's proxy; started by tests/real/litellm_proxy.py."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest

import turnwheel as tw

# Both are set by tests/real/litellm_proxy.py, which starts the proxy.
BASE = os.environ["TURNWHEEL_BASE_URL"]
KEY = os.environ["TURNWHEEL_KEY"]

# The proxy translates the models of `up-` into the messages wire and those of `flat-` into the responses wire.
WIRES: dict[str, tuple[Any, str]] = {
    "chat": (tw.OpenAIChat(BASE, api_key=KEY, dialect="litellm"), "up"),
    "messages": (tw.AnthropicMessages(BASE, api_key=KEY, bearer=True), "up"),
    "responses": (tw.OpenAIResponses(BASE, api_key=KEY), "flat"),
}


async def answer(wire: str, model: str, prompt: str = "hi", **options: Any) -> tuple[Any, list[tw.Event]]:
    adapter, prefix = WIRES[wire]
    async with tw.Context() as ctx:

        @ctx.tool
        async def weather(city: str) -> str:
            """Says what the weather is."""
            return f"sunny in {city}"

        ctx.llm.register("proxy", adapter, **options)
        if "retry" in options:
            ctx.llm.retry()
        name = model if model.startswith(("mock", "own")) else f"{prefix}-{model}"
        async with ctx.agent("a", provider="proxy", model=name) as agent:
            result = await agent.run(prompt)
            return result, agent.session.events()


@pytest.mark.parametrize("wire", WIRES)
def test_text_streams(wire: str) -> None:
    result, events = asyncio.run(answer(wire, "text"))
    assert result.text == "Grüezi from upstream."
    pieces = [event.text for event in events if event.type == "assistant/chunk" and event.text]
    assert "".join(pieces) == result.text and len(pieces) > 1


@pytest.mark.parametrize("wire", WIRES)
def test_a_tool_is_called_and_its_result_goes_back(wire: str) -> None:
    result, events = asyncio.run(answer(wire, "tool"))
    call = next(event for event in events if event.type == "tool/call")
    assert call.data["name"] == "weather"
    assert "sunny in Zürich" in repr([event.data for event in events if event.type == "tool/result"])
    assert result.reason["kind"] == "completed", result.reason
    assert result.text == "Grüezi from upstream.", "the proxy took the call and its result in the second request"


@pytest.mark.parametrize("wire", WIRES)
def test_a_rate_limit_is_named_and_retried_by_policy(wire: str) -> None:
    policy = {"max_retries": 1, "initial_delay": 0.01, "max_delay": 1.5}
    start = time.monotonic()
    result, events = asyncio.run(answer(wire, "limited", retry=policy))
    error = result.reason["error"]
    assert (error["code"], error["status"]) == ("RATE_LIMIT", 429), error
    # On the messages wire the proxy keeps the provider's wish to itself.
    assert error.get("providerRetryAfterMs") == (None if wire == "messages" else 1_000), error
    assert wire == "messages" or time.monotonic() - start >= 1, "and it is waited for"
    assert [event.type for event in events].count("llm/retry-started") == 1


def test_the_proxys_own_mocks() -> None:
    result, _ = asyncio.run(answer("chat", "mock-text"))
    assert result.text == "Grüezi from the proxy."
    result, _ = asyncio.run(answer("chat", "mock-broken"))
    assert (result.reason["error"]["code"], result.reason["error"]["status"]) == ("SERVER", 500)
    result, _ = asyncio.run(answer("chat", "mock-limited"))
    assert result.reason["error"]["code"] == "RATE_LIMIT"
    result, _ = asyncio.run(answer("chat", "mock-nowhere"))
    assert result.reason["error"]["code"] == "INVALID_REQUEST"


def test_the_proxys_own_limits_and_when_to_come_back() -> None:
    """It says so in `retry-after` when that is its own idea, and under another name when it speaks for a provider."""
    # One request a minute: of three in a breath one is refused, wherever the minute begins.
    results = [asyncio.run(answer("chat", "own-limit"))[0] for _ in range(3)]
    assert results[0].text == "Grüezi from the proxy."
    error = next(result.reason["error"] for result in results if result.reason["kind"] == "error")
    assert (error["code"], error["status"], error["providerRetryAfterMs"]) == ("RATE_LIMIT", 429, 60_000)
    codes = []
    while "RATE_LIMIT" not in codes and len(codes) < 6:
        result, _ = asyncio.run(answer("chat", "own-rest"))
        error = result.reason["error"]
        codes.append(error["code"])
    assert codes[0] == "SERVER" and codes[-1] == "RATE_LIMIT", codes
    assert error["status"] == 429 and 0 < error["providerRetryAfterMs"] <= 30_000, error


@pytest.mark.parametrize("wire", WIRES)
def test_a_wrong_key_is_refused_and_shown_nowhere(wire: str) -> None:
    async def main() -> None:
        kinds = {"chat": tw.OpenAIChat, "messages": tw.AnthropicMessages, "responses": tw.OpenAIResponses}
        wrong = "sk-wrong-0123456789abcdef"
        async with tw.Context() as ctx:
            ctx.llm.register("proxy", kinds[wire](BASE, api_key=wrong))
            async with ctx.agent("a", provider="proxy", model="up-text") as agent:
                result = await agent.run("hi")
                assert result.reason["kind"] == "error", result.reason
                assert wrong not in repr([event.data for event in agent.session.events()])

    asyncio.run(main())
