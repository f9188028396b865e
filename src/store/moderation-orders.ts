/**
 * Orders: actions that change the view. They are carried out in the lane, and what became of each is noted in the same transaction, under
 * its lock: so an order is carried out once, whoever comes first, and never after a later one about the same event.
 */
import type { ClientBase } from 'pg';
import type { Decision } from '../core/decide.js';
import { hiddenOf } from '../core/hidden.js';
import type { StoredEvent } from '../core/plan.js';
import { hexArray, int4Array, int8Array, textArray } from './binary.js';
import { bytes, type Db } from './config-change.js';
import { type EventRef, selectRemovable } from './restore.js';

export interface Order extends EventRef {
  readonly position: number;
  readonly action: 'remove' | 'restore';
}

const DUE = `SELECT position, action, community, encode(target_event, 'hex') AS id FROM moderation_actions
  WHERE done_at IS NULL`;

/** In the order in which they were given; all, or those about one event. */
export async function dueOrders(db: Db, limit: number, about?: EventRef): Promise<Order[]> {
  const { rows } =
    about === undefined
      ? await db.query<Order>(`${DUE} ORDER BY position LIMIT $1`, [limit])
      : await db.query<Order>(`${DUE} AND community = $2 AND target_event = $3 ORDER BY position LIMIT $1`, [
          limit,
          about.community,
          bytes(about.id),
        ]);
  return rows;
}

/** Those that nobody has carried out meanwhile. */
export async function stillDue(client: ClientBase, orders: readonly Order[]): Promise<Order[]> {
  const { rows } = await client.query<Order>({
    text: `${DUE} AND position = ANY ($1::bigint[]) ORDER BY position`,
    values: [int8Array(orders.map(({ position }) => position))],
  });
  return rows;
}

async function noteOutcomes(
  client: ClientBase,
  orders: readonly Order[],
  outcomes: readonly string[],
  now: number,
): Promise<void> {
  await client.query({
    text: `UPDATE moderation_actions a SET done_at = $3, outcome = o.outcome
      FROM unnest($1::bigint[], $2::text[]) AS o (position, outcome) WHERE a.position = o.position AND a.done_at IS NULL`,
    values: [int8Array(orders.map(({ position }) => position)), textArray(outcomes), now],
  });
}

const keyOf = ({ community, id }: EventRef) => `${community}/${id}`;
const distinct = (orders: readonly Order[]) => [
  ...new Map(orders.map((order) => [keyOf(order), order])).values(),
];

/** What is to leave the view by these orders. In the lane. */
export async function takeRemovals(
  client: ClientBase,
  given: readonly Order[],
  now: number,
): Promise<(StoredEvent & { readonly community: number })[]> {
  const orders = await stillDue(client, given);
  const rows = await selectRemovable(client, distinct(orders));
  const taken = new Set(rows.map(({ community, event: { id } }) => keyOf({ community, id })));
  const states = await statesOf(client, orders);
  const outcomes = orders.map((order) => {
    if (taken.has(keyOf(order))) return 'removed';
    const state = states.get(keyOf(order));
    // Served, and not taken: a request to delete or to vanish.
    return state === 'served' ? 'protected' : (state ?? 'unknown');
  });
  await noteOutcomes(client, orders, outcomes, now);
  return rows;
}

/** What became of restoring them. In the lane. */
export async function noteRestored(
  client: ClientBase,
  orders: readonly Order[],
  restored: readonly (Decision | 'unknown')[],
  now: number,
): Promise<void> {
  const states = await statesOf(client, orders);
  const outcomes = orders.map((order, place) => {
    const outcome = restored[place]!;
    if (outcome === 'stored') return 'restored';
    // It was not removed: by now it is served, or something else keeps it away.
    return outcome === 'unknown' ? (states.get(keyOf(order)) ?? 'unknown') : outcome;
  });
  await noteOutcomes(client, orders, outcomes, now);
}

/** Why each is not served; `served` where it is, `purged` where it cannot be any more, and nothing where it never came. */
async function statesOf(client: ClientBase, refs: readonly EventRef[]): Promise<Map<string, string>> {
  const { rows } = await client.query<EventRef & { hidden: number | null; gone: boolean }>({
    text: `SELECT d.community, encode(d.event_id, 'hex') AS id, d.hidden, d.gone_at IS NOT NULL AS gone
      FROM unnest($1::int[], $2::bytea[]) AS asked (community, event_id) JOIN event_dedupe d USING (community, event_id)`,
    values: [int4Array(refs.map(({ community }) => community)), hexArray(refs.map(({ id }) => id))],
  });
  return new Map(
    rows.map((row) => {
      const state = row.hidden === null ? 'served' : hiddenOf(row.hidden);
      return [keyOf(row), state === 'removed' && row.gone ? 'purged' : state];
    }),
  );
}
