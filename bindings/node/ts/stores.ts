// Where sessions are kept: the stores that come with turnwheel, and what a store of your own looks like.

import { Core, registered, type Callback } from './core.js';
import { invalid } from './errors.js';
import type { SessionHeader } from './json.js';
import { native } from './native.js';

/** The right to write one session. The runtime calls one method at a time. */
export interface SessionWriter {
  /**
   * Makes a batch durable before it returns: JSON texts, one an event, the first with the number `seq`.
   *
   * `seq` must be how many events are stored; else throw `new TurnwheelError('STORE_CONFLICT', …)` and store nothing.
   * Keep the texts as they are. A crash may leave a part of a batch, from its beginning on, but never of a session's first.
   */
  append(seq: number, events: string[]): void | Promise<void>;
  /** Gives the session up. May be called again. */
  close(): void | Promise<void>;
}

/** A stored session: its header, and the texts of its events in order. */
export interface StoredSession {
  header: SessionHeader;
  events: readonly string[];
}

/**
 * A store of your own: `new Context({ store: new MyStore() })`. `storeSuite` of `turnwheel/testing` checks it.
 *
 * Throw `TurnwheelError` with the code that is named here, or whatever the database throws: a turn whose intent could not
 * be stored ends before its effect, and the batch is kept and tried again.
 */
export interface Store {
  /** Up to `limit` headers of stored sessions whose ids follow `after`, in the order of the ids' UTF-8 bytes. */
  listPage(after: string | undefined, limit: number): SessionHeader[] | Promise<SessionHeader[]>;
  /** Whether a session of this id is stored. One that nothing was appended to is not. */
  exists(id: string): boolean | Promise<boolean>;
  /** A session; `undefined` if there is none. Needs no right to write. */
  read(id: string): StoredSession | undefined | Promise<StoredSession | undefined>;
  /**
   * As `read`, and becomes the session's one writer. Throws with code `SESSION_LOCKED`, naming the holder, while another
   * writer has it, also in another process; one that died does not count.
   */
  open(id: string): (StoredSession & { writer: SessionWriter }) | undefined | Promise<(StoredSession & { writer: SessionWriter }) | undefined>;
  /**
   * Becomes the writer of a new session; nothing is stored before the first batch. Throws with code
   * `SESSION_ALREADY_EXISTS` for an id that is stored or being created.
   */
  create(header: SessionHeader): SessionWriter | Promise<SessionWriter>;
}

/** Sessions in one SQLite database, for many writers at once. */
export interface SqliteStore {
  kind: 'sqlite';
  /** The database's file; it is made when it is not there. */
  path: string;
}

/** A SQLite database of the reference harness, to import sessions from. It is never written. */
export interface ReferenceDatabase {
  kind: 'reference';
  path: string;
}

/** What was copied from store to store. */
export interface Copied {
  header: SessionHeader;
  /** How many events. */
  events: number;
  /** Characters that had to be replaced by U+FFFD to read the source. */
  replacedCharacters: number;
  /** Bytes of a torn tail that were left out. */
  tornBytes: number;
}

/** A session's log as it is stored. `fileName` is what to call an exported file. */
export interface RawLog {
  header: SessionHeader;
  fileName: string;
  /** The exact text, uncompressed; what is no UTF-8 in a damaged log is U+FFFD. */
  text: string;
}

/** Options of {@link JsonlStore}. */
export interface JsonlOptions {
  path: string;
  /** `zstd` by default; `none` is plain text. */
  compression?: 'zstd' | 'none';
}

/**
 * Sessions as JSONL files below `path`. As a store, `{ path, compression }` or a folder's name does as well; the methods
 * look at the files only, also while agents write them.
 */
export class JsonlStore implements JsonlOptions {
  readonly path: string;
  readonly compression: 'zstd' | 'none';

  constructor(path: string, options: { compression?: 'zstd' | 'none' } = {}) {
    this.path = path;
    this.compression = options.compression ?? 'zstd';
  }

  async #ask(question: string, id = ''): Promise<string | undefined> {
    const core = new Core('{}');
    try {
      return await core.promise<string | undefined>((promise) =>
        native.jsonl(core.id, promise, this.path, this.compression === 'zstd', question, id),
      );
    } finally {
      native.kill(core.id);
      core.end();
    }
  }

  /** The headers of all stored sessions, in no order. Reads headers only. */
  async list(): Promise<SessionHeader[]> {
    return (await this.listRevisions()).map(([header]) => header);
  }

  /** The headers with the revision of each: equal texts mean that nothing was written in between. */
  async listRevisions(): Promise<[SessionHeader, string][]> {
    return JSON.parse((await this.#ask('list')) ?? '[]') as [SessionHeader, string][];
  }

  /** The file of a stored session. */
  locate(id: string): Promise<string | undefined> {
    return this.#ask('locate', id);
  }

  /** Which content a stored session has now. */
  revision(id: string): Promise<string | undefined> {
    return this.#ask('revision', id);
  }

  /** The text of a stored session: for an export, also of a log that cannot be opened. */
  async readRaw(id: string): Promise<RawLog | undefined> {
    const raw = await this.#ask('read', id);
    return raw === undefined ? undefined : (JSON.parse(raw) as RawLog);
  }
}

/** Where sessions may be kept: a folder, a store that comes with turnwheel, or one of your own. */
export type AnyStore = string | JsonlOptions | SqliteStore | ReferenceDatabase | Store;

const methods = ['listPage', 'exists', 'read', 'open', 'create'] as const;

/** @internal The options of a store that comes with turnwheel; `undefined` for one of somebody's own. */
export function storeOptions(store: AnyStore): { [key: string]: unknown } | undefined {
  if (typeof store === 'string') return { kind: 'jsonl', root: store };
  if (store === null || typeof store !== 'object') {
    throw invalid('a store is a folder, {path}, {kind: "sqlite", path} or an object as `Store` describes it');
  }
  if (store instanceof JsonlStore) return { kind: 'jsonl', root: store.path, compression: store.compression };
  const missing = methods.filter((name) => typeof (store as Partial<Store>)[name] !== 'function');
  if (missing.length === 0) return undefined;
  if (missing.length < methods.length) {
    throw invalid(`a store of your own has the methods ${methods.join(', ')}; this one lacks ${missing.join(', ')}`);
  }
  if ('kind' in store) return { ...store };
  const { path, ...how } = store as JsonlOptions;
  return { kind: 'jsonl', root: path, ...how };
}

function listed(found: StoredSession, method: string): object {
  if (found === null || typeof found !== 'object' || found.header === undefined || !Array.isArray(found.events)) {
    throw new TypeError(`${method} gives undefined or {header, events: [text, …]}`);
  }
  return { header: found.header, events: found.events };
}

/** @internal What native code calls the methods of a store by. */
export function storeCallback(core: () => Core, store: Store): Callback {
  const named = (writer: unknown, method: string): { writer: number } => {
    const { append, close } = (writer ?? {}) as Partial<SessionWriter>;
    if (typeof append !== 'function' || typeof close !== 'function') throw new TypeError(`${method} gives a writer with append and close`);
    return { writer: core().keep(writer) };
  };
  const answer = async (method: string, writer: number | null, given: unknown[]): Promise<unknown> => {
    const [first, second] = given as [never, never];
    switch (method) {
      case 'listPage':
        return store.listPage(first ?? undefined, second);
      case 'exists':
        return store.exists(first);
      case 'read': {
        const found = await store.read(first);
        return found === undefined || found === null ? null : listed(found, 'read');
      }
      case 'open': {
        const found = await store.open(first);
        if (found === undefined || found === null) return null;
        const name = named(found.writer, 'open');
        // The writer is named in any case, so that it is closed when the rest is no log.
        return { header: found.header, events: found.events, ...name };
      }
      case 'create':
        return named(await store.create(first), 'create');
      default: {
        const known = core().kept.get(writer ?? 0) as SessionWriter;
        if (method === 'append') await known.append(first, second);
        else {
          await known.close();
          core().kept.delete(writer ?? 0);
        }
        return null;
      }
    }
  };
  return async ({ json }) => {
    const [method, writer, ...given] = JSON.parse(json ?? '[]') as [string, number | null, ...unknown[]];
    return JSON.stringify(await answer(method, writer, given)) ?? 'null';
  };
}

/** @internal Calls `use` with a store as native code takes it, for as long as that takes. */
export function storeFor<T>(core: Core, store: AnyStore, use: (text: string) => T): T {
  const options = storeOptions(store);
  if (options !== undefined) return use(JSON.stringify(options));
  return core.keepFor(registered(storeCallback(() => core, store as Store)), (object) => use(JSON.stringify({ object })));
}
