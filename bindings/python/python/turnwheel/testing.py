"""Doubles for models, and what the author of a store runs.

:class:`Scripted` answers from a script, :class:`Faulty` breaks the answers of another adapter, :class:`Cassette`
records real exchanges to a file and replays them. None of them opens a socket.

The author of a store runs its suite:

    from turnwheel.testing import store_suite
    print(store_suite(lambda: MyStore("test.db")))

or one test a case, with pytest:

    @pytest.mark.parametrize("case", STORE_CASES)
    def test_my_store(case, tmp_path):
        check_store(case, lambda: MyStore(tmp_path / "test.db"))

The function you pass opens the store *anew over the same sessions* each time it is called, as another process would.
The suite uses ids of its own, so the store may hold other sessions. Stores in Rust are held to the same cases.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from . import _turnwheel
from ._context import Context
from ._errors import BugError, TurnwheelError
from ._models import Adapter, HttpAdapter, Reply, Scripted
from ._stores import AnyStore, native

__all__ = [
    "STORE_CASES",
    "CaseReport",
    "Cassette",
    "Fault",
    "Faulty",
    "Reply",
    "Report",
    "Scripted",
    "check_store",
    "check_store_async",
    "store_suite",
]

OpenStore = Callable[[], AnyStore]

STORE_CASES: tuple[str, ...] = tuple(_turnwheel.store_cases())
"""The names of all cases; each is a statement about the store."""


@dataclass(frozen=True, slots=True)
class CaseReport:
    """What became of one case; ``failure`` is what was found instead, ``None`` if the case holds."""

    name: str
    failure: str | None


@dataclass(frozen=True, slots=True)
class Report:
    """What became of all cases. Printing it shows a line a case."""

    cases: tuple[CaseReport, ...]

    @property
    def passed(self) -> bool:
        """Whether every case holds."""
        return not self.failures

    @property
    def failures(self) -> tuple[CaseReport, ...]:
        """The cases that do not hold."""
        return tuple(case for case in self.cases if case.failure is not None)

    def check(self) -> None:
        """Raises ``AssertionError`` with the whole report unless every case holds."""
        if not self.passed:
            raise AssertionError(f"the store does not conform:\n{self}")

    def __str__(self) -> str:
        lines = [f"ok      {c.name}" if c.failure is None else f"FAILED  {c.name}: {c.failure}" for c in self.cases]
        failed = len(self.failures)
        return "\n".join([*lines, f"{len(self.cases) - failed} passed, {failed} failed"])


async def check_store_async(case: str, open_store: OpenStore) -> None:
    """Runs one case on the running loop; raises ``AssertionError`` with what was found."""
    ctx = Context()
    try:
        await ctx._bind().check_store(case, lambda: native(open_store()))
    except BugError as error:
        raise AssertionError(str(error)) from error
    except TurnwheelError as error:
        if error.code != "INVARIANT":
            raise
        raise AssertionError(str(error)) from None
    finally:
        await ctx.close()


def check_store(case: str, open_store: OpenStore) -> None:
    """Runs one case; raises ``AssertionError`` with what was found. For tests that are no coroutines."""

    async def check() -> None:
        # Some cases make large sessions, and are no sign of a slow callback.
        asyncio.get_running_loop().slow_callback_duration = 10
        await check_store_async(case, open_store)

    asyncio.run(check())


def store_suite(open_store: OpenStore) -> Report:
    """Runs every case, each on an event loop of its own."""
    reports = []
    for case in STORE_CASES:
        try:
            check_store(case, open_store)
            reports.append(CaseReport(case, None))
        except AssertionError as error:
            reports.append(CaseReport(case, str(error).removeprefix(f"{case}: ")))
    return Report(tuple(reports))


AnyAdapter = HttpAdapter | Scripted | _turnwheel.ModelDouble | Adapter


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one answer of a :class:`Faulty`; made by its class methods."""

    kind: str
    after: int = 0
    failure: dict[str, Any] | None = None

    @classmethod
    def none(cls) -> Self:
        """Nothing."""
        return cls("none")

    @classmethod
    def stall(cls, after: int = 0) -> Self:
        """After so many chunks nothing comes any more, until the request is cancelled."""
        return cls("stall", after)

    @classmethod
    def cut(cls, after: int = 0) -> Self:
        """After so many chunks the stream is cut: ``STREAM_CLOSED``."""
        return cls("cut", after)

    @classmethod
    def fail(cls, code: str, message: str = "failed by a test", after: int = 0) -> Self:
        """After so many chunks the answer fails with this code."""
        return cls("fail", after, {"code": code, "message": message})

    @classmethod
    def crumble(cls) -> Self:
        """Every delta is cut into single characters."""
        return cls("crumble")


class Faulty(_turnwheel.ModelDouble):
    """Breaks the answers of another adapter: the first request has the first fault, and so on; then none."""

    def __new__(cls, adapter: AnyAdapter, *faults: Fault) -> Self:
        plain = [{"kind": fault.kind, "after": fault.after, "failure": fault.failure} for fault in faults]
        return super().__new__(cls, {"kind": "faulty", "faults": plain}, adapter)


class Cassette(_turnwheel.ModelDouble):
    """Recorded exchanges with a model, in a file. Requests are compared by what a model sees, without ids and times.

    A request that was not recorded fails with ``CASSETTE_MISS``. Keys and headers are never on a cassette.
    """

    @classmethod
    def record(cls, path: str | os.PathLike[str], adapter: AnyAdapter) -> Self:
        """Asks ``adapter`` and writes what it answers to a new file, from the registration on."""
        return cls({"kind": "record", "path": os.fspath(path)}, adapter)

    @classmethod
    def replay(cls, path: str | os.PathLike[str]) -> Self:
        """Answers from a file; each recorded exchange answers once."""
        return cls({"kind": "replay", "path": os.fspath(path)})
