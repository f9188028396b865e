/**
 * Room for new events: how full is a community, or a topic with limits of its own? Sets the step that holds from now on
 * (core/capacity.ts) and purges the oldest regular events, in bounded batches through the lane, until there is room again.
 * The job does it each minute for all of them. Whoever writes events does it as well, for what its own commits have filled: so a
 * burst overshoots a limit by some batches of the lane (I14), not by what arrives in a minute, also where no worker runs.
 * I11: places are taken from the buckets of regular events only.
 */
import type { Client } from 'pg';
import type { Communities, Community } from './communities.js';
import {
  communityLimits,
  escalated,
  excess,
  FULL_WORDS,
  fullness,
  hasLimit,
  type Limits,
  MARKS,
  type Size,
  STEP_WORDS,
  type Step,
  stepAt,
  TOPIC_STEP_WORDS,
  topicLimits,
  topicStepAt,
} from './core/capacity.js';
import type { Plan, RowRef } from './core/plan.js';
import { topicsOf } from './core/topic.js';
import type { Lane } from './lane.js';
import type { Log } from './log.js';
import type { Database } from './postgres/database.js';
import {
  oldestPlaces,
  oldestPlacesOfTopic,
  readSize,
  readSteps,
  type Scope,
  selectExcess,
  WHOLE,
  writeStep,
} from './store/capacity.js';
import { readCursor, writeCursor } from './store/node-state.js';
import { readHead } from './store/outbox.js';
import type { TagHash } from './store/tag-hash.js';

export interface Watched extends Scope {
  readonly limits: Limits;
  readonly before: Step;
  /** When that step began, in milliseconds. */
  readonly since: number;
  readonly full: boolean;
}

export interface RoomContext {
  readonly lane: Pick<Lane, 'hide'>;
  readonly now: () => number;
  readonly signal: AbortSignal;
  readonly bounds: { readonly rows: number; readonly batches: number };
  readonly tagHash: TagHash;
  /** A line for whoever asked for it. */
  readonly say?: ((line: string) => void) | undefined;
  readonly slugOf: (community: number) => string;
}

export interface Made {
  readonly changed: number;
  readonly batches: number;
  /** It is still over its limit, and there is more to purge. */
  readonly more: boolean;
  readonly step: Step;
}

const keyOf = ({ community, topic }: Scope) => `${community}/${topic}`;

/** Topics before their community: what they give up is room for it too. What lost its limit is there to be released. */
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

/** By topic; the empty one stands for the community. Only what has a limit. A community never changes in place. */
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

/** The step that a size asks for. */
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

/** Puts the step in force that the size asks for, and makes room where it is short. */
export async function makeRoom(context: RoomContext, client: Client, watched: Watched): Promise<Made> {
  const size = await readSize(client, watched);
  const step = stepOf(watched, size, context.now());
  const isWhole = watched.topic === WHOLE;
  // A topic goes on taking posts, so that its step is told only where the purge does not end at once.
  if (step < 3 || isWhole) await putInForce(context, client, watched, { step, full: false, size });
  if (step < 3) return { changed: 0, batches: 0, more: false, step };
  const { changed, batches } = await purge(context, client, watched);
  const left = await readSize(client, watched);
  const then = stepOf({ ...watched, before: 3, since: context.now() }, left, context.now());
  // With nothing left that may go it stays in the step, and there is nothing more to do about it.
  const isOver = then === 3;
  const isStuck = isOver && changed === 0 && !context.signal.aborted;
  const state = { step: then, full: isStuck && !isWhole, size: left };
  await putInForce(context, client, isWhole ? { ...watched, before: 3, full: false } : watched, state);
  if (changed > 0) context.say?.(`${nameOf(context, watched)}: ${changed} of the oldest events purged`);
  return { changed, batches, more: isOver && changed > 0, step: then };
}

interface State {
  readonly step: Step;
  readonly full: boolean;
  readonly size: Size;
}

async function putInForce(
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

async function purge(
  { lane, bounds, signal, tagHash }: RoomContext,
  client: Client,
  { limits, ...scope }: Watched,
): Promise<Pick<Made, 'changed' | 'batches'>> {
  let changed = 0;
  let batches = 0;
  for await (const batch of oldestFirst(client, scope, bounds, { tagHash, remember: true })) {
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

/** Walks of one run that may find nothing; the next run goes on where they ended. */
const WALKS_MAX = 50;
const cursorOf = (community: number) => `capacity_cursor_${community}`;

/**
 * The places of the oldest regular events, batch by batch. A community's walk begins where its oldest served event was the last
 * time: offsets only rise and nothing hidden is served again, so what lies before has been passed for good.
 */
export async function* oldestFirst(
  client: Client,
  scope: Scope,
  { rows, batches }: RoomContext['bounds'],
  /** Remember: a batch is only followed by another one when all of it was purged. */
  { tagHash, remember }: { readonly tagHash: TagHash; readonly remember: boolean },
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

// ── Beside the lane ───────────────────────────────────────────────────────────────────────────────────────────────

/** Twice what one batch of the lane brings: while posts pour in, each purge between two batches takes more than one brings. */
const PURGE_ROWS = 1_000;
const PURGE_BATCHES = 100;
const STATEMENT_TIMEOUT_MS = 20_000;
const LOCK_TIMEOUT_MS = 10_000;
/** Other instances fill it too: what was counted here is compared with the totals so often. */
const LOOK_MS = 1_000;
/** Where nothing is left to purge, it is the job's to look again. */
const REST_MS = 60_000;

export interface RoomMaker {
  /** After a commit: what it added is counted, and where a mark may have been passed it is looked at. */
  note(plan: Pick<Plan, 'rows'>): void;
  close(): Promise<void>;
}

export interface RoomMakerOptions {
  readonly database: Database;
  readonly lane: Pick<Lane, 'hide'>;
  readonly communities: Communities;
  readonly tagHash: TagHash;
  readonly now: () => number;
  readonly log: Log;
}

interface Estimate {
  events: number;
  bytes: number;
  /** In percent: from here on it is looked at. */
  mark: number;
  /** Wall clock, in milliseconds: not before, and then in any case. */
  readonly notBefore: number;
  readonly lookAt: number;
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
    const wall = Date.now();
    if (wall < estimate.notBefore) return;
    if (fullness(estimate, limits) >= estimate.mark || wall >= estimate.lookAt) due.set(key, scope);
  };

  const look = async (scopes: readonly Scope[]): Promise<void> => {
    const { database, lane, tagHash, now } = options;
    const bounds = { rows: PURGE_ROWS, batches: PURGE_BATCHES };
    const slugOf = (id: number) => communities.get(id)?.slug ?? String(id);
    const say = (line: string) => log.debug({ room: line }, 'room was made');
    const context = { lane, now, signal: stopping.signal, bounds, tagHash, slugOf, say };
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
          remember(scope, size, step, LOOK_MS, 0);
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
        const rests = made.step === 3 && !made.more;
        remember(scope, await readSize(session, scope), made.step, LOOK_MS, rests ? REST_MS : 0);
        if (made.more) due.set(keyOf(scope), scope);
      }
    } finally {
      await session?.end().catch(() => undefined);
    }
  };

  const remember = (scope: Scope, size: Size, step: Step, lookMs: number, restMs: number): void => {
    const next = scope.topic === WHOLE ? Math.min(3, step + 1) : step === 0 ? 1 : 3;
    estimates.set(keyOf(scope), {
      ...size,
      mark: MARKS[next as Exclude<Step, 0>].from,
      notBefore: Date.now() + restMs,
      lookAt: Date.now() + lookMs,
    });
  };

  const lookWhileDue = async (): Promise<void> => {
    while (due.size > 0 && !stopping.signal.aborted) {
      const scopes = [...due.values()];
      due.clear();
      try {
        await look(scopes);
      } catch (error) {
        // The job comes by within a minute.
        log.warn({ error: String(error) }, 'room could not be made');
        for (const scope of scopes) remember(scope, { events: 0, bytes: 0 }, 0, LOOK_MS, 0);
      }
    }
    running = undefined;
  };

  return {
    note: ({ rows }) => {
      for (const { submission, hidden } of rows) {
        if (hidden !== undefined) continue;
        const community = communities.get(submission.community);
        const limits = community && limitsOf(community);
        if (limits === undefined || limits.size === 0) continue;
        const bytes = Buffer.byteLength(submission.payload);
        for (const topic of [WHOLE, ...topicsOf(submission.event)]) {
          const limit = limits.get(topic);
          if (limit !== undefined) add({ community: submission.community, topic }, limit, bytes);
        }
      }
      if (due.size > 0 && !stopping.signal.aborted) running ??= lookWhileDue();
    },
    close: async () => {
      stopping.abort();
      await running;
    },
  };
}
