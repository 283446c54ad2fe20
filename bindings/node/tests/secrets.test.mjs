// Keys are shown by no object, error or event, and nothing that a run leaves behind has them.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { Context, anthropicMessages, openAIChat, openAIResponses } from 'turnwheel';
import { faulty, recorded } from 'turnwheel/testing';
import { folder } from './support/env.mjs';

const key = 'sk-very-secret-0123456789';
const header = 'gateway-secret-9876543210';

/** All that can be seen of a value. */
const seen = (value) => inspect(value, { depth: Infinity, showHidden: true, getters: true, maxArrayLength: null, maxStringLength: null }) + JSON.stringify(value);

test('no secret is shown or left behind by a run', async (t) => {
  const keys = [];
  // A server that quotes what it was sent, as some do when they refuse it.
  const server = createServer((request, response) => {
    keys.push(`${request.headers.authorization ?? request.headers['x-api-key']} ${request.headers['x-gateway']}`);
    response.writeHead(401, { 'content-type': 'application/json' }).end(JSON.stringify({ error: { message: `bad ${keys.at(-1)}` } }));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const root = folder(t);
  const options = { baseUrl: `http://127.0.0.1:${server.address().port}`, apiKey: key, headers: { 'x-gateway': header } };
  let shown = '';
  for (const wire of [openAIChat, openAIResponses, anthropicMessages]) {
    const adapter = wire(options);
    const ctx = new Context({ store: join(root, 'sessions') });
    const route = ctx.llm.register('m', recorded(join(root, `${wire.name}.cassette`), adapter));
    const agent = await ctx.agent(wire.name, { provider: 'm', model: 'x' });
    const result = await agent.run('hi');
    assert.equal(result.reason.error.code, 'AUTH');
    const thrown = await agent.run('hi', { model: 7 }).catch((error) => error);
    shown += [adapter, faulty(adapter), route, ctx, ctx.llm, agent, agent.session, result, thrown, [...agent.session.events()]].map(seen).join('\n');
    await ctx.close();
  }
  for (const wrong of [{ apiKey: 7 }, { apiKey: `${key}\n` }, { proxy: `nonsense ${key}` }, { baseUrl: `ftp://u:${key}@e.com` }]) {
    const error = (() => {
      try {
        return new Context().llm.register('w', openAIChat({ ...options, ...wrong }));
      } catch (error) {
        return error;
      }
    })();
    shown += seen(error) + String(error?.stack);
  }
  assert.equal(keys.filter((text) => text.includes(key) && text.includes(header)).length, keys.length, 'they were really sent');
  assert.ok(keys.length >= 3);
  const left = readdirSync(root, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  assert.ok(left.length >= 6, 'sessions and cassettes were looked through');
  const texts = left.map((entry) => [entry.name, readFileSync(join(entry.parentPath ?? entry.path, entry.name), 'utf8')]);
  for (const [place, text] of [['what was shown', shown], ...texts]) {
    for (const secret of [key, header]) assert.ok(!text.includes(secret), `${place} holds a secret`);
  }
});
