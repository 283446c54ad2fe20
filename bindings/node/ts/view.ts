// Sessions to look at, without a context and without the right to write: as a timeline of text, as one HTML page, and the
// verdict of an examination. Everything here blocks, as `fs.readFileSync` does; in a server, call it in a Worker.

import type { SessionHeader } from './json.js';
import { native } from './native.js';
import type { Price } from './session.js';
// The realm of the library, by which its errors become errors of this package.
import './core.js';

/** Prices by `provider/model`, as the log names them. Models without a price cost nothing. */
export interface Prices {
  [model: string]: Price;
}

/** What an examination found. */
export interface Verdict {
  isSound: boolean;
  /** Bytes behind the committed prefix. */
  tornBytes: number;
  replacedCharacters: number;
  /** The events that the next opening appends. */
  closers: unknown[];
  /** Types of plug-ins that must be registered to open the session. */
  needsTypes: string[];
  /** Events that break the order of logs. */
  disorder: { seq: number; rule: string }[];
}

export type { Price };

const released = new FinalizationRegistry<number>((key) => native.viewRelease(key));

interface Facts {
  header: SessionHeader;
  length: number;
  verdict: Verdict;
}

/** One session as it was read. */
export class SessionLog {
  readonly #key: number;
  #known: Facts | undefined;

  /** @internal */
  constructor(key: number) {
    this.#key = key;
    released.register(this, key);
  }

  get #facts(): Facts {
    return (this.#known ??= JSON.parse(native.viewFacts(this.#key)) as Facts);
  }

  get header(): SessionHeader {
    return this.#facts.header;
  }

  /** How many events it has. */
  get length(): number {
    return this.#facts.length;
  }

  /** What an examination found. */
  verdict(): Verdict {
    return this.#facts.verdict;
  }

  /** The timeline as text. Control and direction characters of the log are spelled out. */
  text(options: { color?: boolean; full?: boolean; prices?: Prices } = {}): string {
    return native.viewRender(this.#key, false, JSON.stringify(options));
  }

  /** The timeline as one page that works offline, has no script, and shows whatever a model or tool said as text. */
  html(options: { prices?: Prices } = {}): string {
    return native.viewRender(this.#key, true, JSON.stringify(options));
  }
}

/**
 * The sessions at a path: a store's folder, a log file (plain or zstd), or a database; told apart by content. Any number
 * may look while a program writes.
 */
export class Sessions implements Iterable<SessionHeader> {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
    native.viewList(path, undefined, 1);
  }

  /** The headers of all sessions, in the order of their ids. */
  *[Symbol.iterator](): Generator<SessionHeader, void, undefined> {
    let after: string | undefined;
    for (;;) {
      const page = JSON.parse(native.viewList(this.path, after, 500)) as SessionHeader[];
      yield* page;
      if (page.length < 500) return;
      after = page.at(-1)?.id;
    }
  }

  /** Reads and checks a session; without an id the only one there is. Throws what is wrong with it. */
  read(id?: string): SessionLog {
    return new SessionLog(native.viewRead(this.path, id));
  }

  /** A session as plain JSONL. Of a file it is the exact text, also when its events cannot be read. */
  text(id?: string): string {
    return native.viewSource(this.path, 'text', id);
  }

  /** A text that changes whenever the session does. */
  revision(id?: string): string {
    return native.viewSource(this.path, 'revision', id);
  }

  /** Closes what a crash left open, as opening the agent does. Gives how many events were appended. */
  repair(id?: string): number {
    return Number(native.viewSource(this.path, 'repair', id));
  }
}
