// The rows of tests/cases/bug-reports.md with the area bindings-node, where no other file has them: 146 is in
// memory.test.mjs, 158 and 160 in hosting.test.mjs, 157 and 161 in package.test.mjs.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Context, codes, scripted } from 'turnwheel';
import { callOf, folder, projectRoot, reply } from './support/env.mjs';

const mock = { provider: 'mock', model: 'm1' };

test('case 104: falsy answers are answers', async () => {
  for (const [value, shown] of [[false, 'false'], [0, '0'], ['', ''], [null, 'null']]) {
    const ctx = new Context();
    const script = [callOf('ask'), reply('done')];
    ctx.llm.register('mock', () => script.shift());
    const agent = await ctx.agent('a1', mock);
    ctx.tool({ name: 'ask', execute: async () => value });
    const results = [];
    ctx.on('tools/result', ({ value, isError }) => results.push({ value, isError }));
    await agent.run('go');
    assert.deepEqual(results, [{ value, isError: false }]);
    assert.equal([...agent.session.events()].find(({ type }) => type === 'tool/result').text, shown);
    assert.equal(await agent.runMaintenance(() => value), value);
    await ctx.close();
  }
});

test('case 116: the id and the prompt are on disk before the model is asked, and a failed first turn goes on in the same session', async (t) => {
  const store = folder(t);
  const ctx = new Context({ store: { path: store, compression: 'none' } });
  let stored;
  ctx.llm.register('mock', async function* () {
    const file = readdirSync(store, { recursive: true }).find((name) => name.endsWith('.jsonl'));
    stored = readFileSync(join(store, file), 'utf8');
    throw new Error('the model is down');
  });
  const agent = await ctx.agent('first', mock);
  assert.equal((await agent.run('remember me')).reason.kind, 'error');
  assert.match(stored, /remember me/);
  await ctx.close();
  const again = new Context({ store: { path: store, compression: 'none' } });
  again.llm.register('mock', scripted('here'));
  const resumed = await again.agent('first', mock);
  await resumed.run('and now?');
  assert.deepEqual(resumed.session.history.map(({ content }) => content[0].text), ['remember me', 'and now?', 'here']);
  await again.close();
});

test('case 131: a lone surrogate becomes U+FFFD on every way in, and requests stay valid', async () => {
  const ctx = new Context();
  const requests = [];
  const script = [callOf('cut'), reply('model \ud83d'), reply('ok')];
  ctx.llm.register('mock', (request) => {
    requests.push(JSON.stringify(request));
    return script.shift();
  });
  const agent = await ctx.agent('a1', mock);
  ctx.tool({ name: 'cut', execute: () => '😀'.slice(0, 1) });
  ctx.section('s', () => 'prompt \udc00');
  await agent.run('user \ud83d');
  await agent.run('more');
  const log = [...agent.session.events()].map(({ json }) => json).join('');
  for (const text of [log, ...requests]) assert.equal(text.isWellFormed?.() ?? !/[\ud800-\udfff]/.test(text.replace(/[\ud800-\udbff][\udc00-\udfff]/g, '')), true);
  for (const text of ['user \ufffd', 'model \ufffd']) assert.ok(log.includes(text), text);
  assert.ok(requests[1].includes('"text":"\ufffd"'));
  assert.ok(requests[0].includes('prompt \ufffd'));
  await ctx.close();
});

test('case 134: agents without an id get ids of their own, and a clash is an error', async (t) => {
  const ctx = new Context({ store: folder(t) });
  ctx.llm.register('mock', scripted('one', 'two'));
  const [first, second] = [await ctx.agent(undefined, mock), await ctx.agent(undefined, mock)];
  assert.notEqual(first.id, second.id);
  await first.run('a');
  await second.run('b');
  assert.equal(first.session.history[0].content[0].text, 'a');
  await assert.rejects(ctx.agent(first.id, mock), { code: 'SESSION_ALREADY_EXISTS' });
  const other = new Context({ store: ctx.store });
  await assert.rejects(other.agent(7, mock), { code: 'INVALID_ARGUMENT' });
  await other.close();
  await ctx.close();
});

test('the error codes are those of tests/abi/codes.txt', () => {
  const listed = readFileSync(join(projectRoot, 'tests/abi/codes.txt'), 'utf8').trim().split('\n');
  assert.deepEqual(Object.entries(codes).map(([name, number]) => `${number} ${name}`), listed);
});
