// Waterfall and serial listeners as callbacks of native code.

import type { About, Callback } from './core.js';
import { invalid, TurnwheelError } from './errors.js';
import { Subject } from './events.js';
import { native } from './native.js';

type AnyListener = (payload: unknown, next: () => Promise<unknown>) => unknown;

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return value !== null && typeof value === 'object' && typeof (value as { then?: unknown }).then === 'function';
}

/** What a waterfall listener may still learn of what is inside it. */
class Inner {
  text: string | undefined;
  value: unknown;
}

function answer(event: string, decision: unknown, inner: Inner): string | undefined {
  if (decision === undefined) return undefined;
  if (isThenable(decision)) throw invalid(`a decision of ${event} holds a promise that was not awaited`);
  let text: string | undefined;
  try {
    text = JSON.stringify(decision);
  } catch (error) {
    throw new TurnwheelError('INVALID_ARGUMENT', `the decision of a listener of ${event} is not JSON: ${(error as Error).message}`, { cause: error });
  }
  if (text === undefined) throw invalid(`the decision of a listener of ${event} is not JSON: a ${typeof decision}`);
  // What came from inside and was not changed stays what it was in there: nothing crosses the border again.
  return decision === inner.value && text === inner.text ? undefined : text;
}

/** @internal */
export function decideCallback(event: string, listener: AnyListener): Callback {
  return (about: About) => {
    const { core, key } = about;
    const payload = new Subject(about);
    const inner = new Inner();
    const next = (): Promise<unknown> =>
      core
        .promise<string>((id) => native.next(core.id, id, key, payload.edited()))
        .then((text) => {
          const value: unknown = JSON.parse(text);
          if (inner.text === undefined) {
            inner.text = text;
            inner.value = value;
          }
          return value;
        });
    const decided = listener(payload, next);
    return isThenable(decided) ? decided.then((decision) => answer(event, decision, inner)) : answer(event, decided, inner);
  };
}

/** @internal */
export function serialCallback(listener: (payload: unknown) => unknown): Callback {
  return (about: About) => {
    const heard = listener(new Subject(about));
    return isThenable(heard) ? heard.then(() => undefined) : undefined;
  };
}
