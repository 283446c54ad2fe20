// D-18: turns that wait for each other through JavaScript. Each case is a process of its own, because what is certain is
// certain only when nothing is left that could happen in it.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const here = join(dirname(fileURLToPath(import.meta.url)), '..');

const setting = `
import { Context, onWarning } from 'turnwheel';
const agents = {};
const said = (text) => [{ type: 'block-start', index: 0, blockType: 'text' }, { type: 'text-delta', index: 0, text }, { type: 'block-end', index: 0, block: { type: 'text', text } }];
const call = (name) => [{ type: 'block-start', index: 0, blockType: 'tool-call' }, { type: 'tool-call-delta', index: 0, id: name, name, argumentsDelta: '{}' },
  { type: 'block-end', index: 0, block: { type: 'tool-call', id: name, name, arguments: '{}' } }];
async function open(scripts, way) {
  const ctx = new Context();
  ctx.llm.register('m', async function* ({ sessionId }) {
    const name = scripts[sessionId].shift();
    yield* name === undefined ? said('done') : call(name);
    yield { type: 'finish', reason: { kind: name === undefined ? 'stop' : 'tool-calls' } };
  });
  for (const id of Object.keys(scripts)) {
    ctx.tool({ name: 'ask_' + id, execute: async () => (await way(agents[id]), 'answered') });
    agents[id] = await ctx.agent(id, { provider: 'm', model: 'x' });
  }
  return ctx;
}
const results = (id) => [...agents[id].session.events()].filter(({ type }) => type === 'tool/result').map(({ data }) => data.error?.code ?? 'ok');
const tell = (value) => console.log(JSON.stringify(value));
`;

function run(script) {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', setting + script], { cwd: here, encoding: 'utf8', timeout: 30_000 });
  assert.equal(status, 0, stderr);
  return { told: stdout.trim().split('\n').map((line) => JSON.parse(line)), stderr };
}

for (const [name, way] of [
  ['run', "(agent) => agent.run('q')"],
  ['a settled receipt', "(agent) => agent.followup('q').settled()"],
  ['whenIdle', '(agent) => agent.whenIdle()'],
  ['Promise.all', "(agent) => Promise.all([agent.run('q'), 5])"],
]) {
  test(`d_18: a ring that closes with ${name} is told when nothing else is left to happen`, () => {
    const { told } = run(`
      await open({ a: ['ask_b'], b: ['ask_c'], c: ['ask_a'] }, (agent) => (agent.id === 'a' ? (${way})(agent) : Promise.all([agent.run('q')])));
      tell((await agents.a.run('go')).reason);
      tell(['a', 'b', 'c'].map(results));
      tell((await agents.a.run('nothing was left behind')).reason);
    `);
    assert.deepEqual(told, [{ kind: 'completed' }, [['ok'], ['ok'], ['SELF_WAIT']], { kind: 'completed' }]);
  });
}

test('d_18: a ring through a listener and an adapter is told', () => {
  const { told } = run(`
    const ctx = await open({ a: [], b: ['ask_a'], c: ['ask_a'] }, (agent) => agent.run('q'));
    let isFirst = true;
    agents.a.on('agent/pre-step', async (_, next) => {
      if (isFirst) {
        isFirst = false;
        await agents.b.run('q');
      }
      return next();
    });
    tell((await agents.a.run('go')).reason);
    ctx.llm.register('asks', async function* () {
      await agents.c.run('q');
      yield { type: 'finish', reason: { kind: 'stop' } };
    });
    agents.a = await ctx.agent('d', { provider: 'asks', model: 'x' });
    tell((await agents.a.run('go')).reason);
    tell([results('b'), results('c')]);
  `);
  assert.deepEqual(told, [{ kind: 'completed' }, { kind: 'completed' }, [['SELF_WAIT'], ['SELF_WAIT']]]);
});

test('d_18: a run that a body left behind is no reason to refuse one back, and one that lasts is warned of', () => {
  const { told } = run(`
    let left;
    const warnings = [];
    onWarning((message) => warnings.push(message));
    const ctx = await open({ a: ['leave'], b: ['ask_a'] }, (agent) => agent.run('q'));
    ctx.tool({ name: 'leave', execute: async () => {
      left = agents.b.run('q');
      await new Promise((resolve) => setTimeout(resolve, 2_500));
      return 'left';
    } });
    tell((await agents.a.run('go')).reason);
    tell([(await left).reason, results('b'), warnings]);
  `);
  const [first, [second, ofB, warnings]] = told;
  assert.deepEqual([first, second, ofB], [{ kind: 'completed' }, { kind: 'completed' }, ['ok']]);
  assert.deepEqual(warnings.length, 1);
  assert.match(warnings[0], /agent "a" is waiting for the turn of "b"/);
});
