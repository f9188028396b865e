/**
 * Superseded versions are kept for exactly the days of their community, independent of other communities and
 * of calendar months (I8, I11). The test moves the clock.
 */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { changeSetting } from '../../src/communities/settings.sql.js';
import { forgetDedupeRows } from '../../src/events/jobs/forget-dedupe.js';
import { purgeHistory } from '../../src/events/jobs/purge-history.js';
import { dropMonths } from '../../src/events/jobs/retain.js';
import { readExportPage } from '../../src/events/postgres/read/export.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { readHead } from '../../src/outbox/outbox.sql.js';
import { eventually } from '../support/cli.js';
import { hash, type Life, openLife, unsigned } from '../support/stores/life.js';

const START = Date.UTC(2031, 0, 3);
const [WEEK, NONE, FOREVER, MONTH] = [0, 1, 2, 3] as const;
const RULES = [7, 0, 'forever', 30].map((days) => ({
  settings: { 'retention.historyDays': days, 'retention.dedupeDays': 1 },
}));
const alice = hash('alice');
let life: Life;
let made = 0;

beforeAll(async () => {
  life = await openLife(START, RULES);
});
afterAll(() => life?.close());

const article = (version: number, d: string) =>
  unsigned({
    kind: 30_023,
    pubkey: alice,
    created_at: Math.floor(START / 1_000) + version,
    tags: [['d', d]],
    content: `${d} ${version}`,
  });
const submit = (place: number, event: NostrEvent) => life.submit(0, life.communities[place]!, event);
/** Two versions of a new address: the older is superseded now. */
async function supersede(place: number): Promise<[older: NostrEvent, newer: NostrEvent]> {
  made += 1;
  const versions = [article(1, `page ${made}`), article(2, `page ${made}`)] as const;
  for (const event of versions) expect(await submit(place, event)).toBe('stored');
  return [...versions];
}
async function exported(place: number): Promise<string[]> {
  const { pool } = life.database;
  const community = life.writers[0]!.communities.get(life.communities[place]!)!;
  const head = await readHead(pool);
  const { events } = await readExportPage(pool, community, 0, head, life.now, 'history');
  return events.map(({ matched }) => matched().id);
}
async function rows(event: NostrEvent): Promise<(number | null)[]> {
  const found = await life.client.query<{ hidden: number | null }>(
    'SELECT hidden FROM events WHERE id = $1',
    [Buffer.from(event.id, 'hex')],
  );
  return found.rows.map(({ hidden }) => hidden);
}
async function setDays(place: number, days: number | 'forever'): Promise<void> {
  const community = life.communities[place]!;
  const ref = { community, key: 'retention.historyDays', value: days } as const;
  await changeSetting(life.database.pool, ref, life.now);
  const [{ communities }] = life.writers as [(typeof life.writers)[0]];
  const isKnown = () => communities.get(community)?.settings['retention.historyDays'] === days || undefined;
  await eventually('the setting', isKnown);
}

it('a superseded version is purged after the days of its community, to the millisecond', async () => {
  const start = life.now;
  const [[ofWeek, newer], [ofMonth], [ofEver]] = [
    await supersede(WEEK),
    await supersede(MONTH),
    await supersede(FOREVER),
  ];
  life.now = start + 7 * DAY_MS;
  await life.run(purgeHistory);
  expect(await exported(WEEK)).toEqual([ofWeek.id]);
  life.now += 1;
  expect(await exported(WEEK)).toEqual([]);
  expect(await exported(MONTH)).toEqual([ofMonth.id]);
  await life.run(purgeHistory);
  expect(await rows(ofWeek)).toEqual([]);
  expect(await rows(newer)).toEqual([null]);
  expect(await rows(ofMonth)).toEqual([1]);
  life.now = start + 400 * DAY_MS;
  expect(await exported(MONTH)).toEqual([]);
  expect(await exported(FOREVER)).toEqual([ofEver.id]);
  for (const job of [purgeHistory, dropMonths, forgetDedupeRows]) await life.run(job);
  expect(await rows(ofMonth)).toEqual([]);
  expect(await exported(FOREVER)).toEqual([ofEver.id]);
  expect(await submit(WEEK, ofWeek), 'the high-water mark stays').toBe('older');
});

it('with 0 days no superseded version is stored, and an older one is not served again', async () => {
  const [older, newer] = await supersede(NONE);
  expect(await rows(older)).toEqual([]);
  expect(await rows(newer)).toEqual([null]);
  expect(await exported(NONE)).toEqual([]);
  const batch = [article(1, 'batch'), article(2, 'batch'), article(3, 'batch')];
  expect(await Promise.all(batch.map((event) => submit(NONE, event)))).toEqual([
    'stored',
    'stored',
    'stored',
  ]);
  expect(await Promise.all(batch.map(rows))).toEqual([[], [], [null]]);
  const { rows: told } = await life.client.query(
    'SELECT op, reason FROM events_outbox WHERE community = $1 AND event_id = $2 ORDER BY seq',
    [life.communities[NONE], Buffer.from(older.id, 'hex')],
  );
  expect(told.map(({ op, reason }) => reason ?? op)).toEqual(['upsert', 'superseded']);
  life.now += 3 * DAY_MS;
  await life.run(forgetDedupeRows);
  expect(await submit(NONE, older)).toBe('older');
  const request = unsigned({
    kind: 5,
    pubkey: alice,
    created_at: Math.floor(life.now / 1_000),
    tags: [['a', `30023:${alice}:${newer.tags[0]![1]}`]],
  });
  expect(await submit(NONE, request)).toBe('stored');
  expect(await rows(newer)).toEqual([2]);
  expect(await submit(NONE, older)).toBe('blocked: deleted by its author');
});

it('lowered days hide older versions immediately and for good; 0 hides all', async () => {
  const [older] = await supersede(MONTH);
  life.now += 10 * DAY_MS;
  const [younger] = await supersede(MONTH);
  expect(await exported(MONTH)).toEqual([older.id, younger.id]);
  await setDays(MONTH, 7);
  expect(await exported(MONTH)).toEqual([younger.id]);
  await setDays(MONTH, 'forever');
  expect(await exported(MONTH)).toEqual([younger.id]);
  await setDays(MONTH, 0);
  expect(await exported(MONTH)).toEqual([]);
  life.now += 1;
  await setDays(MONTH, 30);
  expect(await exported(MONTH)).toEqual([]);
  await life.run(purgeHistory);
  for (const event of [older, younger]) expect(await rows(event)).toEqual([]);
});

it('a kept version can be deleted by its id, even if ids are remembered shorter', async () => {
  const [older] = await supersede(FOREVER);
  life.now += 5 * DAY_MS;
  await life.run(forgetDedupeRows);
  const created_at = Math.floor(life.now / 1_000);
  const request = unsigned({ kind: 5, pubkey: alice, created_at, tags: [['e', older.id]] });
  expect(await submit(FOREVER, request)).toBe('stored');
  expect(await exported(FOREVER)).not.toContain(older.id);
});

it('the migration turns an old stored 0, which meant for ever, into "forever"', async () => {
  const file = new URL('../../migrations/000014-retention-that-holds.sql', import.meta.url);
  const statement = /UPDATE community_settings [^;]*;/.exec(readFileSync(file, 'utf8'))![0];
  const value = async (place: number) => {
    const { rows: found } = await life.client.query(
      "SELECT value FROM community_settings WHERE community = $1 AND key = 'retention.historyDays'",
      [life.communities[place]],
    );
    return found[0].value;
  };
  expect([await value(WEEK), await value(NONE)]).toEqual([7, 0]);
  await life.client.query(statement);
  expect([await value(WEEK), await value(NONE)]).toEqual([7, 'forever']);
});
