// The examples do what they say: the assistant survives being killed, and a browser sees every event once.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { once } from 'node:events';
import { join } from 'node:path';
import { test } from 'node:test';
import { chromium } from 'playwright-core';
import { folder, packageRoot, projectRoot } from './support/env.mjs';

const examples = join(projectRoot, 'examples', 'node');

/** A folder in which the examples find the package, as in a project that installed it. */
function project(t) {
  const at = folder(t);
  mkdirSync(join(at, 'node_modules'));
  symlinkSync(packageRoot, join(at, 'node_modules', 'turnwheel'));
  return at;
}

/** Starts an example; `seen(text)` resolves when its output has the text. */
function start(t, at, name, ...argumentList) {
  const copied = join(at, name);
  if (!existsSync(copied)) symlinkSync(join(examples, name), copied);
  const child = spawn(process.execPath, ['--preserve-symlinks-main', copied, ...argumentList], { cwd: at, env: { ...process.env, TURNWHEEL_BASE_URL: '' } });
  const out = { child, text: '', errors: '' };
  const waiting = new Set();
  child.stdout.setEncoding('utf8').on('data', (text) => {
    out.text += text;
    for (const check of waiting) check();
  });
  child.stderr.setEncoding('utf8').on('data', (text) => (out.errors += text));
  const exited = once(child, 'exit');
  out.exited = exited.then(([code, signal]) => ({ code, signal }));
  out.seen = (wanted) =>
    new Promise((resolve, reject) => {
      const check = () => {
        const found = out.text.match(wanted);
        if (found === null) return;
        waiting.delete(check);
        resolve(found);
      };
      waiting.add(check);
      exited.then(() => reject(new Error(`it ended without ${wanted}: ${out.text}${out.errors}`)));
      check();
    });
  t.after(() => child.kill('SIGKILL'));
  return out;
}

test('the assistant is under 60 lines', () => {
  assert.ok(readFileSync(join(examples, 'assistant.mjs'), 'utf8').trimEnd().split('\n').length < 60);
});

test('the assistant, killed in mid-stream with a follow-up queued, goes on where it was', async (t) => {
  const at = project(t);
  const store = join(at, 'sessions');
  const first = start(t, at, 'assistant.mjs', store);
  await first.seen(/\[multiply \{"a":5,"b":7\}\]\nTwo and three/);
  first.child.kill('SIGKILL');
  assert.deepEqual(await first.exited, { code: null, signal: 'SIGKILL' });
  const second = start(t, at, 'assistant.mjs', store);
  assert.deepEqual(await second.exited, { code: 0, signal: null }, second.errors);
  assert.match(second.text, /^recovered \d+ events; the last turn ended: interrupted; waiting: \["And how far is that from 100\?"\]/);
  assert.match(second.text, /> And how far is that from 100\?\nIt is sixty-five away from one hundred\.\n$/);
});

test('the server streams events, and resumes behind Last-Event-ID', async (t) => {
  const at = project(t);
  const server = start(t, at, 'server.mjs', join(at, 'sessions'), '0');
  const [base] = await server.seen(/http:\S+/);
  const post = await fetch(`${base}messages`, { method: 'POST', body: 'hello' });
  assert.equal(post.status, 202);
  assert.match((await post.json()).messageId, /^[0-9a-f-]{36}$/);
  const read = async (headers, isEnough) => {
    const stop = new AbortController();
    const response = await fetch(`${base}events`, { headers, signal: stop.signal });
    let text = '';
    for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
      text += part;
      const ids = [...text.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id));
      if (isEnough(text, ids)) {
        stop.abort();
        return ids;
      }
    }
    return assert.fail('the stream ended');
  };
  const head = await read({}, (_, ids) => ids.length >= 5);
  const tail = await read({ 'last-event-id': String(head.at(-1)) }, (text) => text.includes('event: turn/end'));
  assert.deepEqual([...head, ...tail], Array.from({ length: head.length + tail.length }, (_, index) => index));
  assert.equal((await fetch(`${base}nothing`)).status, 404);
  server.child.kill('SIGTERM');
  assert.deepEqual(await server.exited, { code: 0, signal: null }, server.errors);
});

test('a page in a browser shows the turn as it streams, also over a restart of the server', async (t) => {
  const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((path) => existsSync(path));
  assert.ok(executablePath, 'Chromium is missing: apt-get install chromium');
  const at = project(t);
  symlinkSync(join(examples, 'page.html'), join(at, 'page.html'));
  const store = join(at, 'sessions');
  const server = start(t, at, 'server.mjs', store, '0');
  const [base, port] = await server.seen(/http:\S+:(\d+)\//);
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
  t.after(() => browser.close());
  const page = await browser.newPage();
  await page.goto(base);
  await page.waitForFunction(() => document.querySelector('#state').textContent === 'idle');
  await page.fill('#text', 'Say something');
  await page.click('button');
  await page.waitForFunction(() => document.querySelector('.assistant')?.textContent === 'Every word of this comes on its own.');
  await page.waitForFunction(() => document.querySelector('#state').textContent === 'idle');
  server.child.kill('SIGTERM');
  await server.exited;
  await page.waitForFunction(() => document.querySelector('#state').textContent === 'reconnecting');
  const again = start(t, at, 'server.mjs', store, port);
  await again.seen(/http:/);
  await page.waitForFunction(() => document.querySelector('#state').textContent === 'idle', undefined, { timeout: 30_000 });
  await page.fill('#text', 'And again');
  await page.click('button');
  await page.waitForFunction(() => [...document.querySelectorAll('.assistant')].length === 2 && document.querySelector('#state').textContent === 'idle');
  const lines = await page.$$eval('#log p', (found) => found.map(({ className, textContent }) => `${className}: ${textContent}`));
  const answer = 'assistant: Every word of this comes on its own.';
  assert.deepEqual(lines, ['user: Say something', answer, 'user: And again', answer]);
});
