// The shapes of the log, as JSON. Every object may carry further members: what is not known here is kept as it is.

/** Any JSON value. */
export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

/** A piece of a message. */
export type Block =
  | { type: 'text'; text: string }
  | { type: 'reasoning'; text: string; [key: string]: unknown }
  | { type: 'tool-call'; id: string; name: string; arguments: string; [key: string]: unknown }
  | { type: 'tool-result'; toolCallId: string; content: Block[]; isError?: boolean; [key: string]: unknown }
  | { type: string; [key: string]: unknown };

/** Where a message came from. `kind` is `user` unless something else put it there. */
export interface Source {
  kind: string;
  [key: string]: unknown;
}

/** A message as the log has it. */
export interface Message {
  id: string;
  role: 'user' | 'assistant';
  content: Block[];
  source?: Source;
  [key: string]: unknown;
}

/** A message to send: a text, or an object of which everything but `content` may be missing. */
export type MessageInput =
  | string
  | { id?: string; role?: 'user'; content: string | Block[]; source?: Source; [key: string]: unknown };

/** Tokens. Input, cache reads and cache writes are disjoint; reasoning is contained in output. */
export interface Usage {
  inputTokens: number;
  outputTokens: number;
  cacheReadTokens?: number;
  cacheWriteTokens?: number;
  reasoningTokens?: number;
}

/** What a model's provider reported about a failure. */
export interface Failure {
  code: string;
  message: string;
  status?: number;
  providerRetryAfterMs?: number;
  [key: string]: unknown;
}

/** Why something was cancelled. */
export type CancelCause =
  | { kind: 'user' }
  | { kind: 'parent' }
  | { kind: 'hook'; reason: string }
  | { kind: string; [key: string]: unknown };

/** Why a turn ended. */
export type TurnEndReason =
  | { kind: 'completed' }
  | { kind: 'blocked' }
  | { kind: 'max-tokens' }
  | { kind: 'aborted'; reason: CancelCause }
  | { kind: 'error'; error: { message: string; code: string; [key: string]: unknown } }
  | { kind: string; [key: string]: unknown };

/** A pending list: `next-turn` queues a prompt for a turn of its own, `next-step` adds to the turn under way. */
export type Target = 'next-turn' | 'next-step';

/** Why nothing is going to read a pending message before the next wake. */
export type Parked =
  | { kind: 'not-woken' }
  | { kind: 'resumed' }
  | { kind: 'turn-ending' }
  | { kind: 'turn-ended'; turn: number; reason: TurnEndReason };

/** What became of a message; `why` is there when it is parked, `step` once the step it was taken for has started. */
export type ReceiptState =
  | { kind: 'pending'; target: Target; parked: boolean; why?: Parked }
  | { kind: 'claimed'; turn: number; step?: number }
  | { kind: 'discarded'; seq: number; replacedBy?: string }
  | { kind: 'ended'; turn: number; reason: TurnEndReason };

/** What an owned run brought. */
export interface RunResult {
  turn: number;
  reason: TurnEndReason;
  /** The text of the last assistant message. */
  text: string;
  /** The messages that the turn put before the model, in order. */
  messages: Message[];
  /** The tokens of all its requests. */
  usage: Usage;
}

/** What an agent is doing. */
export interface AgentState {
  phase: 'idle' | 'maintenance' | 'running';
  turn: number;
  step: number;
  runningTools: string[];
  latch: string[];
  parked: string[];
  nextStep: number;
  nextTurn: number;
}

/** A session's header. */
export interface SessionHeader {
  version: number;
  id: string;
  createdAt: number;
  cwd?: string;
  parentSession?: string;
  seedLength?: number;
  origin?: string;
  delegationDepth?: number;
  agentPreset?: string;
  [key: string]: unknown;
}

/** A tool as the model sees it. */
export interface ToolSchema {
  name: string;
  description: string;
  parameters: { [key: string]: unknown };
}

/** What a model request asks for. */
export interface CallConfig {
  provider: string;
  model: string;
  maxTokens?: number;
  temperature?: number;
  reasoningEffort?: string;
  [key: string]: unknown;
}

/** A model request, as it is sent. Its messages are frozen; copy what you change. */
export interface ModelRequest {
  readonly config: CallConfig;
  readonly system?: string | undefined;
  readonly tools?: ToolSchema[] | undefined;
  readonly messages: Message[];
  readonly sessionId?: string | undefined;
}

/** A piece of a model's answer. Blocks open, grow by deltas and close; a `finish` ends the answer. */
export type Chunk =
  | { type: 'block-start'; index: number; blockType: 'text' | 'reasoning' | 'tool-call' }
  | { type: 'text-delta'; index: number; text: string }
  | { type: 'reasoning-delta'; index: number; text: string }
  | { type: 'tool-call-delta'; index: number; id?: string; name?: string; argumentsDelta: string }
  | { type: 'block-end'; index: number; block: Block }
  | { type: 'usage'; usage: Usage }
  | { type: 'finish'; reason: FinishReason; replayState?: unknown };

/** Why an answer ended. */
export type FinishReason =
  | { kind: 'stop' | 'tool-calls' | 'max-tokens' }
  | { kind: 'error' | 'aborted'; failure: Failure };
