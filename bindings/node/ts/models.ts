// Model routes: adapters that come with the runtime, by their options, and adapters of your own, as async generators.

import { registered, type About, type Callback, type Core } from './core.js';
import { invalid } from './errors.js';
import type { CallConfig, Chunk, Failure, Message, ModelRequest, ToolSchema, Usage } from './json.js';
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

/** Options that every adapter over HTTP has. */
export interface HttpOptions extends ModelInfos {
  apiKey?: string;
  /** The environment variable that holds the key. */
  apiKeyEnv?: string;
  headers?: { [name: string]: string };
  connectTimeoutMs?: number;
  firstByteTimeoutMs?: number;
  idleTimeoutMs?: number;
  eventIdleTimeoutMs?: number;
  totalTimeoutMs?: number;
  allowInsecureHttp?: boolean;
  caFile?: string;
  proxy?: string;
  http2?: boolean;
  imagesFolder?: string;
  /** Members to add to every request. */
  extra?: { [name: string]: unknown };
}

/** Options of {@link openAIChat}. */
export interface OpenAIChatOptions extends HttpOptions {
  baseUrl: string;
  dialect?: string;
  asksUsage?: boolean;
  maxTokensMember?: string;
  reasoningInHistory?: boolean;
  thinkingMember?: boolean;
}

/** Options of {@link openAIResponses}. */
export interface OpenAIResponsesOptions extends HttpOptions {
  /** Ends before `/responses`. */
  baseUrl?: string;
  /** `auto` asks for visible reasoning. */
  reasoningSummary?: string;
  /** `false` is for servers that refuse it. */
  encryptedReasoning?: boolean;
}

/** Options of {@link anthropicMessages}. */
export interface AnthropicMessagesOptions extends HttpOptions {
  /** Ends before `/v1/messages`. */
  baseUrl?: string;
  version?: string;
  betas?: string[];
  /** Whether prompt, tools and the last two user messages are marked as cacheable. */
  cacheMarkers?: boolean;
  /** Sends the key as `authorization`, as gateways want it. */
  bearer?: boolean;
  defaultMaxTokens?: number;
  /** Gives efforts a budget in tokens, as older models want it. */
  thinkingBudgets?: { [effort: string]: number };
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
  /** Which one it is, for example `openai-chat`. */
  readonly kind: string;
  // Private, because they may hold a key: no inspection of the object shows them.
  readonly #options: object;

  /** @internal */
  constructor(kind: string, options: object) {
    this.kind = kind;
    this.#options = options;
  }

  /** @internal */
  static optionsOf(adapter: BuiltInAdapter): object {
    return adapter.#options;
  }
}

/** Chat completions of an OpenAI-compatible server. */
export function openAIChat(options: OpenAIChatOptions): BuiltInAdapter {
  return new BuiltInAdapter('openai-chat', options);
}

/** The responses wire of OpenAI and servers that speak it. The whole history is sent every time; nothing is stored there. */
export function openAIResponses(options: OpenAIResponsesOptions = {}): BuiltInAdapter {
  return new BuiltInAdapter('openai-responses', { baseUrl: 'https://api.openai.com/v1', ...options });
}

/** Anthropic's messages wire: Anthropic, and servers that speak it. Signed thinking goes back as it came. */
export function anthropicMessages(options: AnthropicMessagesOptions = {}): BuiltInAdapter {
  return new BuiltInAdapter('anthropic-messages', { baseUrl: 'https://api.anthropic.com', ...options });
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

/** After so many chunks in one burst the runtime goes on with them, and timers get their turn if it is theirs. */
const burst = 256;

/** What stands between the texts of a run; a text that has one crosses by itself. */
const between = '\0';

/** Whether a text may be part of a run: lone surrogates of neighbours would become one character. */
function isWhole(text: string): boolean {
  return !text.includes(between) && (text as string & { isWellFormed(): boolean }).isWellFormed();
}

let waitingFeeds: Feed[] = [];

function flushAll(): void {
  const feeds = waitingFeeds;
  waitingFeeds = [];
  for (const feed of feeds) feed.flushLater();
}

/**
 * Chunks on their way into the runtime. A burst of them goes in together: at the end of the turn of the event loop in
 * which they came, or with the end of the answer. Text makes up most of an answer: a run of it crosses once, without JSON.
 */
class Feed {
  readonly #about: About;
  #texts: string[] = [];
  #index = 0;
  #isReasoning = false;
  #waiting = 0;
  #isScheduled = false;
  #failure: unknown;

  constructor(about: About) {
    this.#about = about;
  }

  /** Adds a chunk; says whether the burst is long enough to be flushed. Throws when nobody reads any more. */
  push(chunk: Chunk): boolean {
    if (this.#failure !== undefined) throw this.#failure;
    const { type } = chunk;
    if ((type === 'text-delta' || type === 'reasoning-delta') && typeof chunk.text === 'string' && chunk.index >= 0 && isWhole(chunk.text)) {
      const isReasoning = type === 'reasoning-delta';
      if (chunk.index !== this.#index || isReasoning !== this.#isReasoning) {
        this.hand();
        this.#index = chunk.index;
        this.#isReasoning = isReasoning;
      }
      this.#texts.push(chunk.text);
    } else {
      this.hand();
      native.push(this.#about.core.id, this.#about.key, JSON.stringify(chunk) ?? 'null');
    }
    return (this.#waiting += 1) >= burst;
  }

  /** Hands over the run of texts. */
  hand(): void {
    if (this.#texts.length === 0) return;
    const texts = this.#texts.join(between);
    this.#texts = [];
    native.pushTexts(this.#about.core.id, this.#about.key, this.#index, texts, this.#isReasoning);
  }

  /** Lets the runtime go on with what waits; says whether it could do so at once. */
  flush(): boolean {
    const { core, context } = this.#about;
    if (this.#waiting === 0 || core.isClosed) return true;
    this.#waiting = 0;
    this.hand();
    return core.within(context === 0 ? -1 : context, () => native.flush(core.id));
  }

  /** Lets the runtime go on when this turn of the event loop is over. */
  later(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    if (waitingFeeds.push(this) === 1) setImmediate(flushAll);
  }

  /** As {@link Feed.flush}, from where nobody could catch an error: the adapter meets it at its next chunk. */
  flushLater(): void {
    this.#isScheduled = false;
    try {
      this.flush();
    } catch (error) {
      this.#failure = error;
    }
  }

  /** The answer is over, in one way or the other. */
  end(): void {
    this.#waiting = 0;
    if (!this.#about.core.isClosed) this.hand();
  }
}

function turnOfTheLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

async function feed(about: About, chunks: AsyncIterable<Chunk> | Iterable<Chunk>): Promise<undefined> {
  const into = new Feed(about);
  try {
    if (Symbol.asyncIterator in chunks) {
      for await (const chunk of chunks) {
        if (!into.push(chunk)) into.later();
        else if (!into.flush()) await turnOfTheLoop();
      }
    } else {
      for (const chunk of chunks) {
        if (into.push(chunk) && !into.flush()) await turnOfTheLoop();
      }
    }
  } catch (error) {
    // What came before the failure is part of the answer.
    try {
      into.end();
    } catch {
      // Nobody reads any more, which the failure says as well.
    }
    throw error;
  }
  into.end();
  return undefined;
}

/** A request, made as the adapter looks at it. Messages that were read before are not read again. */
class LazyRequest implements ModelRequest {
  readonly #about: About;
  #head: Omit<ModelRequest, 'messages'> | undefined;
  #messages: Message[] | undefined;

  constructor(about: About) {
    this.#about = about;
  }

  get #known(): Omit<ModelRequest, 'messages'> {
    return (this.#head ??= JSON.parse(native.subject(this.#about.core.id, this.#about.key)) as ModelRequest);
  }

  get config(): CallConfig {
    return this.#known.config;
  }

  get system(): string | undefined {
    return this.#known.system;
  }

  get tools(): ToolSchema[] | undefined {
    return this.#known.tools;
  }

  get sessionId(): string | undefined {
    return this.#known.sessionId;
  }

  get messages(): Message[] {
    return (this.#messages ??= this.#read());
  }

  #read(): Message[] {
    const { core, key, seat } = this.#about;
    const session = seat === 0 ? undefined : core.session(seat);
    const before = session?.sent ?? [];
    const [from, more] = JSON.parse(native.requestMessages(core.id, key, before.length)) as [number, Message[]];
    const messages = from === before.length ? [...before, ...more.map(frozen)] : more.map(frozen);
    if (session !== undefined) session.sent = messages;
    return [...messages];
  }

  /** The request as plain data. */
  toJSON(): ModelRequest {
    return { ...this.#known, messages: this.messages };
  }
}

function frozen<T>(value: T): T {
  if (value === null || typeof value !== 'object') return value;
  for (const member of Object.values(value)) frozen(member);
  return Object.freeze(value);
}

function adapterCallback(adapter: Adapter): Callback {
  return (about) => {
    const chunks = adapter(new LazyRequest(about), new Request(about));
    return chunks instanceof Promise ? chunks.then((chunks) => feed(about, chunks)) : feed(about, chunks);
  };
}

/** When a failed request is sent again, once {@link Models.retry} is asked for. */
export interface RetryPolicy {
  /** `always` retries whatever fails, for ever. */
  mode?: 'normal' | 'always';
  maxRetries?: number;
  retryableCodes?: string[];
  initialDelayMs?: number;
  maxDelayMs?: number;
  /** How much of a delay is random, from 0 to 1. */
  jitterRatio?: number;
}

/** Options of a model route. */
export interface RouteOptions extends ModelInfos {
  retry?: RetryPolicy;
  /** Shared by every agent of the context that uses the route. */
  requestsPerMinute?: number;
  tokensPerMinute?: number;
}

/** A route to go to when one has failed for good. */
export interface FallbackRoute {
  provider: string;
  model: string;
  reasoningEffort?: string;
  temperature?: number;
  maxTokens?: number;
  stop?: string[];
}

/** A double for a model, of `turnwheel/testing`. */
export class ModelDouble {
  /** Which one it is: `faulty`, `record` or `replay`. */
  readonly kind: string;
  /** @internal */
  readonly options: object;
  /** @internal */
  readonly inner: AnyAdapter | undefined;

  /** @internal */
  constructor(options: { kind: string; [name: string]: unknown }, inner?: AnyAdapter) {
    this.kind = options.kind;
    this.options = options;
    this.inner = inner;
  }
}

/** What answers requests: an adapter that comes with the runtime, one of your own, or a double. */
export type AnyAdapter = BuiltInAdapter | Adapter | ModelDouble;

/** Calls `use` with an adapter as native code takes it, for as long as that takes. */
function adapterFor<T>(core: Core, adapter: AnyAdapter, infos: ModelInfos, use: (value: object) => T): T {
  if (adapter instanceof BuiltInAdapter) return use({ kind: adapter.kind, ...BuiltInAdapter.optionsOf(adapter), ...infos });
  if (adapter instanceof ModelDouble) {
    const { inner, options } = adapter;
    if (inner === undefined) return use({ double: options });
    return adapterFor(core, inner, infos, (inner) => use({ double: options, inner }));
  }
  if (typeof adapter !== 'function') {
    throw invalid('an adapter is openAIChat({…}), scripted(…) or an async generator function of the request');
  }
  return core.keepFor(registered(adapterCallback(adapter)), (own) => use({ own, ...infos }));
}

/** @internal */
export function registerModel(core: Core, ctx: number, provider: string, adapter: AnyAdapter, options: RouteOptions): number {
  const { models, ...route } = options;
  const infos = models === undefined ? {} : { models };
  return adapterFor(core, adapter, infos, (value) =>
    native.model(core.id, ctx, provider, JSON.stringify(value), JSON.stringify(route)),
  );
}
