// What a TypeScript developer expects of the package, idiom by idiom.

import assert from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import * as turnwheel from 'turnwheel';
import { AbortError, Context, ModelError, ToolResult, TurnwheelError, codes, repeated, scripted } from 'turnwheel';
import { z } from 'zod';
import { callOf, folder, gate, reply } from './support/env.mjs';

const mock = { provider: 'mock', model: 'm1' };

async function open(adapter, options = {}) {
  const ctx = new Context(options);
  ctx.llm.register('mock', adapter);
  return { ctx, agent: await ctx.agent('a1', mock) };
}

test('import and require give the same module', () => {
  const required = createRequire(import.meta.url)('turnwheel');
  assert.deepEqual(Object.keys(required).sort(), Object.keys(turnwheel).filter((name) => name !== 'default').sort());
  assert.equal(required.Context, Context);
  assert.equal(required.TurnwheelError, TurnwheelError);
});

test('await using disposes agents and closes contexts', async () => {
  const ctx = new Context();
  ctx.llm.register('mock', scripted('hi'));
  const agent = await ctx.agent('a1', mock);
  assert.equal((await agent.run('hello')).text, 'hi');
  await agent[Symbol.asyncDispose]();
  assert.equal(agent.isDisposed, true);
  assert.equal(ctx.agents.size, 0);
  await ctx[Symbol.asyncDispose]();
  await assert.rejects(ctx.agent('a2', mock), { code: 'RUNTIME_CLOSED' });
});

test('run gives reason, text, messages, usage and turn', async () => {
  const { ctx, agent } = await open(scripted({ text: 'four', usage: { inputTokens: 3, outputTokens: 1 } }));
  const result = await agent.run('2 + 2?');
  assert.deepEqual(result.reason, { kind: 'completed' });
  assert.equal(result.text, 'four');
  assert.equal(result.turn, 1);
  assert.deepEqual(result.usage, { inputTokens: 3, outputTokens: 1 });
  assert.deepEqual(result.messages.map(({ role }) => role), ['user', 'assistant']);
  await ctx.close();
});

test('stream yields the events of one turn and may be left early', async () => {
  const { ctx, agent } = await open(scripted({ text: 'abcdef', chunkSize: 2 }, 'more'));
  const types = [];
  let text = '';
  for await (const event of agent.stream('go')) {
    types.push(event.type);
    if (event.type === 'assistant/chunk') text += event.text;
  }
  assert.equal(types[0], 'turn/start');
  assert.equal(types.at(-1), 'turn/end');
  assert.equal(text, 'abcdef');
  for await (const event of agent.stream('again')) if (event.type === 'turn/start') break;
  await agent.whenIdle();
  assert.equal(agent.session.history.length, 4);
  await ctx.close();
});

test('session.events reads the log from a seq and follow waits for what comes', async () => {
  const { ctx, agent } = await open(scripted('one', 'two'));
  await agent.run('a');
  const seen = [...agent.session.events({ from: 2 })].map(({ seq }) => seq);
  assert.deepEqual(seen, Array.from({ length: agent.session.length - 2 }, (_, index) => index + 2));
  const [event] = agent.session.events();
  assert.equal(event.type, 'agent/inbox/spliced');
  assert.equal(event.data.inserted[0].content[0].text, 'a');
  assert.equal(JSON.parse(event.json).seq, 0);
  assert.ok(event.time > 1_600_000_000_000);
  const from = agent.session.length;
  const followed = [];
  const following = (async () => {
    for await (const event of agent.session.follow({ from })) followed.push(event.type);
  })();
  await agent.run('b');
  await agent.dispose();
  await following;
  assert.equal(followed.filter((type) => type === 'turn/end').length, 1);
  const stop = AbortSignal.abort(new Error('enough'));
  await assert.rejects(agent.session.follow({ from: 10_000, signal: stop }).next(), { message: 'enough' });
  await ctx.close();
});

test('an AbortSignal in cancels the turn and rejects with its reason', async () => {
  const started = gate();
  const { ctx, agent } = await open(async function* (_, { signal }) {
    started.open();
    await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    yield* reply('never');
  });
  const controller = new AbortController();
  const running = agent.run('go', { signal: controller.signal });
  await started.opened;
  const reason = new Error('the user left');
  controller.abort(reason);
  await assert.rejects(running, (error) => error === reason);
  await agent.whenIdle();
  const end = [...agent.session.events()].findLast(({ type }) => type === 'turn/end');
  assert.deepEqual(end.data.reason, { kind: 'aborted', reason: { kind: 'user' } });
  await assert.rejects(agent.run('go', { signal: AbortSignal.abort(reason) }), (error) => error === reason);
  await ctx.close();
});

test('an AbortSignal out has the typed cause as its reason', async () => {
  const reasons = [];
  const started = gate();
  const { ctx, agent } = await open(function* () {
    yield* callOf('wait');
  });
  ctx.on('agent/pre-step', async ({ signal }, next) => {
    signal.addEventListener('abort', () => reasons.push(['listener', signal.reason]));
    return next();
  });
  ctx.tool({
    name: 'wait',
    execute: async (_, { signal }) => {
      started.open();
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      reasons.push(['tool', signal.reason]);
      signal.throwIfAborted();
    },
  });
  const running = agent.run('go');
  await started.opened;
  agent.cancel({ kind: 'hook', reason: 'policy' });
  assert.deepEqual((await running).reason, { kind: 'aborted', reason: { kind: 'hook', reason: 'policy' } });
  assert.deepEqual(reasons.map(([who]) => who), ['listener', 'tool']);
  for (const [, reason] of reasons) {
    assert.ok(reason instanceof AbortError);
    assert.equal(reason.code, 'ABORTED');
    assert.deepEqual(reason.cause, { kind: 'hook', reason: 'policy' });
  }
  await ctx.close();
});

test('a waterfall listener edits its payload, delegates, and decides', async () => {
  const requests = [];
  const kinds = [];
  const { ctx, agent } = await open(function* (request) {
    requests.push(request.toJSON());
    yield* reply('ok');
  });
  ctx.on('agent/pre-step', async (payload, next) => {
    payload.messages.push({ id: 'extra', role: 'user', content: [{ type: 'text', text: 'and more' }], source: { kind: 'user' } });
    const decision = await next();
    kinds.push(decision.kind);
    return decision;
  });
  ctx.on('agent/request', async (_, next) => ({ ...(await next()), maxTokens: 7, temperature: undefined }));
  ctx.on('agent/request', async (_, next) => {
    await next();
  });
  await agent.run('first');
  assert.equal(requests[0].config.maxTokens, 7);
  assert.equal('temperature' in requests[0].config, false);
  assert.deepEqual(requests[0].messages.map(({ content }) => content[0].text), ['first', 'and more']);
  ctx.on('agent/pre-step', () => ({ kind: 'reject' }));
  assert.deepEqual((await agent.run('second')).reason, { kind: 'blocked' });
  assert.deepEqual(kinds, ['enter', 'reject']);
  await ctx.close();
});

test('a decision that is none, or was not awaited, fails the turn and says what to do', async () => {
  const { ctx, agent } = await open(repeated('ok'));
  const bad = ctx.on('agent/pre-step', () => ({ kind: 'maybe' }));
  const failed = await agent.run('a');
  assert.equal(failed.reason.kind, 'error');
  assert.match(failed.reason.error.message, /agent\/pre-step/);
  bad.dispose();
  ctx.on('agent/pre-step', () => undefined);
  assert.match((await agent.run('b')).reason.error.message, /must decide or call its continuation/);
  await ctx.close();
});

test('next called a second time is refused', async () => {
  const { ctx, agent } = await open(repeated('ok'));
  let code;
  ctx.on('agent/request', async (_, next) => {
    const config = await next();
    await next().catch((error) => (code = error.code));
    return config;
  });
  await agent.run('go');
  assert.equal(code, 'NEXT_CALLED_TWICE');
  await ctx.close();
});

test('notifications arrive where they happen, in order, and can be switched off', async () => {
  const { ctx, agent } = await open(scripted('ok', 'ok'));
  const heard = [];
  const status = ctx.on('agent/status', ({ agent, status }) => heard.push(`${agent.id} ${status}`));
  ctx.on('agent/inbox/claimed', ({ message, turn }) => heard.push(`claimed ${message.id} in ${turn}`));
  agent.followup({ id: 'm1', content: 'hi' });
  assert.deepEqual(heard, ['a1 running', 'claimed m1 in 1'], 'before followup returned');
  await agent.whenIdle();
  assert.equal(heard.at(-1), 'a1 idle');
  status.dispose();
  const before = heard.length;
  await agent.run('again');
  assert.equal(heard.slice(before).some((line) => line.includes('running')), false);
  await ctx.close();
});

test('listeners of session/event share one event, hear only their types, and fail alone', async () => {
  const warnings = [];
  turnwheel.onWarning((text) => warnings.push(text));
  const { ctx, agent } = await open(scripted('ok'));
  const events = [[], []];
  ctx.on('session/event', (event) => events[0].push(event));
  ctx.on('session/event', () => {
    throw new Error('I fail');
  });
  ctx.on('session/event', async () => {
    throw new Error('I fail later');
  });
  ctx.on('session/event', (event) => events[1].push(event));
  const typed = [];
  ctx.on('session/event', (event) => typed.push(event.type), { types: ['turn/end'] });
  await agent.run('go');
  assert.ok(events[0].length > 10);
  assert.deepEqual(events[0], events[1]);
  assert.equal(events[0].every((event, at) => event === events[1][at]), true);
  assert.deepEqual(typed, ['turn/end']);
  await ctx.close();
  assert.ok(warnings.some((text) => text.includes('I fail')));
  assert.ok(warnings.some((text) => text.includes('I fail later')));
  turnwheel.onWarning((text) => process.emitWarning(text));
});

test('a listener of agent/created may veto', async () => {
  const { ctx } = await open(scripted());
  const refusal = new RangeError('no more agents');
  ctx.on('agent/created', () => {
    throw refusal;
  });
  await assert.rejects(ctx.agent('a2', mock), (error) => error === refusal, 'the very object that was thrown');
  assert.equal(ctx.agents.get('a2'), undefined);
  await ctx.close();
});

test('a Zod schema types and checks arguments, and its JSON Schema is what the model sees', async () => {
  const requests = [];
  const calls = [{ city: 'Oslo' }, { city: 7 }];
  const { ctx, agent } = await open(function* (request) {
    requests.push(request.messages.at(-1));
    if (requests.length === 1) assert.deepEqual(request.tools[0].parameters.properties.city, { type: 'string', description: 'where' });
    const args = calls.shift();
    yield* args === undefined ? reply('done') : callOf('weather', args, `c${calls.length}`);
  });
  const ran = [];
  ctx.tool({
    name: 'weather',
    description: 'The weather.',
    parameters: z.object({ city: z.string().describe('where'), days: z.number().int().default(3) }),
    execute: ({ city, days }) => {
      ran.push([city, days]);
      return { city, sunny: true };
    },
  });
  assert.equal((await agent.run('weather?')).text, 'done');
  assert.deepEqual(ran, [['Oslo', 3]], 'defaults are filled in, and bad arguments do not reach the body');
  assert.equal(requests[1].content[0].content[0].text, '{"city":"Oslo","sunny":true}');
  assert.equal(requests[2].content[0].isError, true);
  assert.match(requests[2].content[0].content[0].text, /invalid arguments: city: .*expected string/i);
  await ctx.close();
});

test('a JSON Schema is checked by the core, and bodies return values, content or errors', async () => {
  const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
  const script = [callOf('double', { n: 2 }, 'c1'), callOf('double', { n: 'x' }, 'c2'), callOf('show', {}, 'c3'), callOf('fail', {}, 'c4'), callOf('nothing', {}, 'c5'), reply('done')];
  const { ctx, agent } = await open(() => script.shift());
  ctx.tool({ name: 'double', parameters: schema, execute: ({ n }) => n * 2 });
  ctx.tool({ name: 'show', execute: async (_, call) => {
    call.deferContext('seen');
    return new ToolResult({ content: 'shown', meta: { shape: 'round' } });
  } });
  ctx.tool({ name: 'fail', execute: () => {
    throw Object.assign(new Error('no disk'), { code: 'ENOSPC' });
  } });
  ctx.tool({ name: 'nothing', execute: () => undefined });
  await agent.run('go');
  const results = [...agent.session.events()].filter(({ type }) => type === 'tool/result');
  assert.deepEqual(results.map(({ text }) => text.split('\n')[0].slice(0, 24)), ['4', 'Error: invalid arguments', 'shown', 'Error: no disk', '']);
  assert.deepEqual(results[2].data.meta, { shape: 'round' });
  assert.deepEqual(results[3].data.error, { name: 'Error', code: 'ENOSPC' });
  assert.ok(agent.session.history.some(({ content }) => content[0].text === 'seen'));
  await ctx.close();
});

test('parallel tools overlap, guards and policy refuse, and concludeTurn ends the turn', async () => {
  const { ctx, agent } = await open(function* () {
    yield { type: 'block-start', index: 0, blockType: 'tool-call' };
    yield { type: 'tool-call-delta', index: 0, id: 'c1', name: 'slow', argumentsDelta: '{}' };
    yield { type: 'block-end', index: 0, block: { type: 'tool-call', id: 'c1', name: 'slow', arguments: '{}' } };
    yield { type: 'block-start', index: 1, blockType: 'tool-call' };
    yield { type: 'tool-call-delta', index: 1, id: 'c2', name: 'slow', argumentsDelta: '{}' };
    yield { type: 'block-end', index: 1, block: { type: 'tool-call', id: 'c2', name: 'slow', arguments: '{}' } };
    yield { type: 'finish', reason: { kind: 'tool-calls' } };
  });
  let running = 0;
  const both = gate();
  ctx.tool({ name: 'slow', parallel: () => true, execute: async (_, call) => {
    running += 1;
    if (running === 2) both.open();
    await both.opened;
    call.concludeTurn();
    return 'ok';
  } });
  assert.deepEqual((await agent.run('go')).reason, { kind: 'completed' });
  assert.equal(running, 2);
  ctx.guardTools(({ name }) => (name === 'slow' ? 'not today' : undefined));
  ctx.on('tools/pre-execute', async (_, next) => next());
  const end = gate();
  ctx.on('tools/result', ({ content, isError }) => end.open([content[0].text, isError]));
  agent.followup('again');
  const [text, isError] = await end.opened;
  assert.match(text, /not today/);
  assert.equal(isError, true);
  agent.cancel();
  await agent.whenIdle();
  await ctx.close();
});

test('an adapter of your own may fail with facts, and a listener retries', async () => {
  let attempts = 0;
  const { ctx, agent } = await open(async function* () {
    attempts += 1;
    if (attempts === 1) throw new ModelError({ code: 'RATE_LIMIT', message: 'slow down', status: 429 });
    yield* reply('ok');
  });
  const failures = [];
  ctx.on('agent/request-error', ({ failure }) => {
    failures.push(failure);
    return 'retry';
  });
  assert.equal((await agent.run('go')).text, 'ok');
  assert.deepEqual(failures, [{ message: 'slow down', code: 'RATE_LIMIT', status: 429 }]);
  await ctx.close();
});

test('a request carries the whole history, also behind a compaction, and cannot be changed by an adapter', async () => {
  const texts = [];
  const { ctx, agent } = await open(function* (request) {
    assert.throws(() => (request.messages[0].content[0].text = 'x'), TypeError);
    request.messages.pop();
    texts.push(request.toJSON().messages.map(({ content }) => content[0].text).join(' '));
    yield* reply('ok');
  });
  await agent.run('a');
  await agent.run('b');
  const seqs = [...agent.session.events()].filter(({ type }) => type.endsWith('/message')).map(({ seq }) => seq);
  const summary = { id: 'summary', role: 'user', content: [{ type: 'text', text: 'so far' }], source: { kind: 'user' } };
  agent.session.appendRaw({ type: 'user/message', data: summary, surfaceOp: { op: 'replace', start: seqs[0], end: seqs[1] }, sourceEventSeqs: seqs.slice(0, 2) });
  await agent.run('c');
  await agent.run('d');
  assert.deepEqual(texts, ['', 'a ok', 'so far b ok', 'so far b ok c ok']);
  await ctx.close();
});

test('every wire that comes with the runtime takes its options, and refuses others by name', async (t) => {
  const { createServer } = await import('node:http');
  const paths = [];
  const server = createServer((request, response) => {
    paths.push(request.url);
    response.writeHead(401).end('{"error":{"message":"no such key"}}');
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const baseUrl = `http://127.0.0.1:${server.address().port}`;
  const ctx = new Context();
  const wires = { chat: turnwheel.openAIChat, responses: turnwheel.openAIResponses, messages: turnwheel.anthropicMessages };
  for (const [name, wire] of Object.entries(wires)) {
    ctx.llm.register(name, wire({ baseUrl, apiKey: 'k', connectTimeoutMs: 5_000, models: { m: { contextWindow: 1_000 } } }));
    assert.throws(() => ctx.llm.register('x', wire({ baseUrl, apiKey: 'k', timeout: 5 })), { code: 'UNKNOWN_OPTION' });
    const agent = await ctx.agent(name, { provider: name, model: 'm' });
    const { reason } = await agent.run('hello');
    assert.equal(reason.kind, 'error');
    assert.match(reason.error.message, /no such key/);
    assert.equal(reason.error.status, 401);
  }
  assert.deepEqual(paths, ['/chat/completions', '/responses', '/v1/messages']);
  await ctx.close();
});

test('an adapter that yields nonsense fails its request by name', async () => {
  const { ctx, agent } = await open(function* () {
    yield { type: 'text-delta', index: 0 };
  });
  const { reason } = await agent.run('go');
  assert.equal(reason.kind, 'error');
  assert.match(reason.error.message, /is not a stream chunk/);
  await ctx.close();
});

test('a store keeps a session, and opening the id again resumes it', async (t) => {
  const store = folder(t);
  {
    const { ctx, agent } = await open(scripted('first'), { store });
    const receipt = agent.followup({ id: 'm1', content: 'one' });
    await receipt.durable();
    assert.equal((await receipt.settled()).kind, 'ended');
    await ctx.close();
  }
  const { ctx, agent } = await open(scripted('second'), { store: { path: store, compression: 'zstd' } });
  assert.equal(agent.receipt('m1').state.kind, 'ended');
  assert.equal(agent.receipt('m9').state, undefined);
  assert.equal((await agent.run('two')).text, 'second');
  assert.deepEqual(agent.session.history.map(({ role }) => role), ['user', 'assistant', 'user', 'assistant']);
  assert.throws(() => agent.followup({ id: 'm1', content: 'again' }), { code: 'DUPLICATE_MESSAGE' });
  await ctx.close();
});

test('a SQLite store keeps sessions in one file', async (t) => {
  const store = { kind: 'sqlite', path: join(folder(t), 'sessions.db') };
  for (const text of ['first', 'second']) {
    const { ctx, agent } = await open(scripted(text), { store });
    assert.equal((await agent.run(text)).text, text);
    assert.equal(agent.session.history.length, text === 'first' ? 2 : 4);
    assert.deepEqual((await ctx.listSessions()).map(({ id }) => id), ['a1']);
    assert.deepEqual(await ctx.listSessions({ after: 'a1' }), []);
    await ctx.close();
  }
});

test('sections, variables, contexts and persona may be computed', async () => {
  let seen;
  let name = 'Ada';
  const { ctx, agent } = await open(function* (request) {
    seen = { system: request.system, texts: request.messages.map(({ content }) => content[0].text) };
    yield* reply('ok');
  });
  ctx.persona('You help {{name}}.');
  ctx.section('rules', (agent) => `Rules of ${agent.id}.`, { order: 5 });
  ctx.variable('name', () => name);
  ctx.context('time', () => 'It is noon.');
  await agent.run('hi');
  assert.match(seen.system, /You help Ada\.[^]*Rules of a1\./);
  assert.ok(seen.texts.some((text) => text.includes('It is noon.')));
  name = 'Bob';
  await agent.run('hi again');
  assert.match(seen.system, /You help Bob\./);
  await ctx.close();
});

test('a setup composes an agent before anybody sees it, and may fail', async () => {
  const { ctx } = await open(repeated('ok'));
  const own = await ctx.agent('own', {
    ...mock,
    setup: async (scope) => {
      await Promise.resolve();
      scope.tool({ name: 'private', execute: () => 'x' });
      scope.on('agent/status', () => undefined);
    },
  });
  assert.deepEqual(own.tools.map(({ name }) => name), ['private']);
  assert.deepEqual(ctx.tools, []);
  const failure = new Error('no licence');
  await assert.rejects(ctx.agent('bad', { ...mock, setup: () => Promise.reject(failure) }), (error) => error === failure);
  assert.equal(ctx.agents.get('bad'), undefined);
  await ctx.close();
});

test('agents are found by id, own agents, and are one object each', async () => {
  const { ctx, agent } = await open(repeated('ok'));
  const child = await agent.agent('child', mock);
  assert.equal(ctx.agents.get('child'), child);
  assert.deepEqual(ctx.agents.ids, ['a1', 'child']);
  assert.deepEqual([...ctx.agents], [agent, child]);
  assert.equal(child.session.agent, child);
  await agent.dispose();
  assert.equal(child.isDisposed, true);
  await ctx.close();
});

test('callbacks of a turn run in the asynchronous context of whoever sent its message', async () => {
  const storage = new AsyncLocalStorage();
  const seen = [];
  const note = (where) => seen.push(`${where} ${storage.getStore()}`);
  const { ctx, agent } = await open(async function* (request) {
    note('adapter');
    yield* request.messages.at(-1).source.kind === 'tool' ? reply('ok') : callOf('look');
  });
  ctx.on('agent/pre-step', async (_, next) => {
    note('pre-step');
    const decision = await next();
    note('behind next');
    return decision;
  });
  ctx.on('session/event', () => note('event'), { types: ['turn/end'] });
  ctx.tool({ name: 'look', execute: async () => {
    await new Promise((resolve) => setImmediate(resolve));
    note('tool');
    return 'ok';
  } });
  const other = await ctx.agent('a2', mock);
  await Promise.all([storage.run('A', () => agent.run('go')), storage.run('B', () => other.run('go'))]);
  const sides = { A: seen.filter((line) => line.endsWith(' A')), B: seen.filter((line) => line.endsWith(' B')) };
  assert.equal(seen.length, sides.A.length + sides.B.length, seen.join('\n'));
  for (const lines of Object.values(sides)) {
    for (const where of ['adapter', 'pre-step', 'behind next', 'event', 'tool']) assert.ok(lines.some((line) => line.startsWith(where)), where);
  }
  await ctx.close();
});

test('the initiator follows awaits, waiting for oneself is refused, and withInitiator lends it', async () => {
  const facts = [];
  let ctx;
  let agent;
  const script = [callOf('look'), reply('done')];
  ({ ctx, agent } = await open(() => script.shift()));
  ctx.tool({ name: 'look', execute: async () => {
    await new Promise((resolve) => setImmediate(resolve));
    facts.push(ctx.initiator === agent);
    facts.push(ctx.withoutInitiator(() => ctx.initiator));
    for (const wait of [() => agent.whenIdle(), () => agent.run('x'), () => ctx.close()]) {
      facts.push(await wait().then(() => 'waited', (error) => error.code));
    }
    return 'ok';
  } });
  await agent.run('go');
  assert.deepEqual(facts, [true, undefined, 'SELF_WAIT', 'SELF_WAIT', 'SELF_WAIT']);
  assert.equal(ctx.initiator, undefined);
  assert.equal(agent.withInitiator(() => ctx.initiator), agent);
  await ctx.close();
});

test('maintenance runs while idle, gives its result, and is refused when busy', async () => {
  const { ctx, agent } = await open(repeated('ok'));
  const inside = gate();
  const done = agent.runMaintenance(async ({ signal }) => {
    await inside.opened;
    return { aborted: signal.aborted };
  });
  assert.equal(agent.state().phase, 'maintenance');
  await assert.rejects(agent.runMaintenance(() => 1), { code: 'BUSY' });
  inside.open();
  assert.deepEqual(await done, { aborted: false });
  const failure = new Error('broken');
  await assert.rejects(agent.runMaintenance(() => Promise.reject(failure)), (error) => error === failure);
  await ctx.close();
});

test('inbox edits, receipts and state say what is pending', async () => {
  const { ctx, agent } = await open(repeated('ok'));
  agent.inbox.append('next-turn', { id: 'm1', content: 'a' }, { id: 'm2', content: 'b' });
  agent.inbox.prepend('next-step', { id: 'm3', content: 'c' });
  assert.deepEqual(agent.inbox.nextTurn.map(({ id }) => id), ['m1', 'm2']);
  assert.deepEqual(agent.receipt('m1').state, {
    kind: 'pending',
    target: 'next-turn',
    parked: true,
    why: { kind: 'not-woken' },
  });
  assert.equal(agent.inbox.replace('m1', { id: 'm1b', content: 'a' }), true);
  assert.equal(agent.inbox.remove('nobody'), false);
  assert.deepEqual(agent.inbox.splice('next-turn', -1, 1).map(({ id }) => id), ['m2']);
  assert.equal(agent.receipt('m2').state.kind, 'discarded');
  assert.equal(agent.receipt('m1').state.replacedBy, 'm1b');
  assert.equal(agent.state().nextTurn, 1);
  agent.wake();
  await agent.whenIdle();
  assert.equal(agent.receipt('m1b').state.kind, 'ended');
  agent.inbox.append('next-turn', 'x');
  agent.inbox.clear();
  assert.deepEqual(agent.inbox.nextTurn, []);
  await ctx.close();
});

test('errors have codes, context and advice, and unknown names are refused with the known ones', async () => {
  assert.equal(codes.DUPLICATE_MESSAGE, 401);
  assert.throws(() => new Context({ durabilty: 'turn' }), (error) => {
    assert.ok(error instanceof TurnwheelError);
    assert.equal(error.code, 'UNKNOWN_OPTION');
    assert.match(error.message, /durabilty.*durability/);
    return true;
  });
  const { ctx, agent } = await open(repeated('ok'));
  assert.throws(() => ctx.on('agent/nothing', () => undefined), { code: 'UNKNOWN_OPTION' });
  assert.throws(() => ctx.tool({ name: 't', parameters: { type: 'object', patternProperties: {} }, execute: () => 1 }), { code: 'UNSUPPORTED_SCHEMA' });
  assert.throws(() => agent.send('x', { target: 'now' }), { code: 'INVALID_ARGUMENT' });
  assert.throws(() => agent.followup(12n), /BigInt/);
  await agent.dispose();
  assert.throws(() => agent.followup('x'), { code: 'DISPOSED', context: { agentId: 'a1' } });
  await ctx.close();
  await ctx.close();
  assert.throws(() => ctx.on('agent/status', () => undefined), { code: 'RUNTIME_CLOSED' });
});

test('budgets, forks and selection reach the core', async () => {
  const { ctx, agent } = await open(repeated('ok'), { turnBudget: { steps: 7 } });
  await agent.run('a');
  const forked = await ctx.agent('fork', { ...mock, fork: { from: 'a1' } });
  assert.equal(forked.session.header.parentSession, 'a1');
  assert.equal(forked.session.history.length, 2);
  const bare = ctx.forkSession('a1', { id: 'bare' });
  assert.equal(bare.agent, undefined);
  const selection = forked.modelSelection({ provider: 'nobody', model: 'x' });
  assert.match((await forked.run('b')).reason.error.message, /nobody/);
  selection.select({ provider: 'mock', model: 'm2' });
  assert.equal((await forked.run('c')).text, 'ok');
  await ctx.close();
});

test('a budget that is spent ends the turn and names itself', async () => {
  let calls = 0;
  const { ctx, agent } = await open(() => callOf('again', {}, `c${(calls += 1)}`), { turnBudget: { steps: 2 } });
  ctx.tool({ name: 'again', execute: () => 'ok' });
  const { reason } = await agent.run('a');
  assert.equal(reason.kind, 'aborted');
  assert.match(reason.reason.reason, /budget: steps 2\/2/);
  await ctx.close();
});
