/**
 * The well-behaved clients, each from its own address. Each sends an event ten times a second and a small
 * query between two events. They send by the clock and do not wait for the last answer, so a pause of the
 * node delays every message sent in it.
 */
import { randomBytes } from 'node:crypto';
import { Connection, frameType, readOk, subscriptionOf } from '../client.js';
import { latency } from '../measure.js';
import type { Sign } from '../sign.js';
import { StolenTime } from './stolen-time.js';

const PERIOD_MS = 100;
/**
 * How long to wait for the last answers while the flood continues. A missing answer counts with this time.
 */
const LAST_ANSWERS_MS_MAX = 10_000;
const ANSWERS_POLL_MS = 20;

/** Percentiles of one kind of message, in milliseconds. */
export interface Latency {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly samples: number;
}

export interface Visit {
  readonly ok: Latency;
  readonly eose: Latency;
  /** Never answered. */
  readonly lost: number;
  /** Answered with a refusal, and the first reason. */
  readonly refused: number;
  readonly reason?: string | undefined;
  /** The part of all samples that is left out, because the host took the cores away. */
  readonly leftOut: number;
}

interface Sample {
  readonly sentMs: number;
  readonly tookMs: number;
  readonly isLost: boolean;
}

/** What was asked. */
export type Question = 'ok' | 'eose';

/** What the visitors saw in one phase of a round. */
export class Tally {
  readonly stolen = new StolenTime();
  readonly ok: Sample[] = [];
  readonly eose: Sample[] = [];
  readonly refusals: string[] = [];
}

/** The samples that count: not those that met stolen time. A lost message always counts. */
export function countedSamples(tally: Tally, question: Question): Sample[] {
  return tally[question].filter(({ sentMs, isLost }) => isLost || !tally.stolen.meets(sentMs));
}

/** Latencies, losses and refusals of the visitors in a phase, over several rounds. */
export function summarize(tallies: readonly Tally[]): Visit {
  const latencyOf = (samples: readonly Sample[]): Latency => {
    const { p50Ms, p99Ms } = latency(samples.map(({ tookMs }) => tookMs));
    return { p50Ms, p99Ms, samples: samples.length };
  };
  const [ok, eose] = (['ok', 'eose'] as const).map((question) =>
    tallies.flatMap((tally) => countedSamples(tally, question)),
  ) as [Sample[], Sample[]];
  const all = tallies.reduce((sum, tally) => sum + tally.ok.length + tally.eose.length, 0);
  const refusals = tallies.flatMap((tally) => tally.refusals);
  return {
    ok: latencyOf(ok),
    eose: latencyOf(eose),
    lost: [...ok, ...eose].filter(({ isLost }) => isLost).length,
    refused: refusals.length,
    reason: refusals[0],
    leftOut: 1 - (ok.length + eose.length) / all,
  };
}

class Visitor {
  readonly #secretKey = randomBytes(32);
  #connection: Connection | undefined;
  #opening = false;
  #count = 0;
  /** When each was sent, by event id and by subscription id. */
  readonly #events = new Map<string, number>();
  readonly #queries = new Map<string, number>();

  constructor(
    private readonly url: string,
    private readonly address: string,
    private readonly authors: readonly string[],
    private readonly sign: Sign,
    private readonly tally: Tally,
  ) {}

  async open(): Promise<void> {
    if (this.#opening) return;
    this.#opening = true;
    try {
      const connection = await Connection.open(this.url, { 'X-Forwarded-For': this.address });
      connection.onFrame = (frame) => this.#receive(frame);
      connection.onLost = () => {
        this.#connection = undefined;
        this.giveUp();
      };
      this.#connection = connection;
    } finally {
      this.#opening = false;
    }
  }

  close(): void {
    this.#connection?.close();
  }

  get awaited(): number {
    return this.#events.size + this.#queries.size;
  }

  publish(): void {
    const created_at = Math.floor(Date.now() / 1_000);
    const tags = [['t', 'visitors']];
    const content = `A note in the harbour, ${this.#count++}, ${randomBytes(4).toString('hex')}`;
    const event = this.sign({ created_at, kind: 1, tags, content }, this.#secretKey);
    this.#send(this.#events, event.id, `["EVENT",${JSON.stringify(event)}]`);
  }

  query(): void {
    const subscription = `visitor-${this.#count}`;
    const author = this.authors[Math.floor(Math.random() * this.authors.length)];
    this.#send(
      this.#queries,
      subscription,
      JSON.stringify(['REQ', subscription, { authors: [author], limit: 20 }]),
    );
  }

  /** Unanswered messages are lost, and count with the time until now. */
  giveUp(): void {
    const nowMs = performance.now();
    const lost = (sentMs: number): Sample => ({ sentMs, tookMs: nowMs - sentMs, isLost: true });
    this.tally.ok.push(...[...this.#events.values()].map(lost));
    this.tally.eose.push(...[...this.#queries.values()].map(lost));
    this.#events.clear();
    this.#queries.clear();
  }

  #send(awaited: Map<string, number>, id: string, frame: string): void {
    if (this.#connection === undefined) {
      const samples = awaited === this.#events ? this.tally.ok : this.tally.eose;
      samples.push({ sentMs: performance.now(), tookMs: LAST_ANSWERS_MS_MAX, isLost: true });
      void this.open().catch(() => undefined);
      return;
    }
    awaited.set(id, performance.now());
    this.#connection.send(frame);
  }

  #receive(frame: Buffer): void {
    const type = frameType(frame);
    if (type === 'OK') {
      const ok = readOk(frame);
      settle(this.#events, ok.id, this.tally.ok);
      if (!ok.accepted) this.tally.refusals.push(ok.message);
    } else if (type === 'EOSE' || type === 'CLOSED') {
      const subscription = subscriptionOf(frame);
      settle(this.#queries, subscription, this.tally.eose);
      if (type === 'CLOSED') this.tally.refusals.push(frame.toString());
      else this.#connection?.send(JSON.stringify(['CLOSE', subscription]));
    }
  }
}

function settle(awaited: Map<string, number>, id: string, samples: Sample[]): void {
  const sentMs = awaited.get(id);
  if (sentMs === undefined) return;
  awaited.delete(id);
  samples.push({ sentMs, tookMs: performance.now() - sentMs, isLost: false });
}

export interface VisitPlan {
  readonly url: string;
  readonly addresses: readonly string[];
  /** Authors that the node has events of. */
  readonly authors: readonly string[];
  readonly seconds: number;
  readonly sign: Sign;
  readonly tally: Tally;
  /** Starts the flood, once the visitors are connected. */
  beside(): Promise<void>;
}

/** Runs all visitors, evenly spread over the period, then waits for the last answers. */
export async function visit(plan: VisitPlan): Promise<void> {
  const { url, addresses, authors, seconds, sign, tally } = plan;
  const visitors = addresses.map((address) => new Visitor(url, address, authors, sign, tally));
  await Promise.all(visitors.map((visitor) => visitor.open()));
  try {
    await plan.beside();
    tally.stolen.begin();
    await byTheClock(visitors, seconds);
    const deadlineMs = performance.now() + LAST_ANSWERS_MS_MAX;
    while (visitors.some(({ awaited }) => awaited > 0) && performance.now() < deadlineMs) {
      await new Promise((resolve) => setTimeout(resolve, ANSWERS_POLL_MS));
    }
    for (const visitor of visitors) visitor.giveUp();
  } finally {
    tally.stolen.end();
    for (const visitor of visitors) visitor.close();
  }
}

/** In each period every visitor publishes in one step and queries half a period later. */
function byTheClock(visitors: readonly Visitor[], seconds: number): Promise<void> {
  const steps = visitors.length * 2;
  const startMs = performance.now();
  let done = 0;
  return new Promise((resolve) => {
    const timer = setInterval(() => {
      const elapsedMs = performance.now() - startMs;
      const due = Math.floor((elapsedMs / PERIOD_MS) * steps);
      for (; done < due; done++) {
        const step = done % steps;
        const visitor = visitors[Math.floor(step / 2)]!;
        if (step % 2 === 0) visitor.publish();
        else visitors[(Math.floor(step / 2) + (visitors.length >> 1)) % visitors.length]!.query();
      }
      if (elapsedMs < seconds * 1_000) return;
      clearInterval(timer);
      resolve();
    }, STEP_MS);
  });
}
const STEP_MS = 2;
