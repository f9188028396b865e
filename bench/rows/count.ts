/** COUNT (NIP-45). A relay that does not know it answers with NOTICE or CLOSED, or not at all: then the row is skipped. */
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
      return countForSeconds(connections, topics, bench.sizes.querySeconds, (answer, asked) =>
        checkCount(answer, asked, bench.node !== undefined, findings),
      );
    });
  },
};
const COUNT_PROBE_MS = 5_000;

export interface CountedTopic {
  readonly name: string;
  readonly count: number;
}

/** Closed loops, as for REQ: ask, wait, ask for the next topic. */
export async function countForSeconds(
  connections: readonly Connection[],
  topics: readonly CountedTopic[],
  seconds: number,
  check: (answer: Buffer, asked: CountedTopic) => void,
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
    for (let turn = number * 7; performance.now() < endMs; turn++) {
      const asked = topics[turn % topics.length]!;
      const askedMs = performance.now();
      const answer = await askCount(connection, asked.name, reject);
      latenciesMs.push(performance.now() - askedMs);
      progress();
      check(answer, asked);
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

async function probeCount(connection: Connection, asked: CountedTopic): Promise<void> {
  const probe = untilSettled(
    (_, reject) => askCount(connection, asked.name, reject),
    'probing',
    COUNT_PROBE_MS,
  );
  await probe.catch((error: Error) => {
    throw new Skip(`the relay does not COUNT: ${error.message}`);
  });
}

function askCount(connection: Connection, name: string, reject: (why: Error) => void): Promise<Buffer> {
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
export function checkCount(answer: Buffer, asked: CountedTopic, alone: boolean, findings: Findings): void {
  const [, , found] = JSON.parse(answer.toString()) as [
    string,
    string,
    { count: number; approximate?: boolean },
  ];
  if (found.approximate === true) {
    findings.note('some counts were approximate');
    return;
  }
  const wrong = alone ? found.count !== asked.count : found.count < asked.count;
  if (wrong) findings.fail(`COUNT of ${asked.name} gave ${found.count}, stored are ${asked.count}`);
}
