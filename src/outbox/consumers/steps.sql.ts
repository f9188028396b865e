/**
 * What operators do to a consumer of the outbox, each with its audit row in the same transaction. A step
 * without effect, such as pausing a paused consumer, writes no audit row.
 */
import type { Pool } from 'pg';
import { type Denial, denial, isDenial } from '../../api/rules-errors.js';
import { type Change, changeConfig, type Scope } from '../../communities/config-change.sql.js';
import {
  askRetry,
  type ConsumerState,
  pauseConsumer,
  readConsumer,
  replayFrom,
  resumeConsumer,
} from './admin.sql.js';
import { askRebuild } from './consumers.sql.js';

export interface Steered extends Scope {
  readonly consumer: string;
}

type Work<T> = (change: Change, state: ConsumerState) => Promise<T | Denial>;

/** Runs the work in a transaction if the consumer exists. */
function steer<T>(pool: Pool, { consumer, ...scope }: Steered, work: Work<T>): Promise<T | Denial> {
  return changeConfig(pool, scope, async (change) => {
    const state = await readConsumer(change.db, consumer, scope.now);
    return isDenial(state) ? state : work(change, state);
  });
}

export function pause(pool: Pool, steered: Steered): Promise<ConsumerState | Denial> {
  return steer(pool, steered, async (change, { consumer, pausedAt }) => {
    if (pausedAt === null) {
      await pauseConsumer(change.db, consumer, change.now);
      await change.audit('consumer.pause', consumer);
    }
    return readConsumer(change.db, consumer, change.now);
  });
}

export function resume(pool: Pool, steered: Steered): Promise<ConsumerState | Denial> {
  return steer(pool, steered, async (change, { consumer, pausedAt }) => {
    if (pausedAt !== null) {
      await resumeConsumer(change.db, consumer);
      await change.audit('consumer.resume', consumer);
    }
    return readConsumer(change.db, consumer, change.now);
  });
}

/** Applies the row of this offset and all after it again. */
export function replay(pool: Pool, steered: Steered, from: number): Promise<ConsumerState | Denial> {
  return steer(pool, steered, async (change, { consumer, lastSeq }) => {
    const refused = await replayFrom(change.db, consumer, from - 1);
    if (refused !== undefined) return inclusive(refused);
    await change.audit('consumer.replay', consumer, { from, was_at: lastSeq });
    return readConsumer(change.db, consumer, change.now);
  });
}

/** Converts the limits to those of `from`, which is one more than the offset that it is moved to. */
function inclusive({ denied, details = {} }: Denial): Denial {
  const moved = Object.entries(details).map(([name, seq]) => [name, Number(seq) + 1]);
  return denial(denied, Object.fromEntries(moved));
}

/** A running rebuild continues unchanged. */
export function rebuild(pool: Pool, steered: Steered, reason: string): Promise<ConsumerState | Denial> {
  return steer(pool, steered, async (change, { consumer }) => {
    if (await askRebuild(change.db, consumer, reason, change.now))
      await change.audit('consumer.rebuild', consumer, { reason });
    return readConsumer(change.db, consumer, change.now);
  });
}

/** Requests a retry of the dead letter of an offset, or of all. Returns how many. */
export function retry(
  pool: Pool,
  steered: Steered,
  seq: number | undefined,
): Promise<{ readonly asked: number } | Denial> {
  return steer(pool, steered, async (change, { consumer }) => {
    const asked = await askRetry(change.db, consumer, seq === undefined ? {} : { seq });
    if (asked === 0 && seq !== undefined) return denial('NOT_FOUND', { seq });
    if (asked > 0) await change.audit('consumer.retry', consumer, { seq: seq ?? null, letters: asked });
    return { asked };
  });
}
