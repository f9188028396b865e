/**
 * Batches against a naive model. Their writes are applied to a small store in memory, which is all that a
 * database adds.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  arrivals,
  CAROL,
  hasKey,
  isDeleted,
  isVanished,
  MemoryStore,
  modelKey,
  modelView,
  PHYSICAL,
  SEED,
  storeAfter,
  submissions,
  vanishedUntil,
} from '../../../../test/support/models/batch-store.js';
import { factKey, type Submission } from '../facts.js';
import { Keep } from '../keep.js';
import type { OutboxRow } from '../writes.js';
import { decideBatch } from './batch.js';

const RUNS = { seed: SEED, numRuns: 300 };
const nameOf = ({ community, event }: { community: number; event: { id: string } }) =>
  factKey(community, event.id);

describe('decideBatch', () => {
  it('any order of arrival and any grouping gives the view of the model (I4, I5)', () => {
    let deletedSome = 0;
    let vanishedSome = 0;
    fc.assert(
      fc.property(arrivals, ({ list, first, second }) => {
        const model = modelView(list);
        expect(storeAfter(first).view()).toEqual(model);
        expect(storeAfter(second).view()).toEqual(model);
        expect(storeAfter([list]).view()).toEqual(model);
        expect(storeAfter(list.map((one) => [one])).view()).toEqual(model);
        deletedSome += list.filter((one) => isDeleted(one, list)).length;
        vanishedSome += list.filter((one) =>
          isVanished(one.event, vanishedUntil(list, one.community)),
        ).length;
      }),
      RUNS,
    );
    expect(deletedSome, 'the lists have something to delete').toBeGreaterThan(RUNS.numRuns);
    expect(vanishedSome, 'and to hide by a mark').toBeGreaterThan(RUNS.numRuns / 4);
  });

  it('an event that has left the view never reappears, whatever arrives later (I6)', () => {
    fc.assert(
      fc.property(arrivals, ({ first, second }) => {
        const store = new MemoryStore();
        const seen = new Set<string>();
        const gone = new Set<string>();
        for (const batch of [...first, ...second]) {
          store.run(batch);
          const view = store.view();
          for (const name of seen) if (!view.has(name)) gone.add(name);
          for (const name of view.keys()) {
            if (gone.has(name)) expect.fail(`${name} came back`);
            seen.add(name);
          }
        }
      }),
      RUNS,
    );
  });

  it('a batch gives the same replies and writes as the same events one by one', () => {
    fc.assert(
      fc.property(submissions, (list) => {
        const together = new MemoryStore();
        const decisions = together.run(list).decisions;
        const alone = new MemoryStore();
        const oneByOne = list.map((one) => alone.run([one]).decisions[0]);
        // An ephemeral event is known as a repeat only within its batch.
        const stored = (_: unknown, at: number) => list[at]!.event.kind !== 20_001;
        expect(decisions.filter(stored)).toEqual(oneByOne.filter(stored));
        expect(decisions).toHaveLength(list.length);
        expect(together.outbox).toEqual(alone.outbox);
        expect(together.rows).toEqual(alone.rows);
        expect(new Map(together.heads)).toEqual(new Map(alone.heads));
        expect(together.tombstones).toEqual(alone.tombstones);
        expect(together.vanished).toEqual(alone.vanished);
        expect(together.known).toEqual(alone.known);
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
          const writes = store.run(batch);
          expect(writes).toMatchObject({
            rows: [],
            hidden: [],
            heads: [],
            tombstones: [],
            vanishMarks: [],
            outbox: [],
            broadcasts: [],
            lastSeq,
          });
          for (const decision of writes.decisions)
            expect(['duplicate', 'older', 'deleted', 'vanished']).toContain(decision);
        }
        expect(store.rows).toEqual(rows);
      }),
      RUNS,
    );
  });

  it('an empty batch writes nothing', () => {
    expect(decideBatch([], { ...new MemoryStore().facts(), lastSeq: 7 }, 0)).toEqual({
      decisions: [],
      rows: [],
      held: [],
      counted: [],
      hidden: [],
      heads: [],
      tombstones: [],
      appliedTombstones: [],
      quotaUses: [],
      vanishMarks: [],
      reports: [],
      outbox: [],
      broadcasts: [],
      lastSeq: 7,
    });
  });

  it('the given facts are not changed', () => {
    fc.assert(
      fc.property(submissions, submissions, (before, batch) => {
        const facts = storeAfter([before]).facts();
        const copy = structuredClone(facts);
        decideBatch(batch, facts, 0);
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
          const effective = [...store.rows.values()].filter((row) => row.hidden === undefined);
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
        const writes = store.run(list);
        const taken = list.filter(
          ({ event }, at) =>
            event.kind === 20_001 && !['deleted', 'vanished'].includes(writes.decisions[at]!),
        );
        expect(writes.broadcasts.map(nameOf)).toEqual([...new Set(taken.map(nameOf))]);
        const written = [
          ...writes.rows.map((row) => row.submission.event),
          ...writes.outbox.map((row) => row.event),
        ];
        expect(written.filter((event) => event.kind === 20_001)).toEqual([]);
        expect(writes.heads.filter((head) => head.kind === 20_001)).toEqual([]);
      }),
      RUNS,
    );
  });

  it('exactly the superseded rows are history, out of the view, in the bucket that is dropped first', () => {
    fc.assert(
      fc.property(arrivals, ({ first }) => {
        for (const { keep, hidden } of storeAfter(first).rows.values())
          expect(keep === Keep.history).toBe(hidden === 'superseded');
      }),
      RUNS,
    );
  });

  it('a deleted row stays hidden where deletion is soft, and has no row at all where it is physical', () => {
    let soft = 0;
    let physical = 0;
    fc.assert(
      fc.property(arrivals, ({ first }) => {
        const store = storeAfter(first);
        const kept = new Map([...store.rows.values()].map((row) => [nameOf(row.submission), row.hidden]));
        for (const [name, hidden] of store.known) {
          if (hidden !== 'deleted') continue;
          const isPhysical = name.startsWith(`${PHYSICAL}/`);
          expect(kept.get(name), name).toBe(isPhysical ? undefined : 'deleted');
          if (isPhysical) physical += 1;
          else soft += 1;
        }
      }),
      RUNS,
    );
    expect(Math.min(soft, physical)).toBeGreaterThan(50);
  });

  it('a deletion also deletes the superseded versions, in any order of arrival', () => {
    let taken = 0;
    fc.assert(
      fc.property(arrivals, ({ list, first, second }) => {
        for (const store of [first, second, [list], list.map((one) => [one])].map(storeAfter)) {
          for (const { submission, hidden } of store.rows.values())
            expect(hidden === 'deleted', nameOf(submission)).toBe(isDeleted(submission, list));
          const announced = store.outbox.filter(({ reason }) => reason === 'superseded');
          taken += announced.filter((row) => store.known.get(nameOf(row)) === 'deleted').length;
        }
      }),
      { ...RUNS, numRuns: 1_000 },
    );
    expect(taken, 'the lists have history to delete').toBeGreaterThan(50);
  });

  it('a request to vanish has a row for the operator, and is never served, announced or a head', () => {
    fc.assert(
      fc.property(arrivals, ({ list, first }) => {
        const store = storeAfter(first);
        const requests = list.filter(({ event }) => event.kind === 62);
        const rows = [...store.rows.values()].filter(({ submission }) => submission.event.kind === 62);
        expect(rows.map(({ submission }) => nameOf(submission)).sort()).toEqual(
          [...new Set(requests.map(nameOf))].sort(),
        );
        for (const { keep, hidden } of rows) expect([keep, hidden]).toEqual([Keep.request, 'withheld']);
        expect(store.outbox.filter(({ event }) => event.kind === 62)).toEqual([]);
      }),
      RUNS,
    );
  });
});

describe('the outbox of batches (I8)', () => {
  it('has rising offsets without gaps but for withheld rows; each row has the offset of its upsert', () => {
    fc.assert(
      fc.property(arrivals, ({ first }) => {
        const store = storeAfter(first);
        const withheld = [...store.rows].filter(([, row]) => row.hidden === 'withheld').map(([seq]) => seq);
        const offsets = store.outbox.map((row) => row.seq);
        expect(offsets).toEqual([...offsets].sort((a, b) => a - b));
        expect([...offsets, ...withheld].sort((a, b) => a - b)).toEqual(
          Array.from({ length: store.lastSeq }, (_, at) => at + 1),
        );
        const upserts = store.outbox.filter((row) => row.op === 'upsert');
        const stored = [...store.rows].filter(([, row]) => row.hidden !== 'withheld');
        expect(upserts.map((row) => row.seq)).toEqual(expect.arrayContaining(stored.map(([seq]) => seq)));
        for (const { seq, event, community } of upserts) {
          // Only a purged event has no row.
          const row = store.rows.get(seq);
          if (row === undefined) expect(store.known.get(factKey(community, event.id))).toBe('deleted');
          else expect(row.submission).toMatchObject({ community, event: { id: event.id } });
        }
      }),
      RUNS,
    );
  });

  it('replayed from the start gives the view after every batch, except what a mark hides', () => {
    fc.assert(
      fc.property(arrivals, ({ first }) => {
        const store = new MemoryStore();
        const replayed = new Map<string, number>();
        for (const batch of first) {
          for (const { op, community, event, seq } of store.run(batch).outbox) {
            const name = factKey(community, event.id);
            if (op === 'upsert') {
              expect(replayed.has(name)).toBe(false);
              replayed.set(name, seq);
            } else expect(replayed.delete(name)).toBe(true);
          }
          const unmarked = [...replayed].filter(([, seq]) => {
            const { community, event } = store.rows.get(seq)!.submission;
            return !isVanished(event, store.vanished.get(factKey(community, CAROL)));
          });
          expect(unmarked.map(([name]) => name).sort()).toEqual([...store.view().keys()].sort());
        }
      }),
      RUNS,
    );
  });

  it('each row has one upsert, and at most one delete with its reason', () => {
    fc.assert(
      fc.property(arrivals, ({ list, first }) => {
        const store = storeAfter(first);
        const names = (op: string) => store.outbox.filter((row) => row.op === op).map(nameOf);
        expect(new Set(names('upsert')).size).toBe(names('upsert').length);
        expect(new Set(names('delete')).size).toBe(names('delete').length);
        const hidden = [...store.known].filter(([, why]) => why === 'superseded' || why === 'deleted');
        expect(names('delete').sort()).toEqual(hidden.map(([name]) => name).sort());
        for (const row of store.outbox) {
          const why = store.known.get(nameOf(row));
          // A version deleted after it was superseded is not announced a second time.
          const reasons = why === 'deleted' ? ['nip09', 'superseded'] : ['superseded'];
          expect(row.op === 'delete' ? reasons : [undefined]).toContain(row.reason);
          if (row.reason === 'nip09') {
            const one = list.find((sent) => nameOf(sent) === nameOf(row))!;
            expect(isDeleted(one, list), 'only what an owner named').toBe(true);
          }
        }
      }),
      RUNS,
    );
  });

  it('the delete of a superseded version is directly before its successor, if that is served', () => {
    fc.assert(
      fc.property(arrivals, ({ list, first }) => {
        const { outbox } = storeAfter(first);
        const isSuccessor = (old: OutboxRow, { community, event }: OutboxRow | Submission) =>
          community === old.community &&
          (event.created_at > old.event.created_at ||
            (event.created_at === old.event.created_at && event.id < old.event.id));
        outbox.forEach((row, at) => {
          if (row.reason !== 'superseded') return;
          const next = outbox[at + 1];
          if (next?.op === 'upsert' && next.effectiveKey === row.effectiveKey && isSuccessor(row, next))
            return;
          // The newer version had been deleted before it arrived: it is never announced, and still nothing
          // older is served.
          const key = modelKey(list.find((sent) => nameOf(sent) === nameOf(row))!);
          const unseen = list.filter((one) => modelKey(one) === key && isDeleted(one, list));
          expect(unseen.some((one) => isSuccessor(row, one))).toBe(true);
        });
      }),
      RUNS,
    );
  });

  it('the deletes of a request follow it directly', () => {
    fc.assert(
      fc.property(arrivals, ({ list, first }) => {
        const { outbox } = storeAfter(first);
        outbox.forEach((row, at) => {
          if (row.reason !== 'nip09') return;
          let before = at - 1;
          while (outbox[before]?.reason === 'nip09') before -= 1;
          const cause = outbox[before];
          const target = list.find((sent) => nameOf(sent) === nameOf(row))!;
          // The request of a vanished author is not announced, so nothing precedes the deletes.
          const isUnseen = ({ community, event }: Submission) =>
            community === row.community && isVanished(event, vanishedUntil(list, community));
          if (isDeleted(target, list.filter(isUnseen))) return;
          if (cause === undefined) throw new Error('nothing was announced before it');
          expect([cause.op, cause.event.kind, cause.community]).toEqual(['upsert', 5, row.community]);
          const request = list.find((sent) => nameOf(sent) === nameOf(cause))!;
          expect(isDeleted(target, [request])).toBe(true);
        });
      }),
      RUNS,
    );
  });

  it('names key, topics, author and time of each event, also in a delete', () => {
    fc.assert(
      fc.property(arrivals, ({ list, first }) => {
        const sent = new Map(list.map((one) => [nameOf(one), one.event]));
        for (const { community, event, topics, effectiveKey, ingestedAt } of storeAfter(first).outbox) {
          const whole = sent.get(factKey(community, event.id))!;
          const { pubkey, kind, created_at, tags } = whole;
          expect(event).toMatchObject({ pubkey, kind, created_at });
          const [own, ...bound] = topics;
          expect(own).toBe(tags[1]![1]);
          const request = { community, event: whole, payload: '' };
          const targets = kind === 5 ? list.filter((target) => isDeleted(target, [request])) : [];
          expect(targets.map((target) => target.event.tags[1]![1])).toEqual(expect.arrayContaining(bound));
          const d = kind >= 30_000 ? tags[0]![1] : '';

          expect(effectiveKey).toBe(hasKey(kind) ? `${kind}:${pubkey}:${d}` : undefined);
          expect(ingestedAt).toBe(1_000);
        }
      }),
      RUNS,
    );
  });
});
