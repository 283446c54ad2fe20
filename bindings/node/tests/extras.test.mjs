// What plug-ins and strict applications need: nested calls, programs, initiators, event types, invariants.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Context, scripted, schemaOfShorthand } from 'turnwheel';
import { callOf, folder, reply } from './support/env.mjs';

const mock = { provider: 'mock', model: 'm1' };
const calls = (name, args = {}) => ({ calls: [{ id: 'c1', name, arguments: args }] });

async function open(...replies) {
  const ctx = new Context();
  ctx.llm.register('mock', scripted(...replies));
  return { ctx, agent: await ctx.agent('a', mock) };
}

test('a tool calls other tools on its own account', async () => {
  const { ctx, agent } = await open(calls('outer', { city: 'Paris' }), 'done');
  ctx.tool({ name: 'inner', parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }, execute: ({ city }) => `sunny in ${city}` });
  ctx.tool({
    name: 'outer',
    execute: async (args, call) => {
      const fine = await call.call('inner', args);
      const wrong = await call.call('inner', {});
      await assert.rejects(call.call('nobody'), { code: 'UNKNOWN_TOOL' }).catch(() => undefined);
      return { fine: fine.content, isError: fine.isError, wrong: wrong.isError };
    },
  });
  const parents = [];
  ctx.on('tools/pre-execute', (call, next) => (parents.push([call.name, call.parentCallId]), next()));
  const { reason, messages } = await agent.run('go');
  assert.equal(reason.kind, 'completed');
  const result = JSON.stringify(messages.find(({ source }) => source.kind === 'tool').content);
  assert.match(result, /sunny in Paris/);
  assert.match(result, /"isError\\?":false/);
  assert.match(result, /"wrong\\?":true/);
  assert.deepEqual(parents[0], ['outer', undefined]);
  assert.deepEqual(parents[1], ['inner', 'c1']);
  await ctx.close();
});

test('programs run where presentTools asks for them', async () => {
  const ctx = new Context();
  const shown = [];
  const answers = [callOf('run_code', { program: 'lookup' }), reply('done'), reply('bye')];
  ctx.llm.register('mock', (request) => (shown.push((request.tools ?? []).map(({ name }) => name)), answers.shift()));
  const agent = await ctx.agent('a', mock);
  ctx.tool({ name: 'lookup', execute: () => 'found' });
  ctx.codeRunner({
    description: 'Runs a program',
    parameters: { type: 'object', properties: { program: { type: 'string' } }, required: ['program'] },
    execute: async ({ program }, call) => (await call.call(program)).content[0].text,
  });
  const registration = ctx.presentTools('code');
  assert.throws(() => ctx.presentTools('both'), { code: 'DUPLICATE_NAME' });
  assert.match(JSON.stringify((await agent.run('go')).messages), /found/);
  registration.dispose();
  await agent.run('go on');
  assert.deepEqual(shown, [['run_code'], ['run_code'], ['lookup']]);
  assert.throws(() => ctx.presentTools('programs'), { code: 'INVALID_ARGUMENT' });
  await ctx.close();
});

test('requireInitiator gives the agent whose turn runs, or throws', async () => {
  const { ctx, agent } = await open(calls('who'), 'done');
  const seen = [];
  ctx.tool({
    name: 'who',
    execute: async () => {
      seen.push(ctx.requireInitiator().id);
      await new Promise((resolve) => setImmediate(resolve));
      seen.push(ctx.requireInitiator().id);
      ctx.withoutInitiator(() => assert.throws(() => ctx.requireInitiator(), { code: 'NO_INITIATOR' }));
    },
  });
  await agent.run('go');
  assert.deepEqual(seen, ['a', 'a']);
  assert.throws(() => ctx.requireInitiator(), { code: 'NO_INITIATOR' });
  await ctx.close();
});

test('event types have versions, which the log tells', async (t) => {
  const store = folder(t);
  const ctx = new Context({ store });
  ctx.llm.register('mock', scripted('hi'));
  ctx.registerEventType('plugin:note', 3);
  const agent = await ctx.agent('a', mock);
  agent.session.append('plugin:note', { text: 'x' });
  assert.equal(agent.session.eventTypeVersion('plugin:note'), 3);
  assert.equal(agent.session.eventTypeVersion('plugin:other'), undefined);
  assert.throws(() => ctx.registerEventType('plugin:half', 0.5), { code: 'INVALID_ARGUMENT' });
  await ctx.close();
  const older = new Context({ store });
  older.registerEventType('plugin:note', 2);
  await assert.rejects(older.agent('a', { ...mock, mode: 'resume' }), (error) => /version|newer/i.test(error.message));
  await older.close();
});

test('invariants may be installed, and a set up twice or an unknown option is refused', async () => {
  const { ctx, agent } = await open('hi', 'ho');
  const registration = ctx.checkInvariants({ allow: ['turnwheel-*'] });
  assert.equal((await agent.run('go')).reason.kind, 'completed');
  registration.dispose();
  assert.throws(() => ctx.checkInvariants({ allowed: [] }), { code: 'UNKNOWN_OPTION' });
  await ctx.close();
});

test('the sendable history answers every call, also one that the log left open', async () => {
  const { ctx, agent } = await open(calls('slow'), 'done');
  ctx.tool({ name: 'slow', execute: (_, { signal }) => new Promise((resolve) => signal.addEventListener('abort', () => resolve('stopped'))) });
  const { history, sendableHistory } = agent.session;
  assert.deepEqual(history, sendableHistory);
  const running = agent.run('go');
  await new Promise((resolve) => ctx.on('session/event', () => resolve(), { types: ['tool/call'] }));
  const toolUse = ({ content }) => content.some(({ type }) => type === 'tool-call');
  assert.ok(agent.session.history.some(toolUse));
  const answered = (messages) => messages.flatMap(({ content }) => content).filter(({ type }) => type === 'tool-result').length;
  assert.equal(answered(agent.session.history), 0);
  assert.ok(answered(agent.session.sendableHistory) === 1 || !agent.session.sendableHistory.some(toolUse));
  agent.cancel();
  await running;
  await ctx.close();
});

test('the shorthand of schemas becomes JSON Schema', () => {
  const shorthand = { type: 'object', properties: { city: { type: 'string', required: true }, any: { type: 'json' } }, additionalProperties: false };
  assert.deepEqual(schemaOfShorthand(shorthand), {
    type: 'object',
    properties: { city: { type: 'string' }, any: {} },
    required: ['city'],
    additionalProperties: false,
  });
  assert.throws(() => schemaOfShorthand({ type: 'object', properties: {} }), { code: 'UNSUPPORTED_SCHEMA' });
});
