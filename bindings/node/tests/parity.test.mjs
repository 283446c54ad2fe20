// The parity table is true for Node: what it names exists, and what exists is named.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import * as turnwheel from 'turnwheel';
import * as testing from 'turnwheel/testing';
import * as view from 'turnwheel/view';
import { packageRoot, projectRoot } from './support/env.mjs';

const table = readFileSync(join(projectRoot, 'tests', 'parity', 'hosts.md'), 'utf8');
const lines = table.split('\n').filter((line) => line.startsWith('| '));
const [head, ...rows] = lines.map((line) => line.slice(1, -1).split('|').map((cell) => cell.trim()));
const column = head.indexOf('Node');
const types = join(packageRoot, 'dist');
const declarations = readdirSync(types).filter((name) => name.endsWith('.d.ts')).map((name) => readFileSync(join(types, name), 'utf8')).join('\n');

/** Whether a name exists: as a value, or as a type and its members. */
function exists(name) {
  const [first, ...rest] = name.split('.');
  const module = { testing, view }[first];
  const [owner, member] = module === undefined ? [first, ...rest] : rest;
  const value = (module ?? turnwheel)[owner];
  if (typeof value === 'function' && member !== undefined) return member in value.prototype;
  if (value !== undefined) return true;
  const declared = declarations.match(new RegExp(`^export (?:interface|type) ${owner}\\b[^]*?\\n(?=\\}|export|/\\*\\*)`, 'm'));
  return declared !== null && (member === undefined || new RegExp(`\\b${member}\\b`).test(declared[0]));
}

test('every name of the Node column exists, and a row without one says why', () => {
  assert.notEqual(column, -1);
  for (const row of rows) {
    const names = [...row[column].matchAll(/`(.+?)`/g)].map(([, name]) => name);
    assert.ok(names.length > 0 || row.at(-1) !== '', `${row[0]}: a host that lacks something says why`);
    for (const name of names) assert.ok(exists(name), `${row[0]}: there is no ${name}`);
  }
});

test('every public value is in the table, or part of something that is', () => {
  const parts = ['AbortError', 'ModelError', 'TurnwheelError', 'BuiltInAdapter', 'ModelDouble', 'EventStream', 'ModelSelection', 'Registrar', 'Scope', 'ToolResult', 'onWarning', 'repeated', 'textOf', 'texts'];
  const named = new Set(rows.flatMap((row) => [...row[column].matchAll(/`(\w+)/g)].map(([, name]) => name)));
  const missing = Object.keys(turnwheel).filter((name) => name !== 'default' && !named.has(name) && !parts.includes(name));
  assert.deepEqual(missing, []);
});
