// Contexts: what an application composes its agents with.

import type { Agent } from './agent.js';
import { asNobody, Core } from './core.js';
import { TurnwheelError } from './errors.js';
import type { SessionHeader } from './json.js';
import type { AnyAdapter, FallbackRoute, RouteOptions } from './models.js';
import { native } from './native.js';
import { Registrar, type Registration } from './registrar.js';
import type { Session } from './session.js';
import { storeCallback, storeFor, storeOptions, type AnyStore, type Copied, type Store } from './stores.js';

/** Limits on what may be spent; `null` is no limit. `tokens` counts input, cached input and output. */
export interface Budget {
  steps?: number | null;
  toolCalls?: number | null;
  tokens?: number | null;
  wallMs?: number | null;
}

/** Options of a context. */
export interface ContextOptions {
  /** Where sessions are kept: a directory, or a store, also one of your own; in memory when absent. */
  store?: AnyStore;
  /** When the log is made durable; `effects`, the default, is before each model request and tool. */
  durability?: 'effects' | 'every-event' | 'turn' | 'relaxed';
  maxParallelToolCalls?: number;
  /**
   * How many bytes one tool result may have in the log; 16 MiB unless set, null for no bound. A larger one becomes an error
   * of its call, `TOOL_RESULT_TOO_LARGE`.
   */
  maxToolResultBytes?: number | null;
  /** What one turn may spend; 200 steps unless you say otherwise. */
  turnBudget?: Budget;
  /** What an agent may spend in its session's life. */
  agentBudget?: Budget;
  /** Cancels a turn after so many milliseconds. */
  turnTimeoutMs?: number;
}

/** An agent of an application's configuration. */
export interface ConfiguredAgent {
  id: string;
  provider?: string;
  model?: string;
  maxTokens?: number;
  cwd?: string;
  sessionId?: string;
  resumeSessionId?: string;
}

/** The live agents of a context. */
export class Agents implements Iterable<Agent> {
  readonly #core: Core;

  /** @internal */
  constructor(core: Core) {
    this.#core = core;
  }

  /** The live agent of an id. */
  get(id: string): Agent | undefined {
    if (this.#core.isClosed) return undefined;
    const seat = native.findAgent(this.#core.id, id);
    return seat === 0 ? undefined : this.#core.agent(seat);
  }

  /** The ids, in order of registration. */
  get ids(): string[] {
    return this.#core.isClosed ? [] : (JSON.parse(native.agentIds(this.#core.id)) as string[]);
  }

  get size(): number {
    return this.ids.length;
  }

  *[Symbol.iterator](): Generator<Agent, void, undefined> {
    for (const id of this.ids) {
      const agent = this.get(id);
      if (agent !== undefined) yield agent;
    }
  }
}

/** The model routes of a context. */
export class Models {
  readonly #registrar: Registrar;

  /** @internal */
  constructor(registrar: Registrar) {
    this.#registrar = registrar;
  }

  /** Registers a route: `openAIChat({…})`, `scripted(…)`, or an async generator function of the request. */
  register(provider: string, adapter: AnyAdapter, options: RouteOptions = {}): Registration {
    return this.#registrar.model(provider, adapter, options);
  }

  /** Carries out the retry policies of routes: a request that failed is sent again, in the same step. */
  retry(): Registration {
    return this.#registrar.retryRequests();
  }

  /** Lets a request that failed for good go to the next of these routes. */
  fallback(...routes: FallbackRoute[]): Registration {
    return this.#registrar.fallBack(routes);
  }
}

/**
 * Composes agents: model routes, tools, listeners, prompt, and where sessions are kept.
 *
 * `await using ctx = new Context()` closes it at the end of the block.
 */
export class Context extends Registrar implements AsyncDisposable {
  /** The live agents. */
  readonly agents: Agents;
  /** The model routes. */
  readonly llm: Models;
  #closing: Promise<void> | undefined;

  constructor(options: ContextOptions = {}) {
    const { store, ...rest } = options;
    const own = store === undefined ? undefined : storeOptions(store);
    const text = JSON.stringify(own === undefined ? rest : { ...rest, store: own });
    const core: Core = new Core(text, store === undefined || own !== undefined ? undefined : storeCallback(() => core, store as Store));
    super(core, () => native.root(core.id));
    this.agents = new Agents(core);
    this.llm = new Models(this);
  }

  /**
   * Starts agents as an application's configuration would: each resumes or creates its session, and starts again when it
   * ends with the process. A start that fails is told as `agent-loop/config-start-failed`.
   */
  startAgents(entries: ConfiguredAgent[]): void {
    native.startAgents(this.core.id, this.ctx, JSON.stringify(entries));
  }

  /** Forks a bare session from a live one, up to and including the event `at`. */
  forkSession(from: string, options: { at?: number; id?: string } = {}): Session {
    const at = options.at === undefined ? undefined : JSON.stringify(options.at);
    return this.core.session(native.forkSession(this.core.id, from, at, options.id));
  }

  /** The headers of stored sessions in order of their ids, at most `limit` (100) behind the id `after`. */
  listSessions(options: { after?: string; limit?: number } = {}): Promise<SessionHeader[]> {
    const { core } = this;
    return core.json((id) => native.listSessions(core.id, id, options.after, options.limit ?? 100));
  }

  /** The agent in whose turn the running code is, if any. */
  get initiator(): Agent | undefined {
    const { seat, context } = this.core.caller();
    return seat === 0 || native.turnContext(this.core.id, seat) !== context ? undefined : this.core.agent(seat);
  }

  /** As {@link Context.initiator}; throws `NO_INITIATOR` where there is none. */
  requireInitiator(): Agent {
    const { seat, context } = this.core.caller();
    return this.core.agent(native.requireInitiator(this.core.id, seat, context));
  }

  /** Copies a stored session from another store into this context's, which must not have it. */
  importSession(from: AnyStore, id: string): Promise<Copied> {
    const { core } = this;
    return core.json((promise) => storeFor(core, from, (store) => native.copySession(core.id, promise, store, id, true)));
  }

  /** Copies a stored session of this context into another store, which must not have it. */
  exportSession(to: AnyStore, id: string): Promise<Copied> {
    const { core } = this;
    return core.json((promise) => storeFor(core, to, (store) => native.copySession(core.id, promise, store, id, false)));
  }

  /** Runs `operation` as nobody's doing, although it is called inside a turn. */
  withoutInitiator<R>(operation: () => R): R {
    return asNobody(operation);
  }

  /**
   * Disposes every agent, makes everything durable, and undoes what was registered. The context cannot be used again.
   * Rejects with `SELF_WAIT` inside a turn of one of its agents.
   */
  close(): Promise<void> {
    return (this.#closing ??= this.#close().catch((error: unknown) => {
      if (!this.core.isClosed) this.#closing = undefined;
      throw error;
    }));
  }

  async #close(): Promise<void> {
    const { core } = this;
    const caller = core.caller();
    try {
      await core.promise((id) => native.close(core.id, id, caller.seat, caller.context));
    } catch (error) {
      if (error instanceof TurnwheelError && error.code === 'SELF_WAIT') throw error;
      this.#kill();
      throw error;
    }
    this.#kill();
  }

  /** Drops everything at once, as a crash would: nothing is stopped in order, stored or told. For tests of just that. */
  abandon(): void {
    if (!this.core.isClosed) this.#kill();
  }

  #kill(): void {
    native.kill(this.core.id);
    this.core.end();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
