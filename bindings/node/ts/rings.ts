// Rings of turns that wait for each other through JavaScript (D-18).
//
// The core cannot tell what a tool's body awaits, and neither can JavaScript: a promise does not know who awaits it. What
// is known is in whose turn a wait was begun. Where such waits form a ring it may be one, or a body may go on without
// waiting. It is one for certain once nothing is left that could happen in the process: then the wait that closed the
// ring is refused, instead of a process that ends in the middle of things. Until then there is a warning.

/** A wait for an agent's turn that was begun inside another's. */
export interface Wait {
  behind: string;
  ahead: string;
  /** Ends it with `SELF_WAIT`. */
  refuse(): void;
}

const waits = new Set<Wait>();
/** Those that closed a ring when they began. */
const closing = new Map<Wait, NodeJS.Timeout>();
const patienceMs = 2_000;

/** Whether the agent ahead waits, over any number of others, for the one behind. */
function closes({ behind, ahead }: Wait): boolean {
  const reached = new Set([ahead]);
  // What is added while it is walked is walked, too.
  for (const node of reached) for (const wait of waits) if (wait.behind === node) reached.add(wait.ahead);
  return reached.has(behind);
}

function nothingIsLeft(): void {
  // Listeners of `beforeExit` have to leave something to do behind, or the process ends all the same.
  setImmediate(() => {
    for (const wait of closing.keys()) wait.refuse();
  });
}

/** Notes a wait; `warn` is called when it may never end and lasts. */
export function begin(wait: Wait, warn: () => void): void {
  if (closes(wait)) {
    if (closing.size === 0) process.on('beforeExit', nothingIsLeft);
    closing.set(wait, setTimeout(warn, patienceMs).unref());
  }
  waits.add(wait);
}

/** Forgets a wait that ended. */
export function end(wait: Wait): void {
  waits.delete(wait);
  clearTimeout(closing.get(wait));
  if (closing.delete(wait) && closing.size === 0) process.off('beforeExit', nothingIsLeft);
}
