/**
 * Carries out pending actions: removing and restoring go through the lane, labels are written here. Any
 * process may call it, at any time and any number of times: each action takes effect once
 * (pending-actions.sql.ts).
 */
import type { Pool } from 'pg';
import type { EventRef, EventStore, Ordered } from '../events/store.js';
import type { StoredEvents } from '../events/stored-events.js';
import type { ControlTx } from '../postgres/transaction.js';
import { putPendingLabels } from './arrival/pending-labels.sql.js';
import {
  noteRemoved,
  noteRestored,
  type PendingAction,
  readPendingActions,
  stillPending,
} from './pending-actions.sql.js';

/** Actions in one transaction of the lane. */
const ACTIONS_MAX = 100;

export interface CarryOutContext {
  readonly store: Pick<EventStore, 'hide' | 'restore' | 'stored'>;
  readonly pool: Pool;
  readonly now: () => number;
}

/**
 * With `about` the removals and restorations of that event, otherwise all pending actions. Returns true when
 * there may be more.
 */
export async function carryOut({ store, pool, now }: CarryOutContext, about?: EventRef): Promise<boolean> {
  const pending = await readPendingActions(pool, ACTIONS_MAX, about);
  for (const run of runsOf(pending)) {
    const { action } = run[0]!;
    if (action === 'remove') await removeAll(store, run);
    if (action === 'restore') await restoreAll(store, run);
    if (action === 'label') await putPendingLabels(pool, store.stored, now());
  }
  return pending.length === ACTIONS_MAX;
}

/** Keeps the order, and groups neighbours that do the same. */
function runsOf(actions: readonly PendingAction[]): PendingAction[][] {
  const runs: PendingAction[][] = [];
  for (const one of actions) {
    const last = runs.at(-1);
    if (last?.[0]?.action === one.action) last.push(one);
    else runs.push([one]);
  }
  return runs;
}

async function removeAll(store: CarryOutContext['store'], actions: readonly PendingAction[]): Promise<void> {
  await store.hide({ hidden: 'removed', purge: false, which: whilePending(store, actions, noteRemoved) });
}

async function restoreAll(store: CarryOutContext['store'], actions: readonly PendingAction[]): Promise<void> {
  await store.restore(whilePending(store, actions, noteRestored));
}

/** The actions that nobody else has carried out yet, and how the lane's result of each is noted. */
function whilePending<T>(
  { stored }: CarryOutContext['store'],
  actions: readonly PendingAction[],
  note: Note<T>,
): Ordered<T> {
  let taken: readonly PendingAction[] = [];
  return {
    due: async (tx) => {
      taken = await stillPending(tx, stored, actions);
      return taken;
    },
    note: (tx, results, now) => note(tx, stored, taken, results, now),
  };
}

type Note<T> = (
  tx: ControlTx,
  stored: StoredEvents,
  taken: readonly PendingAction[],
  results: readonly T[],
  now: number,
) => Promise<void>;
