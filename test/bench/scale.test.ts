/** The bench of scale sees the lock of the lane as PostgreSQL does. */
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { LockWatch } from '../../bench/scale/lock.js';
import { useDuring } from '../../bench/scale/use.js';
import { LANE_LOCK } from '../../src/events/postgres/lane/lock.js';
import { eventually } from '../support/cli.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';

let test: TestDatabase;
const clients: pg.Client[] = [];
const BEGIN_LOCKED = `BEGIN; SELECT pg_advisory_xact_lock(${LANE_LOCK})`;

beforeAll(async () => {
  test = await createTestDatabase();
  for (let made = 0; made < 2; made += 1) {
    const client = new pg.Client(test.connection);
    await client.connect();
    clients.push(client);
  }
});
afterAll(async () => {
  for (const client of clients) await client.end();
  await test.drop();
});

it('a lock that is held, and a session that waits for it, are seen', async () => {
  const [holder, waiter] = clients as [pg.Client, pg.Client];
  await holder.query(BEGIN_LOCKED);
  const waiting = waiter.query(BEGIN_LOCKED);
  await eventually('it waits', async () => {
    const { rows } = await holder.query(
      `SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
       WHERE l.locktype = 'advisory' AND NOT l.granted AND d.datname = current_database()`,
    );
    return rows.length === 1 || undefined;
  });
  const watch = await LockWatch.start(test.connection);
  await eventually('it has looked', () => watch.count >= 5 || undefined);
  const use = await watch.stop();
  // Other files use the same server, and lanes of their own.
  expect(use.held).toBeGreaterThanOrEqual(1);
  expect(use.forNode).toBeGreaterThanOrEqual(1);
  expect(use.waiting).toBeGreaterThanOrEqual(1);
  expect(use.computing + use.flushing + use.forNode).toBeCloseTo(use.held);
  await holder.query('ROLLBACK');
  await waiting;
  await waiter.query('ROLLBACK');
});

it('CPU of a process is that of its work', async () => {
  const spin = async () => {
    const endMs = performance.now() + 300;
    while (performance.now() < endMs);
  };
  const { use } = await useDuring([process.pid], spin);
  expect(use.nodes[0]).toBeGreaterThan(0);
  expect(use.load).toBeGreaterThan(0);
});
