// What the types promise; compiled with tsc --strict, never run.

import { AbortError, Context, ToolResult, TurnwheelError, codes, openAIChat, type Event, type RunResult } from 'turnwheel';
import { z } from 'zod';

import { JsonlStore, type Copied, type SessionWriter, type Store } from 'turnwheel';
import { storeSuite, type Report } from 'turnwheel/testing';

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function same<A, B>(_: Same<A, B>): void {}

export async function typed(): Promise<void> {
  await using ctx = new Context({ store: { path: 'sessions', compression: 'zstd' }, turnBudget: { steps: null } });
  // @ts-expect-error: there is no such durability
  new Context({ durability: 'sometimes' });
  ctx.llm.register('openai', openAIChat({ baseUrl: 'https://example.invalid', apiKeyEnv: 'KEY' }));
  ctx.llm.register('own', async function* (request, { signal }) {
    same<typeof signal, AbortSignal>(true);
    same<typeof request.config.model, string>(true);
    yield { type: 'text-delta', index: 0, text: 'x' };
    yield { type: 'finish', reason: { kind: 'stop' } };
  });
  // @ts-expect-error: a text delta has a text
  ctx.llm.register('bad', async function* () {
    yield { type: 'text-delta', index: 0 };
  });

  await using agent = await ctx.agent('a1', { provider: 'own', model: 'm' });
  const result = await agent.run('hi', { signal: AbortSignal.timeout(10) });
  same<typeof result, RunResult>(true);
  if (result.reason.kind === 'error') result.text.toUpperCase();
  for await (const event of agent.stream('go')) {
    same<typeof event, Event>(true);
    if (event.type === 'turn/end') same<typeof event.data.turn, number>(true);
    if (event.type === 'assistant/chunk' && event.data.chunk.type === 'text-delta') event.data.chunk.text.trim();
  }

  ctx.tool({
    name: 'zod',
    parameters: z.object({ city: z.string(), days: z.number().default(1) }),
    execute: ({ city, days }, call) => {
      same<typeof city, string>(true);
      same<typeof days, number>(true);
      same<typeof call.signal, AbortSignal>(true);
      return new ToolResult({ content: city });
    },
  });
  ctx.tool({
    name: 'json',
    parameters: {
      type: 'object',
      properties: { a: { type: 'number' }, tags: { type: 'array', items: { type: 'string' } }, mode: { enum: ['x', 'y'] } },
      required: ['a'],
    },
    execute: (args) => {
      same<typeof args.a, number>(true);
      same<typeof args.tags, string[] | undefined>(true);
      same<typeof args.mode, 'x' | 'y' | undefined>(true);
      // @ts-expect-error: it is not declared
      return args.b as unknown;
    },
  });

  ctx.on('agent/pre-step', async (payload, next) => {
    same<typeof payload.step, number>(true);
    payload.messages.pop();
    const decision = await next();
    if (decision.kind === 'enter') decision.messages.length.toFixed();
    return decision;
  });
  ctx.on('agent/request', async (_, next) => ({ ...(await next()), temperature: 0 }));
  ctx.on('agent/request-error', ({ failure }, next) => (failure.code === 'X' ? 'retry' : next()));
  // @ts-expect-error: that is no decision about a failed request
  ctx.on('agent/request-error', () => 'perhaps');
  ctx.on('agent/status', ({ agent, status }) => {
    same<typeof status, 'idle' | 'running'>(true);
    agent.id.trim();
  });
  ctx.on('tools/result', ({ callId, content }) => void [callId.trim(), content.length]);
  // @ts-expect-error: there is no such event
  ctx.on('agent/unknown', () => undefined);
  const registration = ctx.on('session/event', (event) => void event.seq, { types: ['turn/end'] });
  registration[Symbol.dispose]();

  const state = agent.receipt('m1').state;
  if (state?.kind === 'ended') same<typeof state.turn, number>(true);
  const kept: number = await agent.runMaintenance(({ signal }) => (signal.aborted ? 1 : 2));
  agent.cancel({ kind: 'hook', reason: `${kept}` }, { keepInbox: true });
  for (const event of agent.session.events({ from: 3 })) event.json.trim();
  const error: unknown = undefined;
  if (error instanceof AbortError) same<typeof error.cause.kind, string>(true);
  if (error instanceof TurnwheelError) same<typeof error.code, string>(true);
  same<(typeof codes)[string], number>(true);
}

class OwnStore implements Store {
  listPage = async () => [];
  exists = () => false;
  read = () => undefined;
  open = async () => undefined;
  create(): SessionWriter {
    return { append: async (seq: number, events: string[]) => void [seq, events], close: () => undefined };
  }
}

export async function stores(): Promise<void> {
  const ctx = new Context({ store: new OwnStore() });
  new Context({ store: new JsonlStore('sessions') });
  // @ts-expect-error: a store of one's own has five methods
  new Context({ store: { read: () => undefined } });
  const copied = await ctx.importSession({ kind: 'reference', path: 'x.db' }, 'a');
  same<typeof copied, Copied>(true);
  const report = await storeSuite(() => new OwnStore());
  same<typeof report, Report>(true);
  ctx.tool({
    name: 'outer',
    execute: async (_, call) => {
      const outcome = await call.call('inner', { a: 1 });
      same<typeof outcome.isError, boolean>(true);
    },
  });
}
