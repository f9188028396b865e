/**
 * Carries out what moderators and rules have ordered: out of the view, or back into it, through the lane. Anybody may do it, at any time,
 * as often as they like: each order has an effect once (store/moderation-orders.ts).
 */
import type { Pool } from 'pg';
import type { Lane } from './lane.js';
import { dueOrders, noteRestored, type Order, stillDue, takeRemovals } from './store/moderation-orders.js';
import type { EventRef } from './store/restore.js';

/** At most so many in one transaction of the lane. */
const ORDERS_MAX = 100;

export interface OrderContext {
  readonly lane: Pick<Lane, 'hide' | 'restore'>;
  readonly pool: Pool;
}

/** Those about one event, or all that are due; true when there may be more. */
export async function carryOut({ lane, pool }: OrderContext, about?: EventRef): Promise<boolean> {
  const due = await dueOrders(pool, ORDERS_MAX, about);
  for (const run of runsOf(due)) {
    if (run[0]!.action === 'remove') await removeAll(lane, run);
    else await restoreAll(lane, run);
  }
  return due.length === ORDERS_MAX;
}

/** As they were given, neighbours of one kind together. */
function runsOf(orders: readonly Order[]): Order[][] {
  const runs: Order[][] = [];
  for (const order of orders) {
    const last = runs.at(-1);
    if (last?.[0]?.action === order.action) last.push(order);
    else runs.push([order]);
  }
  return runs;
}

async function removeAll(lane: OrderContext['lane'], orders: readonly Order[]): Promise<void> {
  await lane.hide({
    hidden: 'removed',
    purge: false,
    select: (client, now) => takeRemovals(client, orders, now),
  });
}

async function restoreAll(lane: OrderContext['lane'], orders: readonly Order[]): Promise<void> {
  let taken: readonly Order[] = [];
  await lane.restore({
    select: async (client) => {
      taken = await stillDue(client, orders);
      return taken;
    },
    note: (client, restored, now) => noteRestored(client, taken, restored, now),
  });
}
