"""The examples of whole services: many users behind HTTP, an approval that outlives its process, sub-agents."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from turnwheel.view import Sessions

EXAMPLES = Path(__file__).parents[3] / "examples" / "python"
OFFLINE = {name: value for name, value in os.environ.items() if not name.startswith("TURNWHEEL_")}
USERS = {f"token-{number}": f"user{number}" for number in range(20)}


def example(name: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=OFFLINE | environment, check=False)


def test_an_approval_outlives_the_process_that_asked_and_is_acted_on_once(tmp_path):
    store = tmp_path / "s"
    ledger = store / "ledger"
    asked = example("approval.py", store, "ask", "Refund order 7, please")
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout == "A person looks at it; you will hear from us.\nwaiting: q1: 90 euros for order 7\n"
    assert not ledger.exists()
    assert example("approval.py", store, "list").stdout == "waiting: q1: 90 euros for order 7\n"
    # The process dies when the money has moved and nobody knows it yet; the next one finds out from the log.
    assert example("approval.py", store, "approve", "q1", DIE_AFTER_PAYING="1").returncode == 9
    after = example("approval.py", store, "list")
    assert after.returncode == 0 and after.stdout == "Good news or bad, the decision about your refund is there.\n"
    # Deciding again, and otherwise, changes nothing.
    again = example("approval.py", store, "reject", "q1")
    assert (again.returncode, again.stdout) == (0, "")
    assert {file.name: file.read_text() for file in ledger.iterdir()} == {"q1.txt": "90 euros for order 7\n"}
    shown = "".join(Sessions(store).read("clerk").text())
    assert shown.count("The refund of order 7 was approved and paid.") == 2  # queued, and taken
    assert "refund returned after" in shown and "2 turns, 3 steps, 1 call;" in shown
    unknown = example("approval.py", store, "approve", "q2")
    assert unknown.returncode == 1 and "there is no question q2" in unknown.stderr


def test_a_rejected_approval_moves_no_money(tmp_path):
    store = tmp_path / "s"
    assert example("approval.py", store, "ask", "Refund order 7, please").returncode == 0
    done = example("approval.py", store, "reject", "q1")
    assert done.returncode == 0 and "the decision about your refund is there" in done.stdout
    assert not (store / "ledger").exists()
    assert "was rejected." in "".join(Sessions(store).read("clerk").text())


def test_sub_agents_work_at_once_and_have_logs_of_their_own(tmp_path):
    done = example("subagents.py", tmp_path / "s")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "Oslo has more people than Bergen." in lines and [line for line in lines if "log" in line] == [
        "log: lead",
        "log: lead.Bergen",
        "log: lead.Oslo",
    ]
    started = [lines.index(f"lead.{city} is running") for city in ("Oslo", "Bergen")]
    assert max(started) < min(lines.index(f"lead.{city} is idle") for city in ("Oslo", "Bergen"))
    worker = "".join(Sessions(tmp_path / "s").read("lead.Oslo").text(full=True))
    assert "How many people live in Oslo?" in worker and "call population" in worker
    assert "tool delegate" not in worker, "a sub-agent does not delegate"
    lead = "".join(Sessions(tmp_path / "s").read("lead").text(full=True))
    assert "call population" not in lead and '"agent": "lead.Oslo"' in lead


@contextmanager
def server(store: Path) -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    command = [sys.executable, str(EXAMPLES / "chat_server.py"), str(store), "0"]
    environment = OFFLINE | {"CHAT_TOKENS": json.dumps(USERS)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        said = ""
        while not (found := re.search(r"running on (http://\S+)", said)):
            line = process.stderr.readline()
            assert line, f"the server ended: {said}"
            said += line
        with httpx.Client(base_url=found[1], timeout=30) as client:
            yield client, process
    finally:
        process.kill()
        process.communicate()


def bearer(number: int) -> dict[str, str]:
    return {"authorization": f"Bearer token-{number}"}


def events(client: httpx.Client, number: int, after: int | None = None) -> Iterator[tuple[int, str, Any]]:
    """Seq, type and data of a user's events as they come."""
    resume = {} if after is None else {"last-event-id": str(after)}
    with client.stream("GET", "/events", headers=bearer(number) | resume) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        block: dict[str, str] = {}
        for line in response.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                block[name] = value
            else:
                yield int(block["id"]), block["event"], json.loads(block["data"])


def until(stream: Iterator[tuple[int, str, Any]], kind: str) -> list[tuple[int, str, Any]]:
    taken = []
    for event in stream:
        taken.append(event)
        if event[1] == kind:
            return taken
    raise AssertionError(f"the stream ended without {kind}")


def test_a_server_of_many_users_keeps_them_apart_and_resumes_streams(tmp_path):
    with server(tmp_path / "s") as (client, process):
        assert client.post("/messages", json={"text": "hi"}).status_code == 401
        assert client.get("/events", headers={"authorization": "Bearer nobody"}).status_code == 401
        assert client.post("/messages", json={"text": ""}, headers=bearer(0)).status_code == 422
        for number in range(len(USERS)):
            sent = client.post("/messages", json={"text": f"I am {number}", "id": "m1"}, headers=bearer(number))
            assert (sent.status_code, sent.json()) == (202, {"id": "m1"})
        # Asking again changes nothing: a client that heard no answer may.
        assert client.post("/messages", json={"text": "I am 0", "id": "m1"}, headers=bearer(0)).status_code == 202
        for number in range(len(USERS)):
            first = until(events(client, number), "assistant/chunk")
            rest = until(events(client, number, after=first[-1][0]), "turn/end")
            whole = first + rest
            assert [seq for seq, _, _ in whole] == list(range(len(whole))), "no event is missed, none comes twice"
            said = [data["content"][0]["text"] for _, kind, data in whole if kind == "user/message"]
            assert said == [f"I am {number}"]
            assert whole[-1][2] == {"turn": 1, "reason": {"kind": "completed"}}
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) in (0, -signal.SIGTERM)


def test_a_killed_server_loses_nothing_that_it_accepted(tmp_path):
    with server(tmp_path / "s") as (client, process):
        for id in ("m1", "m2"):
            assert client.post("/messages", json={"text": id, "id": id}, headers=bearer(0)).status_code == 202
        seen = until(events(client, 0), "assistant/chunk")
        process.kill()
        process.wait()
    with server(tmp_path / "s") as (client, _):
        stream = events(client, 0, after=seen[-1][0])
        cut, ended = until(stream, "turn/end"), until(stream, "turn/end")
        assert cut[-1][2]["reason"] == {"kind": "interrupted"}
        assert ended[-1][2] == {"turn": 2, "reason": {"kind": "completed"}}
        assert [data["content"][0]["text"] for _, kind, data in ended if kind == "user/message"] == ["m2"]
        assert client.post("/cancel", headers=bearer(0)).status_code == 204
