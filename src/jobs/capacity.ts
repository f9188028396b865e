/**
 * Each minute: how full is each community, and each topic with limits of its own? Sets the step that holds from now on
 * (core/capacity.ts), and in the last one purges the oldest regular events, in bounded batches through the lane, until there
 * is room again. What is left over is the next run's. And how far behind is the slowest reader of the outbox?
 * I11: places are taken from the buckets of regular events only.
 */
import type { Client } from 'pg';
import {
  communityLimits,
  excess,
  fullness,
  hasLimit,
  type LagStep,
  type Limits,
  lagStepAt,
  type Size,
  type Step,
  stepAt,
  topicLimits,
} from '../core/capacity.js';
import type { RowRef } from '../core/plan.js';
import {
  oldestPlaces,
  oldestPlacesOfTopic,
  readSize,
  readSteps,
  type Scope,
  selectExcess,
  takeOldest,
  WHOLE,
  writeStep,
} from '../store/capacity.js';
import { readConsumers } from '../store/consumer-admin.js';
import { fixTagHashSeed, readCursor, writeCursor } from '../store/node-state.js';
import { readHead } from '../store/outbox.js';
import { createTagHash, type TagHash } from '../store/tag-hash.js';
import type { Bounds, Job, JobContext, JobResult } from './job.js';
import { Tally } from './tally.js';

interface Watched extends Scope {
  readonly limits: Limits;
  readonly before: Step;
}

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
    for (const watched of await listWatched(context, client)) {
      const step = await settle(context, client, watched, watched.before);
      if (step < 3) continue;
      if (batches === 0 || context.signal.aborted) return { changed, more: true };
      const bounds = { ...context.bounds, batches };
      const purged = await purge({ ...context, bounds }, client, watched, tagHash);
      batches -= purged.batches;
      changed += purged.changed;
      // With nothing left that may go it stays in the step, but there is nothing more to do about it.
      more ||= (await settle(context, client, watched, step)) === 3 && purged.changed > 0;
    }
    return { changed, more };
  },
  dryRun: async (context, client) => {
    const tagHash = await createTagHash(await fixTagHashSeed(client));
    const tally = new Tally();
    for (const watched of await listWatched(context, client)) {
      const size = await readSize(client, watched);
      if (stepAt(fullness(size, watched.limits), watched.before) < 3) continue;
      await tallyExcess(context, client, watched, { need: excess(size, watched.limits), tagHash, tally });
    }
    return tally.counts('capacity');
  },
};

/** Topics before their community: what they give up is room for it too. What lost its limit is there to be released. */
async function listWatched({ communities }: JobContext, client: Client): Promise<Watched[]> {
  const steps = new Map<string, Step>();
  for (const { community, topic, cause, step } of await readSteps(client))
    if (cause === 'space') steps.set(`${community}/${topic}`, step);
  return communities.all().flatMap(({ id: community, settings, topics }) => {
    const stepped = [...steps.keys()]
      .filter((key) => key.startsWith(`${community}/`))
      .map((key) => key.slice(key.indexOf('/') + 1));
    const names = new Set([...topics.keys(), ...stepped.filter((topic) => topic !== WHOLE)]);
    const scopes = [
      ...[...names].map((topic) => ({ topic, limits: topicLimits(topics.get(topic)?.policy ?? {}) })),
      { topic: WHOLE, limits: communityLimits(settings) },
    ];
    return scopes
      .map((scope) => ({ community, ...scope, before: steps.get(`${community}/${scope.topic}`) ?? 0 }))
      .filter(({ limits, before }) => hasLimit(limits) || before > 0);
  });
}

/** The step by the size as it is, put in force if it is another than before. */
async function settle(
  { now }: JobContext,
  client: Client,
  { limits, ...scope }: Watched,
  before: Step,
): Promise<Step> {
  const step = stepAt(fullness(await readSize(client, scope), limits), before);
  if (step !== before) await writeStep(client, scope, { cause: 'space', step, since: now() });
  return step;
}

/**
 * How far the slowest reader of the outbox is behind, against the bound of each community. One that is paused, that nobody works on, or that is built
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

async function purge(
  { lane, bounds, signal }: JobContext,
  client: Client,
  { limits, ...scope }: Watched,
  tagHash: TagHash,
): Promise<Pick<JobResult, 'changed'> & { batches: number }> {
  let changed = 0;
  let batches = 0;
  for await (const batch of oldestFirst(client, scope, bounds, tagHash, true)) {
    if (signal.aborted || batches === bounds.batches) break;
    batches += 1;
    const taken = await lane.hide({
      hidden: 'capacity',
      purge: true,
      select: (session) => selectExcess(session, scope, limits, batch),
    });
    changed += taken;
    if (taken < batch.length) break;
  }
  return { changed, batches };
}

async function tallyExcess(
  { bounds }: JobContext,
  client: Client,
  { limits: _limits, ...scope }: Watched,
  { need, tagHash, tally }: { need: Size; tagHash: TagHash; tally: Tally },
): Promise<void> {
  let left = need;
  let batches = 0;
  for await (const batch of oldestFirst(client, scope, bounds, tagHash, false)) {
    batches += 1;
    if (batches > bounds.batches || (left.events <= 0 && left.bytes <= 0)) break;
    const taken = await takeOldest(client, scope, left, batch);
    for (const { event } of taken.rows) tally.addEvent(event);
    left = taken.left;
  }
}

/** Walks of one run that may find nothing; the next run goes on where they ended. */
const WALKS_MAX = 50;
const cursorOf = (community: number) => `capacity_cursor_${community}`;

/**
 * The places of the oldest regular events, batch by batch. A community's walk begins where its oldest served event was the last
 * time: numbers only rise and nothing hidden is served again, so what lies before has been passed for good.
 */
async function* oldestFirst(
  client: Client,
  scope: Scope,
  { rows, batches }: Bounds,
  tagHash: TagHash,
  /** A batch is only followed by another one when all of it was purged. */
  remember: boolean,
): AsyncGenerator<readonly RowRef[]> {
  const { community, topic } = scope;
  if (topic !== WHOLE) {
    yield* inChunks(await oldestPlacesOfTopic(client, scope, rows * batches, tagHash), rows);
    return;
  }
  const head = await readHead(client);
  let after = await readCursor(client, cursorOf(community));
  for (let empty = 0; empty < WALKS_MAX && after < head; ) {
    const { places, passed } = await oldestPlaces(client, community, after, head, rows);
    const first = places[0];
    if (remember)
      await writeCursor(client, cursorOf(community), first === undefined ? passed : first.seq - 1);
    if (first === undefined) empty += 1;
    else yield places;
    after = passed;
  }
}

function* inChunks(places: readonly RowRef[], rows: number): Generator<readonly RowRef[]> {
  for (let at = 0; at < places.length; at += rows) yield places.slice(at, at + rows);
}
