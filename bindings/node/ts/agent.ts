// Agents: the handle that drives one session.

import { asCaller, plain } from './core.js';
import type { AgentState, CancelCause, Message, MessageInput, ReceiptState, RunResult, Target } from './json.js';
import { native } from './native.js';
import { Registrar } from './registrar.js';
import type { Event, Session } from './session.js';

/** Options of whatever can be given up. */
export interface AwaitOptions {
  /** Gives up: what is awaited is cancelled, and the promise rejects with the signal's reason. */
  signal?: AbortSignal;
}

/** Options of an owned run. */
export interface RunOptions extends AwaitOptions {
  /** The signal ends the waiting only; the turn goes on. */
  detached?: boolean;
}

/** What became of a message. Answers from the log: `agent.receipt(id)` works after a restart, too. */
export class Receipt {
  readonly messageId: string;
  readonly #session: Session;

  /** @internal */
  constructor(session: Session, messageId: string) {
    this.#session = session;
    this.messageId = messageId;
  }

  /** What became of it so far; `undefined` if the session never accepted it. */
  get state(): ReceiptState | undefined {
    const json = native.receiptState(this.#session.core.id, this.#session.seat, this.messageId);
    return json === undefined ? undefined : (JSON.parse(json) as ReceiptState);
  }

  /** Resolves when the message was discarded or the turn that took it ended. Rejects with `SELF_WAIT` inside that turn. */
  settled(options: AwaitOptions = {}): Promise<ReceiptState> {
    const { core, seat } = this.#session;
    const caller = core.caller();
    const start = (id: number): void => native.receiptSettled(core.id, id, seat, this.messageId, caller.seat, caller.context);
    return core.wait(seat, start, { signal: options.signal, isJson: true });
  }

  /**
   * Resolves when the insertion is on stable storage; at once without a store. Rejects with `NOT_REGISTERED` for a
   * message that the session never accepted.
   */
  durable(): Promise<void> {
    const { core, seat } = this.#session;
    return core.promise((id) => native.receiptDurable(core.id, id, seat, this.messageId));
  }
}

/** The events of one turn, as they are committed: an async iterable, once. Leaving it early does not cancel the turn. */
export class EventStream implements AsyncIterableIterator<Event, undefined> {
  readonly #session: Session;
  readonly #key: number;
  readonly #signal: AbortSignal | undefined;
  readonly #aborted: (() => void) | undefined;
  #at = 0;
  #to = 0;
  #isDone = false;

  /** @internal */
  constructor(session: Session, key: number, signal: AbortSignal | undefined) {
    this.#session = session;
    this.#key = key;
    this.#signal = signal;
    if (signal !== undefined) {
      this.#aborted = () => this.#end(true);
      signal.addEventListener('abort', this.#aborted, { once: true });
    }
    session.core.own(this, key);
  }

  /** The receipt of the prompt. */
  get receipt(): Receipt {
    return new Receipt(this.#session, native.streamMessage(this.#session.core.id, this.#key));
  }

  #end(isCancelled: boolean): void {
    if (this.#aborted !== undefined) this.#signal?.removeEventListener('abort', this.#aborted);
    if (this.#isDone) return;
    this.#isDone = true;
    this.#at = this.#to;
    if (!this.#session.core.isClosed) native.streamDrop(this.#session.core.id, this.#key, isCancelled);
  }

  async next(): Promise<IteratorResult<Event, undefined>> {
    if (this.#signal?.aborted === true) {
      this.#end(true);
      throw this.#signal.reason;
    }
    while (this.#at === this.#to) {
      if (this.#isDone) return { done: true, value: undefined };
      const { core } = this.#session;
      let text: string | undefined;
      try {
        text = await core.promise<string | undefined>((id) => native.streamNext(core.id, id, this.#key), this.#signal);
      } catch (error) {
        this.#end(false);
        throw error;
      }
      if (text === undefined) this.#end(false);
      else {
        const [from, to, isDone] = JSON.parse(text) as [number, number, boolean];
        this.#at = from;
        this.#to = to;
        if (isDone) {
          const at = this.#at;
          this.#end(false);
          this.#at = at;
        }
      }
    }
    return { done: false, value: this.#session.at(this.#at++) };
  }

  return(): Promise<IteratorResult<Event, undefined>> {
    this.#end(false);
    this.#at = this.#to;
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

/** Pending input, in two lists. Changing it never wakes the agent. */
export class Inbox {
  readonly #session: Session;

  /** @internal */
  constructor(session: Session) {
    this.#session = session;
  }

  /** The messages that queue for turns of their own. */
  get nextTurn(): Message[] {
    return this.pending('next-turn');
  }

  /** The messages that the next step takes. */
  get nextStep(): Message[] {
    return this.pending('next-step');
  }

  /** The messages pending in a list, in order. */
  pending(target: Target): Message[] {
    return JSON.parse(native.pending(this.#session.core.id, this.#session.seat, target)) as Message[];
  }

  /** Adds messages at the tail of a list. */
  append(target: Target, ...messages: MessageInput[]): void {
    native.insert(this.#session.core.id, this.#session.seat, target, JSON.stringify(messages), false);
  }

  /** Adds messages at the head of a list. */
  prepend(target: Target, ...messages: MessageInput[]): void {
    native.insert(this.#session.core.id, this.#session.seat, target, JSON.stringify(messages), true);
  }

  /** Removes and inserts, as `Array.prototype.splice` does; gives what was removed. */
  splice(target: Target, start: number, deleteCount = 0, ...messages: MessageInput[]): Message[] {
    const { core, seat } = this.#session;
    return JSON.parse(native.splice(core.id, seat, target, start, deleteCount, JSON.stringify(messages))) as Message[];
  }

  /** Replaces a pending message in place; says whether it was pending. */
  replace(id: string, message: MessageInput): boolean {
    return native.replace(this.#session.core.id, this.#session.seat, id, JSON.stringify(message));
  }

  /** Removes a pending message; says whether it was pending. */
  remove(id: string): boolean {
    return native.remove(this.#session.core.id, this.#session.seat, id);
  }

  /** Empties both lists. */
  clear(): void {
    native.clearInbox(this.#session.core.id, this.#session.seat);
  }
}

/**
 * An agent. What is registered through it (`on`, `tool`, `section`, …) concerns this agent only and ends with it.
 *
 * `await using agent = await ctx.agent('a1')` disposes it at the end of the block; its log stays.
 */
export class Agent extends Registrar implements AsyncDisposable {
  /** The session that it drives; the log is the durable truth. */
  readonly session: Session;
  /** The pending input. */
  readonly inbox: Inbox;

  /** @internal */
  constructor(session: Session) {
    super(session.core, () => native.agentCtx(session.core.id, session.seat));
    this.session = session;
    this.inbox = new Inbox(session);
  }

  /** The identity that it shares with its session. */
  get id(): string {
    return this.session.id;
  }

  /** What the public sees. */
  get status(): 'idle' | 'running' {
    return native.status(this.core.id, this.session.seat) as 'idle' | 'running';
  }

  /** Whether the agent was disposed or is being disposed. */
  get isDisposed(): boolean {
    return this.core.isClosed || native.isDisposed(this.core.id, this.session.seat);
  }

  /** What it is doing, as a plain record. */
  state(): AgentState {
    return JSON.parse(native.state(this.core.id, this.session.seat)) as AgentState;
  }

  #send(message: MessageInput, target: Target, wakeup: boolean): Receipt {
    const { core, session } = this;
    const text = JSON.stringify(message);
    const caller = core.caller();
    const id = core.sending((context) =>
      native.send(core.id, session.seat, target, wakeup, text, context, caller.seat, caller.context),
    );
    return new Receipt(session, id);
  }

  /**
   * Delivers a message to a list; with `wakeup` the agent runs it. On an idle agent the turn is open and the message
   * claimed when this returns.
   */
  send(message: MessageInput, options: { target?: Target; wakeup?: boolean } = {}): Receipt {
    return this.#send(message, options.target ?? 'next-turn', options.wakeup ?? true);
  }

  /** Queues a prompt for a turn of its own, and wakes. */
  followup(message: MessageInput): Receipt {
    return this.#send(message, 'next-turn', true);
  }

  /** Adds input to the turn under way at its next step, and wakes. */
  steer(message: MessageInput): Receipt {
    return this.#send(message, 'next-step', true);
  }

  /** Adds context for the next step, without waking. */
  inject(message: MessageInput): Receipt {
    return this.#send(message, 'next-step', false);
  }

  /** Drains what is parked without sending a message. */
  wake(): void {
    const caller = this.core.caller();
    native.wake(this.core.id, this.session.seat, caller.seat, caller.context);
  }

  /** Cancels the activity under way and discards pending input unless told to keep it. Signals fire before this returns. */
  cancel(cause: CancelCause | 'user' | 'parent' = 'user', options: { keepInbox?: boolean } = {}): void {
    native.cancel(this.core.id, this.session.seat, JSON.stringify(cause), options.keepInbox ?? false);
  }

  /** Resolves when nothing is active. Rejects with `SELF_WAIT` inside the agent's own turn. */
  whenIdle(options: AwaitOptions = {}): Promise<void> {
    const { core, session } = this;
    const caller = core.caller();
    const start = (id: number): void => native.whenIdle(core.id, id, session.seat, caller.seat, caller.context);
    return core.wait(session.seat, start, { signal: options.signal });
  }

  /**
   * Sends a prompt and waits for the turn that takes it. Aborting the signal cancels that turn, with cause `user`.
   *
   * A turn that fails or is cancelled is no exception: see `reason`. Rejects with `MESSAGE_DISCARDED` when the prompt is
   * discarded first, and with `SELF_WAIT` inside the agent's own turn.
   */
  run(message: MessageInput, options: RunOptions = {}): Promise<RunResult> {
    const { core, session } = this;
    const caller = core.caller();
    const start = (id: number): void => {
      const text = JSON.stringify(message);
      core.sending((context) => native.run(core.id, id, session.seat, text, context, caller.seat, caller.context));
    };
    return core.wait(session.seat, start, { signal: options.signal, isDetached: options.detached ?? false, isJson: true });
  }

  /** Sends a prompt and gives the events of the turn that takes it, from its `turn/start` to its `turn/end`. */
  stream(message: MessageInput, options: AwaitOptions = {}): EventStream {
    const { core, session } = this;
    options.signal?.throwIfAborted();
    const text = JSON.stringify(message);
    const caller = core.caller();
    const key = core.sending((context) => native.stream(core.id, session.seat, text, context, caller.seat, caller.context));
    return new EventStream(session, key, options.signal);
  }

  /** What became of a message of this session. */
  receipt(messageId: string): Receipt {
    return new Receipt(this.session, messageId);
  }

  /**
   * Runs a task while the agent is idle; wakes wait for its end. Rejects at once with `BUSY` if the agent is not idle.
   * The result is what the task returned, as JSON carries it.
   */
  async runMaintenance<T>(task: (options: { signal: AbortSignal }) => T | Promise<T>): Promise<T> {
    const { core, session } = this;
    const caller = core.caller();
    let result: T | undefined;
    const run = plain(async ({ key }) => {
      const signal = core.signal(key);
      result = await task({ signal });
      return undefined;
    });
    await core.promise((id) =>
      core.keepFor(run, (kept) => native.maintain(core.id, id, session.seat, kept, caller.seat, caller.context)),
    );
    return result as T;
  }

  /** Waits until everything logged so far is on stable storage. */
  flush(): Promise<void> {
    return this.session.flush();
  }

  /** Runs `operation` as this agent's doing: agents that it opens or messages that it sends count as the agent's own. */
  withInitiator<R>(operation: () => R): R {
    return asCaller(this.core, this.session.seat, native.turnContext(this.core.id, this.session.seat), operation);
  }

  /** Delivers a notification about this agent from outside. */
  emit(event: string, payload: { [key: string]: unknown } = {}): void {
    native.emit(this.core.id, this.session.seat, JSON.stringify({ ...payload, event }));
  }

  /** Stops the agent and frees its id. Its log stays; opening the id again resumes it. */
  dispose(): Promise<void> {
    const { core, session } = this;
    if (core.isClosed) return Promise.resolve();
    const caller = core.caller();
    return core.promise((id) => native.dispose(core.id, id, session.seat, caller.seat, caller.context));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return `Agent ${JSON.stringify(this.id)}`;
  }
}
