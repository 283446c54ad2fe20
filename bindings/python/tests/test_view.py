"""Sessions as they are looked at: the command line, what it says, and what it never does."""

from __future__ import annotations

import contextlib
import json
import pathlib
import signal
import sqlite3
import subprocess
import sys
from typing import Any

import pytest
from support import call, context, open_agent, run

import turnwheel as tw
from turnwheel._cli import main
from turnwheel.view import Price, Sessions

SAMPLES = pathlib.Path(__file__).parents[3] / "tests" / "samples"


@pytest.fixture
def store(tmp_path: pathlib.Path) -> pathlib.Path:
    """A store with one session, `a`, of two turns and a failing call."""
    folder = tmp_path / "sessions"

    async def fill() -> None:
        async with context(call("divide", {"by": 0}), "That cannot be.", "Bye.", store=folder) as ctx:

            @ctx.tool
            def divide(by: int) -> float:
                return 1 / by

            async with open_agent(ctx) as agent:
                await agent.run("Divide by zero")
                await agent.run("Thanks")

    run(fill())
    return folder


def cli(capsysbinary: Any, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    out, err = capsysbinary.readouterr()
    return code, out.decode(), err.decode()


def file_of(store: pathlib.Path) -> pathlib.Path:
    return next(store.rglob("session.jsonl.zstd"))


def test_show_prints_the_timeline_of_an_id_a_file_and_a_folder_alike(store, capsysbinary):
    shown = [
        cli(capsysbinary, "show", "a", "--store", store),
        cli(capsysbinary, "show", file_of(store)),
        cli(capsysbinary, "show", store),
    ]
    assert shown[0] == shown[1] == shown[2]
    code, out, err = shown[0]
    assert (code, err) == (0, "")
    assert "Divide by zero" in out and "call divide" in out and "divide failed after" in out
    assert "That cannot be." in out and "turn 2 completed" in out
    assert out.splitlines()[-1].startswith("2 turns, 3 steps, 1 call (1 failed);")


def test_a_plain_file_and_a_database_are_told_apart_by_content(store, tmp_path, capsysbinary):
    _, text, _ = cli(capsysbinary, "export", "a", "--store", store)
    plain = tmp_path / "mailed.log"
    plain.write_text(text)

    async def copy() -> None:
        async with tw.Context(store=tw.SqliteStore(str(tmp_path / "s.db"))) as ctx:
            await ctx.import_session(tw.JsonlStore(store), "a")

    run(copy())
    expected = cli(capsysbinary, "show", "a", "--store", store)
    assert cli(capsysbinary, "show", plain) == expected
    assert cli(capsysbinary, "show", tmp_path / "s.db") == expected
    assert cli(capsysbinary, "export", "a", "--store", tmp_path / "s.db")[1] == text


def test_export_is_the_text_of_a_plain_file_and_overwrites_nothing(store, tmp_path, capsysbinary):
    code, text, _ = cli(capsysbinary, "export", "a", "--store", store)
    lines = [json.loads(line) for line in text.splitlines()]
    assert code == 0 and (lines[0]["type"], lines[0]["id"]) == ("session", "a")
    assert [line["seq"] for line in lines[1:]] == list(range(len(Sessions(store).read("a"))))
    out = tmp_path / "out.jsonl"
    assert cli(capsysbinary, "export", "a", "--store", store, "-o", out)[0] == 0
    assert out.read_text() == text
    code, _, err = cli(capsysbinary, "export", "a", "--store", store, "-o", out)
    assert code == 2 and "overwrites nothing" in err
    assert out.read_text() == text


def test_ls_lists_headers(store, capsysbinary):
    code, out, _ = cli(capsysbinary, "ls", store)
    assert code == 0 and out.endswith("  a\n")
    code, out, _ = cli(capsysbinary, "ls", store, "--json")
    assert code == 0 and [json.loads(line)["id"] for line in out.splitlines()] == ["a"]


def test_html_writes_one_page_and_tells_how_far_it_is(store, tmp_path, capsysbinary):
    page = tmp_path / "a.html"
    code, _, err = cli(capsysbinary, "html", "a", "--store", store, "-o", page, "--progress")
    assert code == 0 and "100 % of" in err
    text = page.read_text()
    assert text.startswith("<!doctype html>") and text.rstrip().endswith("</html>") and "That cannot be." in text
    assert cli(capsysbinary, "html", "a", "--store", store, "-o", "-")[1] == text
    assert not list(tmp_path.glob(".a.html*"))


def test_a_live_session_is_looked_at_as_it_is_now_and_shows_itself_in_a_notebook(tmp_path):
    async def main() -> None:
        async with context("<b>one</b>", "two") as ctx, open_agent(ctx) as agent:
            await agent.run("first")
            log = agent.session.log()
            await agent.run("second")
            shown = "".join(log.text())
            assert "<b>one</b>" in shown and "second" not in shown and len(log) < len(agent.session)
            assert log.verdict()["isSound"]
            frame = log._repr_html_()
            assert frame.startswith("<iframe sandbox ") and frame.count("<") == 2, "the page is an attribute"
            assert "&amp;lt;b&amp;gt;one" in frame
            agent.session.log().save_html(tmp_path / "live.html")

    run(main())
    assert "second" in (tmp_path / "live.html").read_text()


def test_a_page_that_cannot_be_written_leaves_nothing(store, tmp_path):
    def refuse(done: int, of: int) -> None:
        raise ValueError("stop")

    log = Sessions(store).read("a")
    with pytest.raises(ValueError, match="stop"):
        log.save_html(tmp_path / "a.html", progress=refuse)
    assert [path.name for path in tmp_path.iterdir()] == ["sessions"]
    with pytest.raises(KeyError):
        log.write_html(lambda piece: {}[piece])


def test_prices_give_costs(store, capsysbinary):
    code, out, _ = cli(capsysbinary, "show", SAMPLES / "04-retry-and-error.jsonl", "--price", "demo/demo-chat=1e6,2e6")
    assert code == 0 and out.endswith("5 tokens in, 2 out; cost 9.00\n")  # 5 x 1 + 2 x 2
    log = Sessions(SAMPLES / "04-retry-and-error.jsonl").read()
    assert "cost 9.00" in "".join(log.text(prices={"demo/demo-chat": Price(1e6, 2e6)}))
    with pytest.raises(SystemExit) as exit:
        cli(capsysbinary, "show", "a", "--price", "nonsense")
    assert exit.value.code == 2


def test_what_is_not_there_is_said_with_what_to_do(store, tmp_path, capsysbinary, monkeypatch):
    monkeypatch.chdir(tmp_path / "sessions")
    code, out, err = cli(capsysbinary, "show", "b", "--store", store)
    assert (code, out) == (1, "") and "has no session" in err and "SESSION_NOT_FOUND" in err
    code, _, err = cli(capsysbinary, "show", "nowhere")
    assert code == 2 and "--store" in err
    code, _, err = cli(capsysbinary, "ls", tmp_path / "nothing")
    assert code == 2 and "name a store's folder" in err
    other = tmp_path / "notes.txt"
    other.write_text("hello\n")
    code, _, err = cli(capsysbinary, "show", other)
    assert code == 1 and "CORRUPT_LOG" in err


def test_verify_and_repair_tell_what_a_crash_left_and_dry_runs_write_nothing(store, capsysbinary):
    sound = cli(capsysbinary, "verify", "a", "--store", store)
    assert sound[0] == 0 and sound[1].endswith("sound\n") and "note" not in sound[1]
    assert cli(capsysbinary, "repair", "a", "--store", store, "--dry-run") == (0, "", "would append 0 events\n")
    plain = store.parent / "plain"
    _, text, _ = cli(capsysbinary, "export", "a", "--store", store)
    lines = text.splitlines(keepends=True)
    cut = next(index for index, line in enumerate(lines) if json.loads(line)["type"] == "tool/call") + 1
    name = file_of(store).relative_to(store).with_suffix("")
    target = plain / name
    target.parent.mkdir(parents=True)
    target.write_text("".join(lines[:cut]) + '{"type":"tool/res')
    before = target.read_bytes()
    code, out, err = cli(capsysbinary, "repair", "a", "--store", plain, "--dry-run")
    closers = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [event["type"] for event in closers] == ["tool/result", "step/end", "turn/end"]
    assert err == "would append 3 events, and drop 17 torn bytes\n"
    code, out, _ = cli(capsysbinary, "verify", "a", "--store", plain)
    assert code == 0 and "17 bytes of an unfinished append" in out and "opening appends 3 events" in out
    assert "the log ends inside a turn" in cli(capsysbinary, "show", "a", "--store", plain)[1]
    assert target.read_bytes() == before
    assert cli(capsysbinary, "repair", "a", "--store", plain) == (0, "", "appended 3 events\n")
    assert json.loads(target.read_text().splitlines()[-1]) == closers[-1]
    assert "was cut by a crash and closed by repair" in cli(capsysbinary, "show", "a", "--store", plain)[1]


def test_a_database_is_ours_or_the_references_by_what_it_says_it_is(tmp_path, capsysbinary):
    for application, said in ((1_146_308_688, "reference harness"), (7, "other.db")):
        path = tmp_path / f"{'reference' if application != 7 else 'other'}.db"
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.executescript(f"PRAGMA application_id = {application}; CREATE TABLE t (x)")
        code, _, err = cli(capsysbinary, "ls", path)
        assert code == 1 and said in err


def test_repair_closes_a_session_in_a_database_and_waits_for_its_writer(store, tmp_path, capsysbinary):
    database = tmp_path / "s.db"
    _, text, _ = cli(capsysbinary, "export", "a", "--store", store)
    lines = text.splitlines(keepends=True)
    cut = next(index for index, line in enumerate(lines) if json.loads(line)["type"] == "tool/call") + 1
    target = tmp_path / "plain" / file_of(store).relative_to(store).with_suffix("")
    target.parent.mkdir(parents=True)
    target.write_text("".join(lines[:cut]))

    async def copy_then_hold() -> tuple[int, str, str]:
        async with tw.Context(store=tw.SqliteStore(str(database))) as ctx:
            await ctx.import_session(tw.JsonlStore(tmp_path / "plain", compression="none"), "a")
        shown = cli(capsysbinary, "repair", "a", "--store", database)
        async with context(store=tw.SqliteStore(str(database))) as ctx, open_agent(ctx):
            held = cli(capsysbinary, "repair", "a", "--store", database)
        assert held[0] == 1 and "SESSION_LOCKED" in held[2]
        return shown

    assert run(copy_then_hold()) == (0, "", "appended 3 events\n")
    assert "was cut by a crash and closed by repair" in cli(capsysbinary, "show", "a", "--store", database)[1]
    assert cli(capsysbinary, "repair", "a", "--store", database) == (0, "", "appended 0 events\n")


def test_verify_finds_damage_and_disorder(store, tmp_path, capsysbinary):
    _, text, _ = cli(capsysbinary, "export", "a", "--store", store)
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text(text.replace('"seq":3,', '"seq":4,', 1))
    code, _, err = cli(capsysbinary, "verify", damaged)
    assert code == 1 and "CORRUPT_LOG" in err
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(text.replace('"turn":2', '"turn":5'))
    code, out, _ = cli(capsysbinary, "verify", wrong, "--json")
    verdict = json.loads(out)
    assert code == 1 and not verdict["isSound"] and "turn 2 is expected" in verdict["disorder"][0]["rule"]


def test_types_of_plug_ins_are_shown_and_named(tmp_path, capsysbinary):
    async def fill() -> None:
        async with context("hi", store=tmp_path / "s") as ctx:
            ctx.register_event_type("shop/sale", 1)
            async with open_agent(ctx) as agent:
                await agent.run("go")
                agent.session.append("shop/sale", {"what": "bread"})

    run(fill())
    code, out, _ = cli(capsysbinary, "show", tmp_path / "s")
    assert code == 0 and "shop/sale" in out and "bread" in out
    verdict = json.loads(cli(capsysbinary, "verify", tmp_path / "s", "--json")[1])
    assert verdict["isSound"] and verdict["needsTypes"] == ["shop/sale"]


def test_show_follows_a_session_that_another_process_writes(store):
    file = file_of(store)
    whole = file.read_bytes()
    # The file as it was after its first frames: what the writer appends later arrives while `show` runs.
    cut = whole.rindex(b"\x28\xb5\x2f\xfd")
    file.write_bytes(whole[:cut])
    command = [sys.executable, "-m", "turnwheel", "show", str(file), "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=hear_interrupts) as process:
        assert process.stdout is not None
        seen = ""
        while "Divide by zero" not in seen:
            seen += process.stdout.readline()
        with file.open("ab") as appended:
            appended.write(whole[cut:])
        while "turn 2 completed" not in seen:
            line = process.stdout.readline()
            assert line, seen
            seen += line
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=20)
    assert process.returncode == 0 and "2 turns, 3 steps" in rest
    assert seen.count("That cannot be.") == 1


def hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_reader_that_has_seen_enough_is_no_error(store):
    command = f"{sys.executable} -m turnwheel show {file_of(store)} --full | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("session a")


def test_colours_are_for_terminals_and_for_who_asks(store, capsysbinary):
    assert "\x1b[" not in cli(capsysbinary, "show", store)[1]
    assert "\x1b[31m" in cli(capsysbinary, "show", store, "--color", "always")[1]


@pytest.mark.parametrize("command", ["show", "html", "ls", "export", "verify", "repair"])
def test_every_command_has_help_with_the_exit_codes(command, capsysbinary):
    with pytest.raises(SystemExit) as exit:
        main([command, "--help"])
    out = capsysbinary.readouterr().out.decode()
    assert exit.value.code == 0 and "exit codes" in out and ("PATH" if command == "ls" else "--store") in out


def test_looking_needs_no_right_to_write(store, capsysbinary):
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    for command in (["show"], ["verify"], ["export"], ["repair", "--dry-run"]):
        assert cli(capsysbinary, *command, file_of(store))[0] == 0
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before
