"""What a JSONL store tells about its files, and what a log takes from Python."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from support import context, open_agent, run

import turnwheel as tw


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_jl_21_and_22_sessions_are_listed_located_and_exported(tmp_path: Path, compression: str) -> None:
    async def main() -> None:
        store = tw.JsonlStore(tmp_path / "sessions", compression)  # type: ignore[arg-type]
        assert await store.list() == [] and await store.locate("a") is None and await store.read_raw("a") is None
        async with context("hi", store=store) as ctx:
            agent = await open_agent(ctx, cwd="/work")
            await agent.run("hello")
            await agent.flush()
            first = await store.revision("a")
            await agent.run("again")
            await agent.flush()
            events = [event.json for event in agent.session.events()]
        assert first is not None and first != await store.revision("a")
        [(header, revision)] = await store.list_revisions()
        assert (header["id"], header["cwd"], revision) == ("a", "/work", await store.revision("a"))
        path = await store.locate("a")
        assert path is not None and path.is_file() and path.parent.name == "a"
        raw = await store.read_raw("a")
        assert raw is not None and (raw.header, raw.file_name) == (header, "session.jsonl")
        lines = raw.text.decode().splitlines()
        assert json.loads(lines[0])["type"] == "session"
        assert json.loads(lines[1]) == json.loads(events[0])
        path.write_bytes(b"no log\n")
        with pytest.raises(tw.TurnwheelError) as caught:
            await store.read_raw("a")
        assert caught.value.code == "CORRUPT_LOG"

    run(main())


def test_app_3_and_4_shared_parts_are_copied_and_what_json_cannot_carry_is_refused() -> None:
    async def main() -> None:
        async with context() as ctx:
            agent = await open_agent(ctx)
            part = {"a": [1]}
            event = agent.session.append("my/note", {"x": part, "y": part})
            part["a"].append(2)
            assert event.data == {"x": {"a": [1]}, "y": {"a": [1]}}
            circle: list[object] = []
            circle.append(circle)
            before = len(agent.session)
            for wrong in (circle, math.nan, math.inf, object(), {1: 2}, {"a": {3}}, b"x", 2**53 + 1):
                with pytest.raises(tw.TurnwheelError):
                    agent.session.append("my/note", {"x": wrong})
            assert len(agent.session) == before
            assert agent.session.append("my/note", {"x": -0.0}).json.count('"x":0}') == 1, "JSON has one zero"

    run(main())
