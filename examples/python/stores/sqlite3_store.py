"""A store of one's own on a database: Python's ``sqlite3``, one row an event. (`tw.SqliteStore` is faster.)

Every call into the database runs on one thread of the store's own, so the event loop never waits for a disk. The right
to write is a lock on a file, which the operating system takes back when the process dies.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import turnwheel as tw
from turnwheel.testing import store_suite

T = TypeVar("T")

SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, header TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS events (
  session TEXT NOT NULL REFERENCES sessions(id), seq INTEGER NOT NULL, event TEXT NOT NULL, PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;
"""


class Sqlite3Store:
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite3-store")
        self.db: sqlite3.Connection | None = None

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work` on the store's thread, in a transaction that is rolled back if it raises."""

        def in_transaction() -> T:
            if self.db is None:
                self.db = sqlite3.connect(self.path, isolation_level=None, timeout=30)
                self.db.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; {SCHEMA}")
            self.db.execute("BEGIN IMMEDIATE")
            try:
                result = work(self.db)
                self.db.execute("COMMIT")
                return result
            except BaseException:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise

        return await asyncio.get_running_loop().run_in_executor(self.thread, in_transaction)

    async def list_page(self, after: str | None, limit: int, /) -> list[tw.Header]:
        query = "SELECT header FROM sessions WHERE id > ? ORDER BY id LIMIT ?"
        rows = await self.run(lambda db: db.execute(query, (after or "", limit)).fetchall())
        return [json.loads(header) for (header,) in rows]

    async def exists(self, id: str, /) -> bool:
        return await self.read(id) is not None

    async def read(self, id: str, /) -> tuple[tw.Header, list[str]] | None:
        def select(db: sqlite3.Connection) -> tuple[Any, list[str]]:
            events = db.execute("SELECT event FROM events WHERE session = ? ORDER BY seq", (id,))
            header = db.execute("SELECT header FROM sessions WHERE id = ?", (id,)).fetchone()
            return header, [event for (event,) in events]

        header, events = await self.run(select)
        return None if header is None else (json.loads(header[0]), events)

    async def open(self, id: str, /) -> tuple[tw.Header, list[str], Writer] | None:
        if await self.read(id) is None:
            return None
        lock = self.lock(id, "SESSION_LOCKED")
        log = await self.read(id)
        assert log is not None, "sessions are never removed"
        return *log, Writer(self, log[0], lock)

    async def create(self, header: tw.Header, /) -> Writer:
        if await self.read(header["id"]) is not None:
            message = f"a session {header['id']!r} exists already in {self.path}"
            raise tw.RegistryError(message, code="SESSION_ALREADY_EXISTS")
        return Writer(self, header, self.lock(header["id"], "SESSION_ALREADY_EXISTS"))

    def lock(self, id: str, code: str) -> int:
        name = hashlib.sha256(id.encode()).hexdigest()[:32]
        file = os.open(f"{self.path}-{name}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(file, 20, 0).decode()
            os.close(file)
            message = f"session {id!r} is held by process {holder}; close it there first"
            raise tw.StoreError(message, code=code) from None
        os.pwrite(file, f"{os.getpid():<20}".encode(), 0)
        return file


class Writer:
    def __init__(self, store: Sqlite3Store, header: tw.Header, lock: int) -> None:
        self.store, self.header, self.file = store, header, lock

    async def append(self, seq: int, events: list[str], /) -> None:
        id = self.header["id"]

        def insert(db: sqlite3.Connection) -> None:
            (stored,) = db.execute("SELECT count(*) FROM events WHERE session = ?", (id,)).fetchone()
            if seq != stored:
                raise tw.StoreError(f"the log goes on with seq {stored}, not {seq}", code="STORE_CONFLICT")
            if seq == 0:
                db.execute("INSERT INTO sessions VALUES (?, ?)", (id, json.dumps(self.header)))
            rows = [(id, seq + number, event) for number, event in enumerate(events)]
            db.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)

        await self.store.run(insert)

    async def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        report = store_suite(lambda: Sqlite3Store(f"{folder}/sessions.db"))
    print(report)
    report.check()
