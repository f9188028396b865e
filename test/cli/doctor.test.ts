import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Finding, Level } from '../../src/health/finding.js';
import { checkDurability } from '../../src/health/server.js';
import { dataLockHolder } from '../../src/postgres/data-lock.js';
import { eventually, runCli, startCli } from '../support/cli.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { freePort } from '../support/servers/free-port.js';
import { copyCluster } from '../support/servers/postgres.js';
import { TestRedis } from '../support/servers/redis.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-doctor-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function examine(env: Record<string, string>): Promise<{ code: number | null; findings: Finding[] }> {
  const { code, stdout } = await runCli(['doctor', '--json'], env);
  const { findings, healthy } = JSON.parse(stdout) as { findings: Finding[]; healthy: boolean };
  expect(healthy).toBe(code === 0);
  return { code, findings };
}

const textsOf = (findings: readonly Finding[], level: Level) =>
  findings.filter((finding) => finding.level === level).map((finding) => finding.text);

describe('doctor without a database', () => {
  test('an unused data folder is reported, and nothing is created in it', async () => {
    const dataDir = join(folder, 'empty');
    await mkdir(dataDir);
    const env = { MINATO_DATA_DIR: dataDir, MINATO_PORT: `${await freePort()}` };
    const { code, findings } = await examine(env);
    expect(code).toBe(0);
    expect(textsOf(findings, 'info')).toContainEqual(`there is no database in ${dataDir} yet`);
    expect(await readdir(dataDir)).toEqual([]);

    const missing = join(folder, 'missing', 'deeper');
    expect((await examine({ ...env, MINATO_DATA_DIR: missing })).code).toBe(0);
    expect(await readdir(folder)).toEqual(['empty']);
  });

  test('wrong environment variables are all listed, each with its problem', async () => {
    const env = { MINATO_PORT: 'seventy', MINATO_ADMIN_PUBKEYS: 'me', MINATO_TOPIC_MODE: 'open' };
    const { code, findings } = await examine(env);
    expect(code).toBe(1);
    const [failed] = findings.filter((finding) => finding.level === 'fail');
    expect(failed!.text).toContain('MINATO_PORT');
    expect(failed!.text).toContain('MINATO_ADMIN_PUBKEYS: "me" is neither');
    expect(failed!.advice).toContain('minato serve --help');
  });

  test('an unreachable database fails with what to check, without its password', async () => {
    const { code, stdout } = await runCli(['doctor'], {
      DATABASE_URL: 'postgres://minato:hunter2@127.0.0.1:1/minato',
      MINATO_PORT: `${await freePort()}`,
    });
    expect(code).toBe(1);
    expect(stdout).toMatch(
      /^FAIL postgres:\/\/minato@127\.0\.0\.1:1\/minato does not answer: .*ECONNREFUSED/m,
    );
    expect(stdout).toMatch(/^ {5}→ Check DATABASE_URL/m);
    expect(stdout).not.toContain('hunter2');
  });
});

describe('REDIS_URL', () => {
  const envOf = async (url: string) => ({
    MINATO_DATA_DIR: join(folder, 'none'),
    MINATO_PORT: `${await freePort()}`,
    REDIS_URL: url,
  });

  test('a Redis that answers is shown with its version', async () => {
    const redis = await TestRedis.start();
    const { code, findings } = await examine(await envOf(redis.url));
    expect(code).toBe(0);
    expect(textsOf(findings, 'ok')).toContainEqual(
      expect.stringMatching(new RegExp(`^redis at 127\\.0\\.0\\.1:${redis.port} answers, version \\d`)),
    );
    await redis.stop();
  });

  test('one that does not answer is a warning with its consequences, without its password', async () => {
    const { code, stdout } = await runCli(['doctor'], await envOf('redis://me:hunter2@127.0.0.1:1'));
    expect(code).toBe(0);
    expect(stdout).toMatch(/^warn redis at 127\.0\.0\.1:1 does not answer: .*ECONNREFUSED/m);
    expect(stdout).toMatch(/^ {5}→ Check REDIS_URL/m);
    expect(stdout).not.toContain('hunter2');
  });
});

describe('durability', () => {
  const durable = { fsync: true, fullPageWrites: true, synchronousCommit: 'on', checksums: true };

  // A server with these off cannot be had here without endangering the other tests on it.
  test.each([
    [{}, 'ok'],
    [{ synchronousCommit: 'remote_apply' }, 'ok'],
    [{ synchronousCommit: 'off' }, 'warn'],
    [{ fsync: false }, 'fail'],
    [{ fullPageWrites: false }, 'fail'],
    [{ fsync: false, fullPageWrites: false, synchronousCommit: 'off' }, 'fail'],
  ])('with %j it is %s', (settings, level) => {
    expect([...checkDurability({ ...durable, ...settings })]).toMatchObject([{ level }]);
  });
});

describe('doctor on an embedded node', () => {
  test('a running node is healthy; without a node the database is checked and left unchanged', async () => {
    const dataDir = join(folder, 'node');
    const port = `${await freePort()}`;
    const env = { MINATO_DATA_DIR: dataDir, MINATO_PORT: port };
    await copyCluster(dataDir);
    const node = startCli(['serve'], env);
    await eventually('the node is ready', async () => {
      const answer = await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined);
      return answer?.ok ? true : undefined;
    });

    const { code, stdout } = await runCli(['doctor'], env);
    expect(code, stdout).toBe(0);
    for (const line of [
      /^ok {3}Minato [\d.]+ on Node\.js 2/,
      /^ok {3}environment variables are valid/,
      /^(ok|warn) +signatures: (native|wasm), \d+ threads?, about [\d,]+ a second/,
      /^ok {3}PostgreSQL 1\d\.\d+, /,
      /^ok {3}durable: fsync on, full_page_writes on, synchronous_commit on/,
      /^ok {3}schema up to date/,
      /^ok {3}partitions of this month and the next exist/,
      /^ok {3}community default: 0 events/,
      /^ok {3}outbox at offset 0/,
      /^ok {3}stored settings are valid/,
      /^ok {3}no job failed at its last run/,
      new RegExp(`^ok   the data folder is in use by process ${node.child.pid}`),
      new RegExp(`^ok   Minato [\\d.]+ answers at 127.0.0.1:${port} and is ready`),
      /^info MINATO_PUBLIC_URL is not set/,
      /^info MINATO_ADMIN_PUBKEYS is not set/,
    ]) {
      expect(stdout).toMatch(new RegExp(line.source, 'm'));
    }

    node.child.kill('SIGTERM');
    expect((await node.ended).code).toBe(0);
    const after = await examine(env);
    expect(after.code).toBe(0);
    expect(textsOf(after.findings, 'info')).toEqual(
      expect.arrayContaining([
        'no node is running on the data folder',
        `nothing answers at 127.0.0.1:${port}: no node is running there`,
      ]),
    );
    expect(textsOf(after.findings, 'ok')).toContainEqual(expect.stringMatching(/^schema up to date/));
    expect(await dataLockHolder(dataDir)).toBeUndefined();
  });
});

describe('doctor on a PostgreSQL of the operator', () => {
  let database: TestDatabase;
  let db: pg.Client;
  let env: Record<string, string>;

  beforeEach(async () => {
    database = await createTestDatabase();
    db = new pg.Client(database.connection);
    await db.connect();
    env = { DATABASE_URL: database.url, MINATO_PORT: `${await freePort()}` };
  });
  afterEach(async () => {
    await db.end();
    await database.drop();
  });

  test('missing partitions are named, and not created', async () => {
    await runCli(['settings'], env);
    const month = new Date().toISOString().slice(0, 7).replace('-', '_');
    await db.query(`DROP TABLE events_days30_${month}`);
    const { code, findings } = await examine(env);
    expect(code).toBe(0);
    expect(textsOf(findings, 'warn')).toContainEqual(`partitions are missing: events_days30_${month}`);
    const { rows } = await db.query('SELECT to_regclass($1) AS made', [`events_days30_${month}`]);
    expect(rows[0].made).toBeNull();
  });

  test('a schema that lacks a migration is a warning, and is not migrated', async () => {
    await db.query('DELETE FROM schema_migrations WHERE name = (SELECT max(name) FROM schema_migrations)');
    const { rows: before } = await db.query('SELECT name FROM schema_migrations');
    const { code, findings } = await examine(env);
    expect(code).toBe(0);
    const [lacks] = findings.filter((finding) => finding.text.startsWith('the schema lacks'));
    expect(lacks).toMatchObject({ level: 'warn', advice: expect.stringContaining('minato migrate') });
    expect((await db.query('SELECT name FROM schema_migrations')).rows).toEqual(before);
  });

  test('a schema newer than the program fails', async () => {
    await db.query("INSERT INTO schema_migrations (name, run_on) VALUES ('999999-the-future', '2030-01-01')");
    const { code, findings } = await examine(env);
    expect(code).toBe(1);
    expect(textsOf(findings, 'fail')).toEqual([
      'the schema is newer than this program: it has 999999-the-future',
    ]);
  });

  test('a stored setting that is no longer valid is named with the command that fixes it', async () => {
    await runCli(['settings'], env);
    await db.query(
      `INSERT INTO community_settings (community, key, value, updated_at)
       SELECT id, 'limits.tagsMax', '"many"'::jsonb, 0 FROM communities UNION ALL
       SELECT id, 'limits.forgotten', '1', 0 FROM communities`,
    );
    const { code, findings } = await examine(env);
    expect(code).toBe(0);
    const [bad] = findings.filter((finding) => finding.text.includes('limits.tagsMax'));
    expect(bad).toMatchObject({
      level: 'warn',
      advice: expect.stringContaining('minato settings reset limits.tagsMax -c default'),
    });
    expect(textsOf(findings, 'info')).toContainEqual(expect.stringContaining('limits.forgotten'));
  });

  test('a public node that may treat clients as local programs is a warning', async () => {
    await runCli(['settings'], env);
    const exempt = async (more: Record<string, string>) =>
      (await examine({ ...env, ...more })).findings.filter(({ text }) =>
        /exempt from every limit/.test(text),
      );
    const url = { MINATO_PUBLIC_URL: 'wss://relay.example' };
    expect(await exempt({})).toEqual([]);
    expect(await exempt({ MINATO_PUBLIC_URL: 'ws://localhost:7447' })).toEqual([]);
    expect(await exempt(url)).toEqual([
      {
        level: 'warn',
        text: expect.any(String),
        advice: expect.stringContaining('rate.exemptLoopback false'),
      },
    ]);
    for (const key of ['rate.exemptLoopback', 'node.rate.exemptLoopback']) {
      await runCli(['settings', 'set', key, 'false'], env);
      expect(await exempt(url), key).toEqual([]);
      await runCli(['settings', 'reset', key], env);
      expect(await exempt(url), key).toHaveLength(1);
    }
  });

  test('a job whose last run failed is named with its error and what to do, until it succeeds', async () => {
    const jobsOf = async () => (await examine(env)).findings.filter(({ text }) => /\bjob\b/.test(text));
    await runCli(['jobs', 'run', 'trim-bus'], env);
    await db.query('ALTER TABLE rate_buckets RENAME TO gone');
    expect((await runCli(['jobs', 'run', 'forget-limits'], env)).code).toBe(1);
    const { code, findings } = await examine(env);
    expect(code).toBe(0);
    const failed = findings.filter(({ text }) => text.startsWith('job '));
    expect(failed).toEqual([
      {
        level: 'warn',
        text: expect.stringMatching(
          /^job forget-limits failed at \d{4}-\d\d-\d\dT\d\d:\d\dZ: .*"rate_buckets"/,
        ),
        advice: expect.stringContaining('minato jobs run forget-limits'),
      },
    ]);
    await db.query('ALTER TABLE gone RENAME TO rate_buckets');
    expect((await runCli(['jobs', 'run', 'forget-limits'], env)).code).toBe(0);
    expect(await jobsOf()).toMatchObject([{ level: 'ok' }]);
  });

  test('commits that do not wait for the disk are a warning', async () => {
    const { database: name } = database.connection;
    await db.query(`ALTER DATABASE ${name} SET synchronous_commit = off`);
    expect(textsOf((await examine(env)).findings, 'warn')).toContainEqual('synchronous_commit is off');
  });

  describe('with another program at the port', () => {
    let server: Server;
    beforeEach(async () => {
      server = createServer((_request, response) => response.end('hello')).listen(0, '127.0.0.1');
      await new Promise((resolve) => server.once('listening', resolve));
      env = { ...env, MINATO_PORT: `${(server.address() as AddressInfo).port}` };
    });
    afterEach(() => new Promise((resolve) => server.close(resolve)));

    test('it is not taken for a Minato', async () => {
      const { code, findings } = await examine(env);
      expect(code).toBe(1);
      expect(textsOf(findings, 'fail')).toEqual([`another program answers at 127.0.0.1:${env.MINATO_PORT}`]);
    });
  });
});
