/** Migrations while other instances serve: writers do not wait for them, or only for a moment. */
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, beforeEach, expect, inject, it } from 'vitest';
import { migrate } from '../../src/postgres/migrate.js';
import { eventually } from '../support/cli.js';

let folder: string;
let database: string;
const clients: pg.Client[] = [];

async function connect(name = database): Promise<pg.Client> {
  const client = new pg.Client({ ...inject('postgres'), database: name });
  await client.connect();
  clients.push(client);
  return client;
}
async function asAdmin(sql: string): Promise<void> {
  const admin = new pg.Client({ ...inject('postgres'), database: 'postgres' });
  await admin.connect();
  await admin.query(sql);
  await admin.end();
}
const FIRST = 'CREATE TABLE ships (name text);\nCREATE TABLE crews (name text);\n';

/** A folder with these migrations, numbered. */
async function migrations(...texts: string[]): Promise<string> {
  const made = join(folder, randomBytes(4).toString('hex'));
  await mkdir(made);
  for (const [at, text] of texts.entries()) await writeFile(join(made, `00000${at + 1}-step.sql`), text);
  return made;
}
const isWaiting = async (watcher: pg.Client, like: string) =>
  (
    await watcher.query(
      `SELECT 1 FROM pg_stat_activity
       WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1`,
      [like],
    )
  ).rowCount !== 0;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-migrations-'));
});
beforeEach(async () => {
  database = `test_${randomBytes(6).toString('hex')}`;
  await asAdmin(`CREATE DATABASE ${database}`);
  return async () => {
    for (const client of clients.splice(0)) await client.end().catch(() => undefined);
    await asAdmin(`DROP DATABASE ${database} WITH (FORCE)`);
  };
});
afterAll(() => rm(folder, { recursive: true }));

it('an online migration builds an index while others write', async () => {
  const steps = await migrations(
    FIRST,
    `-- online: a semicolon; in a comment
DROP INDEX CONCURRENTLY IF EXISTS ships_by_name;
CREATE INDEX CONCURRENTLY ships_by_name
  ON ships (name);
`,
  );
  const [migrating, open, writer] = [await connect(), await connect(), await connect()];
  await migrate(migrating, { folder: await migrations(FIRST) });
  await open.query('BEGIN');
  await open.query("INSERT INTO ships VALUES ('Aki Maru')");
  const done = migrate(migrating, { folder: steps, lockWaitMsMax: 60_000 });
  // It waits for the transaction that began before it; nobody waits for it.
  await eventually('it waits', async () =>
    (await isWaiting(writer, 'CREATE INDEX CONCURRENTLY%')) ? true : undefined,
  );
  await writer.query("SET statement_timeout = '20s'");
  await writer.query("INSERT INTO ships VALUES ('Umi')");
  await open.query('COMMIT');
  expect(await done).toEqual(['000002-step']);
  const { rows } = await writer.query(
    "SELECT indisvalid FROM pg_index WHERE indexrelid = 'ships_by_name'::regclass",
  );
  expect(rows).toEqual([{ indisvalid: true }]);
  expect(await migrate(migrating, { folder: steps })).toEqual([]);
});

it('an online migration that failed on its way is done again', async () => {
  const twice = "INSERT INTO ships VALUES ('Aki Maru'), ('Aki Maru');\n";
  const index = `-- online
DROP INDEX CONCURRENTLY IF EXISTS ships_one;
CREATE UNIQUE INDEX CONCURRENTLY ships_one ON ships (name);
`;
  const steps = await migrations(FIRST + twice, index);
  const client = await connect();
  await expect(migrate(client, { folder: steps })).rejects.toThrow(/could not create unique index/);
  const invalid = await client.query(
    "SELECT indisvalid FROM pg_index WHERE indexrelid = 'ships_one'::regclass",
  );
  expect(invalid.rows).toEqual([{ indisvalid: false }]);
  await client.query('TRUNCATE ships');
  expect(await migrate(client, { folder: steps })).toEqual(['000002-step']);
  const valid = await client.query(
    "SELECT indisvalid FROM pg_index WHERE indexrelid = 'ships_one'::regclass",
  );
  expect(valid.rows).toEqual([{ indisvalid: true }]);
});

it('a migration that waits for a lock lets others pass, and is tried again', async () => {
  const steps = await migrations(
    FIRST,
    'ALTER TABLE crews ADD COLUMN size int;\nALTER TABLE ships ADD COLUMN flag text;\n',
  );
  const [migrating, open, writer] = [await connect(), await connect(), await connect()];
  await migrate(migrating, { folder: await migrations(FIRST) });
  await open.query('BEGIN');
  await open.query('SELECT * FROM ships');
  const done = migrate(migrating, { folder: steps, lockWaitMsMax: 50 });
  await eventually('it waits', async () => ((await isWaiting(writer, 'ALTER TABLE%')) ? true : undefined));
  // Behind its lock this would wait as long as the open transaction.
  await writer.query("SET statement_timeout = '20s'");
  await writer.query("INSERT INTO ships VALUES ('Umi')");
  // A failed attempt has left nothing.
  const { rows } = await writer.query(
    "SELECT 1 FROM pg_attribute WHERE attname = 'size' AND attrelid = 'crews'::regclass",
  );
  expect(rows).toEqual([]);
  await open.query('COMMIT');
  expect(await done).toEqual(['000002-step']);
});

it('a migration that fails leaves nothing, and the error is its own', async () => {
  const client = await connect();
  const steps = await migrations(FIRST, 'CREATE TABLE ports (name text);\nSELECT 1 / 0;\n');
  await expect(migrate(client, { folder: steps })).rejects.toThrow('division by zero');
  const { rows } = await client.query("SELECT to_regclass('ports') AS ports, to_regclass('ships') AS ships");
  expect(rows).toEqual([{ ports: null, ships: 'ships' }]);
});
