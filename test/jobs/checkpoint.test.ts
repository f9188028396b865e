/** The checkpoint after a burst: of the embedded server only, and only when nobody writes. */
import type { Client } from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { JobContext } from '../../src/jobs/job.js';
import { checkpointWhenCalm, LOG_BYTES_MIN } from '../../src/jobs/upkeep.js';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import { migrate } from '../../src/postgres/migrate.js';
import { TestPostgres } from '../support/servers/postgres.js';

let server: TestPostgres;
let database: Database;
let client: Client;
const NOW = Date.UTC(2026, 0, 10);

beforeAll(async () => {
  server = await TestPostgres.start();
  database = openDatabase(server.database.connection);
  client = await database.connect();
  await migrate(client);
  await client.query('CREATE TABLE burst (text text STORAGE plain)');
});
afterAll(async () => {
  await client.end();
  await database.close();
  await server.stop();
});

const run = async (now = NOW) =>
  (await checkpointWhenCalm.run({ now: () => now } as JobContext, client)).changed;

/** 150 MB of log, in few rows: how many does not matter. */
async function burst(): Promise<void> {
  await client.query('INSERT INTO burst SELECT repeat(md5(n::text), 240) FROM generate_series(1, 20000) n');
}

async function logBytes(): Promise<number> {
  const { rows } = await client.query<{ bytes: number }>(
    'SELECT sum(size)::float8 AS bytes FROM pg_ls_waldir()',
  );
  return rows[0]!.bytes;
}

it('frees the log of a burst when nobody has written for half a minute', async () => {
  await client.query('CHECKPOINT');
  expect(await run()).toBe(0);
  await burst();
  await client.query(
    `INSERT INTO events_outbox (seq, community, op, event_id, author, kind, topics, created_at, ingested_at)
     VALUES (1, 1, 'upsert', '', '', 1, '{}', 1, $1)`,
    [NOW - 29_999],
  );
  expect(await run()).toBe(0);
  const before = await logBytes();
  expect(before).toBeGreaterThan(LOG_BYTES_MIN);
  expect(await run(NOW + 1)).toBe(1);
  expect(await logBytes()).toBeLessThan(before / 2);
  expect(await run(NOW + 1)).toBe(0);
});

it("leaves an operator's server alone", async () => {
  await burst();
  await client.query('CREATE ROLE guest; GRANT SELECT ON events_outbox TO guest; SET ROLE guest');
  expect(await run(NOW + 1)).toBe(0);
  await client.query('RESET ROLE');
  expect(await run(NOW + 1)).toBe(1);
});
