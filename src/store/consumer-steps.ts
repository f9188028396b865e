/** What operators do to a consumer of the outbox, each with its audit row in the same transaction. What is so already is left so. */
import type { Pool } from 'pg';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { type Change, changeConfig, type Scope } from './config-change.js';
import {
  askRetry,
  type ConsumerState,
  pauseConsumer,
  readConsumer,
  replayFrom,
  resumeConsumer,
} from './consumer-admin.js';
import { askRebuild } from './consumers.js';

export interface Steered extends Scope {
  readonly consumer: string;
}

type Work<T> = (change: Change, state: ConsumerState) => Promise<T | Denial>;

/** The consumer afterwards, unless the work has something else to tell. */
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

/** Applies the row of this number and all after it again. */
export function replay(pool: Pool, steered: Steered, from: number): Promise<ConsumerState | Denial> {
  return steer(pool, steered, async (change, { consumer, lastSeq }) => {
    const refused = await replayFrom(change.db, consumer, from - 1);
    if (refused !== undefined) return inclusive(refused);
    await change.audit('consumer.replay', consumer, { from, was_at: lastSeq });
    return readConsumer(change.db, consumer, change.now);
  });
}

/** The bounds of `from` itself, which is the number after the one that it goes back to. */
function inclusive({ denied, details = {} }: Denial): Denial {
  const moved = Object.entries(details).map(([name, seq]) => [name, Number(seq) + 1]);
  return denial(denied, Object.fromEntries(moved));
}

/** One that is under way goes on as it is. */
export function rebuild(pool: Pool, steered: Steered, reason: string): Promise<ConsumerState | Denial> {
  return steer(pool, steered, async (change, { consumer }) => {
    if (await askRebuild(change.db, consumer, reason, change.now))
      await change.audit('consumer.rebuild', consumer, { reason });
    return readConsumer(change.db, consumer, change.now);
  });
}

/** Asks for the letter of a number, or for all of them, to be tried again. Gives how many. */
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
