/**
 * Reading stored events: closed loops, each on its own connection, send REQ, wait for EOSE, send CLOSE, and
 * repeat. The number of rows of every answer is checked against the corpus. A sample of the answers is kept,
 * and after the clock has stopped it is read in full and compared with the corpus.
 */
import { checkAnswer, type Filter, type KeptAnswer, type Query } from '../answers.js';
import { type Connection, frameType, subscriptionOf, untilSettled, withConnections } from '../client.js';
import { isReplaceable, type Random, seededRandom } from '../generate.js';
import { type Bench, type Findings, latency, type Row, ratioTo, type Sample } from '../measure.js';

const REPEATED_QUERIES = 200;
const IDS_PER_QUERY = 20;
export const WARM_UP_SECONDS = 0.5;
/** Each loop keeps its first answer and then one in this many, up to a maximum. */
const KEEP_EVERY = 50;
const KEPT_PER_LOOP_MAX = 4;
/** Subscription ids rotate, so that a late CLOSE cannot end the next query. */
const SUBSCRIPTION_IDS = 8;

/** Returns the next query of one row on one relay, over all loops and repeats. */
type Draw = () => Query;

export const author = queryRow('author', 'REQ author, newest 50, at random', (bench) =>
  inShuffledRounds(authorQueries(bench), seededRandom(bench.seed, -5)),
);

export const topic = queryRow('topic', 'REQ #t, newest 100, at random', (bench) =>
  inShuffledRounds(topicQueries(bench), seededRandom(bench.seed, -6)),
);

/** It is very unlikely that a set of 20 ids repeats. */
export const ids = queryRow('ids', 'REQ 20 ids, at random', (bench) => {
  const random = seededRandom(bench.seed, -1);
  const known = regularEvents(bench);
  return () => idsQuery(bench, known, random);
});

/** The first query of many clients. It has no random part. */
export const newest = queryRow('newest', 'REQ newest 500 of kind 1', (bench) => {
  const filter = { kinds: [1], limit: 500 };
  const query = toQuery(filter, matchingOf(bench, filter, range(bench.stored)));
  return () => query;
});

export const authorRepeated = repeatedRow('author-repeated', 'REQ author, newest 50', (bench, random) =>
  shuffled(authorQueries(bench), random).slice(0, REPEATED_QUERIES),
);

export const topicRepeated = repeatedRow('topic-repeated', 'REQ #t, newest 100', (bench, random) =>
  shuffled(topicQueries(bench), random).slice(0, REPEATED_QUERIES),
);

export const idsRepeated = repeatedRow('ids-repeated', 'REQ 20 ids', (bench, random) => {
  const known = regularEvents(bench);
  return Array.from({ length: REPEATED_QUERIES }, () => idsQuery(bench, known, random));
});

/** Repeats the same 200 queries, so that a relay's cache can answer them. */
function repeatedRow(id: string, title: string, makeQueries: (bench: Bench, random: Random) => Query[]): Row {
  const row = queryRow(id, `${title}, 200 filters again and again`, (bench) => {
    const queries = makeQueries(bench, seededRandom(bench.seed, -2));
    let index = 0;
    return () => queries[index++ % queries.length]!;
  });
  const { main: _, ...rest } = row;
  return rest;
}

function queryRow(id: string, title: string, makeDraw: (bench: Bench) => Draw): Row {
  const draws = new WeakMap<Bench, Draw>();
  return {
    id,
    title,
    headline: 'perSecond',
    unit: 'queries/s',
    main: true,
    needsStored: true,
    seconds: ({ querySeconds }) => querySeconds + 1,
    ratio: (summary, yardsticks) =>
      ratioTo('× frames/s', summary.rowsPerSecond?.median, yardsticks.framesPerSecond),
    async measure(bench, findings, repeat) {
      const draw = draws.get(bench) ?? makeDraw(bench);
      draws.set(bench, draw);
      return withConnections(bench.url, bench.sizes.queryLoops, async (connections) => {
        if (repeat === 0) await askForSeconds(connections, draw, WARM_UP_SECONDS, findings);
        const run = await askForSeconds(connections, draw, bench.sizes.querySeconds, findings);
        for (const kept of run.kept) checkAnswer(kept, bench, findings);
        return run.sample;
      });
    },
  };
}

export async function askForSeconds(
  connections: readonly Connection[],
  pickNext: (index: number) => Query,
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

/** One closed loop: send a query, count the rows until EOSE, send the next. */
class QueryLoop {
  readonly latenciesMs: number[] = [];
  readonly kept: KeptAnswer[] = [];
  rows = 0;
  readonly #connection: Connection;
  readonly #pickNext: (index: number) => Query;
  readonly #endMs: number;
  readonly #findings: Findings;
  #query: Query;
  #index: number;
  #sent = 0;
  #sentMs = 0;
  #answerRows = 0;
  #keeping: KeptAnswer | undefined;

  constructor(
    connection: Connection,
    pickNext: (index: number) => Query,
    loop: number,
    endMs: number,
    findings: Findings,
  ) {
    this.#connection = connection;
    this.#pickNext = pickNext;
    this.#endMs = endMs;
    this.#findings = findings;
    this.#index = loop * 7;
    this.#query = pickNext(this.#index);
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
    return `q${this.#sent % SUBSCRIPTION_IDS}`;
  }

  #ask(): void {
    this.#answerRows = 0;
    const keep = this.#sent % KEEP_EVERY === 0 && this.kept.length < KEPT_PER_LOOP_MAX;
    this.#keeping = keep ? { query: this.#query, rows: [] } : undefined;
    this.#sentMs = performance.now();
    this.#connection.send(`["REQ","${this.#subscription}",${this.#query.json}]`);
  }

  #count(frame: Buffer): void {
    this.#answerRows++;
    this.#keeping?.rows.push(frame);
  }

  #finish(eose: Buffer): void {
    this.latenciesMs.push(performance.now() - this.#sentMs);
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
    this.#sent++;
    this.#query = this.#pickNext(++this.#index);
  }
}

function authorQueries(bench: Bench): Query[] {
  return queriesOf(bench, bench.corpus.byAuthor, (pubkey) => ({ authors: [pubkey], limit: 50 }));
}

function topicQueries(bench: Bench): Query[] {
  return queriesOf(bench, bench.corpus.byTopic, (name) => ({ '#t': [name], limit: 100 }));
}

/**
 * One query for each author or topic of the corpus. In a small run some have fewer stored events than the
 * limit.
 */
function queriesOf(
  bench: Bench,
  index: ReadonlyMap<string, readonly number[]>,
  toFilter: (key: string) => Filter,
): Query[] {
  return [...index].map(([key, list]) => {
    const matching = list.filter(
      (event) => event < bench.stored && !isReplaceable(bench.corpus.kinds[event]!),
    );
    return toQuery(toFilter(key), matching);
  });
}

/** Another random order in each round: no query repeats before every other one was sent. */
export function inShuffledRounds<T>(all: readonly T[], random: Random): () => T {
  let left: T[] = [];
  return () => {
    if (left.length === 0) left = shuffled(all, random);
    return left.pop()!;
  };
}

function shuffled<T>(all: readonly T[], random: Random): T[] {
  const list = [...all];
  for (let last = list.length - 1; last > 0; last--) {
    const other = Math.floor(random() * (last + 1));
    [list[last], list[other]] = [list[other]!, list[last]!];
  }
  return list;
}

function regularEvents(bench: Bench): number[] {
  return range(bench.stored).filter((index) => !isReplaceable(bench.corpus.kinds[index]!));
}

function idsQuery(bench: Bench, known: readonly number[], random: Random): Query {
  const picked = new Set<number>();
  while (picked.size < Math.min(IDS_PER_QUERY, known.length)) picked.add(pick(known, random));
  const wanted = [...picked].map((index) => bench.corpus.ids[index]!);
  return toQuery({ ids: wanted, limit: IDS_PER_QUERY }, [...picked]);
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
