/**
 * The bench fills large stores by SQL. Its figures are valid only while these rows equal those of the lane.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { COLD_TOPIC_EVENTS, coldTopic, eventId, fillBySql, ownAuthor } from '../../bench/sql-store.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { createLog } from '../../src/node/log.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

const COUNT = 1_000;
const NOW = Date.UTC(2026, 6, 20);
const now = () => NOW;
const TABLES = [
  'events',
  'event_tags',
  'event_dedupe',
  'events_outbox',
  'community_totals',
  'topic_totals',
  'lane_state',
];

let store: TestStore;

beforeAll(async () => {
  store = await openTestStore({ now });
  const { database, tagHash } = store;
  await fillBySql(
    { database, tagHash, now, log: createLog('silent') },
    { count: COUNT, ingestedAt: NOW, say: () => undefined },
  );
});
afterAll(() => store.close());

async function select<T>(text: string): Promise<T[]> {
  return (await store.database.pool.query(text)).rows as T[];
}

async function contents(): Promise<Record<string, unknown[]>> {
  const found: Record<string, unknown[]> = {};
  for (const table of TABLES) {
    found[table] = await select(`SELECT to_jsonb(t) AS row FROM ${table} t ORDER BY to_jsonb(t)::text`);
  }
  return found;
}

const payloads = async () =>
  (await select<{ payload: string }>('SELECT payload FROM events ORDER BY seq')).map(
    ({ payload }) => payload,
  );

it('contains what the queries of the bench expect', async () => {
  const events = (await payloads()).map((payload) => JSON.parse(payload) as NostrEvent);
  expect(events.map(({ id }) => id)).toEqual(events.map((_, n) => eventId(n)));
  const inTopic = (topic: string) => events.filter(({ tags }) => tags.some(([, value]) => value === topic));
  expect(inTopic(coldTopic(0))).toHaveLength(COLD_TOPIC_EVENTS);
  expect(events.filter(({ pubkey }) => pubkey === ownAuthor(101))).toHaveLength(1);
});

it('has exactly the rows that the lane writes for the same events', async () => {
  const made = await contents();
  const sent = await payloads();
  expect(sent).toHaveLength(COUNT);
  await select(`TRUNCATE ${TABLES.filter((table) => table !== 'lane_state').join(', ')}`);
  await select('UPDATE lane_state SET last_seq = 0');
  const lane = store.lane();
  const outcomes = await Promise.all(
    sent.map((payload) => lane.submit({ community: 1, event: JSON.parse(payload) as NostrEvent, payload })),
  );
  expect(new Set(outcomes)).toEqual(new Set(['stored']));
  const written = await contents();
  for (const table of TABLES) expect(made[table], table).toEqual(written[table]);
});
