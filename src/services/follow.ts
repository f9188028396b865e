/** The live generation's way along the outbox, and what of it is taken up again for the operator. */
import type { Client, ClientBase } from 'pg';
import { UNBOUND } from '../core/topic.js';
import { type Change, readChanges, readView, withPayloads } from '../store/changes.js';
import {
  askedLetters,
  type DeadLetter,
  dropLetter,
  holdTurn,
  park,
  saveProgress,
  type Turn,
} from '../store/consumers.js';
import { type Batches, type Course, failureOf, type Page } from './batches.js';
import { Overtaken } from './failures.js';

export const FOLLOW_ROWS_MAX = 500;
const LETTERS_AT_ONCE = 20;

export interface Follower {
  readonly consumer: string;
  readonly holder: string;
  readonly now: () => number;
  /** How fast it is, with so many more rows. */
  readonly rate: (rows: number) => number;
  /** So many rows are applied and committed. */
  readonly onPassed: (rows: number) => void;
}

export function liveCourse({ consumer, holder, now, rate, onPassed }: Follower, turn: Turn): Course {
  let from = turn.lastSeq;
  const { generation } = turn;
  return {
    generation,
    rowsMax: FOLLOW_ROWS_MAX,
    get from() {
      return from;
    },
    read: (tx, limit) => readOn(tx, from, limit),
    save: (tx, { changes, upTo }) => {
      const rows = changes.length;
      const progress = { rows, rowsPerSecond: rate(rows), now: now() };
      return saveProgress(tx, { consumer, holder, generation, from, to: upTo, ...progress });
    },
    passed: ({ upTo, changes }) => {
      from = upTo;
      onPassed(changes.length);
    },
  };
}

/** The rows only: their events are read slice by slice. */
export async function readOn(tx: ClientBase, after: number, limit: number): Promise<Page> {
  const { changes, upTo } = await readChanges(tx, { after, limit, bare: true });
  return { changes, upTo, full: changes.length === limit };
}

// ── What was parked ───────────────────────────────────────────────────────────────────────────────────────────────

/** Tries the letters that the operator asked for, each once. True when there may be more. */
export async function retryLetters(
  batches: Batches,
  { consumer, holder, now }: Follower,
  generation: number,
): Promise<boolean> {
  const asked = await askedLetters(await batches.session(), consumer, generation, LETTERS_AT_ONCE);
  const keep = async (tx: Client): Promise<void> => {
    if (!(await holdTurn(tx, consumer, holder))) throw new Overtaken();
  };
  for (const letter of asked) {
    const settled = batches.transact(async (tx) => {
      await batches.apply(await asItIsNow(tx, letter), tx, generation);
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

/** What a letter comes to today: its event, if that number still made it effective, or that it is gone. */
async function asItIsNow(tx: ClientBase, letter: DeadLetter): Promise<Change[]> {
  const { seq, community } = letter;
  const effective = await readView(tx, { after: seq - 1, upTo: seq, limit: 1, community });
  if (effective.length > 0) return effective;
  const [sought] = await withPayloads(tx, [{ ...asDelete(letter), op: 'upsert' }]);
  // Accepted anew since then: that upsert has a number of its own.
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
