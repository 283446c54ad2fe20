// The package as others get it: packed, installed into an empty project, typed, documented, and on other runtimes.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { folder, packageRoot, program, projectRoot } from './support/env.mjs';

function run(command, argumentList, options = {}) {
  return new Promise((resolve) => {
    execFile(command, argumentList, { maxBuffer: 1 << 26, timeout: 240_000, ...options }, (error, stdout, stderr) => {
      resolve({ code: error?.code ?? 0, stdout, stderr });
    });
  });
}

async function succeeds(command, argumentList, options) {
  const result = await run(command, argumentList, options);
  assert.equal(result.code, 0, `${command} ${argumentList.join(' ')}\n${result.stdout}\n${result.stderr}`);
  return result.stdout;
}

const bin = (name) => join(packageRoot, 'node_modules', '.bin', name);
const programsOf = (path) => [...readFileSync(path, 'utf8').matchAll(/^```js\n([^]*?)^```/gm)].map(([, source]) => source);
const packed = join(packageRoot, 'npm', 'packed');
let tarballs;

before(async () => {
  tarballs = (await succeeds(process.execPath, [join(packageRoot, 'scripts', 'pack.mjs'), packed])).trim().split('\n');
});

test('the packed package runs the README program in an empty project, as ESM and as CommonJS', async (t) => {
  const project = folder(t);
  writeFileSync(join(project, 'package.json'), '{"private":true}');
  await succeeds('npm', ['install', '--offline', '--no-audit', '--no-fund', ...tarballs], { cwd: project });
  const installed = readdirSync(join(project, 'node_modules')).filter((name) => name.startsWith('turnwheel'));
  assert.deepEqual(installed, ['turnwheel', 'turnwheel-linux-x64-gnu'], 'one library, and it is this machine’s');
  const [readme] = programsOf(join(packageRoot, 'README.md'));
  assert.deepEqual(programsOf(join(projectRoot, 'README.md')), [readme], 'the project shows the same program');
  writeFileSync(join(project, 'readme.mjs'), readme);
  const env = { ...process.env, TURNWHEEL_BASE_URL: '' };
  assert.equal(await succeeds(process.execPath, ['readme.mjs'], { cwd: project, env }), 'Hello from a script.');
  const source = "const { Context, codes } = require('turnwheel'); new Context(); console.log(codes.PARKED);";
  assert.equal(await succeeds(process.execPath, ['-e', source], { cwd: project }), '212\n');
});

test('every program of docs/node.md and docs/models.md runs', async (t) => {
  const programs = ['node.md', 'models.md'].flatMap((name) => programsOf(join(projectRoot, 'docs', name)));
  assert.equal(programs.length, 6);
  for (const source of programs) {
    const { code, stderr } = await program(source);
    assert.deepEqual({ code, stderr }, { code: 0, stderr: '' }, `${t.name}:\n${source}`);
  }
});

test('publint and attw find nothing to object to', async () => {
  const main = tarballs.find((path) => /turnwheel-\d/.test(path));
  await succeeds(bin('publint'), ['run', main, '--strict']);
  await succeeds(bin('attw'), [main, '--format', 'ascii', '--no-emoji']);
});

test('case 157: the types are complete, strict, and true to the module', async (t) => {
  const project = folder(t);
  mkdirSync(join(project, 'node_modules', '@types'), { recursive: true });
  symlinkSync(packageRoot, join(project, 'node_modules', 'turnwheel'));
  for (const name of ['zod', join('@types', 'node'), 'undici-types']) symlinkSync(join(packageRoot, 'node_modules', name), join(project, 'node_modules', name));
  const compilerOptions = { strict: true, target: 'es2022', lib: ['es2023', 'esnext.disposable'], module: 'node16', moduleResolution: 'node16', types: ['node'], noEmit: true, skipLibCheck: false, exactOptionalPropertyTypes: true, noUnusedLocals: false };
  const files = ['types.mts', 'types-cjs.cts'];
  for (const name of files) writeFileSync(join(project, name), readFileSync(join(packageRoot, 'tests', 'types', name)));
  writeFileSync(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }));
  await succeeds(bin('tsc'), ['-p', project]);
  for (const [entry, module] of [['index', 'turnwheel'], ['testing', 'turnwheel/testing'], ['view', 'turnwheel/view']]) {
    const text = readFileSync(join(packageRoot, 'dist', `${entry}.d.ts`), 'utf8');
    const declared = [...text.matchAll(/^export (?:declare (?:const|class|function) (\w+)|\{ ([^}]*) \} from)/gm)];
    const values = declared.flatMap(([, own, list]) => (own ? [own] : list.split(', ').filter((name) => !name.startsWith('type '))));
    assert.deepEqual(values.sort(), Object.keys(await import(module)).filter((name) => name !== 'default').sort());
  }
});

test('case 161: a loader that finds nothing says what it looked for, and asks for the library of the right libc', async (t) => {
  const project = folder(t);
  symlinkSync(join(packageRoot, 'dist'), join(project, 'dist'));
  const load = async (prelude) => {
    const source = `${prelude}; try { require(${JSON.stringify(join(project, 'dist', 'index.js'))}); } catch (error) { console.log(error.code, error.message); }`;
    return succeeds(process.execPath, ['--preserve-symlinks', '-e', source], { cwd: project });
  };
  const gnu = await load('');
  assert.match(gnu, /^HOST_ERROR turnwheel has no native library for this machine \(linux-x64-gnu, Node-API \d+\)/);
  assert.match(gnu, /Looked for, in this order: turnwheel-linux-x64-gnu: not there; \.\.\/npm\/linux-x64-gnu\/turnwheel\.linux-x64-gnu\.node: not there/);
  const musl = await load("process.report.getReport = () => ({ header: {} })");
  assert.match(musl, /turnwheel-linux-x64-musl: not there/);
  assert.doesNotMatch(musl, /gnu/);
  const broken = await load("process.env.TURNWHEEL_NATIVE = '/dev/null'");
  assert.match(broken, /in this order: \/dev\/null: /);
});

const smoke = `
  import assert from 'node:assert';
  import { Context, scripted } from 'turnwheel';
  const ctx = new Context();
  ctx.llm.register('mock', async function* () {
    yield { type: 'block-start', index: 0, blockType: 'text' };
    yield { type: 'text-delta', index: 0, text: 'own' };
    yield { type: 'block-end', index: 0, block: { type: 'text', text: 'own' } };
    yield { type: 'finish', reason: { kind: 'stop' } };
  });
  ctx.llm.register('script', scripted({ calls: [{ id: 'c', name: 't' }] }, { text: 'scripted', chunkSize: 2, delayMs: 5 }));
  ctx.tool({ name: 't', execute: async () => 'ok' });
  const types = [];
  ctx.on('session/event', (event) => types.push(event.type));
  ctx.on('agent/pre-step', async (_, next) => next());
  const agent = await ctx.agent('a1', { provider: 'mock', model: 'm' });
  assert.equal((await agent.run('go')).text, 'own');
  const other = await ctx.agent('a2', { provider: 'script', model: 'm' });
  let text = '';
  for await (const event of other.stream('go')) if (event.type === 'assistant/chunk') text += event.text;
  assert.equal(text, 'scripted');
  assert.ok(types.includes('tool/result'));
  await ctx.close();
  console.log('ok');
`;

for (const name of ['node22', 'node24']) {
  test(`Node ${name.slice(4)} loads the same library`, async () => {
    const { stdout, stderr } = await program(smoke, { node: join(packageRoot, 'node_modules', name, 'bin', 'node') });
    assert.equal(stdout, 'ok\n', stderr);
  });
}

test('Bun and Deno load the same library', async (t) => {
  const project = folder(t);
  mkdirSync(join(project, 'node_modules'));
  symlinkSync(packageRoot, join(project, 'node_modules', 'turnwheel'));
  writeFileSync(join(project, 'package.json'), '{"private":true,"type":"module"}');
  writeFileSync(join(project, 'smoke.mjs'), smoke);
  assert.equal(await succeeds(bin('bun'), ['smoke.mjs'], { cwd: project }), 'ok\n');
  const allowed = ['--allow-ffi', '--allow-read', '--allow-env', '--allow-sys'];
  assert.equal(await succeeds(bin('deno'), ['run', '--no-lock', ...allowed, 'smoke.mjs'], { cwd: project }), 'ok\n');
});
