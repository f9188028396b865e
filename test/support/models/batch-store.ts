/**
 * Batches of events in random orders, a store in memory that applies batches, and the naive model of its
 * view.
 */
import fc from 'fast-check';
import { expect } from 'vitest';
import { decideBatch } from '../../../src/events/rules/batch/batch.js';
import { addressOf } from '../../../src/events/rules/classify.js';
import type { NostrEvent } from '../../../src/events/rules/event.js';
import {
  type BatchFacts,
  factKey,
  type Head,
  type Submission,
  tombstoneKey,
} from '../../../src/events/rules/facts.js';
import type { Hidden } from '../../../src/events/rules/hidden.js';
import { Keep } from '../../../src/events/rules/keep.js';
import type {
  BatchWrites,
  NewHead,
  OutboxRow,
  Tombstone,
  VanishMark,
} from '../../../src/events/rules/writes.js';
import { allTopics } from '../../../src/topics/rules.js';

export const SEED = 7447;

// ── Events: small pools, so that keys, times and ids collide ───────────────────────────────────────────────

const AUTHORS = ['a'.repeat(64), 'b'.repeat(64)];
/** The only author who requests to vanish. */
export const CAROL = 'c'.repeat(64);
const SOFT = 1;
export const PHYSICAL = 11;
const COMMUNITIES = [SOFT, PHYSICAL];
const TIME_MAX = 3;
const idOf = (text: string) => Buffer.from(text.padEnd(32, '.').slice(0, 32)).toString('hex');

interface Draft {
  readonly community: number;
  readonly kind: number;
  readonly pubkey: string;
  readonly created_at: number;
  readonly d: string;
  readonly nonce: number;
  readonly more?: string[][];
}

function submissionOf({ community, kind, pubkey, created_at, d, nonce, more = [] }: Draft): Submission {
  // The nonce is first, so that ids do not increase with time.
  const id = idOf(
    `${nonce}${kind}${pubkey[0]}${created_at}${d}${more.map((tag) => tag[1]!.at(-1)).join('')}`,
  );
  const tags = [['d', d], ['t', `topic${nonce % 2}`], ...more];
  const event: NostrEvent = { id, pubkey, created_at, kind, tags, content: '', sig: 'c'.repeat(128) };
  return { community, event, payload: JSON.stringify(event) };
}

const time = fc.integer({ min: 0, max: TIME_MAX });
const submission: fc.Arbitrary<Submission> = fc
  .record({
    community: fc.constantFrom(...COMMUNITIES),
    kind: fc.constantFrom(1, 1_059, 0, 10_002, 30_023, 30_024, 20_001),
    pubkey: fc.constantFrom(...AUTHORS, CAROL),
    recipients: fc.subarray([...AUTHORS, CAROL]),
    created_at: time,
    d: fc.constantFrom('', 'x', 'x:y'),
    nonce: fc.integer({ min: 0, max: 5 }),
  })
  .map(({ recipients, ...draft }) =>
    submissionOf({ ...draft, more: draft.kind === 1_059 ? recipients.map((one) => ['p', one]) : [] }),
  );

/** Deletion requests for events of the list, by id and by address, by the author and by others. */
function requestFor(list: readonly Submission[]): fc.Arbitrary<Submission> {
  const target = fc.record({ at: fc.nat(), byAddress: fc.boolean() });
  return fc
    .record({
      targets: fc.array(target, { maxLength: 4, size: 'max' }),
      requester: fc.constantFrom('its author', 'its author', ...AUTHORS, CAROL),
      elsewhere: fc.constantFrom(undefined, undefined, ...COMMUNITIES),
      created_at: time,
      nonce: fc.integer({ min: 0, max: 99 }),
    })
    .map(({ targets, requester, elsewhere, created_at, nonce }) => {
      const named = targets.flatMap(({ at, byAddress }) => {
        const one = list[at % list.length];
        return one === undefined ? [] : [{ ...one, byAddress }];
      });
      const pubkey = requester === 'its author' ? (named[0]?.event.pubkey ?? CAROL) : requester;
      const community = elsewhere ?? named[0]?.community ?? SOFT;
      const more = named.map(({ event, byAddress }) =>
        byAddress ? ['a', `${event.kind}:${event.pubkey}:${event.tags[0]![1]}`] : ['e', event.id],
      );
      const draft = { community, kind: 5, pubkey, created_at, d: '', nonce };
      const one = submissionOf({ ...draft, more });
      return {
        ...one,
        event: { ...one.event, id: idOf(`${nonce}${JSON.stringify(more)}${pubkey[0]}${created_at}`) },
      };
    })
    .map(({ event, community }) => ({ community, event, payload: JSON.stringify(event) }));
}

const vanishing: fc.Arbitrary<Submission> = fc
  .record({ community: fc.constantFrom(...COMMUNITIES), created_at: time, everywhere: fc.boolean() })
  .map(({ community, created_at, everywhere }) => ({
    ...submissionOf({ community, kind: 62, pubkey: CAROL, created_at, d: everywhere ? 'all' : '', nonce: 0 }),
    vanishIn: everywhere ? COMMUNITIES : [community],
  }));

export const submissions = fc.array(submission, { maxLength: 30, size: 'max' }).chain((list) =>
  fc
    .tuple(
      fc.array(requestFor(list), { maxLength: 8, size: 'max' }),
      fc.oneof({ arbitrary: fc.constant([]), weight: 3 }, fc.array(vanishing, { maxLength: 2 })),
    )
    .chain(([requests, vanishes]) => {
      const all = uniqueById([...list, ...requests, ...vanishes]);
      return fc.shuffledSubarray(all, { minLength: all.length });
    }),
);

/** An id belongs to one event, which may be sent to each community. */
function uniqueById(list: readonly Submission[]): Submission[] {
  const byId = new Map<string, string>();
  return list.filter(({ event }) => {
    const text = JSON.stringify(event);
    if (!byId.has(event.id)) byId.set(event.id, text);
    return byId.get(event.id) === text;
  });
}

/** The list in two other orders, with repeats, and cut into batches in two ways. */
export const arrivals = submissions.chain((list) =>
  fc.record({
    list: fc.constant(list),
    first: arrival(list),
    second: arrival(list),
  }),
);

function arrival(list: readonly Submission[]): fc.Arbitrary<Submission[][]> {
  return fc
    .tuple(
      fc.shuffledSubarray([...list], { minLength: list.length }),
      fc.subarray([...list]),
      fc.array(fc.integer({ min: 1, max: 12 }), { minLength: 1 }),
    )
    .map(([all, again, sizes]) => cut([...all, ...again], sizes));
}

function cut<T>(list: readonly T[], sizes: readonly number[]): T[][] {
  const groups: T[][] = [];
  for (let at = 0; at < list.length; ) {
    const size = sizes[groups.length % sizes.length]!;
    groups.push(list.slice(at, at + size));
    at += size;
  }
  return groups;
}

// ── A store in memory: what the tables hold, without decisions ──────────────────────────────────────

interface Row {
  readonly submission: Submission;
  readonly bound: readonly string[];
  readonly keep: number;
  readonly hidden: Hidden | undefined;
}

export class MemoryStore {
  lastSeq = 0;
  readonly known = new Map<string, 'served' | Hidden>();
  readonly heads = new Map<string, NewHead>();
  readonly rows = new Map<number, Row>();
  readonly tombstones = new Map<string, Tombstone>();
  readonly vanished = new Map<string, number>();
  readonly outbox: OutboxRow[] = [];
  readonly broadcasts: Submission[] = [];

  facts(): BatchFacts {
    const served = [...this.rows].filter(([, row]) => row.hidden === undefined);
    const targets = new Map(
      served.map(([seq, { submission, bound, keep }]) => [
        factKey(submission.community, submission.event.id),
        { row: { seq, ingestedAt: 1_000, keep }, event: submission.event, bound },
      ]),
    );
    const superseded = [...this.rows]
      .filter(([, row]) => row.hidden === 'superseded')
      .map(
        ([
          seq,
          {
            submission: { community, event },
            bound,
            keep,
          },
        ]) => {
          const { id, created_at, pubkey } = event;
          const row = { seq, ingestedAt: 1_000, keep };
          const topics = allTopics(event, bound);
          return { community, id, created_at, pubkey, address: addressOf(event)!, topics, row };
        },
      );
    const heads = new Map(
      [...this.heads].map(([key, { community, id, created_at, topics }]): [string, Head] => [
        key,
        { id, created_at, topics, row: targets.get(factKey(community, id))?.row },
      ]),
    );
    return {
      lastSeq: this.lastSeq,
      known: new Map(this.known),
      heads,
      targets,
      superseded,
      tombstones: new Map([...this.tombstones].map(([key, { requestedAt }]) => [key, requestedAt])),
      vanished: new Map(this.vanished),
      deletionsLeft: new Map(),
      purgesDeleted: new Set([PHYSICAL]),
    };
  }

  run(batch: readonly Submission[], now = 1_000): BatchWrites {
    const writes = decideBatch(batch, this.facts(), now);
    this.hide(writes);
    for (const { seq, submission, bound, keep, hidden, purge } of writes.rows) {
      expect(this.rows.has(seq)).toBe(false);
      const name = factKey(submission.community, submission.event.id);
      expect(this.known.has(name), 'stored once (I3)').toBe(false);
      this.known.set(name, hidden ?? 'served');
      if (!purge) this.rows.set(seq, { submission, bound, keep, hidden });
    }
    for (const head of writes.heads) this.heads.set(factKey(head.community, head.address), head);
    for (const tombstone of writes.tombstones) this.bury(tombstone);
    for (const mark of writes.vanishMarks) this.vanish(mark);
    this.outbox.push(...writes.outbox);
    this.broadcasts.push(...writes.broadcasts);
    this.lastSeq = writes.lastSeq;
    return writes;
  }

  private hide(writes: BatchWrites): void {
    for (const { community, id, row, hidden, purge } of writes.hidden) {
      const stored = this.rows.get(row.seq);
      const before = row.keep === Keep.history ? 'superseded' : undefined;
      expect(stored, 'a hidden row is one that was there, in the place that is named').toMatchObject({
        submission: { community, event: { id } },
        keep: row.keep,
        hidden: before,
      });
      expect(hidden, 'only a deletion takes what was superseded').toBe(
        before === undefined ? hidden : 'deleted',
      );
      const place = before === undefined ? row.keep : Keep.current;
      const keep = hidden === 'superseded' ? Keep.history : place;
      this.known.set(factKey(community, id), hidden);
      if (purge) this.rows.delete(row.seq);
      else this.rows.set(row.seq, { ...stored!, keep, hidden });
    }
  }

  private bury(tombstone: Tombstone): void {
    const { community, target, author } = tombstone;
    const key = tombstoneKey(community, target.type === 'id' ? target.id : target.address, author);
    const before = this.tombstones.get(key);
    if (before === undefined || before.requestedAt < tombstone.requestedAt)
      this.tombstones.set(key, tombstone);
  }

  private vanish({ community, pubkey, until }: VanishMark): void {
    const key = factKey(community, pubkey);
    this.vanished.set(key, Math.max(until, this.vanished.get(key) ?? until));
  }

  /** The served rows by community and id. A vanish mark hides rows when they are read. */
  view(): Map<string, NostrEvent> {
    const served = [...this.rows.values()].filter(
      ({ hidden, submission: { community, event } }) =>
        hidden === undefined && !isVanished(event, this.vanished.get(factKey(community, CAROL))),
    );
    return new Map(
      served.map(({ submission: { community, event } }) => [factKey(community, event.id), event]),
    );
  }
}

export function storeAfter(batches: readonly (readonly Submission[])[]): MemoryStore {
  const store = new MemoryStore();
  for (const batch of batches) store.run(batch);
  return store;
}

// ── The model ──────────────────────────────────────────────────────────────────────────────────────────────

export function modelKey({ community, event: { kind, pubkey, tags, id } }: Submission): string {
  if (kind >= 30_000) return JSON.stringify([community, kind, pubkey, tags[0]![1]]);
  return JSON.stringify(kind === 0 || kind === 10_002 ? [community, kind, pubkey] : [community, id]);
}

export const hasKey = (kind: number) => ![1, 5, 62, 1_059, 20_001].includes(kind);

const isRecipient = ({ kind, tags }: NostrEvent, pubkey: string) =>
  kind === 1_059 && tags.some(([name, value]) => name === 'p' && value === pubkey);

export function isVanished(event: NostrEvent, until: number | undefined): boolean {
  if (until === undefined || event.kind === 62 || event.created_at > until) return false;
  return event.pubkey === CAROL || isRecipient(event, CAROL);
}

export function isDeleted({ community, event }: Submission, list: readonly Submission[]): boolean {
  if (event.kind === 5 || event.kind === 62) return false;
  const address = [0, 10_002].includes(event.kind) ? '' : event.tags[0]![1];
  return list.some(({ community: where, event: request }) => {
    if (request.kind !== 5 || where !== community) return false;
    const isOwner = request.pubkey === event.pubkey || isRecipient(event, request.pubkey);
    return request.tags.some(([name, value]) => {
      if (name === 'e') return value === event.id && isOwner;
      if (name !== 'a' || request.pubkey !== event.pubkey || event.created_at > request.created_at)
        return false;
      return hasKey(event.kind) && value === `${event.kind}:${event.pubkey}:${address}`;
    });
  });
}

export const vanishedUntil = (list: readonly Submission[], community: number): number | undefined => {
  const marks = list.filter(({ event, vanishIn }) => event.kind === 62 && vanishIn!.includes(community));
  return marks.length === 0 ? undefined : Math.max(...marks.map(({ event }) => event.created_at));
};

/**
 * The newest version of each key that ever arrived, unless it is deleted or vanished. The order of the list
 * does not matter.
 */
export function modelView(list: readonly Submission[]): Map<string, NostrEvent> {
  const winners = new Map<string, Submission>();
  for (const one of list.filter(({ event }) => event.kind !== 20_001 && event.kind !== 62)) {
    const best = winners.get(modelKey(one));
    const order = (event: NostrEvent) => `${9 - event.created_at} ${event.id}`;
    if (best === undefined || order(one.event) < order(best.event)) winners.set(modelKey(one), one);
  }
  const served = [...winners.values()].filter(
    (one) => !isDeleted(one, list) && !isVanished(one.event, vanishedUntil(list, one.community)),
  );
  return new Map(served.map(({ community, event }) => [factKey(community, event.id), event]));
}
