// What can be registered, for everybody through a context and for one agent through the agent.

import { randomUUID } from 'node:crypto';
import { noticeNames, plain, registered, warning, type Core, type NoticeCallback } from './core.js';
import { decideCallback, serialCallback } from './decide.js';
import { noticeObject, type EventName, type Listener, type ListenOptions } from './events.js';
import type { Agent } from './agent.js';
import { invalid } from './errors.js';
import type { SessionHeader, ToolSchema } from './json.js';
import { registerModel, type AnyAdapter, type FallbackRoute, type RouteOptions } from './models.js';
import { typeNames } from './core.js';
import { native } from './native.js';
import { LogEvent, type Event, type Session } from './session.js';
import { registerTool, type ToolOptions } from './tools.js';
import type { JsonSchema, StandardSchema } from './schema.js';

/** Something registered. It stays until it is disposed or its owner ends. */
export interface Registration extends Disposable {
  dispose(): void;
}

/** A choice of model route. */
export interface ModelChoice {
  provider: string;
  model: string;
  reasoningEffort?: string;
}

/** A text for the prompt, or a function that computes it for each assembly; `undefined` is no text. */
export type PromptText = string | ((agent: Agent) => string | undefined);

/** A route that may be switched while an agent runs; a step under way keeps what it was assembled with. */
export class ModelSelection {
  readonly #core: Core;
  readonly #key: number;
  #current: ModelChoice | undefined;

  /** @internal */
  constructor(core: Core, key: number, choice: ModelChoice | undefined) {
    this.#core = core;
    this.#key = key;
    this.#current = choice;
    core.own(this, key);
  }

  /** The choice in force. */
  get current(): ModelChoice | undefined {
    return this.#current;
  }

  /** Switches; without a choice nothing is selected. */
  select(choice?: ModelChoice): void {
    native.select(this.#core.id, this.#key, JSON.stringify(choice ?? null));
    this.#current = choice;
  }
}

class Registered implements Registration {
  readonly #core: Core;
  #key: number;

  constructor(core: Core, key: number) {
    this.#core = core;
    this.#key = key;
    core.own(this, key);
  }

  dispose(): void {
    const key = this.#key;
    this.#key = 0;
    if (key !== 0 && !this.#core.isClosed) native.undo(this.#core.id, key);
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

interface Member {
  hear: (event: Event) => unknown;
  isActive: boolean;
}

/** Consecutive listeners of `session/event`: an event crosses the border once for all of them. */
class Group {
  members: Member[] = [];
  registration: Registration | undefined;

  readonly hear: NoticeCallback = (core, seat, _kind, seq, type) => {
    const event = new LogEvent(core.session(seat), seq as number, typeNames[type as number] ?? '') as unknown as Event;
    for (const member of this.members) {
      if (!member.isActive) continue;
      try {
        heard('session/event', member.hear(event));
      } catch (error) {
        warning('a listener of session/event failed', error);
      }
    }
  };
}

/** The group that was registered last in a core, while nothing else was. */
const lastGroups = new WeakMap<Core, { ctx: number; group: Group }>();

function heard(event: string, result: unknown): void {
  if (result instanceof Promise) result.catch((error: unknown) => warning(`a listener of ${event} failed`, error));
}

/** Options of an agent. */
export interface AgentOptions {
  provider?: string;
  model?: string;
  maxTokens?: number;
  /** The session's working directory; absolute. */
  cwd?: string;
  parentSession?: string;
  seedLength?: number;
  origin?: string;
  delegationDepth?: number;
  agentPreset?: string;
  /** `open` resumes what the store has under this id, or creates; the others insist. */
  mode?: 'open' | 'create' | 'resume';
  /** Starts from the events of a live session, up to and including `at` (by default its last `turn/end`). */
  fork?: { from: string; at?: number };
  /** History to start from. */
  seed?: unknown[];
  /** A whole log to resume from, as `session.toJSON()` gives it. */
  log?: { header: SessionHeader; events: unknown[] };
  /** Composes the agent before anybody can see it. It registers and cannot drive. */
  setup?: (scope: Scope) => void | Promise<void>;
  /** Cancels the opening, and nothing after it. */
  signal?: AbortSignal;
}

/** Registers listeners, tools and prompt inputs, and opens agents. */
export abstract class Registrar {
  /** @internal */
  readonly core: Core;
  readonly #open: () => number;
  #ctx = 0;

  /** @internal */
  constructor(core: Core, open: () => number) {
    this.core = core;
    this.#open = open;
  }

  /** @internal The key of the native context. */
  protected get ctx(): number {
    if (this.#ctx === 0) {
      this.#ctx = this.#open();
      this.core.own(this, this.#ctx);
    }
    return this.#ctx;
  }

  /**
   * Opens an agent: resumes what the store has under this id, or creates it; without an id under a new one. Through an agent: one that it owns, which
   * ends with it. Rejects with `SESSION_ALREADY_EXISTS` for an id that is live, `SESSION_LOCKED` for one that another
   * process writes, `CORRUPT_LOG` for a log damaged in the middle.
   */
  agent(id: string = randomUUID(), options: AgentOptions = {}): Promise<Agent> {
    return openAgent(this.core, () => this.ctx, id, options);
  }

  /**
   * Hears an event, or takes part in it. Notifications are told at the point where they happen; a waterfall's listener is
   * given its payload and `next`, and returns a decision, or nothing behind `await next()`; `agent/turn-stopping` waits
   * for its listeners.
   */
  on<Name extends EventName>(event: Name, listener: Listener<Name>, options: ListenOptions = {}): Registration {
    const { core, ctx } = this;
    const hear = listener as (payload: unknown, next?: () => Promise<unknown>) => unknown;
    const text = JSON.stringify(options);
    if (event === 'session/event' && text === '{}') return this.#onEvent(hear as (event: Event) => unknown);
    if (event === 'session/event') lastGroups.delete(core);
    let callback: unknown;
    if (event === 'session/event') {
      callback = ((core, seat, _kind, seq, type) => {
        heard(event, hear(new LogEvent(core.session(seat), seq as number, typeNames[type as number] ?? '')));
      }) satisfies NoticeCallback;
    } else if ((noticeNames as readonly string[]).includes(event)) {
      callback = ((core, seat, kind, about, detail) => {
        heard(event, hear(noticeObject(core, seat, kind, about as string, detail)));
        if (kind === 1) core.forgetLast(seat);
      }) satisfies NoticeCallback;
    } else if (event === 'agent/turn-stopping') callback = registered(serialCallback(hear));
    else callback = registered(decideCallback(event, hear));
    return new Registered(core, core.keepFor(callback, (id) => native.on(core.id, ctx, event, text, id)));
  }

  #onEvent(hear: (event: Event) => unknown): Registration {
    const { core, ctx } = this;
    const member: Member = { hear, isActive: true };
    const last = lastGroups.get(core);
    let group = last?.ctx === ctx && last.group.members.length > 0 ? last.group : undefined;
    if (group === undefined) {
      // A context that is over refuses before anything is remembered.
      const made = new Group();
      made.registration = new Registered(
        core,
        core.keepFor(made.hear, (id) => native.on(core.id, ctx, 'session/event', '{}', id)),
      );
      group = made;
      lastGroups.set(core, { ctx, group });
    }
    const joined = group;
    // Copied on every change: a delivery under way goes on with the listeners it began with.
    joined.members = [...joined.members, member];
    const dispose = (): void => {
      member.isActive = false;
      joined.members = joined.members.filter((other) => other !== member);
      if (joined.members.length === 0) joined.registration?.dispose();
    };
    return { dispose, [Symbol.dispose]: dispose };
  }

  /** Registers a tool. The types of its arguments are those of its parameters. */
  tool<const P extends StandardSchema | JsonSchema = JsonSchema, R = unknown>(tool: ToolOptions<P, R>): Registration {
    return new Registered(this.core, registerTool(this.core, this.ctx, tool as unknown as ToolOptions<StandardSchema | JsonSchema, unknown>));
  }

  /**
   * Registers what runs the model's programs, which the model sees as `run_code` where {@link Registrar.presentTools} asks
   * for it; inside it `call.call(name, args)` calls a tool. Parameters and body are those of a tool.
   */
  codeRunner<const P extends StandardSchema | JsonSchema = JsonSchema, R = unknown>(runner: Omit<ToolOptions<P, R>, 'name'>): Registration {
    const tool = { ...runner, name: 'run_code' } as unknown as ToolOptions<StandardSchema | JsonSchema, unknown>;
    return new Registered(this.core, registerTool(this.core, this.ctx, tool, true));
  }

  /**
   * Sets how the model uses tools: by calls (`native`), by programs for {@link Registrar.codeRunner} (`code`), or `both`.
   * The nearest declaration wins; a second one in the same scope is `DUPLICATE_NAME`.
   */
  presentTools(mode: 'native' | 'code' | 'both'): Registration {
    return new Registered(this.core, native.present(this.core.id, this.ctx, mode));
  }

  /** Registers an event type of a plug-in with the version of its data, as long as the context lasts. */
  registerEventType(type: string, version = 1): void {
    native.registerEventType(this.core.id, this.ctx, type, version);
  }

  /**
   * Lets the runtime check itself: the order of logs, the alternation of status, that every request can be rebuilt from
   * the log. A violation refuses what would break it, with code `INVARIANT`. `allow` and `block` are patterns of package
   * names (`turnwheel-session`, `turnwheel-agent`, `turnwheel-request`).
   */
  checkInvariants(options: { allow?: string[]; block?: string[] } = {}): Registration {
    return new Registered(this.core, native.invariants(this.core.id, this.ctx, JSON.stringify(options)));
  }

  /** The tools that are visible here, as a model sees them. */
  get tools(): ToolSchema[] {
    return JSON.parse(native.toolSchemas(this.core.id, this.ctx)) as ToolSchema[];
  }

  /** Lets `guard` refuse tool calls before they run: by the reason that it returns. */
  guardTools(guard: (call: { callId: string; name: string; arguments: unknown; agent: Agent | undefined }) => string | undefined): Registration {
    const { core, ctx } = this;
    const check = registered(({ seat, json }) => {
      const call = JSON.parse(json ?? '{}') as { callId: string; name: string; arguments: unknown };
      const reason = guard({ ...call, agent: seat === 0 ? undefined : core.agent(seat) });
      return reason === undefined ? undefined : JSON.stringify(reason);
    });
    return new Registered(core, core.keepFor(check, (id) => native.guard(core.id, ctx, id)));
  }

  /** Lets `check` refuse events before they are committed, by throwing. It may read, and not append. */
  checkEvents(check: (event: { type: string; seq: number; data: unknown }, session: Session) => void): Registration {
    const { core, ctx } = this;
    const callback = plain(({ seat, json }) => {
      check(JSON.parse(json ?? '{}') as { type: string; seq: number; data: unknown }, core.session(seat));
      return undefined;
    });
    return new Registered(core, core.keepFor(callback, (id) => native.checkEvents(core.id, ctx, id)));
  }

  /** Restricts what an agent inherits: through an agent or in its setup. */
  restrictTools(restriction: { allow?: string[]; deny?: string[] }): Registration {
    return new Registered(this.core, native.restrict(this.core.id, this.ctx, JSON.stringify(restriction)));
  }

  /** Registers a model route. */
  model(provider: string, adapter: AnyAdapter, options: RouteOptions = {}): Registration {
    return new Registered(this.core, registerModel(this.core, this.ctx, provider, adapter, options));
  }

  /** @internal */
  retryRequests(): Registration {
    return new Registered(this.core, native.retry(this.core.id, this.ctx));
  }

  /** @internal */
  fallBack(routes: FallbackRoute[]): Registration {
    return new Registered(this.core, native.fallback(this.core.id, this.ctx, JSON.stringify(routes)));
  }

  /** Lets a choice of route rule the agent: through an agent or in its setup. */
  modelSelection(choice?: ModelChoice): ModelSelection {
    const key = native.selection(this.core.id, this.ctx, JSON.stringify(choice ?? null));
    return new ModelSelection(this.core, key, choice);
  }

  #prompt(input: { [key: string]: unknown }, text?: PromptText): Registration {
    const { core, ctx } = this;
    let key: number | undefined;
    if (typeof text === 'function') {
      const compute = registered(({ seat }) => {
        const computed: unknown = text(core.agent(seat));
        return computed === undefined || computed === null ? undefined : JSON.stringify(computed);
      });
      key = core.keepFor(compute, (id) => native.prompt(core.id, ctx, JSON.stringify(input), id));
    } else key = native.prompt(core.id, ctx, JSON.stringify(text === undefined ? input : { ...input, text }), 0);
    return key === undefined ? { dispose: () => undefined, [Symbol.dispose]: () => undefined } : new Registered(core, key);
  }

  /** A section of the system prompt. Sections are sorted by `order`; a `complete` one is used alone. */
  section(name: string, text: PromptText, options: { order?: number; complete?: boolean } = {}): Registration {
    return this.#prompt({ kind: options.complete === true ? 'complete' : 'section', name, order: options.order ?? 0 }, text);
  }

  /** A variable, for `{{name}}` in sections; without a text it has no value. */
  variable(name: string, text?: PromptText): Registration {
    return this.#prompt({ kind: 'variable', name }, text);
  }

  /** A text that is put before the model when it changed. */
  context(name: string, text: PromptText, options: { order?: number } = {}): Registration {
    return this.#prompt({ kind: 'context', name, order: options.order ?? 0 }, text);
  }

  /** Who the model is to be: the section at the very top. */
  persona(text: PromptText): Registration {
    return this.#prompt({ kind: 'persona' }, text);
  }

  /** The fixed sentence that says what the model runs in. */
  identity(): Registration {
    return this.#prompt({ kind: 'identity' });
  }

  /** Leaves runtime contexts out. */
  suppressContexts(): Registration {
    return this.#prompt({ kind: 'suppress-contexts' });
  }

  /** The order in which tools are shown: these names first; without names by name. Lasts as long as the context. */
  toolOrder(names?: string[]): void {
    this.#prompt({ kind: 'tool-order', ...(names === undefined ? {} : { names }) });
  }
}

/** The scope of an agent being composed: what a `setup` function gets. */
export class Scope extends Registrar {
  /** @internal */
  constructor(core: Core, ctx: number) {
    super(core, () => ctx);
  }
}

async function openAgent(core: Core, ctx: () => number, id: string, options: AgentOptions): Promise<Agent> {
  if (typeof id !== 'string') throw invalid(`an agent's id is a text, not a ${typeof id}`);
  const { setup, signal, ...rest } = options;
  signal?.throwIfAborted();
  const caller = core.caller();
  const composing =
    setup === undefined
      ? undefined
      : registered(({ key }) => {
          const composed = setup(new Scope(core, key));
          return composed instanceof Promise ? composed.then(() => undefined) : undefined;
        });
  const open = (setupId: number): Promise<number> =>
    core.promise<number>(
      (promise) => native.openAgent(core.id, promise, ctx(), id, JSON.stringify(rest), setupId, 0, caller.seat, caller.context),
      signal,
    );
  const seat = await (composing === undefined ? open(0) : core.keepFor(composing, open));
  return core.agent(seat);
}
