// turnwheel: an embeddable, durable agent runtime.

import { native } from './native.js';

export { Agent, EventStream, Inbox, Receipt, type AwaitOptions, type RunOptions } from './agent.js';
export { Agents, Context, Models, type Budget, type ConfiguredAgent, type ContextOptions } from './context.js';
export { onWarning } from './core.js';
export { AbortError, ModelError, TurnwheelError } from './errors.js';
export type {
  Assembly,
  CallInfo,
  EventName,
  Listener,
  ListenOptions,
  Notice,
  Notices,
  Outcome,
  Payload,
  PostExecuteDecision,
  PreExecuteDecision,
  PreStepDecision,
  Serials,
  SessionNotice,
  Waterfalls,
} from './events.js';
export type * from './json.js';
export {
  BuiltInAdapter,
  ModelDouble,
  anthropicMessages,
  openAIChat,
  openAIResponses,
  repeated,
  scripted,
  type Adapter,
  type AnthropicMessagesOptions,
  type AnyAdapter,
  type FallbackRoute,
  type HttpOptions,
  type ModelInfo,
  type ModelInfos,
  type OpenAIChatOptions,
  type OpenAIResponsesOptions,
  type RetryPolicy,
  type RouteOptions,
  type ScriptedReply,
} from './models.js';
export { ModelSelection, Registrar, Scope, type AgentOptions, type ModelChoice, type PromptText, type Registration } from './registrar.js';
export { schemaOfShorthand, type ArgumentsOf, type FromSchema, type JsonSchema, type StandardSchema } from './schema.js';
export { Session, textOf, type CoreEvent, type Event, type EventData, type Price } from './session.js';
export {
  JsonlStore,
  type AnyStore,
  type Copied,
  type JsonlOptions,
  type RawLog,
  type ReferenceDatabase,
  type SessionWriter,
  type SqliteStore,
  type Store,
  type StoredSession,
} from './stores.js';
export { ToolResult, type ToolCall, type ToolOptions } from './tools.js';

/** Every error code of the runtime, with its number. */
export const codes: Readonly<Record<string, number>> = Object.freeze(JSON.parse(native.codes()) as Record<string, number>);

/** The texts of the runtime's own that reach a model, by key; texts of your own may follow one. */
export const texts: Readonly<Record<string, string>> = Object.freeze(JSON.parse(native.texts()) as Record<string, string>);
