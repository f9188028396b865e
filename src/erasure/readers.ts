/**
 * Readers of the outbox outside the node get the deletes of an erasure before the rows are scrubbed (I17).
 * Registered followers have acknowledged them, or their time limit is over. Open streams have sent them, or
 * had some seconds for it. stores/outbox.ts waits for the node's own consumers.
 */
import type { Pool } from 'pg';
import type { Log } from '../node/log.js';
import { followersBehind, hasStreamBehind, overrunFollowers } from '../outbox/followers.sql.js';
import {
  type Awaited,
  judgeFollowers,
  STREAM_WAIT_MS,
  type Unacknowledged,
} from '../outbox/rules-follower.js';

export interface Announced {
  readonly erasureId: string;
  readonly community: number;
  /** Every delete is at or before this offset of the outbox. */
  readonly seq: number;
  /** Milliseconds: since then. */
  readonly at: number;
  /** False: it waits for nobody, and a follower that is behind must rebuild. */
  readonly mayWait: boolean;
}

export interface Readers {
  readonly mayGoOn: boolean;
  readonly waits: readonly Awaited[];
  /** The erasure continues without these. */
  readonly unacknowledged: readonly Unacknowledged[];
}

export async function lookAtReaders(
  { pool, log }: { readonly pool: Pool; readonly log?: Log | undefined },
  { erasureId, community, seq, at, mayWait }: Announced,
  now: number,
): Promise<Readers> {
  const behind = await followersBehind(pool, community, seq);
  const { awaited, overrun } = judgeFollowers(behind, { neededSeq: seq, announcedAt: at });
  if (mayWait && awaited.some(({ until }) => until > now))
    return { mayGoOn: false, waits: awaited, unacknowledged: [] };
  if (mayWait && now - at < STREAM_WAIT_MS && (await hasStreamBehind(pool, community, seq, now)))
    return { mayGoOn: false, waits: [], unacknowledged: [] };
  const late = awaited.map(({ until: _until, ...follower }) => follower);
  const missed = [...overrun, ...late];
  if (missed.length === 0) return { mayGoOn: true, waits: [], unacknowledged: [] };
  // Before anything is scrubbed: a follower that comes back later must rebuild. One that has acknowledged at
  // the last moment is not among them.
  const names = missed.map(({ name }) => name);
  const without = await overrunFollowers(pool, community, names, seq, now);
  const unacknowledged = missed.filter(({ name }) => without.has(name));
  for (const follower of unacknowledged)
    log?.warn(
      { erasure: erasureId, ...follower },
      'a follower of the outbox has not acknowledged the deletes of an erasure, which goes on without it',
    );
  return { mayGoOn: true, waits: [], unacknowledged };
}
