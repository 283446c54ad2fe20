// Builds the package from source: `node scripts/build.mjs [native] [ts] [--debug]`; both halves without a name.
//
// The native half needs Rust (`rust-toolchain.toml` says which); the TypeScript half needs `npm ci`.

import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = join(dirname(fileURLToPath(import.meta.url)), '..');
const halves = process.argv.slice(2).filter((argument) => !argument.startsWith('--'));
const isDebug = process.argv.includes('--debug');
const require = createRequire(import.meta.url);

function run(program, ...argumentList) {
  execFileSync(program, argumentList, { cwd: here, stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 1 << 26 });
}

function platform() {
  const { platform, arch } = process;
  if (platform === 'win32') return `win32-${arch}-msvc`;
  if (platform !== 'linux') return `${platform}-${arch}`;
  return `linux-${arch}-${process.report.getReport().header.glibcVersionRuntime ? 'gnu' : 'musl'}`;
}

/** Where cargo puts the library. */
function library() {
  const metadata = execFileSync('cargo', ['metadata', '--format-version=1', '--no-deps', '--locked'], { cwd: here, maxBuffer: 1 << 26 });
  const { target_directory: target } = JSON.parse(metadata);
  const names = { darwin: 'libturnwheel_node.dylib', win32: 'turnwheel_node.dll' };
  return join(target, isDebug ? 'debug' : 'release', names[process.platform] ?? 'libturnwheel_node.so');
}

function buildNative() {
  run('cargo', 'build', '--quiet', '--locked', '-p', 'turnwheel-node', ...(isDebug ? [] : ['--release']));
  const place = join(here, 'npm', platform(), `turnwheel.${platform()}.node`);
  mkdirSync(dirname(place), { recursive: true });
  // A library that is loaded somewhere must not be written over.
  rmSync(place, { force: true });
  copyFileSync(library(), place);
}

function buildTypeScript() {
  rmSync(join(here, 'dist'), { recursive: true, force: true });
  run(process.execPath, join(dirname(require.resolve('typescript/package.json')), 'bin', 'tsc'), '-p', '.');
  // One module serves both kinds of program, so that they share classes and state.
  for (const entry of ['index', 'testing', 'view']) {
    const text = readFileSync(join(here, 'dist', `${entry}.js`), 'utf8');
    const found = text.matchAll(/defineProperty\(exports, "(\w+)"|^exports\.(\w+) = (?!.*void 0)/gm);
    const names = [...new Set([...found].map(([, a, b]) => a ?? b))];
    const list = names.filter((name) => name !== '__esModule').sort().map((name) => `  ${name},\n`).join('');
    writeFileSync(join(here, 'dist', `${entry}.mjs`), `import turnwheel from './${entry}.js';\n\nexport const {\n${list}} = turnwheel;\n`);
    writeFileSync(join(here, 'dist', `${entry}.d.mts`), `export * from './${entry}.js';\n`);
  }
}

if (halves.length === 0 || halves.includes('native')) buildNative();
if (halves.length === 0 || halves.includes('ts')) buildTypeScript();
