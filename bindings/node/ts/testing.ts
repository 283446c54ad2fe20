// Doubles for models, and what the author of a store runs: the same cases that the runtime's own stores are held to.
//
//   import { storeSuite } from 'turnwheel/testing';
//   const report = await storeSuite(() => new MyStore('test.db'));
//   console.log(String(report));
//   report.check();

import { Context } from './context.js';
import { plain } from './core.js';
import { TurnwheelError } from './errors.js';
import type { Failure } from './json.js';
import { ModelDouble, type AnyAdapter } from './models.js';
import { native } from './native.js';
import { storeFor, type AnyStore } from './stores.js';

/** Opens the store under test, a new object over the same sessions each time it is called, as another process would. */
export type OpenStore = () => AnyStore;

/** The names of all cases; each is a statement about the store. */
export const storeCases: readonly string[] = Object.freeze(JSON.parse(native.storeCases()) as string[]);

/** What became of one case; `failure` is what was found instead, `undefined` if the case holds. */
export interface CaseReport {
  readonly name: string;
  readonly failure: string | undefined;
}

/** What became of all cases. As a text it shows a line a case. */
export class Report {
  readonly cases: readonly CaseReport[];

  /** @internal */
  constructor(cases: readonly CaseReport[]) {
    this.cases = cases;
  }

  /** The cases that do not hold. */
  get failures(): readonly CaseReport[] {
    return this.cases.filter(({ failure }) => failure !== undefined);
  }

  /** Throws with the whole report unless every case holds. */
  check(): void {
    if (this.failures.length > 0) throw new Error(`the store does not conform:\n${String(this)}`);
  }

  toString(): string {
    const lines = this.cases.map(({ name, failure }) => (failure === undefined ? `ok      ${name}` : `FAILED  ${name}: ${failure}`));
    const failed = this.failures.length;
    return [...lines, `${this.cases.length - failed} passed, ${failed} failed`].join('\n');
  }
}

/** Runs one case of {@link storeCases}; rejects with what was found. */
export async function checkStore(name: string, open: OpenStore): Promise<void> {
  const ctx = new Context();
  const { core } = ctx;
  // What the store is opened anew for lives as long as the case.
  const opened = plain(() => {
    let text = '';
    storeFor(core, open(), (store) => (text = store));
    return text;
  });
  try {
    await core.promise((id) => core.keepFor(opened, (kept) => native.checkStore(core.id, id, name, kept)));
  } catch (error) {
    if (error instanceof TurnwheelError && error.code === 'INVARIANT') throw new Error(error.message);
    throw error;
  } finally {
    await ctx.close();
  }
}

/** Runs every case. The suite uses ids of its own, so the store may hold other sessions. */
export async function storeSuite(open: OpenStore): Promise<Report> {
  const cases: CaseReport[] = [];
  for (const name of storeCases) {
    try {
      await checkStore(name, open);
      cases.push({ name, failure: undefined });
    } catch (error) {
      const { message } = error as Error;
      cases.push({ name, failure: message.startsWith(`${name}: `) ? message.slice(name.length + 2) : message });
    }
  }
  return new Report(cases);
}

/** What happens to one answer of a {@link faulty} model; `after` so many chunks. */
export type Fault =
  | { kind: 'none' }
  /** Nothing comes any more, until the request is cancelled. */
  | { kind: 'stall'; after?: number }
  /** The stream ends without an end. */
  | { kind: 'cut'; after?: number }
  /** The answer fails. */
  | { kind: 'fail'; after?: number; failure: Failure }
  /** Every delta comes in pieces of one character. */
  | { kind: 'crumble' };

/** A model whose answers break as told, one fault an answer; those behind the last are whole. */
export function faulty(adapter: AnyAdapter, ...faults: Fault[]): ModelDouble {
  return new ModelDouble({ kind: 'faulty', faults }, adapter);
}

/** Records what a model is asked and answers into a file, for {@link replayed}. */
export function recorded(path: string, adapter: AnyAdapter): ModelDouble {
  return new ModelDouble({ kind: 'record', path }, adapter);
}

/** A model that answers from a recorded file, and opens no socket. */
export function replayed(path: string): ModelDouble {
  return new ModelDouble({ kind: 'replay', path });
}
