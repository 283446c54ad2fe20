"""Stores: our own and written in Python, held to one suite; failing ones; import and export."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from pathlib import Path

import pytest
from support import run

import turnwheel as tw
from turnwheel import testing

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "python" / "stores"))
from memory_store import MemoryStore
from sqlite3_store import Sqlite3Store


def memory():
    logs, held = {}, set()
    return lambda: MemoryStore(logs, held)


HEADER = {"version": 0, "id": "a", "createdAt": 1}


def openers(tmp_path):
    return {
        "jsonl": lambda: tw.JsonlStore(tmp_path / "jsonl"),
        "plain": lambda: tw.JsonlStore(tmp_path / "plain", compression="none"),
        "sqlite": lambda: tw.SqliteStore(tmp_path / "sessions.db"),
        "memory": memory(),
        "sqlite3": lambda: Sqlite3Store(tmp_path / "own.db"),
    }


@pytest.mark.parametrize("store", ["jsonl", "plain", "sqlite", "memory", "sqlite3"])
def test_a_store_conforms(store, tmp_path):
    report = testing.store_suite(openers(tmp_path)[store])
    report.check()
    assert [case.name for case in report.cases] == list(testing.STORE_CASES) and len(testing.STORE_CASES) > 20


@pytest.mark.parametrize("case", testing.STORE_CASES)
def test_one_test_a_case_is_written_like_this(case):
    testing.check_store(case, memory())


class Careless(MemoryStore):
    """Gives every writer away, and takes what it is given."""

    async def open(self, id, /):
        self.held.discard(id)
        return await super().open(id)


def test_a_careless_store_fails_and_the_report_says_where():
    logs, held = {}, set()
    report = testing.store_suite(lambda: Careless(logs, held))
    assert not report.passed
    failed = {case.name: case.failure for case in report.failures}
    assert "opening what its creator writes succeeded" in failed["a_session_has_one_writer"]
    assert "FAILED  a_session_has_one_writer" in str(report)
    with pytest.raises(AssertionError, match="does not conform"):
        report.check()
    with pytest.raises(AssertionError, match="a_session_has_one_writer: opening what"):
        testing.check_store("a_session_has_one_writer", lambda: Careless(logs, held))
    with pytest.raises(tw.UsageError, match='no store case "x"'):
        testing.check_store("x", memory())


def test_a_store_that_is_none_says_what_it_lacks():
    class Half:
        async def list_page(self, after, limit, /):
            return []

    with pytest.raises(tw.UsageError, match="Half lacks exists, read, open, create"):
        tw.Context(store=Half())
    with pytest.raises(tw.UsageError, match="this is a class"):
        tw.Context(store=MemoryStore)


def context(store, *replies):
    ctx = tw.Context(store=store)
    model = tw.Scripted(*replies)
    ctx.llm.register("local", model)
    return ctx, model


@pytest.mark.parametrize("kind", ["jsonl", "sqlite", "memory", "sqlite3"])
def test_an_agent_lives_on_in_a_new_context(kind, tmp_path):
    open_store = openers(tmp_path)[kind]

    async def life(prompt):
        ctx, _ = context(open_store(), "answer")
        async with ctx, ctx.agent("a", provider="local", model="m") as agent:
            await agent.run(prompt)
            return [message["content"][0]["text"] for message in agent.session.history]

    assert run(life("one")) == ["one", "answer"]
    assert run(life("two")) == ["one", "answer", "two", "answer"]


@pytest.mark.parametrize("kind", ["sqlite", "memory", "sqlite3"])
def test_a_held_session_is_refused_and_its_holder_named(kind, tmp_path):
    open_store = openers(tmp_path)[kind]

    async def main():
        first, _ = context(open_store(), "x")
        second, _ = context(open_store(), "y")
        async with first, second, first.agent("a", provider="local", model="m") as agent:
            await agent.run("go")
            with pytest.raises(tw.StoreError) as locked:
                await second.agent("a", provider="local", model="m")
            return locked.value

    error = run(main())
    assert error.code == "SESSION_LOCKED" and "process" in str(error)


class Failing(MemoryStore):
    """Raises what it is told to."""

    raises: BaseException | None = None

    async def create(self, header, /):
        writer = await super().create(header)
        append, store = writer.append, self

        async def failing(seq, events, /):
            await asyncio.sleep(0)
            if store.raises is not None:
                raise store.raises
            await append(seq, events)

        writer.append = failing
        return writer


def test_a_04_a_store_that_raises_ends_the_turn_before_the_effect_and_loses_nothing():
    async def main():
        store = Failing()
        ctx, model = context(store, "one", "two")
        ran = []

        @ctx.tool
        def act() -> str:
            "Has an effect."
            ran.append(1)
            return "done"

        async with ctx, ctx.agent("a", provider="local", model="m") as agent:
            await agent.run("first")
            stored = len(store.logs["a"][1])
            store.raises = OSError(28, "the disk is full")
            failed = await agent.run("second")
            assert model.request_count == 1 and len(store.logs["a"][1]) == stored
            with pytest.raises(tw.StoreError) as flushed:
                await agent.flush()
            store.raises = None
            await agent.run("third")
            await agent.flush()
            assert [json.loads(text)["seq"] for text in store.logs["a"][1]] == list(range(len(agent.session)))
            assert store.logs["a"][1] == [event.json for event in agent.session.events()]
            return failed.reason, flushed.value

    reason, error = run(main())
    assert reason["kind"] == "error" and reason["error"]["code"] == "STORE_FAILED"
    assert error.code == "STORE_FAILED" and "OSError: [Errno 28] the disk is full" in str(error)
    assert isinstance(error.__cause__, OSError)


def test_codes_of_a_store_come_through_and_unknown_ones_are_store_failures():
    async def code_of(raised):
        store = MemoryStore()

        async def open(id, /):
            raise raised

        store.logs["a"] = (HEADER, [])
        store.open = open
        ctx, _ = context(store, "x")
        async with ctx:
            with pytest.raises(tw.TurnwheelError) as error:
                await ctx.agent("a", provider="local", model="m")
            return error.value.code, isinstance(error.value, type(raised))

    assert run(code_of(tw.StoreError("held by process 7", code="SESSION_LOCKED"))) == ("SESSION_LOCKED", True)
    assert run(code_of(tw.LogError("damaged", code="CORRUPT_LOG"))) == ("CORRUPT_LOG", True)
    assert run(code_of(tw.StoreError("x", code="MY_OWN")))[0] == "STORE_FAILED"
    assert run(code_of(ZeroDivisionError("x")))[0] == "STORE_FAILED"


@pytest.mark.parametrize(
    ("log", "code"),
    [
        ((HEADER, ["{"]), "CORRUPT_LOG"),
        (
            (HEADER, ['{"type":"plan/mode","seq":1,"time":1,"data":{}}']),
            "CORRUPT_LOG",
        ),
        ((HEADER, [7]), "STORE_FAILED"),
        (({"version": 1, "id": "a", "createdAt": 1}, []), "UNSUPPORTED_FORMAT"),
        (({"version": 0, "id": "a", "createdAt": "x"}, []), "CORRUPT_LOG"),
        ((), "STORE_FAILED"),
        (7, "STORE_FAILED"),
    ],
)
def test_what_a_store_gives_back_is_checked_and_its_writer_given_up(log, code):
    closed = []

    class Writer:
        async def append(self, seq, events, /):
            raise AssertionError("nothing is appended")

        async def close(self):
            closed.append(1)

    class Odd(MemoryStore):
        async def exists(self, id, /):
            return True

        async def open(self, id, /):
            return (*log, Writer()) if log and log != 7 else log

    async def main():
        ctx, _ = context(Odd(), "x")
        async with ctx:
            with pytest.raises(tw.TurnwheelError) as error:
                await ctx.agent("a", provider="local", model="m")
            return error.value.code

    assert run(main()) == code
    assert closed == ([1] if log and log != 7 else [])


def test_a_plain_method_and_contextvars_work_as_anywhere():
    class Plain(MemoryStore):
        def exists(self, id, /):
            return id in self.logs

    async def main():
        ctx, _ = context(Plain(), "x")
        async with ctx, ctx.agent("a", provider="local", model="m") as agent:
            return (await agent.run("go")).text

    assert run(main()) == "x"


def test_sessions_are_listed_in_pages(tmp_path):
    async def main():
        ctx, _ = context(tw.SqliteStore(tmp_path / "s.db"), "1", "2", "3")
        async with ctx:
            for name in "bca":
                async with ctx.agent(name, provider="local", model="m") as agent:
                    await agent.run("go")
            first = await ctx.list_sessions(limit=2)
            rest = await ctx.list_sessions(after=first[-1]["id"], limit=2)
            return [header["id"] for header in first], [header["id"] for header in rest]

    assert run(main()) == (["a", "b"], ["c"])


def test_import_and_export_keep_every_text_and_overwrite_nothing(tmp_path):
    async def main():
        source = tw.JsonlStore(tmp_path / "source")
        ctx, _ = context(source, "answer")
        async with ctx, ctx.agent("a", provider="local", model="m", cwd=tmp_path) as agent:
            await agent.run("go \u0000 \U0001f980")
            header = agent.session.header
            hosted = MemoryStore()
            live = await ctx.export_session(hosted, "a")
            texts = [event.json for event in agent.session.events()]
            assert hosted.logs["a"][1] == texts and live.events == len(texts)
        middle = tw.SqliteStore(tmp_path / "middle.db")
        async with context(middle)[0] as ctx:
            copied = await ctx.import_session(source, "a")
            for again in (ctx.import_session(source, "a"), ctx.export_session(source, "a")):
                with pytest.raises(tw.RegistryError) as error:
                    await again
                assert error.value.code == "SESSION_ALREADY_EXISTS"
            with pytest.raises(tw.RegistryError) as error:
                await ctx.import_session(source, "nobody")
            assert error.value.code == "SESSION_NOT_FOUND"
            target = MemoryStore()
            await ctx.export_session(target, "a")
        async with context(source)[0] as ctx:
            original = MemoryStore()
            await ctx.export_session(original, "a")
        assert target.logs == original.logs
        assert copied.header == target.logs["a"][0] == {**header, "delegationDepth": 0}
        assert len(target.logs["a"][1]) == copied.events
        assert target.logs["a"][1][: len(texts)] == texts
        async with context(target, "more")[0] as ctx, ctx.agent("a", provider="local", model="m") as agent:
            return (await agent.run("again")).text

    assert run(main()) == "more"


def test_without_a_store_there_is_nothing_to_list(tmp_path):
    async def main():
        async with tw.Context() as ctx:
            for asked in (ctx.list_sessions(), ctx.import_session(tmp_path, "a"), ctx.export_session(tmp_path, "a")):
                with pytest.raises(tw.StoreError) as error:
                    await asked
                assert error.value.code == "NO_STORE"

    run(main())


def test_the_reference_database_is_read_and_not_written(tmp_path):
    path = tmp_path / "reference.db"
    db = sqlite3.connect(path)
    db.executescript("PRAGMA application_id = 1146308688; PRAGMA user_version = 16;")
    db.close()

    async def main():
        async with context(tw.SqliteStore(tmp_path / "s.db"))[0] as ctx:
            with pytest.raises(tw.LogError, match="schema 16") as error:
                await ctx.import_session(tw.ReferenceDatabase(path), "a")
            return error.value.code

    assert run(main()) == "UNSUPPORTED_FORMAT"
