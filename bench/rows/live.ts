/**
 * Live delivery: saturated to many subscriptions, and at a steady pace to one. Each delivery is counted for its subscription
 * and its event: exactly once, no more and no less.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { sameEvent } from '../answers.js';
import {
  type Connection,
  eventIdOf,
  frameType,
  publish,
  readOk,
  subscriptionOf,
  untilSettled,
  withConnections,
} from '../client.js';
import { eventFrame, type Outgoing } from '../corpus.js';
import { makeLiveEvents } from '../generate.js';
import { type Bench, type Findings, flushesIn, latency, type Row, ratioTo } from '../measure.js';
import type { BenchEvent } from '../sign.js';

/** So long after the last delivery that was due, a double would have come. */
const DOUBLES_WAIT_MS = 300;
const DELIVERY_STALL_MS = 30_000;
/** One delivery in so many is parsed and compared with what was published. */
const READ_EVERY = 100;

export const fanout: Row = {
  id: 'fanout',
  title: 'fan-out, saturated',
  headline: 'perSecond',
  unit: 'deliveries/s',
  ratio: (summary, yardsticks) =>
    ratioTo('× frames/s', summary.perSecond?.median, yardsticks.framesPerSecond),
  async measure(bench, findings, repeat) {
    const { fanoutConnections, fanoutSubscriptionsEach, fanoutEvents, fanoutInFlight } = bench.sizes;
    const live = prepare(bench, `bench-fanout-${Date.now()}-${repeat}`, fanoutEvents);
    return withConnections(bench.url, fanoutConnections + 1, async ([publisher, ...readers]) => {
      const subscriptions = readers.length * fanoutSubscriptionsEach;
      findings.note(`${subscriptions.toLocaleString('en')} subscriptions on ${readers.length} connections`);
      const tally = new Tally(live.events, subscriptions, findings);
      await subscribeAll(readers, fanoutSubscriptionsEach, live.topic);
      const startMs = performance.now();
      const delivered = tally.collect(readers, fanoutSubscriptionsEach);
      const published = await publish([publisher!], live.outgoing, fanoutInFlight);
      for (const refused of published.refused) findings.fail(`refused: ${refused}`);
      const endMs = await delivered;
      await sleep(DOUBLES_WAIT_MS);
      tally.check();
      return { perSecond: tally.due / ((endMs - startMs) / 1000) };
    });
  },
};

export const deliver: Row = {
  id: 'deliver',
  title: 'publish → deliver at 100 events/s',
  headline: 'p50Ms',
  unit: 'ms',
  ratio: (summary, yardsticks) => flushesIn(summary.p50Ms?.median, yardsticks.flushesPerSecond),
  async measure(bench, findings, repeat) {
    const { deliverPerSecond, deliverSeconds } = bench.sizes;
    const live = prepare(bench, `bench-deliver-${Date.now()}-${repeat}`, deliverPerSecond * deliverSeconds);
    return withConnections(bench.url, 2, async ([publisher, reader]) => {
      const tally = new Tally(live.events, 1, findings);
      await subscribeAll([reader!], 1, live.topic);
      const delivered = tally.collect([reader!], 1);
      const sentMs = await publishPaced(publisher!, live.outgoing, 1000 / deliverPerSecond, findings);
      await delivered;
      await sleep(DOUBLES_WAIT_MS);
      tally.check();
      return latency(sentMs.map((sent, event) => tally.arrivedMs[event]! - sent));
    });
  },
};

export interface Live {
  readonly topic: string;
  readonly events: BenchEvent[];
  readonly outgoing: Outgoing[];
}

export function prepare(bench: Bench, topic: string, count: number): Live {
  const events = makeLiveEvents(bench.seed, count, topic, bench.sign);
  return { topic, events, outgoing: events.map(outgoingOf) };
}

export function outgoingOf(event: BenchEvent): Outgoing {
  return { id: event.id, frame: eventFrame(Buffer.from(JSON.stringify(event))), replaceable: false };
}

/** Opens subscriptions `s0`, `s1`, … on each connection and waits for all their EOSE. */
async function subscribeAll(connections: readonly Connection[], each: number, topic: string): Promise<void> {
  await untilSettled((progress, reject) => {
    const open = (connection: Connection): Promise<void> =>
      new Promise((resolve) => {
        let due = each;
        connection.onLost = reject;
        connection.onFrame = (frame) => {
          const type = frameType(frame);
          if (type === 'CLOSED' || type === 'NOTICE') return reject(new Error(`the relay refused: ${frame}`));
          if (type !== 'EOSE') return;
          progress();
          if (--due === 0) resolve();
        };
        for (let number = 0; number < each; number++) {
          connection.send(`["REQ","s${number}",{"kinds":[1],"#t":["${topic}"]}]`);
        }
      });
    return Promise.all(connections.map(open));
  }, 'opening subscriptions');
}

/** Sends one event each `gapMs`, by the clock and not after the previous OK. Gives the time at which each was sent. */
async function publishPaced(
  connection: Connection,
  events: readonly Outgoing[],
  gapMs: number,
  findings: Findings,
): Promise<number[]> {
  const answered = awaitOks(connection, events.length, findings);
  const startMs = performance.now();
  const sentMs: number[] = [];
  for (const [turn, event] of events.entries()) {
    const waitMs = startMs + turn * gapMs - performance.now();
    if (waitMs > 0) await sleep(waitMs);
    sentMs.push(performance.now());
    connection.send(event.frame);
  }
  await answered;
  return sentMs;
}

function awaitOks(connection: Connection, count: number, findings: Findings): Promise<void> {
  return untilSettled(
    (progress, reject) =>
      new Promise((resolve) => {
        let due = count;
        connection.onLost = reject;
        connection.onFrame = (frame) => {
          if (frameType(frame) !== 'OK') return;
          progress();
          const ok = readOk(frame);
          if (!ok.accepted) findings.fail(`refused: ${ok.id}: ${ok.message}`);
          if (--due === 0) resolve();
        };
      }),
    'waiting for OK',
  );
}

/** Who got what, how often. One byte for each pair of subscription and event. */
class Tally {
  /** When each event arrived first, anywhere. */
  readonly arrivedMs: number[] = [];
  readonly due: number;
  readonly #events: readonly BenchEvent[];
  readonly #positions: Map<string, number>;
  readonly #counts: Uint8Array;
  readonly #findings: Findings;
  #arrived = 0;

  constructor(events: readonly BenchEvent[], subscriptions: number, findings: Findings) {
    this.#events = events;
    this.#positions = new Map(events.map((event, position) => [event.id, position]));
    this.#counts = new Uint8Array(events.length * subscriptions);
    this.due = this.#counts.length;
    this.#findings = findings;
  }

  /** Resolves with the time of the last delivery that was due; keeps counting afterwards, for doubles. */
  collect(connections: readonly Connection[], each: number): Promise<number> {
    const collected = untilSettled(
      (progress, reject) =>
        new Promise<number>((resolve) => {
          connections.forEach((connection, index) => {
            connection.onLost = reject;
            connection.onFrame = (frame) => {
              if (frameType(frame) !== 'EVENT') return this.#unexpected(frame);
              progress();
              this.#take(frame, index * each + Number(subscriptionOf(frame).slice(1)));
              if (this.#arrived === this.due) resolve(performance.now());
            };
          });
        }),
      'waiting for deliveries',
      DELIVERY_STALL_MS,
    );
    return collected.catch((error: Error) => {
      this.#findings.fail(
        `${error.message}: ${this.due - this.#arrived} of ${this.due} deliveries did not come`,
      );
      return Number.NaN;
    });
  }

  check(): void {
    const doubles = this.#counts.filter((count) => count > 1).length;
    if (doubles > 0) this.#findings.fail(`${doubles} deliveries came more than once`);
  }

  #take(frame: Buffer, subscription: number): void {
    const position = this.#positions.get(eventIdOf(frame));
    const slot = subscription * this.#events.length + (position ?? 0);
    if (position === undefined || !(slot < this.#counts.length)) {
      this.#findings.fail(`a delivery that was not due: ${frame.toString().slice(0, 200)}`);
      return;
    }
    this.arrivedMs[position] ??= performance.now();
    if (this.#counts[slot] === 0) this.#arrived++;
    this.#counts[slot] = Math.min(255, this.#counts[slot]! + 1);
    if (this.#arrived % READ_EVERY === 0) this.#read(frame, position);
  }

  #read(frame: Buffer, position: number): void {
    const [, , event] = JSON.parse(frame.toString()) as [string, string, BenchEvent];
    if (!sameEvent(event, this.#events[position]!)) this.#findings.fail(`an altered event: ${event.id}`);
  }

  #unexpected(frame: Buffer): void {
    const type = frameType(frame);
    if (type === 'CLOSED' || type === 'NOTICE') this.#findings.fail(`the relay refused: ${frame}`);
  }
}
