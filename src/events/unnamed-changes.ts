/**
 * Positions of the changes without a row: each is a mark, or a row that is no longer kept. Whoever follows
 * the changes gets one change for each run of them.
 */
import type { NamedChange, PendingMark, Position, ViewChange } from './store.js';

export function positionsWithoutRow(
  rows: readonly NamedChange[],
  after: Position,
  limit: number,
  head: Position,
): Position[] {
  const last = rows.at(-1)?.seq ?? after;
  const end = rows.length < limit ? Math.max(head, last) : last;
  if (rows.length === end - after) return [];
  const known = new Set(rows.map(({ seq }) => seq));
  return Array.from({ length: end - after }, (_, place) => after + 1 + place).filter(
    (seq) => !known.has(seq),
  );
}

/** Positions without a row that follow one another are one change. */
export function withUnnamed(
  rows: readonly NamedChange[],
  without: readonly Position[],
  marks: readonly PendingMark[] | undefined,
): ViewChange[] {
  const known = new Set(without);
  const last = without.filter((seq) => !known.has(seq + 1));
  const unnamed = last.map((seq) => ({ op: 'unnamed', seq, marks }) as const);
  return [...rows, ...unnamed].sort((a, b) => a.seq - b.seq);
}
