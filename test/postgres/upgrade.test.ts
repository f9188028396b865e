/**
 * What the first version wrote is served by this one. test/fixtures/first-version.sql is its schema and the
 * rows of a short session: notes, two versions of a profile and of an article, a list, a deletion request.
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { readConfig } from '../../src/node/config.js';
import { createLog } from '../../src/node/log.js';
import { prepareDatabase } from '../../src/node/prepare.js';
import { openDatabase } from '../../src/postgres/database.js';
import { startEmbedded } from '../../src/postgres/embedded.js';
import { eventually, runCli, startCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';

const FIXTURE = 'test/fixtures/first-version.sql';
const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined };
let dump: string;
let folder: string;
let fresh: TestDatabase;
beforeAll(async () => {
  dump = await readFile(FIXTURE, 'utf8');
  folder = await mkdtemp(join(tmpdir(), 'minato-upgrade-'));
  fresh = await createTestDatabase();
});
afterAll(async () => {
  await fresh.drop();
  await rm(folder, { recursive: true });
});

async function withClient<T>(
  connection: pg.ClientConfig,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const client = new pg.Client(connection);
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/** Without partitions: they are made as months go by. */
const DESCRIPTION = `
  SELECT 'column' AS what, c.relname || '.' || a.attname AS name,
    concat_ws(' ', format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'not null' END,
      pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attgenerated) AS is
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
  WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
    AND a.attnum > 0 AND NOT a.attisdropped AND NOT c.relispartition
  UNION ALL SELECT 'index', c.relname, pg_get_indexdef(c.oid)
  FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid
  WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition
  UNION ALL SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    AND NOT (SELECT relispartition FROM pg_class WHERE oid = conrelid)
  ORDER BY 1, 2, 3`;

const describeSchema = (connection: pg.ClientConfig) =>
  withClient(connection, async (client) => (await client.query(DESCRIPTION)).rows as unknown[]);

it('a dump of the first version becomes the schema of a new database, and keeps its rows', async () => {
  const connection = { ...inject('postgres'), database: `test_${randomBytes(6).toString('hex')}` };
  const admin = { ...inject('postgres'), database: 'postgres' };
  await withClient(admin, (client) => client.query(`CREATE DATABASE ${connection.database}`));
  try {
    const before = await withClient(connection, async (client) => {
      await client.query(dump);
      return (await client.query('SELECT * FROM events')).rows.length;
    });
    const database = openDatabase(connection);
    const config = readConfig({ MINATO_TOPIC_MODE: 'open' });
    await prepareDatabase(database, config, Date.now, createLog('silent'));
    await database.close();
    expect(before).toBe(8);
    expect(await describeSchema(connection)).toEqual(await describeSchema(fresh.connection));
    const { rows } = await withClient(connection, (client) =>
      client.query('SELECT count(*)::int AS n FROM events'),
    );
    expect(rows).toEqual([{ n: before }]);
  } finally {
    await withClient(admin, (client) => client.query(`DROP DATABASE ${connection.database} WITH (FORCE)`));
  }
});

it('a data folder of the first version is served, with what was replaced still replaced', async () => {
  const server = await startEmbedded(folder, quiet);
  await withClient({ ...server.connection }, (client) => client.query(dump));
  await server.stop();
  const env = { MINATO_DATA_DIR: folder, MINATO_PORT: '0' };
  // The fixture grows old: without this its notes would be past their retention.
  expect(await runCli(['settings', 'set', 'retention.regularDays', '36500'], env)).toMatchObject({ code: 0 });
  const relay = startCli(['serve'], env);
  let heard = '';
  relay.child.stdout!.on('data', (chunk: Buffer) => (heard += String(chunk)));
  try {
    const url = await eventually('the node is ready', () => {
      if (relay.child.exitCode !== null) throw new Error(heard);
      return /"address":"(ws:[^"]+)".*"msg":"ready"/.exec(heard)?.[1];
    });
    const client = await RawClient.connect(url);
    const events = (await client.query({})).events as NostrEvent[];
    expect(events.map(({ kind, content }) => [kind, content]).sort()).toEqual([
      [0, '{"name":"alice"}'],
      [1, 'a reply'],
      [1, 'first light 港'],
      [10_002, ''],
      [30_023, 'a newer guide'],
      [5, 'deletes what is not here'],
    ]);
    const byTag = await client.query({ '#t': ['harbour'] });
    expect(byTag.events).toHaveLength(2);
    // Its ids are known: a duplicate, and nothing is stored twice.
    expect(await client.publish(events[0]!)).toEqual([true, expect.stringMatching(/^duplicate/)]);
    await client.close();
  } finally {
    relay.child.kill('SIGTERM');
    await relay.ended;
  }
  const doctor = await runCli(['doctor'], env);
  expect(doctor.stdout).toMatch(/schema up to date/);
});
