/**
 * When trust is asserted: how often, and what waits for what. The test runs the consumer step by step and
 * moves the clock.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { NodeKeys } from '../../src/keys/keys.js';
import type { Log } from '../../src/node/log.js';
import type { Consumer } from '../../src/outbox/consumers/consumer.js';
import { saveAsserted, takeUnasserted } from '../../src/trust/assertions.sql.js';
import { trustConsumer } from '../../src/trust/consumer.js';
import { eventually } from '../support/cli.js';
import { writeTopic } from '../support/domains/topics.js';
import { DAY, putLabel } from '../support/domains/trust.js';
import { hash, type Life, openLife } from '../support/stores/life.js';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

let life: Life;
let folder: string;
let consumer: Consumer;
let keyless: number;
let home: number;
let closed: number;
const warned: unknown[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-trust-'));
  life = await openLife(Date.UTC(2026, 0, 10), [{}, {}, { settings: { 'auth.mode': 'required' } }]);
  [keyless, home, closed] = life.communities as [number, number, number];
  const { store, communities } = life.writers[0]!;
  const { database } = life;
  const now = () => life.now;
  const keys = new NodeKeys({ folder, pool: database.apiPool, now });
  const warn = ((entry: unknown) => warned.push(entry)) as Log['warn'];
  consumer = trustConsumer({ communities, database, store, keys, log: { warn }, now });
});
afterAll(async () => {
  await life.close();
  await rm(folder, { recursive: true, force: true });
});
beforeEach(() => {
  life.now += 60 * DAY;
  warned.length = 0;
});

const label = (community: number, pubkey: string, topics: readonly string[] = []) =>
  putLabel(life.client, {
    community,
    pubkey,
    label: 'spam',
    at: life.now,
    lapsesAt: Math.floor(life.now / 1_000) + 40 * 86_400,
    topics,
  });

async function settle(): Promise<void> {
  while (await consumer.followUp!());
}

/** The ranks that were asserted about somebody, in order, including superseded ones. */
async function ranksOf(pubkey: string): Promise<string[]> {
  const { rows } = await life.client.query<{ payload: string }>(
    `SELECT payload FROM events WHERE kind = 30382 AND payload LIKE '%' || $1 || '%' ORDER BY created_at`,
    [pubkey],
  );
  return rows.map(({ payload }) => {
    const { tags } = JSON.parse(payload) as { tags: string[][] };
    return tags.find(([name]) => name === 'rank')![1]!;
  });
}

async function assertedIn(community: number): Promise<number> {
  const { rows } = await life.client.query<{ rows: number }>(
    'SELECT count(*) AS rows FROM trust_scores WHERE community = $1 AND assertion IS NOT NULL',
    [community],
  );
  return rows[0]!.rows;
}

describe('a community whose key is missing', () => {
  it('is skipped for a while, logged once, and does not hold up others', async () => {
    await life.client.query(
      `INSERT INTO node_keys (community, purpose, created_at, pubkey) VALUES ($1, 'report-based', 1, $2)`,
      [keyless, Buffer.alloc(32, 7)],
    );
    for (let at = 0; at < 50; at += 1) await label(keyless, hash(`keyless ${at}`));
    life.now += SECOND;
    await label(home, hash('waiting'));
    // Handles the first of them, and none of those behind it.
    await consumer.followUp!();
    await consumer.followUp!();
    expect(await assertedIn(home)).toBe(1);
    const left = await life.client.query<{ rows: number }>(
      'SELECT count(*) AS rows FROM trust_scores WHERE community = $1 AND asserted_at IS NULL',
      [keyless],
    );
    expect(left.rows[0]!.rows).toBe(30);
    life.now += 30 * SECOND;
    await settle();
    expect(warned).toEqual([
      { community: 'rules-0', claim: 'report-based', error: expect.stringContaining('is not at') },
    ]);
    await life.client.query('DELETE FROM node_keys WHERE community = $1', [keyless]);
    life.now += 2 * MINUTE;
    await settle();
    expect(await assertedIn(keyless)).toBe(50);
  });
});

describe('assertions about one person', () => {
  it('are ten minutes apart, or half a minute when the rank has fallen by much', async () => {
    const ann = hash('ann');
    await label(home, ann);
    await settle();
    expect(await ranksOf(ann)).toEqual(['90']);
    await label(home, ann);
    life.now += 10 * MINUTE - 1;
    await settle();
    expect(await ranksOf(ann)).toEqual(['90']);
    life.now += 1;
    await settle();
    expect(await ranksOf(ann)).toEqual(['90', '80']);
    for (let at = 0; at < 2; at += 1) await label(home, ann);
    life.now += 30 * SECOND - 1;
    await settle();
    expect(await ranksOf(ann)).toEqual(['90', '80']);
    life.now += 1;
    await settle();
    expect(await ranksOf(ann)).toEqual(['90', '80', '60']);
  });

  it('are as far apart when the rank changes during an assertion', async () => {
    const ben = hash('ben');
    await label(home, ben);
    const { ownPool } = life.database;
    await consumer.followUp!();
    await life.client.query(
      'UPDATE trust_scores SET asserted_at = NULL, publish_at = $2 WHERE community = $1 AND subject = $3',
      [home, life.now, Buffer.from(ben, 'hex')],
    );
    const taken = await takeUnasserted(ownPool, life.now, 1, []);
    expect(taken).toMatchObject([{ subject: ben, rank: 90 }]);
    await label(home, ben);
    await settle();
    const event = { eventId: hash('event'), by: hash('key'), renewAt: life.now + DAY };
    await saveAsserted(
      ownPool,
      taken.map((one) => ({ ...one, ...event })),
    );
    const { rows } = await life.client.query(
      'SELECT rank, asserted_rank, publish_at FROM trust_scores WHERE community = $1 AND subject = $2',
      [home, Buffer.from(ben, 'hex')],
    );
    expect(rows).toEqual([{ rank: 80, asserted_rank: 90, publish_at: life.now + 10 * MINUTE }]);
  });
});

describe('a label on an event that not everybody may read', () => {
  it('is not asserted until its topic becomes public, even if it is the only ground', async () => {
    const [cat, topic] = [hash('cat'), 'kukuri:later'];
    const { communities } = life.writers[0]!;
    await consumer.outdated!(life.client, 1);
    await settle();
    await label(closed, cat, [topic]);
    await settle();
    expect(await ranksOf(cat)).toEqual([]);
    const rules = { pinned: true, public: true, priority: 0, policy: {} };
    await writeTopic(life.client, closed, topic, rules, life.now);
    await eventually('the topic is public', () =>
      communities.get(closed)?.topics.get(topic)?.public ? true : undefined,
    );
    await consumer.outdated!(life.client, 1);
    await settle();
    expect(await ranksOf(cat)).toEqual(['90']);
  });
});
