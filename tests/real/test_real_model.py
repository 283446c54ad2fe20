"""The main job on a real language model behind llama.cpp's server; started by tests/real/serve.py."""

import asyncio
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import urllib.request

import turnwheel as tw

BASE = os.environ["TURNWHEEL_BASE_URL"]
MODEL = os.environ["TURNWHEEL_MODEL"]
README = pathlib.Path(__file__).parents[2] / "README.md"


def context(store: pathlib.Path) -> tw.Context:
    ctx = tw.Context(store=store)
    ctx.llm.register("local", tw.OpenAIChat(base_url=BASE))
    return ctx


def types(agent: tw.Agent) -> list[str]:
    return [event.type for event in agent.session.events()]


def assert_balanced(agent: tw.Agent) -> None:
    seen = types(agent)
    assert seen.count("turn/start") == seen.count("turn/end")
    assert seen.count("step/start") == seen.count("step/end")


def test_text_streams_and_usage_is_counted(tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        async with context(tmp_path).agent("a", provider="local", model=MODEL, max_tokens=24) as agent:
            pieces = [e.text async for e in agent.stream("Say hello.") if e.type == "assistant/chunk" and e.text]
            assert len(pieces) > 3, "the answer came in pieces"
            message = next(e for e in agent.session.events() if e.type == "assistant/message")
            assert message.text == "".join(pieces)
            usage = message.data["usage"]
            assert usage["outputTokens"] > 0
            assert usage["inputTokens"] + usage.get("cacheReadTokens", 0) > 0

    asyncio.run(main())


def test_a_cancel_in_mid_stream_keeps_what_was_said(tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        async with context(tmp_path).agent("a", provider="local", model=MODEL) as agent:
            pieces: list[str] = []
            async for event in agent.stream("Write a long story about a lighthouse."):
                if event.type == "assistant/chunk" and event.text:
                    pieces.append(event.text)
                    if len(pieces) == 5:
                        agent.cancel()
            message = next(e for e in agent.session.events() if e.type == "assistant/message")
            assert message.data["interrupted"] is True
            assert message.text.startswith("".join(pieces[:5]))
            end = agent.session.events()[-1]
            assert end.data["reason"] == {"kind": "aborted", "reason": {"kind": "user"}}
            assert_balanced(agent)
            answer = await agent.run("Say yes.")
            assert answer.text, "the next request is accepted by the server"

    asyncio.run(main())


CHILD = """
import asyncio, sys
import turnwheel as tw

async def main():
    ctx = tw.Context(store=sys.argv[1])
    ctx.llm.register("local", tw.OpenAIChat(base_url=sys.argv[2]))
    async with ctx.agent("a", provider="local", model=sys.argv[3]) as agent:
        queued = None
        async for event in agent.stream("Write a long story about a lighthouse."):
            if event.type == "assistant/chunk" and event.text:
                if queued is None:
                    queued = agent.followup({"id": "q2", "role": "user", "source": {"kind": "user"},
                                             "content": [{"type": "text", "text": "Say yes."}]})
                    await queued.durable()
                print(event.text, flush=True)

asyncio.run(main())
"""


def test_a_process_killed_in_mid_turn_loses_nothing(tmp_path: pathlib.Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), BASE, MODEL], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    for _ in range(4):
        assert child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.wait()

    async def main() -> None:
        async with context(tmp_path).agent("a", provider="local", model=MODEL, max_tokens=24) as agent:
            assert_balanced(agent)
            ends = [e.data["reason"]["kind"] for e in agent.session.events() if e.type == "turn/end"]
            assert ends == ["interrupted"]
            assert agent.receipt("q2").state["kind"] == "pending", "the queued prompt survived"
            agent.wake()
            await agent.when_idle()
            assert agent.receipt("q2").state["kind"] == "ended"
            last = agent.session.events()[-1].data["reason"]["kind"]
            assert last in ("completed", "max-tokens"), "the server accepted the repaired history"
            assert_balanced(agent)

    asyncio.run(main())


def test_the_program_of_the_readme_runs_as_printed(tmp_path: pathlib.Path) -> None:
    program = re.search(r"```python\n(.*?)```", README.read_text(), re.S)
    assert program is not None
    printed = "http://127.0.0.1:8080/v1"
    assert printed in program[1]
    result = subprocess.run(
        [sys.executable, "-c", program[1].replace(printed, BASE)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    assert result.stderr == ""


def test_the_rust_assistant_talks_to_the_same_server(tmp_path: pathlib.Path) -> None:
    root = README.parent
    command = ["cargo", "run", "--quiet", "--locked", "--manifest-path", str(root / "Cargo.toml")]
    command += ["-p", "turnwheel", "--example", "assistant"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.strip().splitlines()) >= 2


def test_a_request_that_the_server_refuses_is_named(tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        async with context(tmp_path).agent("a", provider="local", model=MODEL) as agent:
            result = await agent.run("word " * 6000)
            assert result.reason["kind"] == "error"
            assert result.reason["error"]["code"] == "CONTEXT_WINDOW_EXCEEDED", result.reason

    asyncio.run(main())


def test_the_server_is_the_real_one() -> None:
    with urllib.request.urlopen(f"{BASE}/models", timeout=5) as reply:
        models = json.load(reply)
    assert "SmolLM2" in json.dumps(models)
