import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { AnswerRows, type Bare, FilterRows, mergeRows, PAGE_ROWS, type Row } from './stored-rows.js';

const rowOf = (seq: number, createdAt: number): Bare => ({
  ...{ seq, createdAt, bytes: 100, expiresAt: Number.POSITIVE_INFINITY },
  id: ((seq * 2_654_435_761) % 4_294_967_296).toString(16).padStart(64, '0'),
});

/** A store of rows that answers as a read of stored events does, and notes what it was asked for. */
function storeOf(rows: readonly Bare[]) {
  const asked: number[] = [];
  const read = {
    pageRows: PAGE_ROWS,
    find: async ({ until = Number.POSITIVE_INFINITY }, limit: number, memoryRows = limit) => {
      asked.push(Math.min(limit, memoryRows));
      const found = mergeRows(rows).filter(({ createdAt }) => createdAt <= until);
      return found.slice(0, Math.min(limit, memoryRows));
    },
  };
  return { read, asked };
}

async function all(answer: AnswerRows): Promise<Row[]> {
  const rows: Row[] = [];
  for (await answer.fill(); !answer.isEmpty; await answer.fill()) rows.push(...answer.take(150, 20_000));
  return rows;
}

describe('the rows of an answer', () => {
  it('of several filters are one list, newest first, each once, whatever their seconds', async () => {
    const lists = fc.array(
      fc.record({
        seqs: fc.uniqueArray(fc.nat(3_000), { maxLength: 1_800 }),
        limit: fc.integer({ min: 1, max: 2_000 }),
      }),
      { maxLength: 3 },
    );
    await fc.assert(
      fc.asyncProperty(lists, fc.integer({ min: 1, max: 2_000 }), async (filters, perSecond) => {
        const stored = filters.map(({ seqs }) => seqs.map((seq) => rowOf(seq, Math.floor(seq / perSecond))));
        const sources = filters.map(({ limit }, at) => {
          const { read } = storeOf(stored[at]!);
          return new FilterRows(read, { tags: [] }, limit, 1_000_000);
        });
        const expected = mergeRows(
          filters.flatMap(({ limit }, at) => mergeRows(stored[at]!).slice(0, limit)),
        );
        expect((await all(new AnswerRows(sources))).map(({ seq }) => seq)).toEqual(
          expected.map(({ seq }) => seq),
        );
      }),
      { seed: 7447, numRuns: 40 },
    );
  });

  it('are looked up page by page: the next page when the last one is taken', async () => {
    const { read, asked } = storeOf(Array.from({ length: 5_000 }, (_, seq) => rowOf(seq, seq)));
    const answer = new AnswerRows([new FilterRows(read, { tags: [] }, 5_000, 1_000_000)]);
    await answer.fill();
    expect(answer.take(100, 1e9)).toHaveLength(100);
    await answer.fill();
    expect(asked).toEqual([PAGE_ROWS]);
    expect(await all(answer)).toHaveLength(4_900);
    expect(Math.max(...asked)).toBe(PAGE_ROWS + 1);
  });

  it('that were added or deleted between two pages neither repeat nor end the answer', async () => {
    const rows = Array.from({ length: 1_400 }, (_, seq) => rowOf(seq, 7));
    const { read } = storeOf(rows);
    const answer = new AnswerRows([new FilterRows(read, { tags: [] }, 3_000, 1_000_000)]);
    await answer.fill();
    const first = answer.take(PAGE_ROWS, 1e9);
    const { seq: deleted } = mergeRows(rows).at(-1)!;
    rows.splice(
      rows.findIndex(({ seq }) => seq === deleted),
      1,
    );
    // Those that come before what was sent are live for the subscription.
    for (let seq = 2_000; seq < 3_000; seq += 1) rows.push({ ...rowOf(seq, 7), id: String(seq) });
    const sent = [...first, ...(await all(answer))].map(({ seq }) => seq);
    expect(new Set(sent).size).toBe(sent.length);
    expect(sent.filter((seq) => seq < 2_000)).toHaveLength(1_399);
  });
});
