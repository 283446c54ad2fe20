// The native module: where it is looked for, and what it offers.

import { TurnwheelError } from './errors.js';

/** @internal Numbers name things: `core`, `ctx`, `seat` and the like are keys of native things. */
export interface Native {
  attach(...handlers: ((...values: never[]) => unknown)[]): number;
  pump(realm: number, isNewSlice: boolean): void;
  codes(): string;
  texts(): string;
  open(realm: number, options: string, store: number): number;
  root(core: number): number;
  kill(core: number): void;
  collected(core: number): void;
  release(core: number, key: number): void;
  hold(core: number, seat: number): void;
  answer(core: number, pending: number, isOk: boolean, json?: string): void;
  flush(core: number): boolean;
  giveUp(core: number, promise: number): void;
  close(core: number, promise: number, seat: number, context: number): void;
  on(core: number, ctx: number, event: string, options: string, callback: number): number;
  undo(core: number, registration: number): void;
  tool(core: number, ctx: number, options: string, body: number, classify: number, finalize: number, isRunner: boolean): number;
  restrict(core: number, ctx: number, options: string): number;
  checkEvents(core: number, ctx: number, check: number): number;
  guard(core: number, ctx: number, guard: number): number;
  startAgents(core: number, ctx: number, entries: string): void;
  toolSchemas(core: number, ctx: number): string;
  prompt(core: number, ctx: number, input: string, compute: number): number | undefined;
  model(core: number, ctx: number, provider: string, adapter: string, route: string): number;
  retry(core: number, ctx: number): number;
  fallback(core: number, ctx: number, routes: string): number;
  selection(core: number, ctx: number, choice: string): number;
  select(core: number, selection: number, choice: string): void;
  openAgent(core: number, promise: number, ctx: number, id: string, options: string, setup: number, signal: number, seat: number, context: number): void;
  listSessions(core: number, promise: number, after: string | undefined, limit: number): void;
  newSignal(core: number): number;
  fireSignal(core: number, signal: number): void;
  findAgent(core: number, id: string): number;
  agentIds(core: number): string;
  forkSession(core: number, from: string, at: string | undefined, id: string | undefined): number;
  send(core: number, seat: number, target: string, wakeup: boolean, message: string, context: number, callerSeat: number, callerContext: number): string;
  run(core: number, promise: number, seat: number, message: string, context: number, callerSeat: number, callerContext: number): void;
  stream(core: number, seat: number, message: string, context: number, callerSeat: number, callerContext: number): number;
  streamMessage(core: number, stream: number): string;
  streamNext(core: number, promise: number, stream: number): void;
  streamDrop(core: number, stream: number, isCancelled: boolean): void;
  wake(core: number, seat: number, callerSeat: number, callerContext: number): void;
  cancel(core: number, seat: number, cause: string, keepInbox: boolean): void;
  state(core: number, seat: number): string;
  status(core: number, seat: number): string;
  isDisposed(core: number, seat: number): boolean;
  whenIdle(core: number, promise: number, seat: number, callerSeat: number, callerContext: number): void;
  maintain(core: number, promise: number, seat: number, task: number, callerSeat: number, callerContext: number): void;
  receiptState(core: number, seat: number, id: string): string | undefined;
  receiptDurable(core: number, promise: number, seat: number, id: string): void;
  receiptSettled(core: number, promise: number, seat: number, id: string, callerSeat: number, callerContext: number): void;
  turnContext(core: number, seat: number): number;
  durable(core: number, promise: number, seat: number): void;
  dispose(core: number, promise: number, seat: number, callerSeat: number, callerContext: number): void;
  agentCtx(core: number, seat: number): number;
  pending(core: number, seat: number, target: string): string;
  splice(core: number, seat: number, target: string, start: number, deleteCount: number, messages: string): string;
  insert(core: number, seat: number, target: string, messages: string, atHead: boolean): void;
  replace(core: number, seat: number, id: string, message: string): boolean;
  remove(core: number, seat: number, id: string): boolean;
  clearInbox(core: number, seat: number): void;
  subject(core: number, key: number): string;
  requestMessages(core: number, key: number, have: number): string;
  watch(core: number, key: number, callback: number): string | undefined;
  next(core: number, promise: number, key: number, edited: string | undefined): void;
  push(core: number, key: number, chunk: string): void;
  pushTexts(core: number, key: number, index: number, texts: string, isReasoning: boolean): void;
  deferContext(core: number, key: number, message: string): void;
  concludeTurn(core: number, key: number): void;
  sessionHtml(core: number, seat: number, options: string): string;
  sessionId(core: number, seat: number): string;
  sessionTimeline(core: number, seat: number, options: string): string;
  header(core: number, seat: number): string;
  length(core: number, seat: number): number;
  eventJson(core: number, seat: number, seq: number): string;
  eventType(core: number, seat: number, seq: number): number;
  eventTime(core: number, seat: number, seq: number): number;
  eventText(core: number, seat: number, seq: number): string;
  follow(core: number, promise: number, seat: number, seq: number): void;
  history(core: number, seat: number): string;
  append(core: number, seat: number, type: string, data: string): number;
  appendRaw(core: number, seat: number, event: string): number;
  consumedWork(core: number, seat: number): string;
  emit(core: number, seat: number, notice: string): void;
  sendableHistory(core: number, seat: number): string;
  eventTypeVersion(core: number, seat: number, type: string): number | undefined;
  callTool(core: number, promise: number, key: number, name: string, args: string, callerSeat: number, callerContext: number): void;
  present(core: number, ctx: number, mode: string): number;
  registerEventType(core: number, ctx: number, type: string, version: number): void;
  invariants(core: number, ctx: number, options: string): number;
  requireInitiator(core: number, callerSeat: number, callerContext: number): number;
  schemaOfShorthand(shorthand: string): string;
  copySession(core: number, promise: number, store: string, id: string, imports: boolean): void;
  storeCases(): string;
  viewList(path: string, after: string | undefined, limit: number): string;
  viewRead(path: string, id: string | undefined): number;
  viewRelease(log: number): void;
  viewSource(path: string, question: string, id: string | undefined): string;
  viewFacts(log: number): string;
  viewRender(log: number, asPage: boolean, options: string): string;
  checkStore(core: number, promise: number, name: string, open: number): void;
  jsonl(core: number, promise: number, path: string, compressed: boolean, question: string, id: string): void;
}

/** @internal The libc that this process runs on: `musl` on Alpine and its kin, `gnu` elsewhere on Linux. */
export function libc(): 'gnu' | 'musl' | '' {
  if (process.platform !== 'linux') return '';
  const { report } = process as { report?: { excludeNetwork?: boolean; getReport(): unknown } };
  if (report === undefined) return 'gnu';
  // Naming the network's hosts would take seconds on some machines.
  const { excludeNetwork } = report;
  report.excludeNetwork = true;
  const { header } = report.getReport() as { header?: { glibcVersionRuntime?: string } };
  if (excludeNetwork !== undefined) report.excludeNetwork = excludeNetwork;
  return header?.glibcVersionRuntime === undefined ? 'musl' : 'gnu';
}

/** @internal The name that this machine's library goes by, as in `linux-x64-gnu`. */
export function platform(): string {
  const { platform, arch } = process;
  if (platform === 'linux') return `linux-${arch}-${libc()}`;
  return platform === 'win32' ? `win32-${arch}-msvc` : `${platform}-${arch}`;
}

function load(): Native {
  const here = platform();
  const places = [`turnwheel-${here}`, `../npm/${here}/turnwheel.${here}.node`];
  const given = process.env['TURNWHEEL_NATIVE'];
  if (given !== undefined && given !== '') places.unshift(given);
  const failures: string[] = [];
  for (const place of places) {
    try {
      const loaded = require(place) as Partial<Native>;
      if (typeof loaded.attach === 'function') return loaded as Native;
      failures.push(`${place}: it is not a library of turnwheel`);
    } catch (error) {
      const { code, message } = error as { code?: string; message?: string };
      const isMissing = code === 'MODULE_NOT_FOUND' && message?.includes(`'${place}'`) === true;
      failures.push(`${place}: ${isMissing ? 'not there' : (message ?? String(error))}`);
    }
  }
  const message =
    `turnwheel has no native library for this machine (${here}, Node-API ${process.versions['napi'] ?? 'none'}). ` +
    `Looked for, in this order: ${failures.join('; ')}. ` +
    'Install without --omit=optional and without a lock file of another platform, or build it from source (docs/node.md).';
  throw new TurnwheelError('HOST_ERROR', message);
}

/** @internal */
export const native: Native = load();
