/**
 * The outbox and its floor: which ranges are dropped, and that no reader skips a row without an error (I8).
 * Ranges are filled by moving the lane's offset, not by writing millions of rows.
 */
import type { Client } from 'pg';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { dryRunJob, runJob } from '../../src/jobs/run.js';
import { trimOutboxRows } from '../../src/outbox/jobs.js';
import {
  countTrimmed,
  dropOutboxRanges,
  ensureOutboxRange,
  OutboxBehind,
  readOutbox,
  trimOutbox,
} from '../../src/outbox/outbox.sql.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode } from '../support/node.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

const RANGE = 1_000_000;
const NOW = Date.UTC(2031, 0, 15);
let store: TestStore;
let client: Client;
let now: number;

beforeEach(async () => {
  now = NOW;
  store = await openTestStore({ now: () => now });
  client = await store.database.connect();
});
afterEach(async () => {
  await client.end();
  await store.close();
});

const author = newAuthor();
let written = 0;
async function post(count = 1): Promise<void> {
  const lane = store.lane();
  for (let at = 0; at < count; at += 1) {
    written += 1;
    const event = sign(author, { content: `${written}` });
    expect(await lane.submit({ community: 1, event, payload: JSON.stringify(event) })).toBe('stored');
  }
  await lane.close();
}

/** The next event has the offset after this one. */
async function moveTo(seq: number): Promise<void> {
  await client.query('UPDATE lane_state SET last_seq = $1', [seq]);
  await ensureOutboxRange(client);
}

/**
 * Three rows at the beginning of each range and one at its end, a day later each. The last range is being
 * filled.
 */
async function fillRanges(count: number): Promise<void> {
  for (let range = 0; range < count; range += 1) {
    if (range > 0) await moveTo(range * RANGE - 1);
    await post(3);
    if (range < count - 1) await moveTo((range + 1) * RANGE - 2);
    if (range < count - 1) await post();
    now += DAY_MS;
  }
  await ensureOutboxRange(client);
}

const ranges = async () =>
  (
    await client.query<{ name: string }>(
      `SELECT inhrelid::regclass::text AS name FROM pg_inherits
       WHERE inhparent = 'events_outbox'::regclass ORDER BY inhrelid`,
    )
  ).rows.map(({ name }) => name);
const floor = async () =>
  (await client.query<{ floor: number }>('SELECT outbox_floor AS floor FROM lane_state')).rows[0]!.floor;
const numbers = async (after: number) => (await readOutbox(client, after, 100)).entries.map(({ seq }) => seq);

/** What a reader that begins after an offset sees, in small reads. */
async function readOn(after: number): Promise<number[] | OutboxBehind> {
  const seen: number[] = [];
  for (let last = after, reads = 0; reads < 100; reads += 1) {
    const page = await readOutbox(client, last, 2).catch((error: unknown) => {
      if (error instanceof OutboxBehind) return error;
      throw error;
    });
    if (page instanceof OutboxBehind) return page;
    if (page.entries.length === 0) return seen;
    seen.push(...page.entries.map(({ seq }) => seq));
    last = seen.at(-1)!;
  }
  throw new Error('it never ends');
}

describe('dropping ranges', () => {
  it('drops those with only rows older than the cutoff, oldest first, and raises the floor', async () => {
    await fillRanges(3);
    expect(await dropOutboxRanges(client, NOW, false), 'the newest row is not older').toEqual([]);
    expect(await floor()).toBe(1);
    expect(await dropOutboxRanges(client, NOW + 1, false)).toEqual(['events_outbox_0']);
    expect(await floor()).toBe(RANGE);
    expect(await ranges()).toEqual(['events_outbox_1', 'events_outbox_2', 'events_outbox_3']);
    expect(await dropOutboxRanges(client, NOW + 1, false)).toEqual([]);
  });

  it('keeps a range while one of its rows is young, and the ranges after it', async () => {
    await fillRanges(3);
    await client.query('UPDATE events_outbox SET ingested_at = $1 WHERE seq = $2', [now, RANGE - 1]);
    expect(await dropOutboxRanges(client, NOW + 2 * DAY_MS, false)).toEqual([]);
    expect(await floor()).toBe(1);
  });

  it('never drops the range that is being filled, nor the empty one after it, at any age', async () => {
    await fillRanges(2);
    expect(await dropOutboxRanges(client, Number.MAX_SAFE_INTEGER, false)).toEqual(['events_outbox_0']);
    expect(await ranges()).toEqual(['events_outbox_1', 'events_outbox_2']);
    await post();
    expect(await numbers(RANGE + 2)).toEqual([RANGE + 3]);
  });

  it('in a dry run names them and changes nothing', async () => {
    await fillRanges(3);
    expect(await dropOutboxRanges(client, Number.MAX_SAFE_INTEGER, true)).toEqual([
      'events_outbox_0',
      'events_outbox_1',
    ]);
    expect(await ranges()).toHaveLength(4);
    expect(await floor()).toBe(1);
    expect(await readOn(0)).toHaveLength(11);
  });

  it('does not wait for a reader that is behind: that reader gets an error', async () => {
    await fillRanges(2);
    await client.query(
      `INSERT INTO consumer_offsets (consumer, last_seq, updated_at) VALUES ('search', 2, $1)`,
      [NOW],
    );
    expect(await dropOutboxRanges(client, NOW + 1, false)).toEqual(['events_outbox_0']);
    const { rows } = await client.query<{ last_seq: number }>('SELECT last_seq FROM consumer_offsets');
    expect(await readOn(rows[0]!.last_seq)).toBeInstanceOf(OutboxBehind);
  });

  it('that fails after the floor was raised gives readers an error, and the next run continues', async () => {
    await fillRanges(2);
    const reader = await store.database.connect();
    await reader.query('BEGIN; SELECT 1 FROM events_outbox_0 LIMIT 1');
    const impatient = await store.database.connect({ lockTimeoutMs: 50 });
    await expect(dropOutboxRanges(impatient, NOW + 1, false)).rejects.toMatchObject({ code: '55P03' });
    await impatient.end();
    expect(await ranges()).toContain('events_outbox_0');
    expect(await readOn(0)).toBeInstanceOf(OutboxBehind);
    await reader.end();
    expect(await dropOutboxRanges(client, NOW + 1, false)).toEqual(['events_outbox_0']);
    expect(await floor()).toBe(RANGE);
  });
});

describe('a small outbox', () => {
  /** Five rows a day, for some days. */
  const fillDays = async (days: number) => {
    for (let day = 0; day < days; day += 1) {
      await post(5);
      now += DAY_MS;
    }
  };
  const held = async () =>
    (await client.query<{ seq: number }>('SELECT seq FROM events_outbox ORDER BY seq')).rows.map(
      ({ seq }) => seq,
    );

  it('loses the rows older than the cutoff, in batches, after its floor was raised', async () => {
    await fillDays(4);
    const cutoff = NOW + 2 * DAY_MS;
    expect(await countTrimmed(client, cutoff, [])).toBe(10);
    expect(await trimOutbox(client, cutoff, 4)).toBe(4);
    expect([await floor(), (await held())[0]]).toEqual([5, 5]);
    expect(await trimOutbox(client, cutoff, 4)).toBe(4);
    expect(await trimOutbox(client, cutoff, 4)).toBe(2);
    expect(await trimOutbox(client, cutoff, 4), 'what is of the day itself stays').toBe(0);
    expect(await held()).toEqual([11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
    expect(await floor()).toBe(11);
    expect(await readOn(10)).toHaveLength(10);
    expect(await readOn(9)).toMatchObject({ after: 9, floor: 11 });
    expect(await countTrimmed(client, cutoff, [])).toBe(0);
  });

  it('may lose all its rows and still works', async () => {
    await fillDays(1);
    expect(await trimOutbox(client, now, 100)).toBe(5);
    expect([await held(), await floor()]).toEqual([[], 6]);
    await post();
    expect(await readOn(5)).toEqual([6]);
    expect(await readOn(4)).toBeInstanceOf(OutboxBehind);
  });

  it('keeps rows after one whose clock was ahead', async () => {
    await fillDays(2);
    await client.query('UPDATE events_outbox SET ingested_at = $1 WHERE seq = 3', [now]);
    expect(await trimOutbox(client, now, 100)).toBe(2);
    expect(await held()).toEqual([3, 4, 5, 6, 7, 8, 9, 10]);
  });

  it('does not trim a full range that is dropped within a day, only one that lasts longer', async () => {
    const writtenAt = (seq: number, at: number) =>
      client.query('UPDATE events_outbox SET ingested_at = $1 WHERE seq = $2', [at, seq]);
    await fillRanges(2);
    await writtenAt(1, NOW - 3_600_000);
    expect(await trimOutbox(client, NOW - 1, 100), 'it is dropped in a moment').toBe(0);
    await writtenAt(1, NOW - 2 * DAY_MS);
    expect(await trimOutbox(client, NOW - 1, 100), 'it has been growing old for days').toBe(1);
    await writtenAt(RANGE - 1, NOW + 3 * DAY_MS);
    expect(await trimOutbox(client, NOW + 1, 100), 'it will be for days').toBe(2);
    expect(await floor()).toBe(4);
  });

  it('drops a range that was passed and of which no row is left', async () => {
    await fillDays(1);
    await trimOutbox(client, now, 100);
    await moveTo(RANGE + 10);
    await post();
    expect(await dropOutboxRanges(client, now, false)).toEqual(['events_outbox_0']);
    expect(await readOn(RANGE - 1)).toEqual([RANGE + 11]);
  });

  it('takes no more space in its second month than in its first', async () => {
    const size = async () => {
      await client.query('VACUUM events_outbox');
      return (await client.query<{ size: number }>(`SELECT pg_relation_size('events_outbox_0')::int AS size`))
        .rows[0]!.size;
    };
    const month = async () => {
      for (let day = 0; day < 20; day += 1) {
        await client.query(
          `WITH taken AS (UPDATE lane_state SET last_seq = last_seq + 200 RETURNING last_seq - 200 AS before)
           INSERT INTO events_outbox
             (seq, ingested_at, created_at, community, kind, op, event_id, author, topics)
           SELECT before + n, $1::bigint, 0, 1, 1, 'upsert', sha256(n::text::bytea), sha256('me'), '{}'
           FROM taken, generate_series(1, 200) AS n`,
          [now],
        );
        now += DAY_MS;
        while ((await trimOutbox(client, now - 10 * DAY_MS, 100)) > 0);
        await client.query('VACUUM events_outbox');
      }
      return size();
    };
    const first = await month();
    expect(await month()).toBeLessThanOrEqual(first * 1.25);
    expect(await held()).toHaveLength(2_000);
  });
});

describe('a reader', () => {
  const FIRST = RANGE;

  beforeEach(async () => {
    await fillRanges(2);
    await dropOutboxRanges(client, NOW + 1, false);
  });

  it('that has read everything before the floor continues and misses nothing', async () => {
    expect(await readOn(FIRST - 1)).toEqual([FIRST, FIRST + 1, FIRST + 2]);
    expect(await readOn(FIRST + 1)).toEqual([FIRST + 2]);
    expect(await readOn(FIRST + 2)).toEqual([]);
  });

  it.each([
    ['one row', FIRST - 2],
    ['a whole range', 2],
    ['everything', 0],
  ])('that has missed %s gets an error with the floor, not a part of the rows', async (_, after) => {
    const result = await readOn(after);
    expect(result).toBeInstanceOf(OutboxBehind);
    expect(result).toMatchObject({ after, floor: FIRST });
  });

  it('that is behind gets an error also when nothing is left to read', async () => {
    await client.query('DELETE FROM events_outbox');
    expect(await readOn(FIRST - 2)).toBeInstanceOf(OutboxBehind);
    expect(await readOn(FIRST - 1)).toEqual([]);
  });

  it('reads across two ranges, and gets an error as soon as its next rows are dropped', async () => {
    await moveTo(2 * RANGE - 2);
    await post(4);
    const border = [2 * RANGE - 1, 2 * RANGE, 2 * RANGE + 1, 2 * RANGE + 2];
    expect(await readOn(FIRST + 2)).toEqual(border);
    expect(await numbers(FIRST + 2)).toEqual(border);
    now += DAY_MS;
    await dropOutboxRanges(client, now, false);
    expect(await floor()).toBe(2 * RANGE);
    expect(await readOn(FIRST + 2), 'what it had still to read went meanwhile').toBeInstanceOf(OutboxBehind);
    expect(await readOn(2 * RANGE - 1)).toEqual(border.slice(1));
  });
});

describe('a node', () => {
  it('drops old ranges by its job, restarts above them, and delivers live with new offsets', async () => {
    await fillRanges(2);
    now = NOW + 31 * DAY_MS;
    const first = await startTestNode({ jobs: [], on: store.test, now: () => now });
    const { communities, erasing } = first.node;
    const { signal } = new AbortController();
    const context = {
      database: first.database,
      store: first.node.store,
      communities,
      erasing,
      now: () => now,
      signal,
      bounds: { rows: 1, batches: 1 },
    };
    expect(await dryRunJob(trimOutboxRows, context)).toEqual([
      { reason: 'old', class: 'partition', rows: 1 },
    ]);
    expect(await runJob(trimOutboxRows, context)).toMatchObject({ changed: 1 });
    expect(await ranges()).not.toContain('events_outbox_0');
    expect(await numbers(RANGE - 1), 'what is a day younger stays').toHaveLength(3);
    now += DAY_MS + 1;
    expect(await dryRunJob(trimOutboxRows, context)).toEqual([{ reason: 'old', class: 'outbox', rows: 3 }]);
    expect(await runJob(trimOutboxRows, { ...context, bounds: { rows: 2, batches: 5 } })).toEqual({
      changed: 3,
      more: false,
    });
    expect(await numbers(RANGE + 2)).toEqual([]);
    await first.close();

    const second = await startTestNode({ jobs: [], on: store.test, now: () => now });
    const reader = await RawClient.connect(second.url);
    reader.send(['REQ', 'live', { authors: [author.pubkey], limit: 0 }]);
    await reader.waitFor((frame) => frame[0] === 'EOSE');
    const event = sign(author, { content: 'after the restart' });
    expect(await reader.publish(event)).toEqual([true, '']);
    await reader.waitFor((frame) => frame[0] === 'EVENT' && (frame[2] as { id: string }).id === event.id);
    expect(await numbers(RANGE + 2)).toEqual([RANGE + 3]);
    await eventually('the fan-out is there', () => second.node.fanout.head === RANGE + 3 || undefined);
    await reader.close();
    await second.close();
  });
});
