/**
 * One request that deletes many events of its author (NIP-09): the time to its OK, which comes after all of
 * them are hidden, in one transaction. The events are written first, unmeasured; afterwards none of them may
 * be found.
 */
import { type Connection, frameType, publish, untilSettled, withConnections } from '../client.js';
import { deletionOf } from '../generate.js';
import { type Bench, type Findings, flushesIn, latency, type Row, Skip } from '../measure.js';
import { outgoingOf, prepare } from './live.js';

export const deletion: Row = {
  id: 'delete',
  writes: true,
  title: 'one deletion of 1,000 events',
  headline: 'p50Ms',
  unit: 'ms',
  ratio: (summary, yardsticks) => flushesIn(summary.p50Ms?.median, yardsticks.flushesPerSecond),
  async measure(bench, findings, repeat) {
    const targets = bench.sizes.deleteTargets;
    const live = prepare(bench, `bench-delete-${Date.now()}-${repeat}`, targets);
    const request = deletionOf(live.events, bench.seed, live.topic, bench.sign);
    return withConnections(bench.url, 1, async ([connection]) => {
      const written = await publish([connection!], live.outgoing, IN_FLIGHT);
      if (written.refused.length > 0) throw new Error(`refused: ${written.refused[0]}`);
      const before = await laneBatches(bench);
      const deleted = await publish([connection!], [outgoingOf(request)], 1);
      const after = await laneBatches(bench);
      if (deleted.refused.length > 0) refuse(deleted.refused[0]!, bench);
      findings.note(`${targets.toLocaleString('en')} targets, ${JSON.stringify(request).length} bytes`);
      if (bench.nodeEnv.MINATO_EVENT_STORE !== 'dynamodb') checkOneBatch(before, after, findings);
      await checkGone(connection!, live.topic, findings);
      return latency(deleted.latenciesMs);
    });
  },
};
const IN_FLIGHT = 100;

/** The node accepts it by default; another relay may have smaller limits. */
function refuse(why: string, bench: Bench): never {
  if (bench.node === undefined) throw new Skip(`the relay refused the request: ${why}`);
  throw new Error(`refused: ${why}`);
}

function checkOneBatch(before: number | undefined, after: number | undefined, findings: Findings): void {
  if (before === undefined || after === undefined) return;
  findings.note('one batch of the lane');
  if (after - before !== 1) findings.fail(`the lane wrote ${after - before} batches, expected one`);
}

/** How many batches the node's lane has committed, from its metrics. Nothing else writes meanwhile. */
async function laneBatches(bench: Bench): Promise<number | undefined> {
  if (bench.node === undefined) return undefined;
  const metrics = await fetch(`${bench.url.replace(/^ws/, 'http')}/metrics`);
  const [, count] = /^minato_lane_batch_events_count (\d+)$/m.exec(await metrics.text()) ?? [];
  if (count === undefined) throw new Error('the node has no metric minato_lane_batch_events_count');
  return Number(count);
}

async function checkGone(connection: Connection, topic: string, findings: Findings): Promise<void> {
  let rows = 0;
  await untilSettled(
    (progress, reject) =>
      new Promise<void>((resolve) => {
        connection.onLost = reject;
        connection.onFrame = (frame) => {
          progress();
          const type = frameType(frame);
          if (type === 'EVENT') rows++;
          else if (type === 'EOSE') resolve();
          else reject(new Error(`the relay refused: ${frame}`));
        };
        connection.send(`["REQ","gone",{"kinds":[1],"#t":["${topic}"]}]`);
      }),
    'looking for deleted events',
  );
  if (rows > 0) findings.fail(`${rows} deleted events were still served`);
}
