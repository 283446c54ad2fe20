// Makes the packages that are published: `node scripts/pack.mjs [folder]`. The main package has the JavaScript and names a
// package for each platform as optional; a platform's package has the library. Those that are built here are packed.

import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = join(dirname(fileURLToPath(import.meta.url)), '..');
const out = resolve(process.argv[2] ?? join(here, 'npm', 'packed'));
const main = JSON.parse(readFileSync(join(here, 'package.json'), 'utf8'));
const { version, license, description, engines } = main;

/** The platforms that a release has. */
const platforms = [
  ['linux-x64-gnu', { os: ['linux'], cpu: ['x64'], libc: ['glibc'] }],
  ['linux-x64-musl', { os: ['linux'], cpu: ['x64'], libc: ['musl'] }],
  ['linux-arm64-gnu', { os: ['linux'], cpu: ['arm64'], libc: ['glibc'] }],
  ['linux-arm64-musl', { os: ['linux'], cpu: ['arm64'], libc: ['musl'] }],
  ['darwin-x64', { os: ['darwin'], cpu: ['x64'] }],
  ['darwin-arm64', { os: ['darwin'], cpu: ['arm64'] }],
  ['win32-x64-msvc', { os: ['win32'], cpu: ['x64'] }],
];

function pack(name, manifest, files) {
  const stage = join(out, 'stage', name);
  mkdirSync(stage, { recursive: true });
  writeFileSync(join(stage, 'package.json'), `${JSON.stringify(manifest, undefined, 2)}\n`);
  for (const [from, to] of files) cpSync(from, join(stage, to), { recursive: true });
  const [{ filename }] = JSON.parse(execFileSync('npm', ['pack', '--json', '--pack-destination', out], { cwd: stage, stdio: ['ignore', 'pipe', 'ignore'] }));
  console.log(join(out, filename));
}

rmSync(out, { recursive: true, force: true });
const licenseFile = [join(here, '..', '..', 'LICENSE'), 'LICENSE'];
for (const [platform, where] of platforms) {
  const library = `turnwheel.${platform}.node`;
  const built = join(here, 'npm', platform, library);
  if (!existsSync(built)) continue;
  const manifest = { name: `turnwheel-${platform}`, version, license, description: `${description}: the library for ${platform}`, engines, main: library, files: [library], ...where };
  pack(`turnwheel-${platform}`, manifest, [[built, library], licenseFile]);
}
const { devDependencies: _, scripts: __, ...published } = main;
published.optionalDependencies = Object.fromEntries(platforms.map(([platform]) => [`turnwheel-${platform}`, version]));
pack('turnwheel', published, [[join(here, 'dist'), 'dist'], [join(here, 'README.md'), 'README.md'], licenseFile]);
rmSync(join(out, 'stage'), { recursive: true });
