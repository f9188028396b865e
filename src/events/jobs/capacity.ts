/**
 * Each minute: sets the capacity step of each community and each topic with limits of its own (room.ts), and
 * the step for consumers of the outbox that are far behind. The next run does what this one leaves (I14).
 */
import type { Client } from 'pg';
import type { Job, JobContext } from '../../jobs/job.js';
import { Tally } from '../../jobs/tally.js';
import { fixTagHashSeed } from '../../node/state.sql.js';
import { readConsumers } from '../../outbox/consumers/admin.sql.js';
import { readSize, readSteps, takeOldest, WHOLE, writeStep } from '../postgres/capacity.js';
import type { DryRunState } from '../postgres/dry-run.js';
import { COUNT_MAX } from '../postgres/sweeps.js';
import { createTagHash, type TagHash } from '../postgres/tag-hash.js';
import { listWatched, makeRoom, oldestFirst, type RoomContext, stepOf, type Watched } from '../room.js';
import { excess, type LagStep, lagStepAt } from '../rules/capacity.js';
import { PREVIEWED_MAX } from '../store.js';

export const capacity: Job = {
  name: 'capacity',
  cron: '* * * * *',
  about:
    'refuses some events where space is short or a consumer is far behind, and purges the oldest for space',
  purges: true,
  run: async (context, client) => {
    const tagHash = await createTagHash(await fixTagHashSeed(client));
    await settleLag(context, client);
    let changed = 0;
    let more = false;
    let batches = context.bounds.batches;
    for (const watched of await listWatched(context.communities, client)) {
      if (batches <= 0 || context.signal.aborted) return { changed, more: true };
      const made = await makeRoom(roomContext(context, batches, tagHash), client, watched);
      batches -= made.batches;
      changed += made.changed;
      more ||= made.more;
    }
    return { changed, more };
  },
  dryRun: async (context, client, state) => {
    const tagHash = await createTagHash(await fixTagHashSeed(client));
    const tally = new Tally();
    for (const watched of await listWatched(context.communities, client))
      await tallyExcess(context, client, watched, { tagHash, tally, state });
    return tally.counts('capacity');
  },
};

function roomContext(context: JobContext, batches: number, tagHash: TagHash): RoomContext {
  const { store, now, signal, say, bounds, communities } = context;
  const slugOf = (id: number) => communities.get(id)?.slug ?? String(id);
  return { store, now, signal, say, tagHash, slugOf, bounds: { ...bounds, batches } };
}

/**
 * Compares the lag of the slowest consumer with the maximum of each community. It ignores a consumer that is
 * paused, that no process runs, or that must rebuild because the outbox no longer reaches back to it: fewer
 * new events would not help these.
 */
async function settleLag({ communities, now }: JobContext, client: Client): Promise<void> {
  const lags = (await readConsumers(client, now()))
    .filter(
      ({ pausedAt, behind, generation, held }) => held && pausedAt === null && !behind && generation > 0,
    )
    .map(({ lagSeconds }) => lagSeconds);
  const before = new Map<number, LagStep>();
  for (const { community, cause, step } of await readSteps(client))
    if (cause === 'lag') before.set(community, step as LagStep);
  for (const { id: community, settings } of communities.all()) {
    const was = before.get(community) ?? 0;
    const step = lagStepAt(Math.max(0, ...lags), settings['capacity.lagSecondsMax'], was);
    if (step !== was)
      await writeStep(client, { community, topic: WHOLE }, { cause: 'lag', step, since: now() });
  }
}

async function tallyExcess(
  { bounds: { rows }, now, store: { preview } }: JobContext,
  client: Client,
  watched: Watched,
  { tagHash, tally, state }: { tagHash: TagHash; tally: Tally; state: DryRunState },
): Promise<void> {
  const size = state.sizeOf(watched, await readSize(client, watched));
  if (stepOf(watched, size, now()) < 3) return;
  let left = excess(size, watched.limits);
  if (preview !== undefined) {
    const { community, topic } = watched;
    const which = { by: 'oldest', scope: { community, topic }, need: left, limit: PREVIEWED_MAX } as const;
    for (const found of await preview(which))
      if (state.takeNamed(found.community, found.event, { served: true })) tally.addEvent(found.event);
    return;
  }
  const bounds = { rows, batches: Math.ceil(COUNT_MAX / rows) };
  for await (const batch of oldestFirst(client, watched, bounds, { tagHash, remember: false })) {
    if (left.events <= 0 && left.bytes <= 0) break;
    const places = await state.left(batch.map((row) => ({ row })));
    const taken = await takeOldest(
      client,
      watched,
      left,
      places.map(({ row }) => row),
    );
    for (const { event } of taken.rows) tally.addEvent(event);
    await state.take(taken.rows, { served: true });
    left = taken.left;
  }
}
