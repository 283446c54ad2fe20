// What can be listened to: every event's name, and the payload and decision that go with it.

import { noticeNames, type About, type Core } from './core.js';
import type { Agent } from './agent.js';
import type { TurnwheelError } from './errors.js';
import type { Block, CallConfig, Failure, Json, Message, ToolSchema } from './json.js';
import type { RetryPolicy } from './models.js';
import { native } from './native.js';
import type { Event, Session } from './session.js';

/** Something happened to an agent. */
export interface Notice<Name extends string> {
  readonly event: Name;
  /** The agent it is about. */
  readonly agent: Agent;
  readonly agentId: string;
}

/** A notification about a session. */
export interface SessionNotice<Name extends string> {
  readonly event: Name;
  readonly session: Session;
  readonly sessionId: string;
}

/** A tool call, in payloads about one. */
export interface CallInfo {
  readonly callId: string;
  readonly name: string;
  readonly arguments: Json;
  readonly parentCallId?: string;
  readonly rootCallId?: string;
}

/** The answer to a tool call. */
export interface Outcome {
  readonly content: Block[];
  readonly isError: boolean;
  readonly error?: { name: string; code: string };
  readonly value?: Json;
  readonly meta?: Json;
  readonly contexts?: Message[];
  readonly concludesTurn?: true;
}

/** The notifications, by name. */
export interface Notices {
  'session/event': Event;
  'session/created': SessionNotice<'session/created'>;
  'session/disposed': SessionNotice<'session/disposed'>;
  'agent/created': Notice<'agent/created'>;
  'agent/disposed': Notice<'agent/disposed'>;
  'agent/status': Notice<'agent/status'> & { readonly status: 'idle' | 'running' };
  'agent/inbox/inserted': Notice<'agent/inbox/inserted'> & { readonly message: Message };
  'agent/inbox/claimed': Notice<'agent/inbox/claimed'> & { readonly message: Message; readonly turn: number };
  'agent/inbox/discarded': Notice<'agent/inbox/discarded'> & { readonly message: Message };
  'agent/session-start': Notice<'agent/session-start'> & { readonly source: 'startup' | 'resume' };
  'agent/error': Notice<'agent/error'> & { readonly turn: number; readonly step: number; readonly error: TurnwheelError | Error };
  'tools/result': Notice<'tools/result'> & CallInfo & Outcome;
  'tools/changed': { readonly event: 'tools/changed' };
  'system-prompt/changed': { readonly event: 'system-prompt/changed' };
  'models/changed': { readonly event: 'models/changed' };
  'agent-loop/config-start-failed': {
    readonly event: 'agent-loop/config-start-failed';
    readonly sessionId: string;
    readonly error: { code: string; message: string };
  };
}

/** The payload of a waterfall or serial event. */
export interface Payload<Name extends string> extends Notice<Name> {
  /** Fires when the turn is cancelled; its reason is an `AbortError`. */
  readonly signal: AbortSignal;
}

/** A decision about a step: enter it with exactly these messages, or close the turn as `blocked`. */
export type PreStepDecision = { kind: 'enter'; messages: Message[] } | { kind: 'reject' };

/** A prompt being put together. */
export interface Assembly {
  sections: { name: string; order: number; text: string }[];
  tools: ToolSchema[];
  variables: { [name: string]: string | null };
  contexts: { name: string; text: string }[];
}

/** A decision about a tool call. */
export type PreExecuteDecision = { kind: 'allow' } | { kind: 'deny'; reason: string } | { kind: 'ask'; reason?: string };

/** A decision about a tool's result. */
export type PostExecuteDecision =
  | { kind: 'accept'; content?: string | Block[]; value?: Json; contexts?: Message[] }
  | { kind: 'block'; feedback: string | Block[]; contexts?: Message[] };

/** The waterfalls, by name: what a listener is given and what it decides. */
export interface Waterfalls {
  'agent/pre-step': {
    /** `messages` may be edited in place before `next()` is called. */
    payload: Payload<'agent/pre-step'> & { readonly turn: number; readonly step: number; messages: Message[] };
    decision: PreStepDecision;
  };
  'agent/request': {
    payload: Payload<'agent/request'> & { readonly turn: number; readonly step: number };
    decision: CallConfig;
  };
  'agent/request-error': {
    payload: Payload<'agent/request-error'> & {
      readonly turn: number;
      readonly step: number;
      readonly provider: string;
      readonly failure: Failure;
      /** The route's; absent when no route served the request. */
      readonly retryPolicy?: RetryPolicy;
    };
    decision: 'retry' | 'terminal';
  };
  'system-prompt/assemble': { payload: Payload<'system-prompt/assemble'>; decision: Assembly };
  'tools/pre-execute': { payload: Payload<'tools/pre-execute'> & CallInfo; decision: PreExecuteDecision };
  'tools/execute': { payload: Payload<'tools/execute'> & CallInfo; decision: Outcome };
  'tools/post-execute': { payload: Payload<'tools/post-execute'> & CallInfo & Outcome; decision: PostExecuteDecision };
}

/** The serial events: listeners are awaited one after the other and decide nothing. */
export interface Serials {
  'agent/turn-stopping': Payload<'agent/turn-stopping'> & { readonly turn: number };
}

/** The name of any event. */
export type EventName = keyof Notices | keyof Waterfalls | keyof Serials;

/** A listener of the event of that name. */
export type Listener<Name extends EventName> = Name extends keyof Notices
  ? (event: Notices[Name]) => void | Promise<void>
  : Name extends keyof Waterfalls
    ? (
        payload: Waterfalls[Name]['payload'],
        next: () => Promise<Waterfalls[Name]['decision']>,
      ) => Waterfalls[Name]['decision'] | undefined | void | Promise<Waterfalls[Name]['decision'] | undefined | void>
    : Name extends keyof Serials
      ? (payload: Serials[Name]) => void | Promise<void>
      : never;

/** Where, how often and for what a listener runs. */
export interface ListenOptions {
  /** Before the listeners that are there, instead of behind them. */
  prepend?: boolean;
  /** Only the first time. */
  once?: boolean;
  /** For every agent, although it is registered through one agent's context. */
  global?: boolean;
  /** For `session/event`: the types it hears. Others do not even cross into JavaScript. */
  types?: string[];
}

/** @internal A notification's object: its members come from its JSON, which is read when the first of them is. */
export function noticeObject(core: Core, seat: number, kind: number, about: string, detail: unknown): object {
  const name = noticeNames[kind];
  if (name === 'agent/status') return new StatusNotice(core, seat, about as 'idle' | 'running');
  const members = JSON.parse(about) as { [key: string]: unknown };
  if (detail !== undefined) members['error'] = detail;
  if (seat === 0) return members;
  const isSession = name === 'session/created' || name === 'session/disposed';
  const key = isSession ? 'session' : 'agent';
  const get = isSession ? () => core.session(seat) : () => core.agent(seat);
  return Object.defineProperty(members, key, { get, enumerable: false, configurable: true });
}

class StatusNotice {
  readonly event = 'agent/status';
  readonly status: 'idle' | 'running';
  readonly #core: Core;
  readonly #seat: number;

  constructor(core: Core, seat: number, status: 'idle' | 'running') {
    this.#core = core;
    this.#seat = seat;
    this.status = status;
  }

  get agent(): Agent | undefined {
    return this.#core.agent(this.#seat);
  }

  get agentId(): string {
    return this.#core.session(this.#seat).id;
  }
}

/** @internal What a callback is about, with its JSON read when asked for. */
export class Subject {
  protected readonly about: About;
  #members: { [key: string]: unknown } | undefined;
  #signal: AbortSignal | undefined;

  constructor(about: About) {
    this.about = about;
  }

  get members(): { [key: string]: unknown } {
    return (this.#members ??= JSON.parse(native.subject(this.about.core.id, this.about.key)) as { [key: string]: unknown });
  }

  get signal(): AbortSignal {
    return (this.#signal ??= this.about.core.signal(this.about.key));
  }

  get agent(): Agent | undefined {
    return this.about.seat === 0 ? undefined : this.about.core.agent(this.about.seat);
  }

  get agentId(): string | undefined {
    return this.about.seat === 0 ? undefined : this.about.core.session(this.about.seat).id;
  }

  /** What may be edited of it, if it was looked at. */
  edited(): string | undefined {
    return this.#members?.['messages'] === undefined ? undefined : JSON.stringify({ messages: this.#members['messages'] });
  }
}

const memberNames = [
  'turn',
  'step',
  'provider',
  'failure',
  'retryPolicy',
  'callId',
  'name',
  'arguments',
  'parentCallId',
  'rootCallId',
  'content',
  'isError',
  'error',
  'value',
  'meta',
  'contexts',
  'concludesTurn',
  'event',
  'messages',
];
for (const name of memberNames) {
  Object.defineProperty(Subject.prototype, name, {
    get(this: Subject): unknown {
      return this.members[name];
    },
    set(this: Subject, value: unknown): void {
      this.members[name] = value;
    },
    enumerable: true,
    configurable: true,
  });
}
