// Sessions and their events. An event object is a session and a seq: what it shows is read from the log when asked for.

import { typeNames, type Core } from './core.js';
import type { Block, Chunk, Message, SessionHeader, TurnEndReason, Usage } from './json.js';
import { native } from './native.js';
import type { Agent } from './agent.js';

/** The payloads of the log's own events, by type. Plug-ins add types of their own. */
export interface EventData {
  'turn/start': { turn: number };
  'turn/end': { turn: number; reason: TurnEndReason };
  'step/start': { turn: number; step: number };
  'step/end': { turn: number; step: number };
  'user/message': Message;
  'assistant/chunk': { turn: number; step: number; chunk: Chunk };
  'assistant/message': { turn: number; step: number; message: Message; usage?: Usage; interrupted?: true };
  'tool/call': { turn: number; step: number; callId: string; name: string; arguments: string };
  'tool/result': { turn: number; step: number; message: Message; error?: { name: string; code: string }; meta?: unknown };
  'request/header': { reason: 'initial' | 'resume' | 'change'; header: { [key: string]: unknown } };
  'request/context': { provider: string; model: string; contextWindow?: number };
  'session/end-seed': { [key: string]: never };
  'agent/inbox/spliced': {
    target: 'next-turn' | 'next-step';
    start: number;
    removedCount: number;
    inserted: Message[];
    canceled?: true;
  };
}

interface EventBase {
  /** Position in the log, from 0. */
  readonly seq: number;
  /** Epoch milliseconds. */
  readonly time: number;
  /** The text of a text delta or of a message; empty for every other event. */
  readonly text: string;
  /** The event as canonical JSON text. */
  readonly json: string;
  /** The session's id, which is also its agent's. */
  readonly sessionId: string;
  readonly session: Session;
  /** The live agent that drives the session, if there is one. */
  readonly agent: Agent | undefined;
}

/** One committed event of a session's log, of one of the types that the runtime writes. */
export type CoreEvent = { [T in keyof EventData]: EventBase & { readonly type: T; readonly data: EventData[T] } }[keyof EventData];

/** One committed event of a session's log. `type` tells what `data` is; types of plug-ins have data of their own. */
export type Event = CoreEvent | (EventBase & { readonly type: `${string}:${string}`; readonly data: unknown });

/** @internal The one class behind every event. */
export class LogEvent implements EventBase {
  readonly session: Session;
  readonly seq: number;
  readonly type: string;
  #json: string | undefined;
  #data: unknown;

  constructor(session: Session, seq: number, type: string) {
    this.session = session;
    this.seq = seq;
    this.type = type;
  }

  get json(): string {
    return (this.#json ??= native.eventJson(this.session.core.id, this.session.seat, this.seq));
  }

  get data(): unknown {
    return (this.#data ??= (JSON.parse(this.json) as { data: unknown }).data);
  }

  get time(): number {
    return native.eventTime(this.session.core.id, this.session.seat, this.seq);
  }

  get text(): string {
    return native.eventText(this.session.core.id, this.session.seat, this.seq);
  }

  get sessionId(): string {
    return this.session.id;
  }

  get agent(): Agent | undefined {
    return this.session.agent;
  }

  /** The event as the log has it. */
  toJSON(): unknown {
    return JSON.parse(this.json);
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    const json = this.json;
    return `Event ${this.type} #${this.seq} of ${JSON.stringify(this.sessionId)}: ${json.length > 120 ? `${json.slice(0, 120)}…` : json}`;
  }
}

/** What a provider charges for a million tokens, in any currency. */
export interface Price {
  input: number;
  output: number;
  cacheRead?: number;
  cacheWrite?: number;
}

/** A session: one append-only log of events, and what is folded from it. */
export class Session {
  /** @internal */
  readonly core: Core;
  /** @internal */
  readonly seat: number;
  /** @internal */
  agentObject: Agent | undefined;
  /** @internal What the last model request of this session carried; frozen, and shared by the requests. */
  sent: Message[] = [];
  #id: string | undefined;

  /** @internal */
  constructor(core: Core, seat: number) {
    this.core = core;
    this.seat = seat;
  }

  /** The id, which is also its agent's. */
  get id(): string {
    return (this.#id ??= native.sessionId(this.core.id, this.seat));
  }

  /** The agent that drives it, if one does. */
  get agent(): Agent | undefined {
    return (this.agentObject ??= this.core.agentOf(this));
  }

  /** The header: version, id, creation time, lineage. */
  get header(): SessionHeader {
    return JSON.parse(native.header(this.core.id, this.seat)) as SessionHeader;
  }

  /** How many events the log has. */
  get length(): number {
    return native.length(this.core.id, this.seat);
  }

  /** @internal */
  at(seq: number): Event {
    return new LogEvent(this, seq, typeNames[native.eventType(this.core.id, this.seat, seq)] ?? '') as unknown as Event;
  }

  /** The event of a seq, or `undefined`. */
  event(seq: number): Event | undefined {
    return Number.isInteger(seq) && seq >= 0 && seq < this.length ? this.at(seq) : undefined;
  }

  /** The events that are in the log now, from `from` on. */
  *events(options: { from?: number } = {}): Generator<Event, void, undefined> {
    const length = this.length;
    for (let seq = Math.max(0, options.from ?? 0); seq < length; seq += 1) yield this.at(seq);
  }

  /** The events from `from` on, those to come included; ends with the session, or when `signal` fires. */
  async *follow(options: { from?: number; signal?: AbortSignal } = {}): AsyncGenerator<Event, void, undefined> {
    let seq = Math.max(0, options.from ?? 0);
    for (;;) {
      const at = seq;
      const length = await this.core.promise<number>((id) => native.follow(this.core.id, id, this.seat, at), options.signal);
      if (length <= seq) return;
      for (; seq < length; seq += 1) yield this.at(seq);
    }
  }

  /** What the model sees: the messages on the surface, in order. */
  get history(): Message[] {
    return JSON.parse(native.history(this.core.id, this.seat)) as Message[];
  }

  /** The history as a request carries it: every call has its answer, also where the log lacks one. */
  get sendableHistory(): Message[] {
    return JSON.parse(native.sendableHistory(this.core.id, this.seat)) as Message[];
  }

  /** The version of an event type that this log was written with; `undefined` for one that it does not name. */
  eventTypeVersion(type: string): number | undefined {
    return native.eventTypeVersion(this.core.id, this.seat, type);
  }

  /**
   * Appends an event of a plug-in, and gives its seq. Types of the runtime's own are refused with `RESERVED_EVENT`, and
   * from inside a `session/event` listener every append is, with `REENTRANT`.
   */
  append(type: string, data: unknown): number {
    return native.append(this.core.id, this.seat, type, JSON.stringify(data) ?? 'null');
  }

  /** Appends an event as the log has it, `{type, data, surfaceOp?, sourceEventSeqs?, ignorable?}`; for importers. */
  appendRaw(event: { type: string; data: unknown; surfaceOp?: unknown; sourceEventSeqs?: number[]; ignorable?: boolean }): number {
    return native.appendRaw(this.core.id, this.seat, JSON.stringify(event));
  }

  /** The `turn/end` that accounts for the consumed work of the whole log, and whether work was dropped unrun. */
  get consumedWork(): { end: number | null; droppedUnrun: boolean } {
    return JSON.parse(native.consumedWork(this.core.id, this.seat)) as { end: number | null; droppedUnrun: boolean };
  }

  /** Waits until everything logged so far is on stable storage. */
  async flush(): Promise<void> {
    await this.core.promise((id) => native.durable(this.core.id, id, this.seat));
  }

  /**
   * The session as it is now as one HTML page, which works offline, has no script and shows what a model or tool said as
   * text. `prices` are by `provider/model`.
   */
  html(options: { prices?: Record<string, Price> } = {}): string {
    return native.sessionHtml(this.core.id, this.seat, JSON.stringify(options));
  }

  /**
   * The session as it is now as a timeline of turns, steps and calls for a terminal; control and direction characters of
   * the log are spelled out. `full` shows every text whole.
   */
  timeline(options: { prices?: Record<string, Price>; full?: boolean; color?: boolean } = {}): string {
    return native.sessionTimeline(this.core.id, this.seat, JSON.stringify(options));
  }

  /** The whole log, to keep elsewhere or to resume from: the option `log` of `ctx.agent`. */
  toJSON(): { header: SessionHeader; events: unknown[] } {
    return { header: this.header, events: [...this.events()].map((event) => JSON.parse(event.json) as unknown) };
  }
}

/** The text blocks of a message, joined. */
export function textOf(message: { content: readonly Block[] }): string {
  return message.content.map((block) => (block.type === 'text' && typeof block['text'] === 'string' ? block['text'] : '')).join('');
}
