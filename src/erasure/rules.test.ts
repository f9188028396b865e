import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BESIDE_LANE, type Ledger, nextRows, settle } from './rules.js';

const EMPTY: Ledger = { counted: {}, added: {}, deleted: {}, otherwise: {} };
const settled = (ledger: Ledger, rows: number): Ledger => ({
  ...ledger,
  ...settle(ledger, [['s', rows]]),
});
const deleting = (ledger: Ledger, rows: number): Ledger => ({
  ...ledger,
  deleted: { s: (ledger.deleted.s ?? 0) + rows },
});
const sums = ({ counted, added, deleted, otherwise }: Ledger) => ({
  before: counted.s! + (added.s ?? 0),
  gone: (deleted.s ?? 0) + (otherwise.s ?? 0),
});

describe('the rows of a store', () => {
  it('that a consumer has taken meanwhile are gone otherwise', () => {
    const ledger = settled(deleting(settled(EMPTY, 23), 1), 0);
    expect(ledger).toEqual({ counted: { s: 23 }, added: {}, deleted: { s: 1 }, otherwise: { s: 22 } });
  });

  it('that came after the count are added', () => {
    const ledger = settled(deleting(settled(EMPTY, 8), 18), 0);
    expect(ledger).toEqual({ counted: { s: 8 }, added: { s: 10 }, deleted: { s: 18 }, otherwise: {} });
  });

  it('are counted first whenever the store answers first', () => {
    expect(settle(EMPTY, [['s', 3]])).toEqual({ counted: { s: 3 }, added: {}, otherwise: {} });
    expect(settle(EMPTY, [])).toEqual({ counted: {}, added: {}, otherwise: {} });
  });

  it('add up after every count, whatever came, went and was deleted between them', () => {
    const rows = fc.nat(50);
    const step = fc.record({ came: rows, went: rows, deleted: rows });
    fc.assert(
      fc.property(rows, fc.array(step, { maxLength: 8 }), (first, steps) => {
        let there = first;
        let ledger = settled(EMPTY, there);
        for (const { came, went, deleted } of steps) {
          there += came;
          there -= Math.min(there, went);
          const taken = Math.min(there, deleted);
          there -= taken;
          ledger = settled(deleting(ledger, taken), there);
          const { before, gone } = sums(ledger);
          expect(before).toBe(gone + there);
          expect(ledger.counted.s).toBe(first);
        }
        // A count that finds what the ledger says changes nothing.
        expect(settled(ledger, there)).toEqual(ledger);
      }),
    );
  });
});

describe('the size of batches', () => {
  it('grows while they are short, shrinks when they are long, and is never below the first', () => {
    expect(nextRows(500, 10, 500)).toBe(1_000);
    expect(nextRows(4_000, 80, 500)).toBe(2_500);
    expect(nextRows(4_000, 5_000, 500)).toBe(2_000);
    expect(nextRows(500, 5_000, 500)).toBe(500);
    expect(nextRows(1, 0, 1)).toBe(2);
  });

  it('has a bound, however fast they are', () => {
    expect(nextRows(10_000, 1, 500)).toBe(10_000);
    expect(nextRows(50_000, 1, 500, BESIDE_LANE)).toBe(50_000);
  });

  it('is larger where no client waits for a batch', () => {
    expect(nextRows(500, 10, 500, BESIDE_LANE)).toBe(5_000);
    expect(nextRows(5_000, 250, 500, BESIDE_LANE)).toBe(10_000);
    expect(nextRows(5_000, 5_000, 500, BESIDE_LANE)).toBe(500);
  });
});
