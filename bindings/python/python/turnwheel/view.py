"""Sessions to look at, without a context and without the right to write: as a timeline of text, as one HTML page, and
the verdict of an examination. The command line (``python -m turnwheel``) is made of these.

Everything here blocks; on an event loop, call it with ``asyncio.to_thread``.
"""

from __future__ import annotations

import html
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from . import _turnwheel

__all__ = ["Price", "Prices", "SessionLog", "Sessions"]


class Price(NamedTuple):
    """What a provider charges for a million tokens, in any currency."""

    input: float
    output: float
    cache_read: float = 0.0
    cache_write: float = 0.0


Prices = dict[str, Price]
"""Prices by ``"provider/model"``, as the log names them. Models without a price cost nothing."""


def _table(prices: Prices | None) -> dict[str, tuple[float, float, float, float]]:
    return dict(prices or {})


class Sessions:
    """The sessions at a path: a store's folder, a log file (plain or zstd), or a database; told apart by content.

    Any number may look while a program writes. Fails with :class:`~turnwheel.UsageError` when there is nothing.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self._source = _turnwheel.LogSource(path)
        self.path = pathlib.Path(path)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The headers of all sessions, in the order of their ids."""
        after: str | None = None
        while page := self._source.list(after, 500):
            yield from page
            if len(page) < 500:
                return
            after = page[-1]["id"]

    def read(self, id: str | None = None) -> SessionLog:
        """Reads and checks a session; without an id the only one there is. Raises what is wrong with it."""
        return SessionLog(self._source.read(id))

    def text(self, id: str | None = None) -> bytes:
        """A session as plain JSONL. Of a file it is the exact text, also when its events cannot be read."""
        return self._source.text(id)

    def revision(self, id: str | None = None) -> str:
        """A text that changes whenever the session does."""
        return self._source.revision(id)

    def repair(self, id: str | None = None) -> int:
        """Closes what a crash left open, as opening the agent does. Returns how many events were appended."""
        return self._source.repair(id)


class SessionLog:
    """One session as it was read."""

    def __init__(self, log: _turnwheel.LogRef):
        self._log = log

    @property
    def header(self) -> dict[str, Any]:
        """The header as JSON."""
        return self._log.header()

    def __len__(self) -> int:
        return len(self._log)

    def __repr__(self) -> str:
        return f"SessionLog({self.header['id']!r}, {len(self)} events)"

    def _repr_html_(self) -> str:
        """What a notebook shows: the page in a frame of its own, which may do nothing."""
        pieces: list[bytes] = []
        self.write_html(pieces.append)
        page = html.escape(b"".join(pieces).decode())
        return f'<iframe sandbox width="100%" height="600" srcdoc="{page}"></iframe>'

    def verdict(self) -> dict[str, Any]:
        """What an examination found: ``isSound``, ``tornBytes``, ``replacedCharacters``, ``closers`` (the events that
        the next opening appends), ``needsTypes`` (to be registered), ``disorder`` (``seq`` and ``rule`` of each fault).
        """
        return self._log.verdict()

    def text(self, *, color: bool = False, full: bool = False, prices: Prices | None = None) -> Iterator[str]:
        """The timeline, piece by piece. Control and direction characters of the log are spelled out."""
        timeline = _turnwheel.Timeline(color, full, _table(prices))
        yield timeline.header(self._log)
        while (piece := timeline.more(self._log, 1000)) is not None:
            yield piece
        yield "\n" + timeline.end(self._log)

    def write_html(
        self,
        write: Callable[[bytes], object],
        *,
        prices: Prices | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """Writes the page piece by piece; ``progress(done, of)`` counts events. The page works offline, has no script,
        and shows whatever a model or tool said as text.
        """
        self._log.html(write, progress, _table(prices))

    def save_html(
        self,
        path: str | os.PathLike[str],
        *,
        prices: Prices | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """Writes the page into a file, which appears whole or not at all."""
        path = pathlib.Path(path)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                self.write_html(file.write, prices=prices, progress=progress)
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)  # what `open` would have given it
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
