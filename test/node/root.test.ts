/** A node started by root gives up root before it serves anybody, and everything works afterwards. */
import { execFile } from 'node:child_process';
import { chmod, chown, cp, mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type EmbeddedServer, startEmbedded } from '../../src/postgres/embedded.js';
import { eventually, type RunningCli, runCli, startCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { copyCluster } from '../support/servers/postgres.js';

const run = promisify(execFile);
const isRoot = process.getuid?.() === 0 && process.platform === 'linux';

let parent: string;
let started: RunningCli[];
beforeEach(async () => {
  parent = await mkdtemp(join(tmpdir(), 'minato-root-'));
  await chmod(parent, 0o755);
  started = [];
});
afterEach(async () => {
  for (const { child, ended } of started) {
    child.kill('SIGTERM');
    await ended;
  }
  await rm(parent, { recursive: true, force: true });
});

interface Serving {
  readonly pid: number;
  readonly url: string;
  readonly log: () => string;
  stop(): Promise<void>;
}

async function serve(env: Record<string, string>): Promise<Serving> {
  const cli = startCli(['serve'], { MINATO_PORT: '0', MINATO_LOG_LEVEL: 'info', ...env });
  started.push(cli);
  let log = '';
  for (const stream of [cli.child.stdout!, cli.child.stderr!])
    stream.on('data', (chunk: Buffer) => {
      log += chunk;
    });
  const url = await eventually('it is ready', () => {
    if (cli.child.exitCode !== null) throw new Error(`it ended: ${log}`);
    return /"address":"(ws:[^"]+)".*"ready"/.exec(log)?.[1];
  });
  return {
    pid: cli.child.pid!,
    url,
    log: () => log,
    stop: async () => {
      cli.child.kill('SIGTERM');
      expect((await cli.ended).code).toBe(0);
    },
  };
}

/** For every thread: real, effective, saved and file system ids, groups and capabilities. */
async function rightsOf(pid: number) {
  const threads = await readdir(`/proc/${pid}/task`);
  const statuses = threads.map((id) => readFile(`/proc/${pid}/task/${id}/status`, 'utf8').catch(() => ''));
  const rights = (await Promise.all(statuses)).filter((status) => status !== '').map(rightsIn);
  for (const other of rights) expect(other).toEqual(rights[0]);
  return rights[0]!;
}

function rightsIn(status: string) {
  const numbers = (name: string) =>
    new RegExp(`^${name}:\\s*(.*)$`, 'm')
      .exec(status)![1]!
      .split(/\s+/)
      .filter((text) => text !== '')
      .map(Number);
  return {
    uids: new Set(numbers('Uid')),
    gids: new Set([...numbers('Gid'), ...numbers('Groups')]),
    capabilities: /^CapPrm:\s*(\w+)/m.exec(status)![1],
  };
}

async function post(url: string) {
  const client = await RawClient.connect(url);
  try {
    return await client.publish(sign(newAuthor(), { content: 'hello' }));
  } finally {
    await client.close();
  }
}

async function ownersIn(folder: string): Promise<Set<number>> {
  const names = await readdir(folder, { recursive: true });
  return new Set(await Promise.all(['', ...names].map(async (name) => (await stat(join(folder, name))).uid)));
}

async function freePortBelow1024(): Promise<number> {
  for (let port = 1_023; port > 600; port -= 1) {
    const server = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      server.once('error', () => resolve(false));
      server.listen(port, '127.0.0.1', () => resolve(true));
    });
    await new Promise((resolve) => server.close(resolve));
    if (isFree) return port;
  }
  throw new Error('no port below 1024 is free');
}

describe.skipIf(!isRoot)('with the embedded PostgreSQL', () => {
  it('changes to the user of the database, on a port below 1024, and keeps working', async () => {
    const dataDir = join(parent, 'data');
    const port = await freePortBelow1024();
    const env = { MINATO_DATA_DIR: dataDir, MINATO_PORT: `${port}` };
    const first = await serve(env);
    const { uid, gid } = await stat(join(dataDir, 'postgres'));
    expect(uid).not.toBe(0);
    expect(await rightsOf(first.pid)).toEqual({
      uids: new Set([uid]),
      gids: new Set([gid]),
      capabilities: '0000000000000000',
    });
    expect(new URL(first.url).port).toBe(`${port}`);
    expect(await post(first.url)).toEqual([true, '']);
    expect(await ownersIn(dataDir)).toEqual(new Set([uid]));

    // A command run as root beside it: its files belong to the node's user.
    expect(await runCli(['keys', 'rotate', 'relay'], env)).toMatchObject({ code: 0 });
    const member = newAuthor();
    const erased = await runCli(['erase', 'member', member.pubkey, '--yes'], env);
    expect(erased, erased.stderr).toMatchObject({ code: 0 });
    expect((await readdir(dataDir)).includes('certificates.jsonl')).toBe(true);
    expect(await ownersIn(dataDir)).toEqual(new Set([uid]));
    const doctor = await runCli(['doctor'], env);
    expect(doctor.stdout).toContain(`the node runs as an unprivileged user (id ${uid})`);
    expect(doctor).toMatchObject({ code: 0 });

    // The user can restart a crashed server.
    const server = Number.parseInt(await readFile(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8'), 10);
    process.kill(server, 'SIGKILL');
    await eventually('posts are taken again', async () => ((await post(first.url))[0] ? true : undefined));
    await first.stop();

    // Files owned by root, from an earlier version or from `cp -r`.
    for (const name of ['keys', 'certificates.jsonl']) await run('chown', ['-R', '0:0', join(dataDir, name)]);
    await chown(dataDir, 0, 0);
    const second = await serve(env);
    expect((await rightsOf(second.pid)).uids).toEqual(new Set([uid]));
    expect(await post(second.url)).toEqual([true, '']);
    expect(await ownersIn(dataDir)).toEqual(new Set([uid]));
    await second.stop();
    expect(await readdir(dataDir)).not.toContain('minato.lock');
  });

  it('stays root where its user has no access, with a warning', async () => {
    await chmod(parent, 0o700);
    const env = { MINATO_DATA_DIR: join(parent, 'data') };
    await copyCluster(env.MINATO_DATA_DIR);
    const node = await serve(env);
    expect((await rightsOf(node.pid)).uids).toEqual(new Set([0]));
    expect(node.log()).toMatch(/the node stays root: its user cannot access \//);
    expect(await post(node.url)).toEqual([true, '']);
    expect((await runCli(['doctor'], env)).stdout).toMatch(/the node \(process \d+\) runs as root/);
  });

  it('stays root when it is configured to', async () => {
    const dataDir = join(parent, 'data');
    await copyCluster(dataDir);
    const node = await serve({ MINATO_DATA_DIR: dataDir, MINATO_USER: 'root' });
    expect((await rightsOf(node.pid)).uids).toEqual(new Set([0]));
    expect(node.log()).toContain('the node stays root: MINATO_USER is root');
  });

  it('does not change the owner of the target of a link', async () => {
    const dataDir = join(parent, 'data');
    const env = { MINATO_DATA_DIR: dataDir };
    await copyCluster(dataDir);
    await (await serve(env)).stop();
    const secret = join(parent, 'secret');
    await cp('/etc/hostname', secret);
    await run('ln', ['-s', secret, join(dataDir, 'keys', 'link.key')]);
    await run('ln', [secret, join(dataDir, 'keys', 'hard.key')]);
    await (await serve(env).catch(() => undefined))?.stop();
    expect((await stat(secret)).uid).toBe(0);
  });
});

describe.skipIf(!isRoot)('with an external database', () => {
  const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined };
  let server: EmbeddedServer;
  beforeEach(async () => {
    await copyCluster(join(parent, 'elsewhere'));
    server = await startEmbedded(join(parent, 'elsewhere'), quiet);
  });
  afterEach(() => server.stop());

  const envOf = () => {
    const { host, port, user, database } = server.connection;
    return {
      DATABASE_URL: `postgres://${user}@/${database}?host=${encodeURIComponent(host)}&port=${port}`,
      MINATO_DATA_DIR: join(parent, 'data'),
    };
  };

  it('changes to a system user or the configured one; an unknown name is an error', async () => {
    const missing = await runCli(['serve'], { ...envOf(), MINATO_USER: 'no-such-user' });
    expect(missing).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('MINATO_USER: there is no user "no-such-user"'),
    });
    const { uid } = await stat(server.connection.host);
    const { stdout: name } = await run('id', ['-un', `${uid}`]);
    const node = await serve({ ...envOf(), MINATO_USER: name.trim() });
    expect((await rightsOf(node.pid)).uids).toEqual(new Set([uid]));
    expect(await post(node.url)).toEqual([true, '']);
    expect(await ownersIn(join(parent, 'data'))).toEqual(new Set([uid]));
    await node.stop();
  });

  it('stays root where the user could not reach the socket of the database', async () => {
    const node = await serve({ ...envOf(), MINATO_USER: 'nobody' });
    expect((await rightsOf(node.pid)).uids).toEqual(new Set([0]));
    expect(node.log()).toMatch(/stays root: its user cannot access \/.*PGSQL/);
    expect(await post(node.url)).toEqual([true, '']);
    await node.stop();
  });
});

describe.skipIf(!isRoot)('started by an ordinary user', () => {
  it('the node runs as that user', async () => {
    const { stdout } = await run('id', ['-u', 'nobody']);
    const nobody = Number(stdout);
    const dataDir = join(parent, 'data');
    await run('install', ['-d', '-o', 'nobody', '-m', '0700', dataDir]);
    const program = join(import.meta.dirname, '..', '..', 'bin', 'minato.js');
    const flags = [
      `--reuid=${nobody}`,
      `--regid=${nobody}`,
      '--clear-groups',
      '--',
      process.execPath,
      program,
      'serve',
    ];
    const child = execFile('setpriv', flags, {
      env: { PATH: process.env.PATH, MINATO_DATA_DIR: dataDir, MINATO_PORT: '0', MINATO_TOPIC_MODE: 'open' },
    });
    let log = '';
    for (const stream of [child.stdout!, child.stderr!])
      stream.on('data', (chunk: string) => {
        log += chunk;
      });
    try {
      const url = await eventually('it is ready', () => {
        if (child.exitCode !== null) throw new Error(`it ended: ${log}`);
        return /"address":"(ws:[^"]+)".*"ready"/.exec(log)?.[1];
      });
      expect((await rightsOf(child.pid!)).uids).toEqual(new Set([nobody]));
      expect(await post(url)).toEqual([true, '']);
      expect(log).not.toMatch(/stays root|dropped root/);
    } finally {
      const ended = child.exitCode === null && new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGTERM');
      await ended;
    }
  });
});
