/**
 * Single rules of a batch: quotas, tombstones, rows that a job hides. batch.test.ts tests the whole against a
 * model.
 */

import { describe, expect, it } from 'vitest';
import { NO_FACTS } from '../../../../test/support/models/facts.js';
import { settingsFrom } from '../../../communities/rules-settings.js';
import { BOUND_MAX, UNBOUND } from '../../../topics/rules.js';
import type { NostrEvent } from '../event.js';
import { type BatchFacts, factKey, type StoredEvent, type Submission, tombstoneKey } from '../facts.js';
import { Keep } from '../keep.js';
import { hidingWrites } from '../writes.js';
import { decideBatch } from './batch.js';

const ALICE = 'a'.repeat(64);
const BOB = 'b'.repeat(64);
const HERE = 1;
const ELSEWHERE = 11;
const idOf = (text: string) => Buffer.from(text.padEnd(32, '.').slice(0, 32)).toString('hex');
const ROW = { seq: 1, ingestedAt: 5, keep: Keep.days30 };

let made = 0;
function submissionOf(change: Partial<NostrEvent>, community = HERE): Submission {
  made += 1;
  const event = {
    id: idOf(`event ${made}`),
    pubkey: ALICE,
    created_at: 1,
    kind: 1,
    tags: [],
    content: '',
    sig: 'c'.repeat(128),
    ...change,
  };
  return { community, event, payload: JSON.stringify(event) };
}
const note = (pubkey: string, community = HERE) => submissionOf({ pubkey }, community);
const deletion = (pubkey: string, tags: string[][], community = HERE) =>
  submissionOf({ pubkey, kind: 5, tags }, community);

/** The facts of a store that serves these events. */
const serving = (...served: Submission[]): BatchFacts => ({
  ...NO_FACTS,
  known: new Map(served.map(({ community, event }) => [factKey(community, event.id), 'served'])),
  targets: new Map(
    served.map(({ community, event }): [string, StoredEvent] => [
      factKey(community, event.id),
      { row: ROW, event, bound: [] },
    ]),
  ),
});

describe('targets per day', () => {
  const targets = (count: number) => Array.from({ length: count }, (_, at) => ['e', idOf(`target ${at}`)]);
  const withLeft = (left: number): BatchFacts => ({
    ...NO_FACTS,
    deletionsLeft: new Map([[factKey(HERE, ALICE), left]]),
  });

  it('a request within the remaining targets is accepted; one target more is refused', () => {
    expect(decideBatch([deletion(ALICE, targets(3))], withLeft(3), 0).decisions).toEqual(['stored']);
    const writes = decideBatch([deletion(ALICE, targets(4))], withLeft(3), 0);
    expect(writes).toMatchObject({
      decisions: ['overQuota'],
      rows: [],
      tombstones: [],
      outbox: [],
      lastSeq: 0,
    });
  });

  it('requests of one batch add up per author and community; a repeat is not counted', () => {
    const first = deletion(ALICE, targets(2));
    const batch: [Submission, string][] = [
      [first, 'stored'],
      [first, 'duplicate'],
      [deletion(ALICE, targets(2)), 'overQuota'],
      [deletion(BOB, targets(3)), 'stored'],
      [deletion(ALICE, targets(3), ELSEWHERE), 'stored'],
      [deletion(ALICE, targets(1)), 'stored'],
      [deletion(ALICE, targets(1)), 'overQuota'],
      [note(ALICE), 'stored'],
    ];
    const writes = decideBatch(
      batch.map(([one]) => one),
      withLeft(3),
      0,
    );
    expect(writes.decisions).toEqual(batch.map(([, decision]) => decision));
  });

  it('repeated and malformed targets, and addresses of other authors, are not counted', () => {
    const [one] = targets(1);
    const cheap = deletion(ALICE, [one!, one!, ['e', 'short'], ['a', `30023:${BOB}:x`], ['p', BOB]]);
    expect(decideBatch([cheap], withLeft(1), 0).decisions).toEqual(['stored']);
  });
});

describe('tombstones', () => {
  it('record whether something was hidden at once; another author’s stored event leaves none', () => {
    const [own, foreign, absent] = [note(ALICE), note(BOB), idOf('absent')];
    const request = deletion(ALICE, [
      ['e', own.event.id],
      ['e', foreign.event.id],
      ['e', absent],
      ['a', `30023:${ALICE}:x`],
    ]);
    const { tombstones } = decideBatch([request], serving(own, foreign), 0);
    expect(tombstones.map(({ target, applied }) => [target, applied])).toEqual([
      [{ type: 'id', id: own.event.id }, true],
      [{ type: 'id', id: absent }, false],
      [{ type: 'address', address: `30023:${ALICE}:x` }, false],
    ]);
    for (const { author, deletionId, requestedAt, community } of tombstones)
      expect([author, deletionId, requestedAt, community]).toEqual([ALICE, request.event.id, 1, HERE]);
  });

  it('block the events of the requester only', () => {
    const one = note(ALICE);
    const askedBy = (pubkey: string): BatchFacts => ({
      ...NO_FACTS,
      tombstones: new Map([[tombstoneKey(HERE, one.event.id, pubkey), 1]]),
    });
    expect(decideBatch([one], askedBy(ALICE), 0).decisions).toEqual(['deleted']);
    expect(decideBatch([one], askedBy(BOB), 0).decisions).toEqual(['stored']);
    expect(decideBatch([deletion(BOB, [['e', one.event.id]]), one], NO_FACTS, 0).decisions).toEqual([
      'stored',
      'stored',
    ]);
  });

  it('one community’s request does nothing in another (I13)', () => {
    const there = note(ALICE, ELSEWHERE);
    const request = deletion(ALICE, [['e', there.event.id]]);
    expect(decideBatch([request], serving(there), 0).hidden).toEqual([]);
    expect(decideBatch([request, { ...there }], NO_FACTS, 0).decisions).toEqual(['stored', 'stored']);
  });
});

describe('bound topics', () => {
  const tagged = (pubkey: string, ...topics: string[]) =>
    submissionOf({ pubkey, tags: topics.map((topic) => ['t', topic]) });
  const inMode = (mode: string, facts: BatchFacts = NO_FACTS): BatchFacts => ({
    ...facts,
    topicSettings: new Map([[HERE, settingsFrom(new Map([['topic.mode', mode]]))]]),
  });

  it('a deletion request is bound to the topics of its rightful targets that are stored, each once', () => {
    const [one, two] = [tagged(ALICE, 'sea', 'wind'), tagged(ALICE, 'wind', 'own')];
    const [foreign, absent] = [tagged(BOB, 'foreign'), tagged(ALICE, 'absent')];
    const targets = [one, two, foreign, absent].map(({ event }) => ['e', event.id]);
    const request = deletion(ALICE, [...targets, ['t', 'own']]);
    const writes = decideBatch([request], serving(one, two, foreign), 0);
    expect(writes.rows.map(({ bound }) => bound)).toEqual([['sea', 'wind']]);
    expect(writes.outbox.map(({ op, topics }) => [op, topics])).toEqual([
      ['upsert', ['own', 'sea', 'wind']],
      ['delete', ['sea', 'wind']],
      ['delete', ['wind', 'own']],
    ]);
  });

  it('a request is bound to a limited number of topics', () => {
    const many = tagged(ALICE, ...Array.from({ length: BOUND_MAX + 50 }, (_, at) => `topic ${at}`));
    const writes = decideBatch([deletion(ALICE, [['e', many.event.id]])], serving(many), 0);
    expect(writes.rows[0]!.bound).toHaveLength(BOUND_MAX);
  });

  it('the default mode binds an event without a topic, and its deletion to the same topic', () => {
    const plain = note(ALICE);
    const request = deletion(ALICE, [['e', plain.event.id]]);
    const writes = decideBatch([plain, tagged(BOB, 'kukuri:sea'), request], inMode('default'), 0);
    expect(writes.rows.map(({ bound }) => bound)).toEqual([['kukuri:global'], [], ['kukuri:global']]);
    for (const mode of ['required', 'open'])
      expect(decideBatch([plain], inMode(mode), 0).rows[0]!.bound).toBe(UNBOUND);
  });

  it('a superseded version is announced in the topics that it was bound to', () => {
    const version = (created_at: number) =>
      submissionOf({ pubkey: ALICE, kind: 30_023, created_at, tags: [['d', 'x']] });
    const writes = decideBatch([version(1), version(2)], inMode('default'), 0);
    expect(writes.heads.map(({ topics }) => topics)).toEqual([['kukuri:global']]);
    expect(writes.outbox.map(({ op, topics }) => [op, topics])).toEqual([
      ['upsert', ['kukuri:global']],
      ['delete', ['kukuri:global']],
      ['upsert', ['kukuri:global']],
    ]);
  });
});

describe('hidingWrites', () => {
  it('hides each row with its reason in the outbox, at the next offsets', () => {
    const [one, version] = [note(ALICE), submissionOf({ pubkey: BOB, kind: 30_023, tags: [['d', 'x']] })];
    const rows = [one, version].map(({ community, event }) => ({
      community,
      event,
      bound: ['bound'],
      row: ROW,
    }));
    const writes = hidingWrites(rows, 'expired', true, 10, 77);
    expect(writes.hidden).toEqual(
      rows.map(({ event }) => ({ community: HERE, id: event.id, row: ROW, hidden: 'expired', purge: true })),
    );
    expect(writes.outbox.map(({ seq, op, reason, effectiveKey }) => [seq, op, reason, effectiveKey])).toEqual(
      [
        [11, 'delete', 'expiration', undefined],
        [12, 'delete', 'expiration', `30023:${BOB}:x`],
      ],
    );
    expect(writes.outbox.map(({ topics }) => topics)).toEqual([['bound'], ['bound']]);
    expect(writes.lastSeq).toBe(12);
    expect([...writes.decisions, ...writes.rows, ...writes.heads, ...writes.tombstones]).toEqual([]);
  });
});
