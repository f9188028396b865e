/**
 * Deletion requests (NIP-09). The tombstones come first; then the targets are read, strongly consistent, and
 * deleted; the request itself is stored last. So in any interleaving of two writers a target either meets the
 * tombstone in its own transaction, or is found here (I5, I6). A request with its targets is not one
 * transaction: a removal that fails is logged, counted and left to a job, what was deleted stays deleted, and
 * the request is still stored.
 */
import { decideBatch } from '../rules/batch/batch.js';
import { type DeletionTarget, deletionTargets, targetName } from '../rules/deletion.js';
import type { Submission } from '../rules/facts.js';
import type { Outcome, Refusal } from '../rules/reply.js';
import type { BatchWrites } from '../rules/writes.js';
import { Conflict, type Dynamodb, eachOf } from './client.js';
import { type Attempts, commitRow, removal, tidy } from './commit.js';
import { dayOf, type Read, readTargets, tombstoneKeyOf } from './facts.js';
import { findVersions, type LeftRemoval, leaveRemoval } from './history.js';
import type { EventItem } from './items.js';
import { ownerOf, quotaKey } from './keys.js';
import { replyOf, type SubmitOptions } from './submit.js';

/** Writes of one request at the same time. */
const AT_ONCE = 16;
/** Counts of past days are of no use. */
const QUOTA_DAYS = 2;

export interface DeletionOf {
  readonly submission: Submission;
  readonly read: Read;
  readonly now: number;
  readonly attempts: Attempts;
}

export async function submitDeletion(
  options: SubmitOptions,
  { submission, read, now, attempts }: DeletionOf,
): Promise<{ readonly outcome: Outcome | Refusal }> {
  const { db } = options;
  const { community, event: request } = submission;
  // An earlier attempt has counted its own targets.
  const deletionsLeft = attempts.isCounted ? new Map<string, number>() : read.facts.deletionsLeft;
  const first = decideBatch([submission], { ...read.facts, deletionsLeft }, now);
  const settings = options.settingsOf(community);
  if (first.tombstones.length === 0 && first.rows.length === 0)
    return { outcome: replyOf(first, submission) };
  if (!attempts.isCounted) {
    await countTargets(options, submission, first, now);
    attempts.isCounted = true;
  }
  const targets = deletionTargets(request);
  await eachOf(targets, AT_ONCE, (target) => bury(db, submission, target, now));
  const versions = await findVersions(db, submission, now);
  const found = await readTargets(db, submission, versions.items);
  const facts = { ...read.facts, ...found, deletionsLeft: new Map<string, number>() };
  const writes = decideBatch([submission], facts, now);
  const failed = await removeAll(options, submission, writes, found.items);
  const left = [...failed.map((target) => leftOf(submission, target, now)), ...versions.left];
  if (failed.length > 0) {
    options.log.error(
      { community, request: request.id, removals: failed.length },
      'removals are left to a job',
    );
    options.onRemovalsLeft?.(failed.length);
  }
  await eachOf(left, AT_ONCE, (one) => leaveRemoval(db, one));
  const commit = { writes, read, settings, now };
  const [row] = writes.rows;
  if (row !== undefined) {
    // The targets are deleted already.
    const { people } = options;
    await commitRow(db, { ...commit, row, attempts, people, writes: { ...writes, hidden: [], heads: [] } });
    options.recent.add(row, now);
  }
  return { outcome: replyOf(writes, submission) };
}

/** Throws a Conflict when the targets of another request have used what was left. */
async function countTargets(
  { db, settingsOf }: SubmitOptions,
  { community, event }: Submission,
  { quotaUses }: BatchWrites,
  now: number,
): Promise<void> {
  const [use] = quotaUses;
  if (use === undefined) return;
  const max = settingsOf(community)['deletion.targetsPerDayMax'];
  const isCounted = await db.change({
    table: 'state',
    update: quotaKey(community, event.pubkey, dayOf(now)),
    set: {
      text: 'SET ttl_at = :ttl, owner_key = :owner ADD targets :more',
      values: {
        ':ttl': (dayOf(now) + QUOTA_DAYS) * 86_400,
        ':owner': ownerOf(community, event.pubkey),
        ':more': use.targets,
      },
    },
    if: {
      text: 'attribute_not_exists(targets) OR targets <= :room',
      values: { ':room': max - use.targets },
    },
  });
  if (!isCounted) throw new Conflict([]);
}

/** A tombstone keeps the latest request. An earlier request changes nothing. */
async function bury(
  db: Dynamodb,
  { community, event: request }: Submission,
  target: DeletionTarget,
  now: number,
): Promise<void> {
  await db.change({
    table: 'state',
    put: {
      ...tombstoneKeyOf(community, target, request.pubkey),
      requested_at: request.created_at,
      request_id: request.id,
      buried_at: now,
      owner_key: ownerOf(community, request.pubkey),
    },
    if: {
      text: 'attribute_not_exists(pk) OR requested_at < :at',
      values: { ':at': request.created_at },
    },
  });
}

/** Deletes what the decision hides. Returns the targets whose removal failed. */
async function removeAll(
  { db, log, onGone }: Pick<SubmitOptions, 'db' | 'log' | 'onGone'>,
  { community }: Submission,
  { hidden }: BatchWrites,
  items: ReadonlyMap<number, EventItem>,
): Promise<DeletionTarget[]> {
  const failed: DeletionTarget[] = [];
  await eachOf(hidden, AT_ONCE, async ({ id, row }) => {
    try {
      await removeItem(db, items.get(row.seq)!);
      onGone?.(community, id);
    } catch (error) {
      log.error({ community, event: id, error: String(error) }, 'a deleted event could not be removed');
      failed.push({ type: 'id', id });
    }
  });
  return failed;
}

/**
 * Deletes an item that was served or superseded. If another writer has changed it since it was read, it is
 * read again. True when it was deleted here.
 */
export async function removeItem(db: Dynamodb, seen: EventItem): Promise<boolean> {
  let item: EventItem | undefined = seen;
  for (let tries = 1; tries <= CHANGED_MAX; tries += 1) {
    if (item === undefined || !(item.hidden_as === undefined || item.hidden_as === 'superseded'))
      return false;
    const { change, after } = removal(item);
    if (await db.change(change)) {
      await tidy(db, after);
      return true;
    }
    item = (await db.get('events', change.remove)) as EventItem | undefined;
  }
  throw new Conflict([]);
}
/** An item is superseded once, and hidden once. */
const CHANGED_MAX = 4;

function leftOf({ community, event }: Submission, target: DeletionTarget, now: number): LeftRemoval {
  const { pubkey: author, created_at: requestedAt } = event;
  return { community, author, requestedAt, target: targetName(target), type: target.type, dueAt: now };
}
