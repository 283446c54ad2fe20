// A session to look at: the page in a browser, whatever a model and a tool said, and the timeline.

import assert from 'node:assert/strict';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';
import { Context, scripted } from 'turnwheel';
import { folder } from './support/env.mjs';

const attack = `</pre></title><script>window.pwned=1</script><img src=x onerror="window.pwned=2">\u202e\u001b[2J`;

async function hostile(t) {
  const ctx = new Context();
  t.after(() => ctx.close());
  const reply = { text: attack, calls: [{ id: 'c1', name: 'read', arguments: { path: attack } }], usage: { inputTokens: 700, outputTokens: 300 } };
  ctx.llm.register('llm', scripted(reply, 'done'));
  ctx.tool({ name: 'read', parameters: { type: 'object' }, execute: () => attack });
  const agent = await ctx.agent('looked-at', { provider: 'llm', model: 'm' });
  await agent.run(attack);
  return agent.session;
}

test('a hostile session is shown in a browser, and nothing of it runs', async (t) => {
  const session = await hostile(t);
  const file = join(folder(t), 'page.html');
  writeFileSync(file, session.html());
  const executablePath = ['/usr/bin/chromium', '/usr/bin/google-chrome'].find(existsSync);
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
  t.after(() => browser.close());
  const page = await browser.newPage();
  const said = [];
  page.on('console', (message) => said.push(message.text()));
  page.on('pageerror', (error) => said.push(String(error)));
  await page.goto(pathToFileURL(file).href);
  assert.equal(await page.evaluate(() => globalThis.pwned), undefined);
  assert.deepEqual(said, []);
  const shown = attack.replace('\u202e', '⟨U+202E⟩').replace('\u001b', '␛');
  assert.equal(await page.locator('article.user pre').innerText(), shown);
  assert.equal(await page.locator('script, img').count(), 0);
});

test('a timeline is text for a terminal, with costs where there is a price', async (t) => {
  const session = await hostile(t);
  const text = session.timeline({ prices: { 'llm/m': { input: 1000, output: 2000 } } });
  assert.match(text, /call read[^]*read returned after[^]*turn 1 completed/);
  assert.match(text, /700 tokens in, 300 out; cost 1\.30\n$/);
  assert.ok(!text.includes('\u001b') && !text.includes('\u202e'));
  assert.ok(session.timeline({ color: true }).includes('\u001b[32m'));
  assert.throws(() => session.html({ full: true }), { code: 'UNKNOWN_OPTION' });
  assert.throws(() => session.html({ prices: { 'llm/m': {} } }), { code: 'INVALID_ARGUMENT' });
});
