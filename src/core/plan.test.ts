/** Batches against a naive model: the plan is applied to a small store in memory, which is all that a database adds. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { NostrEvent } from './event.js';
import { Keep } from './keep.js';
import {
  type BatchFacts,
  factKey,
  type Head,
  type OutboxRow,
  type Plan,
  planBatch,
  type Submission,
} from './plan.js';

const SEED = 7447;

// ── Events: small pools, so that keys, times and ids meet ─────────────────────────────────────────────────────────

const AUTHORS = ['a'.repeat(64), 'b'.repeat(64)];
const idOf = (text: string) => Buffer.from(text.padEnd(32, '.').slice(0, 32)).toString('hex');

const submission: fc.Arbitrary<Submission> = fc
  .record({
    community: fc.constantFrom(1, 11),
    kind: fc.constantFrom(1, 5, 0, 10_002, 30_023, 30_024, 20_001),
    pubkey: fc.constantFrom(...AUTHORS),
    created_at: fc.integer({ min: 0, max: 3 }),
    d: fc.constantFrom('', 'x', 'x:y'),
    nonce: fc.integer({ min: 0, max: 5 }),
  })
  .map(({ community, kind, pubkey, created_at, d, nonce }) => {
    // The nonce comes first, so that ids do not rise with the time.
    const id = idOf(`${nonce}${kind}${pubkey[0]}${created_at}${d}`);
    const tags = [
      ['d', d],
      ['t', `topic${nonce % 2}`],
    ];
    const event: NostrEvent = { id, pubkey, created_at, kind, tags, content: '', sig: 'c'.repeat(128) };
    return { community, event, payload: JSON.stringify(event) };
  });
const submissions = fc.array(submission, { maxLength: 40, size: 'max' });
/** The list in two other orders, with repeats, and cut into batches in two ways. */
const arrivals = submissions.chain((list) =>
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

// ── A store in memory: what the tables hold, and nothing that decides ─────────────────────────────────────────────

class MemoryStore {
  lastSeq = 0;
  readonly known = new Set<string>();
  readonly heads = new Map<string, Head>();
  readonly rows = new Map<number, { submission: Submission; keep: number; effective: boolean }>();
  readonly outbox: OutboxRow[] = [];
  readonly broadcasts: Submission[] = [];

  facts(): BatchFacts {
    return { lastSeq: this.lastSeq, known: new Set(this.known), heads: new Map(this.heads) };
  }

  run(batch: readonly Submission[], now = 1_000): Plan {
    const plan = planBatch(batch, this.facts(), now);
    for (const { community, id, row } of plan.superseded) {
      const stored = this.rows.get(row.seq);
      expect(stored, 'a superseded row is one that was stored, in the place that is named').toMatchObject({
        submission: { community, event: { id } },
        keep: row.keep,
        effective: true,
      });
      this.rows.set(row.seq, { ...stored!, keep: Keep.history, effective: false });
    }
    for (const { seq, submission, keep, effective } of plan.rows) {
      expect(this.rows.has(seq)).toBe(false);
      this.rows.set(seq, { submission, keep, effective });
      const name = factKey(submission.community, submission.event.id);
      expect(this.known.has(name), 'stored once (I3)').toBe(false);
      this.known.add(name);
    }
    for (const { community, address, id, created_at, topics } of plan.heads) {
      const at = [...this.rows].find(
        ([, row]) => row.submission.community === community && row.submission.event.id === id,
      );
      const row = at === undefined ? undefined : { seq: at[0], ingestedAt: now, keep: at[1].keep };
      this.heads.set(factKey(community, address), { id, created_at, topics, row });
    }
    this.outbox.push(...plan.outbox);
    this.broadcasts.push(...plan.broadcasts);
    this.lastSeq = plan.lastSeq;
    return plan;
  }

  /** The effective rows, by community and id. */
  view(): Map<string, NostrEvent> {
    const effective = [...this.rows.values()].filter((row) => row.effective);
    return new Map(
      effective.map(({ submission: { community, event } }) => [factKey(community, event.id), event]),
    );
  }
}

function storeAfter(batches: readonly (readonly Submission[])[]): MemoryStore {
  const store = new MemoryStore();
  for (const batch of batches) store.run(batch);
  return store;
}

// ── The model ─────────────────────────────────────────────────────────────────────────────────────────────────────

function modelKey({ community, event: { kind, pubkey, tags, id } }: Submission): string {
  if (kind >= 30_000) return JSON.stringify([community, kind, pubkey, tags[0]![1]]);
  return JSON.stringify(kind === 0 || kind === 10_002 ? [community, kind, pubkey] : [community, id]);
}

function modelView(list: readonly Submission[]): Map<string, NostrEvent> {
  const winners = new Map<string, Submission>();
  for (const one of list.filter(({ event }) => event.kind !== 20_001)) {
    const best = winners.get(modelKey(one));
    const order = (event: NostrEvent) => `${9 - event.created_at} ${event.id}`;
    if (best === undefined || order(one.event) < order(best.event)) winners.set(modelKey(one), one);
  }
  return new Map([...winners.values()].map(({ community, event }) => [factKey(community, event.id), event]));
}

const RUNS = { seed: SEED, numRuns: 300 };

describe('planBatch', () => {
  it('any order of arrival and any grouping gives the view of the model (I4)', () => {
    fc.assert(
      fc.property(arrivals, ({ list, first, second }) => {
        const model = modelView(list);
        expect(storeAfter(first).view()).toEqual(model);
        expect(storeAfter(second).view()).toEqual(model);
        expect(storeAfter([list]).view()).toEqual(model);
        expect(storeAfter(list.map((one) => [one])).view()).toEqual(model);
      }),
      RUNS,
    );
  });

  it('a batch tells each client, and writes, what the same events one by one would', () => {
    fc.assert(
      fc.property(submissions, (list) => {
        const together = new MemoryStore();
        const decisions = together.run(list).decisions;
        const alone = new MemoryStore();
        const oneByOne = list.map((one) => alone.run([one]).decisions[0]);
        // Only within a batch is an ephemeral event known as a repeat.
        const stored = (_: unknown, at: number) => list[at]!.event.kind !== 20_001;
        expect(decisions.filter(stored)).toEqual(oneByOne.filter(stored));
        expect(decisions).toHaveLength(list.length);
        expect(together.outbox).toEqual(alone.outbox);
        expect(together.rows).toEqual(alone.rows);
        expect(new Map(together.heads)).toEqual(new Map(alone.heads));
      }),
      RUNS,
    );
  });

  it('doing it twice changes nothing (I3)', () => {
    fc.assert(
      fc.property(arrivals, ({ first, second }) => {
        const store = storeAfter(first);
        const { lastSeq } = store;
        const rows = new Map(store.rows);
        const stored = second.map((batch) => batch.filter(({ event }) => event.kind !== 20_001));
        for (const batch of stored) {
          const plan = store.run(batch);
          expect(plan).toMatchObject({
            rows: [],
            superseded: [],
            heads: [],
            outbox: [],
            broadcasts: [],
            lastSeq,
          });
          for (const decision of plan.decisions) expect(['duplicate', 'older']).toContain(decision);
        }
        expect(store.rows).toEqual(rows);
      }),
      RUNS,
    );
  });

  it('an empty batch plans nothing', () => {
    expect(planBatch([], { lastSeq: 7, known: new Set(), heads: new Map() }, 0)).toEqual({
      decisions: [],
      rows: [],
      superseded: [],
      heads: [],
      outbox: [],
      broadcasts: [],
      lastSeq: 7,
    });
  });

  it('the facts that it was given stay as they were', () => {
    fc.assert(
      fc.property(submissions, submissions, (before, batch) => {
        const facts = storeAfter([before]).facts();
        const copy = structuredClone(facts);
        planBatch(batch, facts, 0);
        expect(facts).toEqual(copy);
      }),
      RUNS,
    );
  });

  it('at most one row of a key is effective, also between batches (I4)', () => {
    fc.assert(
      fc.property(arrivals, ({ first }) => {
        const store = new MemoryStore();
        for (const batch of first) {
          store.run(batch);
          const effective = [...store.rows.values()].filter((row) => row.effective);
          const keys = effective.map((row) => modelKey(row.submission));
          expect(new Set(keys).size).toBe(keys.length);
        }
      }),
      RUNS,
    );
  });

  it('ephemeral events are broadcast, once per batch, and never stored, announced or made a head', () => {
    fc.assert(
      fc.property(submissions, (list) => {
        const store = new MemoryStore();
        const plan = store.run(list);
        const ephemeral = list.filter(({ event }) => event.kind === 20_001);
        const names = ephemeral.map(({ community, event }) => factKey(community, event.id));
        expect(plan.broadcasts.map(({ community, event }) => factKey(community, event.id))).toEqual([
          ...new Set(names),
        ]);
        const written = [
          ...plan.rows.map((row) => row.submission.event),
          ...plan.outbox.map((row) => row.event),
        ];
        expect(written.filter((event) => event.kind === 20_001)).toEqual([]);
        expect(plan.heads.filter((head) => head.kind === 20_001)).toEqual([]);
      }),
      RUNS,
    );
  });

  it('a superseded row is history, out of the view, in the bucket that is dropped first', () => {
    fc.assert(
      fc.property(arrivals, ({ first }) => {
        for (const { keep, effective } of storeAfter(first).rows.values())
          expect(keep === Keep.history).toBe(!effective);
      }),
      RUNS,
    );
  });
});

describe('the outbox of the plans (I8)', () => {
  it('is numbered without gaps and rising, and every row has the number of its upsert', () => {
    fc.assert(
      fc.property(arrivals, ({ first }) => {
        const store = storeAfter(first);
        expect(store.outbox.map((row) => row.seq)).toEqual(store.outbox.map((_, at) => at + 1));
        expect(store.lastSeq).toBe(store.outbox.length);
        const upserts = store.outbox.filter((row) => row.op === 'upsert');
        expect(upserts.map((row) => row.seq)).toEqual([...store.rows.keys()]);
        for (const { seq, event, community } of upserts) {
          expect(store.rows.get(seq)!.submission).toMatchObject({ community, event: { id: event.id } });
        }
      }),
      RUNS,
    );
  });

  it('replayed from its beginning gives exactly the effective view, after every batch', () => {
    fc.assert(
      fc.property(arrivals, ({ first }) => {
        const store = new MemoryStore();
        const replayed = new Set<string>();
        for (const batch of first) {
          for (const { op, community, event } of store.run(batch).outbox) {
            const name = factKey(community, event.id);
            if (op === 'upsert') {
              expect(replayed.has(name)).toBe(false);
              replayed.add(name);
            } else expect(replayed.delete(name)).toBe(true);
          }
          expect([...replayed].sort()).toEqual([...store.view().keys()].sort());
        }
      }),
      RUNS,
    );
  });

  it('each row is announced once, and its end once: the delete just before its successor', () => {
    fc.assert(
      fc.property(arrivals, ({ first }) => {
        const store = storeAfter(first);
        const names = (op: string) =>
          store.outbox.filter((row) => row.op === op).map((row) => factKey(row.community, row.event.id));
        expect(new Set(names('upsert')).size).toBe(names('upsert').length);
        expect(new Set(names('delete')).size).toBe(names('delete').length);
        const superseded = [...store.rows.values()].filter((row) => !row.effective);
        expect(names('delete').sort()).toEqual(
          superseded.map(({ submission: { community, event } }) => factKey(community, event.id)).sort(),
        );
        store.outbox.forEach((row, at) => {
          expect(row.reason).toBe(row.op === 'delete' ? 'superseded' : undefined);
          if (row.op === 'upsert') return;
          const { event, community, effectiveKey } = store.outbox[at + 1]!;
          expect(store.outbox[at + 1]!.op).toBe('upsert');
          expect([community, effectiveKey, event.kind, event.pubkey]).toEqual([
            row.community,
            row.effectiveKey,
            row.event.kind,
            row.event.pubkey,
          ]);
        });
      }),
      RUNS,
    );
  });

  it('says of each event what it is: key, topics, author, time, also when it says delete', () => {
    fc.assert(
      fc.property(arrivals, ({ list, first }) => {
        const sent = new Map(list.map((one) => [factKey(one.community, one.event.id), one.event]));
        for (const { community, event, topics, effectiveKey, ingestedAt } of storeAfter(first).outbox) {
          const { pubkey, kind, created_at, tags } = sent.get(factKey(community, event.id))!;
          expect(event).toMatchObject({ pubkey, kind, created_at });
          expect(topics).toEqual([tags[1]![1]]);
          const d = kind >= 30_000 ? tags[0]![1] : '';
          expect(effectiveKey).toBe(kind === 1 || kind === 5 ? undefined : `${kind}:${pubkey}:${d}`);
          expect(ingestedAt).toBe(1_000);
        }
      }),
      RUNS,
    );
  });
});
