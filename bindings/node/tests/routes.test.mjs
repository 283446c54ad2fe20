// What belongs to a model route: retries, fallbacks, limits, and doubles for tests.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { Context, repeated, scripted } from 'turnwheel';
import { faulty, recorded, replayed } from 'turnwheel/testing';
import { folder, reply } from './support/env.mjs';

const mock = { provider: 'mock', model: 'm1' };
const overloaded = { code: 'OVERLOADED', message: 'busy' };
const typesOf = (agent) => [...agent.session.events()].map(({ type }) => type);

test('a failed request is sent again by the policy of its route, in the same step', async () => {
  const ctx = new Context();
  const retry = { maxRetries: 2, retryableCodes: ['OVERLOADED'], initialDelayMs: 1, maxDelayMs: 2, jitterRatio: 0 };
  const fail = { kind: 'fail', failure: overloaded };
  ctx.llm.register('mock', faulty(repeated('fine'), fail, fail, { kind: 'none' }, fail, fail, fail), { retry });
  const agent = await ctx.agent('a', mock);
  const told = [];
  ctx.on('agent/request-error', ({ retryPolicy }, next) => (told.push(retryPolicy), next()));
  const registration = ctx.llm.retry();
  assert.equal((await agent.run('go')).text, 'fine');
  assert.deepEqual(told[0], { mode: 'normal', ...retry }, 'listeners are told the policy of the route');
  assert.equal(typesOf(agent).filter((type) => type === 'step/start').length, 1);
  const { reason } = await agent.run('again');
  assert.equal(reason.kind, 'error', 'two retries are all it has');
  registration.dispose();
  assert.throws(() => ctx.llm.register('other', scripted(), { retry: { maxRetry: 1 } }), { code: 'UNKNOWN_OPTION' });
  assert.throws(() => ctx.llm.register('other', scripted(), { retry: { mode: 'never' } }), { code: 'INVALID_ARGUMENT' });
  await ctx.close();
});

test('a request that failed for good goes to the next route, with an adapter of your own behind a double', async () => {
  const ctx = new Context();
  const asked = [];
  const own = (name) => async function* ({ config }) {
    asked.push([name, config.model]);
    yield* reply(`from ${name}`);
  };
  ctx.llm.register('mock', faulty(own('first'), { kind: 'fail', failure: overloaded }));
  ctx.llm.register('spare', own('second'));
  ctx.llm.fallback({ provider: 'spare', model: 'm2' });
  const agent = await ctx.agent('a', mock);
  assert.equal((await agent.run('go')).text, 'from second');
  assert.deepEqual(asked.at(-1), ['second', 'm2']);
  assert.throws(() => ctx.llm.fallback(), { code: 'INVALID_ARGUMENT' });
  await ctx.close();
});

test('a route with a limit lets requests wait', async () => {
  const ctx = new Context();
  ctx.llm.register('mock', repeated('fine'), { requestsPerMinute: 1 });
  const agent = await ctx.agent('a', mock);
  await agent.run('one');
  const { reason } = await agent.run('two', { signal: AbortSignal.timeout(30) }).catch((error) => ({ reason: error.name }));
  assert.equal(reason, 'TimeoutError');
  await agent.whenIdle();
  assert.equal(typesOf(agent).filter((type) => type === 'assistant/message').length, 1);
  await ctx.close();
});

test('a cassette records a model and replays it', async (t) => {
  const path = join(folder(t), 'cassette.jsonl');
  const run = async (adapter) => {
    const ctx = new Context();
    ctx.llm.register('mock', adapter);
    const agent = await ctx.agent('a', mock);
    const result = await agent.run('go');
    await ctx.close();
    return result;
  };
  assert.equal((await run(recorded(path, scripted({ text: 'kept', chunkSize: 2 })))).text, 'kept');
  assert.equal((await run(replayed(path))).text, 'kept');
  assert.throws(() => new Context().llm.register('mock', replayed(`${path}.none`)));
});

test('an answer that stalls waits for its cancel, and one that is cut fails the turn', async () => {
  const ctx = new Context();
  ctx.llm.register('mock', faulty(repeated({ text: 'abcdef', chunkSize: 1 }), { kind: 'stall', after: 3 }, { kind: 'cut', after: 3 }, { kind: 'crumble' }));
  const agent = await ctx.agent('a', mock);
  const stream = agent.stream('go');
  let chunks = 0;
  for await (const { type } of stream) {
    if (type === 'assistant/chunk' && (chunks += 1) === 3) agent.cancel();
  }
  assert.equal(chunks, 3);
  assert.equal((await agent.run('again')).reason.kind, 'error');
  assert.equal((await agent.run('once more')).text, 'abcdef');
  await ctx.close();
});

test('routes that come and go are told once, after the fact (ADP-02)', async () => {
  const ctx = new Context();
  const told = [];
  ctx.on('models/changed', ({ event }) => {
    told.push(event);
    throw new Error('undoes nothing');
  });
  const route = ctx.llm.register('mock', scripted('hi'));
  assert.throws(() => ctx.llm.register('mock', scripted('hi')), { code: 'DUPLICATE_ADAPTER' });
  const agent = await ctx.agent('a', mock);
  assert.equal((await agent.run('hello')).text, 'hi');
  route.dispose();
  route.dispose();
  assert.deepEqual(told, ['models/changed', 'models/changed']);
  await ctx.close();
});
