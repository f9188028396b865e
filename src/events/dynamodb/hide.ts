/**
 * Takes events out of the view for jobs, moderation and erasure, one conditional write each: whoever else has
 * hidden or deleted the event in the meantime was first, and it is not counted. A batch that fails half-way
 * has hidden what it has hidden; the caller runs it again for the rest.
 */
import type { Pool } from 'pg';
import { isDenial } from '../../api/rules-errors.js';
import type { Settings } from '../../communities/rules-settings.js';
import { BEGIN_BRIEFLY, inTransaction } from '../../postgres/transaction.js';
import { topicsOf } from '../../topics/rules.js';
import { deletionTargets } from '../rules/deletion.js';
import { factKey } from '../rules/facts.js';
import { eventSince, type Retention, surelySince } from '../rules/retention.js';
import type { EventRef, Hiding, Ordered, SweepOf, Swept } from '../store.js';
import { type Dynamodb, eachOf } from './client.js';
import { hiding, removal, tidy } from './commit.js';
import { tombstoneKeyOf } from './facts.js';
import { type EventItem, eventOf, isServedItem } from './items.js';
import { partitions, timeKey, timeOf } from './keys.js';
import { itemsByRef, page, removable, type Selecting, selectItems } from './selections.js';

const AT_ONCE = 16;
/** Events that one step of the sweep reads in each partition. */
const SWEEP_ROWS = 100;

export interface HideOptions extends Selecting {
  readonly pool: Pool;
  readonly now: () => number;
  readonly settingsOf: (community: number) => Settings;
  readonly onHidden?: ((reason: string, count: number) => void) | undefined;
  readonly onGone?: ((community: number, id: string) => void) | undefined;
}

type How = Omit<Hiding, 'which'>;

export async function hideEvents(options: HideOptions, { which, ...how }: Hiding): Promise<number> {
  const now = options.now();
  if ('due' in which) return hideOrdered(options, which, how, now);
  const items = await selectItems(options, which, now);
  if (which.by === 'requests') for (const item of items) await removeTombstones(options.db, item);
  return (await hideItems(options, items, how, now)).size;
}

/**
 * The tombstones of a deletion request. One that a later request has renewed names that request, and stays.
 * They are deleted before the request: a request that is found again has none left.
 */
async function removeTombstones(db: Dynamodb, item: EventItem): Promise<void> {
  const request = eventOf(item);
  await eachOf(deletionTargets(request), AT_ONCE, (target) =>
    db.change({
      table: 'state',
      remove: tombstoneKeyOf(item.community, target, request.pubkey),
      if: { text: 'request_id = :id', values: { ':id': request.id } },
    }),
  );
}

/** The orders are noted after the events are hidden. After a crash in between they are found hidden. */
async function hideOrdered(
  options: HideOptions,
  orders: Ordered<boolean>,
  how: How,
  now: number,
): Promise<number> {
  const hidden = await inTransaction(options.pool, BEGIN_BRIEFLY, async (tx) => {
    const refs = await orders.due(tx, now);
    const items = await itemsByRef(options.db, refs);
    const taken = await hideItems(options, [...items.values()].filter(removable), how, now);
    const keyOf = ({ community, id }: EventRef) => factKey(community, id);
    // Hidden by an earlier run that could not note it.
    const isDone = (ref: EventRef) =>
      taken.has(keyOf(ref)) || items.get(keyOf(ref))?.hidden_as === how.hidden;
    await orders.note(tx, refs.map(isDone), now);
    return taken.size;
  });
  if (isDenial(hidden)) throw new Error('an order was denied');
  return hidden;
}

/** Those that this call has hidden, by `factKey`. */
async function hideItems(
  options: HideOptions,
  items: readonly EventItem[],
  how: How,
  now: number,
): Promise<Set<string>> {
  const taken = new Set<string>();
  try {
    await eachOf(items, AT_ONCE, async (item) => {
      if (await hideItem(options, item, how, now)) taken.add(factKey(item.community, item.event_id));
    });
  } finally {
    options.onHidden?.(how.hidden, taken.size);
  }
  return taken;
}

async function hideItem(
  { db, settingsOf, onGone }: HideOptions,
  item: EventItem,
  { hidden, purge, forget = false }: How,
  now: number,
): Promise<boolean> {
  const settings = settingsOf(item.community);
  const { before, change, after } = hiding(item, { hidden, purge, settings, now });
  await db.write(before);
  if (!(await db.change(change))) return false;
  onGone?.(item.community, item.event_id);
  await tidy(db, after);
  if (forget) await forgetItem(db, { ...item, hidden_as: hidden });
  return true;
}

/** The change before it has announced the reason; now the id is deleted too, with its last entry. */
async function forgetItem(db: Dynamodb, item: EventItem): Promise<void> {
  const { payload: _, ...bare } = item;
  const { change, after } = removal(bare as EventItem);
  if (await db.change(change)) await db.write(after);
}

// ── Retention ──────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Regular events past the days of their topics, in the order in which they came in. A position is a time in
 * milliseconds: everything that came in up to it was looked at.
 */
export async function sweepStep(options: HideOptions, step: SweepOf): Promise<Swept> {
  const now = options.now();
  const { aged, next } = await agedItems(options.db, step, now);
  const hidden = await hideItems(options, aged, { hidden: 'retention', purge: true }, now);
  return { hidden: hidden.size, moved: 0, next };
}

/** The events that one step of the sweep takes, and where the next one begins. */
export async function agedItems(
  db: Dynamodb,
  { after, rules }: SweepOf,
  now: number,
): Promise<{ readonly aged: readonly EventItem[]; readonly next: number | undefined }> {
  const pages = await Promise.all(
    [...rules].flatMap(([community, retention]) =>
      partitions.ingested(community).map((pk) => oldest(db, { pk, community, retention, after, now })),
    ),
  );
  // A partition with more rows bounds the step: the next one begins where it stopped.
  const reached = Math.min(...pages.flatMap(({ upTo }) => upTo ?? []), Number.POSITIVE_INFINITY);
  const refs = pages.flatMap(({ refs }) => refs.filter(({ time }) => time <= reached));
  const items = await itemsByRef(db, refs);
  const aged = [...items.values()].filter((item) => {
    if (!isServedItem(item)) return false;
    const retention = rules.get(item.community)!;
    return item.ingested_at < eventSince(retention, topicsOf(eventOf(item)), now);
  });
  return { aged, next: Number.isFinite(reached) ? reached : undefined };
}

interface OldestOf {
  readonly pk: string;
  readonly community: number;
  readonly retention: Retention;
  readonly after: number;
  readonly now: number;
}

async function oldest(
  db: Dynamodb,
  { pk, community, retention, after, now }: OldestOf,
): Promise<{ readonly refs: (EventRef & { readonly time: number })[]; readonly upTo: number | undefined }> {
  const until = surelySince(retention, now) - 1;
  if (until <= after) return { refs: [], upTo: undefined };
  const range = { from: timeKey(after + 1, ''), to: timeKey(until, '~') };
  const { entries, more } = await page(db, pk, { ...range, limit: SWEEP_ROWS });
  const places = entries.map(({ sk }) => timeOf(sk));
  const last = places.at(-1);
  if (!more || last === undefined)
    return { refs: places.map((place) => ({ ...place, community })), upTo: undefined };
  // All rows of a millisecond belong to one step.
  const rest = await page(db, pk, {
    from: timeKey(last.time, last.id),
    to: timeKey(last.time, '~'),
    limit: SWEEP_ROWS * 100,
  });
  const all = [...places, ...rest.entries.map(({ sk }) => timeOf(sk))];
  return { refs: all.map((place) => ({ ...place, community })), upTo: last.time };
}
