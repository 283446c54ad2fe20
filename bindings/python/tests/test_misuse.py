"""Used from where it cannot work, the package raises: it neither hangs nor crashes, and makes no noise."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import asyncio, gc, os, sys, threading, time
import turnwheel as tw
ctx = tw.Context()
ctx.llm.register("m", tw.Scripted(otherwise="done"))
def open_agent(id="a"):
    return ctx.agent(id, provider="m", model="x")
def attempt(what, action):
    try:
        print(what, "->", action())
    except tw.TurnwheelError as error:
        print(what, "->", error.code)
"""


def outcome(code: str) -> list[str]:
    """What a child prints; a crash, a hang and anything on stderr are failures."""
    program = PRELUDE + textwrap.dedent(code)
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    # Development mode also tells of callbacks that a loaded machine makes slow.
    heard = [line for line in done.stderr.splitlines() if not re.match(r"Executing <.* took [\d.]+ seconds$", line)]
    assert (done.returncode, heard) == (0, []), done.stderr[-2000:]
    return done.stdout.splitlines()


def test_every_object_refuses_a_foreign_thread():
    printed = outcome("""
    async def main():
        async with open_agent() as agent:
            receipt, session, inbox, stream = agent.followup("x"), agent.session, agent.inbox, agent.stream("y")
            def elsewhere():
                attempt("send", lambda: agent.send("x"))
                attempt("cancel", lambda: agent.cancel())
                attempt("state", lambda: agent.state())
                attempt("receipt", lambda: receipt.state)
                attempt("events", lambda: session.events())
                attempt("append", lambda: session.append("mine", 1))
                attempt("inbox", lambda: inbox.next_turn)
                attempt("register", lambda: ctx.on("agent/status", print))
                attempt("agents", lambda: ctx.agents.get("a"))
            thread = threading.Thread(target=elsewhere)
            thread.start()
            await asyncio.to_thread(thread.join)
            await agent.when_idle()
    asyncio.run(main())
    """)
    assert len(printed) == 9 and {line.split(" -> ")[1] for line in printed} == {"WRONG_THREAD"}


def test_every_object_says_that_its_loop_has_ended():
    printed = outcome("""
    kept = []
    async def main():
        agent = await open_agent()
        await agent.run("x")
        kept.extend([agent, agent.session, agent.inbox, agent.followup("y"), agent.session.events()])
    asyncio.run(main())
    agent, session, inbox, receipt, events = kept
    attempt("send", lambda: agent.send("x"))
    attempt("state", lambda: agent.state())
    attempt("events", lambda: session.events())
    attempt("inbox", lambda: inbox.next_turn)
    attempt("receipt", lambda: receipt.state)
    print(events[0].type, agent.id)
    """)
    assert [line.split(" -> ")[1] for line in printed[:-1]] == ["RUNTIME_CLOSED"] * 5
    assert printed[-1].endswith(" a"), "events and ids may be kept"


def test_the_child_of_a_fork_is_refused_and_its_parent_goes_on():
    printed = outcome("""
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    async def main():
        async with open_agent() as agent:
            await agent.run("x")
            child = os.fork()
            if child == 0:
                attempt("child", lambda: agent.send("x"))
                attempt("agents", lambda: len(ctx.agents))
                sys.stdout.flush()
                os._exit(0)
            os.waitpid(child, 0)
            print("parent ->", (await agent.run("y")).text)
    asyncio.run(main())
    """)
    assert len(printed) == 3 and printed[-1] == "parent -> done"
    assert all(re.search(r" -> [A-Z_]+$", line) for line in printed[:-1]), printed


def test_a_child_of_a_fork_makes_agents_of_its_own():
    printed = outcome("""
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    asyncio.run(open_agent()._open())
    child = os.fork()
    if child == 0:
        async def main():
            own = tw.Context()
            own.llm.register("m", tw.Scripted("from the child"))
            async with own.agent("b", provider="m", model="x") as agent:
                print((await agent.run("x")).text)
        asyncio.run(main())
        sys.stdout.flush()
        os._exit(0)
    print("exit", os.waitpid(child, 0)[1])
    """)
    assert sorted(printed) == ["exit 0", "from the child"]


@pytest.mark.parametrize("held", ["a global", "a cycle", "a running thread", "an atexit function", "an open loop"])
def test_an_interpreter_ends_quietly_whatever_still_holds_an_agent(held):
    endings = {
        "a global": "asyncio.run(keep())",
        "a cycle": "asyncio.run(keep()); box = [kept]; box.append(box); del kept",
        "a running thread": """
            asyncio.run(keep())
            threading.Thread(target=lambda: (time.sleep(10), kept), daemon=True).start()
        """,
        "an atexit function": """
            import atexit
            asyncio.run(keep())
            atexit.register(lambda: attempt("late", lambda: kept[0].send("x")))
        """,
        "an open loop": """
            import warnings
            loop = asyncio.new_event_loop()
            loop.run_until_complete(keep())
            kept.append(loop)
            warnings.simplefilter("ignore", ResourceWarning)
        """,
    }
    code = """
    kept = []
    async def keep():
        agent = await open_agent()
        ctx.on("agent/status", lambda notice, agent=agent: None)
        @ctx.on("session/event")
        async def hear(event): pass
        kept.extend([agent, agent.stream("x"), agent.session.follow(0), agent.followup("y")])
    """
    printed = outcome(textwrap.dedent(code) + textwrap.dedent(endings[held]) + "\nprint('end')")
    assert printed[0] == "end" and printed[1:] in ([], ["late -> RUNTIME_CLOSED"])


def test_tasks_that_wait_when_the_loop_is_stopped_are_told_and_make_no_noise():
    printed = outcome("""
    async def slow(request):
        await asyncio.sleep(3600)
        yield "never"
    ctx.llm.register("slow", slow)
    async def wait(agent):
        try:
            await agent.run("x")
        except BaseException as error:
            print(type(error).__name__)
            raise
    async def main():
        agent = await ctx.agent("a", provider="slow", model="x")
        task = asyncio.create_task(wait(agent))
        reader = asyncio.create_task(anext(agent.session.follow(len(agent.session) + 100)))
        await asyncio.sleep(0.05)
    asyncio.run(main())
    gc.collect()
    """)
    assert printed == ["CancelledError"]


def test_a_sub_interpreter_is_refused_with_what_to_use():
    printed = outcome("""
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        import _interpreters as interpreters
    other = interpreters.create()
    code = "try:\\n import turnwheel\\nexcept ImportError as error:\\n print(error, flush=True)"
    if hasattr(interpreters, "run_string"):
        interpreters.run_string(other, code)
    interpreters.destroy(other)
    """)
    assert len(printed) == 1 and ("sub-interpreters" in printed[0] or "subinterpreters" in printed[0])


def test_the_interpreter_is_free_while_the_core_waits_and_works():
    printed = outcome("""
    ticks = [0]
    def count():
        while not done.is_set():
            ticks[0] += 1
            time.sleep(0.001)
    done = threading.Event()
    ctx.llm.register("slow", tw.Scripted(tw.Reply("x" * 300, chunk_size=1, delay=0.001)))
    async def main():
        async with ctx.agent("a", provider="slow", model="x") as agent:
            thread = threading.Thread(target=count)
            thread.start()
            await agent.run("x")
            done.set()
            thread.join()
    asyncio.run(main())
    print(ticks[0] > 50)
    """)
    assert printed == ["True"]
