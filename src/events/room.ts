/**
 * Makes room for new events. It reads how full a community is, or a topic with limits of its own, sets the
 * capacity step (events/rules/capacity.ts), and purges the oldest regular events through the lane, in bounded
 * batches, until there is room. A job does it each minute for all communities. A process that writes events
 * also does it for what its own commits have filled, so a burst exceeds a limit by a few lane batches (I14),
 * not by a minute of arrivals, even where no worker runs. I11: only regular events are purged.
 */
import type { Client } from 'pg';
import type { Communities, Community } from '../communities/communities.js';
import type { Log } from '../node/log.js';
import { readCursor, readState, writeCursor, writeState } from '../node/state.sql.js';
import { readHead } from '../outbox/outbox.sql.js';
import type { Database } from '../postgres/database.js';
import { topicsOf } from '../topics/rules.js';
import {
  countPurged,
  oldestPlaces,
  oldestPlacesOfTopic,
  readSize,
  readSteps,
  type Scope,
  WHOLE,
  writeStep,
} from './postgres/capacity.js';
import type { TagHash } from './postgres/tag-hash.js';
import {
  communityLimits,
  escalated,
  excess,
  FULL_WORDS,
  fullness,
  hasLimit,
  isCounted,
  type Limits,
  MARKS,
  type Size,
  STEP_WORDS,
  type Step,
  stepAt,
  TOPIC_STEP_WORDS,
  topicLimits,
  topicStepAt,
} from './rules/capacity.js';
import type { RowRef } from './rules/facts.js';
import type { BatchWrites } from './rules/writes.js';
import type { EventStore } from './store.js';

export interface Watched extends Scope {
  readonly limits: Limits;
  readonly before: Step;
  /** The start of that step, in milliseconds. */
  readonly since: number;
  readonly full: boolean;
}

export interface RoomContext {
  readonly store: Pick<EventStore, 'hide' | 'preview'>;
  readonly now: () => number;
  readonly signal: AbortSignal;
  readonly bounds: { readonly rows: number; readonly batches: number };
  readonly tagHash: TagHash;
  /** Prints a line for the caller. */
  readonly say?: ((line: string) => void) | undefined;
  readonly slugOf: (community: number) => string;
}

export interface Made {
  readonly changed: number;
  readonly batches: number;
  /** It is still over its limit, and there are more events to purge. */
  readonly more: boolean;
  readonly step: Step;
}

const keyOf = ({ community, topic }: Scope) => `${community}/${topic}`;

/**
 * Topics before their community: what a topic frees is free in the community too. A scope that lost its limit
 * is listed until its step is 0.
 */
export async function listWatched(communities: Communities, client: Client): Promise<Watched[]> {
  const steps = new Map<string, { topic: string; step: Step; since: number; full: boolean }>();
  for (const { cause, ...row } of await readSteps(client)) if (cause === 'space') steps.set(keyOf(row), row);
  return communities.all().flatMap((community) => {
    const { id } = community;
    const limits = limitsOf(community);
    const stepped = [...steps].filter(([key]) => key.startsWith(`${id}/`)).map(([, { topic }]) => topic);
    const topics = new Set([...limits.keys(), ...stepped].filter((topic) => topic !== WHOLE));
    return [...topics, WHOLE]
      .map((topic): Watched => {
        const { step = 0, since = 0, full = false } = steps.get(keyOf({ community: id, topic })) ?? {};
        return { community: id, topic, limits: limits.get(topic) ?? UNLIMITED, before: step, since, full };
      })
      .filter((watched) => hasLimit(watched.limits) || watched.before > 0);
  });
}
const UNLIMITED: Limits = { maxEvents: 0, maxBytes: 0 };

/**
 * Limits by topic; the empty topic stands for the community. Only scopes with a limit. A community object
 * never changes in place, so it is a cache key.
 */
function limitsOf(community: Community): ReadonlyMap<string, Limits> {
  let limits = known.get(community);
  if (limits === undefined) {
    const all = [...community.topics].map(([topic, { policy }]) => [topic, topicLimits(policy)] as const);
    limits = new Map(
      [...all, [WHOLE, communityLimits(community.settings)] as const].filter(([, one]) => hasLimit(one)),
    );
    known.set(community, limits);
  }
  return limits;
}
const known = new WeakMap<Community, ReadonlyMap<string, Limits>>();

/** The step for a size. */
export function stepOf({ topic, limits, before, since }: Watched, size: Size, nowMs: number): Step {
  const percent = fullness(size, limits);
  if (topic === WHOLE) {
    const step = stepAt(percent, before);
    return before === 2 ? escalated(step, since, nowMs) : step;
  }
  const step = topicStepAt(percent, before);
  const need = excess(size, limits);
  return step === 3 && need.events <= 0 && need.bytes <= 0 ? 1 : step;
}

/** Sets the step for the size, and purges where space is short. */
export async function makeRoom(context: RoomContext, client: Client, watched: Watched): Promise<Made> {
  const size = await readSize(client, watched);
  const step = stepOf(watched, size, context.now());
  const isWhole = watched.topic === WHOLE;
  // A topic keeps accepting posts while it is purged, so its step is set only when the purge does not finish
  // at once.
  if (step < 3 || isWhole) await saveStep(context, client, watched, { step, full: false, size });
  if (step < 3) return { changed: 0, batches: 0, more: false, step };
  const purged = await purge(context, client, watched, size);
  if (purged.waits) return { changed: 0, batches: 0, more: false, step };
  const { changed, batches } = purged;
  const left = purged.left ?? (await readSize(client, watched));
  const then = stepOf({ ...watched, before: 3, since: context.now() }, left, context.now());
  // With nothing left to purge it stays in the step, and there is nothing more to do.
  const isOver = then === 3;
  const isStuck = isOver && changed === 0 && !context.signal.aborted;
  const state = { step: then, full: isStuck && !isWhole, size: left };
  await saveStep(context, client, isWhole ? { ...watched, before: 3, full: false } : watched, state);
  if (changed > 0) context.say?.(`${nameOf(context, watched)}: ${changed} of the oldest events purged`);
  return { changed, batches, more: isOver && changed > 0, step: then };
}

interface State {
  readonly step: Step;
  readonly full: boolean;
  readonly size: Size;
}

async function saveStep(
  context: RoomContext,
  client: Client,
  { limits, before, full: wasFull, since: _since, ...scope }: Watched,
  { step, full, size }: State,
): Promise<void> {
  if (step === before && full === wasFull) return;
  await writeStep(client, scope, { cause: 'space', step, since: context.now(), full });
  const percent = hasLimit(limits) ? `, ${Math.floor(fullness(size, limits))} % of its limit` : ', no limit';
  const does = scope.topic === WHOLE ? STEP_WORDS[step] : full ? FULL_WORDS : TOPIC_STEP_WORDS[step];
  context.say?.(`${nameOf(context, scope)}: step ${before} → ${step}: ${does}${percent}`);
}

function nameOf({ slugOf }: RoomContext, { community, topic }: Scope): string {
  const slug = slugOf(community);
  return topic === WHOLE ? `community ${slug}` : `community ${slug}, topic ${JSON.stringify(topic)}`;
}

interface Purged extends Pick<Made, 'changed' | 'batches'> {
  /** Where the totals do not have it yet. */
  readonly left?: Size;
  /** The totals do not have the purge before yet. */
  readonly waits?: boolean;
}

async function purge(context: RoomContext, client: Client, watched: Watched, size: Size): Promise<Purged> {
  const { store, bounds, signal, tagHash } = context;
  if (store.preview !== undefined) return purgeElsewhere(context, client, watched, size);
  const { limits, ...scope } = watched;
  let changed = 0;
  let batches = 0;
  for await (const batch of oldestFirst(client, scope, bounds, { tagHash, remember: true })) {
    if (signal.aborted || batches === bounds.batches) break;
    batches += 1;
    const taken = await store.hide({
      hidden: 'capacity',
      purge: true,
      which: { by: 'excess', scope, limits, places: batch },
    });
    changed += taken;
    if (taken < batch.length) break;
  }
  return { changed, batches };
}

/** Events that one run purges where they are not in PostgreSQL. */
const ELSEWHERE_ROWS_MAX = 5_000;
const purgedKey = (community: number) => `capacity_purged_${community}`;

/**
 * The totals follow the log, which follows a store elsewhere by a moment. So a purge waits until the log has
 * what the purge before it took: otherwise it would free the same space again.
 */
async function purgeElsewhere(
  { store }: RoomContext,
  client: Client,
  { limits, community, topic }: Watched,
  size: Size,
): Promise<Purged> {
  const before = await readState(client, purgedKey(community));
  const [after = 0, count = 0] = before?.split('/').map(Number) ?? [];
  if (count > 0 && (await countPurged(client, community, after, count)) < count)
    return { changed: 0, batches: 0, waits: true };
  const head = await readHead(client);
  const need = excess(size, limits);
  const limit = ELSEWHERE_ROWS_MAX;
  const changed = await store.hide({
    hidden: 'capacity',
    purge: true,
    which: { by: 'oldest', scope: { community, topic }, need, limit },
  });
  await writeState(client, purgedKey(community), `${head}/${changed}`);
  if (changed === 0 || changed === limit) return { changed, batches: 1 };
  const left = { events: size.events - need.events, bytes: size.bytes - need.bytes };
  return { changed, batches: 1, left };
}

/** Scans of one run that may find nothing; the next run continues where they ended. */
const EMPTY_SCANS_MAX = 50;
const cursorOf = (community: number) => `capacity_cursor_${community}`;

/**
 * The places of the oldest regular events, batch by batch. The scan of a community starts at the oldest
 * served event of the last run: offsets only rise and nothing hidden is served again, so everything before it
 * has been passed.
 */
export async function* oldestFirst(
  client: Client,
  scope: Scope,
  { rows, batches }: RoomContext['bounds'],
  /** `remember`: saves the position. Then the caller continues only when all of a batch was purged. */
  { tagHash, remember }: { readonly tagHash: TagHash; readonly remember: boolean },
): AsyncGenerator<readonly RowRef[]> {
  const { community, topic } = scope;
  if (topic !== WHOLE) {
    yield* inChunks(await oldestPlacesOfTopic(client, scope, rows * batches, tagHash), rows);
    return;
  }
  const head = await readHead(client);
  let after = await readCursor(client, cursorOf(community));
  for (let empty = 0; empty < EMPTY_SCANS_MAX && after < head; ) {
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

// ── Beside the lane ────────────────────────────────────────────────────────────────────────────────────────

/**
 * Twice the size of a lane batch: during a flood, each purge between two batches removes more than a batch
 * adds.
 */
const PURGE_ROWS = 1_000;
const PURGE_BATCHES = 100;
const STATEMENT_TIMEOUT_MS = 20_000;
const LOCK_TIMEOUT_MS = 10_000;
/** Other instances add events too, so the estimate is compared with the totals this often. */
const CHECK_MS = 1_000;
/** Where nothing is left to purge, the job checks again. */
const PAUSE_MS = 60_000;

export interface RoomMaker {
  /**
   * Called after a commit: adds the new rows to the estimates, and checks a scope that may have passed a
   * mark.
   */
  note(writes: Pick<BatchWrites, 'rows'>): void;
  close(): Promise<void>;
}

export interface RoomMakerOptions {
  readonly database: Database;
  readonly store: Pick<EventStore, 'hide' | 'preview'>;
  readonly communities: Communities;
  readonly tagHash: TagHash;
  readonly now: () => number;
  readonly log: Log;
}

interface Estimate {
  events: number;
  bytes: number;
  /** In percent: from this fullness on it is checked. */
  mark: number;
  /** By a clock that does not jump: no check before `notBefore`; a check in any case from `checkAt` on. */
  readonly notBefore: number;
  readonly checkAt: number;
}

export function startRoomMaker(options: RoomMakerOptions): RoomMaker {
  const { communities, log } = options;
  const stopping = new AbortController();
  const estimates = new Map<string, Estimate>();
  const due = new Map<string, Scope>();
  let running: Promise<void> | undefined;

  const add = (scope: Scope, limits: Limits, bytes: number): void => {
    const key = keyOf(scope);
    const estimate = estimates.get(key);
    if (estimate === undefined) {
      due.set(key, scope);
      return;
    }
    estimate.events += 1;
    estimate.bytes += bytes;
    const steadyMs = performance.now();
    if (steadyMs < estimate.notBefore) return;
    if (fullness(estimate, limits) >= estimate.mark || steadyMs >= estimate.checkAt) due.set(key, scope);
  };

  const check = async (scopes: readonly Scope[]): Promise<void> => {
    const { database, store, tagHash, now } = options;
    const bounds = { rows: PURGE_ROWS, batches: PURGE_BATCHES };
    const slugOf = (id: number) => communities.get(id)?.slug ?? String(id);
    const say = (line: string) => log.debug({ room: line }, 'capacity step or purge');
    const context = { store, now, signal: stopping.signal, bounds, tagHash, slugOf, say };
    let session: Client | undefined;
    try {
      for (const scope of scopes) {
        const community = communities.get(scope.community);
        const limits = community && limitsOf(community).get(scope.topic);
        if (community === undefined || limits === undefined || stopping.signal.aborted) continue;
        const size = await readSize(database.ownPool, scope);
        const { capacity } = community;
        const before = scope.topic === WHOLE ? capacity.step : (capacity.topics.get(scope.topic) ?? 0);
        const full = capacity.full.has(scope.topic);
        const step = stepOf({ ...scope, limits, before, full, since: now() }, size, now());
        if (step === before && step < 3) {
          remember(scope, size, step, CHECK_MS, 0);
          continue;
        }
        session ??= await database.connect({
          statementTimeoutMs: STATEMENT_TIMEOUT_MS,
          lockTimeoutMs: LOCK_TIMEOUT_MS,
          indexWalks: true,
        });
        const inForce = (await readSteps(session)).find(
          (row) => row.cause === 'space' && keyOf(row) === keyOf(scope),
        );
        const watched = {
          ...scope,
          limits,
          before: inForce?.step ?? 0,
          since: inForce?.since ?? now(),
          full: inForce?.full ?? false,
        };
        const made = await makeRoom(context, session, watched);
        const pauses = made.step === 3 && !made.more;
        remember(scope, await readSize(session, scope), made.step, CHECK_MS, pauses ? PAUSE_MS : 0);
        if (made.more) due.set(keyOf(scope), scope);
      }
    } finally {
      await session?.end().catch(() => undefined);
    }
  };

  const remember = (scope: Scope, size: Size, step: Step, checkMs: number, pauseMs: number): void => {
    const next = scope.topic === WHOLE ? Math.min(3, step + 1) : step === 0 ? 1 : 3;
    estimates.set(keyOf(scope), {
      ...size,
      mark: MARKS[next as Exclude<Step, 0>].from,
      notBefore: performance.now() + pauseMs,
      checkAt: performance.now() + checkMs,
    });
  };

  const checkWhileDue = async (): Promise<void> => {
    while (due.size > 0 && !stopping.signal.aborted) {
      const scopes = [...due.values()];
      due.clear();
      try {
        await check(scopes);
      } catch (error) {
        // The job retries within a minute.
        log.warn(
          { error: String(error) },
          'the oldest events could not be purged, the job retries within a minute',
        );
        for (const scope of scopes) remember(scope, { events: 0, bytes: 0 }, 0, CHECK_MS, 0);
      }
    }
    running = undefined;
  };

  return {
    note: ({ rows }) => {
      for (const { submission, hidden } of rows) {
        if (hidden !== undefined || !isCounted(submission.event)) continue;
        const community = communities.get(submission.community);
        const limits = community && limitsOf(community);
        if (limits === undefined || limits.size === 0) continue;
        const bytes = Buffer.byteLength(submission.payload);
        for (const topic of [WHOLE, ...topicsOf(submission.event)]) {
          const limit = limits.get(topic);
          if (limit !== undefined) add({ community: submission.community, topic }, limit, bytes);
        }
      }
      if (due.size > 0 && !stopping.signal.aborted) running ??= checkWhileDue();
    },
    close: async () => {
      stopping.abort();
      await running;
    },
  };
}
