/**
 * The rows that a query must return according to the corpus, and the full check of one answer. The check runs
 * outside the measured time.
 */
import type { Bench, Findings } from './measure.js';
import type { BenchEvent } from './sign.js';

export interface Filter {
  readonly ids?: readonly string[];
  readonly authors?: readonly string[];
  readonly kinds?: readonly number[];
  readonly '#t'?: readonly string[];
  readonly search?: string;
  readonly limit: number;
}

export interface Query {
  readonly filter: Filter;
  readonly json: string;
  /** Indexes of stored corpus events that match and that no newer version can have superseded. */
  readonly matching: readonly number[];
  readonly rowsMin: number;
}

export interface KeptAnswer {
  readonly query: Query;
  readonly rows: Buffer[];
}

/**
 * Reads one answer in full. Each row matches, is unaltered and comes once, newest first, and no row is
 * missing.
 */
export function checkAnswer({ query, rows }: KeptAnswer, bench: Bench, findings: Findings): void {
  const events = rows.map((row) => (JSON.parse(row.toString()) as [string, string, BenchEvent])[2]);
  const seen = new Set(events.map((event) => event.id));
  if (seen.size !== events.length) findings.fail(`a row came twice: ${query.json.slice(0, 100)}`);
  events.forEach((event, position) => {
    if (!matches(event, query.filter)) findings.fail(`a row that does not match: ${event.id}`);
    const before = events[position - 1];
    if (before !== undefined && before.created_at < event.created_at) {
      findings.fail(`not newest first at ${event.id}: ${query.json.slice(0, 100)}`);
    }
    checkUnaltered(event, bench, findings);
  });
  for (const index of missingRows(query, events, seen, bench)) {
    findings.fail(`a row is missing: ${bench.corpus.ids[index]} for ${query.json.slice(0, 100)}`);
  }
}

/** A relay at `--target` may hold events of others; the node that we booted may not. */
function checkUnaltered(event: BenchEvent, bench: Bench, findings: Findings): void {
  const index = bench.corpus.indexOf.get(event.id);
  if (index === undefined) {
    if (bench.node !== undefined) findings.fail(`an event that was never sent: ${event.id}`);
    return;
  }
  if (!sameEvent(event, bench.corpus.event(index))) findings.fail(`an altered event: ${event.id}`);
}

export function sameEvent(a: BenchEvent, b: BenchEvent): boolean {
  return (
    a.id === b.id &&
    a.pubkey === b.pubkey &&
    a.created_at === b.created_at &&
    a.kind === b.kind &&
    a.content === b.content &&
    a.sig === b.sig &&
    JSON.stringify(a.tags) === JSON.stringify(b.tags)
  );
}

/** An answer that reached its limit may omit rows as old as its last row or older; a shorter one may not. */
function missingRows(
  query: Query,
  events: readonly BenchEvent[],
  seen: ReadonlySet<string>,
  bench: Bench,
): number[] {
  const full = events.length >= query.filter.limit;
  const oldest = full ? (events.at(-1)?.created_at ?? 0) : -1;
  const { ids: known, createdAt } = bench.corpus;
  return query.matching.filter((index) => createdAt[index]! > oldest && !seen.has(known[index]!));
}

function matches(event: BenchEvent, filter: Filter): boolean {
  return (
    (filter.ids?.includes(event.id) ?? true) &&
    (filter.authors?.includes(event.pubkey) ?? true) &&
    (filter.kinds?.includes(event.kind) ?? true) &&
    (filter['#t']?.some((value) => event.tags.some((tag) => tag[0] === 't' && tag[1] === value)) ?? true)
  );
}
