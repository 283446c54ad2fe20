"""Model routes: adapters over HTTP, retry, fallback, limits, and the doubles of ``turnwheel.testing``."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Coroutine
from typing import Any

import pytest

import turnwheel as tw
from turnwheel.testing import Cassette, Fault, Faulty


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 30))


def kinds(agent: tw.Agent) -> list[str]:
    return [event.type for event in agent.session.events()]


QUICK = {"initial_delay": 0.001, "max_delay": 0.01}


def test_options_are_checked_and_keys_are_shown_nowhere() -> None:
    key = "sk-very-secret-0123456789"
    adapters = [
        tw.OpenAIChat("https://e.com/v1", api_key=key, dialect="openrouter", headers={"x": key}),
        tw.OpenAIResponses(api_key=lambda: key, reasoning_summary="auto"),
        tw.AnthropicMessages(api_key=key, betas=["b"], thinking_budgets={"low": 2048}, cache_markers=False),
    ]
    assert key not in repr(adapters)
    for make in (
        lambda: tw.OpenAIChat("https://e.com/v1", dialect="esperanto"),
        lambda: tw.AnthropicMessages(thinking_budgets={"low": 1}),
        lambda: tw.OpenAIResponses("http://example.com/v1"),
        lambda: tw.OpenAIChat("https://e.com/v1", ca_file="/no/such/file"),
        lambda: tw.OpenAIChat("https://e.com/v1", api_key=7),  # type: ignore[arg-type]
    ):
        with pytest.raises(tw.UsageError) as caught:
            make()
        assert key not in str(caught.value)


def test_a_key_function_that_fails_is_a_missing_credential() -> None:
    def key() -> str:
        raise RuntimeError("vault says sk-hidden-0123456789")

    async def main() -> None:
        async with tw.Context() as ctx:
            ctx.llm.register("m", tw.OpenAIChat("http://127.0.0.1:1/v1", api_key=key))
            async with ctx.agent("a", provider="m", model="x") as agent:
                result = await agent.run("hi")
                assert result.reason["error"]["code"] == "MISSING_CREDENTIAL"
                assert "sk-hidden" not in repr(result.reason)

    run(main())


def test_retries_follow_the_policy_of_the_route() -> None:
    async def main() -> None:
        async with tw.Context() as ctx:
            faulty = Faulty(
                tw.Scripted(otherwise="whole"), Fault.fail("SERVER", after=1), Fault.cut(1), Fault.crumble()
            )
            policy = {**QUICK, "retryable_codes": ["SERVER", "STREAM_CLOSED"], "max_retries": 3}
            ctx.llm.register("m", faulty, retry=policy)
            told: list[dict[str, Any] | None] = []

            @ctx.on("agent/request-error")
            async def tell(event: tw.RequestError, next: tw.Next) -> Any:
                told.append(event.retry_policy)
                return await next()

            ctx.llm.retry()
            async with ctx.agent("a", provider="m", model="x") as agent:
                result = await agent.run("hi")
                assert result.text == "whole"
                assert kinds(agent).count("llm/retry") == kinds(agent).count("llm/retry-started") == 2
            assert told[0] is not None and told[0] == told[1]
            assert (told[0]["mode"], told[0]["maxRetries"], told[0]["initialDelayMs"]) == ("normal", 3, 1)
            assert told[0]["retryableCodes"] == policy["retryable_codes"]
            with pytest.raises(tw.UsageError):
                ctx.llm.register("n", tw.Scripted("x"), retry={"max_tries": 1})
            with pytest.raises(tw.UsageError):
                ctx.llm.register("n", tw.Scripted("x"), requests_per_minute=0)

    run(main())


def test_a_failed_route_falls_back_to_the_next() -> None:
    async def main() -> None:
        async with tw.Context() as ctx:
            ctx.llm.register("main", Faulty(tw.Scripted("never"), Fault.fail("AUTH")))
            ctx.llm.register("spare", tw.Scripted("from the spare"), requests_per_minute=5)
            ctx.llm.fallback({"provider": "spare", "model": "small"})
            async with ctx.agent("a", provider="main", model="x") as agent:
                result = await agent.run("hi")
                assert result.text == "from the spare"
                fall = next(event for event in agent.session.events() if event.type == "llm/fallback")
                assert fall.data["to"] == {"provider": "spare", "model": "small"}

    run(main())


def test_a_cassette_replays_an_adapter_written_in_python(tmp_path: pathlib.Path) -> None:
    async def model(request: tw.ModelRequest) -> Any:
        yield f"{len(request.messages)} messages"

    async def talk(adapter: Any) -> list[str]:
        async with tw.Context() as ctx:
            ctx.llm.register("m", adapter)
            async with ctx.agent("a", provider="m", model="x") as agent:
                return [(await agent.run(text)).text for text in ("one", "two")]

    async def main() -> None:
        path = tmp_path / "talk.cassette"
        recorded = await talk(Cassette.record(path, model))
        assert recorded == ["1 messages", "3 messages"]
        assert await talk(Cassette.replay(path)) == recorded
        async with tw.Context() as ctx:
            ctx.llm.register("m", Cassette.replay(path))
            async with ctx.agent("a", provider="m", model="x") as agent:
                result = await agent.run("something else")
                assert result.reason["error"]["code"] == "CASSETTE_MISS"

    run(main())


def test_a_stalled_answer_is_cancelled_and_keeps_what_was_said() -> None:
    async def main() -> None:
        async with tw.Context() as ctx:
            ctx.llm.register("m", Faulty(tw.Scripted("said"), Fault.stall(2)))
            async with ctx.agent("a", provider="m", model="x") as agent:
                async for event in agent.stream("hi"):
                    if event.type == "assistant/chunk" and event.text:
                        agent.cancel()
                message = next(event for event in agent.session.events() if event.type == "assistant/message")
                assert (message.text, message.data["interrupted"]) == ("said", True)

    run(main())


def test_adp_2_routes_that_come_and_go_are_told_once_and_after_the_fact() -> None:
    async def main() -> None:
        async with tw.Context() as ctx:
            told: list[str] = []

            @ctx.on("models/changed")
            def changed(event: Any) -> None:
                told.append(type(event).__name__)
                raise RuntimeError("undoes nothing")

            route = ctx.llm.register("m", tw.Scripted("hi"))
            with pytest.raises(tw.TurnwheelError, match="has an adapter already"):
                ctx.llm.register("m", tw.Scripted("hi"))
            async with ctx.agent("a", provider="m", model="x") as agent:
                assert (await agent.run("hello")).text == "hi"
            route.dispose()
            route.dispose()
            assert len(told) == 2

    run(main())
