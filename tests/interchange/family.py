"""One session in three languages: begun in Python and killed in mid-stream, continued in Node, ended in C. Each program
is the assistant of its language, and they share nothing but the store.

Usage: family.py NODE_FOLDER C_ASSISTANT, with the built Node package and the built C example."""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import turnwheel as tw

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE = 60
OFFLINE = {name: value for name, value in os.environ.items() if not name.startswith("TURNWHEEL_")}

FIRST, SECOND = "What is (2 + 3) * 7?", "And how far is that from 100?"


def begin_in_python(store: Path) -> None:
    """Kills the program as soon as its answer streams; by then the second prompt is queued."""
    command = [sys.executable, "-u", EXAMPLES / "python" / "assistant.py", store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=OFFLINE) as child:
        assert child.stdout is not None
        seen = b""
        while b"\nTwo and three" not in seen:
            read = child.stdout.read1(64)
            assert read, f"the program in Python ended by itself after {seen!r}"
            seen += read
        child.kill()


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=PATIENCE, check=True, cwd=cwd, env=OFFLINE)
    return done.stdout.decode()


def continue_in_node(store: Path, package: Path, folder: Path) -> str:
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "turnwheel").symlink_to(package.resolve())
    program = folder / "assistant.mjs"
    program.write_bytes((EXAMPLES / "node" / "assistant.mjs").read_bytes())
    return run("node", program, store, cwd=folder)


async def log_of(store: Path) -> list[tw.Event]:
    """Reads the whole log, opened once more in Python."""
    async with tw.Context(store=store) as ctx:
        ctx.llm.register("llm", tw.Scripted(otherwise=tw.Reply("unused")))
        async with ctx.agent("assistant", provider="llm", model="default") as agent:
            assert not agent.inbox.next_turn, "nothing waits any more"
            return list(agent.session.events())


def check(events: list[tw.Event]) -> None:
    assert [event.seq for event in events] == list(range(len(events)))
    prompts = [event.text for event in events if event.type == "user/message"]
    # Python sent the first two and had the first in its turn; Node took the second; C sent both again.
    assert prompts == [FIRST, SECOND, FIRST, SECOND], prompts
    opened = [event.data["turn"] for event in events if event.type == "turn/start"]
    closed = [(event.data["turn"], event.data["reason"]["kind"]) for event in events if event.type == "turn/end"]
    assert [turn for turn, _ in closed] == opened
    assert [kind for _, kind in closed] == ["interrupted", "completed", "completed", "completed"], closed
    calls = [event.data["callId"] for event in events if event.type == "tool/call"]
    results = [event.data["message"]["source"]["callId"] for event in events if event.type == "tool/result"]
    assert calls and calls == results, (calls, results)


def main() -> int:
    package, assistant = Path(sys.argv[1]), Path(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="turnwheel-family-") as root:
        store = Path(root) / "sessions"
        begin_in_python(store)
        said = continue_in_node(store, package, Path(root))
        assert "the last turn ended: interrupted" in said and f"> {SECOND}" in said, said
        said = run(assistant, store)
        assert "nothing waits" in said and f"> {FIRST}" in said and f"> {SECOND}" in said, said
        events = asyncio.run(log_of(store))
        check(events)
    print(f"begun in Python, continued in Node, ended in C: {len(events)} events, one session")
    return 0


if __name__ == "__main__":
    sys.exit(main())
