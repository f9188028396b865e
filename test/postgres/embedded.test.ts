/** The embedded PostgreSQL and the data lock, with real servers in temporary folders. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { acquireDataLock, DataFolderInUse, dataLockHolder, isAlive } from '../../src/postgres/data-lock.js';
import {
  type EmbeddedConnection,
  type EmbeddedOptions,
  type EmbeddedServer,
  runningEmbedded,
  startEmbedded,
} from '../../src/postgres/embedded.js';
import { serverSettings } from '../../src/postgres/server-settings.js';
import { asUser } from '../../src/postgres/system-user.js';
import { copyCluster } from '../support/servers/postgres.js';

const projectRoot = fileURLToPath(new URL('../..', import.meta.url));
const isRoot = process.getuid?.() === 0;
const isLinux = process.platform === 'linux';

let parent: string;
let dataDir: string;
let servers: EmbeddedServer[];
let said: string[];

beforeEach(async () => {
  parent = await mkdtemp(join(tmpdir(), 'minato-test-'));
  await chmod(parent, 0o755);
  dataDir = join(parent, 'data');
  servers = [];
  said = [];
});

afterEach(async () => {
  await Promise.all(servers.map((server) => server.stop()));
  await rm(parent, { recursive: true, force: true });
});

async function start(folder = dataDir, options: EmbeddedOptions = {}): Promise<EmbeddedServer> {
  if (!existsSync(join(folder, 'postgres'))) await copyCluster(folder);
  return startOrCreate(folder, options);
}

/** With a new database, if there is none. */
async function startOrCreate(folder = dataDir, options: EmbeddedOptions = {}): Promise<EmbeddedServer> {
  const say = (message: string) => void said.push(message);
  const server = await startEmbedded(folder, { info: say, warn: say, error: say }, options);
  servers.push(server);
  return server;
}

async function query(connection: EmbeddedConnection, sql: string): Promise<unknown[][]> {
  const client = new pg.Client(connection);
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query({ text: sql, rowMode: 'array' })).rows;
  } finally {
    await client.end();
  }
}

async function rememberSomething(connection: EmbeddedConnection): Promise<void> {
  await query(connection, "CREATE TABLE memory AS SELECT 'kept' AS word");
}

const recall = (connection: EmbeddedConnection) => query(connection, 'SELECT word FROM memory');

async function serverPid(folder = dataDir): Promise<number> {
  return Number.parseInt(await readFile(join(folder, 'postgres', 'postmaster.pid'), 'utf8'), 10);
}

/** Polls with a time-out, so that the failure has a better message than the test's own time-out. */
async function eventually<T>(attempt: () => Promise<T>): Promise<T> {
  for (let left = 300; ; left--) {
    try {
      return await attempt();
    } catch (error) {
      if (left === 0) throw error;
      await delay(100);
    }
  }
}

describe('the server', () => {
  test('starts in an empty folder, without TCP, and keeps its data after a restart', async () => {
    const first = await startOrCreate();
    await rememberSomething(first.connection);
    expect(first.connection.host).toBe(join(dataDir, 'socket'));
    expect(await query(first.connection, 'SHOW listen_addresses')).toEqual([['']]);
    expect(await query(first.connection, 'SHOW server_encoding')).toEqual([['UTF8']]);
    expect(await query(first.connection, 'SHOW data_checksums')).toEqual([['on']]);
    await first.stop();

    const second = await start();
    expect(await recall(second.connection)).toEqual([['kept']]);
  });

  test('lets only its own user and root reach the socket and the data', async () => {
    await startOrCreate();
    const [data, socket] = await Promise.all([
      stat(join(dataDir, 'postgres')),
      stat(join(dataDir, 'socket')),
    ]);
    expect(data.mode & 0o777).toBe(0o700);
    expect(socket.mode & 0o777).toBe(0o700);
    expect(socket.uid).toBe(data.uid);
  });

  test('accepts nobody over TCP, and replaces the rules of an earlier version', async () => {
    const rules = join(dataDir, 'postgres', 'pg_hba.conf');
    const effective = async () =>
      (await readFile(rules, 'utf8')).split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    const first = await start();
    await rememberSomething(first.connection);
    await first.stop();
    // As initdb wrote it in an earlier version.
    const old = `local all all trust\nhost all all 127.0.0.1/32 trust\nhost all all ::1/128 trust\n`;
    await writeFile(rules, old);

    const { connection } = await start();
    expect(await recall(connection)).toEqual([['kept']]);
    const lines = await effective();
    expect(lines.filter((line) => /^host/.test(line) && !/reject$/.test(line))).toEqual([]);
    const loaded = await query(
      connection,
      `SELECT type, user_name, auth_method, error FROM pg_hba_file_rules`,
    );
    expect(loaded.filter(([type, , method]) => type !== 'local' && method !== 'reject')).toEqual([]);
    expect(loaded.filter(([type]) => type === 'local')).toEqual([
      ['local', ['minato'], 'trust', null],
      ['local', ['minato'], 'trust', null],
    ]);
    await query(connection, 'CREATE ROLE other LOGIN');
    await expect(query({ ...connection, user: 'other' }, 'SELECT 1')).rejects.toThrow(/pg_hba/);
    const [{ uid, mode }, data] = await Promise.all([stat(rules), stat(join(dataDir, 'postgres'))]);
    expect([uid, mode & 0o777]).toEqual([data.uid, 0o600]);
    // A command that runs beside the node uses the same database.
    expect(await recall((await runningEmbedded(dataDir))!)).toEqual([['kept']]);
  });

  test('splits full text at punctuation of any script', async () => {
    const { connection } = await start();
    const [row] = await query(
      connection,
      `SELECT to_tsvector('simple', '“Quoted” ÄRGER 日本語。テスト')::text`,
    );
    expect(row).toEqual([`'quoted':1 'ärger':2 'テスト':4 '日本語':3`]);
  });

  test('is found by a command beside the node, but only while it runs', async () => {
    expect(await runningEmbedded(dataDir)).toBeUndefined();
    const server = await start();
    expect(await runningEmbedded(dataDir)).toEqual(server.connection);
    await server.stop();
    expect(await runningEmbedded(dataDir)).toBeUndefined();
  });

  test('is not in the process group of the node, so Ctrl-C does not reach it', async () => {
    await start();
    const pid = await serverPid();
    // Only the leader of a group can be signalled by the negative of its own pid.
    expect(() => process.kill(-pid, 0)).not.toThrow();
  });

  test('stops once, even if stop() is called several times', async () => {
    const server = await start();
    const pid = await serverPid();
    await Promise.all([server.stop(), server.stop()]);
    await server.stop();
    expect(await isAlive(pid)).toBe(false);
  });

  test('puts its socket into a private temporary folder when the path is too long', async () => {
    const deep = join(dataDir, 'd'.repeat(60), 'e'.repeat(60));
    const server = await start(deep);
    const { host } = server.connection;
    expect(host.startsWith(join(tmpdir(), 'minato-'))).toBe(true);
    expect((await stat(host)).mode & 0o777).toBe(0o700);
    expect(await runningEmbedded(deep)).toEqual(server.connection);
    expect(await query(server.connection, 'SELECT 1')).toEqual([[1]]);
    await server.stop();
    await expect(stat(host)).rejects.toThrow('ENOENT');
  });

  test('works in a folder with a comma, a quote and a space in its name', async () => {
    const { connection } = await startOrCreate(join(dataDir, 'a, "b" c'));
    expect(await query(connection, 'SELECT 1')).toEqual([[1]]);
  });

  test('does not run as root and has no capability, in folders that its user may enter', async () => {
    await start();
    if (!isRoot || !isLinux) return;
    const status = await readFile(`/proc/${await serverPid()}/status`, 'utf8');
    expect(status).not.toMatch(/^Uid:\t0/m);
    // The capability is needed if the program is in a folder that its user cannot enter.
    expect(status).toMatch(/^CapEff:\t000000000000000[02]$/m);
  });

  test('works below a folder that is closed to its user', async () => {
    await chmod(parent, 0o700);
    const { connection } = await startOrCreate();
    expect(await query(connection, 'SELECT 1')).toEqual([[1]]);
    if (!isRoot || !isLinux) return;
    const status = await readFile(`/proc/${await serverPid()}/status`, 'utf8');
    expect(status).not.toMatch(/^Uid:\t0/m);
    expect(status).toMatch(/^CapEff:\t0000000000000002$/m); // dac_override and nothing else
  });

  test('finds its program in a folder that is closed to its user', async () => {
    if (!isRoot || !isLinux) return;
    const program = join(parent, 'program');
    await writeFile(program, '', { mode: 0o755 });
    await chmod(parent, 0o700);
    // PostgreSQL checks with access(2), as test(1) does.
    const user = { uid: 65534, gid: 65534 };
    const [command, args, options] = (await asUser(user, [program]))('test', ['-x', program]);
    const [exitCode] = await once(spawn(command, args, options), 'exit');
    expect(exitCode).toBe(0);
  });

  test('refuses a database of another major version, and says which', async () => {
    await mkdir(join(dataDir, 'postgres'), { recursive: true });
    await writeFile(join(dataDir, 'postgres', 'PG_VERSION'), '17\n');
    await expect(start()).rejects.toThrow(/made by PostgreSQL 17/);
  });

  test('removes the remains of an interrupted creation', async () => {
    await mkdir(join(dataDir, 'postgres.unfinished-1', 'base'), { recursive: true });
    await startOrCreate();
    expect((await readdir(dataDir)).sort()).toEqual(['postgres', 'socket']);
  });

  test('reports the last log lines of a server that cannot start', async () => {
    await (await start()).stop();
    await rm(join(dataDir, 'postgres', 'global', 'pg_control'));
    await expect(start()).rejects.toThrow(/pg_control/);
  });
});

describe('a server that dies', () => {
  test('is started again, with its data', async () => {
    const { connection } = await start();
    await rememberSomething(connection);
    const before = await serverPid();
    process.kill(before, 'SIGKILL');
    expect(await eventually(() => recall(connection))).toEqual([['kept']]);
    expect(await serverPid()).not.toBe(before);
    expect(said.join('\n')).toMatch(/ended unexpectedly \(SIGKILL\)/);
  });

  test('is not started again after stop(), even while a restart is pending', async () => {
    const server = await start();
    process.kill(await serverPid(), 'SIGKILL');
    await eventually(async () => expect(said.join('\n')).toMatch(/ended unexpectedly/));
    await server.stop();
    expect(await runningEmbedded(dataDir)).toBeUndefined();
    expect(said.join('\n')).not.toMatch(/serves again/);
  });

  test('is given up after too many crashes in a row, and the node is notified', async () => {
    let tell = (_: Error) => {};
    const givenUp = new Promise<Error>((resolve) => {
      tell = resolve;
    });
    await start(dataDir, { onGiveUp: tell, restartsMax: 2 });
    const pid = await serverPid();
    await rename(join(dataDir, 'postgres'), join(dataDir, 'elsewhere'));
    process.kill(pid, 'SIGKILL');
    expect((await givenUp).message).toMatch(/ended while starting/);
    expect(said.filter((message) => message.startsWith('Starting PostgreSQL again'))).toHaveLength(2);
  });
});

describe('the remains of an earlier run', () => {
  test('the server of a killed node is stopped and its data served by a new one', async () => {
    const script = `
      const { acquireDataLock } = await import(${JSON.stringify(sourceUrl('data-lock.ts'))});
      const { startEmbedded } = await import(${JSON.stringify(sourceUrl('embedded.ts'))});
      await acquireDataLock(${JSON.stringify(dataDir)});
      await startEmbedded(${JSON.stringify(dataDir)}, { info() {}, warn() {}, error() {} });
      console.log('serving');`;
    await copyCluster(dataDir);
    const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script], {
      cwd: projectRoot,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await once(createInterface({ input: child.stdout }), 'line');
    const orphan = await serverPid();
    const connection = await runningEmbedded(dataDir);
    await rememberSomething(connection!);
    expect(await dataLockHolder(dataDir)).toBe(child.pid);
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(await isAlive(orphan)).toBe(true);
    expect(await dataLockHolder(dataDir)).toBeUndefined();

    const lock = await acquireDataLock(dataDir);
    const server = await start();
    expect(await isAlive(orphan)).toBe(false);
    expect(await recall(server.connection)).toEqual([['kept']]);
    await lock.release();
  });

  test('connections that outlive a killed server only delay the next one', async () => {
    let tell = () => {};
    const givenUp = new Promise<void>((resolve) => {
      tell = resolve;
    });
    const { connection } = await start(dataDir, { restartsMax: 0, onGiveUp: tell });
    const busy = new pg.Client(connection);
    busy.on('error', () => {});
    await busy.connect();
    // A backend in a busy loop notices the end of the server only when it is done.
    const loop = busy.query('SELECT count(*) FROM generate_series(1, 20000000)').catch(() => undefined);
    await eventually(async () => {
      const running = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%20000000)'";
      expect(await query(connection, running)).not.toEqual([]);
    });
    process.kill(await serverPid(), 'SIGKILL');
    await givenUp;

    await start();
    expect(await query(connection, 'SELECT 1')).toEqual([[1]]);
    await loop;
    await busy.end().catch(() => undefined);
  });

  test('pid files with a pid that another program now has do not prevent a start', async () => {
    await (await start()).stop();
    // PostgreSQL takes a process of the same user for its predecessor.
    const { uid } = await stat(join(dataDir, 'postgres'));
    const stranger = spawn('sleep', ['300'], { uid });
    const lines = [stranger.pid, join(dataDir, 'postgres'), 1, 5432, join(dataDir, 'socket'), '', '', ''];
    await writeFile(join(dataDir, 'postgres', 'postmaster.pid'), lines.join('\n'));
    await writeFile(join(dataDir, 'socket', '.s.PGSQL.5432.lock'), lines.join('\n'));
    try {
      const { connection } = await start();
      expect(await query(connection, 'SELECT 1')).toEqual([[1]]);
      expect(await isAlive(stranger.pid!)).toBe(true);
    } finally {
      stranger.kill();
    }
  });
});

describe('the data lock', () => {
  const lockFile = () => join(dataDir, 'minato.lock');
  // Larger than any pid that Linux or macOS gives.
  const deadLock = '99999999\n1 some-boot\n';

  test('has one holder at a time; the error names the holder and what to do', async () => {
    const lock = await acquireDataLock(dataDir);
    const refusal = await acquireDataLock(dataDir).catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(DataFolderInUse);
    expect(refusal).toMatchObject({ pid: process.pid });
    expect((refusal as Error).message).toMatch(`process ${process.pid}. Stop that process`);
    expect(await dataLockHolder(dataDir)).toBe(process.pid);
    expect((await stat(lockFile())).mode & 0o777).toBe(0o600);
    await lock.release();
    expect(await dataLockHolder(dataDir)).toBeUndefined();
  });

  test('released twice does not release the lock of the next holder', async () => {
    const lock = await acquireDataLock(dataDir);
    await lock.release();
    const next = await acquireDataLock(dataDir);
    await lock.release();
    expect(await dataLockHolder(dataDir)).toBe(process.pid);
    await next.release();
  });

  test.each([
    ['of a dead process', deadLock],
    ['torn by a power cut', ''],
    // Without /proc the start time is unknown, and a running pid counts as the holder.
    ...(isLinux ? [['whose pid now belongs to another process', `${process.pid}\n1 some-boot\n`]] : []),
  ])('%s is replaced', async (_, content) => {
    await mkdir(dataDir);
    await writeFile(lockFile(), content!);
    expect(await dataLockHolder(dataDir)).toBeUndefined();
    await acquireDataLock(dataDir);
    expect(await dataLockHolder(dataDir)).toBe(process.pid);
    expect(await readdir(dataDir)).toEqual(['minato.lock']);
  });

  test('is taken by exactly one of many that find it stale', async () => {
    await mkdir(dataDir);
    for (let round = 0; round < 20; round++) {
      await writeFile(lockFile(), deadLock);
      const outcomes = await Promise.allSettled(Array.from({ length: 8 }, () => acquireDataLock(dataDir)));
      expect(outcomes.filter((outcome) => outcome.status === 'fulfilled')).toHaveLength(1);
    }
  });

  test('is not replaced while another live process is replacing it', async () => {
    await mkdir(dataDir);
    await writeFile(lockFile(), deadLock);
    await writeFile(`${lockFile()}.takeover`, `${process.ppid}\n`);
    await expect(acquireDataLock(dataDir)).rejects.toMatchObject({ pid: process.ppid });
    expect(await readFile(lockFile(), 'utf8')).toBe(deadLock);
  });

  test('is replaced even if the process that was replacing it was killed', async () => {
    await mkdir(dataDir);
    await writeFile(lockFile(), deadLock);
    await writeFile(`${lockFile()}.takeover`, deadLock);
    await acquireDataLock(dataDir);
    expect(await readdir(dataDir)).toEqual(['minato.lock']);
  });
});

describe('the settings', () => {
  const GB = 1024 ** 3;

  test.each([
    [
      0.25,
      1,
      {
        shared_buffers: '128MB',
        effective_cache_size: '256MB',
        work_mem: '4MB',
        maintenance_work_mem: '64MB',
      },
    ],
    [
      1,
      1,
      {
        shared_buffers: '128MB',
        effective_cache_size: '512MB',
        work_mem: '4MB',
        maintenance_work_mem: '64MB',
      },
    ],
    [
      4,
      2,
      {
        shared_buffers: '256MB',
        effective_cache_size: '2048MB',
        work_mem: '8MB',
        maintenance_work_mem: '128MB',
      },
    ],
    [
      16,
      8,
      {
        shared_buffers: '256MB',
        effective_cache_size: '8192MB',
        work_mem: '16MB',
        maintenance_work_mem: '512MB',
      },
    ],
    [
      256,
      64,
      {
        shared_buffers: '256MB',
        effective_cache_size: '65536MB',
        work_mem: '16MB',
        maintenance_work_mem: '512MB',
      },
    ],
  ])('follow the memory: %d GB, %d cores', (memoryGB, cores, expected) => {
    expect(serverSettings(memoryGB * GB, cores)).toMatchObject(expected);
  });

  test.each([
    [1, { max_parallel_maintenance_workers: '0', io_workers: '2', autovacuum_max_workers: '2' }],
    [8, { max_parallel_maintenance_workers: '4', io_workers: '4', autovacuum_max_workers: '4' }],
    [64, { max_parallel_maintenance_workers: '4', io_workers: '8', autovacuum_max_workers: '4' }],
  ])('follow the cores: %d', (cores, expected) => {
    expect(serverSettings(4 * GB, cores)).toMatchObject(expected);
  });

  test('never trade an accepted event for speed, on any machine', () => {
    for (const [memoryGB, cores] of [
      [0.25, 1],
      [256, 64],
    ] as const) {
      const safe = { fsync: 'on', full_page_writes: 'on', synchronous_commit: 'on', listen_addresses: '' };
      expect(serverSettings(memoryGB * GB, cores)).toMatchObject(safe);
    }
  });
});

function sourceUrl(name: string): string {
  return pathToFileURL(join(projectRoot, 'src', 'postgres', name)).href;
}
