/**
 * Reading what is stored: closed loops, each on its own connection, send REQ, wait for EOSE, CLOSE, and ask again.
 * Every answer's rows are counted against what the corpus must give; a sample of the answers is kept and, after the clock has
 * stopped, read in full and compared with the corpus.
 */
import { checkAnswer, type Filter, type KeptAnswer, type Query } from '../answers.js';
import { type Connection, frameType, subscriptionOf, untilSettled, withConnections } from '../client.js';
import { isReplaceable, seededRandom } from '../generate.js';
import { type Bench, type Findings, latency, type Row, ratioTo, type Sample } from '../measure.js';

const QUERY_POOL = 200;
const IDS_PER_QUERY = 20;
export const WARM_UP_SECONDS = 0.5;
/** Each loop keeps its first answer and then one in so many, up to a few. */
const KEEP_EVERY = 50;
const KEPT_PER_LOOP_MAX = 4;
/** Subscription ids rotate, so that a late CLOSE cannot end the next query. */
const SUBSCRIPTION_IDS = 8;

export const author = queryRow('author', 'REQ author, newest 50', (bench) =>
  poolOf(keysWith(bench, bench.corpus.byAuthor, 50), (pubkey) => ({ authors: [pubkey], limit: 50 }), bench),
);

export const topic = queryRow('topic', 'REQ #t, newest 100', (bench) =>
  poolOf(keysWith(bench, bench.corpus.byTopic, 100), (name) => ({ '#t': [name], limit: 100 }), bench),
);

export const ids = queryRow('ids', 'REQ 20 ids', (bench) => {
  const random = seededRandom(bench.seed, -1);
  const regular = range(bench.stored).filter((index) => !isReplaceable(bench.corpus.kinds[index]!));
  return Array.from({ length: QUERY_POOL }, () => {
    const picked = new Set<number>();
    while (picked.size < Math.min(IDS_PER_QUERY, regular.length)) picked.add(pick(regular, random));
    const wanted = [...picked].map((index) => bench.corpus.ids[index]!);
    return toQuery({ ids: wanted, limit: IDS_PER_QUERY }, [...picked]);
  });
});

export const newest = queryRow('newest', 'REQ newest 500 of kind 1', (bench) => {
  const filter = { kinds: [1], limit: 500 };
  return [toQuery(filter, matchingOf(bench, filter, range(bench.stored)))];
});

function queryRow(id: string, title: string, makePool: (bench: Bench) => Query[]): Row {
  const pools = new WeakMap<Bench, Query[]>();
  return {
    id,
    title,
    headline: 'perSecond',
    unit: 'queries/s',
    needsStored: true,
    ratio: (summary, yardsticks) =>
      ratioTo('× frames/s', summary.rowsPerSecond?.median, yardsticks.framesPerSecond),
    async measure(bench, findings, repeat) {
      const queries = pools.get(bench) ?? makePool(bench);
      pools.set(bench, queries);
      return withConnections(bench.url, bench.sizes.queryLoops, async (connections) => {
        const pickNext = (turn: number): Query => queries[turn % queries.length]!;
        if (repeat === 0) await askForSeconds(connections, pickNext, WARM_UP_SECONDS, findings);
        const run = await askForSeconds(connections, pickNext, bench.sizes.querySeconds, findings);
        for (const kept of run.kept) checkAnswer(kept, bench, findings);
        return run.sample;
      });
    },
  };
}

export async function askForSeconds(
  connections: readonly Connection[],
  pickNext: (turn: number) => Query,
  seconds: number,
  findings: Findings,
): Promise<{ sample: Sample; kept: KeptAnswer[] }> {
  const startMs = performance.now();
  const loops = connections.map(
    (connection, index) => new QueryLoop(connection, pickNext, index, startMs + seconds * 1000, findings),
  );
  await untilSettled(
    (progress, reject) => Promise.all(loops.map((loop) => loop.run(progress, reject))),
    'waiting for EOSE',
  );
  const elapsed = (performance.now() - startMs) / 1000;
  const latenciesMs = loops.flatMap((loop) => loop.latenciesMs);
  const rows = loops.reduce((sum, loop) => sum + loop.rows, 0);
  return {
    sample: {
      perSecond: latenciesMs.length / elapsed,
      rowsPerSecond: rows / elapsed,
      ...latency(latenciesMs),
    },
    kept: loops.flatMap((loop) => loop.kept),
  };
}

/** One closed loop: ask, count the rows until EOSE, ask the next query. */
class QueryLoop {
  readonly latenciesMs: number[] = [];
  readonly kept: KeptAnswer[] = [];
  rows = 0;
  readonly #connection: Connection;
  readonly #pickNext: (turn: number) => Query;
  readonly #endMs: number;
  readonly #findings: Findings;
  #query: Query;
  #turn: number;
  #asked = 0;
  #askedMs = 0;
  #answerRows = 0;
  #keeping: KeptAnswer | undefined;

  constructor(
    connection: Connection,
    pickNext: (turn: number) => Query,
    loop: number,
    endMs: number,
    findings: Findings,
  ) {
    this.#connection = connection;
    this.#pickNext = pickNext;
    this.#endMs = endMs;
    this.#findings = findings;
    this.#turn = loop * 7;
    this.#query = pickNext(this.#turn);
  }

  run(progress: () => void, reject: (why: Error) => void): Promise<void> {
    return new Promise((resolve) => {
      this.#connection.onLost = reject;
      this.#connection.onFrame = (frame) => {
        const type = frameType(frame);
        if (type === 'EVENT') return this.#count(frame);
        if (type === 'CLOSED' || type === 'NOTICE') return reject(new Error(`the relay refused: ${frame}`));
        if (type !== 'EOSE') return;
        progress();
        this.#finish(frame);
        if (performance.now() >= this.#endMs) return resolve();
        this.#ask();
      };
      this.#ask();
    });
  }

  get #subscription(): string {
    return `q${this.#asked % SUBSCRIPTION_IDS}`;
  }

  #ask(): void {
    this.#answerRows = 0;
    const keep = this.#asked % KEEP_EVERY === 0 && this.kept.length < KEPT_PER_LOOP_MAX;
    this.#keeping = keep ? { query: this.#query, rows: [] } : undefined;
    this.#askedMs = performance.now();
    this.#connection.send(`["REQ","${this.#subscription}",${this.#query.json}]`);
  }

  #count(frame: Buffer): void {
    this.#answerRows++;
    this.#keeping?.rows.push(frame);
  }

  #finish(eose: Buffer): void {
    this.latenciesMs.push(performance.now() - this.#askedMs);
    this.#connection.send(`["CLOSE","${this.#subscription}"]`);
    this.rows += this.#answerRows;
    if (subscriptionOf(eose) !== this.#subscription) this.#findings.fail(`an EOSE that was not due: ${eose}`);
    const { rowsMin, filter, json } = this.#query;
    if (this.#answerRows < rowsMin || this.#answerRows > filter.limit) {
      this.#findings.fail(
        `${this.#answerRows} rows, expected ${rowsMin} to ${filter.limit}: ${json.slice(0, 100)}`,
      );
    }
    if (this.#keeping !== undefined) this.kept.push(this.#keeping);
    this.#asked++;
    this.#query = this.#pickNext(++this.#turn);
  }
}

/** Authors or topics with at least so many stored events, so that each answer is full; in a small run the busiest one. */
function keysWith(
  bench: Bench,
  index: ReadonlyMap<string, readonly number[]>,
  least: number,
): [string, number[]][] {
  const stored = [...index].map(([key, list]): [string, number[]] => [
    key,
    list.filter((event) => event < bench.stored && !isReplaceable(bench.corpus.kinds[event]!)),
  ]);
  stored.sort((a, b) => b[1].length - a[1].length);
  const busy = stored.filter(([, list]) => list.length >= least);
  return busy.length > 0 ? busy : stored.slice(0, 1);
}

function poolOf(
  keys: readonly [string, number[]][],
  toFilter: (key: string) => Filter,
  bench: Bench,
): Query[] {
  const random = seededRandom(bench.seed, -2);
  return Array.from({ length: QUERY_POOL }, () => {
    const [key, matching] = pick(keys, random);
    return toQuery(toFilter(key), matching);
  });
}

export function toQuery(filter: Filter, matching: readonly number[]): Query {
  return { filter, json: JSON.stringify(filter), matching, rowsMin: Math.min(filter.limit, matching.length) };
}

function matchingOf(bench: Bench, filter: Filter, indexes: readonly number[]): number[] {
  return indexes.filter((index) => filter.kinds?.includes(bench.corpus.kinds[index]!) ?? true);
}

function range(length: number): number[] {
  return Array.from({ length }, (_, index) => index);
}

function pick<T>(list: readonly T[], random: () => number): T {
  return list[Math.floor(random() * list.length)]!;
}
