/** Follows the outbox with the live generation, and retries dead letters on request of the operator. */
import type { Client, ClientBase } from 'pg';
import { UNBOUND } from '../../topics/rules.js';
import { type Change, type ChangedEvents, readChanges } from '../changes.sql.js';
import { type Batches, type Course, failureOf, type Page } from './batches.js';
import {
  askedLetters,
  type DeadLetter,
  dropLetter,
  holdLease,
  type Lease,
  park,
  saveProgress,
} from './consumers.sql.js';
import { Overtaken } from './failures.js';
import type { RecentChanges } from './recent-changes.js';

export const FOLLOW_ROWS_MAX = 500;
/** While an erasure waits for it: its many deletes are without events, so a page of them is small. */
const AWAITED_ROWS_MAX = 2_000;
const LETTERS_AT_ONCE = 20;

export interface Follower {
  readonly consumer: string;
  readonly holder: string;
  readonly now: () => number;
  /** Adds rows and returns the current rows per second. */
  readonly rate: (rows: number) => number;
  /** The changes that this process has committed. */
  readonly recent: RecentChanges | undefined;
  /** Called with the number of rows that were applied and committed. */
  readonly onPassed: (rows: number) => void;
}

export function liveCourse(follower: Follower, lease: Lease, isAwaited = false): Course {
  const { consumer, holder, now, rate, recent, onPassed } = follower;
  let from = lease.lastSeq;
  const { generation } = lease;
  return {
    generation,
    rowsMax: isAwaited ? AWAITED_ROWS_MAX : FOLLOW_ROWS_MAX,
    get from() {
      return from;
    },
    read: async (tx, limit) => (await recent?.page(tx, from, limit)) ?? readOn(tx, from, limit),
    save: (tx, { changes, upTo }) => {
      const rows = changes.length;
      const progress = { rows, rowsPerSecond: rate(rows), now: now() };
      return saveProgress(tx, { consumer, holder, generation, from, to: upTo, ...progress });
    },
    passed: ({ upTo, changes }) => {
      from = upTo;
      recent?.passed(consumer, from);
      onPassed(changes.length);
    },
  };
}

/** Reads only the rows: their events are read per slice. */
export async function readOn(tx: ClientBase, after: number, limit: number): Promise<Page> {
  const { changes, upTo } = await readChanges(tx, { after, limit, bare: true });
  return { changes, upTo, full: changes.length === limit, isWhole: false };
}

// ── Dead letters ───────────────────────────────────────────────────────────────────────────────────────────

/** Retries the dead letters that the operator has requested, each once. True if there may be more. */
export async function retryLetters(
  batches: Batches,
  { consumer, holder, now }: Follower,
  generation: number,
): Promise<boolean> {
  const asked = await askedLetters(await batches.session(), consumer, generation, LETTERS_AT_ONCE);
  const keep = async (tx: Client): Promise<void> => {
    if (!(await holdLease(tx, consumer, holder))) throw new Overtaken();
  };
  for (const letter of asked) {
    const settled = batches.transact(async (tx) => {
      await batches.apply(
        { changes: await asItIsNow(batches.events, tx, letter), isWhole: true },
        tx,
        generation,
      );
      await dropLetter(tx, consumer, letter);
      await keep(tx);
    });
    const error = await failureOf(settled);
    if (error === undefined) continue;
    await batches.transact(async (tx) => {
      await park(tx, consumer, generation, asDelete(letter), { attempts: 1, error, now: now() });
      await keep(tx);
    });
  }
  return asked.length === LETTERS_AT_ONCE;
}

/** A dead letter as of now: its event if the row of that offset is still effective, otherwise a delete. */
async function asItIsNow(events: ChangedEvents, tx: ClientBase, letter: DeadLetter): Promise<Change[]> {
  const effective = await events.at(tx, asDelete(letter));
  if (effective.length > 0) return [...effective];
  const [sought] = await events.withPayloads(tx, [{ ...asDelete(letter), op: 'upsert' }]);
  // It was accepted again since then: that upsert has an offset of its own.
  return sought?.payload === undefined ? [asDelete(letter)] : [];
}

function asDelete(letter: DeadLetter): Change {
  const { seq, community, id, author, kind, createdAt, ingestedAt, topics, effectiveKey, reason } = letter;
  return {
    seq,
    community,
    op: 'delete',
    reason: reason ?? 'retention',
    id,
    author,
    kind,
    createdAt,
    ingestedAt,
    topics,
    effectiveKey: effectiveKey ?? undefined,
    payload: undefined,
    bound: UNBOUND,
  };
}
