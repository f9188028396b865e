/** An erasure whose process is killed with SIGKILL in each of its stages ends as one that was left alone. */
import type { Client } from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { readCertificate } from '../../src/erasure/certificates/certificates.sql.js';
import { serializeEvent } from '../../src/events/rules/event.js';
import { readConfig } from '../../src/node/config.js';
import { createLog } from '../../src/node/log.js';
import { startWriter, type Writer } from '../../src/node/writer.js';
import { eventually, startCli } from '../support/cli.js';
import { askFor, countsOf, stateOf, zeros } from '../support/domains/erasure.js';
import { unsigned } from '../support/stores/life.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

const HELD = 990_001;
const EVENTS = 1_200;
const [ALICE, BOB] = ['a'.repeat(64), 'b'.repeat(64)];

let store: TestStore;
let writer: Writer;
let holder: Client;

beforeAll(async () => {
  store = await openTestStore();
  const config = readConfig({ MINATO_TOPIC_MODE: 'open', MINATO_DATA_DIR: store.test.folder });
  writer = await startWriter({ database: store.database, config, log: createLog('error') });
  const events = [ALICE, BOB].flatMap((pubkey) =>
    Array.from({ length: EVENTS }, (_, at) =>
      unsigned({ kind: 1, pubkey, content: `${at}`, created_at: 1_700_000_000 + at, tags: [['t', 'quay']] }),
    ),
  );
  const outcomes = await Promise.all(
    events.map((event) => writer.store.submit({ community: 1, event, payload: serializeEvent(event) })),
  );
  expect(new Set(outcomes)).toEqual(new Set(['stored']));
  holder = await store.database.connect();
  await holder.query(`
    CREATE TABLE held (stage text, midway boolean);
    CREATE FUNCTION hold_stage() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF EXISTS (SELECT 1 FROM held h WHERE h.stage = NEW.stage
        AND h.midway = (OLD.stage = NEW.stage AND OLD.deleted <> NEW.deleted)) THEN
        PERFORM pg_advisory_xact_lock(${HELD});
      END IF;
      RETURN NEW;
    END $$;
    CREATE TRIGGER hold_stage BEFORE UPDATE ON erasures FOR EACH ROW EXECUTE FUNCTION hold_stage()`);
});
afterAll(async () => {
  await holder?.end();
  await writer?.close();
  await store?.close();
});

const environment = () => ({ DATABASE_URL: store.test.url, MINATO_DATA_DIR: store.test.folder });
const counts = (pubkey: string) =>
  countsOf(store.database, writer.erasing, { type: 'member', community: 1, pubkey });

/** Who waits for the lock that the test holds. */
async function waiter(): Promise<number | undefined> {
  const { rows } = await holder.query<{ pid: number }>(
    `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = ${HELD} AND NOT granted`,
  );
  return rows[0]?.pid;
}

it('is resumed, whichever step it was killed at, whether its last step was committed or not', async () => {
  const before = await counts(BOB);
  const erasure = await askFor(store.database, { community: 1, pubkey: ALICE });
  const steps = [
    ['fenced', false, true],
    ['counted', false, false],
    ['deleting', false, true],
    ['deleting', true, false],
    ['deleting', true, true],
    ['verifying', false, false],
    ['completed', false, true],
    ['completed', false, false],
  ] as const;
  for (const [stage, midway, isLost] of steps) {
    await holder.query('SELECT pg_advisory_lock($1)', [HELD]);
    await holder.query('INSERT INTO held VALUES ($1, $2)', [stage, midway]);
    const { child, ended } = startCli(['jobs', 'run', 'erase'], environment());
    const pid = await eventually(`it comes to ${stage}`, waiter);
    child.kill('SIGKILL');
    await ended;
    if (isLost) await holder.query('SELECT pg_terminate_backend($1)', [pid]);
    await holder.query('DELETE FROM held');
    await holder.query('SELECT pg_advisory_unlock($1)', [HELD]);
    await eventually('the session of the killed is over', async () => {
      const { rowCount } = await holder.query('SELECT 1 FROM pg_stat_activity WHERE pid = $1', [pid]);
      return rowCount === 0 ? true : undefined;
    });
  }
  const { code, stderr } = await startCli(['jobs', 'run', 'erase'], environment()).ended;
  expect([code, stderr]).toEqual([0, '']);
  const state = await stateOf(store.database, erasure);
  expect(state).toMatchObject({ stage: 'completed', pubkey: null });
  expect(state.counted['postgres:events']).toBe(EVENTS);
  expect(await counts(ALICE)).toEqual(zeros(before));
  expect(await counts(BOB)).toEqual(before);
  expect(await readCertificate(store.database.pool, erasure.erasureId)).toBeDefined();
  const { rows: tags } = await store.database.pool.query('SELECT count(*)::int AS n FROM event_tags');
  expect(tags, 'tags of the other one').toEqual([{ n: EVENTS }]);
  // Each event was announced once: an upsert of each, the offset of the fence, and the deletes. Of ALICE's
  // rows none is left that says anything, and the last offset stays.
  const { rows } = await store.database.pool.query<Record<string, number>>(
    `SELECT s.last_seq, max(o.seq) FILTER (WHERE op = 'scrubbed') AS scrubbed,
       count(*) FILTER (WHERE op = 'upsert') AS upserts, count(*) FILTER (WHERE op = 'delete') AS deletes
     FROM events_outbox o CROSS JOIN lane_state s GROUP BY s.last_seq`,
  );
  const last = 3 * EVENTS + 1;
  expect(rows).toEqual([{ last_seq: last, scrubbed: last, upserts: EVENTS, deletes: 0 }]);
});
