// A store of your own, in the memory of this process: all that a store has to do, in forty lines.
//
// `node memory-store.mjs` holds it to the same cases as the stores that come with turnwheel.

import { TurnwheelError } from 'turnwheel';
import { storeSuite } from 'turnwheel/testing';

const bytes = (id) => Buffer.from(id, 'utf8');

/** Sessions in memory. Give several stores the same `kept` and they are one store, as several processes on one database. */
export class MemoryStore {
  constructor(kept = { sessions: new Map(), writers: new Map() }) {
    this.kept = kept;
  }

  listPage(after, limit) {
    const ids = [...this.kept.sessions.keys()].sort((a, b) => Buffer.compare(bytes(a), bytes(b)));
    const behind = after === undefined ? ids : ids.filter((id) => Buffer.compare(bytes(id), bytes(after)) > 0);
    return behind.slice(0, limit).map((id) => this.kept.sessions.get(id).header);
  }

  exists(id) {
    return this.kept.sessions.has(id);
  }

  read(id) {
    const found = this.kept.sessions.get(id);
    return found && { header: found.header, events: [...found.events] };
  }

  open(id) {
    const found = this.read(id);
    return found && { ...found, writer: this.#writer(found.header) };
  }

  create(header) {
    if (this.exists(header.id) || this.kept.writers.has(header.id)) {
      throw new TurnwheelError('SESSION_ALREADY_EXISTS', `session ${header.id} is stored or being created`);
    }
    return this.#writer(header);
  }

  #writer(header) {
    const { sessions, writers } = this.kept;
    const { id } = header;
    if (writers.has(id)) throw new TurnwheelError('SESSION_LOCKED', `session ${id} is written by another part of process ${process.pid}`);
    const writer = {
      append(seq, events) {
        const stored = sessions.get(id)?.events ?? [];
        if (seq !== stored.length) throw new TurnwheelError('STORE_CONFLICT', `session ${id} has ${stored.length} events, not ${seq}`);
        sessions.set(id, { header, events: [...stored, ...events] });
      },
      close() {
        if (writers.get(id) === writer) writers.delete(id);
      },
    };
    writers.set(id, writer);
    return writer;
  }
}

if (process.argv[1]?.endsWith('memory-store.mjs')) {
  const { kept } = new MemoryStore();
  const report = await storeSuite(() => new MemoryStore(kept));
  console.log(String(report));
  report.check();
}
