/**
 * Reports by events of kind 1984 in the store: written and withdrawn with their event, and never by another
 * author.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { erase } from '../../src/erasure/jobs.js';
import { capacity } from '../../src/events/jobs/capacity.js';
import { expire } from '../../src/events/jobs/expire.js';
import { dropMonths, retain } from '../../src/events/jobs/retain.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { addReport, listReports, type Report } from '../../src/reports/reports.sql.js';
import { KIND_REPORT } from '../../src/reports/rules.js';
import { hash, type Life, openLife, unsigned } from '../support/stores/life.js';

const START = Date.UTC(2026, 0, 10);
const DAY_MS = 86_400_000;
const TARGET = hash('target');
const ALICE = hash('alice');
const BOB = hash('bob');

let life: Life;
let soft: number;
let physical: number;
let small: number;
beforeAll(async () => {
  life = await openLife(
    START,
    [
      { settings: { 'retention.regularDays': 30 } },
      { settings: { 'deletion.mode': 'physical' } },
      { settings: { 'capacity.maxEvents': 10 } },
    ],
    2,
  );
  [soft, physical, small] = life.communities as [number, number, number];
});
afterAll(() => life.close());

const seconds = () => Math.floor(life.now / 1_000);
let made = 0;
function report(change: Partial<NostrEvent> = {}): NostrEvent {
  made += 1;
  const tags = [
    ['e', TARGET, 'spam'],
    ['p', BOB],
  ];
  const content = `number ${made}`;
  return unsigned({ kind: KIND_REPORT, pubkey: ALICE, created_at: seconds(), tags, content, ...change });
}
const deletion = (event: NostrEvent, pubkey = event.pubkey) =>
  unsigned({ kind: 5, pubkey, created_at: seconds(), tags: [['e', event.id]], content: `${++made}` });

async function reports(community: number, event?: NostrEvent): Promise<readonly Report[]> {
  const page = await listReports(life.database.pool, { community }, { limit: 200 });
  if (isDenial(page)) throw new Error(page.denied);
  return event === undefined ? page.items : page.items.filter(({ eventId }) => eventId === event.id);
}
const stored = async (event: NostrEvent, community = soft, instance = 0) =>
  expect(await life.submit(instance, community, event)).toBe('stored');

describe('a stored event of kind 1984', () => {
  it('makes one report for each target, with its reporter, reason and comment', async () => {
    const event = report({
      tags: [
        ['e', TARGET, 'spam'],
        ['p', BOB, 'profanity'],
      ],
      content: 'a\u0000b',
    });
    await stored(event);
    const both = {
      pubkey: ALICE,
      comment: 'a\ufffdb',
      eventId: event.id,
      createdAt: event.created_at * 1_000,
    };
    const found = await reports(soft, event);
    expect(found).toHaveLength(2);
    expect(found).toEqual(
      expect.arrayContaining([
        { ...both, reportId: expect.any(String), targetEvent: TARGET, targetPubkey: BOB, reason: 'spam' },
        { ...both, reportId: expect.any(String), targetEvent: null, targetPubkey: BOB, reason: 'profanity' },
      ]),
    );
  });

  it('adds nothing when it arrives again, on either instance, also in one batch', async () => {
    const event = report();
    const outcomes = await Promise.all([0, 1, 0, 1].map((instance) => life.submit(instance, soft, event)));
    expect(outcomes.sort()).toEqual(['duplicate', 'duplicate', 'duplicate', 'stored']);
    expect(await reports(soft, event)).toHaveLength(1);
  });

  it('makes a report in its own community only', async () => {
    const event = report();
    await stored(event, physical);
    expect(await reports(soft, event)).toEqual([]);
    expect(await reports(physical, event)).toHaveLength(1);
  });

  it('without a target is an event like any other', async () => {
    const event = report({ tags: [['e', 'x', 'spam']] });
    await stored(event);
    expect(await reports(soft, event)).toEqual([]);
  });

  it('with a future created_at is dated now', async () => {
    const event = report({ created_at: seconds() + 600 });
    await stored(event);
    expect((await reports(soft, event))[0]?.createdAt).toBe(life.now);
  });
});

describe('its reports are withdrawn', () => {
  it.each(['soft', 'physical'])('when its author deletes it, with deletion mode %s', async (mode) => {
    const community = mode === 'soft' ? soft : physical;
    const [event, other] = [report(), report()];
    await stored(event, community);
    await stored(other, community);
    await stored(deletion(event), community, 1);
    expect(await reports(community, event)).toEqual([]);
    expect(await reports(community, other)).toHaveLength(1);
  });

  it('or never made, when the deletion came first or in the same batch', async () => {
    const [late, same] = [report(), report()];
    await stored(deletion(late));
    expect(await life.submit(0, soft, late)).toMatch(/^blocked: /);
    const outcomes = await Promise.all([same, deletion(same)].map((event) => life.submit(0, soft, event)));
    expect(outcomes).toEqual(['stored', 'stored']);
    expect(await reports(soft, late)).toEqual([]);
    expect(await reports(soft, same)).toEqual([]);
  });

  it('not by a deletion of another author', async () => {
    const event = report();
    await stored(event);
    await stored(deletion(event, BOB));
    expect(await reports(soft, event)).toHaveLength(1);
  });

  it('when it expires', async () => {
    const tags = [
      ['p', BOB, 'spam'],
      ['expiration', String(seconds() + 60)],
    ];
    const event = report({ tags });
    await stored(event);
    expect(await reports(soft, event)).toHaveLength(1);
    life.now += 61_000;
    await life.run(expire);
    expect(await reports(soft, event)).toEqual([]);
  });

  it('when its author vanishes: hidden at once, then deleted, with those over HTTP', async () => {
    const carol = hash('carol');
    const event = report({ pubkey: carol });
    await stored(event);
    const words = { targetEvent: TARGET, targetPubkey: undefined, reason: 'spam', comment: '' } as const;
    await addReport(
      life.database.pool,
      life.writers[0]!.store.stored,
      { ...words, community: soft, pubkey: carol },
      life.now,
    );
    const ofCarol = async () => (await reports(soft)).filter(({ pubkey }) => pubkey === carol);
    const rowsOfCarol = async () => {
      const { rows } = await life.client.query('SELECT 1 FROM reports WHERE pubkey = $1', [
        Buffer.from(carol, 'hex'),
      ]);
      return rows.length;
    };
    expect(await ofCarol()).toHaveLength(2);
    const vanish = unsigned({
      kind: 62,
      pubkey: carol,
      created_at: seconds(),
      tags: [['relay', 'ALL_RELAYS']],
    });
    await stored(vanish);
    expect(await ofCarol()).toEqual([]);
    expect(await rowsOfCarol()).toBe(2);
    await life.run(erase);
    expect(await rowsOfCarol()).toBe(0);
    life.now += 1_000;
    await addReport(
      life.database.pool,
      life.writers[0]!.store.stored,
      { ...words, community: soft, pubkey: carol },
      life.now,
    );
    expect(await ofCarol()).toHaveLength(1);
  });
});

describe('its reports stay', () => {
  it('when it is purged for capacity', async () => {
    const first = report();
    await stored(first, small);
    for (let count = 0; count < 12; count += 1) await stored(report(), small);
    await life.run(capacity);
    const { rows } = await life.client.query('SELECT hidden FROM event_dedupe WHERE event_id = $1', [
      Buffer.from(first.id, 'hex'),
    ]);
    expect(rows).toEqual([{ hidden: expect.any(Number) }]);
    expect(await reports(small, first)).toHaveLength(1);
  });

  it('when it is past retention, until its author deletes it or vanishes', async () => {
    const dave = hash('dave');
    const [event, other] = [report(), report({ pubkey: dave })];
    await stored(event);
    await stored(other);
    life.now += 95 * DAY_MS;
    await life.run(retain);
    await life.run(dropMonths);
    const { rows } = await life.client.query('SELECT 1 FROM events WHERE id = $1', [
      Buffer.from(event.id, 'hex'),
    ]);
    expect(rows).toEqual([]);
    expect(await reports(soft, event)).toHaveLength(1);
    await stored(deletion(event, BOB));
    expect(await reports(soft, event)).toHaveLength(1);
    await stored(deletion(event));
    expect(await reports(soft, event)).toEqual([]);
    expect(await reports(soft, other)).toHaveLength(1);
    await stored(unsigned({ kind: 62, pubkey: dave, created_at: seconds() }));
    await life.run(erase);
    expect(await reports(soft, other)).toEqual([]);
  });
});
