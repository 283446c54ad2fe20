// `node run.mjs [--pending FILE] [--decisions DIR] [--ran FILE] [--show NAME] DIR`: runs the scenarios of a folder through the public
// interface of the Node package and judges each. `tests/conformance/SCENARIO.md` defines the format; the
// Rust runner there checks the files themselves.

import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { differences, render } from './compare.mjs';
import { runScenario } from './result.mjs';

const usage = 'usage: run.mjs [--pending FILE] [--decisions DIR] [--ran FILE] [--show NAME] DIR';
const shownDifferences = 14;

function parse(given) {
  const options = {};
  const rest = [...given];
  while (rest.length > 0) {
    const argument = rest.shift();
    if (['--pending', '--decisions', '--ran', '--show'].includes(argument) && rest.length > 0) options[argument.slice(2)] = rest.shift();
    else if (argument.startsWith('-') || options.folder !== undefined) throw new Error(usage);
    else options.folder = argument;
  }
  if (options.folder === undefined) throw new Error(usage);
  return options;
}

function namesIn(folder) {
  return readdirSync(folder).filter((file) => file.endsWith('.json')).map((file) => basename(file, '.json')).sort();
}

function readJson(path) {
  return JSON.parse(readFileSync(path, 'utf8'));
}

function readPending(path) {
  if (path === undefined) return new Set();
  const lines = readFileSync(path, 'utf8').split('\n').map((line) => line.split('#')[0].trim());
  return new Set(lines.filter((line) => line !== ''));
}

function read(options, name) {
  const scenario = readJson(join(options.folder, `${name}.json`));
  if (scenario.name !== name) throw new Error(`the scenario is called ${JSON.stringify(scenario.name)}`);
  const path = options.decisions && join(options.decisions, `${name}.json`);
  const decision = path && existsSync(path) ? readJson(path) : undefined;
  if (decision?.model !== undefined) scenario.model = decision.model;
  return { scenario, expected: decision?.expect ?? scenario.expect };
}

async function judge(options, name) {
  const { scenario, expected } = read(options, name);
  if (expected === undefined) return ['  there is no `expect`'];
  const { result, problems } = await runScenario(scenario);
  const lines = [...problems.map((problem) => `  ${problem}`), ...differences(expected, result).map(render)];
  const more = lines.length - shownDifferences;
  return more > 0 ? [...lines.slice(0, shownDifferences), `  and ${more} more`] : lines;
}

async function main() {
  const options = parse(process.argv.slice(2));
  // A rejection that nobody hears of fails the scenario under way: the runtime must leave none behind.
  let unheard = [];
  process.on('unhandledRejection', (reason) => unheard.push(`  an unhandled rejection: ${reason?.stack ?? reason}`));
  if (options.show !== undefined) {
    const { scenario } = read(options, options.show);
    console.log(JSON.stringify((await runScenario(scenario)).result, undefined, 2));
    return true;
  }
  const pending = readPending(options.pending);
  const names = namesIn(options.folder);
  if (names.length === 0) throw new Error(`${options.folder} holds no scenario`);
  const passed = [];
  let failed = 0;
  for (const name of names) {
    unheard = [];
    let lines;
    try {
      lines = await judge(options, name);
    } catch (error) {
      lines = [`  ${error.stack ?? error}`];
    }
    lines.push(...unheard);
    if (pending.has(name)) {
      if (lines.length > 0) console.log(`pending ${name}`);
      else lines.push('  listed as pending but passes');
    }
    if (lines.length === 0) passed.push(name);
    else if (!pending.has(name) || lines[0].includes('but passes')) {
      failed += 1;
      console.log([`FAIL ${name}`, ...lines].join('\n'));
    }
  }
  if (options.ran !== undefined) {
    mkdirSync(dirname(options.ran), { recursive: true });
    writeFileSync(options.ran, passed.map((name) => `${name}\n`).join(''));
  }
  console.log(`${passed.length} passed, ${failed} failed`);
  return failed === 0;
}

main().then(
  (isGood) => {
    process.exitCode = isGood ? 0 : 1;
  },
  (error) => {
    console.error(error.message);
    process.exitCode = 2;
  },
);
