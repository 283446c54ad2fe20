// One core as JavaScript sees it: what native code names by numbers, promises, callbacks and asynchronous contexts.

import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';
import { AbortError, fromFacts, TurnwheelError, type ErrorFacts } from './errors.js';
import type { CancelCause } from './json.js';
import { Agent } from './agent.js';
import { native } from './native.js';
import { begin, end, type Wait } from './rings.js';
import { Session } from './session.js';

/** The kinds of callbacks, as in `promises.rs`. */
const enum Shape {
  Decide,
  Tool,
  Adapter,
  Setup,
  Maintenance,
  Text,
  Classify,
  Finalize,
  Aborted,
  Check,
  Store,
}

/** @internal A callback: given what it is about, it answers with JSON text or nothing, at once or later. */
export interface Callback {
  (about: About): string | undefined | PromiseLike<string | undefined>;
}

/** @internal A listener of notifications. `about` is a seq for `session/event`, else JSON text or a status. */
export interface NoticeCallback {
  (core: Core, seat: number, kind: number, about: number | string, detail: unknown): void;
}

/** @internal What a callback is about. */
export interface About {
  core: Core;
  seat: number;
  context: number;
  key: number;
  json: string | undefined;
}

type Snapshot = <R>(run: () => R) => R;

/** The asynchronous context of the running code. It costs a tenth of `AsyncLocalStorage.snapshot()` in Node 20. */
function captured(): AsyncResource {
  return new AsyncResource('turnwheel', { requireManualDestroy: true });
}

/** An asynchronous context in which callbacks run. */
interface Kontext {
  base: AsyncResource;
  /** The base with the initiating agent set, for the seat last asked for. */
  inside: AsyncResource | undefined;
  seat: number;
}

/** Whose turn the running code is part of; `await` carries it along. */
interface Caller {
  core: Core;
  seat: number;
  context: number;
}

const callers = new AsyncLocalStorage<Caller | undefined>();
const nobody: Caller = { core: undefined as never, seat: 0, context: 0 };

/** @internal The kinds of notifications, in the order of `NoticeKind::ALL`. */
export const noticeNames = [
  'session/created',
  'session/disposed',
  'agent/created',
  'agent/disposed',
  'agent/status',
  'agent/inbox/inserted',
  'agent/inbox/claimed',
  'agent/inbox/discarded',
  'agent/session-start',
  'agent/error',
  'session/event',
  'tools/result',
  'tools/changed',
  'system-prompt/changed',
  'models/changed',
  'agent-loop/config-start-failed',
] as const;

const vetoes = ['agent/created', 'tools/changed', 'system-prompt/changed'];

/** @internal The names of event types, by number. */
export const typeNames: string[] = [];

/** Every core, for as long as somebody holds it, or while something is under way in it. */
const cores = new Map<number, WeakRef<Core>>();
const busy = new Map<number, Core>();
const collected = new FinalizationRegistry<number>((id) => {
  cores.delete(id);
  native.collected(id);
});

function coreOf(id: number): Core | undefined {
  return busy.get(id) ?? cores.get(id)?.deref();
}

function hold(id: number, isBusy: boolean): void {
  const core = isBusy ? cores.get(id)?.deref() : undefined;
  if (core === undefined) busy.delete(id);
  else busy.set(id, core);
}

let lastId = 0;

interface Settle {
  /** Whether what it resolves with is JSON text. */
  isJson?: boolean;
  resolve(value: never): void;
  reject(error: unknown): void;
}

/** @internal */
export class Core {
  readonly id: number;
  isClosed = false;
  /** The asynchronous context that native code is called in, if it is known: its callbacks need not enter it again. */
  inside = 0;
  readonly kept = new Map<number, unknown>();
  readonly promises = new Map<number, Settle>();
  readonly #sessions = new Map<number, WeakRef<Session>>();
  /** The session of the event delivered last: most events are about the same one. */
  #last: Session | undefined;
  readonly #released = new FinalizationRegistry<number>((key) => {
    if (this.#sessions.get(key)?.deref() === undefined) this.#sessions.delete(key);
    if (!this.isClosed) native.release(this.id, key);
  });

  /** `store` calls the methods of a store that the user wrote. */
  constructor(options: string, store?: Callback) {
    this.id = store === undefined ? native.open(realm, options, 0) : this.keepFor(registered(store), (id) => native.open(realm, options, id));
    cores.set(this.id, new WeakRef(this));
    collected.register(this, this.id, this);
  }

  /** Keeps something until native code lets go of it. */
  keep(value: unknown): number {
    const id = ++lastId;
    this.kept.set(id, value);
    return id;
  }

  /** Calls `use` with a number for `value`, which is forgotten at once if that fails. */
  keepFor<T>(value: unknown, use: (id: number) => T): T {
    const id = this.keep(value);
    try {
      return use(id);
    } catch (error) {
      this.kept.delete(id);
      throw error;
    }
  }

  /** Lets a native thing live as long as `object`. */
  own(object: object, key: number): void {
    this.#released.register(object, key);
  }

  /** The session of a seat; the same object as long as somebody holds it. */
  session(seat: number): Session {
    if (this.#last?.seat === seat) return this.#last;
    let session = this.#sessions.get(seat)?.deref();
    if (session === undefined) {
      session = new Session(this, seat);
      this.#sessions.set(seat, new WeakRef(session));
      this.#released.register(session, seat);
      native.hold(this.id, seat);
    }
    this.#last = session;
    return session;
  }

  /** The agent of a seat. */
  agent(seat: number): Agent {
    const session = this.session(seat);
    return (session.agentObject ??= new Agent(session));
  }

  /** The agent that drives a session, if there is one. */
  agentOf(session: Session): Agent | undefined {
    if (native.findAgent(this.id, session.id) !== session.seat) return undefined;
    return new Agent(session);
  }

  /** Forgets the session of the last event: it is over. */
  forgetLast(seat: number): void {
    if (this.#last?.seat === seat) this.#last = undefined;
  }

  /** A promise that native code settles. With a signal: its abort drops what is awaited, and rejects with its reason. */
  promise<T>(start: (id: number) => void, signal?: AbortSignal, isDetached = false, isJson = false): Promise<T> {
    if (signal?.aborted === true) return Promise.reject(signal.reason as Error);
    const id = ++lastId;
    return new Promise<T>((resolve, reject) => {
      let settle: Settle = { resolve: resolve as (value: never) => void, reject };
      if (signal !== undefined) {
        const aborted = (): void => {
          this.promises.delete(id);
          if (!isDetached && !this.isClosed) native.giveUp(this.id, id);
          reject(signal.reason as Error);
        };
        signal.addEventListener('abort', aborted, { once: true });
        const forget = (): void => signal.removeEventListener('abort', aborted);
        settle = {
          resolve: (value) => (forget(), (resolve as (value: never) => void)(value)),
          reject: (error) => (forget(), reject(error as Error)),
        };
      }
      settle.isJson = isJson;
      this.promises.set(id, settle);
      try {
        start(id);
      } catch (error) {
        this.promises.delete(id);
        settle.reject(error);
      }
    });
  }

  /** As {@link Core.promise}, for JSON. */
  json<T>(start: (id: number) => void, signal?: AbortSignal, isDetached = false): Promise<T> {
    return this.promise<T>(start, signal, isDetached, true);
  }

  /** As {@link Core.promise}, for a wait for the turn of the agent in `seat` (D-18). */
  wait<T>(seat: number, start: (id: number) => void, options: { signal?: AbortSignal | undefined; isDetached?: boolean; isJson?: boolean } = {}): Promise<T> {
    const caller = callers.getStore();
    let promiseId = 0;
    const noted = (id: number): void => start((promiseId = id));
    const promise = this.promise<T>(noted, options.signal, options.isDetached, options.isJson);
    if (caller === undefined || caller.seat === 0) return promise;
    const [behind, ahead] = [caller.core.session(caller.seat).id, this.session(seat).id];
    const ring = `agent "${ahead}" is waiting for the turn of "${behind}" in which this is`;
    const refuse = (): void => {
      const settle = this.promises.get(promiseId);
      if (!this.promises.delete(promiseId) || this.isClosed) return;
      native.giveUp(this.id, promiseId);
      const message = `${ring}; send without waiting, or wait from outside`;
      settle?.reject(new TurnwheelError('SELF_WAIT', message, { context: { agentId: ahead } }));
    };
    const wait: Wait = { behind: `${caller.core.id} ${caller.seat}`, ahead: `${this.id} ${seat}`, refuse };
    begin(wait, () => warn(`${ring}, or may be: neither ends if both do`));
    const over = (): void => end(wait);
    promise.then(over, over);
    return promise;
  }

  /** Runs `send` with the asynchronous context of the running code, for the turn that takes what it sends. */
  sending<T>(send: (context: number) => T): T {
    const context: Kontext = { base: captured(), inside: undefined, seat: 0 };
    return this.keepFor(context, send);
  }

  /** In whose turn the running code is. */
  caller(): Caller {
    const caller = callers.getStore();
    return caller !== undefined && caller.core === this ? caller : nobody;
  }

  /** Runs `run` as part of a turn, in the asynchronous context of whoever asked for it. */
  enter<R>(context: number, seat: number, registered: Snapshot | undefined, run: () => R): R {
    const outer = this.inside;
    this.inside = context === 0 ? -1 : context;
    try {
      const known = this.kept.get(context) as Kontext | undefined;
      if (known === undefined) {
        const caller: Caller = { core: this, seat, context };
        const inside = (): R => (seat === 0 ? run() : callers.run(caller, run));
        return registered === undefined ? inside() : registered(inside);
      }
      if (known.inside === undefined || known.seat !== seat) {
        const caller: Caller = { core: this, seat, context };
        known.inside = known.base.runInAsyncScope(() => callers.run(caller, captured));
        known.seat = seat;
      }
      return known.inside.runInAsyncScope(run);
    } finally {
      this.inside = outer;
    }
  }

  /** Runs something native from inside an asynchronous context that it may go on in. */
  within<R>(context: number, run: () => R): R {
    const outer = this.inside;
    this.inside = context;
    try {
      return run();
    } finally {
      this.inside = outer;
    }
  }

  /** What native code is told of an exception. */
  describe(error: unknown): string {
    const described: { [key: string]: unknown } = { kept: this.keep(error) };
    try {
      const { name, message, code, failure } = error as { [key: string]: unknown };
      described['message'] = typeof message === 'string' ? message : String(error);
      if (typeof name === 'string') described['name'] = name;
      if (typeof code === 'string') described['code'] = code;
      if (failure !== undefined && typeof failure === 'object') described['failure'] = failure;
      return JSON.stringify(described);
    } catch {
      return JSON.stringify({ kept: described['kept'], message: 'host code threw a value that cannot be shown' });
    }
  }

  /** A signal of the runtime as an `AbortSignal`; its reason is an `AbortError`. */
  signal(key: number): AbortSignal {
    const controller = new AbortController();
    const fire = ({ json }: About): undefined => {
      controller.abort(new AbortError(JSON.parse(json ?? '{"kind":"user"}') as CancelCause));
    };
    const cause = this.keepFor(plain(fire), (id) => {
      const cause = native.watch(this.id, key, id);
      if (cause !== undefined) this.kept.delete(id);
      return cause;
    });
    if (cause !== undefined) controller.abort(new AbortError(JSON.parse(cause) as CancelCause));
    return controller.signal;
  }

  /** The end: native code is gone, and with it what it named. */
  end(): void {
    this.isClosed = true;
    cores.delete(this.id);
    busy.delete(this.id);
    collected.unregister(this);
    const waiting = [...this.promises.values()];
    this.promises.clear();
    for (const { reject } of waiting) {
      reject(new TurnwheelError('RUNTIME_CLOSED', 'the context was closed while this was awaited'));
    }
    this.kept.clear();
    this.#sessions.clear();
    this.#last = undefined;
  }
}

let warn = (message: string): void => process.emitWarning(message, 'TurnwheelWarning');

/** Sets what is told of failures that nobody waits for, such as a listener that threw. By default a process warning. */
export function onWarning(listener: (message: string) => void): void {
  warn = listener;
}

/** @internal */
export function warning(what: string, error: unknown): void {
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
  warn(`${what}: ${text}`);
}

function notify(id: number, callback: number, context: number, seat: number, kind: number, about: number | string, detail: unknown): string | undefined {
  const core = coreOf(id);
  const listener = core?.kept.get(callback) as NoticeCallback | undefined;
  if (core === undefined || listener === undefined) return undefined;
  try {
    if (context === 0 || context === core.inside) listener(core, seat, kind, about, detail);
    else core.enter(context, seat, undefined, () => listener(core, seat, kind, about, detail));
    return undefined;
  } catch (error) {
    // Only these listeners have a say; what others throw is told and has no other effect.
    const name = noticeNames[kind] ?? '';
    if (vetoes.includes(name)) return core.describe(error);
    warning(`a listener of ${name} failed`, error);
    return undefined;
  }
}

function invoke(id: number, pending: number, callback: number, context: number, seat: number, _shape: Shape, key: number, json: string | undefined): string | undefined {
  const core = coreOf(id);
  if (core === undefined) {
    // What ends unattended has nobody to ask.
    native.answer(id, pending, false, '{"message":"the context was let go of without close()"}');
    return undefined;
  }
  const fail = (error: unknown): undefined => {
    if (!core.isClosed) core.within(context, () => native.answer(id, pending, false, core.describe(error)));
  };
  try {
    const known = core.kept.get(callback) as Registered | undefined;
    if (known === undefined) return undefined;
    const { call, snapshot } = known;
    const about: About = { core, seat, context, key, json };
    // What settles later does so in the asynchronous context of the call: its reactions are attached inside.
    return core.enter(context, seat, snapshot, () => {
      const answer = call(about);
      if (typeof answer === 'string') return answer;
      if (answer === undefined) {
        native.answer(id, pending, true);
        return undefined;
      }
      answer.then((json) => {
        if (!core.isClosed) core.within(context, () => native.answer(id, pending, true, json));
      }, fail);
      return undefined;
    });
  } catch (error) {
    return fail(error);
  }
}

interface Registered {
  call: Callback;
  snapshot: Snapshot | undefined;
}

/** @internal A callback with the asynchronous context that it was registered in, for calls that are part of no turn. */
export function registered(call: Callback): Registered {
  return { call, snapshot: AsyncLocalStorage.snapshot() as Snapshot };
}

/** @internal A callback that is called from inside its own turn only. */
export function plain(call: Callback): Registered {
  return { call, snapshot: undefined };
}

function settled(id: number, promise: number, isOk: boolean, value: unknown): void {
  const core = coreOf(id);
  const settle = core?.promises.get(promise);
  if (core === undefined || settle === undefined) return;
  core.promises.delete(promise);
  if (isOk) settle.resolve((settle.isJson === true ? JSON.parse(value as string) : value) as never);
  else settle.reject(value);
}

function released(id: number, ...kept: number[]): void {
  const core = coreOf(id);
  for (const key of kept) core?.kept.delete(key);
}

function makeError(id: number, kept: number, json: string): unknown {
  if (kept !== 0) return coreOf(id)?.kept.get(kept) ?? new TurnwheelError('HOST_ERROR', 'host code failed');
  return fromFacts(JSON.parse(json) as ErrorFacts);
}

const pumpSoon = (): void => native.pump(realm, false);
const pumpLater = (): void => native.pump(realm, true);

function schedule(when: number): void {
  if (when === 0) queueMicrotask(pumpSoon);
  else setImmediate(pumpLater);
}

function named(index: number, name: string): void {
  typeNames[index] = name;
}

const realm = native.attach(notify, invoke, settled, released, makeError, schedule, named, (text: string) => warn(text), hold);

/** @internal Runs `run` as nobody's doing. */
export function asNobody<R>(run: () => R): R {
  return callers.run(undefined, run);
}

/** @internal Runs `run` as an agent's doing. */
export function asCaller<R>(core: Core, seat: number, context: number, run: () => R): R {
  return callers.run({ core, seat, context }, run);
}
