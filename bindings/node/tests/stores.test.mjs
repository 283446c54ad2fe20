// Stores as objects, held to the suite; copying between stores; what JSONL files tell by themselves.

import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { Context, JsonlStore, TurnwheelError, scripted } from 'turnwheel';
import { checkStore, storeCases, storeSuite } from 'turnwheel/testing';
import { folder, gate, packageRoot, projectRoot } from './support/env.mjs';

const mock = { provider: 'mock', model: 'm1' };

/** The example's store, loaded as a project that installed the package would. */
async function example(t) {
  const at = folder(t);
  mkdirSync(join(at, 'node_modules'));
  symlinkSync(packageRoot, join(at, 'node_modules', 'turnwheel'));
  copyFileSync(join(projectRoot, 'examples', 'node', 'memory-store.mjs'), join(at, 'memory-store.mjs'));
  return (await import(pathToFileURL(join(at, 'memory-store.mjs')).href)).MemoryStore;
}

function open(store, ...replies) {
  const ctx = new Context({ store });
  ctx.llm.register('mock', scripted(...replies));
  return ctx;
}

test('the store of the example conforms, synchronous or asynchronous', async (t) => {
  const MemoryStore = await example(t);
  const { kept } = new MemoryStore();
  const report = await storeSuite(() => new MemoryStore(kept));
  assert.deepEqual(report.failures, [], String(report));
  assert.equal(report.cases.length, storeCases.length);
  report.check();
  const later = (object) =>
    new Proxy(object, {
      get: (target, name) => {
        if (typeof target[name] !== 'function') return target[name];
        return async (...given) => {
          await new Promise((resolve) => setImmediate(resolve));
          const answer = await target[name](...given);
          if (answer?.append !== undefined) return later(answer);
          return answer?.writer === undefined ? answer : { ...answer, writer: later(answer.writer) };
        };
      },
    });
  const slow = new MemoryStore();
  const again = await storeSuite(() => later(new MemoryStore(slow.kept)));
  assert.deepEqual(again.failures, [], String(again));
});

test('the suite finds what a store does wrong', async (t) => {
  const MemoryStore = await example(t);
  class Forgetful extends MemoryStore {
    create(header) {
      const writer = super.create(header);
      return { append: (seq, events) => writer.append(seq, events.slice(1)), close: () => writer.close() };
    }
  }
  const { kept } = new Forgetful();
  const report = await storeSuite(() => new Forgetful(kept));
  assert.ok(report.failures.some(({ name }) => name === 'what_was_written_is_read_back_to_the_byte'), String(report));
  assert.throws(() => report.check(), /the store does not conform/);
  await assert.rejects(checkStore('no_such_case', () => new MemoryStore()), { code: 'INVALID_ARGUMENT' });
});

test('a context keeps its sessions in a store of your own, and resumes from it', async (t) => {
  const MemoryStore = await example(t);
  const { kept } = new MemoryStore();
  const first = open(new MemoryStore(kept), 'one');
  await (await first.agent('a', mock)).run('hello');
  await first.close();
  assert.equal(kept.writers.size, 0);
  const second = open(new MemoryStore(kept), 'two');
  const agent = await second.agent('a', mock);
  assert.equal((await agent.run('again')).text, 'two');
  assert.deepEqual(agent.session.history.map(({ role }) => role), ['user', 'assistant', 'user', 'assistant']);
  assert.deepEqual((await second.listSessions()).map(({ id }) => id), ['a']);
  const other = open(new MemoryStore(kept), 'three');
  await assert.rejects(other.agent('a', mock), { code: 'SESSION_LOCKED' });
  await other.close();
  await second.close();
});

test('a store that fails ends the turn before its effect, and its error is told', async (t) => {
  const MemoryStore = await example(t);
  const store = new MemoryStore();
  let asked = 0;
  const create = store.create.bind(store);
  store.create = (header) => {
    const writer = create(header);
    return { close: writer.close, append: () => { throw new Error('disk on fire'); } };
  };
  const ctx = new Context({ store });
  ctx.llm.register('mock', async function* () {
    asked += 1;
  });
  const agent = await ctx.agent('a', mock);
  const { reason } = await agent.run('hello');
  assert.equal(reason.kind, 'error');
  assert.match(JSON.stringify(reason), /disk on fire|STORE_FAILED/);
  assert.equal(asked, 0);
  await assert.rejects(agent.flush(), (error) => error instanceof TurnwheelError && /disk on fire/.test(error.message));
  ctx.abandon();
});

test('a store is called in the asynchronous context of whoever made the context', async (t) => {
  const MemoryStore = await example(t);
  const { AsyncLocalStorage } = await import('node:async_hooks');
  const local = new AsyncLocalStorage();
  const seen = [];
  class Watching extends MemoryStore {
    create(header) {
      seen.push(local.getStore());
      return super.create(header);
    }
  }
  const ctx = local.run('maker', () => open(new Watching(), 'hi'));
  await local.run('user', async () => (await ctx.agent('a', mock)).run('hello'));
  assert.deepEqual(seen, ['maker']);
  await ctx.close();
});

test('what is no store is refused by name', () => {
  assert.throws(() => new Context({ store: { read() {}, open() {} } }), { code: 'INVALID_ARGUMENT', message: /lacks listPage, exists, create/ });
  assert.throws(() => new Context({ store: 7 }), { code: 'INVALID_ARGUMENT' });
});

test('sessions are imported and exported between any two stores', async (t) => {
  const MemoryStore = await example(t);
  const at = folder(t);
  const from = open(at, 'one');
  await (await from.agent('a', mock)).run('hello');
  const events = from.agents.get('a').session.length;
  await from.agents.get('a').dispose();
  const own = new MemoryStore();
  const copied = await from.exportSession(own, 'a');
  assert.equal(copied.header.id, 'a');
  assert.equal(copied.events, events);
  assert.equal(copied.replacedCharacters, 0);
  await assert.rejects(from.exportSession(own, 'a'), { code: 'SESSION_ALREADY_EXISTS' });
  await from.close();
  const to = open(undefined, 'two');
  await assert.rejects(to.importSession(own, 'a'), TurnwheelError);
  await to.close();
  const sqlite = { kind: 'sqlite', path: join(at, 'sessions.db') };
  const into = open(sqlite, 'two');
  assert.equal((await into.importSession(own, 'a')).events, events);
  assert.equal((await (await into.agent('a', { ...mock, mode: 'resume' })).run('again')).text, 'two');
  await assert.rejects(into.importSession({ kind: 'reference', path: join(at, 'sessions.db') }, 'b'), TurnwheelError);
  await into.close();
});

test('JSONL files tell their headers, places, revisions and texts without a context', async (t) => {
  const at = folder(t);
  const ctx = open({ path: at, compression: 'none' }, 'one', 'two');
  const agent = await ctx.agent('a', mock);
  await agent.run('hello');
  await agent.flush();
  const files = new JsonlStore(at, { compression: 'none' });
  assert.deepEqual((await files.list()).map(({ id }) => id), ['a']);
  const [[header, revision]] = await files.listRevisions();
  assert.equal(header.id, 'a');
  assert.equal(await files.revision('a'), revision);
  await agent.run('again');
  await agent.flush();
  assert.notEqual(await files.revision('a'), revision);
  assert.ok((await files.locate('a')).startsWith(at));
  const raw = await files.readRaw('a');
  assert.equal(raw.header.id, 'a');
  assert.equal(raw.text.trimEnd().split('\n').length, agent.session.length + 1);
  assert.deepEqual([await files.locate('b'), await files.revision('b'), await files.readRaw('b')], [undefined, undefined, undefined]);
  await ctx.close();
});

test('closing a context waits for its store', async (t) => {
  const MemoryStore = await example(t);
  const store = new MemoryStore();
  const held = gate();
  const create = store.create.bind(store);
  let isClosed = false;
  store.create = (header) => {
    const writer = create(header);
    return { append: writer.append, close: async () => (await held.opened, writer.close(), (isClosed = true)) };
  };
  const ctx = open(store, 'one');
  await (await ctx.agent('a', mock)).run('hello');
  const closing = ctx.close();
  held.open();
  await closing;
  assert.equal(isClosed, true);
});
