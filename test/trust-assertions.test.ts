/** When trust is asserted: who waits for whom, and how often. The consumer is worked by hand, and the test moves the clock. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { NodeKeys } from '../src/keys.js';
import type { Log } from '../src/log.js';
import type { Consumer } from '../src/services/consumer.js';
import { trustConsumer } from '../src/services/trust.js';
import { hash, type Life, openLife } from './support/life.js';
import { DAY, putLabel } from './support/trust.js';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

let life: Life;
let folder: string;
let consumer: Consumer;
let keyless: number;
let home: number;
const warned: unknown[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-trust-'));
  life = await openLife(Date.UTC(2026, 0, 10), [{}, {}]);
  [keyless, home] = life.communities as [number, number];
  const { lane, communities } = life.writers[0]!;
  const { database } = life;
  const now = () => life.now;
  const keys = new NodeKeys({ folder, pool: database.apiPool, now });
  const warn = ((told: unknown) => warned.push(told)) as Log['warn'];
  consumer = trustConsumer({ communities, database, lane, keys, log: { warn }, now });
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

async function assertedIn(community: number): Promise<number> {
  const { rows } = await life.client.query<{ rows: number }>(
    'SELECT count(*) AS rows FROM trust_scores WHERE community = $1 AND assertion IS NOT NULL',
    [community],
  );
  return rows[0]!.rows;
}

describe('a community whose key is missing', () => {
  it('is left alone for a while, told once, and keeps nobody else waiting', async () => {
    await life.client.query(
      `INSERT INTO node_keys (community, purpose, created_at, pubkey) VALUES ($1, 'report-based', 1, $2)`,
      [keyless, Buffer.alloc(32, 7)],
    );
    for (let at = 0; at < 50; at += 1) await label(keyless, hash(`keyless ${at}`));
    life.now += 1;
    await label(home, hash('waiting'));
    // Takes up the first of them, and none of those that wait behind.
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
