/**
 * Live delivery: saturated to many subscriptions, and at a steady pace to one. Each subscription must get
 * each of its events exactly once.
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
import { makeLiveEvents, makeSpreadEvents, spreadTopic } from '../generate.js';
import { type Bench, type Findings, flushesIn, latency, type Row, ratioTo } from '../measure.js';
import { treeCpuSeconds } from '../node.js';
import type { BenchEvent } from '../sign.js';

/** How long to wait for duplicates after the last expected delivery. */
const DOUBLES_WAIT_MS = 300;
const DELIVERY_STALL_MS = 30_000;
/** One delivery in this many is parsed and compared with the published event. */
const READ_EVERY = 100;

/** The CPU is counted from this time after the start, when connections and caches are warm. */
const PACE_LEAD_MS = 1_000;

/**
 * Each event matches five of the subscriptions, as in the topics of a community, so that publishing is the
 * larger part of the work.
 */
export const fanout: Row = {
  id: 'fanout',
  title: 'fan-out, saturated: 1,000 subscriptions, 5 match',
  headline: 'perSecond',
  unit: 'deliveries/s',
  main: true,
  needsStored: true,
  writes: true,
  seconds: ({ fanoutEvents }) => 4 + fanoutEvents / 1_500,
  ratio: (summary, yardsticks) =>
    ratioTo('× frames/s', summary.perSecond?.median, yardsticks.framesPerSecond),
  async measure(bench, findings, repeat) {
    const { fanoutConnections, fanoutSubscriptionsEach, ingestConnections, ingestInFlight } = bench.sizes;
    const spread = prepareSpread(bench, `fanout-${Date.now()}-${repeat}`, bench.sizes.fanoutEvents);
    return withConnections(bench.url, fanoutConnections + ingestConnections, async (connections) => {
      const readers = connections.slice(0, fanoutConnections);
      const publishers = connections.slice(fanoutConnections);
      const tally = new Tally(spread.events, spread.slots, findings);
      await subscribeAll(readers, fanoutSubscriptionsEach, spread.topicOf);
      const startMs = performance.now();
      const delivered = tally.collect(readers, fanoutSubscriptionsEach);
      const published = await publish(publishers, spread.outgoing, ingestInFlight);
      for (const refused of published.refused) findings.fail(`refused: ${refused}`);
      const endMs = await delivered;
      await sleep(DOUBLES_WAIT_MS);
      tally.check();
      return { perSecond: tally.due / ((endMs - startMs) / 1000) };
    });
  },
};

export const fanoutAll: Row = {
  id: 'fanout-all',
  title: 'fan-out, saturated: 1,000 subscriptions, all match',
  headline: 'perSecond',
  unit: 'deliveries/s',
  writes: true,
  seconds: () => 5,
  ratio: (summary, yardsticks) =>
    ratioTo('× frames/s', summary.perSecond?.median, yardsticks.framesPerSecond),
  async measure(bench, findings, repeat) {
    const { fanoutConnections, fanoutSubscriptionsEach, fanoutAllEvents, fanoutInFlight } = bench.sizes;
    const live = prepare(bench, `bench-fanout-${Date.now()}-${repeat}`, fanoutAllEvents);
    return withConnections(bench.url, fanoutConnections + 1, async ([publisher, ...readers]) => {
      const subscriptions = readers.length * fanoutSubscriptionsEach;
      const tally = new Tally(live.events, everySubscription(subscriptions), findings);
      await subscribeAll(readers, fanoutSubscriptionsEach, () => live.topic);
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

/** The latency of every delivery, and the CPU of node and database meanwhile, including the consumers. */
export const deliver: Row = {
  id: 'deliver',
  title: 'publish → deliver at 100 events/s, 1,000 subscriptions',
  headline: 'p50Ms',
  unit: 'ms',
  main: true,
  needsStored: true,
  writes: true,
  seconds: ({ deliverSeconds }) => 5 + deliverSeconds,
  ratio: (summary, yardsticks) => flushesIn(summary.p50Ms?.median, yardsticks.flushesPerSecond),
  async measure(bench, findings, repeat) {
    const { deliverPerSecond, deliverSeconds, fanoutConnections, fanoutSubscriptionsEach } = bench.sizes;
    const spread = prepareSpread(bench, `deliver-${Date.now()}-${repeat}`, deliverPerSecond * deliverSeconds);
    return withConnections(bench.url, fanoutConnections + 1, async ([publisher, ...readers]) => {
      const tally = new Tally(spread.events, spread.slots, findings);
      await subscribeAll(readers, fanoutSubscriptionsEach, spread.topicOf);
      const delivered = tally.collect(readers, fanoutSubscriptionsEach);
      const cpu = countCpu(bench);
      const sentMs = await publishPaced(publisher!, spread.outgoing, 1000 / deliverPerSecond, findings);
      const cpuPercent = cpu.percent();
      await delivered;
      await sleep(DOUBLES_WAIT_MS);
      tally.check();
      const sample = latency(tally.latenciesMs(sentMs));
      return cpuPercent === undefined ? sample : { ...sample, cpuPercent };
    });
  },
};

/** CPU of node and database from a second after now until `percent` is called. */
function countCpu({ node }: Bench): { percent(): number | undefined } {
  let start: { cpuSeconds: number; ms: number } | undefined;
  const read = (): { cpuSeconds: number; ms: number } | undefined => {
    const cpuSeconds = node === undefined ? undefined : treeCpuSeconds(node.pid);
    return cpuSeconds === undefined ? undefined : { cpuSeconds, ms: performance.now() };
  };
  const timer = setTimeout(() => {
    start = read();
  }, PACE_LEAD_MS);
  return {
    percent() {
      clearTimeout(timer);
      const end = read();
      if (start === undefined || end === undefined) return undefined;
      return ((end.cpuSeconds - start.cpuSeconds) / ((end.ms - start.ms) / 1_000)) * 100;
    },
  };
}

/** Which deliveries are due. Each has its own number below `size`. */
interface Slots {
  readonly size: number;
  /** Undefined when this subscription must not get this event. */
  slotOf(subscription: number, event: number): number | undefined;
  eventOf(slot: number): number;
}

/** Subscription n queries topic `n % topics`, and event n has that topic. */
function byTopic(events: number, subscriptions: number, topics: number): Slots {
  const each = subscriptions / topics;
  return {
    size: events * each,
    slotOf: (subscription, event) =>
      subscription % topics === event % topics ? event * each + Math.floor(subscription / topics) : undefined,
    eventOf: (slot) => Math.floor(slot / each),
  };
}

function everySubscription(subscriptions: number): (events: number) => Slots {
  return (events) => ({
    size: events * subscriptions,
    slotOf: (subscription, event) => event * subscriptions + subscription,
    eventOf: (slot) => Math.floor(slot / subscriptions),
  });
}

interface Spread {
  readonly events: BenchEvent[];
  readonly outgoing: Outgoing[];
  slots(events: number): Slots;
  /** The topic of a subscription, counted over all connections. */
  topicOf(subscription: number): string;
}
const SUBSCRIPTIONS_PER_TOPIC = 5;

function prepareSpread(bench: Bench, run: string, count: number): Spread {
  const subscriptions = bench.sizes.fanoutConnections * bench.sizes.fanoutSubscriptionsEach;
  const topics = subscriptions / SUBSCRIPTIONS_PER_TOPIC;
  const events = makeSpreadEvents(bench.seed, count, run, topics, bench.sign);
  return {
    events,
    outgoing: events.map(outgoingOf),
    slots: (length) => byTopic(length, subscriptions, topics),
    topicOf: (subscription) => spreadTopic(run, subscription % topics),
  };
}

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
async function subscribeAll(
  connections: readonly Connection[],
  each: number,
  topicOf: (subscription: number) => string,
): Promise<void> {
  await untilSettled((progress, reject) => {
    const open = (connection: Connection, place: number): Promise<void> =>
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
          const topic = topicOf(place * each + number);
          connection.send(`["REQ","s${number}",{"kinds":[1],"#t":["${topic}"]}]`);
        }
      });
    return Promise.all(connections.map(open));
  }, 'opening subscriptions');
}

/** Sends one event each `gapMs`, by the clock and not after the previous OK. Returns the time of each. */
async function publishPaced(
  connection: Connection,
  events: readonly Outgoing[],
  gapMs: number,
  findings: Findings,
): Promise<number[]> {
  const answered = awaitOks(connection, events.length, findings);
  const startMs = performance.now();
  const sentMs: number[] = [];
  for (const [index, event] of events.entries()) {
    const waitMs = startMs + index * gapMs - performance.now();
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

/** Counts for each due delivery when it came and how often. */
class Tally {
  readonly due: number;
  readonly #slots: Slots;
  readonly #arrivedMs: Float64Array;
  readonly #events: readonly BenchEvent[];
  readonly #positions: Map<string, number>;
  readonly #counts: Uint8Array;
  readonly #findings: Findings;
  #arrived = 0;

  constructor(events: readonly BenchEvent[], slots: (events: number) => Slots, findings: Findings) {
    this.#events = events;
    this.#positions = new Map(events.map((event, position) => [event.id, position]));
    this.#slots = slots(events.length);
    this.due = this.#slots.size;
    this.#counts = new Uint8Array(this.due);
    this.#arrivedMs = new Float64Array(this.due);
    this.#findings = findings;
  }

  /** Resolves with the time of the last delivery that was due; keeps counting duplicates afterwards. */
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

  /** The latency of every delivery, from the time at which its event was sent. */
  latenciesMs(sentMs: readonly number[]): number[] {
    const all = [...this.#arrivedMs.entries()].filter(([, arrivedMs]) => arrivedMs > 0);
    return all.map(([slot, arrivedMs]) => arrivedMs - sentMs[this.#slots.eventOf(slot)]!);
  }

  check(): void {
    const doubles = this.#counts.filter((count) => count > 1).length;
    if (doubles > 0) this.#findings.fail(`${doubles} deliveries came more than once`);
  }

  #take(frame: Buffer, subscription: number): void {
    const position = this.#positions.get(eventIdOf(frame));
    const slot = position === undefined ? undefined : this.#slots.slotOf(subscription, position);
    if (position === undefined || slot === undefined || !(slot < this.due)) {
      this.#findings.fail(`a delivery that was not due: ${frame.toString().slice(0, 200)}`);
      return;
    }
    if (this.#counts[slot] === 0) {
      this.#arrived++;
      this.#arrivedMs[slot] = performance.now();
    }
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
