/**
 * Each minute: how full is each community, and each topic with limits of its own (room.ts)? And how far behind is the slowest
 * consumer of the outbox? What is left over is the next run's.
 */
import type { Client } from 'pg';
import { excess, type LagStep, lagStepAt } from '../core/capacity.js';
import { listWatched, makeRoom, oldestFirst, type RoomContext, stepOf, type Watched } from '../room.js';
import { readSize, readSteps, takeOldest, WHOLE, writeStep } from '../store/capacity.js';
import { readConsumers } from '../store/consumer-admin.js';
import { fixTagHashSeed } from '../store/node-state.js';
import { COUNT_MAX } from '../store/sweeps.js';
import { createTagHash, type TagHash } from '../store/tag-hash.js';
import type { WouldGo } from '../store/would-go.js';
import type { Job, JobContext } from './job.js';
import { Tally } from './tally.js';

export const capacity: Job = {
  name: 'capacity',
  cron: '* * * * *',
  about:
    'narrows intake where space is short or search is far behind, and purges the oldest events for space',
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
  dryRun: async (context, client, gone) => {
    const tagHash = await createTagHash(await fixTagHashSeed(client));
    const tally = new Tally();
    for (const watched of await listWatched(context.communities, client))
      await tallyExcess(context, client, watched, { tagHash, tally, gone });
    return tally.counts('capacity');
  },
};

function roomContext(context: JobContext, batches: number, tagHash: TagHash): RoomContext {
  const { lane, now, signal, say, bounds, communities } = context;
  const slugOf = (id: number) => communities.get(id)?.slug ?? String(id);
  return { lane, now, signal, say, tagHash, slugOf, bounds: { ...bounds, batches } };
}

/**
 * How far the slowest consumer of the outbox is behind, against the bound of each community. One that is paused, that nobody works on, or that is built
 * anew because the outbox no longer reaches back to it, would gain nothing from less intake.
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
  { bounds: { rows }, now }: JobContext,
  client: Client,
  watched: Watched,
  { tagHash, tally, gone }: { tagHash: TagHash; tally: Tally; gone: WouldGo },
): Promise<void> {
  const size = gone.sizeOf(watched, await readSize(client, watched));
  if (stepOf(watched, size, now()) < 3) return;
  let left = excess(size, watched.limits);
  const bounds = { rows, batches: Math.ceil(COUNT_MAX / rows) };
  for await (const batch of oldestFirst(client, watched, bounds, { tagHash, remember: false })) {
    if (left.events <= 0 && left.bytes <= 0) break;
    const places = await gone.left(batch.map((row) => ({ row })));
    const taken = await takeOldest(
      client,
      watched,
      left,
      places.map(({ row }) => row),
    );
    for (const { event } of taken.rows) tally.addEvent(event);
    await gone.take(taken.rows, { served: true });
    left = taken.left;
  }
}
