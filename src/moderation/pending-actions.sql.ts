/**
 * Pending actions: rows of `moderation_actions` without `done_at`. Removals and restorations are carried out
 * in the lane, which notes the outcome of each in the same transaction, under its lock. So an action takes
 * effect once, whichever process is first, and never after a later action on the same event.
 */
import type { ClientBase } from 'pg';
import type { Decision } from '../events/rules/decide.js';
import { factKey } from '../events/rules/facts.js';
import type { EventRef } from '../events/store.js';
import type { StoredEvents } from '../events/stored-events.js';
import { hexArray, int8Array, textArray } from '../postgres/binary.js';
import { bytes, type Db } from '../postgres/values.js';

export interface PendingAction extends EventRef {
  readonly position: number;
  readonly action: 'remove' | 'restore' | 'label';
}

const PENDING = `SELECT position, action, community, encode(target_event, 'hex') AS id FROM moderation_actions
  WHERE done_at IS NULL`;
const FOR_THE_LANE = `AND action <> 'label'`;

/** The oldest first. With `about` only the removals and restorations of that event. */
export async function readPendingActions(db: Db, limit: number, about?: EventRef): Promise<PendingAction[]> {
  const { rows } =
    about === undefined
      ? await db.query<PendingAction>(`${PENDING} ORDER BY position LIMIT $1`, [limit])
      : await db.query<PendingAction>(
          `${PENDING} ${FOR_THE_LANE} AND community = $2 AND target_event = $3 ORDER BY position LIMIT $1`,
          [limit, about.community, bytes(about.id)],
        );
  return rows;
}

/**
 * Those that no other process has carried out meanwhile. Where events are not in the database, there is no
 * lane: then the rows are locked, so that others wait until the outcome is noted.
 */
export async function stillPending(
  client: ClientBase,
  { inDatabase }: StoredEvents,
  actions: readonly PendingAction[],
): Promise<PendingAction[]> {
  const { rows } = await client.query<PendingAction>({
    text: `${PENDING} ${FOR_THE_LANE} AND position = ANY ($1::bigint[]) ORDER BY position
      ${inDatabase ? '' : 'FOR UPDATE'}`,
    values: [int8Array(actions.map(({ position }) => position))],
  });
  return rows;
}

async function noteOutcomes(
  client: ClientBase,
  actions: readonly PendingAction[],
  outcomes: readonly string[],
  now: number,
): Promise<void> {
  await client.query({
    text: `UPDATE moderation_actions a SET done_at = $3, outcome = o.outcome
      FROM unnest($1::bigint[], $2::text[]) AS o (position, outcome) WHERE a.position = o.position
        AND a.done_at IS NULL`,
    values: [int8Array(actions.map(({ position }) => position)), textArray(outcomes), now],
  });
}

const keyOf = ({ community, id }: EventRef) => factKey(community, id);

/** Notes the outcome of removals. `removed`: whether the lane took the event out of the view. */
export async function noteRemoved(
  client: ClientBase,
  events: StoredEvents,
  actions: readonly PendingAction[],
  removed: readonly boolean[],
  now: number,
): Promise<void> {
  const states = await statesOf(client, events, actions);
  const outcomes = actions.map((one, place) => {
    if (removed[place]) return 'removed';
    const state = states.get(keyOf(one));
    // Still served: it is a request to delete or to vanish, which nobody can remove.
    return state === 'served' ? 'protected' : (state ?? 'unknown');
  });
  await noteOutcomes(client, actions, outcomes, now);
}

/** Notes the outcome of restorations. */
export async function noteRestored(
  client: ClientBase,
  events: StoredEvents,
  actions: readonly PendingAction[],
  restored: readonly (Decision | 'unknown')[],
  now: number,
): Promise<void> {
  const states = await statesOf(client, events, actions);
  const outcomes = actions.map((one, place) => {
    const outcome = restored[place]!;
    if (outcome === 'stored') return 'restored';
    // It was not removed: it is served already, or something else hides it.
    return outcome === 'unknown' ? (states.get(keyOf(one)) ?? 'unknown') : outcome;
  });
  await noteOutcomes(client, actions, outcomes, now);
}

/**
 * Why each event is hidden: `served` for one that is not, `purged` for one whose row was purged, and no entry
 * for one that never arrived.
 */
async function statesOf(
  client: ClientBase,
  events: StoredEvents,
  refs: readonly EventRef[],
): Promise<Map<string, string>> {
  const known = await events.known(client, refs);
  return new Map(
    [...known].map(([key, { hidden, isPurged }]) => {
      if (hidden === undefined) return [key, 'served'];
      return [key, hidden === 'removed' && isPurged ? 'purged' : hidden];
    }),
  );
}

/**
 * Removed events that are not purged yet, for a store that cannot join these tables: those that a case holds,
 * and those that were removed after a time, in milliseconds.
 */
export async function keptRemovals(
  db: Db,
  community: number,
  ids: readonly string[],
  removedBefore: number,
): Promise<Set<string>> {
  if (ids.length === 0) return new Set();
  const { rows } = await db.query<{ id: string }>(
    `SELECT encode(target_event, 'hex') AS id FROM moderation_cases
       WHERE community = $1 AND target_event = ANY ($2::bytea[]) AND status = 'held'
     UNION SELECT encode(target_event, 'hex') FROM moderation_actions
       WHERE community = $1 AND target_event = ANY ($2::bytea[]) AND action = 'remove' AND at > $3`,
    [community, hexArray(ids), removedBefore],
  );
  return new Set(rows.map(({ id }) => id));
}
