// Memory: agents come and go and leave nothing, and whatever is registered is collected when it is over. Each test is a
// process of its own under --expose-gc.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { program } from './support/env.mjs';

const prelude = `
  import { Context, scripted, repeated } from 'turnwheel';
  const mock = { provider: 'mock', model: 'm1' };
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  async function collect() { for (let at = 0; at < 6; at += 1) { gc(); await turn(); } }
  const rss = async () => { await collect(); return process.memoryUsage().rss / 2 ** 20; };
  const heap = async () => { await collect(); return process.memoryUsage().heapUsed / 2 ** 20; };
  const reply = function* () {
    yield { type: 'block-start', index: 0, blockType: 'text' };
    yield { type: 'text-delta', index: 0, text: 'ok' };
    yield { type: 'block-end', index: 0, block: { type: 'text', text: 'ok' } };
    yield { type: 'finish', reason: { kind: 'stop' } };
  };
  const call = function* () {
    yield { type: 'block-start', index: 0, blockType: 'tool-call' };
    yield { type: 'tool-call-delta', index: 0, id: 'c1', name: 't', argumentsDelta: '{}' };
    yield { type: 'block-end', index: 0, block: { type: 'tool-call', id: 'c1', name: 't', arguments: '{}' } };
    yield { type: 'finish', reason: { kind: 'tool-calls' } };
  };
`;

async function measured(source) {
  const { code, stdout, stderr } = await program(prelude + source, { flags: ['--expose-gc'], timeout: 300_000 });
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout);
}

test('10,000 agents created, run and disposed end flat', async () => {
  const { heapGrowth, rssGrowth } = await measured(`
    const ctx = new Context();
    ctx.llm.register('mock', reply);
    ctx.on('session/event', (event) => void event.text);
    ctx.on('agent/pre-step', (_, next) => next());
    async function lives(from, count) {
      for (let at = from; at < from + count; at += 1) {
        const agent = await ctx.agent('a' + at, mock);
        agent.on('agent/status', ({ status }) => void status);
        agent.tool({ name: 't', execute: () => 'ok' });
        await agent.run('go');
        await agent.dispose();
      }
    }
    // The first thirty thousand fill what allocators keep. V8 goes on touching pages of its young generation (64 MiB in
    // Node 24) in steps, now and then; what leaks grows in every round.
    await lives(0, 30_000);
    const [heaps, sizes] = [[await heap()], [await rss()]];
    for (let round = 0; round < 4; round += 1) {
      await lives(30_000 + round * 10_000, 10_000);
      heaps.push(await heap());
      sizes.push(await rss());
    }
    const least = (values) => Math.min(...values.slice(1).map((value, at) => value - values[at]));
    console.log(JSON.stringify({ heapGrowth: heaps.at(-1) - heaps[0], rssGrowth: least(sizes) }));
  `);
  assert.ok(heapGrowth < 3, `the JavaScript heap grew by ${heapGrowth} MiB`);
  // 10,000 sessions of a dozen events are some 60 MiB when they stay.
  assert.ok(rssGrowth < 8, `the process grew by ${rssGrowth} MiB or more in every round`);
});

test('case 146: 500 sessions suspended, resumed and finished leave nothing', async () => {
  const { heapGrowth } = await measured(`
    import { mkdtempSync, rmSync } from 'node:fs';
    const store = mkdtempSync('/tmp/turnwheel-memory-');
    async function cycle(at) {
      for (const text of ['first', 'second']) {
        const ctx = new Context({ store, durability: 'relaxed' });
        ctx.llm.register('mock', scripted(text));
        const agent = await ctx.agent('s' + at, mock);
        await agent.run(text);
        await ctx.close();
      }
    }
    for (let at = 0; at < 50; at += 1) await cycle(at);
    const before = await heap();
    for (let at = 50; at < 550; at += 1) await cycle(at);
    console.log(JSON.stringify({ heapGrowth: await heap() - before }));
    rmSync(store, { recursive: true });
  `);
  assert.ok(heapGrowth < 3, `the JavaScript heap grew by ${heapGrowth} MiB`);
});

const kinds = {
  'a notification listener': "agent.on('agent/status', () => void payload)",
  'a listener of events': "agent.on('session/event', () => void payload)",
  'a listener of one event type': "agent.on('session/event', () => void payload, { types: ['turn/end'] })",
  'a waterfall listener': "agent.on('agent/pre-step', (_, next) => (void payload, next()))",
  'a serial listener': "agent.on('agent/turn-stopping', () => void payload)",
  'a tool': "agent.tool({ name: 't', execute: () => void payload })",
  'a tool with a classifier and a finalizer': "agent.tool({ name: 't', parallel: () => !payload, finalize: () => void payload, execute: () => void payload })",
  'a guard': "agent.guardTools(() => void payload)",
  'an event check': "agent.checkEvents(() => void payload)",
  'a computed text': "agent.section('s', () => (void payload, 'text'))",
  'a model': "agent.model('own' + at, async function* () { void payload; })",
};

for (const [kind, register] of Object.entries(kinds)) {
  for (const [end, over] of [['its agent ends', 'await agent.dispose()'], ['it is disposed', 'registration.dispose()']]) {
    test(`${kind} is collected when ${end}`, async () => {
      const { alive } = await measured(`
        const ctx = new Context();
        const script = [];
        ctx.llm.register('mock', () => (script.shift() ?? reply)());
        const refs = [];
        let kept;
        async function once(at) {
          const agent = await ctx.agent('a' + at, mock);
          const payload = { big: new Array(10_000).fill(at) };
          refs.push(new WeakRef(payload));
          const registration = ${register};
          script.push(call, reply);
          await agent.run('go');
          ${over};
          if (!agent.isDisposed) await agent.run('again');
          kept = agent.isDisposed ? undefined : agent;
        }
        for (let at = 0; at < 20; at += 1) await once(at);
        await collect();
        console.log(JSON.stringify({ alive: refs.filter((ref) => ref.deref() !== undefined).length }));
        void kept;
      `);
      // What the last call left on the stack may live a little longer.
      assert.ok(alive <= 1, `${alive} of 20 are still alive`);
    });
  }
}

const passing = {
  'a setup': "const agent = await ctx.agent('a' + at, { ...mock, setup: () => void payload }); await agent.run('go'); await agent.dispose();",
  'a maintenance task': 'await shared.runMaintenance(() => void payload);',
  'a signal given': 'await shared.run("go", { signal: Object.assign(new AbortController().signal, { payload }) });',
  'a signal looked at': "const off = shared.on('agent/pre-step', ({ signal }, next) => { signal.addEventListener('abort', () => void payload); return next(); }); await shared.run('go'); off.dispose();",
  'an error thrown': "const off = shared.on('agent/pre-step', () => { throw Object.assign(new Error('x'), { payload }); }); await shared.run('go'); off.dispose();",
  'an asynchronous context': "await new AsyncLocalStorage().run(payload, () => shared.run('go'));",
  'a stream left early': "const stream = Object.assign(shared.stream('go'), { payload }); await stream.next(); await stream.return(); await shared.whenIdle();",
  'a context closed': "const own = new Context(); own.llm.register('mock', () => (void payload, reply())); const agent = await own.agent('a', mock); own.on('session/event', () => void payload); await agent.run('go'); await own.close();",
};

for (const [kind, use] of Object.entries(passing)) {
  test(`${kind} is collected when it is over`, async () => {
    const { alive } = await measured(`
      import { AsyncLocalStorage } from 'node:async_hooks';
      const ctx = new Context();
      ctx.llm.register('mock', reply);
      const shared = await ctx.agent('shared', mock);
      const refs = [];
      async function once(at) {
        const payload = { big: new Array(10_000).fill(at) };
        refs.push(new WeakRef(payload));
        ${use}
      }
      for (let at = 0; at < 20; at += 1) await once(at);
      await shared.run('one more');
      await collect();
      console.log(JSON.stringify({ alive: refs.filter((ref) => ref.deref() !== undefined).length }));
    `);
    assert.ok(alive <= 1, `${alive} of 20 are still alive`);
  });
}

test('a context that is dropped without close() is collected, with whatever was registered in it', async () => {
  const { alive, stored } = await measured(`
    import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
    const store = mkdtempSync('/tmp/turnwheel-dropped-');
    const refs = [];
    async function once(at) {
      const payload = { big: new Array(10_000).fill(at) };
      refs.push(new WeakRef(payload));
      const ctx = new Context({ store: { path: store, compression: 'none' }, durability: 'relaxed' });
      ctx.llm.register('mock', () => (void payload, reply()));
      ctx.on('session/event', () => void [payload, ctx]);
      ctx.on('agent/pre-step', (_, next) => (void ctx, next()));
      ctx.tool({ name: 't', execute: () => void [payload, ctx] });
      const agent = await ctx.agent('a' + at, mock);
      agent.section('s', () => (void [agent, payload], 'text'));
      await agent.run('go');
    }
    for (let at = 0; at < 20; at += 1) await once(at);
    for (let at = 0; at < 5; at += 1) await collect();
    const alive = refs.filter((ref) => ref.deref() !== undefined).length;
    const texts = readdirSync(store, { recursive: true }).filter((name) => name.endsWith('.jsonl')).map((name) => readFileSync(store + '/' + name, 'utf8'));
    console.log(JSON.stringify({ alive, stored: texts.filter((text) => text.includes('turn/end')).length }));
    rmSync(store, { recursive: true });
  `);
  assert.ok(alive <= 1, `${alive} of 20 are still alive`);
  // It ended in order: what its store had not written yet was written.
  assert.ok(stored >= 19, `${stored} of 20 sessions are stored to their end`);
});

test('10,000 contexts that are dropped without close() end flat', async () => {
  const { heapGrowth, rssGrowth } = await measured(`
    async function lives(count) {
      for (let at = 0; at < count; at += 1) {
        const ctx = new Context();
        ctx.llm.register('mock', reply);
        ctx.on('session/event', () => void ctx);
        await (await ctx.agent('a', mock)).run('go');
        if (at % 200 === 0) await collect();
      }
    }
    await lives(10_000);
    const [heapBefore, rssBefore] = [await heap(), await rss()];
    await lives(10_000);
    console.log(JSON.stringify({ heapGrowth: await heap() - heapBefore, rssGrowth: await rss() - rssBefore }));
  `);
  assert.ok(heapGrowth < 3, `the JavaScript heap grew by ${heapGrowth} MiB`);
  assert.ok(rssGrowth < 16, `the process grew by ${rssGrowth} MiB`);
});

test('a context that nobody holds finishes the turn under way, and its listeners hear it', async () => {
  const { heard } = await measured(`
    let over;
    const ended = new Promise((resolve) => (over = resolve));
    const seen = [];
    async function start() {
      const ctx = new Context();
      ctx.llm.register('mock', scripted({ text: 'slowly', chunkSize: 1, delayMs: 20 }));
      ctx.on('session/event', ({ type }) => { seen.push(type); if (type === 'turn/end') over(); });
      (await ctx.agent('a', mock)).followup('go');
    }
    await start();
    const pressing = setInterval(gc, 5);
    await ended;
    clearInterval(pressing);
    console.log(JSON.stringify({ heard: seen.filter((type) => type === 'assistant/chunk').length }));
  `);
  // A delta a character, the block's beginning and end, usage and finish.
  assert.ok(heard >= 8, `${heard} chunks were heard`);
});
