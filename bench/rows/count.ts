/**
 * COUNT (NIP-45). A relay without it answers with NOTICE or CLOSED, or not at all: then the row is skipped.
 */
import { type Connection, frameType, untilSettled, withConnections } from '../client.js';
import { type Bench, type Findings, latency, type Row, type Sample, Skip } from '../measure.js';

export const count: Row = {
  id: 'count',
  title: 'COUNT kind 1 with a #t',
  headline: 'perSecond',
  unit: 'queries/s',
  needsStored: true,
  async measure(bench, findings) {
    const topics = countedTopics(bench);
    return withConnections(bench.url, bench.sizes.queryLoops, async (connections) => {
      await probeCount(connections[0]!, topics[0]!);
      return countForSeconds(connections, topics, bench.sizes.querySeconds, (answer, topic) =>
        checkCount(answer, topic, bench.node !== undefined, findings),
      );
    });
  },
};
const COUNT_PROBE_MS = 5_000;

export interface CountedTopic {
  readonly name: string;
  readonly count: number;
}

/** Closed loops, as for REQ: query, wait, query the next topic. */
export async function countForSeconds(
  connections: readonly Connection[],
  topics: readonly CountedTopic[],
  seconds: number,
  check: (answer: Buffer, topic: CountedTopic) => void,
): Promise<Sample> {
  const startMs = performance.now();
  const endMs = startMs + seconds * 1000;
  const latenciesMs: number[] = [];
  const loop = async (
    connection: Connection,
    number: number,
    progress: () => void,
    reject: (why: Error) => void,
  ) => {
    for (let index = number * 7; performance.now() < endMs; index++) {
      const topic = topics[index % topics.length]!;
      const sentMs = performance.now();
      const answer = await requestCount(connection, topic.name, reject);
      latenciesMs.push(performance.now() - sentMs);
      progress();
      check(answer, topic);
    }
  };
  await untilSettled(
    (progress, reject) =>
      Promise.all(connections.map((connection, number) => loop(connection, number, progress, reject))),
    'waiting for COUNT',
  );
  const elapsed = (performance.now() - startMs) / 1000;
  return { perSecond: latenciesMs.length / elapsed, ...latency(latenciesMs) };
}

function countedTopics(bench: Bench): CountedTopic[] {
  const { byTopic, kinds } = bench.corpus;
  return [...byTopic].map(([name, list]) => ({
    name,
    count: list.filter((index) => index < bench.stored && kinds[index] === 1).length,
  }));
}

async function probeCount(connection: Connection, topic: CountedTopic): Promise<void> {
  const probe = untilSettled(
    (_, reject) => requestCount(connection, topic.name, reject),
    'probing',
    COUNT_PROBE_MS,
  );
  await probe.catch((error: Error) => {
    throw new Skip(`the relay does not support COUNT: ${error.message}`);
  });
}

function requestCount(connection: Connection, name: string, reject: (why: Error) => void): Promise<Buffer> {
  return new Promise((resolve) => {
    connection.onLost = reject;
    connection.onFrame = (frame) => {
      const type = frameType(frame);
      if (type === 'COUNT') resolve(frame);
      else if (type === 'CLOSED' || type === 'NOTICE') reject(new Error(frame.toString()));
    };
    connection.send(`["COUNT","c",{"kinds":[1],"#t":["${name}"]}]`);
  });
}

/** A relay at `--target` may hold events of others. */
export function checkCount(answer: Buffer, topic: CountedTopic, alone: boolean, findings: Findings): void {
  const [, , found] = JSON.parse(answer.toString()) as [
    string,
    string,
    { count: number; approximate?: boolean },
  ];
  if (found.approximate === true) {
    findings.note('some counts were approximate');
    return;
  }
  const wrong = alone ? found.count !== topic.count : found.count < topic.count;
  if (wrong) findings.fail(`COUNT of ${topic.name} returned ${found.count}, expected ${topic.count}`);
}
