// Errors. Whatever the runtime refuses is a TurnwheelError with a stable code; what your own code threw comes out as it
// went in, the same object.

import type { CancelCause, Failure, Json } from './json.js';

/** What the runtime says of an error. */
export interface ErrorFacts {
  code: string;
  number?: number;
  message: string;
  name?: string;
  context?: { [key: string]: Json };
  failure?: Failure;
  retry?: { afterMs: number };
  cause?: ErrorFacts;
}

/** An error of the runtime. `code` is stable and listed in `codes`; `context` has the facts as data. */
export class TurnwheelError extends Error {
  override name = 'TurnwheelError';
  /** The stable code, for example `DUPLICATE_MESSAGE`. */
  readonly code: string;
  /** Facts about the error, for example the id that was refused. */
  readonly context: { [key: string]: Json };
  /** What a model's provider reported, if that is what failed. */
  readonly failure: Failure | undefined;
  /** Advice: after how many milliseconds to try again. */
  readonly retry: { afterMs: number } | undefined;

  constructor(code: string, message: string, options: { context?: { [key: string]: Json }; failure?: Failure; retry?: { afterMs: number }; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.context = options.context ?? {};
    this.failure = options.failure;
    this.retry = options.retry;
  }
}

/** Why an `AbortSignal` of the runtime fired: its `reason`. The typed cause is `cause`. */
export class AbortError extends TurnwheelError {
  override name = 'AbortError';
  override readonly cause: CancelCause;

  constructor(cause: CancelCause) {
    super('ABORTED', `aborted (cause: ${cause.kind})`, { context: { cause: cause.kind } });
    this.cause = cause;
  }
}

/** A failure of a model's provider, for adapters of your own to throw. A listener of `agent/request-error` sees `failure`. */
export class ModelError extends TurnwheelError {
  override name = 'ModelError';
  override readonly failure: Failure;

  constructor(failure: Failure, options: { cause?: unknown } = {}) {
    super('MODEL_FAILED', failure.message, options);
    this.failure = failure;
  }
}

/** @internal */
export function fromFacts(facts: ErrorFacts): TurnwheelError {
  const { code, message, context, failure, retry } = facts;
  const cause = facts.cause === undefined ? undefined : fromFacts(facts.cause);
  if (code === 'ABORTED' && typeof context?.['cause'] === 'string' && cause === undefined) {
    return new AbortError({ kind: context['cause'] });
  }
  const options: ConstructorParameters<typeof TurnwheelError>[2] = {};
  if (context !== undefined) options.context = context;
  if (failure !== undefined) options.failure = failure;
  if (retry !== undefined) options.retry = retry;
  if (cause !== undefined) options.cause = cause;
  return new TurnwheelError(code, message, options);
}

/** @internal A usage error of the TypeScript half. */
export function invalid(message: string): TurnwheelError {
  return new TurnwheelError('INVALID_ARGUMENT', message);
}
