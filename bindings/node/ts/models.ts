// Model routes: adapters that come with the runtime, by their options, and adapters of your own, as async generators.

import { registered, type About, type Callback, type Core } from './core.js';
import { invalid } from './errors.js';
import type { Chunk, Failure, ModelRequest, Usage } from './json.js';
import { native } from './native.js';

/** What is known of a model. */
export interface ModelInfo {
  contextWindow?: number;
  defaultMaxTokens?: number;
  efforts?: string[];
  defaultEffort?: string;
  inputModalities?: string[];
}

/** What is known of the models of a route, by name. Unlisted models exist and advertise nothing. */
export interface ModelInfos {
  models?: { [name: string]: ModelInfo };
}

/** Options of {@link openAIChat}. */
export interface OpenAIChatOptions extends ModelInfos {
  baseUrl: string;
  apiKey?: string;
  /** The environment variable that holds the key. */
  apiKeyEnv?: string;
  headers?: { [name: string]: string };
  /** Members to add to every request. */
  extra?: { [name: string]: unknown };
  idleTimeoutMs?: number;
  eventIdleTimeoutMs?: number;
  connectTimeoutMs?: number;
  allowInsecureHttp?: boolean;
  maxTokensMember?: string;
  reasoningInHistory?: boolean;
  thinkingMember?: boolean;
}

/** A reply of {@link scripted}. Blocks come in the order reasoning, text, calls. */
export interface ScriptedReply {
  reasoning?: string;
  text?: string;
  calls?: { id: string; name: string; arguments?: unknown }[];
  usage?: Usage;
  finish?: 'stop' | 'tool-calls' | 'max-tokens';
  error?: Failure;
  /** Cuts texts and arguments into deltas of so many characters. */
  chunkSize?: number;
  /** The time before each chunk. */
  delayMs?: number;
  replayState?: unknown;
}

/** An adapter that comes with the runtime. */
export class BuiltInAdapter {
  /** @internal */
  readonly options: { [key: string]: unknown };

  /** @internal */
  constructor(kind: string, options: object) {
    this.options = { kind, ...options };
  }
}

/** Chat completions of an OpenAI-compatible server. */
export function openAIChat(options: OpenAIChatOptions): BuiltInAdapter {
  return new BuiltInAdapter('openai-chat', options);
}

/** A model that answers from a script: for demonstrations, tests and measurements. It opens no socket. */
export function scripted(...replies: (string | ScriptedReply)[]): BuiltInAdapter {
  return new BuiltInAdapter('scripted', { replies: replies.map(reply) });
}

/** A model that always gives the same answer. */
export function repeated(answer: string | ScriptedReply): BuiltInAdapter {
  return new BuiltInAdapter('scripted', { otherwise: reply(answer) });
}

function reply(value: string | ScriptedReply): ScriptedReply {
  return typeof value === 'string' ? { text: value } : value;
}

/** An adapter of your own: gives the pieces of one answer. Stop at once when `signal` fires. */
export type Adapter = (
  request: ModelRequest,
  options: { signal: AbortSignal },
) => AsyncIterable<Chunk> | Iterable<Chunk> | Promise<AsyncIterable<Chunk> | Iterable<Chunk>>;

/** The options that a callback of native code gives an adapter. */
class Request {
  readonly #about: About;
  #signal: AbortSignal | undefined;

  constructor(about: About) {
    this.#about = about;
  }

  get signal(): AbortSignal {
    return (this.#signal ??= this.#about.core.signal(this.#about.key));
  }
}

function push(about: About, chunk: Chunk): boolean {
  const { core, key, context } = about;
  return core.within(context === 0 ? -1 : context, () => {
    // Text makes up most of an answer and crosses without JSON.
    if (chunk.type === 'text-delta' || chunk.type === 'reasoning-delta') {
      const { index, text } = chunk;
      if (typeof text === 'string' && Number.isInteger(index) && index >= 0) {
        return native.pushText(core.id, key, index, text, chunk.type === 'reasoning-delta');
      }
    }
    return native.push(core.id, key, JSON.stringify(chunk) ?? 'null');
  });
}

function turnOfTheLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

async function feed(about: About, chunks: AsyncIterable<Chunk> | Iterable<Chunk>): Promise<undefined> {
  for await (const chunk of chunks) {
    if (!push(about, chunk)) await turnOfTheLoop();
  }
}

function adapterCallback(adapter: Adapter): Callback {
  return (about) => {
    // The request is made when the adapter looks at it.
    let request: ModelRequest | undefined;
    const lazy = new Proxy({} as ModelRequest, lazyHandler(() => (request ??= JSON.parse(native.subject(about.core.id, about.key)) as ModelRequest)));
    const chunks = adapter(lazy, new Request(about));
    return chunks instanceof Promise ? chunks.then((chunks) => feed(about, chunks)) : feed(about, chunks);
  };
}

function lazyHandler(read: () => object): ProxyHandler<ModelRequest> {
  return {
    get: (_, name) => Reflect.get(read(), name) as unknown,
    has: (_, name) => Reflect.has(read(), name),
    ownKeys: () => Reflect.ownKeys(read()),
    getOwnPropertyDescriptor: (_, name) => {
      const descriptor = Reflect.getOwnPropertyDescriptor(read(), name);
      return descriptor === undefined ? undefined : { ...descriptor, configurable: true };
    },
  };
}

/** @internal */
export function registerModel(core: Core, ctx: number, provider: string, adapter: BuiltInAdapter | Adapter, infos: ModelInfos): number {
  if (adapter instanceof BuiltInAdapter) {
    return native.model(core.id, ctx, provider, JSON.stringify({ ...adapter.options, ...infos }), 0);
  }
  if (typeof adapter !== 'function') {
    throw invalid('an adapter is openAIChat({…}), scripted(…) or an async generator function of the request');
  }
  return core.keepFor(registered(adapterCallback(adapter)), (id) => native.model(core.id, ctx, provider, JSON.stringify(infos), id));
}
