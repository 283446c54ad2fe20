"""A store of one's own, the smallest one: sessions in memory, gone with the process."""

from __future__ import annotations

import turnwheel as tw
from turnwheel.testing import store_suite

Log = tuple[tw.Header, list[str]]


class MemoryStore:
    """Objects that share ``logs`` and ``held`` are the same store."""

    def __init__(self, logs: dict[str, Log] | None = None, held: set[str] | None = None) -> None:
        self.logs: dict[str, Log] = {} if logs is None else logs
        self.held: set[str] = set() if held is None else held

    async def list_page(self, after: str | None, limit: int, /) -> list[tw.Header]:
        ids = sorted(id for id in self.logs if after is None or id > after)
        return [self.logs[id][0] for id in ids[:limit]]

    async def exists(self, id: str, /) -> bool:
        return id in self.logs

    async def read(self, id: str, /) -> Log | None:
        return self.logs.get(id)

    async def open(self, id: str, /) -> tuple[tw.Header, list[str], Writer] | None:
        log = self.logs.get(id)
        if log is None:
            return None
        if id in self.held:
            raise tw.StoreError(f"session {id!r} has a writer in this process; close it first", code="SESSION_LOCKED")
        self.held.add(id)
        return *log, Writer(self, log[0])

    async def create(self, header: tw.Header, /) -> Writer:
        id = header["id"]
        if id in self.logs or id in self.held:
            raise tw.RegistryError(f"a session {id!r} exists already", code="SESSION_ALREADY_EXISTS")
        self.held.add(id)
        return Writer(self, header)


class Writer:
    def __init__(self, store: MemoryStore, header: tw.Header) -> None:
        self.store, self.header = store, header

    async def append(self, seq: int, events: list[str], /) -> None:
        id = self.header["id"]
        stored = self.store.logs[id][1] if id in self.store.logs else []
        if seq != len(stored):
            raise tw.StoreError(f"the log goes on with seq {len(stored)}, not {seq}", code="STORE_CONFLICT")
        self.store.logs.setdefault(id, (self.header, []))[1].extend(events)

    async def close(self) -> None:
        self.store.held.discard(self.header["id"])


if __name__ == "__main__":
    shared = MemoryStore()
    report = store_suite(lambda: MemoryStore(shared.logs, shared.held))
    print(report)
    report.check()
