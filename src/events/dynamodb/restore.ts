/**
 * Restores events that a moderator removed. Each is decided again as if it had just arrived, and its item is
 * replaced in the transaction of that decision. So every rule applies again (I4, I5, I6).
 */
import { isDenial } from '../../api/rules-errors.js';
import { BEGIN_BRIEFLY, inTransaction } from '../../postgres/transaction.js';
import { topicsOf } from '../../topics/rules.js';
import { decideBatch } from '../rules/batch/batch.js';
import { factKey, type Submission } from '../rules/facts.js';
import { ages, eventSince } from '../rules/retention.js';
import type { EventRef, Ordered, Restored } from '../store.js';
import { Conflict, eachOf } from './client.js';
import { commitHead, commitRow, IS_REMOVED, removeAll, tidy } from './commit.js';
import { readFacts } from './facts.js';
import { type EventItem, eventOf, hiddenEntries } from './items.js';
import { itemsByRef } from './selections.js';
import type { SubmitOptions } from './submit.js';

const AT_ONCE = 8;
const CONFLICTS_MAX = 12;

export async function restoreEvents(
  options: SubmitOptions,
  which: readonly EventRef[] | Ordered<Restored>,
): Promise<Restored[]> {
  if (!('due' in which)) return restoreRefs(options, which);
  const restored = await inTransaction(options.pool, BEGIN_BRIEFLY, async (tx) => {
    const refs = await which.due(tx, options.now());
    const results = await restoreRefs(options, refs);
    await which.note(tx, results, options.now());
    return results;
  });
  if (isDenial(restored)) throw new Error('an order was denied');
  return restored;
}

async function restoreRefs(options: SubmitOptions, refs: readonly EventRef[]): Promise<Restored[]> {
  const results = new Map<string, Restored>();
  const keyOf = ({ community, id }: EventRef) => factKey(community, id);
  const unique = new Map(refs.map((ref) => [keyOf(ref), ref]));
  await eachOf([...unique.values()], AT_ONCE, async (ref) => {
    results.set(keyOf(ref), await restoreOne(options, ref));
  });
  return refs.map((ref) => results.get(keyOf(ref))!);
}

async function restoreOne(options: SubmitOptions, ref: EventRef): Promise<Restored> {
  for (let attempt = 1; ; attempt += 1) {
    const item = (await itemsByRef(options.db, [ref])).get(factKey(ref.community, ref.id));
    if (item?.hidden_as !== 'removed' || item.payload === undefined) return 'unknown';
    try {
      return await decideAgain(options, item);
    } catch (error) {
      if (!(error instanceof Conflict) || attempt === CONFLICTS_MAX) throw error;
    }
  }
}

async function decideAgain(options: SubmitOptions, item: EventItem): Promise<Restored> {
  const { db, settingsOf, recent, people } = options;
  const now = options.now();
  const { community, payload } = item;
  const event = eventOf(item);
  const submission: Submission = { community, event, payload: payload! };
  const read = await readFacts(db, submission, options, now);
  const retention = read.facts.retention!.get(community)!;
  // A sweep would have purged it in the meantime.
  if (ages(event.kind) && item.ingested_at < eventSince(retention, topicsOf(event), now)) return 'gone';
  const writes = decideBatch([submission], { ...read.facts, known: new Map() }, now);
  const commit = { writes, read, settings: settingsOf(community), now };
  const [row] = writes.rows;
  if (row !== undefined) {
    await commitRow(db, { ...commit, row, people, own: IS_REMOVED });
    recent.add(row, now);
    await tidy(db, removeAll(hiddenEntries(item)));
  } else if (writes.heads.length > 0) await commitHead(db, commit);
  return writes.decisions[0]!;
}
