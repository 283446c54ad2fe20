"""Where sessions are kept: the stores that come with turnwheel, and what a store of your own looks like."""

from __future__ import annotations

import asyncio
import builtins
import os
import pathlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from . import _turnwheel
from ._errors import UsageError

Header: TypeAlias = dict[str, Any]
"""A session's header as JSON: ``version``, ``id``, ``createdAt`` and more. Keep all of it, as it is."""


class SessionWriter(Protocol):
    """The right to write one session. The runtime calls one method at a time."""

    async def append(self, seq: int, events: list[str], /) -> None:
        """Makes a batch durable before it returns: JSON texts, one an event, the first with the number ``seq``.

        ``seq`` must be how many events are stored, or raise ``StoreError(..., code="STORE_CONFLICT")`` and store
        nothing. Keep the texts as they are. A crash may leave a part of a batch, from its beginning on, but never of a
        session's first.
        """

    async def close(self) -> None:
        """Gives the session up. May be called again."""


class Store(Protocol):
    """A store of your own: ``Context(store=MyStore())``. ``turnwheel.testing.store_suite`` checks it.

    Raise :class:`StoreError`, with ``code`` where one is named here, or whatever the database raises: a turn whose
    intent could not be stored ends before its effect, and the batch is kept and tried again.
    """

    async def list_page(self, after: str | None, limit: int, /) -> Sequence[Header]:
        """Up to ``limit`` headers of stored sessions whose ids follow ``after``, in the order of ``str``."""
        ...

    async def exists(self, id: str, /) -> bool:
        """Whether a session of this id is stored. One that nothing was appended to is not."""
        ...

    async def read(self, id: str, /) -> tuple[Header, Iterable[str]] | None:
        """The header and the texts of all events, in order; ``None`` if there is none. Needs no right to write."""

    async def open(self, id: str, /) -> tuple[Header, Iterable[str], SessionWriter] | None:
        """As ``read``, and becomes the session's one writer.

        Raises ``StoreError(..., code="SESSION_LOCKED")``, naming the holder, while another writer has it, also in
        another process; one that died does not count.
        """

    async def create(self, header: Header, /) -> SessionWriter:
        """Becomes the writer of a new session; nothing is stored before the first batch.

        Raises ``RegistryError(..., code="SESSION_ALREADY_EXISTS")`` for an id that is stored or being created.
        """
        ...


@dataclass(frozen=True, slots=True)
class RawLog:
    """A session's log as it is stored. ``file_name`` is what to call an exported file (JL-22)."""

    header: dict[str, Any]
    file_name: str
    text: bytes


@dataclass(frozen=True, slots=True)
class JsonlStore:
    """Sessions as JSONL files below ``root``; ``compression`` is ``"zstd"`` or ``"none"`` (plain text).

    Its methods look at the files only, also while agents write them; they fail with :class:`StoreError`.
    """

    root: str | os.PathLike[str]
    compression: Literal["zstd", "none"] = "zstd"

    def _files(self) -> _turnwheel.JsonlFiles:
        return _turnwheel.JsonlFiles(os.fspath(self.root), self.compression == "zstd")

    async def list(self) -> list[dict[str, Any]]:
        """The headers of all stored sessions, in no order. Reads headers only (JL-16)."""
        return [header for header, _ in await self.list_revisions()]

    async def list_revisions(self) -> builtins.list[tuple[dict[str, Any], str]]:
        """The headers with the revision of each: equal texts mean that nothing was written in between (JL-21)."""
        return await asyncio.to_thread(self._files().list_revisions)

    async def locate(self, session_id: str) -> pathlib.Path | None:
        """The file of a stored session (JL-01)."""
        path = await asyncio.to_thread(self._files().locate, session_id)
        return pathlib.Path(path) if path is not None else None

    async def revision(self, session_id: str) -> str | None:
        """Which content a stored session has now (JL-21)."""
        return await asyncio.to_thread(self._files().revision, session_id)

    async def read_raw(self, session_id: str) -> RawLog | None:
        """The exact text of a stored session, uncompressed: for an export, also of a log that cannot be opened."""
        raw = await asyncio.to_thread(self._files().read_raw, session_id)
        return RawLog(*raw) if raw is not None else None


@dataclass(frozen=True, slots=True)
class SqliteStore:
    """Sessions in one SQLite database at ``path``, made by the first write.

    Batches of many sessions share a transaction.
    """

    path: str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class ReferenceDatabase:
    """A SQLite database of the reference harness, to import sessions from. It is never written."""

    path: str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied: the header, how many events, how many characters had to be replaced to read them, and how many
    bytes of a torn tail were left out."""

    header: Header
    events: int
    replaced_characters: int
    torn_bytes: int


AnyStore: TypeAlias = str | os.PathLike[str] | JsonlStore | SqliteStore | ReferenceDatabase | Store

_METHODS = ("list_page", "exists", "read", "open", "create")


def native(store: AnyStore) -> Any:
    """What the native half takes: a tuple, or an object with the methods of a store."""
    if isinstance(store, str | os.PathLike):
        store = JsonlStore(store)
    if isinstance(store, JsonlStore):
        if store.compression not in ("zstd", "none"):
            raise UsageError(f"compression is zstd or none, not {store.compression!r}")
        return "jsonl", os.fspath(store.root), store.compression
    if isinstance(store, SqliteStore):
        return "sqlite", os.fspath(store.path), ""
    if isinstance(store, ReferenceDatabase):
        return "reference", os.fspath(store.path), ""
    missing = [name for name in _METHODS if not callable(getattr(store, name, None))]
    if missing or isinstance(store, type):
        kinds = "a directory, a JsonlStore, a SqliteStore or an object with the methods of turnwheel.Store"
        lacks = f"; {type(store).__name__} lacks {', '.join(missing)}" if missing else "; this is a class"
        raise UsageError(f"a store is {kinds}{lacks}")
    return store
