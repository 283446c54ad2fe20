// What the tests share: a folder that is gone afterwards, gates, child programs, garbage.

import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const packageRoot = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
export const projectRoot = join(packageRoot, '..', '..');

/** A folder for one test. */
export function folder(test) {
  const path = mkdtempSync(join(tmpdir(), 'turnwheel-'));
  test.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** A promise with its ends outside. */
export function gate() {
  const made = {};
  made.opened = new Promise((resolve, reject) => Object.assign(made, { open: resolve, fail: reject }));
  return made;
}

/** Runs a program as a process of its own, with the package importable; gives `{code, signal, stdout, stderr}`. */
export function program(source, { flags = [], node = process.execPath, timeout = 60_000 } = {}) {
  return new Promise((resolve) => {
    const argumentList = [...flags, '--input-type=module', '--eval', source];
    execFile(node, argumentList, { cwd: packageRoot, timeout, maxBuffer: 1 << 26 }, (error, stdout, stderr) => {
      resolve({ code: error?.code ?? 0, signal: error?.signal ?? null, stdout, stderr });
    });
  });
}

/** A reply of text in so many pieces, as an adapter gives it. */
export function* reply(...texts) {
  yield { type: 'block-start', index: 0, blockType: 'text' };
  for (const text of texts) yield { type: 'text-delta', index: 0, text };
  yield { type: 'block-end', index: 0, block: { type: 'text', text: texts.join('') } };
  yield { type: 'finish', reason: { kind: 'stop' } };
}

/** A reply that calls a tool. */
export function* callOf(name, args = {}, id = 'c1') {
  const text = JSON.stringify(args);
  yield { type: 'block-start', index: 0, blockType: 'tool-call' };
  yield { type: 'tool-call-delta', index: 0, id, name, argumentsDelta: text };
  yield { type: 'block-end', index: 0, block: { type: 'tool-call', id, name, arguments: text } };
  yield { type: 'finish', reason: { kind: 'tool-calls' } };
}
