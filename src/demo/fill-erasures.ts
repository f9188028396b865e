/**
 * People of the demo who leave: one is erased with a certificate, one waits in the grace period, and the
 * request to vanish is carried out. Uses the job and the consumers, as `minato erase` does.
 */
import { listErasures } from '../erasure/erasures.sql.js';
import { erase } from '../erasure/jobs.js';
import { waitsForReaders } from '../erasure/stores/outbox.js';
import type { JobContext } from '../jobs/job.js';
import { runJob } from '../jobs/run.js';
import type { Assisting } from '../outbox/consumers/assist.js';
import { requestPersonal } from '../personal-data/requests.sql.js';
import { checkInterrupt, type Filling, partOf, unless } from './filling.js';

/** Runs of the job, each of which may wait 15 seconds for another job. */
const RUNS_MAX = 40;
const GRACE_DAYS = 7;

export async function fillErasures(
  filling: Filling,
  gone: ReadonlySet<string>,
  context: JobContext,
  consumers: Assisting,
): Promise<void> {
  const { pool, community, story, tally, now } = filling;
  const { id, slug } = community();
  const at = now();
  for (const [part, graceDays] of [
    ['erased', 0],
    ['leaving', GRACE_DAYS],
  ] as const) {
    const { pubkey } = partOf(story, part);
    const note =
      part === 'erased' ? '引っ越します。お世話になりました。' : 'Perhaps I stay. Ask me next week.';
    const wanted = { community: id, pubkey, kind: 'deletion', note, requestKey: `demo-${part}` } as const;
    const request = { ...wanted, erasure: { slug, graceDays } };
    const asked = gone.has(pubkey)
      ? undefined
      : unless(await requestPersonal(pool, request, at), ['BEING_ERASED']);
    tally.note('erasures', asked?.createdAt === at);
  }
  await carryOut(filling, context, consumers);
}

/** Until nothing is due. While a node runs, it may be the one that does it. */
async function carryOut(filling: Filling, context: JobContext, consumers: Assisting): Promise<void> {
  const { pool, community, signal } = filling;
  for (let runs = 0; runs < RUNS_MAX; runs += 1) {
    checkInterrupt(filling);
    const result = await runJob(erase, context);
    const open = unless(
      await listErasures(pool, { community: community().id, open: true }, { limit: 100 }),
      [],
    )!;
    const due = open.items.filter((one) => one.graceUntil <= filling.now() && one.heldAt === null);
    if (result !== 'busy' && due.length === 0) return;
    if (due.some(waitsForReaders)) await consumers.caughtUp(signal);
  }
  throw new Error('an erasure of the demo did not end; "minato erase list --open" shows it');
}
