// How the package lives in a process: when that ends, what other threads do, and what nobody may be told twice.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { program } from './support/env.mjs';

const open = `
  import { Context, scripted, repeated } from 'turnwheel';
  const mock = { provider: 'mock', model: 'm1' };
  async function open(adapter, options) {
    const ctx = new Context(options);
    ctx.llm.register('mock', adapter);
    return { ctx, agent: await ctx.agent('a1', mock) };
  }
`;

async function runs(source, options) {
  const result = await program(open + source, options);
  assert.equal(result.code, 0, `${result.signal ?? ''}\n${result.stderr}\n${result.stdout}`);
  return result.stdout;
}

test('case 158: a process with an agent, a tool and a listener ends by itself when idle', async () => {
  const out = await runs(`
    const { ctx, agent } = await open(scripted({ calls: [{ id: 'c', name: 't' }] }, 'done'));
    ctx.tool({ name: 't', execute: () => 'ok' });
    ctx.on('session/event', () => undefined);
    ctx.on('agent/pre-step', (_, next) => next());
    console.log((await agent.run('go')).text);
  `, { timeout: 20_000 });
  assert.equal(out, 'done\n');
});

test('the process stays alive while a turn waits in the background', async () => {
  const out = await runs(`
    const { agent } = await open(scripted({ text: 'slow', chunkSize: 1, delayMs: 60 }));
    agent.run('go').then(({ text }) => console.log(text));
  `);
  assert.equal(out, 'slow\n', 'nothing but the native timer kept the process');
});

test('the process stays alive until a store has written', async () => {
  const out = await runs(`
    import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
    const store = mkdtempSync('/tmp/turnwheel-alive-');
    const { agent } = await open(scripted('ok'), { store });
    agent.flush().then(() => agent.run('go')).then(() => agent.flush()).then(() => {
      console.log(readdirSync(store, { recursive: true }).some((name) => name.includes('session')));
      rmSync(store, { recursive: true });
    });
  `);
  assert.equal(out, 'true\n');
});

test('a promise of a tool that never settles does not keep the process', async () => {
  const { code, signal } = await program(`${open}
    const { ctx, agent } = await open(scripted({ calls: [{ id: 'c', name: 'hang' }] }));
    ctx.tool({ name: 'hang', execute: () => new Promise(() => undefined) });
    agent.followup('go');
  `, { timeout: 20_000 });
  assert.deepEqual({ code, signal }, { code: 0, signal: null });
});

test('case 160: failing turns and cancels that nobody waits for cause no unhandled rejection', async () => {
  const out = await runs(`
    const rejections = [];
    process.on('unhandledRejection', (reason) => rejections.push(reason));
    process.on('warning', () => undefined);
    const { ctx, agent } = await open(async function* () { throw new Error('down'); });
    agent.followup('a');
    await agent.whenIdle();
    for await (const event of agent.stream('b')) void event;
    const hang = await ctx.agent('a2', { provider: 'hang', model: 'm' });
    ctx.llm.register('hang', async function* (_, { signal }) {
      await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    });
    hang.followup('c');
    await new Promise((resolve) => setImmediate(resolve));
    hang.cancel();
    const stream = hang.stream('d');
    await stream.next();
    hang.cancel();
    ctx.on('agent/pre-step', async () => { throw new Error('policy'); });
    hang.followup('e');
    const controller = new AbortController();
    const given = hang.run('f', { signal: controller.signal }).catch(() => 'heard');
    controller.abort();
    await given;
    await hang.whenIdle();
    hang.runMaintenance(async () => undefined);
    await ctx.close();
    await new Promise((resolve) => setTimeout(resolve, 20));
    console.log(rejections.length);
  `);
  assert.equal(out, '0\n');
});

test('timers get their turn while an adapter yields without waiting', async () => {
  const out = await runs(`
    const { agent } = await open(async function* () {
      yield { type: 'block-start', index: 0, blockType: 'text' };
      for (let at = 0; at < 20_000; at += 1) yield { type: 'text-delta', index: 0, text: 'x' };
      yield { type: 'block-end', index: 0, block: { type: 'text', text: 'x'.repeat(20_000) } };
      yield { type: 'finish', reason: { kind: 'stop' } };
    });
    let [ticks, isOver] = [0, false];
    const tick = () => { ticks += 1; if (!isOver) setImmediate(tick); };
    setImmediate(tick);
    const { text } = await agent.run('go');
    isOver = true;
    console.log(text.length, ticks > 3);
  `);
  assert.equal(out, '20000 true\n');
});

test('worker threads have runtimes of their own, several at once, and may be terminated in mid-turn', async () => {
  const out = await runs(`
    import { Worker } from 'node:worker_threads';
    const source = \`
      const { parentPort, workerData } = require('node:worker_threads');
      const { Context, scripted } = require('turnwheel');
      (async () => {
        const ctx = new Context(workerData.store === undefined ? {} : { store: workerData.store });
        ctx.llm.register('mock', scripted('from ' + workerData.name, { text: 'x'.repeat(500), chunkSize: 1, delayMs: 2 }));
        ctx.on('session/event', (event) => { if (event.seq === 30) parentPort.postMessage('busy'); });
        const agent = await ctx.agent(workerData.name, { provider: 'mock', model: 'm' });
        parentPort.postMessage((await agent.run('go')).text);
        if (workerData.hang) agent.followup('more'); else await ctx.close();
      })();
    \`;
    import { mkdtempSync, rmSync } from 'node:fs';
    const store = mkdtempSync('/tmp/turnwheel-worker-');
    const start = (name, hang) => new Promise((resolve, reject) => {
      const worker = new Worker(source, { eval: true, execArgv: [], workerData: { name, hang, store: hang ? store : undefined } });
      worker.on('error', reject);
      worker.on('message', (text) => {
        if (!hang) return void worker.once('exit', () => resolve(text));
        if (text === 'busy') resolve(worker.terminate());
      });
    });
    const texts = await Promise.all([start('w1'), start('w2'), start('w3')]);
    console.log(texts.join(', '));
    const codes = await Promise.all(['h1', 'h2', 'h3', 'h4'].map((name) => start(name, true)));
    console.log(codes.every((code) => code === 1));
    const { agent } = await open(scripted('main goes on'));
    console.log((await agent.run('go')).text);
    rmSync(store, { recursive: true, force: true });
  `);
  assert.equal(out, 'from w1, from w2, from w3\ntrue\nmain goes on\n');
});

test('process.exit inside any callback ends the process with its code', async () => {
  const places = {
    listener: "ctx.on('session/event', () => process.exit(7));",
    waterfall: "ctx.on('agent/pre-step', () => process.exit(7));",
    tool: "ctx.tool({ name: 't', execute: async () => process.exit(7) });",
    text: "ctx.section('s', () => process.exit(7));",
  };
  for (const [place, register] of Object.entries(places)) {
    const { code, signal, stderr } = await program(`${open}
      const { ctx, agent } = await open(scripted({ calls: [{ id: 'c', name: 't' }] }, 'x'));
      ${register}
      await agent.run('go');
      process.exit(1);
    `);
    assert.deepEqual({ code, signal }, { code: 7, signal: null }, `${place}: ${stderr}`);
  }
});

test('a context may be closed from a callback that is not part of a turn, and abandoned anywhere', async () => {
  const out = await runs(`
    const { ctx, agent } = await open(async function* () { ctx.abandon(); });
    const answer = await agent.run('go').catch((error) => error.code);
    const second = await open(scripted('ok'));
    second.ctx.on('agent/status', ({ status }) => { if (status === 'idle') second.ctx.abandon(); });
    const other = await second.agent.run('go').then(({ text }) => text, (error) => error.code);
    console.log(answer, other);
  `);
  assert.match(out, /^RUNTIME_CLOSED (RUNTIME_CLOSED|ok)\n$/);
});
