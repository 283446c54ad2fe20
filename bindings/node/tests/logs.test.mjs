// Sessions to look at: listed, rendered, examined and repaired without a context.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Context, TurnwheelError, scripted } from 'turnwheel';
import { SessionLog, Sessions } from 'turnwheel/view';
import { folder, program } from './support/env.mjs';

const mock = { provider: 'mock', model: 'm1' };

async function written(t, ...replies) {
  const store = folder(t);
  const ctx = new Context({ store });
  ctx.llm.register('mock', scripted(...replies));
  for (const id of ['a', 'b']) await (await ctx.agent(id, mock)).run('<b>hello</b> \u001b[31m');
  const length = ctx.agents.get('a').session.length;
  await ctx.close();
  return { store, length };
}

test('a folder of sessions is listed, and one is shown as text and as a page', async (t) => {
  const { store, length } = await written(t, { text: '<script>alert(1)</script>', usage: { inputTokens: 1_000_000, outputTokens: 0 } }, 'two');
  const sessions = new Sessions(store);
  assert.deepEqual([...sessions].map(({ id }) => id), ['a', 'b']);
  const log = sessions.read('a');
  assert.ok(log instanceof SessionLog);
  assert.equal(log.header.id, 'a');
  assert.equal(log.length, length);
  const text = log.text({ prices: { 'mock/m1': { input: 3, output: 15 } } });
  assert.match(text, /<b>hello<\/b>/);
  assert.ok(!text.includes('\u001b'), 'control characters are spelled out');
  assert.match(text, /3\.00|3\b/);
  assert.ok(log.text({ color: true }).includes('\u001b['));
  const page = log.html();
  assert.match(page, /^<!doctype html>/i);
  assert.ok(!page.includes('<script'), 'what a model said is text');
  assert.match(page, /&lt;script>|&lt;script&gt;/);
  assert.deepEqual({ ...log.verdict(), id: undefined, events: undefined }.isSound, true);
  assert.equal(sessions.text('a').trimEnd().split('\n').length, length + 1);
  assert.equal(sessions.revision('a'), sessions.revision('a'));
});

test('what cannot be shown says why', async (t) => {
  const { store } = await written(t, 'one', 'two');
  assert.throws(() => new Sessions(`${store}/nothing`), TurnwheelError);
  const sessions = new Sessions(store);
  assert.throws(() => sessions.read('c'), { code: 'SESSION_NOT_FOUND' });
  assert.throws(() => sessions.read(), TurnwheelError, 'there are two');
  assert.throws(() => sessions.read('a').text({ colour: true }), { code: 'UNKNOWN_OPTION' });
  assert.throws(() => sessions.read('a').html({ prices: { 'mock/m1': { input: 1 } } }), { code: 'INVALID_ARGUMENT' });
});

test('a session that a crash left open is found, and repaired', async (t) => {
  const store = folder(t);
  const { signal } = await program(`
    import { Context } from 'turnwheel';
    const ctx = new Context({ store: ${JSON.stringify(store)}, durability: 'every-event' });
    ctx.llm.register('mock', async function* () {
      await agent.flush();
      process.kill(process.pid, 'SIGKILL');
      yield* [];
    });
    const agent = await ctx.agent('a', { provider: 'mock', model: 'm1' });
    await agent.run('go');
  `);
  assert.equal(signal, 'SIGKILL');
  const sessions = new Sessions(store);
  const { closers } = sessions.read('a').verdict();
  assert.ok(closers.length > 0);
  const before = sessions.revision('a');
  assert.equal(sessions.repair('a'), closers.length);
  assert.notEqual(sessions.revision('a'), before);
  assert.deepEqual(sessions.read('a').verdict().closers, []);
});
