// Tools: definitions with inferred argument types, and what a body is given and may return.

import { registered, type About, type Callback, type Core } from './core.js';
import { Subject, type Outcome } from './events.js';
import type { Agent } from './agent.js';
import type { Block, Json, MessageInput } from './json.js';
import { native } from './native.js';
import { checked, isStandard, jsonSchemaOf, type ArgumentsOf, type JsonSchema, type StandardSchema } from './schema.js';

/** One call of a tool, as its body sees it. */
export interface ToolCall {
  /** The id that the model gave. */
  readonly callId: string;
  readonly name: string;
  /** The arguments as the model gave them. */
  readonly arguments: Json;
  readonly agent: Agent | undefined;
  readonly agentId: string | undefined;
  /** Fires when the turn is cancelled or the call's time is over. The body is awaited all the same. */
  readonly signal: AbortSignal;
  /** Calls another tool on this call's account: guards, listeners and limits apply, and the log has both calls. */
  call(name: string, args?: unknown): Promise<Outcome>;
  /** Adds a message for the next step. */
  deferContext(message: MessageInput): void;
  /** Ends the turn with this step if the call succeeds. */
  concludeTurn(): void;
}

/** A tool's answer with more than a value. */
export class ToolResult {
  /** @internal */
  readonly output: { content?: string | Block[]; value?: unknown; meta?: unknown };

  /** `content` is what the model sees, a text or blocks; or `value`, which is rendered for it. `meta` is for whoever redraws the call. */
  constructor(output: { content?: string | Block[]; value?: unknown; meta?: unknown }) {
    this.output = output;
  }
}

/** What a tool is. */
export interface ToolOptions<P extends StandardSchema | JsonSchema, R> {
  name: string;
  /** What the tool does, for the model. */
  description?: string;
  /** The arguments: a Standard Schema such as Zod's, or a JSON Schema (written `as const` it types the arguments). */
  parameters?: P;
  /** The JSON Schema to show the model, for a Standard Schema that cannot tell it. */
  jsonSchema?: JsonSchema;
  /** The JSON Schema of the returned value; a violation is `INVALID_TOOL_OUTPUT`. */
  output?: JsonSchema;
  /** Whether calls may overlap their siblings; a function decides by the arguments. */
  parallel?: boolean | ((args: ArgumentsOf<P>) => boolean);
  /** How long a call may take: its signal fires, and the body is awaited. */
  timeoutMs?: number;
  /** `false` hands arguments to the body as they come. */
  checked?: boolean;
  /** Replaces what the model sees of each result, last of all. */
  finalize?: (result: { content: Block[]; isError: boolean; value?: Json }) => string | Block[] | undefined;
  /** The body. A string goes to the model as it is, anything else as JSON; `undefined` is no content. */
  execute: (args: ArgumentsOf<P>, call: ToolCall) => R | Promise<R>;
}

class Call extends Subject {
  declare readonly callId: string;
  declare readonly name: string;
  declare readonly arguments: Json;

  call(name: string, args: unknown = {}): Promise<Outcome> {
    const { core, key } = this.about;
    const caller = core.caller();
    const text = JSON.stringify(args) ?? 'null';
    return core.json((id) => native.callTool(core.id, id, key, name, text, caller.seat, caller.context));
  }

  deferContext(message: MessageInput): void {
    native.deferContext(this.about.core.id, this.about.key, JSON.stringify(message));
  }

  concludeTurn(): void {
    native.concludeTurn(this.about.core.id, this.about.key);
  }
}

function outputText(result: unknown): string {
  if (result instanceof ToolResult) {
    const { content, value, meta } = result.output;
    if (content === undefined) return JSON.stringify({ value: value ?? null, meta });
    return JSON.stringify({ content, meta });
  }
  if (result === undefined) return '{"content":[]}';
  const text = JSON.stringify(result);
  if (text === undefined) throw new TypeError(`a tool returns JSON, not a ${typeof result}`);
  return `{"value":${text}}`;
}

/** @internal */
export function registerTool(core: Core, ctx: number, tool: ToolOptions<StandardSchema | JsonSchema, unknown>, isRunner = false): number {
  const { execute, parallel, finalize, parameters, jsonSchema, ...rest } = tool as ToolOptions<StandardSchema | JsonSchema, unknown> & {
    [key: string]: unknown;
  };
  const standard = parameters !== undefined && isStandard(parameters) ? parameters : undefined;
  const options: { [key: string]: unknown } = { ...rest };
  if (standard !== undefined) {
    options['parameters'] = jsonSchema ?? jsonSchemaOf(tool.name, standard);
    options['checked'] = false;
  } else if (parameters !== undefined) options['parameters'] = parameters;
  if (parallel === true) options['parallel'] = true;
  const isChecked = tool.checked !== false;
  const body: Callback = (about: About) => {
    const call = new Call(about) as Call & ToolCall;
    const run = (args: unknown): unknown => (execute as (args: unknown, call: ToolCall) => unknown)(args, call);
    const given = call.arguments;
    const result = standard !== undefined && isChecked ? checked(standard, given).then(run) : run(given);
    if (result instanceof Promise) return result.then(outputText);
    if (result !== null && typeof result === 'object' && typeof (result as { then?: unknown }).then === 'function') {
      return Promise.resolve(result).then(outputText);
    }
    return outputText(result);
  };
  const classify = typeof parallel === 'function' ? parallel : undefined;
  return core.keepFor(registered(body), (bodyId) =>
    withKept(core, classify === undefined ? undefined : ({ json }) => String(classify(JSON.parse(json ?? 'null') as never)), (classifyId) =>
      withKept(
        core,
        finalize === undefined ? undefined : ({ json }) => JSON.stringify(finalize(JSON.parse(json ?? '{}') as never)),
        (finalizeId) => native.tool(core.id, ctx, JSON.stringify(options), bodyId, classifyId, finalizeId, isRunner),
      ),
    ),
  );
}

function withKept<T>(core: Core, callback: Callback | undefined, use: (id: number) => T): T {
  return callback === undefined ? use(0) : core.keepFor(registered(callback), use);
}
