/**
 * Removing and restoring in the lane: a removed event is hidden with a row in the outbox (I8), never returns
 * unless it is restored (I6), and is restored only when nothing else hides it (I4, I5).
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readTotals } from '../../src/communities/communities.sql.js';
import { purgeDeletedEvents } from '../../src/events/jobs/purge-deleted.js';
import { dropMonths, retain } from '../../src/events/jobs/retain.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { purgeRemovedEvents } from '../../src/moderation/jobs.js';
import { newAuthor, sign } from '../support/events.js';
import { type Life, openLife } from '../support/stores/life.js';

const START = Date.UTC(2031, 4, 10);
const at = (seconds = 0) => Math.floor(START / 1_000) + seconds;
let life: Life;
let community: number;
let other: number;
const author = newAuthor();
let written = 0;

beforeAll(async () => {
  life = await openLife(START, [{}, {}], 2);
  [community, other] = life.communities as [number, number];
});
afterAll(() => life.close());

const write = (draft: Parameters<typeof sign>[1] = {}): NostrEvent => {
  written += 1;
  return sign(author, { created_at: at(), content: `note ${written}`, tags: [['t', 'harbour']], ...draft });
};
const post = async (draft?: Parameters<typeof sign>[1]): Promise<NostrEvent> => {
  const event = write(draft);
  expect(await life.submit(0, community, event)).toBe('stored');
  return event;
};
const say = (event: NostrEvent) => life.submit(0, community, event);
const remove = (...events: NostrEvent[]) =>
  life.writers[0]!.store.hide({
    hidden: 'removed',
    purge: false,
    which: { by: 'ids', refs: events.map(({ id }) => ({ community, id })) },
  });
const restore = (...events: NostrEvent[]) =>
  life.writers[1]!.store.restore(events.map(({ id }) => ({ community, id })));
const deletion = (event: NostrEvent) => write({ kind: 5, created_at: at(1), tags: [['e', event.id]] });

const isServed = async ({ id }: NostrEvent) => {
  const { rows } = await life.client.query(
    `SELECT 1 FROM events WHERE community = $1 AND id = $2 AND hidden IS NULL`,
    [community, Buffer.from(id, 'hex')],
  );
  return rows.length === 1;
};
const announced = async ({ id }: NostrEvent) =>
  (
    await life.client.query<{ op: string; reason: string | null }>(
      'SELECT op, reason FROM events_outbox WHERE community = $1 AND event_id = $2 ORDER BY seq',
      [community, Buffer.from(id, 'hex')],
    )
  ).rows.map(({ op, reason }) => reason ?? op);
/** The stored totals of events, tags and topics, beside a fresh count. */
const counted = async () => {
  const { rows } = await life.client.query<Record<string, number>>(
    `SELECT (SELECT count(*) FROM events WHERE community = $1 AND hidden IS NULL) AS served,
       (SELECT count(*) FROM event_tags WHERE community = $1) AS tags,
       (SELECT coalesce(sum(events), 0) FROM topic_totals WHERE community = $1) AS "inTopics"`,
    [community],
  );
  const totals = await readTotals(life.client, community);
  return { ...rows[0]!, total: totals.events };
};

describe('what a moderator removes', () => {
  it('is hidden, is announced, and does not return when it is sent again', async () => {
    const before = await counted();
    const event = await post();
    expect(await remove(event)).toBe(1);
    expect(await isServed(event)).toBe(false);
    expect(await announced(event)).toEqual(['upsert', 'moderation']);
    expect(await say(event)).toBe('blocked: removed by a moderator');
    expect(await counted()).toEqual(before);
    expect(await remove(event), 'a second time').toBe(0);
  });

  it('cannot be a deletion request or an event of another community', async () => {
    const request = await post({ kind: 5, tags: [['e', 'f'.repeat(64)]] });
    const elsewhere = write();
    expect(await life.submit(0, other, elsewhere)).toBe('stored');
    expect(await remove(request, elsewhere)).toBe(0);
    expect(await isServed(request)).toBe(true);
  });

  it('is served again when restored, announced once more, with its tags and totals', async () => {
    const event = await post();
    const before = await counted();
    await remove(event);
    expect(await restore(event)).toEqual(['stored']);
    expect(await isServed(event)).toBe(true);
    expect(await announced(event)).toEqual(['upsert', 'moderation', 'upsert']);
    expect(await counted()).toEqual(before);
    expect(await say(event)).toBe('duplicate');
    expect(await restore(event), 'it is not removed now').toEqual(['unknown']);
    expect(await remove(event)).toBe(1);
    expect(await restore(event)).toEqual(['stored']);
  });

  it('stays hidden when its author deleted it meanwhile; each of several has its own result', async () => {
    const [kept, deleted] = [await post(), await post()];
    await remove(kept, deleted);
    expect(await say(deletion(deleted))).toBe('stored');
    expect(await restore(deleted, kept, write())).toEqual(['deleted', 'stored', 'unknown']);
    expect(await announced(deleted)).toEqual(['upsert', 'moderation']);
    expect(await say(deleted)).toBe('blocked: deleted by its author');
  });

  it('stays hidden when a newer version has arrived, and is current again when none has', async () => {
    const key = [
      ['d', 'page'],
      ['t', 'harbour'],
    ];
    const first = await post({ kind: 30_023, tags: key });
    await remove(first);
    expect(await restore(first)).toEqual(['stored']);
    await remove(first);
    const second = await post({ kind: 30_023, tags: key, created_at: at(5) });
    expect(await restore(first)).toEqual(['older']);
    expect(await isServed(second)).toBe(true);
    expect(await say(first)).toBe('blocked: removed by a moderator');
  });

  it('stays hidden when it has expired or its author has vanished', async () => {
    const short = await post({ tags: [['expiration', String(at(60))]] });
    await remove(short);
    life.now = START + 61_000;
    expect(await restore(short)).toEqual(['expired']);
    life.now = START;
    const person = newAuthor();
    const last = sign(person, { created_at: at(-5) });
    expect(await say(last)).toBe('stored');
    await remove(last);
    const vanish = sign(person, { kind: 62, created_at: at(), tags: [['relay', 'ALL_RELAYS']] });
    expect(await life.submit(0, community, vanish, [community])).toBe('stored');
    expect(await restore(last)).toEqual(['vanished']);
  });

  it('stays hidden when it is past its retention, even within undoDays', async () => {
    const event = await post();
    const page = await post({ kind: 30_023, tags: [['d', 'kept']] });
    await remove(event, page);
    life.now = START + 30 * DAY_MS + 1;
    expect(await restore(event, page)).toEqual(['gone', 'stored']);
    life.now = START;
  });

  it('is purged after undoDays, and stays refused', async () => {
    const event = await post();
    await remove(event);
    life.now = START + 29 * DAY_MS;
    await life.run(purgeRemovedEvents);
    const kept = 'SELECT 1 FROM events WHERE id = $1';
    expect((await life.client.query(kept, [Buffer.from(event.id, 'hex')])).rows).toHaveLength(1);
    life.now = START + 31 * DAY_MS;
    await life.run(purgeRemovedEvents);
    expect((await life.client.query(kept, [Buffer.from(event.id, 'hex')])).rows).toHaveLength(0);
    expect(await restore(event)).toEqual(['unknown']);
    expect(await say(event)).toBe('blocked: removed by a moderator');
    life.now = START;
  });

  it('keeps its partition from being dropped until it is purged', async () => {
    const month = Date.UTC(2032, 6, 29);
    const isThere = async () =>
      (await life.client.query("SELECT to_regclass('events_days30_2032_07') AS name")).rows[0].name !== null;
    life.now = month;
    const [removed, held, forgotten, other] = [await post(), await post(), await post(), await post()];
    await remove(removed, held, forgotten);
    await life.client.query(
      `INSERT INTO moderation_cases (case_id, community, status, opened_at, updated_at, target_event,
         target_pubkey, reason)
       VALUES (gen_random_uuid(), $1, 'held', $2, $2, $3, $4, 'spam')`,
      [community, month, Buffer.from(held.id, 'hex'), Buffer.from(author.pubkey, 'hex')],
    );
    expect(await say(write({ kind: 5, tags: [['e', other.id]] }))).toBe('stored');
    await life.client.query('UPDATE events SET hidden_at = $1 WHERE hidden = 2', [month - 40 * DAY_MS]);
    life.now = month + 10 * DAY_MS;
    for (const job of [purgeDeletedEvents, retain, dropMonths]) await life.run(job);
    expect(await isThere()).toBe(true);
    expect(await restore(removed)).toEqual(['stored']);
    expect(await isServed(removed)).toBe(true);
    life.now = month + 31 * DAY_MS;
    for (const job of [purgeRemovedEvents, retain, dropMonths]) await life.run(job);
    expect(await restore(forgotten), 'past moderation.undoDays').toEqual(['unknown']);
    expect(await isThere(), 'one is still held').toBe(true);
    await life.client.query("UPDATE moderation_cases SET status = 'dismissed', closed_at = 1");
    for (const job of [purgeRemovedEvents, retain, dropMonths]) await life.run(job);
    expect(await isThere()).toBe(false);
    life.now = START;
  });
});
