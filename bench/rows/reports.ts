/**
 * Many reports (NIP-56) at once, from many keys about many posts: from the first report until every report is
 * in its case and every consumer is up to date. The posts are written first, unmeasured.
 */
import { publish, withConnections } from '../client.js';
import { liveKey } from '../generate.js';
import { type Row, Skip } from '../measure.js';
import { untilUpToDate } from '../settle.js';
import { outgoingOf, prepare } from './live.js';

const REPORTERS = 250;
const REPORTS_PER_POST = 5;
const REASONS = ['spam', 'nudity', 'profanity', 'impersonation'];
const IN_FLIGHT = 100;

export const reports: Row = {
  id: 'reports',
  writes: true,
  title: 'reports (kind 1984), until each is in its case',
  headline: 'perSecond',
  unit: 'reports/s',
  async measure(bench, findings, repeat) {
    if (bench.node === undefined || !bench.consumersOn) throw new Skip('only for a node with its consumers');
    const run = `bench-reports-${Date.now()}-${repeat}`;
    const { events: posts, outgoing } = prepare(bench, run, bench.sizes.deleteTargets);
    const keys = Array.from({ length: REPORTERS }, (_, reporter) =>
      liveKey(bench.seed, `${run}/${reporter}`),
    );
    const created_at = Math.floor(Date.now() / 1_000);
    const reported = posts.flatMap(({ id, pubkey }, place) =>
      Array.from({ length: REPORTS_PER_POST }, (_, nth) => {
        const reason = REASONS[nth % REASONS.length]!;
        const tags = [
          ['e', id, reason],
          ['p', pubkey],
        ];
        const key = keys[(place * REPORTS_PER_POST + nth) % REPORTERS]!;
        return outgoingOf(bench.sign({ created_at, kind: 1984, tags, content: '' }, key));
      }),
    );
    return withConnections(bench.url, bench.sizes.ingestConnections, async (connections) => {
      const written = await publish(connections, outgoing, IN_FLIGHT);
      if (written.refused.length > 0) throw new Error(`refused: ${written.refused[0]}`);
      await untilUpToDate(bench);
      const startMs = performance.now();
      const published = await publish(connections, reported, IN_FLIGHT);
      for (const refused of published.refused) findings.fail(`refused: ${refused}`);
      const okMs = performance.now() - startMs;
      await untilUpToDate(bench);
      const settledMs = performance.now() - startMs;
      findings.note(
        `${reported.length.toLocaleString('en')} reports of ${REPORTERS} keys about ` +
          `${posts.length.toLocaleString('en')} posts; the last OK after ${Math.round(okMs)} ms`,
      );
      return { perSecond: (reported.length * 1_000) / settledMs };
    });
  },
};
